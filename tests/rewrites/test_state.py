"""State: buffers and inputs that a model writes to, call after call beside eager PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch._higher_order_ops import while_loop
from torch.utils import _pytree as pytree

from patcomp import (
    AIProgram,
    EvaluationError,
    ExternalizeSpec,
    TorchConverter,
    UnsupportedError,
    mark_for_externalization,
)
from patcomp.emit.native import Native
from patcomp.evaluate.calling import arguments_by_name, result_of
from patcomp.evaluate.inputs import prepare_input
from patcomp.ir.module import names_of
from patcomp.ir.types import HandleType
from tests.frontend_torch.models import export
from tests.helpers.as_users_run import AS_USERS_RUN

pytestmark = AS_USERS_RUN

X, Y = torch.arange(4.0).reshape(1, 4), torch.tensor([[5.0, -1.0, 2.0, 0.5]])


class Buffers(nn.Module):
    """A module with the buffers `a` and `b`, and a function of itself and its inputs as `forward`."""

    def __init__(self, function: Any, a: torch.Tensor = X, b: torch.Tensor = Y):
        super().__init__()
        self.register_buffer("a", a.clone())
        self.register_buffer("b", b.clone())
        self.function = function

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(self, *args)


def add_and_return(m: Buffers, x: torch.Tensor) -> torch.Tensor:
    m.a.add_(x)
    return m.a


def return_old(m: Buffers, x: torch.Tensor) -> Any:
    old = m.a.clone()
    m.a.add_(x)
    return old, old * m.a


def swap(m: Buffers, x: torch.Tensor) -> torch.Tensor:
    old = m.a.clone()
    m.a.copy_(m.b)
    m.b.copy_(old)
    return m.a - m.b + x


def one_from_the_others_old_value(m: Buffers, x: torch.Tensor) -> torch.Tensor:
    old = m.a.clone()
    m.a.mul_(2).add_(x)
    m.b.copy_(old)
    return m.a + m.b


def one_from_the_others_new_value(m: Buffers, x: torch.Tensor) -> torch.Tensor:
    m.a.add_(x)
    m.b.copy_(m.a * 2)
    return m.a * m.b


def through_a_view(m: Buffers, x: torch.Tensor) -> torch.Tensor:
    m.a.view(2, 2)[0].add_(x[0, :2])
    return m.a.view(-1) * 2


def written_by_a_constant(m: Buffers, x: torch.Tensor) -> torch.Tensor:
    y = m.a + x
    m.a.fill_(3.0)
    m.b.zero_()
    return y


def written_by_an_input(m: Buffers, x: torch.Tensor) -> torch.Tensor:
    y = m.a * 2
    m.a.copy_(x)
    return y + m.a


def written_only(m: Buffers, x: torch.Tensor) -> tuple[()]:
    m.a.copy_(x * 2)
    return ()


def written_twice(m: Buffers, x: torch.Tensor) -> torch.Tensor:
    m.a.add_(x)
    y = m.a * 2
    m.a.mul_(y)
    return y + m.a


def part_by_part(m: Buffers, x: torch.Tensor) -> torch.Tensor:
    m.a[:, 1:3] = x[:, :2] * 2
    old, kept = m.a * 3, m.a
    m.a[:, 2:] = x[:, 2:] + old[:, :2]
    first = kept[:, :2] + old[:, 1:3]
    m.a[:, :1] = m.a[:, 1:2] + 1
    return torch.cat([old, first, m.a], 1)


def assigned(m: Buffers, x: torch.Tensor) -> torch.Tensor:
    m.a = m.a + x
    return m.a * m.b


def by_a_condition(m: Buffers, x: torch.Tensor) -> torch.Tensor:
    new = torch.cond(x.sum() > 8, lambda a, x: a + x, lambda a, x: a - 1, (m.a, x))
    m.a.copy_(new)
    return new * 2


def by_one_branch(m: Buffers, x: torch.Tensor) -> torch.Tensor:
    m.a.copy_(torch.cond(x.sum() > 8, lambda a, x: a * 2, lambda a, x: x.clone(), (m.a, x)))
    return m.a + 1


def by_one_of_nested_branches(m: Buffers, x: torch.Tensor) -> torch.Tensor:
    def nested(a: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 9, lambda a, x: a * 2, lambda a, x: x * 3, (a, x))

    m.a.copy_(torch.cond(x.sum() > 4, nested, lambda a, x: x * 4, (m.a.view(-1).view(1, 4), x)))
    return m.a + 1


def in_a_loop(m: Buffers, x: torch.Tensor) -> torch.Tensor:
    times = (x.sum() / 4).long()
    m.a.copy_(while_loop(lambda i, y: i < times, lambda i, y: (i + 1, y + m.a), (torch.tensor(0), x * 1))[1])
    return m.a + 1


def written_unchanged(m: Buffers, x: torch.Tensor) -> torch.Tensor:
    m.a.copy_(m.a * 1.0)
    m.b.add_(x)
    return m.a + m.b


def overwritten(m: Buffers, x: torch.Tensor) -> torch.Tensor:
    m.a.copy_(x * 2)
    m.a.copy_(x * 3)
    return m.a + x


def written_and_not_read(m: Buffers, x: torch.Tensor) -> torch.Tensor:
    m.a.copy_(x * 2)
    return x + 1


UPDATES = [
    written_unchanged, overwritten, written_and_not_read, add_and_return, return_old, swap,
    one_from_the_others_old_value, one_from_the_others_new_value, through_a_view, written_by_a_constant,
    written_by_an_input, written_only, written_twice, part_by_part, assigned, by_a_condition, by_one_branch,
    by_one_of_nested_branches, in_a_loop,
]  # fmt: skip


def argument_types(program: AIProgram) -> list[Any]:
    types = [argument.type for argument in program.module.graph("main").regions[0].block.args]
    return [type_.tensor_type if isinstance(type_, HandleType) else type_ for type_ in types]


def check_calls(
    model: nn.Module, calls: Sequence[tuple[Any, ...]], native: Native, *, tolerance: float = 1e-5, **options: Any
) -> AIProgram:
    """Converts a model; a sequence of calls gives on both backends what the model gives, and leaves what it leaves."""
    program = TorchConverter().add_exported_program(export(model, *calls[0]), **options).to_coreai()
    call = program.signature().call
    assert call is not None
    mine = program.new_state()
    theirs = {name: value.numpy() for name, value in program.new_state().items()}
    types = dict(zip(names_of(program.module.graph("main"), "arg_attrs"), argument_types(program), strict=True))
    for arguments in calls:
        given = [value.clone() for value in arguments]
        result = program.run(*given, state=mine)
        assert all(torch.equal(value, own) for value, own in zip(arguments, given, strict=True))
        inputs = arguments_by_name(call, given, {})
        inputs = {name: prepare_input(value, types[name], name).numpy() for name, value in inputs.items()}
        theirs |= {name: inputs.pop(name) for name in list(inputs) if name in mine}
        outputs = native.run(program.module, inputs, theirs)
        expected = model(*given)
        for found in (result, pytree.tree_map(torch.from_numpy, result_of(call, outputs))):
            torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance, check_dtype=False)
        for name, path in call.buffers.items():
            for content in (mine[name], torch.from_numpy(theirs[name])):
                own = model.get_buffer(path)
                torch.testing.assert_close(content, own, rtol=tolerance, atol=tolerance, check_dtype=False)
    return program


@pytest.mark.sampled(2)
@pytest.mark.parametrize("update", UPDATES, ids=lambda update: update.__name__)
def test_three_calls_equal_eager(update: Any, native: Native) -> None:
    check_calls(Buffers(update), [(X + 1,), (X * 2,), (Y,)], native)


@pytest.mark.parametrize(
    ("update", "reads", "writes"),
    [(written_unchanged, 3, 1), (overwritten, 1, 1), (written_and_not_read, 0, 1), (add_and_return, 2, 1)],
)
def test_a_state_is_not_accessed_without_need(update: Any, reads: int, writes: int) -> None:
    program = TorchConverter().add_exported_program(export(Buffers(update), X)).to_coreai()
    text = program.text()
    assert (text.count("coreai.read_handle"), text.count("coreai.write_handle")) == (reads, writes)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float16])
def test_a_branch_that_reads_a_state_of_any_type(dtype: torch.dtype, native: Native) -> None:
    def update(m: Buffers, x: torch.Tensor) -> torch.Tensor:
        m.a.copy_(torch.cond(x.sum() > 8, lambda a, x: a.flip(1), lambda a, x: (x > 1).to(dtype), (m.a, x)))
        return m.a.float() + 1

    model = Buffers(update, a=torch.tensor([[0, 1, 0, 0]], dtype=dtype))
    check_calls(model, [(X + 1,), (X / 2,), (Y,), (X + 1,)], native)


def test_a_branch_of_an_externalized_module_reads_a_state(native: Native) -> None:
    class Chosen(nn.Module):
        def forward(self, a: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.sum() > 8, lambda a, x: a * 2, lambda a, x: x.clone(), (a, x))

    def update(m: Buffers, x: torch.Tensor) -> torch.Tensor:
        m.a.copy_(m.chosen(m.a, x))
        return m.a + 1

    model = Buffers(update)
    model.chosen = Chosen()
    with mark_for_externalization(model, [ExternalizeSpec(Chosen, "chosen")]):
        exported = export(model, X)
    program = TorchConverter().add_exported_program(exported).to_coreai()
    assert program.composites == {"chosen": 1}
    theirs = {"b_a": X.numpy().copy()}
    for x in (X + 1, X * 2, Y):
        outputs = native.run(program.module, {"args_0": x}, theirs)
        np.testing.assert_allclose(outputs[program.output_names()[0]], model(x))
        np.testing.assert_allclose(theirs["b_a"], model.a)


def test_one_tensor_under_two_names(native: Native) -> None:
    """What is written under one name is read under the other."""

    def write_one_read_other(m: Buffers, x: torch.Tensor) -> Any:
        m.a.add_(x)
        m.b.mul_(2)
        return m.a + 1, m.b + 1

    model = Buffers(write_one_read_other)
    model.b = model.a
    exported = torch.export.export(model, (X,))
    program = TorchConverter().add_exported_program(exported).to_coreai()
    state = program.new_state()
    assert list(state) == ["b_b"]
    for x in (X + 1, Y):
        torch.testing.assert_close(program.run(x, state=state), model(x))
        torch.testing.assert_close(state["b_b"], model.a)
    assert exported.state_dict["a"] is exported.state_dict["b"]  # what was given is as it was


def test_buffers_that_overlap_are_refused() -> None:
    model = Buffers(add_and_return)
    model.register_buffer("c", model.a[:, 1:])
    model.function = lambda m, x: (m.a.add_(x), m.c * 2)
    with pytest.raises(UnsupportedError, match="'a' and 'c' share memory, but export treats them as separate tensors"):
        TorchConverter().add_exported_program(torch.export.export(model, (X,)))


def test_a_written_constant_is_refused() -> None:
    exported = torch.export.export(Buffers(lambda m, x: (m.a.data.add_(x), m.a * 1)[1]), (X,), strict=True)
    with pytest.raises(UnsupportedError, match="Constant lifted_tensor_0 is mutated"):
        TorchConverter().add_exported_program(exported)


COPIES = {
    "rows": lambda m, x: (m.b.copy_(x), m.b.view(-1) / 2),
    "one number": lambda m, x: (m.b.fill_(x.sum()), m.b.view(-1) / 2),
    "of another type": lambda m, x: (m.b.copy_(x.expand(2, 4)), m.b / 2, x / 2),
}


@pytest.mark.parametrize("decomposed", [True, False])
@pytest.mark.parametrize("name", COPIES)
def test_copies_that_convert(name: str, decomposed: bool, native: Native) -> None:
    """PyTorch's decomposition forgets the type and shape of a buffer that is the target of a copy."""
    model = Buffers(COPIES[name], b=torch.zeros(2, 4, dtype=torch.int32))
    x = X + 0.75
    exported = export(model, x) if decomposed else torch.export.export(model, (x,))
    program = TorchConverter().add_exported_program(exported).to_coreai()
    theirs = {"b_b": program.new_state()["b_b"].numpy()}
    outputs = native.run(program.module, {"args_0": x}, theirs)
    mine = program.new_state()
    result, expected = program.run(x, state=mine), model(x)
    torch.testing.assert_close(result, expected)
    for name, value in zip(program.output_names(), expected, strict=True):
        np.testing.assert_allclose(outputs[name], value)
    assert mine["b_b"].equal(model.b)
    np.testing.assert_array_equal(theirs["b_b"], model.b)


