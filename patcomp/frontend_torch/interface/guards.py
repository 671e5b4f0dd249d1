"""The conditions on sizes under which an exported program is right: its guards.

`torch.export` follows the branches that the example sizes take, and records the conditions as guards of its `ShapeEnv`.
A program that was loaded from a file has them as text only, `(L['x'].size()[0] % 2) == 0`.
"""

from __future__ import annotations

import ast
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from patcomp.frontend_torch.fx.nodes import graphs_of, operator_name
from patcomp.frontend_torch.fx.sizes import SYMBOLIC, known, number_of_dtype
from patcomp.interface.dims import SizeRange
from patcomp.interface.guards import Guard
from patcomp.ir.aten_facts import facts_of
from patcomp.pytorch import FloorDiv, Mod, PythonMod, free_unbacked_symbols, guards_code, pytree, sympy_interp


def guards_of(
    programs: Iterable[ExportedProgram],
    names: Mapping[sympy.Symbol, str],
    ranges: Mapping[sympy.Symbol, SizeRange],
    asked: Iterable[Any] = (),
) -> tuple[list[Guard], list[str]]:
    """The conditions of a program that do not follow from the ranges of its dimensions.

    Conditions on sizes from `.item()` are excluded, because they are conditions on values.

    Args:
        programs: the program before and after PyTorch's decomposition.
        names: the names of the symbols that the sizes of inputs determine.
        ranges: the ranges of these symbols.
        asked: further conditions, under which the program's ops were decomposed.

    Returns:
        The conditions, and the text of those that cannot be expressed as a `Guard`.
    """
    found = list(dict.fromkeys(itertools.chain(*map(conditions_of, programs), asked)))
    unreadable = [condition for condition in found if isinstance(condition, str)]
    kinds: dict[Any, Any] = {}
    for part in itertools.chain(*(_parts(condition) for condition in found if not isinstance(condition, str))):
        if not free_unbacked_symbols(part):
            kinds.setdefault(_in_one_form(part), part)
    conditions = list(kinds.values())
    whole = _whole_quotients(conditions)
    limits = {names[symbol]: limits for symbol, limits in ranges.items()}
    guards: dict[Guard, None] = {}
    for condition in conditions:
        if _always(condition.subs(whole), ranges):
            continue
        try:
            guard = sympy_interp(_Guards(), dict(names), condition)
        except (AttributeError, KeyError):
            unreadable.append(str(condition))
        else:
            if not _holds_everywhere(guard, limits):
                guards[guard] = None
    return list(guards), unreadable


def _parts(condition: Any) -> Iterator[Any]:
    """The parts of a conjunction, or the condition alone."""
    if isinstance(condition, sympy.And):
        for part in condition.args:
            yield from _parts(part)
    else:
        yield condition


def _in_one_form(condition: Any) -> Any:
    """A form that conditions with the same meaning share: `8*t >= 8*q` and `q <= t` are `(">=", t - q)`."""
    if not isinstance(condition, sympy.core.relational.Relational):
        return condition
    difference, relation = sympy.expand(condition.lhs - condition.rhs), condition.rel_op
    if relation in ("<", "<=") or (relation in ("==", "!=") and difference.could_extract_minus_sign()):
        difference, relation = -difference, relation.replace("<", ">")
    return relation, difference.as_content_primitive()[1]


# ---- what export recorded ------------------------------------------------------------------------


def conditions_of(program: ExportedProgram) -> Iterator[Any]:
    """The conditions of a program as SymPy expressions over symbols of sizes; as text if they cannot be parsed."""
    recorded = [node.meta.get("val") for node in program.graph.find_nodes(op="placeholder")]
    sizes = (size for value in recorded for size in (value.shape if isinstance(value, torch.Tensor) else (value,)))
    environment = next((size.node.shape_env for size in sizes if isinstance(size, SYMBOLIC)), None)
    is_loaded = environment is None or not environment.var_to_sources
    if environment is not None:
        lows = {symbol: limits.lower for symbol, limits in environment.var_to_range.items()}
        usual = {symbol: int(low) for symbol, low in lows.items() if isinstance(low, sympy.Integer)}
        assumed = {symbol: (max(low, 2) if is_loaded else low, None) for symbol, low in usual.items()}
        nodes = (node for graph in graphs_of(program) for node in graph.nodes)
        matters = any(facts_of(operator_name(node)).layout for node in nodes)
        for guard in environment.guards:
            condition = environment.replace(guard.expr)
            if is_loaded and _always(condition, assumed):
                # decomposition asked it anew. Before it is saved, a program has such answers without a guard, because
                # export assumes sizes of 2 or more; the same graph follows, which is tried at smaller sizes.
                continue
            if not _is_of_layout(guard) or (matters and not _always(condition, assumed)):
                yield condition
    if is_loaded:
        codes = guards_code(program)
        if codes is None and environment is not None:
            yield "conditions hold that this PyTorch does not keep in a file"
        inputs = _inputs(program) if codes else {}
        for code in codes or ():
            try:
                read = known(_read(ast.parse(code, mode="eval").body, inputs))
            except (_UnreadableError, SyntaxError, TypeError, ZeroDivisionError):
                yield code
            else:
                yield read.node.expr if isinstance(read, SYMBOLIC) else sympy.sympify(read)
    for node in program.graph.nodes:  # `torch._check` leaves conditions that are no guards
        if operator_name(node) == "aten._assert_scalar":
            given = node.args[0]
            size: Any = given.meta.get("val") if isinstance(given, torch.fx.Node) else given
            if isinstance(known(size), SYMBOLIC):
                yield size.node.expr


