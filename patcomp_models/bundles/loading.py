"""Models from the folders of a pipeline, by the class that the folder names."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import torch

from patcomp.errors import reason_of
from patcomp_models.checkpoints.adapters import read_adapter
from patcomp_models.checkpoints.agreement import STRICT, Allowed, check_weight_names, left_over
from patcomp_models.checkpoints.contents import ADAPTER
from patcomp_models.checkpoints.folders import check_weight_files
from patcomp_models.checkpoints.loading import DTYPES, check_weights, loaded
from patcomp_models.checkpoints.precision import set_types
from patcomp_models.checkpoints.room import check_room
from patcomp_models.checkpoints.untrusted import named_class, object_in
from patcomp_models.checkpoints.weight_sets import check_sets
from patcomp_models.errors import BundleError
from patcomp_models.language.adapted import merge_adapters

_ALLOWED: ContextVar[Allowed] = ContextVar("allowed", default=STRICT)
"""How the weights of the components may differ from those of their models, as the user of a conversion says."""


@contextmanager
def allowing(allowed: Allowed) -> Iterator[None]:
    """While a folder is converted, the weights of its components may differ from those of their models."""
    before = _ALLOWED.set(allowed)
    try:
        yield
    finally:
        _ALLOWED.reset(before)


def allowed_now() -> Allowed:
    """How the weights of components may differ from those of their models."""
    return _ALLOWED.get()


def model_of(
    folder: Path, library: str, name: str, dtype: str, *, part: str = "", takes_adapter: bool = False, **options: Any
) -> Any:
    """A model in evaluation mode.

    Args:
        folder: of the model, with `config.json` and its weights.
        library: `"diffusers"` or `"transformers"`.
        name: of the class.
        dtype: of the weights.
        part: finds what is in front of the names of the model's weights, if it is a part of the checkpoint's model.
        takes_adapter: whether the caller reads an adapter beside the weights, which is left out here.
        options: further ones of `from_pretrained`, or of `checkpoints.loading.loaded`.

    Raises:
        BundleError: the library is not installed, has no such class, or cannot load the model; or the weights are not
            those of the model: some are missing, left over or of other shapes, or the folder has two sets that differ.
    """
    kind = named_class(library, name, "model")
    if library == "transformers":
        check_weight_files(folder, object_in(folder / "config.json"), takes_adapter=takes_adapter)
        if takes_adapter:  # with peft, transformers would load the adapter that it finds
            options["adapter_kwargs"] = {"subfolder": "none"}
        with _quiet():
            return loaded(
                name, f"as {name}", folder, dtype, trust_remote_code=False, allowed=allowed_now(), part=part, **options
            )
    check_room(folder, lambda: kind.from_config(kind.load_config(folder, local_files_only=True)))
    check_sets(folder)
    kept = list(getattr(kind, "_keep_in_fp32_modules", None) or [])
    with _quiet(), _without_kept(kind) if kept else nullcontext(), torch.random.fork_rng():
        torch.manual_seed(0)  # weights that may be missing are drawn, and equal in each conversion
        try:
            made, report = kind.from_pretrained(
                folder, output_loading_info=True, local_files_only=True, use_safetensors=True,
                torch_dtype=getattr(torch, "float32" if kept else dtype), **options,
            )  # fmt: skip
        except Exception as error:  # the files and the code of a model can make it raise anything
            raise BundleError(f"{library} cannot load {name} from {str(folder)!r}: {reason_of(error)}") from error
    check_weight_names(folder, name, report["missing_keys"], left_over(report["unexpected_keys"]), {}, allowed_now())
    for path, parameter in made.named_parameters() if kept else ():
        if not set(path.split(".")) & set(kept):
            parameter.data = parameter.data.to(getattr(torch, dtype))
    return made.eval()


def merged_model(folder: Path, name: str, dtype: str) -> Any:
    """A model of transformers, with the adapter that is in its folder, if there is one, as a part of its weights.

    Args:
        folder: of the model.
        name: of the class.
        dtype: of the weights.

    Raises: as `model_of`; and:
        LanguageModelError: the adapter cannot be read, or is another model's.
    """
    if not (folder / ADAPTER).is_file():
        return model_of(folder, "transformers", name, dtype)
    model = model_of(folder, "transformers", name, "float32", takes_adapter=True)
    merge_adapters(model, [(read_adapter(folder), 1.0)])
    set_types(model, DTYPES[dtype])
    check_weights(model, rounded=True)
    return model


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
