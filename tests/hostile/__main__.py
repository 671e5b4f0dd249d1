"""Breaks inputs for some minutes and prints how the cases ended.

    python -m tests.hostile --minutes 60 --seed 0 --output out/hostile
    python -m tests.hostile --seed 0 --targets texts --only 137

Case 137 of seed 0 is the same in every run. The inputs of findings are written to the folder of `--output`.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import time
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.hostile.campaign import Watched
from tests.hostile.judge import FINDINGS, KINDS, RAN
from tests.hostile.worker import TARGETS, drawn, prepared

SLICE = 20.0
"""Seconds that a target has before it is the next one's turn."""
TABLE_EVERY = 300.0
"""Seconds between two tables of a running campaign."""


def table(workers: list[Watched], seconds: float) -> Table:
    """How many cases ended how, and what the workers used."""
    kinds = [kind for kind in KINDS if kind != RAN or any(worker.kinds[kind] for worker in workers)]
    result = Table(title=f"{sum(worker.number for worker in workers)} cases, {seconds / 60:.1f} minutes")
    for column in ("target", "cases", *kinds, "slowest s", "processes", "MB early", "MB late", "files early", "late"):
        result.add_column(column, justify="left" if column == "target" else "right")
    for worker in workers:
        sizes = worker.sizes or [(0, 0, 0)]
        early, late = sizes[len(sizes) // 4], sizes[-1]
        result.add_row(
            worker.target, str(worker.number), *(str(worker.kinds[kind]) for kind in kinds),
            f"{worker.slowest[0]:.1f} (#{worker.slowest[1]})", str(worker.starts),
            f"{early[1] / 2**20:.0f} (#{early[0]})", f"{late[1] / 2**20:.0f} (#{late[0]})", str(early[2]), str(late[2]),
        )  # fmt: skip
    return result


def main() -> int:
    """Returns 1 if there is a finding."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--only", type=int, help="run this case of the first target here, with its traceback")
    parser.add_argument("--output", type=Path, default=Path("out/hostile"), help="folder for the inputs of findings")
    options = parser.parse_args()
    console = Console(width=200, highlight=False)
    if options.only is not None:
        case = drawn(options.targets[0], options.seed, options.only, prepared(options.targets[0]))
        console.print(case.what, case.data[:4000].decode(errors="replace"), sep="\n", markup=False)
        case.run()
        return 0
    folder = options.output.absolute()
    workers = [Watched(target, options.seed, folder) for target in options.targets]
    started = shown = time.monotonic()
    seen = Counter[tuple[str, str, str]]()
    end = started + options.minutes * 60
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt):  # a campaign that is stopped has figures, too
        while time.monotonic() < end:
            for worker in workers:
                for number, outcome in worker.cases(min(SLICE, end - time.monotonic())):
                    seen[key := (worker.target, outcome.kind, outcome.place)] += 1
                    if seen[key] == 1:  # others are probably the same defect
                        message = f"{worker.target} {number} {outcome.kind}: {outcome.message} [{outcome.place}]"
                        console.print(message, markup=False)
                        console.file.flush()
            if time.monotonic() - shown > TABLE_EVERY:
                shown = time.monotonic()
                console.print(table(workers, shown - started))
                console.file.flush()
    console.print(table(workers, time.monotonic() - started))
    for (target, kind, place), count in seen.most_common():
        console.print(f"{count} x {target}: {kind} at {place}", markup=False)
    for worker in workers:
        worker.close()
    return int(any(worker.kinds[kind] for worker in workers for kind in FINDINGS))


if __name__ == "__main__":
    sys.exit(main())
