"""Weights that stand at multiples of a large number: the writer puts them at multiples of 16 bytes."""

from __future__ import annotations

from patcomp.defects.defect import Defect

DEFECT = Defect(
    name="weight_alignment",
    says="The loader reads behind the end of a file whose weights are aligned to more than 16 bytes.",
    met_in=("patcomp/emit/asset.py",),
    probes="no toolchain writes such an asset",
)
