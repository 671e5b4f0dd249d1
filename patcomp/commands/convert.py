"""`patcomp convert`: convert a model, check it, and write it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from patcomp.commands.batch import BatchJob
from patcomp.commands.batch_file import options_of, read_jobs, run_batch
from patcomp.commands.checks import Check, CheckFailed, kept_for
from patcomp.commands.common import (
    ANSWER_IS_NO,
    AsJson,
    Compress,
    Fix,
    KeepFloat32,
    Random,
    RandomNumbers,
    UsageError,
    Writer,
    check_page,
    error_console,
    given_options,
    load_catalogs,
    print_json,
    print_text,
    say,
    sizes_in,
)
from patcomp.commands.models import ModelOptions, OptionalModel, load_sources, takes_models
from patcomp.commands.packages import reader_of
from patcomp.commands.progress import working
from patcomp.commands.subjects import MODELS, Subject, is_on_the_hub, subject_of
from patcomp.commands.tables import show
from patcomp.emit.files.replacement import check_target, check_writable
from patcomp.hub import TIMM

if TYPE_CHECKING:
    from patcomp import AIProgram
    from patcomp.evaluate.verification import Verification
    from patcomp.narrowing.widths import Choice
    from patcomp.targets import Target

STANDARD_OUTPUT = Path("-")


class Width(StrEnum):
    """What to do with 64-bit numbers."""

    narrow = "narrow"
    error = "error"
    keep = "keep"


@takes_models
def convert(
    context: typer.Context,
    model: OptionalModel = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The asset; by default MODEL.aimodel, unless --text is given.")
    ] = None,
    text: Annotated[Path | None, typer.Option(help="Write the MLIR text to this file; - is standard output.")] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write a report of the conversion to this file, to look at in a browser.")
    ] = None,
    dump_stages: Annotated[Path | None, typer.Option(help="Write the IR after each stage into this folder.")] = None,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify", help="Compare what is written with PyTorch; an asset takes its place only if it passes."
        ),
    ] = False,
    int64: Annotated[Width, typer.Option(help="Narrow 64-bit integers to 32 bits, or keep them.")] = Width.narrow,
    float64: Annotated[Width, typer.Option(help="Narrow 64-bit floats to 32 bits, or keep them.")] = Width.narrow,
    random: Random = RandomNumbers.refuse,
    input_names: Annotated[str, typer.Option(help="Names of the inputs, separated by commas.")] = "",
    output_names: Annotated[str, typer.Option(help="Names of the outputs, separated by commas.")] = "",
    recover: Annotated[
        str, typer.Option(help="The composites to recover: all, none, or names separated by commas.")
    ] = "all",
    assume: Annotated[
        list[str] | None,
        typer.Option(help='A fact that rules may rely on, "masked rows are not read"; may be given several times.'),
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Rewrite the program for a device: cpu, gpu, neural_engine, or one of a catalog.")
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option(help="Leave a rule or step of the target out; may be given several times.")
    ] = None,
    fix: Fix = None,
    keep_float32: KeepFloat32 = None,
    compress: Compress = None,
    report: Annotated[bool, typer.Option(help="List every composite, its rule and its place in the model.")] = False,
    kind: Annotated[
        str | None, typer.Option(help="The kind of bundle that a folder becomes; by default what it holds.")
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", help="An option of the kind of bundle, image_size=512; may be given several times."),
    ] = None,
    dtype: Annotated[
        Literal["float16", "bfloat16", "float32"] | None,
        typer.Option(help="The type of a bundle's weights; by default float16, for speech float32."),
    ] = None,
    no_check: Annotated[
        bool, typer.Option("--no-check", help="Do not compare the components of a bundle with PyTorch.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace any file or folder at the asset's path.")] = False,
    writer: Writer = None,
    batch: Annotated[
        Path | None, typer.Option(help="Convert the models of this TOML file; its keys are the other options.")
    ] = None,
    jobs: Annotated[int, typer.Option(help="How many models of --batch to convert at the same time.")] = 1,
    junit: Annotated[Path | None, typer.Option(help="Write the results of --batch to this file, as JUnit XML.")] = None,
    json: AsJson = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Show only warnings and errors, and what --report asks for.")
    ] = False,
    verbose: Annotated[bool, typer.Option(help="Show a progress bar, also if there is no terminal.")] = False,
    *,
    options: ModelOptions,
) -> None:
    """Convert a model and write it as an asset, as text, or both; the steps are reported on standard error.

    A folder of several models (diffusers), a GGUF file, or a folder that is written to one without .aimodel, becomes a
    bundle.
    """
    from patcomp import TorchConverter
    from patcomp.compression import CompressionRequest

    if batch is not None:
        _check_alone(context)
        sys.exit(run_batch(batch, options_of(context.command), jobs, junit, as_json=json, quiet=quiet))
    if model is None:
        raise UsageError("name a MODEL to convert, or a file of models with --batch")
    if junit is not None or jobs != 1:
        raise UsageError("--jobs and --junit go with --batch")
    found = subject_of(model, "convert", (*MODELS, Subject.PIPELINE, Subject.GGUF))
    if kind is not None and found in (Subject.PROGRAM, Subject.FUNCTION):
        raise UsageError(f"--kind goes with a folder, and {model} is {found}")
    if _is_for_bundle(model, found, output, kind):
        reader_of(Subject.BUNDLE).convert_to_bundle(
            context,
            model,
            output,
            kind=kind,
            settings=setting,
            dtype=dtype,
            target=target,
            compress=compress,
            check=not no_check,
            writer=writer,
            as_json=json,
            quiet=quiet,
            options=options,
        )
        return
    if keep_float32 and "auto" in keep_float32 and len(keep_float32) > 1:
        raise UsageError("--keep-float32 auto finds all ops; give no others")
    if setting or dtype or no_check:
        raise UsageError(
            "--set, --dtype and --no-check go with bundles; an asset takes --half, --bfloat16 and --verify"
        )
    if json and text == STANDARD_OUTPUT:
        raise UsageError("--json and --text - would both be on standard output; give --text a file")
    if output is None and text is None:
        output = _default_output(model)
    check_outputs(output, text, html, dump_stages, force, writer)
    chosen, sizes = target_of(target, without, options.catalog), sizes_in(fix)
    smaller = None if compress is None else CompressionRequest.of(compress, chosen)
    with working(f"exporting {model}", not quiet):
        sources = load_sources(model, "convert", options, notes=not quiet)
        for source in sources if verify or keep_float32 == ["auto"] else ():
            _ = source.inputs  # before the conversion: a file may hold none
    with working(f"converting {model}", not (quiet or verbose)):
        converter = TorchConverter(
            catalog=load_catalogs(options.catalog), int64=_choice(int64), float64=_choice(float64), random=random.value
        )
        for source in sources:
            converter.add_exported_program(
                source.exported,
                names_in(input_names) or source.input_names or None,
                names_in(output_names) or source.output_names or None,
                source.state_names or None,
                source.entry,
            )
        made = partial(
            converter.to_coreai,
            recover=recover if recover in ("all", "none") else names_in(recover),
            assume=assume or (),
            target=chosen,
            fixed=sizes,
        )
        kept = kept_for(made, sources) if keep_float32 == ["auto"] else keep_float32 or ()
        program = made(keep=kept, dump_ir=dump_stages, verbose=verbose)
    if not quiet:
        _show(program, dump_stages)
        if keep_float32 == ["auto"]:
            say(f"in float32  {', '.join(f'%{name}' for name in kept) or 'no op: nothing overflows'}")
    if report:
        say(str(program.report()))
    before = program
    if smaller is not None:
        with working(f"compressing {model}", not quiet):
            program = smaller.applied(program.compress)
        if not quiet:
            show(program.compression, error_console())
    check = Check(sources, before, program, quiet, by_module=html is not None) if verify else None
    if output is not None:
        what = f"writing {output}" if check is None else f"writing and verifying {output}"
        with working(what, not quiet) as advance, suppress(CheckFailed):
            checked = None if check is None else check.of_asset
            program.save_asset(output, force=force, writer=writer, progress=advance, check=checked)
    elif check is not None:
        with working(f"verifying {model}", not quiet):
            check.of(None)
    passed, verification = check is None or check.passed, None if check is None else check.result
    if text == STANDARD_OUTPUT:
        print_text(program)
    elif text is not None:
        text.parent.mkdir(parents=True, exist_ok=True)
        text.write_text(f"{program}\n")
    if html is not None:
        with working(f"writing {html}", not quiet):
            program.html(html, verification=verification)
    files = {"text": text, "report": html, "asset": output if passed else None}
    for what, path in files.items():
        if path not in (None, STANDARD_OUTPUT) and not quiet:
            say(f"{what + ':':13}{path}")
    if json:
        files_written = {what: path and str(path) for what, path in files.items()}
        print_json(_plain(model, program, verification) | files_written)
    if not passed:
        say(f"error: {_reason(verification)}" + (f"; {output} is not written" if output else ""))
        sys.exit(ANSWER_IS_NO)


def _is_for_bundle(model: str, found: Subject, output: Path | None, kind: str | None) -> bool:
    """Whether a conversion makes a bundle: the user says it, the model is a pipeline of diffusers or a GGUF file, or a
    folder without `.aimodel` is to be written."""
    if kind is not None or found in (Subject.PIPELINE, Subject.GGUF):
        return True
    return Path(model).is_dir() and output is not None and output.suffix != ".aimodel"


def _reason(failed: Verification | None) -> str:
    """Why a conversion is not written."""
    if failed is not None and failed.loss and all(error.passed for error in failed.errors):
        lost = max(failed.loss, key=lambda each: each.rms)
        return f"the weights in fewer bits lose {lost.rms:.0%} of output {lost.name!r}"
    return "the numbers differ from PyTorch's"


def _check_alone(context: typer.Context) -> None:
    """Check that no options of single conversions are given beside --batch.

    Raises:
        UsageError: some are.
    """
    if given := given_options(context, ("batch", "jobs", "junit", "json", "quiet")):
        raise UsageError(f"--batch does not go with {', '.join(given)}; put options into the file, under [defaults]")


def jobs_in(file: str | Path) -> list[BatchJob]:
    """The conversions of a TOML file, as docs/command-line.md describes it.

    Raises:
        UsageError: the file has another form.
        OSError: the file cannot be read.
    """
    app = typer.Typer()
    app.command()(convert)
    return read_jobs(Path(file), options_of(typer.main.get_command(app)))


def target_of(name: str | None, without: list[str] | None, catalogs: Sequence[str] | None = None) -> Target | None:
    """The target of options.

    Raises:
        UsageError: --without has no target. ValueError: there is no such target, or it has no such rule or step.
    """
    from patcomp.patterns.user_catalogs import targets_of
    from patcomp.targets import TARGETS, chosen_target

    if (chosen := chosen_target(name, {**TARGETS, **targets_of(load_catalogs(catalogs))})) is None:
        if without:
            raise UsageError("--without leaves rules of a target out; name it with --target")
        return None
    return chosen.without(*without or ())


def names_in(text: str) -> list[str]:
    """The names in a text, separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def _show(program: AIProgram, dump_stages: Path | None) -> None:
    from patcomp.program.stages import stage_table

    show(stage_table(program.reports), error_console())
    say(str(program.summary()))
    if dump_stages is not None:
        say(f"stage dumps: {dump_stages}")


