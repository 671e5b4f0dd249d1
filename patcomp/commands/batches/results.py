"""The files of a batch's results: JSON, JUnit's XML, a table, and a page."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from patcomp.commands.batches.jobs import INTERRUPTED, BatchResult
from patcomp.commands.batches.page import page
from patcomp.commands.common import ANSWER_IS_NO
from patcomp.commands.pages import is_best

_NOT_IN_XML = re.compile(r"\x1b\[[0-9;]*m|[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_results(folder: Path, results: Sequence[BatchResult]) -> None:
    """Write the results as `results.json`, `junit.xml`, `index.html`, `results.csv`, and as `results.parquet` where
    pyarrow is installed. Each file takes its place at once.

    Raises:
        OSError: a file cannot be written.
    """
    best = pareto(results)
    rows = [result_row(result, result.name in best) for result in results]
    with _replacing(folder / "results.json") as draft:
        draft.write_text(json.dumps([result.to_dict() for result in results], indent=2) + "\n")
    with _replacing(folder / "junit.xml") as draft:
        draft.write_text(junit(results))
    with _replacing(folder / "results.csv") as draft:
        draft.write_text(_csv(rows))
    if importlib.util.find_spec("pyarrow") is not None:
        from pyarrow import Table, parquet

        with _replacing(folder / "results.parquet") as draft:
            parquet.write_table(Table.from_pylist(rows), draft)
    with _replacing(folder / "index.html") as draft:
        draft.write_text(page(results, rows))


def result_row(result: BatchResult, is_best: bool) -> dict[str, Any]:
    """A result as a row of plain values; a column for each choice of the matrix."""
    data = result.data or {}
    return {
        "name": result.name,
        "model": result.model,
        **result.choices,
        "result": result.verdict,
        "seconds": result.seconds,
        "bytes": result.bytes,
        "ops": data.get("ops"),
        "loss": result.loss,
        "problems": result.problems,
        "best": is_best,
        "written": data.get("asset") or data.get("bundle") or data.get("text"),
        "reason": result.reason,
    }


def pareto(results: Sequence[BatchResult]) -> Collection[str]:
    """The names of the conversions that no other one of the same model and target is better than, in bytes, loss and
    problems of the audit together. A conversion without bytes or loss is not compared."""
    measured = {
        each.name: (each.bytes, each.loss, each.problems or 0)
        for each in results if each and each.bytes is not None and each.loss is not None
    }  # fmt: skip
    of = {each.name: (each.model, each.choices.get("target")) for each in results}
    return [
        name for name, own in measured.items()
        if is_best(own, [its for other, its in measured.items() if of[other] == of[name]])
    ]  # fmt: skip


def junit(results: Sequence[BatchResult]) -> str:
    """The results as JUnit's XML: wrong numbers are failures, what could not be converted is an error, and what is not
    finished is skipped."""
    wrong = sum(result.code == ANSWER_IS_NO for result in results)
    skipped = sum(result.code == INTERRUPTED for result in results)
    failed = sum(not result for result in results)
    counts = {"tests": len(results), "failures": wrong, "errors": failed - wrong - skipped, "skipped": skipped}
    attributes = {name: str(count) for name, count in counts.items()}
    attributes |= {"name": "patcomp convert", "time": f"{sum(each.seconds for each in results):.3f}"}
    suites = ET.Element("testsuites")
    suite = ET.SubElement(suites, "testsuite", attributes)
    for result in results:
        case = ET.SubElement(
            suite, "testcase", classname="patcomp.convert", name=_NOT_IN_XML.sub("", result.name),
            time=f"{result.seconds:.3f}",
        )  # fmt: skip
        log = _NOT_IN_XML.sub("", result.log)
        if not result:
            kind = {ANSWER_IS_NO: "failure", INTERRUPTED: "skipped"}.get(result.code, "error")
            ET.SubElement(case, kind, message=_NOT_IN_XML.sub("", result.reason)).text = log
        else:
            ET.SubElement(case, "system-err").text = log
    ET.indent(suites)
    return ET.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _csv(rows: Sequence[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A file to write, which then takes the place of another one."""
    draft = path.with_name(f".{path.name}.draft")
    yield draft
    draft.replace(path)
