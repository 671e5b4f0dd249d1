"""Templates of state, writes in place and plain control flow; `control_ops` nests it."""

from __future__ import annotations

import torch

from tests.fuzz.generator import Draw, Templates, Value
from tests.fuzz.moving_ops import bounds, index_of, indices, subscript
from tests.fuzz.tensor_ops import has_rank, is_float, is_number, number

TEMPLATES = Templates()


def target(g: Draw) -> Value:
    """What is written to: a fresh tensor, a value that may share memory with others, or an input."""
    x = g.value(is_number, has_rank(1))
    return g.add(f"{x}.clone()") if g.chance(0.5) else x


def write(g: Draw, place: str, x: Value) -> str:
    """A statement that changes a place of the type of a value."""
    return g.choice([
        f"{place}.add_({number(g, x)})", f"{place}.mul_(2)", f"{place}.copy_({place} + 1)", f"{place}.fill_(3)",
        f"{place}.zero_()", f"{place}.sub_({place} * 2)", f"{place}.neg_()", f"{place}.clamp_(min=0)",
    ])  # fmt: skip


@TEMPLATES.register()
def whole_write(g: Draw) -> None:
    x = target(g)
    g.do(write(g, str(x), x))


@TEMPLATES.register()
def write_to_view(g: Draw) -> None:
    x = target(g)
    view = g.choice([
        f"{x}[{subscript(g, x)}]", f"{x}[{subscript(g, x)}]", f"{x}.transpose(0, -1)", f"{x}.unsqueeze(0)",
        f"{x}.flatten()",
        f"{x}[{bounds(g, x, 0)}][{index_of(g, x, 0)}:]", f"{x}.select(0, {index_of(g, x, 0)})", f"{x}.view(-1)",
        f"{x}.mT[0]",
        f"{x}.diagonal()", f"{x}.T[0]", f"torch.chunk({x}, 2, -1)[0]",
    ])  # fmt: skip
    if g.chance(0.4):
        name = g.add(view)
        g.do(write(g, str(name), x))
    else:
        g.do(write(g, view, x))


@TEMPLATES.register()
def assignment(g: Draw) -> None:
    x = target(g)
    index = subscript(g, x)
    g.do(g.choice([
        f"{x}[{index}] = {number(g, x)}", f"{x}[{index}] += 1", f"{x}[{index}] = {x}[{index}] * 2",
        f"{x}[{index}] *= -1",
        f"{x}[{x} > 0.0625] = 1", f"{x}[{indices(g, x, 0, 2)}] = 2", f"{x}[{indices(g, x, 0, 1)}] += 1",
        f"{x}.masked_fill_({x} > 1, 0)", f"{x}.index_fill_(0, torch.tensor([0]), 1)",
        f"{x}.index_add_(0, torch.tensor([0]), {x}[:1])", f"{x}[{index}] = {x}.sum()",
    ]))  # fmt: skip


def buffer(g: Draw) -> Value:
    """A buffer, as a value: the tensor itself, which writes go to."""
    dtype = g.choice([torch.float32] * 4 + [torch.int64, torch.float16])
    shape = [g.integer(1, 4) for _ in range(g.integer(1, 3))]
    buffers = [given for given in g.givens if given.kind == "buffer"]
    given = g.choice(buffers) if buffers and g.chance(0.5) else g.give("buffer", tuple(shape), dtype)
    return g.add(f"self.{given.name}")


@TEMPLATES.register()
def accumulating(g: Draw) -> None:
    b = buffer(g)
    x = g.value(is_float)
    g.do(g.choice([f"{b}.add_(1)", f"{b}.mul_(0.5).add_({x}.mean())", f"{b}.copy_({b} * 2)",
    f"{b}.add_({x}.sum() * 0.125)",
                   f"{b}.copy_({x}.sum().expand({list(b.shape)}))"]))  # fmt: skip
    if g.chance(0.7):
        g.add(f"{b} + 1" if g.chance(0.5) else f"{b}.clone()")


@TEMPLATES.register()
def cache(g: Draw) -> None:
    b = buffer(g)
    index = index_of(g, b, 0)
    g.do(g.choice([
        f"{b}[{index}] += 1", f"{b}[{subscript(g, b)}] = {number(g, b)}", f"{b}[:-1] = {b}[1:].clone()",
        f"{b}.copy_({b}.roll(1, 0))",
        f"{b}[{index}].mul_(2)", f"{b}[{bounds(g, b, 0)}].add_(1)",
        f"{b}.index_copy_(0, torch.tensor([0]), {b}[-1:] + 1)",
        f"{b}[..., 0] = {b}[..., -1] + 1", f"{b}.select(0, {index}).copy_({b}.sum(0))",
    ]))  # fmt: skip
    if g.chance(0.5):
        g.add(f"{b} * 2")


