"""Models as the command line names them: files of `torch.export.save`, and functions of Python files."""

from __future__ import annotations

import logging
import re
import sys
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from pickle import UnpicklingError
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

import typer

from patcomp.commands.archives import DAMAGED, code_in, weights_only
from patcomp.commands.common import UsageError, import_modules, load_catalogs, quiet, require_transformers, say
from patcomp.commands.exporting import AS_IT_IS, ExportOptions, Source, check_unused, exported_by
from patcomp.errors import PatcompError, shortened
from patcomp.hub import TIMM, is_hub_id

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from patcomp import AIProgram
    from patcomp.targets import Target

_MODEL = typer.Argument(
    help="A program saved by torch.export.save, or FILE.py:FUNCTION, which gives an exported program, or a module "
    "and its example inputs (a tuple, or a dict of keyword arguments).",
    show_default=False,
)
Model = Annotated[str, _MODEL]
OptionalModel = Annotated[
    str | None,
    typer.Argument(
        help=f"{_MODEL.help} Or the folder of a checkpoint of transformers or timm. Or timm:NAME, with --weights.",
        show_default=False,
    ),
]
Train = Annotated[
    bool,
    typer.Option(
        "--train", help="Export the module of FILE.py:FUNCTION in the mode that it has; otherwise in eval mode."
    ),
]

Trusted = Annotated[
    bool,
    typer.Option(
        "--trusted",
        help="Load a file that can run code while it is loaded. Without this option such files are refused.",
    ),
]

WHAT_MODELS_ARE = "a model is a file that torch.export.save wrote, or FILE.py:FUNCTION"


def load_model(
    model: str, modules: Sequence[str] | None = None, *, train: bool = False, trusted: bool = False
) -> ExportedProgram:
    """The exported program that the command line names.

    Args, raises:
        As `load_source`.
    """
    return load_source(model, modules, ExportOptions(train), trusted=trusted).exported


def load_source(
    model: str,
    modules: Sequence[str] | None = None,
    options: ExportOptions = AS_IT_IS,
    *,
    trusted: bool = False,
) -> Source:
    """The model that the command line names.

    Args:
        model: a file that `torch.export.save` wrote, or `FILE.py:FUNCTION`.
        modules: modules to import first.
        options: how to export a module.
        trusted: whether to load a file that can run code while it is loaded.

    Raises:
        UsageError: the argument is a folder, or a Python file without a function; or an option does not fit the model.
        PatcompError: `torch.export.save` did not write the file, the file can run code, a module that it needs cannot
            be imported, or the function returns neither a program nor a module with inputs.
        FileNotFoundError: there is no such file.
    """
    from patcomp.commands.torchvision import declare_operators, misfit

    quiet()
    declare_operators()
    known = "torchvision" in sys.modules
    try:
        import_modules(modules)
        file, separator, function = model.rpartition(".py:")
        if separator:
            return exported_by(Path(f"{file}.py"), function, options)
        exported = _load(Path(model), trusted)
        check_unused(model, options)
        return Source(model, exported)
    finally:
        if not known and (problem := misfit()):
            say(f"note: {problem}")


def load_sources(
    model: str,
    modules: Sequence[str] | None,
    options: ExportOptions,
    *,
    task: str | None,
    weights: Path | None,
    image: str | None,
    allowed: Mapping[str, Sequence[str]],
    trusted: bool,
) -> list[Source]:
    """The functions of the model that the command line names: several if it is the folder of a checkpoint.

    Args:
        task: what the model of a folder is for, if its class does not say it.
        weights: the file of the weights of a model by name.
        image: the height and width of an image of bytes, `480x640`, if the model shall take one.
        allowed: the weights that may differ, by the options `--allow-missing` and `--allow-unexpected`.

    Further args, raises:
        As `load_source`. UsageError: the task of a folder decides an option, or an option goes with another model.
    """
    by_name = model.startswith(TIMM)
    if weights is not None and not by_name:
        raise UsageError(f"--weights goes with a model by name, {TIMM}resnet18")
    if not is_checkpoint(Path(model)) and not is_on_the_hub(model) and not by_name:
        if unused := [option for option, names in allowed.items() if names]:
            raise UsageError(f"{', '.join(unused)} goes with the folder of a checkpoint; {model} has its own weights")
        for option, value in (("--task", task), ("--image", image)):
            if value is not None:
                raise UsageError(f"{option} goes with the folder of a checkpoint, and {model} is none")
        return [load_source(model, modules, options, trusted=trusted)]
    if unused := replace(options, half="").given() + ["--train"] * options.train:
        raise UsageError(
            f"{model} is {'a name' if by_name else 'a folder'}, whose task decides {', '.join(unused)}; leave it out"
        )
    from patcomp.commands.torchvision import declare_operators

    quiet()
    declare_operators()  # transformers imports torchvision
    import_modules(modules)
    require_transformers("the model of a folder")
    from patcomp.language.loading import Allowed
    from patcomp.tasks.folder_to_program import entries_of, exported

    entries = entries_of(
        model, options.half or "float32", chosen=task, weights=weights, image=_size_in(image),
        trust_remote_code=trusted, allowed=Allowed.of(allowed["--allow-missing"], allowed["--allow-unexpected"]),
    )  # fmt: skip
    return [
        Source(model, exported(entry), entry.module, entry.name, entry.given, entry.outputs, entry.states)
        for entry in entries
    ]


