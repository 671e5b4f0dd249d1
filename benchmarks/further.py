"""Measures models that no test converts: export, conversion, evaluator and runtime. For tables of such models.

Each model is exported with `patcomp.export` without changes, converted straight from export, and compared with eager
PyTorch on the evaluator and on the Core AI runtime, which runs in a child process. A model with a dynamic size is
exported a second time, and its program runs at another size than that of the example.
"""

from __future__ import annotations

import argparse
import json
import re
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from benchmarks.recovery import ROOT, error_text, native, prepare
from patcomp.commands.tables import markdown_table

if TYPE_CHECKING:
    import torch

    from patcomp import AIProgram
    from tests.networks.zoo import Example

TOLERANCE = 1e-3
"""The largest difference that counts as equal, relative to the largest value of eager PyTorch."""

NEEDED = {
    "exported strictly": "strict",
    "torch.export.draft_export": "draft",
    "are constants of the program": "constants",
    "runs unpacked": "unpacked",
    "the program takes it": "",
}
"""What the warnings of `patcomp.export` say about its steps, and what the table calls them; a smaller range is no step.
Others are assumptions."""


@dataclass(frozen=True)
class OpenSizes:
    """How a model is exported a second time."""

    names: tuple[str, ...]
    shapes: tuple[dict[int, Any], ...]
    """`torch.export`'s dynamic shapes of the inputs."""
    args: tuple[torch.Tensor, ...]
    """Inputs of other sizes than the example's, on which the program is compared."""


Build = Callable[[], "Example | tuple[Example, OpenSizes]"]


@dataclass(frozen=True)
class Table:
    """A page of models."""

    document: str
    """Its file in `docs/generated`."""
    heading: str
    """What stands above the table."""
    models: Mapping[str, Mapping[str, Build]]
    """By the name of the distribution and of the model."""
    remarks: Mapping[str, str] = field(default_factory=dict)
    """What to do about a model that does not convert, by the name of the model."""


@dataclass(frozen=True)
class Result:
    """One model."""

    name: str
    source: str
    outcome: str
    """`"equal"`, or what went wrong."""
    needed: str = ""
    """What `patcomp.export` needed; empty if `torch.export.export` was enough."""
    nodes: int = 0
    """The nodes of the exported program that call something."""
    ops: int = 0
    composites: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    """What `to_coreai()` took."""
    errors: tuple[float | None, float | None] = (None, None)
    """On the evaluator and on the runtime; None where the program was not run."""
    open_sizes: str = ""
    """Their names and the outcome with them."""


# ---- measuring -------------------------------------------------------------------------------------


def measure(module: str, source: str, name: str) -> Result:
    """Build, export, convert and run a model of the table of a module."""
    prepare()
    import torch

    import tests.helpers.faster_export  # noqa: F401
    from patcomp.torchvision import declare_operators

    declare_operators()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    try:
        built = import_module(module).TABLE.models[source][name]()
        example, opened = built if isinstance(built, tuple) else (built, None)
        with torch.no_grad():
            results = _tensors(example.model(*example.args))
        if not all(result.isfinite().all() and result.abs().max() > 0 for result in results):
            raise ValueError("the example's results are not finite, or 0")
    except Exception as error:  # a configuration that the library does not take
        return Result(name, source, f"not built: {_short(error)}")
    row = _measured(Result(name, source, "equal"), example, None)
    if opened is None or row.outcome != "equal":
        return row
    again = _measured(Result(name, source, "equal"), example, opened)
    errors = [error for error in again.errors if error is not None]
    outcome = error_text(max(errors)) if again.outcome == "equal" else again.outcome
    needed = f" ({again.needed})" if again.needed not in ("", row.needed) else ""
    return replace(row, open_sizes=f"{', '.join(opened.names)}: {outcome}{needed}")


