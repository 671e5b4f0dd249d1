"""What the parts of proofs make, as one line of text for each: programs that are listed, codes of symbols, numbers.

    python -m tests.proof_lemmas.fingerprints           # writes fingerprints.csv
    python -m tests.proof_lemmas.fingerprints NAME      # prints what is behind the rows of a table or of a name

A verdict is about the programs and numbers that a proof lists, so a change of them is one that its author should see.
A fingerprint says that something changed, and not whether it is right: other tests say that of each part.
"""

from __future__ import annotations

import csv
import hashlib
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from patcomp.pytorch import pytree
from patcomp_lab.proof.symbols import Symbols

PATH = Path(__file__).with_name("fingerprints.csv")
Lines = Mapping[str, Iterable[str]]
TABLES: dict[str, Callable[[], Lines]] = {}
"""By name, a function that gives the lines of each row."""


def table(function: Callable[[], Lines]) -> Callable[[], Lines]:
    TABLES[function.__name__] = function
    return function


def shown(value: Any) -> str:
    """What there is to see of results: codes, types, shapes, and the sizes of numbers, whose last bits depend on the
    processor."""
    return " ".join(map(_leaf, pytree.tree_leaves(value)))


def _leaf(value: Any) -> str:
    if isinstance(value, Symbols):
        return f"{value.dtype} {tuple(value.shape)} codes {value.codes.tolist()}"
    if isinstance(value, Tensor):
        numbers = value.flatten().tolist()
        return f"{value.dtype} {tuple(value.shape)} {' '.join(map(_size, numbers))}"
    return _size(value) if isinstance(value, float | complex) else repr(value)


def _size(number: Any) -> str:
    """A number; of a float, between which of a few limits it is. The limits are no numbers that a program has."""
    if isinstance(number, complex):
        return f"{_size(number.real)}+{_size(number.imag)}j"
    if not isinstance(number, float) or number == 0 or not math.isfinite(number):
        return str(number)
    return f"{'-' * (number < 0)}2^{math.floor(math.log2(abs(number) * 1.37))}"


def attempt(run: Callable[..., Any], *args: Any, **options: Any) -> str:
    """What a function gives, or the class of its error; of an error of patcomp, its text."""
    try:
        with torch.no_grad():
            return shown(run(*args, **options))
    except Exception as error:  # whatever the function raises is what the table is about
        text = f": {error}" if type(error).__module__.startswith("patcomp") else ""
        return f"{type(error).__name__}{text}"


def made(name: str) -> dict[str, str]:
    """The rows of a table: how many lines there are, and their fingerprint."""
    rows = {}
    for row, lines in TABLES[name]().items():
        listed = list(lines)
        digest = hashlib.blake2b("\n".join(listed).encode(), digest_size=6).hexdigest()
        rows[row] = f"{len(listed)} lines {digest}"
    return rows


def stored() -> dict[str, dict[str, str]]:
    """The rows of each table as they are in the file."""
    found: dict[str, dict[str, str]] = {}
    with PATH.open(newline="") as file:
        for name, row, text in csv.reader(file):
            found.setdefault(name, {})[row] = text
    return found


def main() -> None:
    from tests.proof_lemmas import made_inputs, made_programs, made_symbols

    _ = made_inputs, made_programs, made_symbols  # imported for the tables that they register
    wanted = sys.argv[1:]
    if wanted:
        for name, function in TABLES.items():
            for row, lines in function().items() if not {*wanted}.isdisjoint({name}) else ():
                print(f"== {row}", *lines, sep="\n")
        return
    with PATH.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        for name in TABLES:
            writer.writerows((name, row, text) for row, text in made(name).items())


if __name__ == "__main__":
    from tests.proof_lemmas.fingerprints import main as run  # the module whose tables others fill

    run()
