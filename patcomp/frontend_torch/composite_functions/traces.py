"""Traces of a PyTorch function for given types: the list of its ops after import and normalize."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.export import ExportedProgram

from patcomp.errors import PatcompError, RuleError
from patcomp.frontend_torch.converter import TorchConverter
from patcomp.frontend_torch.decomposition.table import get_decomp_table
from patcomp.frontend_torch.fx.dtypes import dtype_of
from patcomp.ir.constants import constant_values, is_constant, literal_values
from patcomp.ir.module import IRModule
from patcomp.ir.namespaces import aten_namespace
from patcomp.ir.types import TensorType, static_shape
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Attribute, Operation, OpResult, SSAValue
from patcomp.pytorch import OpOverload, Registrations, can_decompose, registrations
from patcomp.rewrites import Options
from patcomp.rewrites.normalize import normalize
from patcomp.rewrites.state import MUTATION
from patterns_catalog import default_rules

EXPORT_FORMS = ("exported", "decomposed", "decomposed by PyTorch")
"""The forms of an export: undecomposed, with `get_decomp_table()`, and with PyTorch's default table."""

_LARGEST = 256
"""Constants with more elements than this are weights."""


@dataclass(frozen=True)
class Input:
    """An argument of the function."""

    name: str


@dataclass(frozen=True)
class Result:
    """A result of an earlier op."""

    op: int
    index: int


@dataclass(frozen=True)
class Constant:
    """A number, or the list of them, as a tensor of an element type."""

    literal: Any
    element: Attribute

    def __eq__(self, other: object) -> bool:
        """Whether the numbers are equal in the other's element type."""
        if not isinstance(other, Constant):
            return False
        mine, theirs = (literal_values(constant.literal, other.element) for constant in (self, other))
        return mine is not None and theirs is not None and np.array_equal(mine, theirs)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True)
class _TracedOp:
    """An op and its arguments by name: `Input`, `Result`, `Constant`, Python values, and lists of them."""

    name: str
    arguments: Mapping[str, Any]


LiteralPlace = tuple[int, str, int | None]
"""The place of a literal: the op, the argument, and the position in a list of tensors and numbers."""


@dataclass(frozen=True)
class Trace:
    """The ops of a function, in order; the last one produces its result."""

    ops: tuple[_TracedOp, ...]
    result: Result

    def literals(self) -> dict[LiteralPlace, Any]:
        """Every literal argument and constant by its place; None is not one."""
        found: dict[LiteralPlace, Any] = {}
        for number, op in enumerate(self.ops):
            for name, value in op.arguments.items():
                for position, item in _items(value):
                    if item is not None and not isinstance(item, Input | Result):
                        found[number, name, position] = item
        return found

    def skeleton(self) -> Any:
        """The trace without literal values: the ops, their operands, and the place and kind of each literal."""
        ops = [
            (op.name, [(name, [_kind(item) for _, item in _items(value)]) for name, value in op.arguments.items()])
            for op in self.ops
        ]
        return ops, self.result


def _items(value: Any) -> Iterator[tuple[int | None, Any]]:
    """The items of a list with tensors in it, or the argument itself."""
    if isinstance(value, list) and any(isinstance(item, Input | Result | Constant) for item in value):
        yield from enumerate(value)
    else:
        yield None, value


def _kind(item: Any) -> Any:
    if item is None or isinstance(item, Input | Result):
        return item
    return "number" if type(item) in (int, float) else type(item).__name__


class Tracer:
    """Traces one function, and caches the traces.

    Args:
        function: takes tensors and numbers by name, and returns a tensor.
    """

    def __init__(self, function: Callable[..., Any]):
        self.function = function
        self._traces: dict[Any, Trace | RuleError] = {}
        self._programs: dict[Any, ExportedProgram] = {}

    def __call__(self, inputs: Mapping[str, TensorType], attributes: Mapping[str, Any], form: str) -> Trace:
        """The trace for inputs of static types and for values of the attributes, in one of `EXPORT_FORMS`.

        Raises:
            RuleError: the function cannot be traced or imported, or is not a function of its inputs that returns one
                tensor.
        """
        key = (*_key(inputs, attributes), form)
        if key not in self._traces:
            try:
                with _quiet():
                    program = _in_form(self._exported(inputs, attributes), form)
                self._traces[key] = _read(_normalized(program), list(inputs))
            except RuleError as error:
                self._traces[key] = error
        found = self._traces[key]
        if isinstance(found, RuleError):
            raise found
        return found

    def forms(self, inputs: Mapping[str, TensorType], attributes: Mapping[str, Any]) -> list[str]:
        """The forms that may differ; there is only one if no table decomposes an op of the function.

        Raises:
            RuleError: as `__call__`.
        """
        with _quiet():
            program = self._exported(inputs, attributes)
        ops = {node.target for node in program.graph.nodes if isinstance(node.target, OpOverload)}
        return [
            form
            for form in EXPORT_FORMS
            if form == EXPORT_FORMS[0] or any(op in _table(form, registrations()) or can_decompose(op) for op in ops)  # type: ignore[attr-defined]
        ]

    def _exported(self, inputs: Mapping[str, TensorType], attributes: Mapping[str, Any]) -> ExportedProgram:
        key = _key(inputs, attributes)
        if key in self._programs:
            return self._programs[key]
        try:
            samples = [torch.zeros(static_shape(t), dtype=dtype_of(t.element_type)) for t in inputs.values()]
            program = torch.export.export(_Calling(self.function, list(inputs), attributes), tuple(samples))
        except Exception as error:  # the function and export raise errors of any class
            reason = str(error).strip().partition("\n")[0]
            raise RuleError(f"the reference cannot be traced: {type(error).__name__}: {reason}") from error
        signature = program.graph_signature
        if held := [*signature.parameters, *signature.buffers]:
            raise RuleError(
                f"the reference has weights of its own ({', '.join(held)}); make them parameters of a function"
            )
        self._programs[key] = program
        return program


