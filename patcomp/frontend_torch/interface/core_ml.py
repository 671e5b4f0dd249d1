"""Weights compressed for Core ML: floats, and buffers that describe their compression.

coreai-opt and `coremltools.optimize.torch` leave them so: `fc._COREML_/weight/lut` is the table of `fc.weight`. The
integers, indices and masks are computed from the floats, and are taken only if they give the same floats again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.export import ExportedProgram

from patcomp.frontend_torch.fx.dtypes import element_of, has_values, storage_array
from patcomp.frontend_torch.interface.signature import Signature
from patcomp.ir import coreai
from patcomp.ir.elements import to_numpy
from patcomp.ir.types import integer_range
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Attribute

_BUFFER = re.compile(r"(?:(.*)\.)?_COREML_/(.+)/(\w+)")
_PRUNED, _PALETTIZED, _QUANTIZED = 1, 2, 3
_INTEGER_BITS = (2, 4, 8, 16)
_INDEX_BITS = (1, 2, 3, 4, 6, 8)
_CHUNK = 1 << 22
"""Distances between vectors of a weight and those of a table that are computed at a time."""

Part = tuple[np.ndarray, Attribute]


class _NotDescribedError(Exception):
    """The buffers do not describe the weight; the message says why."""


@dataclass(frozen=True, eq=False)
class CompressedWeight:
    """A weight as constants, from which ops compute its floats."""

    parts: Mapping[str, Part]
    """Each constant in storage form, with its element type."""
    build: Callable[[Mapping[str, Value]], Value]
    """The ops, given a value for each part."""


def described_weights(program: ExportedProgram, signature: Signature) -> dict[str, CompressedWeight | str]:
    """The weights with a description that a program reads, by the FX name of their placeholder.

    A description that does not give the floats of its weight is the reason why the weight stays as it is.
    """
    tensors = {**program.constants, **program.state_dict, **dict(signature.constants.values())}
    described: dict[str, dict[str, Tensor]] = {}
    for path, tensor in tensors.items():
        if match := _BUFFER.fullmatch(path):
            module, weight, part = match.groups()
            described.setdefault(f"{module}.{weight}" if module else weight, {})[part] = tensor
    if not described:
        return {}
    described_memory = {_memory(tensors[path]): path for path in described if path in tensors}
    used = {node.name for node in program.graph.find_nodes(op="placeholder") if node.users}
    found: dict[str, CompressedWeight | str] = {}
    known: dict[str, CompressedWeight | str] = {}
    for name, (path, tensor) in signature.constants.items():
        source = path if path in described else described_memory.get(_memory(tensor))  # of a tied weight
        if name not in used or source is None:
            continue
        if source not in known:
            known[source] = _compressed(tensor, described[source])
        found[name] = known[source]
    return found


def _memory(tensor: Tensor) -> tuple[object, ...]:
    where = tensor.data_ptr() if type(tensor) in (Tensor, torch.nn.Parameter) and has_values(tensor) else id(tensor)
    return where, tensor.shape, tensor.dtype


@torch.no_grad()
def _compressed(weight: Tensor, parts: Mapping[str, Tensor]) -> CompressedWeight | str:
    if not has_values(weight) or not all(map(has_values, parts.values())):
        return "they have no values"
    if weight.dtype not in (torch.float32, torch.float16, torch.bfloat16) or not weight.numel():
        return f"the weight is {str(weight.dtype).removeprefix('torch.')} of shape {tuple(weight.shape)}"
    try:
        kinds = _needed(parts, "compression_type").reshape(-1).tolist()
        if _PALETTIZED in kinds:
            return _palettized(weight.detach().cpu(), parts)
        if _QUANTIZED in kinds:
            return _quantized(weight.detach().cpu(), parts)
        if _PRUNED in kinds:
            return _pruned(weight.detach().cpu())
    except _NotDescribedError as error:
        return str(error)
    return f"`compression_type` is {kinds}"


def _needed(parts: Mapping[str, Tensor], name: str) -> Tensor:
    if name not in parts:
        raise _NotDescribedError(f"`{name}` is missing")
    return parts[name].cpu()


def _expect(condition: bool, otherwise: str) -> None:
    if not condition:
        raise _NotDescribedError(otherwise)


# ---- blocks -------------------------------------------------------------------------------------------


def _of_rank(parameter: Tensor, shape: Sequence[int], name: str) -> Tensor:
    """A parameter of blocks in the rank of a weight. A scale of channels may lack the axes after its own."""
    made = parameter.cpu().float().reshape([*parameter.shape, *[1] * (len(shape) - parameter.dim())])
    fits = len(made.shape) == len(shape) and all(
        count and size % count == 0 for size, count in zip(shape, made.shape, strict=True)
    )
    _expect(fits, f"the shape {tuple(parameter.shape)} of `{name}` does not divide that of the weight")
    return made


def _split(x: Tensor, blocks: Sequence[int]) -> Tensor:
    """A tensor with two axes for each of its own: the blocks, and the elements of a block."""
    return x.reshape([n for size, count in zip(x.shape, blocks, strict=True) for n in (count, size // count)])


def _of_blocks(parameter: Tensor) -> Tensor:
    """A parameter of blocks that broadcasts to `_split`."""
    return _split(parameter, parameter.shape)


def _unscaled(weight: Tensor, scale: Tensor) -> Tensor:
    """A weight, split into the blocks of its scale, and divided by it."""
    factor = _of_blocks(scale)
    return torch.where(factor == 0, 0, _split(weight.float(), scale.shape) / factor)


def _is_close(made: Tensor, weight: Tensor, units: int) -> bool:
    """Whether numbers equal a weight up to some units in the last place."""
    made = made.reshape(weight.shape).to(weight.dtype)
    if not units:
        return torch.equal(made, weight)
    return torch.allclose(made.float(), weight.float(), rtol=units * torch.finfo(weight.dtype).eps, atol=0)


def _precisions(weight: Tensor) -> tuple[torch.dtype, ...]:
    """The element types in which the floats may be computed: the weight's own, or float32 with a cast."""
    return (weight.dtype,) if weight.dtype == torch.float32 else (weight.dtype, torch.float32)


