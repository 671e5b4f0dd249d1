"""Templates of composites as models write them, with one detail changed or not, and inner values used elsewhere."""

from __future__ import annotations

import torch

from tests.fuzz.generator import Draw, Skip, Templates, Value
from tests.fuzz.tensor_ops import axis_of, has_rank, is_float

TEMPLATES = Templates()


def varied(g: Draw, usual: str, *others: str) -> str:
    """The usual detail three times of four, one of the others else."""
    return usual if g.chance(0.75) else g.choice(others)


def is_single(x: Value) -> bool:
    return x.dtype == torch.float32


def scaled(g: Draw, x: Value, y: str, axis: int = -1) -> None:
    """A weight and a bias for a normalized value."""
    if x.is_open(axis):
        return
    shape = [1] * (-axis - 1)
    weight = g.weight(x.shape[axis], *shape)
    code = varied(g, f"{y} * {weight}", f"{weight} * {y}", f"{y} * (1 + {weight})", f"{y} / {weight}")
    if g.chance(0.6):
        code += f" {varied(g, '+', '-')} {g.weight(x.shape[axis], *shape)}"
    g.add(code)


@TEMPLATES.register()
def layer_norm(g: Draw) -> None:
    x = g.value(is_single, has_rank(1))
    axis = varied(g, "-1", str(axis_of(g, x)), "(-2, -1)" if x.rank > 1 else "-1")
    eps = varied(g, "1e-5", "1e-3", "0.5", "0.0625")
    mean = g.add(f"{x}.mean({axis}, keepdim=True)")
    centered = g.add(f"{x} {varied(g, '-', '+')} {mean}")
    variance = g.choice([f"{centered}.pow(2).mean({axis}, keepdim=True)",
    f"{x}.var({axis}, keepdim=True, correction=0)",
                         f"({centered} * {centered}).mean({axis}, keepdim=True)",
                         f"{x}.var({axis}, keepdim=True)",
                         f"({x} * {x}).mean({axis}, keepdim=True) - {mean} * {mean}"])  # fmt: skip
    v = g.add(variance)
    code = g.choice([f"{centered} / torch.sqrt({v} + {eps})", f"{centered} * torch.rsqrt({v} + {eps})",
                     f"{centered} / (torch.sqrt({v}) + {eps})", f"{centered} / torch.sqrt({v}.clamp(min={eps}))",
                     f"{x} * torch.rsqrt({v} + {eps})"])  # fmt: skip
    scaled(g, x, str(g.add(code)))


@TEMPLATES.register()
def fused_norm(g: Draw) -> None:
    x = g.value(is_float, has_rank(2), lambda x: not x.is_open(-1))
    size = x.shape[-1]
    weight = g.weight(size, dtype=x.dtype) if g.chance(0.7) else "None"
    bias = g.weight(size, dtype=x.dtype) if g.chance(0.5) else "None"
    eps = g.choice(["1e-5", "1e-3", "0.25"])
    options = [f"F.layer_norm({x}, ({size},), {weight}, {bias}, {eps})", f"F.rms_norm({x}, ({size},), {weight}, {eps})"]
    if x.rank >= 3 and not x.is_open(1):
        groups = g.choice([d for d in range(1, x.shape[1] + 1) if x.shape[1] % d == 0])
        channels = g.weight(x.shape[1], dtype=x.dtype)
        options.append(f"F.group_norm({x}, {groups}, {channels}, {channels}, {eps})")
        options.append(f"F.instance_norm({x}, eps={eps})")
        variance = g.weight(x.shape[1], dtype=x.dtype, low=1, high=3)
        options.append(f"F.batch_norm({x}, {channels}, {variance}, {channels}, None, False, 0.1, {eps})")
    g.add(g.choice(options))


@TEMPLATES.register()
def rms_norm(g: Draw) -> None:
    x = g.value(is_float, has_rank(1))
    wide = g.add(f"{x}.to(torch.float32)") if x.dtype != torch.float32 or g.chance(0.3) else x
    axis = varied(g, "-1", str(axis_of(g, x)))
    square = g.choice([f"{wide}.pow(2)", f"{wide} * {wide}", f"{wide}.square()"])
    mean = g.add(f"({square}).{varied(g, 'mean', 'sum')}({axis}, keepdim=True)")
    eps = varied(g, "1e-6", "0.5", "0.125")
    code = varied(g, f"{wide} * torch.rsqrt({mean} + {eps})", f"{wide} / torch.sqrt({mean} + {eps})",
                  f"{wide} / (torch.sqrt({mean}) + {eps})", f"{wide} * torch.sqrt({mean} + {eps})",
                  f"{wide} * ({mean} + {eps})", f"-{wide} * torch.rsqrt({mean} + {eps})")  # fmt: skip
    y = g.add(code)
    if wide is not x:
        y = g.add(f"{y}.to({x.dtype})")
    scaled(g, x, str(y))


