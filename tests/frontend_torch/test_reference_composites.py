"""Composites that a PyTorch function declares: they are found in every form of a model, and nowhere else."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import patcomp
from patcomp import RuleError, TorchConverter, get_decomp_table
from patcomp.emit.native import Native
from patcomp.patterns import Rule, RuleSet
from patcomp_lab.proof.near_misses import self_tests
from patcomp_lab.proof.verdict import prove_rule
from patterns_catalog import default_rules
from tests.helpers.workers import in_one_worker


def norm(x: torch.Tensor, w: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
    "x / max|x| with eps, in float32, times w"
    wide = x.float()
    return (wide / (wide.abs().amax(-1, keepdim=True) + eps)).to(x.dtype) * w


def gated(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return functional.silu(functional.linear(x, w)) * functional.linear(x, v)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).sigmoid() @ v


def grouped(x: torch.Tensor, groups: int) -> torch.Tensor:
    batch, channels, length = x.shape
    split = x.view(batch, groups, channels // groups, length)
    return (split - split.amax((2, 3), keepdim=True)).view(batch, channels, length)


def embedded(t: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return functional.embedding(t, w) * w.shape[1] ** 0.5


def written_in_place(x: torch.Tensor, slope: float) -> torch.Tensor:
    y = x * slope
    y.sigmoid_()
    return y.add_(1.0)


def _declared(name: str, reference: Any, **options: Any) -> tuple[Rule, ...]:
    return patcomp.composite(name, reference=reference, **options)


@functools.cache
def declared(name: str) -> tuple[Rule, ...]:
    """The rules of a composite; declaring traces the function some ten times."""
    matrix = {"x": "2x3x8xf32", "w": "6x8xf32", "v": "6x8xf32"}
    heads = {"q": "2x3x4x8xf32", "k": "2x3x5x8xf32", "v": "2x3x5x8xf32"}
    flat = {"x": "2x8xf32", "w": "6x8xf32", "v": "6x8xf32"}
    return {
        "embedded": lambda: _declared("my_embedded", embedded, example={"t": "2x3xsi64[0,9]", "w": "10x8xf32"}),
        "norm": lambda: _declared(
            "my_norm", norm, example={"x": "2x3x8xf32", "w": "8xf32"}, attributes={"eps": 1e-5},
            inputs=["input", "scale"],
        ),
        "gated": lambda: _declared("my_gated", gated, example=[matrix, flat]),
        "attention": lambda: _declared("my_attention", attention, example=heads),
        "grouped": lambda: _declared("my_grouped", grouped, example={"x": "2x4x5xf32"}, attributes={"groups": 2}),
        "in_place": lambda: _declared(
            "my_in_place", written_in_place, example={"x": torch.zeros(2, 3)}, attributes={"slope": 0.5}
        ),
    }[name]()  # fmt: skip


NAMES = ("norm", "gated", "attention", "grouped", "in_place")


class Calling(nn.Module):
    """A model that is a function, and something around it."""

    def __init__(self, function: Any, **options: Any):
        super().__init__()
        self.function, self.options = function, options

    def forward(self, *tensors: torch.Tensor) -> Any:
        return self.function(*tensors, **self.options).relu()


FORMS = {
    "exported": lambda program: program,
    "decomposed": lambda program: program.run_decompositions(get_decomp_table()),
    "decomposed by PyTorch": lambda program: program.run_decompositions(),
}


def convert(name: str, model: nn.Module, *tensors: torch.Tensor, form: str = "exported", **options: Any) -> Any:
    """The program of a model, whose numbers are eager's."""
    exported = FORMS[form](torch.export.export(model, tensors, **options))
    program = TorchConverter(catalog=[RuleSet(declared(name))]).add_exported_program(exported).to_coreai()
    tolerance = 2e-5 if tensors[0].dtype == torch.float32 else 2e-2
    torch.testing.assert_close(program.run(*tensors), model(*tensors), rtol=tolerance, atol=tolerance)
    return program


