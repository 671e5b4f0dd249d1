"""Executable examples of the dialect's ops, and what coreai-core 1.0.0b3 does with each on Linux.

for case in CASES:
    module = IRModule.parse(case.text)

`outcome` is `ok`, or the stage that fails: `parse`, `save`, `compile`, `run`, or `crash` (the process dies).
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class DialectCase:
    """One small program around one op, in MLIR's generic form."""

    id: str
    op: str
    outcome: str
    text: str

    @property
    def is_readable(self) -> bool:
        """Whether the case holds only ops that patcomp has; `debuginfo` and `udml` it has not."""
        return "debuginfo." not in self.text and "udml." not in self.text


_FILE = Path(__file__).parents[1] / "data" / "dialect_cases.json.gz"

CASES = [DialectCase(**case) for case in json.loads(gzip.decompress(_FILE.read_bytes()))]
READABLE = [case for case in CASES if case.is_readable]