@TEMPLATES.register()
def l2_norm(g: Draw) -> None:
    x = g.value(is_single, has_rank(1))
    axis = axis_of(g, x)
    norm = g.add(g.choice([f"{x}.norm(2, {axis}, True)", f"({x} * {x}).sum({axis}, keepdim=True).sqrt()",
                           f"{x}.abs().sum({axis}, keepdim=True)"]))  # fmt: skip
    g.add(g.choice([f"{x} / ({norm} + 0.125)", f"{x} / {norm}.clamp(min=0.125)", f"{x} / {norm}.clamp_min(1e-12)"]))


@TEMPLATES.register()
def group_norm(g: Draw) -> None:
    x = g.value(is_single, has_rank(3, 4), lambda x: not x.is_open(1))
    channels = x.shape[1]
    groups = g.choice([d for d in range(1, channels + 1) if channels % d == 0] or [1])
    grouped = g.add(f"{x}.reshape({x.size(0)}, {groups}, {varied(g, '-1', str(channels // groups) + ', -1')})")
    axis = varied(g, "-1", "(-2, -1)", "1")
    mean = g.add(f"{grouped}.mean({axis}, keepdim=True)")
    variance = g.add(f"{grouped}.var({axis}, keepdim=True, correction={varied(g, '0', '1')})")
    y = g.add(f"({grouped} - {mean}) {varied(g, '*', '/')} torch.rsqrt({variance} + {varied(g, '1e-5', '0.5')})")
    z = g.add(f"{y}.reshape({', '.join(x.size(a) for a in range(x.rank))})")
    scaled(g, x, str(z), 1 - x.rank)


def heads(g: Draw) -> tuple[str, str, str, Value, int]:
    """Query, key and value of rank 4, from one value or several, with their width."""
    x = g.value(is_float, has_rank(2, 4), lambda x: not x.is_open(-1))
    four = {2: f"{x}[None, None]", 3: f"{x}[None]" if g.chance(0.5) else f"{x}[:, None]", 4: str(x)}[x.rank]
    query = g.add(four) if x.rank < 4 else x
    width = x.shape[-1]
    made = [f"{query} * 0.5", f"F.linear({query}, {g.weight(width, width, dtype=x.dtype, low=-1, high=1)})", str(query),
            f"{query}.roll(1, -2)", f"torch.cat([{query}, {query} + 1], -2)"]  # fmt: skip
    key = g.add(g.choice(made))
    if g.chance(0.4) and key.shape[-2] == query.shape[-2]:
        value = g.add(g.choice([f"{query}.sin()", str(query), f"{key} - 1"]))
    else:
        value = g.add(f"{key} * 0.25 + 1")
    return str(query), str(key), str(value), query, width


def mask(g: Draw, query: Value, key: str) -> str:
    """A mask of scores, bool."""
    rows, columns = query.size(2), f"{key}.shape[2]"
    window = f"torch.arange({columns})[None, :] > torch.arange({rows})[:, None] - 2"
    return g.choice([
        f"torch.ones({rows}, {columns}, dtype=torch.bool).tril()", f"(torch.arange({columns}) < 2)",
        f"(torch.arange({columns})[None, :] <= torch.arange({rows})[:, None])",
        f"(torch.arange({columns})[None, :] < torch.arange({rows})[:, None])",
        f"((torch.arange({columns})[None, :] - torch.arange({rows})[:, None]).abs() <= 1)",
        f"({window}).logical_and(torch.arange({columns}) > 0)",
        f"({query}.sum(-1, keepdim=True) > 0.0625)",
    ])  # fmt: skip


