"""`patcomp convert`: convert a model, check it, and write it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import typer

from patcomp.commands.checks import Check, CheckFailed, kept_for
from patcomp.commands.common import (
    ANSWER_IS_NO,
    UsageError,
    command_line,
    error_console,
    load_catalogs,
    print_json,
    print_text,
    rules_with,
    say,
)
from patcomp.commands.convert_options import (
    STANDARD_OUTPUT,
    AssetOptions,
    BundleChoices,
    OutputOptions,
    ProgramOptions,
    ShownOptions,
    Width,
    target_of,
)
from patcomp.commands.models import ModelOptions, OptionalModel, load_sources
from patcomp.commands.options import takes_options
from patcomp.commands.packages import reader_of
from patcomp.commands.progress import working
from patcomp.commands.subjects import MODELS, Subject, becomes_bundle, is_on_the_hub, subject_of
from patcomp.commands.tables import show
from patcomp.conversion.source import add_sources
from patcomp.hub import TIMM

if TYPE_CHECKING:
    from patcomp import AIProgram, TorchConverter
    from patcomp.conversion.source import ModelSource
    from patcomp.evaluate.verification import Verification
    from patcomp.narrowing.widths import Choice
    from patcomp.targets import Target


@takes_options
def convert(
    context: typer.Context,
    model: OptionalModel = None,
    *,
    outputs: OutputOptions,
    wanted: ProgramOptions,
    bundle: BundleChoices,
    asset: AssetOptions,
    shown: ShownOptions,
    options: ModelOptions,
) -> None:
    """Convert a model and write it as an asset, as text, or both; the steps are reported on standard error.

    A folder of several models (diffusers), a GGUF file, or a folder that is written to one without .aimodel, becomes a
    bundle.

    $ patcomp convert net.pt2 -o net.aimodel --verify
    $ patcomp convert net.pt2 --target neural_engine --fix length=128 --compress 4bit
    $ patcomp convert nets.py:net --text - --quiet
    $ patcomp convert Qwen3-0.6B -o bundles/qwen3
    """
    if not model:
        raise UsageError("name a MODEL to convert; `patcomp batch FILE` converts many")
    found = subject_of(model, "convert", (*MODELS, Subject.PIPELINE, Subject.GGUF))
    if bundle.kind is not None and found in (Subject.PROGRAM, Subject.FUNCTION):
        raise UsageError(f"--kind goes with a folder, and {model} is {found}")
    if bundle.kind is not None or becomes_bundle(model, found, outputs.output):
        reader_of(Subject.BUNDLE).convert_to_bundle(
            context, model, outputs.output, bundle=bundle, target=wanted.target, compress=wanted.compress,
            writer=asset.writer, shown=shown, options=options,
        )  # fmt: skip
        return
    _check_together(outputs, wanted, bundle, shown)
    if outputs.output is None and outputs.text is None:
        outputs = replace(outputs, output=_default_output(model))
    asset.check(outputs.output, outputs.html)
    outputs.check()
    _convert_to_asset(model, outputs, wanted, asset, shown, options)


def _check_together(outputs: OutputOptions, wanted: ProgramOptions, bundle: BundleChoices, shown: ShownOptions) -> None:
    """Check options of a single asset.

    Raises:
        UsageError: one excludes another one, or goes with bundles.
    """
    _ = wanted.finds_float32
    if bundle.setting or bundle.dtype or bundle.no_check:
        raise UsageError(
            "--set, --dtype and --no-check go with bundles; an asset takes --half, --bfloat16 and --verify"
        )
    if shown.json and outputs.text == STANDARD_OUTPUT:
        raise UsageError("--json and --text - would both be on standard output; give --text a file")


def _convert_to_asset(
    model: str,
    outputs: OutputOptions,
    wanted: ProgramOptions,
    asset: AssetOptions,
    shown: ShownOptions,
    options: ModelOptions,
) -> None:
    """Convert a model, compress it, compare it and write it, as the options say."""
    from patcomp.compression import CompressionRequest

    target = target_of(wanted.target, wanted.without, options.catalog)
    _ = wanted.fixed, wanted.several  # before PyTorch is imported, and the long export
    _check_names(wanted, target, options)
    smaller = None if wanted.compress is None else CompressionRequest.of(wanted.compress, target)
    sources: Sequence[ModelSource]
    with working(f"exporting {model}", not shown.quiet):
        sources = load_sources(model, "convert", options, notes=not shown.quiet)
        for source in sources if outputs.verify or wanted.finds_float32 else ():
            _ = source.inputs  # before the conversion: a file may hold none
    with working(f"converting {model}", not (shown.quiet or shown.verbose)):
        program, sources, kept = _program(sources, wanted, target, outputs, shown, options)
    if not shown.quiet:
        _show(program, outputs.dump_stages)
        if wanted.several and target is not None:
            for name, audit in program.audit_each(target).items():
                say(f"{name}  {audit}")
        if wanted.finds_float32:
            say(f"in float32  {', '.join(f'%{name}' for name in kept) or 'no op: nothing overflows'}")
    if shown.report:
        say(str(program.report()))
    before = program
    if smaller is not None:
        with working(f"compressing {model}", not shown.quiet):
            program = smaller.applied(program.compress)
        if not shown.quiet:
            show(program.compression, error_console())
    by_module = outputs.html is not None
    check = Check(sources, before, program, shown.quiet, by_module=by_module) if outputs.verify else None
    _write(model, program, check, outputs, asset, shown)


def _program(
    sources: Sequence[ModelSource],
    wanted: ProgramOptions,
    target: Target | None,
    outputs: OutputOptions,
    shown: ShownOptions,
    options: ModelOptions,
) -> tuple[AIProgram, Sequence[ModelSource], Sequence[str]]:
    """The program of a model's functions, the function of each entry point, and what of it stays in float32."""
    from patcomp.interface.size_variants import size_variants

    converter = _converter(sources, wanted, options)
    named = size_variants(converter.dims(), wanted.fixed, wanted.several)
    sources = [replace(source, entry=name) for source in sources for name in named[source.entry]]
    made = partial(
        converter.to_coreai,
        recover=_composites(wanted),
        assume=wanted.assume or (),
        target=target,
        fixed=wanted.fixed,
        sizes=wanted.several,
    )
    kept = kept_for(made, sources) if wanted.finds_float32 else wanted.keep_float32 or ()
    return made(keep=kept, dump_ir=outputs.dump_stages, verbose=shown.verbose), sources, kept


