"""Branches that the toolchain merges: a hazard.

It merges the two branches of a `coreai.if` where they are the same ops, and gives what differs, such as constants and
values from outside, to the one that remains. If a result has a dynamic size, the runtime then takes the values of the
first branch, whatever the condition is. Observed with coreai-core 1.0.0b3.
"""

from __future__ import annotations

from typing import Any

from patcomp.ir.types import TensorType, shape_of
from patcomp.ir.xdsl import Attribute, Operation, Region, ops_inside


def are_merged(branches: Operation) -> bool:
    """Whether the branches of a `coreai.if` with a result of dynamic size are the same ops.

    The toolchain merges more branches than these, because it first inlines composites; the stages do not rely on this.
    """
    first, second = branches.regions
    return has_open_result(branches) and _ops(first) == _ops(second)


def has_open_result(branches: Operation) -> bool:
    """Whether a `coreai.if` has a result of dynamic size."""
    return any(is_open(result.type) for result in branches.results)


def is_open(type_: Attribute) -> bool:
    """Whether a type is a tensor type with a dynamic size."""
    return isinstance(type_, TensorType) and None in shape_of(type_)


def count_ops(branch: Region) -> int:
    """The number of ops of a branch, including nested blocks, without constants."""
    return len(_ops(branch))


def _ops(branch: Region) -> list[Any]:
    ops = (op for op in ops_inside(branch) if op.name != "coreai.constant")
    return [(op.name, op.properties, [result.type for result in op.results]) for op in ops]