def _measured(row: Result, example: Example, opened: OpenSizes | None) -> Result:
    """A row with the outcome of one export, whose program runs on the example or on inputs of other sizes."""
    import torch

    import patcomp
    from patcomp import ConversionWarning, ExportError, PatcompError, TorchConverter, UnsupportedError
    from patcomp.emit.native import NativeError, ProcessDied

    with warnings.catch_warnings(record=True) as said, torch.no_grad():
        warnings.simplefilter("always", ConversionWarning)
        try:
            shapes = None if opened is None else {"tensors": opened.shapes}
            exported = patcomp.export(example.model, example.args, dynamic_shapes=shapes)
        except ExportError as error:
            return replace(row, outcome=f"not exported: {error.problem}")
        messages = [str(each.message) for each in said if each.category is ConversionWarning]
    nodes = sum(node.op == "call_function" for node in exported.graph.nodes)
    row = replace(row, needed=_needed(messages), nodes=nodes)
    started = time.perf_counter()
    try:
        program = TorchConverter().add_exported_program(exported).to_coreai()
    except UnsupportedError as error:
        reasons = sorted({f"{problem.op}: {problem.message}" for problem in error.problems})
        return replace(row, outcome=f"refused: {'; '.join(reasons)}")
    except Exception as error:
        return replace(row, outcome=f"failed: {_short(error)}")
    row = replace(
        row, ops=program.module.op_count(), composites=program.composites, seconds=time.perf_counter() - started
    )
    if opened and (fewer := [message for message in messages if "the program takes it" in message]):
        return replace(row, outcome="; ".join(fewer))
    errors: dict[str, float | None] = {"evaluator": None, "runtime": None}
    args = example.args if opened is None else opened.args
    for backend in errors:
        try:
            errors[backend] = _error(program, example.model, args, backend)
        except (PatcompError, NativeError, ProcessDied) as error:
            return replace(row, outcome=f"the {backend} fails: {_short(error)}", errors=(errors["evaluator"], None))
    if any(error is not None and not error < TOLERANCE for error in errors.values()):
        row = replace(row, outcome="different")
    return replace(row, errors=(errors["evaluator"], errors["runtime"]))


def _error(program: AIProgram, model: torch.nn.Module, args: tuple[torch.Tensor, ...], backend: str) -> float:
    """The largest difference of an output from eager PyTorch's, relative to the largest value of that output."""
    import torch

    from patcomp.evaluate.inputs import prepare_input

    with torch.no_grad():
        expected = _tensors(model(*args))
    types = [argument.type for argument in program.module.graph("main").regions[0].block.args]
    inputs = {
        name: prepare_input(value, type_, name)
        for name, value, type_ in zip(program.input_names(), args, types, strict=True)
    }
    outputs = program.run(inputs) if backend == "evaluator" else native().run(program.module, inputs)
    pairs = zip(outputs.values(), expected, strict=True)
    return max(float((torch.as_tensor(given) - result).abs().max() / result.abs().max()) for given, result in pairs)


def _tensors(results: Any) -> list[torch.Tensor]:
    """The results as floats, in the order of the program's outputs."""
    import torch
    from torch.utils import _pytree

    return [result.to(torch.promote_types(result.dtype, torch.float32)) for result in _pytree.tree_leaves(results)]


def _needed(messages: Iterable[str]) -> str:
    """The steps of `patcomp.export` that its warnings name, and how many assumptions."""
    found: list[str] = []
    assumed = 0
    for message in messages:
        names = [name for phrase, name in NEEDED.items() if phrase in message]
        found += names
        assumed += not names
    steps = ", ".join(dict.fromkeys(filter(None, found)))
    return steps + (f", {assumed} assumption{'s' if assumed > 1 else ''}" if assumed else "")


def _short(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:250]


# ---- the table -------------------------------------------------------------------------------------


_ROWS_OF_A_PAGE = 90
"""A page is read in one sitting."""


