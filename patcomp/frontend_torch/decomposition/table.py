"""The functions that decompose ops: PyTorch's, without the ops that stay whole, and those of a catalog."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache, wraps
from typing import Any

import torch
from torch.fx import Node

from patcomp.evaluate.eager import overload_of, registered_overload
from patcomp.frontend_torch.custom.lowerings import Lowerings
from patcomp.ir import aten
from patcomp.ir.aten_facts import ops_where
from patcomp.patterns import Rule, RuleSet
from patcomp.pytorch import (
    OperatorBase,
    OpOverload,
    Registrations,
    default_settings,
    global_decomposition_table,
    is_functional_composite,
    python_decompositions,
    pytree,
    registrations,
    schema_of_overload,
    statically_known_true,
    sym_eq,
)

PRESERVED = sorted(op for op in ops_where("decomposition", "kept") if op.startswith("aten."))
"""Ops that `get_decomp_table` leaves out of PyTorch's default table."""

PRESERVED_OF_LIBRARIES = sorted(ops_where("decomposition", "kept").difference(PRESERVED))
"""The same of libraries, which may be absent."""

REPLACED = sorted(ops_where("decomposition", "replaced"))
"""Ops whose decompositions by PyTorch compute other numbers than the ops; those of the catalog take their places."""

REFUSED = sorted(ops_where("decomposition", "refused"))
"""Ops whose decompositions by PyTorch compute other numbers, and for which the catalog has none."""

REFUSED_OF_COMPLEX = sorted(ops_where("decomposition", "real"))
"""The same, of complex numbers only."""


def get_decomp_table() -> dict[OpOverload, Callable[..., Any]]:
    """PyTorch's default decompositions minus the ops that patcomp converts whole, fresh on every call.

    Use it as `exported.run_decompositions(get_decomp_table())`. It adds a decomposition of `aten.copy`, because PyTorch
    loses the element type and shape of a buffer when a value of another type or shape is copied into it. It replaces or
    leaves out those of PyTorch's that compute other numbers than their ops; docs/conversion-workflows.md lists them.
    """
    table = torch.export.default_decompositions()
    for name in (*PRESERVED, *REFUSED):
        table.pop(overload_of(name), None)  # to read the table would take long: it looks for operators of all libraries
    for op in _of_libraries():
        table.pop(op, None)
    table[torch.ops.aten.copy.default] = _copy
    table.update(_replaced())
    for name in REFUSED_OF_COMPLEX:
        function = table.pop(op := overload_of(name), None)
        if function is not None:
            table[op] = _of_real_numbers(function)
    return table  # type: ignore[return-value]


