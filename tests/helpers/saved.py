"""Exported programs as a file keeps them."""

from __future__ import annotations

import io

import torch
from torch.export import ExportedProgram


def loaded(exported: ExportedProgram) -> ExportedProgram:
    """The program after `torch.export.save` and `torch.export.load`: without names of dimensions, guards as text."""
    file = io.BytesIO()
    torch.export.save(exported, file)
    file.seek(0)
    return torch.export.load(file)
