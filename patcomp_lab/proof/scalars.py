"""What element-wise ops and casts mean on symbols, and new tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from patcomp.ir.aten import schema_of
from patcomp.ir.aten_facts import operators_where, ops_where
from patcomp_lab.proof.symbols import FLOAT_DTYPES, INTEGERS, MEANINGS, Symbols, UnreachedError, codes_of, meaning
from patcomp_lab.proof.worlds import CODE_OF_INFINITY, MINUS_INFINITY, CodeKind, P, World


def common_dtype(*values: Any) -> torch.dtype:
    given = [value for value in values if isinstance(value, Tensor | int | float | bool)]
    made = given[0].dtype if isinstance(given[0], Tensor) and len(given) == 1 else None
    if made is None:
        plain = [
            torch.empty(value.shape, dtype=value.dtype, device="meta") if isinstance(value, Tensor) else value
            for value in given
        ]
        made = torch.result_type(plain[0], plain[1]) if len(plain) > 1 else torch.get_default_dtype()
    return made if made in FLOAT_DTYPES or made in INTEGERS else torch.get_default_dtype()


def _rounded(codes: Tensor, dtype: torch.dtype, world: World) -> Tensor:
    """The codes of numbers in a narrower type. The last two bits of a code say which types have the number."""
    mark = TYPE_MARKS[dtype]
    exact = codes % 4 == mark
    for code, value in list(world.constants.items()):
        if float(torch.tensor(value, dtype=dtype)) == value:
            exact |= codes == code
    return torch.where(exact, codes, world.oracle(("round", mark), codes) // 4 * 4 + mark)


TYPE_MARKS = {torch.float64: 0, torch.float32: 1, torch.float16: 2, torch.bfloat16: 3}


def rounded_codes(world: World, codes: Tensor, dtype: torch.dtype) -> Symbols:
    """Codes that an operation gave in the type in which PyTorch computes, rounded to the result's type."""
    if dtype in INTEGERS:
        return Symbols(codes, dtype, world)
    if world.kind is CodeKind.BITS and dtype in (torch.float16, torch.bfloat16):
        codes = _rounded(codes // 4 * 4 + 1, dtype, world)
    elif world.kind is CodeKind.BITS:
        codes = codes // 4 * 4 + TYPE_MARKS[dtype]
    return Symbols(codes, dtype, world)


def _label(name: str, dtype: torch.dtype) -> tuple[object, ...]:
    return (name, _integer(dtype)) if dtype in INTEGERS else (name, dtype == torch.float64)


def _integer(dtype: torch.dtype) -> str:
    """The name of a type of integers. Those of 64 and 32 bits are one: narrowing is analysed elsewhere."""
    return "int" if dtype in (torch.int32, torch.int64) else str(dtype)


def _binary(name: str, commutes: bool = False) -> Callable[..., Any]:
    def compute(world: World, x: Any, y: Any, alpha: Any = 1, **options: Any) -> Any:
        if options.get("rounding_mode") is not None:
            quotient = compute(world, x, y)
            return MEANINGS[options["rounding_mode"]](world, quotient)
        dtype = common_dtype(x, y)
        if name == "div" and dtype in INTEGERS:
            dtype = torch.get_default_dtype()
        a, b = codes_of(x, world), codes_of(y, world)
        if alpha != 1:
            scale = codes_of(alpha, world)
            b = world.arithmetic("mul", b, scale) if world.kind is CodeKind.REALS else world.oracle("mul", b, scale)
        if world.kind is CodeKind.REALS and name in ("add", "sub", "mul", "div"):
            return Symbols(world.arithmetic(name, a, b), dtype, world)
        if world.kind is CodeKind.REALS:
            if commutes:
                a, b = torch.broadcast_tensors(a, b)
                a, b = torch.minimum(a, b), torch.maximum(a, b)
            return Symbols(world.oracle(name, a, b), dtype, world)
        a, b = torch.broadcast_tensors(a, b)
        return _to_the_bit(world, name, a, b, dtype)

    return compute


def _to_the_bit(world: World, name: str, a: Tensor, b: Tensor, dtype: torch.dtype) -> Symbols:
    """An oracle of two operands, after the lemmas that the world allows."""
    for lemma, operation, side, unit in _UNITS:
        number, other = (a, b) if side == 0 else (b, a)
        if operation == name and _is_all(world, number, unit) and world.takes(lemma):
            return Symbols(other.contiguous() if unit != -1 else world.negated(other), dtype, world)
    if name == "sub" and world.takes("x + -y = x - y"):
        name, b = "add", world.negated(b)
    if name in ("add", "mul") and world.takes("x + y = y + x" if name == "add" else "x * y = y * x"):
        a, b = torch.minimum(a, b), torch.maximum(a, b)
    return rounded_codes(world, world.oracle(_label(name, dtype), a, b), dtype)


def _is_all(world: World, codes: Tensor, number: float) -> bool:
    return codes.numel() > 0 and bool((codes == world.number_of(number)).all())


_UNITS = [
    *(("x * 1 = x", "mul", side, 1.0) for side in (0, 1)),
    ("x / 1 = x", "div", 1, 1.0),
    *(("x + -0 = x", "add", side, -0.0) for side in (0, 1)),
    ("x - 0 = x", "sub", 1, 0.0),
    *(("x * -1 = -x", "mul", side, -1.0) for side in (0, 1)),
]
"""Lemmas of a number as one operand, which leaves the other one as it is, or changes its sign: the lemma's name, the
operation, which operand the number is, and the number."""


def _unary(name: str) -> Callable[..., Any]:
    def compute(world: World, x: Symbols, *options: Any, **named: Any) -> Any:
        label = (*_label(name, x.dtype), *options, *sorted(named.items()))
        return rounded_codes(world, world.oracle(label, x.codes), x.dtype)

    return compute


def _is_of_two(operator: str) -> bool:
    """Whether an operator takes two numbers, each as a tensor or not."""
    schemas = filter(None, (schema_of(name) for name in ops_where("opaque") if name.split(".")[1] == operator))
    numbers = [[each for each in schema.arguments if each.type in ("Tensor", "Scalar")] for schema in schemas]
    return any(len([each for each in given if not each.has_default]) == 2 for given in numbers)


for _name in sorted(operators_where("opaque")):
    _is_commutative = _name in operators_where("commutes")
    MEANINGS[_name] = _binary(_name, _is_commutative) if _is_of_two(_name) else _unary(_name)
MEANINGS["true_divide"] = MEANINGS["div"]


@meaning("neg")
def _neg(world: World, x: Symbols) -> Any:
    if world.kind is CodeKind.REALS:
        return MEANINGS["mul"](world, x, -1.0)
    return Symbols(world.negated(x.codes), x.dtype, world)


@meaning("rsub")
def _rsub(world: World, x: Any, y: Any, alpha: Any = 1) -> Any:
    return MEANINGS["sub"](world, y, MEANINGS["mul"](world, x, alpha) if alpha != 1 else x)


@meaning("reciprocal")
def _reciprocal(world: World, x: Symbols) -> Any:
    return MEANINGS["div"](world, 1.0, x)


@meaning("square")
def _square(world: World, x: Symbols) -> Any:
    return MEANINGS["mul"](world, x, x)


_power = MEANINGS["pow"]


def _all_two(exponents: Tensor) -> bool:
    return not isinstance(exponents, Symbols) and exponents.numel() > 0 and bool((exponents == 2).all())


@meaning("pow")
def _pow(world: World, x: Any, y: Any) -> Any:
    exponent = y.item() if isinstance(y, Tensor) and not isinstance(y, Symbols) and y.numel() == 1 else y
    if isinstance(x, Symbols) and isinstance(exponent, int | float) and not (isinstance(y, Tensor) and y.dim()):
        if exponent in (2, 3) and (world.kind is CodeKind.REALS or exponent == 2):
            return MEANINGS["mul"](world, x, x if exponent == 2 else _square(world, x))
        if world.kind is CodeKind.REALS and exponent in (0.5, -0.5, -1, 1):
            root = x if abs(exponent) == 1 else MEANINGS["sqrt"](world, x)
            return root if exponent > 0 else _reciprocal(world, root)
        y = exponent
    elif world.kind is CodeKind.REALS and isinstance(x, Symbols) and isinstance(y, Tensor) and _all_two(y):
        return MEANINGS["mul"](world, x, MEANINGS["mul"](world, x, torch.ones_like(y, dtype=x.dtype)))
    return _power(world, x, y)


def _over_the_reals(name: str, formula: Callable[[World, Any], Any]) -> None:
    plain = _unary(name)

    def compute(world: World, x: Symbols, *options: Any, **named: Any) -> Any:
        return formula(world, x) if world.kind is CodeKind.REALS else plain(world, x, *options, **named)

    MEANINGS[name] = compute


def _sigmoid_of_twice(world: World, x: Any) -> Any:
    return meaning_of("sigmoid")(world, meaning_of("mul")(world, x, 2))


def meaning_of(name: str) -> Callable[..., Any]:
    return lambda world, *operands: MEANINGS[name](world, *operands)


def _root(world: World, x: Any) -> Symbols:
    return Symbols(world.root(x.codes), x.dtype, world)


def _magnitude(world: World, x: Any) -> Symbols:
    negative = (x.codes < P) & ~world.is_positive(x.codes)
    codes = torch.where(negative, (P - x.codes) % P, x.codes)
    return Symbols(torch.where(x.codes == MINUS_INFINITY, CODE_OF_INFINITY, codes), x.dtype, world)


_over_the_reals("sqrt", _root)
_over_the_reals("abs", _magnitude)
_over_the_reals("tanh", lambda w, x: meaning_of("sub")(w, meaning_of("mul")(w, _sigmoid_of_twice(w, x), 2), 1))
_over_the_reals("rsqrt", lambda w, x: _reciprocal(w, meaning_of("sqrt")(w, x)))
_over_the_reals("sigmoid", lambda w, x: _reciprocal(w, meaning_of("add")(w, meaning_of("exp")(w, _neg(w, x)), 1)))
_over_the_reals("expm1", lambda w, x: meaning_of("sub")(w, meaning_of("exp")(w, x), 1))
_over_the_reals("log1p", lambda w, x: meaning_of("log")(w, meaning_of("add")(w, x, 1)))
_over_the_reals("erfc", lambda w, x: meaning_of("sub")(w, 1, meaning_of("erf")(w, x)))


@meaning("silu")
def _silu(world: World, x: Symbols) -> Any:
    if world.kind is CodeKind.BITS:
        return _unary("silu")(world, x)
    return meaning_of("mul")(world, x, meaning_of("sigmoid")(world, x))


@meaning("gelu")
def _gelu(world: World, x: Symbols, approximate: str = "none") -> Any:
    if world.kind is CodeKind.BITS:
        return _unary("gelu")(world, x, approximate)
    add, mul = meaning_of("add"), meaning_of("mul")
    if approximate == "tanh":
        cubed = mul(world, mul(world, mul(world, x, x), x), 0.044715)
        inner = meaning_of("tanh")(world, mul(world, add(world, x, cubed), (2 / torch.pi) ** 0.5))
    else:
        inner = meaning_of("erf")(world, mul(world, x, 2**-0.5))
    return mul(world, mul(world, x, 0.5), add(world, inner, 1))


# ---- casts ---------------------------------------------------------------------------------------


def _cast(world: World, x: Symbols, dtype: torch.dtype) -> Tensor:
    """A cast of floats to the bit: a wider type has the same numbers, a narrower one rounds."""
    codes = x.codes.clone()
    widened = codes % 4 != TYPE_MARKS[x.dtype]
    if bool(widened.any()) and not world.takes("a wider type has every number"):
        known = torch.isin(codes, torch.tensor([*world.constants], dtype=torch.int64))
        other = world.oracle(("widened", x.dtype), codes) // 4 * 4 + TYPE_MARKS[x.dtype]
        codes = torch.where(widened & ~known, other, codes)
    is_wider = torch.finfo(dtype).bits > torch.finfo(x.dtype).bits
    return codes if is_wider else _rounded(codes, dtype, world)


@meaning("_to_copy", "convert_element_type", "to")
def cast_of(world: World, x: Symbols, dtype: Any = None, *rest: Any, **options: Any) -> Any:
    if dtype is None or dtype == x.dtype:
        return Symbols(x.codes.clone(), x.dtype, world)
    if x.dtype in INTEGERS and (dtype in FLOAT_DTYPES or dtype in INTEGERS):
        if dtype in INTEGERS and _integer(x.dtype) == _integer(dtype):
            return Symbols(x.codes.clone(), dtype, world)
        to = _integer(dtype) if dtype in INTEGERS else str(dtype)
        return rounded_codes(world, world.oracle(("cast", _integer(x.dtype), to), x.codes), dtype)
    if dtype in FLOAT_DTYPES:
        made = world.cast(x.codes, x.dtype, dtype) if world.kind is CodeKind.REALS else _cast(world, x, dtype)
        return Symbols(made, dtype, world)
    if dtype == torch.bool:
        return meaning_of("ne")(world, x, 0.0)
    raise UnreachedError("floats become integers")


# ---- new tensors ------------------------------------------------------------------------------------


def _like(value: float | None) -> Callable[..., Any]:
    def compute(world: World, x: Symbols, *args: Any, dtype: Any = None, **options: Any) -> Any:
        number = args[-1] if value is None else value
        shape = args[0] if args and isinstance(args[0], list | tuple | torch.Size) else x.shape
        return torch.full(tuple(shape), number, dtype=dtype or x.dtype)

    return compute


for _name, _value in {"zeros_like": 0.0, "ones_like": 1.0, "empty_like": 0.0, "full_like": None, "new_zeros": 0.0,
                      "new_ones": 1.0, "new_full": None, "new_empty": 0.0}.items():  # fmt: skip
    MEANINGS[_name] = _like(_value)


@meaning("_local_scalar_dense", "item", "nonzero", "histc", "multinomial", "bernoulli")
def _read(world: World, x: Any, *args: Any, **options: Any) -> Any:
    raise UnreachedError("a number is read from a tensor")
