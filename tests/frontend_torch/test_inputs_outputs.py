"""Inputs and outputs one to one with the model: `program.run` takes its arguments and returns its result."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

from patcomp import AIProgram, EvaluationError, TorchConverter, UnsupportedError, get_decomp_table
from patcomp.emit.native import Native
from patcomp.evaluate.calling import arguments_by_name, result_of
from patcomp.interface.signature import Fixed
from patcomp.ir import IRModule
from patcomp.ir.extents import MASK
from tests.frontend_torch.models import Function, assert_same, export
from tests.helpers.ways import loaded

X = torch.arange(6.0).reshape(2, 3)
WEIGHT = nn.Parameter(torch.tensor([2.0, 1.0, -1.0]))


class Pair(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "None": (lambda x: None, (X,)),
    "an empty tuple": (lambda x: (), (X,)),
    "the same tensor twice": (lambda x: (y := x + 1, y, x * 2, y), (X,)),
    "an input": (lambda x: (x, x + 1, x), (X,)),
    "a parameter": (lambda x: (WEIGHT, x, WEIGHT * x), (X,)),
    "a constant": (lambda x: (torch.tensor([1, 2]), x + 1), (X,)),
    "Python values": (lambda x: {"a": None, "b": 3, "c": 2.5, "d": True, "e": "text", "f": [x * 2]}, (X,)),
    "only Python values": (lambda x: (1, None), (X,)),
    "no inputs": (lambda: torch.ones(2) * 3, ()),
    "no inputs, a constant": (lambda: (torch.ones(2), 3), ()),
    "nested containers": (
        lambda d, items: (d["a"] + items[0], [items[1][0], {"z": d["b"]}]),
        ({"b": X, "a": X * 2}, [X + 3, (X + 5,)]),
    ),
    "one dict": (lambda d: d["a"] - d["b"], ({"a": X, "b": X * 3},)),
    "a named tuple": (lambda pair: Pair(pair.first + 1, pair.second), (Pair(X, X * 2),)),
    "Python inputs": (
        lambda x, k, f, flag, mode, nothing: x * k + f if flag and mode == "mul" and nothing is None else x,
        (X, 2, 0.5, True, "mul", None),
    ),
    "numbers as tensors": (lambda x: (x.sum(), x.argmax(1), x > 2), (X,)),
    "items": (
        lambda x, y: (x.item(), y.item(), x.logical_not().item()),
        (torch.tensor([True]), torch.tensor(3, dtype=torch.int32)),
    ),
    "an empty tensor": (lambda x: (x[:0], x + 1), (X,)),
    "an unused input": (lambda x, y: x + 1, (X, X * 2)),
}  # fmt: skip


def converted(function: Callable[..., Any], *args: Any, **names: Any) -> AIProgram:
    return TorchConverter().add_exported_program(export(Function(function), *args), **names).to_coreai()


@pytest.mark.parametrize("name", CASES)
def test_as_the_model_is_called(name: str, native: Native) -> None:
    function, args = CASES[name]
    program = converted(function, *args)
    assert_same(program.run(*args), function(*args))
    call = program.signature().call
    assert call is not None
    outputs = native.run(program.module, arguments_by_name(call, args, {}))
    assert sorted(outputs) == sorted(program.output_names())
    assert_same(result_of(call, outputs), function(*args))


def test_one_name_for_each_output() -> None:
    function, args = CASES["the same tensor twice"]
    assert converted(function, *args).output_names() == ("add", "add_1", "mul", "add_2")
    names = ["a", "b", "c", "d"]
    assert list(converted(function, *args, output_names=names).run({"args_0": X})) == names


@dataclass
class Scores:
    logits: torch.Tensor
    loss: torch.Tensor | None = None
    states: tuple[torch.Tensor, ...] = ()


torch.export.register_dataclass(Scores, serialized_type_name="patcomp.tests.Scores")

KEYS: dict[str, tuple[Callable[[torch.Tensor], Any], list[str]]] = {
    "a dictionary": (lambda x: {"logits": x + 1, "pooled": x.mean(1)}, ["logits", "pooled"]),
    "of dictionaries and tuples": (lambda x: {"a": (x + 1, x * 2), "b": {"c": x.sum()}}, ["a_0", "a_1", "b_c"]),
    "numbers behind a key": (lambda x: {"layers": {0: x + 1, 7: x * 2}}, ["layers_0", "layers_7"]),
    "a dataclass": (lambda x: Scores(x + 1, states=(x * 2, x * 3)), ["logits", "states_0", "states_1"]),
    "a named tuple": (lambda x: Pair(x.amax(1), x.sum()), ["first", "second"]),
    "an ordered dictionary": (lambda x: OrderedDict(z=x + 1, a=x * 2), ["z", "a"]),
    "a dictionary with a default": (lambda x: defaultdict(list, q=x + 1), ["q"]),
    "the same key twice": (lambda x: ({"a": x + 1}, {"a": x * 2}), ["a", "a_1"]),
    "one tensor by two keys": (lambda x: {"a": (y := x + 1), "b": y, "args_0": x}, ["a", "b", "args_0"]),
    "Python values": (lambda x: {"a": 3, "b": x * 2, "c": None, "d": x + 1}, ["b", "d"]),
    "the name of a state": (lambda x: {"args_0": x.add_(1), "y": x * 2}, ["args_0_1", "y"]),
    "no name for a file": (lambda x: {"": x + 1, "a\nb": x * 2, "a/b c": x * 3}, ["add", "mul", "a/b c"]),
    "numbers only": (lambda x: {0: x + 1, 1: x * 2}, ["add", "mul"]),
    "positions": (lambda x: (x + 1, [x * 2]), ["add", "mul"]),
}


@pytest.mark.parametrize("name", KEYS)
def test_outputs_have_the_keys_and_fields_of_the_result(name: str) -> None:
    function, keys = KEYS[name]
    exported = export(Function(function), X)
    programs = [exported, exported.run_decompositions(get_decomp_table())]
    if name != "a named tuple":  # which PyTorch saves for registered classes only
        programs.append(loaded(exported))
    for each in programs:
        program = TorchConverter().add_exported_program(each).to_coreai()
        assert list(program.output_names()) == keys
    assert_same(program.run(X.clone()), function(X.clone()))


def test_an_input_and_an_output_may_share_a_name(native: Native) -> None:
    program = converted(lambda x: x * 2, X, input_names=["x"], output_names=["x"])
    assert torch.equal(program.run({"x": X})["x"], X * 2)
    assert native.run(program.module, {"x": X})["x"].tolist() == (X * 2).tolist()


NAMES = ["a b", "1x", "ä", 'q"x', "a\\b", "a/b", "%x", "😀", "if"]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_free_text(name: str, native: Native) -> None:
    program = converted(lambda x: x * 2, X, input_names=[name], output_names=[name], entrypoint_name=name)
    assert native.run(program.module, {name: X}, entry=name)[name].tolist() == (X * 2).tolist()
    assert program.run({name: X}, entrypoint=name)[name].equal(X * 2)


@pytest.mark.parametrize("name", ["", " ", "a\nb", "\0", "\x7f", "\ud800"])
@pytest.mark.parametrize("which", ["input_names", "output_names", "entrypoint_name"])
def test_names_that_no_file_holds(which: str, name: str) -> None:
    with pytest.raises(ValueError, match=r"unusable names|must not be empty"):
        converted(lambda x: x * 2, X, **{which: name if which == "entrypoint_name" else [name]})


def test_a_lone_surrogate_in_the_name_of_a_node_is_escaped() -> None:
    exported = export(Function(lambda x: x * 2), X)
    placeholder = next(iter(exported.graph.nodes))
    specification = exported.graph_signature.input_specs[0]
    placeholder.name = placeholder.target = "a\ud800"  # as other tools may leave it
    specification.arg.name = "a\ud800"
    program = TorchConverter().add_exported_program(exported).to_coreai()
    assert program.input_names() == (r"a\ud800",)
    assert r"a\\ud800" in str(program)
    assert program.run({r"a\ud800": X})["mul"].equal(X * 2)


def test_the_signature_names_what_is_fixed() -> None:
    function, args = CASES["Python inputs"]
    call = converted(function, *args).signature().call
    assert call is not None
    assert call.arguments == ("args_0", Fixed(2), Fixed(0.5), Fixed(True), Fixed("mul"), Fixed(None))
    function, args = CASES["Python values"]
    signature = converted(function, *args).signature()
    assert str(signature).splitlines() == [
        "input  args_0: 2x3xf32",
        "output f_0: 2x3xf32",
        "result 0 is always None",
        "result 1 is always 3",
        "result 2 is always 2.5",
        "result 3 is always True",
        "result 4 is always 'text'",
    ]


def test_another_python_value_is_refused() -> None:
    function, args = CASES["Python inputs"]
    program = converted(function, *args)
    for index, other in ((1, 3), (1, 2.0), (2, 0.25), (3, False), (4, "add"), (5, 1), (1, torch.tensor(2))):
        given = [*args[:index], other, *args[index + 1 :]]
        with pytest.raises(EvaluationError, match=rf"argument {index} was .* export the model again"):
            program.run(*given)


def test_arguments_that_do_not_fit_are_named() -> None:
    program = converted(lambda x, y: x + y, X, X + 1)
    with pytest.raises(EvaluationError, match=r"input 'args_1' must be of type tensor<2x3xf32>, got .* \(3,\)"):
        program.run(X, X[0])
    with pytest.raises(EvaluationError, match=r"input 'args_1' must be of dtype float32, got int64"):
        program.run(X, X.long())
    with pytest.raises(
        EvaluationError, match=r"was exported with the arguments \(args_0, args_1\), and was called with"
    ):
        program.run(X)
    with pytest.raises(EvaluationError, match=r"needs input args_1"):
        program.run({"args_0": X})
    with pytest.raises(EvaluationError, match=r"has no input other"):
        program.run({"args_0": X, "args_1": X, "other": X})
    with pytest.raises(EvaluationError, match=r"needs input args_0"):
        converted(lambda x: x + 1, X).run({"x": X})
    with pytest.raises(ValueError, match="backend must be"):
        program.run(X, X, backend="native")


def test_keyword_arguments_in_any_order() -> None:
    class Keywords(nn.Module):
        def forward(self, x: torch.Tensor, *, scale: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
            return x * scale + shift

    exported = torch.export.export(Keywords(), (X,), {"scale": X * 3, "shift": X + 1})
    program = TorchConverter().add_exported_program(exported).to_coreai()
    assert program.input_names() == ("x", "scale", "shift")
    assert_same(program.run(X, shift=X + 1, scale=X * 2), Keywords()(X, scale=X * 2, shift=X + 1))


def test_one_example_tensor_for_two_inputs_is_warned_of() -> None:
    exported = export(lambda x, y, z: x * y + z, X, X, X + 1)
    with pytest.warns(UserWarning, match=r"inputs 'args_0', 'args_1' .* same tensor .* replaced 'args_0' by another"):
        TorchConverter().add_exported_program(exported).to_coreai()


def test_an_example_that_is_a_buffer_of_the_model_is_warned_of() -> None:
    class Shift(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("shift", X)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2 + self.shift

    with pytest.warns(UserWarning, match=r"inputs 'x', 'b_shift' .* same tensor .* by another"):
        TorchConverter().add_exported_program(export(Shift(), X)).to_coreai()


def test_a_program_without_a_model_runs_by_name() -> None:
    from patcomp import AIProgram

    program = AIProgram(IRModule.parse(str(converted(lambda x: x * 2, X))))
    assert program.run({"args_0": X})["mul"].equal(X * 2)
    with pytest.raises(
        EvaluationError, match=r"takes one mapping of input names to tensors: program.run\(\{'args_0': ...\}\)"
    ):
        program.run(X)


def test_nothing_that_was_given_is_changed() -> None:
    class Writes(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.mul_(2) + 1

    given = X.clone()
    program = TorchConverter().add_exported_program(export(Writes(), given.clone())).to_coreai()
    assert program.run(given).equal(X * 2 + 1)
    assert program.run({"x": given})["add"].equal(X * 2 + 1)
    assert given.equal(X)


def test_a_buffer_that_does_not_fit_into_memory_is_refused() -> None:
    class Written(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count.add_(1)
            return x + self.count

    exported = torch.export.export(Written(), (torch.ones(1),))
    exported.state_dict["count"] = torch.zeros(1).expand(2**40)  # 4 bytes, which other tools may have left so
    with pytest.raises(
        UnsupportedError, match=r"the buffer 'count' of 1099511627776 elements does not fit into memory"
    ):
        TorchConverter().add_exported_program(exported).to_coreai()


@pytest.mark.parametrize(
    ("example", "is_mask"),
    [
        (torch.tensor([[1, 0], [1, 1]]), True),
        (torch.zeros(2, 2, dtype=torch.int64), True),
        (torch.tensor([[[0, 1]], [[1, 0]]]), True),
        (torch.tensor([[1, 2], [0, 1]]), False),
        (torch.tensor([[1, 0], [1, 1]], dtype=torch.int32), False),
        (torch.tensor([1, 0]), False),
        (torch.tensor([[1.0, 0.0], [1.0, 1.0]]), False),
        (torch.zeros(2, 0, dtype=torch.int64), False),
        (torch.zeros(2, 2, dtype=torch.int64, device="meta"), False),
    ],
)
def test_which_examples_are_masks(example: torch.Tensor, is_mask: bool) -> None:
    """Rows of zeros and ones of 64 bits, which narrowing and guards read as masks."""

    class Twice(nn.Module):
        def forward(self, mask: torch.Tensor) -> torch.Tensor:
            return mask + mask

    imported = TorchConverter().add_exported_program(torch.export.export(Twice(), (example,))).imported()
    assert (MASK in imported.text()) is is_mask
