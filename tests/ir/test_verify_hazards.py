"""What the native verifier takes although it aborts or miscomputes later: each such program is refused."""

from __future__ import annotations

import re

import pytest

from patcomp.errors import VerifyError
from patcomp.ir import BlobStore, IRModule
from patcomp.ir.verify import verify
from tests.ir.programs import graph_text, program

X = "tensor<2x3xf32>"
AXIS = "%a = coreai.constant dense<{}> : tensor<si32>\n"
AXES = "%a = coreai.constant dense<{}> : tensor<{}xsi32>\n"


def bounds(start: str, end: str, stride: str, length: int = 1, types: tuple[str, str, str] = ("si32",) * 3) -> str:
    names = zip("ses", ("s", "e", "t"), (start, end, stride), types, strict=True)
    return "".join(f"%{n} = coreai.constant dense<{v}> : tensor<{length}x{t}>\n" for _, n, v, t in names)


def slicing(source: str, result: str, length: int = 1, types: tuple[str, str, str] = ("si32",) * 3) -> str:
    vectors = ", ".join(f"tensor<{length}x{type_}>" for type_ in types)
    return f"%y = coreai.slice %x, %s, %e, %t : ({source}, {vectors}) -> {result}"


def binary(op: str, left: str, right: str, result: str, y: str = "%w") -> str:
    return f"%y = coreai.{op} %x, {y} : ({left}, {right}) -> {result}"


