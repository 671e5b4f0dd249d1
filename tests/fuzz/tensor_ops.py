"""Templates of operators that compute: elementwise, reductions, products, casts."""

from __future__ import annotations

from collections.abc import Callable

import torch

from tests.fuzz.generator import Draw, Skip, Templates, Value

TEMPLATES = Templates()
FLOATS = ("torch.float32", "torch.float32", "torch.float32", "torch.float16")
INTEGERS = ("torch.int64", "torch.int32")


def is_float(x: Value) -> bool:
    return x.is_float


def is_integer(x: Value) -> bool:
    return x.dtype in (torch.int64, torch.int32)


def is_number(x: Value) -> bool:
    return x.dtype != torch.bool


def is_bool(x: Value) -> bool:
    return x.dtype == torch.bool


def is_finite(x: Value) -> bool:
    """Whether no number is infinite or NaN: eager PyTorch leaves to its kernels what a sum makes of 0 * infinity."""
    return all(bool(tensor.isfinite().all()) for tensor in (x.tensor, x.other))


def has_rank(low: int, high: int = 9) -> Callable[[Value], bool]:
    """The condition that a value has a rank in a range."""
    return lambda x: low <= x.rank <= high


def axis_of(g: Draw, x: Value) -> int:
    """An axis, counted from either end."""
    if x.rank == 0:
        raise Skip
    return g.integer(-x.rank, x.rank - 1)


def static_axis(g: Draw, x: Value) -> int:
    """An axis whose size is known."""
    axes = [axis for axis in range(x.rank) if not x.is_open(axis)]
    if not axes:
        raise Skip
    return g.choice(axes)


def number(g: Draw, x: Value) -> str:
    """A Python number for arithmetic with a value."""
    if x.is_float and g.chance(0.7):
        return g.choice(["0.5", "-1.5", "2.0", "0.125", "3.25", "-0.75", "1.0", "0.0"])
    return g.choice(["1", "2", "3", "-1", "-2", "5", "0"])


# ---- elementwise -----------------------------------------------------------------------------------

UNARY = (
    "torch.relu({})", "torch.tanh({})", "torch.sigmoid({})", "torch.exp({})", "torch.sin({})", "torch.cos({})",
    "torch.erf({})", "torch.atan({})", "torch.sinh({})", "torch.asinh({})", "torch.exp2({})", "torch.expm1({})",
    "torch.sqrt({}.abs())", "torch.rsqrt({}.abs() + 0.5)", "torch.log({}.abs() + 0.25)", "torch.log1p({}.abs())",
    "torch.log2({}.abs() + 1)", "torch.reciprocal({} + 10.0)", "F.gelu({})", "F.gelu({}, approximate='tanh')",
    "F.silu({})", "F.softplus({})", "F.elu({}, 0.5)", "F.leaky_relu({}, 0.25)", "F.hardtanh({}, -0.5, 1.5)",
    "F.hardswish({})", "F.hardsigmoid({})", "F.mish({})", "F.logsigmoid({})", "F.celu({}, 0.75)", "F.selu({})",
    "F.softsign({})", "F.tanhshrink({})", "F.relu6({})", "torch.nan_to_num({}, 0.5)", "F.softshrink({}, 0.3125)",
    "F.hardshrink({}, 0.3125)", "F.threshold({}, 0.3125, -1.0)", "torch.special.expit({})", "torch.sinc({})",
)  # fmt: skip
ANY_UNARY = (
    "-{}", "{}.abs()", "{} * {}", "{}.square()", "torch.sign({})", "torch.clone({})", "{}.contiguous()", "{} ** 2",
    "{} ** 3", "torch.clamp({}, -1, 2)", "torch.clamp({}, min=0)", "torch.clamp({}, max=1)", "torch.zeros_like({})",
    "torch.ones_like({})", "torch.full_like({}, 2)", "{}.detach()", "{} + {}", "torch.positive({})",
)  # fmt: skip
ROUNDING = (
    "torch.floor({})", "torch.ceil({})", "torch.round({})", "torch.trunc({})", "torch.frac({})",
    "torch.round({}, decimals=1)",
)  # fmt: skip
BINARY = (
    "{0} + {1}", "{0} - {1}", "{0} * {1}", "torch.maximum({0}, {1})", "torch.minimum({0}, {1})",
    "torch.add({0}, {1}, alpha=2)", "torch.sub({0}, {1}, alpha=3)", "{1} - {0}",
)  # fmt: skip
FLOAT_BINARY = (
    "{0} / ({1}.abs() + 0.5)", "torch.atan2({0}, {1}.abs() + 0.25)", "torch.hypot({0}, {1})",
    "torch.lerp({0}, {1}, 0.25)",
    "torch.addcmul({0}, {1}, {1}, value=0.5)", "torch.addcdiv({0}, {1}, {1}.abs() + 1, value=-2.0)",
    "torch.pow({0}.abs() + 0.5, {1})", "torch.logaddexp({0}, {1})", "torch.xlogy({0}, {1}.abs() + 1)",
    "torch.copysign({0}, {1})", "torch.fmax({0}, {1})", "torch.ldexp({0}, torch.tensor(2))", "F.prelu({0}, {2})",
)  # fmt: skip
DIVISIONS = (
    "{0} // {1}", "{0} % {1}", "torch.fmod({0}, {1})", "torch.remainder({0}, {1})",
    "torch.div({0}, {1}, rounding_mode='trunc')", "torch.div({0}, {1}, rounding_mode='floor')", "{0} / {1}",
)  # fmt: skip
INTEGER_BINARY = ("{0} & {1}", "{0} | {1}", "{0} ^ {1}", "torch.gcd({0}, {1})", "{0} << 2", "{0} >> 1", "~{0}")
COMPARISONS = ("{0} > {1}", "{0} >= {1}", "{0} < {1}", "{0} <= {1}", "{0} == {1}", "{0} != {1}")


