"""Programs of several ops that are recorded as a pattern, so that they vary as the source of a rule does.

The example of a rule of several ops may be a function in PyTorch. It is converted up to the rule; the ops in front of
the rule become the nodes of a pattern, and their constants its captures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from patcomp.errors import PatcompError
from patcomp.ir.aten import AtenOp
from patcomp.ir.composite import Composite
from patcomp.ir.constants import constant_values
from patcomp.ir.elements import element_of_numpy
from patcomp.ir.module import IRModule
from patcomp.ir.namespaces import DialectInterface, OpSpec, aten_namespace, composite_spec, coreai_namespace
from patcomp.ir.region import RegionOp
from patcomp.ir.types import TensorType, element_name, element_type, is_static, static_shape
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Operation, SSAValue
from patcomp.patterns import Context, Example, Rule, RuleSet, Stage, run
from patcomp.patterns.language import Attr, Capture, Const, OpNode, SourceNamespace
from patcomp.patterns.pattern import Pattern
from patcomp.patterns.targets import composites
from patcomp.questions.reach import namespace_of
from patcomp.rewrites import Options
from patcomp.rewrites.optimize import optimize
from patcomp_lab.proof.examples import ConvertedExample

_SMALL = 16
"""The most elements of a constant that varies in each place where it is used."""


class NotAPatternError(Exception):
    """A program cannot be recorded as a pattern; the text says why."""


def recorded_rule(rule: Rule, example: ConvertedExample) -> Rule:
    """A rule of the same name whose source is the program in front of the rule.

    Raises:
        NotRecordedError: the rule does not fire alone on the program, or the program has ops with regions.
    """
    for module in _forms(rule, example.before):
        trial = module.clone()
        try:
            fired = run(trial.graph("main"), RuleSet([rule]), Context(trial.blobs, namespace_of(rule))).fired
        except PatcompError:
            continue
        if rule.name in fired:
            return _as_pattern(rule, module, example.types)
    raise NotAPatternError("the rule does not fire alone on the program in front of it")


def _forms(rule: Rule, module: IRModule) -> list[IRModule]:
    """The program with folded constants and shared values, as the stage itself makes it, and as it is."""
    forms = [module]
    if rule.stage in (Stage.TARGET, Stage.OPTIMIZE):
        folded = module.clone()
        try:
            optimize(folded, RuleSet([]), Options())
            forms.insert(0, folded)
        except PatcompError:
            pass
    return forms


def _spec_of(op: Operation, dialect: DialectInterface) -> OpSpec:
    """What the pattern language knows of an op, or of the call of a composite."""
    if isinstance(op, RegionOp):
        known = (composites.spec(name) for name in composites.names())
        found = next((each for each in known if isinstance(each, Composite) and each.made(op)), None)
        if found is None:
            raise NotAPatternError("it has the call of a composite that no rule made")
        return composite_spec(found)
    spec = dialect.spec(op.name)
    if spec is None or op.regions:
        raise NotAPatternError(f"it has the op {op.name}")
    return spec


def _as_pattern(rule: Rule, module: IRModule, types: list[str]) -> Rule:
    block = module.graph("main").regions[0].block
    is_aten = any(isinstance(op, AtenOp) for op in block.ops)
    dialect = aten_namespace if is_aten else coreai_namespace
    namespace = SourceNamespace(dialect)
    captures: dict[str, Any] = {}
    given: dict[str, Any] = {}
    made: dict[SSAValue, Any] = {}
    constants: dict[SSAValue, np.ndarray] = {}

    def constant_of(value: SSAValue, name: str) -> Any:
        """The capture of a constant; each use of a small one has its own, because equal numbers are stored once."""
        if constants[value].size <= _SMALL:
            return capture(Const, name, constants[value])
        if value not in made:
            made[value] = capture(Const, name, constants[value])
        return made[value]

    def capture(kind: Any, stem: str, value: Any) -> Any:
        name = stem if stem not in captures else f"{stem}_{len(captures)}"
        captures[name] = Attr(name) if kind is Attr else kind(name, namespace)
        given[name] = value
        return captures[name]

    for argument, text in zip(block.args, types, strict=True):
        assert isinstance(argument.type, TensorType)
        if not is_static(argument.type):
            raise NotAPatternError("it has open sizes")
        limits = text[text.index("[") :] if "[" in text else ""
        sizes = "x".join([*map(str, static_shape(argument.type)), element_name(argument.type.element_type)])
        made[argument] = capture(Capture, argument.name_hint or "x", sizes + limits)
    for op in block.ops:
        if op is block.last_op:
            break
        if op.name == "coreai.constant":
            values = constant_values(op.results[0], module.blobs)
            element = Value(op.results[0]).dtype
            if values is None or element_of_numpy(values.dtype) != element_type(element):
                raise NotAPatternError(f"it has a constant of {element}, which numpy lacks")
            constants[op.results[0]] = np.array(values)
            continue
        spec = _spec_of(op, dialect)
        arguments: Mapping[str, Any] = dialect.arguments_of(op, spec)

        def node_of(value: Any, name: str, is_top: bool = True) -> Any:
            if isinstance(value, Value):
                if value.ssa in constants:
                    return constant_of(value.ssa, name)
                return made[value.ssa]
            if isinstance(value, list) and any(isinstance(item, Value) for item in value):
                return [node_of(item, name, False) for item in value]
            if value is None or not is_top:
                return value
            return capture(Attr, name, value)

        node = OpNode(namespace, spec, {a.name: node_of(arguments.get(a.name), a.name) for a in spec.arguments})
        node.escapes = True
        for index, result in enumerate(op.results):
            made[result] = node if len(op.results) == 1 else node[index]
    assert block.last_op is not None
    root = made[block.last_op.operands[0]]
    reached = Pattern(dialect, root, captures)
    used = {name: each for name, each in captures.items() if reached.binds(each)}
    pattern = Pattern(dialect, root, used)
    example = Example((), {name: given[name] for name in used})
    return replace(rule, pattern=pattern, function=None, examples=(example,), to=root)
