"""The ops that the user keeps in float32, by the module or the FX node that they come from."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from fnmatch import fnmatchcase

from patcomp.errors import UnknownNameError, near_names
from patcomp.ir.constants import is_constant
from patcomp.ir.coreai_op import CoreaiOp
from patcomp.ir.locations import Origin, origins
from patcomp.ir.module import IRModule
from patcomp.ir.region import RegionOp
from patcomp.ir.types import TensorType
from patcomp.ir.xdsl import Operation, ops_inside


def kept_ops(module: IRModule, names: Collection[str]) -> list[Operation]:
    """The ops of a program that come from some modules or FX nodes.

    Args:
        module: a program in which composites are regions.
        names: paths of modules, `layers.3` or `layers.*.norm`, and FX nodes, `mul_7` or `%mul_7`.

    Raises:
        UnknownNameError: no op comes from one of them.
    """
    if not names:
        return []
    found, unused, places = [], set(names), set[Origin]()
    for graph in module.entry_graphs:
        for op in _units(graph):
            own = {place for each in (op, *_inner(op)) for place in origins(each.location)}
            places |= own
            if matching := {name for name in names if any(_names(name, place) for place in own)}:
                unused -= matching
                found += [op] * _can_widen(op)
    if unused:
        known = {place.module_path for place in places} | {place.node for place in places}
        name = sorted(unused)[0]
        raise UnknownNameError(
            f"no op of the program comes from {name!r}, which is to stay in float32; modules and FX nodes are "
            f"{near_names(name, sorted(filter(None, known)))}"
        )
    return found


def _names(name: str, place: Origin) -> bool:
    """Whether a module's path, or a pattern of paths, or an FX node is where an op comes from."""
    parts = place.module_path.split(".")
    paths = (".".join(parts[:end]) for end in range(1, len(parts) + 1))
    return name.removeprefix("%") == place.node or any(path and fnmatchcase(path, name) for path in paths)


def _units(scope: Operation) -> Iterator[Operation]:
    """The ops that are kept or not: composites whole, and of branches and loops the ops inside."""
    for region in scope.regions:
        for block in region.blocks:
            for op in block.ops:
                yield op
                if type(op) is not RegionOp:
                    yield from _units(op)


def _inner(op: Operation) -> list[Operation]:
    return ops_inside(op) if type(op) is RegionOp else []


def _can_widen(op: Operation) -> bool:
    """Whether an op computes floats, in whichever type they are."""
    if type(op) is RegionOp:
        return True
    types = [value.type for value in (*op.operands, *op.results)]
    return (
        isinstance(op, CoreaiOp)
        and not op.regions
        and not is_constant(op)
        and bool(op.results)
        and all(isinstance(type_, TensorType) for type_ in types)
        and op.name != "coreai.metal4_kernel"
    )
