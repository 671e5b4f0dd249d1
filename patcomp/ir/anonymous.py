"""Programs that reveal nothing about their source but the names of inputs, outputs, states and graphs."""

from __future__ import annotations

from patcomp.ir.locations import erase_locations
from patcomp.ir.module import IRModule
from patcomp.ir.value import set_name
from patcomp.ir.xdsl import DenseResourceAttr, StringAttr, TensorType


def make_anonymous(module: IRModule) -> None:
    """Forget where the ops of a program come from, and number its values and weights."""
    erase_locations(module.op)
    _number(module)


def _number(module: IRModule) -> None:
    for op in module.op.walk():
        for value in (*op.results, *(each for region in op.regions for block in region.blocks for each in block.args)):
            set_name(value, None)
    names = {key: f"weight_{number}" for number, key in enumerate(module.blobs.keys)}
    module.blobs = module.blobs.renamed(names)
    for op in module.op.walk():
        value = op.properties.get("value")
        if isinstance(value, DenseResourceAttr) and value.resource_handle.data in names:
            assert isinstance(value.type, TensorType)
            op.properties["value"] = DenseResourceAttr(StringAttr(names[value.resource_handle.data]), value.type)


def anonymous(module: IRModule, *, locations: bool = False) -> IRModule:
    """A copy of a program that reveals nothing about its source; with `locations`, only the locations do."""
    copy = module.clone()
    (_number if locations else make_anonymous)(copy)
    return copy