@TEMPLATES.register()
def input_to_cache(g: Draw) -> None:
    x = g.value(is_float, has_rank(2, 3), lambda x: x.is_static and x.dtype == torch.float32)
    b = g.add(f"self.{g.give('buffer', (4, *x.shape[1:]), x.dtype).name}")
    rows = min(x.shape[0], 4)
    start = g.integer(0, 4 - rows)
    g.do(g.choice([f"{b}[{start}:{start + rows}] = {x}[:{rows}]",
    f"{b}[{start}:{start + rows}].copy_({x}[:{rows}] * 2)",
                   f"{b}[[{', '.join(str(row) for row in range(rows))}]] = {x}[:{rows}]"]))  # fmt: skip
    g.add(f"{b}.sum(0)")


BODIES = (
    "{a} + {b}", "{a} * {b} - 1", "torch.sin({a})", "{a} - {b}.mean()", "torch.relu({a}) * 2", "torch.softmax({a}, -1)",
    "{a} * 0.5", "{a}.clone()", "({a} @ {a}.transpose(-2, -1)) @ {a}", "{b} * 1.5 + {a} * 0", "torch.flip({a}, (0,))",
)  # fmt: skip


def operands(g: Draw) -> tuple[Value, Value]:
    """Two values of one shape and float32; the second may be the first."""
    x = g.value(lambda x: x.dtype == torch.float32, has_rank(1))
    return x, g.value(lambda y: y.shape == x.shape and y.other.shape == x.other.shape and y.dtype == x.dtype)


@TEMPLATES.register()
def branch(g: Draw) -> None:
    x, y = operands(g)
    name = g.new_name()
    true, false = (g.choice(BODIES).format(a="a", b="b") for _ in range(2))
    condition = g.choice(
        [f"{x}.sum() > {g.choice(['0.0625', '100.0', '-3.0625'])}", f"{x}.amax() > {y}.amin()", f"{x}.shape[0] > 3"]
    )
    outside = g.value(lambda z: z.dtype == torch.float32, lambda z: z.shape == x.shape)
    if g.chance(0.3):
        true += f" + {outside}"
    code = [
        f"def {name}_true(a, b):", f"    return ({true}).contiguous()", f"def {name}_false(a, b):",
        f"    return ({false}).contiguous()", f"{name} = cond({condition}, {name}_true, {name}_false, ({x}, {y}))",
    ]  # fmt: skip
    g.define("\n".join(code), name)


@TEMPLATES.register()
def loop(g: Draw) -> None:
    x, y = operands(g)
    name = g.new_name()
    start = f"(torch.tensor(0), {x}.clone(), {y}.clone())"
    body = g.choice(["a * 0.5 + b", "torch.sin(a)", "a + b * 0.25", "torch.tanh(a) - b", "a.clone()", "(a + b) / 2"])
    code = [
        f"def {name}_condition(i, a, b):", f"    return i < {g.integer(0, 4)}",
        f"def {name}_body(i, a, b):",
        f"    return i + {g.integer(1, 2)}, {body}, {g.choice(['b.clone()', 'b * 0.5', 'b + 1'])}",
        f"{name} = while_loop({name}_condition, {name}_body, {start})[{g.integer(1, 2)}]",
    ]  # fmt: skip
    g.define("\n".join(code), name)


@TEMPLATES.register()
def scanning(g: Draw) -> None:
    x = g.value(
        lambda x: x.dtype == torch.float32, has_rank(2, 3), lambda x: min(x.tensor.shape[0], x.other.shape[0]) > 0
    )
    name = g.new_name()
    step = g.choice(["c * 0.5 + r", "torch.tanh(c + r)", "torch.maximum(c, r)", "c + r * r"])
    start = g.choice([f"torch.zeros_like({x}[0])", f"{x}[0] * 2", f"{x}.mean(0)"])
    result = g.choice(["c * 2", "c + r", "torch.cos(c)", "c.sum()"])
    code = [
        f"def {name}_step(c, r):", f"    c = {step}", f"    return c, {result}",
        f"{name}, {name}_rows = scan({name}_step, {start}, {x}, reverse={g.chance(0.3)})",
    ]  # fmt: skip
    if g.chance(0.7):
        code.append(f"{name} = {name}_rows")
    g.define("\n".join(code), name)