def test_copies_that_another_decomposition_lost_are_refused() -> None:
    model = Buffers(COPIES["of another type"], b=torch.zeros(2, 4, dtype=torch.int32))
    exported = torch.export.export(model, (X,)).run_decompositions()
    with pytest.raises(UnsupportedError, match=r"the buffer 'b', int32 .* is written with float32"):
        TorchConverter().add_exported_program(exported)
    model = Buffers(lambda m, x: (m.b.copy_(x + 0.75), x)[1], b=torch.zeros(1, 4, dtype=torch.int32))
    exported = torch.export.export(model, (X,)).run_decompositions()
    state = {}  # type: dict[str, Any]
    TorchConverter().add_exported_program(exported).to_coreai().run(X, state=state)
    assert state["b_b"].tolist() == [[0, 1, 2, 3]]  # nothing else reads it: there is no doubt


def test_a_parameter_that_is_written(native: Native) -> None:
    class Learns(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(X.clone(), requires_grad=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.weight.add_(x)
            return self.weight * 2

    model, state = Learns(), {}  # type: tuple[nn.Module, dict[str, Any]]
    program = TorchConverter().add_exported_program(export(Learns(), X)).to_coreai()
    for _ in range(2):
        torch.testing.assert_close(program.run(Y, state=state), model(Y))
    assert list(state) == ["p_weight"]
    assert program.verify_against(model, (Y,), backends=["evaluator"]).passed


def test_batch_norm_in_training_mode(native: Native) -> None:
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3)).train()
    exported = torch.export.export(model, (torch.randn(4, 2, 6, 6),))
    program = TorchConverter().add_exported_program(exported).to_coreai()
    names = [state.name for state in program.signature().states]
    assert names == ["b_1_running_mean", "b_1_running_var", "b_1_num_batches_tracked"]
    x = torch.randn(4, 2, 6, 6)
    assert program.verify_against(model, (x,), backends=["evaluator"]).passed
    state = {name: value.numpy() for name, value in program.new_state().items()}
    outputs = native.run(program.module, {"input": x}, state)
    torch.testing.assert_close(torch.from_numpy(outputs[program.output_names()[0]]), model(x), rtol=1e-4, atol=1e-5)
    for name, path in zip(names, ("running_mean", "running_var", "num_batches_tracked"), strict=True):
        own = model[1].get_buffer(path)
        torch.testing.assert_close(torch.from_numpy(state[name]), own, rtol=1e-4, atol=1e-5, check_dtype=False)


