"""The page of supported ops: the ops that the catalog takes, with measurements on PyTorch's operator samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from patcomp.frontend_torch import OpSupport


def ops_page(ops: Sequence[OpSupport], sweep: Mapping[str, Any]) -> str:
    """The page docs/supported-ops.md."""
    lines = [
        "# Supported ops",
        "",
        "Made by `patcomp ops --markdown > docs/supported-ops.md` from the catalog and from a sweep over PyTorch's",
        "own operator samples (`tests/operators/sweep.py`): each is exported, converted, and run on the reference",
        "evaluator and on the Core AI runtime; a sample passes when both agree with eager PyTorch.",
        "",
        "## Operators of PyTorch's sample database",
        "",
        "| element type | operators with samples that export | pass with every sample | samples |",
        "|---|---:|---:|---|",
    ]
    for dtype, share in sweep.items():
        samples = ", ".join(f"{number} {kind}" for kind, number in share["samples"].items())
        percent = 100 * share["passed"] / share["operators"]
        lines.append(f"| {dtype} | {share['operators']} | {share['passed']} ({percent:.1f} %) | {samples} |")
    lines += ["", f"## {len(ops)} ops", "", "Shapes are static. Types and ranks are those that samples showed.", ""]
    lines += ["| op | how | element types | ranks | limits |", "|---|---|---|---|---|"]
    for support in ops:
        cells = [f"`{support.op}`", ", ".join(support.how), ", ".join(support.dtypes), ranks_text(support.ranks)]
        lines.append("| " + " | ".join([*cells, _escaped("; ".join(support.limits))]) + " |")
    lines += ["", "## Operators that do not pass fully", ""]
    for dtype, share in sweep.items():
        lines += [f"### {dtype}", "", "| operator | samples that pass | reasons |", "|---|---|---|"]
        for name, (passed, *reasons) in share["others"].items():
            lines.append(f"| {name} | {passed} | {_escaped('; '.join(reasons))} |")
        lines.append("")
    return "\n".join(lines).rstrip()


def ranks_text(ranks: Sequence[int]) -> str:
    """`1 to 4`, or the ranks one by one."""
    if len(ranks) > 2 and list(ranks) == list(range(ranks[0], ranks[-1] + 1)):
        return f"{ranks[0]} to {ranks[-1]}"
    return ", ".join(map(str, ranks))


def _escaped(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "\\<").replace("*", "\\*")
