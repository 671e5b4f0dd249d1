"""The options of `patcomp convert`, of which `compress` has some, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from patcomp.commands.common import (
    AsJson,
    Compress,
    Fix,
    KeepFloat32,
    Random,
    RandomNumbers,
    SizesOption,
    UsageError,
    WriterOption,
    check_page,
    fixed_sizes,
    load_catalogs,
    several_sizes,
)
from patcomp.emit.files.replacement import check_target, check_writable

if TYPE_CHECKING:
    from patcomp.targets import Target

STANDARD_OUTPUT = Path("-")


class Width(StrEnum):
    """What to do with 64-bit numbers."""

    narrow = "narrow"
    error = "error"
    keep = "keep"


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """What is written, and whether it is compared."""

    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The asset; by default MODEL.aimodel, unless --text is given.")
    ] = None
    text: Annotated[Path | None, typer.Option(help="Write the MLIR text to this file; - is standard output.")] = None
    html: Annotated[
        Path | None, typer.Option(help="Write a report of the conversion to this file, to look at in a browser.")
    ] = None
    dump_stages: Annotated[Path | None, typer.Option(help="Write the IR after each stage into this folder.")] = None
    verify: Annotated[
        bool,
        typer.Option(
            "--verify", help="Compare what is written with PyTorch; an asset takes its place only if it passes."
        ),
    ] = False

    def check(self) -> None:
        """Check before the long conversion that text and stages can be written.

        Raises:
            OSError, UsageError: one cannot be written to its path.
        """
        if self.text is not None and self.text != STANDARD_OUTPUT:
            if self.text.is_dir():
                raise UsageError(f"--text {self.text} is a folder; name a file, or - for standard output")
            check_writable(self.text)
        if self.dump_stages is not None:
            if self.dump_stages.exists() and not self.dump_stages.is_dir():
                raise UsageError(f"--dump-stages {self.dump_stages} is a file; name a folder")
            check_writable(self.dump_stages)


@dataclass(frozen=True, kw_only=True)
class DeviceOptions:
    """For which device and sizes a program is made, and what becomes of random numbers."""

    random: Random = RandomNumbers.refuse
    target: Annotated[
        str | None, typer.Option(help="Rewrite the program for a device: cpu, gpu, neural_engine, or one of a catalog.")
    ] = None
    fix: Fix = None

    @property
    def fixed(self) -> dict[str, int]:
        """The sizes that dimensions get, by name.

        Raises:
            UsageError: one has another form.
        """
        return fixed_sizes(self.fix)


@dataclass(frozen=True, kw_only=True)
class ProgramOptions(DeviceOptions):
    """How a model becomes a program."""

    without: Annotated[
        list[str] | None, typer.Option(help="Leave a rule or step of the target out; may be given several times.")
    ] = None
    int64: Annotated[Width, typer.Option(help="Narrow 64-bit integers to 32 bits, or keep them.")] = Width.narrow
    float64: Annotated[Width, typer.Option(help="Narrow 64-bit floats to 32 bits, or keep them.")] = Width.narrow
    input_names: Annotated[str, typer.Option(help="Names of the inputs, separated by commas.")] = ""
    output_names: Annotated[str, typer.Option(help="Names of the outputs, separated by commas.")] = ""
    recover: Annotated[
        str, typer.Option(help="The composites to recover: all, none, or names separated by commas.")
    ] = "all"
    assume: Annotated[
        list[str] | None,
        typer.Option(help='A fact that rules may rely on, "masked rows are not read"; may be given several times.'),
    ] = None
    keep_float32: KeepFloat32 = None
    compress: Compress = None
    sizes: SizesOption = None

    @property
    def several(self) -> dict[str, tuple[int, ...]]:
        """The sizes of which each becomes an entry point, by dimension.

        Raises:
            UsageError: one has another form.
        """
        return several_sizes(self.sizes)

    @property
    def finds_float32(self) -> bool:
        """Whether the ops that stay in float32 are found.

        Raises:
            UsageError: others are given, too.
        """
        found = "auto" in (self.keep_float32 or ())
        if found and self.keep_float32 != ["auto"]:
            raise UsageError("--keep-float32 auto finds all ops; give no others")
        return found


@dataclass(frozen=True, kw_only=True)
class BundleChoices:
    """The options that only bundles have."""

    kind: Annotated[
        str | None, typer.Option(help="The kind of bundle that a folder becomes; by default what it holds.")
    ] = None
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", help="An option of the kind of bundle, image_size=512; may be given several times."),
    ] = None
    dtype: Annotated[
        Literal["float16", "bfloat16", "float32"] | None,
        typer.Option(help="The type of a bundle's weights; by default float16, for speech float32."),
    ] = None
    no_check: Annotated[
        bool, typer.Option("--no-check", help="Do not compare the components of a bundle with PyTorch.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class AssetOptions:
    """How an asset is written."""

    force: Annotated[bool, typer.Option("--force", help="Replace any file or folder at the asset's path.")] = False
    writer: WriterOption = None
    debug_info: Annotated[
        bool,
        typer.Option(
            "--debug-info",
            help="Write the source lines and modules of each op, with paths of this machine, into the asset, for Core "
            "AI Debugger.",
        ),
    ] = False

    def check(self, output: Path | None, html: Path | None) -> None:
        """Check before the long conversion that its results can be written.

        Raises:
            OSError, ValueError: one cannot be written to its path.
            MissingToolchainError: `coreai-core` is to write the asset, and is not installed.
            UsageError: debug information is wanted without an asset, or of coreai-core.
        """
        from patcomp.emit.toolchain.library import toolchain

        if self.debug_info and (output is None or self.writer == "coreai"):
            other = "an asset, and none is written" if output is None else "--writer python"
            raise UsageError(f"--debug-info goes with {other}")
        if output is not None:
            check_target(output, self.force)
            if self.writer == "coreai":
                toolchain()
        if html is not None:
            check_page(html)


@dataclass(frozen=True, kw_only=True)
class ShownOptions:
    """What the user sees of a conversion."""

    report: Annotated[bool, typer.Option(help="List every composite, its rule and its place in the model.")] = False
    json: AsJson = False
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Show only warnings and errors, and what --report asks for.")
    ] = False
    verbose: Annotated[bool, typer.Option(help="Show a progress bar, also if there is no terminal.")] = False


def target_of(name: str | None, without: list[str] | None, catalogs: Sequence[str] | None = None) -> Target | None:
    """The target of options.

    Raises:
        UsageError: --without has no target. ValueError: there is no such target, or it has no such rule or step.
    """
    from patcomp.patterns.installed_catalogs import target_named

    if (chosen := target_named(name, load_catalogs(catalogs))) is None:
        if without:
            raise UsageError("--without leaves rules of a target out; name it with --target")
        return None
    return chosen.without(*without or ())
