"""The two dialects as the pattern language sees them: their ops, and how to read and build one.

The pattern language knows no op by name. It only needs a `DialectInterface` of each dialect: op descriptions
by name, the arguments of an op by name, the values of a constant, and a way to build an op.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache, cached_property
from typing import Any, ClassVar

import numpy as np

from patcomp.ir import aten, coreai
from patcomp.ir.aten_facts import facts_of
from patcomp.ir.attributes import word_of
from patcomp.ir.builder import Builder
from patcomp.ir.composite import Composite
from patcomp.ir.coreai_table import ROWS
from patcomp.ir.dialect import OPS
from patcomp.ir.guessed_types import guess_types
from patcomp.ir.infer import InferenceError
from patcomp.ir.region import RegionOp
from patcomp.ir.rows import Row
from patcomp.ir.types import ELEMENT_TYPES, element_name, tensor
from patcomp.ir.value import Value
from patcomp.ir.xdsl import (
    ArrayAttr,
    Attribute,
    Float32Type,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    Operation,
    SSAValue,
    StringAttr,
    TensorType,
)


@dataclass(frozen=True)
class ArgumentSpec:
    """One argument of an op.

    `kind` is `value` (an SSA value, or None when `optional`), `values` (a list of them), `attribute`
    (a Python value), `mixed` (a Python value in which SSA values may stand: sizes, scalars), or `element type`
    (the name of the result's, which no property of the op holds).
    """

    name: str
    kind: str
    optional: bool = False
    type: str = ""
    """The type as the dialect declares it, for messages and for choosing an overload."""
    sample: Any = None
    """A valid value of the argument, for generated tests of rules that accept any value."""


@dataclass(frozen=True)
class OpSpec:
    """An op of a dialect."""

    name: str
    arguments: tuple[ArgumentSpec, ...]
    results: int | None
    """The number of results; None if it depends on the op."""
    commutative: tuple[str, str] | None = None
    """The two arguments of a commutative op."""
    commutes_when: tuple[tuple[str, Any], ...] = ()
    """The values of other arguments for which the op is commutative: `add` scales its second tensor by `alpha`."""
    composite: Composite | None = None
    """The composite whose recovered calls this describes; None for an op of a dialect."""

    @property
    def op_name(self) -> str:
        """The name that ops of this description have in the IR."""
        return RegionOp.name if self.composite is not None else self.name

    def describes(self, op: Operation) -> bool:
        """Whether an op is one of these."""
        return op.name == self.name if self.composite is None else self.composite.made(op)

    @cached_property
    def _by_name(self) -> dict[str, ArgumentSpec]:
        return {argument.name: argument for argument in self.arguments}

    def argument(self, name: str) -> ArgumentSpec:
        return self._by_name[name]


Sugar = tuple[str, Mapping[str, Any]]
"""The op of a Python operator, and the arguments that the operator fixes."""


class DialectInterface(ABC):
    """The interface of a dialect for the pattern language."""

    name: str
    operators: ClassVar[Mapping[str, Sugar]]
    """The op of each Python operator: `+ - * / @ **` and `neg`."""

    @abstractmethod
    def names(self) -> Iterable[str]:
        """The names that `candidates` and `spec` know, for suggestions."""

    @abstractmethod
    def candidates(self, name: str) -> list[OpSpec]:
        """The ops that an attribute of the namespace may refer to (the overloads), best one first."""

    @abstractmethod
    def spec(self, name: str) -> OpSpec | None:
        """The op of an exact name, with or without the dialect's prefix."""

    @abstractmethod
    def arguments(self, op: Operation) -> Mapping[str, Any]:
        """The arguments of an op by name: `Value`s, Python values (element types as names), lists of both."""

    def arguments_of(self, op: Operation, spec: OpSpec) -> Mapping[str, Any]:
        """The arguments by name of an op that `spec` describes; the op may be a recovered composite."""
        if spec.composite is None:
            return self.arguments(op)
        return {name: _decoded(value) for name, value in spec.composite.arguments(op).items()}

    @abstractmethod
    def structure(self, attribute: Attribute) -> Any:
        """Where operands stand inside a property: True for an operand, False for a literal, a tuple for a list."""

    @abstractmethod
    def build(
        self, name: str, arguments: Sequence[Any], keywords: Mapping[str, Any], types: Sequence[Attribute] | None
    ) -> Any:
        """Add an op at the active insertion point; return its `Value`, or a list of them."""

    @abstractmethod
    def create(self, spec: OpSpec, arguments: Mapping[str, Any], results: int) -> Operation:
        """An op at the active insertion point with guessed result types, for the generated tests of a rule."""

    def create_any(self, spec: OpSpec, arguments: Mapping[str, Any], results: int) -> Operation:
        """Create an op, or the call of a composite, with guessed result types.

        Raises:
            InferenceError: the body of the composite fails on operands of these types.
        """
        if spec.composite is None:
            return self.create(spec, arguments, results)
        inputs = [arguments[name] for name in spec.composite.inputs]
        keywords = {name: value for name, value in arguments.items() if name not in spec.composite.inputs}
        try:
            made = spec.composite(*inputs, **keywords)
        except (AssertionError, IndexError, TypeError, ValueError) as error:
            raise InferenceError(f"{spec.name} has no such operands: {error}") from error
        return (made[0] if isinstance(made, list) else made).ssa.owner

    def constant(self, literal: Any, like: SSAValue | None, argument: ArgumentSpec | None = None) -> Value:
        """A new constant at the insertion point, of the element type of `like` or that an argument asks for."""
        element = like.type.element_type if like is not None and isinstance(like.type, TensorType) else None
        return coreai.constant(literal, element)


@cache
def composite_spec(composite: Composite) -> OpSpec:
    """The recovered calls of a composite as the pattern language sees them."""
    inputs = [ArgumentSpec(name, "value", optional=True) for name in composite.inputs]
    others = (*composite.attributes, *composite.options)
    attributes = [ArgumentSpec(name, "attribute", optional=True) for name in others]
    name = f"composite.{composite.name}"
    return OpSpec(name, (*inputs, *attributes), len(composite.outputs), composite=composite)


_BOOLEAN = IntegerType(1)


def _decoded(value: Any) -> Any:
    """Attributes of an argument as Python values; element types become their names."""
    if type(value) is Value or value is None or isinstance(value, int | float | str):
        return value
    if isinstance(value, list):
        return [_decoded(item) for item in value]
    if not isinstance(value, Attribute):
        return value
    if isinstance(value, StringAttr):
        return value.data
    if isinstance(value, IntegerAttr):
        return bool(value.value.data) if value.type == _BOOLEAN else value.value.data
    if isinstance(value, FloatAttr):
        number = value.value.data
        # the shortest decimal that rounds to the same f32, so that the 1e-5 of a model reads 1e-05 again
        return float(str(np.float32(number))) if isinstance(value.type, Float32Type) else number
    if isinstance(value, ArrayAttr):
        return [_decoded(item) for item in value.data]
    name = element_name(value)
    if name in ELEMENT_TYPES:
        return name
    data = getattr(value, "data", None)
    if isinstance(data, Enum):
        return data.value
    return data if isinstance(data, str) else value


# ---- aten -----------------------------------------------------------------------------------------


def _aten_argument(argument: aten.Argument) -> ArgumentSpec:
    base = argument.type
    optional = base.endswith("?")
    core = base.rstrip("?")
    if core == "Tensor":
        kind = "value"
    elif core.startswith("Tensor") and core.endswith("]"):
        kind = "values"
    elif core.startswith(("SymInt", "Scalar")) and not core.startswith("ScalarType"):
        kind = "mixed"
    else:
        kind = "attribute"
    samples: dict[str, Any] = {"bool": False, "float": 1.0, "str": "none", "ScalarType": "f32"}
    sample = argument.default if argument.has_default else None
    if not argument.has_default and not optional:
        sample = [0] if core.endswith("]") else samples.get(core, 0)
    return ArgumentSpec(argument.name, kind, optional, base, sample)


@cache
def _overloads() -> Mapping[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for name in aten.known_names():
        found.setdefault(".".join(name.split(".")[:2]), []).append(name)
    return {base: tuple(names) for base, names in found.items()}


def _guessed(spec: OpSpec, arguments: Mapping[str, Any], results: int) -> list[Attribute]:
    return guess_types(spec.name, arguments, results)


class AtenInterface(DialectInterface):
    """The `aten` dialect. Scalars become 0-d constants if an overload takes a tensor."""

    name = "aten"
    operators: ClassVar[Mapping[str, Sugar]] = {
        "+": ("add.Tensor", {"alpha": 1}),
        "-": ("sub.Tensor", {"alpha": 1}),
        "*": ("mul.Tensor", {}),
        "/": ("div.Tensor", {}),
        "@": ("matmul", {}),
        "**": ("pow.Tensor_Tensor", {}),
        "neg": ("neg", {}),
    }

    def names(self) -> Iterable[str]:
        overloads = [name.removeprefix("aten.") for name in aten.known_names() if name.startswith("aten.")]
        return {*overloads, *(name.partition(".")[0] for name in overloads)}

    def candidates(self, name: str) -> list[OpSpec]:
        bases = [f"aten.{name}", f"aten.{name.rstrip('_')}"] if name.endswith("_") else [f"aten.{name}"]
        names = next((_overloads()[base] for base in bases if base in _overloads()), ())
        specs = [spec for spec in map(self.spec, names) if spec is not None]
        # a scalar argument is a constant operand after normalization, so overloads on tensors come first
        return sorted(specs, key=lambda spec: -sum(argument.kind == "value" for argument in spec.arguments))

    @cache  # noqa: B019  (one view, alive as long as the process)
    def spec(self, name: str) -> OpSpec | None:
        schema = aten.schema_of(name) or aten.schema_of(f"aten.{name}")
        if schema is None:
            return None
        results = None if any(type_.endswith("[]") for type_ in schema.result_types) else len(schema.result_types)
        commutes = facts_of(schema.name).commutes
        return OpSpec(
            schema.name,
            tuple(_aten_argument(argument) for argument in schema.arguments),
            results,
            ("self", "other") if commutes else None,
            (("alpha", 1),) if commutes and "alpha" in schema.names else (),
        )

    def arguments(self, op: Operation) -> Mapping[str, Any]:
        assert isinstance(op, aten.AtenOp)
        return {name: _decoded(value) for name, value in op.arguments_by_name().items()}

    def structure(self, attribute: Attribute) -> Any:
        if type(attribute) is ArrayAttr:
            return tuple(map(self.structure, attribute.data))
        return type(attribute) is aten.ValueAttr

    def build(
        self, name: str, arguments: Sequence[Any], keywords: Mapping[str, Any], types: Sequence[Attribute] | None
    ) -> Any:
        given = dict(keywords)
        spec = self.spec(name)
        if spec is None or len(arguments) > len(spec.arguments):  # mean(x, [1], True) is mean.dim
            spec = self._overload(name, len(arguments), given)
        result_types = given.pop("result_types", None) or types
        named = dict(zip((argument.name for argument in spec.arguments), arguments, strict=False)) | given
        made = self._insert(
            spec,
            named,
            result_types or _guessed(spec, named, spec.results or 1),
        )
        return made[0] if spec.results == 1 else made

    def _overload(self, name: str, positional: int, keywords: Mapping[str, Any]) -> OpSpec:
        for spec in self.candidates(name):
            names = [argument.name for argument in spec.arguments]
            if positional <= len(names) and set(keywords) - {"result_types"} <= set(names[positional:]):
                return spec
        raise KeyError(f"no overload of aten.{name} takes {positional} arguments and {sorted(keywords)}")

    def create(self, spec: OpSpec, arguments: Mapping[str, Any], results: int) -> Operation:
        return self._insert(spec, arguments, _guessed(spec, arguments, results))[0].ssa.owner  # type: ignore[return-value]

    def _insert(self, spec: OpSpec, arguments: Mapping[str, Any], types: Sequence[Attribute]) -> list[Value]:
        encoded: dict[str, Any] = {}
        for argument in spec.arguments:
            if argument.name not in arguments:
                continue
            value = arguments[argument.name]
            if argument.kind == "value" and isinstance(value, int | float):
                value = self.constant(value, next((v.ssa for v in arguments.values() if isinstance(v, Value)), None))
            if argument.type.startswith("ScalarType") and isinstance(value, str):
                value = ELEMENT_TYPES[value]
            encoded[argument.name] = value
        op = aten.create(spec.name, encoded, types)
        return [Value(result) for result in Builder.current().insert(op).results]


# ---- coreai ---------------------------------------------------------------------------------------


class CoreaiInterface(DialectInterface):
    """The `coreai` dialect. Axes, shapes and scalars are operands, so a literal matches a constant."""

    name = "coreai"
    operators: ClassVar[Mapping[str, Sugar]] = {
        operator: (f"decomposable.broadcasting_{name}", {})
        for operator, name in {
            "+": "add",
            "-": "sub",
            "*": "mul",
            "/": "divide",
            "@": "batch_matmul",
            "**": "pow",
        }.items()
    }

    def names(self) -> Iterable[str]:
        return _coreai_names()

    def candidates(self, name: str) -> list[OpSpec]:
        found = _coreai_names().get(name)
        return [] if found is None else [_coreai_spec(found)]

    def spec(self, name: str) -> OpSpec | None:
        found = _coreai_names().get(name.removeprefix("coreai."))
        return None if found is None else _coreai_spec(found)

    def constant(self, literal: Any, like: SSAValue | None, argument: ArgumentSpec | None = None) -> Value:
        elements = {"IDX": "si32", "UIDX": "ui32", "B": "i1"}
        element = elements.get(argument.type.partition("+")[0]) if argument else None
        return coreai.constant(literal, element) if element else super().constant(literal, like)

    def arguments(self, op: Operation) -> Mapping[str, Any]:
        arguments = op.arguments_by_name()  # type: ignore[attr-defined]
        if op.name == "coreai.cast":
            arguments["dtype"] = Value(op.results[0]).dtype
        for declared in OPS[op.name].ROW.properties:
            given = arguments.setdefault(declared.name, None)
            if declared.words and given is not None:
                arguments[declared.name] = word_of(declared, given)
        return {name: _decoded(value) for name, value in arguments.items()}

    def structure(self, attribute: Attribute) -> Any:
        return False

    def build(
        self, name: str, arguments: Sequence[Any], keywords: Mapping[str, Any], types: Sequence[Attribute] | None
    ) -> Any:
        return getattr(coreai, name)(*arguments, **keywords)

    def create(self, spec: OpSpec, arguments: Mapping[str, Any], results: int) -> Operation:
        row = OPS[spec.name].ROW
        given = {name: value for name, value in arguments.items() if value is not None}
        if row.name == "cast":  # its authoring function makes no op where the type stays
            x = given["input"]
            cast = OPS[spec.name].create(operands=[x.ssa], result_types=[tensor(x.shape, given["dtype"])])
            return Builder.current().insert(cast)
        made = getattr(coreai, row.builder)(**given)
        return (made[0] if isinstance(made, list) else made).ssa.owner


@cache
def _coreai_names() -> Mapping[str, Row]:
    names: dict[str, Row] = {}
    for key in ("builder", "last", "name"):
        for row in ROWS:
            spelled = row.name.rpartition(".")[2] if key == "last" else getattr(row, key)
            names.setdefault(spelled, row)
    return names


@cache
def _coreai_spec(row: Row) -> OpSpec:
    operands = [
        ArgumentSpec(slot.name, "values" if slot.variadic else "value", type="+".join(slot.types))
        for slot in row.operands
    ]
    attributes = [
        ArgumentSpec(
            declared.name,
            "attribute",
            declared.optional,
            "|".join(declared.words) or declared.kind,
            declared.default or next(iter(declared.words), None),
        )
        for declared in row.properties
    ]
    if row.name == "cast":
        attributes.append(ArgumentSpec("dtype", "element type", type="ScalarType", sample="f32"))
    pair = (row.operands[0].name, row.operands[1].name) if row.commutative else None
    results = None if any(slot.variadic for slot in row.results) else len(row.results)
    return OpSpec(row.op_name, (*operands, *attributes), results, pair)


aten_namespace = AtenInterface()
coreai_namespace = CoreaiInterface()
