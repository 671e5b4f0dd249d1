"""What a sweep found, as the data behind `patcomp.supports`, `patcomp ops` and docs/generated/supported-ops.md.

python -m tests.operators.sweep --dtype float32 int64 --output sweep.jsonl
python -m tests.operators.table sweep.jsonl && patcomp ops --markdown docs/generated
"""

from __future__ import annotations

import argparse
import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from patcomp.frontend_torch.support import MEASURED

_NUMBERS = re.compile(r"(?<![\w.])-?\d[\d.]*(?![\w.])")


def measured(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The table: for each op the element types, ranks and refusals that the samples showed; for each type the share."""
    ops: defaultdict[str, dict[str, set[Any]]] = defaultdict(lambda: {"dtypes": set(), "ranks": set(), "limits": set()})
    sweep: dict[str, Any] = {}
    for row in rows:
        for op, ranks in row["ops"].items():
            ops[op]["dtypes"].add(row["dtype"])
            ops[op]["ranks"].update(ranks)
        for op, reasons in row["refused"].items():
            ops[op]["limits"].update(_NUMBERS.sub("N", reason) for reason in reasons if op)
        counted = {kind: number for kind, number in row["counts"].items() if kind != "not exported"}
        if counted:
            share = sweep.setdefault(row["dtype"], {"operators": 0, "passed": 0, "samples": {}, "others": {}})
            share["operators"] += 1
            share["passed"] += set(counted) == {"pass"}
            for kind, number in row["counts"].items():
                share["samples"][kind] = share["samples"].get(kind, 0) + number
            if set(counted) != {"pass"}:
                reasons = sorted({message for kind, _, message in row["failures"] if kind != "not exported"})
                share["others"][row["op"]] = [f"{counted.get('pass', 0)} of {sum(counted.values())}", *reasons[:2]]
    listed = {op: {name: sorted(values) for name, values in found.items()} for op, found in sorted(ops.items()) if op}
    return {"ops": listed, "sweep": {dtype: _sorted(share) for dtype, share in sweep.items()}}


def _sorted(share: dict[str, Any]) -> dict[str, Any]:
    return {name: dict(sorted(value.items())) if isinstance(value, dict) else value for name, value in share.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, help="what the sweep wrote; later rows replace earlier ones")
    rows = {}
    for file in parser.parse_args().files:
        for line in file.read_text().splitlines():
            row = json.loads(line)
            rows[row["dtype"], row["op"]] = row
    table = measured([rows[key] for key in sorted(rows)])
    MEASURED.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
