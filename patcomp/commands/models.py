"""Models as the command line names them, and the options that say how they become programs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from patcomp.commands.common import (
    AllowMissing,
    AllowUnexpected,
    Catalogs,
    Modules,
    UsageError,
    hide_export_warnings,
    import_modules,
    import_torch,
    load_catalogs,
    say,
)
from patcomp.commands.exporting import ExportOptions, Preparation, check_unused, dynamic_sizes, exported_by
from patcomp.commands.onnx_files import open_sizes, source_of_onnx
from patcomp.commands.packages import reader_of
from patcomp.commands.progress import working
from patcomp.commands.saved_programs import check_saved_program, load_program
from patcomp.commands.subjects import MODELS, Subject, subject_of
from patcomp.conversion.source import ModelSource, add_sources
from patcomp.hub import TIMM

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from patcomp import AIProgram
    from patcomp.targets import Target

OptionalModel = Annotated[
    str | None,
    typer.Argument(
        help="A program saved by torch.export.save; FILE.py:FUNCTION, which gives an exported program, or a module and "
        "its example inputs (a tuple, or a dict of keyword arguments); a file of ONNX; the folder of a checkpoint of "
        "transformers or timm; timm:NAME, with --weights; or an id of the hub.",
        show_default=False,
    ),
]
ModelArgument = Annotated[str, typer.Argument(help="A model, as for convert.", show_default=False)]
Anything = Annotated[
    str,
    typer.Argument(
        help="A model, as for convert, which is converted; an asset, or a bundle that has one; a text (MLIR); or a "
        "report.",
        show_default=False,
    ),
]


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """How the model that a command names is loaded and exported. Each field is an option of all these commands."""

    half: Annotated[
        bool, typer.Option("--half", help="Convert the module and its floating-point inputs to float16 first.")
    ] = False
    bfloat16: Annotated[bool, typer.Option("--bfloat16", help="The same to bfloat16.")] = False
    dynamic: Annotated[
        list[str] | None, typer.Option(help="A dynamic dimension, x:0=batch:1..64; may be given several times.")
    ] = None
    strict: Annotated[bool, typer.Option("--strict", help="Let torch.export trace the module strictly.")] = False
    assume_branch: Annotated[
        bool,
        typer.Option(
            "--assume-branch",
            help="Decide by data as the example does, in all runs, where the model does it in Python.",
        ),
    ] = False
    train: Annotated[
        bool,
        typer.Option(
            "--train", help="Export the module of FILE.py:FUNCTION in the mode that it has; otherwise in eval mode."
        ),
    ] = False
    task: Annotated[
        Literal["embedding", "rerank", "boxes"] | None,
        typer.Option(
            help="What the model of a folder is for: one vector of a text, one score of it, or the boxes of an "
            "image with their scores."
        ),
    ] = None
    onnx_size: Annotated[
        list[str] | None,
        typer.Option(help="A number for a size that a file of ONNX leaves open, batch=1; may be given several times."),
    ] = None
    weights: Annotated[Path | None, typer.Option(help="The file of the weights of timm:NAME.")] = None
    preprocess: Annotated[
        list[str] | None,
        typer.Option(
            help="image: the program takes the bytes of an image, and what happens to them before the model is part of "
            "it, as the image processor of a folder or the transforms of FILE.py:FUNCTION say; or such a setting of a "
            "function, mean=0.5,0.5,0.5, std, resize=256, crop=224x224, filter=bicubic; may be given several times."
        ),
    ] = None
    image: Annotated[
        str | None,
        typer.Option(
            help="The height and width of the image of --preprocess image, 480x640, which it stands for; by default "
            "those that the model takes."
        ),
    ] = None
    allow_missing: AllowMissing = None
    allow_unexpected: AllowUnexpected = None
    modules: Modules = None
    catalog: Catalogs = None
    trusted: Annotated[
        bool,
        typer.Option(
            "--trusted",
            help="Load a file that can run code while it is loaded. Without this option such files are refused.",
        ),
    ] = False

    def __post_init__(self) -> None:
        if self.half and self.bfloat16:
            raise UsageError("--half and --bfloat16 exclude each other")

    @property
    def export(self) -> ExportOptions:
        """How a module becomes an exported program."""
        half = "float16" if self.half else "bfloat16" if self.bfloat16 else ""
        return ExportOptions(self.train, half, tuple(self.dynamic or ()), self.strict, self.assume_branch)

    @property
    def onnx_sizes(self) -> dict[str, int]:
        """Numbers for open sizes of a file of ONNX.

        Raises:
            UsageError: an option has another form.
        """
        return open_sizes(self.onnx_size or ())

    def given(self, *names: str) -> list[str]:
        """The options among some fields that are not at their default, as the user wrote them."""
        return [f"--{name.replace('_', '-')}" for name in names if getattr(self, name)]

    def check_unused(self, name: str, found: Subject) -> None:
        """Refuse the options for models, because this is none.

        Raises:
            UsageError: one is.
        """
        of_catalogs = ("modules", "catalog", "trusted")
        if unused := self.given(*(each.name for each in fields(self) if each.name not in of_catalogs)):
            raise converted_already(unused, name, found)


def converted_already(options: list[str], name: str, found: Subject) -> UsageError:
    """The error about options that only a model could follow."""
    return UsageError(f"{', '.join(options)} goes with a model, and {name} is {found}, which is converted already")


_CHECKPOINTS = (Subject.FOLDER, Subject.NAME)
_FOR_FOLDERS = ("task", "allow_missing", "allow_unexpected")
_FOR_IMAGES = ("preprocess", "image")


def load_exported(model: str, *, trusted: bool = False) -> ExportedProgram:
    """The exported program of a file or of a function of a Python file.

    Args, raises:
        As `load_sources`.
    """
    (source,) = load_sources(model, "convert", ModelOptions(trusted=trusted))
    return source.exported


def load_sources(model: str, command: str, options: ModelOptions, *, notes: bool = True) -> list[ModelSource]:
    """The functions of the model that the command line names: several if it is the folder of a checkpoint.

    Args:
        model: as the user wrote it.
        command: the name of the command, for messages.
        options: how to load and export it.
        notes: whether to say what the user did not ask for, such as eval mode.

    Raises:
        FileNotFoundError: there is no such file or folder.
        UsageError: there is no model there, or an option does not fit the model.
        PatcompError: the model cannot be loaded or exported.
    """
    found = subject_of(model, command, MODELS)
    _check(model, found, options)
    import_torch()
    from patcomp.torchvision import misfit  # declares operators: transformers imports torchvision

    hide_export_warnings()
    known = "torchvision" in sys.modules
    try:
        import_modules(options.modules)
        if found in _CHECKPOINTS:
            return reader_of(found).sources(model, found, options)
        if found is Subject.FUNCTION:
            file, _, function = model.rpartition(".py:")
            source = exported_by(Path(f"{file}.py"), function, options.export, _preparation(options))
        elif found is Subject.ONNX:
            source = source_of_onnx(Path(model), options.onnx_sizes)
        else:
            source = ModelSource(model, load_program(Path(model), options.trusted))
        if notes and source.note:
            say(f"note: {source.note}")
        return [source]
    finally:
        if notes and not known and (problem := misfit()):
            say(f"note: {problem}")


def _check(model: str, found: Subject, options: ModelOptions) -> None:
    """Check what the user gives, as far as it can be done before PyTorch is imported, which takes seconds.

    Raises:
        UsageError: an option does not fit the model.
        PatcompError: a file or a folder is no model.
    """
    if options.weights is not None and found is not Subject.NAME:
        raise UsageError(f"--weights goes with a model by name, {TIMM}resnet18")
    if found in _CHECKPOINTS:
        reader_of(found).check(model, found, options)
    elif unused := options.given(*_FOR_FOLDERS):
        raise UsageError(f"{', '.join(unused)} goes with the folder of a checkpoint, and {model} is {found}")
    elif found is not Subject.FUNCTION and (unused := options.given(*_FOR_IMAGES)):
        raise UsageError(
            f"{', '.join(unused)} goes with the folder of a checkpoint or FILE.py:FUNCTION, and {model} is {found}"
        )
    elif options.onnx_size and found is not Subject.ONNX:
        raise UsageError(f"--onnx-size goes with a file of ONNX, and {model} is {found}")
    elif found is Subject.ONNX:
        _ = options.onnx_sizes
        check_unused(model, options.export)
    elif found is Subject.PROGRAM:
        check_unused(model, options.export)
        check_saved_program(Path(model), options.trusted)
    else:
        dynamic_sizes(options.export.dynamic)
        _preparation(options)


def _preparation(options: ModelOptions) -> Preparation | None:
    """What goes before the module of a Python file, if the user wants anything there.

    Raises:
        UsageError: an option has another form.
    """
    return reader_of(Subject.FOLDER).preprocessing(options) if options.given(*_FOR_IMAGES) else None


def convert_model(
    model: str,
    command: str,
    options: ModelOptions,
    *,
    target: Target | None = None,
    fixed: Mapping[str, int] = MappingProxyType({}),
) -> AIProgram:
    """Convert the model that the command line names, to answer questions about it; random numbers become inputs.

    Args, raises:
        As `load_sources`.
    """
    with working(f"converting {model}"):
        return converted_model(load_sources(model, command, options), options, target=target, fixed=fixed)


def converted_model(
    sources: list[ModelSource],
    options: ModelOptions,
    *,
    target: Target | None = None,
    fixed: Mapping[str, int] = MappingProxyType({}),
    sizes: Mapping[str, Sequence[int]] = MappingProxyType({}),
) -> AIProgram:
    """The program of a model's functions; random numbers become inputs."""
    from patcomp import TorchConverter

    converter = TorchConverter(catalog=load_catalogs(options.catalog), random="inputs")
    return add_sources(converter, sources).to_coreai(target=target, fixed=fixed, sizes=sizes)
