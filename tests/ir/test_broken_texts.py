"""Texts that fuzzing found: each is an error with a message, not an exception of a library."""

from __future__ import annotations

import pytest

from patcomp.errors import ParseError, VerifyError
from patcomp.ir.module import IRModule
from patcomp.ir.verify import verify

_GRAPH = """
module {{
  coreai.graph @main(%x: tensor<2x3xf32> {{coreai.name = "x"}}) -> (tensor<2x3xf32> {{coreai.name = "y"}}) {{
    {}
    coreai.output %x : tensor<2x3xf32>
  }}
}}
"""


def test_a_constant_without_its_value() -> None:
    body = """%c = "coreai.constant"() {valuue = dense<1> : tensor<2xui32>} : () -> tensor<2xui32>
    %t = coreai.transpose %x, %c : (tensor<2x3xf32>, tensor<2xui32>) -> tensor<3x2xf32>"""
    with pytest.raises((ParseError, VerifyError), match="value"):
        verify(IRModule.parse(_GRAPH.format(body)))


def test_a_region_of_several_blocks() -> None:
    with pytest.raises(ParseError, match=r"a region of builtin\.module has several blocks"):
        IRModule.parse('"builtin.module"() ({\n^a:\n^b:\n}) : () -> ()')


def test_an_integer_that_its_type_cannot_hold() -> None:
    text = _GRAPH.format("").replace("coreai.output", "coreai.output {n = 4611686018427387904 : i32}")
    with pytest.raises(ParseError, match="4611686018427387904"):
        IRModule.parse(text)


def test_sizes_of_thousands_of_digits() -> None:
    size = 2**62
    types = "x".join([str(size)] * 300)
    body = f"""%s = coreai.constant dense<[2, 3]> : tensor<2xsi32>
    %h = "coreai.constant"() {{value = dense<1.0> : tensor<{types}xf32>}} : () -> tensor<{types}xf32>
    %r = coreai.reshape %h, %s : (tensor<{types}xf32>, tensor<2xsi32>) -> tensor<2x3xf32>"""
    with pytest.raises((ParseError, VerifyError)):
        verify(IRModule.parse(_GRAPH.format(body)))


def test_sizes_that_repeat_without_end() -> None:
    size = 2**62
    body = f"""%s = coreai.constant dense<1> : tensor<{size}xsi32>
    %r = coreai.reshape %x, %s : (tensor<2x3xf32>, tensor<{size}xsi32>) -> tensor<2x3xf32>"""
    verify(IRModule.parse(_GRAPH.format(body)))  # the values are not known, so that any result may be right


def test_a_split_in_too_many_parts() -> None:
    size = 2**62
    body = f"""%s = coreai.constant dense<2> : tensor<ui32>
    %d = coreai.constant dense<0> : tensor<si32>
    %h = "coreai.constant"() {{value = dense<1.0> : tensor<{size}x3xf32>}} : () -> tensor<{size}x3xf32>
    %a, %b = coreai.split %h, %s, %d : (tensor<{size}x3xf32>, tensor<ui32>, tensor<si32>)
      -> (tensor<2x3xf32>, tensor<2x3xf32>)"""
    with pytest.raises((ParseError, VerifyError), match="makes more than 1,000,000"):
        verify(IRModule.parse(_GRAPH.format(body)))


def test_an_error_about_thousands_of_axes_shows_the_first_ones() -> None:
    zeros = ", ".join(["0"] * 5000)
    body = f"""%a = coreai.constant dense<[{zeros}]> : tensor<5000xsi32>
    %r = coreai.reduce_sum %x, %a : (tensor<2x3xf32>, tensor<5000xsi32>) -> tensor<1x3xf32>"""
    with pytest.raises(VerifyError, match=r"axes \[0, 0, .*\.\.\.") as caught:
        verify(IRModule.parse(_GRAPH.format(body)))
    assert len(str(caught.value)) < 2000
