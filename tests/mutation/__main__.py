"""Changes the code in small ways, one at a time, and counts the changes that no test of the subject notices.

    python -m tests.mutation                                        # a sample of every room
    python -m tests.mutation narrowing --file ranges --whole        # all mutants of one file
    python -m tests.mutation --again out/mutation.jsonl             # what survived the last time

The rooms are in `rooms.py`. A mutant that is killed takes about 2 seconds; one that survives runs all tests that enter
its function, up to 30 seconds. The sample of all rooms, about 1000 mutants, takes an hour and a half on one core.
`survivors.md` lists survivors that cannot be killed, and why; they are counted apart.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # threads do not survive a fork

from rich.console import Console
from rich.table import Table

from tests.mutation.mutants import Mutant, mutants, sample
from tests.mutation.rooms import ROOMS, ROOT
from tests.mutation.run import LOG, baseline, copied, outcome

EXPLAINED = Path(__file__).with_name("survivors.md")


def explained() -> set[tuple[str, str]]:
    """The file and the key of each survivor that is listed with a reason."""
    rows = re.findall(r"^\| (\S+\.py) \| (.+?) \|[^|]*\|$", EXPLAINED.read_text(), re.MULTILINE)
    return {(file, key.replace("\\|", "|")) for file, key in rows}


def chosen(room: str, options: argparse.Namespace) -> list[tuple[str, Mutant]]:
    """The mutants of a room that are tried."""
    again = _survivors(options.again) if options.again else None
    result = []
    for file in ROOMS[room].paths():
        if options.file and options.file not in file:
            continue
        found = mutants((ROOT / file).read_text())
        if again is not None:
            found = [mutant for mutant in found if (file, mutant.key) in again]
        elif not options.whole:
            found = sample(found, options.sample, options.share, options.seed)
        result += [(file, mutant) for mutant in found]
    return result


def _survivors(path: Path) -> set[tuple[str, str]]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {(row["file"], row["key"]) for row in rows if row["outcome"] != "killed"}


def tried(room: str, options: argparse.Namespace) -> Iterator[dict[str, object]]:
    """Try the mutants of a room, one after the other."""
    found = chosen(room, options)
    if not found:
        return
    with copied() as folder:
        given = tuple(options.tests or ROOMS[room].tests)
        tests = baseline(replace(ROOMS[room], tests=given), folder, runtime=options.runtime)
        unchanged = Mutant("", 0, 0, "", "", 0, 0, 0)
        if outcome(folder, tests, found[0][0], unchanged) != "survived":
            sys.exit(f"{(folder / LOG).read_text()}\n{room}: a test fails without a mutant")
        for file, mutant in found:
            started = time.perf_counter()
            result = outcome(folder, tests, file, mutant)
            row = {"room": room, "file": file, "line": mutant.line, "key": mutant.key, "outcome": result}
            yield row | {"seconds": round(time.perf_counter() - started, 1)}


def table(rows: list[dict[str, object]]) -> Table:
    """By room: how many mutants were tried and killed."""
    known = explained()
    result = Table("room", "mutants", "killed", "survivors", "explained", "killed of the others")
    for room in ROOMS:
        here = [row for row in rows if row["room"] == room]
        if not here:
            continue
        left = [row for row in here if row["outcome"] != "killed"]
        listed = sum((row["file"], row["key"]) in known for row in left)
        counts = [len(here), len(here) - len(left), len(left), listed]
        result.add_row(room, *map(str, counts), f"{counts[1] / max(1, counts[0] - listed):.1%}")
    return result


def main() -> int:
    """Returns 1 if a survivor is not explained."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rooms", nargs="*", metavar="ROOM", help=f"of {', '.join(ROOMS)}; all by default")
    parser.add_argument("--file", help="only files whose path contains this text")
    parser.add_argument("--whole", action="store_true", help="all mutants instead of a sample")
    parser.add_argument("--sample", type=int, default=30, help="how many mutants of a file at least")
    parser.add_argument("--share", type=float, default=0.15, help="which share of a file's mutants at least")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--again", type=Path, metavar="FILE", help="only the survivors of an earlier run's output")
    parser.add_argument(
        "--tests", nargs="+", metavar="FILE", help="only these tests; with --again, the new ones suffice"
    )
    parser.add_argument("--runtime", action="store_true", help="also the tests of the native runtime, which take long")
    parser.add_argument("--output", type=Path, default=Path("out/mutation.jsonl"), help="one line for each mutant")
    options = parser.parse_args()
    if unknown := set(options.rooms) - ROOMS.keys():
        parser.error(f"there is no room {', '.join(sorted(unknown))}")
    options.output = options.output.absolute()
    options.output.parent.mkdir(parents=True, exist_ok=True)
    console = Console(width=180, highlight=False)
    rows: list[dict[str, object]] = []
    with options.output.open("w") as output:
        for room in options.rooms or ROOMS:
            for row in tried(room, options):
                rows.append(row)
                print(json.dumps(row), file=output, flush=True)
                if row["outcome"] != "killed":
                    console.print(f"{row['file']}:{row['line']} {row['key']}: {row['outcome']}", markup=False)
                    console.file.flush()
    console.print(table(rows))
    known = explained()
    return int(any(row["outcome"] != "killed" and (row["file"], row["key"]) not in known for row in rows))


if __name__ == "__main__":
    sys.exit(main())
