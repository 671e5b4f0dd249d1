"""Find the kind of a command-line argument (`Subject`); refuse a kind that the command does not take."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path

from patcomp.commands.common import UsageError
from patcomp.hub import TIMM, is_hub_id


class Subject(StrEnum):
    """The kinds of things that commands take."""

    PROGRAM = "an exported program"
    FUNCTION = "a function of a Python file"
    FOLDER = "the folder of a model"
    NAME = "the name of a model"
    ONNX = "a model of ONNX"
    PIPELINE = "the folder of a pipeline of models"
    GGUF = "a GGUF file"
    BUNDLE = "a bundle"
    ASSET = "an asset"
    TEXT = "the text of a program"
    REPORT = "a report"


MODELS = (Subject.PROGRAM, Subject.FUNCTION, Subject.FOLDER, Subject.NAME, Subject.ONNX)
CONVERTED = (Subject.ASSET, Subject.BUNDLE, Subject.TEXT, Subject.REPORT)

WHAT_MODELS_ARE = (
    "a model is a file that torch.export.save wrote, FILE.py:FUNCTION, a file of ONNX, the folder of a checkpoint, "
    "timm:NAME, or an id of the hub"
)

_SAVED = (".pt2", ".pt", ".pth")
_TEXTS = {".mlir": Subject.TEXT, ".html": Subject.REPORT}
_OF_OTHERS = {
    ".safetensors": "a file of weights without a model; give its folder, if config.json is there, or FILE.py:FUNCTION "
    "with a function that loads the weights and returns the module and its inputs",
    ".mlmodel": "a model of Core ML; patcomp converts models of PyTorch",
    ".mlpackage": "a model of Core ML; patcomp converts models of PyTorch",
    ".tflite": "a model of TensorFlow; patcomp converts models of PyTorch",
}
"""What files are that no command for models takes, by the ends of their names."""


def subject_of(name: str, command: str, takes: Collection[Subject]) -> Subject:
    """What the name of a file, a folder or a model stands for.

    Args:
        name: as the user wrote it.
        command: the name of the command, for messages.
        takes: what the command takes.

    Raises:
        FileNotFoundError: there is no such file or folder.
        UsageError: the command does not take what is there.
    """
    found = _subject(name, command, takes)
    if found in takes:
        return found
    if found is Subject.PROGRAM:
        from patcomp.commands.saved_programs import check_written_by_export

        check_written_by_export(Path(name))
    advice = f"; it takes {_listed(takes)}"
    if found in (Subject.PIPELINE, Subject.GGUF):
        advice += f". `patcomp convert {name}` makes a bundle of it"
    elif found in MODELS:
        advice += f". `patcomp convert {name}` makes an asset of it"
    elif found not in (Subject.TEXT, Subject.REPORT) and Subject.PROGRAM in takes:
        advice += ", and this one is converted already"
    raise UsageError(f"{name} is {found}, which `patcomp {command}` does not take{advice}")


def is_on_the_hub(model: str) -> bool:
    """Whether a model is named by an id of the hub, `owner/name`, and not by a file."""
    return is_hub_id(model) and Path(model).suffix not in (".pt2", ".pt", ".pth", ".aimodel", ".mlir", ".py")


def becomes_bundle(model: str, found: Subject, output: Path | None) -> bool:
    """Whether a conversion makes a bundle: the model is a pipeline of diffusers or a GGUF file, or a folder without
    `.aimodel` is to be written."""
    if found in (Subject.PIPELINE, Subject.GGUF):
        return True
    return Path(model).is_dir() and output is not None and output.suffix != ".aimodel"


def _subject(name: str, command: str, takes: Collection[Subject]) -> Subject:
    if not name:
        raise UsageError(f"name what `patcomp {command}` is to take; the name is empty")
    if "://" in name:
        raise UsageError(f"{name} is an address, and none is read; give an id of the hub, owner/name, or download it")
    file, separator, function = name.rpartition(".py:")
    path = Path(f"{file}.py") if separator else Path(name)
    if name.startswith(TIMM) and not path.exists():
        return Subject.NAME
    if not path.exists():
        if is_on_the_hub(name):
            return Subject.NAME
        _undo_a_broken_save(path)
    if not path.exists():
        advice = WHAT_MODELS_ARE if Subject.PROGRAM in takes else f"`patcomp {command}` takes {_listed(takes)}"
        raise FileNotFoundError(f"there is no file or folder {path}; {_similar(path) or advice}")
    if separator and not function:
        raise UsageError(f"{path} is a Python file: name the function behind the colon, {path}:FUNCTION")
    if separator and path.is_file():
        return Subject.FUNCTION
    if path.suffix in _OF_OTHERS:
        raise UsageError(f"{name} is {_OF_OTHERS[path.suffix]}")
    if path.is_dir():
        return _of_a_folder(path)
    if path.suffix == ".onnx":
        return Subject.ONNX
    if path.suffix == ".gguf":
        return Subject.GGUF
    if path.suffix == ".py":
        advice = f"name the function in it that returns the model and its inputs, {path}:FUNCTION"
        other = f"`patcomp {command}` takes {_listed(takes)}"
        raise UsageError(f"{path} is a Python file: {advice if Subject.FUNCTION in takes else other}")
    if path.suffix == ".aimodel":
        raise UsageError(f"{path} is a file, and an asset is a folder; copy the whole folder")
    if path.suffix in _TEXTS:
        return _TEXTS[path.suffix]
    if path.suffix in _SAVED or is_archive(path):
        return Subject.PROGRAM
    raise UsageError(f"{path} is neither a model, nor an asset, nor the text of a program (.mlir)")


def is_archive(path: Path) -> bool:
    """Whether a file begins like a file of `torch.export.save`."""
    with path.open("rb") as file:
        return file.read(2) == b"PK"


def _similar(path: Path) -> str:
    """A question about a file of a similar name; empty if there is none."""
    names = {each.stem: each.name for each in path.parent.iterdir()} if path.parent.is_dir() else {}
    near = get_close_matches(path.stem, names, n=1, cutoff=0.75)
    return f"did you mean {path.parent / names[near[0]]}?" if near else ""


def _undo_a_broken_save(path: Path) -> None:
    from patcomp.emit.files.replacement import recover_asset

    if path.suffix == ".aimodel":
        recover_asset(path)


def _of_a_folder(path: Path) -> Subject:
    if (path / "main.mlirb").exists() or path.suffix == ".aimodel":
        return Subject.ASSET  # which may be a damaged one
    if (path / "metadata.json").is_file():
        return Subject.BUNDLE
    return Subject.PIPELINE if (path / "model_index.json").is_file() else Subject.FOLDER


def _listed(takes: Collection[Subject]) -> str:
    names = ["a model"] * (Subject.PROGRAM in takes) + [str(each) for each in takes if each not in MODELS]
    return " or ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