# name: (arguments, body, result types, words of the refusal)
HAZARDS: dict[str, tuple[str, str, str, str]] = {
    "reduction over no axes": (
        f"%x: {X}",
        f"%a = coreai.constant dense<> : tensor<0xsi32>\n%y = coreai.reduce_sum %x, %a : ({X}, tensor<0xsi32>) -> {X}",
        X,
        "over no axes",
    ),
    "slice bounds of mixed types": (
        "%x: tensor<6xf32>",
        bounds("0", "4", "1", types=("si16", "si32", "si32"))
        + slicing("tensor<6xf32>", "tensor<4xf32>", types=("si16", "si32", "si32")),
        "tensor<4xf32>",
        "mixed element types",
    ),
    "slice that reverses a whole dimension": (
        "%x: tensor<6xf32>",
        bounds("5", "-7", "-1") + slicing("tensor<6xf32>", "tensor<6xf32>"),
        "tensor<6xf32>",
        "use reverse",
    ),
    "tile zero times": (
        "%x: tensor<2xf32>",
        "%n = coreai.constant dense<0> : tensor<1xui32>\n"
        "%y = coreai.tile %x, %n : (tensor<2xf32>, tensor<1xui32>) -> tensor<0xf32>",
        "tensor<0xf32>",
        "tile zero times",
    ),
    "same-shape op with ? in one operand": (
        "%x: tensor<?x3xf32>, %w: tensor<2x3xf32>",
        binary("add", "tensor<?x3xf32>", X, X),
        X,
        "use the broadcasting op",
    ),
    "same-shape op with ? in the result": (
        f"%x: {X}, %w: {X}",
        binary("add", X, X, "tensor<?x3xf32>"),
        "tensor<?x3xf32>",
        "result type must be exactly tensor<2x3xf32>",
    ),
    "same-shape op with a more precise result": (
        "%x: tensor<?x3xf32>, %w: tensor<?x3xf32>",
        binary("mul", "tensor<?x3xf32>", "tensor<?x3xf32>", X),
        X,
        "result type must be exactly tensor<?x3xf32>",
    ),
    "unary op with a more precise result": (
        "%x: tensor<?x3xf32>",
        f"%y = coreai.exp %x : tensor<?x3xf32> -> {X}",
        X,
        "result type must be exactly",
    ),
    "transpose of f4": (
        "%x: tensor<2x3xf4E2M1FN>",
        "%p = coreai.constant dense<[1, 0]> : tensor<2xui32>\n"
        "%y = coreai.transpose %x, %p : (tensor<2x3xf4E2M1FN>, tensor<2xui32>) -> tensor<3x2xf4E2M1FN>",
        "tensor<3x2xf4E2M1FN>",
        "f4E2M1FN cannot be saved",
    ),
    "concat of f8E8M0": (
        "%x: tensor<2xf8E8M0FNU>",
        AXIS.format(0) + "%y = coreai.concat %a, %x, %x : "
        "(tensor<si32>, tensor<2xf8E8M0FNU>, tensor<2xf8E8M0FNU>) -> tensor<4xf8E8M0FNU>",
        "tensor<4xf8E8M0FNU>",
        "f8E8M0FNU cannot be saved",
    ),
    "select of f4": (
        "%x: tensor<2xi1>, %w: tensor<2xf4E2M1FN>",
        "%y = coreai.where %x, %w, %w : (tensor<2xi1>, tensor<2xf4E2M1FN>, tensor<2xf4E2M1FN>) -> tensor<2xf4E2M1FN>",
        "tensor<2xf4E2M1FN>",
        "f4E2M1FN cannot be saved",
    ),
    "gather of complex": (
        "%x: tensor<2xcomplex<f32>>, %i: tensor<2xsi32>",
        AXIS.format(0) + "%y = coreai.gather_along_axis %x at %i along %a : "
        "(tensor<2xcomplex<f32>>, tensor<2xsi32>, tensor<si32>) to tensor<2xcomplex<f32>>",
        "tensor<2xcomplex<f32>>",
        "complex<f32> cannot be saved",
    ),
    "scatter of complex": (
        "%x: tensor<2xcomplex<f32>>, %i: tensor<2xsi32>",
        AXIS.format(0) + '%y = "coreai.scatter_along_axis"(%x, %i, %x, %a) : '
        "(tensor<2xcomplex<f32>>, tensor<2xsi32>, tensor<2xcomplex<f32>>, tensor<si32>) -> tensor<2xcomplex<f32>>",
        "tensor<2xcomplex<f32>>",
        "complex<f32> cannot be saved",
    ),
    "pad of complex": (
        "%x: tensor<2xcomplex<f32>>",
        "%p = coreai.constant dense<1> : tensor<2xui32>\n"
        "%v = coreai.constant dense<(0.0, 0.0)> : tensor<complex<f32>>\n"
        "%y = coreai.pad %x, %p, %v mode = <constant> : "
        "(tensor<2xcomplex<f32>>, tensor<2xui32>, tensor<complex<f32>>) -> tensor<4xcomplex<f32>>",
        "tensor<4xcomplex<f32>>",
        "aborts the process",
    ),
    "broadcasting_greater on i1": (
        "%x: tensor<2xi1>, %w: tensor<2xi1>",
        binary("decomposable.broadcasting_greater", "tensor<2xi1>", "tensor<2xi1>", "tensor<2xi1>"),
        "tensor<2xi1>",
        "i1 cannot be saved",
    ),
    "broadcasting_equal on complex": (
        "%x: tensor<2xcomplex<f32>>, %w: tensor<2xcomplex<f32>>",
        binary("decomposable.broadcasting_equal", *["tensor<2xcomplex<f32>>"] * 2, "tensor<2xi1>"),
        "tensor<2xi1>",
        "complex<f32> has no kernel",
    ),
    "broadcasting_not_equal on complex": (
        "%x: tensor<2xcomplex<f32>>, %w: tensor<2xcomplex<f32>>",
        binary("decomposable.broadcasting_not_equal", *["tensor<2xcomplex<f32>>"] * 2, "tensor<2xi1>"),
        "tensor<2xi1>",
        "complex<f32> has no kernel",
    ),
    "broadcasting_add on i1": (
        "%x: tensor<2xi1>, %w: tensor<2xi1>",
        binary("decomposable.broadcasting_add", *["tensor<2xi1>"] * 3),
        "tensor<2xi1>",
        "i1 has no kernel",
    ),
    "broadcasting_mul on i1": (
        "%x: tensor<2xi1>, %w: tensor<2xi1>",
        binary("decomposable.broadcasting_mul", *["tensor<2xi1>"] * 3),
        "tensor<2xi1>",
        "i1 has no kernel",
    ),
    "greater on f8": (
        "%x: tensor<2xf8E5M2>, %w: tensor<2xf8E5M2>",
        binary("greater", "tensor<2xf8E5M2>", "tensor<2xf8E5M2>", "tensor<2xi1>"),
        "tensor<2xi1>",
        "f8E5M2 has no kernel",
    ),
    **{
        f"integer {op} by zero": (
            "%x: tensor<3xsi32>",
            "%z = coreai.constant dense<[1, 0, 2]> : tensor<3xsi32>\n" + binary(op, *["tensor<3xsi32>"] * 3, y="%z"),
            "tensor<3xsi32>",
            "division by zero",
        )
        for op in ("divide", "floor_divide", "modulo", "decomposable.broadcasting_modulo")
    },
    "reduce with a region": (
        f"%x: {X}",
        AXES.format(1, 1) + "%i = coreai.constant dense<0.0> : tensor<f32>\n"
        f"%y = coreai.reduce %x, %a, init %i {{\n^bb0(%l: tensor<f32>, %r: tensor<f32>):\n"
        "%s = coreai.add %l, %r : (tensor<f32>, tensor<f32>) -> tensor<f32>\ncoreai.yield %s : tensor<f32>\n}"
        f" : ({X}, tensor<1xsi32>, tensor<f32>) -> tensor<2x1xf32>",
        "tensor<2x1xf32>",
        "aborts the process that loads it",
    ),
    "if without an else branch": (
        "%c: tensor<i1>, %y: tensor<2xf32>",
        '"coreai.if"(%c) ({\n"coreai.yield"() : () -> ()\n}, {\n}) : (tensor<i1>) -> ()',
        "tensor<2xf32>",
        "without an else branch",
    ),
    "if without results": (
        "%c: tensor<i1>, %y: tensor<2xf32>",
        '"coreai.if"(%c) ({\n"coreai.yield"() : () -> ()\n}, {\n"coreai.yield"() : () -> ()\n}) : (tensor<i1>) -> ()',
        "tensor<2xf32>",
        "without results",
    ),
    "scatter_nd whose region yields the old value": (
        "%x: tensor<4xf32>, %i: tensor<2x1xsi32>, %u: tensor<2xf32>",
        "%y = coreai.scatter_nd %x with %u at %i {\n^bb0(%old: tensor<f32>, %new: tensor<f32>):\n"
        "coreai.yield %old : tensor<f32>\n} : (tensor<4xf32>, tensor<2xf32>, tensor<2x1xsi32>) to tensor<4xf32>",
        "tensor<4xf32>",
        "must yield its second argument",
    ),
    "scatter_nd whose region adds": (
        "%x: tensor<4xf32>, %i: tensor<2x1xsi32>, %u: tensor<2xf32>",
        "%y = coreai.scatter_nd %x with %u at %i {\n^bb0(%old: tensor<f32>, %new: tensor<f32>):\n"
        "%s = coreai.add %old, %new : (tensor<f32>, tensor<f32>) -> tensor<f32>\n"
        "coreai.yield %s : tensor<f32>\n} : (tensor<4xf32>, tensor<2xf32>, tensor<2x1xsi32>) to tensor<4xf32>",
        "tensor<4xf32>",
        "nothing but a yield",
    ),
    "reflection with a padding value that is no constant": (
        "%x: tensor<4xf32>, %v: tensor<f32>",
        "%p = coreai.constant dense<1> : tensor<2xui32>\n"
        "%y = coreai.pad %x, %p, %v mode = <reflect> : (tensor<4xf32>, tensor<2xui32>, tensor<f32>) -> tensor<6xf32>",
        "tensor<6xf32>",
        "padding value must be a constant",
    ),
    "lookup table of another size": (
        "%l: tensor<1x1x8x1xf32>",
        "%i = coreai.constant dense<1> : tensor<2x2xui4>\n%a = coreai.constant dense<0> : tensor<si16>\n"
        "%y = coreai.lut_to_dense %i, %l, %a : (tensor<2x2xui4>, tensor<1x1x8x1xf32>, tensor<si16>) -> tensor<2x2xf32>",
        "tensor<2x2xf32>",
        "has 16 entries, not 8",
    ),
    "interpolation to a shape of dynamic length": (
        "%x: tensor<2xf32>, %n: tensor<?xsi32>, %s: tensor<1xf32>",
        '%y = "coreai.interpolate"(%x, %n, %s, %s) '
        "<{interpolation_mode = #coreai.interpolation_mode<linear>}> : "
        "(tensor<2xf32>, tensor<?xsi32>, tensor<1xf32>, tensor<1xf32>) -> tensor<?xf32>",
        "tensor<?xf32>",
        "must have a static length",
    ),
    "a weight that is not there": (
        "",
        "%y = coreai.constant dense_resource<weight> : tensor<300xf32>",
        "tensor<300xf32>",
        "no weight `weight`",
    ),
    "constant index out of range along an axis": (
        "%x: tensor<5xf32>",
        AXIS.format(0) + "%i = coreai.constant dense<[0, 7]> : tensor<2xsi32>\n"
        "%y = coreai.gather_along_axis %x at %i along %a : (tensor<5xf32>, tensor<2xsi32>, tensor<si32>) "
        "to tensor<2xf32>",
        "tensor<2xf32>",
        "indices from 0 to 7 leave the dimension of 5",
    ),
    "constant index vector out of range": (
        "%x: tensor<4x3xf32>",
        "%i = coreai.constant dense<[[0, 1], [-5, 2]]> : tensor<2x2xsi32>\n"
        "%y = coreai.gather_nd %x at %i : (tensor<4x3xf32>, tensor<2x2xsi32>) to tensor<2xf32>",
        "tensor<2xf32>",
        "indices from -5 to 0 leave dimension 0 (4)",
    ),
    "signless integers in a signature": (
        "%x: tensor<2xi32>, %y: tensor<2xf32>",
        "",
        "tensor<2xf32>",
        "element type i32",
    ),
    "a bare number as an argument": ("%x: f32, %y: tensor<2xf32>", "", "tensor<2xf32>", "is a bare f32"),
}


