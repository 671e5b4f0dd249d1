"""Templates of operators that move numbers: views, joins, windows, indexing, scatters."""

from __future__ import annotations

import torch

from tests.fuzz.generator import Draw, Skip, Templates, Value
from tests.fuzz.tensor_ops import axis_of, has_rank, is_number, number, static_axis

TEMPLATES = Templates()

# ---- views -----------------------------------------------------------------------------------------


@TEMPLATES.register(3)
def permuting(g: Draw) -> None:
    x = g.value(has_rank(2))
    axes = g.rng.sample(range(x.rank), x.rank)
    first, second = axis_of(g, x), axis_of(g, x)
    g.add(
        g.choice([
            f"{x}.permute({axes})", f"{x}.transpose({first}, {second})", f"{x}.flip({first})",
            f"{x}.movedim({first}, {second})", f"{x}.flip(({sorted({first % x.rank, second % x.rank})}))",
            f"{x}.roll({g.integer(-2, 3)}, {first})", f"{x}.mT", f"{x}.transpose({first}, {second}).contiguous()",
        ])
    )  # fmt: skip


@TEMPLATES.register(3)
def reshaping(g: Draw) -> None:
    x = g.value(has_rank(1))
    if x.is_static and g.chance(0.6):
        numel, shape = x.tensor.numel(), []
        for _ in range(g.integer(0, 3)):
            divisors = [d for d in range(1, numel + 1) if numel % d == 0]
            shape.append(g.choice(divisors or [1]))
            numel //= shape[-1]
        shape.append(numel)
        g.rng.shuffle(shape)
        if g.chance(0.4):
            shape[g.integer(0, len(shape) - 1)] = -1
        g.add(f"{x}.reshape({shape})")
        return
    axis = g.integer(0, x.rank - 1)
    sizes = [x.size(a) for a in range(x.rank)]
    options = [
        f"{x}.flatten()", f"{x}.reshape(-1)", f"{x}.reshape({', '.join(sizes)}, 1)", f"{x}.unsqueeze({axis})",
        f"{x}.reshape(1, {', '.join(sizes)})", f"{x}[None]", f"{x}.unsqueeze(-1)", f"{x}.squeeze()",
        f"{x}.squeeze({axis})",
    ]  # fmt: skip
    if x.rank >= 2:
        options += [f"{x}.flatten(0, 1)", f"{x}.flatten(1)", f"{x}.flatten(-2)", f"{x}.reshape(-1, {sizes[-1]})"]
    if not x.is_open(axis) and x.shape[axis] % 2 == 0:
        options += [f"{x}.unflatten({axis}, (2, -1))", f"{x}.unflatten({axis}, (-1, 2))"]
    g.add(g.choice(options))


def bounds(g: Draw, x: Value, axis: int) -> str:
    """A slice of an axis, `a:b:c`."""
    least = min(x.tensor.shape[axis], x.other.shape[axis])
    start = g.choice(["", "", "1", "2", "-2", "-1", "0", "-3"])
    stop = g.choice(["", "", "-1", str(max(least - 1, 0)), str(least), str(least + 2), "3", "-2", "1"])
    step = g.choice(["", "", "", ":2", ":3"])
    if x.is_open(axis) and g.chance(0.3):
        stop = g.choice([f"{x}.shape[{axis}] // 2", f"{x}.shape[{axis}] - 1"])
    return f"{start}:{stop}{step}"


def index_of(g: Draw, x: Value, axis: int) -> int:
    """A position on an axis that exists in both calls."""
    least = min(x.tensor.shape[axis], x.other.shape[axis])
    if least == 0:
        raise Skip
    return g.choice([0, -1, least - 1, -least])


def subscript(g: Draw, x: Value) -> str:
    """An index of slices, numbers, `None` and `...`."""
    if x.rank == 0:
        return "..."
    parts = []
    for axis in range(g.integer(1, x.rank)):
        parts.append(g.choice([":", ":", bounds(g, x, axis), bounds(g, x, axis), str(index_of(g, x, axis))]))
    if g.chance(0.15):
        parts.insert(g.integer(0, len(parts)), "None")
    return ", ".join(parts) if g.chance(0.8) or x.rank < len(parts) + 1 else f"..., {bounds(g, x, x.rank - 1)}"


@TEMPLATES.register(5)
def slicing(g: Draw) -> None:
    x = g.value(has_rank(1))
    g.add(f"{x}[{subscript(g, x)}]")


