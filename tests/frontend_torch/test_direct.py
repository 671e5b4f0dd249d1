"""Programs straight from `torch.export.export`: right without PyTorch's help, or left to it, for a reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.nn import functional

from patcomp import AIProgram, TorchConverter, UnsupportedError, get_decomp_table
from patcomp.emit.native import Native
from tests.networks.architectures import build, export

X = torch.arange(24.0).reshape(2, 3, 4) - 7


class Function(nn.Module):
    """A function of an input, a weight and buffers, which share no memory."""

    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.ones(3, 4))
        self.register_buffer("b", torch.arange(12.0).reshape(3, 4))
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("variance", torch.ones(4))
        self.register_buffer("c", torch.zeros(4, dtype=torch.int64))

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(self, *inputs)


@pytest.fixture
def without_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let PyTorch's decomposition of whole programs fail."""

    def fails(*arguments: Any, **options: Any) -> ExportedProgram:
        raise AssertionError("run_decompositions is called")

    monkeypatch.setattr(ExportedProgram, "run_decompositions", fails)


def exported(function: Callable[..., Any], *inputs: Tensor, **options: Any) -> tuple[nn.Module, ExportedProgram]:
    model = Function(function).eval()
    return model, torch.export.export(model, tuple(x.clone() for x in inputs), **options)


def assert_equal_to_eager(program: AIProgram, model: nn.Module, inputs: tuple[Tensor, ...], native: Native) -> None:
    """Two calls of eager, the evaluator and the runtime, with their results, states and written inputs."""
    ours, theirs = program.new_state(), {name: value.clone() for name, value in program.new_state().items()}
    for scale in (1, -2):
        given = tuple(x * scale for x in inputs)
        expected = model(*(x.clone() for x in given))
        leaves = [expected] if isinstance(expected, Tensor) else list(expected)
        results = program.run(*given, state=ours)
        results = [results] if isinstance(results, Tensor) else list(results)
        torch.testing.assert_close(results, leaves, check_dtype=False)
        named = dict(zip(program.input_names(), given, strict=True))
        made = native.run(program.module, named, theirs)
        torch.testing.assert_close(
            [torch.from_numpy(made[name]) for name in program.output_names()], leaves, check_dtype=False
        )
        for state in (ours, theirs):
            for name, path in program.calls["main"].buffers.items():
                torch.testing.assert_close(torch.as_tensor(state[name]), model.get_buffer(path), check_dtype=False)


# ---- followed ------------------------------------------------------------------------------------------


def _write_after_view(model: Any, x: Tensor) -> Any:
    y = x * 2
    view = y[0]
    y.add_(1)
    return view * 3, y


def _view_after_write(model: Any, x: Tensor) -> Any:
    y = x * 2
    first, second = y[0], y.transpose(1, 2)
    first.mul_(-1)
    return second, y, first + 1


def _views_of_views(model: Any, x: Tensor) -> Any:
    y = x * 2
    part = y.permute(2, 0, 1)[1:3].transpose(0, 1)
    part[0].fill_(5)
    row = y[0, 1]
    row += 1
    return part, y


def _old_value_stays(model: Any, x: Tensor) -> Any:
    y = x * 2
    before = y + 1
    copy = y.clone()
    y.relu_()
    return before, copy, y


def _split(model: Any, x: Tensor) -> Any:
    y = x * 2
    first, second = y.split([1, 3], -1)
    second.zero_()
    first.add_(1)
    return y, first, second


def _chunk_and_unbind(model: Any, x: Tensor) -> Any:
    y = x * 2
    halves, rows = y.chunk(2, -1), y.unbind(1)
    halves[1].neg_()
    rows[-1].copy_(rows[0])
    return y, halves[0], halves[1], rows[2]


def _detached(model: Any, x: Tensor) -> Any:
    y = x * 2
    y.detach().add_(1)
    return y


def _expanded_is_read_later(model: Any, x: Tensor) -> Any:
    y = x[:, :1] * 2
    wide = y.expand(2, 3, 4)
    y.add_(1)
    return wide * 1