# ---- caches ---------------------------------------------------------------------------------------


class Cache(nn.Module):
    """A cache of eight positions, and a function that writes to it."""

    def __init__(self, function: Any, dtype: torch.dtype = torch.float32):
        super().__init__()
        self.register_buffer("k", torch.zeros(1, 8, 4, dtype=dtype))
        self.function = function

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        self.function(self.k, *args)
        return self.k.sum(1)


V = torch.arange(8.0).reshape(1, 2, 4) + 1
WRITES = {
    "a slice": (lambda k, v: k[:, 2:4].copy_(v), [(V,), (V * 2,)]),
    "a slice assigned": (lambda k, v: k.__setitem__((slice(None), slice(2, 4)), v), [(V,), (V * 2,)]),
    "a position in a tensor": (
        lambda k, pos, v: k.__setitem__((slice(None), pos), v),
        [(torch.tensor([1, 5]), V), (torch.tensor([0, 7]), V)],
    ),
    "one position": (
        lambda k, pos, v: k.__setitem__((slice(None), pos), v[:, :1]),
        [(torch.tensor([3]), V), (torch.tensor([7]), -V)],
    ),
    "index_copy_": (
        lambda k, pos, v: k.index_copy_(1, pos, v),
        [(torch.tensor([1, 5]), V), (torch.tensor([0, 7]), V)],
    ),
    "index_put_": (
        lambda k, pos, v: k.index_put_((torch.tensor([0]), pos), v[0]),
        [(torch.tensor([1, 5]), V), (torch.tensor([0, 7]), V)],
    ),
    "index_put_ that accumulates": (
        lambda k, pos, v: k.index_put_((torch.tensor([0]), pos), v[0], accumulate=True),
        [(torch.tensor([1, 1]), V), (torch.tensor([1, 7]), V)],
    ),
    "index_add_": (
        lambda k, pos, v: k.index_add_(1, pos, v),
        [(torch.tensor([1, 1]), V), (torch.tensor([1, 7]), V)],
    ),
    "scatter_": (lambda k, pos, v: k.scatter_(1, pos, v), [(torch.tensor([[[1] * 4, [5] * 4]]), V)]),
    "add_": (lambda k, v: k.add_(v.sum()), [(V,), (V,)]),
    "copy_": (lambda k, v: k.copy_(v.repeat(1, 4, 1)), [(V,), (V * 2,)]),
    "roll": (lambda k, v: k.copy_(torch.cat([k[:, 2:], v], 1)), [(V,), (V * 2,)]),
    "masked": (lambda k, v: k.masked_fill_(k < v.sum(), 2.0), [(V,), (-V,)]),
}  # fmt: skip