@TEMPLATES.register(2)
def splitting(g: Draw) -> None:
    x = g.value(has_rank(1))
    axis = axis_of(g, x)
    least = min(x.tensor.shape[axis], x.other.shape[axis])
    count = g.integer(1, 3)
    start = g.integer(0, max(least - 1, 0))
    g.add(
        g.choice([
            f"torch.chunk({x}, {count}, {axis})[-1]", f"torch.split({x}, {count}, {axis})[0]",
            f"torch.tensor_split({x}, {count}, {axis})[{count - 1}]", f"{x}.narrow({axis}, {start}, {min(1, least)})",
            f"{x}.select({axis}, {start})", f"torch.unbind({x}, {axis})[0]",
            f"torch.split({x}, [1, {x.size(axis % x.rank)} - 1], {axis})[1]",
        ])
    )  # fmt: skip


@TEMPLATES.register(4)
def joining(g: Draw) -> None:
    x = g.value(has_rank(1))
    axis = axis_of(g, x)

    def fits(y: Value) -> bool:
        others = [a for a in range(x.rank) if a != axis % x.rank]
        return y.rank == x.rank and all(
            y.shape[a] == x.shape[a] and y.other.shape[a] == x.other.shape[a] for a in others
        )

    y = g.value(fits)
    code = g.choice(["cat", "cat", "stack", "three"])
    if code == "stack":
        y = g.value(fits, lambda y: y.shape == x.shape and y.other.shape == x.other.shape)
        g.add(f"torch.stack([{x}, {y}], {axis})")
    else:
        g.add(f"torch.cat([{x}, {y}{f', {x}' if code == 'three' else ''}], {axis})")


@TEMPLATES.register(2)
def expanding(g: Draw) -> None:
    x = g.value(has_rank(1, 4))
    sizes = [x.size(a) for a in range(x.rank)]
    repeats = [str(g.integer(1, 3)) for _ in range(x.rank)]
    widened = [str(g.integer(2, 3)) if x.shape[a] == x.other.shape[a] == 1 else "-1" for a in range(x.rank)]
    axis = g.integer(0, x.rank - 1)
    g.add(
        g.choice([
            f"{x}.expand(2, {', '.join(sizes)})", f"{x}.expand({', '.join(widened)})",
            f"{x}.repeat({', '.join(repeats)})",
            f"{x}.repeat_interleave({g.integer(1, 3)}, {axis})", f"torch.broadcast_to({x}, (3, {', '.join(sizes)}))",
            f"{x}.tile((2,))",
        ])
    )  # fmt: skip


@TEMPLATES.register(2)
def padding(g: Draw) -> None:
    x = g.value(is_number, has_rank(1, 4))
    amounts = [g.integer(-1, 2) for _ in range(2 * g.integer(1, min(x.rank, 2)))]
    code = f"F.pad({x}, {amounts}, value={number(g, x)})"
    if x.is_float and 2 <= x.rank <= 3 and g.chance(0.4):
        code = f"F.pad({x}, [1, 1], mode='{g.choice(['reflect', 'replicate', 'circular'])}')"
    g.add(code)


@TEMPLATES.register(2)
def windows(g: Draw) -> None:
    x = g.value(has_rank(1))
    axis = static_axis(g, x) if g.chance(0.7) else axis_of(g, x)
    g.add(
        g.choice([
            f"{x}.unfold({axis}, {g.integer(1, 3)}, {g.integer(1, 2)})", f"torch.tril({x}, {g.integer(-1, 1)})",
            f"torch.triu({x}, {g.integer(-1, 1)})", f"torch.diagonal({x})", f"{x}.as_strided((2, 2), (1, 1)).clone()",
            f"torch.diag_embed({x})", f"torch.diagonal({x}, 1, -2, -1)", f"{x}.rot90(1, (0, -1))",
        ])
    )  # fmt: skip


# ---- indexing --------------------------------------------------------------------------------------


def indices(g: Draw, x: Value, axis: int, *shape: int) -> str:
    """A weight of positions on an axis, valid in both calls, some of them negative."""
    least = min(x.tensor.shape[axis], x.other.shape[axis])
    if least == 0:
        raise Skip
    dtype = g.choice([torch.int64, torch.int64, torch.int32])
    low = -least if g.chance(0.3) else 0
    return g.weight(*shape, dtype=dtype, low=low, high=least - 1)


