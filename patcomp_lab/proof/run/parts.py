"""Whether a value of one program equals a value of another one, on symbols in the place of what is known to be equal.

A part of a program are the ops between such values and the one in question. Both parts run on the same symbols.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from patcomp.errors import EvaluationError
from patcomp.evaluate.eager import call_of, eager_arguments
from patcomp.evaluate.element_types import TORCH_DTYPES
from patcomp.ir.aten import AtenOp
from patcomp.ir.constants import is_constant
from patcomp.ir.types import TensorType, element_name, is_static, shape_of, static_shape
from patcomp_lab.proof.lemmas import LEMMAS
from patcomp_lab.proof.run.flat import Node
from patcomp_lab.proof.run.values import StageProgram
from patcomp_lab.proof.run.worlds import LOOKED_INTO, OPAQUE, RunWorld, lookup_of_op
from patcomp_lab.proof.scalars import TYPE_MARKS
from patcomp_lab.proof.symbols import FLOAT_DTYPES, INTEGERS, Symbols, UnreachedError, same_codes
from patcomp_lab.proof.worlds import CodeKind

PartNumbers = Sequence[Mapping[int, Any]]
"""The numbers of the values of a program, for each draw of inputs."""

_WORLDS = 2
"""In how many worlds two parts are run."""

WORLDS_OF_FEW = 6
"""In how many worlds parts are run that give few elements, or have booleans of few elements: each comparison should be
true and false."""

_FEW = 16
"""The most elements that are few."""

DEPTHS = (0, 1, 3)
"""How many ops before the values that are known to be equal both parts are extended by, one after the other."""

_LARGEST = 400
"""The most ops of a part. A part grows if values in it are not found to be equal."""


@dataclass(frozen=True)
class Level:
    """What is tried: the kind of world, the lemmas, whether convolutions and constants are looked into."""

    kind: CodeKind
    lemmas: tuple[str, ...] = ()
    opaque: bool = True
    lifted: bool = False


LEVELS = (
    Level(CodeKind.BITS), Level(CodeKind.BITS, tuple(LEMMAS)), Level(CodeKind.REALS),
    Level(CodeKind.REALS, opaque=False),
    Level(CodeKind.REALS, opaque=False, lifted=True),
)  # fmt: skip


@dataclass(frozen=True)
class ValueFinding:
    """What was found of two values.

    Attributes:
        kind: the kind of equality; None if the symbols differ, or do not reach the parts.
        lemmas: the identities of numbers that it needs.
        drawn: whether integers were numbers that were drawn, because symbols do not reach what is computed of them.
        reason: why there is no equality.
    """

    kind: CodeKind | None
    lemmas: frozenset[str] = frozenset()
    drawn: bool = False
    reason: str = ""


@dataclass
class _Part:
    """The ops that compute a value from leaves.

    Attributes:
        nodes: the ops in order.
        leaves: the classes of values that are known to be equal to values of the other program.
    """

    nodes: list[Node] = field(default_factory=list)
    leaves: set[int] = field(default_factory=set)


def proof_part(program: StageProgram, values: Iterable[int], cut: set[int]) -> _Part | None:
    """The ops that compute some values from values of the classes of a cut; None if there are too many.

    The values themselves are computed, whatever their class.
    """
    made, needed, waiting = _Part(), set(), list(values)
    roots = set(waiting)
    while waiting:
        value = waiting.pop()
        node = program.flat.maker.get(value)
        is_leaf = program.of.get(value) in cut and value not in roots and not (node and is_constant(node.op))
        if node is None or is_leaf or (is_constant(node.op) and not program.has_values(node)):
            made.leaves.add(program.of[value])
        elif node not in needed:
            needed.add(node)
            waiting += [operand for operand in node.operands if operand not in needed]
            if len(needed) > _LARGEST:
                return None
    made.nodes = sorted(needed, key=lambda node: node.order)
    return made


def compared(before: StageProgram, old: int, after: StageProgram, new: int, numbers: PartNumbers) -> ValueFinding:
    """Whether a value of the program before a stage equals one of the program after it.

    Args:
        numbers: the numbers of the values before the stage.
    """
    found = ValueFinding(None, reason="the part that computes it is too large")
    for depth in DEPTHS:
        cut = set(before.members) & set(after.members)
        shared = proof_part(after, [new], cut), proof_part(before, [old], cut)
        if shared[0] is None or shared[1] is None:
            return found
        leaves = shared[0].leaves | shared[1].leaves
        deeper = _extended(before, leaves, cut, depth)
        if deeper is None or (depth and not deeper.nodes):
            return found
        comparison = _Comparison(before, old, after, new, shared[1], shared[0], deeper, numbers)
        said = comparison.finding()
        if said.kind is not None:
            return said
        found = said if depth == 0 else found
    return found


def _extended(before: StageProgram, leaves: set[int], cut: set[int], depth: int) -> _Part | None:
    """The ops of the program before that compute leaves from values some ops before them."""
    made = _Part(leaves=set(leaves))
    for _ in range(depth):
        part = proof_part(before, [before.members[each] for each in made.leaves if each in before.members], cut)
        if part is None or len(made.nodes) + len(part.nodes) > _LARGEST:
            return None
        made.nodes = sorted({*made.nodes, *part.nodes}, key=lambda node: node.order)
        made.leaves = part.leaves | {each for each in made.leaves if each not in before.members}
    return made


@dataclass
class _Comparison:
    before: StageProgram
    old: int
    after: StageProgram
    new: int
    old_part: _Part
    new_part: _Part
    deeper: _Part
    numbers: PartNumbers

    def finding(self) -> ValueFinding:
        reason, of_reals = "", ""
        for level in LEVELS:
            if level.kind is CodeKind.REALS and not level.opaque and not level.lifted and not self._convolves():
                continue
            for drawn in (False, True) if self._has_integers() else (False,):
                try:
                    used = self._lemmas(level, level.lemmas, drawn)
                except UnreachedError as error:
                    reason = str(error)
                    of_reals = of_reals or (reason if level.kind is CodeKind.REALS else "")
                    continue
                if used is not None:
                    return ValueFinding(level.kind, used, drawn, reason if drawn else "")
                reason = "the symbols differ"
                of_reals = of_reals or (reason if level.kind is CodeKind.REALS else "")
        return ValueFinding(None, reason=of_reals or reason)

    def _convolves(self) -> bool:
        return any("conv" in node.op.name for node in (*self.old_part.nodes, *self.new_part.nodes))

    def _has_few(self) -> bool:
        """Whether the value in question, or a boolean tensor of the parts, has few elements."""
        parts = (self.before, self.old_part), (self.after, self.new_part), (self.before, self.deeper)
        types = [program.flat.types[value] for program, part in parts for node in part.nodes for value in node.results]
        booleans = [type_ for type_ in (*types, *map(self._type, self.deeper.leaves)) if _element(type_) == "i1"]
        return any(_count(type_) <= _FEW for type_ in (self.after.flat.types[self.new], *booleans))

    def _has(self, element: str) -> bool:
        """Whether a value of the parts has an element type."""
        parts = (self.before, self.old_part), (self.after, self.new_part), (self.before, self.deeper)
        types = [program.flat.types[value] for program, part in parts for node in part.nodes for value in node.results]
        return any(_element(type_) == element for type_ in types)

    def _has_integers(self) -> bool:
        return any(_element(self._type(each))[0] in "su" for each in self.deeper.leaves)

    def _type(self, each: int) -> TensorType:
        program = self.before if each in self.before.members else self.after
        type_ = program.flat.types[program.members[each]]
        if not isinstance(type_, TensorType):
            raise UnreachedError(f"a value of type {type_}")
        return type_

    def _lemmas(self, level: Level, allowed: tuple[str, ...], drawn: bool) -> frozenset[str] | None:
        """The lemmas that equal symbols need; None if the symbols differ."""
        used: set[str] = set()
        for number in range(WORLDS_OF_FEW if self._has_few() else _WORLDS):
            meanings = OPAQUE if level.opaque else LOOKED_INTO
            world = RunWorld(
                level.kind, number, allowed=allowed, lemmas=used, lifts_constants=level.lifted, meanings=meanings,
                of_64_bits=self._has("f64"),
            )  # fmt: skip
            if not self._is_same(world, drawn):
                return None
        for lemma in sorted(used):
            fewer = self._lemmas(level, tuple(sorted(used - {lemma})), drawn)
            if fewer is not None:
                return fewer
        return frozenset(used)

    def _is_same(self, world: RunWorld, drawn: bool) -> bool:
        known = {each: self._symbols(each, world, drawn) for each in self.deeper.leaves}
        _run(self.before, self.deeper.nodes, known, world)
        expected = _run(self.before, self.old_part.nodes, dict(known), world).get(self.old)
        given = _run(self.after, self.new_part.nodes, dict(known), world).get(self.new)
        expected = known[self.before.of[self.old]] if expected is None else expected
        given = known[self.after.of[self.new]] if given is None else given
        return _are_same(expected, given, world)

    def _symbols(self, each: int, world: RunWorld, drawn: bool) -> Any:
        type_ = self._type(each)
        dtype = TORCH_DTYPES[element_name(type_.element_type)]
        value = self.before.members.get(each)
        draw = self.numbers[world.number % len(self.numbers)]
        number = draw.get(value) if value is not None else None
        if value in self.before.fixed and isinstance(number, Tensor):
            is_symbol = world.lifts_constants and number.dtype in FLOAT_DTYPES
            return Symbols(world.numbers(number), number.dtype, world) if is_symbol else number
        if is_static(type_):
            shape = torch.Size(static_shape(type_))
        elif isinstance(number, Tensor):
            shape = number.shape
        else:
            raise UnreachedError("a value whose size is not known")
        if dtype in FLOAT_DTYPES:
            codes = world.symbols(each, shape)
            codes = codes // 4 * 4 + TYPE_MARKS[dtype] if world.kind is CodeKind.BITS else codes
            return Symbols(codes, dtype, world)
        if dtype in INTEGERS and not drawn:
            return Symbols(world.symbols(each, shape), dtype, world)
        if dtype == torch.bool and (world.number or number is None):
            drawn_booleans = world.symbols(each, shape) % 2 == 1
            return {3: torch.zeros_like, 4: torch.ones_like}.get(world.number, torch.clone)(drawn_booleans)
        if isinstance(number, Tensor):
            return number
        raise UnreachedError(f"there are no numbers for a value of type {type_}")


def _element(type_: Any) -> str:
    """The name of the elements of a tensor type; empty for other types."""
    return element_name(type_.element_type) if isinstance(type_, TensorType) else ""


def _count(type_: Any) -> int:
    """The elements of a tensor type, where open sizes count as 1."""
    return math.prod(size or 1 for size in shape_of(type_)) if isinstance(type_, TensorType) else 0


def _are_same(expected: Any, given: Any, world: RunWorld) -> bool:
    """Whether two results are the same; numbers that no symbol is in are compared to the bit in a world of bits."""
    plain = not isinstance(expected, Symbols) and not isinstance(given, Symbols) and expected.shape == given.shape
    if world.kind is CodeKind.BITS and plain and expected.is_floating_point() and given.is_floating_point():
        signs = expected.signbit() == given.signbit()
        return bool((((expected == given) & signs) | (expected.isnan() & given.isnan())).all())
    return same_codes(expected, given, world)


def _typed(value: Any, type_: Any, world: RunWorld) -> Any:
    """A leaf in the type that it has after the stage: 64-bit numbers may have become 32-bit ones."""
    dtype = TORCH_DTYPES[element_name(type_.element_type)]
    if value.dtype == dtype:
        return value
    if not isinstance(value, Symbols):
        return value.to(dtype)
    codes = value.codes
    if dtype in FLOAT_DTYPES and world.kind is CodeKind.BITS:
        codes = codes // 4 * 4 + TYPE_MARKS[dtype]
    return Symbols(codes, dtype, world)


def _run(program: StageProgram, nodes: list[Node], known: dict[int, Any], world: RunWorld) -> dict[int, Any]:
    """The values that some ops compute.

    Args:
        known: what values of each class are; the function adds to it.

    Raises:
        UnreachedError: an op does not run on symbols.
    """
    made: dict[int, Any] = {}
    for node in nodes:
        given = {}
        for value in node.operands:
            given[value] = (
                made[value] if value in made else _typed(known[program.of[value]], program.flat.types[value], world)
            )
        try:
            with torch.no_grad():
                results = _results(program, node, given, world)
        except UnreachedError as error:
            raise UnreachedError(f"{node.op.name}: {error}") from error
        except (EvaluationError, RuntimeError, TypeError, ValueError, IndexError, AssertionError) as error:
            raise UnreachedError(_cause(node, error)) from error
        made.update(zip(node.results, results, strict=True))
        for result, value in zip(node.results, results, strict=True):
            known.setdefault(program.of[result], value)
    return made


def _results(program: StageProgram, node: Node, made: Mapping[int, Any], world: RunWorld) -> list[Any]:
    operands = [made[value] for value in node.operands]
    found = lookup_of_op(node.op.name, world, operands)
    if found is not None:
        return [found]
    if isinstance(node.op, AtenOp) and any(isinstance(operand, Symbols) for operand in operands):
        own = world.meanings.get(node.op.name.split(".")[1])
        if own is not None:  # also of an op that PyTorch decomposes before symbols see it
            values = {value: made[number] for value, number in zip(node.read, node.operands, strict=True)}
            args, kwargs = call_of(node.op.name, eager_arguments(node.op, values))
            results = own(world, *args, **kwargs)
            return list(results) if isinstance(results, tuple) else [results]
    results = program.run(node, made)
    if world.lifts_constants and is_constant(node.op) and results[0].dtype in FLOAT_DTYPES:
        return [Symbols(world.numbers(results[0]), results[0].dtype, world)]
    return results


def _cause(node: Node, error: BaseException) -> str:
    """Why an op does not run on symbols."""
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, UnreachedError):
            return f"{node.op.name}: {inner}"
        inner = inner.__cause__ or inner.__context__
    text = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
    return text if node.op.name in text else f"{node.op.name}: {text}"
