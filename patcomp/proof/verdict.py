"""Whether a rule's programs are equal before and after it, on symbols.

    verdict = prove(rule, default_rules())
    print(verdict)

Each program of `proof.enumeration` (for a rule of single ops, of `proof.variations`) is run before and after the rule
on symbols (`proof.symbols`). PyTorch's ops mean what PyTorch's own decompositions say of them, and Core AI's ops what
the reference evaluator says, so the two sides share no code of the rule's. If the symbols differ, numbers decide: a
rule is refuted only if two programs give different numbers. A verdict is about the programs that were compared, and
says how many: a rule may still be wrong for others, such as programs with open sizes, which are not listed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from patcomp import AIProgram
from patcomp.errors import EvaluationError, RuleError
from patcomp.evaluate import evaluate, prepare_input
from patcomp.evaluate.eager import call_of, eager_implementation, overload_of, results_of, run_eagerly
from patcomp.evaluate.element_types import TORCH_DTYPES, to_tensor
from patcomp.evaluate.machine import Machine
from patcomp.ir.module import IRModule
from patcomp.ir.types import TensorType, element_name
from patcomp.patterns import Example, Rejected, Rule, RuleSet, Stage
from patcomp.patterns.aspects import is_left_open
from patcomp.proof import reductions, scalars
from patcomp.proof.enumeration import enumerated
from patcomp.proof.equivalence import attempt
from patcomp.proof.examples import convert_example, fired_in
from patcomp.proof.lemmas import LEMMAS
from patcomp.proof.op_equivalence import attempt_op, called, check_decomposition, compared_results, op_drawings
from patcomp.proof.symbols import FLOATS, Symbols, UnreachedError, same_codes
from patcomp.proof.trials import Trial, WrongRuleError, agrees
from patcomp.proof.worlds import Kind, World

PROGRAMS = 24
"""How many variants of a rule are compared at most, and how many programs of each aspect."""

WORLDS = 2
"""In how many worlds each program is run."""

_ = reductions  # imported for the meanings that it registers
_SPECIAL = (0.0, -0.0, 1.0, -1.0, float("inf"), float("-inf"), float("nan"))


class Strength(Enum):
    """How strongly the programs of a rule are equal."""

    BITS = "equal to the bit"
    LEMMA = "equal with an identity of numbers"
    REALS = "equal over the reals"
    REFUTED = "wrong"
    UNREACHED = "not decided"

    @property
    def is_proof(self) -> bool:
        return self in (Strength.BITS, Strength.LEMMA, Strength.REALS)


@dataclass
class Verdict:
    """What symbols say of a rule."""

    rule: str
    strength: Strength
    programs: int = 0
    """The programs that are equal before and after the rule."""
    refused: int = 0
    """The programs that the rule, or PyTorch, refused."""
    reason: str = ""
    """Why a rule is not reached, or which lemmas a proof needs."""
    missed: Counter[str] = field(default_factory=Counter)
    """The programs that the proof did not reach, by reason."""
    counterexample: WrongRuleError | None = None

    def __str__(self) -> str:
        programs = f"{self.programs} program{'' if self.programs == 1 else 's'}"
        after = "after" if self.strength is Strength.REFUTED else "on"
        parts = [f"{self.rule}: {self.strength.value} {after} {programs}"]
        if self.reason:
            parts.append(self.reason)
        parts += [f"{count} not reached: {why}" for why, count in self.missed.most_common()]
        return "; ".join(parts)


@dataclass
class _Outcome:
    """What the symbols of one program say: the kind of equality, None if they differ."""

    kind: Kind | None
    lemmas: frozenset[str] = frozenset()


def prove(rule: Rule, catalog: RuleSet, *, programs: int = PROGRAMS) -> Verdict:
    """Prove a rule on all its small programs, or refute it.

    Args:
        rule: any rule; it need not be part of the catalog.
        catalog: the rules that compile the programs.
        programs: the largest number of variants, and of programs of each aspect.
    """
    verdict = Verdict(rule.name, Strength.UNREACHED)
    kinds, lemmas = Counter[Kind](), set[str]()
    try:
        for trial in _trials(rule, catalog, programs):
            if trial is None:
                verdict.refused += 1
                continue
            try:
                outcome = trial.outcome()
            except UnreachedError as error:
                verdict.missed[str(error)] += 1
                continue
            if outcome.kind is None:
                if (found := trial.refutation()) is not None:
                    return _refuted(verdict, found)
                verdict.missed["symbols differ where numbers agree"] += 1
                continue
            if outcome.kind is Kind.REALS and (found := trial.signs()) is not None:
                return _refuted(verdict, found)
            kinds[outcome.kind] += 1
            lemmas |= outcome.lemmas
            verdict.programs += 1
    except WrongRuleError as error:
        return _refuted(verdict, error)
    except RuleError as error:
        verdict.reason = str(error)
        return verdict
    if not kinds:
        verdict.reason = "" if verdict.missed else "no program was found that the rule matches"
    elif verdict.missed["symbols differ where numbers agree"] > verdict.programs:
        verdict.reason = "the symbols of most programs differ"
    else:
        verdict.strength = Strength.REALS if kinds[Kind.REALS] else Strength.LEMMA if lemmas else Strength.BITS
        verdict.reason = ", ".join(sorted(lemmas)) if verdict.strength is Strength.LEMMA else ""
    return verdict


def _refuted(verdict: Verdict, error: WrongRuleError) -> Verdict:
    verdict.strength, verdict.counterexample, verdict.reason = Strength.REFUTED, error, error.headline
    return verdict


def _trials(rule: Rule, catalog: RuleSet, programs: int) -> Iterator[_Proof | None]:
    if rule.is_declarative:
        for drawing in enumerated(rule, programs):
            try:
                trial = attempt(drawing, catalog)
            except (OverflowError, IndexError, ValueError):  # a number that the source's ops do not take
                trial = None
            yield None if trial is None else _Compiled(trial, catalog)
        return
    for example in rule.examples:
        if example.program is not None:
            yield _Converted.of(rule, example)
    calls = (
        drawing
        for drawing in op_drawings(rule)
        if drawing.compared and not drawing.special and not is_left_open(rule.unspecified, drawing.aspect)
    )
    for call in islice(calls, 4 * programs):
        if rule.stage is Stage.IMPORT:
            yield _Decomposed.of(call)
        else:
            trial = attempt_op(call, catalog)
            yield None if trial is None else _Compiled(trial, catalog)


class _Proof:
    """A program before and after a rule, in worlds of symbols."""

    def results(self, world: World) -> tuple[list[Any], list[Any]]:
        """The results before and after."""
        raise NotImplementedError

    def refutation(self) -> WrongRuleError | None:
        """The error if numbers differ, too."""
        raise NotImplementedError

    def signs(self) -> WrongRuleError | None:
        """The error if a special value (a zero of one sign, an infinity, NaN) shows a difference."""
        return None

    def outcome(self) -> _Outcome:
        reasons: list[UnreachedError] = []
        for kind, allowed in ((Kind.BITS, ()), (Kind.BITS, (*LEMMAS,)), (Kind.REALS, ())):
            try:
                if (used := self._lemmas_if_equal(kind, allowed)) is not None:
                    return _Outcome(kind, used)
            except UnreachedError as error:
                reasons.append(error)
        if reasons:
            raise reasons[-1]
        return _Outcome(None)

    def _lemmas_if_equal(self, kind: Kind, allowed: Sequence[str]) -> frozenset[str] | None:
        """The lemmas that are needed for equal symbols, none of them without need; None if the symbols differ."""
        used: set[str] = set()
        if not all(self._same(World(kind, number, allowed=allowed, lemmas=used)) for number in range(WORLDS)):
            return None
        for lemma in sorted(used):
            rest = self._lemmas_if_equal(kind, [each for each in allowed if each in used and each != lemma])
            if rest is not None:
                return rest
        return frozenset(used)

    def _same(self, world: World) -> bool:
        try:
            with torch.no_grad():
                before, after = self.results(world)
        except UnreachedError:
            raise
        except Exception as error:  # a kernel that does not take symbols
            raise UnreachedError(_cause(error)) from error
        return all(same_codes(a, b, world) for a, b in zip(before, after, strict=True))


def _cause(error: BaseException) -> str:
    """The reason why a program does not run on symbols."""
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, UnreachedError):
            return str(inner)
        inner = inner.__cause__
    return f"{type(error).__name__}: {str(error).splitlines()[0][:120] if str(error) else ''}"


class _Compiled(_Proof):
    def __init__(self, trial: Trial, catalog: RuleSet):
        self.trial, self.catalog = trial, catalog

    def results(self, world: World) -> tuple[list[Any], list[Any]]:
        inputs = {name: symbolic(value, name, world) for name, value in self.trial.inputs.items()}
        before = _run(self.trial.source, list(inputs.values()), is_source=True)
        after = _run(self.trial.rewritten, _compiled_inputs(self.trial.rewritten, inputs), is_source=False)
        return before, after

    def refutation(self) -> WrongRuleError | None:
        try:
            self.trial.check(self.catalog)
        except WrongRuleError as error:
            return error
        return None

    def signs(self) -> WrongRuleError | None:
        """For a rule that promises the same numbers: the error if zeros have other signs, or NaN is lost."""
        if self.trial.drawing.rule.stage != Stage.OPTIMIZE:
            return None
        inputs = {name: _special(to_tensor(value)) for name, value in self.trial.inputs.items()}
        try:
            before = {name: to_tensor(v) for name, v in evaluate(self.trial.source, dict(inputs)).items()}
            after = {name: to_tensor(v) for name, v in evaluate(self.trial.rewritten, dict(inputs)).items()}
        except EvaluationError:
            return None
        for name, expected in before.items():
            actual = after[name]
            if not expected.is_floating_point():
                continue
            zeros = (expected == 0) & (actual == 0) & (expected.signbit() != actual.signbit())
            if bool((zeros | (expected.isnan() != actual.isnan())).any()):
                error = WrongRuleError(
                    self.trial.drawing,
                    "computes something else than what it replaces: the sign of a zero, or NaN",
                    self.trial.source_ir,
                    self.trial.rewritten_ir,
                )
                error.tensors = {f"input {n}": v for n, v in inputs.items()}
                error.tensors |= {f"expected {name}": expected, f"actual {name}": actual}
                return error
        return None


class _Converted(_Proof):
    """An example that is a program: PyTorch on symbols, and the converted program."""

    def __init__(self, rule: Rule, program: AIProgram, module: torch.nn.Module, inputs: tuple[Any, ...]):
        self.rule, self.program, self.module, self.inputs = rule, program, module, inputs

    @classmethod
    def of(cls, rule: Rule, example: Example) -> _Converted | None:
        program, module, inputs = convert_example(rule, example)
        return cls(rule, program, module, inputs) if rule.name in fired_in(program) else None

    def results(self, world: World) -> tuple[list[Any], list[Any]]:
        names = self.program.input_names()
        inputs = {name: symbolic(value, name, world) for name, value in zip(names, self.inputs, strict=True)}
        before = results_of(self.module(*inputs.values()))
        after = _run(self.program.module, _compiled_inputs(self.program.module, inputs), is_source=False)
        return before, after

    def refutation(self) -> WrongRuleError | None:
        try:
            expected = results_of(self.module(*self.inputs))
            actual = list(self.program.run(dict(zip(self.program.input_names(), self.inputs, strict=True))).values())
        except EvaluationError:
            return None
        if all(agrees(a, to_tensor(b).to(a.dtype)) for a, b in zip(expected, actual, strict=True)):
            return None
        error = WrongRuleError(
            _Example(self.rule, {}), "computes something else than its example", self.program.module.text()
        )
        error.tensors = {f"input {n}": v for n, v in zip(self.program.input_names(), self.inputs, strict=True)}
        error.tensors |= {f"expected y{n}": value for n, value in enumerate(expected)}
        error.tensors |= {f"actual y{n}": value for n, value in enumerate(actual)}
        return error


@dataclass(frozen=True)
class _Example:
    """What an error says of the program of an example."""

    rule: Rule
    example: Mapping[str, Any]


class _Decomposed(_Proof):
    """An op of PyTorch, and a decomposition of it, both by PyTorch on symbols."""

    def __init__(self, drawing: Any, call: Any):
        self.drawing, self.call = drawing, call

    @classmethod
    def of(cls, drawing: Any) -> _Decomposed | None:
        call = called(drawing)
        if call is None:
            return None
        args, kwargs = call_of(drawing.op, call.arguments)
        try:
            made = drawing.rule.function(*args, **kwargs)
        except Rejected:
            return None
        return None if made is NotImplemented else cls(drawing, call)

    def results(self, world: World) -> tuple[list[Any], list[Any]]:
        names = {id(value): name for name, value in self.call.inputs.items()}

        def lifted(value: Any) -> Any:
            if isinstance(value, list):
                return [lifted(item) for item in value]
            return symbolic(value, names[id(value)], world) if id(value) in names else value

        given = {name: lifted(value) for name, value in self.call.arguments.items()}
        if not any(
            isinstance(v, Symbols) for value in given.values() for v in (value if isinstance(value, list) else [value])
        ):
            raise UnreachedError("there is no tensor of floats")
        args, kwargs = call_of(self.drawing.op, given)
        before = results_of(overload_of(self.drawing.op)(*args, **kwargs))
        after = results_of(self.drawing.rule.function(*args, **kwargs))
        count = compared_results(self.drawing, self.call)
        return before[:count], after[:count]

    def refutation(self) -> WrongRuleError | None:
        try:
            check_decomposition(self.drawing)
        except WrongRuleError as error:
            return error
        return None


def symbolic(value: Any, name: str, world: World) -> Tensor:
    """Symbols in the place of a tensor of floats; integers and booleans stay numbers."""
    tensor = to_tensor(value)
    if tensor.dtype not in FLOATS:
        return tensor
    codes = world.symbols(name, tensor.shape)
    if world.kind is Kind.BITS:
        codes = codes // 4 * 4 + scalars.MARKS[tensor.dtype]
    return Symbols(codes, tensor.dtype, world)


def _compiled_inputs(module: IRModule, inputs: Mapping[str, Any]) -> list[Any]:
    """Inputs in the types that a compiled program has for them."""
    given = []
    for (name, value), argument in zip(inputs.items(), module.graph("main").regions[0].block.args, strict=True):
        assert isinstance(argument.type, TensorType)
        if isinstance(value, Symbols):
            given.append(value.to(TORCH_DTYPES[element_name(argument.type.element_type)]))
        else:
            given.append(prepare_input(value, argument.type, name))
    return given


def _special(value: Tensor) -> Tensor:
    """A tensor whose floats are special ones."""
    if not value.is_floating_point():
        return value
    numbers = torch.tensor(_SPECIAL).to(value.dtype)
    count = value.numel()
    return numbers[torch.arange(count) * 3 % len(_SPECIAL)].reshape(value.shape)


def _run(module: IRModule, inputs: list[Any], is_source: bool) -> list[Any]:
    graph = module.graph("main")
    block = graph.regions[0].block
    if is_source and any(op.name.startswith("aten.") for op in block.ops):
        return list(run_eagerly(block, inputs, module.blobs))
    machine = Machine(module, others=eager_implementation)
    return [value for value in machine.run_graph(graph, inputs) if isinstance(value, Tensor)]
