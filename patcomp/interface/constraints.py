"""Hardware constraints: the memory layout of an entry point's inputs, outputs and states.

    @main(%x: tensor<4xf32, #coreaix.hw_constraints<MTLBuffer, alignments: [1x1], interleave: [1]>>) -> ...
      %0 = coreaix.copy_discarding_constraints(%x) : ...

The ops inside see plain tensors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain
from typing import Any

from patcomp.ir import coreai
from patcomp.ir.attributes import HardwareConstraintsAttr
from patcomp.ir.builder import Builder
from patcomp.ir.module import IRModule, function_type, names_of
from patcomp.ir.types import HandleType, TensorType, shape_of, tensor
from patcomp.ir.value import Value
from patcomp.ir.xdsl import (
    Attribute,
    Block,
    NoneAttr,
    Operation,
    SSAValue,
    StringAttr,
    ops_inside,
    replace_uses,
    set_name,
)

_TEXT = re.compile(r"#coreaix\.hw_constraints<(\w+, alignments: \[([\dx?]*)\], interleave: \[([\dx?]*)\])>")


def constrain(graph: Operation, constraints: Mapping[str, Any]) -> None:
    """Add hardware constraints to inputs, outputs and states of a graph.

    Args:
        graph: the entry point, changed in place.
        constraints: `coreai.authoring.HardwareConstraints`, or their text, by the name of the tensor.

    Raises:
        ValueError: there is no such tensor, it has constraints already, or they do not fit its rank.
    """
    block = graph.regions[0].block
    output = block.last_op
    assert output is not None
    arguments, results = names_of(graph, "arg_attrs"), names_of(graph, "res_attrs")
    known = dict.fromkeys(name for name in (*arguments, *results) if name is not None)
    if unknown := [name for name in constraints if name not in known]:
        raise ValueError(f"there is no input, output or state {unknown[0]!r}; there are {', '.join(known)}")
    for index, name in enumerate(arguments):
        if name is not None and name in constraints:
            _argument(block, index, _constrained(block.args[index].type, name, constraints[name]))
    for index, name in enumerate(results):
        content = output.operands[index]
        if name is not None and name in constraints and isinstance(content.type, TensorType):
            wanted = _constrained(content.type, name, constraints[name])
            with Builder(block, before=output, location=output.location):
                output.operands[index] = _with_constraints(content, wanted)
    graph.properties["function_type"] = function_type(block)


def has_constraints(module: IRModule) -> bool:
    """Whether a tensor of a program has hardware constraints."""
    ops = [op for graph in module.graphs for op in (graph, *ops_inside(graph))]
    arguments = (value for op in ops for region in op.regions for block in region.blocks for value in block.args)
    types = {value.type for value in chain(arguments, (value for op in ops for value in op.results))}
    tensors = (type_.tensor_type if isinstance(type_, HandleType) else type_ for type_ in types)
    return any(isinstance(each, TensorType) and isinstance(each.encoding, HardwareConstraintsAttr) for each in tensors)


def _constrained(type_: Attribute, name: str, constraints: Any) -> Attribute:
    """The type of a tensor or handle with constraints."""
    if isinstance(type_, HandleType):
        return HandleType(_constrained(type_.tensor_type, name, constraints))
    assert isinstance(type_, TensorType)
    parsed, rank = _TEXT.fullmatch(str(constraints)), len(shape_of(type_))
    if parsed is None:
        raise ValueError(f"{name!r}: expected coreai.authoring.HardwareConstraints, got {constraints!r}")
    text, *lists = parsed.groups()
    lengths = [len(entries.split("x")) if entries else 0 for entries in lists]
    if lengths != [rank + 1, rank]:
        raise ValueError(
            f"{name!r} of rank {rank} needs {rank + 1} alignments and an interleave of {rank}, got {constraints}"
        )
    if not isinstance(type_.encoding, NoneAttr):
        raise ValueError(f"{name!r} has constraints already: {type_}")
    return tensor(shape_of(type_), type_.element_type, HardwareConstraintsAttr(StringAttr(text)))


def _argument(block: Block, index: int, type_: Attribute) -> None:
    """Change the type of an argument; convert it back for its uses."""
    old, top = block.args[index], block.first_op
    assert top is not None
    new = block.insert_arg(type_, index)
    set_name(new, old.name_hint)
    new.location = old.location
    if isinstance(type_, HandleType):
        for use in list(old.uses):
            _handle_use(use.operation, new)
    else:
        with Builder(block, before=top, location=top.location):
            replace_uses(old, _without_constraints(new, old.type))
    block.erase_arg(old)


def _handle_use(op: Operation, handle: SSAValue) -> None:
    """Reads and writes of a handle whose content has constraints."""
    assert isinstance(handle.type, HandleType)
    assert op.parent is not None
    with Builder(op.parent, before=op, location=op.location):
        if op.name == "coreai.write_handle":
            op.operands[1] = _with_constraints(op.operands[1], handle.type.tensor_type)
            op.operands[0] = handle
            return
        assert op.name == "coreai.read_handle"
        content, token = coreai.read_handle(Value(handle), Value(op.operands[1]))
        plain = _without_constraints(content.ssa, op.results[0].type)
    set_name(plain, op.results[0].name_hint)
    for result, value in zip(op.results, (plain, token.ssa), strict=True):
        replace_uses(result, value)
    op.detach()
    op.erase()


def _with_constraints(value: SSAValue, type_: Attribute) -> SSAValue:
    made: SSAValue = coreai.copy_with_constraints(Value(value), result_type=type_).ssa
    return made


def _without_constraints(value: SSAValue, type_: Attribute) -> SSAValue:
    made: SSAValue = coreai.copy_discarding_constraints(Value(value), result_type=type_).ssa
    return made