@TEMPLATES.register(3)
def indexing(g: Draw) -> None:
    x = g.value(has_rank(1))
    axis = g.integer(0, x.rank - 1)
    places = indices(g, x, axis, g.integer(1, 4))
    colons = ":, " * axis
    options = [f"{x}[{colons}{places}]", f"{x}.index_select({axis}, {places})", f"{x}[{colons}{places}[:, None]]"]
    if x.rank >= 2:
        other = (axis + 1) % x.rank
        first, second = sorted((axis, other))
        left, right = indices(g, x, first, 3), indices(g, x, second, 3)
        options.append(f"{x}[{':, ' * first}{left}, {':, ' * (second - first - 1)}{right}]")
    g.add(g.choice(options))


@TEMPLATES.register()
def selecting(g: Draw) -> None:
    x = g.value(is_number, has_rank(1))
    g.add(
        g.choice([
            f"{x}[{x} > 0.3125]", f"torch.masked_select({x}, {x} < 0.4375)", f"({x} > 0.3125).nonzero()",
            f"{x}[{x} > 0.3125].sum()", f"{x}[torch.argwhere({x}.flatten(1).sum(-1) > 0.0625).flatten()]",
        ])
    )  # fmt: skip


@TEMPLATES.register(2)
def gathering(g: Draw) -> None:
    x = g.value(has_rank(1), lambda x: x.is_static)
    axis = g.integer(0, x.rank - 1)
    shape = list(x.shape)
    shape[axis] = g.integer(1, 3)
    places = f"{indices(g, x, axis, *shape)}.long()"
    code = g.choice(["gather", "gather", "take_along_dim", "scatter", "scatter_add", "index_add", "scatter_reduce"])
    if code in ("gather", "take_along_dim"):
        g.add(f"torch.{code}({x}, {axis}, {places})" if code == "gather" else f"{x}.take_along_dim({places}, {axis})")
        return
    dtype = x.dtype
    if code == "index_add":
        one = indices(g, x, axis, shape[axis])
        g.add(f"{x}.index_add({axis}, {one}, {g.weight(*shape, dtype=dtype)})")
    elif code == "scatter":
        g.add(f"{x}.scatter({axis}, {places}, 2)")
    elif code == "scatter_add":
        g.add(f"{x}.scatter_add({axis}, {places}, {g.weight(*shape, dtype=dtype)})")
    else:
        how = g.choice(["amax", "amin", "sum", "prod", "mean"])
        source = g.weight(*shape, dtype=dtype)
        g.add(f"{x}.scatter_reduce({axis}, {places}, {source}, '{how}', include_self={g.chance(0.5)})")


@TEMPLATES.register(2)
def functional_writes(g: Draw) -> None:
    x = g.value(has_rank(1))
    axis = g.integer(0, x.rank - 1)
    index = index_of(g, x, axis)
    start = max(index, 0)
    part = f"{x}.select({axis}, {index})"
    g.add(
        g.choice([
            f"torch.select_scatter({x}, {part} + 1, {axis}, {index})",
            f"torch.slice_scatter({x}, {x}.narrow({axis}, {start}, 1) * 2, {axis}, {start}, {start + 1})",
            f"{x}.index_fill({axis}, torch.tensor([{start}]), 3)",
            f"{x}.index_copy({axis}, torch.tensor([{start}]), {x}.narrow({axis}, 0, 1))",
            f"{x}.index_put((torch.tensor([{start}]),), torch.tensor(1, dtype={x.dtype}), accumulate={g.chance(0.5)})",
        ])
    )  # fmt: skip


@TEMPLATES.register(2)
def creating(g: Draw) -> None:
    x = g.value(has_rank(1))
    axis = g.integer(0, x.rank - 1)
    size = x.size(axis)
    g.add(
        g.choice([
            f"torch.arange({size})", f"torch.arange({size}, dtype=torch.float32) * 0.5", f"torch.ones({size}, 2)",
            f"torch.full(({size},), 0.5)", f"torch.eye({size})", f"torch.arange(0, {size} * 2, 2)",
            f"F.one_hot(torch.arange({size}) % 3, 3)", "torch.linspace(0, 1, 5)", f"{x}.new_zeros(3, {size})",
            f"torch.tril(torch.ones({size}, {size}, dtype=torch.bool))", f"torch.arange({size}, 0, -1)",
        ])
    )  # fmt: skip
