"""Broken IR texts, given to `patcomp opt` with any stages."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from io import StringIO
from pathlib import Path
from random import Random

from patcomp import TorchConverter
from patcomp.commands.opt import opt
from patcomp.errors import ParseError
from patcomp.ir import parse_module
from patcomp.rewrites.pipeline import STAGES
from tests.helpers.dialect_cases import READABLE
from tests.hostile.judge import Case
from tests.hostile.mutation import broken_bytes, broken_text, name, number
from tests.hostile.programs import exported_programs

STAGE_NAMES = [stage.name for stage in STAGES]


class NotReadBackError(AssertionError):
    """patcomp cannot read the text that it printed."""


@dataclass(frozen=True)
class Texts:
    """Valid texts: small ones, and those after each stage of a model, with the stages that follow."""

    small: list[str]
    staged: list[tuple[str, int]]


def prepare() -> Texts:
    staged = []
    for program in exported_programs().values():
        with tempfile.TemporaryDirectory() as folder:
            TorchConverter().add_exported_program(program).to_coreai(dump_ir=Path(folder))
            for number, path in enumerate(sorted(Path(folder).glob("*.mlir"))):
                staged.append((path.read_text(), number))
    return Texts([case.text for case in READABLE], staged)


def draw(texts: Texts, random: Random) -> Case:
    kind = random.randrange(10)
    if kind == 0:
        made = random.choice(GENERATED)
        text, stages = made(random), random.choice(([], ["normalize"], STAGE_NAMES))
        what = made.__name__
    else:
        text, first = random.choice(texts.staged) if kind < 6 else (random.choice(texts.small), len(STAGE_NAMES) - 1)
        stages = STAGE_NAMES[first:] if random.random() < 0.5 else []
        text = broken_text(text, [random.choice(texts.small), random.choice(texts.staged)[0]], random)
        what = "a mutated text"
    data = text.encode(errors="surrogatepass")
    if kind == 1:
        data, what = broken_bytes(data, random), "mutated bytes"
    return Case(partial(run, data, stages, random.random() < 0.2), data, f"{what}, stages {','.join(stages) or 'none'}")


def run(data: bytes, stages: list[str], generic: bool) -> None:
    """`patcomp opt`, and what it prints is parsed again."""
    Path("case.mlir").write_bytes(data)
    printed = StringIO()
    with redirect_stdout(printed):
        opt("case.mlir", ",".join(stages), generic=generic)
    try:
        parse_module(printed.getvalue())
    except ParseError as error:
        raise NotReadBackError(str(error)[:500]) from None


# ---- generated texts -----------------------------------------------------------------------------


def program(body: str, inputs: str = "%x: tensor<2xf32>", result: str = "tensor<2xf32>", graph: str = "@main") -> str:
    """A module of one graph."""
    return f"module {{\n  coreai.graph {graph}({inputs}) -> {result} {{\n{body}\n  }}\n}}\n"


EXP = "coreai.exp %x : tensor<2xf32> -> tensor<2xf32>"


def _depth(random: Random) -> int:
    return random.choice((3, 10, 30, 60, 100, 200, 400, 1000, 5000, 100_000))


def deep(random: Random) -> str:
    """Attributes, types, locations, constants or modules inside each other."""
    depth = _depth(random)
    nested = random.choice((
        ("[", "1", "]"), ("{a = ", "1", "}"), ("complex<", "f32", ">"), ("tuple<", "f32", ">"), ("(", "f32", ") -> ()"),
        ("tensor<2x", "f32", ">"), ("dense<[", "1.0", "]>"), ("loc(fused[", '"a"', "])"), ("() -> (", "", ")"),
        ("#coreai.x<", "", ">"), ("array<", "i32", ">"), ("vector<2x", "f32", ">"), ("memref<2x", "f32", ">"),
    ))  # fmt: skip
    inner = nested[0] * depth + nested[1] + nested[2] * random.choice((depth, depth, depth - 1, 0))
    return random.choice((
        program(f"%y = {EXP} {{a = {inner}}}\ncoreai.output %y : tensor<2xf32>"),
        program(f"%y = coreai.constant dense<{inner}> : tensor<2xf32>\ncoreai.output %y : tensor<2xf32>"),
        program(f"coreai.output %x : {inner}"),
        program("coreai.output %x : tensor<2xf32>", inputs=f"%x: {inner}"),
        program("coreai.output %x : tensor<2xf32>", graph=f"@main<{inner}>"),
        f"module {{ {inner} }}",
    ))  # fmt: skip


def deep_regions(random: Random) -> str:
    """Branches inside branches, or modules inside modules."""
    depth = _depth(random)
    if random.random() < 0.3:
        return "module {\n" * depth + "}\n" * depth
    head = "%c = coreai.constant dense<true> : tensor<i1>\n"
    for _ in range(depth):
        head += '%r = "coreai.if"(%c) ({\n'.replace("%r", f"%r{_}")
    tail = ""
    for level in reversed(range(depth)):
        inner = f"%r{level + 1}" if level + 1 < depth else "%x"
        tail += f'"coreai.yield"({inner}) : (tensor<2xf32>) -> ()\n}}, {{\n'
        tail += '"coreai.yield"(%x) : (tensor<2xf32>) -> ()\n}) : (tensor<i1>) -> tensor<2xf32>\n'
    return program(f"{head}{tail}coreai.output %r0 : tensor<2xf32>")


def shapes(random: Random) -> str:
    """Huge, negative or very many dimensions, and ops whose result or folding would be huge."""
    dims = [random.choice((number(random), "?", "1", "2")) for _ in range(random.choice((1, 2, 3, 8, 2000)))]
    shape = "x".join([*dims, random.choice(("f32", "f16", "bf16", "si32", "i1", "si8", "f64", "si64", "index"))])
    type_ = f"tensor<{shape}>"
    value = random.choice(("1.0", "0", "1", "true", "[1, 2]", '"0xFF"', '"0x"', "", "[]"))
    op = random.choice(("exp", "abs", "not", "neg"))
    made = random.choice((f"coreai.constant dense<{value}> : {type_}", f"coreai.constant dense_resource<w> : {type_}"))
    return random.choice((
        program(f"%y = coreai.{op} %x : {type_} -> {type_}\ncoreai.output %y : {type_}", f"%x: {type_}", type_),
        program(f"%y = {made}\ncoreai.output %y : {type_}", result=type_),
        program(f"%y = {made}\n%z = coreai.{op} %y : {type_} -> {type_}\ncoreai.output %z : {type_}", result=type_),
        program(
            f"%s = coreai.constant dense<{value}> : tensor<{len(dims)}xui32>\n"
            "%k = coreai.constant dense<1.0> : tensor<f32>\n"
            f"%y = coreai.broadcast_to %k, %s : (tensor<f32>, tensor<{len(dims)}xui32>) -> {type_}\n"
            f"coreai.output %y : {type_}", result=type_,
        ),
    ))  # fmt: skip


def names(random: Random) -> str:
    """Symbols, values, attributes and strings with any characters."""

    def quoted() -> str:
        return (
            '"'
            + "".join(random.choice((name(random), "\\22", "\\00", "\\FF", "\\n", "\\C3\\A9")) for _ in range(2))
            + '"'
        )

    return program(
        f"%{name(random)} = {EXP} {{{quoted()} = {quoted()}}} loc({quoted()})\ncoreai.output %x : tensor<2xf32>",
        inputs=f"%x: tensor<2xf32> {{coreai.name = {quoted()}}}",
        graph=random.choice((f"@{quoted()}", f"@{name(random)}")),
    )


def many(random: Random) -> str:
    """Up to 10^5 ops, attributes, inputs, results, lines or graphs."""
    count = random.choice((100, 1000, 10_000, 100_000)) if random.random() < 0.1 else random.choice((100, 1000))
    each: list[Callable[[], str]] = [
        lambda: program("\n".join(
            f"%v{i} = coreai.exp {f'%v{i - 1}' if i else '%x'} : tensor<2xf32> -> tensor<2xf32>" for i in range(count)
        ) + f"\ncoreai.output %v{count - 1} : tensor<2xf32>"),
        lambda: program(
            "%y = coreai.exp %x : tensor<2xf32> -> tensor<2xf32> {" + ", ".join(f"a{i} = {i}" for i in range(count))
            + "}\ncoreai.output %y : tensor<2xf32>"
        ),
        lambda: program("coreai.output %x0 : tensor<2xf32>", ", ".join(f"%x{i}: tensor<2xf32>" for i in range(count))),
        lambda: "\n".join(program("coreai.output %x : tensor<2xf32>", graph=f"@g{i}")[8:-2] for i in range(count)),
        lambda: program("coreai.output %x : tensor<2xf32>") + "\n" * count + "// " * count,
        lambda: program(f"%y = coreai.constant dense<[{', '.join(['1.5'] * count)}]> : tensor<{count}xf32>\n"
                        "coreai.output %x : tensor<2xf32>"),
    ]  # fmt: skip
    return random.choice(each)()


def cycles(random: Random) -> str:
    """Uses before definitions, graphs that call each other, names defined twice."""
    other = random.choice(("@main", "@other", "@none"))
    call = "%y = coreai.invoke {c}(%x) : (tensor<2xf32>) -> tensor<2xf32>\ncoreai.output %y : tensor<2xf32>"
    return random.choice((
        program("%y = coreai.exp %z : tensor<2xf32> -> tensor<2xf32>\n"
                "%z = coreai.exp %y : tensor<2xf32> -> tensor<2xf32>\n"
                "coreai.output %y : tensor<2xf32>"),
        program(call.format(c="@main")),
        program(call.format(c=other)) + program(call.format(c="@main"), graph="@other"),
        program(call.format(c=other))[:-3] + program(call.format(c="@main"), graph="private @other")[8:],
        program("%x = coreai.exp %x : tensor<2xf32> -> tensor<2xf32>\ncoreai.output %x : tensor<2xf32>"),
    ))  # fmt: skip


GENERATED: tuple[Callable[[Random], str], ...] = (deep, deep, deep_regions, shapes, shapes, names, many, cycles)