@TEMPLATES.register(6)
def unary(g: Draw) -> None:
    g.add(g.choice(UNARY).format(g.value(is_float)))


@TEMPLATES.register()
def undefined_somewhere(g: Draw) -> None:
    g.add(g.choice(("torch.log({})", "torch.sqrt({})", "torch.rsqrt({})", "1 / {}", "{} / {}.relu()", "torch.acos({})",
                    "torch.nan_to_num({} / 0, 7.0)")).replace("{}", str(g.value(is_float))))  # fmt: skip


@TEMPLATES.register(2)
def any_unary(g: Draw) -> None:
    x = g.value(is_number)
    g.add(g.choice(ANY_UNARY).format(x, x))


@TEMPLATES.register()
def rounding(g: Draw) -> None:
    g.add(g.choice(ROUNDING).format(g.value(is_float)))


def partner(g: Draw, x: Value, condition: Callable[[Value], bool]) -> str:
    """Something that may be combined with a value elementwise."""
    chance = g.integer(0, 9)
    if chance < 5:
        try:
            return str(g.value(condition, lambda y: y.name != x.name, lambda y: _broadcasts(x, y)))
        except Skip:
            return str(x)
    if chance < 8:
        return number(g, x)
    shape = [1 if x.is_open(axis) or g.chance(0.3) else x.shape[axis] for axis in range(x.rank)]
    return g.weight(*shape[g.integer(0, x.rank) :], dtype=torch.float32 if x.is_float else x.dtype)


def _broadcasts(x: Value, y: Value) -> bool:
    try:
        torch.broadcast_shapes(x.shape, y.shape)
        torch.broadcast_shapes(tuple(x.other.shape), tuple(y.other.shape))
    except RuntimeError:
        return False
    return True


@TEMPLATES.register(6)
def binary(g: Draw) -> None:
    x = g.value(is_number)
    other = partner(g, x, is_number)
    code = g.choice(BINARY)
    g.add(code.format(x, other if "torch." not in code or not _is_literal(other) else x))


def _is_literal(code: str) -> bool:
    return code.lstrip("-")[0].isdigit()


