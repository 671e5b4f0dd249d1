"""`supports`: whether an op, a node or a whole program can be converted, without converting it."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from torch.export import ExportedProgram
from torch.fx import Node

from patcomp.errors import ConversionWarning, Problem, UnsupportedError
from patcomp.frontend_torch.converter import TorchConverter
from patcomp.frontend_torch.decomposition.table import get_decomp_table
from patcomp.frontend_torch.externalization.markers import is_marker
from patcomp.frontend_torch.fx.nodes import operator_name
from patcomp.frontend_torch.op_names import overloads_of
from patcomp.ir import aten
from patcomp.pytorch import (
    OpOverload,
    OpOverloadPacket,
    Registrations,
    global_decomposition_table,
    qualified_name,
    registrations,
)
from patterns_catalog import all_rules, default_rules

MEASURED = Path(__file__).with_name("supported_ops.json")
"""The measurements on PyTorch's own operator samples, written by the operator sweep of the tests."""

_STAGES = {"normalize": "rewritten", "recover": "composite", "lower": "lowered"}


@dataclass(frozen=True)
class OpSupport:
    """How one op is converted; true if it, or any of its overloads, is supported."""

    op: str
    """Its name in the `aten` dialect."""
    how: tuple[str, ...]
    """`lowered`, `composite`, `rewritten` (into other ops), `decomposed` (by the catalog or by PyTorch),
    `outlined` (the markers of an externalized module); empty if the op is not supported."""
    rules: tuple[str, ...] = ()
    """The rules of the catalog that convert it."""
    dtypes: tuple[str, ...] = ()
    """The element types of PyTorch's samples that pass; empty for an op without samples."""
    ranks: tuple[int, ...] = ()
    """The ranks of the first tensor in these samples."""
    limits: tuple[str, ...] = ()
    """Why some samples are refused."""
    overloads: tuple[OpSupport, ...] = ()
    """The answer for each overload, if the question was about an op with several; the fields above are their union."""

    def __bool__(self) -> bool:
        return bool(self.how)


@dataclass(frozen=True)
class ProgramSupport:
    """The known problems of converting a program; true if there are none."""

    problems: tuple[Problem, ...]

    def __bool__(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        return "\n".join(map(str, self.problems)) or "every op is supported"


def supports(what: Any) -> OpSupport | ProgramSupport:
    """Whether something can be converted, and how, without converting it.

    Args:
        what: an overload (`torch.ops.aten.add.Tensor`, `"aten.add.Tensor"`), an op with all its overloads
            (`torch.ops.aten.add`, `"aten.add"`), an FX node of an exported program, or an `ExportedProgram`.

    Returns:
        `OpSupport` for an op or node, `ProgramSupport` for a program; both are true or false. An op with several
        overloads is true if any of them is converted, and `OpSupport.overloads` has each. Options and shapes that a
        rule refuses (`OpSupport.limits`) show only in the conversion.

    Raises:
        TypeError: the argument is none of these.
        UnknownNameError: PyTorch has no operator of this name; the message suggests similar names. It is a `KeyError`.
    """
    if isinstance(what, ExportedProgram):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConversionWarning)  # the conversion issues them
            try:
                return ProgramSupport(TorchConverter().add_exported_program(what).open_problems())
            except UnsupportedError as error:
                return ProgramSupport(error.problems)
    if isinstance(what, Node):
        if is_marker(what):
            return OpSupport(operator_name(what), ("outlined",))
        return op_support(operator_name(what))
    if isinstance(what, OpOverload):
        return op_support(aten.op_name(what.name()))
    if isinstance(what, OpOverloadPacket):
        what = qualified_name(what)
    if isinstance(what, str):
        return _together([op_support(op) for op in overloads_of(what)])
    name = str(getattr(what, "__name__", ""))
    is_op = callable(what) and any(each.split(".")[1] == name for each in aten.known_names())
    advice = f"; write supports('aten.{name}')" if is_op else ""
    raise TypeError(f"supports takes an op, a node or an ExportedProgram, got {name or type(what).__name__}{advice}")


def op_support(op: str) -> OpSupport:
    """How the op of a name in the `aten` dialect is converted."""
    rules = [rule for rule in default_rules().procedural() if op in rule.ops and rule.stage in _STAGES]
    how = [_STAGES[rule.stage] for rule in rules]
    names = [rule.name for rule in rules]
    if (declared := _decompositions().get(op)) is not None:
        how.append("decomposed")
        names.append(declared.name)
    found = _measured()["ops"].get(op, {})
    if not how and op in _pytorch_decomposes(registrations()) and found.get("dtypes"):
        how.append("decomposed")  # a decomposition may end in ops without a rule; the measured samples show this
    tuples = {key: tuple(found.get(key, ())) for key in ("dtypes", "ranks", "limits")}
    return OpSupport(op, tuple(dict.fromkeys(how)), tuple(names), **tuples)


def _together(overloads: list[OpSupport]) -> OpSupport:
    """The answer for an op with all its overloads."""
    if len(overloads) == 1:
        return overloads[0]
    namespace, name, *_ = overloads[0].op.split(".")
    how, rules, dtypes, ranks, limits = (
        tuple(dict.fromkeys(item for each in overloads for item in getattr(each, field)))
        for field in ("how", "rules", "dtypes", "ranks", "limits")
    )
    return OpSupport(f"{namespace}.{name}", how, rules, dtypes, tuple(sorted(ranks)), limits, tuple(overloads))


def supported_ops() -> list[OpSupport]:
    """Every op that is converted, by name."""
    taken = {op for rule in default_rules().procedural() if rule.stage in _STAGES for op in rule.ops}
    candidates = taken | set(_decompositions()) | set(_measured()["ops"])
    return [support for op in sorted(candidates) if (support := op_support(op))]


def sweep_shares() -> dict[str, Any]:
    """For each element type, the number of PyTorch's operators whose samples all pass, and the failures of others."""
    return _measured()["sweep"]


@cache
def _measured() -> dict[str, Any]:
    return json.loads(MEASURED.read_text())


@cache
def _decompositions() -> dict[str, Any]:
    rules = all_rules()
    declared = rules.decompositions()
    taken = default_rules().procedural_ops
    of_complex = rules.decompositions(of_complex=True)
    # a decomposition for complex numbers only does not count if a rule takes all other calls
    found = {op: of_complex for op in of_complex if op not in declared and op not in taken}
    return {op: rules[op] for op, rules in (dict.fromkeys(declared, declared) | found).items()}


@lru_cache(maxsize=1)
def _pytorch_decomposes(registered: Registrations) -> frozenset[str]:
    tables = (global_decomposition_table["post_autograd"], get_decomp_table())
    ops = (op for table in tables for op in table)
    return frozenset(aten.op_name(op.name()) for op in ops if isinstance(op, OpOverload))