def tensors(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


MODELS = {
    "norm": (Calling(norm, eps=1e-3), [(2, 2, 3, 6), (6,)]),
    "gated": (Calling(gated), [(5, 4), (7, 4), (7, 4)]),
    "attention": (Calling(attention), [(1, 3, 4, 16), (1, 3, 6, 16), (1, 3, 6, 16)]),
    "grouped": (Calling(grouped, groups=3), [(1, 6, 7)]),
    "in_place": (Calling(written_in_place, slope=3.0), [(4, 5)]),
}
"""Models of other ranks, sizes and attributes than the examples."""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", in_one_worker(NAMES))
def test_found_in_every_form(name: str, form: str) -> None:
    model, shapes = MODELS[name]
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        program = convert(name, model, *tensors(*shapes, dtype=dtype), form=form)
        assert program.composites == {f"my_{name}": 1}, dtype


def test_on_the_runtime(native: Native) -> None:
    x, w = tensors((2, 3, 8), (8,))
    model = Calling(norm)
    program = convert("norm", model, x, w)
    names = program.input_names()
    outputs = native.run(program.module, dict(zip(names, (x.numpy(), w.numpy()), strict=True)))
    (actual,) = outputs.values()
    torch.testing.assert_close(torch.from_numpy(actual), model(x, w), rtol=1e-5, atol=1e-5)


def test_the_declaration_is_that_of_the_function() -> None:
    text = str(convert("norm", MODELS["norm"][0], *tensors((2, 6), (6,))))
    assert 'input_names = ["input", "scale"], op_attrs = {eps = 1.000000e-03 : f32, version = 1 : si64}' in text
    text = str(convert("grouped", *MODELS["grouped"][:1], *tensors((1, 6, 7))))
    assert 'input_names = ["x"], op_attrs = {groups = 3 : si64, version = 1 : si64}' in text


def test_a_dynamic_dimension_matches() -> None:
    x, w = tensors((2, 3, 8), (8,))
    dynamic = {"tensors": ({0: torch.export.Dim("batch", min=1, max=64)}, None)}
    program = convert("norm", Calling(norm), x, w, dynamic_shapes=dynamic)
    assert program.composites == {"my_norm": 1}


# ---- and nowhere else -----------------------------------------------------------------------------


def other_axis(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x / (x.abs().amax(1, keepdim=True) + 1e-5)) * w


def two_axes(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x / (x.abs().amax((-2, -1), keepdim=True) + 1e-5)) * w


def used_outside(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    largest = x.abs().amax(-1, keepdim=True)
    return (x / (largest + 1e-5)) * w + largest


def two_inputs(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x / ((x + 1).abs().amax(-1, keepdim=True) + 1e-5)) * w


@pytest.mark.parametrize("function", [other_axis, two_axes, used_outside, two_inputs])
def test_something_else_is_left_alone(function: Any) -> None:
    assert convert("norm", Calling(function), *tensors((2, 8, 8), (8,))).composites.get("my_norm") is None


def test_another_scale_is_left_alone() -> None:
    def scaled(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return (q @ k.transpose(-1, -2) / 3.0).sigmoid() @ v

    program = convert("attention", Calling(scaled), *tensors((1, 3, 4, 16), (1, 3, 6, 16), (1, 3, 6, 16)))
    assert program.composites == {}
    assert "other of aten.div.Tensor would have to be 4.0" in program.why_not("my_attention")


def test_questions_name_the_rule_and_its_place() -> None:
    program = convert("norm", Calling(norm), *tensors((2, 3, 8), (8,)))
    assert f"made by rule my_norm ({declared('norm')[0].source})" in program.explain("%mul")
    assert declared("norm")[0].source.startswith("frontend_torch/test_reference_composites.py:")


def rms(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w


def test_patcomps_composite_of_the_same_ops_is_second() -> None:
    rules = _declared("my_rms", rms, example={"x": "2x3x8xf32", "w": "8xf32"})
    exported = torch.export.export(Calling(rms), tuple(tensors((2, 3, 8), (8,))))
    converter = TorchConverter(catalog=[RuleSet(rules)]).add_exported_program(exported)
    assert converter.to_coreai().composites == {"my_rms": 1}
    assert converter.to_coreai(recover=["rms_norm"]).composites == {"rms_norm": 1}
    assert converter.to_coreai(recover=["my_rms"]).composites == {"my_rms": 1}
    assert converter.to_coreai(recover="none").composites == {}


# ---- the tests that a declaration is --------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", in_one_worker([*NAMES, "embedded"]))
def test_declared_rules_pass_their_tests(name: str) -> None:
    for rule in declared(name):
        for self_test in self_tests(rule):
            self_test.run()
        assert prove_rule(rule, default_rules(), programs=1).strength.is_proof


def test_the_same_declaration_gives_the_same_program() -> None:
    x, w = tensors((2, 3, 8), (8,))
    exported = torch.export.export(Calling(norm), (x, w))

    def text() -> str:
        rules = _declared("my_norm", norm, example={"x": "2x3x8xf32", "w": "8xf32"}, attributes={"eps": 1e-5})
        return str(TorchConverter(catalog=[RuleSet(rules)]).add_exported_program(exported).to_coreai())

    assert text() == text()


# ---- what cannot be declared ----------------------------------------------------------------------

X = {"x": "2x3xf32"}


def _writes(x: torch.Tensor) -> torch.Tensor:
    return x.add_(1.0) * 2


def _branches(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.sum() > 0 else x


def _both(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.exp(), x.sin()


def _chooses(x: torch.Tensor, large: float) -> torch.Tensor:
    return x.exp() if large > 0.5 else x.sin()


def _derived(x: torch.Tensor, keep: float) -> torch.Tensor:
    return x * (1 / keep + 3)


LAYER = nn.Linear(3, 400)

REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "a branch on values": (_branches, {"example": X}, "cannot be traced"),
    "a write to an argument": (_writes, {"example": X}, "writes to one of its arguments"),
    "several tensors": (_both, {"example": X}, "returns 2 tensors, but a rule replaces one value"),
    "weights": (lambda x: LAYER(x), {"example": X}, "has a weight of its own"),
    "nothing": (lambda x: x, {"example": X}, "computes nothing"),
    "an unused parameter": (lambda x, y: x.exp(), {"example": X | {"y": "3xf32"}}, "does not use the parameter y"),
    "a parameter left out": (lambda x, y: x + y, {"example": X}, "needs y: give a type"),
    "an unknown parameter": (torch.relu, {"example": {"z": "3xf32"}}, "must be a Python function"),
    "an unknown attribute": (lambda x: x.exp(), {"example": X, "attributes": {"a": 1.0}}, "no parameter a; it has x"),
    "any parameters": (lambda *x: x[0].exp(), {"example": {"x": "3xf32"}}, "cannot be passed by name"),
    "a choice": (_chooses, {"example": X, "attributes": {"large": True}}, "large must be a number, got True; declare"),
    "a threshold": (_chooses, {"example": X, "attributes": {"large": 0.7}}, "large cannot be found in the ops"),
    "a derived number": (_derived, {"example": X, "attributes": {"keep": 0.7}}, "keep cannot be found in the ops"),
    "a dynamic example": (lambda x: x.exp(), {"example": {"x": "?x3xf32"}}, "has a dynamic dimension"),
    "no function": ("exp", {"example": X}, "needs a name and a function"),
    "no example": (lambda x: x.exp(), {"example": []}, "example= must map each input to a type"),
    "no type": (lambda x: x.exp(), {"example": {"x": "2x3xfloat"}}, "example of x must be a type such as"),
    "a priority in words": (lambda x: x.exp(), {"example": X, "priority": "high"}, "priority must be a number"),
    "other names": (lambda x: x.exp(), {"example": X, "inputs": ["a", "b"]}, "names 2 inputs, but example= has 1"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    function, options, message = REFUSED[case]
    with pytest.raises(RuleError, match=message) as caught:
        _declared("mine", function, **options)
    assert str(caught.value).startswith("composite mine (frontend_torch/test_reference_composites.py:")


def test_a_choice_is_made_with_partial() -> None:
    (rule,) = _declared("mine", functools.partial(_chooses, large=1.0), example=X)
    assert [node.spec.name for node in [rule.graph.root]] == ["aten.exp"]  # type: ignore[attr-defined]
