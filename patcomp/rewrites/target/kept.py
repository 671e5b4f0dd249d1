"""Keep ops in float32 in a program of half precision; the user names them by module or FX node.

A kept op computes in float32: its operands are cast to float32, and its results back, unless another kept op reads
them. So a number that half precision cannot hold may pass from one kept op to the next. A composite is kept whole.
Weights that the model has in half precision stay so, and are cast where a kept op reads them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from patcomp.ir import coreai
from patcomp.ir.builder import Builder
from patcomp.ir.constants import attribute_values, constant_attribute, is_constant
from patcomp.ir.dialect import create_op
from patcomp.ir.kept import kept_ops
from patcomp.ir.locations import fused
from patcomp.ir.module import IRModule
from patcomp.ir.region import RegionOp
from patcomp.ir.shared_bodies import named_copy
from patcomp.ir.types import TensorType, element_name, element_type, tensor
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Attribute, Block, Operation, SSAValue, set_type

NAME = "keep float32"

_NARROW = frozenset({"f16", "bf16"})


def keep_float32(module: IRModule, names: Collection[str]) -> int:
    """Let the ops from some modules or FX nodes compute in float32. Return how many ops changed.

    Args, raises:
        As `kept_ops`.
    """
    kept = kept_ops(module, names)
    narrow: dict[SSAValue, Attribute] = {value: value.type for op in kept for value in op.results if _is_narrow(value)}
    changed = [op for op in kept if any(map(_is_narrow, (*op.operands, *op.results)))]
    for value in narrow:
        _widen(value)
    own_bodies(module, changed)
    for op in changed:
        _widen_body(op, module)
    cast_at_borders(module, kept, narrow)
    return len(changed)


def cast_at_borders(module: IRModule, kept: Collection[Operation], narrow: Mapping[SSAValue, Attribute]) -> None:
    """Cast the operands of kept ops to float32, and cast their results to half precision for other readers.

    Args:
        module: the program.
        kept: the ops, whose results are in float32 already.
        narrow: the types in which others read results of theirs.
    """
    inside = set(kept)
    for value, type_ in narrow.items():
        readers = [use for use in list(value.uses) if use.operation not in inside]
        if readers:
            maker = value.owner
            assert isinstance(maker, Operation)
            assert isinstance(type_, TensorType)
            made = _cast(value, element_name(type_.element_type), maker.next_op, maker, module)
            for use in readers:
                use.operation.operands[use.index] = made
    for op in kept:
        for index, operand in enumerate(op.operands):
            if _is_narrow(operand):
                op.operands[index] = _cast(operand, "f32", op, op, module)


def _cast(value: SSAValue, element: str, before: Operation | None, source: Operation, module: IRModule) -> SSAValue:
    assert source.parent is not None
    with Builder(source.parent, before=before, blobs=module.blobs, location=fused(NAME, [source])):
        return coreai.cast(Value(value), element).ssa


def _is_narrow(value: SSAValue) -> bool:
    return isinstance(value.type, TensorType) and element_name(value.type.element_type) in _NARROW


def _widen(value: SSAValue) -> None:
    assert isinstance(value.type, TensorType)
    set_type(value, tensor(value.type.get_shape(), "f32"))


def own_bodies(module: IRModule, kept: Collection[Operation]) -> None:
    """Give composites among some ops bodies of their own, which other calls do not share."""
    for region in kept:
        if type(region) is not RegionOp or region.graph is None:
            continue
        body = named_copy(module.graph(region.graph.string_value()).regions[0])
        del region.properties["graph"]
        output = body.block.last_op
        assert output is not None
        body.block.insert_op_before(create_op("coreai.yield", list(output.operands), ()), output)
        output.detach()
        output.erase()
        region.add_region(body)


def _widen_body(region: Operation, module: IRModule) -> None:
    """Let the body of a composite compute in float32."""
    for block in _blocks(region):
        for argument in filter(_is_narrow, block.args):
            _widen(argument)
        for op in block.ops:
            narrow = [value for value in op.results if _is_narrow(value)]
            if narrow and is_constant(op):
                values = attribute_values(op.properties["value"], module.blobs)
                assert values is not None
                op.properties["value"] = constant_attribute(values.astype("float32"), element_type("f32"), module.blobs)
            for value in narrow:
                _widen(value)


def _blocks(scope: Operation) -> Iterator[Block]:
    for region in scope.regions:
        for block in region.blocks:
            yield block
            for op in block.ops:
                yield from _blocks(op)
