"""`patcomp compress`: convert a model and store its weights in fewer bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from patcomp.commands.common import AsJson, RandomNumbers, UsageError, command_line, load_catalogs, print_json, say
from patcomp.commands.convert_options import AssetOptions, DeviceOptions, target_of
from patcomp.commands.models import ModelOptions, converted_already, load_sources
from patcomp.commands.options import takes_options
from patcomp.commands.packages import reader_of
from patcomp.commands.progress import working
from patcomp.commands.subjects import MODELS, Subject, subject_of
from patcomp.commands.tables import show
from patcomp.conversion.source import add_sources

if TYPE_CHECKING:
    from patcomp import AIProgram
    from patcomp.compression import CompressionRequest
    from patcomp.targets import Target


@dataclass(frozen=True, kw_only=True)
class SchemeOptions:
    """How small the weights become."""

    config: Annotated[
        str,
        typer.Option(
            help="4bit, 8bit, a scheme (w8, w4_block32, pal4_group16, ...), or a TOML file (docs/compression.md)."
        ),
    ] = "w8"
    budget: Annotated[
        str | None,
        typer.Option(help="Choose the schemes: bytes of all weights, or a share of them, 60%."),
    ] = None
    bits: Annotated[float | None, typer.Option(help="The same, in bits for each element: 4.5.")] = None

    def __post_init__(self) -> None:
        if self.budget is not None and self.bits is not None:
            raise UsageError("give --budget or --bits, not both")

    @property
    def is_budget(self) -> bool:
        """Whether schemes are chosen by size."""
        return self.budget is not None or self.bits is not None

    def check_sweep(self, output: Path | None, *, compares: bool) -> None:
        """Refuse what does not go with `--sweep`.

        Raises:
            UsageError: something does not.
        """
        if output is not None or compares or self.config != type(self).config:
            raise UsageError(
                "--sweep is a table of several sizes, and goes without --output, --compare and --config; --budget and "
                "--bits say how small the last one is"
            )

    def request(self, target: Target | None) -> CompressionRequest:
        """What is asked for, for a target."""
        from patcomp.compression import CompressionRequest

        request = CompressionRequest.of(self.config, target)
        if not self.is_budget:
            return request
        size = int(self.budget) if self.budget is not None and self.budget.isdigit() else self.budget
        return replace(request, budget=size, bits=self.bits, text=self.budget or f"{self.bits}bits")


@dataclass(frozen=True, kw_only=True)
class MeasureOptions:
    """By what weights are rounded, and what is measured of the result."""

    check: Annotated[
        str | None,
        typer.Option(
            metavar="inputs|TEXT|FOLDER",
            help="Compare before and after: outputs for the model's example inputs or for those of a folder (arrays, "
            "pictures, texts), or a bundle's loss on a text or on the texts and pictures of a folder.",
        ),
    ] = None
    calibrate: Annotated[
        str | None,
        typer.Option(
            metavar="inputs|TEXT|FOLDER",
            help="Round by such inputs, texts or pictures, so that outputs of products stay.",
        ),
    ] = None
    compare: Annotated[
        bool, typer.Option("--compare", help="A table of several schemes: size, and loss on the text of --check.")
    ] = False
    sweep: Annotated[
        bool,
        typer.Option("--sweep", help="A table of float16, 8bit, 4bit and a budget (by default the bytes of 4bit)."),
    ] = False
    html: Annotated[
        Path | None,
        typer.Option(
            help="Write the HTML report of the result, with --compare with a plot of all; or the page of --sweep."
        ),
    ] = None

    def check_is_for_model(self) -> None:
        """Refuse what goes with the bundle of a language model: `--compare`, and a text for `--check` or `--calibrate`.

        Raises:
            UsageError: one is given.
        """
        for option, given in (("--check", self.check), ("--calibrate", self.calibrate)):
            if given not in (None, "inputs") and not Path(given).is_dir():
                raise UsageError(
                    f"{option} with a text goes with the bundle of a language model; here: {option} inputs, or a "
                    "folder of examples"
                )
        if None not in (self.check, self.calibrate) and self.check != self.calibrate:
            raise UsageError("--check and --calibrate take the same examples; --sweep takes others for each")
        if self.compare:
            raise UsageError("--compare goes with the bundle of a language model, and with --check TEXT")


@takes_options
def compress(
    model: Annotated[str, typer.Argument(help="The model, as for convert; or a bundle of a language model.")],
    schemes: Annotated[
        list[str] | None, typer.Argument(help="With --compare: what to compare, as for --config.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The asset or bundle; without it, only the table.")
    ] = None,
    *,
    chosen: SchemeOptions,
    device: DeviceOptions,
    measured: MeasureOptions,
    asset: AssetOptions,
    json: AsJson = False,
    options: ModelOptions,
) -> None:
    """Convert a model with smaller weights, and show what became of each weight.

    $ patcomp compress net.pt2 --config w4_block32 --check inputs -o small.aimodel
    $ patcomp compress net.pt2 --budget 60%
    $ patcomp compress bundles/qwen3 4bit 8bit --compare --check text.txt
    $ patcomp compress bundles/qwen3 --sweep --check texts --html sweep.html
    """
    found = subject_of(model, "compress", (*MODELS, Subject.BUNDLE))
    target = target_of(device.target, None, options.catalog)
    request = chosen.request(target)
    if schemes and not measured.compare:
        raise UsageError(f"{schemes[0]}: a scheme is the value of --config; several are a table with --compare")
    if measured.compare and not schemes:
        raise UsageError("name what to compare behind --compare: w8 w4_block32 4.5bits")
    if measured.sweep:
        chosen.check_sweep(output, compares=measured.compare)
    if found is Subject.BUNDLE:
        options.check_unused(model, found)
        _check_is_no_model(model, device, asset)
        requests: Sequence[str | CompressionRequest] = schemes or [request if chosen.is_budget else chosen.config]
        reader_of(found).compress_bundle(
            Path(model), output, requests, check=measured.check, calibrate=measured.calibrate, html=measured.html,
            writer=asset.writer, as_json=json, sweeps=measured.sweep,
        )  # fmt: skip
        return
    if measured.sweep:
        asset.check(None, measured.html)
        from patcomp.commands.sweep import show_sweep, swept  # it needs numpy

        show_sweep(model, swept(model, chosen, target, device, measured, options), measured.html, as_json=json)
        return
    measured.check_is_for_model()
    asset.check(output, measured.html)
    small = _compressed(model, request, target, device, measured, options)
    assert small.compression is not None
    if measured.html is not None:
        small.html(measured.html, command=command_line())
    if output is not None:
        with working(f"writing {output}", True) as advance:
            small.save_asset(
                output, force=asset.force, writer=asset.writer, debug_info=asset.debug_info, progress=advance
            )
        say(f"asset:       {output}")
    if json:
        print_json(small.compression.as_dict())
    else:
        show(small.compression)


def _compressed(
    model: str,
    request: CompressionRequest,
    target: Target | None,
    device: DeviceOptions,
    measured: MeasureOptions,
    options: ModelOptions,
) -> AIProgram:
    """The program of a model, with smaller weights."""
    sizes = device.fixed
    with working(f"exporting {model}", True):
        sources = load_sources(model, "compress", options)
        source = sources[0]
    from patcomp import TorchConverter

    with working(f"converting {model}", True):
        converter = TorchConverter(catalog=load_catalogs(options.catalog), random=device.random.value)
        program = add_sources(converter, sources).to_coreai(target=target, fixed=sizes)
    with working(f"compressing {model}", True):
        seen = request.is_budget and source.exported.example_inputs is not None
        examples: Any = source.inputs_for(program) if seen else None
        if given := measured.check or measured.calibrate:
            from patcomp.commands.examples import examples_given  # it needs numpy

            examples = examples_given(given, model, source, program)
        shrink = partial(program.compress, entrypoint=source.entry)
        return request.applied(shrink, examples, calibrate=measured.calibrate is not None)


def _check_is_no_model(bundle: str, device: DeviceOptions, asset: AssetOptions) -> None:
    """Refuse the options for models."""
    draws = device.random is not RandomNumbers.refuse
    given = {"--target": device.target, "--fix": device.fix, "--random": draws, "--force": asset.force}
    given["--debug-info"] = asset.debug_info
    if unused := [option for option, value in given.items() if value]:
        raise converted_already(unused, bundle, Subject.BUNDLE)
