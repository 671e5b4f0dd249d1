"""`program.audit(target)`: what a device would not like about a program, where it is, and which rule would mend it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from patcomp.ir.constants import is_constant
from patcomp.ir.half import beyond_half
from patcomp.ir.locations import describe, origins
from patcomp.ir.module import IRModule, callee, graph_name
from patcomp.ir.types import HandleType, TensorType, element_name, shape_of
from patcomp.ir.weights import stored_weights
from patcomp.ir.xdsl import Operation, SSAValue, ops_inside
from patcomp.patterns import RuleSet
from patcomp.targets import Target

_INDICES = frozenset({"si32", "ui32", "i1"})
"""The element types of axes, sizes, indices and conditions, which every target takes."""

_WINDOWS = frozenset(f"coreai.{name}" for name in ("conv2d", "conv3d", "max_pool_2d", "max_pool_3d", "sum_pool_2d"))
"""The ops that read a padding themselves."""

_SHOWN = 3


@dataclass(frozen=True)
class Finding:
    """One kind of thing that a target does not like."""

    what: str
    """`f32 values`, `rank over 5`, `coreai.sort`."""
    count: int
    """How many values or ops there are."""
    places: tuple[str, ...]
    """The first of them: FX node, module path and source line."""
    mended_by: tuple[str, ...] = ()
    """The rules and steps of targets that rewrite such things. They refused these, or were left out."""
    is_advice: bool = False
    """Whether the target takes it, but at a cost."""

    def __str__(self) -> str:
        rules = f"; see {', '.join(self.mended_by)}" if self.mended_by else ""
        return f"{self.what}: {self.count}{rules}" + "".join(f"\n    {place}" for place in self.places)


@dataclass(frozen=True)
class Audit:
    """What a target would not like about a program. It prints itself."""

    target: str
    findings: tuple[Finding, ...]

    @property
    def clean(self) -> bool:
        """Whether there is nothing but advice."""
        return all(finding.is_advice for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """The audit as plain data."""
        return {"target": self.target, "clean": self.clean, "findings": [asdict(each) for each in self.findings]}

    def __str__(self) -> str:
        if not self.findings:
            return f"{self.target}: nothing to mend"
        problems = [each for each in self.findings if not each.is_advice]
        head = f"{self.target}: {len(problems)} kinds of problems" if problems else f"{self.target}: takes the program"
        parts = [f"  {'advice: ' * each.is_advice}{each}" for each in self.findings]
        return "\n".join([head, *parts])


def audit(module: IRModule, target: Target, rules: RuleSet) -> Audit:
    """Audit a converted program.

    Args:
        module: the program, in the `coreai` dialect.
        target: the target; it need not be the one of the conversion.
        rules: the rules of the conversion, of which findings name those that would help.
    """
    found: dict[tuple[str, bool], tuple[list[Operation], tuple[str, ...]]] = {}
    for what, op, mended_by, advice in _problems(module, target, _by_op(rules)):
        found.setdefault((what, advice), ([], mended_by))[0].append(op)
    findings = [
        Finding(what, len(ops), _places(ops), mended_by, advice) for (what, advice), (ops, mended_by) in found.items()
    ]
    size, most = sum(weight.bytes for weight in stored_weights(module)), target.wants.max_asset_bytes
    if most is not None and size > most:
        findings.append(Finding(f"weights of {size:,} bytes, more than {most:,}", 1, ()))
    return Audit(target.name, tuple(sorted(findings, key=lambda each: each.is_advice)))


def _places(ops: list[Operation]) -> tuple[str, ...]:
    """The first places in the model that ops come from."""
    known = (describe(op) for op in ops if origins(op.location))
    return tuple(dict.fromkeys(known))[:_SHOWN]


_Problem = tuple[str, Operation, tuple[str, ...], bool]


def _problems(module: IRModule, target: Target, mending: Mapping[str, tuple[str, ...]]) -> Iterator[_Problem]:
    """Each problem: what it is, its op, the rules that rewrite such ops, and whether it is advice."""
    composites = {
        graph_name(graph): graph.properties["composite_decl"].composite_name.data  # type: ignore[attr-defined]
        for graph in module.graphs
        if "composite_decl" in graph.properties
    }
    for graph in module.graphs:
        for argument in graph.regions[0].block.args:
            for what, mended_by, advice in _of_value(argument, target):
                yield what, graph, mended_by, advice
        for op in ops_inside(graph):
            called = composites.get(callee(op)) if op.name == "coreai.invoke" else None
            name = op.name if called is None else f"composite {called}"
            if name in target.wants.left_out and not _is_read_by_windows(op):
                yield name, op, mending.get(name, ()), False
            if target.wants.element_types and is_constant(op) and (number := beyond_half(op, module.blobs)) is not None:
                yield f"the number {number:g}, beyond float16", op, (), False
            for result in op.results:
                for what, mended_by, advice in _of_value(result, target):
                    yield what, op, mended_by, advice


def _of_value(value: SSAValue, target: Target) -> Iterator[tuple[str, tuple[str, ...], bool]]:
    wants = target.wants
    type_ = value.type.tensor_type if isinstance(value.type, HandleType) else value.type
    if not isinstance(type_, TensorType):
        return
    shape, element = shape_of(type_), element_name(type_.element_type)
    if wants.element_types and element not in wants.element_types | _INDICES:
        yield f"{element} values", ("half precision",) if element in ("f32", "f64", "bf16") else (), False
    if wants.max_rank is not None and len(shape) > wants.max_rank:
        yield f"rank over {wants.max_rank}", ("pixel_shuffle of five dimensions", "carry transposes"), False
    if wants.static_shapes and None in shape:
        yield "dynamic sizes", ("AIProgram.specialize",), False
    if wants.max_size is not None and any(size is not None and size > wants.max_size for size in shape):
        yield f"a dimension over {wants.max_size}", (), False
    last = shape[-1] if shape else None
    is_computed = element not in _INDICES and not is_constant(value)
    if is_computed and last is not None and last < wants.min_width:
        yield f"a last dimension under {wants.min_width}, which is padded", ("carry transposes",), True


def _is_read_by_windows(op: Operation) -> bool:
    users = {use.operation.name for result in op.results for use in result.uses}
    return op.name == "coreai.pad" and bool(users) and users <= _WINDOWS


def _by_op(rules: RuleSet) -> dict[str, tuple[str, ...]]:
    """The rules of the stage `target` that start from each op or composite."""
    found: dict[str, tuple[str, ...]] = {}
    for rule in rules.stage("target"):
        for name in [f"composite {rule.composite.name}"] if rule.composite is not None else rule.ops:
            found[name] = (*found.get(name, ()), rule.name)
    return found


Auditing = Callable[[IRModule, Target], Audit]
"""Audits a program by the rules of its conversion."""
