"""The weights of a checkpoint in few bits, for a model of transformers."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor

from patcomp_models.checkpoints.quantized.formats.base import Format, Weights
from patcomp_models.checkpoints.quantized.joining import in_rows
from patcomp_models.checkpoints.quantized.naming import Recipe, recipes
from patcomp_models.checkpoints.quantized.weight import PackedWeight, Unpacking, WeightPart, store, unpacking_name
from patcomp_models.errors import LanguageModelError


def fill(model: Any, place: str, form: Format, weights: Weights, dtype: torch.dtype) -> None:
    """Fill a model with the weights of a checkpoint; compressed weights stay compressed.

    Args:
        model: of transformers, whose parameters are on the meta device.
        place: of the checkpoint, for errors.
        form: its format.
        weights: what reads each weight.
        dtype: of the floats.

    Raises:
        LanguageModelError: a weight is missing, left over, damaged or of another shape, the dtype cannot hold it, or a
            weight that is tied to another one has other numbers.
    """
    own = {name: tuple(value.shape) for name, value in model.state_dict(keep_vars=True).items()}
    wide = _kept_in_float32(model)
    floats: dict[str, Tensor] = {}
    left: list[str] = []
    for target, recipe in recipes(model, weights).items():
        if target not in own:
            left += [name for name in recipe.names if not _says_nothing(model, name, weights)]
            continue
        made = _made(form, target, recipe, weights)
        if form.in_groups and isinstance(made, PackedWeight):
            made = in_rows(made, own[target])
        if made.shape != own[target]:
            stored, expected = ("x".join(map(str, shape)) for shape in (made.shape, own[target]))
            raise LanguageModelError(
                f"{target.removesuffix('.weight')}: {form.name} stores a weight of {stored}, and the model has "
                f"{expected}"
                if isinstance(made, PackedWeight) else
                f"{place!r} does not fit the model: {target} has another shape"
            )  # fmt: skip
        path, _, name = target.rpartition(".")
        if isinstance(made, PackedWeight):
            store(model.get_submodule(path), name, Unpacking(made, dtype, path), made.order)
        else:
            floats[target] = made.to(torch.float32 if wide.search(target) else dtype)
    for name, other in model.get_expanded_tied_weights_keys(all_submodels=True).items():
        if name in floats and other in floats and not torch.equal(floats[name], floats[other]):
            raise LanguageModelError(
                f"config.json says that {name} is {other} (tie_word_embeddings), and the weights in {place!r} have "
                "other numbers for it; correct the one that is wrong"
            )
    _tie(model)
    model.load_state_dict(floats, strict=False, assign=True)
    if model.config.tie_word_embeddings and not _is_stored(model.get_input_embeddings()):
        model.tie_weights()
    lacking = sorted(name for name, parameter in model.named_parameters() if parameter.is_meta)
    for names, what in ((left, "unexpected"), (lacking, "missing")):
        if names:
            shown = ", ".join(sorted(names)[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
            raise LanguageModelError(f"{place!r} does not fit the model: {what} {shown}")


def _made(form: Format, target: str, recipe: Recipe, weights: Weights) -> WeightPart:
    if missing := [name for name in recipe.names if name not in weights]:
        raise LanguageModelError(f"the checkpoint lacks {missing[0]}, a part of {target}")
    try:
        return recipe.made(lambda name: weights[name]())
    except LanguageModelError as error:
        if len(recipe.names) == 1:
            raise
        raise LanguageModelError(f"{target} ({form.name}): {error}") from None
    except (RuntimeError, IndexError) as error:
        raise LanguageModelError(
            f"{target} cannot be made of {recipe.names[0]} and {len(recipe.names) - 1} others, whose shapes differ; "
            "the file is damaged"
        ) from error


def _says_nothing(model: Any, name: str, weights: Weights) -> bool:
    """Whether an unexpected weight is harmless: a bias of zeros, or a name ignored by transformers."""
    ignored = [*(getattr(model, "_keys_to_ignore_on_load_unexpected", None) or []), r"rotary_emb\.inv_freq$"]
    if any(re.search(pattern, name) for pattern in ignored):
        return True
    made = weights[name]() if name.endswith(".bias") else None
    return isinstance(made, Tensor) and not bool(made.any())


def _kept_in_float32(model: Any) -> re.Pattern[str]:
    """Finds the weights that transformers keeps in float32, such as the corrections of routers."""
    names = [*(getattr(model, "_keep_in_fp32_modules_strict", None) or [])]
    return re.compile("|".join(rf"(?:^|\.){re.escape(name)}(?:\.|$)" for name in names) or r"$^")


def _is_stored(module: Any) -> bool:
    return hasattr(module, unpacking_name("weight"))


def _tie(model: Any) -> None:
    """Let a tied head read the stored form of the table of embeddings."""
    table, head = model.get_input_embeddings(), model.get_output_embeddings()
    if head is None or not getattr(model.config, "tie_word_embeddings", False) or _is_stored(head):
        return
    if _is_stored(table):
        store(head, "weight", getattr(table, unpacking_name("weight")))
