"""`program.audit(target)`: the constructs of a program that do not suit a device, and the rules that rewrite them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from patcomp.compression.scheme import reads_stored, scheme_name
from patcomp.ir.constants import constant_integers, is_constant
from patcomp.ir.half import beyond_half
from patcomp.ir.locations import describe
from patcomp.ir.module import IRModule, callee
from patcomp.ir.types import BIT_WIDTHS, HandleType, TensorType, element_name, shape_of
from patcomp.ir.weights import stored_weights
from patcomp.ir.xdsl import Operation, SSAValue, maker_of, ops_inside
from patcomp.patterns import RuleSet
from patcomp.questions.findings import MOST_SHOWN, Audit, Finding, of_devices, places_of, with_facts
from patcomp.questions.regions import INDICES, Regions
from patcomp.targets import Target

if TYPE_CHECKING:
    from patcomp.evaluate.overflow import Overflow

_WINDOWS = frozenset(f"coreai.{name}" for name in ("conv2d", "conv3d", "max_pool_2d", "max_pool_3d", "sum_pool_2d"))
"""The ops that read a padding themselves."""

_STRIDED = _WINDOWS | {"coreai.conv_transpose2d", "coreai.conv_transpose3d"}
"""The ops whose third operand has their strides."""


def audit(module: IRModule, target: Target, rules: RuleSet, overflows: Sequence[Overflow] = ()) -> Audit:
    """Audit a converted program.

    Args:
        module: the program, in the `coreai` dialect.
        target: the target; it need not be the one of the conversion.
        rules: the rules of the conversion, of which findings name those that would help.
        overflows: where values of a run are beyond float16.
    """
    found: dict[tuple[str, bool], tuple[list[Operation], tuple[str, ...]]] = {}
    mending, elsewhere = _by_op(rules, target), set[Operation]()
    composites = module.composite_names()
    for what, op, mended_by, advice in _problems(module, target, mending, composites):
        found.setdefault((what, advice), ([], mended_by))[0].append(op)
        if not advice:
            elsewhere.add(op)
    findings = [
        Finding(what, len(ops), places_of(ops), mended_by, advice, tuple(dict.fromkeys(ops)))
        for (what, advice), (ops, mended_by) in found.items()
    ]
    findings += of_devices(module, target)
    if overflows:
        findings.append(_of_overflows(overflows, mending, composites))
    if target.wants.leaves_out:
        for graph in module.entry_graphs:
            regions = Regions.of(graph, module, elsewhere)
            if regions.count > 1:
                places = places_of(regions.borders)
                between = "regions with other ops between them"
                findings.append(Finding(between, regions.count, places, (), True, regions.borders))
    size, most = sum(weight.bytes for weight in stored_weights(module)), target.wants.max_asset_bytes
    if most is not None and size > most:
        findings.append(Finding(f"weights of {size:,} bytes, more than {most:,}", 1, ()))
    return with_facts(findings, module, target, elsewhere)


def _of_overflows(
    overflows: Sequence[Overflow], mending: Mapping[str, tuple[str, ...]], composites: Mapping[str, str]
) -> Finding:
    """The finding on overflows of float16: each place with its value, its op and the enclosing composite."""
    places, rules = [], []
    for each in overflows:
        called = each.composite(composites)
        names = (each.operation.name, f"composite {called}")
        rules += [rule for name in names for rule in mending.get(name, ())]
        inside = f" in {called}" if called else ""
        places.append(f"{each.value:g} of {each.operation.name}{inside}: {describe(each.place)}")
    return Finding("values beyond float16", len(overflows), tuple(places[:MOST_SHOWN]), tuple(dict.fromkeys(rules)))


_Problem = tuple[str, Operation, tuple[str, ...], bool]


@dataclass(frozen=True)
class _Stored:
    """The compressed weights of a program: their stored parts, and the ops that unpack them."""

    parts: frozenset[SSAValue]
    unpacked: tuple[Operation, ...]

    @classmethod
    def of(cls, module: IRModule) -> _Stored:
        """Find the compressed weights of a program: unpacking ops with constant data. Unpacked integers of an earlier
        computation are no weight."""
        parts, unpacked = set[SSAValue](), []
        for op in ops_inside(module.op):
            if reads_stored(op) and (op.operands[0] in parts or _is_constant(op.operands[0])):
                parts.update(value for value in op.operands if value in parts or _is_constant(value))
                if any(reads_stored(use.operation) for use in op.results[0].uses):
                    parts.add(op.results[0])
                else:
                    unpacked.append(op)
        return cls(frozenset(parts), tuple(unpacked))


def _problems(
    module: IRModule, target: Target, mending: Mapping[str, tuple[str, ...]], composites: Mapping[str, str]
) -> Iterator[_Problem]:
    """Each problem: what it is, its op, the rules that rewrite such ops, and whether it is advice."""
    wants, stored = target.wants, _Stored.of(module)
    for op in stored.unpacked:
        if not target.stores(name := scheme_name(op)):
            yield f"weights stored as {name}", op, (), False
    for graph in module.graphs:
        for argument in graph.regions[0].block.args:
            for what, mended_by, advice in _of_value(argument, target):
                yield what, graph, mended_by, advice
        for op in ops_inside(graph):
            called = composites.get(callee(op)) if op.name == "coreai.invoke" else None
            name = op.name if called is None else f"composite {called}"
            if name in wants.left_out and not _is_read_by_windows(op):
                yield name, op, mending.get(name, ()), False
            if wants.element_types and is_constant(op) and (number := beyond_half(op, module.blobs)) is not None:
                yield f"the number {number:g}, beyond float16", op, (), False
            for what in _of_strides(op, target):
                yield what, op, (), True
            for result in op.results:
                if result in stored.parts:
                    continue
                for what, mended_by, advice in _of_value(result, target):
                    yield what, op, mended_by, advice
    for graph in module.entry_graphs:
        block = graph.regions[0].block
        assert block.last_op is not None
        for value in (*block.args, *block.last_op.operands):
            if (size := _row_bytes(value, wants.min_width)) % wants.row_bytes:
                yield f"an input or output with rows of {size} bytes, not of {wants.row_bytes}", graph, (), True


def _is_constant(value: SSAValue) -> bool:
    return (maker := maker_of(value)) is not None and is_constant(maker)


def _row_bytes(value: SSAValue, least: int) -> int:
    """The bytes of a row along the last dimension; 0 if they are not known, or the row has fewer elements than that."""
    if not isinstance(value.type, TensorType):
        return 0
    size = (shape_of(value.type) or (None,))[-1]
    return 0 if size is None or size < least else size * BIT_WIDTHS[element_name(value.type.element_type)] // 8


def _of_strides(op: Operation, target: Target) -> Iterator[str]:
    """The problems of a target with the strides of a convolution or of windows."""
    wants = target.wants
    if op.name not in _STRIDED:
        return
    strides = constant_integers(op.operands[2]) or ()
    if wants.stride_factors and any(_without(stride, wants.stride_factors) != 1 for stride in strides):
        yield f"strides of other factors than {', '.join(map(str, sorted(wants.stride_factors)))}"
    maker, most = maker_of(op.operands[1]), wants.max_palettized_stride
    looked_up = maker is not None and maker.name == "coreai.lut_to_dense"
    if looked_up and most is not None and any(stride > most for stride in strides):
        yield f"strides over {most} with palettized weights"


def _without(number: int, factors: Collection[int]) -> int:
    """A number without some prime factors."""
    for factor in factors:
        while number > 1 and number % factor == 0:
            number //= factor
    return number


def _of_value(value: SSAValue, target: Target) -> Iterator[tuple[str, tuple[str, ...], bool]]:
    wants = target.wants
    type_ = value.type.tensor_type if isinstance(value.type, HandleType) else value.type
    if not isinstance(type_, TensorType):
        return
    shape, element = shape_of(type_), element_name(type_.element_type)
    if wants.element_types and element not in wants.element_types | INDICES:
        yield f"{element} values", ("half precision",) if element in ("f32", "f64", "bf16") else (), False
    if wants.max_rank is not None and len(shape) > wants.max_rank:
        yield f"rank over {wants.max_rank}", ("pixel_shuffle of five dimensions", "carry transposes"), False
    if wants.static_shapes and None in shape:
        yield "dynamic sizes", ("to_coreai(fixed=...)", "--fix NAME=SIZE"), False
    largest = max((size for size in shape if size is not None), default=0)
    if wants.max_size is not None and largest > wants.max_size:
        yield f"a dimension over {wants.max_size}", (), False
    elif wants.size_of_all is not None and largest > wants.size_of_all:
        yield f"a dimension over {wants.size_of_all}, which older chips do not take", (), True
    last = shape[-1] if shape else None
    is_computed = element not in INDICES and not is_constant(value)
    if is_computed and last is not None and last < wants.min_width:
        yield f"a last dimension under {wants.min_width}, which is padded", ("carry transposes",), True


def _is_read_by_windows(op: Operation) -> bool:
    users = {use.operation.name for result in op.results for use in result.uses}
    return op.name == "coreai.pad" and bool(users) and users <= _WINDOWS


def _by_op(rules: RuleSet, target: Target) -> dict[str, tuple[str, ...]]:
    """For each op or composite, the rules of the stage `target` that start from it and apply to this target."""
    found: dict[str, tuple[str, ...]] = {}
    for rule in rules.stage("target"):
        for name in [f"composite {rule.composite.name}"] if rule.composite is not None else rule.ops:
            if not rule.targets or target.name in rule.targets or target.takes(rule):
                found[name] = (*found.get(name, ()), rule.name)
    return found
