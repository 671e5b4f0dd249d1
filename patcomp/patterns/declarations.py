"""The decorators that declare rules, and the checks of a declaration.

@rule(example={"x": "2x8xf32", "w": "8xf32", "eps": 1e-5})
def rms_norm(a, c, x, w, eps: Const): ...           # a pattern and a target

@lowering("aten.addmm", examples=[example("3xf32", "2x4xf32", "4x3xf32", beta=0.5)])
def addmm(op, c): ...                               # a function of one op, for what depends on shapes or values

@formula("lower", "aten.relu", examples=[example("2x3xf32")])
def relu(c, self): ...                              # a function of the arguments of one op, without branches

@decomposition("aten.addbmm", examples=[example("3x5xf32", "2x3x4xf32", "2x4x5xf32", beta=0.5)])
def addbmm(self, batch1, batch2, *, beta=1, alpha=1): ...       # an op that is a sum of others, in PyTorch
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, overload

from patcomp.errors import RuleError, did_you_mean
from patcomp.ir.composite import Composite
from patcomp.ir.namespaces import DialectInterface, OpSpec, aten_namespace, composite_spec, coreai_namespace
from patcomp.ir.region import RegionOp
from patcomp.patterns.aspects import Unspecified, check_unspecified
from patcomp.patterns.expressions import Expression
from patcomp.patterns.formula import Conditions, Formula
from patcomp.patterns.language import PatternNode, SourceNamespace
from patcomp.patterns.op_view import Example
from patcomp.patterns.pattern import Pattern, captures_of, file_of, place_of
from patcomp.patterns.rule import Rule, RuleFunction
from patcomp.patterns.stage import Stage
from patcomp.patterns.targets import TargetBuilder, TargetNamespace, composites, target_parts


class Rewrite:
    """The result of the function of a declarative rule.

    Args:
        source: the root of the pattern.
        to: the target: a call of the target namespace, a capture, or a list of them where the root has
            several results.
        where: conditions that must hold.
    """

    def __init__(self, source: PatternNode, *, to: Any, where: Sequence[Any] = ()):
        self.source, self.to, self.where = source, to, where


@contextmanager
def _declaring(name: str, place: str) -> Iterator[None]:
    """Add the rule to the message of an error in its declaration."""
    try:
        yield
    except RuleError as error:
        raise RuleError(f"rule {name} ({place}): {error}") from None


# ---- rules with a target ----------------------------------------------------------------------------


@overload
def rule(function: Callable[..., Rewrite], /) -> Rule: ...


@overload
def rule(
    *,
    stage: str = ...,
    source: DialectInterface = ...,
    into: TargetBuilder = ...,
    example: Mapping[str, Any] | None = ...,
    examples: Iterable[Example] = ...,
    priority: int = ...,
    name: str | None = ...,
    targets: Sequence[str] = ...,
    unspecified: Unspecified | None = ...,
    approximation: float | None = ...,
) -> Callable[[Callable[..., Rewrite]], Rule]: ...


def rule(
    function: Callable[..., Rewrite] | None = None,
    /,
    *,
    stage: str = Stage.RECOVER,
    source: DialectInterface = aten_namespace,
    into: TargetBuilder = composites,
    example: Mapping[str, Any] | None = None,
    examples: Iterable[Example] = (),
    priority: int = 0,
    name: str | None = None,
    targets: Sequence[str] = (),
    unspecified: Unspecified | None = None,
    approximation: float | None = None,
    **unknown: Any,
) -> Any:
    """Declare a rule that replaces the ops that a pattern matches by a target. The decorated name becomes a `Rule`.

    Args:
        stage: `normalize`, `recover`, `lower`, `target` or `optimize`.
        source: the dialect of the first parameter.
        into: the dialect or table of composites of the second parameter.
        example: a type (`"2x8xf32"`), number or attribute value for each capture. The tests are programs that are drawn
            from the pattern.
        examples: instead, programs with the pattern's ops in them.
        priority: rules of higher priority are tried first, whatever their size.
        name: the rule's name; by default the function's.
        targets: the names of the targets to which a rule of the target stage belongs.
        unspecified: aspects that the tests do not compare (`patterns.aspects`), with the reason.
        approximation: the largest absolute difference of a result from what the rule replaces, for a rule that is an
            approximation. `patcomp rule test` measures the difference.

    Raises:
        RuleError: the declaration is wrong: no such stage runs rules, an argument is not mentioned, a capture is not
            bound, an op does not exist, or an approximation has no positive bound.
        TypeError: there is no such argument.
    """
    for other in unknown:
        near = "; into= names the dialect or table of the second parameter" if other == "target" else ""
        raise TypeError(f"rule has no argument {other!r}{near or did_you_mean(other, _ARGUMENTS)}")

    def declare(function: Callable[..., Rewrite]) -> Rule:
        spelled, place = name or function.__name__.strip("_"), place_of(function)
        with _declaring(spelled, place):
            served = Stage.of_rewrites(stage)
            _check_membership(targets, served)
            namespace = SourceNamespace(source, composites)
            captures = captures_of(function, namespace, 2)
            rewrite = function(namespace, TargetNamespace(into), *captures.values())
            if not isinstance(rewrite, Rewrite):
                raise RuleError(f"the function returned {rewrite!r}, not a Rewrite")
            pattern = Pattern.declared(source, rewrite.source, captures, rewrite.where)
            _check_target(pattern, rewrite.to)
            check_unspecified(unspecified or {})
            _check_approximation(approximation, served)
            if example is not None and set(example) != set(captures):
                raise RuleError(f"the example gives {sorted(example)}, the captures are {sorted(captures)}")
            listed = [*examples] if example is None else [*examples, Example((), example)]
            if examples and not all(item.program for item in listed):
                raise RuleError("the examples of a pattern are programs; example= gives a value for each capture")
        return Rule(
            spelled,
            served,
            pattern.root_ops,
            pattern,
            to=rewrite.to,
            examples=tuple(listed),
            unspecified=unspecified or {},
            approximation=approximation,
            doc=(function.__doc__ or "").strip(),
            source=place,
            file=file_of(function),
            priority=priority,
            size=pattern.size,
            targets=tuple(targets),
        )

    return declare if function is None else declare(function)


_ARGUMENTS = tuple(inspect.signature(rule).parameters)[1:-1]


def _check_membership(targets: Sequence[str], stage: Stage) -> None:
    """Check that only a rule of the target stage says to which targets it belongs.

    Raises:
        RuleError: another rule says so, or the targets are no list of names.
    """
    if isinstance(targets, str) or not all(isinstance(name, str) for name in targets):
        raise RuleError(f'targets takes a list of names, such as ("neural_engine",), got {targets!r}')
    if targets and stage is not Stage.TARGET:
        raise RuleError(f"only rules of the stage target belong to targets; this one is of the stage {stage}")


def _check_approximation(bound: float | None, stage: Stage) -> None:
    """Check the bound of an approximation.

    Raises:
        RuleError: it is not positive, or the rule belongs to the stage optimize, whose rules keep every bit.
    """
    if bound is None:
        return
    if isinstance(bound, bool) or not isinstance(bound, int | float) or not 0 < bound < math.inf:
        raise RuleError(f"approximation= takes the largest difference of a result, such as 5e-4, got {bound!r}")
    if stage is Stage.OPTIMIZE:
        raise RuleError("a rule of the stage optimize keeps every bit, so that it cannot be an approximation")


def _check_target(pattern: Pattern, target: Any) -> None:
    """Check that a target uses only values and attributes of the pattern.

    Raises:
        RuleError: the target uses something else.
    """
    for part in target_parts(target):
        if isinstance(part, Expression):
            pattern.check_expression(part, "the target")
        elif isinstance(part, PatternNode) and not pattern.binds(part):
            raise RuleError(f"the target uses {part}, which the source does not match; build new ops with the target")


# ---- rules with a function --------------------------------------------------------------------------


def op_rule(
    stage: str,
    *ops: str | Composite,
    examples: Iterable[Example] = (),
    name: str | None = None,
    targets: Sequence[str] = (),
    size: int = 1,
    pattern: Pattern | None = None,
    priority: int = 0,
    unspecified: Unspecified | None = None,
    approximation: float | None = None,
) -> Callable[[RuleFunction], Rule]:
    """Declare a rule whose function builds the replacement of one op. The decorated name becomes a `Rule`.

    Args:
        stage: `normalize`, `recover`, `lower`, `target` or `optimize`.
        ops: names of ops in the source dialect, `"aten.addmm"`; or one composite, whose recovered calls the function
            takes. The view then has the composite's inputs, attributes and options as arguments.
        examples: the arguments on which the generated tests run the rule.
        name: the rule's name; by default the function's.
        targets: the names of the targets to which a rule of the target stage belongs.
        size: the least number of ops that the rule matches. The examples of a rule for several ops are programs.
        pattern: the ops around the op. The function is called only where the index finds the pattern's ops; without a
            pattern, it is called at each op of the given names.
        priority: rules of higher priority are tried first, whatever their size.
        unspecified: aspects that the tests do not compare (`patterns.aspects`), with the reason.
        approximation: as for `rule`.

    Raises:
        RuleError: no such stage runs rules, no op is named, `unspecified` names no aspect or gives no reason, or an
            approximation has no positive bound.
    """

    def declare(function: RuleFunction) -> Rule:
        plain, place = function.__name__.strip("_"), place_of(function)
        spelled = name or (f"normalize {plain}" if stage == Stage.NORMALIZE else plain)
        with _declaring(spelled, place):
            served = Stage.of_rewrites(stage)
            _check_membership(targets, served)
            _check_approximation(approximation, served)
            if pattern is not None and served is Stage.LOWER:
                raise RuleError("the lower stage tries a function at each of its ops, so that it takes no pattern=")
        of_composite = ops[0] if ops and isinstance(ops[0], Composite) else None
        names = (RegionOp.name,) if of_composite is not None and len(ops) == 1 else ops
        return _of_function(
            function, spelled, served, names, examples, unspecified, pattern=pattern, priority=priority, size=size,
            composite=of_composite, targets=tuple(targets), approximation=approximation,
        )  # fmt: skip

    return declare


def _of_function(
    function: Callable[..., Any],
    name: str,
    stage: Stage,
    ops: tuple[Any, ...],
    examples: Iterable[Example],
    unspecified: Unspecified | None,
    doc: str | None = None,
    **parts: Any,
) -> Rule:
    """The rule that a function is declared as.

    Raises:
        RuleError: it names no ops to start from, or `unspecified` names no aspect or gives no reason.
    """
    place = place_of(function)
    with _declaring(name, place):
        if not ops or not all(isinstance(op, str) for op in ops):
            raise RuleError(f'the declaration names no ops to start from, such as "aten.relu"; it has {list(ops)}')
        check_unspecified(unspecified or {})
    doc = (doc or function.__doc__ or "").strip()
    return Rule(
        name, stage, ops, function=function, examples=tuple(examples), unspecified=unspecified or {}, doc=doc,
        source=place, file=file_of(function), **parts,
    )  # fmt: skip


def formula(
    stage: str,
    *ops: str | Composite,
    where: Conditions | None = None,
    ignored: Mapping[str, str] | None = None,
    parameters: Sequence[str] | None = None,
    written: Iterable[Callable[..., Any]] | None = None,
    doc: str | None = None,
    **parts: Any,
) -> Callable[[Callable[..., Any]], Rule]:
    """Declare a rule that replaces one op by a formula of its arguments. The decorated name becomes a `Rule`.

    The function takes the authoring functions of the target, and arguments by their names in the op's schema; `result`
    and `results` are the types to make. See `patterns.formula`.

    Args:
        stage: `normalize`, `recover`, `lower`, `target` or `optimize`.
        ops: as for `op_rule`.
        where: a function of captures, by the names of arguments, that gives the conditions. The reason of a condition
            (`condition.says(...)`) tells the user why an op is refused; a condition without one leaves the op to
            other rules.
        ignored: the arguments that cannot change the result, each with the reason.
        parameters: the arguments that the function takes, if its signature does not name them.
        written: the functions that the rule's author wrote, if `function` only chooses among them.
        doc: what the rule does, if the function is a lambda or serves several rules.
        parts: `examples`, `name`, `targets`, `priority`, `unspecified` and `approximation`, as for `op_rule`.

    Raises:
        RuleError: an argument is not accounted for, a name is no argument, or as for `op_rule`.
    """

    def declare(function: Callable[..., Any]) -> Rule:
        with _declaring(parts.get("name") or function.__name__, place_of(function)):
            specs = [_spec_of(op, stage) for op in ops]
            made = Formula(function, specs, where, ignored, parameters=parameters, written=written)
            made.__doc__ = doc or function.__doc__
        return op_rule(stage, *ops, **parts)(made)

    return declare


def _spec_of(op: str | Composite, stage: str) -> OpSpec:
    """The description of an op or composite that a formula replaces.

    Raises:
        RuleError: the source dialect of the stage has no such op.
    """
    if isinstance(op, Composite):
        return composite_spec(op)
    dialect = coreai_namespace if stage in (Stage.TARGET, Stage.OPTIMIZE) else aten_namespace
    found = dialect.spec(op)
    if found is None or found.name != op:
        near = did_you_mean(op.removeprefix(f"{dialect.name}."), dialect.names())
        raise RuleError(f"{dialect.name} has no op {op!r}{near or '; declare the rule of an op of yours with op_rule'}")
    return found


lowering = partial(op_rule, Stage.LOWER)
"""A rule of the lower stage with a function; see `op_rule`."""
normalization = partial(op_rule, Stage.NORMALIZE)
"""A rule of the normalize stage with a function; see `op_rule`."""
targeting = partial(op_rule, Stage.TARGET)
"""A rule of the target stage with a function; see `op_rule`."""
optimization = partial(op_rule, Stage.OPTIMIZE)
"""A rule of the optimize stage with a function; see `op_rule`."""


# ---- decompositions ---------------------------------------------------------------------------------


def decomposition(
    *ops: str,
    examples: Iterable[Example] = (),
    name: str | None = None,
    doc: str | None = None,
    of_complex: bool = False,
    unspecified: Unspecified | None = None,
) -> Callable[[Callable[..., Any]], Rule]:
    """Declare how ops are decomposed on import. The decorated name becomes a `Rule`.

    The function has the op's own signature. It is traced with the shapes and types of each node, so it may branch on
    shapes, dtypes and options, but not on values. It may raise `Rejected` with a reason. An op that the target dialect
    can express directly needs a lowering instead.

    Args:
        ops: names such as `"aten.addbmm"`, all with the function's signature.
        examples: the arguments on which the generated tests run it.
        name: the rule's name; by default `decompose` and the function's.
        doc: the sentence of a function that has none.
        of_complex: whether the decomposition is only for calls with complex tensors or numbers. Such decompositions
            come before all lowerings, because the target has no complex arithmetic.
        unspecified: aspects that the tests do not compare (`patterns.aspects`), with the reason.

    Raises:
        RuleError: no op is named, or `unspecified` names no aspect or gives no reason.
    """

    def declare(function: Callable[..., Any]) -> Rule:
        spelled = name or f"decompose {'complex ' * of_complex}{function.__name__.strip('_')}"
        return _of_function(function, spelled, Stage.DECOMPOSE, ops, examples, unspecified, doc, of_complex=of_complex)

    return declare
