"""Draws random programs, statement by statement; each is run at once, so that only programs that PyTorch runs remain.

A statement runs for two calls, with other numbers and other sizes, and each of them three times: in the program's own
types, in float64, and in float64 with noise. It is kept if it runs in all, and if the three agree so far that its
numbers mean something. An axis whose size differs between the calls is open.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch

from tests.fuzz import noise
from tests.fuzz.program import HALF, Given, Program, Statement, Symbol, in_double, namespace

T = TypeVar("T")
LARGEST = 5000.0
"""Numbers stay below it, so that sums and products of some of them are exact in float32 and fit 32 bits."""
MOST = 3000
"""Elements of a tensor."""
AGREEMENT, HALF_AGREEMENT = 1e-3, 3e-2
"""How far rounding may move a number, relative to the largest of its tensor; with float16."""


class Skip(Exception):  # noqa: N818
    """A template that does not fit what there is."""


@dataclass(frozen=True)
class Value:
    """A value of the program, as it is in the two calls."""

    name: str
    tensor: torch.Tensor
    other: torch.Tensor

    def __str__(self) -> str:
        return self.name

    @property
    def dtype(self) -> torch.dtype:
        return self.tensor.dtype

    @property
    def is_float(self) -> bool:
        return self.dtype.is_floating_point

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)

    @property
    def rank(self) -> int:
        return self.tensor.dim()

    def is_open(self, axis: int) -> bool:
        """Whether the size of an axis differs between the calls."""
        return self.tensor.shape[axis] != self.other.shape[axis]

    @property
    def is_static(self) -> bool:
        """Whether no axis is open."""
        return self.tensor.shape == self.other.shape

    def size(self, axis: int) -> str:
        """The size of an axis in Python."""
        return f"{self.name}.shape[{axis}]" if self.is_open(axis) else str(self.shape[axis])


@dataclass
class Run:
    """One of the runs that a program is drawn with."""

    call: int
    sizes: dict[str, int]
    kind: str
    """`"eager"`, `"twin"` or `"noisy"`."""
    names: dict[str, Any] = field(default_factory=dict)

    def give(self, given: Given) -> None:
        """Adds a tensor that the program starts from."""
        tensor = given.tensor(self.sizes, self.call if given.kind == "input" else 0)
        if self.kind != "eager" and tensor.is_floating_point():
            tensor = tensor.double()
        if given.kind == "input":
            self.names[given.name] = tensor
        else:
            setattr(self.names["self"], given.name, tensor)

    def do(self, code: str, amount: float) -> None:
        """Runs a statement."""
        mode: AbstractContextManager[Any] = nullcontext()
        if self.kind == "noisy":
            mode = noise.Noise(amount, 1)
        with torch.no_grad(), mode, noise.in_double() if self.kind != "eager" else nullcontext():
            exec(code if self.kind == "eager" else in_double(code), self.names)


class Self:
    """Stands for the module while its program is drawn."""


class Draw:
    """A program in the making, and what templates draw from."""

    def __init__(self, rng: random.Random):
        self.rng = rng
        self.givens: list[Given] = []
        self.statements: list[Statement] = []
        self.symbols: dict[str, Symbol] = {}
        self.pool: list[str] = []
        self.runs: list[Run] = []

    # ---- chance ----------------------------------------------------------------------------------

    def choice(self, items: Sequence[T]) -> T:
        """One of several."""
        return self.rng.choice(items)

    def chance(self, probability: float) -> bool:
        """True as often as that."""
        return self.rng.random() < probability

    def integer(self, low: int, high: int) -> int:
        """A number, both ends included."""
        return self.rng.randint(low, high)

    # ---- values ----------------------------------------------------------------------------------

    def value(self, *conditions: Callable[[Value], Any]) -> Value:
        """A value of the program for which all conditions hold; later ones are likelier.

        Raises:
            Skip: there is none.
        """
        fitting = [value for value in map(self.look_up, self.pool) if all(holds(value) for holds in conditions)]
        if not fitting:
            raise Skip
        return self.rng.choices(fitting, [1 + 3 * index / len(fitting) for index in range(len(fitting))])[0]

    def look_up(self, name: str) -> Value:
        """A value by name."""
        return Value(name, self.runs[0].names[name], self.runs[3].names[name])

    def give(self, kind: str, shape: tuple[int | str, ...], dtype: torch.dtype, low: int = -2, high: int = 2) -> Given:
        """A new input, weight or buffer; in statements a weight or buffer is an attribute of `self`."""
        letter = {"input": "x", "weight": "w", "buffer": "b"}[kind]
        name = f"{letter}{sum(given.kind == kind for given in self.givens)}"
        given = Given(name, kind, shape, dtype, low, high, self.integer(0, 999))
        self.givens.append(given)
        for run in self.runs:
            run.give(given)
        if kind == "input":
            self.pool.append(name)
        return given

    def weight(self, *shape: int, dtype: torch.dtype = torch.float32, low: int = -2, high: int = 2) -> str:
        """The code of a new weight."""
        return f"self.{self.give('weight', shape, dtype, low, high).name}"

    # ---- statements ------------------------------------------------------------------------------

    def add(self, expression: str) -> Value:
        """Binds a new name to an expression.

        Raises:
            Skip: it does not run, or its numbers are not usable.
        """
        name = f"v{len(self.statements)}"
        return self.define(f"{name} = {expression}", name)

    def define(self, code: str, name: str) -> Value:
        """Adds a statement that binds a name."""
        self._add(Statement(code, name))
        return self.look_up(name)

    def do(self, code: str) -> None:
        """Adds a statement that writes in place."""
        self._add(Statement(code))

    def new_name(self) -> str:
        """The name that the next statement may bind."""
        return f"v{len(self.statements)}"

    def _add(self, statement: Statement) -> None:
        names = [*self.pool, *([statement.result] if statement.result else [])]
        try:
            for run in self.runs:
                run.do(statement.code, self._amount(statement))
            usable = all(self._is_usable(name, statement) for name in names)
        except Exception:  # PyTorch does not take it, in whatever way it says so
            usable = False
        if not usable:
            self._start_again()
            raise Skip
        self.statements.append(statement)
        self.pool = names

    def _amount(self, statement: Statement) -> float:
        halves = HALF in statement.code or any(HALF in before.code for before in self.statements)
        return noise.HALF if halves or any(given.dtype == torch.float16 for given in self.givens) else noise.SINGLE

    def _is_usable(self, name: str, statement: Statement) -> bool:
        found = [run.names[name] for run in self.runs]
        if any(not isinstance(tensor, torch.Tensor) or tensor.numel() > MOST for tensor in found):
            return False
        limit = AGREEMENT if self._amount(statement) == noise.SINGLE else HALF_AGREEMENT
        for eager, twin, noisy in (found[:3], found[3:]):
            if twin.numel() and twin.is_floating_point() and not twin.isfinite().any():
                return False
            if float(twin.double().nan_to_num(0.0, 0.0, 0.0).abs().sum() if twin.numel() else 0) > LARGEST * MOST:
                return False
            if twin.numel() and float(twin.double().nan_to_num(0.0, 0.0, 0.0).abs().max()) > LARGEST:
                return False
            if max(noise.distance(eager, twin), noise.distance(noisy, twin)) > limit * noise.scale(twin):
                return False
        return True

    def _start_again(self) -> None:
        """Runs what there is so far again: a statement that failed may have written to something."""
        for run in self.runs:
            run.names = {**namespace(), "self": Self()}
            for given in self.givens:
                run.give(given)
            for statement in self.statements:
                run.do(statement.code, self._amount(statement))

    def begin(self, symbols: dict[str, Symbol]) -> None:
        """Starts the runs, with symbols for open sizes."""
        self.symbols = symbols
        others = {name: symbol.example + (-1 if symbol.example > symbol.low else 1) for name, symbol in symbols.items()}
        examples = {name: symbol.example for name, symbol in symbols.items()}
        kinds = ("eager", "twin", "noisy")
        self.runs = [Run(call, sizes, kind) for call, sizes in enumerate((examples, others)) for kind in kinds]
        self._start_again()


Template = Callable[[Draw], Any]
"""Adds statements to a program, and raises `Skip` where it does not fit."""


class Templates(list[Template]):
    """Templates, each as often as its weight."""

    def register(self, weight: int = 1) -> Callable[[Template], Template]:
        """Decorates a template."""

        def add(template: Template) -> Template:
            self.extend([template] * weight)
            return template

        return add


def generate(seed: str) -> Program:
    """The program of a seed."""
    from tests.fuzz.control_ops import TEMPLATES as CONTROL
    from tests.fuzz.effects import TEMPLATES as EFFECTS
    from tests.fuzz.moving_ops import TEMPLATES as MOVING
    from tests.fuzz.near_composites import TEMPLATES as COMPOSITES
    from tests.fuzz.tensor_ops import TEMPLATES as TENSORS

    draw = Draw(random.Random(seed))
    draw.begin(_symbols(draw) if draw.chance(0.35) else {})
    _inputs(draw)
    weights = {
        "ops": (9, 0, 0, 0), "composites": (3, 6, 0, 0), "effects": (5, 0, 4, 1), "control": (4, 0, 1, 5),
        "mixed": (6, 2, 1, 1),
    }[draw.choice(("ops", "ops", "composites", "effects", "control", "control", "mixed"))]  # fmt: skip
    wanted, tries = draw.integer(2, 9), 0
    while len(draw.statements) < wanted and tries < 80:
        tries += 1
        template = draw.choice(draw.rng.choices((TENSORS + MOVING, COMPOSITES, EFFECTS, CONTROL), weights)[0])
        try:
            template(draw)
        except Skip:
            continue
    form = draw.rng.choices(("not decomposed", "saved", "patcomp's table", "PyTorch's table"), (6, 4, 1, 1))[0]
    return Program(tuple(draw.givens), tuple(draw.statements), _outputs(draw), draw.symbols, form).pruned()


def _symbols(draw: Draw) -> dict[str, Symbol]:
    named = draw.chance(0.5)
    symbols = {}
    for name in ("n", "m")[: draw.integer(1, 2)]:
        low = draw.integer(1, 3) if named else 2
        example = draw.integer(max(low, 2) + 1, 7)
        symbols[name] = Symbol(low, example + draw.integer(1, 9), example, named)
    return symbols


def _inputs(draw: Draw) -> None:
    """The arguments: the first is a float32 tensor of rank 2 to 4, with all open sizes in it."""
    base: list[int | str] = [draw.integer(1, 6) for _ in range(draw.integer(2, 4))]
    for name, axis in zip(draw.symbols, draw.rng.sample(range(len(base)), len(draw.symbols)), strict=True):
        base[axis] = name
    draw.give("input", tuple(base), torch.float32)
    for _ in range(draw.integer(0, 3)):
        shape = draw.choice([tuple(base), tuple(base), tuple(base[draw.integer(0, len(base) - 1) :]), (4, 6)])
        dtype = draw.choice([torch.float32] * 4 + [torch.float16, torch.int64, torch.int64, torch.int32, torch.bool])
        low, high = draw.choice([(-2, 2), (0, 4), (-9, 9), (1, 3)])
        draw.give("input", shape, dtype, low, high)


def _outputs(draw: Draw) -> tuple[str, ...]:
    """What the program returns: the last value and some of the others, those that nothing reads first."""
    read = {name for statement in draw.statements for name in statement.names - {statement.result}}
    results = [statement.result for statement in draw.statements if statement.result]
    unread = [name for name in results if name not in read]
    if not results:
        return (draw.pool[0],)
    chosen = draw.rng.sample(unread, min(len(unread), 3))
    if draw.chance(0.25):
        chosen.append(draw.choice(draw.pool))
    return tuple(chosen or results[-1:])
