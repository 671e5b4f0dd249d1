"""Departures of the Neural Engine's functions from what Apple's package takes, on descriptions of an asset."""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from patcomp_models.bundle_folders.revisions import NEW, OLD
from patcomp_models.language.static_check import static_problems

Values = dict[str, tuple[list[int], str]]
Functions = dict[str, dict[str, Values]]
_TABLE: Any = ([96, 1, 32], "int8")


def _block(size: int, queries: int, logits: list[int]) -> dict[str, Values]:
    cache = ([2, 1, 16, 1, size], "float16")
    return {
        "input": {
            "transformer_input": ([1, queries, 1, 32], "float16"), "position_ids": ([1, queries], "uint16"),
            "in_step": ([1], "int32"), "causal_mask": ([1, size, 1, queries], "float16"), "embedding_table": _TABLE,
        },
        "output": {"out_logits": (logits, "float16")},
        "state": {"key_cache": cache, "value_cache": cache},
    }  # fmt: skip


RIGHT: Functions = {
    "load_embeddings": {"input": {}, "output": {"embedding_table": _TABLE}, "state": {}},
    "gather_embeddings_8": {
        "input": {"in_new_token_ids": ([1, 8], "int32"), "embedding_table": _TABLE},
        "output": {"gathered_embeddings": ([1, 8, 1, 32], "float16")}, "state": {},
    },
    "extend_256_8": _block(256, 8, [1, 1, 8, 96]),
    "prompt_opt_256_8": _block(256, 8, []),
}  # fmt: skip


def _problems(functions: Functions, language: Any = None, table: Any = None, revision: str = OLD) -> list[str]:
    def described(name: str) -> Any:
        made = SimpleNamespace()
        for side, values in functions[name].items():
            tensors = {each: SimpleNamespace(shape=shape, dtype=dtype) for each, (shape, dtype) in values.items()}
            setattr(made, f"{side}_names", [*tensors])
            setattr(made, f"{side}_descriptor", tensors.__getitem__)
        return made

    asset: Any = SimpleNamespace(function_names=[*functions], described=described)
    known = {"vocab_size": 96, "max_context_length": 256, **(language or {})}
    return list(static_problems(asset, known, table, revision))


def put(function: str, side: str, name: str, shape: list[int], dtype: str) -> Callable[[Functions], object]:
    return lambda it: it[function][side].update({name: (shape, dtype)})


def drop(function: str, side: str, name: str) -> Callable[[Functions], object]:
    return lambda it: it[function][side].pop(name)


