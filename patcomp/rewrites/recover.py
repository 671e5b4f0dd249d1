"""Recover: find composites in the graph of an unmodified model, and in ops that export preserves."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from patcomp.defects import mend
from patcomp.ir import coreai
from patcomp.ir.attributes import CompositeDeclarationAttr
from patcomp.ir.builder import Builder
from patcomp.ir.cleanup import remove_dead_ops
from patcomp.ir.composite import Composite
from patcomp.ir.module import IRModule
from patcomp.ir.region import RegionOp
from patcomp.ir.shared_bodies import SharedBodies
from patcomp.ir.value import Value
from patcomp.ir.xdsl import InsertPoint, Operation, OpResult, Rewriter, SSAValue, ops_inside, replace_uses, set_name
from patcomp.patterns import Assumption, RuleSet, composites, run
from patcomp.patterns.statistics import Statistics
from patcomp.rewrites.options import Options


def recover(module: IRModule, rules: RuleSet, options: Options) -> Statistics:
    """Apply the recover rules to every graph of a normalized module; each match becomes a `patcomp.region` with a
    declaration."""
    statistics, context = Statistics(), options.context(module, coreai)
    bodies = SharedBodies(check=options.strict)

    def apply_rules(graph: Operation) -> None:
        statistics.add(run(graph, rules.index, context))

    mend(module, statistics, "recover")
    for graph in module.graphs:
        with bodies.used():
            apply_rules(graph)
        _inline_regions(graph, module, bodies, lambda region: not _stays(region, options.composites))
        remove_dead_ops(graph)
    for graph in bodies.place(module):
        apply_rules(graph)
        _inline_regions(graph, module, bodies, lambda region: True)
        remove_dead_ops(graph)
    return statistics


def chosen_composites(recover: str | Iterable[str], rules: RuleSet) -> frozenset[str] | None:
    """The composites that `recover=` names; None for all.

    Raises:
        ValueError: one of them does not exist.
    """
    if recover == "all":
        return None
    if isinstance(recover, str) and recover != "none":
        raise ValueError(f"recover must be 'all', 'none' or a list of composites, got {recover!r}")
    chosen = frozenset() if recover == "none" else frozenset(recover)
    known = _known_composites(rules)
    if unknown := sorted(chosen.difference(known)):
        raise ValueError(f"no composite is called {', '.join(unknown)}; there are {', '.join(known)}")
    return chosen


def chosen_assumptions(assume: Iterable[str], rules: RuleSet) -> frozenset[str]:
    """The assumptions that `assume=` names.

    Raises:
        TypeError: the argument is a string instead of a list.
        ValueError: no rule knows one of the assumptions.
    """
    if isinstance(assume, str):
        raise TypeError(f"assume must be a list of assumptions, got the string {assume!r}")
    chosen = frozenset(assume)
    if not chosen:
        return chosen
    known = _known_assumptions(rules)
    if unknown := sorted(chosen.difference(known)):
        raise ValueError(
            f"there is no assumption {', '.join(map(repr, unknown))}; there are {', '.join(map(repr, known))}"
        )
    return chosen


def _known_assumptions(rules: RuleSet) -> tuple[str, ...]:
    """The names of all assumptions that conditions of the recover rules read, sorted."""
    conditions = (part for rule in rules.stage("recover").declarative() for part in rule.graph.conditions)
    leaves = (leaf for condition in conditions for leaf in condition.leaves())
    return tuple(sorted({leaf.name for leaf in leaves if isinstance(leaf, Assumption)}))


def _known_composites(rules: RuleSet) -> tuple[str, ...]:
    """The names of all composites that the imported catalogs define, and that rules make, sorted."""
    targets = (call.function for rule in rules.declarative() for call in rule.target_calls())
    return tuple(sorted({item.name for item in (*composites, *targets) if isinstance(item, Composite)}))


def _inline_regions(
    graph: Operation, module: IRModule, bodies: SharedBodies, condition: Callable[[RegionOp], bool]
) -> None:
    """Inline the calls of composites in a graph for which a condition holds."""
    for op in reversed(ops_inside(graph)):
        if type(op) is RegionOp and op.recover is None and condition(op):
            _inline(op, module, bodies)


def _stays(region: RegionOp, wanted: Collection[str] | None) -> bool:
    """Keep this region if it was requested, every enclosing externalized module allows recovery, and it is not nested
    in its own composite. Inside another recovered composite, always inline it."""
    name = _composite_name(region)
    if wanted is not None and name not in wanted:
        return False
    around = region.parent_op()
    while around is not None:
        if isinstance(around, RegionOp):
            if around.recover is None:
                return not _stays(around, wanted)
            if not around.recover.value.data or _composite_name(around) == name:
                return False
        around = around.parent_op()
    return True


def _composite_name(region: RegionOp) -> str | None:
    declaration = region.declaration
    return declaration.composite_name.data if isinstance(declaration, CompositeDeclarationAttr) else None


def _inline(region: RegionOp, module: IRModule, bodies: SharedBodies) -> None:
    """Inline a region."""
    body, parent = region.body.block if region.graph is None else bodies.copy(region), region.parent
    terminator = body.last_op
    assert parent is not None
    assert terminator is not None
    Rewriter.inline_block(body, InsertPoint.before(region), region.operands)
    with Builder(parent, before=region, blobs=module.blobs, location=region.location):
        for result, value in zip(region.results, terminator.operands, strict=True):
            made = _of_type(value, result)
            if isinstance(made, OpResult) and made.op.parent is parent and made not in region.operands:
                set_name(made, result.name_hint)
            replace_uses(result, made)
    parent.erase_op(terminator)
    parent.erase_op(region)


def _of_type(value: SSAValue, result: SSAValue) -> SSAValue:
    """Cast a value to the region's result type, which declares 64-bit elements until the lower stage."""
    if value.type == result.type:
        return value
    return coreai.cast(Value(value), Value(result).element_type, result_type=result.type).ssa