@pytest.mark.parametrize("name", HAZARDS)
def test_refused_for_the_runtime(name: str) -> None:
    arguments, body, results, words = HAZARDS[name]
    module = program(arguments, body, results)
    with pytest.raises(VerifyError, match=re.escape(words)) as caught:
        verify(module)
    assert len(caught.value.problems) == 1
    assert "@main" in str(caught.value)
    verify(module, runtime=False)


# ---- weights --------------------------------------------------------------------------------------


def test_a_weight_of_the_wrong_size_is_refused() -> None:
    import numpy as np

    from patcomp.ir import tensor

    blobs = BlobStore()
    blobs.add("weight", np.zeros(200, np.float32), tensor((200,), "f32"))
    text = graph_text("", "%y = coreai.constant dense_resource<weight> : tensor<300xf32>", "tensor<300xf32>")
    with pytest.raises(VerifyError, match="has 800 bytes, but tensor<300xf32> takes 1200"):
        verify(IRModule.parse(text, blobs))


# ---- state ----------------------------------------------------------------------------------------

STATE = "!coreai.handle<tensor<2xf32>>"
READ = (
    "%v{0}, %t{0} = coreai.read_handle %{1}, %{2} : (<tensor<2xf32>>, !coreai.token) "
    "-> (tensor<2xf32>, !coreai.token)\n"
)
START = "%start = coreai.create_token : !coreai.token\n"