def _written_from_itself(model: Any, x: Tensor) -> Any:
    y = x * 2
    y.add_(y)
    y[:, 0].copy_(y[:, 1])
    y.mul_(y[0, 0, 0].clone())
    return y


def _types_stay(model: Any, x: Tensor) -> Any:
    y = (x * 2).half()
    y.add_(x)
    z = x.clone()
    z.gt_(2)
    n = x.int()
    n.copy_(x + 0.5)
    return y, z, n


def _broadcast_copy(model: Any, x: Tensor) -> Any:
    y = x * 2
    y.copy_(x[0, :, :1])
    y[1] = 7
    return y


def _indexed(model: Any, x: Tensor) -> Any:
    y = x * 2
    y[:, [0, 2]] = 1.5
    y[y > 20] = 0
    y.masked_fill_(y < 0, 9)
    y.index_add_(0, torch.tensor([1]), x[:1])
    return y


def _input(model: Any, x: Tensor) -> Any:
    y = x.clone()
    y[0].add_(1)
    constant = torch.tensor([1.0, 2.0, 3.0, 4.0])
    constant[1:] = 5
    return y + constant


def _buffers(model: Any, x: Tensor) -> Any:
    view = model.b[1]
    model.b.add_(1)
    model.b[2].copy_(x[0, 0])
    model.c += 2
    return view * 2, model.b * x, model.c


def _buffer_and_its_alias(model: Any, x: Tensor) -> Any:
    part = model.b.t()[1:3]
    part.mul_(2)
    model.b.detach().add_(1)
    return part + 0


def _reshape_is_read_before(model: Any, x: Tensor) -> Any:
    y = x * 2
    total = y.reshape(-1).sum()
    y.add_(total)
    return y.reshape(-1)


def _residual(model: Any, x: Tensor) -> Any:
    y = functional.linear(x, model.weight.detach() * 2)
    y = functional.relu(functional.dropout(y, training=False), inplace=True)
    z = functional.hardswish(y + 1, inplace=True)
    z += y
    return functional.dropout(z, 0.5, training=False, inplace=True)


def _dropout_is_written(model: Any, x: Tensor) -> Any:
    y = x * 2
    functional.dropout(y, training=False).add_(1)
    return y


def _without_gradients(model: Any, x: Tensor) -> Any:
    with torch.no_grad():
        y = x.cos()
        y.add_(1)
        with torch.enable_grad():
            z = y * 2
    z += 1
    return y, z


def _autocast_off(model: Any, x: Tensor) -> Any:
    with torch.autocast("cpu", enabled=False):
        y = (x.half().float() @ model.weight.t()).relu_()
    return y + 1


FOLLOWED = [
    _write_after_view, _view_after_write, _views_of_views, _old_value_stays, _split, _chunk_and_unbind, _detached,
    _expanded_is_read_later, _written_from_itself, _types_stay, _broadcast_copy, _indexed, _input, _buffers,
    _buffer_and_its_alias, _reshape_is_read_before, _residual, _dropout_is_written, _without_gradients, _autocast_off,
]  # fmt: skip


@pytest.mark.usefixtures("without_pytorch")
@pytest.mark.parametrize("function", FOLLOWED)
def test_followed(function: Callable[..., Any], native: Native) -> None:
    model, given = exported(function, X)
    program = TorchConverter().add_exported_program(given).to_coreai()
    assert program.left_to_pytorch == ()
    assert "left to PyTorch" not in str(program.report())
    assert_equal_to_eager(program, model, (X,), native)


def test_program_is_not_changed() -> None:
    _, given = exported(_buffers, X)
    before = str(given)
    first = TorchConverter().add_exported_program(given).to_coreai().text(locations=True)
    assert str(given) == before
    assert TorchConverter().add_exported_program(given).to_coreai().text(locations=True) == first


