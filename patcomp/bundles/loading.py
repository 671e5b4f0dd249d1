"""Models from the folders of a pipeline, by the class that the folder names."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch

from patcomp.bundle_folders.errors import BundleError
from patcomp.bundle_folders.room import check_room
from patcomp.bundle_folders.untrusted import named_class
from patcomp.errors import reason_of


def model_of(folder: Path, library: str, name: str, dtype: str, **options: Any) -> Any:
    """A model in evaluation mode.

    Args:
        folder: of the model, with `config.json` and its weights.
        library: `"diffusers"` or `"transformers"`.
        name: of the class.
        dtype: of the weights.
        options: further ones of `from_pretrained`.

    Raises:
        BundleError: the library is not installed, has no such class, or cannot load the model; or weights of the model
            are missing.
    """
    kind = named_class(library, name, "model")
    check_room(folder, lambda: _by_configuration(kind, library, folder))
    word = "dtype" if library == "transformers" else "torch_dtype"
    kept = list(getattr(kind, "_keep_in_fp32_modules", None) or []) if library == "diffusers" else []
    loaded = "float32" if kept else dtype
    with _quiet(), _without_kept(kind) if kept else nullcontext():
        try:
            made, report = kind.from_pretrained(
                folder, output_loading_info=True, local_files_only=True, **{word: getattr(torch, loaded)}, **options
            )
        except Exception as error:  # the files and the code of a model can make it raise anything
            raise BundleError(f"{library} cannot load {name} from {str(folder)!r}: {reason_of(error)}") from error
    if lacking := sorted(report["missing_keys"]):
        shown = ", ".join(lacking[:3]) + (f" and {len(lacking) - 3} more" if len(lacking) > 3 else "")
        raise BundleError(f"the weights in {str(folder)!r} are not those of {name}: they lack {shown}")
    for path, parameter in made.named_parameters() if kept else ():
        if not set(path.split(".")) & set(kept):
            parameter.data = parameter.data.to(getattr(torch, dtype))
    return made.eval()


def _by_configuration(kind: Any, library: str, folder: Path) -> Any:
    """A model by the configuration of a folder, without its weights."""
    if library == "transformers":
        return kind(kind.config_class.from_pretrained(folder, local_files_only=True))
    return kind.from_config(kind.load_config(folder, local_files_only=True))


@contextmanager
def _without_kept(kind: Any) -> Iterator[None]:
    """While diffusers loads a class, it names no modules that stay in float32: loading these needs accelerate."""
    before = kind._keep_in_fp32_modules
    kind._keep_in_fp32_modules = None
    try:
        yield
    finally:
        kind._keep_in_fp32_modules = before


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what the libraries log about how they load."""
    from transformers.utils import logging as shown

    before, has_bars = logging.root.manager.disable, shown.is_progress_bar_enabled()
    logging.disable(logging.ERROR)
    shown.disable_progress_bar()
    try:
        yield
    finally:
        logging.disable(before)
        if has_bars:
            shown.enable_progress_bar()
