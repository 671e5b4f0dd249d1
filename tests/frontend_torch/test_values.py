"""Numbers, element types and 0-d tensors that converters are known to get wrong; and a converter that keeps quiet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from patcomp import TorchConverter, UnsupportedError
from patcomp.emit.native import Native
from patcomp.evaluate.element_types import to_tensor
from tests.frontend_torch.models import PAIR, Function, TwoBranches, export

HALF, INTEGERS = torch.tensor([60000.0, -60000.0, 1.0]).half(), torch.tensor([2**30 + 1, -(2**30) - 1, 5]).int()
X, NUMBER = torch.tensor([0.5, -2.0, 3.0]), torch.tensor(2.5)
COMPLEX = torch.tensor([1 + 2j, 3 - 1j, 0.5j])
FIRST = torch.tensor([0])

CASES: dict[str, tuple[Callable[..., Any], torch.Tensor]] = {
    "a small factor of halves": (lambda x: x * 1e-9, HALF),
    "a large summand of halves": (lambda x: x + 70000.0, HALF),
    "a summand of bfloat16": (lambda x: x + 1.1, X.bfloat16()),
    "a scalar of where": (lambda x: torch.where(x > 0, x, 0.1), X),
    "bounds beyond float32's integers": (lambda x: x.clamp(-(2**24 + 1) * 3, 2**24 + 1), INTEGERS),
    "products and sums of bools": (lambda x: ((x > 0) * (x > 1), (x > 0) + (x > 1)), X),
    "isfinite and logaddexp": (lambda x: (torch.isfinite(x), torch.logaddexp(x, x)), X),
    "reductions of a number": (lambda x: (x.sum(), x.mean(), x.max(), x.any(), x.softmax(0)), NUMBER),
    "a fill of windows that share memory": (lambda x: x.unfold(-2, 1, 1).index_fill(-1, FIRST, 0.5), torch.randn(1, 5)),
    "a fill of a transposed view": (lambda x: x.t().index_fill(0, FIRST, 0.5), torch.randn(2, 3)),
    "a fill of transposed complex numbers": (
        lambda x: torch.view_as_real(torch.complex(x, -x).t().index_fill(0, FIRST, 0.5)),
        torch.randn(2, 3),
    ),
    "a complex constant": (lambda x: torch.view_as_real(torch.view_as_complex(x) * COMPLEX), torch.randn(3, 2)),
}


@pytest.mark.parametrize("name", CASES)
def test_numbers_are_pytorchs(name: str, native: Native) -> None:
    function, x = CASES[name]
    program = TorchConverter().add_exported_program(export(Function(function), x)).to_coreai()
    expected = torch.utils._pytree.tree_leaves(function(x))
    inputs = {program.input_names()[0]: x}
    for outputs in (program.run(inputs), native.run(program.module, inputs)):
        for output, wanted in zip(program.output_names(), expected, strict=True):
            torch.testing.assert_close(to_tensor(outputs[output]), wanted, rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.complex32, torch.float8_e4m3fnuz])
def test_element_types_that_core_ai_lacks_are_refused(dtype: torch.dtype) -> None:
    exported = export(lambda x: x.to(torch.float32) if not dtype.is_complex else x.real, torch.zeros(2).to(dtype))
    with pytest.raises(UnsupportedError, match=f"{dtype} has no Core AI element type"):
        TorchConverter().add_exported_program(exported).to_coreai()


def test_unsigned_64_bit_constants_do_not_wrap() -> None:
    large = torch.from_numpy(np.array([2**40], dtype=np.uint64))
    with pytest.raises(UnsupportedError):
        TorchConverter().add_exported_program(export(lambda x: x ^ large, large * 1)).to_coreai()


def test_conversion_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    exported = export(TwoBranches(), *PAIR)
    capfd.readouterr()
    TorchConverter().add_exported_program(exported).to_coreai()
    assert capfd.readouterr() == ("", "")


def test_an_empty_list_of_names_means_the_default_names() -> None:
    exported = export(TwoBranches(), *PAIR)
    program = TorchConverter().add_exported_program(exported, input_names=[], output_names=[]).to_coreai()
    assert (program.input_names(), program.output_names()) == (("x", "z"), ("add", "mul"))


def test_modes_are_checked() -> None:
    assert TorchConverter(mode="debug").mode is TorchConverter.Mode.DEBUG  # type: ignore[arg-type]
    for mode in ("fast", None):
        with pytest.raises(ValueError, match=r"is not a valid TorchConverter\.Mode"):
            TorchConverter(mode=mode)  # type: ignore[arg-type]
