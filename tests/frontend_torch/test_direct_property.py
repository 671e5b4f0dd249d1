"""Random chains of views and writes in place, straight from `torch.export.export`: the numbers of eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from patcomp import AIProgram, TorchConverter, get_decomp_table
from tests.helpers.thorough import drawn

VIEWS: list[Callable[[Tensor], Tensor]] = [
    lambda t: t.detach(),
    lambda t: t.transpose(0, -1),
    lambda t: t[0],
    lambda t: t[..., -1:],
    lambda t: t[..., ::2],
    lambda t: t[-2:].squeeze(0),
    lambda t: t.unsqueeze(1),
    lambda t: t.view(-1, t.shape[-1]),
    lambda t: t.flatten(),  # a view or a copy
    lambda t: t.diagonal(0, 0, -1),
    lambda t: t.unbind(-1)[-1],
    lambda t: t.split(2, -1)[0],
    lambda t: t.chunk(2)[-1],
    lambda t: t.narrow(0, 0, 1),
    lambda t: t.permute(tuple(reversed(range(t.dim())))),
    lambda t: t.unflatten(0, (1, -1)),
    lambda t: t.expand_as(t),
    lambda t: nn.functional.dropout(t, training=False),
]
NEW: list[Callable[[Tensor], Tensor]] = [
    lambda t: t * 2,
    lambda t: t.clone(),
    lambda t: t.sum(0),
    lambda t: torch.cat([t, t]),
    lambda t: t.half(),
    lambda t: t.new_ones(t.shape),
]
WRITES: list[Callable[[Tensor, Tensor], Any]] = [
    lambda t, other: t.add_(1),
    lambda t, other: t.mul_(-2),
    lambda t, other: t.sub_(other.mean()),
    lambda t, other: t.copy_(other.sum()),
    lambda t, other: t.copy_(t + 1),
    lambda t, other: t.fill_(3),
    lambda t, other: t.relu_(),
    lambda t, other: t.gt_(1),
    lambda t, other: t.masked_fill_(t > 2, -1),
    lambda t, other: t[..., 0].add_(other.max()),
    lambda t, other: t[[0]].mul_(5),  # of a copy
    lambda t, other: t.__setitem__((..., 0), 7),
    lambda t, other: t.__setitem__(t > 3, 0),
    lambda t, other: t.index_put_((torch.tensor([0]),), torch.tensor(2, dtype=t.dtype), accumulate=True),
]

Step = tuple[int, int, int, int]


class Chain(nn.Module):
    """Applies steps to the values so far: which kind, which function, and the numbers of two values, all modulo."""

    b: Tensor

    def __init__(self, steps: list[Step]):
        super().__init__()
        self.steps = steps
        self.register_buffer("b", torch.arange(12.0).reshape(3, 4) / 4)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        values = [x, y, self.b, x * 2]
        for kind, which, first, second in self.steps:
            recent = values[-5:]
            value, other = recent[first % len(recent)], values[second % len(values)]
            if kind == 0:
                # without dimensions, few of the functions apply
                values.append(VIEWS[which % len(VIEWS)](value) if value.dim() > 1 else value.unsqueeze(0))
            elif kind == 1:
                values.append(NEW[which % len(NEW)](value if value.dim() else value[None]))
            elif kind == 2:
                WRITES[which % len(WRITES)](value if value.dim() else value[None], other)
            else:
                with torch.no_grad():
                    value.neg_()
        return tuple(value * 1 for value in values[-6:])


def assert_equal_to_eager(program: AIProgram, model: Chain) -> None:
    state = program.new_state()
    for scale in (1, -2):
        x, y = torch.arange(24.0).reshape(2, 3, 4) / 4 - scale, (torch.arange(12.0).reshape(3, 4) * scale - 5) / 4
        results = program.run({"x": x.clone(), "y": y.clone()}, state=state)
        before = {"x": x.clone(), "y": y.clone()}
        with torch.no_grad():
            expected = model(x, y)
        named = dict(list(results.items())[: len(expected)])
        torch.testing.assert_close(list(named.values()), list(expected), check_dtype=False, rtol=1e-3, atol=1e-3)
        for name, value in (("x", x), ("y", y)):
            after = results.get(f"{name}_updated", before[name])
            torch.testing.assert_close(after, value, check_dtype=False, rtol=1e-3, atol=1e-3)
        ours = state[next(iter(state))] if len(state) else Chain([]).b
        torch.testing.assert_close(torch.as_tensor(ours), model.b, rtol=1e-3, atol=1e-3)


STEPS = st.lists(
    st.tuples(st.sampled_from([0, 0, 0, 1, 2, 2, 2, 3]), *[st.integers(0, 99) for _ in range(3)]),
    min_size=3,
    max_size=10,
)


@drawn(40)
@given(STEPS)
def test_writes_give_the_numbers_of_eager(steps: list[Step]) -> None:
    model = Chain(steps)
    exported = torch.export.export(model, (torch.zeros(2, 3, 4), torch.zeros(3, 4)))
    program = TorchConverter().add_exported_program(exported, mutated_inputs="output").to_coreai()
    assert_equal_to_eager(program, Chain(steps))
    # PyTorch decomposes dropout to a copy, which misses later writes
    if not any("dropout" in str(node.target) for node in exported.graph.nodes):
        decomposed = exported.run_decompositions(get_decomp_table())
        program = TorchConverter().add_exported_program(decomposed, mutated_inputs="output").to_coreai()
        assert_equal_to_eager(program, Chain(steps))
