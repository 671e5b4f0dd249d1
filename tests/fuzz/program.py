"""A random program as data: what it starts from, its statements, its outputs; and the module that it is."""

from __future__ import annotations

import linecache
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.fuzz import control

HALF, SINGLE, DOUBLE = "torch.float16", "torch.float32", "torch.float64"
NAME = re.compile(r"\b[xwbv]\d+\b")
"""Names of inputs, weights, buffers and values of statements."""


def values(shape: tuple[int, ...], dtype: torch.dtype, low: int, high: int, seed: int) -> torch.Tensor:
    """Random numbers from `low` to `high`; floating-point ones are multiples of 1/8, so that sums are exact."""
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    if dtype.is_floating_point:
        return (torch.randint(8 * low, 8 * high + 1, shape, generator=generator) / 8).to(dtype)
    return torch.randint(low, high + 1, shape, generator=generator).to(dtype)


@dataclass(frozen=True)
class Given:
    """A tensor that a program starts from."""

    name: str
    kind: str
    """`"input"`, `"weight"` or `"buffer"`."""
    shape: tuple[int | str, ...]
    """Sizes, or names of symbols."""
    dtype: torch.dtype
    low: int = -2
    high: int = 2
    seed: int = 0
    literal: Any = None
    """The numbers as nested lists, instead of random ones."""

    def code(self, sizes: Mapping[str, int], call: int = 0) -> str:
        """A Python expression that makes the tensor of a call."""
        if self.literal is not None:
            numbers = re.sub(r"\b(inf|nan)\b", r"float('\1')", repr(self.literal))
            return f"torch.tensor({numbers}, dtype={self.dtype}).reshape({self.sizes(sizes)})"
        return f"values({self.sizes(sizes)}, {self.dtype}, {self.low}, {self.high}, {self.seed + 7919 * call})"

    def sizes(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape for given sizes of symbols."""
        return tuple(sizes[size] if isinstance(size, str) else size for size in self.shape)

    def tensor(self, sizes: Mapping[str, int], call: int = 0) -> torch.Tensor:
        """The tensor of a call."""
        return eval(self.code(sizes, call), {"torch": torch, "values": values})


@dataclass(frozen=True)
class Symbol:
    """A size that is left open: its range, the size of the export, and whether it is a named `Dim`."""

    low: int
    high: int
    example: int
    named: bool

    def code(self, name: str) -> str:
        """The dimension as `torch.export` takes it."""
        return f'Dim("{name}", min={self.low}, max={self.high})' if self.named else "Dim.AUTO"


@dataclass(frozen=True)
class Statement:
    """Lines of Python in `forward`, and the name that they bind; a write in place binds none."""

    code: str
    result: str | None = None

    @property
    def names(self) -> set[str]:
        """The names that occur in it."""
        return set(NAME.findall(self.code))


@dataclass(frozen=True)
class Program:
    """A random program."""

    givens: tuple[Given, ...]
    statements: tuple[Statement, ...]
    outputs: tuple[str, ...]
    symbols: Mapping[str, Symbol] = field(default_factory=dict)
    form: str = "not decomposed"
    """What happens to the program after export; one of the keys of `judge.FORMS`."""

    @property
    def inputs(self) -> tuple[Given, ...]:
        """The arguments of `forward`."""
        return tuple(given for given in self.givens if given.kind == "input")

    @property
    def example_sizes(self) -> dict[str, int]:
        """The sizes that are exported with."""
        return {name: symbol.example for name, symbol in self.symbols.items()}

    @property
    def rounds_to_half(self) -> bool:
        """Whether float16 occurs."""
        code = [*(given.code(self.example_sizes) for given in self.givens), *(s.code for s in self.statements)]
        return any(HALF in text for text in code)

    def pruned(self) -> Program:
        """The program without what its outputs and its writes in place do not need."""
        needed, kept = set(self.outputs), []
        for statement in reversed(self.statements):
            if statement.result is None or statement.result in needed:
                needed |= statement.names
                kept.append(statement)
        givens = tuple(given for given in self.givens if given.name in needed)
        first = next((given for given in self.givens if given.kind == "input"), None)
        if first and not any(given.kind == "input" for given in givens):  # export wants an argument
            givens = (first, *givens)
        symbols = {name for given in givens for name in given.shape}
        return replace(
            self,
            givens=givens,
            statements=tuple(reversed(kept)),
            symbols={name: symbol for name, symbol in self.symbols.items() if name in symbols},
        )

    def source(self) -> str:
        """The class of the module, as Python source."""
        lines = ["class Model(nn.Module):", "    def __init__(self):", "        super().__init__()"]
        for given in self.givens:
            code = given.code(self.example_sizes)
            if given.kind == "weight":
                lines.append(f"        self.{given.name} = nn.Parameter({code}, requires_grad=False)")
            elif given.kind == "buffer":
                lines.append(f'        self.register_buffer("{given.name}", {code})')
        lines += ["", f"    def forward(self, {', '.join(given.name for given in self.inputs)}):"]
        lines += [f"        {line}" for statement in self.statements for line in statement.code.splitlines()]
        return "\n".join([*lines, f"        return ({', '.join(self.outputs)},)"]) + "\n"

    def arguments(self, sizes: Mapping[str, int], call: int = 0) -> tuple[torch.Tensor, ...]:
        """The arguments of a call."""
        return tuple(given.tensor(sizes, call) for given in self.inputs)

    def model(self) -> nn.Module:
        """A new module."""
        return _module(self.source())

    def twin(self) -> nn.Module:
        """The same module with every floating-point tensor in float64; to be run where that is the default type."""
        return _module(in_double(self.source())).double()


def in_double(code: str) -> str:
    """Python source with float64 in place of the other floating-point types."""
    return code.replace(SINGLE, DOUBLE).replace(HALF, DOUBLE)


def namespace() -> dict[str, Any]:
    """The names that statements use."""
    loops = {name: vars(control)[name] for name in ("cond", "while_loop", "scan")}
    return {"torch": torch, "nn": nn, "F": functional, "values": values, **loops}


def _module(source: str) -> nn.Module:
    filename = f"fuzz_{zlib.crc32(source.encode())}.py"  # tracebacks and patcomp's messages quote its lines
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    names = namespace()
    exec(compile(source, filename, "exec"), names)
    return names["Model"]().eval()
