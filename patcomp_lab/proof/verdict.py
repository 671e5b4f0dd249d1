"""Whether a rule's programs are equal before and after it.

    verdict = prove(rule, default_rules())
    print(verdict)

Each program (`proof.programs`) is run before and after the rule on numbers (`proof.numbers`), which may refute the
rule, and on symbols (`proof.outcome`), which prove that the two are equal for all floats. PyTorch's ops mean what
PyTorch's own decompositions say of them, and Core AI's ops what the reference evaluator says, so the two sides share no
code of the rule's. A rule is refuted only if two programs give different numbers. A verdict is about the programs that
were compared, and counts those on symbols, those on numbers only, and those that were not compared.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from patcomp.errors import RuleError
from patcomp.patterns import Rule, RuleSet, Stage
from patcomp.patterns.example_types import ExampleType
from patcomp_lab.proof.approximations import Measured, measure
from patcomp_lab.proof.counterexample import WrongRuleError
from patcomp_lab.proof.deciding_numbers import DistanceBound, decision
from patcomp_lab.proof.drawing import smaller
from patcomp_lab.proof.numbers import differences
from patcomp_lab.proof.outcome import WITHOUT_FLOATS, Outcome, outcome
from patcomp_lab.proof.pairs import RulePair
from patcomp_lab.proof.programs import Programs
from patcomp_lab.proof.rounding import units_apart
from patcomp_lab.proof.same_code import SAME_CODE
from patcomp_lab.proof.symbols import UnreachedError
from patcomp_lab.proof.worlds import CodeKind

PROGRAMS = 12
"""How many programs of each kind are compared at most."""

SEARCHED = 2
"""On how many programs of a rule that rounds in another way a search looks for the worst rounding."""

MOVED_CASTS = "casts to 16 bits round elsewhere, which numbers at their limits do not show"

DIFFERENT_SYMBOLS = "the symbols differ where numbers agree"


class Strength(Enum):
    """How strongly the programs of a rule are equal."""

    BITS = "equal to the bit"
    LEMMA = "equal with an identity of numbers"
    REALS = "equal over the reals"
    EVERY = "within a bound on every number"
    WHOLE = "equal on whole numbers"
    APPROXIMATION = "an approximation within its bound"
    NUMBERS = "not proved, equal on numbers"
    REFUTED = "wrong"
    UNREACHED = "not decided"

    @property
    def is_proof(self) -> bool:
        return self in PROOFS


PROOFS = (Strength.BITS, Strength.LEMMA, Strength.REALS, Strength.EVERY, Strength.WHOLE, Strength.APPROXIMATION)
"""The strengths of proofs, the strongest one first. A rule has the strength of its weakest program with floats. An
approximation is no equality: the bound that the rule declares is measured."""

ROUNDING = (Strength.REALS, Strength.WHOLE)
"""The strengths that leave open how results are rounded."""


@dataclass
class Verdict:
    """What was found out about a rule."""

    rule: str
    strength: Strength
    decided: Counter[Strength] = field(default_factory=Counter)
    """The programs that are equal before and after the rule, by the strength of their proof."""
    refused: int = 0
    """The programs that the rule, or PyTorch, refused."""
    reason: str = ""
    """Why a rule is wrong or not reached, or which lemmas a proof needs, or the bound of numbers or of rounding."""
    on_numbers: Counter[str] = field(default_factory=Counter)
    """The programs that were compared on numbers only, by the reason why symbols do not reach them."""
    missed: Counter[str] = field(default_factory=Counter)
    """The programs that were not compared, by reason."""
    counterexample: WrongRuleError | None = None
    ulps: float | None = None
    """How far results are apart where a search looked, in units in the last place (`proof.rounding`); None for a rule
    that does not round in another way, for lowerings and decompositions, and where nothing is computed in 32 bits."""

    @property
    def programs(self) -> int:
        """How many programs are proved."""
        return self.decided.total()

    @property
    def compared(self) -> int:
        """How many programs are equal, on symbols or on numbers."""
        return self.programs + self.on_numbers.total()

    def __str__(self) -> str:
        after = "after" if self.strength is Strength.REFUTED else "on"
        count = self.on_numbers.total() if self.strength is Strength.NUMBERS else self.programs
        parts = [f"{self.rule}: {self.strength.value} {after} {_counted(count)}"]
        if len(self.decided) > 1 and self.strength.is_proof:
            parts.append(", ".join(f"{self.decided[each]} {each.value}" for each in PROOFS if self.decided[each]))
        if self.reason and self.reason not in self.on_numbers:
            parts.append(self.reason)
        parts += [f"{_counted(count)} with numbers only: {why}" for why, count in self.on_numbers.most_common()]
        parts += [f"{_counted(count)} not compared: {why}" for why, count in self.missed.most_common()]
        return "; ".join(parts)


def _counted(count: int) -> str:
    return f"{count} program{'' if count == 1 else 's'}"


def prove_rule(rule: Rule, catalog: RuleSet, *, programs: int = PROGRAMS) -> Verdict:
    """Prove a rule on the small programs near its example, or refute it.

    Args:
        rule: any rule; it need not be part of the catalog.
        catalog: the rules that compile the programs.
        programs: the largest number of programs of each kind.
    """
    verdict = Verdict(rule.name, Strength.UNREACHED)
    found, listed = _Found(), Programs(rule, catalog, programs)
    try:
        for pair in listed:
            if pair is None:
                verdict.refused += 1
                continue
            for found_wrong in differences(pair):
                if not found_wrong.may_be_rounding or not _are_same_on_symbols(pair):
                    return _refuted(verdict, _shrunk(found_wrong.error, listed))
            if rule.approximation is None:
                _decide(pair, listed, verdict, found)
            elif (farther := measure(pair, rule.approximation, found.measured)) is not None:
                return _refuted(verdict, farther)
            else:
                verdict.decided[Strength.APPROXIMATION] += 1
        verdict.missed += listed.missed
    except WrongRuleError as error:
        return _refuted(verdict, _shrunk(error, listed))
    except RuleError as error:
        verdict.reason = str(error)
        return verdict
    return _decided(verdict, found, rule.approximation)


@dataclass
class _Found:
    """What was found out so far."""

    lemmas: set[str] = field(default_factory=set)
    bounds: dict[str, DistanceBound | None] = field(default_factory=dict)
    of_floats: Counter[Strength] = field(default_factory=Counter)
    """The programs that have floats. They decide about the rule, if there are any."""
    moves_casts: bool = False
    """Whether programs are equal over the reals only if casts to 16 bits do not round."""
    measured: Measured = field(default_factory=Measured)
    """How far the results of an approximation are from those that it replaces."""
    ulps: list[float] = field(default_factory=list)
    """How far the first programs in 32 bits are apart that may be rounded in another way."""


def _are_same_on_symbols(pair: RulePair) -> bool:
    try:
        return outcome(pair).kind is not None
    except UnreachedError:
        return False


def _decide(pair: RulePair, listed: Programs, verdict: Verdict, found: _Found) -> None:
    """Compare a pair on symbols, and on deciding numbers if symbols do not decide."""
    if pair.shares_kernel:
        verdict.on_numbers[SAME_CODE] += 1
        return
    try:
        said = outcome(pair)
        why = DIFFERENT_SYMBOLS
    except UnreachedError as error:
        said, why = Outcome(None), str(error)
    if said.kind is not None:
        found.lemmas |= said.lemmas
        found.moves_casts |= said.casts_are_exact
        of_bits = Strength.LEMMA if said.lemmas else Strength.BITS
        strength = Strength.REALS if said.kind is CodeKind.REALS else of_bits
    elif pair.rule.stage is not Stage.OPTIMIZE and (decided := decision(pair, listed.pair_of, found.bounds)):
        strength = Strength.EVERY if isinstance(decided, DistanceBound) else Strength.WHOLE
    else:
        verdict.on_numbers[why] += 1
        return
    verdict.decided[strength] += 1
    if _has_floats(pair):
        found.of_floats[strength] += 1
        if (
            strength in ROUNDING
            and len(found.ulps) < SEARCHED
            and pair.rule.stage not in (Stage.LOWER, Stage.DECOMPOSE)
        ):
            units = units_apart(pair)
            found.ulps += [] if units is None else [units]


def _has_floats(pair: RulePair) -> bool:
    types = [ExampleType.parsed(each.type) for each in pair.runs[0].values()]
    return any(type_ is not None and type_.element[0] in "fbc" for type_ in types)


def _decided(verdict: Verdict, found: _Found, bound: float | None) -> Verdict:
    only_numbers = sum(count for why, count in verdict.on_numbers.items() if why != WITHOUT_FLOATS)
    if verdict.decided and only_numbers <= verdict.programs:
        verdict.strength = max(found.of_floats or verdict.decided, key=PROOFS.index)
        bounds = [bound for bound in found.bounds.values() if bound is not None and bound.is_proof]
        remarks = sorted(found.lemmas) if verdict.strength is Strength.LEMMA else []
        if verdict.strength is Strength.APPROXIMATION:
            measured = found.measured
            remarks.append(f"{bound:g} is declared, {measured.apart:.2g} measured on {measured.numbers:,} numbers")
        if found.of_floats[Strength.EVERY]:
            remarks.append(str(max(bounds, key=lambda bound: (bound.exceptions, bound.units))))
        if found.moves_casts:
            remarks.append(MOVED_CASTS)
        if verdict.strength in ROUNDING:
            verdict.ulps = max(found.ulps, default=None)
        if verdict.ulps is not None:
            remarks.append(f"at most {verdict.ulps:.1f} units in the last place apart where a search looked")
        verdict.reason = ", ".join(remarks)
    elif verdict.on_numbers:
        verdict.strength = Strength.NUMBERS
        verdict.reason = verdict.on_numbers.most_common(1)[0][0]
    else:
        verdict.reason = "" if verdict.missed else "no program was found that the rule matches"
    return verdict


def _refuted(verdict: Verdict, error: WrongRuleError) -> Verdict:
    verdict.strength, verdict.counterexample, verdict.reason = Strength.REFUTED, error, error.headline
    return verdict


def _shrunk(error: WrongRuleError, listed: Programs) -> WrongRuleError:
    """The same mistake on the smallest program that shows it."""
    drawing: Any = error.drawing
    for example in smaller(drawing.example) if not getattr(drawing, "runs", ()) else ():
        found: WrongRuleError | None = None
        try:
            if (pair := listed.pair_of(replace(drawing, example=example))) is not None:
                found = next((each.error for each in differences(pair) if not each.may_be_rounding), None)
        except WrongRuleError as invalid:
            found = invalid
        if found is not None and type(found) is type(error):
            return _shrunk(found, listed)
    return error