@pytest.mark.usefixtures("without_pytorch")
def test_dynamic_sizes() -> None:
    def function(model: Any, x: Tensor) -> Any:
        y = x * 2
        n = y.shape[1]
        y[:, n - 1 :].add_(1)
        y.narrow(1, 1, n - 2).neg_()
        return y, x.new_zeros(n * 2 + 1)

    model, given = exported(function, torch.randn(2, 5, 4), dynamic_shapes=(({1: Dim("n", min=4, max=9)},),))
    program = TorchConverter().add_exported_program(given).to_coreai()
    for size in (4, 7):
        assert program.verify_against(model, (torch.randn(2, size, 4),)).passed


@pytest.mark.usefixtures("without_pytorch")
def test_written_input_is_a_state_or_an_output() -> None:
    def function(model: Any, x: Tensor) -> Any:
        x[0].add_(1)
        return x * 2

    _, given = exported(function, X)
    program = TorchConverter().add_exported_program(given).to_coreai()
    result = program.run(X)
    expected = X.clone()
    expected[0].add_(1)
    torch.testing.assert_close(result, expected * 2)
    second = TorchConverter().add_exported_program(given, mutated_inputs="output").to_coreai()
    outputs = list(second.run({second.input_names()[0]: X}).values())
    torch.testing.assert_close(outputs, [expected * 2, expected])


@pytest.mark.usefixtures("without_pytorch")
def test_a_part_without_gradients_is_not_retraced() -> None:
    """As the tables of rotary embeddings in transformers."""

    def function(model: Any, x: Tensor) -> Any:
        with torch.no_grad():
            y = x.sin()
        return x * y

    _, given = exported(function, X)
    assert any("set_grad_enabled" in str(node.target) for node in given.graph.nodes)
    program = TorchConverter().add_exported_program(given).to_coreai()
    assert program.left_to_pytorch == ()


def test_llama_is_not_retraced() -> None:
    program = TorchConverter().add_exported_program(export(build("llama", "sdpa"), "not decomposed")).to_coreai()
    assert program.left_to_pytorch == ()


def test_decomposed_programs_are_not_retraced(monkeypatch: pytest.MonkeyPatch) -> None:
    def function(model: Any, x: Tensor) -> Any:
        y = functional.batch_norm(x.transpose(1, 2), model.mean, model.variance)
        return y.relu_()

    _, given = exported(function, X)
    decomposed = given.run_decompositions(get_decomp_table())
    assert "batch_norm" in str(decomposed.graph)
    monkeypatch.setattr(ExportedProgram, "run_decompositions", None)
    assert TorchConverter().add_exported_program(decomposed).to_coreai().left_to_pytorch == ()


# ---- left to PyTorch -----------------------------------------------------------------------------------


def _reshape_is_read_later(model: Any, x: Tensor) -> Any:
    y = x * 2
    flat = y.reshape(-1)
    y.add_(1)
    return flat * 1


def _contiguous_is_written(model: Any, x: Tensor) -> Any:
    y = x * 2
    y.transpose(0, 1).contiguous().add_(1)
    return y


def _type_is_the_same(model: Any, x: Tensor) -> Any:
    y = x * 2
    y.type_as(x).add_(1)
    return y


def _flattened_input(model: Any, x: Tensor) -> Any:
    x.flatten().clamp_(min=0)
    return x * 2


def _unfolded(model: Any, x: Tensor) -> Any:
    y = x * 2
    y.unfold(2, 2, 2).add_(1)
    return y


def _strided(model: Any, x: Tensor) -> Any:
    y = x * 2
    part = y.as_strided((2, 2), (4, 1), 1)
    y.add_(1)
    return part * 1


def _autocast(model: Any, x: Tensor) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ model.weight.t()
    return y.float() + 1


def _statistics(model: Any, x: Tensor) -> Any:
    return functional.batch_norm(x.transpose(1, 2), model.mean, model.variance, training=True)


def _branch(model: Any, x: Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda x: x.clone().add_(1), lambda x: x * 2, (x,))


LEFT = {
    _reshape_is_read_later: "may share its memory",
    _contiguous_is_written: "may share its memory",
    _type_is_the_same: "may share its memory",
    _flattened_input: "may share its memory",
    _unfolded: "view by aten::unfold",
    _strided: "may share its memory",
    _autocast: "autocast converts types",
    _statistics: "running statistics",
    _branch: "nests graphs",
}


