"""Patterns for the gated delta rule in chunks whose decays differ for each element of a key (Kimi delta attention).

Names and letters are those of `chunked_delta_formulas`.
"""

from __future__ import annotations

from typing import Any

from patcomp.authoring import AtenSource
from patcomp.patterns import ANY, Attr, Capture
from patterns_catalog.recover.chunk_patterns import is_last, part, triangle
from patterns_catalog.recover.chunked_delta_formulas import IS_INVERSE, IS_LATER, Chunks, Family, values
from patterns_catalog.recover.gated_delta import kimi_delta_update


@part
def inverse(
    a: AtenSource, key: Capture, beta: Capture, g: Capture, later: Capture, lower: Capture, upper: Capture,
    identity: Capture,
) -> Any:  # fmt: skip
    "(I + below(sum(key * beta * key * decays)))^-1"
    x = Chunks(a)
    written = x.unsqueezed(x.times(key, beta, "k"), "bhcn1k") * x.unsqueezed(x.of(key, "k"), "bhc1nk")
    products = written * x.left(x.passed(g, "k"), later, "k")
    overlap = x.has(a.op("sum.dim_IntList", products, dim=[5], keepdim=False, dtype=None), "bhcnn")
    return x.inverse(overlap, lower, upper, identity), [*x.where(), IS_LATER, *IS_INVERSE]


@part
def reading(a: AtenSource, inverse: Capture, key: Capture, beta: Capture, g: Capture) -> Any:
    "inverse @ (key * beta * exp(sums of g))"
    x = Chunks(a)
    return a.matmul(x.has(inverse, "bhcnn"), x.times(key, beta, "k") * a.exp(x.passed(g, "k"))), x.where()


# ---- of one chunk -----------------------------------------------------------------------------------


@part
def queries(a: AtenSource, query: Capture, g: Capture, index: Attr) -> Any:
    "query * exp(sums of g)"
    x = Chunks(a)
    return x.at(x.of(query, "k"), index, "bhnk") * a.exp(x.at(x.passed(g, "k"), index, "bhnk")), x.where()


@part
def scores(a: AtenSource, query: Capture, key: Capture, g: Capture, later: Capture, again: Capture, index: Attr) -> Any:
    "sum(query * key * decays), and 0 for later tokens"
    x = Chunks(a)
    row = x.unsqueezed(x.at(x.of(query, "k"), index, "bhnk"), "bhn1k")
    column = x.unsqueezed(x.at(x.of(key, "k"), index, "bhnk"), "bh1nk")
    left = x.at(x.left(x.passed(g, "k"), later, "k"), index, "bhnnk")
    total = a.op("sum.dim_IntList", row * column * left, dim=[4], keepdim=False, dtype=None)
    return a.where(x.has(again, "nn"), 0.0, total), [*x.where(), IS_LATER, triangle("again", True, 1)]


@part
def keys(a: AtenSource, key: Capture, g: Capture, index: Attr, start: Attr) -> Any:
    "key * exp(the last sum of g - sums of g)"
    x = Chunks(a)
    passed = x.at(x.passed(g, "k"), index, "bhnk")
    last = x.has(a.op("slice.Tensor", passed, dim=2, start=start, end=ANY, step=1), "bh1k")
    return x.at(x.of(key, "k"), index, "bhnk") * a.exp(last - passed), [*x.where(), is_last(start, passed, 2)]


@part
def decay(a: AtenSource, g: Capture, index: Attr, position: Attr) -> Any:
    "exp(the last sum of g)"
    x = Chunks(a)
    passed = x.at(x.passed(g, "k"), index, "bhnk")
    last = a.exp(x.has(a.op("select.int", passed, dim=2, index=position), "bhk"))
    return x.unsqueezed(last, "bhk1"), [*x.where(), is_last(position, passed, 2)]


KIMI = Family(
    kimi_delta_update,
    inverse,
    {"values": values, "reading": reading},
    {"queries": queries, "scores": scores, "keys": keys, "decay": decay},
)
