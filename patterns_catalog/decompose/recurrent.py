"""Recurrent networks, unrolled over the steps of their input by PyTorch's own decompositions.

PyTorch's cells (`aten.lstm_cell` and others) need no rule.
"""

from __future__ import annotations

import torch
from torch import Tensor

from patcomp.patterns import Example, Rejected, Rule, decomposition, example
from patcomp.pytorch import gather_params, global_decomposition_table, one_layer_lstm, unrolled_layers

_UNCHECKED = dict.fromkeys(("options", "ranks", "sizes"), "eager does not check that the weights fit each other")


def _check_dropout(num_layers: int, dropout: float, train: bool) -> None:
    """PyTorch's decompositions leave dropout out.

    Raises:
        Rejected: there is dropout.
    """
    if train and dropout and num_layers > 1:
        raise Rejected("dropout between recurrent layers is random; export after model.eval()")


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
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The outputs of the last layer, the last output and the last cell of each layer.

    PyTorch's decomposition as a whole prefers a kernel of oneDNN on a CPU, so this one is made of its parts.
    """
    _check_dropout(num_layers, dropout, train)
    has_projections = hx[0].size(2) != hx[1].size(2)
    outputs, last = unrolled_layers(
        input, list(zip(*hx, strict=True)), gather_params(params, has_biases, has_projections), has_biases,
        num_layers, dropout, train, bidirectional, batch_first, one_layer_lstm,
    )  # fmt: skip
    hidden, cell = zip(*last, strict=True)
    return outputs, torch.stack(hidden), torch.stack(cell)


def _network(name: str, *examples: Example) -> Rule:
    overload = getattr(torch.ops.aten, name).input

    @decomposition(f"aten.{name}.input", name=f"decompose {name}", unspecified=_UNCHECKED, examples=examples)
    def network(
        input: Tensor, hx: Tensor, params: list[Tensor], has_biases: bool, num_layers: int, dropout: float,
        train: bool, bidirectional: bool, batch_first: bool,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        "the outputs of the last layer, and the last output of each layer, by PyTorch's decomposition"
        _check_dropout(num_layers, dropout, train)
        decomposed = global_decomposition_table["post_autograd"][overload]
        return decomposed(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)

    return network


gru = _network(
    "gru",
    example(
        "3x2x3xf32", "2x2x4xf32", ["12x3xf32", "12x4xf32", "12xf32", "12xf32"] * 2, True, 1, 0.0, False, True, False
    ),
    example(
        "3x2x3xf32", "2x2x4xf32", ["12x3xf32", "12x4xf32", "12x4xf32", "12x4xf32"], False, 2, 0.0, False, False, False
    ),
)
rnn_tanh = _network(
    "rnn_tanh",
    example("3x2x3xf32", "1x2x4xf32", ["4x3xf32", "4x4xf32", "4xf32", "4xf32"], True, 1, 0.0, False, False, False),
)
rnn_relu = _network(
    "rnn_relu",
    example("2x3x3xf32", "1x2x4xf32", ["4x3xf32", "4x4xf32"], False, 1, 0.0, False, False, True),
)