def _is_of_layout(guard: Any) -> bool:
    """Whether a condition only concerns the memory layout of a tensor: a view of a whole cache is contiguous, a view of
    a part is not. The IR has no layouts.

    Such a condition is no guard if no op of the program depends on layouts. It is none either if it holds for sizes
    of 2 or more: export assumes these sizes, and at smaller sizes only the layout depends on the condition.
    """
    frame = guard.sloc.framework_loc
    file, name = getattr(frame, "filename", ""), getattr(frame, "name", "")
    is_asked = "_prims_common" in file and ("contiguous" in name or "overlapping" in name)
    return is_asked or ("_meta_registrations" in file and name == "meta_copy_")  # whether its elements overlap


class _UnreadableError(Exception):
    """The text of a condition cannot be parsed."""


def _inputs(program: ExportedProgram) -> dict[str, Any]:
    """The recorded value of each input, by its path in the text of conditions: `p_b_0` for `L['p']['b'][0]`."""
    nodes = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
    specs = [spec for spec in program.graph_signature.input_specs if spec.kind == InputKind.USER_INPUT]
    if program.call_spec.in_spec is not None:
        specs = specs[: program.call_spec.in_spec.num_leaves]  # random numbers follow
    leaves = [nodes[spec.arg.name].meta.get("val") if spec.arg.name in nodes else None for spec in specs]
    found: dict[str, list[Any]] = {f"flat_args_{index}": [leaf] for index, leaf in enumerate(leaves)}
    signature = program.module_call_graph[0].signature
    if signature is not None and signature.forward_arg_names and program.call_spec.in_spec is not None:
        args, kwargs = pytree.tree_unflatten(leaves, program.call_spec.in_spec)
        named = dict(zip(signature.forward_arg_names, args, strict=False)) | kwargs
        for path, leaf in pytree.tree_leaves_with_path(named):
            keys = (str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))) for key in path)
            found.setdefault("_".join(keys), []).append(leaf)
    return {path: values[0] for path, values in found.items() if len(values) == 1}


_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
    ast.Not: torch.sym_not,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.And: operator.and_,
    ast.Or: operator.or_,
}
_CALLS: dict[str, Callable[..., Any]] = {
    "min": torch.sym_min,
    "max": torch.sym_max,
    "abs": abs,
    "math.floor": math.floor,
    "math.ceil": math.ceil,
    "math.trunc": math.trunc,
    "torch.sym_float": torch.sym_float,
    "torch._sym_sqrt": torch.sym_sqrt,
}


def _read(node: ast.expr, inputs: Mapping[str, Any]) -> Any:
    """The size for an expression that PyTorch printed. The expression is parsed, never executed."""
    read = partial(_read, inputs=inputs)
    match node:
        case ast.Constant(value=bool() | int() | float()):
            return node.value
        case ast.BinOp(left=left, op=op, right=right) | ast.Compare(left=left, ops=[op], comparators=[right]):
            function, operands = _OPERATORS.get(type(op)), [left, right]
        case ast.UnaryOp(op=op, operand=operand):
            function, operands = _OPERATORS.get(type(op)), [operand]
        case ast.BoolOp(op=op, values=[first, *others]):
            result, function = read(first), _OPERATORS[type(op)]
            for other in others:
                result = function(result, read(other))
            return result
        case ast.Subscript(value=ast.Call(func=ast.Attribute(value=tensor, attr="size"), args=[]), slice=axis):
            shape, index = getattr(_input(tensor, inputs), "shape", ()), read(axis)
            if not isinstance(index, int) or index >= len(shape):
                raise _UnreadableError
            return shape[index]
        case ast.Subscript() | ast.Attribute():
            return _input(node, inputs)
        case ast.Call(func=called, args=operands, keywords=[]):
            function = _CALLS.get(ast.unparse(called))
        case _:
            raise _UnreadableError
    if function is None:
        raise _UnreadableError
    return function(*map(read, operands))


