"""Attention that is written out is recovered with open sizes as with fixed ones, and from nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.export import Dim

from patcomp import AIProgram, TorchConverter, get_decomp_table
from patcomp.emit.native import Native
from patcomp.evaluate.inputs import prepare_input
from tests.catalog.recovering import Calling

BATCH, LENGTH, KEYS = Dim("batch", min=1, max=16), Dim("length", min=1, max=64), Dim("keys", min=2, max=64)
SIZES = ((2, 5, 7), (1, 1, 2), (3, 4, 4))
"""Batch, queries and keys of the runs, of which the first is that of the export."""


def _heads(batch: int, length: int, heads: int = 4) -> torch.Tensor:
    return torch.randn(batch, heads, length, 8)


def _plain(query: Any, key: Any, value: Any) -> Any:
    return torch.softmax(query @ key.transpose(-1, -2) * 0.3, -1) @ value


def _masked(query: Any, key: Any, value: Any, mask: Any) -> Any:
    scores = (query @ key.transpose(-1, -2)) / 8**0.5
    return torch.softmax(scores.masked_fill(~mask, torch.finfo(scores.dtype).min), -1) @ value


def _biased(query: Any, key: Any, value: Any, bias: Any) -> Any:
    scores = torch.matmul(query, key.transpose(2, 3)) * 8**-0.5 + bias
    return torch.matmul(torch.softmax(scores.float(), -1), value)


def _repeat(x: Any, times: int) -> Any:
    batch, heads, length, width = x.shape
    return x[:, :, None].expand(batch, heads, times, length, width).reshape(batch, heads * times, length, width)


def _grouped(query: Any, key: Any, value: Any) -> Any:
    return _plain(query, _repeat(key, 2), _repeat(value, 2))


def _joined(query: Any, key: Any, value: Any) -> Any:
    """Batch and heads as one axis (OPT, BART)."""
    batch, heads, length, width = query.shape
    rows, columns, values = (x.reshape(batch * heads, -1, width) for x in (query * 0.5, key, value))
    weights = torch.softmax(torch.bmm(rows, columns.transpose(1, 2)), -1)
    return torch.bmm(weights, values).view(batch, heads, length, width)


def _with_sums(query: Any, key: Any, value: Any, bias: Any) -> Any:
    """Scores as a sum that is scaled on the way, on joined axes (Bloom)."""
    batch, heads, length, width = query.shape
    shape = (batch * heads, -1, width)
    columns = key.reshape(shape).transpose(1, 2)
    scores = torch.baddbmm(bias.repeat(batch, 1, 1), query.reshape(shape), columns, alpha=0.35)
    weights = torch.softmax(scores.view(batch, heads, length, -1), -1).view(batch * heads, length, -1)
    return torch.bmm(weights, value.reshape(shape)).view(batch, heads, length, width)


def _einsum(query: Any, key: Any, value: Any) -> Any:
    weights = torch.softmax(torch.einsum("bhid,bhjd->bhij", query, key) * 0.3, -1)
    return torch.einsum("bhij,bhjd->bhid", weights, value)


Q, K = {0: BATCH, 2: LENGTH}, {0: BATCH, 2: KEYS}
Inputs = Callable[[int, int, int], tuple[torch.Tensor, ...]]
FORMS: dict[str, tuple[Callable[..., Any], Any, Inputs]] = {
    "four axes": (_plain, (Q, K, K), lambda b, n, m: (_heads(b, n), _heads(b, m), _heads(b, m))),
    "three axes": (
        _plain,
        ({0: BATCH, 1: LENGTH}, {0: BATCH, 1: KEYS}, {0: BATCH, 1: KEYS}),
        lambda b, n, m: (torch.randn(b, n, 8), torch.randn(b, m, 8), torch.randn(b, m, 6)),
    ),
    "masked": (
        _masked,
        (Q, K, K, {0: BATCH, 2: LENGTH, 3: KEYS}),
        lambda b, n, m: (_heads(b, n), _heads(b, m), _heads(b, m), torch.rand(b, 1, n, m) > 0.3),
    ),
    "biased": (
        _biased,
        (Q, K, K, {1: LENGTH, 2: KEYS}),
        lambda b, n, m: (_heads(b, n), _heads(b, m), _heads(b, m), torch.randn(4, n, m)),
    ),
    "grouped": (_grouped, (Q, K, K), lambda b, n, m: (_heads(b, n), _heads(b, m, 2), _heads(b, m, 2))),
    "joined axes": (_joined, (Q, K, K), lambda b, n, m: (_heads(b, n), _heads(b, m), _heads(b, m))),
    "sums of scores": (
        _with_sums,
        (Q, K, K, {2: KEYS}),
        lambda b, n, m: (_heads(b, n), _heads(b, m), _heads(b, m), torch.randn(4, 1, m)),
    ),
    "einsum": (_einsum, (Q, K, K), lambda b, n, m: (_heads(b, n), _heads(b, m), _heads(b, m))),
}


def _convert(function: Any, tensors: tuple[torch.Tensor, ...], shapes: Any, decompose: bool = True) -> AIProgram:
    exported = torch.export.export(Calling(function), tensors, dynamic_shapes=shapes and (shapes,))
    exported = exported.run_decompositions(get_decomp_table()) if decompose else exported
    return TorchConverter().add_exported_program(exported).to_coreai()


def _check(program: AIProgram, function: Any, tensors: tuple[torch.Tensor, ...], native: Native) -> None:
    types: Any = [argument.type for argument in program.module.graph("main").regions[0].block.args]
    named = zip(program.input_names(), tensors, types, strict=True)
    inputs = {name: prepare_input(value, type_, name) for name, value, type_ in named}
    for outputs in (program.run(inputs), native.run(program.module, inputs)):
        (given,) = outputs.values()
        torch.testing.assert_close(torch.as_tensor(given), function(*tensors), rtol=1e-4, atol=1e-5)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("decompose", [True, False], ids=["decomposed", "whole"])
@pytest.mark.parametrize("form", FORMS)
def test_open_sizes_give_the_composites_of_fixed_ones(form: str, decompose: bool, native: Native) -> None:
    function, shapes, inputs = FORMS[form]
    torch.manual_seed(0)
    program = _convert(function, inputs(*SIZES[0]), shapes, decompose)
    static = _convert(function, inputs(*SIZES[0]), None, decompose)
    assert program.composites == static.composites == {"scaled_dot_product_attention": 1}
    if decompose:
        for sizes in SIZES:
            _check(program, function, inputs(*sizes), native)


# ---- near misses: no attention, or none that could be proven ---------------------------------------


def _mixed(query: Any, key: Any, value: Any) -> Any:
    """Batch and queries change places in the views around the products."""
    batch, heads, length, width = query.shape
    scores = torch.bmm(query.reshape(heads * length, batch, width), key.reshape(heads * length, width, batch))
    return torch.softmax(scores.view(heads, length, batch, batch), -1) @ value.view(heads, length, batch, width)


def _shared_keys(query: Any, key: Any, value: Any) -> Any:
    """Queries of each batch meet the keys of the first one."""
    return torch.softmax(query @ key[:1].transpose(-1, -2), -1) @ value


MISSES = {"views that mix axes": _mixed, "one batch of keys": _shared_keys}


@pytest.mark.parametrize("name", MISSES)
def test_near_misses(name: str, native: Native) -> None:
    torch.manual_seed(0)
    open_sizes = {0: Dim.AUTO, 2: Dim.AUTO}
    program = _convert(MISSES[name], tuple(_heads(2, 5) for _ in range(3)), (open_sizes,) * 3)
    assert program.composites == {}
    for batch, length in ((2, 5), (5, 2), (3, 4)):
        _check(program, MISSES[name], tuple(_heads(batch, length) for _ in range(3)), native)
