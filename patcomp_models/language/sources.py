"""What is converted: the folder of a checkpoint, an id of the hub, or a model of transformers."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from patcomp.errors import ConversionWarning
from patcomp.hub import is_hub_id
from patcomp_models.checkpoints.adapters import Adapter, read_adapter
from patcomp_models.checkpoints.agreement import Allowed
from patcomp_models.checkpoints.contents import is_adapter
from patcomp_models.checkpoints.folders import (
    CAUSAL,
    check_language_model,
    check_weight_files,
    checked_folder,
    weight_files,
)
from patcomp_models.checkpoints.gguf.folder import gguf_folder, is_gguf
from patcomp_models.checkpoints.hub import Checkpoint, checkpoint_of
from patcomp_models.checkpoints.left_out import names_in, notes_on_weights
from patcomp_models.checkpoints.loading import (
    DTYPES,
    check_configuration,
    check_weights,
    classes_of,
    in_dtype,
    load_model,
    loaded,
)
from patcomp_models.checkpoints.precision import set_types
from patcomp_models.checkpoints.quantized.formats import format_of
from patcomp_models.checkpoints.quantized.formats.base import Format
from patcomp_models.checkpoints.untrusted import object_in
from patcomp_models.errors import LanguageModelError
from patcomp_models.language.adapted import merge_adapters
from patcomp_models.language.architectures import ARCHITECTURES, check_converted
from patcomp_models.language.text_part import text_part, whole_class
from patcomp_models.options import Progress


@dataclass(frozen=True)
class LanguageSource:
    """A checkpoint that was checked as far as its small files tell, or a model."""

    folder: Path | None = None
    name: str | None = None
    identifier: str | None = None
    """The path, or the id."""
    whole: str | None = None
    """The class of the model in the folder, if the language model is a part of it."""
    given: nn.Module | None = None
    form: Format | None = None
    """How the weights are stored, if they are in few bits."""
    kept: object = None
    """Its end removes the folder, if that was made for a file."""
    adapters: tuple[tuple[Adapter, float], ...] = ()
    """What is merged into the weights, and how much of it."""


def source_of(given: str | Path | nn.Module, step: Progress, *, trust_remote_code: bool) -> LanguageSource:
    """A checkpoint by its folder or id, a GGUF file, or a model; nothing is loaded.

    Raises:
        LanguageModelError: the checkpoint is incomplete, or holds no language model.
    """
    if isinstance(given, nn.Module):
        return LanguageSource(given=given)
    if is_adapter(Path(given)):
        adapter = read_adapter(Path(given))
        base = source_of(_base_of(adapter), step, trust_remote_code=trust_remote_code)
        name = Path(given).resolve().name
        return replace(base, name=name, identifier=str(Path(given)), adapters=((adapter, 1.0),))
    kept = gguf_folder(Path(given)) if is_gguf(given) else None
    with step("downloading the checkpoint") if kept is None and is_hub_id(given) else nullcontext():
        checkpoint = (
            checkpoint_of(given, trust_remote_code=trust_remote_code) if kept is None else
            Checkpoint(Path(kept.name), Path(given).stem, str(Path(given)))
        )  # fmt: skip
    config = checked_folder(checkpoint.folder, trust_remote_code=trust_remote_code)
    check_converted(config.get("model_type"))
    if config.get("model_type") == "rwkv7":
        import patcomp_models.language.rwkv7  # noqa: F401 (registers the type with transformers)
    whole = whole_class(config)
    if whole is None:
        check_language_model(checkpoint.folder, config, classes_of(CAUSAL, config))
    check_weight_files(checkpoint.folder, config)
    check_configuration(checkpoint.folder, trust_remote_code=trust_remote_code)
    form = format_of(checkpoint.folder, config)
    return LanguageSource(checkpoint.folder, checkpoint.name, checkpoint.identifier, whole, form=form, kept=kept)


def _base_of(adapter: Adapter) -> str:
    """The model that an adapter is for.

    Raises:
        LanguageModelError: it is not here, and its name is no id of the hub.
    """
    if adapter.base is None or not (is_hub_id(adapter.base) or Path(adapter.base).is_dir()):
        raise LanguageModelError(
            f"the adapter {str(adapter.folder)!r} is for {adapter.base}, which is no folder here; give the folder of "
            "its base model, and the adapter by adapter= (--adapter)"
        )
    return adapter.base


def language_model_of(
    source: LanguageSource,
    dtype: str,
    allowed: Allowed,
    float32: Sequence[str] = (),
    *,
    trust_remote_code: bool,
    expand: bool = False,
    takes_head: bool = False,
) -> tuple[Any, tuple[str, ...]]:
    """The language model of a source, in eval mode, and notes about what of it is left out.

    A model that is given is not changed.

    Args:
        source: from `source_of`.
        dtype: of the weights.
        allowed: how the weights of a folder may differ from the model's.
        float32: names or patterns of modules that are in float32 all the same; a folder is then read in float32, as it
            is for adapters.
        trust_remote_code: whether to run code of the folder.
        expand: whether weights become floats whose bits cannot be kept.
        takes_head: whether the checkpoint's heads that foresee tokens are converted, too.

    Raises:
        LanguageModelError: it cannot be loaded, has no part that is a language model, or is of no class of
            transformers; or a pattern fits no module.
    """
    model: Any
    is_exact = bool(float32 or source.adapters)
    if source.adapters and source.form is not None:
        raise LanguageModelError(
            f"the weights of {source.identifier!r} are in few bits ({source.form.name}), into which no adapter can be "
            "merged; give the checkpoint of plain floats that it was made from"
        )
    if source.given is not None:
        model = copy.deepcopy(source.given).eval() if is_exact else in_dtype(source.given, dtype)
    else:
        assert source.folder is not None
        stored = "float32" if is_exact else dtype
        model = (
            loaded(source.whole, "as a whole", source.folder, stored, trust_remote_code, allowed, expand)
            if source.whole else
            load_model(source.folder, stored, trust_remote_code=trust_remote_code, allowed=allowed, expand=expand)
        )  # fmt: skip
    whole = model
    model, notes = _text_only(whole)
    for note in _notes_on_weights(source, whole, expand=expand, takes_head=takes_head):
        warnings.warn(note, ConversionWarning, stacklevel=4)
        notes = (*notes, note)
    _check_class(model)
    merge_adapters(model, source.adapters)
    if is_exact:
        check_weights(model, rounded=False)
        set_types(model, DTYPES[dtype], float32)
        check_weights(model, rounded=True)
    return model, notes


def _notes_on_weights(source: LanguageSource, model: Any, *, expand: bool, takes_head: bool) -> list[str]:
    """Notes on weights and arithmetic of the checkpoint without a counterpart in the model, and on weights expanded to
    floats."""
    if source.folder is None:
        return []
    form, files = stored_in(source, expand=expand)
    notes = [] if form is None else [*form.notes_on(files)]
    return [*notes, *notes_on_weights(model, names_in(files, form), taken=None if takes_head else 0)]


def stored_in(source: LanguageSource, *, expand: bool) -> tuple[Format | None, list[Path]]:
    """How the weights of a checkpoint's folder are stored, if they are in few bits, and their files."""
    assert source.folder is not None
    config = object_in(source.folder / "config.json", LanguageModelError)
    form = source.form.expanding() if source.form is not None and expand else source.form
    return form, weight_files(source.folder, config)


