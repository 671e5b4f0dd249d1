"""Tables that are made once in the process follow what is registered later."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor, nn

from patcomp import TorchConverter, UnsupportedError
from patcomp.frontend_torch.decomposition.table import current_table
from patcomp.patterns import RuleSet, decomposition, example


@contextmanager
def registered(kernel: Callable[[Tensor], Tensor], key: str = "CompositeImplicitAutograd") -> Iterator[None]:
    """The operator `later_lib.shape_it` with a kernel, while the context is open."""
    library = torch.library.Library("later_lib", "DEF")
    try:
        library.define("shape_it(Tensor x) -> Tensor")
        library.impl("shape_it", kernel, key)
        yield
    finally:
        library._destroy()


class Calls(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.later_lib.shape_it(x)  # type: ignore[no-any-return]


def imported(converter: TorchConverter) -> str:
    return converter.add_exported_program(torch.export.export(Calls(), (torch.ones(2, 3),))).imported().text()


def test_the_table_is_made_once() -> None:
    assert current_table() is current_table()


def test_a_composite_that_is_registered_later_and_again_is_seen() -> None:
    before = current_table()
    with registered(lambda x: x.sin().cos()):
        assert current_table() is not before
        assert "aten.cos" in imported(TorchConverter())
    with registered(lambda x: x.exp()):
        text = imported(TorchConverter())
        assert "aten.exp" in text
        assert "aten.cos" not in text


def test_a_decomposition_that_is_registered_later_is_seen() -> None:
    with registered(lambda x: x + 1, "CompositeExplicitAutograd"):
        op = torch.ops.later_lib.shape_it.default
        with pytest.raises(UnsupportedError):
            TorchConverter().add_exported_program(torch.export.export(Calls(), (torch.ones(2, 3),))).to_coreai()
        table = torch._decomp.global_decomposition_table["post_autograd"]
        torch._decomp.register_decomposition(op)(lambda x: x + 1)
        try:
            assert "aten.add" in imported(TorchConverter())
        finally:
            del table[op]


@decomposition("later_lib.shape_it", examples=[example("2xf32")])
def tanh_of_later(x: Tensor) -> Tensor:
    """The hyperbolic tangent."""
    return x.tanh()


def test_a_catalog_may_decompose_ops_of_libraries_that_are_registered_later() -> None:
    catalog = [RuleSet([tanh_of_later])]
    TorchConverter(catalog=catalog).add_exported_program(
        torch.export.export(nn.Mish(), (torch.ones(2, 3),))
    ).to_coreai()
    for _ in range(2):  # a library that is registered again has another operator of the same name
        with registered(lambda x: x + 1, "CompositeExplicitAutograd"):
            assert "aten.tanh" in imported(TorchConverter(catalog=catalog))
            with pytest.raises(UnsupportedError):
                TorchConverter().add_exported_program(torch.export.export(Calls(), (torch.ones(2, 3),))).to_coreai()
