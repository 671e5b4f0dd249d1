"""Names and ranges of dynamic dimensions, and the checks of `program.run` against them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import sympy
import torch
from torch import nn
from torch.export import Dim

import patcomp
from patcomp import ConversionWarning, EvaluationError, TorchConverter, get_decomp_table
from patcomp.frontend_torch.interface.guards import conditions_of
from tests.frontend_torch.dynamic import converted, exported, exported_function
from tests.frontend_torch.models import Function
from tests.helpers.ways import loaded


def test_the_signature_has_names_and_ranges() -> None:
    signature = converted(exported(right=Dim.AUTO), input_names=["x", "left", "right"]).signature()
    assert [spec.shape for spec in signature.inputs] == [("batch", "seq", 8), ("batch", "2*seq + 1"), ("s0",)]
    assert signature.dims == {"batch": (1, 16), "seq": (2, 64), "s0": (2, None)}
    assert str(signature).splitlines()[:2] == [
        "input  x: [batch]x[seq]x8xf32",
        "input  left: [batch]x[2*seq + 1]xf32",
    ]


def test_only_a_derived_dimension_is_there() -> None:
    program = torch.export.export(nn.ReLU(), (torch.randn(6),), dynamic_shapes={"input": {0: 3 * Dim("third", max=5)}})
    signature = converted(program).signature()
    assert signature.inputs[0].shape == ("3*third",)
    assert signature.dims == {"third": (0, 5)}


def test_a_loaded_program_has_no_names_but_numbers() -> None:
    signature = converted(loaded(exported())).signature()
    assert [spec.shape for spec in signature.inputs] == [("s0", "s1", 8), ("s0", "2*s1 + 1"), (5,)]
    assert signature.dims == {"s0": (1, 16), "s1": (2, 64)}


@pytest.mark.parametrize("backend", ["evaluator", "runtime"])
@pytest.mark.parametrize(
    ("x", "left", "message"),
    [
        ((17, 4), (17, 9), "input 'x' has size 17 in dimension 0, but batch must be 1 to 16"),
        ((3, 1), (3, 3), "input 'x' has size 1 in dimension 1, but seq must be 2 to 64"),
        ((3, 4), (2, 9), "input 'pair_left' has size 2 in dimension 0, but batch is 3 by the inputs before"),
        ((3, 4), (3, 8), r"'pair_left' has size 8 in dimension 1, but it must be 9 = 2\*seq \+ 1, since seq is 4"),
    ],
)
def test_sizes_are_checked(x: tuple[int, int], left: tuple[int, int], message: str, backend: str) -> None:
    program = converted(exported(), mutated_inputs="output")
    with pytest.raises(EvaluationError, match=message):
        program.run(torch.randn(*x, 8), {"left": torch.randn(*left), "right": torch.randn(5)}, backend=backend)


def test_a_derived_size_must_be_whole() -> None:
    program = torch.export.export(nn.ReLU(), (torch.randn(6),), dynamic_shapes={"input": {0: 3 * Dim("third", max=5)}})
    with pytest.raises(EvaluationError, match=r"has size 7 in dimension 0, which is not 3\*third for any whole third"):
        converted(program).run(torch.randn(7))
    with pytest.raises(EvaluationError, match=r"size 18 in dimension 0, but 3\*third is 18: third must be 0 to 5"):
        converted(program).run(torch.randn(18))


def test_numbers_are_checked() -> None:
    class Repeat(nn.Module):
        def forward(self, x: torch.Tensor, n: int) -> torch.Tensor:
            return x.repeat(n)

    program = torch.export.export(Repeat(), (torch.randn(3), 3), dynamic_shapes=(None, Dim.DYNAMIC(min=3, max=9)))
    with pytest.raises(EvaluationError, match=r"input 'n' is 10, but s0 must be 3 to 9"):
        converted(program).run(torch.randn(3), 10)


def test_a_product_of_dimensions() -> None:
    class Flat(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x.reshape(-1) + y

    shapes = {"x": {0: Dim.AUTO, 1: Dim.AUTO}, "y": {0: Dim.AUTO}}
    program = converted(torch.export.export(Flat(), (torch.randn(3, 4), torch.randn(12)), dynamic_shapes=shapes))
    assert [spec.shape for spec in program.signature().inputs] == [("s0", "s1"), ("s0*s1",)]
    assert program.run(torch.ones(2, 5), torch.ones(10)).tolist() == [2.0] * 10
    with pytest.raises(EvaluationError, match=r"must be 10 = s0\*s1, since s0 is 2, s1 is 5"):
        program.run(torch.ones(2, 5), torch.ones(11))


class Twice(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


def test_size_one_of_an_automatic_dimension_is_refused_with_advice() -> None:
    exported = torch.export.export(Twice(), (torch.randn(3, 4),), dynamic_shapes={"x": {0: Dim.AUTO}})
    program = TorchConverter().add_exported_program(exported).to_coreai()
    with pytest.raises(EvaluationError, match=r"x.* size 1 in dimension 0, but s0 must be 2 or more; .*min=1"):
        program.run(torch.randn(1, 4))
    named = torch.export.export(Twice(), (torch.randn(3, 4),), dynamic_shapes={"x": {0: Dim("n", min=1)}})
    program = TorchConverter().add_exported_program(named).to_coreai()
    assert program.run(torch.ones(1, 4)).tolist() == [[2.0] * 4]
    with pytest.raises(EvaluationError) as caught:
        program.run(torch.randn(0, 4))
    assert "AUTO" not in str(caught.value)


def unbound(x: torch.Tensor, y: torch.Tensor) -> Any:
    return x.unbind(0)[0] + 1, x.clone(), x == x * y


def test_a_dimension_that_export_specialized_is_static() -> None:
    program = exported_function(unbound, torch.ones(3), torch.ones(()), shapes=[{0: Dim.AUTO}, {}])
    signature = converted(program).signature()
    assert [spec.shape for spec in signature.inputs] == [(3,), ()]
    assert [spec.shape for spec in signature.outputs] == [(), (3,), (3,)]
    assert signature.dims == {}
    with pytest.raises(EvaluationError, match=r"input 'x' must be of type tensor<3xf32>, got .* of shape \(2,\)"):
        converted(program).run(torch.ones(2), torch.ones(()), backend="runtime")


def written(x: torch.Tensor, y: torch.Tensor) -> Any:
    x.add_(torch.cond(y.sum() > 0, lambda z: z.clone(), lambda z: z * 2, (y,)))
    return x.unbind(0)[0], x.unbind(1)[0], y.as_strided((3, 3), (3, 1))


def test_specialized_dimensions_of_states_branches_and_strided_reads() -> None:
    shapes = [{0: Dim.AUTO, 1: Dim.AUTO}, {0: Dim.AUTO, 1: Dim.AUTO}]
    tensors = torch.randn(3, 3), torch.randn(3, 3)
    program = converted(exported_function(written, *tensors, shapes=shapes))
    assert program.signature().states[0].shape == (3, 3)
    assert program.signature().dims == {}
    assert program.verify_against(written, tensors, backends=["evaluator"]).passed


def powered(x: torch.Tensor, n: int) -> torch.Tensor:
    return x * n if n == 7 else x + n


def test_a_number_that_export_specialized_is_fixed() -> None:
    program = converted(exported_function(powered, torch.ones(3), 7, shapes=[{0: Dim.AUTO}, Dim.AUTO]))
    assert program.input_names() == ("x",)
    assert program.run(torch.ones(2), 7).tolist() == [7, 7]
    with pytest.raises(EvaluationError, match="argument 1 was 7 when the model was exported and cannot be 8"):
        program.run(torch.ones(2), 8)


def even(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.shape[0] % 2 == 0 else x + 1


@pytest.mark.parametrize("kept", [lambda program: program, loaded], ids=["exported", "loaded"])
def test_conditions_that_export_recorded_are_checked(kept: Callable[..., Any]) -> None:
    exported_program = kept(exported_function(even, torch.ones(4), shapes=[{0: Dim.AUTO}]))
    with pytest.warns(
        ConversionWarning, match=r"sizes where s0 % 2 == 0; program.run checks this, but an asset cannot"
    ):
        program = converted(exported_program)
    assert len(program.diagnostics) == 1
    assert str(program.signature()).splitlines()[-1] == "guard  s0 % 2 == 0"
    assert program.verify_against(even, (torch.randn(6),), backends=["evaluator"]).passed
    message = (
        "'x' has size 5 in dimension 0, but the model was exported for sizes where s0 % 2 == 0; export it once more"
    )
    for backend in ("evaluator", "runtime"):
        with pytest.raises(EvaluationError, match=message):
            program.run(torch.ones(5), backend=backend)
        with pytest.raises(EvaluationError, match=message):
            program.verify_against(even, (torch.ones(5),), backends=[backend])
    with pytest.raises(ValueError, match="sizes where s0 % 2 == 0, which does not hold where s0 is 3"):
        program.specialize({"s0": 3})
    with pytest.raises(ValueError, match="sizes where s0 % 2 == 0"):
        program.set_static_shape_config("main", {"odd": {"x": (3,)}})
    assert program.specialize({"s0": 8}).signature().guards == ()


def checked(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    torch._check(x.shape[0] % 3 == 0)
    return x * 2 + y.sum()


def shorter(x: torch.Tensor, y: dict[str, Any]) -> torch.Tensor:
    first = y["several"][0]
    return x.sum() if 2 * x.shape[0] - first.shape[0] < 1 else first.sum()


GUARDED: dict[str, tuple[Callable[..., Any], tuple[Any, ...], Any, list[str]]] = {
    "of torch._check": (
        checked, (torch.ones(9), torch.ones(3)), [{0: Dim.AUTO}, {}], ["s0 % 3 == 0"],
    ),
    "of two inputs, one of them nested": (
        shorter, (torch.ones(2), {"several": [torch.ones(4)]}), [{0: Dim.AUTO}, {"several": [{0: Dim.AUTO}]}],
        ["2*s0 - s1 < 1"],
    ),
    "of a number": (
        lambda x, n: x * n if n % 3 == 1 else x + n, (torch.ones(4), 7), [{0: Dim.AUTO}, Dim.AUTO], ["s1 % 3 == 1"],
    ),
    "of quotients": (
        lambda x: x + 1 if x.shape[0] / x.shape[1] > 1.5 else x, (torch.ones(8, 5),), [{0: Dim.AUTO, 1: Dim.AUTO}],
        ["s0 / s1 > 1.5"],
    ),
    "of a mutated input": (
        lambda x, y: x.add_(1) if (x.shape[0] + y.shape[0]) % 2 else y * 1, (torch.ones(4), torch.ones(3)),
        [{0: Dim.AUTO}, {0: Dim.AUTO}], ["(s1 + s0) % 2 != 0"],
    ),
    "of a derived dimension": (
        lambda x: x * 2 if x.shape[0] % 4 == 0 else x, (torch.ones(8),), [{0: 2 * Dim("half", max=64)}],
        ["(2*s0) % 4 == 0"],
    ),
    "that ranges imply": (
        lambda x: x[: x.shape[0] // 2] * (2 if x.shape[0] > 3 else 1), (torch.ones(4),), [{0: Dim.AUTO}], [],
    ),
    "that all of the sizes fulfil": (
        lambda x: x * 2 if x.shape[0] % 7 != 0 else x, (torch.ones(4),), [{0: Dim.AUTO(min=2, max=6)}], [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GUARDED)
def test_guards(name: str) -> None:
    function, args, shapes, guards = GUARDED[name]
    exported_program = exported_function(function, *args, shapes=shapes)
    for program in (exported_program, loaded(exported_program)):
        with warnings.catch_warnings(record=True) as caught:
            signature = TorchConverter().add_exported_program(program).to_coreai().signature()
        assert [str(guard).replace("half", "s0") for guard in signature.guards] == guards  # a file has no names
        assert len([each for each in caught if each.category is ConversionWarning]) == bool(guards)


@pytest.mark.parametrize("kept", [lambda program: program, loaded], ids=["exported", "loaded"])
def test_conditions_that_export_leaves_to_the_program_are_guards(kept: Callable[..., Any]) -> None:
    def model(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        torch._check(x.shape[0] <= y.shape[0])
        return x.sum() + y

    sizes = (({0: Dim("n", min=2, max=9)}, {0: Dim("m", min=2, max=9)}),)
    exported_program = torch.export.export(
        Function(model),
        (torch.ones(3), torch.ones(5)),
        dynamic_shapes=sizes,
        prefer_deferred_runtime_asserts_over_guards=True,
    )
    guards = converted(kept(exported_program)).signature().guards
    assert [str(guard).replace("s0", "n").replace("s1", "m") for guard in guards] == ["n <= m"]


def test_a_number_of_any_value_beside_sizes() -> None:
    """It has no smallest value, unlike sizes."""
    program = converted(
        exported_function(lambda x, n: x * n.item(), torch.ones(4), torch.tensor(3), shapes=[{0: Dim.AUTO}, {}])
    )
    assert program.signature().guards == ()
    assert program.run(torch.ones(2), torch.tensor(-5)).tolist() == [-5, -5]


def test_a_guard_that_cannot_be_read_is_warned_of() -> None:
    program = loaded(exported_function(even, torch.ones(4), shapes=[{0: Dim.AUTO}]))
    program._guards_code.append("__import__('os').abort() == L['x'].size()[0]")
    with pytest.warns(ConversionWarning, match="patcomp cannot check this, and the program may be wrong"):
        assert converted(program).signature().guards != ()


def test_a_guard_of_one_of_two_inputs_with_equal_paths_is_warned_of() -> None:
    """A file names inputs by their paths, in which `x["y"]` and `x_y` are the same."""

    class Model(nn.Module):
        def forward(self, x: dict[str, torch.Tensor], x_y: torch.Tensor) -> torch.Tensor:
            return x["y"].sum() if x_y.shape[0] % 2 == 0 else x_y.sum()

    args, sizes = ({"y": torch.ones(3)}, torch.ones(4)), ({"y": {0: Dim.AUTO}}, {0: Dim.AUTO})
    program = loaded(torch.export.export(Model(), args, dynamic_shapes=sizes))
    with pytest.warns(ConversionWarning, match="patcomp cannot check this, and the program may be wrong"):
        assert converted(program).signature().guards == ()


def test_a_file_without_its_conditions_is_warned_of() -> None:
    """PyTorch 2.8 has no place for them."""
    program = loaded(exported_function(even, torch.ones(4), shapes=[{0: Dim.AUTO}]))
    del program._guards_code
    with pytest.warns(ConversionWarning, match=r"conditions hold that this PyTorch .*the program may be wrong"):
        converted(program)


def test_a_condition_on_the_layout_excludes_no_size_that_was_declared() -> None:
    shapes = [{0: 2 * Dim("n", min=1, max=32)}]
    program = converted(exported_function(lambda x: x.view(2, -1), torch.ones(8), shapes=shapes))
    assert (program.signature().dims, program.signature().guards) == ({"n": (1, 32)}, ())
    assert program.run(torch.ones(2)).shape == (2, 1)


def test_a_condition_on_the_layout_is_none_of_the_numbers() -> None:
    """A file does not say where a condition comes from."""

    def rows_of_three(x: torch.Tensor) -> torch.Tensor:
        torch._check(x.shape[0] % 3 == 0)
        return x.reshape(-1, 3) + 1

    exported = exported_function(rows_of_three, torch.ones(9), shapes=[{0: Dim.AUTO}])
    with pytest.warns(ConversionWarning, match="s0 % 3 == 0"):
        program = converted(exported)
    assert [str(guard) for guard in program.signature().guards] == ["s0 % 3 == 0"]
    assert torch.equal(program.run(torch.ones(3)), torch.full((1, 3), 2.0))
    with pytest.warns(ConversionWarning, match="2 conditions|s0 // 3 != 1"):
        assert len(converted(loaded(exported)).signature().guards) == 2


def test_a_condition_on_a_layout_that_an_op_depends_on_stays() -> None:
    def plain(x: torch.Tensor) -> torch.Tensor:
        torch._check(x.shape[0] % 3 == 0)
        return x.reshape(-1, 3)[0] + x.sum()

    def strided(x: torch.Tensor) -> torch.Tensor:
        torch._check(x.shape[0] % 3 == 0)
        return torch.as_strided(x.reshape(-1, 3), (3,), (1,)) + x.sum()

    shapes = [{0: Dim.AUTO}]
    one, other = (
        list(conditions_of(exported_function(each, torch.ones(9), shapes=shapes))) for each in (plain, strided)
    )
    assert not any(isinstance(condition, sympy.Ne) for condition in one)
    assert any(isinstance(condition, sympy.Ne) for condition in other)


class ManyConditions(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        rows, columns = x.shape[0], y.shape[0]
        fits = rows % 3 == 0 and columns % 5 == 0 and rows * 7 > columns and rows < 11 * columns
        if fits and (rows * 4 + 3) % 9 == 0 and (columns * 6 + 7 * rows) % 2 == 0:
            return x.sum() + y.sum()
        return x.sum()


def test_many_conditions_are_one_sentence() -> None:
    shapes = {"x": {0: Dim("rows", min=2, max=1000)}, "y": {0: Dim("columns", min=2, max=1000)}}
    exported = torch.export.draft_export(ManyConditions(), (torch.ones(6), torch.ones(10)), dynamic_shapes=shapes)
    with pytest.warns(ConversionWarning) as said:
        program = TorchConverter().add_exported_program(exported).to_coreai()
    (message,) = (str(each.message) for each in said if "exported for" in str(each.message))
    assert message.startswith(
        "the model was exported for some sizes of s0 and s1 only (6 conditions, which the program's signature "
        "lists); program.run checks this, but an asset cannot"
    )
    assert len(program.signature().guards) == 6


class Written(nn.Module):
    """Writes the last tokens of a cache of 64, layer by layer, as decoders do."""

    def forward(self, new: torch.Tensor, positions: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
        total = positions.shape[0]
        for layer in range(2):
            cache[layer, total - new.shape[0] : total] = new * (layer + 1)
        return cache[:, :total].sum(0) * (torch.arange(total) <= total - new.shape[0])[:, None]


@pytest.mark.parametrize("table", [None, get_decomp_table()], ids=["PyTorch's table", "ours"])
def test_a_condition_is_said_once_in_its_simplest_form(table: Any) -> None:
    """Decomposition asks for `8*total - 8*new >= 0`, too, and for what 64 positions imply."""
    args = torch.randn(3, 8), torch.arange(5), torch.zeros(2, 64, 8)
    sizes = ({0: Dim("new", min=1, max=64)}, {0: Dim("total", min=1, max=64)}, None)
    exported = patcomp.export(Written(), args, dynamic_shapes=sizes)
    for each in (exported, exported.run_decompositions(table)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConversionWarning)
            program = TorchConverter().add_exported_program(each).to_coreai()
        assert [str(guard) for guard in program.signature().guards] == ["total - new >= 0"]


class Cache(nn.Module):
    """Writes to a part of a cache, and reads a part of it; both may be the whole."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, new: torch.Tensor, all_: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
        total = all_.shape[0]
        offset = total - new.shape[1]
        torch._check(offset >= 0)
        torch._check(total <= cache.shape[1])
        cache.narrow(1, offset, new.shape[1]).copy_(new)
        held = cache.narrow(1, 0, total)
        return self.linear(held.transpose(0, 1)).reshape(total, -1)


def test_a_part_may_be_the_whole() -> None:
    """PyTorch asks whether a part is as large as the whole, only to know whether it is contiguous."""
    sizes = [{1: Dim("new", min=1, max=64)}, {0: Dim("total", min=1, max=64)}, {1: Dim("capacity", min=1, max=64)}]
    model = Cache().eval()
    exported = torch.export.export(model, (torch.randn(2, 3, 4), torch.ones(5), torch.zeros(2, 8, 4)),
                                   dynamic_shapes=sizes)  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConversionWarning)
        program = TorchConverter().add_exported_program(exported, state_names=["cache"]).to_coreai()
    assert not [guard for guard in program.signature().guards if guard.operator == "!="]
    for new, total, capacity in ((3, 5, 5), (4, 4, 4), (1, 1, 1)):
        given = torch.randn(2, new, 4), torch.ones(total)
        held = torch.randn(2, capacity, 4)
        states = {"cache": held.clone()}
        names = [spec.name for spec in program.signature().inputs]
        found = program.run(dict(zip(names, given, strict=True)), state=states)
        torch.testing.assert_close(next(iter(found.values())), model(*given, held))
        torch.testing.assert_close(states["cache"], held)
