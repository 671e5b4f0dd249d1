"""Run an asset whose tensors have hardware constraints on a system that cannot lay tensors out as they say."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from patcomp.emit.asset import Asset, toolchain

_CONSTRAINTS = re.compile(r", #coreaix\.hw_constraints<[^>]*>")
_COPY = re.compile(r'"coreaix\.copy_(?:with|discarding)_constraints"')


def is_constrained(asset: Asset) -> bool:
    """Whether tensors of an asset have hardware constraints."""
    operation = asset.program._module._mlir_module.operation
    return bool(_CONSTRAINTS.search(operation.get_asm(print_generic_op_form=True, large_resource_limit=0)))


@contextmanager
def unconstrained(asset: Asset) -> Iterator[Asset]:
    """The asset, or a copy of it in a temporary folder without its hardware constraints, if it has any.

    The copy computes the same. The text of the program with all its weights is in memory meanwhile.
    """
    if not is_constrained(asset):
        yield asset
        return
    tools = toolchain()
    text = _CONSTRAINTS.sub("", asset.program._module._mlir_module.operation.get_asm(print_generic_op_form=True))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "program.aimodel")
        with tools.Context()._mlir_context:
            # between equal types, a cast is the copy
            parsed = tools.ir.Module.parse(_COPY.sub('"coreai.cast"', text))
            tools.AIProgram._from_mlir_module(parsed).save_asset(path, None)
        copy = Asset.load(path)
        try:
            yield copy
        finally:
            copy.close()