def _text_only(model: Any) -> tuple[Any, tuple[str, ...]]:
    """The language model of a model, and a note about what of the model is left out, if it has other parts."""
    config = getattr(model, "config", None)
    if config is None or not hasattr(config, "get_text_config") or config.get_text_config(decoder=True) is config:
        return model, ()
    check_converted(config.model_type)
    part = text_part(model)
    if hasattr(model, "generation_config"):
        part.model.generation_config = (
            model.generation_config
        )  # the tokens that end a text, which the part does not know
    note = f"of {type(model).__name__}, only the language model is converted"
    note += f"; left out: {part.left_out}" if part.left_out else ""
    from patcomp_models.language.vision.towers import TOWERS  # which imports decoders

    further = "; `patcomp convert-vlm` converts its vision tower, too" if config.model_type in TOWERS else ""
    warnings.warn(note + further, ConversionWarning, stacklevel=5)
    return part.model, (note,)


def _check_class(model: Any) -> None:
    kind = getattr(getattr(model, "config", None), "model_type", None)
    check_converted(kind)
    if kind is None or not hasattr(model, "set_attn_implementation"):
        raise LanguageModelError(f"{type(model).__name__} is not a causal language model of transformers")
    own_code = not type(model).__module__.startswith(("transformers.", "patcomp_models."))
    if kind not in ARCHITECTURES or own_code:
        what = f"code of {type(model).__name__}" if own_code else f"architecture {kind!r}"
        warnings.warn(
            f"the {what} is not tested; compare the bundle with the model on your own prompts",
            ConversionWarning,
            stacklevel=5,
        )
