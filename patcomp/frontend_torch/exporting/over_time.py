"""Recurrent networks over sequences of an open length: a loop over the steps.

`torch.export` keeps a recurrent network as one operator, but finds the shapes of its results by going through the steps
of the example, and so fixes their number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear
from torch.overrides import TorchFunctionMode

from patcomp.frontend_torch.exporting.refusals import RefusedError
from patcomp.frontend_torch.fx.sizes import known
from patcomp.pytorch import gather_params, unrolled_layers

_Step = Callable[..., tuple[Tensor, ...]]
"""From the states, the elements of one step and what all steps share: the next states, and an output."""


def over_time(
    step: _Step, states: Sequence[Tensor], sequences: Sequence[Tensor], shared: Sequence[Tensor] = ()
) -> tuple[list[Tensor], Tensor]:
    """The last states, and the outputs of all steps along the first dimension.

    Args:
        step: for one step.
        states: before the first step.
        sequences: their first dimension is that of the steps.
        shared: tensors that each step takes.
    """
    if isinstance(sequences[0].shape[0], int) and sequences[0].shape[0] == 1:
        *last, output = step(*states, *(each[0] for each in sequences), *shared)
        return last, output[None]

    def combined(*values: Tensor) -> list[Tensor]:
        return [made.clone() for made in step(*values)]

    *last, outputs = torch.ops.higher_order.scan(
        combined, [state.clone() for state in states], list(sequences), tuple(shared)
    )
    return last, outputs


def _lstm(hidden: Tensor, cell: Tensor, gates: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
    """A step of an LSTM (Hochreiter and Schmidhuber 1997), with a projection (Sak et al. 2014, arXiv:1402.1128) if the
    last weight is one.

    Args:
        hidden: (batch, size of the output).
        cell: (batch, size).
        gates: what the input of the step gives to them, (batch, 4 * size).
        weights: of the hidden state: the weight, perhaps the bias, and perhaps the projection.
    """
    is_projected = hidden.shape[1] != cell.shape[1]
    own = weights[:-1] if is_projected else weights
    taken, kept, new, shown = (gates + linear(hidden, *own)).chunk(4, 1)
    cell = kept.sigmoid() * cell + taken.sigmoid() * new.tanh()
    hidden = shown.sigmoid() * cell.tanh()
    hidden = linear(hidden, weights[-1]) if is_projected else hidden
    return hidden, cell, hidden


def _gru(hidden: Tensor, gates: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
    """A step of a GRU (Cho et al. 2014, arXiv:1406.1078), as cuDNN has it.

    Args:
        hidden: (batch, size).
        gates: what the input of the step gives to them, (batch, 3 * size).
        weights: of the hidden state: the weight, and perhaps the bias.
    """
    reset, kept, new = gates.chunk(3, 1)
    own_reset, own_kept, own_new = linear(hidden, *weights).chunk(3, 1)
    new = (new + own_new * (own_reset + reset).sigmoid()).tanh()
    hidden = (hidden - new) * (own_kept + kept).sigmoid() + new
    return hidden, hidden


def _rnn(activation: Callable[[Tensor], Tensor]) -> _Step:
    """The step of a network of one state (Elman 1990)."""

    def step(hidden: Tensor, sums: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        hidden = activation(linear(hidden, *weights) + sums)
        return hidden, hidden

    return step


RECURRENT_STEPS: Mapping[str, _Step] = {
    "lstm": _lstm,
    "gru": _gru,
    "rnn_tanh": _rnn(torch.tanh),
    "rnn_relu": _rnn(torch.relu),
}
"""The step of each of PyTorch's recurrent networks, by the name of its operator."""


def recurrent(
    name: str, input: Tensor, hx: Any, params: Sequence[Tensor], has_biases: bool, num_layers: int, dropout: float,
    train: bool, bidirectional: bool, batch_first: bool, *, present: Tensor | None = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    """What an operator of PyTorch returns, as loops over the steps: the outputs of the last layer, and each last state
    of all layers.

    Args:
        present: which sequences of the batch have each step, (steps, batch), if not all. The others keep their states.

    Raises:
        RefusedError: there is dropout.
    """
    if train and dropout and num_layers > 1:
        raise RefusedError("dropout between recurrent layers is random; export after model.eval()")
    states = list(hx) if name == "lstm" else [hx]
    has_projections = states[0].shape[2] != states[-1].shape[2]
    outputs, last = unrolled_layers(
        input, list(zip(*states, strict=True)), gather_params(params, has_biases, has_projections), has_biases,
        num_layers, dropout, train, bidirectional, batch_first, partial(_layer, RECURRENT_STEPS[name], present),
    )  # fmt: skip
    return outputs.contiguous(), *(torch.stack(each) for each in zip(*last, strict=True))


def _layer(
    step: _Step, present: Tensor | None, inputs: Tensor, states: Sequence[Tensor], params: Sequence[Tensor],
    has_biases: bool, reverse: bool = False,
) -> tuple[Tensor, list[Tensor]]:  # fmt: skip
    """The outputs of one direction of a layer, (steps, batch, size), and its last states.

    Args:
        params: of the input and of the hidden state, a weight each; their biases, if there are; and the projection.
    """
    own, recurrent, *more = params
    sums = linear(inputs.contiguous(), own, more.pop(0) if has_biases else None)
    sequences = [sums] if present is None else [sums, present[..., None]]

    def where_present(*values: Tensor) -> tuple[Tensor, ...]:
        before, (sums, present, *weights) = values[: len(states)], values[len(states) :]
        *after, output = step(*before, sums, *weights)
        return *(torch.where(present, new, old) for new, old in zip(after, before, strict=True)), output

    last, outputs = over_time(
        step if present is None else where_present, states,
        [each.flip(0) for each in sequences] if reverse else sequences, [recurrent, *more],
    )  # fmt: skip
    return outputs.flip(0) if reverse else outputs, last


class RecurrentNetworks(TorchFunctionMode):
    """While a model is traced: recurrent networks over an open number of steps are loops.

    Args:
        every: whether those over a fixed number are, too; PyTorch's decompositions unroll them otherwise.
    """

    def __init__(self, *, every: bool = False):
        super().__init__()
        self.every = every

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if is_over_open_steps(func, args, kwargs, every=self.every):
            return recurrent(func.__name__, *args)
        return func(*args, **(kwargs or {}))


def is_over_open_steps(
    func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any] | None, *, every: bool = False
) -> bool:
    """Whether a function call runs a recurrent network over a dynamic number of steps; with `every`, over any
    number."""
    # the fourth argument are the weights, for packed data
    if getattr(func, "__name__", "") not in RECURRENT_STEPS or kwargs or not isinstance(args[3], bool):
        return False
    return every or isinstance(known(args[0].shape[1 if args[-1] else 0]), torch.SymInt)