def pages(table: Table, rows: Sequence[Result]) -> dict[str, str]:
    """The document, and further ones with the rows that are too many for it, by the names of their files."""
    first, *others = [rows[start : start + _ROWS_OF_A_PAGE] for start in range(0, len(rows), _ROWS_OF_A_PAGE)]
    stem, title = table.document.removesuffix(".md"), table.heading.partition("\n")[0]
    names = [f"{stem}-{number}.md" for number in range(2, len(others) + 2)]
    more = f"The table goes on: {', '.join(f'[{name}]({name})' for name in names)}.\n" if names else ""
    found = {table.document: _introduction(table, rows) + more + "\n" * bool(more) + _table(table, first, rows)}
    for number, (name, part) in enumerate(zip(names, others, strict=True), 2):
        heading = f"{title}, {number}\n\n[The first page]({table.document}) says what was measured.\n\n"
        found[name] = heading + _table(table, part, rows)
    return found


def _introduction(table: Table, rows: Sequence[Result]) -> str:
    equal = sum(row.outcome == "equal" for row in rows)
    used = dict.fromkeys(row.source for row in rows)
    versions = ", ".join(f"{name} {version(name)}" for name in used)
    return f"{table.heading}\n{equal} of {len(rows)} are equal. Versions: {versions}.\n\n"


def _table(table: Table, part: Sequence[Result], rows: Sequence[Result]) -> str:
    """The table of some of all rows."""
    headings = ["model", "from", "export", "nodes", "ops", "composites", "evaluator", "runtime", "outcome"]
    numbers = ["nodes", "ops", "evaluator", "runtime"]
    with_open_sizes = any(row.open_sizes for row in rows)
    if with_open_sizes:
        headings.append("dynamic sizes")
    cells = [_cells(table, row)[: len(headings)] for row in part]
    return "\n".join(markdown_table(headings, cells, right_aligned=numbers)) + "\n"


def _cells(table: Table, row: Result) -> list[str]:
    composites = ", ".join(f"{count} {name}" for name, count in sorted(row.composites.items()))
    remark = table.remarks.get(row.name, "")
    outcome = row.outcome if not remark or row.outcome == "equal" else f"{row.outcome}. {remark}"
    cells = [
        row.name, row.source, row.needed, str(row.nodes or ""), str(row.ops or ""), composites,
        error_text(row.errors[0]), error_text(row.errors[1]), outcome, row.open_sizes,
    ]  # fmt: skip
    return [re.sub(r"([|\[])", r"\\\1", re.sub(r"\s*\n\s*", "; ", cell)) for cell in cells]


def main(module: str) -> None:
    """Measure the models of a module's table, and print them."""
    table: Table = import_module(module).TABLE
    parser = argparse.ArgumentParser(prog=f"python -m {module}")
    parser.add_argument("--markdown", action="store_true", help=f"write the table to docs/generated/{table.document}")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these models")
    parser.add_argument("--source", choices=list(table.models), help="only those of one package")
    parser.add_argument("--jobs", type=int, default=1, help="processes that measure at the same time")
    parser.add_argument(
        "--results", type=Path, help="a file that keeps the rows: rows of models not measured now come from it"
    )
    options = parser.parse_args()
    known = {}
    if options.results and options.results.exists():
        known = {(row["source"], row["name"]): Result(**row) for row in json.loads(options.results.read_text())}
    chosen = [
        (module, source, name)
        for source, models in table.models.items()
        for name in models
        if options.source in (None, source) and (not options.only or name in options.only)
    ]
    console = Console(width=180, highlight=False)
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        for row in pool.map(measure, *zip(*chosen, strict=True)):
            known[row.source, row.name] = row
            if options.results:
                options.results.write_text(json.dumps([asdict(each) for each in known.values()], indent=1))
            errors = " ".join(map(error_text, row.errors))
            text = (
                f"{row.source} {row.name}: {row.needed} {row.outcome} ({errors}, {row.seconds:.1f} s) {row.open_sizes}"
            )
            console.print(text, markup=False)
            console.file.flush()
    if options.markdown:
        every = ((source, name) for source, models in table.models.items() for name in models)
        for name, text in pages(table, [known[key] for key in every if key in known]).items():
            (ROOT / "docs" / "generated" / name).write_text(text)
            console.print(f"written: docs/generated/{name}")