@TEMPLATES.register()
def attention(g: Draw) -> None:
    q, k, v, query, width = heads(g)
    root = max(width, 1) ** 0.5
    factor = varied(g, f"* {1 / root}", f"/ {root}", "* 0.5", "* -1.0", "")
    if g.chance(0.15):
        q = str(g.add(f"{q} {factor or '* 2'}"))
        factor = ""
    key = varied(g, f"{k}.transpose(-2, -1)", f"{k}.mT", f"{k}.transpose(2, 3)")
    scores = g.add(f"{q} @ {key} {factor}")
    if g.chance(0.2):
        scores = g.add(f"{scores} * {g.choice(['1.0', '0.5', '30.0', '400.0'])}")
    if g.chance(0.15):
        scores = g.add(f"torch.tanh({scores} / 2) * 2")
    for _ in range(g.choice([0, 1, 1, 1, 2])):
        hidden = g.choice(["float('-inf')", "-1e9", "-10000.0", "-100.0", f"torch.finfo({query.dtype}).min", "0.0"])
        if query.dtype == torch.float16 and hidden == "-1e9":
            hidden = "-10000.0"
        rows = mask(g, query, k)
        zero = f"torch.zeros((), dtype={query.dtype})"
        scores = g.add(g.choice([
            f"{scores}.masked_fill(~{rows}, {hidden})", f"torch.where({rows}, {scores}, {hidden})",
            f"{scores} + torch.where({rows}, {zero}, {hidden})", f"{scores} + {rows}.to({query.dtype}) * 3",
            f"{scores} + (1 - {rows}.to({query.dtype})) * {hidden if 'inf' not in hidden else '-10000.0'}",
            f"{scores}.masked_fill({rows}, {hidden})", f"{scores} + 0.5",
        ]))  # fmt: skip
    weights = g.add(f"{g.choice(['torch.softmax', 'torch.softmax', 'F.softmax'])}({scores}, {varied(g, '-1', '-2')})")
    if g.chance(0.1):
        weights = g.add(f"torch.nan_to_num({weights})")
    g.add(f"{weights} @ {v}")
    if g.chance(0.3):
        g.add(f"{g.look_up(g.pool[-1])}.transpose(1, 2).flatten(2)")


@TEMPLATES.register()
def fused_attention(g: Draw) -> None:
    q, k, v, query, _ = heads(g)
    options = g.choice(["", ", is_causal=True", f", scale={g.choice(['0.5', '-1.0', '1.0'])}", "mask", "float mask"])
    if options == "mask":
        options = f", {mask(g, query, k)}"
    elif options == "float mask":
        options = f", {mask(g, query, k)}.to({query.dtype}) * 2"
    g.add(f"F.scaled_dot_product_attention({q}, {k}, {v}{options})")


@TEMPLATES.register()
def rope(g: Draw) -> None:
    x = g.value(is_float, has_rank(2, 4), lambda x: not x.is_open(-1) and x.shape[-1] % 2 == 0)
    half = x.shape[-1] // 2
    positions = g.add(
        f"torch.arange({x.size(x.rank - 2)}, dtype=torch.float32)[:, None] * {g.weight(half, low=0, high=1)}"
    )
    angles = g.add(varied(g, f"torch.cat([{positions}, {positions}], -1)", f"{positions}.repeat_interleave(2, -1)"))
    cos, sin = g.add(f"{angles}.cos()"), g.add(f"{angles}.sin()")
    first, second = f"{x}[..., :{half}]", f"{x}[..., {half}:]"
    turned = g.add(varied(g, f"torch.cat([-{second}, {first}], -1)", f"torch.cat([{second}, -{first}], -1)",
                          f"torch.cat([-{first}, {second}], -1)", f"torch.cat([{second}, {first}], -1)",
                          f"torch.stack([-{x}[..., 1::2], {x}[..., ::2]], -1).flatten(-2)"))  # fmt: skip
    g.add(
        varied(
            g, f"{x} * {cos} + {turned} * {sin}", f"{x} * {cos} - {turned} * {sin}", f"{x} * {sin} + {turned} * {cos}"
        )
    )


@TEMPLATES.register()
def activation(g: Draw) -> None:
    x = g.value(is_float)
    shifted = f"torch.exp({x} - {x}.amax(-1, keepdim=True))"
    g.add(g.choice([
        f"{x} * 0.5 * (1.0 + torch.erf({x} / {varied(g, '1.4142135623730951', '1.5')}))",
        f"0.5 * {x} * (1 + torch.tanh(0.7978845608028654 * ({x} + {varied(g, '0.044715', '0.05')} * {x} ** 3)))",
        f"{x} * torch.sigmoid({x} * {varied(g, '1.702', '1.0')})", f"{x} * torch.sigmoid({x})",
        f"{x} / (1 + torch.exp(-{x}))",
        f"{x} * torch.tanh(F.softplus({x}))", f"{x} * F.relu6({x} + 3) / {varied(g, '6', '5')}",
        f"torch.clamp({x} / 6 + 0.5, 0, 1)", f"torch.relu({x}) ** 2",
        f"torch.maximum({x}, {x} * {varied(g, '0.01', '2.0')})",
        f"torch.where({x} > 0, {x}, {varied(g, '0.25', '-0.5')} * {x})", f"torch.log(1 + torch.exp({x}))",
        f"torch.where({x} > 0, {x}, torch.exp({x}) - 1)", f"torch.exp({x}) / torch.exp({x}).sum(-1, keepdim=True)",
        f"{shifted} / {shifted}.sum(-1, keepdim=True)",
    ]))  # fmt: skip


