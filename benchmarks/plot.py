"""The plot of the suite's ratios."""

from __future__ import annotations

from pathlib import Path
from statistics import median

from matplotlib import rcParams
from matplotlib.figure import Figure

rcParams["svg.fonttype"] = "none"  # text stays text, and the file stays small
rcParams["svg.hashsalt"] = "patcomp"  # the same ratios make the same file


def plot(ratios: dict[str, dict[str, list[float]]], path: Path) -> None:
    """Write a row for each model: for each comparison the median of the ratios as a dot, their range as a line."""
    figure = Figure(figsize=(8, 1 + 0.4 * len(ratios)), layout="constrained")
    axes = figure.subplots()
    for place, comparison in enumerate(next(iter(ratios.values()), {})):
        rows = [(row, compared[comparison]) for row, compared in enumerate(ratios.values()) if compared[comparison]]
        heights = [row + 0.2 * (place - 1) for row, _ in rows]
        line = axes.hlines(
            heights, [min(found) for _, found in rows], [max(found) for _, found in rows], color=f"C{place}"
        )
        axes.plot([median(found) for _, found in rows], heights, "o", color=line.get_color()[0], label=comparison)
    axes.axvline(1, color="gray", linewidth=1)
    axes.set_yticks(range(len(ratios)), list(ratios))
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.set_xlabel("CPU time of patcomp by that of coreai-torch: median and range")
    if any(any(compared.values()) for compared in ratios.values()):
        axes.legend()
    figure.savefig(path, metadata={"Date": None})