@pytest.mark.parametrize("function", LEFT)
def test_left_to_pytorch(function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, native: Native) -> None:
    calls = []
    decompose = ExportedProgram.run_decompositions
    monkeypatch.setattr(ExportedProgram, "run_decompositions", lambda *given: calls.append(1) or decompose(*given))
    model, given = exported(function, X)
    program = TorchConverter().add_exported_program(given).to_coreai()
    assert len(calls) == 1
    (reason,) = program.left_to_pytorch
    assert LEFT[function] in reason.message
    (line,) = [line for line in str(program.report()).splitlines() if "left to PyTorch" in line]
    assert reason.message in line
    assert reason.source in line
    assert reason.source.startswith("tests/frontend_torch/test_direct.py:")
    if program.signature().states and function is _flattened_input:
        return  # PyTorch's numbers for written inputs are tested with states
    assert_equal_to_eager(program, model, (X,), native)


def test_buffers_that_share_memory_are_refused() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("a", torch.zeros(4))
            self.register_buffer("b", self.a.view(2, 2))

        def forward(self, x: Tensor) -> Tensor:
            self.a.add_(1)
            return x + self.b

    given = torch.export.export(Shared(), (torch.ones(2, 2),))
    with pytest.raises(UnsupportedError, match="share memory"):
        TorchConverter().add_exported_program(given)


def _view_of_an_expanded(model: Any, x: Tensor) -> Any:
    y = x[:, :1] * 2
    y.expand(2, 3, 4)[:, 0].add_(1)
    return y


def _expanded_outside(model: Any, x: Tensor) -> Any:
    y = (x[:, :1] * 2).expand(2, 3, 4)
    with torch.no_grad():
        y[:, 0].add_(1)
    return y


def _expanded_buffer(model: Any, x: Tensor) -> Any:
    model.same[0].add_(1)
    return model.same + x


def _overlapping_windows(model: Any, x: Tensor) -> Any:
    y = x * 2
    y.unfold(2, 2, 1)[:, :, 0].add_(1)
    return y


def _some_windows(model: Any, x: Tensor) -> Any:
    y = x * 2
    y.unfold(1, 2, 2).add_(1)  # PyTorch would set the last row to 0
    return y


REFUSED = {
    _view_of_an_expanded: "elements share memory",
    _expanded_outside: "elements share memory",
    _expanded_buffer: "elements share memory",
    _overlapping_windows: "elements share memory",
    _some_windows: "unfold that leaves elements out",
}


@pytest.mark.parametrize("function", REFUSED)
def test_write_to_such_a_view_is_refused(function: Callable[..., Any]) -> None:
    model = Function(function)
    model.register_buffer("same", torch.zeros(1).expand(4))
    given = torch.export.export(model, (X,))
    with pytest.raises(UnsupportedError, match=REFUSED[function]) as raised:
        TorchConverter().add_exported_program(given)
    (problem,) = raised.value.problems
    assert problem.source.startswith("tests/frontend_torch/test_direct.py:")


def test_dropout_is_its_argument_for_pytorch_too() -> None:
    def function(model: Any, x: Tensor) -> Any:
        y = x * 2
        same = functional.dropout(y, training=False)
        y.as_strided((2, 2), (4, 1), 1).add_(1)
        return same

    model, given = exported(function, X)
    program = TorchConverter().add_exported_program(given).to_coreai()
    assert program.left_to_pytorch
    torch.testing.assert_close(program.run(X), model(X))


# PyTorch's decomposition makes a copy of what `dropout` returns as it is
@pytest.mark.parametrize("function", [each for each in FOLLOWED if each is not _dropout_is_written])
def test_decomposed_gives_the_same_results(function: Callable[..., Any]) -> None:
    _, given = exported(function, X)
    decomposed = given.run_decompositions(get_decomp_table())
    first, second = (TorchConverter().add_exported_program(each).to_coreai() for each in (given, decomposed))
    torch.testing.assert_close(first.run(X), second.run(X), rtol=0, atol=0)
    assert first.signature().states == second.signature().states
