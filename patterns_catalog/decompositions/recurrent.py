"""Recurrent networks, unrolled over the steps of their input."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.functional import linear

from patcomp.patterns import Rejected, decomposition, example

State = tuple[Tensor, ...]
Step = Callable[[Tensor, State, Sequence[Tensor], bool], State]
"""From an input times its weights, the state before and the weights, the state after, the output first."""


_UNCHECKED = dict.fromkeys(("options", "ranks", "sizes"), "eager does not check that the weights fit each other")


@decomposition("aten.lstm_cell", examples=[
    example("2x3xf32", ["2x4xf32", "2x4xf32"], "16x3xf32", "16x4xf32", "16xf32", "16xf32"),
])  # fmt: skip
def lstm_cell(
    input: Tensor, hx: list[Tensor], w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> State:
    "a step of long short-term memory (Hochreiter and Schmidhuber 1997, doi:10.1162/neco.1997.9.8.1735)"
    return _lstm_step(linear(input, w_ih, b_ih), tuple(hx), *_hidden(w_ih, w_hh, b_hh))


@decomposition("aten.gru_cell", examples=[example("2x3xf32", "2x4xf32", "12x3xf32", "12x4xf32", "12xf32", "12xf32")])
def gru_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> Tensor:
    "a step of gated recurrent units (Cho et al. 2014, arXiv:1406.1078), the reset gate after the product"
    return _gru_step(linear(input, w_ih, b_ih), (hx,), *_hidden(w_ih, w_hh, b_hh))[0]


@decomposition("aten.rnn_tanh_cell", examples=[example("2x3xf32", "2x4xf32", "4x3xf32", "4x4xf32", "4xf32", "4xf32")])
def rnn_tanh_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> Tensor:
    "tanh(w_ih @ input + w_hh @ state) with biases"
    return _plain_step(torch.tanh)(linear(input, w_ih, b_ih), (hx,), *_hidden(w_ih, w_hh, b_hh))[0]


@decomposition("aten.rnn_relu_cell", examples=[example("2x3xf32", "2x4xf32", "4x3xf32", "4x4xf32")])
def rnn_relu_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> Tensor:
    "relu(w_ih @ input + w_hh @ state) with biases"
    return _plain_step(torch.relu)(linear(input, w_ih, b_ih), (hx,), *_hidden(w_ih, w_hh, b_hh))[0]


@decomposition("aten.lstm.input", unspecified=_UNCHECKED, examples=[
    example(
        "3x2x3xf32", ["1x2x4xf32", "1x2x4xf32"], ["16x3xf32", "16x4xf32", "16xf32", "16xf32"],
        True, 1, 0.0, False, False, False,
    ),
    example(
        "2x3x3xf32", ["2x2x2xf32", "2x2x4xf32"],
        ["16x3xf32", "16x2xf32", "2x4xf32", "16x3xf32", "16x2xf32", "2x4xf32"], False, 1, 0.0, False, True, True,
    ),
])  # fmt: skip
def lstm(
    input: Tensor, hx: list[Tensor], params: list[Tensor], has_biases: bool, num_layers: int, dropout: float,
    train: bool, bidirectional: bool, batch_first: bool,
) -> State:  # fmt: skip
    "long short-term memory: the outputs of the last layer, the last output and the last cell of each layer"
    options = has_biases, num_layers, dropout, train, bidirectional, batch_first
    return _unrolled(_lstm_step, input, hx, params, *options)


@decomposition("aten.gru.input", unspecified=_UNCHECKED, examples=[
    example(
        "3x2x3xf32", "2x2x4xf32", ["12x3xf32", "12x4xf32", "12xf32", "12xf32"] * 2, True, 1, 0.0, False, True, False
    ),
    example(
        "3x2x3xf32", "2x2x4xf32", ["12x3xf32", "12x4xf32", "12x4xf32", "12x4xf32"], False, 2, 0.0, False, False, False
    ),
])  # fmt: skip
def gru(
    input: Tensor, hx: Tensor, params: list[Tensor], has_biases: bool, num_layers: int, dropout: float,
    train: bool, bidirectional: bool, batch_first: bool,
) -> State:  # fmt: skip
    "gated recurrent units: the outputs of the last layer, and the last output of each layer"
    options = has_biases, num_layers, dropout, train, bidirectional, batch_first
    return _unrolled(_gru_step, input, [hx], params, *options)


@decomposition("aten.rnn_tanh.input", unspecified=_UNCHECKED, examples=[
    example("3x2x3xf32", "1x2x4xf32", ["4x3xf32", "4x4xf32", "4xf32", "4xf32"], True, 1, 0.0, False, False, False),
])  # fmt: skip
def rnn_tanh(
    input: Tensor, hx: Tensor, params: list[Tensor], has_biases: bool, num_layers: int, dropout: float,
    train: bool, bidirectional: bool, batch_first: bool,
) -> State:  # fmt: skip
    "a recurrent network with tanh"
    options = has_biases, num_layers, dropout, train, bidirectional, batch_first
    return _unrolled(_plain_step(torch.tanh), input, [hx], params, *options)


@decomposition("aten.rnn_relu.input", unspecified=_UNCHECKED, examples=[
    example("2x3x3xf32", "1x2x4xf32", ["4x3xf32", "4x4xf32"], False, 1, 0.0, False, False, True),
])  # fmt: skip
def rnn_relu(
    input: Tensor, hx: Tensor, params: list[Tensor], has_biases: bool, num_layers: int, dropout: float,
    train: bool, bidirectional: bool, batch_first: bool,
) -> State:  # fmt: skip
    "a recurrent network with relu"
    options = has_biases, num_layers, dropout, train, bidirectional, batch_first
    return _unrolled(_plain_step(torch.relu), input, [hx], params, *options)


def _hidden(w_ih: Tensor, w_hh: Tensor, b_hh: Tensor | None) -> tuple[list[Tensor], bool]:
    """The weights of a cell in the order of a layer's, and whether there are biases."""
    return ([w_ih, w_hh], False) if b_hh is None else ([w_ih, w_hh, b_hh, b_hh], True)