def _input(node: ast.expr, inputs: Mapping[str, Any]) -> Any:
    """The input for `L['p']['b'][0]`."""
    keys: list[str] = []
    while not isinstance(node, ast.Name):
        match node:
            case ast.Subscript(value=outer, slice=ast.Constant(value=key)) | ast.Attribute(value=outer, attr=key):
                keys.insert(0, str(key))
                node = outer
            case _:
                raise _UnreadableError
    path = "_".join(keys)
    if node.id != "L" or path not in inputs:
        raise _UnreadableError
    return inputs[path]


# ---- conditions as data --------------------------------------------------------------------------


class _Guards:
    """What `sympy_interp` calls to make a `Guard` of an expression."""

    def __getattr__(self, handler: str) -> Callable[..., Guard]:
        names = {
            "and_": "and", "or_": "or", "not_": "not",
            "eq": "==", "ne": "!=", "lt": "<", "gt": ">", "ge": ">=",
            "floordiv": "//", "mod": "%", "python_mod": "%", "int_truediv": "/", "truediv": "/",
            "pow": "**", "pow_by_natural": "**", "minimum": "min", "maximum": "max", "abs": "abs", "sqrt": "sqrt",
            "to_dtype": "float",
            "floor_to_int": "floor", "ceil_to_int": "ceil", "trunc_to_int": "trunc", "round_to_int": "round",
        }  # fmt: skip
        if handler not in names:
            raise AttributeError(handler)
        return lambda *operands: Guard(names[handler], tuple(o for o in operands if not isinstance(o, torch.dtype)))

    constant = staticmethod(number_of_dtype)

    def identity(self, size: Any) -> Any:
        return size

    def le(self, a: Any, b: Any) -> Guard:
        is_remainder = isinstance(a, Guard) and a.operator == "%"
        return Guard("==" if is_remainder and b == 0 else "<=", (a, b))

    def mul(self, a: Any, b: Any) -> Any:
        return b if a == 1 else Guard("*", (a, b))

    def add(self, a: Any, b: Any) -> Guard:
        if _is_negative(a) and not _is_negative(b):
            a, b = b, a
        return Guard("-", (a, self._negative(b))) if _is_negative(b) else Guard("+", (a, b))

    def _negative(self, size: Any) -> Any:
        if not isinstance(size, Guard):
            return -size
        factor, *others = size.operands
        return self.mul(self._negative(factor), *others)

    def modular_indexing(self, base: Any, divisor: Any, modulus: Any) -> Guard:
        return Guard("%", (Guard("//", (base, divisor)), modulus))


def _is_negative(size: Any) -> bool:
    """Whether a term of a sum has a negative factor in front."""
    if isinstance(size, Guard):
        return size.operator == "*" and _is_negative(size.operands[0])
    return isinstance(size, int | float) and size < 0


# ---- conditions that always hold -----------------------------------------------------------------


def _always(condition: Any, ranges: Mapping[sympy.Symbol, SizeRange]) -> bool:
    """Whether a condition provably holds for all sizes in the ranges of the dimensions."""
    if condition in (sympy.true, sympy.false):
        return bool(condition)
    if isinstance(condition, sympy.And | sympy.Or):
        return (all if isinstance(condition, sympy.And) else any)(_always(part, ranges) for part in condition.args)
    if not isinstance(condition, sympy.core.relational.Relational):
        return False
    if (known_remainder := _of_remainder(condition, ranges)) is not None:
        return known_remainder
    difference = condition.rhs - condition.lhs
    at_least, at_most = _least(difference, ranges), -_least(-difference, ranges)
    step = 1 if difference.is_integer else sympy.Rational(1, 10**9)
    return bool(
        {
            sympy.Eq: lambda: at_least == at_most == 0,
            sympy.Ne: lambda: at_least >= step or at_most <= -step,
            sympy.Le: lambda: at_least >= 0,
            sympy.Lt: lambda: at_least >= step,
            sympy.Ge: lambda: at_most <= 0,
            sympy.Gt: lambda: at_most <= -step,
        }[condition.func]()
    )