EXTEND, GATHER, LOAD = "extend_256_8", "gather_embeddings_8", "load_embeddings"
DEPARTURES: dict[str, tuple[Callable[[Functions], object], str]] = {
    "no blocks": (lambda it: it.pop(EXTEND), "no function is called extend_<S>_<q>"),
    "no prompts": (lambda it: it.pop("prompt_opt_256_8"), "prompt_opt has other sizes than extend"),
    "a smaller cache": (lambda it: it.update({"extend_128_8": it.pop(EXTEND)}), "the largest extend has a cache of 12"),
    "no rows of embeddings": (lambda it: it.pop(GATHER), "there is no function gather_embeddings_8"),
    "two tables": (put(LOAD, "output", "scale", [1], "float16"), "the outputs of load_embeddings are embedding_table,"),
    "a table of floats of 32 bits": (put(LOAD, "output", "embedding_table", [96, 1, 32], "float32"), "must be vocab_s"),
    "a flat table": (put(LOAD, "output", "embedding_table", [96, 32], "int8"), "embedding_table is 96 x 32 of int8; i"),
    "other words": (put(LOAD, "output", "embedding_table", [95, 1, 32], "int8"), "embedding_table is 95 x 1 x 32 of i"),
    "tokens of 64 bits": (put(GATHER, "input", "in_new_token_ids", [1, 8], "int64"), "in_new_token_ids of gather_embe"),
    "flat rows": (put(GATHER, "output", "gathered_embeddings", [1, 8, 32], "float16"), "gathered_embeddings of gather"),
    "no mask": (drop(EXTEND, "input", "causal_mask"), "the inputs of extend_256_8 are transformer_input, position_ids"),
    "signed positions": (put(EXTEND, "input", "position_ids", [1, 8], "int32"), "position_ids of extend_256_8 is 1 x"),
    "a step of two": (put(EXTEND, "input", "in_step", [2], "int32"), "in_step of extend_256_8 is 2 of int32, and must"),
    "another mask": (put(EXTEND, "input", "causal_mask", [1, 8, 1, 256], "float16"), "causal_mask of extend_256_8 is"),
    "logits of one token": (put(EXTEND, "output", "out_logits", [1, 1, 1, 96], "float16"), "out_logits of extend_256_"),
    "logits of prompts": (
        put("prompt_opt_256_8", "output", "out_logits", [1, 1, 8, 96], "float16"), "and must be a scalar of float16"),
    "no values": (drop(EXTEND, "state", "value_cache"), "the states of extend_256_8 are key_cache; they must be key_c"),
    "a cache of another size": (
        put(EXTEND, "state", "key_cache", [2, 1, 16, 1, 128], "float16"), "key_cache of extend_256_8 is 2 x 1 x 16 x"),
    "other rows": (
        put(EXTEND, "state", "value_cache", [2, 1, 8, 1, 256], "float16"), "the caches differ in layers or rows"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def constrained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("patcomp.emit.unconstrained.is_constrained", lambda asset: True)


def test_it_is_right() -> None:
    assert _problems(RIGHT) == []


@pytest.mark.parametrize("name", DEPARTURES)
def test_departures(name: str) -> None:
    change, message = DEPARTURES[name]
    functions = copy.deepcopy(RIGHT)
    change(functions)
    found = _problems(functions)
    assert any(message in each for each in found), found


# ---- the later revision: a ring, and rows of per-layer embeddings ------------------------------------

_WINDOW: Any = {"overrides": {"sliding_window": 8}}
_ROWS: Any = {"rows": 96, "width": 24, "dtype": "int8"}


def _with_ring() -> Functions:
    functions = copy.deepcopy(RIGHT)
    ring: Any = ([3, 1, 8, 1, 64], "float16")
    for name in (EXTEND, "prompt_opt_256_8"):
        functions[name]["state"] |= {"sliding_key_cache": ring, "sliding_value_cache": ring}
        functions[name]["input"] |= {
            "sliding_in_step": ([1], "int32"), "sliding_causal_mask": ([1, 64, 1, 8], "float16"),
            "ple_embeddings": ([1, 8, 1, 24], "int8"),
        }  # fmt: skip
    return functions


RINGS: dict[str, tuple[Callable[[Functions], object], Any, Any, str]] = {
    "no window": (lambda it: None, {}, _ROWS, "language.overrides.sliding_window is missing"),
    "a long window": (
        lambda it: None, {"overrides": {"sliding_window": 58}}, _ROWS, "the ring has 64 places, too few for a window"),
    "no table": (lambda it: None, _WINDOW, None, "there is no table of int8 with 96 rows"),
    "fewer rows": (lambda it: None, _WINDOW, {**_ROWS, "rows": 95}, "there is no table of int8 with 96 rows"),
    "rows of floats": (lambda it: None, _WINDOW, {**_ROWS, "dtype": "float16"}, "there is no table of int8"),
    "wider rows": (lambda it: None, _WINDOW, {**_ROWS, "width": 25}, "ple_embeddings of extend_256_8 is 1 x"),
    "no step": (drop(EXTEND, "input", "sliding_in_step"), _WINDOW, _ROWS, "the inputs of extend_256_8 are"),
    "another ring": (
        put("prompt_opt_256_8", "state", "sliding_key_cache", [3, 1, 8, 1, 128], "float16"), _WINDOW, _ROWS,
        "sliding_key_cache of prompt_opt_256_8 is 3 x 1 x 8 x 1 x 128"),
    "no values": (drop(EXTEND, "state", "sliding_value_cache"), _WINDOW, _ROWS, "must be key_cache, value_cache, sl"),
}  # fmt: skip


def test_a_ring_is_right() -> None:
    assert _problems(_with_ring(), _WINDOW, _ROWS, NEW) == []
    earlier = "\n".join(_problems(_with_ring(), _WINDOW, _ROWS))
    assert "the states of extend_256_8 are key_cache, value_cache, sliding_key_cache, sliding_value_cache" in earlier
    assert _problems(RIGHT, revision=NEW) == []


@pytest.mark.parametrize("name", RINGS)
def test_departures_of_rings(name: str) -> None:
    change, language, table, message = RINGS[name]
    functions = _with_ring()
    change(functions)
    found = _problems(functions, language, table, NEW)
    assert any(message in each for each in found), found
