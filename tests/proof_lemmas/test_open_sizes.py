"""Which sizes of a program are open, with which sizes it runs, and how a program is made smaller."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from patcomp_lab.proof.drawing import described_value, draw, open_type, smaller, with_other_sizes
from patcomp_lab.proof.enumeration import _with
from patcomp_lab.proof.op_calls import examples_of_op
from patcomp_lab.proof.openings import openings
from patcomp_lab.proof.variants import variants
from patcomp_lab.proof.words import words_of
from patterns_catalog import all_rules, default_rules


def runs_of(drawing: Any) -> list[str]:
    """The runs of each program with open sizes."""
    return [
        " | ".join(" ".join(f"{name}={value}".removesuffix("xf32") for name, value in run.items()) for run in each.runs)
        for each in openings(drawing)
    ]


def test_open_sizes_of_a_pattern() -> None:
    """One size, two sizes that are exchanged, all dimensions with others that differ, one axis, and so on in turn."""
    rule = default_rules()["times_one"]
    drawing = draw(rule, variants(rule)[0])
    assert drawing.example == {"x": "2x3xf32"}
    assert runs_of(drawing) == [
        "x=2x1 | x=2x2 | x=2x5 | x=2x8",
        "x=3x2 | x=9x9",
        "x=1x3 | x=4x3 | x=2x1 | x=2x5 | x=1x1 | x=3x4 | x=3x2 | x=3x4 | x=3x2",
        "x=1x3 | x=3x3 | x=5x3 | x=8x3",
        "x=2x2 | x=2x5 | x=2x8",
        "x=2x1 | x=2x2 | x=2x5 | x=2x8",
        "x=1x3 | x=3x3 | x=5x3 | x=8x3",
        "x=3x3 | x=5x3 | x=8x3",
    ]
    assert {each.aspect for each in openings(drawing)} == {"open sizes"}
    assert {each.aspect for each in openings(drawing, "others")} == {"others"}


def test_open_sizes_of_an_op() -> None:
    (drawing, *_) = examples_of_op(all_rules()["addmm"])
    assert drawing.example == {"self": "4xf32", "mat1": "2x3xf32", "mat2": "3x4xf32"}
    assert runs_of(drawing) == [
        "self=1 mat2=3x1 | self=2 mat2=3x2 | self=3 mat2=3x3 | self=5 mat2=3x5 | self=8 mat2=3x8",
        "self=3 mat1=2x4 mat2=4x3 | self=11 mat1=2x11 mat2=11x11",
        "self=2 mat2=3x2 | self=3 mat2=3x3 | self=5 mat2=3x5 | self=8 mat2=3x8",
        "self=2 mat1=4x3 mat2=3x2 | self=11 mat1=9x3 mat2=3x11",
        "mat1=2x1 mat2=1x4 | mat1=2x2 mat2=2x4 | mat1=2x5 mat2=5x4 | mat1=2x8 mat2=8x4",
        "mat1=3x2 mat2=2x4 | mat1=9x9 mat2=9x4",
        "mat1=2x2 mat2=2x4 | mat1=2x5 mat2=5x4 | mat1=2x8 mat2=8x4",
        "mat1=1x3 | mat1=3x3 | mat1=5x3 | mat1=8x3",
        "mat1=3x3 | mat1=5x3 | mat1=8x3",
    ]


def test_a_changed_part_is_that_of_all_runs() -> None:
    (drawing, *_) = examples_of_op(all_rules()["addmm"])
    opened = list(openings(drawing))[-1]
    assert [*opened.runs[0]] == ["mat1"]
    other = _with(opened, {"beta": 2}, "other numbers")
    assert (other.example, other.runs, other.aspect) == ({**drawing.example, "beta": 2}, opened.runs, "other numbers")
    assert _with(opened, {"mat1": "9x3xf32"}, "other sizes").runs == []


@pytest.mark.parametrize(
    ("text", "others", "expected"),
    [
        ("2x3xf32", ["2x4xf32"], "2x?xf32"),
        ("2x3xf32", ["2x3xf32", "1x3xf32"], "?x3xf32"),
        ("2xsi32[0,1]", ["5xsi32[0,4]"], "?xsi32[0,1]"),
        ("f32", ["f32"], "f32"),
    ],
)
def test_the_type_of_open_sizes(text: str, others: list[str], expected: str) -> None:
    assert open_type(text, others) == expected


EXAMPLE = {"x": "4x6xf32", "i": "6xsi64[0,5]", "n": [4, 1], "m": 6, "dim": 4, "flag": True, "end": 2**40, "dims": [4]}


def test_a_size_changes_wherever_it_stands() -> None:
    """Axes, bools and the ends of open slices stay; the limit of an index goes with its size."""
    changed = with_other_sizes(EXAMPLE, {4: 3, 6: 2})
    assert changed == {**EXAMPLE, "x": "3x2xf32", "i": "2xsi64[0,1]", "n": [3, 1], "m": 2}
    sizes = {"a": 1, "b": 2, "c": 4096, "d": 4097}
    assert with_other_sizes(sizes, dict.fromkeys(sizes.values(), 7)) == {"a": 1, "b": 7, "c": 7, "d": 4097}


def test_an_example_is_made_smaller() -> None:
    """The largest sizes first; not where an index has a limit that is no size."""
    example = {"x": "4x6xf32", "i": "2xsi64[0,5]"}
    found = [(each["x"], each["i"]) for each in smaller(example)]
    assert found == [
        ("4x1xf32", "2xsi64[0,0]"), ("4x2xf32", "2xsi64[0,1]"), ("4x3xf32", "2xsi64[0,2]"), ("1x6xf32", "2xsi64[0,5]"),
        ("2x6xf32", "2xsi64[0,5]"), ("4x6xf32", "1xsi64[0,5]"),
    ]  # fmt: skip
    assert list(smaller({"x": "4xf32", "i": "4xsi64[0,6]"})) == []
    assert list(smaller({"x": "1xf32"})) == []


def test_the_text_of_a_part() -> None:
    assert described_value(np.arange(16)) == str(list(range(16)))
    large = described_value(np.arange(17, dtype=np.int32))
    assert large.startswith("int32 numbers of shape (17,) (")
    assert large != described_value(np.arange(1, 18, dtype=np.int32))
    assert described_value([1, 2]) == "[1, 2]"


def test_words_of_arguments() -> None:
    assert words_of("approximate", "str") == ("none", "tanh")
    assert words_of("side", "str?") == (None, "left", "right")
    assert words_of("unknown", "str") == ()
    assert words_of("mode", "none|tanh|sigmoid") == ("none", "tanh", "sigmoid")
    assert words_of("reduction", "int") == (0, 1, 2)
    assert words_of("reduction", "Tensor") == words_of("dim", "int") == ()