def _of_remainder(condition: Any, ranges: Mapping[sympy.Symbol, SizeRange]) -> bool | None:
    """Whether a remainder is zero, or is not; None for other conditions, and for remainders that are not found.

    `q * b + r` has the remainder of `r`, which is 0 only for `r == 0` if `|r| < b`. Quotients in both are variables:
    `(128 + 128 * (n // 8)) % (1 + n // 8) == 0`.
    """
    if condition.rhs != 0 or not isinstance(condition, sympy.Eq | sympy.Ne | sympy.Le):
        return None
    if not isinstance(condition.lhs, Mod | PythonMod):
        return None
    value, divisor = condition.lhs.args
    quotients = sorted(divisor.atoms(FloorDiv), key=lambda part: -part.count_ops())
    variables = {part: sympy.Dummy(integer=True) for part in quotients}
    above, below = value.subs(variables), divisor.subs(variables)
    found = below.free_symbols | above.free_symbols
    if len(found) != 1 or not (above.is_polynomial() and below.is_polynomial()):
        return None
    (variable,) = found
    factor, rest = sympy.div(above, below, variable)
    whole = all(coefficient.is_Integer for coefficient in sympy.Poly(factor, variable).coeffs())
    parts = [part for part, dummy in variables.items() if dummy == variable] or [variable]
    lowest = _least(parts[0], ranges)
    if not whole or not rest.is_Integer or not lowest.is_finite:
        return None
    if not abs(rest) < _least(below, {variable: (int(lowest), None)}):
        return None
    return bool((rest == 0) != isinstance(condition, sympy.Ne))


_FEW = 4096
"""The largest number of sizes to try."""


def _holds_everywhere(guard: Guard, ranges: Mapping[str, SizeRange]) -> bool:
    """Whether a condition holds for all sizes in the ranges of its dimensions; False if they are too many to try."""
    limits = [ranges[name] for name in guard.names]
    sizes = [range(low, low + _FEW + 1 if high is None else high + 1) for low, high in limits]
    if math.prod(map(len, sizes)) > _FEW:
        return False
    return all(guard.value(dict(zip(guard.names, case, strict=True))) for case in itertools.product(*sizes))


def _whole_quotients(conditions: Sequence[Any]) -> dict[sympy.Expr, sympy.Expr]:
    """The quotients without a remainder in some conditions, as fractions: `s // 2` is `s / 2` where `s % 2 == 0`."""
    remainders = (
        condition.lhs
        for condition in conditions
        if isinstance(condition, sympy.Eq | sympy.Le) and condition.rhs == 0 and isinstance(condition.lhs, Mod)
    )
    return {FloorDiv(*each.args): sympy.cancel(each.args[0] / each.args[1]) for each in remainders}


def _least(size: Any, ranges: Mapping[sympy.Symbol, SizeRange]) -> Any:
    """A lower bound of an expression; minus infinity if none is found.

    Replace quotients and remainders by their bounds, then write each dimension as its smallest size plus a rest, or its
    largest size minus a rest. If no rest has a negative factor, the constant term is a lower bound.
    """
    is_integer, size = size.is_integer, sympy.expand(size)
    for part in sorted(size.atoms(FloorDiv, Mod, PythonMod), key=lambda part: -part.count_ops()):
        factor, (value, divisor) = size.coeff(part), part.args
        is_linear = factor.is_number and not sympy.expand(size - factor * part).has(part)
        if not is_linear or not divisor.is_Integer or divisor <= 0:
            return -sympy.oo
        low, high = (value - divisor + 1) / divisor, value / divisor
        if not isinstance(part, FloorDiv):
            low, high = sympy.Integer(0), divisor - 1
        size = sympy.expand(size.subs(part, low if factor > 0 else high))
    symbols = sorted(size.free_symbols, key=str)
    if not size.is_polynomial(*symbols):
        return -sympy.oo
    choices = []
    for symbol in symbols:
        low, high = ranges.get(symbol, (0, None))
        choices.append([low + symbol] + ([] if high is None else [high - symbol]))
    for chosen in itertools.product(*choices):
        shifted = size.subs(dict(zip(symbols, chosen, strict=True)), simultaneous=True)
        terms = sympy.Poly(shifted, *symbols).terms() if symbols else [((), shifted)]
        if all(factor >= 0 for powers, factor in terms if any(powers)):
            constant = sum(factor for powers, factor in terms if not any(powers))
            return sympy.ceiling(constant) if is_integer else constant
    return -sympy.oo
