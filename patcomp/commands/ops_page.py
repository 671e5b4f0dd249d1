"""The page of supported ops: the ops that the catalog converts, with measurements on PyTorch's operator samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from patcomp.commands.tables import escaped, markdown_table

if TYPE_CHECKING:
    from patcomp.frontend_torch import OpSupport


def ops_page(ops: Sequence[OpSupport], sweep: Mapping[str, Any]) -> str:
    """The page docs/generated/supported-ops.md."""
    lines = [
        "# Supported ops",
        "",
        "Made by `patcomp ops --markdown > docs/generated/supported-ops.md` from the catalog and from a sweep "
        "over PyTorch's",
        "own operator samples (`tests/operators/sweep.py`): each is exported, converted, and run on the reference",
        "evaluator and on the Core AI runtime; a sample passes when both agree with eager PyTorch.",
        "",
        "## Operators of PyTorch's sample database",
        "",
        "All samples of float32 were run, and the first four of the other types.",
        "",
    ]
    counts = ["operators with samples that export", "pass with every sample"]
    shares = [_share(dtype, share) for dtype, share in sweep.items()]
    lines += markdown_table(["element type", *counts, "samples"], shares, right_aligned=counts)
    lines += ["", f"## {len(ops)} ops", "", "Shapes are static. Types and ranks are those that samples showed.", ""]
    lines += markdown_table(["op", "how", "element types", "ranks", "limits"], map(_support, ops))
    lines += ["", "## Operators that do not pass fully", ""]
    for dtype, share in sweep.items():
        rows = [(name, str(passed), _cell(reasons)) for name, (passed, *reasons) in share["others"].items()]
        lines += [f"### {dtype}", "", *markdown_table(["operator", "samples that pass", "reasons"], rows), ""]
    return "\n".join(lines).rstrip()


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