def _part(values: Tensor, dtype: torch.dtype) -> Part:
    return storage_array(values.to(dtype)), element_of(dtype)


def _zeros(like: Part) -> Part:
    return to_numpy(np.zeros(like[0].shape), like[1])


# ---- the forms ----------------------------------------------------------------------------------------


def _quantized(weight: Tensor, parts: Mapping[str, Tensor]) -> CompressedWeight:
    """(data - zero point) * scale, with a scale for each block."""
    bits = int(_needed(parts, "quantization_n_bits"))
    _expect(1 <= bits <= _INTEGER_BITS[-1], f"`quantization_n_bits` is {bits}")
    scale = _of_rank(_needed(parts, "quantization_scale"), weight.shape, "quantization_scale")
    zero = _of_rank(parts.get("zero_point", torch.zeros(())), weight.shape, "zero_point").expand(scale.shape)
    data = _unscaled(weight, scale).round() + _of_blocks(zero)
    numbers = torch.cat([zero.aminmax().min[None], zero.aminmax().max[None], data.amin()[None], data.amax()[None]])
    width = next(width for width in _INTEGER_BITS if width >= bits)
    element = next((name for name in (f"si{width}", f"ui{width}") if _holds(name, numbers)), None)
    if element is None:
        raise _NotDescribedError(f"its integers do not fit {width} bits")
    for dtype in _precisions(weight):
        factor = _of_blocks(scale.to(dtype).float())
        if _is_close(((data - _of_blocks(zero)) * factor).to(dtype), weight, 0):
            break
    else:
        raise _NotDescribedError("the weight is not (integer - zero point) * scale")
    stored = _part(scale, dtype)
    return CompressedWeight(
        {
            "data": to_numpy(data.reshape(weight.shape).to(torch.int32).numpy(), element),
            "scale": stored,
            "zero_point": to_numpy(zero.to(torch.int32).numpy(), element),
            "offset": _zeros(stored),
        },
        lambda v: coreai.cast(
            coreai.blockwise_shift_scale(v["data"], v["scale"], v["zero_point"], v["offset"]), element_of(weight.dtype)
        ),
    )


def _holds(element: str, numbers: Tensor) -> bool:
    low, high = integer_range(element)
    return bool(((low <= numbers) & (numbers <= high) & (numbers == numbers.round())).all())


