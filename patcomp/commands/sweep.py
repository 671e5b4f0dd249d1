"""`patcomp compress --sweep`: one table of several sizes of a model's weights, and its page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from patcomp.commands.common import RandomNumbers, UsageError, load_catalogs, print_json, say
from patcomp.commands.examples import examples_given
from patcomp.commands.models import ModelOptions, load_sources
from patcomp.commands.pages import PlottedPoint, is_best, page_of, plot_of, table_of
from patcomp.commands.progress import working
from patcomp.commands.subjects import Subject, subject_of
from patcomp.commands.tables import show
from patcomp.conversion.source import ModelSource, add_sources

if TYPE_CHECKING:
    from patcomp import AIProgram
    from patcomp.commands.compress import MeasureOptions, SchemeOptions
    from patcomp.commands.convert_options import DeviceOptions
    from patcomp.compression import Alternative
    from patcomp.program.sweep import SweepReport
    from patcomp.targets import Target

_MODULES = (Subject.FUNCTION, Subject.FOLDER, Subject.NAME)
"""What is exported here, and so can be converted to float16 first."""


class SweptModel(Protocol):
    """A report of a sweep."""

    headings: ClassVar[tuple[str, ...]]

    @property
    def alternatives(self) -> Sequence[Alternative]: ...
    def texts(self) -> list[tuple[str, ...]]: ...
    def tables(self) -> list[Any]: ...
    def as_dict(self) -> dict[str, Any]: ...


def show_sweep(model: str, report: SweptModel, html: Path | None, *, as_json: bool) -> None:
    """Print a report, and write its page with a plot of bytes against loss."""
    if as_json:
        print_json(report.as_dict())
    else:
        for table in report.tables():
            show(table)
    if html is not None:
        numbers = [(each.bytes, each.loss) for each in report.alternatives]
        points = [PlottedPoint(each.name, *own, is_best(own, numbers))
                  for each, own in zip(report.alternatives, numbers, strict=True)]  # fmt: skip
        parts = [table_of(report.headings, report.texts()), plot_of(model, points, "bytes of the weights", "loss")]
        html.write_text(page_of(f"{model} in fewer bits", parts))
        say(f"page:        {html}")


def swept(
    model: str,
    chosen: SchemeOptions,
    target: Target | None,
    device: DeviceOptions,
    measured: MeasureOptions,
    options: ModelOptions,
) -> SweepReport:
    """The sweep of a model that is converted: in float16 beside float32, if it can be exported in both.

    Raises:
        UsageError: there are no examples, or the model has several functions.
    """
    if measured.check is None:
        raise UsageError("--sweep of a model needs --check inputs, or --check FOLDER with held-out examples")
    from patcomp.program.sweep import sweep_program

    both = subject_of(model, "compress", _ALL) in _MODULES and not (options.half or options.bfloat16)
    programs: list[AIProgram] = []
    for own in (options, replace(options, half=True)) if both else (options,):
        with working(f"converting {model}", True):
            sources = load_sources(model, "compress", own, notes=not programs)
            if len(sources) > 1:
                names = ", ".join(each.entry for each in sources)
                raise UsageError(f"--sweep goes with a model of one function, and {model} has {names}")
            programs.append(_converted(sources[0], target, device, own))
    held_out, calibration = (
        None if given is None else examples_given(given, model, sources[0], programs[0])
        for given in (measured.check, measured.calibrate)
    )
    with working(f"compressing {model}", True):
        return sweep_program(
            programs[-1],
            held_out,
            reference=programs[0] if both else None,
            calibrate=calibration,
            budget=chosen.request(target) if chosen.is_budget else None,
            entrypoint=sources[0].entry,
        )


_ALL = (*_MODULES, Subject.PROGRAM, Subject.ONNX)


def _converted(
    source: ModelSource, target: Target | None, device: DeviceOptions, options: ModelOptions
) -> AIProgram:  # fmt: skip
    from patcomp import TorchConverter

    random = RandomNumbers.inputs if device.random is RandomNumbers.inputs else RandomNumbers.refuse
    converter = TorchConverter(catalog=load_catalogs(options.catalog), random=random.value)
    return add_sources(converter, [source]).to_coreai(target=target, fixed=device.fixed)