@TEMPLATES.register(3)
def float_binary(g: Draw) -> None:
    x = g.value(is_float)
    other = partner(g, x, is_float)
    code = g.choice(FLOAT_BINARY)
    slope = ""
    if "{2}" in code:
        if x.rank < 2 or x.is_open(1):
            raise Skip
        slope = g.weight(x.shape[1], dtype=x.dtype)
    g.add(code.format(x, str(x) if _is_literal(other) else other, slope))


@TEMPLATES.register(2)
def division(g: Draw) -> None:
    x = g.value(is_number)
    divisor = g.choice(["2", "3", "-2", "7", "-5"])
    if g.chance(0.3):
        y = g.value(is_number, lambda y: _broadcasts(x, y))
        divisor = f"({y}.abs() + 1)" if g.chance(0.5) else f"(-{y}.abs() - 2)"
    g.add(g.choice(DIVISIONS).format(x, divisor))


@TEMPLATES.register(2)
def integer_binary(g: Draw) -> None:
    x = g.value(is_integer)
    y = g.value(is_integer, lambda y: _broadcasts(x, y))
    g.add(g.choice(INTEGER_BINARY).format(x, y))


@TEMPLATES.register(3)
def comparison(g: Draw) -> None:
    x = g.value(is_number)
    other = partner(g, x, is_number) if g.chance(0.5) else g.choice(["0", "0.3125", "1", "-0.4375"])
    g.add(g.choice(COMPARISONS).format(x, other))


@TEMPLATES.register(2)
def where(g: Draw) -> None:
    x = g.value(is_number)
    y = g.value(is_number, lambda y: _broadcasts(x, y))
    mask = g.value(is_bool, lambda m: _broadcasts(x, m)) if g.chance(0.7) else f"({x} > 0)"
    g.add(
        g.choice([
            f"torch.where({mask}, {x}, {y})", f"torch.where({mask}, {x}, 0.5)", f"{x}.masked_fill({mask}, -1)",
            f"torch.where({mask}, -{x}, {y})", f"{x} * {mask}",
        ])
    )  # fmt: skip


@TEMPLATES.register(2)
def logic(g: Draw) -> None:
    x = g.value(is_bool)
    y = g.value(is_bool, lambda y: _broadcasts(x, y))
    g.add(
        g.choice([
            f"{x} & {y}", f"{x} | {y}", f"{x} ^ {y}", f"~{x}", f"{x} + {y}", f"{x}.any()", f"{x}.all(0)",
            f"{x}.sum()", f"{x}.sum(-1)", f"torch.logical_and({x}, {y})", f"{x}.long() + 1", f"{x}.to(torch.float32)",
        ])
    )  # fmt: skip


@TEMPLATES.register(3)
def cast(g: Draw) -> None:
    x = g.value()
    target = g.choice([*FLOATS, *INTEGERS, "torch.bool"])
    if target in INTEGERS and x.is_float and g.chance(0.5):
        g.add(f"({x} * 4).to({target})")
    else:
        g.add(f"{x}.to({target})")


# ---- reductions ------------------------------------------------------------------------------------