def _lstm_step(taken: Tensor, state: State, weights: Sequence[Tensor], biased: bool) -> State:
    output, cell = state
    gates = taken + linear(output, weights[1], weights[3] if biased else None)
    enter, forget, new, leave = gates.chunk(4, -1)
    cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
    output = leave.sigmoid() * cell.tanh()
    projection = weights[4 if biased else 2 :]
    return (linear(output, projection[0]) if projection else output), cell


def _gru_step(taken: Tensor, state: State, weights: Sequence[Tensor], biased: bool) -> State:
    (output,) = state
    kept = linear(output, weights[1], weights[3] if biased else None)
    reset_in, update_in, new_in = taken.chunk(3, -1)
    reset, update, new = kept.chunk(3, -1)
    new = (new_in + (reset_in + reset).sigmoid() * new).tanh()
    update = (update_in + update).sigmoid()
    return ((output - new) * update + new,)


def _plain_step(function: Callable[[Tensor], Tensor]) -> Step:
    def step(taken: Tensor, state: State, weights: Sequence[Tensor], biased: bool) -> State:
        return (function(taken + linear(state[0], weights[1], weights[3] if biased else None)),)

    return step


def _unrolled(
    step: Step, x: Tensor, states: Sequence[Tensor], params: Sequence[Tensor], biased: bool, layers: int,
    dropout: float, train: bool, bidirectional: bool, batch_first: bool,
) -> State:  # fmt: skip
    """The outputs of the last layer, and the last states of every layer and direction."""
    if train and dropout and layers > 1:
        raise Rejected("dropout between recurrent layers is random; export after model.eval()")
    directions = 2 if bidirectional else 1
    count = len(params) // (layers * directions)
    x = x.transpose(0, 1) if batch_first else x
    last: list[State] = []
    for layer in range(layers):
        outputs = []
        for direction in range(directions):
            index = layer * directions + direction
            weights = params[index * count : (index + 1) * count]
            # the product with the input is one for all steps
            taken = linear(x, weights[0], weights[2] if biased else None)
            state: State = tuple(initial[index] for initial in states)
            steps: list[Tensor] = []
            for time in reversed(range(x.size(0))) if direction else range(x.size(0)):
                state = step(taken[time], state, weights, biased)
                steps.append(state[0])
            outputs.append(torch.stack(steps[::-1] if direction else steps))
            last.append(state)
        x = torch.cat(outputs, -1) if bidirectional else outputs[0]
    return (x.transpose(0, 1) if batch_first else x), *(torch.stack(values) for values in zip(*last, strict=True))