def _plain(model: str, program: AIProgram, verification: Verification | None) -> dict[str, Any]:
    """What a conversion did, as plain data for JSON."""
    return {
        "model": model,
        **program.summary(verification).to_dict(),
        "warnings": [str(problem) for problem in program.diagnostics],
        "stages": [
            {
                "name": stage.name,
                "ops_before": stage.ops_before,
                "ops_after": stage.ops_after,
                "rules": sorted(stage.statistics.fired),
                "rewrites": stage.statistics.rewrites,
                "seconds": stage.seconds,
            }
            for stage in program.reports
        ],
    }


def _choice(width: Width) -> Choice:
    return cast("Choice", width.value)


def _default_output(model: str) -> Path:
    """Where the asset of a model is written unless the user says it."""
    if model.startswith(TIMM):
        return Path(f"{model.removeprefix(TIMM)}.aimodel")
    if is_on_the_hub(model):
        return Path(f"{model.partition('/')[2]}.aimodel")
    if Path(model).is_dir():  # whose name may have a dot
        place = Path(model)
        return Path(f"{place if place.name.strip('.') else place.resolve().name}.aimodel")
    file, separator, function = model.rpartition(".py:")
    if separator:  # the functions of a file have assets of their own
        return Path(f"{file}-{function}.aimodel")
    return Path(model).with_suffix(".aimodel")


def check_outputs(
    output: Path | None,
    text: Path | None,
    html: Path | None,
    dump_stages: Path | None,
    force: bool,
    writer: str | None,
) -> None:
    """Check before the long conversion that its results can be written.

    Raises:
        OSError, ValueError: one cannot be written to its path.
        MissingToolchainError: `coreai-core` is to write the asset, and is not installed.
    """
    from patcomp.emit.toolchain.library import toolchain

    if output is not None:
        check_target(output, force)
        if writer == "coreai":
            toolchain()
    if text is not None and text != STANDARD_OUTPUT:
        if text.is_dir():
            raise UsageError(f"--text {text} is a folder; name a file, or - for standard output")
        check_writable(text)
    if html is not None:
        check_page(html)
    if dump_stages is not None:
        if dump_stages.exists() and not dump_stages.is_dir():
            raise UsageError(f"--dump-stages {dump_stages} is a file; name a folder")
        check_writable(dump_stages)
