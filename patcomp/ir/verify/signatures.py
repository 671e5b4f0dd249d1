"""Check a `coreai` op against its row: the number and types of operands and results, and the inferred result types."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from patcomp.ir.attributes import SymbolConstantAttr, class_of
from patcomp.ir.constants import constant_integers
from patcomp.ir.coreai_op import CoreaiOp
from patcomp.ir.infer import InferenceError, RuntimeRefusalError, UndeterminedError, compatible, infer_types
from patcomp.ir.infer.common import SIZE_MAKERS, partial_integers
from patcomp.ir.rows import Row, Slot
from patcomp.ir.types import (
    ELEMENT_TYPES,
    FAMILIES,
    HandleType,
    ImageType,
    TokenType,
    element_name,
    is_integer,
    shape_of,
)
from patcomp.ir.verify.run import VerifierRun
from patcomp.ir.xdsl import (
    Attribute,
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    DenseResourceAttr,
    IntegerAttr,
    OpResult,
    SSAValue,
    StringAttr,
    TensorType,
)

_NOT_TENSORS: dict[str, type[Attribute]] = {"TOKEN": TokenType, "HANDLE": HandleType, "IMAGE": ImageType}


_KEPT = 1 << 13
"""The largest number of verdicts that the process keeps."""

_VERDICTS: dict[tuple[object, ...], tuple[list[str], object]] = {}
"""The problems of the ops whose types, operands and properties are the same, and the objects that the key names.

