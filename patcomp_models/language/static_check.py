"""The part of `check_bundle` for the Neural Engine's form: functions, names, shapes and types."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from patcomp_models.language.static_contract import (
    CACHES,
    CAUSAL_MASK,
    EXTEND,
    GATHER,
    IN_STEP,
    INPUT,
    LOAD,
    PROMPT,
    STATIC_EMBEDDINGS,
    STATIC_LOGITS,
    STATIC_POSITIONS,
    STATIC_TOKENS,
    TABLE,
)
from patcomp_models.language.static_run import function_sizes

if TYPE_CHECKING:
    from patcomp.emit.asset import Asset

Types = Mapping[str, tuple[Sequence[int], str]]
"""The wanted shape and element type by name."""


def is_static_form(names: Sequence[str]) -> bool:
    """Whether the package takes an asset with these functions for the Neural Engine's form."""
    return LOAD in names and any(name.startswith(EXTEND) for name in names)


def static_problems(asset: Asset, language: Mapping[str, Any]) -> Iterator[str]:
    """The problems of an asset's functions.

    Args:
        asset: the asset.
        language: the `language` of `metadata.json`.
    """
    from patcomp.emit.unconstrained import is_constrained

    names = asset.function_names
    sizes, context = function_sizes(names), language.get("max_context_length")
    if not sizes:
        yield f"no function is called {EXTEND}_<S>_<q>"
        return
    if max(sizes)[0] != context:
        yield f"the largest {EXTEND} has a cache of {max(sizes)[0]}, and must have max_context_length, {context}"
    if function_sizes(names, PROMPT) != sizes:
        yield f"{PROMPT} has other sizes than {EXTEND}"
    loaded = asset.described(LOAD)
    if list(loaded.output_names) != [TABLE]:
        yield f"the outputs of {LOAD} are {', '.join(loaded.output_names)}; there must be {TABLE} alone"
        return
    table = loaded.output_descriptor(TABLE)
    shape, element = list(table.shape), table.dtype.lower()
    if len(shape) != 3 or shape[:2] != [language.get("vocab_size"), 1] or element not in ("int8", "float16"):
        yield f"{TABLE} is {_shown(shape, element)}; it must be vocab_size x 1 x hidden of int8 or float16"
        return
    hidden, given = shape[2], (shape, element)
    for queries in sorted({block for _, block in sizes}):
        function = f"{GATHER}_{queries}"
        if function not in names:
            yield f"there is no function {function}"
            continue
        yield from _differences(
            asset, function,
            {STATIC_TOKENS: ([1, queries], "int32"), TABLE: given},
            {STATIC_EMBEDDINGS: ([1, queries, 1, hidden], "float16")},
        )  # fmt: skip
    yield from _blocks(asset, sizes, given, int(language["vocab_size"]))
    if not is_constrained(asset):
        yield f"{TABLE} and the caches have no hardware constraints"


def _blocks(
    asset: Asset, sizes: Sequence[tuple[int, int]], table: tuple[Sequence[int], str], vocabulary: int
) -> Iterator[str]:
    """The problems of the functions that take a block of tokens."""
    rows: set[tuple[int, ...]] = set()
    for size, queries in sizes:
        inputs: Types = {
            INPUT: ([1, queries, 1, table[0][2]], "float16"),
            STATIC_POSITIONS: ([1, queries], "uint16"),
            IN_STEP: ([1], "int32"),
            CAUSAL_MASK: ([1, size, 1, queries], "float16"),
            TABLE: table,
        }
        for name, logits in ((EXTEND, [1, 1, queries, vocabulary]), (PROMPT, [])):
            function = f"{name}_{size}_{queries}"
            if function not in asset.function_names:
                continue
            yield from _differences(asset, function, inputs, {STATIC_LOGITS: (logits, "float16")})
            described = asset.described(function)
            if sorted(described.state_names) != sorted(CACHES):
                given = ", ".join(described.state_names)
                yield f"the states of {function} are {given}; they must be {', '.join(CACHES)}"
                continue
            for cache in CACHES:
                state = described.state_descriptor(cache)
                shape = list(state.shape)
                if len(shape) != 5 or shape[1] != 1 or shape[3:] != [1, size] or state.dtype.lower() != "float16":
                    yield (
                        f"{cache} of {function} is {_shown(shape, state.dtype)}; it must be layers x 1 x heads*width x "
                        f"1 x {size} of float16"
                    )
                rows.add(tuple(shape[:4]))
    if len(rows) > 1:
        yield "the caches differ in layers or rows"


def _differences(asset: Asset, function: str, inputs: Types, outputs: Types) -> Iterator[str]:
    """How a function differs from what it must be."""
    described = asset.described(function)
    sides: tuple[tuple[str, Sequence[str], Types, Callable[[str], Any]], ...] = (
        ("inputs", list(described.input_names), inputs, described.input_descriptor),
        ("outputs", list(described.output_names), outputs, described.output_descriptor),
    )
    for what, names, wanted, descriptor in sides:
        if sorted(names) != sorted(wanted):
            yield f"the {what} of {function} are {', '.join(names)}; they must be {', '.join(wanted)}"
            continue
        for name, (shape, element) in wanted.items():
            given = descriptor(name)
            if list(given.shape) != list(shape) or given.dtype.lower() != element:
                yield (
                    f"{name} of {function} is {_shown(given.shape, given.dtype)}, and must be {_shown(shape, element)}"
                )


def _shown(shape: Sequence[int], element: str) -> str:
    return f"{' x '.join(map(str, shape)) or 'a scalar'} of {element}"
