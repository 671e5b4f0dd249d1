"""Conversion names the 64-bit results that 32 bits may change, and no others."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._higher_order_ops.while_loop import while_loop

from patcomp import AIProgram, ConversionWarning, Problem, TorchConverter, UnsupportedError
from patcomp.emit.native import Native
from tests.frontend_torch.models import export

IDS = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
MASK = torch.tensor([[1, 1, 1, 1, 0], [1, 1, 1, 0, 0]])
X = torch.tensor([0.5, -1.25, 3.0])
TABLE = torch.randn(12, 2)


def converted(function: Callable[..., Any], *inputs: torch.Tensor, **choices: str) -> AIProgram:
    """The program of a function; its warnings are its diagnostics."""
    exported = export(function, *inputs)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        program = TorchConverter(**choices).add_exported_program(exported).to_coreai()
    shown = [str(each.message) for each in caught if each.category is ConversionWarning]
    assert shown == list(map(str, program.diagnostics))
    return program


def found(function: Callable[..., Any], *inputs: torch.Tensor) -> tuple[Problem, ...]:
    return tuple(each for each in converted(function, *inputs).diagnostics if "keep'" in each.advice)


def position_ids(mask: torch.Tensor) -> torch.Tensor:
    return mask.cumsum(1) * mask + 1


SILENT: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "an input and a small number": (lambda x: x + 1, (IDS,)),
    "two inputs": (lambda x, y: (x + y, x - y), (IDS, IDS.clone())),
    "positions": (lambda x: x[:, torch.arange(5) * 300 % 5] + torch.arange(5) * 1000, (IDS,)),
    "token ids": (lambda x: (TABLE[x], x * 1_000_000), (IDS,)),
    "token ids that are shifted": (lambda x: (torch.nn.functional.embedding(x + 2, TABLE), x * 9_000_000), (IDS,)),
    "positions by a mask": (lambda mask: TABLE[position_ids(mask)], (IDS,)),
    "a mask": (lambda mask: (mask.unsqueeze(1) * mask.unsqueeze(2)).bool(), (MASK,)),
    "sums of a mask": (lambda mask: mask.sum(1) - 1, (MASK,)),
    "the lowest bits": (lambda x: ((x * 65_599 + 7) * 65_599) & 1023, (IDS,)),
    "a cast that wraps": (lambda x: (x * 1_000_003).to(torch.int32), (IDS,)),
    "remainders": (lambda x: x % 1000 * 1000, (IDS,)),
    "argmax": (lambda x: x.argmax() * 1000 + x.topk(2).indices, (X,)),
    "one_hot": (lambda x: torch.nn.functional.one_hot(x, 10).sum(0), (IDS,)),
    "bounded floats": (lambda x: (x.sigmoid() * 1000).long() * 1000, (X,)),
    "logarithms": (lambda x: ((x.abs() / 8).log() * 20).long() + 16, (X,)),
    "floats that are clamped": (lambda x: x.long().clamp(0, 9) * 9, (X,)),
    "floats that are indices": (lambda x: TABLE[(x.abs() * 2).long()], (X,)),
    "floats that are indices and compared": (lambda x: TABLE[x.long()] * (x.long() != 0)[:, None], (X.abs(),)),
    "a shift": (lambda x: (x % 9 << 4) + (x >> 40), (IDS,)),
    "a loop counter": (
        lambda x: while_loop(lambda i, y: i < 5, lambda i, y: (i + 1, y * 2), (torch.tensor(0), x)),
        (X,),
    ),
    "an index in a branch": (
        lambda x, i: torch.cond(x.sum() > 0, lambda x, i: x + TABLE[i][0, 0, 0], lambda x, i: x * 2, (x, i * 5)),
        (X, IDS),
    ),
    "what is never chosen": (lambda x: torch.where(torch.arange(5) < 5, x % 9, x * 5), (IDS,)),
    "casts to float64 and back": (lambda x: (x.double().relu() > 0.5, x.double().float()), (X,)),
    "one rounding": (lambda x: ((x.double() + 1e9).float(), (x.double() * 0.1).float()), (X,)),
    "products of float64": (lambda x: (x.double() * x / 3).abs().sqrt().float(), (X,)),
    "float64 that is written at positions": (
        lambda x: x.double().index_put((IDS[0, 1::2] // 4,), x[:2].double() * 0.1).float(),
        (X,),
    ),
    "positive sums of float64": (lambda x: (x.double().square() + 1e-6).rsqrt().float(), (X,)),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", SILENT)
def test_what_fits_is_silent(name: str) -> None:
    function, inputs = SILENT[name]
    warnings = [each.message for each in found(function, *inputs)]
    assert [text for text in warnings if not text.startswith("the model checks that all(")] == []  # as `one_hot` does


NAMED: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...], list[str]]] = {
    "floats without bounds, beside other indices": (
        lambda x: TABLE[x.short().int()] * (x.long() != 0)[:, None],
        (X.abs(),),
        ["_to_copy_2"],
    ),
    "the issue's integers": (lambda x: (x * 100_000 * 100_000) % 7, (IDS,), ["mul_1"]),
    "the issue's floats": (lambda x: (x.double() + 1e9) - 1e9, (X,), ["sub"]),
    "a product of inputs": (lambda x, y: x * y > 0, (IDS, IDS.clone()), ["mul"]),
    "a power": (lambda x: x**3, (IDS,), ["pow_1"]),
    "a shift": (lambda x: x << 3, (IDS,), ["lshift"]),
    "a large shift": (lambda x: (x % 9) << 40, (IDS,), ["lshift"]),
    "a running product": (lambda x: (x % 100).cumprod(1), (IDS,), ["cumprod"]),
    "a sum of inputs": (lambda x: x.sum() // 2, (IDS,), ["sum_1"]),
    "a cast to floats": (lambda x: (x * 5).float(), (IDS,), ["mul"]),
    "what is looked at through a view": (lambda x: (x * 5).view(-1).flip(0) > 3, (IDS,), ["mul"]),
    "floats without bounds": (lambda x: x.long(), (X,), ["_to_copy"]),
    "a loop that doubles": (
        lambda x: while_loop(lambda i, y: i < 40, lambda i, y: (i + 1, y * 2), (torch.tensor(0), x)),
        (IDS,),
        ["while_loop_body_graph_0_mul"],
    ),
    "what a loop begins with": (
        lambda x, y: while_loop(lambda i, y: i < 4, lambda i, y: (i + 1, y % 3), (torch.tensor(0), y * 5)),
        (IDS, IDS.clone()),
        ["mul"],
    ),
    "floats without bounds in a branch": (
        lambda x: torch.cond(x.sum() > 0, lambda x: x + (x * 1e9).long() % 7, lambda x: x * 2, (x,)),
        (X,),
        ["true_graph_0__to_copy"],
    ),
    "what a branch gives": (
        lambda x: torch.cond(x[0, 0] > 0, lambda x: x * 5, lambda x: x % 3, (x,)) > 4,
        (IDS,),
        ["true_graph_0_mul"],
    ),
    "what is chosen": (lambda x: torch.where(torch.arange(5) < 4, x % 9, x * 5), (IDS,), ["mul"]),
    "a sum of float64": (lambda x: x.double().sum().float(), (X,), ["sum_1"]),
    "sums of float64 at positions": (
        lambda x: x.double().index_put((IDS[0, 1::2] // 4,), x[:2].double() * 0.1, accumulate=True).float(),
        (X,),
        ["index_put"],
    ),
    "a difference of what was rounded": (lambda x: (x.double() * 0.1 - 0.05).float(), (X,), ["sub"]),
    "a function of what was rounded": (lambda x: (x.double() * 1e3).sin().float(), (X,), ["sin"]),
    "a function of a rounded product": (lambda x: (x.double() * 0.1).exp().float(), (X,), ["exp"]),
    "a decision on what was rounded": (lambda x: (x.double() * 0.1).floor().float(), (X,), ["floor"]),
    "a float64 model": (lambda x: x @ x, (X.double().expand(3, 3),), ["mm"]),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", NAMED)
def test_what_may_not_fit_is_named(name: str) -> None:
    function, inputs, nodes = NAMED[name]
    diagnostics = found(function, *inputs)
    assert [each.node for each in diagnostics] == nodes
    assert all("models.py:" in each.source for each in diagnostics)
    choice = "float64" if inputs[0].is_floating_point() and "without bounds" not in name else "int64"
    assert all(f"convert with {choice}='keep'" in each.advice for each in diagnostics)


def test_a_warning_names_all_kinds_once_and_the_first_places() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x * 3, x * 4, x * 5, x * 6, x.double().sum(), x.double().mean()

    integers, floats = found(function, IDS)
    assert str(integers).startswith(
        "this int64 result is computed in 32 bits and may not fit: it may be about -3.2e+09 "
        "(op aten.mul.Tensor, node %mul, at "
    )
    assert "3 more such places:\n        op aten.mul.Tensor, node %mul_1" in str(integers)
    assert "node %mul_2" in str(integers)
    assert "and 1 more" in str(integers)
    assert "node %mul_3" not in str(integers)
    assert "1 more such place:\n        op aten.mean.dim, node %mean" in str(floats)
    assert re.findall(r"and -?\d+ more", f"{integers} {floats}") == ["and 1 more"]


def test_errors_list_every_place() -> None:
    exported = export(lambda x: (x * 3, x.argmax(), x * 4, (x * 0.5).double().sum()), IDS)
    for choice, ops in (("int64", ["aten.mul.Tensor", "aten.mul.Tensor"]), ("float64", ["aten.sum.dim_IntList"])):
        converter = TorchConverter(**{choice: "error"}).add_exported_program(exported)
        with pytest.raises(UnsupportedError, match="64-bit numbers may change") as raised:
            converter.to_coreai()
        assert [problem.op for problem in raised.value.problems] == ops


def test_what_is_kept_is_not_named() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x * 100_000, x.double().sum()

    assert len(converted(function, IDS, int64="keep").diagnostics) == 1
    assert converted(function, IDS, int64="keep", float64="keep").diagnostics == ()


def test_dynamic_sizes_are_bounded() -> None:
    lengths = {"x": {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}}

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rows = torch.arange(x.shape[0] * x.shape[1]) + x.shape[0]
        return rows, rows // x.shape[1], x.view(-1).cumsum(0) * 0 + rows, x.bool().sum(), rows.float()

    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return function(x)

    exported = torch.export.export(Module(), (MASK,), dynamic_shapes=lengths)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConversionWarning)
        TorchConverter().add_exported_program(exported).to_coreai()


def test_a_run_warns_of_inputs_for_which_silence_is_not_proved() -> None:
    program = converted(lambda x: x + x, IDS)
    (name,) = program.input_names()
    assert program.limits == {"main": {name: 2**30 - 1}}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program.run({name: IDS})
    with pytest.warns(ConversionWarning, match=r"has numbers beyond 1073741823(.|\n)*int64='keep'"):
        program.run({name: torch.full_like(IDS, 2**30)})
    assert f"{name} within ±1073741823" in str(program.report())


def test_the_lowest_bits_are_right_on_the_runtime(native: Native) -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        large = x * 1_000_003 * 65_599
        return large & 1023, large.cumsum(1) & 511, large.sum(1) & 7, (large - x).to(torch.int16), (-large | 5) & 255

    program = converted(function, IDS)
    assert program.diagnostics == ()
    given = dict(zip(program.input_names(), [IDS.int()], strict=True))
    for outputs in (program.run(given), native.run(program.module, given)):
        for name, expected in zip(program.output_names(), function(IDS), strict=True):
            assert torch.equal(torch.as_tensor(outputs[name]).long(), expected.long()), name


def test_floats_that_are_too_large_are_clamped_as_in_64_bits(native: Native) -> None:
    x = torch.tensor([1e15, -1e15, 3.7, 2.0**31])
    program = converted(lambda x: x.long().clamp(-5, 9), x)
    assert program.diagnostics == ()
    given = dict(zip(program.input_names(), [x], strict=True))
    for outputs in (program.run(given), native.run(program.module, given)):
        assert torch.as_tensor(next(iter(outputs.values()))).tolist() == [9, -5, 3, 9]


def test_shifts_beyond_32_bits_are_kept(native: Native) -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x << 40, (x << 40) >> 38, -x >> 63, x << torch.tensor([1, 33, 63, 64, -1])

    program = converted(function, IDS, int64="keep")
    given = dict(zip(program.input_names(), [IDS], strict=True))
    for outputs in (program.run(given), native.run(program.module, given)):
        for name, expected in zip(program.output_names(), function(IDS), strict=True):
            assert torch.equal(torch.as_tensor(outputs[name]), expected), name
