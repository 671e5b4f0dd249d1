"""Templates of control flow: branches, loops and scans over ops that move elements, in each other and over states.

All values of a block have one shape and one element type, so that each may be carried, swapped, returned or captured.
What a block returns is a copy, because PyTorch exports no block that returns its arguments or views of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tests.fuzz.generator import Draw, Skip, Templates, Value
from tests.fuzz.tensor_ops import has_rank

TEMPLATES = Templates()
DEPTH = 3
"""How many blocks may be in each other."""


@dataclass(frozen=True)
class Block:
    """Where statements are added: what they may read, and how deep they are."""

    like: Value
    """A value with the shape and the element type of all values of the block."""
    names: tuple[str, ...]
    """Values that the statements may read: arguments, values of outer blocks, and values before."""
    counters: tuple[str, ...] = ()
    """Integers without axes: the steps of the loops around."""
    depth: int = 0


def copied(name: str) -> str:
    """A copy that shares no memory, with the strides that PyTorch wants of what is carried."""
    return f"{name}.clone(memory_format=torch.contiguous_format)"


# ---- ops that move elements ------------------------------------------------------------------------


def moved(g: Draw, block: Block) -> str:
    """Elements of a value of a block in other places; the type is the same."""
    x, v, u = block.like, g.choice(block.names), g.choice(block.names)
    axis = g.integer(0, x.rank - 1)
    other = g.integer(0, x.rank - 1)
    colons = ":, " * axis
    ones = [1] * x.rank
    size = f"{v}.shape[{axis}]" if x.is_open(axis) else str(x.shape[axis])
    last = min(x.tensor.shape[axis], x.other.shape[axis]) - 1
    if last < 0:
        raise Skip
    twice = str([*ones[:axis], 2, *ones[axis + 1 :]])
    one = g.weight(1, dtype=torch.int64, low=0, high=last) if g.chance(0.2) else ""
    options = [
        f"torch.flip({v}, ({axis},))", f"torch.flip({v}, ({axis},))", f"{v}.roll({g.integer(-2, 3)}, {axis})",
        f"{v}.transpose({axis}, {other}).reshape({v}.shape)", f"torch.sort({v}, {axis})[0]",
        f"torch.sort({v}, {axis}, descending=True)[0]", f"torch.cummax({v}, {axis})[0]",
        f"torch.cat([{v}[{colons}1:], {v}[{colons}:1]], {axis})",
        f"torch.cat([{v}[{colons}-1:], {u}[{colons}:-1]], {axis})",
        f"{v}.repeat({twice})[{colons}::2]", f"{v}.repeat_interleave(2, {axis}).narrow({axis}, 0, {size})",
        f"{v}.narrow({axis}, {last}, 1).expand({v}.shape)", f"F.pad({v}, {[0, 0] * (x.rank - 1 - axis) + [1, -1]})",
        f"{v}.select({axis}, -1).unsqueeze({axis}) - {u}", f"{v}.flatten().flip(0).reshape({v}.shape)",
        f"torch.select_scatter({v}, {u}.select({axis}, -1), {axis}, 0)", f"{v}.movedim({axis}, 0).reshape({v}.shape)",
        f"torch.slice_scatter({v}, {u}.narrow({axis}, {last}, 1), {axis}, 0, 1)", f"{v}.amax({axis}, True) - {u}",
    ]  # fmt: skip
    if x.rank > 1:
        options += [f"torch.tril({v})", f"torch.triu({v}, 1)"]
    if one:
        options += [
            f"{v}.index_copy({axis}, {one}, {u}.narrow({axis}, {last}, 1))",
            f"{v}.index_put(({one},), {u}[-1:])", f"{v}.index_put(({one},), {u}[:1], accumulate=True)",
            f"{v}.index_add({axis}, {one}, {u}.narrow({axis}, 0, 1))", f"{v}.index_select({axis}, {one}) - {u}",
        ] * 3  # fmt: skip
    if x.is_static and g.chance(0.3):
        places = g.weight(*x.shape, dtype=torch.int64, low=0, high=last)
        several = g.weight(x.shape[axis], dtype=torch.int64, low=0, high=last)
        row = g.weight(*x.shape[:axis], 1, *x.shape[axis + 1 :], dtype=torch.int64, low=0, high=last)
        options += [
            f"{v}.gather({axis}, {places})", f"{v}.index_select({axis}, {several})", f"{v}[{colons}{several}]",
            f"{v}.scatter({axis}, {row}, {u})", f"{v}.scatter_reduce({axis}, {places}, {u}, 'amax')",
            f"{v}.scatter_add({axis}, {row}, {u})", f"{v}.take_along_dim({places}, {axis})",
        ] * 3  # fmt: skip
    if block.counters and not x.is_open(axis):
        step = f"({g.choice(block.counters)} % {size}).reshape(1)"
        options += [
            f"{v}.index_select({axis}, {step}).expand({v}.shape)", f"{v}.index_copy({axis}, {step}, {u}"
            f".narrow({axis}, 0, 1))", f"{v}.index_add({axis}, {step}, {u}.narrow({axis}, {last}, 1))",
        ] * 2  # fmt: skip
    if x.is_float:
        options += [
            f"{v}.cumsum({axis}) * 0.25", f"torch.softmax({v}, {axis})", f"{v} - {u}.mean({axis}, keepdim=True)",
        ]  # fmt: skip
    if x.is_float and x.rank > 1:
        options += [f"({v} @ {u}.transpose(-2, -1)) @ {v} * 0.125"] * 2
    if x.is_float and not x.is_open(x.rank - 1):
        options += [f"{v} @ {g.weight(x.shape[-1], x.shape[-1], low=-1, high=1)} * 0.25"] if g.chance(0.2) else []
    return g.choice(options)


def computed(g: Draw, block: Block) -> str:
    """Elements that are computed from elements of the same place."""
    v, u = g.choice(block.names), g.choice(block.names)
    options = [f"{v} + 1", f"{v} - {u}", f"torch.minimum({v}, {u})", f"torch.where({u} > 0, {v}, {u})", f"-{v}"]
    if block.like.is_float:
        options += [f"torch.tanh({v})", f"{v} * 0.5 + {u} * 0.25", f"torch.sin({v}) * {u}", f"{v} * 0.5"]
    return g.choice(options)


def decided(g: Draw, block: Block) -> str:
    """A condition that depends on data."""
    v, u = g.choice(block.names), g.choice(block.names)
    options = [
        f"{v}.sum() > {g.choice(['0.0625', '2.0625', '-3.0625'])}", f"{v}.amax() > {u}.amin()",
        f"{v}.flatten()[-1] > {u}.flatten()[0]", f"({v} > 0.0625).any()", f"{v}.abs().amax() < 4.0625",
    ]  # fmt: skip
    options += [f"{counter} % 2 == 0" for counter in block.counters] * 2
    return g.choice(options)


# ---- blocks ----------------------------------------------------------------------------------------


def body(g: Draw, block: Block, prefix: str) -> tuple[list[str], Block]:
    """Lines of a block, and the block with the values that they make."""
    lines: list[str] = []
    for number in range(g.integer(1, 3)):
        name = f"{prefix}t{number}"
        kind = g.choice(["move", "move", "move", "compute", "nest" if block.depth < DEPTH else "move"])
        if kind == "nest":
            lines += g.choice([loop, branch, scan, loop, branch])(g, block, name)
        else:
            lines.append(f"{name} = {(moved if kind == 'move' else computed)(g, block)}")
        names = (*block.names, name, name)  # (the newest value is read more often)
        block = Block(block.like, names, block.counters, block.depth)
    return lines, block


def function(name: str, parameters: str, lines: list[str], results: str) -> list[str]:
    """The lines of a function."""
    return [f"def {name}({parameters}):", *(f"    {line}" for line in lines), f"    return {results}"]


def loop(g: Draw, block: Block, name: str) -> list[str]:
    """Lines that bind a name to what a loop makes of two values, one of which may be the other."""
    i, a, b = (f"{name}_{letter}" for letter in "iab")
    inner = Block(block.like, (*block.names, a, b, a, b), (*block.counters, i), block.depth + 1)
    lines, inside = body(g, inner, f"{name}_")
    own = Block(block.like, (a, b), (i,))
    goes_on = f"{i} < {g.integer(0, 3)}"
    if g.chance(0.4):
        goes_on = f"({i} < 3) & ({decided(g, own)})"
    newest = inside.names[-1]
    yielded = g.choice([(newest, a), (b, newest), (newest, newest), (newest, b), (newest, g.choice(inside.names))])
    first, second = (copied(g.choice(block.names)) for _ in range(2))
    start = "torch.zeros((), dtype=torch.int64)" if block.depth else "torch.tensor(0)"
    called = f"while_loop({name}_condition, {name}_body, ({start}, {first}, {second}))"
    result = g.choice(["{}[1]", "{}[2]", "torch.minimum(*{}[1:])"]).format(called)
    return [
        *function(f"{name}_condition", f"{i}, {a}, {b}", [], goes_on),
        *function(f"{name}_body", f"{i}, {a}, {b}", lines, f"{i} + 1, {copied(yielded[0])}, {copied(yielded[1])}"),
        f"{name} = {result}",
    ]


def branch(g: Draw, block: Block, name: str) -> list[str]:
    """Lines that bind a name to what one of two functions makes of two values."""
    a, b = f"{name}_a", f"{name}_b"
    code = []
    for which in ("true", "false"):
        inner = Block(block.like, (*block.names, a, b, a, b), block.counters, block.depth + 1)
        lines, inside = body(g, inner, f"{name}_{which[0]}")
        returned = inside.names[-1] if g.chance(0.9) else a
        if which == "true":
            first = function("", "", lines, copied(returned))[1:]
        is_alike = which == "false" and g.chance(0.3)
        code += (
            [f"def {name}_false({a}, {b}):", *nearly_the_same(g, first, name)]
            if is_alike
            else function(f"{name}_{which}", f"{a}, {b}", lines, copied(returned))
        )
    given = f"({g.choice(block.names)}, {copied(g.choice(block.names))})"
    return [*code, f"{name} = cond({decided(g, block)}, {name}_true, {name}_false, {given})"]


def nearly_the_same(g: Draw, lines: list[str], name: str) -> list[str]:
    """The lines of the first branch with other constants or other operands, for the second one."""
    text = "\n".join(lines).replace(f"{name}_t", f"{name}_f")
    if g.chance(0.6):
        text = (
            text.replace(f"{name}_a", f"{name}_c").replace(f"{name}_b", f"{name}_a").replace(f"{name}_c", f"{name}_b")
        )
    for old, new in (("* 0.5", "* 0.75"), ("* 0.25", "* 0.125"), ("+ 1", "+ 2"), ("0.0625", "0.5625")):
        if g.chance(0.5):
            text = text.replace(old, new)
    return text.splitlines()


def scan(g: Draw, block: Block, name: str) -> list[str]:
    """Lines that bind a name to the last value or a row of a scan whose step moves elements."""
    c, r = f"{name}_c", f"{name}_r"
    lines, inside = body(g, Block(block.like, (*block.names, c, r, c, r), (), block.depth + 1), f"{name}_")
    newest, row = inside.names[-1], g.choice(inside.names)
    rows = f"torch.stack([{', '.join(g.choice(block.names) for _ in range(g.integer(1, 3)))}])"
    called = f"scan({name}_step, {copied(g.choice(block.names))}, {rows}, reverse={g.chance(0.3)})"
    return [
        *function(f"{name}_step", f"{c}, {r}", lines, f"{copied(newest)}, {copied(row)}"),
        f"{name} = {called}{g.choice(['[0]', '[1][0]', '[1].amax(0)', '[1][-1]'])}",
    ]


# ---- templates -------------------------------------------------------------------------------------


def alike(g: Draw, x: Value) -> Block:
    """A block outside all others, with values of one type."""
    found = [x.name]
    for _ in range(g.integer(0, 2)):
        found.append(g.value(lambda y: (y.shape, y.other.shape, y.dtype) == (x.shape, x.other.shape, x.dtype)).name)
    return Block(x, tuple(found))


def carried(g: Draw) -> Value:
    """A value for loops: mostly float32."""
    wanted = g.choice([torch.float32] * 6 + [torch.int64, torch.int32])
    return g.value(lambda x: x.dtype == wanted, has_rank(1))


@TEMPLATES.register(4)
def looping(g: Draw) -> None:
    name = g.new_name()
    g.define("\n".join(loop(g, alike(g, carried(g)), name)), name)


@TEMPLATES.register(2)
def branching(g: Draw) -> None:
    name = g.new_name()
    g.define("\n".join(branch(g, alike(g, carried(g)), name)), name)


@TEMPLATES.register(2)
def scanning(g: Draw) -> None:
    name = g.new_name()
    g.define("\n".join(scan(g, alike(g, carried(g)), name)), name)


def state(g: Draw) -> Value:
    """A buffer of numbers, an old or a new one."""
    buffers = [given for given in g.givens if given.kind == "buffer"]
    shape = tuple(g.integer(1, 4) for _ in range(g.integer(1, 3)))
    given = g.choice(buffers) if buffers and g.chance(0.4) else g.give("buffer", shape, torch.float32)
    return g.add(f"self.{given.name}")


@TEMPLATES.register(2)
def moved_state(g: Draw) -> None:
    """A state that becomes a moved value of itself, at once or after a loop, a branch or a scan over it."""
    b = state(g)
    block = Block(b, (b.name,))
    if g.chance(0.4):
        g.do(g.choice(["{}.copy_({})", "{}[...] = {}", "{}.add_({})"]).format(b, moved(g, block)))
    else:
        name = g.new_name()
        result = g.define("\n".join(g.choice([loop, branch, scan])(g, block, name)), name)
        g.do(g.choice([f"{b}.copy_({result})", f"{b}[:1] = {result}[-1:]", f"{b}.mul_(0.5).add_({result})"]))
    if g.chance(0.6):
        g.add(g.choice([f"{b} * 2", f"{b}.flip(0)", f"{b}.sum(0)"]))
