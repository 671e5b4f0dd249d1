"""Writes in place into part of a tensor, in every spelling: one update of the tensor, and the numbers of eager."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.export import Dim

from patcomp import AIProgram, EvaluationError, TorchConverter, get_decomp_table
from patcomp.emit.native import Native, NativeError
from tests.helpers.thorough import drawn

SIZE = 8
Write = Callable[..., Any]

WRITES: dict[str, Write] = {
    "narrow of select": lambda c, new, off, n, q: c[1].narrow(2, off, q).copy_(new),
    "narrow of narrow": lambda c, new, off, n, q: c.narrow(0, 1, 1).narrow(3, off, q).copy_(new[None]),
    "assignment": lambda c, new, off, n, q: c.__setitem__((1, ..., slice(off, off + q), slice(None)), new),
    "from the end": lambda c, new, off, n, q: c[-2][..., off:n, :].copy_(new),
    "every other layer": lambda c, new, off, n, q: c[1::2, :, :, off:n].copy_(new),
    "index_copy": lambda c, new, off, n, q: c[1].index_copy_(2, torch.arange(off, n), new),
    "index_copy at a sum": lambda c, new, off, n, q: c[1].index_copy_(2, torch.arange(q) + off, new),
    "index_put": lambda c, new, off, n, q: c[1].transpose(0, 2).__setitem__(torch.arange(n)[-q:], new.transpose(0, 2)),
    "scatters": lambda c, new, off, n, q: c.copy_(c.select_scatter(c[1].slice_scatter(new, 2, off, n), 0, 1)),
    "transposed": lambda c, new, off, n, q: c.transpose(2, 3)[1, :, off:n].copy_(new.transpose(1, 2)),
    "permuted": lambda c, new, off, n, q: c.permute(3, 0, 1, 2, 4)[off:n, 1].copy_(new.permute(2, 0, 1, 3)),
    "viewed": lambda c, new, off, n, q: c.view(6, SIZE, 4)[2:4, off:n].copy_(new[0]),
    "squeezed": lambda c, new, off, n, q: c.squeeze(1)[1, :, off:n].copy_(new[0]),
    "unbound": lambda c, new, off, n, q: c.unbind(0)[1][:, :, off:n].copy_(new),
    "split": lambda c, new, off, n, q: c.split([1, 2])[1][0, :, :, off:n].copy_(new),
    "added": lambda c, new, off, n, q: c[1].narrow(2, off, q).add_(new).mul_(2.0),
    "filled": lambda c, new, off, n, q: c[1].narrow(2, off, q).fill_(3.0),
    "zeroed": lambda c, new, off, n, q: c[1].narrow(2, off, q).zero_(),
    "joined": lambda c, new, off, n, q: c.copy_(torch.cat([c[..., :off, :], new.expand(3, -1, -1, -1, -1),
                                                           c[..., n:, :]], 3)),
}  # fmt: skip
"""What writes `new`, q rows, into rows off to n of the cache."""


class Cache(nn.Module):
    """Caches of 3 layers and 2 heads with room for 8 rows of 4 numbers; `positions` has a number for each row."""

    def __init__(self, write: Write):
        super().__init__()
        self.write = write
        self.register_buffer("cache", torch.ones(3, 1, 2, SIZE, 4))

    def forward(self, new: Tensor, positions: Tensor) -> Tensor:
        q, n = new.shape[2], positions.shape[0]
        self.write(self.cache, new, n - q, n, q)
        return self.cache[1] * 1.5


class State(nn.Module):
    """A state, and a write into it of a position that is computed."""

    def __init__(self, write: Write, *shape: int):
        super().__init__()
        self.write = write
        self.register_buffer("x", torch.arange(1.0, 1 + torch.Size(shape).numel()).reshape(shape))

    def forward(self, *inputs: Tensor) -> Tensor:
        self.write(self.x, *inputs)
        return self.x * 2


def converted(model: nn.Module, inputs: tuple[Tensor, ...], decomposed: str = "not", **options: Any) -> AIProgram:
    """The program of an undecomposed export, or of one that was decomposed with our table or PyTorch's."""
    exported = torch.export.export(model, inputs, **options)
    if decomposed != "not":
        exported = exported.run_decompositions(get_decomp_table() if decomposed == "ours" else None)
    return TorchConverter().add_exported_program(exported).to_coreai()


def assert_one_update(program: AIProgram) -> None:
    ops = Counter(op.name.rpartition(".")[2] for op in program.module.op.walk())
    assert ops["slice_update"] == 1
    assert ops["write_handle"] == 1
    assert not ops["broadcasting_where"] + ops["scatter_nd"] + ops["scatter_along_axis"]


