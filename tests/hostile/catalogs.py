"""Broken TOML files of a batch; and broken Python files as catalogs and models.

Python files are programs, so only files that are not Python are drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

from patcomp.commands.batch import jobs_in
from patcomp.commands.common import rules_with
from patcomp.commands.models import load_exported
from tests.hostile.judge import Case
from tests.hostile.mutation import broken_bytes, broken_text, name

CATALOG = '''"""A rule."""

from patcomp.authoring import Coreai, OpView
from patcomp.ir.value import Value
from patcomp.patterns import example, lowering


@lowering("aten.exp", name="my_exp", examples=[example("2x3xf32")])
def my_exp(op: OpView, c: Coreai) -> Value:
    return c.exp(op["self"])
'''


BATCH = """[defaults]
verify = true
int64 = "keep"

[[models]]
model = "nets.py:net"
output = "net.aimodel"
recover = ["rms_norm", "rope"]

[[models]]
model = "other.pt2"
name = "other"
"""


def prepare() -> None:
    """The cases need nothing."""


def draw(prepared: None, random: Random) -> Case:
    if random.random() < 0.5:
        text = broken_text(BATCH, [BATCH], random).encode(errors="surrogatepass")
        data = random.choice((text, text, broken_bytes(BATCH.encode(), random), b"a = " + b"[" * 100_000))
        return Case(partial(read_batch, data), data, "a file of a batch")
    make = random.choice((of_bytes, of_bytes, cut, deep, odd_name))
    data, path = make(random)
    return Case(partial(run, data, path, random.random() < 0.5), data, make.__name__)


def run(data: bytes, path: str, is_model: bool) -> None:
    Path("case.py").write_bytes(data)
    if is_model:
        load_exported(f"{path}:model")
    else:
        rules_with([path], decompositions=False)


def read_batch(data: bytes) -> None:
    Path("batch.toml").write_bytes(data)
    jobs_in(Path("batch.toml"))


def of_bytes(random: Random) -> tuple[bytes, str]:
    """Bytes that no Python file has: the first line is broken, so nothing of the file runs."""
    return b'"""\0\xff' + broken_bytes(CATALOG.encode(), random), "case.py"


def cut(random: Random) -> tuple[bytes, str]:
    """Only the part before the decorator ends may be whole."""
    return CATALOG.encode()[: random.randrange(CATALOG.index("def "))], "case.py"


def deep(random: Random) -> tuple[bytes, str]:
    depth = random.choice((10, 100, 1000, 100_000))
    opened, closed = random.choice((("(", ")"), ("[", "]"), ("-", ""), ("{0:", "}"), ("lambda:", "")))
    return f"x = {opened * depth}1{closed * depth}\n".encode(), "case.py"


def odd_name(random: Random) -> tuple[bytes, str]:
    made: list[Callable[[], str]] = [lambda: name(random), lambda: name(random) + ".py", lambda: "a." + name(random)]
    return CATALOG.encode(), random.choice(made)()[-1000:]
