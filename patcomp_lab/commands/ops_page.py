"""The pages of supported ops: the ops that the catalog converts, with measurements on PyTorch's operator samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from patcomp.commands.tables import escaped, markdown_table
from patcomp_lab.commands.pages import Section, page_rows, pages

if TYPE_CHECKING:
    from patcomp.frontend_torch import OpSupport


def ops_pages(ops: Sequence[OpSupport], sweep: Mapping[str, Any]) -> dict[str, str]:
    """The pages docs/generated/supported-ops.md and those that it lists."""
    opening = [
        "Made by `patcomp ops --markdown docs/generated` from the catalog and from a sweep over PyTorch's",
        "own operator samples (`tests/operators/sweep.py`): each is exported, converted, and run on the reference",
        "evaluator and on the Core AI runtime; a sample passes when both agree with eager PyTorch. All samples of",
        "float32 were run, and the first four of the other types. `patcomp ops NAME` prints the row of an op.",
        "",
    ]
    counts = ["operators with samples that export", "pass with every sample"]
    shares = [_share(dtype, share) for dtype, share in sweep.items()]
    opening += markdown_table(["element type", *counts, "samples"], shares, right_aligned=counts)
    table = markdown_table(["op", "how", "element types", "ranks", "limits"], map(_support, ops))
    head, entries = page_rows(table, [f"`{item.op}`" for item in ops])
    shapes = ["Shapes are static. Types and ranks are those that samples showed.", ""]
    others = [
        (dtype, name, str(passed), _cell(reasons))
        for dtype, share in sweep.items()
        for name, (passed, *reasons) in share["others"].items()
    ]
    table = markdown_table(["element type", "operator", "samples that pass", "reasons"], others)
    failing_head, failing = page_rows(table, [f"{name} of {dtype}" for dtype, name, *_ in others])
    sections = [
        Section("", "Ops that convert", "op", [*shapes, *head], entries),
        Section("others", "Operators that do not pass fully", "operator", failing_head, failing),
    ]
    return pages("supported-ops", "Supported ops", opening, sections)


def _share(dtype: str, share: Mapping[str, Any]) -> Sequence[str]:
    samples = ", ".join(f"{number} {kind}" for kind, number in share["samples"].items())
    percent = 100 * share["passed"] / share["operators"]
    return dtype, str(share["operators"]), f"{share['passed']} ({percent:.1f} %)", samples


def _support(op: OpSupport) -> Sequence[str]:
    return f"`{op.op}`", ", ".join(op.how), ", ".join(op.dtypes), ranks_text(op.ranks), _cell(op.limits)


def ranks_text(ranks: Sequence[int]) -> str:
    """`1 to 4`, or the ranks one by one."""
    if len(ranks) > 2 and list(ranks) == list(range(ranks[0], ranks[-1] + 1)):
        return f"{ranks[0]} to {ranks[-1]}"
    return ", ".join(map(str, ranks))


def _cell(texts: Sequence[str]) -> str:
    return escaped(" ".join("; ".join(texts).split())).replace("<", "\\<")