def assert_runs_alike(program: AIProgram, model: nn.Module, steps: list[tuple[Tensor, ...]], native: Native) -> None:
    """Eager, evaluator and runtime, each with its own state, through several steps."""
    ours, theirs = program.new_state(), {name: value.clone() for name, value in program.new_state().items()}
    names = program.input_names()
    for inputs in steps:
        expected = model(*inputs)
        torch.testing.assert_close(program.run(*inputs, state=ours), expected)
        given = {name: x.int() if x.dtype == torch.int64 else x for name, x in zip(names, inputs, strict=True)}
        (result,) = native.run(program.module, given, theirs).values()
        torch.testing.assert_close(torch.from_numpy(result), expected)
        (buffer,) = model.buffers()
        for state in (ours, theirs):
            torch.testing.assert_close(torch.as_tensor(next(iter(state.values()))), buffer)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", WRITES)
def test_write_is_one_update(name: str, native: Native) -> None:
    model = Cache(WRITES[name])
    inputs = torch.randn(1, 2, 2, 4), torch.arange(5)
    program = converted(model, inputs, dynamic_shapes={"new": {2: Dim.DYNAMIC}, "positions": {0: Dim.DYNAMIC}})
    assert_one_update(program)
    # at the start, across what is there, and to the end; export guards a join against parts of one row
    rows = ((2, 4), (3, 5), (2, SIZE - 2)) if name == "joined" else ((3, 3), (2, 4), (2, SIZE))
    steps = [(torch.randn(1, 2, q, 4), torch.arange(n)) for q, n in rows]
    assert_runs_alike(program, model, steps, native)


@pytest.mark.parametrize("name", ["narrow of select", "index_copy", "viewed"])
@pytest.mark.parametrize("decomposed", ["ours", "PyTorch's"])
def test_decomposed_write_is_one_update(name: str, decomposed: str) -> None:
    model = Cache(WRITES[name])
    inputs = torch.randn(1, 2, 2, 4), torch.arange(5)
    shapes = {"new": {2: Dim.DYNAMIC}, "positions": {0: Dim.DYNAMIC}}
    program = converted(model, inputs, decomposed, dynamic_shapes=shapes)
    assert_one_update(program)
    assert program.verify_against(model, (torch.randn(1, 2, 3, 4), torch.arange(SIZE))).passed


POSITIONS: dict[str, tuple[Write, list[int]]] = {
    "one row": (lambda x, row, at: x[1].__setitem__((slice(None), at), row[:, None]), [0, 5, -1, -6]),
    "index_copy": (lambda x, row, at: x[1].index_copy_(1, at, row[:, None]), [0, 3, 5]),
    "two rows": (
        lambda x, row, at: x.__setitem__((1, slice(None), torch.arange(2) + at), row[:, None].expand(-1, 2, -1)),
        [0, 4, -2],
    ),
    "a choice": (
        lambda x, row, at: x.copy_(torch.where((torch.arange(6) == at)[:, None], row[:, None], x)), [0, 5, 6, -1],
    ),
}  # fmt: skip
"""Writes of a row `4x3` at a position that only the run knows, and positions that eager takes."""


@pytest.mark.parametrize("name", POSITIONS)
def test_write_at_a_computed_position(name: str, native: Native) -> None:
    write, places = POSITIONS[name]
    model = State(write, 2, 4, 6, 3)
    steps = [(torch.randn(4, 3), torch.tensor([place])) for place in places]
    program = converted(model, steps[0])
    ops = Counter(op.name.rpartition(".")[2] for op in program.module.op.walk())
    assert (ops["slice_update"], ops["scatter_nd"]) == (1, 0)
    assert_runs_alike(program, model, steps, native)


@pytest.mark.parametrize(("name", "place"), [("one row", 6), ("one row", -7), ("two rows", 5), ("two rows", -1)])
def test_position_outside_is_an_error(name: str, place: int, native: Native) -> None:
    """The runtime's update writes a part, or nothing, without a word; rows -1 and 0 are no slice."""
    program = converted(State(POSITIONS[name][0], 2, 4, 6, 3), (torch.randn(4, 3), torch.tensor([1])))
    row, at = torch.randn(4, 3), torch.tensor([place])
    with pytest.raises(EvaluationError, match="out of range"):
        program.run(row, at)
    with pytest.raises(NativeError, match="Index"):
        native.run(program.module, {"inputs_0": row, "inputs_1": at.int()}, program.new_state())


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(lambda x, row, at: x.index_copy_(1, at, row[:, None].expand(-1, 2, -1)), id="any positions"),
        pytest.param(
            lambda x, row, at: x.index_copy_(1, torch.arange(2) * 2 + at[0], row[:, None].expand(-1, 2, -1)),
            id="every other position",
        ),
        pytest.param(
            lambda x, row, at: x.index_copy_(1, torch.arange(2) + at, row[:, None].expand(-1, 2, -1)),
            id="a range and other numbers",
        ),
    ],
)
def test_positions_that_may_not_be_a_range_stay_a_scatter(write: Write, native: Native) -> None:
    model = State(write, 4, 6, 3)
    steps = [(torch.randn(4, 3), torch.tensor(places)) for places in ([1, 2], [3, 0])]
    program = converted(model, steps[0])
    assert [op.name for op in program.module.op.walk()].count("coreai.scatter_nd") == 1
    assert_runs_alike(program, model, steps, native)