def state_program(body: str, arguments: str = f'%h: {STATE} {{coreai.name = "h"}}', tokens: str = "%t0") -> IRModule:
    count = tokens.count("%")
    types = ", ".join(["!coreai.token"] * count)
    return IRModule.parse(
        f"coreai.graph @main({arguments}) -> ({types}) {{\n{START}{body}coreai.output {tokens} : {types}\n}}"
    )


def test_a_token_of_another_handle_is_refused() -> None:
    body = READ.format(0, "h", "start") + READ.format(1, "g", "t0")
    arguments = f'%h: {STATE} {{coreai.name = "h"}}, %g: {STATE} {{coreai.name = "g"}}'
    with pytest.raises(VerifyError, match="token comes from another handle"):
        verify(state_program(body, arguments, "%t0, %t1"))
    body = READ.format(0, "h", "start") + READ.format(1, "g", "start")
    verify(state_program(body, arguments, "%t0, %t1"))


def test_a_write_of_another_type_is_refused() -> None:
    body = (
        READ.format(0, "h", "start") + "%c = coreai.cast %v0 : tensor<2xf32> to tensor<?xf32>\n"
        "%t1 = coreai.write_handle %h, %c, %t0 : (<tensor<2xf32>>, tensor<?xf32>, !coreai.token) -> !coreai.token\n"
    )
    with pytest.raises(VerifyError, match="exactly the handle's type"):
        verify(state_program(body, tokens="%t1"))


