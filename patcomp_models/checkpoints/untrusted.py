"""Folders of strangers: checkpoints, pipelines and bundles (`docs/untrusted-files.md`).

`check_folder` looks at a folder before anything reads it. It refuses links that lead out of the folder, devices, pipes,
and names in JSON files that lead out of it. What patcomp opens of a folder itself is opened here, and classes that data
names are found here.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from patcomp.errors import PatcompError, reason_of, shortened
from patcomp_models.checkpoints.config_numbers import check_numbers
from patcomp_models.checkpoints.config_paths import check_paths, roots_of
from patcomp_models.errors import BundleError

if TYPE_CHECKING:
    import numpy as np


# ---- files -------------------------------------------------------------------------------------------


def check_folder(folder: Path, error: type[BundleError] = BundleError) -> None:
    """Check a folder before it is read; nothing is checked of one that is not there.

    Hidden folders inside it, such as `.git`, and those below the third level are not looked at: no library reads them,
    and `copy_files` looks at what it copies.

    Args:
        folder: of a checkpoint, a pipeline or a bundle.
        error: what is raised.

    Raises:
        BundleError: it has a link that leads out of it, a device or a pipe, or data that names a file outside of it.
    """
    for path in _files_below(folder, error, deepest=_LEVELS) if folder.is_dir() else ():
        if path.suffix == ".json" and len(path.relative_to(folder).parts) <= 2:
            _check_names(folder, path, error)


def copy_files(source: Path, place: Path) -> None:
    """Copy a file, or all files of a folder but the hidden ones; a link becomes the file that it leads to.

    Args:
        source: the file or folder.
        place: the new file or folder, which does not exist.

    Raises:
        BundleError: a link leads out of the folder, or something is no file.
    """
    if not source.is_dir():
        place.write_bytes(bytes_of(source))
        return
    files = list(_files_below(source, BundleError))
    place.mkdir()
    for file in files:
        if file.name.startswith("."):
            continue
        made = place / file.relative_to(source)
        made.parent.mkdir(parents=True, exist_ok=True)
        with _opened(file, BundleError) as opened, made.open("wb") as written:
            while piece := opened.read(_PIECE):
                written.write(piece)


_LEVELS = 3
_PIECE = 1 << 24
"""How many bytes are copied at once."""


def _files_below(folder: Path, error: type[BundleError], deepest: int | None = None) -> Iterator[Path]:
    """The files of a folder and of the folders in it, but for hidden folders, in the order of their names."""
    roots, waiting = roots_of(folder), [(folder, 1)]
    while waiting:
        here, level = waiting.pop()
        with os.scandir(here) as found:
            entries = sorted(found, key=lambda each: each.name)
        for entry in entries:
            path = Path(entry.path)
            if entry.is_symlink():
                target = Path(os.path.realpath(path))
                if not any(target.is_relative_to(root) for root in roots):
                    raise error(
                        f"{str(path)!r} is a link that leads out of the folder; if you trust it, copy the file that it "
                        "leads to in its place (cp -rL copies a folder in this way)"
                    )
                if target.is_dir():
                    raise error(f"{str(path)!r} is a link to a folder; copy the folder in its place (cp -rL does)")
                if not target.exists():
                    continue  # a file that was not fetched; who needs it says so
            elif entry.is_dir():
                if not entry.name.startswith(".") and level != deepest:
                    waiting.append((path, level + 1))
                continue
            check_file(path, error)
            yield path


def check_file(file: Path, error: type[BundleError] = BundleError) -> None:
    """Check that a path leads to a regular file.

    Raises:
        FileNotFoundError: there is nothing.
        BundleError: it is a folder, a device, a pipe or a socket, which may never end.
    """
    if not stat.S_ISREG(file.stat().st_mode):
        raise error(f"{str(file)!r} is no file; a folder of a model has only files and folders")


def _opened(file: Path, error: type[BundleError]) -> Any:
    check_file(file, error)
    return file.open("rb")


def bytes_of(file: Path, most: int = -1, error: type[BundleError] = BundleError) -> bytes:
    """The content of a file, or its first bytes.

    Raises:
        FileNotFoundError: there is no such file.
        BundleError: it is no file.
    """
    with _opened(file, error) as opened:
        data: bytes = opened.read(most)
    return data


def value_in(file: Path, error: type[BundleError] = BundleError) -> Any:
    """The value in a JSON file.

    Raises:
        FileNotFoundError: there is no such file.
        BundleError: it is not JSON.
    """
    try:
        return json.loads(bytes_of(file, error=error).decode("utf-8"))
    except (ValueError, RecursionError) as reason:
        if isinstance(reason, BundleError):
            raise
        raise error(f"{str(file)!r} is not JSON: {reason_of(reason)}") from None


def object_in(file: Path, error: type[BundleError] = BundleError) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        FileNotFoundError: there is no such file.
        BundleError: it holds something else.
    """
    found = value_in(file, error)
    if not isinstance(found, dict):
        raise error(f"{str(file)!r} must hold a JSON object, and holds a {type(found).__name__}")
    return found