def _of_real_numbers(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decomposition that leaves complex tensors to the op."""

    @wraps(function)
    def decomposed(*args: Any, **kwargs: Any) -> Any:
        leaves = pytree.tree_leaves((args, kwargs))
        if any(isinstance(leaf, torch.Tensor) and leaf.is_complex() for leaf in leaves):
            return NotImplemented
        return function(*args, **kwargs)

    return decomposed


def _replaced() -> dict[OpOverload, Callable[..., Any]]:
    from patterns_catalog import default_decompositions  # an import needs them only for ops without a rule

    rules = default_decompositions().decompositions()
    return {overload_of(name): rules[name].function for name in REPLACED}  # type: ignore[misc]


def _of_libraries() -> list[OpOverload]:
    return [op for name in PRESERVED_OF_LIBRARIES if (op := registered_overload(name)) is not None]


@dataclass(frozen=True, eq=False)
class Table:
    """The table of `get_decomp_table` at one time, which callers must not change."""

    functions: Mapping[OperatorBase, Callable[..., Any]]
    """The decompositions that are written in Python, and those of libraries. Others are kernels of PyTorch, which its
    tracer and ours ask an op for; to list them all takes longer than to decompose a program."""

    def has(self, name: str) -> bool:
        """Whether an op is decomposed, by its name in the `aten` dialect."""
        if name in PRESERVED or name in PRESERVED_OF_LIBRARIES:
            return False
        op = registered_overload(name)
        return op in self.functions or (op is not None and is_functional_composite(op))


def current_table() -> Table:
    """The current table. It is the same object until operators or decompositions are registered."""
    return _table_of(registrations())


@lru_cache(maxsize=1)
def _table_of(registered: Registrations) -> Table:
    functions = python_decompositions()
    for name in (*PRESERVED, *REFUSED):
        functions.pop(overload_of(name), None)
    functions[torch.ops.aten.copy.default] = _copy
    for op in set(registered.custom_composites).difference(_of_libraries()):
        if not any(argument.alias_info for argument in schema_of_overload(op).arguments):
            functions.setdefault(op, op.decompose)
    return Table(functions)


def _copy(self: torch.Tensor, src: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """`aten.copy` if it converts its source; `run_decompositions` would replace the op by the source itself."""
    if self.dtype == src.dtype and statically_known_true(sym_eq(self.shape, src.shape)):
        return NotImplemented
    return src.to(self.dtype).expand(self.shape).clone(memory_format=torch.contiguous_format)


# ---- with a catalog's --------------------------------------------------------------------------------


class Formulas:
    """The decompositions of a catalog and of PyTorch, without the ops that stay whole.

    Args:
        rules: the catalog.
        table: PyTorch's default decompositions.
        lowerings: the registered lowerings.
    """

    def __init__(self, rules: RuleSet, table: Table, lowerings: Lowerings | None):
        self._rules, self._table, self._lowerings = rules, table, lowerings
        self.own, self.of_complex = (_by_overload(rules.decompositions(of_complex=flag)) for flag in (False, True))

    def tables(self) -> Iterator[dict[Any, Any]]:
        """The usual table, then the table of all decompositions."""
        yield self._usual
        yield self._all

    @cached_property
    def _parts(self) -> tuple[dict[Any, Any], dict[Any, Any]]:
        usual = self._unknown_of({**self._table.functions, **self.own})
        others = self.own.keys() | set(map(registered_overload, REFUSED_OF_COMPLEX))
        return usual, {op: function for op, function in usual.items() if op not in others} | self.of_complex

    @cached_property
    def _usual(self) -> dict[Any, Any]:
        return _by_kind(*self._parts)

    @cached_property
    def _all(self) -> dict[Any, Any]:
        # these often end in ops outside of ATen, so they are used only if the usual table does not help
        refused = set(map(registered_overload, REFUSED))
        rest = {op: it for op, it in global_decomposition_table["post_autograd"].items() if op not in refused}
        usual, for_complex = self._parts
        refused |= set(map(registered_overload, REFUSED_OF_COMPLEX))
        of_complex = {op: it for op, it in rest.items() if op not in refused} | for_complex
        return _by_kind(self._unknown_of(rest) | usual, of_complex)

    def _unknown_of(self, table: Mapping[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
        left = {
            op: function
            for op, function in table.items()
            if not is_known(aten.op_name(op.name()), self._rules, self._table)
        }
        return left if self._lowerings is None else without(left, self._lowerings)


def is_known(op: str, rules: RuleSet, table: Table) -> bool:
    """Whether rules take an op. One that only patterns contain is decomposed if it can be; otherwise the lower stage
    reports it."""
    return op in rules.procedural_ops or (op in rules.pattern_ops and not table.has(op))


def formulas(rules: RuleSet, table: Table, lowerings: Lowerings) -> Formulas:
    """The decompositions of a catalog and a table; made once in the process, unless lowerings are registered."""
    declared = (*rules.decompositions(), *rules.decompositions(of_complex=True))
    # a library may be registered, or registered again, after the catalog's decompositions of its ops were declared
    of_libraries = tuple(registered_overload(name) for name in declared if not name.startswith("aten."))
    return Formulas(rules, table, lowerings) if lowerings else _without_lowerings(rules, table, of_libraries)


@lru_cache(maxsize=16)
def _without_lowerings(rules: RuleSet, table: Table, of_libraries: tuple[OpOverload | None, ...]) -> Formulas:
    return Formulas(rules, table, None)


def without(table: dict[Any, Callable[..., Any]], lowerings: Lowerings) -> dict[Any, Callable[..., Any]]:
    """A decomposition table without the ops of lowerings."""
    for op in list(table):
        if lowerings.name_of(op) is not None:
            del table[op]
    return table


_REAL = frozenset({bool, int, float, str, type(None), Node, torch.device, torch.layout, torch.memory_format})
"""Types of values that are nothing complex, which most arguments have."""


def any_complex(values: Any) -> bool:
    """Whether there are complex tensors, numbers or dtypes in a tree of values."""
    if type(values) in _REAL:
        return False
    if isinstance(values, torch.Tensor):
        return values.dtype.is_complex
    if isinstance(values, list | tuple | dict):
        items = values.values() if isinstance(values, dict) else values
        return any(any_complex(item) for item in items if type(item) not in _REAL)
    return values.is_complex if isinstance(values, torch.dtype) else isinstance(values, complex)


def _by_kind(usual: Mapping[Any, Callable[..., Any]], of_complex: Mapping[Any, Callable[..., Any]]) -> dict[Any, Any]:
    """Merge two tables; calls with complex tensors, numbers or types go to the second.

    The second must not contain the catalog's formulas for real numbers, which may be wrong for complex numbers.
    """

    def chosen(op: Any) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            function = (of_complex if any_complex((args, kwargs)) else usual).get(op)
            return NotImplemented if function is None else function(*args, **kwargs)

        return call

    ops = (*usual, *of_complex)
    return {op: usual[op] if usual.get(op) is of_complex.get(op) else chosen(op) for op in ops}


def _by_overload(rules: Mapping[str, Rule]) -> dict[Any, Callable[..., Any]]:
    """The functions of decompositions by operator, without operators that PyTorch has not registered."""
    registered = ((registered_overload(name), name) for name in rules)
    return {op: _Function(rules, name) for op, name in registered if op is not None}


class _Function:
    """The function of the decomposition of an op. The first call may load its catalog."""

    def __init__(self, rules: Mapping[str, Rule], op: str):
        self._rules, self._op = rules, op

    @cached_property
    def _found(self) -> Callable[..., Any]:
        with default_settings():  # what a catalog makes when it is loaded is no part of the trace that asks for it
            function = self._rules[self._op].function
        assert function is not None
        return function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._found(*args, **kwargs)