def _key(inputs: Mapping[str, TensorType], attributes: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(inputs.items()), tuple((name, type(value), value) for name, value in attributes.items())


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide PyTorch's warnings about its own code, and its logs of failed traces, whose error says enough."""
    logs = [logging.getLogger(name) for name in ("torch.export", "torch._subclasses.fake_tensor")]
    levels = [log.level for log in logs]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*LeafSpec.*", category=FutureWarning)
        try:
            for log in logs:
                log.setLevel(logging.CRITICAL)
            yield
        finally:
            for log, level in zip(logs, levels, strict=True):
                log.setLevel(level)


class _Calling(nn.Module):
    """The module that is exported: a function with some arguments fixed."""

    def __init__(self, function: Callable[..., Any], names: list[str], attributes: Mapping[str, Any]):
        super().__init__()
        self.function, self.names, self.attributes = function, names, dict(attributes)

    def forward(self, *tensors: torch.Tensor) -> Any:
        return self.function(**dict(zip(self.names, tensors, strict=True)), **self.attributes)


@lru_cache(maxsize=2)
def _table(form: str, registered: Registrations) -> dict[Any, Callable[..., Any]]:
    table: Any = get_decomp_table() if form == "decomposed" else torch.export.default_decompositions()
    return table.materialize()


def _in_form(program: ExportedProgram, form: str) -> ExportedProgram:
    if form == EXPORT_FORMS[0]:
        return program
    try:
        return program.run_decompositions(dict(_table(form, registrations())))
    except Exception as error:  # PyTorch's passes raise errors of any class
        reason = str(error).strip().partition("\n")[0]
        raise RuleError(f"PyTorch cannot decompose the reference: {type(error).__name__}: {reason}") from error


@cache
def _converter() -> TorchConverter:
    """One converter for all traces, without installed catalogs, because the caller may be one that is being loaded."""
    return TorchConverter(installed_catalogs=False)


def _normalized(program: ExportedProgram) -> IRModule:
    converter = _converter()
    try:
        module = converter.add_exported_program(program).imported()
        normalize(module, default_rules().stage("normalize"), Options(strict=True))
    except PatcompError as error:
        raise RuleError(f"the reference cannot be converted: {error}") from error
    finally:
        converter.clear()
    return module


def _read(module: IRModule, names: list[str]) -> Trace:
    graph = module.graph("main")
    block = graph.regions[0].block
    if MUTATION in str(graph.properties["arg_attrs"]):
        raise RuleError("the reference writes to one of its arguments; a composite is a function of its inputs")
    output = block.last_op
    assert output is not None
    if len(output.operands) != 1:
        raise RuleError(
            f"the reference returns {len(output.operands)} tensors, but a rule replaces one value; declare a composite "
            "for each of them"
        )
    sources: dict[SSAValue, Any] = {argument: Input(name) for argument, name in zip(block.args, names, strict=True)}
    ops: list[_TracedOp] = []
    for op in block.ops:
        if is_constant(op):
            sources[op.results[0]] = _constant(op)
        elif op is not output:
            if op.regions or not hasattr(op, "arguments_by_name"):
                raise RuleError(f"the reference has {op.name}, but a pattern cannot have branches or loops")
            for index, result in enumerate(op.results):
                sources[result] = Result(len(ops), index)
            arguments = aten_namespace.arguments(op)
            ops.append(_TracedOp(op.name, {name: _argument(value, sources) for name, value in arguments.items()}))
    result = sources[output.operands[0]]
    if not isinstance(result, Result):
        raise RuleError("the reference computes nothing: it returns an argument or a constant")
    return Trace(tuple(ops), result)


def _constant(op: Operation) -> Constant:
    result = op.results[0]
    assert isinstance(result, OpResult)
    assert isinstance(result.type, TensorType)
    values = constant_values(result)
    if values is None or values.size > _LARGEST:
        raise RuleError("the reference has a weight of its own; make it a parameter of the function")
    if values.dtype.kind == "f":  # the shortest decimals, as a person writes them
        values = np.array([float(str(item)) for item in values.reshape(-1)]).reshape(values.shape)
    return Constant(values.tolist(), result.type.element_type)


def _argument(value: Any, sources: Mapping[SSAValue, Any]) -> Any:
    if isinstance(value, list):
        return [_argument(item, sources) for item in value]
    return sources[value.ssa] if isinstance(value, Value) else value
