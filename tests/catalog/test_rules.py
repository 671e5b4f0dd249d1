"""Generated from the `examples` of every procedural rule: it fires, and the numbers are eager PyTorch's.

Each example also runs with every other element type in place of its floats, and on special values; a
combination that the catalog does not convert must be refused, never give other numbers. An example is one test,
because the runtime compiles all its programs at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch

from patcomp.emit.native import Native
from patcomp.errors import UnsupportedError
from patcomp.patterns import Example, Rule
from patcomp.rewrites import Compilation
from patterns_catalog import default_rules
from patterns_catalog.recover.chunks import NOT_FINITE
from tests.catalog.cases import (
    Case,
    check_each_on_runtime,
    check_on_evaluator,
    compile_case,
    fired,
    make_case,
    make_tensor,
)
from tests.catalog.recovering import convert
from tests.helpers.joined import noted

RULES = [rule for rule in default_rules().procedural() if rule.stage not in ("target", "optimize")]


def _op(rule: Rule, example: Example) -> str:
    return example.op or rule.ops[0]


def _identifier(rule: Rule, example: Example) -> str:
    arguments = [str(argument) for argument in example.args] + [f"{k}={v}" for k, v in example.kwargs.items()]
    return f"{rule.stage}/{rule.name}/{_op(rule, example)}({', '.join(arguments)})"


EXAMPLES = [
    pytest.param(rule, example, id=_identifier(rule, example))
    for rule in RULES
    for example in rule.examples
    if example.program is None
]
PROGRAMS = [
    pytest.param(rule, example, id=rule.name)
    for rule in default_rules()
    for example in rule.examples
    if example.program and rule.stage != "target"
]


def test_every_rule_has_an_example() -> None:
    assert [rule.name for rule in RULES if not rule.examples] == []


@pytest.mark.parametrize(("rule", "example"), PROGRAMS)
def test_rule_fires_in_its_program(rule: Rule, example: Example, native: Native) -> None:
    assert example.program is not None
    generator = torch.Generator().manual_seed(0)
    function = partial(example.program, torch)
    program = convert(function, *(make_tensor(text, generator) for text in example.args), native=native)
    fired_rules = {name for report in program.reports for name, count in report.statistics.fired.items() if count}
    assert rule.name in fired_rules


# ---- other element types ---------------------------------------------------------------------------

ELEMENTS = ("f16", "bf16", "f32", "f64", "si8", "si16", "si32", "si64", "ui8", "i1")
_RANGE = re.compile(r"\[([-\d.]+),([-\d.]+)\]")


def _with_element(value: Any, old: tuple[str, ...], new: str) -> Any:
    """An argument with another element type in its tensor types; only floats keep their range."""
    if isinstance(value, list):
        return [_with_element(item, old, new) for item in value]
    if not isinstance(value, str):
        return value
    typed, _, bounds = value.partition("[")
    *sizes, element = typed.split("x")
    if element not in old:
        return value
    return "x".join([*sizes, new]) + (f"[{bounds}" if bounds and new[0] in "fb" else "")


def _variants(rule: Rule, example: Example) -> Iterator[tuple[str, Example]]:
    """The example with each element type for that of all tensors like the first, and for the first alone."""
    tensors = [value for item in example.args for value in (item if isinstance(item, list) else [item])]
    elements = [str(value).partition("[")[0].rpartition("x")[2] for value in tensors if isinstance(value, str)]
    if not elements or elements[0] not in ELEMENTS:
        return
    for element in ELEMENTS:
        if element != elements[0]:
            if rule.name == "to_copy" and element[0] in "fb" and _RANGE.search(str(example.args)):
                continue  # floats outside the range of an integer type are undefined in PyTorch
            args = tuple(_with_element(value, (elements[0],), element) for value in example.args)
            yield f"all_{element}", Example(args, example.kwargs, example.op)
            if elements.count(elements[0]) > 1:
                first = next(i for i, value in enumerate(example.args) if not isinstance(value, int | float))
                changed = _first(example.args[first], elements[0], element)
                args = (*example.args[:first], changed, *example.args[first + 1 :])
                yield f"first_{element}", Example(args, example.kwargs, example.op)


def _first(value: Any, old: str, new: str) -> Any:
    return [_first(value[0], old, new), *value[1:]] if isinstance(value, list) else _with_element(value, (old,), new)


REFUSED = {
    "aten.div.Tensor_mode": "both operands of a division must have the same dtype, not bool",
    "aten.where.ScalarOther": "the condition of where must be bool; cast it with .bool()",
    "aten.where.self": "the condition of where must be bool; cast it with .bool()",
    "aten.addmm": "alpha and beta of an integer addmm that are not integers",
    "aten.convolution": "a convolution of integers is not supported; cast input and weight to float",
    "torchvision.nms": "boxes of integers have no overlap in torchvision; cast them to float",
    "aten.view.dtype": "a view of computed numbers as another element type is supported between integers of up to 32 "
    "bits only, because Core AI has no bit cast; view a weight or buffer, or compute the numbers by arithmetic",
    "aten.upsample_linear1d": "a linear resize of integers is not supported; cast the input to float",
    "aten.upsample_trilinear3d": "a linear resize of integers is not supported; cast the input to float",
    **{
        f"aten.{op}": f"{kind} resize of integers other than unsigned bytes is not supported; cast the input to float"
        for kind, ops in {
            "a linear": ("upsample_bilinear2d.vec", "upsample_bilinear2d"),
            "a cubic": ("upsample_bicubic2d", "upsample_bicubic2d.vec"),
            "an antialiased": ("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"),
        }.items()
        for op in ops
    },
}
"""The ops that some element types are refused for, and why; all else must agree."""


# ---- special values --------------------------------------------------------------------------------

_FLOAT = re.compile(r"(\d+x)*f\d+(\[.*\])?")


UNDEFINED = {
    "histc": "eager takes no data with NaN or infinity where the bins span the data",
    "gelu": "eager's gelu of infinity is NaN, by accident",
    "to_copy": "integers have no infinities and no NaN",
    "scaled_dot_product_attention": "eager's kernels differ in where NaN makes a row NaN and where 0",
    "dequantize_per_channel_group": "no quantizer makes an infinite scale, of which the runtime makes NaN",
    "constexpr_blockwise_shift_scale": "no library makes an infinite scale, of which the runtime makes NaN",
    "dequantize_affine": "no library makes an infinite scale, of which the runtime makes NaN",
    "upsample_linear": "eager's kernels differ in which infinities they multiply by zero",
    **dict.fromkeys(
        ("gated_delta_update of the operator", "kimi_delta_update", "selective_scan_update", "state_space_update"),
        NOT_FINITE["NaN"],
    ),
}
"""Rules whose results of special values eager does not say, and why. (Casts have cases of their own.)"""


def _has_special_values(rule: Rule, example: Example) -> bool:
    return rule.name not in UNDEFINED and any(_FLOAT.fullmatch(str(argument)) for argument in example.args)


# ---- the test --------------------------------------------------------------------------------------

ON_RUNTIME = {"itself", "special_values"} | {f"all_{element}" for element in ELEMENTS if not element.endswith("64")}
"""What runs on the runtime too: 64-bit types become 32-bit ones, and the rest mixes the same kernels."""


def _cases(rule: Rule, example: Example) -> Iterator[tuple[str, Case]]:
    """The example, with other element types where eager PyTorch takes them, and on special values."""
    op = _op(rule, example)
    yield "itself", make_case(op, example.args, example.kwargs)
    for name, variant in _variants(rule, example):
        try:
            case = make_case(op, variant.args, variant.kwargs)
        except (RuntimeError, TypeError, NotImplementedError, ValueError, AssertionError):
            continue
        if all(result.dtype != torch.complex32 for result in case.expected):  # which the IR does not have
            yield name, case
    if _has_special_values(rule, example):
        yield "special_values", make_case(op, example.args, example.kwargs, special=True)


def _compiled_or_refused(case: Case) -> tuple[Compilation | None, list[str]]:
    try:
        return compile_case(case), []
    except UnsupportedError as error:
        return None, [problem.message for problem in error.problems]


@pytest.mark.parametrize(("rule", "example"), EXAMPLES)
def test_rule_fires_and_agrees(rule: Rule, example: Example, native: Native) -> None:
    programs: dict[str, tuple[Case, Compilation]] = {}
    for name, case in _cases(rule, example):
        with noted(f"the example, {name}"):
            compilation, refusal = _compiled_or_refused(case)
            if compilation is None:
                assert name not in ("itself", "special_values")
                assert refusal == [REFUSED.get(case.op)]
                continue
            if name == "itself":
                assert fired(compilation).get(rule.name, 0) >= 1, f"{rule.name} did nothing; {fired(compilation)} did"
            check_on_evaluator(case, compilation)
        if name in ON_RUNTIME:
            programs[name] = case, compilation
    check_each_on_runtime(programs, native)
