"""The ways by which an exported program may come to the converter, and the batches that may be open."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.export import Dim, ExportedProgram

from patcomp import get_decomp_table


def loaded(exported: ExportedProgram) -> ExportedProgram:
    """The program after `torch.export.save` and `torch.export.load`: without names of dimensions, guards as text."""
    file = io.BytesIO()
    torch.export.save(exported, file)
    file.seek(0)
    return torch.export.load(file)


WAYS: Mapping[str, Callable[[ExportedProgram], ExportedProgram]] = {
    "as exported": lambda exported: exported,
    "saved": loaded,
    "decomposed": lambda exported: exported.run_decompositions(get_decomp_table()),
}

BATCHES: Mapping[str, Callable[[], Any]] = {
    "from 1": lambda: Dim("batch", min=1, max=64),
    "from 2": lambda: Dim("batch", min=2),
    "Dim.AUTO": lambda: Dim.AUTO,
}
"""An open batch may begin at 1 or at 2, or PyTorch decides."""
