"""What comparisons, choices and orders mean on symbols."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from patcomp_lab.proof.scalars import common_dtype, meaning_of
from patcomp_lab.proof.symbols import MEANINGS, Symbols, UnreachedError, codes_of, meaning
from patcomp_lab.proof.worlds import CodeKind, World


def _comparison(name: str) -> Callable[..., Any]:
    def compute(world: World, x: Any, y: Any) -> Tensor:
        a, b = torch.broadcast_tensors(codes_of(x, world), codes_of(y, world))
        if world.kind is CodeKind.REALS and name in ("eq", "ne"):
            return (a == b) if name == "eq" else (a != b)
        made: Tensor = getattr(torch, name)(world.keys(a), world.keys(b))
        return made

    return compute


for _name in ("gt", "ge", "lt", "le", "eq", "ne"):
    MEANINGS[_name] = _comparison(_name)


@meaning("isnan")
def _isnan(world: World, x: Symbols) -> Tensor:
    return world.keys(x.codes).isnan()


@meaning("isinf")
def _isinf(world: World, x: Symbols) -> Tensor:
    return world.keys(x.codes).isinf()


@meaning("logical_not")
def _logical_not(world: World, x: Symbols) -> Tensor:
    return ~meaning_of("ne")(world, x, 0.0)


def _chosen(name: str) -> Callable[..., Any]:
    larger = name in ("maximum", "fmax")

    def compute(world: World, x: Any, y: Any) -> Any:
        a, b = torch.broadcast_tensors(codes_of(x, world), codes_of(y, world))
        p, q = world.keys(a), world.keys(b)
        first = (p > q) if larger else (p < q)
        made = torch.where(first | p.isnan(), a, b)
        tied = (p == q) | (p.isnan() & q.isnan())
        return Symbols(torch.where(tied, torch.minimum(a, b), made), common_dtype(x, y), world)

    return compute


MEANINGS["maximum"], MEANINGS["minimum"] = _chosen("maximum"), _chosen("minimum")


@meaning("relu")
def _relu(world: World, x: Symbols) -> Any:
    return MEANINGS["maximum"](world, x, 0.0)


@meaning("clamp", "clip")
def _clamp(world: World, x: Symbols, min: Any = None, max: Any = None) -> Any:
    made = x if min is None else MEANINGS["maximum"](world, x, min)
    return made if max is None else MEANINGS["minimum"](world, made, max)


@meaning("clamp_min")
def _clamp_min(world: World, x: Symbols, min: Any) -> Any:
    return _clamp(world, x, min)


@meaning("clamp_max")
def _clamp_max(world: World, x: Symbols, max: Any) -> Any:
    return _clamp(world, x, None, max)


@meaning("argmax", "argmin", "argsort")
def _arg(world: World, x: Symbols, *args: Any, **kwargs: Any) -> Tensor:
    raise UnreachedError("an index of an order")


_PARAMETERS = {"sort": ("dim", "descending"), "topk": ("k", "dim", "largest", "sorted")}
"""The names of positional arguments, where they are others than those of `max`."""


def _ordered(name: str) -> Callable[..., Any]:
    """`max`, `min`, `sort`, `topk`, `cummax`, `cummin` of an axis: values and their indices."""

    def compute(world: World, x: Symbols, *args: Any, **kwargs: Any) -> Any:
        if name in ("max", "min") and args and isinstance(args[0], Tensor):
            return MEANINGS[f"{name}imum"](world, x, args[0])
        keys = world.keys(x.codes)
        options = dict(zip(_PARAMETERS.get(name, ("dim", "keepdim")), args, strict=False)) | kwargs
        if not options and name in ("max", "min"):
            at = getattr(torch, f"arg{name}")(keys)
            return Symbols(x.codes.reshape(-1)[at], x.dtype, world)
        if name == "sort":
            options["stable"] = True
        made, axis = getattr(torch, name)(keys, **options), options.get("dim", -1)
        keepdim = made.indices.dim() == x.dim()
        at = made.indices if keepdim else made.indices.unsqueeze(axis)
        codes = torch.take_along_dim(x.codes, at, axis)
        return type(made)((Symbols(codes if keepdim else codes.squeeze(axis), x.dtype, world), made.indices))

    return compute


for _name in ("max", "min", "sort", "topk", "cummax", "cummin"):
    MEANINGS[_name] = _ordered(_name)
