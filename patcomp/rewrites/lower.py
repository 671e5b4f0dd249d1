"""Lower: every ATen op to `coreai` ops, by the rules of the catalog, in one pass that builds new graphs.

A rebuild with a value map costs a quarter of editing in place. 64-bit elements become 32-bit on the
way: the runtime's index operands are 32-bit at most, and constants that do not fit are refused.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

import numpy as np

from patcomp.errors import Problem, UnsupportedError
from patcomp.ir import coreai
from patcomp.ir.aten import AtenOp
from patcomp.ir.aten_facts import facts_of
from patcomp.ir.builder import Builder
from patcomp.ir.constants import attribute_values, constant_attribute, is_constant
from patcomp.ir.custom import CustomOp
from patcomp.ir.extents import drop_notes
from patcomp.ir.locations import describe, fused, problem_at
from patcomp.ir.module import IRModule, function_type
from patcomp.ir.region import RegionOp
from patcomp.ir.types import TensorType, element_name, shape_of
from patcomp.ir.value import Value
from patcomp.ir.xdsl import (
    Attribute,
    Block,
    ComplexType,
    DenseResourceAttr,
    Operation,
    Region,
    SSAValue,
    UnrealizedConversionCastOp,
    set_name,
)
from patcomp.patterns import Rejected, Rule, RuleSet, run
from patcomp.patterns.apply import Rebuilding, Replacement, apply, mismatch
from patcomp.patterns.statistics import Record, Statistics
from patcomp.rewrites.options import Options


def lower(module: IRModule, rules: RuleSet, options: Options) -> Statistics:
    """Rewrite every graph of the module into `coreai` ops.

    Declarative rules rewrite in place first, so that a pattern of several ops is found before its ops are lowered. Ops
    that the budget leaves alone stay, with casts around them; only the evaluator can run such a program.

    Raises:
        UnsupportedError: ops without a rule, or that their rule rejects; all of them listed.
        BrokenRuleError: a rule failed, gave values of the wrong type, or did not account for an argument.
    """
    lowering = _Lowering(module, rules.procedural(), options)
    patterns = RuleSet(rules.declarative())
    for graph in list(module.graphs):
        if patterns:
            lowering.statistics.add(run(graph, patterns.index, lowering.context))
        block = graph.regions[0].block
        lowered = lowering.block(block, {})
        graph.regions[0].detach_block(block)
        graph.regions[0].add_block(lowered)
        graph.properties["function_type"] = function_type(lowered)
        drop_notes(graph)
    if lowering.problems:
        raise UnsupportedError("these ops cannot be lowered to Core AI:", lowering.problems)
    return lowering.statistics


class _Lowering:
    def __init__(self, module: IRModule, rules: Iterable[Rule], options: Options):
        self.module, self.widths, self.budget = module, options.widths, options.budget
        self.context = options.context(module, coreai, strict=True)
        self.rules: dict[str, list[Rule]] = {}
        for rule in sorted(rules, key=lambda rule: -rule.priority):
            for name in rule.ops:
                self.rules.setdefault(name, []).append(rule)
        self.statistics = Statistics()
        self.problems: list[Problem] = []
        self.weights: dict[Attribute, Attribute] = {}

    def block(self, block: Block, outer: dict[SSAValue, SSAValue]) -> Block:
        values = dict(outer)
        new = Block(arg_types=[self.widths.of(argument.type) for argument in block.args])
        for old, made in zip(block.args, new.args, strict=True):
            set_name(made, old.name_hint)
            made.location = old.location
            values[old] = made
        builder = Builder(new, blobs=self.module.blobs)
        with builder:
            for op in block.ops:
                builder.location = op.location
                results = self.op(op, values, builder)
                for old_result, made_result in zip(op.results, results, strict=True):
                    if made_result is None:  # nobody reads it
                        continue
                    values[old_result] = made_result
                    if made_result.name_hint is None or old_result.name_hint is not None:
                        set_name(made_result, old_result.name_hint)
        return new

    def op(self, op: Operation, values: dict[SSAValue, SSAValue], builder: Builder) -> Sequence[SSAValue | None]:
        if is_constant(op):
            return self.constant(op, builder)
        if isinstance(op, AtenOp):
            return self.aten(op, values, builder)
        if isinstance(op, CustomOp):
            return self.custom(op, values, builder)
        regions = [Region([self.block(block, values) for block in region.blocks]) for region in op.regions]
        made = type(op).create(
            operands=[values[operand] for operand in op.operands],
            result_types=self.types(op),
            properties=dict(op.properties),
            attributes=dict(op.attributes),
            regions=regions,
        )
        assert isinstance(op, RegionOp) or op.name.startswith("coreai.")
        return builder.insert(made).results

    def constant(self, op: Operation, builder: Builder) -> Sequence[SSAValue]:
        attribute = op.properties["value"]
        type_ = op.results[0].type
        wanted = self.widths.of(type_)
        if wanted != type_:
            if attribute not in self.weights:
                self.weights[attribute] = self._narrowed(op, attribute, wanted)
            attribute = self.weights[attribute]
        made = type(op).create(result_types=[wanted], properties={"value": attribute})
        return builder.insert(made).results

    def _narrowed(self, op: Operation, attribute: Attribute, wanted: Attribute) -> Attribute:
        """The attribute of a constant in the type that it is narrowed to."""
        blobs, type_ = self.module.blobs, op.results[0].type
        assert isinstance(wanted, TensorType)
        assert isinstance(type_, TensorType)
        key = attribute.resource_handle.data if isinstance(attribute, DenseResourceAttr) else "constant"
        if key in blobs.without_values:
            named = blobs.name(key, wanted, blobs.without_values[key])
            return DenseResourceAttr.from_params(named, wanted)
        values = attribute_values(attribute, blobs)
        assert values is not None
        narrow = self._narrow(op, values, element_name(type_.element_type))
        return constant_attribute(narrow, wanted.element_type, blobs, key)

    def _narrow(self, op: Operation, values: np.ndarray, name: str) -> np.ndarray:
        if name in ("si64", "ui64"):
            dtype = np.int32 if name == "si64" else np.uint32
            limits = np.iinfo(dtype)
            if values.size and (values.min() < limits.min or values.max() > limits.max):
                outside = values[(values < limits.min) | (values > limits.max)].reshape(-1)[0]
                self.report(op, f"the 64-bit constant {outside} does not fit 32 bits", "convert with int64='keep'")
            return values.astype(dtype)
        narrow = values.astype(np.float32 if name == "f64" else np.complex64)
        if np.any(np.isinf(narrow) & ~np.isinf(values)):
            self.report(op, "a 64-bit float constant overflows 32 bits", "convert with float64='keep'")
        return narrow

    def report(self, op: Operation, message: str, advice: str = "") -> None:
        name = op.target.data if isinstance(op, CustomOp) else None
        self.problems.append(problem_at(op, message, advice, name=name))

    def aten(self, op: AtenOp, values: dict[SSAValue, SSAValue], builder: Builder) -> Sequence[SSAValue | None]:
        if problem := _complex_problem(op):
            return self.refuse(op, builder, problem)
        if self.budget.exhausted:
            return self.kept(op, values, builder)
        types = self.types(op)
        arguments = {name: _map(value, values) for name, value in op.arguments_by_name().items()}
        rebuilding = Rebuilding(arguments, types)
        reasons: list[str] = []
        declined: list[str] = []
        for rule in self.rules.get(op.name, ()):
            started = time.perf_counter()
            made = apply(rule, op, builder, self.context, rebuilding=rebuilding)
            self.statistics.record(rule.name, isinstance(made, Replacement), time.perf_counter() - started)
            if isinstance(made, Replacement):
                self.statistics.records.append(record := Record(rule.name, op.location))
                self.budget.spend(record)
                given = dict(zip(made.replaced, made.values, strict=True))
                pairs = zip(map(given.get, op.results), types, strict=True)
                return [None if value is None else _refined(value, type_) for value, type_ in pairs]
            if made.reason:
                (declined if made.declined else reasons).append(made.reason)
        if reasons:
            return self.refuse(op, builder, "; ".join(reasons))
        if declined:
            return self.refuse(op, builder, f"no lowering rule is for this call of the op: {'; '.join(declined)}")
        return self.refuse(
            op, builder, "no lowering rule for this op",
            "decompose the op (run_decompositions(patcomp.get_decomp_table())), or register a lowering",
        )  # fmt: skip

    def custom(self, op: CustomOp, values: dict[SSAValue, SSAValue], builder: Builder) -> Sequence[SSAValue]:
        """Lower an op with the user's function, whose exceptions propagate."""
        name, types = op.target.data, self.types(op)
        if problem := _complex_problem(op):
            return self.refuse(op, builder, problem)
        if self.budget.exhausted:
            return self.kept(op, values, builder)
        if op not in self.module.custom:
            return self.refuse(
                op, builder, f"the lowering of {name} is a Python function, which the text of the IR does not have"
            )
        started = time.perf_counter()
        location = builder.location = fused(name, [op])
        try:
            made = self.module.custom[op](op.named([Value(values[operand]) for operand in op.operands]), location)
        except Rejected as rejection:
            return self.refuse(op, builder, str(rejection))
        except Exception as error:
            error.add_note(f"while the registered lowering of {name} ran for {describe(op)}")
            raise
        self.statistics.record(name, True, time.perf_counter() - started)
        self.statistics.records.append(record := Record(name, op.location))
        self.budget.spend(record)
        results = list(made) if isinstance(made, list | tuple) else [made]
        builder.location = location
        if len(results) != len(types):
            return self.refuse(
                op, builder, f"the lowering of {name} returned {len(results)} values for {len(types)} results"
            )
        wrong = [reason for pair in zip(results, types, strict=True) if (reason := mismatch(*pair) or _narrower(*pair))]
        if wrong:
            return self.refuse(op, builder, f"the lowering of {name} returned {'; '.join(wrong)}")
        return [_refined(value, type_) for value, type_ in zip(results, types, strict=True)]

    def kept(self, op: Operation, values: dict[SSAValue, SSAValue], builder: Builder) -> Sequence[SSAValue]:
        """A copy of an op that the budget leaves alone, with casts from and to the types of the lowered program."""
        operands = [_cast(values[operand], operand.type) for operand in op.operands]
        made = type(op).create(
            operands=operands,
            result_types=[result.type for result in op.results],
            properties=dict(op.properties),
            attributes=dict(op.attributes),
        )
        if op in self.module.custom:
            self.module.custom[made] = self.module.custom[op]
        results = builder.insert(made).results
        return [_cast(result, wanted) for result, wanted in zip(results, self.types(op), strict=True)]

    def types(self, op: Operation) -> list[Attribute]:
        """The types of an op's results after lowering."""
        return [self.widths.of(result.type) for result in op.results]

    def refuse(self, op: Operation, builder: Builder, message: str, advice: str = "") -> Sequence[SSAValue]:
        """Report why an op cannot be lowered; return placeholders for its results, to find further problems."""
        self.report(op, message, advice)
        return builder.insert(UnrealizedConversionCastOp.create(result_types=self.types(op))).results


