"""Programs in reports: the text of the final program is part of each report, so that reports can be compared."""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path
from typing import Any

from patcomp.errors import PatcompError, reason_of
from patcomp.ir.locations import UNKNOWN, Origin, joined, origin_location
from patcomp.ir.module import IRModule
from patcomp.ir.xdsl import LocationAttr, ops_inside

_DATA = re.compile(r'<script id="data" type="application/json">(.*?)</script>', re.DOTALL)
_MOST_BYTES = 1 << 30
"""The longest text that is unpacked: a small file could fill the memory."""


def packed_text(module: IRModule) -> str:
    """The text of a program, compressed, as a report has it."""
    return base64.b64encode(zlib.compress(module.text().encode(), 9)).decode()


def program_in(report: Path) -> IRModule:
    """The final program of a report, with the places in the model that its ops come from, and without weights.

    Raises:
        PatcompError: the file is no report of one program, or it is damaged.
        OSError: the file cannot be read.
    """
    if not report.is_file():
        raise FileNotFoundError(f"there is no file {report}")
    try:
        found = _DATA.search(report.read_text(encoding="utf-8"))
        data = json.loads(found[1]) if found else {}
        packed = data.get("program") if isinstance(data, dict) else None
        if not isinstance(packed, str):
            raise PatcompError(f"{report} is no report of a program; patcomp convert MODEL --html FILE writes one")
        unpacking = zlib.decompressobj()
        text = unpacking.decompress(base64.b64decode(packed), _MOST_BYTES)
        if not unpacking.eof:
            raise PatcompError(f"the text in {report} is cut off, or longer than {_MOST_BYTES:,} bytes")
        module = IRModule.parse(text.decode())
        _place(module, data)
    except (ValueError, LookupError, TypeError, RecursionError, zlib.error) as error:
        raise PatcompError(f"{report} is no report that patcomp wrote, or is damaged: {reason_of(error)}") from error
    return module


def _place(module: IRModule, data: dict[str, Any]) -> None:
    """Give the ops of a program their places in the model, as the tables of the report have them."""
    texts, places = data["texts"], data["places"]
    known: dict[int, dict[LocationAttr, None]] = {}

    def origins(number: int) -> dict[LocationAttr, None]:
        if number not in known:
            known[number] = {}
            name, *parts = places[number] or [""]
            if name is None:
                node, path, source = (texts[part] for part in parts)
                file, _, line = source.rpartition(":")
                known[number] = {origin_location(Origin(node, path, file, int(line or 0))): None} if node else {}
            else:
                known[number] = {origin: None for part in parts for origin in origins(part)}
        return known[number]

    for graph, shown in zip(module.graphs, data["stages"][-1]["graphs"], strict=True):
        for op, number in zip(ops_inside(graph), shown["ops"]["place"], strict=True):
            op.location = joined(list(origins(number))) if origins(number) else UNKNOWN