def at_an_item(k: torch.Tensor, position: torch.Tensor, v: torch.Tensor) -> None:
    start = position.item()
    torch._check(start >= 0)
    torch._check(start + 2 <= k.shape[1])
    k[:, start : start + 2] = v


def at_one_item(k: torch.Tensor, position: torch.Tensor, v: torch.Tensor) -> None:
    start = position.item()
    torch._check(start >= 0)
    torch._check(start < k.shape[1])
    k[:, start : start + 1] = v[:, :1] + k[:, start]


def narrowed_at_an_item(k: torch.Tensor, position: torch.Tensor, v: torch.Tensor) -> None:
    start = position.item()
    torch._check(start >= 0)
    torch._check(start + 2 <= k.shape[1])
    k.narrow(1, start, 2).copy_(v)


POSITIONS = [(torch.tensor(3), V), (torch.tensor(6), -V)]
WRITES |= {
    "a slice at an item": (at_an_item, POSITIONS),
    "one position at an item": (at_one_item, POSITIONS),
    "narrow at an item": (narrowed_at_an_item, POSITIONS),
    "narrow at an item of a vector": (narrowed_at_an_item, [(torch.tensor([5]), V), (torch.tensor([0]), -V)]),
}


@pytest.mark.parametrize("name", WRITES)
def test_writes_to_a_cache(name: str, native: Native) -> None:
    function, calls = WRITES[name]
    check_calls(Cache(function), calls, native)


