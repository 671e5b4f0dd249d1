"""Departures of an asset's functions from what Apple's package takes: `check_bundle` finds each."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from patcomp_models.bundle_folders.interfaces import Function, Interfaces, Tensor
from patcomp_models.bundle_folders.revisions import OLD
from patcomp_models.language.contract import ONE_TOKEN
from patcomp_models.language.dynamic_check import dynamic_problems

Described = dict[str, tuple[list[int], str]]
"""Shapes, in which -1 is open, and types by name."""


def function(tokens: int = -1, *, logits: int = 96) -> dict[str, Described]:
    cache = ([2, 1, 2, -1, 8], "float16")
    return {
        "input": {"input_ids": ([1, tokens], "int32"), "position_ids": ([1, -1], "int32")},
        "output": {"logits": ([1, tokens, logits], "float16")},
        "state": {"keyCache": cache, "valueCache": cache, "convState": ([1, 1, 32, 3], "float16")},
    }


def interfaces(functions: dict[str, dict[str, Described]]) -> Interfaces:
    def tensors(table: Described) -> dict[str, Tensor]:
        return {name: Tensor(tuple(None if size < 0 else size for size in shape), kind)
                for name, (shape, kind) in table.items()}  # fmt: skip

    return Interfaces({
        name: Function(*(tensors(tables[kind]) for kind in ("input", "output", "state")))
        for name, tables in functions.items()
    })  # fmt: skip


LANGUAGE: dict[str, Any] = {"vocab_size": 96, "function_map": {"main": ["main"]}}


def messages(functions: dict[str, dict[str, Described]], **language: Any) -> list[str]:
    return [problem.message for problem in dynamic_problems(interfaces(functions), {**LANGUAGE, **language}, OLD)]


def renamed(kind: str, old: str, new: str) -> Callable[[dict[str, Described]], None]:
    def change(tables: dict[str, Described]) -> None:
        tables[kind] = {new if name == old else name: value for name, value in tables[kind].items()}

    return change


def put(kind: str, name: str, shape: list[int], dtype: str = "float16") -> Callable[[dict[str, Described]], None]:
    return lambda tables: tables[kind].update({name: (shape, dtype)})


def swapped(tables: dict[str, Described]) -> None:
    tables["input"] = dict(reversed(tables["input"].items()))


DEPARTURES: dict[str, tuple[str, Callable[[dict[str, Described]], Any], str]] = {
    "inputs in another order": ("main", swapped, "the inputs of main are position_ids, input_ids; they must be"),
    "another input": ("main", put("input", "mask", [1, 4]), "the inputs of main are input_ids, position_ids, mask"),
    "another output": ("main", renamed("output", "logits", "scores"), "the outputs of main are scores; they must be"),
    "one token without prefill": ("main", put("input", "input_ids", [1, 1], "int32"), "and must be 1 x ? of int32"),
    "two texts": ("main", put("input", "input_ids", [2, -1], "int32"), "input_ids is 2 x ? of int32, and must be 1"),
    "wide tokens": ("main", put("input", "input_ids", [1, -1], "int64"), "input_ids is 1 x ? of int64, and must be"),
    "fixed positions": ("main", put("input", "position_ids", [1, 8], "int32"), "position_ids is 1 x 8 of int32"),
    "float32 logits": ("main", put("output", "logits", [1, -1, 96], "float32"), "logits are float32, and must be"),
    "another vocabulary": ("main", put("output", "logits", [1, -1, 95]), "their last size must be language.vocab"),
    "no values": ("main", lambda it: it["state"].pop("valueCache"), "Apple's engines take growing caches of keys and"),
    "five states": (
        "main", lambda it: [put("state", name, [1, 4])(it) for name in "ab"], "Apple's engines take 4 states at most",
    ),
    "layers behind heads": ("main", put("state", "keyCache", [1, 2, 2, -1, 8]), "and must be layers x 1 x heads x ? x"),
    "values of another width": ("main", put("state", "valueCache", [2, 1, 2, -1, 4]), "the caches of keys and values"),
    "a window that is called a cache": (
        "main", renamed("state", "convState", "convCache"), "its size must be open, or its name another",
    ),
    "an open chunk": ("prefill", put("input", "input_ids", [1, -1], "int32"), "of prefill is 1 x ? of int32, and must"),
    "chunks with other states": ("prefill", put("state", "keyCache", [3, 1, 2, -1, 8]), "the states of prefill are"),
    "verification with another output": ("verify", renamed("output", "logits", "x"), "the outputs of verify are x"),
    "verification of other logits": ("verify", put("output", "logits", [1, 4, 9]), "logits of verify are 1 x 4 x 9 of"),
    "a draft for one token": ("draft", put("input", "input_ids", [1, 1], "int32"), "input_ids of draft is 1 x 1 of"),
}  # fmt: skip


@pytest.mark.parametrize("name", DEPARTURES)
def test_departures_of_functions(name: str) -> None:
    which, depart, message = DEPARTURES[name]
    functions = {"main": function()}
    if which != "main":
        functions = {"main": function(1), "prefill": function(8), "verify": function(4), "draft": function()}
    before = messages(copy.deepcopy(functions))
    assert before == ([] if which == "main" else [ONE_TOKEN])
    depart(functions[which])
    assert any(message in found for found in messages(functions) if found not in before)


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        (["main"], "language.function_map is no object of lists of names"),
        ({"main": "main"}, "language.function_map is no object of lists of names"),
        (
            {"main": ["main"], "verify": ["verify"]},
            "language.function_map names verify, and the asset has no such",
        ),
        ({"main": []}, "language.function_map.main begins with None, and must begin with 'main'"),
        ({}, "language.function_map.main begins with None, and must begin with 'main'"),
    ],
)
def test_departures_of_roles(roles: Any, message: str) -> None:
    assert [found[: len(message)] for found in messages({"main": function()}, function_map=roles)] == [message]


def test_what_is_taken() -> None:
    assert messages({"main": function()}, function_map=None) == []
    hidden = function()
    put("output", "hidden", [1, -1, 32])(hidden)
    assert messages({"main": hidden, "other": function()}) == []
