"""Draws programs, judges them and prints a table.

    python -m tests.fuzz --programs 5000 --seed 0 --jobs 2
    python -m tests.fuzz --seed 0 --only 137 --show

Program 137 of seed 0 is the same in every run. A failing program is made smaller and written to the folder of
`--output` as a script of its own.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.fuzz.campaign import Row, campaign
from tests.fuzz.judge import FAILURES, KINDS, REFUSED


def table(rows: list[Row], seconds: float) -> Table:
    """How many programs ended how."""
    counts = Counter(row.outcome.kind for row in rows)
    result = Table(title=f"{len(rows)} programs, {seconds:.0f} s")
    result.add_column("outcome")
    result.add_column("programs", justify="right")
    for kind in KINDS:
        result.add_row(kind, str(counts[kind]), style="red" if kind in FAILURES and counts[kind] else None)
    return result


def main() -> int:
    """Returns 1 if a program failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=200, help="how many programs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the number of the first program")
    parser.add_argument("--only", type=int, nargs="+", metavar="NUMBER", help="only these programs")
    parser.add_argument("--jobs", type=int, default=1, help="processes that judge at the same time")
    parser.add_argument("--output", type=Path, default=Path("out/fuzz"), help="folder for scripts of failures")
    parser.add_argument("--show", action="store_true", help="print the outcome of every program")
    options = parser.parse_args()
    console = Console(width=160, highlight=False)
    numbers = options.only or list(range(options.first, options.first + options.programs))
    started, rows = time.perf_counter(), []
    for row in campaign(options.seed, numbers, options.jobs):
        rows.append(row)
        if len(rows) % 250 == 0:
            console.print(f"{len(rows)} programs, {time.perf_counter() - started:.0f} s")
            console.file.flush()
        if options.show or row.outcome.failed:
            text = f"{options.seed}/{row.number} {row.outcome.kind}: {row.outcome.message[:300]}"
            console.print(text, markup=False)
            console.file.flush()
        if row.script:
            options.output.mkdir(parents=True, exist_ok=True)
            (options.output / f"{options.seed}_{row.number}.py").write_text(row.script)
    console.print(table(rows, time.perf_counter() - started))
    for message, count in Counter(row.outcome.message for row in rows if row.outcome.kind == REFUSED).most_common():
        console.print(f"{count} refused: {message[:300]}", markup=False)
    return int(any(row.outcome.failed for row in rows))


if __name__ == "__main__":
    sys.exit(main())
