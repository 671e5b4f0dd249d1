"""The ATen ops that PyTorch decomposes before the import; others stay whole for the catalog to recognise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import Any

import torch

from patcomp.evaluate.eager import overload_of, registered_overload
from patcomp.ir.aten_facts import ops_where
from patcomp.pytorch import (
    OperatorBase,
    OpOverload,
    Registrations,
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
