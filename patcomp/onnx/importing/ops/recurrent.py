"""Recurrent networks, which are PyTorch's own with the gates in another order."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from patcomp.onnx.importing.rows import onnx_op


def _check(activations: Any, usual: list[str], unsupported: dict[str, Any], directions: int) -> None:
    """Refuse what PyTorch's networks do not have.

    Raises:
        TypeError: the node has it.
    """
    if activations is not None and [each.lower() for each in activations] != [
        each.lower() for each in usual * directions
    ]:
        raise TypeError(f"the activations {activations} are not supported")
    if given := [name for name, value in unsupported.items() if value]:
        raise TypeError(f"{', '.join(given)} are not supported")


def _gates(x: Tensor, order: list[int]) -> Tensor:
    """The rows of all gates, in another order."""
    parts = x.chunk(len(order), 0)
    return torch.cat([parts[index] for index in order])


def _parameters(w: Tensor, r: Tensor, b: Tensor | None, order: list[int], directions: int) -> tuple[list[Tensor], bool]:
    flat = []
    for each in range(directions):
        flat += [_gates(w[each], order), _gates(r[each], order)]
        if b is not None:
            flat += [_gates(half, order) for half in b[each].chunk(2)]
    return flat, b is not None


def _directions(direction: str) -> int:
    return 2 if direction == "bidirectional" else 1


def _in_time(x: Tensor, direction: str) -> Tensor:
    """The steps in the order in which the network takes them, and back."""
    return x.flip(0) if direction == "reverse" else x


def _state(given: Tensor | None, x: Tensor, directions: int, width: int) -> Tensor:
    return x.new_zeros(directions, x.shape[1], width) if given is None else given


def _in_directions(y: Tensor, directions: int) -> Tensor:
    """From (steps, batch, directions x width) to (steps, directions, batch, width)."""
    return y.unflatten(-1, (directions, -1)).transpose(1, 2)


def _run(network: Any, x: Tensor, states: Any, flat: list[Tensor], biased: bool, direction: str) -> tuple[Tensor, ...]:
    """The outputs of one of PyTorch's networks, one layer and without dropout, in the layout of ONNX."""
    directions = _directions(direction)
    y, *last = network(_in_time(x, direction), states, flat, biased, 1, 0.0, False, directions == 2, False)
    return _in_time(_in_directions(y, directions), direction), *last


@onnx_op("LSTM")
def lstm(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Any = None,
    hidden: Tensor | None = None,
    cell: Tensor | None = None,
    peepholes: Any = None,
    *,
    hidden_size: int,
    direction: str = "forward",
    activations: Any = None,
    activation_alpha: Any = None,
    activation_beta: Any = None,
    clip: float = 0.0,
    input_forget: int = 0,
    layout: int = 0,
) -> Any:
    directions = _directions(direction)
    unsupported = {"lengths": lengths is not None, "peepholes": peepholes is not None, "clip": clip}
    _check(
        activations,
        ["Sigmoid", "Tanh", "Tanh"],
        unsupported | {"input_forget": input_forget, "layout": layout},
        directions,
    )
    flat, biased = _parameters(w, r, b, [0, 2, 3, 1], directions)  # input, output, forget, cell
    states = tuple(_state(each, x, directions, hidden_size) for each in (hidden, cell))
    return _run(torch.lstm, x, states, flat, biased, direction)


@onnx_op("GRU")
def gru(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Any = None,
    hidden: Tensor | None = None,
    *,
    hidden_size: int,
    direction: str = "forward",
    activations: Any = None,
    activation_alpha: Any = None,
    activation_beta: Any = None,
    clip: float = 0.0,
    linear_before_reset: int = 0,
    layout: int = 0,
) -> Any:
    directions = _directions(direction)
    unsupported = {"lengths": lengths is not None, "clip": clip, "layout": layout}
    _check(activations, ["Sigmoid", "Tanh"], unsupported, directions)
    if not linear_before_reset:
        raise TypeError("linear_before_reset=0 is not PyTorch's GRU, and not supported")
    flat, biased = _parameters(w, r, b, [1, 0, 2], directions)  # update, reset, hidden
    return _run(torch.gru, x, _state(hidden, x, directions, hidden_size), flat, biased, direction)


@onnx_op("RNN")
def rnn(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Any = None,
    hidden: Tensor | None = None,
    *,
    hidden_size: int,
    direction: str = "forward",
    activations: Any = None,
    activation_alpha: Any = None,
    activation_beta: Any = None,
    clip: float = 0.0,
    layout: int = 0,
) -> Any:
    directions = _directions(direction)
    relu = activations is not None and activations[0].lower() == "relu"
    unsupported = {"lengths": lengths is not None, "clip": clip, "layout": layout}
    _check(activations, ["Relu" if relu else "Tanh"], unsupported, directions)
    flat, biased = _parameters(w, r, b, [0], directions)
    network = torch.rnn_relu if relu else torch.rnn_tanh
    return _run(network, x, _state(hidden, x, directions, hidden_size), flat, biased, direction)