def _narrower(value: Value, wanted: Attribute) -> str:
    """Why a value of static sizes cannot replace a result of dynamic sizes; empty if it can."""
    dims = zip(value.shape, shape_of(wanted), strict=True)
    if all(given is None or dim is not None for given, dim in dims):
        return ""
    return f"{value.ssa.type} for {wanted}: a static size replaces a dynamic one"


def _cast(value: SSAValue, wanted: Attribute) -> SSAValue:
    """A value in a type of another width; its shape is compatible."""
    assert isinstance(wanted, TensorType)
    if value.type == wanted:
        return value
    return coreai.cast(Value(value), wanted.element_type, result_type=wanted).ssa


def _refined(value: Value, wanted: Attribute) -> SSAValue:
    """The value in a type whose shape may have more, or fewer, static dimensions."""
    if value.ssa.type == wanted:
        return value.ssa
    return coreai.cast(value, value.element_type, result_type=wanted).ssa


def _is_complex(type_: Attribute) -> bool:
    return isinstance(type_, TensorType) and type(type_.element_type) is ComplexType


def _complex_problem(op: Operation) -> str:
    """Why an op with complex operands or results cannot be lowered; empty for other ops."""
    values = (*op.operands, *op.results)
    if facts_of(op.name).complex in ("lowered", "stays") or not any(_is_complex(value.type) for value in values):
        return ""
    if isinstance(op, CustomOp):
        return "a registered lowering cannot take or return complex numbers, which Core AI does not compute with"
    return "this op has complex operands or results; only the import decomposes complex numbers"


def _map(argument: object, values: dict[SSAValue, SSAValue]) -> object:
    if isinstance(argument, Value):
        return Value(values[argument.ssa])
    if isinstance(argument, list):
        return [_map(item, values) for item in argument]
    return argument
