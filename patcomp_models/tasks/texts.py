"""Texts as inputs of a model: the tokens that the tokenizer of its folder makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from patcomp import AIProgram
from patcomp.errors import PatcompError
from patcomp_models.checkpoints.hub import checkpoint_of
from patcomp_models.language.writing import chosen_tokenizer

_TOKENS = "input_ids"


def inputs_of_texts(
    folder: str | Path, texts: Sequence[tuple[str, ...]], program: AIProgram, entry: str = "main"
) -> list[dict[str, np.ndarray]]:
    """The inputs of a function for texts: padded to its length if that is fixed, and cut where it is the longest.

    Args:
        folder: of the model, with its tokenizer; or an id of the hub.
        texts: one or two in each example.
        program: of the model.
        entry: the function, of `input_ids` (1, length) and what a tokenizer gives beside them.

    Raises:
        PatcompError: the folder has no tokenizer, or the function takes other inputs.
    """
    specs, dims = program.signature(entry).inputs, program.dims[entry]
    tokens = next((spec for spec in specs if spec.name == _TOKENS), None)
    names = ", ".join(spec.name for spec in specs)
    if tokens is None or len(tokens.shape) != 2 or tokens.shape[0] != 1:
        raise PatcompError(f"the function {entry!r} takes {names}, and no tokens of one text; give its inputs as .npz")
    place = checkpoint_of(folder, trust_remote_code=False).folder
    tokenizer = chosen_tokenizer(None, place, trust_remote_code=False)
    size = tokens.shape[1]
    fixed = size if isinstance(size, int) else None
    longest = fixed or _longest(program, entry)
    found = []
    for text in texts:
        made = tokenizer(
            *text, truncation=True, max_length=min(longest, tokenizer.model_max_length),
            padding="max_length" if fixed else False,
        )  # fmt: skip
        if lacking := [spec.name for spec in specs if spec.name not in made]:
            raise PatcompError(f"the function {entry!r} takes {', '.join(lacking)}, which the tokenizer does not give")
        found.append({spec.name: np.array([made[spec.name]], np.int32) for spec in specs})
        dims.check(dims.sizes_of(found[-1]))
    return found


def _longest(program: AIProgram, entry: str) -> int:
    """The most tokens that a function takes."""
    dims = program.dims[entry]
    (name,) = dims.extents[_TOKENS, 1].names
    return dims.ranges[name][1] or 2**31 - 1
