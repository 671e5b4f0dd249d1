"""Ops that move complex numbers, fill with them or add them up: the same op on both parts."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from patcomp.evaluate.eager import overload_of
from patcomp.patterns import Example, Rejected, Rule, decomposition, example
from patcomp.pytorch import pytree, schema_of_overload
from patterns_catalog.decompose.complex_parts import parts

_Z = "3x4xcomplex<f32>"


def _part(value: Any, index: int, *, is_value: bool) -> Any:
    """The real (0) or imaginary (1) part of an argument; an argument that is not a value stays as it is."""
    if isinstance(value, torch.dtype):
        return value.to_real()
    if isinstance(value, Tensor) and value.is_complex():
        part = parts(value)[index]
        assert isinstance(part, Tensor)
        return part.contiguous()  # without the other part between, which PyTorch's own decompositions would stride over
    if isinstance(value, complex):
        return parts(value)[index]
    if not is_value or value is None:
        return value
    if isinstance(value, Tensor):
        return torch.full(value.shape, 0.0, dtype=torch.float32) if index else value
    return parts(value)[index]


def _moved(name: str, *examples: Example, values: tuple[str, ...] = ()) -> Rule:
    """The same op on both parts. Of the arguments named in `values`, real ones count as complex."""
    overload = overload_of(f"aten.{name}")
    names = [argument.name for argument in schema_of_overload(overload).arguments]

    @decomposition(f"aten.{name}", name=f"decompose complex {name}", examples=examples, of_complex=True)
    def moved(*arguments: Any, **options: Any) -> Any:
        "the same op on both parts"
        given = dict(zip(names, arguments, strict=False)) | options
        if values == ("src",) and not given["self"].is_complex():
            raise Rejected("a write of complex numbers into a real tensor is not supported; take their real parts")
        if "dtype" in given and given["dtype"] is not None and not given["dtype"].is_complex:
            # PyTorch drops the imaginary parts
            return overload(**{key: _part(value, 0, is_value=key in values) for key, value in given.items()})
        real, imag = (
            overload(**{
                key: pytree.tree_map(lambda leaf, key=key: _part(leaf, index, is_value=key in values), value)  # noqa: B023
                for key, value in given.items()
            })
            for index in (0, 1)
        )  # fmt: skip
        if isinstance(real, Tensor):
            return torch.complex(real, imag)
        return [torch.complex(*pair) for pair in zip(real, imag, strict=True)]

    return moved


MOVED = [
    *(
        _moved(name, example(_Z))
        for name in ("alias", "clone", "detach", "t", "squeeze", "lift_fresh_copy", "tril", "triu", "sum", "mean")
    ),
    _moved("view", example(_Z, [2, 6])),
    _moved("_unsafe_view", example(_Z, [2, 6])),
    _moved("permute", example(_Z, [1, 0])),
    _moved("transpose.int", example(_Z, 0, 1)),
    _moved("expand", example(_Z, [2, 3, 4])),
    _moved("unsqueeze", example(_Z, -1)),
    _moved("squeeze.dim", example("3x1xcomplex<f32>", 1)),
    _moved("squeeze.dims", example("3x1xcomplex<f32>", [1])),
    _moved("select.int", example(_Z, 1, 2)),
    _moved("slice.Tensor", example(_Z, 1, 1, 4, 2)),
    _moved("unbind.int", example(_Z, 1)),
    _moved("split.Tensor", example(_Z, 2, 1)),
    _moved("split_with_sizes", example(_Z, [1, 3], 1)),
    _moved("flip", example(_Z, [1])),
    _moved("roll", example(_Z, [1], [1])),
    _moved("repeat", example(_Z, [2, 1])),
    _moved("diagonal", example(_Z)),
    _moved("diag_embed", example("3xcomplex<f32>")),
    _moved("unfold", example(_Z, 1, 2, 1)),
    _moved("index_select", example(_Z, 1, "2xsi64[0,3]")),
    _moved("gather", example(_Z, 1, "3x2xsi64[0,3]")),
    _moved("take", example(_Z, "5xsi64[0,11]")),
    _moved("embedding", example(_Z, "5xsi64[0,2]")),
    _moved("repeat_interleave.self_int", example(_Z, 2, 1)),
    _moved("pixel_shuffle", example("1x4x2x2xcomplex<f32>", 2)),
    _moved("pixel_unshuffle", example("1x1x4x4xcomplex<f32>", 2)),
    _moved("reflection_pad1d", example(_Z, [1, 2])),
    _moved("reflection_pad2d", example("2x3x4xcomplex<f32>", [1, 1, 1, 1])),
    _moved("replication_pad1d", example(_Z, [1, 2])),
    _moved("replication_pad2d", example("2x3x4xcomplex<f32>", [1, 1, 1, 1])),
    _moved("sum.dim_IntList", example(_Z, [1], True)),
    _moved("mean.dim", example(_Z, [1], True)),
    _moved("cumsum", example(_Z, 1)),
    _moved("trace", example(_Z)),
    _moved("cat", example([_Z, "3x2xf32"], 1), values=("tensors",)),
    _moved("stack", example([_Z, _Z], 1), values=("tensors",)),
    _moved("where.self", example("4xi1", _Z, "4xf32"), values=("self", "other")),
    _moved("where.ScalarOther", example("4xi1", _Z, 1.5), values=("self", "other")),
    _moved("masked_fill.Scalar", example(_Z, "4xi1", 1.5), values=("value",)),
    _moved("masked_fill.Tensor", example(_Z, "4xi1", "f32"), values=("value",)),
    _moved("constant_pad_nd", example(_Z, [1, 2], 0.5), values=("value",)),
    _moved("full", example([2], 1.5, dtype="complex<f32>"), values=("fill_value",)),
    _moved("full_like", example(_Z, 1.5), values=("fill_value",)),
    _moved("scalar_tensor", example(1.5, dtype="complex<f32>"), values=("s",)),
    _moved("fill.Scalar", example(_Z, 1.5), values=("value",)),
    _moved("fill.Tensor", example(_Z, "f32"), values=("value",)),
    _moved("copy", example(_Z, "4xf32"), values=("src",)),
    _moved("scatter.src", example(_Z, 1, "3x2xsi64[0,0]", _Z), values=("src",)),
    _moved("scatter.value", example(_Z, 1, "3x2xsi64[0,3]", 1.5), values=("value",)),
    _moved("scatter_add", example(_Z, 1, "3x2xsi64[0,3]", _Z)),
    _moved("index_put", example(_Z, ["2xsi64[0,0]"], "4xcomplex<f32>"), values=("values",)),
    _moved("index_copy", example(_Z, 0, "1xsi64[0,2]", "1x4xcomplex<f32>")),
    _moved("masked_scatter", example(_Z, "3x4xi1", _Z)),
    _moved("slice_scatter", example(_Z, "3x2xcomplex<f32>", 1, 0, 2), values=("src",)),
    _moved("select_scatter", example(_Z, "3xcomplex<f32>", 1, 0), values=("src",)),
    _moved("diagonal_scatter", example(_Z, "3xcomplex<f32>"), values=("src",)),
]
"""Ops that are linear in their complex tensors."""


@decomposition("aten.index.Tensor", examples=[example(_Z, ["2xsi64[0,2]"])], of_complex=True)
def index(self: Tensor, indices: list[Tensor | None]) -> Tensor:
    "the same op on both parts"
    if any(place is not None and place.dtype in (torch.bool, torch.uint8) for place in indices):
        raise Rejected("indexing complex numbers with a mask is not supported; index their real and imaginary parts")
    real, imag = (torch.ops.aten.index.Tensor(part, indices) for part in parts(self))
    return torch.complex(real, imag)


@decomposition("aten.index_add", of_complex=True, examples=[example(_Z, 1, "2xsi64[0,3]", "3x2xcomplex<f32>", alpha=2)])
def index_add(self: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: complex = 1) -> Tensor:
    "the same op on both parts, the source times alpha"
    scaled = source if alpha == 1 else source * alpha
    (a, b), (c, d) = parts(self), parts(scaled)
    return torch.complex(torch.index_add(a, dim, index, c), torch.index_add(b, dim, index, d))  # type: ignore[arg-type]


@decomposition("aten.as_strided", examples=[example(_Z, [2, 3], [4, 1], 1)], of_complex=True)
def as_strided(self: Tensor, size: list[int], stride: list[int], storage_offset: int | None = None) -> Tensor:
    "the same op on both parts, each in memory of its own"
    if not self.is_contiguous():
        raise Rejected("as_strided of a complex tensor needs a contiguous tensor; call .contiguous() first")
    real, imag = (part.clone(memory_format=torch.contiguous_format) for part in parts(self))  # type: ignore[union-attr]
    return torch.complex(
        torch.as_strided(real, size, stride, storage_offset), torch.as_strided(imag, size, stride, storage_offset)
    )


@decomposition("prims.copy_strided", of_complex=True, unspecified=dict.fromkeys(
    ("options", "sizes", "ranks"), "strides at which elements share memory are no copy"
), examples=[example(_Z, [1, 3])])  # fmt: skip
def copy_strided(a: Tensor, stride: list[int]) -> Tensor:
    "a copy of both parts; a value has no order in memory"
    real, imag = (part.clone(memory_format=torch.contiguous_format) for part in parts(a))  # type: ignore[union-attr]
    return torch.complex(real, imag)
