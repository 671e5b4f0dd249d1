"""Store prepared weights: a weight that a program moves, casts or joins is stored in the form in which it is read.

A large prepared weight is at most as large as the weights that it is made of. It is written to a file that is mapped
into memory, one weight at a time, so that a conversion does not hold all of them.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

import numpy as np

from patcomp.ir.blobs import BlobStore
from patcomp.ir.builder import Builder
from patcomp.ir.cleanup import is_removable
from patcomp.ir.constants import constant_attribute, is_constant
from patcomp.ir.coreai_op import CoreaiOp
from patcomp.ir.dialect import create_op
from patcomp.ir.locations import fused
from patcomp.ir.mapped import mapped
from patcomp.ir.module import IRModule
from patcomp.ir.pages import release
from patcomp.ir.traits import Unfolded
from patcomp.ir.types import TensorType, static_shape, storage_bytes
from patcomp.ir.weights import is_compressed_type
from patcomp.ir.xdsl import Attribute, DenseResourceAttr, Operation, SSAValue, maker_of, ops_inside, replace_uses
from patcomp.rewrites.folding import can_be_stored

_SMALL = 2**20
"""A prepared weight of at most this many bytes may be larger than the weights that it is made of, such as a table of
relative positions."""

_NAME = "store prepared weights"


def store_prepared_weights(module: IRModule, once: bool = False) -> int:
    """Compute the values that depend on weights alone, if a value is not larger than its weights. Return how many ops
    went.

    Ops that unpack a compressed weight stay, and ops on weights without values stay, too. With `once`, a large weight
    that other ops read as it is, such as a table of embeddings that is also the head, is not stored transposed, too.
    """
    stored: dict[object, list[Attribute]] = {}
    gone = 0
    prepared = {graph: _prepared(graph, module.blobs) for graph in module.graphs}
    if once:
        shared = _read_as_they_are(module, {op for leaves in prepared.values() for op in leaves})
        for leaves in prepared.values():
            for op in [op for op, sources in leaves.items() if _is_copy(op) and sources & shared]:
                del leaves[op]
    for leaves in prepared.values():
        for op in leaves:
            if all(use.operation in leaves for result in op.results for use in result.uses):
                continue
            key = _key(op)
            if key not in stored:
                stored[key] = _stored(op, module, leaves[op])
            assert op.parent is not None
            builder = Builder(op.parent, before=op, blobs=module.blobs, location=fused(_NAME, [op]))
            for result, attribute in zip(op.results, stored[key], strict=True):
                made = builder.insert(create_op("coreai.constant", (), [result.type], {"value": attribute})).results[0]
                replace_uses(result, made)
        for op in reversed(leaves):
            assert op.parent is not None
            op.parent.erase_op(op)
        gone += len(leaves)
    return gone


def _prepared(graph: Operation, blobs: BlobStore) -> dict[Operation, frozenset[Attribute]]:
    """The ops of a graph that are computed from weights alone, with the weights."""
    leaves: dict[Operation, frozenset[Attribute]] = {}
    for op in ops_inside(graph):
        if (found := _leaves(op, leaves, blobs)) is not None:
            leaves[op] = found
    return leaves


def _read_as_they_are(module: IRModule, leaves: Container[Operation]) -> set[Attribute]:
    """The large weights that are read by an op outside of `leaves` (the ops computed from weights alone)."""
    return {
        op.properties["value"]
        for graph in module.graphs
        for op in ops_inside(graph)
        if is_constant(op)
        and _bytes(op.result_types) > _SMALL  # the order of a transpose is a constant, too
        and any(use.operation not in leaves for use in op.results[0].uses)
    }


def _is_copy(op: Operation) -> bool:
    """Whether an op makes a large copy of a weight that differs in the order of its elements only."""
    return op.name == "coreai.transpose" and _bytes(op.result_types) > _SMALL


def _leaves(
    op: Operation, known: dict[Operation, frozenset[Attribute]], blobs: BlobStore
) -> frozenset[Attribute] | None:
    """The constants that an op is computed from; None if it is not computed from a weight, or should not be stored."""
    if not isinstance(op, CoreaiOp) or op.has_trait(Unfolded) or op.regions or not op.operands or not is_removable(op):
        return None
    if op.name == "coreai.cast" and is_compressed_type(op.operands[0].type):
        return None  # the optimize stage keeps these weights small
    found: set[Attribute] = set()
    for operand in op.operands:
        maker = operand.owner
        if not isinstance(maker, Operation):
            return None
        if maker in known:
            found |= known[maker]
        elif is_constant(maker):
            found.add(maker.properties["value"])
        else:
            return None
    weights = [each for each in found if isinstance(each, DenseResourceAttr)]
    if not weights or any(each.resource_handle.data not in blobs for each in weights):
        return None
    if not all(map(can_be_stored, op.results)):
        return None
    size = _bytes(result.type for result in op.results)
    return frozenset(found) if size <= max(_SMALL, _bytes(weight.type for weight in weights)) else None


def _bytes(types: Iterable[Attribute]) -> int:
    total = 0
    for type_ in types:
        assert isinstance(type_, TensorType)
        total += storage_bytes(static_shape(type_), type_.element_type)
    return total


def _key(op: Operation) -> object:
    """What equal computations of weights have in common."""
    operands = []
    for operand in op.operands:
        maker = operand.owner
        assert isinstance(maker, Operation)
        operands.append(maker.properties["value"] if is_constant(maker) else (_key(maker), operand.index))  # type: ignore[attr-defined]
    return op.name, tuple(operands), tuple(sorted(op.properties.items())), tuple(op.result_types)


def _stored(op: Operation, module: IRModule, sources: Iterable[Attribute]) -> list[Attribute]:
    """The attributes of constants with the results of an op, which is computed from others."""
    attributes: list[Attribute] = []
    for result, array in zip(op.results, _computed(op, module), strict=True):
        assert isinstance(result.type, TensorType)
        attributes.append(
            constant_attribute(_kept(array, module.blobs), result.type.element_type, module.blobs, _weight_name(op))
        )
    keys = [each.resource_handle.data for each in [*sources, *attributes] if isinstance(each, DenseResourceAttr)]
    release(module.blobs[key].data for key in keys)
    return attributes


def _computed(op: Operation, module: IRModule) -> list[np.ndarray]:
    """The results of an op. The values from which its operands are computed are not kept."""
    from patcomp.evaluate.folding import evaluate_op  # needs PyTorch

    known: dict[SSAValue, np.ndarray] = {}
    for operand in op.operands:
        maker = maker_of(operand)
        assert maker is not None
        if not is_constant(maker):
            known.update(zip(maker.results, _computed(maker, module), strict=True))
    return evaluate_op(op, module, known, views=True)


def _kept(array: np.ndarray, blobs: BlobStore) -> np.ndarray:
    """The array itself where it is a view of a weight, else a copy in a file that is mapped into memory."""
    from patcomp.evaluate.folding import copy_elements  # needs PyTorch

    weights = (np.frombuffer(blob.data, np.uint8) for blob in blobs)
    if array.flags["C_CONTIGUOUS"] and any(np.may_share_memory(array, weight) for weight in weights):
        return array
    made = mapped(array.shape, array.dtype)
    if array.dtype.itemsize <= 8:
        copy_elements(array, made)
    else:  # complex numbers
        made[...] = array
    return made


def _weight_name(op: Operation) -> str:
    """The name of the first weight that an op is computed from."""
    for operand in op.operands:
        maker = operand.owner
        assert isinstance(maker, Operation)
        value = maker.properties.get("value") if is_constant(maker) else None
        if isinstance(value, DenseResourceAttr):
            return value.resource_handle.data
        if not is_constant(maker) and (name := _weight_name(maker)):
            return name
    return ""
