"""The declarations of composites, word by word: names, inputs and their order, attributes with types and values.

The expected texts are written by hand from the documentation of Core AI's composites; the Core AI compiler
recognises a composite by them, so nothing here may follow from the code.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from patcomp.ir.verify import verify
from patcomp.rewrites import Options, run_pipeline
from patterns_catalog import default_rules
from tests.catalog.cases import Case, build_case, compile_case, make_case, param
from tests.catalog.declarations import declarations
from tests.catalog.recovering import convert


def _declared(case: Case) -> list[str]:
    module = compile_case(case).module
    verify(module, runtime=True)
    return declarations(module)


_IMAGE, _CHANNELS, _POSITIVE = "2x6x4x5xf32", "6xf32", "6xf32[0.5,2]"
_QKV = ("1x2x3x4xf32", "1x2x5x4xf32", "1x2x5x4xf32")

EXPECTED = [
    (
        param("layer_norm", "native_layer_norm", "2x3x4xf32", [4], "4xf32", "4xf32", 0.5),
        '"layer_norm" = {input_names = ["input", "gamma", "beta"], '
        "op_attrs = {axes = [2 : si64], eps = 5.000000e-01 : f32, version = 1 : si64}, "
        'output_names = ["output"]}',
    ),
    (
        param("layer_norm over two axes", "native_layer_norm", "2x3x4xf32", [3, 4], None, None, 0.5),
        '"layer_norm" = {input_names = ["input", "gamma", "beta"], '
        "op_attrs = {axes = [1 : si64, 2 : si64], eps = 5.000000e-01 : f32, version = 1 : si64}, "
        'output_names = ["output"]}',
    ),
    (
        param("group_norm", "native_group_norm", _IMAGE, _CHANNELS, _CHANNELS, 2, 6, 20, 3, 0.5),
        '"group_norm" = {input_names = ["input", "weight", "bias"], '
        "op_attrs = {eps = 5.000000e-01 : f32, num_channels = 6 : si64, num_groups = 3 : si64, version = 1 : si64}, "
        'output_names = ["output"]}',
    ),
    (
        param(
            "batch_norm", "_native_batch_norm_legit_no_training",
            _IMAGE, _CHANNELS, _CHANNELS, _CHANNELS, _POSITIVE, 0.1, 0.5,
        ),
        '"batch_norm" = {input_names = ["input", "gamma", "beta", "mean", "variance"], '
        "op_attrs = {eps = 5.000000e-01 : f32, version = 1 : si64}, "
        'output_names = ["output"]}',
    ),
    (
        param("hard_sigmoid", "hardsigmoid", "2x3xf32"),
        '"hard_sigmoid" = {input_names = ["input"], op_attrs = {version = 1 : si64}, output_names = ["output"]}',
    ),
    (
        param("hardswish", "hardswish", "2x3xf32"),
        '"hard_sigmoid" = {input_names = ["input"], op_attrs = {version = 1 : si64}, output_names = ["output"]}',
    ),
    (
        param("log_softmax", "_log_softmax", "2x3x4xf32", -2, False),
        '"log_softmax" = {input_names = ["input"], op_attrs = {axis = 1 : si64, version = 1 : si64}, '
        'output_names = ["output"]}',
    ),
    (
        param("pixel_shuffle", "pixel_shuffle", "1x8x2x3xf32", 2),
        '"pixel_shuffle" = {input_names = ["input"], op_attrs = {upscale_factor = 2 : si64, version = 1 : si64}, '
        'output_names = ["output"]}',
    ),
    (
        param("attention", "scaled_dot_product_attention", *_QKV),
        '"scaled_dot_product_attention" = {input_names = ["query", "key", "value"], '
        "op_attrs = {is_causal = false, version = 1 : si64, window_size = 0 : si64}, "
        'output_names = ["output"]}',
    ),
    (
        param("attention with mask and scale", "scaled_dot_product_attention", *_QKV, "3x5xf32", scale=0.5),
        '"scaled_dot_product_attention" = {input_names = ["query", "key", "value", "attn_mask"], '
        "op_attrs = {is_causal = false, scale = 5.000000e-01 : f32, version = 1 : si64, window_size = 0 : si64}, "
        'output_names = ["output"]}',
    ),
    (
        # the causal mask is built outside of the composite
        param("causal attention", "scaled_dot_product_attention", *_QKV, is_causal=True),
        '"scaled_dot_product_attention" = {input_names = ["query", "key", "value", "attn_mask"], '
        "op_attrs = {is_causal = false, version = 1 : si64, window_size = 0 : si64}, "
        'output_names = ["output"]}',
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("op", "args", "kwargs", "expected"), [pytest.param(*p.values, text, id=p.id) for p, text in EXPECTED]
)
def test_declaration(op: str, args: tuple[Any, ...], kwargs: dict[str, Any], expected: str) -> None:
    assert _declared(make_case(op, args, kwargs)) == [f"#coreai.composite_declaration<{expected}>"]


def test_declaration_of_rms_norm() -> None:
    program = convert(
        lambda x, w: w * (x * torch.rsqrt(x.pow(2).mean(-1, True) + 0.5)), torch.randn(2, 4), torch.ones(4)
    )
    assert declarations(program.module) == [
        '#coreai.composite_declaration<"rms_norm" = {input_names = ["input", "scale"], '
        "op_attrs = {axes = -1 : si64, eps = 5.000000e-01 : f32, version = 1 : si64}, "
        'output_names = ["output"]}>'
    ]


def test_graph_of_a_composite() -> None:
    """Private, not inlined, its arguments named; results of a composite have no name."""
    text = compile_case(make_case("aten.hardsigmoid", ("2x3xf32",))).module.text()
    assert re.search(
        r"coreai\.graph private noinline @hard_sigmoid_[0-9a-f]{8}"
        r'\(%\w+: tensor<2x3xf32> \{coreai\.name = "input"\}\) -> tensor<2x3xf32> attributes \{composite_decl = ',
        text,
    )
    assert re.search(r"= coreai\.invoke @hard_sigmoid_[0-9a-f]{8}\(%x0\)", text)


def test_composites_are_declared_before_lowering() -> None:
    """The recover stage makes them, so that no lowering rule of the catalog has to know them."""
    seen: dict[str, str] = {}
    case = make_case("aten.pixel_shuffle", ("1x8x2x3xf32", 2))
    run_pipeline(
        build_case(case),
        default_rules(),
        Options(),
        after_stage=lambda name, module: seen.update({name: module.text()}),
    )
    assert "composite_declaration" not in seen["normalize"]
    assert "composite_declaration" in seen["recover"]
