"""Map weights of a checkpoint to weights of the model: other names, and experts joined in one tensor."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from patcomp_models.checkpoints.quantized.joining import joined_weights, stacked, taken, transposed_weight
from patcomp_models.checkpoints.quantized.weight import WeightPart
from patcomp_models.errors import LanguageModelError


@dataclass(frozen=True)
class Recipe:
    """How a weight of the model is made.

    Attributes:
        groups: the names of the checkpoint's weights; those of a group are stacked first, if `stacks` says so.
        stacks: whether each group is stacked along a new first axis.
        steps: what is done with the weights of the groups then; the first step takes the list, and gives one.
    """

    groups: tuple[tuple[str, ...], ...]
    stacks: bool = False
    steps: tuple[Callable[..., WeightPart], ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for group in self.groups for name in group)

    def made(self, weight_of: Callable[[str], WeightPart]) -> WeightPart:
        """The weight, from those of the checkpoint by name."""
        parts = [stacked([weight_of(name) for name in group]) if self.stacks else weight_of(group[0])
                 for group in self.groups]  # fmt: skip
        if not self.steps:
            return parts[0]
        made = self.steps[0](parts)
        for step in self.steps[1:]:
            made = step(made)
        return made


def recipes(model: Any, names: Iterable[str]) -> dict[str, Recipe]:
    """The recipe for each weight of a model from the weights of a checkpoint, by the weight's name in the model.

    transformers knows other names, and which weights are one. Gate and up of experts, in a tensor for all of them as
    MLX and GGUF have them or in one each, are joined as the class of the experts wants it.

    Args:
        model: of transformers.
        names: of the checkpoint's weights, as a checkpoint in floats has them.

    Raises:
        LanguageModelError: weights are made of others in a way that is not known.
    """
    own, found = model.state_dict().keys(), dict[str, Recipe]()
    left = []
    for name in names:
        if name in own:
            found[name] = Recipe(((name,),))
        elif (all_experts := _of_experts(model, name, are_single=False)) is not None:
            found.update([all_experts])
        else:
            left.append(name)
    for target, recipe in _converted(model, left, own).items() if left else ():
        experts = None if target in own else _of_experts(model, recipe.names[0], are_single=True)
        found.update([experts or (target, recipe)])
    return found


# ---- experts that are one tensor in the model -------------------------------------------------------------

_EXPERTS = re.compile(r"(.*)\.(?:switch_mlp|experts)\.(?:(\d+)\.)?(gate|up|down)_proj(?:\.(weight|bias))?$")


def _of_experts(model: Any, name: str, *, are_single: bool) -> tuple[str, Recipe] | None:
    """The weight of the model that a weight of all experts, or of a single one, is a part of."""
    match = _EXPERTS.match(name)
    if match is None or (match[2] is not None) != are_single:
        return None
    (parent, number, which), bias = match.groups()[:3], "_bias" if match[4] == "bias" else ""
    parent = parent.replace(".block_sparse_moe", ".mlp")
    try:
        experts = model.get_submodule(f"{parent}.experts")
        count = getattr(experts, f"{'down' if which == 'down' else 'gate_up'}_proj{bias}").shape[0]
    except AttributeError:
        return None
    if are_single and int(number) >= count:
        return None

    def named(part: str) -> tuple[str, ...]:
        made = re.sub(rf"\.{which}_proj", f".{part}_proj", name)
        numbers = range(count) if are_single else ()
        return tuple(re.sub(r"\.\d+(?=\.\w+_proj)", f".{each}", made) for each in numbers) or (made,)

    turned = (transposed_weight,) if getattr(experts, "is_transposed", False) and not bias else ()
    if which == "down":
        target = f"down_proj{bias}"
        steps: tuple[Callable[..., WeightPart], ...] = (_only, *turned)
        groups: tuple[tuple[str, ...], ...] = (named("down"),)
    else:
        target = f"gate_up_proj{bias}"
        groups = (named("gate"), named("up"))
        join = partial(joined_weights, axis=1) if getattr(experts, "is_concatenated", True) else _interleaved
        steps = (join, *turned)
    return f"{parent}.experts.{target}", Recipe(groups, are_single, steps)


def _only(parts: list[WeightPart]) -> WeightPart:
    (part,) = parts
    return part


def _interleaved(parts: list[WeightPart]) -> WeightPart:
    """The rows of two weights in turns."""
    both, half = joined_weights(parts, 1), parts[0].shape[1]
    return taken(both, 1, torch.arange(2 * half).reshape(2, half).t().reshape(-1))


# ---- what transformers knows ----------------------------------------------------------------------------


def _converted(model: Any, names: Iterable[str], own: Iterable[str]) -> dict[str, Recipe]:
    """Recipes by the tables of transformers."""
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import WeightConverter, dot_natural_key, rename_source_key

    transforms = get_model_conversion_mapping(model)
    converters = [each for each in transforms if isinstance(each, WeightConverter)]
    renamings = [each for each in transforms if not isinstance(each, WeightConverter)]
    by_pattern = {pattern: each for each in converters for pattern in each.source_patterns}
    known = dict.fromkeys(own, True)
    found: dict[str, dict[str, list[str]]] = {}
    for name in sorted(names, key=dot_natural_key):
        target, pattern = rename_source_key(name, renamings, converters, model.base_model_prefix, known)
        found.setdefault(target, {}).setdefault(pattern or "", []).append(name)
    return {target: _recipe(target, groups, by_pattern) for target, groups in found.items()}


def _recipe(target: str, groups: Mapping[str, list[str]], converters: Mapping[str, Any]) -> Recipe:
    if "" in groups:
        return Recipe((tuple(groups[""][:1]),))
    converter = converters[next(iter(groups))]
    ordered = tuple(tuple(groups[pattern]) for pattern in converter.source_patterns if pattern in groups)
    operations = [(type(each).__name__, each) for each in converter.operations]
    stacks = bool(operations) and operations[0][0] == "MergeModulelist" and operations[0][1].dim == 0
    steps: list[Callable[..., WeightPart]] = []
    for name, operation in operations[int(stacks) :]:
        if name == "Concatenate" and not steps:
            steps.append(partial(joined_weights, axis=operation.dim))
        elif name == "Transpose" and not operation.check_dims and {operation.dim0, operation.dim1} <= {-1, -2, 1, 2}:
            steps += ([] if steps else [_only]) + [transposed_weight]
        else:
            raise LanguageModelError(
                f"{target} is made of {ordered[0][0]} and others by {name}, which is not done with weights in few bits"
            )
    if len(ordered) > 1 and not steps:
        raise LanguageModelError(f"{target} is made of {len(ordered)} kinds of weights in a way that is not known")
    return Recipe(ordered, stacks, tuple(steps) or (_only,))