REDUCTIONS = (
    "{x}.sum({d}, keepdim={k})", "{x}.mean({d}, keepdim={k})", "{x}.amax({d}, keepdim={k})",
    "{x}.amin({d}, keepdim={k})", "{x}.sum()", "{x}.mean()", "{x}.amax()", "torch.cumsum({x}, {d})",
    "{x}.var({d}, correction={c}, keepdim={k})", "{x}.std({d}, correction=0, keepdim={k})",
    "torch.logsumexp({x}, {d}, keepdim={k})", "torch.linalg.vector_norm({x}, 2, dim={d}, keepdim={k})",
    "{x}.norm(1, {d}, {k})", "{x}.prod({d}, keepdim={k})", "torch.softmax({x}, {d})", "torch.log_softmax({x}, {d})",
    "F.softmin({x}, {d})", "F.normalize({x}, dim={d})", "torch.logcumsumexp({x}, {d})", "{x}.diff(dim={d})",
    "{x}.max({d}, keepdim={k}).values", "{x}.min({d}).values", "torch.cummax({x}, {d}).values",
    "{x}.sum({a}, keepdim={k})",
    "{x}.mean({a})", "{x}.var({a}, correction=0)", "torch.aminmax({x}, dim={d}).max", "{x}.nansum({d})",
    "torch.softmax({x} * 0.5, {d}, dtype=torch.float32)", "{x}.sum({d}, dtype=torch.float32)",
)  # fmt: skip
INTEGER_REDUCTIONS = (
    "{x}.sum({d}, keepdim={k})", "{x}.amax({d}, keepdim={k})", "torch.cumsum({x}, {d})", "{x}.prod({d})", "{x}.sum()",
    "{x}.max({d}).values", "{x}.amin()", "{x}.any({d})", "{x}.all({d}, keepdim={k})", "{x}.count_nonzero({d})",
)  # fmt: skip
POSITIONS = (
    "{x}.argmax({d}, keepdim={k})", "{x}.argmin({d})", "{x}.max({d}).indices", "torch.argsort({x}, {d})",
    "{x}.sort({d}, descending=True).indices", "{x}.argmax()",
)  # fmt: skip


def axes_of(g: Draw, x: Value) -> tuple[int, ...]:
    """Some axes."""
    if x.rank == 0:
        raise Skip
    axes = g.rng.sample(range(x.rank), g.integer(1, x.rank))
    return tuple(axis - x.rank if g.chance(0.5) else axis for axis in axes)


@TEMPLATES.register(6)
def reduction(g: Draw) -> None:
    x = g.value(is_number, has_rank(1))
    code = g.choice(REDUCTIONS if x.is_float else INTEGER_REDUCTIONS)
    g.add(code.format(x=x, d=axis_of(g, x), a=axes_of(g, x), k=g.chance(0.5), c=g.integer(0, 1)))


@TEMPLATES.register(2)
def positions(g: Draw) -> None:
    x = g.value(is_number, has_rank(1), _is_distinct)
    g.add(g.choice(POSITIONS).format(x=x, d=axis_of(g, x), k=g.chance(0.5)))


def _is_distinct(x: Value) -> bool:
    """Whether no two elements are equal, so that their order is no matter of luck."""
    return all(len(tensor.flatten().unique()) == tensor.numel() for tensor in (x.tensor, x.other))


@TEMPLATES.register(2)
def sorting(g: Draw) -> None:
    x = g.value(is_number, has_rank(1))
    axis = axis_of(g, x)
    k = g.integer(1, min(x.tensor.shape[axis], x.other.shape[axis], 3) or 1)
    g.add(
        g.choice([
            f"{x}.sort({axis}).values", f"{x}.topk({k}, {axis}).values", f"{x}.sort({axis}, descending=True).values",
            f"{x}.topk({k}, {axis}, largest=False).values", f"{x}.kthvalue({k}, {axis}).values + 0",
            f"{x}.median({axis}).values + 0",  # which of 0 and -0 is chosen is a matter of luck
        ])
    )  # fmt: skip


# ---- products --------------------------------------------------------------------------------------


@TEMPLATES.register(3)
def linear(g: Draw) -> None:
    x = g.value(is_float, has_rank(1, 4), lambda x: not x.is_open(-1))
    size, out = x.shape[-1], g.integer(1, 5)
    weight = g.weight(out, size, dtype=x.dtype)
    bias = f", {g.weight(out, dtype=x.dtype)}" if g.chance(0.5) else ""
    g.add(g.choice([f"F.linear({x}, {weight}{bias})", f"{x} @ {weight}.t()", f"torch.matmul({x}, {weight}.mT)"]))


@TEMPLATES.register(3)
def product(g: Draw) -> None:
    x = g.value(is_float, has_rank(2))
    y = g.value(is_float, has_rank(2), lambda y: y.dtype == x.dtype)
    g.add(
        g.choice([
            f"{x} @ {y}", f"{x} @ {y}.mT", f"{x}.mT @ {y}", f"torch.einsum('...ij,...kj->...ik', {x}, {y})",
            f"({x} * {y}).sum(-1)", f"torch.einsum('...ij,...ij->...i', {x}, {y})", f"torch.tensordot({x}, {y}.mT, 1)",
            f"torch.outer({x}.flatten(), {y}.flatten())", f"torch.cdist({x}, {y})", f"torch.kron({x}, {y})",
        ])
    )  # fmt: skip


