"""The changes of an example that a proof lists, and their order: those that matter most come first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from patcomp_lab.proof.changes import ExampleParts, changed_part
from patcomp_lab.proof.ranks import with_other_ranks
from patcomp_lab.proof.together import (
    exchanged_numbers,
    in_turn,
    of_equal_sizes,
    permuted_example,
    resized,
    sliced,
    spread,
    with_axes,
    with_bools,
    with_types,
)

Change = Callable[[Mapping[str, Any]], Iterator[dict[str, Any]]]


def text(value: Any) -> str:
    plain = value.tolist() if isinstance(value, np.ndarray) else value
    return str(plain).replace(" ", "").replace("'", "")


def changes(example: dict[str, Any], listed: Iterable[dict[str, Any]]) -> str:
    """The parts of each listed example that differ; `-` for the example itself."""
    parts = ([f"{name}={text(value)}" for name, value in each.items() if value != example[name]] for each in listed)
    return " ".join(";".join(each) or "-" for each in parts)


PARTS: list[tuple[dict[str, Any], bool, str]] = [
    ({"x": "2x3xf32"}, False,
     "1x3xf32 2x1xf32 4x3xf32 2x6xf32 3x3xf32 2x4xf32 2x2xf32 3xf32 f32 2x2x3xf32 1x2x3xf32 3x2xf32 2x3xf16 "
     "2x3xbf16 2x3xsi32"),
    ({"x": "4xf16"}, True,
     "1xf16 8xf16 5xf16 2xf16 3xf16 f16 2x4xf16 1x4xf16 4xf32 4xbf16 4xsi32"),
    ({"x": "2xsi32[0,5]"}, True,
     "2xsi32[-5,5] 2xsi32[-5,-1] 2xsi32[1,5] 2xsi32 1xsi32[0,5] 4xsi32[0,5] 3xsi32[0,5] si32[0,5] 2x2xsi32[0,5] "
     "1x2xsi32[0,5]"),
    ({"x": "2xsi32[-3,5]"}, False,
     "1xsi32[-3,5] 4xsi32[-3,5] 3xsi32[-3,5] si32[-3,5] 2x2xsi32[-3,5] 1x2xsi32[-3,5]"),
    ({"x": "2x2xsi8"}, False,
     "1x2xsi8 2x1xsi8 4x2xsi8 2x4xsi8 3x2xsi8 2x3xsi8 2xsi8 si8 2x2x2xsi8 1x2x2xsi8 2x2xsi32 2x2xf32 2x2xsi64 "
     "2x2xui8 2x2xi1"),
    ({"n": 3, "x": "2x7xf32"}, False, "0 1 2 -1 -2 4 5 -3 7 -7 6 -4 -5 100"),
    ({"n": -2}, False, "0 1 2 3 -1 4 5 -3 -4 7 -5 100"),
    ({"n": 2000}, False,
     "0 1 2 3 -1 -2 4 5 2001 1999 -2000 4000 -3 7 -4 -5 100"),
    ({"n": [0, 1]}, False,
     "[1,0] [1,1] [2,1] [0,2] [0,0] [-1,1] [0,-1] [3,1] [0,3] [4,1] [0,4] [5,1] [0,5] [-2,1] [0,-2] [-3,1] [0,-3] "
     "[-4,1] [0,-4] [-5,1] [0,-5] [1,2] [-1,0] [2,3] [0,1,1] [1,0,1] [0] [1]"),
    ({"n": [3, 1, 2], "x": "8xf32"}, False,
     "[3,2,1] [1,3,2] [1,2,3] [2,3,1] [2,1,3] [1,1,2] [3,1,1] [2,1,2] [3,2,2] [0,1,2] [3,0,2] [3,1,0] [-1,1,2] "
     "[3,-1,2] [3,1,-1] [3,3,2] [3,1,3] [4,1,2] [3,4,2] [3,1,4] [5,1,2] [3,5,2] [3,1,5] [-2,1,2] [3,-2,2] [3,1,-2] "
     "[-3,1,2] [3,-3,2] [3,1,-3] [-4,1,2] [3,-4,2] [3,1,-4] [-5,1,2] [3,-5,2] [3,1,-5] [8,1,2] [3,8,2] [3,1,8] "
     "[4,2,3] [2,0,1] [5,3,4] [3,1,2,1] [1,3,1,2] [3,1] [1,2]"),
    ({"n": [True, False]}, False, "[False,True] [False,False] [True,True]"),
    ({"n": None}, False, "1 0 2 -1 0.5"),
    ({"n": -0.0}, False,
     "0.0 -1.0 0.5 2.0 1.0 1e-05 3.0 -2.5 1e-12 100.0 -0.5"),
    ({"n": True}, False, "False"),
    ({"n": "word"}, False, ""),
    ({"n": []}, False, "[1]"),
]  # fmt: skip
ARRAYS: list[tuple[Any, str]] = [
    (np.array([1, 2], np.int32),
     "[2,1] [2,1] [0,2] [1,0] [1,1] [2,2] [-1,2] [1,-1] [3,2] [1,3] [2,1] [[1,2]]"),
    (np.array([[1, 2]], np.uint8),
     "[[0,2]] [[1,0]] [[1,1]] [[2,2]] [[3,2]] [[1,3]] [[[1,2]]] [1,2] [[1],[2]]"),
    (np.array(1.5, np.float64),
     "-1.5 0.0 0.0 -1.0 0.5 2.0 1.0 -0.0 1e-05 3.0 -2.5 1e-12 100.0 -0.5 [1.5]"),
    (np.array([[1, 2]], np.float32),
     "[[-1.0,-2.0]] [[0.0,0.0]] [[[1.0,2.0]]] [1.0,2.0] [[1.0],[2.0]]"),
    (np.array([True, False]),
     "[False,True] [False,True] [False,True] [[True,False]]"),
    (np.array([[4, 5], [6, 7]]),
     "[[6,7],[4,5]] [[6,7],[4,5]] [[0,5],[6,7]] [[4,0],[6,7]] [[4,5],[0,7]] [[4,5],[6,0]] [[1,5],[6,7]] "
     "[[4,1],[6,7]] [[4,5],[1,7]] [[4,5],[6,1]] [[2,5],[6,7]] [[4,2],[6,7]] [[4,5],[2,7]] [[4,5],[6,2]] "
     "[[-1,5],[6,7]] [[4,-1],[6,7]] [[4,5],[-1,7]] [[4,5],[6,-1]] [[3,5],[6,7]] [[4,3],[6,7]] [[4,5],[3,7]] "
     "[[4,5],[6,3]] [[6,7],[4,5]] [[[4,5],[6,7]]] [[4,6],[5,7]]"),
]  # fmt: skip
TOGETHER: list[tuple[Change, dict[str, Any], str]] = [
    (permuted_example, {"p": [1, 0], "q": [2, 0, 1]},
     "p=[0,1];q=[0,1,2] p=[0,1];q=[0,2,1] p=[0,1];q=[1,0,2] p=[0,1];q=[1,2,0] p=[0,1] p=[0,1];q=[2,1,0] q=[0,1,2] "
     "q=[0,2,1] q=[1,0,2] q=[1,2,0] - q=[2,1,0]"),
    (with_axes, {"x": "2x3xf32", "axis": 1, "dims": [0, 1], "n": [1, 2, 3]},
     "axis=-2 axis=-1 axis=0 - dims=[-2,-1] dims=[-2,1] dims=[-1,-2] dims=[-1,0] dims=[0,-1] - dims=[1,-2] "
     "dims=[1,0]"),
    (with_bools, {"a": True, "b": False, "n": 1}, "a=False a=False;b=True - b=True"),
    (resized, {"x": "2x5xf32", "s": [5, 1]},
     "x=1x5xf32 - x=3x5xf32 x=4x5xf32 x=3x5xf32 x=2x1xf32;s=[1,1] x=2x2xf32;s=[2,1] x=2x3xf32;s=[3,1] "
     "x=2x4xf32;s=[4,1] x=2x6xf32;s=[6,1] x=1x1xf32;s=[1,1] x=1x2xf32;s=[2,1] x=1x3xf32;s=[3,1] x=1x4xf32;s=[4,1] "
     "x=1x3xf32;s=[3,1] x=2x1xf32;s=[1,1] x=2x2xf32;s=[2,1] x=2x3xf32;s=[3,1] x=2x4xf32;s=[4,1] x=2x3xf32;s=[3,1] "
     "x=3x1xf32;s=[1,1] x=3x2xf32;s=[2,1] x=3x3xf32;s=[3,1] x=3x4xf32;s=[4,1] x=3x3xf32;s=[3,1] x=4x1xf32;s=[1,1] "
     "x=4x2xf32;s=[2,1] x=4x3xf32;s=[3,1] x=4x4xf32;s=[4,1] x=4x3xf32;s=[3,1] x=3x1xf32;s=[1,1] x=3x2xf32;s=[2,1] "
     "x=3x3xf32;s=[3,1] x=3x4xf32;s=[4,1] x=3x3xf32;s=[3,1]"),
    (exchanged_numbers, {"n": 0, "s": [2, 9]},
     "s=[0,0] s=[0,2] s=[0,9] s=[2,0] s=[2,2] - s=[9,0] s=[9,2] s=[9,9] n=2;s=[0,0] n=2;s=[0,2] n=2;s=[0,9] "
     "n=2;s=[2,0] n=2;s=[2,2] n=2 n=2;s=[9,0] n=2;s=[9,2] n=2;s=[9,9] n=9;s=[0,0] n=9;s=[0,2] n=9;s=[0,9] "
     "n=9;s=[2,0] n=9;s=[2,2] n=9 n=9;s=[9,0] n=9;s=[9,2] n=9;s=[9,9]"),
    (exchanged_numbers, {"n": 5000, "s": [2]}, ""),
    (exchanged_numbers, {"s": [1, 1, 1, 1, 1, 1, 1]}, ""),
    (sliced, {"a": [0], "b": [5], "c": [1, 2]},
     "a=[1];b=[6] a=[2];b=[7] a=[3];b=[8] a=[-3];b=[-3] a=[-3];b=[-2] a=[-3];b=[-1] a=[-3];b=[0] a=[-3];b=[1] "
     "a=[-3];b=[2] a=[-3];b=[3] a=[-2];b=[-3] a=[-2];b=[-2] a=[-2];b=[-1] a=[-2];b=[0] a=[-2];b=[1] a=[-2];b=[2] "
     "a=[-2];b=[3] a=[-1];b=[-3] a=[-1];b=[-2] a=[-1];b=[-1] a=[-1];b=[0] a=[-1];b=[1] a=[-1];b=[2] a=[-1];b=[3] "
     "b=[-3] b=[-2] b=[-1] b=[0] b=[1] b=[2] b=[3] a=[1];b=[-3] a=[1];b=[-2] a=[1];b=[-1] a=[1];b=[0] a=[1];b=[1] "
     "a=[1];b=[2] a=[1];b=[3] a=[2];b=[-3] a=[2];b=[-2] a=[2];b=[-1] a=[2];b=[0] a=[2];b=[1] a=[2];b=[2] "
     "a=[2];b=[3] a=[3];b=[-3] a=[3];b=[-2] a=[3];b=[-1] a=[3];b=[0] a=[3];b=[1] a=[3];b=[2] a=[3];b=[3]"),
    (with_types, {"x": "2xf32", "i": "3xsi32[0,2]", "n": 1},
     "x=2xf16 x=2xbf16 x=2xsi32 x=2xsi8;i=3xsi8[0,2] x=2xsi16;i=3xsi16[0,2] x=2xui8;i=3xui8[0,2] "
     "x=2xsi64;i=3xsi64[0,2] x=2xi1;i=3xi1[0,2]"),
]  # fmt: skip
EQUAL: list[tuple[int, dict[str, Any], str]] = [
    (3, {"x": "2x5xf32", "p": [1, 0], "s": [10], "k": [3, 4]},
     "x=2x2x2xf32;p=[1,2,0];s=[8];k=[3,4,3] x=2x2x2xf32;p=[2,0,1];s=[8];k=[3,4,3] "
     "x=2x2x2xf32;p=[0,1,2];s=[8];k=[3,4,3] x=2x2x2xf32;p=[0,2,1];s=[8];k=[3,4,3] "
     "x=2x2x2xf32;p=[1,0,2];s=[8];k=[3,4,3] x=2x2x2xf32;p=[2,1,0];s=[8];k=[3,4,3]"),
    (4, {"x": "2x5xf32", "p": [1, 0]},
     "x=2x2x2x2xf32;p=[1,2,3,0] x=2x2x2x2xf32;p=[1,3,0,2] x=2x2x2x2xf32;p=[2,0,3,1] x=2x2x2x2xf32;p=[2,3,1,0] "
     "x=2x2x2x2xf32;p=[3,0,1,2] x=2x2x2x2xf32;p=[3,2,0,1] x=2x2x2x2xf32;p=[0,1,2,3] x=2x2x2x2xf32;p=[0,1,3,2] "
     "x=2x2x2x2xf32;p=[0,2,1,3] x=2x2x2x2xf32;p=[0,2,3,1] x=2x2x2x2xf32;p=[0,3,1,2] x=2x2x2x2xf32;p=[0,3,2,1] "
     "x=2x2x2x2xf32;p=[1,0,2,3] x=2x2x2x2xf32;p=[1,0,3,2] x=2x2x2x2xf32;p=[1,2,0,3] x=2x2x2x2xf32;p=[1,3,2,0] "
     "x=2x2x2x2xf32;p=[2,0,1,3] x=2x2x2x2xf32;p=[2,1,0,3] x=2x2x2x2xf32;p=[2,1,3,0] x=2x2x2x2xf32;p=[2,3,0,1] "
     "x=2x2x2x2xf32;p=[3,0,2,1] x=2x2x2x2xf32;p=[3,1,0,2] x=2x2x2x2xf32;p=[3,1,2,0] x=2x2x2x2xf32;p=[3,2,1,0]"),
    (3, {"x": "2x3x4xf32", "axis": 1}, "x=2x2x2xf32 x=2x2x2xf32;axis=0 x=2x2x2xf32;axis=2"),
    (3, {"x": "2x5xf32", "axis": 1, "s": [2, 5], "t": [10, 1]},
     "x=2x2x2xf32;s=[4,2];t=[4,2] x=2x2x2xf32;axis=0;s=[4,2];t=[4,2] x=2x2x2xf32;axis=2;s=[4,2];t=[4,2]"),
    (4, {"x": "2x5xf32", "s": [2, 5, 1]}, "x=2x2x2x2xf32;s=[4,2,2]"),
    (3, {"n": 1}, ""),
]  # fmt: skip
RANKS: list[tuple[dict[str, Any], tuple[str, ...], str]] = [
    ({"x": "2x3xf32", "p": [1, 0], "axis": 1}, ("axis",),
     "x=1x2x3xf32;p=[0,2,1];axis=2 x=1x2x3xf32;axis=2 p=[0,2,1] x=1x2x3xf32 x=1x1x2x3xf32;p=[0,1,3,2];axis=3 "
     "x=1x1x2x3xf32;axis=3 p=[0,1,3,2] x=1x1x2x3xf32 x=6xf32;p=[0];axis=0 x=6xf32;axis=0 p=[0] x=6xf32 "
     "x=6xf32;p=[];axis=0 p=[] x=2x3x1xf32;p=[1,0,2] x=2x3x1xf32 p=[1,0,2] x=f32;p=[] x=f32 p=[1] p=[1,0,0]"),
    ({"x": "2x3x4xf32", "pads": [0, 2], "dims": [-1, 0]}, ("dims",),
     "x=1x2x3x4xf32;pads=[0,0,2];dims=[-1,1] x=1x2x3x4xf32 pads=[0,0,2];dims=[-1,1] x=1x2x3x4xf32;pads=[0,0,2] "
     "x=1x2x3x4xf32;dims=[-1,1] pads=[0,0,2] dims=[-1,1] x=1x1x2x3x4xf32;pads=[0,0,0,2];dims=[-1,2] "
     "x=1x1x2x3x4xf32 pads=[0,0,0,2];dims=[-1,2] x=1x1x2x3x4xf32;pads=[0,0,0,2] x=1x1x2x3x4xf32;dims=[-1,2] "
     "pads=[0,0,0,2] dims=[-1,2] x=6x4xf32;pads=[0] x=6x4xf32 pads=[0] x=24xf32;pads=[0] x=24xf32 "
     "x=2x3x4x1xf32;pads=[0,2,0];dims=[-2,0,1] x=2x3x4x1xf32 pads=[0,2,0];dims=[-2,0,1] x=2x3x4x1xf32;pads=[0,2,0] "
     "x=2x3x4x1xf32;dims=[-2,0,1] pads=[0,2,0] dims=[-2,0,1] x=f32;pads=[];dims=[] x=f32 pads=[];dims=[] "
     "x=f32;pads=[] x=f32;dims=[] pads=[] dims=[] pads=[0,2,2] dims=[-1] dims=[-1,0,0]"),
    ({"xs": ["2xf32", "3xf32"], "none": None}, (),
     "xs=[1x2xf32,1x3xf32] xs=[1x1x2xf32,1x1x3xf32] xs=[2x1xf32,3x1xf32] xs=[f32,f32] xs=[2xf32] "
     "xs=[2xf32,3xf32,3xf32]"),
]  # fmt: skip


@pytest.mark.parametrize(("example", "is_elementwise", "listed"), PARTS)
def test_other_values_of_a_part(example: dict[str, Any], is_elementwise: bool, listed: str) -> None:
    found = changed_part(next(iter(example)), example, ExampleParts({}, is_elementwise))
    assert " ".join(map(text, found)) == listed


@pytest.mark.parametrize(("value", "listed"), ARRAYS)
def test_other_constants_of_a_recorded_program(value: Any, listed: str) -> None:
    assert " ".join(map(text, changed_part("n", {"n": value}, ExampleParts({})))) == listed


def test_words_of_an_argument() -> None:
    """An argument that is a word in other examples takes these words alone, whatever it looks like."""
    assert changed_part("n", {"n": "none"}, ExampleParts({"n": ["none", "tanh"]})) == ["tanh"]
    assert changed_part("n", {"n": 1}, ExampleParts({"n": [0, 1, 2]})) == [0, 2]


@pytest.mark.parametrize(("change", "example", "listed"), TOGETHER)
def test_changes_of_several_parts(change: Change, example: dict[str, Any], listed: str) -> None:
    assert changes(example, change(example)) == listed


@pytest.mark.parametrize(("rank", "example", "listed"), EQUAL)
def test_tensors_of_equal_sizes(rank: int, example: dict[str, Any], listed: str) -> None:
    """Rotations of the axes come first: no axis stays, and no two are exchanged."""
    assert changes(example, of_equal_sizes(example, rank)) == listed


def test_pairs_of_permutations_of_equal_sizes() -> None:
    example = {"x": "2x3x4x5xf32", "p": [1, 0, 2, 3], "q": [3, 2, 1, 0]}
    found = list(of_equal_sizes(example, 4))
    assert len(found) == 24 + 8 * 8
    assert all(each["p"] == each["q"] for each in found[:24])
    assert len({(*each["p"], *each["q"]) for each in found[24:]}) == 64


@pytest.mark.parametrize(("example", "axes", "listed"), RANKS)
def test_other_ranks_and_lengths(example: dict[str, Any], axes: tuple[str, ...], listed: str) -> None:
    assert changes(example, with_other_ranks(example, axes)) == listed


def test_orders_of_lists() -> None:
    assert list(spread(iter(range(10)))) == [0, 9, 8, 7, 6, 5, 4, 3, 2, 1]
    assert list(spread(iter(range(10)), 3)) == [0, 2, 1]
    assert sorted(spread(iter(range(7919)))) == list(range(7919))
    assert list(spread(iter(()))) == []
    assert list(in_turn([iter("abc"), iter(""), iter("de")])) == ["a", "d", "b", "e", "c"]