The key has the identities of interned objects, because hashing them costs more than the checks. An entry keeps these
objects alive, so that no other object gets their identity.
"""


class SignatureChecker:
    """The checks of one run. Few combinations of types are distinct, so the problems of each are kept."""

    def __init__(self, verification: VerifierRun):
        self.verification = verification

    def check(self, op: CoreaiOp) -> bool:
        """Report the problems of an op; return whether there are none, so that other checks may rely on its types."""
        runtime = self.verification.runtime
        if op.name == "coreai.graph":  # each has its own names, so its verdict would serve no other
            problems = _problems(op, runtime)
        else:
            key, facts = _key(op, runtime)
            entry = _VERDICTS.get(key)
            if entry is None:
                if len(_VERDICTS) >= _KEPT:
                    _VERDICTS.clear()
                entry = _VERDICTS[key] = (_problems(op, runtime), facts)
            problems = entry[0]
        for problem in problems:
            self.verification.add(op, problem)
        return not problems


def _problems(op: CoreaiOp, runtime: bool) -> list[str]:
    return _structure_problems(op) or _type_problems(op) or _compare_with_inferred(op, runtime)


def _key(op: CoreaiOp, runtime: bool) -> tuple[tuple[object, ...], list[object]]:
    """All that the checks of an op read: its types, what inference knows of its operands, its properties. Text and
    numbers stand for themselves; objects stand in the key by their identity, and must live as long as it."""
    operands, results = op.operands, op.results
    key: list[object] = [op.name, runtime, len(operands), len(results), len(op.regions)]
    facts: list[object] = []
    for value in (*operands, *results):
        facts.append(value.type)
    for operand in operands:
        known = _known(operand) if type(operand) is OpResult else None
        if known is None or type(known) is tuple:
            key.append(known)
        else:
            key.append(-1)
            facts.append(known)
    for name, attribute in op.properties.items():
        kind = type(attribute)
        if kind is DenseResourceAttr or (name == "value" and kind is DenseIntOrFPElementsAttr):
            key.append((name, "values"))  # programs have many, and the checks read only the type
            facts.append(attribute.type)  # type: ignore[attr-defined]
        elif kind is DenseArrayBase:
            key.append((name, attribute.data.data))  # type: ignore[attr-defined]
            facts.append(attribute.elt_type)  # type: ignore[attr-defined]
        elif kind is StringAttr:
            key.append((name, "text", attribute.data))  # type: ignore[attr-defined]
        elif kind is SymbolConstantAttr:
            key.append((name, "symbol"))  # whether there is such a graph is checked for each op
        else:
            key.append(name)
            facts.append(attribute)
    key += map(id, facts)
    return tuple(key), facts


def _known(value: OpResult) -> object:
    """What inference may know of an operand besides its type: its values, or some of the sizes that it consists of."""
    owner = value.op
    if owner.name == "coreai.constant":
        values, type_ = owner.properties.get("value"), value.type
        # inference reads vectors of integers, and the scalars of a range
        read = isinstance(type_, TensorType) and (is_integer(type_.element_type) or not type_.shape.data)
        return values if read and not isinstance(values, DenseResourceAttr) else None
    type_ = value.type
    if owner.name in SIZE_MAKERS and isinstance(type_, TensorType) and is_integer(type_.element_type):
        return partial_integers(value)
    return None


def _structure_problems(op: CoreaiOp) -> list[str]:
    row, problems = op.ROW, []
    for what, slots, values in (("operands", row.operands, op.operands), ("results", row.results, op.results)):
        fixed = sum(not slot.variadic for slot in slots)
        if len(values) < fixed or (len(values) != fixed and fixed == len(slots)):
            problems.append(f"takes {fixed} {what}, but has {len(values)}")
    segments = op.operand_segments()
    if segments is not None and (len(segments) != len(row.operands) or sum(segments) != len(op.operands)):
        problems.append(f"has operand segments {list(segments)}, which do not fit its {len(op.operands)} operands")
    if len(op.regions) != len(row.regions):
        problems.append(f"takes {len(row.regions)} regions, but has {len(op.regions)}")
    if row.properties or op.properties:
        problems += _property_problems(op)
    return problems


def _property_problems(op: CoreaiOp) -> list[str]:
    problems = []
    known = set() if op.operand_segments() is None else {"operandSegmentSizes"}
    for declared in op.ROW.properties:
        name = declared.name
        known.add(name)
        attribute, expected = op.properties.get(name), class_of(declared)
        if attribute is None:
            if not declared.optional:
                problems.append(f"lacks the property `{name}`")
        elif declared.is_position:
            last = len(declared.words) - 1
            if not (isinstance(attribute, IntegerAttr) and 0 <= attribute.value.data <= last):
                problems.append(f"property `{name}` must be an integer from 0 to {last}, but is {attribute}")
        elif expected is not None and not isinstance(attribute, expected):
            problems.append(f"property `{name}` must be a #{expected.name}, but is {attribute}")
    problems += [f"has no property `{name}`" for name in op.properties if name not in known]
    return problems


def _type_problems(op: CoreaiOp) -> list[str]:
    row, problems = op.ROW, []
    elements: dict[str, list[Attribute]] = {}
    for what, slots, groups in (
        ("operand", row.operands, op.operands_by_slot()),
        ("result", row.results, _results_by_slot(op)),
    ):
        for slot, group in zip(slots, groups, strict=True):
            for value in group:
                problem = _slot_problem(slot, value.type)
                if problem:
                    problems.append(f"{what} `{slot.name}` {problem}, but is {value.type}")
                if isinstance(value.type, TensorType):
                    elements.setdefault(slot.name, []).append(value.type.element_type)
    for names in row.same:
        found = {element for name in names for element in elements.get(name, ())}
        if len(found) > 1:
            listed = ", ".join(sorted(element_name(element) for element in found))
            problems.append(f"`{'`, `'.join(names)}` must share one element type, but have {listed}")
    return problems


def _results_by_slot(op: CoreaiOp) -> Sequence[Sequence[SSAValue]]:
    # a variadic result is always the only one
    slots = op.ROW.results
    return [op.results] if slots and slots[0].variadic else [[result] for result in op.results]


def _slot_problem(slot: Slot, type_: Attribute) -> str:
    """Why a slot does not take a type; empty if it does."""
    if "ANY" in slot.types:
        if isinstance(type_, TensorType) and element_name(type_.element_type) not in ELEMENT_TYPES:
            return "must be a tensor of an element type that Core AI has"
        if not isinstance(type_, TensorType | TokenType | HandleType | ImageType):
            return "must be a ranked tensor, a handle, a token or an image"
        return ""
    expected = _NOT_TENSORS.get(slot.types[0])
    if expected is not None:
        return "" if isinstance(type_, expected) else f"must be a !{expected.name}"
    if not isinstance(type_, TensorType):
        return "must be a ranked tensor"
    allowed = _element_names(slot.types)
    if element_name(type_.element_type) not in allowed:
        return f"must have an element type of {', '.join(allowed)}"
    shape = shape_of(type_)
    if slot.ranks and len(shape) not in slot.ranks:
        return f"must be of rank {' or '.join(map(str, slot.ranks))}"
    if slot.length is not None and shape[0] not in (None, slot.length):
        return f"must have {slot.length} elements"
    return ""


@cache
def _element_names(families: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for family in families for name in FAMILIES.get(family, (family,)))


def _compare_with_inferred(op: CoreaiOp, runtime: bool) -> list[str]:
    row = op.ROW
    if row.infer is None:
        return []
    declared = [result.type for result in op.results]
    if row.infer == "cast":
        source, target = shape_of(op.operands[0].type), shape_of(declared[0])
        return [] if compatible(source, target) else ["cannot change the shape"]
    try:
        inferred = infer_types(row, op.operands, op.properties)
    except UndeterminedError:
        return []
    except RuntimeRefusalError as error:
        return [str(error)] if runtime else []
    except InferenceError as error:
        return [str(error)]
    assert inferred is not None
    if len(inferred) != len(declared):
        return [f"makes {len(inferred)} results, but {len(declared)} are declared"]
    exact = _is_exact(op, runtime)
    return [
        f"result type must be {'exactly ' if exact else ''}{wanted}"
        for wanted, given in zip(inferred, declared, strict=True)
        if not _agrees(wanted, given, exact, row)
    ]


def _is_exact(op: CoreaiOp, runtime: bool) -> bool:
    """Whether the declared result types must be the inferred ones."""
    when = op.ROW.exact
    if when in ("", "always", "to save"):
        return when == "always" or (runtime and when == "to save")
    position = [slot.name for slot in op.ROW.operands].index(when)
    return constant_integers(op.operands[position]) is not None


def _agrees(wanted: Attribute, given: Attribute, exact: bool, row: Row) -> bool:
    if wanted == given:
        return True
    if exact or not isinstance(wanted, TensorType) or not isinstance(given, TensorType):
        return False
    if wanted.element_type != given.element_type and not row.free_element:
        return False
    return compatible(shape_of(wanted), shape_of(given))
