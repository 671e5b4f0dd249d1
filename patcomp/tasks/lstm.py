"""LSTMs for any number of steps, which `torch.export` writes out for the number of an example."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from patcomp.language.recurrences import over_tokens
from patcomp.tasks.replacing import replaced


@contextmanager
def lstms_over_time(model: nn.Module) -> Iterator[None]:
    """Let the LSTMs of a model go from step to step in a loop.

    Args:
        model: has LSTMs of one or two directions without projections, as `torch.nn.LSTM` (Hochreiter and Schmidhuber
            1997).
    """
    with ExitStack() as stack:
        for module in model.modules():
            if isinstance(module, nn.LSTM):
                stack.enter_context(replaced(vars(module), forward=over_time(module)))
        yield


def over_time(lstm: nn.LSTM) -> Callable[..., tuple[Tensor, tuple[Tensor, Tensor]]]:
    """The forward of an LSTM, as a loop."""
    weights = dict(lstm.named_parameters())
    directions = ("", "_reverse") if lstm.bidirectional else ("",)

    def forward(
        sequence: Tensor, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:  # fmt: skip
        hidden = sequence.transpose(0, 1) if lstm.batch_first else sequence
        zeros, last = hidden.new_zeros(2, hidden.shape[1], lstm.hidden_size), list[Tensor]()
        for layer in range(lstm.num_layers):
            made = []
            for number, end in enumerate(directions):
                row = layer * len(directions) + number
                before = zeros if state is None else torch.stack([held[row] for held in state])
                after, outputs = _direction(before, hidden, weights, f"l{layer}{end}", is_reversed=bool(end))
                made.append(outputs)
                last.append(after)
            hidden = torch.cat(made, 2)
        after = torch.stack(last, 1)
        return (hidden.transpose(0, 1) if lstm.batch_first else hidden), (after[0], after[1])

    return forward


def _direction(
    state: Tensor, sequence: Tensor, weights: dict[str, Any], name: str, *, is_reversed: bool
) -> tuple[Tensor, Tensor]:
    """The last state of one direction of a layer, (2, batch, size), and its outputs, (steps, batch, size), for a
    sequence, (steps, batch, size)."""
    own, recurrent = weights[f"weight_ih_{name}"], weights[f"weight_hh_{name}"]
    gates = sequence @ own.T
    for bias in (f"bias_ih_{name}", f"bias_hh_{name}"):
        gates = gates + weights[bias] if bias in weights else gates
    gates = gates.flip(0) if is_reversed else gates
    last, outputs = over_tokens(_step, state, [gates], (recurrent,))
    return last, outputs.flip(0) if is_reversed else outputs


def _step(state: Tensor, gates: Tensor, recurrent: Tensor) -> tuple[Tensor, Tensor]:
    hidden, cell = state[0], state[1]
    taken, kept, new, shown = (gates + hidden @ recurrent.T).chunk(4, 1)
    cell = kept.sigmoid() * cell + taken.sigmoid() * new.tanh()
    hidden = shown.sigmoid() * cell.tanh()
    return torch.stack([hidden, cell]), hidden
