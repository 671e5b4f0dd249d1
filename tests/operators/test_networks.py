"""Recurrent layers of `torch.nn`, and results of pools and norms besides the first, beside eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional

from patcomp import TorchConverter, UnsupportedError, get_decomp_table
from patcomp.emit.native import Native
from patcomp.evaluate.element_types import to_tensor


class Call(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., object]):
        super().__init__()
        self.function = function

    def forward(self, *tensors: torch.Tensor) -> object:
        return self.function(*tensors)


def assert_equal(model: nn.Module, inputs: tuple[torch.Tensor, ...], native: Native, *, decomposed: bool) -> None:
    """Evaluator and runtime agree with eager in every result."""
    with torch.no_grad():
        expected = torch.utils._pytree.tree_leaves(model(*inputs))
    exported = torch.export.export(model, inputs, strict=False)
    if decomposed:
        exported = exported.run_decompositions(get_decomp_table())
    program = TorchConverter().add_exported_program(exported).to_coreai()
    given = dict(zip(program.input_names(), inputs, strict=True))
    for outputs in (program.run(given), native.run(program.module, given)):
        for name, wanted in zip(program.output_names(), expected, strict=True):
            wanted = wanted.to(torch.int32) if wanted.dtype == torch.int64 else wanted
            torch.testing.assert_close(to_tensor(outputs[name]), wanted, atol=1e-5, rtol=1e-5, equal_nan=True)


LAYERS = {
    "LSTM": (nn.LSTM(3, 4), (5, 2, 3)),
    "LSTM of two layers, both ways": (nn.LSTM(3, 4, 2, batch_first=True, bidirectional=True), (2, 4, 3)),
    "LSTM with projection": (nn.LSTM(3, 4, 2, proj_size=2), (4, 2, 3)),
    "LSTM without biases or batch": (nn.LSTM(3, 4, bias=False), (4, 3)),
    "GRU": (nn.GRU(3, 4), (5, 2, 3)),
    "GRU of two layers, both ways": (nn.GRU(3, 4, 2, batch_first=True, bidirectional=True, bias=False), (2, 4, 3)),
    "RNN": (nn.RNN(3, 4, 2, bidirectional=True), (4, 2, 3)),
    "RNN with relu": (nn.RNN(3, 4, nonlinearity="relu", batch_first=True), (2, 4, 3)),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("decomposed", [False, True], ids=["", "decomposed"])
@pytest.mark.parametrize("name", LAYERS)
def test_recurrent_layer(name: str, decomposed: bool, native: Native) -> None:
    layer, shape = LAYERS[name]
    assert_equal(layer.eval(), (torch.randn(shape),), native, decomposed=decomposed)


@pytest.mark.parametrize("bias", [True, False], ids=["", "without biases"])
@pytest.mark.parametrize("cell", [nn.LSTMCell, nn.GRUCell, nn.RNNCell, partial(nn.RNNCell, nonlinearity="relu")])
def test_recurrent_cell(cell: Callable[..., nn.Module], bias: bool, native: Native) -> None:
    assert_equal(cell(3, 4, bias=bias), (torch.randn(2, 3),), native, decomposed=False)


def test_dropout_between_layers_is_refused() -> None:
    model = nn.LSTM(3, 4, 2, dropout=0.5).train()
    exported = torch.export.export(model, (torch.randn(4, 2, 3),), strict=False)
    with pytest.raises(UnsupportedError, match="unsupported op, which draws random numbers"):
        TorchConverter().add_exported_program(exported).to_coreai()


def _plane(*shape: int) -> torch.Tensor:
    """Few values, so that windows have equal maxima; NaN and the lowest value too."""
    values = torch.randint(0, 3, shape).float()
    values.flatten()[3::7] = torch.nan
    values.flatten()[::5] = -torch.inf
    return values


POOLS: dict[str, tuple[Callable[..., object], tuple[int, ...]]] = {
    "padding": (lambda x: functional.max_pool2d(x, 3, 2, 1, return_indices=True), (2, 2, 7, 8)),
    "dilation": (lambda x: functional.max_pool2d(x, 2, 1, 1, (2, 3), return_indices=True), (2, 7, 8)),
    "ceil mode": (lambda x: functional.max_pool2d(x, 3, 2, ceil_mode=True, return_indices=True), (1, 2, 8, 8)),
    "volume": (lambda x: functional.max_pool3d(x, 2, padding=1, return_indices=True), (2, 4, 5, 3)),
    "signal": (lambda x: functional.max_pool1d(x, 3, 2, 1, return_indices=True), (2, 3, 9)),
    "adaptive": (lambda x: functional.adaptive_max_pool2d(x, (3, 5), return_indices=True), (2, 2, 7, 4)),
    "adaptive volume": (lambda x: functional.adaptive_max_pool3d(x, 2, return_indices=True), (2, 3, 5, 4)),
}


@pytest.mark.parametrize("name", POOLS)
def test_places_of_the_maxima(name: str, native: Native) -> None:
    function, shape = POOLS[name]
    assert_equal(Call(function), (_plane(*shape),), native, decomposed=True)


NORMS: dict[str, Callable[[torch.Tensor], object]] = {
    "layer": lambda x: torch.ops.aten.native_layer_norm(x, [4, 5], None, None, 1e-5),
    "group": lambda x: torch.ops.aten.native_group_norm(x, None, None, 2, 6, 20, 3, 1e-5),
    "batch": lambda x: torch.ops.aten.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5),
}


@pytest.mark.parametrize("name", NORMS)
def test_statistics_of_norms(name: str, native: Native) -> None:
    assert_equal(Call(NORMS[name]), (torch.randn(2, 6, 4, 5),), native, decomposed=True)