# ---- mutated inputs -------------------------------------------------------------------------------


class Scales(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        z.add_(1)
        x.mul_(2)
        return x, y + z


def test_mutated_inputs_are_states_in_the_order_of_forward(native: Native) -> None:
    program = check_calls(Scales(), [(X, Y, X + 1), (Y, X, X * 3)], native)
    assert [state.name for state in program.signature().states] == ["x", "z"]
    assert program.input_names() == ("y",)
    assert program.output_names() == ("mul", "add_1")
    assert dict(program.initial_state) == {}


def test_mutated_inputs_as_outputs(native: Native) -> None:
    converter = TorchConverter().add_exported_program(export(Scales(), X, Y, X + 1), mutated_inputs="output")
    program = converter.to_coreai()
    assert program.signature().states == ()
    assert program.input_names() == ("x", "y", "z")
    assert program.output_names() == ("mul", "add_1", "x_updated", "z_updated")
    outputs = program.run({"x": X, "y": Y, "z": X + 1})
    torch.testing.assert_close(outputs["z_updated"], X + 2)
    torch.testing.assert_close(outputs["x_updated"], X * 2)
    given = native.run(program.module, {"x": X, "y": Y, "z": X + 1})
    np.testing.assert_array_equal(given["z_updated"], (X + 2).numpy())
    torch.testing.assert_close(program.run(X, Y, X + 1), (X * 2, Y + X + 2))
    assert program.verify_against(Scales(), (X, Y, X + 1), backends=["evaluator"]).passed
    with pytest.raises(ValueError, match="mutated_inputs must be 'state' or 'output'"):
        TorchConverter().add_exported_program(export(Scales(), X, Y, X + 1), mutated_inputs="input")


def test_a_mutated_input_of_dynamic_size(native: Native) -> None:
    class Scaled(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y.mul_(x)
            return y + 1, y.sum(0)

    sizes = {0: torch.export.Dim("rows", min=2, max=64)}
    exported = export(Scaled(), torch.ones(3, 4), torch.ones(3, 4), dynamic_shapes={"x": sizes, "y": sizes})
    program = TorchConverter().add_exported_program(exported).to_coreai()
    assert str(program.signature()).splitlines()[1] == "state  y: [rows]x4xf32"
    for rows in (2, 7):
        x, y = torch.randn(rows, 4), torch.randn(rows, 4)
        mine: dict[str, Any] = {}
        given, theirs = program.run(x, y, state=mine), {"y": y.numpy().copy()}
        outputs = native.run(program.module, {"x": x}, theirs)
        expected = Scaled()(x, y)
        torch.testing.assert_close(given, expected)
        torch.testing.assert_close(torch.from_numpy(outputs[program.output_names()[0]]), expected[0])
        torch.testing.assert_close(mine["y"], y)
        torch.testing.assert_close(torch.from_numpy(theirs["y"]), y)


# ---- names ----------------------------------------------------------------------------------------


class Documented(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kv_cache", torch.zeros(1, 4))
        self.register_buffer("pos_idx", torch.zeros(1), persistent=False)

    def forward(self, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.pos_idx.add_(1)
        self.kv_cache.add_(x)
        y.mul_(2)
        return self.kv_cache + y, z * 3


def documented(**names: Any) -> AIProgram:
    return TorchConverter().add_exported_program(export(Documented(), X, Y, X + 1), **names).to_coreai()


def test_a_write_from_the_end_of_a_transposed_input(native: Native) -> None:
    class Doubled(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            turned = x.transpose(0, 1)
            turned[:, -2] = turned[:, -2] * 2  # the runtime lost the tensor that it read the size of
            return turned + 1

    example, rows = torch.randn(3, 4, 2), torch.export.Dim("rows", min=2, max=9)
    exported = torch.export.export(Doubled(), (example.clone(),), dynamic_shapes=({0: rows},))
    program = TorchConverter().add_exported_program(exported).to_coreai()
    for x in (example, torch.randn(2, 4, 2), torch.randn(9, 4, 2)):
        state = {"x": x.numpy().copy()}
        (output,) = native.run(program.module, {}, state).values()
        after = x.clone()
        np.testing.assert_array_equal(output, Doubled()(after))
        np.testing.assert_array_equal(state["x"], after)


def test_default_names() -> None:
    signature = documented().signature()
    assert [state.name for state in signature.states] == ["b_kv_cache", "b_pos_idx", "y"]
    assert [value.name for value in signature.inputs] == ["x", "z"]


def test_state_names_are_those_of_argument_and_result() -> None:
    program = documented(
        state_names=["kv_cache", "pos_idx", "y_state"],
        input_names=["query", "context"],
        output_names=["attn_out", "scaled"],
    )
    head = str(program).split("{\n")[1]
    assert head.count('coreai.name = "kv_cache"') == 2
    assert 'MutableBuffers.buffer_mutation = "y_state", coreai.name = "y_state"' in head
    assert str(program.signature()) == (
        "input  query: 1x4xf32\ninput  context: 1x4xf32\n"
        "state  kv_cache: 1x4xf32\nstate  pos_idx: 1xf32\nstate  y_state: 1x4xf32\n"
        "output attn_out: 1x4xf32\noutput scaled: 1x4xf32"
    )
    torch.testing.assert_close(program.run(X, Y, X), Documented()(X, Y.clone(), X))


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"state_names": ["a"]}, "the model has 3 states, b_kv_cache, b_pos_idx, y, and state_names has 1: a"),
        ({"input_names": ["x", "y", "z"]}, "the model has 2 inputs, .*, and input_names has 3: x, y, z"),
        ({"state_names": ["a", "b", "a"]}, r"state_names .* repeats \['a'\]"),
        ({"state_names": ["a", "b", "\n"]}, r"unusable names"),
        ({"state_names": ["a", "b", "x"]}, r"input_names .* and state_names .* share \['x'\]"),
        ({"state_names": ["a", "b", "o"], "output_names": ["o", "p"]}, r"output_names .* state_names .* share \['o'\]"),
    ],
)  # fmt: skip
def test_names_that_do_not_do(names: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        documented(**names)


# ---- initial state --------------------------------------------------------------------------------


def test_runs_start_from_the_initial_state_and_continue_from_a_given_one() -> None:
    model = Buffers(add_and_return)
    program = TorchConverter().add_exported_program(export(Buffers(add_and_return), X)).to_coreai()
    first = program.run(Y)
    torch.testing.assert_close(first, program.run(Y))
    torch.testing.assert_close(first, X + Y)
    state: dict[str, Any] = {}
    for _ in range(3):
        torch.testing.assert_close(program.run(Y, state=state), model(Y))
    assert list(state) == ["b_a"]
    torch.testing.assert_close(program.initial_state["main"]["b_a"], X)
    fresh = program.new_state()
    fresh["b_a"].zero_()
    torch.testing.assert_close(program.new_state()["b_a"], X)
    copy.deepcopy(program).initial_state["main"]["b_a"].zero_()
    torch.testing.assert_close(program.new_state()["b_a"], X)
    with pytest.raises(TypeError, match="a dict that can be written to"):
        program.run(Y, state=program.initial_state["main"])
    with pytest.raises(EvaluationError, match="no state b_c; its states are b_a"):
        program.run(Y, state={"b_c": X})
    with pytest.raises(EvaluationError, match="state 'b_a' must be of type"):
        program.run(Y, state={"b_a": X[0]})


def test_the_initial_state_is_a_copy() -> None:
    model = Buffers(add_and_return)
    exported = export(model, X)
    program = TorchConverter().add_exported_program(exported).to_coreai()
    program.run(Y, state=program.new_state())
    torch.testing.assert_close(model.a, X)
    model.a.zero_()
    torch.testing.assert_close(program.run(Y), X + Y)
    assert copy.deepcopy(program).run(Y).equal(X + Y)


def test_64_bit_state_is_narrowed_when_it_fits() -> None:
    count = Buffers(lambda m, x: m.a.add_(1) * x, torch.tensor([3]))
    program = TorchConverter().add_exported_program(export(count, torch.tensor([2]))).to_coreai()
    assert program.signature().states[0].element_type == "si32"
    state: dict[str, Any] = {}
    assert [program.run(torch.tensor([2]), state=state).item() for _ in range(2)] == [8, 10]
    large = Buffers(lambda m, x: m.a.add_(1) * x, torch.tensor([2**40]))
    with pytest.raises(UnsupportedError, match="buffer 'a' has values that do not fit"):
        TorchConverter().add_exported_program(export(large, torch.tensor([2]))).to_coreai()
    endless = Buffers(lambda m, x: m.a.mul_(1) * x, torch.tensor([1e300], dtype=torch.float64))
    with pytest.raises(UnsupportedError, match=r"'a' has values that do not fit float32 .*\n .* float64='keep'"):
        TorchConverter().add_exported_program(export(endless, torch.tensor([2.0]))).to_coreai()
    kept = TorchConverter(int64="keep").add_exported_program(export(large, torch.tensor([2]))).to_coreai()
    assert kept.run(torch.tensor([2])).item() == 2**41 + 2


def test_release_mode_keeps_state() -> None:
    converter = TorchConverter(mode=TorchConverter.Mode.RELEASE)
    program = converter.add_exported_program(export(Buffers(swap), X)).to_coreai()
    torch.testing.assert_close(program.run(X), Buffers(swap)(X))


def test_verification_compares_states_and_leaves_the_model_alone() -> None:
    model = Buffers(swap)
    program = TorchConverter().add_exported_program(export(model, X)).to_coreai()
    model.a.add_(1)
    verification = program.verify_against(model, (Y,), backends=["evaluator"])
    assert verification.passed
    assert {error.name for error in verification.errors} == {"add", "b_a", "b_b"}
    torch.testing.assert_close(model.a, X + 1)
    other = Buffers(lambda m, x: swap(m, x) + m.a.add_(1) * 0)
    wrong = program.verify_against(other, (Y,), backends=["evaluator"])
    assert [error.name for error in wrong.errors if error.max_abs > 0.5] == ["b_a"]


def written_at_places(x: torch.Tensor) -> torch.Tensor:
    flat = x.flatten(0, 1)
    flat[torch.tensor([3, 7])] = 2
    return flat


def half_zeroed(x: torch.Tensor) -> torch.Tensor:
    return torch.chunk(x, 2, -1)[0].zero_()


def negated(x: torch.Tensor) -> Any:
    flat = x.flatten(0, 1)
    before = flat * 3
    flat.neg_()
    return flat[2:5, 1:] * 2, before


def viewed_twice(view: Any, write: Any = torch.Tensor.neg_) -> Any:
    """A function that reads a view of its input before and after a write."""

    def function(x: torch.Tensor) -> Any:
        before = view(x) * 3
        write(x)
        return view(x) * 1, before

    return function


def second_row_replaced(x: torch.Tensor) -> None:
    x[:, 1] = x[:, 1:4][:, 1]


@pytest.mark.parametrize("function", [
    viewed_twice(lambda x: x[:, 2:4]), viewed_twice(lambda x: x.unsqueeze(1)),
    viewed_twice(lambda x: x[:, 1:4], second_row_replaced),
    lambda x: written_at_places(x)[1:], lambda x: written_at_places(x) * 2, lambda x: written_at_places(x)[:, :],
    half_zeroed, lambda x: half_zeroed(x.transpose(0, 1)), lambda x: half_zeroed(x) + 1, negated,
])  # fmt: skip
def test_views_of_an_open_input_that_is_written_through_a_view(function: Any, native: Native) -> None:
    """The runtime died or failed at a view of the second reading if sizes were taken of such a view of the first."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return function(x)

    x = torch.arange(24.0).reshape(2, 4, 3)
    exported = torch.export.export(Model(), (x.clone(),), dynamic_shapes=({2: torch.export.Dim.AUTO},))
    program = TorchConverter().add_exported_program(exported).to_coreai()
    content = {"x": x.numpy().copy()}
    outputs = native.run(program.module, {}, content)
    expected = function(changed := x.clone())
    for name, wanted in zip(program.output_names(), torch.utils._pytree.tree_leaves(expected), strict=True):
        np.testing.assert_array_equal(outputs[name], wanted)
    np.testing.assert_array_equal(content["x"], changed)
