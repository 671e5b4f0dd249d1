"""Weights that take more bytes in an asset than in the program, because the toolchain folds casts when it saves."""

from __future__ import annotations

from collections.abc import Iterator

from patcomp.defects.defect import Defect
from patcomp.errors import Problem
from patcomp.ir.constants import is_constant
from patcomp.ir.module import IRModule
from patcomp.ir.types import TensorType, element_name, shape_of, storage_bytes
from patcomp.ir.xdsl import DenseResourceAttr, Operation, ops_inside

_FOLDED = frozenset({"i1", "si8", "ui8", "si16", "ui16", "si32", "ui32", "f16", "f32"})
"""The element types between which the toolchain computes casts of constants. It leaves bfloat16 and float8 alone."""

_WORTH_SAYING = 64 * 1024
"""The smallest growth of a weight in bytes that causes a warning."""

_SHOWN = 10


def grown_weights(module: IRModule) -> Iterator[Problem]:
    """A warning if constants become larger when the program is saved.

    The toolchain computes `cast(constant)` and stores the result. An op between the two prevents that, a transpose for
    instance; so do the ops that are made for compressed weights, such as `dequantize`.
    """
    grown: list[tuple[str, int, int]] = []
    for name, constants in _weights(module).items():
        uses = [use.operation for constant in constants for use in constant.results[0].uses]
        casts = [op for op in uses if _is_folded(op)]
        stored = _bytes(constants[0])
        in_asset = sum({op.results[0].type: _bytes(op) for op in casts}.values()) + stored * (len(casts) < len(uses))
        if casts and in_asset - stored >= _WORTH_SAYING:
            grown.append((name, stored, in_asset))
    if grown:
        shown = [f"{name!r} takes {after:,} bytes instead of {before:,}" for name, before, after in grown[:_SHOWN]]
        rest = [f"{len(grown) - _SHOWN} more"] if len(grown) > _SHOWN else []
        total = sum(in_asset - stored for _, stored, in_asset in grown)
        yield Problem(
            f"the asset is {total:,} bytes larger than the weights, because the toolchain computes casts of constants "
            f"when it saves the program: {', '.join([*shown, *rest])}",
            op="coreai.cast",
            advice="the results are right; weights stay small where quantized_decomposed.dequantize_per_channel or "
            "dequantize_per_tensor makes floats of them (docs/quantized-models.md)",
        )


def _weights(module: IRModule) -> dict[str, list[Operation]]:
    """The constants of each weight by its name."""
    found: dict[str, list[Operation]] = {}
    for op in ops_inside(module.op):
        if is_constant(op) and isinstance(value := op.properties["value"], DenseResourceAttr):
            found.setdefault(value.resource_handle.data, []).append(op)
    return found


def _is_folded(op: Operation) -> bool:
    types = (op.operands[0].type, op.results[0].type) if op.name == "coreai.cast" else ()
    return bool(types) and all(isinstance(t, TensorType) and element_name(t.element_type) in _FOLDED for t in types)


def _bytes(op: Operation) -> int:
    type_ = op.results[0].type
    assert isinstance(type_, TensorType)
    return storage_bytes([size or 0 for size in shape_of(type_)], type_.element_type)


DEFECT = Defect(
    name="grown_weights",
    says="The toolchain computes casts of constants when it saves, so that small weights take many bytes.",
    warn=grown_weights,
    met_in=("patterns_catalog/lower/compression.py", "patterns_catalog/optimize/compressed.py"),
    probes="the numbers are right, and only the size of the asset tells",
)
