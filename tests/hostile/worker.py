"""The process that runs cases: `python -m tests.hostile.worker TARGET SEED FOLDER`, numbers in, outcomes out.

It limits its own memory. Time is limited by the process that started it.
"""

from __future__ import annotations

import gc
import importlib
import json
import logging
import os
import resource
import sys
import warnings
from pathlib import Path
from random import Random
from typing import Any

from tests.hostile.judge import RAN, Case, Outcome, judge
from tests.hostile.payloads import MARK

ROOM = 3 * 2**30
"""Bytes of address space beyond what a worker has after it is prepared."""
TARGETS = ("texts", "programs", "archives", "assets", "stored", "catalogs", "folders")


def drawn(target: str, seed: int, number: int, prepared: Any) -> Case:
    """A case; the same in every run."""
    module = importlib.import_module(f"tests.hostile.{target}")
    case: Case = module.draw(prepared, Random(f"{target}/{seed}/{number}"))
    return case


def prepared(target: str) -> Any:
    """What the cases of a target start from."""
    return importlib.import_module(f"tests.hostile.{target}").prepare()


def size() -> dict[str, int]:
    """The memory of this process in bytes, and how many files it has open."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {"memory": pages * resource.getpagesize(), "files": len(os.listdir("/proc/self/fd"))}


def main() -> None:
    target, seed, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what code under test prints does not mix with answers
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    ready = prepared(target)
    os.chdir(folder)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, used + ROOM))
    for line in sys.stdin:
        number, measured = json.loads(line)
        case = drawn(target, seed, number, ready)
        outcome = judge(case)
        if Path(MARK).exists():
            Path(MARK).rmdir()
            outcome = Outcome(RAN, "a payload ran", case.what)
        if outcome.is_finding:
            Path(f"{target}-{seed}-{number}.input").write_bytes(case.data)
        answer = {"kind": outcome.kind, "message": outcome.message, "place": outcome.place, "what": case.what}
        print(json.dumps(answer | (size() if measured else {})), file=answers, flush=True)


if __name__ == "__main__":
    main()