def tensors_in(file: Path) -> Any:
    """A file of safetensors, opened; its tensors are mapped, for PyTorch.

    Raises:
        SafetensorError: it is damaged.
        OSError: it cannot be read.
        BundleError: it is no file.
    """
    from safetensors import safe_open

    check_file(file)
    return safe_open(file, "pt")


def array_in(file: Path) -> np.ndarray:
    """The array in a file of numpy, which may hold no Python objects.

    Raises:
        BundleError: it is damaged, or no file.
    """
    import numpy as np

    check_file(file)
    try:
        found = np.load(file, mmap_mode="r", allow_pickle=False)  # mapped: a header may state any size
    except (ValueError, OSError, EOFError) as reason:
        raise BundleError(f"{str(file)!r} is no array of numpy: {reason_of(reason)}") from None
    if not isinstance(found, np.ndarray):
        raise BundleError(f"{str(file)!r} is no array of numpy, but an archive")
    return np.array(found)


@contextmanager
def reading(folder: Path, error: type[BundleError] = BundleError) -> Iterator[None]:
    """While code takes settings out of a folder's files: one that is missing, or of another kind, is an error.

    Raises:
        BundleError: the code stumbles over a setting.
    """
    try:
        yield
    except PatcompError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as reason:
        said = shortened(" ".join(f"{type(reason).__name__}: {reason}".split()))
        raise error(
            f"a setting in {str(folder)!r} is missing or of another kind ({said}); correct its files"
        ) from reason


# ---- names that data gives -----------------------------------------------------------------------------


def inside(folder: Path, name: object, said: str, error: type[BundleError] = BundleError) -> Path:
    """The path of a file or folder that data names.

    Args:
        folder: which has it.
        name: its path in the folder, with `/`.
        said: what names it, for the error: `assets.main of metadata.json`.
        error: what is raised.

    Raises:
        BundleError: the name is no path below the folder.
    """
    if not isinstance(name, str) or not _stays_inside(name):
        raise error(f"{said} is {name!r}, and must be the name of a file or folder in {str(folder)!r}")
    return folder / name


def _stays_inside(name: str) -> bool:
    path = PurePosixPath(name)
    is_plain = name.isprintable() and "\\" not in name and len(name) < 256
    return is_plain and path.parts != () and not path.is_absolute() and ".." not in path.parts