def test_write_at_an_item(native: Native) -> None:
    def write(x: Tensor, rows: Tensor, at: Tensor) -> None:
        start = at.item()
        torch._check(start >= 0)
        torch._check(start + 2 <= x.shape[2])
        x[1, :, start : start + 2] = rows

    model = State(write, 2, 4, 6, 3)
    steps = [(torch.randn(4, 2, 3), torch.tensor(place)) for place in (0, 3, 4)]
    program = converted(model, steps[0])
    assert_one_update(program)
    assert_runs_alike(program, model, steps, native)


def test_choice_that_multiplies_stays() -> None:
    """x * (1 - mask) + row * mask is NaN where x is infinite, and a write is not."""
    mask = lambda at: (torch.arange(6) == at)[:, None].float()  # noqa: E731
    model = State(lambda x, row, at: x.copy_(x * (1 - mask(at)) + row * mask(at)), 6, 3)
    program = converted(model, (torch.randn(3), torch.tensor(2)))
    assert "coreai.slice_update" not in [op.name for op in program.module.op.walk()]


def test_join_that_moves_rows_stays() -> None:
    """A sliding window is no write in place."""
    model = State(lambda x, row: x.copy_(torch.cat([x[1:], row[None]])), 6, 3)
    program = converted(model, (torch.randn(3),))
    assert "coreai.slice_update" not in [op.name for op in program.module.op.walk()]
    assert program.verify_against(model, (torch.randn(3),)).passed


# ---- random chains of views ----------------------------------------------------------------------


@st.composite
def views(draw: st.DrawFn, shape: tuple[int, ...]) -> list[tuple[Any, ...]]:
    """Views, one of the other, of a tensor of a shape: names of methods with their arguments."""
    chain: list[tuple[Any, ...]] = []
    x = torch.zeros(shape)
    for _ in range(draw(st.integers(1, 4))):
        kinds = ["permute", "unsqueeze"] + ["select", "slice", "split"] * bool(x.dim()) + ["view"] * x.is_contiguous()
        kind, dim = draw(st.sampled_from(kinds)), draw(st.integers(0, max(x.dim() - 1, 0)))
        size = x.shape[dim] if x.dim() else 1
        if kind == "permute":
            step: tuple[Any, ...] = ("permute", draw(st.permutations(range(x.dim()))))
        elif kind == "select":
            step = ("select", dim, draw(st.integers(-size, size - 1)))
        elif kind == "slice":
            start, length = draw(st.integers(-size, size - 1)), draw(st.integers(1, size))
            start = start % size
            step = ("slice", dim, start, min(size, start + length), draw(st.integers(1, 2)))
        elif kind == "split":
            step = ("split", draw(st.integers(1, size)), dim)
        elif kind == "view" and x.dim() > 1:
            dim = min(dim, x.dim() - 2)
            step = ("view", [*x.shape[:dim], -1, *x.shape[dim + 2 :]])
        else:
            step = ("unsqueeze", dim)
        chain.append(step)
        x = seen(x, chain[-1:])
    return chain


def seen(x: Tensor, chain: list[tuple[Any, ...]]) -> Tensor:
    """What a chain of views shows of a tensor."""
    for kind, *arguments in chain:
        x = torch.ops.aten.slice(x, *arguments) if kind == "slice" else getattr(x, kind)(*arguments)
        x = x[-1] if kind == "split" else x
    return x


@given(data=st.data())
@drawn(25)
def test_random_writes_are_those_of_eager(data: st.DataObject, native: Native) -> None:
    shape = data.draw(st.sampled_from([(2, 3, 4), (4, 1, 6), (3, 1, 2, 4)]))
    chains = data.draw(st.lists(views(shape), min_size=1, max_size=2))
    sources = [torch.randn(seen(torch.zeros(shape), chain).shape) for chain in chains]
    added = data.draw(st.booleans())

    def write(x: Tensor, *sources: Tensor) -> None:
        for chain, source in zip(chains, sources, strict=True):
            part = seen(x, chain)
            if added:
                part.add_(source)
            else:
                part.copy_(source)

    model = State(write, *shape)
    program = converted(model, tuple(sources))
    ops = Counter(op.name.rpartition(".")[2] for op in program.module.op.walk())
    assert not ops["broadcasting_where"] + ops["scatter_nd"]
    assert_runs_alike(program, model, [tuple(sources), tuple(2 * source for source in sources)], native)