def _palettized(weight: Tensor, parts: Mapping[str, Tensor]) -> CompressedWeight:
    """Entries of a table for each block, which may be vectors along an axis, times a scale if there is one.

    A quantized table is stored as its floats; it is small.
    """
    table = _needed(parts, "lut").float()
    _expect(table.dim() == weight.dim() + 2, f"the shape {tuple(table.shape)} of `lut` is not of rank + 2")
    *blocks, entries, length = table.shape
    bits = next((bits for bits in _INDEX_BITS if 1 << bits >= entries), None)
    if bits is None:
        raise _NotDescribedError(f"`lut` has {entries} entries")
    table = torch.cat([table, table[..., -1:, :].expand(*blocks, (1 << bits) - entries, length)], dim=-2)
    axis = int(parts.get("vector_axis", torch.zeros(()))) % max(weight.dim(), 1)
    _expect(weight.dim() > 0 and weight.shape[axis] % length == 0, "the vectors of `lut` do not divide the weight")
    scale, numbers = None, weight.float()
    if "palettization_scale" in parts:
        scale = _of_rank(parts["palettization_scale"], weight.shape, "palettization_scale")
        numbers = _unscaled(weight, scale).reshape(weight.shape)
    vectors = numbers.unflatten(axis, (-1, length)).movedim(axis + 1, -1)
    shape = vectors.shape[:-1]
    fits = all(count and size % count == 0 for size, count in zip(shape, blocks, strict=True))
    _expect(fits, f"the blocks {tuple(blocks)} of `lut` do not divide the weight")
    indices, entry = torch.empty(shape, dtype=torch.uint8), torch.empty(vectors.shape)
    for block in np.ndindex(*blocks):
        sizes = [size // count for size, count in zip(shape, blocks, strict=True)]
        where = tuple(slice(i * size, (i + 1) * size) for i, size in zip(block, sizes, strict=True))
        nearest = _nearest(vectors[where].reshape(-1, length), table[block]).reshape(sizes)
        indices[where], entry[where] = nearest.to(torch.uint8), table[block][nearest]
    made = entry.movedim(-1, axis + 1).flatten(axis, axis + 1)
    for dtype in _precisions(weight):
        found = made.to(dtype)
        if scale is not None:
            found = (_split(found.float(), scale.shape) * _of_blocks(scale.to(dtype).float())).to(dtype)
        if _is_close(found, weight, 0 if scale is None else 2):  # the library divided by the scale, and rounded
            break
    else:
        raise _NotDescribedError("the weight has numbers that are not in `lut`")
    stored: dict[str, Part] = {"indices": to_numpy(indices.numpy(), f"ui{bits}"), "lut": _part(table, dtype)}
    if scale is not None:
        stored["scale"] = _part(scale, dtype)
        stored["offset"] = _zeros(stored["scale"])

    def build(v: Mapping[str, Value]) -> Value:
        dense = coreai.lut_to_dense(v["indices"], v["lut"], axis)
        if "scale" in v:
            dense = coreai.blockwise_shift_scale(dense, v["scale"], v["offset"], v["offset"])
        return coreai.cast(dense, element_of(weight.dtype))

    return CompressedWeight(stored, build)


def _nearest(vectors: Tensor, entries: Tensor) -> Tensor:
    """The number of the nearest entry of a table for each vector."""
    if entries.shape[1] == 1:
        ordered, order = entries[:, 0].sort()
        after = torch.searchsorted(ordered, vectors[:, 0].contiguous()).clamp(1, len(ordered) - 1)
        is_before = (vectors[:, 0] - ordered[after - 1]).abs() < (ordered[after] - vectors[:, 0]).abs()
        return order[after - is_before.long()]
    chunks = vectors.split(max(_CHUNK // entries.numel(), 1))
    return torch.cat([(chunk[:, None] - entries).square().sum(-1).argmin(-1) for chunk in chunks])


def _pruned(weight: Tensor) -> CompressedWeight:
    """The numbers that are not zero, and where they are."""
    mask = weight != 0
    values = weight[mask]
    size, sparse = weight.numel() * weight.itemsize, values.numel() * weight.itemsize + weight.numel() / 8
    _expect(sparse < size, "the weight has too few zeros to be smaller without them")
    return CompressedWeight(
        {"values": _part(values, weight.dtype), "mask": to_numpy(mask.numpy(), "ui1")},
        lambda v: coreai.sparse_with_bitmask_to_dense(coreai.build_sparse_with_bitmask(v["values"], v["mask"])),
    )