@TEMPLATES.register(3)
def convolution(g: Draw) -> None:
    x = g.value(is_float, is_finite, has_rank(3, 4), lambda x: not x.is_open(1) and x.shape[1] > 0)
    channels, dims = x.shape[1], x.rank - 2
    groups = channels if g.chance(0.3) else 1
    kernel = [g.integer(1, 3) for _ in range(dims)]
    transposed = g.chance(0.25)
    out = groups * g.integer(1, 3)
    shape = (channels, out // groups, *kernel) if transposed else (out, channels // groups, *kernel)
    weight = g.weight(*shape, dtype=x.dtype, low=-1, high=1)
    bias = g.weight(out, dtype=x.dtype) if g.chance(0.5) else "None"
    options = f"stride={g.integer(1, 2)}, padding={g.integer(0, 2)}, groups={groups}, dilation={g.integer(1, 2)}"
    g.add(f"F.conv{'_transpose' if transposed else ''}{dims}d({x}, {weight}, {bias}, {options})")


@TEMPLATES.register(3)
def recurrent(g: Draw) -> None:
    """A layer of `nn.LSTM`, `nn.GRU` or `nn.RNN`, as these modules call it."""
    batch_first = g.chance(0.5)
    steps = 1 if batch_first else 0
    x = g.value(is_float, is_finite, has_rank(3, 3), lambda x: not x.is_open(steps) and not x.is_open(2))
    if not 0 < x.shape[steps] <= 4 or x.dtype != torch.float32:
        raise Skip
    kind, gates = g.choice([("lstm", 4), ("gru", 3), ("rnn_tanh", 1), ("rnn_relu", 1)])
    width, directions, has_biases = g.integer(1, 3), g.integer(1, 2), g.chance(0.7)
    shapes = [(gates * width, x.shape[2]), (gates * width, width), *([(gates * width,)] * 2 if has_biases else [])]
    weights = ", ".join(g.weight(*shape, low=-1, high=1) for _ in range(directions) for shape in shapes)
    start = f"{x}.new_zeros({directions}, {x.size(1 - steps)}, {width})"
    start = f"({start}, {start})" if kind == "lstm" else start
    options = f"{has_biases}, 1, 0.0, False, {directions == 2}, {batch_first}"
    g.add(f"torch.{kind}({x}, {start}, [{weights}], {options})[{g.integer(0, 1)}]")


@TEMPLATES.register(2)
def pooling(g: Draw) -> None:
    x = g.value(is_float, is_finite, has_rank(3, 4))
    dims = x.rank - 2
    linear = "linear" if dims == 1 else "bilinear"
    kernel = g.integer(1, 3)
    stride, padded, ceil = g.integer(1, 3), g.integer(0, kernel // 2), g.chance(0.3)
    options = f"{kernel}, {stride}, {padded}, ceil_mode={ceil}"
    g.add(
        g.choice([
            f"F.max_pool{dims}d({x}, {kernel}, {stride}, {padded}, ceil_mode={ceil})",
            f"F.avg_pool{dims}d({x}, {options})",
            f"F.avg_pool{dims}d({x}, {options}, count_include_pad=False)",
            f"F.adaptive_avg_pool{dims}d({x}, {g.integer(1, 3)})",
            f"F.interpolate({x}, scale_factor={g.choice([2, 1.5, 0.5])}, mode='nearest')",
            f"F.interpolate({x}, scale_factor=2, mode='{linear}', align_corners={g.chance(0.5)})",
        ])
    )  # fmt: skip


@TEMPLATES.register()
def embedding(g: Draw) -> None:
    x = g.value(is_integer, has_rank(0, 3))
    g.add(f"F.embedding({x}.long() % 5, {g.weight(5, g.integer(1, 4))})")