def _check_names(wanted: ProgramOptions, target: Target | None, options: ModelOptions) -> None:
    """Check the names of composites, assumptions, and rules that a target leaves out.

    Raises:
        ValueError: there is none of a name.
    """
    composites, assumed = _composites(wanted), wanted.assume or ()
    if composites in ("all", "none") and not assumed and target is None:
        return  # nothing is named, and the rules are not needed yet
    from patcomp.rewrites.recover import chosen_assumptions, chosen_composites
    from patcomp.rewrites.target.stage import usable_target

    rules = rules_with(options.catalog, decompositions=False)
    chosen_composites(composites, rules)
    chosen_assumptions(assumed, rules)
    usable_target(target, rules, ())


def _composites(wanted: ProgramOptions) -> str | Sequence[str]:
    """The composites that are recovered, as `to_coreai` takes them."""
    return wanted.recover if wanted.recover in ("all", "none") else _names_in(wanted.recover)


def _converter(sources: Sequence[ModelSource], wanted: ProgramOptions, options: ModelOptions) -> TorchConverter:
    """A converter with the functions of a model."""
    from patcomp import TorchConverter

    converter = TorchConverter(
        catalog=load_catalogs(options.catalog),
        int64=_choice(wanted.int64),
        float64=_choice(wanted.float64),
        random=wanted.random.value,
    )
    inputs, results = _names_in(wanted.input_names), _names_in(wanted.output_names)
    named = [
        replace(each, input_names=inputs or each.input_names, output_names=results or each.output_names)
        for each in sources
    ]
    return add_sources(converter, named)


def _write(
    model: str,
    program: AIProgram,
    check: Check | None,
    outputs: OutputOptions,
    asset: AssetOptions,
    shown: ShownOptions,
) -> None:
    """Write a program, and compare it; an asset that does not pass is not written, and the command ends."""
    output, text, html = outputs.output, outputs.text, outputs.html
    if output is not None:
        what = f"writing {output}" if check is None else f"writing and verifying {output}"
        with working(what, not shown.quiet) as advance, suppress(CheckFailed):
            checked = None if check is None else check.of_asset
            program.save_asset(
                output,
                force=asset.force,
                writer=asset.writer,
                debug_info=asset.debug_info,
                progress=advance,
                check=checked,
            )
    elif check is not None:
        with working(f"verifying {model}", not shown.quiet):
            check.of(None)
    passed, verification = check is None or check.passed, None if check is None else check.result
    if text == STANDARD_OUTPUT:
        print_text(program)
    elif text is not None:
        text.parent.mkdir(parents=True, exist_ok=True)
        text.write_text(f"{program}\n")
    if html is not None:
        with working(f"writing {html}", not shown.quiet):
            program.html(html, verification=verification, command=command_line())
    files = {"text": text, "report": html, "asset": output if passed else None}
    for what, path in files.items():
        if path not in (None, STANDARD_OUTPUT) and not shown.quiet:
            say(f"{what + ':':13}{path}")
    if shown.json:
        files_written = {what: path and str(path) for what, path in files.items()}
        print_json(_plain(model, program, verification) | files_written)
    if not passed:
        say(f"error: {_reason(verification)}" + (f"; {output} is not written" if output else ""))
        sys.exit(ANSWER_IS_NO)


def _reason(failed: Verification | None) -> str:
    """Why a conversion is not written."""
    if failed is not None and failed.loss and all(error.passed for error in failed.errors):
        lost = max(failed.loss, key=lambda each: each.rms)
        return f"the weights in fewer bits lose {lost.rms:.0%} of output {lost.name!r}"
    return "the numbers differ from PyTorch's"


def _names_in(text: str) -> tuple[str, ...]:
    """The names in a text, separated by commas.

    Raises:
        UsageError: one is empty.
    """
    names = tuple(name.strip() for name in text.split(","))
    if names != ("",) and not all(names):
        raise UsageError(f"{text!r} has an empty name between its commas")
    return () if names == ("",) else names


def _show(program: AIProgram, dump_stages: Path | None) -> None:
    from patcomp.program.stages import stage_table

    show(stage_table(program.reports), error_console())
    say(str(program.summary()))
    if dump_stages is not None:
        say(f"stage dumps: {dump_stages}")


def _plain(model: str, program: AIProgram, verification: Verification | None) -> dict[str, Any]:
    """What a conversion did, as plain data for JSON."""
    assert program.history is not None
    target = program.history.options.target
    return {
        "model": model,
        **program.summary(verification).to_dict(),
        "audit": None if target is None else program.audit(target).to_dict(),
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
