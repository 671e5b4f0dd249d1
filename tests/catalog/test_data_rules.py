"""How many of the rules are data: a pattern or a formula, whose functions have no branch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from patcomp.patterns import Rejected, Stage, formula
from patcomp_lab.proof.data_rules import is_data
from patterns_catalog import default_rules

LEAST = {"normalize": 92, "recover": 83, "lower": 82, "target": 57, "optimize": 94}
"""The least share of each stage's rules that are data, in percent; a share is not to fall."""
LEAST_IN_ALL = 83


def _share(*stages: str) -> float:
    rules = [is_data(rule) for rule in default_rules() if rule.stage in stages]
    return 100 * sum(rules) / len(rules)


@pytest.mark.parametrize("stage", LEAST)
def test_most_rules_of_a_stage_are_data(stage: str) -> None:
    assert _share(stage) >= LEAST[stage]


def test_most_rules_are_data() -> None:
    assert set(LEAST) == {*Stage} - {Stage.DECOMPOSE}
    assert _share(*LEAST) >= LEAST_IN_ALL


def _if(c: Any, self: Any) -> Any:
    if self.rank:
        return self
    return c.relu(self)


def _loop(c: Any, self: Any) -> Any:
    for _ in range(2):
        self = c.relu(self)
    return self


def _while(c: Any, self: Any) -> Any:
    while self.rank:
        self = c.relu(self)
    return self


def _refuses(c: Any, self: Any) -> Any:
    raise Rejected("never")


def _calls_refusal(c: Any, self: Any) -> Any:
    c.expect(self.rank, "a rank")
    return self


def _inner(c: Any, self: Any) -> Any:
    def made() -> Any:
        return self or c

    return made()


_choice = lambda c, self: c.relu(self) if self.rank else self  # noqa: E731
_either = lambda c, self: self and c  # noqa: E731


def _comprehension(c: Any, self: Any) -> Any:
    return c.transpose(self, [axis for axis in range(self.rank) if axis % 2])


_straight = lambda c, self: c.relu(_if(c, self))  # noqa: E731


@pytest.mark.parametrize("build", [_if, _loop, _while, _refuses, _calls_refusal, _inner, _choice, _either])
def test_a_formula_that_branches_is_no_data(build: Callable[..., Any]) -> None:
    assert not is_data(formula("lower", "aten.relu")(build))


@pytest.mark.parametrize("build", [_comprehension, _straight])
def test_a_comprehension_is_data_and_what_is_called_is_vocabulary(build: Callable[..., Any]) -> None:
    assert is_data(formula("lower", "aten.relu")(build))


def test_a_function_whose_text_is_unknown_is_no_data() -> None:
    names: dict[str, Any] = {}
    exec("def build(c, self): return c.relu(self)", names)
    assert not is_data(formula("lower", "aten.relu")(names["build"]))