def test_a_write_inside_a_branch_is_refused() -> None:
    write = (
        "%w{0} = coreai.write_handle %h, %v0, %t0 : (<tensor<2xf32>>, tensor<2xf32>, !coreai.token) -> !coreai.token"
    )
    body = (
        READ.format(0, "h", "start") + "%c = coreai.constant dense<true> : tensor<i1>\n"
        f"%t1 = coreai.if %c {{\n{write.format(0)}\ncoreai.yield %w0 : !coreai.token\n}} else {{\n"
        "coreai.yield %t0 : !coreai.token\n} : tensor<i1> -> !coreai.token\n"
    )
    with pytest.raises(VerifyError, match=r"write inside coreai\.if"):
        verify(state_program(body, tokens="%t1"))


# ---- names ----------------------------------------------------------------------------------------


def named_program(arguments: list[str], results: list[str], state: str | None = None) -> IRModule:
    """A graph whose arguments and results have these attribute dictionaries, `""` for none."""
    listed = [f"%x{index}: tensor<2xf32> {entry}" for index, entry in enumerate(arguments)]
    outputs = [f"tensor<2xf32> {entry}" for entry in results]
    values, types = ["%x0"] * len(results), ["tensor<2xf32>"] * len(results)
    body = ""
    if state is not None:
        listed.append(f"%h: {STATE} {state}")
        outputs.append("!coreai.token")
        values.append("%t0")
        types.append("!coreai.token")
        body = START + READ.format(0, "h", "start")
    return IRModule.parse(
        f"coreai.graph @main({', '.join(listed)}) -> ({', '.join(outputs)}) {{\n{body}"
        f"coreai.output {', '.join(values)} : {', '.join(types)}\n}}"
    )


def name(text: str) -> str:
    return f'{{coreai.name = "{text}"}}'


@pytest.mark.parametrize(
    ("arguments", "results", "state", "words"),
    [
        ([name("a")], [name("b"), ""], None, "output 1 has no name"),
        ([name("a"), ""], [name("b")], None, "input 1 has no name"),
        ([name("a")], [""], None, "output 0 has no name"),
        ([name("a")], [name("")], None, "output 0 has an empty name"),
        ([name("")], [name("a")], None, "input 0 has an empty name"),
        ([name("a")], [name("b")], "", "state 0 has no name"),
        ([name("a"), name("a")], [name("b")], None, "2 inputs are named 'a'"),
        ([name("a")], [name("b"), name("b")], None, "2 outputs are named 'b'"),
        ([name("a")], [name("h")], name("h"), "output 'h' has the name of a state"),
        ([name("a")], ['{coreai.name = "b", coreai.enumerated_shapes = {s = [2]}}'], None, "enumerated_shapes"),
    ],
)
def test_bad_names_are_refused(arguments: list[str], results: list[str], state: str | None, words: str) -> None:
    module = named_program(arguments, results, state)
    with pytest.raises(VerifyError, match=re.escape(words)):
        verify(module)
    verify(module, runtime=False)


@pytest.mark.parametrize(
    ("arguments", "results", "state"),
    [
        ([name("a")], [name("a")], None),
        ([name("a")], [name("b")], name("a")),
        ([name("a")], [name("é ☃")], name("h")),
        (["", ""], [""], None),
    ],
)
def test_good_names_are_taken(arguments: list[str], results: list[str], state: str | None) -> None:
    verify(named_program(arguments, results, state))


def test_names_of_private_graphs_do_not_matter() -> None:
    verify(IRModule.parse(graph_text("%x: tensor<2xf32>, %y: tensor<2xf32>", "", "tensor<2xf32>", keywords="private")))
