"""The finder of mutants, on a small file."""

from __future__ import annotations

import ast

from tests.mutation.mutants import mutants, sample
from tests.mutation.rooms import ROOMS, ROOT

SOURCE = '''"A file."
import x

TABLE = {"add.Tensor": min, "two words": 3}


class Kind:
    size: int = 1

    @property
    def inner(self, strict: bool = True) -> "str":
        """It says something."""
        if self.size <= 2 and not self.known:
            raise ValueError(f"{self.size} is {1 + 1}")
        self.found["é"] = [-n for n in self.all(1) if n > 0]
        for each in zip(self, self, strict=True):
            self.call(each)
            continue
        return any(self) or self == 1
'''
EXPECTED = {
    "module: `\"add.Tensor\"` -> `'add.Tensor_changed'`", "module: `3` -> `4`", "module: `1` -> `2`",
    "module: `True` -> `False`",
    "Kind.inner: `self.size <= 2 and not self.known` -> `True`",
    "Kind.inner: `self.size <= 2 and not self.known` -> `False`",
    "Kind.inner: `self.size <= 2 and not self.known` -> `(self.size <= 2)`",
    "Kind.inner: `self.size <= 2 and not self.known` -> `(not self.known)`",
    "Kind.inner: `self.size <= 2` -> `(self.size < 2)`", "Kind.inner: `2` -> `3`",
    "Kind.inner: `not self.known` -> `(self.known)`",
    "Kind.inner: `self.found[\"é\"] = [-n for n in self.all(1) if n > 0]` -> `pass`",
    "Kind.inner: `\"é\"` -> `'é_changed'`", "Kind.inner: `-n` -> `(n)`", "Kind.inner: `1` -> `2`",
    "Kind.inner: `n > 0` -> `True`", "Kind.inner: `n > 0` -> `False`", "Kind.inner: `n > 0` -> `(n >= 0)`",
    "Kind.inner: `0` -> `1`", "Kind.inner: `self.call(each)` -> `pass`", "Kind.inner: `continue` -> `pass`",
    "Kind.inner: `any(self) or self == 1` -> `(self == 1)`", "Kind.inner: `any(self) or self == 1` -> `(any(self))`",
    "Kind.inner: `any(self)` -> `(all(self))`", "Kind.inner: `self == 1` -> `(self != 1)`",
    "Kind.inner: `1` -> `2` #1",
}  # fmt: skip


def test_each_change_is_found_once_and_is_a_program() -> None:
    found = mutants(SOURCE)
    assert sorted(mutant.key for mutant in found) == sorted(EXPECTED)
    for mutant in found:
        changed = mutant.apply(SOURCE)
        ast.parse(changed)
        assert changed != SOURCE
        assert len(changed.splitlines()) == len(SOURCE.splitlines())
    inner = next(mutant for mutant in found if mutant.before == "continue")
    assert SOURCE.splitlines()[inner.first_line - 1].strip() == "@property"
    assert SOURCE.splitlines()[inner.line - 1].strip() == "continue"


def test_a_sample_is_the_same_in_every_run() -> None:
    found = mutants(SOURCE)
    drawn = sample(found, 5, 0.1, seed=0)
    assert len(drawn) == 5
    assert drawn == sample(list(reversed(found)), 5, 0.1, seed=0)
    assert set(drawn) <= set(sample(found, 6, 0.1, seed=0))
    assert drawn != sample(found, 5, 0.1, seed=1)
    assert len(sample(found, 5, 0.5, seed=0)) == round(len(found) / 2)
    assert sample(found, 99, 1, seed=0) == found


def test_the_rooms_have_files_and_tests() -> None:
    for room in ROOMS.values():
        assert room.paths()
        assert all((ROOT / path).is_file() for path in (*room.paths(), *room.test_files()))
        assert len(room.test_files()) >= len(room.tests)