def _size_in(image: str | None) -> tuple[int, int] | None:
    """The height and width in the value of --image."""
    if image is None:
        return None
    sizes = image.split("x")
    if len(sizes) != 2 or not all(size.isdecimal() and int(size) for size in sizes):
        raise UsageError(f"--image takes the height and width of an image, such as 480x640, got {image!r}")
    return int(sizes[0]), int(sizes[1])


def is_checkpoint(path: Path) -> bool:
    """Whether a path is a folder other than an asset, so that it can only be the folder of a checkpoint."""
    return path.is_dir() and not (path / "main.mlirb").exists()


def check_no_folder(path: Path) -> None:
    """Check that a path is not the folder of a checkpoint, for the commands that do not take one.

    Raises:
        UsageError: it is.
    """
    if is_checkpoint(path) and (path / "config.json").is_file():
        raise UsageError(
            f"{path} is the folder of a checkpoint, which only convert and convert-lm take; {WHAT_MODELS_ARE}"
        )


def is_on_the_hub(model: str) -> bool:
    """Whether a model is named by an id of the hub, `owner/name`, and not by a file."""
    return is_hub_id(model) and Path(model).suffix not in (".pt2", ".pt", ".pth", ".aimodel")


def convert_model(
    model: str,
    modules: Sequence[str] | None,
    catalogs: Sequence[str] | None,
    *,
    train: bool = False,
    trusted: bool = False,
    target: Target | None = None,
    fixed: Mapping[str, int] = MappingProxyType({}),
) -> AIProgram:
    """Convert the model that the command line names, to answer questions about it; random numbers become inputs."""
    from patcomp import TorchConverter

    converter = TorchConverter(catalog=load_catalogs(catalogs), random="inputs")
    program = load_model(model, modules, train=train, trusted=trusted)
    return converter.add_exported_program(program).to_coreai(target=target, fixed=fixed)


def _load(path: Path, trusted: bool) -> ExportedProgram:
    import torch

    _check_file(path)
    if not trusted:
        _check_trust(path)
    reasons = _Reasons()
    loggers = [logging.getLogger(name) for name in _Reasons.LOGGERS]
    for logger in loggers:
        logger.addFilter(reasons)
    try:
        with nullcontext() if trusted else weights_only():
            return torch.export.load(path)
    except Exception as error:
        if isinstance(error, UnpicklingError) and not trusted:
            pickled = re.search(r"GLOBAL ([\w.]+)", str(error))
            raise _distrust(path, f"it holds a pickled {pickled[1] if pickled else 'object'}") from error
        found = reasons.last or error
        reason = str(found).partition("This is an internal miniz error")[0].strip()
        if not isinstance(found, RuntimeError | ValueError | OSError):
            reason = f"PyTorch's loader fails with {type(found).__name__}: {reason}"
        reason = _shortened(reason)
        advice = f"; {WHAT_MODELS_ARE}"
        if "regist" in reason:
            advice = "\n--import MODULE imports a module that registers a class or an operator first"
        raise PatcompError(f"{path} is not a program that torch.export.save wrote: {reason}{advice}") from error
    finally:
        for logger in loggers:
            logger.removeFilter(reasons)


def _shortened(reason: object) -> str:
    """A library's message about a file, shortened, because it may repeat the content of the file."""
    return shortened(str(reason), 1000)


def _check_trust(path: Path) -> None:
    """Check that nothing in a file can run code when PyTorch loads it.

    Raises:
        PatcompError: something can, or the file is damaged.
    """
    try:
        found = code_in(path)
    except PatcompError as error:
        raise PatcompError(
            f"{path} is not a program that torch.export.save wrote: {_shortened(error)}; {WHAT_MODELS_ARE}"
        ) from error
    if found:
        raise _distrust(path, found)


def _distrust(path: Path, reason: str) -> PatcompError:
    return PatcompError(
        f"{path} can run code while PyTorch loads it, because {_shortened(reason)}. Give --trusted if you trust "
        "whoever made the file; docs/untrusted-files.md explains what is checked"
    )


def _check_file(path: Path) -> None:
    """Check that a file can be an exported program.

    Raises:
        As `load_model`.
    """
    check_no_folder(path)
    if path.is_dir():
        what = "an asset, which is converted already" if (path / "main.mlirb").exists() else "a folder"
        raise UsageError(f"{path} is {what}; {WHAT_MODELS_ARE}")
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}; {WHAT_MODELS_ARE}")
    if path.suffix == ".py":
        raise UsageError(
            f"{path} is a Python file: name the function in it that returns the model and its inputs, {path}:FUNCTION"
        )
    if _written_by_torch_save(path):
        raise PatcompError(
            f"{path} was written by torch.save: it holds weights or a pickled module, and no exported program; "
            "write a FILE.py with a function that loads it and returns the module and its inputs, or save "
            "torch.export.export(module, inputs) with torch.export.save"
        )


def _written_by_torch_save(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except DAMAGED:
        return False
    # in a file that was cut off, zipfile finds the last archive inside it
    if min((member.header_offset for member in members), default=0):
        return False
    return any(member.filename.endswith("/data.pkl") and member.filename.count("/") == 1 for member in members)


class _Reasons(logging.Filter):
    """Keeps the exceptions that PyTorch logs if it cannot load a program, because its own exception has no reason."""

    LOGGERS = ("torch.export", "torch.export.pt2_archive._package", "torch._export.serde.serialize")

    def __init__(self) -> None:
        super().__init__()
        self.last: BaseException | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        """Drop the record and keep its exception."""
        if record.exc_info and record.exc_info[1] is not None:
            self.last = record.exc_info[1]
        return False
