"""The stage `target`: the rules of a target until none applies, then its steps in their order.

A step goes through a whole program, because what it does at one op depends on many others. It returns how many ops it
rewrote.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace

from patcomp.errors import Problem
from patcomp.ir import coreai
from patcomp.ir.cleanup import called_graphs, merge_equal_ops, remove_dead_ops, remove_uncalled_graphs
from patcomp.ir.half import LARGEST
from patcomp.ir.kept import kept_ops
from patcomp.ir.locations import problem_at
from patcomp.ir.module import IRModule
from patcomp.ir.types import TensorType, element_name, shape_of
from patcomp.ir.xdsl import Operation, ops_inside
from patcomp.patterns import RuleSet, run
from patcomp.patterns.statistics import Statistics
from patcomp.rewrites.folding import fold_constants
from patcomp.rewrites.options import Options
from patcomp.rewrites.specialize import fix_sizes
from patcomp.rewrites.target.half import obstacle, use_half_precision
from patcomp.rewrites.target.kept import NAME as KEEP
from patcomp.rewrites.target.kept import keep_float32
from patcomp.rewrites.target.prepared_weights import store_prepared_weights
from patcomp.rewrites.target.transposes import carry_transposes
from patcomp.targets import Target, check_names

_HALF = "half precision"

TARGET_STEPS: Mapping[str, Callable[[IRModule, Collection[str]], int]] = {
    "carry transposes": lambda module, keep: carry_transposes(module),
    "store prepared weights": lambda module, keep: store_prepared_weights(module),
    "store prepared weights once": lambda module, keep: store_prepared_weights(module, once=True),
    _HALF: use_half_precision,
}
"""The steps by name. Each takes the program, and the modules and FX nodes that stay in float32."""


def usable_target(target: Target | None, rules: RuleSet, without: Collection[str]) -> Target | None:
    """A target without the rules that a converter leaves out.

    Raises:
        ValueError: the target names a rule or a step that does not exist.
    """
    if target is None:
        return None
    rules_left, omitted = (tuple(n for n in names if n not in without) for names in (target.rules, target.omitted))
    made = replace(target, rules=rules_left, omitted=omitted)
    check_names(made, rules.stage("target"), TARGET_STEPS)
    return made


def retarget(module: IRModule, rules: RuleSet, options: Options) -> Statistics:
    """Fix sizes of a lowered program, in which composites are regions, rewrite it for the target, and let the ops that
    the user names compute in float32, in place.

    Raises:
        ValueError: the target names a rule or a step that does not exist.
        UnknownNameError: no op comes from a module or FX node that is to stay in float32.
        VerifyError: an op does not support the fixed sizes.
    """
    if options.fixed:
        fix_sizes(module, options.fixed)
    statistics, called = Statistics(), called_graphs(module)
    if options.target is not None:
        _rewrite_for(options.target, module, rules, options, statistics)
    if options.keep:
        options.step(statistics, KEEP, keep_float32, module, options.keep)
    if options.target is not None or options.keep:
        remove_uncalled_graphs(module, called)
    return statistics


def _rewrite_for(target: Target, module: IRModule, rules: RuleSet, options: Options, statistics: Statistics) -> None:
    """Apply the rules and the steps of a target."""
    check_names(target, rules, TARGET_STEPS)
    chosen = rules.filter(target.takes)
    for graph in module.entry_graphs:
        fold_constants(graph, module)  # in the types of the model, before they are narrower
        merge_equal_ops(graph)
        statistics.add(run(graph, chosen.index, options.context(module, coreai)))
        fold_constants(graph, module)
        remove_dead_ops(graph)
    for name in target.steps:
        was_bfloat16 = name == _HALF and _has_bfloat16(module)
        count = options.step(statistics, name, TARGET_STEPS[name], module, options.keep)
        if name == _HALF:
            statistics.warnings += _of_half(module, target, options, was_bfloat16, bool(count))
    for graph in module.graphs:
        remove_dead_ops(graph)


def left_wide(module: IRModule, options: Options) -> tuple[Operation, str] | None:
    """The op that keeps a program from becoming float16 for its target, and why; None if nothing does.

    Args:
        module: the program before its composites are outlined.
        options: those of the conversion.
    """
    target = options.target
    return None if target is None or _HALF not in target.steps else obstacle(module, kept_ops(module, options.keep))


def _has_bfloat16(module: IRModule) -> bool:
    types = (value.type for graph in module.graphs for op in ops_inside(graph) for value in op.results)
    return any(isinstance(type_, TensorType) and element_name(type_.element_type) == "bf16" for type_ in types)


def _of_half(
    module: IRModule, target: Target, options: Options, was_bfloat16: bool, is_half: bool
) -> Iterator[Problem]:
    """A warning if a program did not become float16, or if it lost the range of bfloat16."""
    # what is in the way is asked for only then, because it reads all weights
    if not is_half and (found := left_wide(module, options)) is not None:
        op, why = found
        yield problem_at(
            op,
            f"the target {target.name} computes float16, and one op leaves the whole program in wider floats: {why}",
            "change the model, or keep the op in float32: keep=[...], --keep-float32",
        )
    elif was_bfloat16:
        yield Problem(
            f"the target {target.name} computes float16, so the program is no longer in bfloat16: numbers beyond "
            f"{LARGEST:g} overflow",
            advice="verify the program on inputs like those of its use; keep=[...] leaves ops in float32",
        )


def sizes_of_data(module: IRModule, target: Target | None) -> Iterator[Problem]:
    """A warning if a program has sizes that only a run knows, and its target takes fixed sizes only."""
    if target is None or not target.wants.static_shapes:
        return
    ops = (op for graph in module.graphs for op in ops_inside(graph))
    if unknown := [op for op in ops if any(isinstance(t, TensorType) and None in shape_of(t) for t in op.result_types)]:
        yield problem_at(
            unknown[0],
            f"the target {target.name} takes fixed sizes only, and the sizes of {len(unknown)} values depend on data, "
            "first of this one",
            "change the model, so that all sizes follow from the sizes of its inputs",
        )
