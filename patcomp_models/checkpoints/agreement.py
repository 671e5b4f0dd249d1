"""Whether the weights of a checkpoint, its configuration and its model agree."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from patcomp.errors import ConversionWarning
from patcomp_models.checkpoints.left_out import foreseeing, is_computed
from patcomp_models.checkpoints.precision import given_names
from patcomp_models.errors import LanguageModelError


@dataclass(frozen=True)
class Allowed:
    """How the weights of a checkpoint may differ from those of its model: names, or patterns as `classifier.*`."""

    missing: tuple[str, ...] = ()
    """Weights that may be missing, or of another shape; they are drawn at random."""
    unexpected: tuple[str, ...] = ()
    """Weights of the checkpoint that the model need not take."""

    @classmethod
    def of(cls, missing: str | Sequence[str], unexpected: str | Sequence[str]) -> Allowed:
        """What a user allows; one name need not be in a list."""
        return cls(given_names(missing), given_names(unexpected))


STRICT = Allowed()
"""They may not differ."""


_WRAPPER = re.compile(r"^(?:(?:module|_orig_mod)\.)+")
"""What DataParallel and torch.compile put in front of the names of a model that is inside of them."""


_SHOWN = 5
"""How many weights a message names."""


def _differences(
    missing: Iterable[str],
    unexpected: Iterable[str],
    shapes: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]],
) -> dict[tuple[str, str], str]:
    """What is wrong with the weights of a checkpoint, in words, by kind, `missing` or `unexpected`, and what it is of.

    Args:
        missing: the names of weights that only the model has, or in another shape.
        unexpected: the names of weights that only the checkpoint has.
        shapes: the shapes in the checkpoint and in the model, of weights where the two differ.
    """
    lacked, left = {*missing}, {*unexpected}
    wrong = sorted(name for name in shapes if name in lacked)
    found = {
        ("missing", name): f"{name} is {_shape(shapes[name][0])} and must be {_shape(shapes[name][1])}"
        for name in wrong[:_SHOWN]
    }
    if len(wrong) > _SHOWN:
        found["missing", "shapes"] = f"{len(wrong) - _SHOWN} more have other shapes"
    if rest := lacked - shapes.keys():
        found["missing", ""] = f"missing {first_names(rest)}"
    if left:
        front = wrapper_of(left)
        saved = f" (names begin with {front!r} where a wrapper of the model was saved; save the model inside)"
        found["unexpected", ""] = f"unexpected {first_names(left)}{saved if front else ''}"
    return found


def check_weight_names(
    place: Path,
    model: str,
    missing: Iterable[str],
    unexpected: Iterable[str],
    shapes: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]],
    allowed: Allowed,
) -> None:
    """Check that a checkpoint has the weights of its model; warn about differences that the user allows.

    Args:
        place: the folder or file of the checkpoint.
        model: the name of the model.
        missing: the names of weights that only the model has.
        unexpected: the names of weights that only the checkpoint has.
        shapes: the shapes in the checkpoint and in the model, of weights where the two differ.
        allowed: what the user allows.

    Raises:
        LanguageModelError: there are weights that the user does not allow.
    """
    # the counter of a batch norm is not in old checkpoints, and nothing in eval mode reads it
    lacked = {*(name for name in missing if not name.endswith("num_batches_tracked")), *shapes}
    drawn = {name for name in lacked if _fits(name, allowed.missing)}
    left = {name for name in unexpected if _fits(name, allowed.unexpected)}
    if wrong := _differences(lacked - drawn, {*unexpected} - left, shapes):
        ways = {
            "missing": "complete the checkpoint, or pass allow_missing= (--allow-missing NAME) for weights that may be "
            "drawn at random",
            "unexpected": "correct its config.json, or pass allow_unexpected= (--allow-unexpected NAME) for weights "
            "that may be left out",
        }
        advice = "; ".join(ways[kind] for kind in dict.fromkeys(kind for kind, _ in wrong))
        raise LanguageModelError(f"{str(place)!r} does not fit {model}: {'; '.join(wrong.values())}; {advice}")
    for names, what in ((drawn, "are drawn at random"), (left, "are left out")):
        if names:
            warnings.warn(f"weights of {str(place)!r} {what}: {first_names(names)}", ConversionWarning, stacklevel=3)


def _fits(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _shape(sizes: tuple[int, ...]) -> str:
    return "x".join(map(str, sizes)) or "a scalar"


def first_names(names: Iterable[str]) -> str:
    """The first names, and how many more there are."""
    ordered = sorted(names)
    more = len(ordered) - _SHOWN
    return ", ".join(ordered[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def left_over(unexpected: Iterable[str]) -> set[str]:
    """The unexpected weights that are a mistake. Heads that foresee tokens (named by `notes_on_weights`) and computed
    buffers of old checkpoints are none."""
    names = [*unexpected]
    return {name for name in names if not is_computed(name)} - {*foreseeing(names)}


def say_untied(folder: Path, model: Any) -> None:
    """Warn of tied weights with different numbers in the files."""
    for name, other in _untied(model).items():
        warnings.warn(
            f"config.json of {str(folder)!r} says that {name} is {other} (tie_word_embeddings), and the files have "
            "other numbers for it, which the model takes",
            ConversionWarning,
            stacklevel=4,
        )


def _untied(model: Any) -> dict[str, str]:
    """The names of weights that are tied by the configuration but have numbers of their own in the files, each with the
    name of its partner."""
    if not hasattr(model, "get_expanded_tied_weights_keys"):
        return {}
    wanted: dict[str, str] = model.get_expanded_tied_weights_keys(all_submodels=True)
    found = dict(model.named_parameters(remove_duplicate=False))
    return {
        name: other for name, other in wanted.items()
        if name in found and other in found and found[name] is not found[other]
    }  # fmt: skip


def wrapper_of(names: Iterable[str]) -> str:
    """What is in front of the names of all weights because the model was inside of a wrapper: `module.`; or nothing."""
    fronts = {match[0] if (match := _WRAPPER.match(name)) else "" for name in names}
    return fronts.pop() if len(fronts) == 1 else ""
