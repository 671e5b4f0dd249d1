"""Generate with the functions of fixed sizes, as the runner of Apple's Swift package chooses them."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from patcomp_models.language.static_contract import (
    CACHES,
    CAUSAL_MASK,
    EXTEND,
    FORBIDDEN,
    GATHER,
    IN_STEP,
    INPUT,
    LAYER_ROWS,
    LOAD,
    PROMPT,
    SLIDING_CACHES,
    SLIDING_MASK,
    SLIDING_STEP,
    STATIC_EMBEDDINGS,
    STATIC_LOGITS,
    STATIC_POSITIONS,
    STATIC_TOKENS,
    TABLE,
)

StaticCall = Callable[[str, Mapping[str, Any], dict[str, Any]], Mapping[str, Any]]
"""Runs a function, by its name, on inputs and states by name; the states are updated in place."""


def function_sizes(names: Iterable[str], function: str = EXTEND) -> list[tuple[int, int]]:
    """The sizes of cache and block of the functions that begin with a name, in order."""
    found = (re.fullmatch(rf"{function}_(\d+)_(\d+)", name) for name in names)
    return sorted((int(match[1]), int(match[2])) for match in found if match)


def generate_static(
    call: StaticCall,
    sizes: Sequence[tuple[int, int]],
    empty: Mapping[str, np.ndarray],
    prompt: Sequence[int],
    new_tokens: int,
    stops: Container[int] = (),
    *,
    window: int = 0,
    rows: Callable[[np.ndarray], np.ndarray] | None = None,
) -> list[int]:
    """The most probable next tokens.

    Args:
        call: runs a function.
        sizes: of `extend`, from `function_sizes`.
        empty: the caches of the largest size, by name.
        prompt: token ids.
        new_tokens: how many to generate.
        stops: the tokens that end a text.
        window: how many tokens a query sees in a ring.
        rows: gives the per-layer embeddings of tokens, if the functions take them.
    """
    table = call(LOAD, {}, {})[TABLE]
    caches = {name: cache.copy() for name, cache in empty.items()}
    dtype = caches[CACHES[0]].dtype
    tokens, done = list(prompt), 0
    made: list[int] = []
    largest = max(block for _, block in sizes)
    while len(made) < new_tokens and not (made and made[-1] in stops):
        block, start = _block(sizes, done, len(tokens))
        end = min(start + block, len(tokens))
        size = min(size for size, queries in sizes if queries == block and size >= start + block)
        function = PROMPT if len(tokens) - start > largest else EXTEND
        ids = np.zeros((1, block), np.int32)
        ids[0, : end - start] = tokens[start:end]
        embedded = call(f"{GATHER}_{block}", {STATIC_TOKENS: ids, TABLE: table}, {})[STATIC_EMBEDDINGS]
        positions = np.arange(start, start + block)
        seen = (np.arange(size)[:, None] <= positions) & (positions < end)
        inputs = {
            INPUT: embedded,
            STATIC_POSITIONS: positions[None].astype(np.uint16),
            IN_STEP: np.array([start], np.int32),
            CAUSAL_MASK: np.where(seen, 0, FORBIDDEN)[None, :, None].astype(dtype),
            TABLE: table,
        }
        if SLIDING_CACHES[0] in caches:
            inputs |= _in_ring(caches[SLIDING_CACHES[0]].shape[-1], window, start, end, block, dtype)
        if rows is not None:
            given = np.zeros((1, block, 1, rows(ids[:, :1]).shape[-1]), np.int8)
            given[0, : end - start, 0] = rows(ids[0, : end - start])
            inputs[LAYER_ROWS] = given
        # a ring is of one size for all functions
        parts = {name: cache[..., :size] if name in CACHES else cache for name, cache in caches.items()}
        states = {name: np.ascontiguousarray(part) for name, part in parts.items()}
        logits = call(f"{function}_{size}_{block}", inputs, states)[STATIC_LOGITS]
        for name, part in parts.items():
            part[...] = states[name]
        done = end
        if done == len(tokens):
            made.append(int(np.asarray(logits, np.float32)[0, 0, end - start - 1].argmax()))
            tokens.append(made[-1])
    return made


def _in_ring(ring: int, window: int, start: int, end: int, block: int, dtype: Any) -> dict[str, np.ndarray]:
    """Where a block is written in a ring, and what its queries see: the last tokens of the window, in their places."""
    mask = np.full((1, ring, 1, block), FORBIDDEN, dtype)
    for position in range(start, end):
        mask[0, [each % ring for each in range(max(0, position - window + 1), position + 1)], 0, position - start] = 0
    return {SLIDING_STEP: np.array([start % ring], np.int32), SLIDING_MASK: mask}


def _block(sizes: Sequence[tuple[int, int]], done: int, count: int) -> tuple[int, int]:
    """The size and the first position of the next block: the smallest that reaches the last token, or the largest. It
    begins at a multiple of its size, so that tokens of a block that was not full are computed again."""
    blocks = sorted({block for _, block in sizes})
    block = next((block for block in blocks if count - done // block * block <= block), blocks[-1])
    return block, done // block * block
