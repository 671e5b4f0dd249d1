"""The part of `check_bundle` for the Neural Engine's form: functions, names, shapes and types."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from patcomp_models.bundle_folders.revisions import OLD
from patcomp_models.language.contract import OVERRIDES, SLIDING_WINDOW
from patcomp_models.language.static_contract import (
    CACHES,
    CAUSAL_MASK,
    EXTEND,
    FIXED_STATES,
    GATHER,
    IN_STEP,
    INPUT,
    LAYER_ROWS,
    LOAD,
    OWN_HOSTS,
    PROMPT,
    SLIDING_CACHES,
    SLIDING_MASK,
    SLIDING_STEP,
    STATIC_EMBEDDINGS,
    STATIC_LOGITS,
    STATIC_POSITIONS,
    STATIC_TOKENS,
    TABLE,
    TABLE_ROWS,
)
from patcomp_models.language.static_run import function_sizes

if TYPE_CHECKING:
    from patcomp.emit.asset import Asset

Types = Mapping[str, tuple[Sequence[int], str]]
"""The wanted shape and element type by name."""


def is_static_form(names: Sequence[str]) -> bool:
    """Whether the package takes an asset with these functions for the Neural Engine's form."""
    return LOAD in names and any(name.startswith(EXTEND) for name in names)


def static_problems(
    asset: Asset, language: Mapping[str, Any], layers: Mapping[str, Any] | None, revision: str
) -> Iterator[str]:
    """The problems of an asset's functions.

    Args:
        asset: the asset.
        language: the `language` of `metadata.json`.
        layers: what `metadata.json` says of a table of per-layer embeddings, if there is one.
        revision: of Apple's package.
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
    rows = -(-int(language.get("vocab_size", 0)) // TABLE_ROWS) * TABLE_ROWS
    if len(shape) != 3 or shape[:2] != [rows, 1] or element not in ("int8", "float16"):
        yield (
            f"{TABLE} is {_shown(shape, element)}; it must be vocab_size x 1 x hidden of int8 or float16, with "
            f"vocab_size rounded up to {rows}"
        )
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
    yield from _blocks(asset, sizes, given, language, layers, takes_rings=revision != OLD)
    if not is_constrained(asset):
        yield f"{TABLE} and the caches have no hardware constraints"


def _blocks(
    asset: Asset,
    sizes: Sequence[tuple[int, int]],
    table: tuple[Sequence[int], str],
    language: Mapping[str, Any],
    layers: Mapping[str, Any] | None,
    *,
    takes_rings: bool,
) -> Iterator[str]:
    """The problems of the functions that take a block of tokens.

    Args:
        asset: the asset.
        sizes: of the functions.
        table: the shape and type of the table of embeddings.
        language: the `language` of `metadata.json`.
        layers: what `metadata.json` says of a table of per-layer embeddings.
        takes_rings: whether the engine knows rings and rows of per-layer embeddings.
    """
    rows: set[tuple[int, ...]] = set()
    vocabulary, window = int(language["vocab_size"]), (language.get(OVERRIDES) or {}).get(SLIDING_WINDOW)
    size, queries = sizes[-1]
    largest = asset.described(f"{EXTEND}_{size}_{queries}")
    has_ring = takes_rings and SLIDING_CACHES[0] in largest.state_names
    has_rows = takes_rings and LAYER_ROWS in largest.input_names
    ring = int(largest.state_descriptor(SLIDING_CACHES[0]).shape[-1]) if has_ring else 0
    if has_ring and not window:
        yield f"the functions have a ring, and language.{OVERRIDES}.{SLIDING_WINDOW} is missing"
    elif has_ring and ring < int(window or 0) + max(block for _, block in sizes) - 1:
        yield f"the ring has {ring} places, too few for a window of {window} and the largest block"
    if has_rows and (layers is None or layers.get("dtype") != "int8" or layers.get("rows", 0) < vocabulary):
        yield f"the functions take {LAYER_ROWS}, and there is no table of int8 with {vocabulary} rows"
    fixed = [name for name in FIXED_STATES if name in largest.state_names]
    if fixed:
        yield OWN_HOSTS.format(states=" and ".join(fixed))
    caches = [*CACHES, *(SLIDING_CACHES if has_ring else ())]
    names = [*caches, *fixed]
    for size, queries in sizes:
        inputs: Types = {
            INPUT: ([1, queries, 1, table[0][2]], "float16"),
            STATIC_POSITIONS: ([1, queries], "uint16"),
            IN_STEP: ([1], "int32"),
            CAUSAL_MASK: ([1, size, 1, queries], "float16"),
            TABLE: table,
            **({SLIDING_STEP: ([1], "int32"), SLIDING_MASK: ([1, ring, 1, queries], "float16")} if has_ring else {}),
            **({LAYER_ROWS: ([1, queries, 1, (layers or {}).get("width", 0)], "int8")} if has_rows else {}),
        }
        for name, logits in ((EXTEND, [1, 1, queries, vocabulary]), (PROMPT, [])):
            function = f"{name}_{size}_{queries}"
            if function not in asset.function_names:
                continue
            yield from _differences(asset, function, inputs, {STATIC_LOGITS: (logits, "float16")})
            described = asset.described(function)
            if sorted(described.state_names) != sorted(names):
                given = ", ".join(described.state_names)
                yield f"the states of {function} are {given}; they must be {', '.join(names)}"
                continue
            for cache in caches:
                state, places = described.state_descriptor(cache), size if cache in CACHES else ring
                shape = list(state.shape)
                if len(shape) != 5 or shape[1] != 1 or shape[3:] != [1, places] or state.dtype.lower() != "float16":
                    yield (
                        f"{cache} of {function} is {_shown(shape, state.dtype)}; it must be layers x 1 x heads*width x "
                        f"1 x {places} of float16"
                    )
                rows |= {tuple(shape[:4])} if cache in CACHES else set()
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