def _check_names(root: Path, file: Path, error: type[BundleError]) -> None:
    """Check the entries of a JSON file that libraries read as paths, as places of code, or as counts.

    Args:
        root: the folder that was given, which has the file.
        file: of the folder.
        error: what is raised.
    """
    folder, name = file.parent, file.name
    try:
        found = value_in(file)
    except BundleError:
        return  # the libraries have the same parser; who needs the file says what is wrong with it
    if not isinstance(found, dict):
        return
    if name.endswith("config.json"):
        check_paths(root, file, found, error)
    if ".index." in name:
        places = found.get("weight_map")
        for each in {*places.values()} if isinstance(places, dict) and _are_texts(places.values()) else ():
            inside(folder, each, f"a file that {name} names", error)
    elif name == "config.json":
        if isinstance(stored := found.get("transformers_weights"), str):
            inside(folder, stored, f"transformers_weights of {str(file)!r}", error)
        for part in (found, *(each for each in found.values() if isinstance(each, dict))):
            for key in _IMPLEMENTATIONS:
                if "/" in str(part.get(key)):
                    raise error(f"{key} of {str(file)!r} is {part[key]!r}, code of the hub, which is not run")
        check_numbers(file, found, error)
    elif name == "generation_config.json":
        check_numbers(file, {key: found[key] for key in found if "token_id" in key}, error)
    elif name == "tokenizer_config.json":
        listed = found.get("fast_tokenizer_files")
        for each in listed if isinstance(listed, list) else ():
            inside(folder, each, f"a file that {name} names", error)
        if found.get("init_inputs"):
            raise error(f"init_inputs of {str(file)!r} may name any file; leave it out")
    elif name == "model_index.json":
        for key, entry in found.items():
            is_part = isinstance(entry, list) and all(isinstance(each, str | None) for each in entry)
            if not key.isidentifier() or (is_part and not _are_names(entry)):
                raise error(
                    f"{str(file)!r} has {key!r}: {entry!r}, and must have the name of a folder with a library and a "
                    "class"
                )


_IMPLEMENTATIONS = ("attn_implementation", "_attn_implementation", "experts_implementation")
"""Settings of transformers that may name code of the hub, `owner/name`."""


def _are_texts(values: Any) -> bool:
    return all(isinstance(each, str) for each in values)


def _are_names(entry: list[Any]) -> bool:
    """Whether an entry is a library and a class, or two times nothing."""
    if entry == [None, None]:
        return True
    is_pair = len(entry) == 2 and _are_texts(entry)
    return is_pair and entry[1].isidentifier() and all(map(str.isidentifier, entry[0].split(".")))


# ---- classes that data names ---------------------------------------------------------------------------

_BASES: Mapping[tuple[str, str], str] = {
    ("diffusers", "pipeline"): "DiffusionPipeline",
    ("diffusers", "scheduler"): "SchedulerMixin",
    ("diffusers", "model"): "ModelMixin",
    ("transformers", "model"): "PreTrainedModel",
    ("transformers", "tokenizer"): "PreTrainedTokenizerBase",
}
"""The libraries whose classes data may name, and what each class of a role derives from."""


def named_class(library: object, name: object, role: str) -> Any:
    """A class of a library that data names.

    Args:
        library: `"diffusers"` or `"transformers"`.
        name: of the class, as the library exports it.
        role: `"model"`, `"pipeline"`, `"scheduler"` or `"tokenizer"`.

    Raises:
        BundleError: the library is another one or is not installed, or it has no such class of this role.
    """
    base = _BASES.get((library, role)) if isinstance(library, str) else None
    if base is None:
        known = " or ".join(each for each, of in _BASES if of == role)
        raise BundleError(f"the library of a {role} is {library!r}, and must be {known}")
    if not isinstance(name, str) or not name.isidentifier() or name.startswith("_"):
        raise BundleError(f"the class of a {role} is {name!r}, which is no name of a class of {library}")
    try:
        package = import_module(str(library))
        found = getattr(package, name)
    except ImportError as error:
        raise BundleError(f'{name} needs {library}; install it with pip install "patcomp[models]"') from error
    except AttributeError:
        raise BundleError(f"the installed version of {library} has no class {name}; install a newer one") from None
    if not isinstance(found, type) or not issubclass(found, getattr(package, base)):
        raise BundleError(f"{name} of {library} is no {role}; correct the folder")
    return found
