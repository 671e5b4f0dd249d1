"""Normalisation layers, in whichever form a model writes them or PyTorch leaves them, become one composite.

The generated tests of the rules (every alternative, every changed literal, every outside use) run in `test_recover`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from patcomp.emit.native import Native
from tests.catalog.declarations import declarations
from tests.catalog.norms import Form, arguments, assert_equal, check, convert, export, tensors, uniform
from tests.catalog.recovering import Calling
from tests.helpers.thorough import drawn

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
FEW = drawn(4)


def check_on_runtime(function: Callable[..., Any], tensors: tuple[torch.Tensor, ...], native: Native) -> None:
    module = Calling(function)
    program = convert(export(module, tensors))
    assert sum(program.composites.values()) == 1
    with torch.no_grad():
        expected = module(*tensors)
    outputs = native.run(program.module, dict(zip(program.input_names(), tensors, strict=True)))
    assert_equal(outputs, expected, tensors[0].dtype, 2.0)


# ---- formulas --------------------------------------------------------------------------------------


FORMS = st.builds(
    Form,
    variance=st.sampled_from(["var", "var_mean", "product", "power", "twice"]),
    root=st.sampled_from(["rsqrt", "divide", "power", "half power", "inverse"]),
    rounding=st.sampled_from(["before", "end"]),
    weights=st.sampled_from(["both", "one", "none"]),
    weight_first=st.booleans(),
    dtype=st.sampled_from(DTYPES),
    eps=st.sampled_from([1e-5, 1e-6, 1e-2]),
)


def layer_norm(form: Form, axes: tuple[int, ...] = (-1,)) -> Callable[..., torch.Tensor]:
    return lambda x, w, b: form.affine(form.standardized(x.float(), axes), w, b)


def instance_norm(form: Form) -> Callable[..., torch.Tensor]:
    return lambda x, w, b: form.affine(
        form.standardized(x.float(), tuple(range(2, x.dim()))), w[:, None, None], b[:, None, None]
    )


def group_norm(form: Form, groups: int, *, flat: bool) -> Callable[..., torch.Tensor]:
    def function(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        n, channels, height, width = x.shape
        grouped = (n, groups, -1) if flat else (n, groups, channels // groups, height, width)
        split = x.float().reshape(grouped)
        normal = form.standardized(split, tuple(range(2, split.dim()))).reshape(x.shape)
        return form.affine(normal, w.view(1, -1, 1, 1), b.view(1, -1, 1, 1))

    return function


def rms_norm(form: Form, one_plus: bool) -> Callable[..., torch.Tensor]:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        if form.variance == "product":
            square = (wide * wide).mean(-1, keepdim=True)
            normal = form.over_root(x.float(), square)  # with a cast of its own
        else:
            normal = form.over_root(wide, wide.pow(2).mean(-1, keepdim=True))
        return form.affine(normal, 1.0 + w if one_plus else w, w)

    return function


@FEW
@given(FORMS, st.sampled_from([(-1,), (2, 3), (1, 2, 3)]))
def test_layer_norm_in_any_form(form: Form, axes: tuple[int, ...]) -> None:
    shape = (2, 3, 4, 5)
    # a norm over [2, 3] without weights is one of each instance, by either name
    plain = axes == (2, 3) and form.weights == "none"
    inputs = tensors(form, shape, shape[-len(axes) :])
    program = check(layer_norm(form, axes), inputs, {"instance_norm" if plain else "layer_norm": 1})
    assert f"tensor<2x3x4x5x{_element(form.dtype)}>" == arguments(program)[0], "the cast is part of the composite"


@FEW
@given(FORMS)
def test_instance_norm_in_any_form(form: Form) -> None:
    program = check(instance_norm(form), tensors(form, (2, 4, 3, 5), (4,)), {"instance_norm": 1})
    assert f"tensor<2x4x3x5x{_element(form.dtype)}>" == arguments(program)[0], "the cast is part of the composite"


@FEW
@given(FORMS, st.sampled_from([1, 2, 3, 6]), st.booleans())
def test_group_norm_in_any_form(form: Form, groups: int, flat: bool) -> None:
    program = check(group_norm(form, groups, flat=flat), tensors(form, (2, 6, 3, 5), (6,)), {"group_norm": 1})
    assert f"num_groups = {groups} : si64" in program.text()
    assert f"tensor<2x6x3x5x{_element(form.dtype)}>" == arguments(program)[0], "the cast is part of the composite"


@FEW
@given(FORMS, st.booleans(), st.sampled_from([(3, 8), (2, 3, 8), (2, 4, 3, 8)]))
def test_rms_norm_in_any_form(form: Form, one_plus: bool, shape: tuple[int, ...]) -> None:
    form = Form(**{**vars(form), "weights": "none" if form.weights == "none" else "one"})
    inputs = tensors(form, shape, shape[-1:])[:2]
    program = check(rms_norm(form, one_plus), inputs, {"rms_norm": 1})
    assert arguments(program)[0].endswith(f"{_element(form.dtype)}>"), "the cast is part of the composite"


def _element(dtype: torch.dtype) -> str:
    return {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}[dtype]


SAMPLE = [
    Form(),
    Form("power", "divide", "before", "both", False, torch.float16),
    Form("var_mean", "rsqrt", "end", "one", True, torch.bfloat16),
    Form("product", "inverse", "end", "none", False, torch.float16),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("form", SAMPLE)
@pytest.mark.parametrize("name", ["layer_norm", "instance_norm", "group_norm", "rms_norm"])
def test_composites_on_the_runtime(name: str, form: Form, native: Native) -> None:
    inputs = tensors(form, (2, 6, 3, 5), (5,) if name in ("layer_norm", "rms_norm") else (6,))
    if name == "rms_norm":
        form = Form(**{**vars(form), "weights": "none" if form.weights == "none" else "one"})
        check_on_runtime(rms_norm(form, True), inputs[:2], native)
    else:
        made = {"layer_norm": layer_norm, "instance_norm": instance_norm}.get(name)
        check_on_runtime(made(form) if made else group_norm(form, 2, flat=False), inputs, native)


# ---- modules, by both tables -----------------------------------------------------------------------

_IMAGE = (2, 6, 4, 5)
MODULES = {
    "layer norm": (nn.LayerNorm(5), _IMAGE, "layer_norm"),
    "layer norm over two axes": (nn.LayerNorm((4, 5)), _IMAGE, "layer_norm"),
    "layer norm without bias": (nn.LayerNorm(5, bias=False), _IMAGE, "layer_norm"),
    "layer norm without weights": (nn.LayerNorm(5, elementwise_affine=False), _IMAGE, "layer_norm"),
    "group norm": (nn.GroupNorm(2, 6), _IMAGE, "group_norm"),
    "group norm without weights": (nn.GroupNorm(3, 6, affine=False), _IMAGE, "group_norm"),
    "instance norm": (nn.InstanceNorm2d(6, affine=True), _IMAGE, "instance_norm"),
    "instance norm without weights": (nn.InstanceNorm2d(6), _IMAGE, "instance_norm"),
    "instance norm of one image": (nn.InstanceNorm2d(6, affine=True), (1, 6, 4, 5), "instance_norm"),
    "instance norm without batch": (nn.InstanceNorm2d(6, affine=True), (6, 4, 5), "instance_norm"),
    "instance norm of sequences": (nn.InstanceNorm1d(6, affine=True), (3, 6, 7), "instance_norm"),
    "instance norm of volumes": (nn.InstanceNorm3d(6, affine=True), (3, 6, 2, 3, 4), "instance_norm"),
    "rms norm": (nn.RMSNorm(5), _IMAGE, "rms_norm"),
    "rms norm with eps": (nn.RMSNorm(5, eps=1e-3), _IMAGE, "rms_norm"),
    "rms norm without weight": (nn.RMSNorm(5, elementwise_affine=False), _IMAGE, "rms_norm"),
    "batch norm": (nn.BatchNorm2d(6), _IMAGE, "batch_norm"),
    "batch norm without weights": (nn.BatchNorm2d(6, affine=False), _IMAGE, "batch_norm"),
}


IN_BOTH_TYPES = [(name, torch.float32) for name in MODULES] + [
    (name, torch.float16) for name in ("layer norm", "group norm", "instance norm", "rms norm")
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("name", "dtype"), IN_BOTH_TYPES)
def test_modules_give_the_same_composites_by_both_tables(name: str, dtype: torch.dtype) -> None:
    original, shape, composite = MODULES[name]
    module = copy.deepcopy(original).to(dtype)
    for parameter in module.parameters():
        parameter.data.copy_(uniform(tuple(parameter.shape), dtype, 3) + 1)
    x = uniform(shape, dtype)
    with torch.no_grad():
        expected = module.eval()(x)
    found = []
    for default in (False, True):
        program = convert(export(module, (x,), default=default))
        assert program.composites == {composite: 1}
        assert_equal(program.run({program.input_names()[0]: x}), expected, dtype)
        found.append(declarations(program.module))
    assert found[0] == found[1]


def test_eps_of_pytorch_rms_norm_is_that_of_the_type_it_computes_in() -> None:
    x = uniform((2, 3, 5), torch.float32) * 1e-4
    for dtype in (torch.float32, torch.float16):
        program = convert(export(nn.RMSNorm(5).to(dtype), (x.to(dtype),)))
        assert "eps = 1.1920929e-07 : f32" in program.text()


# ---- classes of models -----------------------------------------------------------------------------


def _deberta(size: int) -> nn.Module:
    from transformers.models.deberta.modeling_deberta import DebertaLayerNorm

    return DebertaLayerNorm(size, 1e-7)


def _of(module: str, name: str) -> Callable[[int], nn.Module]:
    import importlib

    return lambda size: getattr(importlib.import_module(f"transformers.models.{module}.modeling_{module}"), name)(size)


CLASSES = {
    "DeBERTa": (_deberta, "layer_norm"),
    "Cohere": (_of("cohere", "CohereLayerNorm"), "layer_norm"),
    "OLMo": (_of("olmo", "OlmoLayerNorm"), "layer_norm"),
    "Llama": (_of("llama", "LlamaRMSNorm"), "rms_norm"),
    "T5": (_of("t5", "T5LayerNorm"), "rms_norm"),
    "Gemma 2": (_of("gemma2", "Gemma2RMSNorm"), "rms_norm"),
    "Gemma 3n": (_of("gemma3n", "Gemma3nRMSNorm"), "rms_norm"),
    "Llama 4, queries and keys": (lambda size: _of("llama4", "Llama4TextL2Norm")(1e-6), "rms_norm"),
    "OLMo2": (_of("olmo2", "Olmo2RMSNorm"), "rms_norm"),
    "Qwen3-Next": (_of("qwen3_next", "Qwen3NextRMSNorm"), "rms_norm"),
    "ImageGPT": (lambda size: _of("imagegpt", "ImageGPTLayerNorm")((size,)), "rms_norm"),  # type: ignore[arg-type]
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", CLASSES)
def test_classes_of_transformers(name: str, dtype: torch.dtype) -> None:
    """Of rank 4, as Qwen3 norms its heads."""
    make, composite = CLASSES[name]
    module = make(8).to(dtype)
    for parameter in module.parameters():
        parameter.data.copy_(uniform(tuple(parameter.shape), dtype, 3) + 1)
    x = uniform((2, 4, 3, 8), dtype)
    with torch.no_grad():
        expected = module(x)
    program = convert(export(module, (x,)))
    if name == "ImageGPT" and dtype != torch.float32:
        assert program.composites == {}, "it computes in half precision, and the composite does not"
    else:
        assert program.composites == {composite: 1}
        inside = torch.float32 if name == "OLMo" else dtype  # it casts around an op that export keeps whole
        assert arguments(program)[0] == f"tensor<2x4x3x8x{_element(inside)}>"
    assert_equal(program.run({program.input_names()[0]: x}), expected, dtype, 2.0)


# ---- declarations ----------------------------------------------------------------------------------

_DECLARED = {
    "layer_norm": (
        layer_norm(Form(eps=0.5), (2, 3)), (3, 5),
        '"layer_norm" = {input_names = ["input", "gamma", "beta"], '
        "op_attrs = {axes = [2 : si64, 3 : si64], eps = 5.000000e-01 : f32, version = 1 : si64}, ",
    ),
    "instance_norm": (
        instance_norm(Form(eps=0.5)), (6,),
        '"instance_norm" = {input_names = ["input", "gamma", "beta"], '
        "op_attrs = {eps = 5.000000e-01 : f32, version = 1 : si64}, ",
    ),
    "group_norm": (
        group_norm(Form(eps=0.5), 3, flat=True), (6,),
        '"group_norm" = {input_names = ["input", "weight", "bias"], '
        "op_attrs = {eps = 5.000000e-01 : f32, num_channels = 6 : si64, num_groups = 3 : si64, version = 1 : si64}, ",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", _DECLARED)
def test_declaration_of_recovered_norms(name: str) -> None:
    function, size, expected = _DECLARED[name]
    program = convert(export(Calling(function), tensors(Form(), (2, 6, 3, 5), size)))
    assert declarations(program.module) == [f'#coreai.composite_declaration<{expected}output_names = ["output"]}}>']


def test_weights_of_instance_norm_are_columns() -> None:
    program = convert(export(nn.InstanceNorm2d(6, affine=True), (uniform(_IMAGE, torch.float32),)))
    assert arguments(program) == ["tensor<2x6x4x5xf32>", "tensor<6x1x1xf32>", "tensor<6x1x1xf32>"]


@pytest.mark.parametrize("norm", [nn.GroupNorm(1, 2), nn.InstanceNorm2d(2, affine=True)])
def test_norms_of_large_images_are_exact(norm: nn.Module, native: Native) -> None:
    """The runtime adds elements one by one: 2e-5 off for one sum of this image, 0.003 for 1024 x 1024."""
    images = uniform((1, 2, 512, 300), torch.float32) + 0.5
    program = convert(export(norm, (images,)))
    with torch.no_grad():
        expected = copy.deepcopy(norm).double()(images.double())
    (output,) = native.run(program.module, dict(zip(program.input_names(), (images,), strict=True))).values()
    assert (torch.from_numpy(output) - expected).abs().max() < 1e-5