@TEMPLATES.register()
def gated(g: Draw) -> None:
    x = g.value(is_float, has_rank(1), lambda x: not x.is_open(-1) and x.shape[-1] % 2 == 0)
    half = x.shape[-1] // 2
    g.add(g.choice([
        f"F.glu({x}, -1)", f"{x}[..., :{half}] * torch.sigmoid({x}[..., {half}:])",
        f"F.silu({x}[..., :{half}]) * {x}[..., {half}:]", f"{x}[..., ::2] * F.gelu({x}[..., 1::2])",
    ]))  # fmt: skip


@TEMPLATES.register()
def shuffle(g: Draw) -> None:
    x = g.value(has_rank(4, 4), lambda x: not x.is_open(1))
    channels = x.shape[1]
    height, width = x.size(2), x.size(3)
    if channels % 4 == 0:
        c = channels // 4
        order = varied(g, "0, 1, 4, 2, 5, 3", "0, 1, 4, 3, 5, 2", "0, 1, 5, 2, 4, 3", "0, 1, 4, 5, 2, 3")
        first = varied(g, f"{c}, 2, 2", f"2, 2, {c}")
        y = g.add(f"{x}.reshape({x.size(0)}, {first}, {height}, {width}).permute({order})")
        g.add(g.choice([f"{y}.reshape({x.size(0)}, {c}, -1, {width} * 2)", f"F.pixel_shuffle({x}, 2)"]))
    elif not x.is_open(2) and not x.is_open(3) and x.shape[2] % 2 == x.shape[3] % 2 == 0:
        order = varied(g, "0, 1, 3, 5, 2, 4", "0, 1, 3, 5, 4, 2", "0, 3, 5, 1, 2, 4")
        y = g.add(f"{x}.reshape({x.size(0)}, {channels}, {x.shape[2] // 2}, 2, {x.shape[3] // 2}, 2).permute({order})")
        g.add(g.choice([f"{y}.reshape({x.size(0)}, {channels * 4}, {x.shape[2] // 2}, {x.shape[3] // 2})",
                        f"F.pixel_unshuffle({x}, 2)", f"{y}.flatten(1, 3)"]))  # fmt: skip
    elif channels % 2 == 0:
        y = g.add(f"{x}.reshape({x.size(0)}, 2, {channels // 2}, {height}, {width}).transpose(1, 2)")
        g.add(f"{y}.reshape({x.size(0)}, {channels}, {height}, {width})")
    else:
        raise Skip


@TEMPLATES.register()
def windowed(g: Draw) -> None:
    x = g.value(has_rank(4, 4), lambda x: x.is_static and x.shape[1] % 2 == 0 and x.shape[2] % 2 == 0)
    b, h, w, c = x.shape
    parts = g.add(
        f"{x}.view({b}, {h // 2}, 2, {w // 2}, 2, {c})"
        if g.chance(0.3)
        else f"{x}.reshape({b}, {h // 2}, 2, {w // 2}, 2, {c})"
    )
    order = varied(g, "0, 1, 3, 2, 4, 5", "0, 3, 1, 2, 4, 5", "0, 1, 3, 4, 2, 5")
    g.add(f"{parts}.permute({order}).reshape(-1, 4, {c})")


@TEMPLATES.register()
def folded(g: Draw) -> None:
    x = g.value(is_single, has_rank(4, 4), lambda x: not x.is_open(1))
    channels, out = x.shape[1], g.integer(1, 3)
    y = g.add(f"F.conv2d({x}, {g.weight(out, channels, 1, 1)}, {g.weight(out)})")
    mean, variance = g.weight(out), g.weight(out, low=1, high=3)
    z = g.add(varied(g, f"F.batch_norm({y}, {mean}, {variance}, {mean}, {variance}, False, 0.1, 1e-5)",
                     f"({y} - {mean}[:, None, None]) / {variance}[:, None, None]",
                     f"{y} * {variance}[:, None, None] + {mean}[:, None, None]"))  # fmt: skip
    if g.chance(0.3):
        g.add(f"{z} + {y}")


@TEMPLATES.register()
def recurrent(g: Draw) -> None:
    x = g.value(is_single, has_rank(2, 2), lambda x: not x.is_open(-1))
    size, hidden = x.shape[-1], g.integer(1, 3)
    first, second = g.weight(3 * hidden, size, low=-1, high=1), g.weight(3 * hidden, hidden, low=-1, high=1)
    state = g.add(f"torch.zeros({x.size(0)}, {hidden})")
    g.add(f"torch.gru_cell({x}, {state}, {first}, {second})")
