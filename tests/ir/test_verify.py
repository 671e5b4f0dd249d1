"""The verifier: malformed programs are refused with all their problems, and every good case of the dialect passes."""

from __future__ import annotations

import re
import time

import pytest

from patcomp.errors import VerifyError
from patcomp.ir import OPS, Builder, IRModule, Value, create_graph, tensor
from patcomp.ir import coreai as ops
from patcomp.ir.locations import Origin, origin_location
from patcomp.ir.verify import verify
from patcomp.ir.xdsl import Block, IntegerAttr, IntegerType, StringAttr
from tests.helpers.dialect_cases import READABLE, DialectCase
from tests.ir.programs import graph_text, program

NOT_FOR_THE_RUNTIME = {"reduce", "reduce_index", "if_noelse", "coreaix_cast", "coreaix_view", "unrealized_cast"}
"""Cases that are well-formed, but that the toolchain cannot save, load or print."""


@pytest.mark.parametrize("case", READABLE, ids=lambda case: case.id)
def test_cases_of_the_dialect(case: DialectCase) -> None:
    module = IRModule.parse(case.text)
    if case.outcome == "parse":
        with pytest.raises(VerifyError):
            verify(module, runtime=False)
        return
    verify(module, runtime=False)
    if case.id in NOT_FOR_THE_RUNTIME:
        with pytest.raises(VerifyError):
            verify(module)
    else:
        verify(module)


# ---- blocks and definitions -------------------------------------------------------------------------


def block_module(block: Block) -> IRModule:
    module = IRModule()
    module.op.body.block.add_op(create_graph("main", block, argument_names=["x"], result_names=["y"]))
    return module


def test_a_use_before_the_definition_is_refused() -> None:
    block = Block(arg_types=[tensor((2,), "f32")])
    first = OPS["coreai.abs"].create(operands=[block.args[0]], result_types=[tensor((2,), "f32")])
    second = OPS["coreai.tanh"].create(operands=[first.results[0]], result_types=[tensor((2,), "f32")])
    output = OPS["coreai.output"].create(operands=[second.results[0]])
    block.add_ops([second, first, output])
    with pytest.raises(VerifyError, match="operand 0 is used before it is defined") as caught:
        verify(block_module(block))
    assert len(caught.value.problems) == 1


def test_a_value_of_another_graph_is_refused() -> None:
    module = IRModule.parse(
        graph_text(
            "%x: tensor<2xf32>", "%y = coreai.abs %x : tensor<2xf32> -> tensor<2xf32>", "tensor<2xf32>", name="f"
        )
        + graph_text("%x: tensor<2xf32>", "%y = coreai.abs %x : tensor<2xf32> -> tensor<2xf32>", "tensor<2xf32>")
    )
    stranger = module.graph("f").regions[0].block.first_op
    user = module.graph("main").regions[0].block.first_op
    user.operands = [stranger.results[0]]
    with pytest.raises(VerifyError, match=r"a result of coreai.abs, is not visible here"):
        verify(module)


def test_a_value_of_a_finished_branch_is_refused() -> None:
    body = (
        "%0 = coreai.if %c {\n%i = coreai.abs %x : tensor<2xf32> -> tensor<2xf32>\ncoreai.yield %i : tensor<2xf32>\n}"
        " else {\ncoreai.yield %x : tensor<2xf32>\n} : tensor<i1> -> tensor<2xf32>\n"
        "%y = coreai.tanh %0 : tensor<2xf32> -> tensor<2xf32>"
    )
    module = program("%c: tensor<i1>, %x: tensor<2xf32>", body, "tensor<2xf32>")
    verify(module)
    branch = module.graph("main").regions[0].block.first_op
    user = branch.next_op
    user.operands = [branch.regions[0].block.first_op.results[0]]
    with pytest.raises(VerifyError, match="is not visible here"):
        verify(module)


def test_a_graph_without_terminator_is_refused() -> None:
    module = IRModule.parse(
        "coreai.graph private @f(%x: tensor<2xf32>) {\n%0 = coreai.abs %x : tensor<2xf32> -> tensor<2xf32>\n}"
    )
    with pytest.raises(VerifyError, match=r"must end in coreai\.output, but ends in coreai\.abs"):
        verify(module)


def test_an_op_after_the_terminator_is_refused() -> None:
    module = IRModule.parse("coreai.graph private @f() {\ncoreai.output\ncoreai.output\n}")
    with pytest.raises(VerifyError, match="ends a block, but ops follow it"):
        verify(module)


def test_an_op_outside_graphs_is_refused() -> None:
    with pytest.raises(VerifyError, match="cannot stand outside a graph"):
        verify(IRModule.parse("%0 = coreai.constant dense<1> : tensor<1xsi32>"))


# ---- graphs and calls --------------------------------------------------------------------------------

CALLEE = graph_text(
    "%x: tensor<2xf32>, %y: tensor<2xf32>", "", "tensor<2xf32>", name="f", keywords="private", named=False
)


def caller(signature: str, operands: str = "%x, %x", callee: str = "f") -> IRModule:
    body = f"%y = coreai.invoke @{callee}({operands}) : {signature}"
    return IRModule.parse(CALLEE + graph_text("%x: tensor<2xf32>", body, signature.rpartition("-> ")[2]))


def test_calls() -> None:
    good = "(tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>"
    verify(caller(good))
    with pytest.raises(VerifyError, match="there is no graph @g"):
        verify(caller(good, callee="g"))
    with pytest.raises(VerifyError, match="which must be met exactly"):
        verify(caller("(tensor<2xf32>, tensor<2xf32>) -> tensor<?xf32>"))
    with pytest.raises(VerifyError, match="which must be met exactly"):
        verify(caller("(tensor<2xf32>) -> tensor<2xf32>", "%x"))


def test_recursion_is_refused() -> None:
    body = "%y = coreai.invoke @{0}(%x) : (tensor<2xf32>) -> tensor<2xf32>"
    graphs = [("main", "f"), ("f", "g"), ("g", "f")]
    text = "".join(graph_text("%x: tensor<2xf32>", body.format(b), "tensor<2xf32>", name=a) for a, b in graphs)
    with pytest.raises(VerifyError, match="in a circle: @f -> @g -> @f"):
        verify(IRModule.parse(text))


def test_two_graphs_of_one_name_are_refused() -> None:
    with pytest.raises(VerifyError, match="two graphs named @f"):
        verify(IRModule.parse(CALLEE + CALLEE))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "coreai.graph @f(%x: tensor<2xf32>) -> tensor<3xf32> {{\ncoreai.output %x : tensor<2xf32>\n}}",
            "its output has",
        ),
        ("coreai.graph @f(tensor<2xf32>) -> tensor<2xf32>", "only a private graph may lack a body"),
        ("coreai.graph private externalize @f() {{\ncoreai.output\n}}", "both private and externalize"),
        ("coreai.graph @f(%x: tensor<2xf32> {{note = 1 : i32}}) {{\ncoreai.output\n}}", "lacks a dialect's prefix"),
        ("coreai.graph @f(%h: !coreai.handle<tensor<2xf32>>) {{\ncoreai.output\n}}", "one token for each handle"),
        (
            "coreai.graph private @f(%x: tensor<2xf32>, %y: tensor<2xf32>) attributes {{{0}}} {{\ncoreai.output\n}}",
            "input_names of the composite norm are ['a'], but there are 2",
        ),
        (
            "coreai.graph private @f(%x: tensor<2xf32>) attributes {{{0}}} {{\ncoreai.output\n}}",
            "output_names of the composite norm are ['b'], but there are 0",
        ),
    ],
)
def test_bad_graphs_are_refused(text: str, words: str) -> None:
    declaration = 'composite_decl = #coreai.composite_declaration<"norm" = {input_names = ["a"], output_names = ["b"]}>'
    with pytest.raises(VerifyError, match=re.escape(words)):
        verify(IRModule.parse(text.format(declaration)))


def test_a_composite_may_list_the_parameters_of_its_module_before_its_arguments() -> None:
    declaration = '#coreai.composite_declaration<"norm" = {input_names = ["weight", "x"]}>'
    text = "coreai.graph private @f(%x: tensor<2xf32>) attributes {{composite_decl = {0}}} {{\ncoreai.output\n}}"
    verify(IRModule.parse(text.format(declaration)))


def test_a_signature_that_differs_from_the_block_is_refused() -> None:
    text = (
        '"coreai.graph"() <{sym_name = "f", function_type = (tensor<3xf32>) -> (), '
        "param_decls = #param.decl.array<[]>, arg_attrs = [{}, {}]}> ({\n^bb0(%x: tensor<2xf32>):\n"
        '"coreai.output"() : () -> ()\n}) : () -> ()'
    )
    with pytest.raises(VerifyError) as caught:
        verify(IRModule.parse(text))
    messages = " ".join(problem.message for problem in caught.value.problems)
    assert "its block takes (tensor<2xf32>), but its signature (tensor<3xf32>)" in messages
    assert "`arg_attrs` has 2 entries for 1 values" in messages


# ---- control flow and regions -------------------------------------------------------------------------


def branches(then: str, otherwise: str, result: str) -> IRModule:
    body = (
        f"%y = coreai.if %c {{\ncoreai.yield %{then[0]} : {then[1:]}\n}} else {{\n"
        f"coreai.yield %{otherwise[0]} : {otherwise[1:]}\n}} : tensor<i1> -> {result}"
    )
    return program("%c: tensor<i1>, %s: tensor<2xf32>, %d: tensor<?xf32>", body, result)


def test_types_along_edges_of_an_if() -> None:
    verify(branches("stensor<2xf32>", "stensor<2xf32>", "tensor<2xf32>"))
    with pytest.raises(VerifyError, match=r"the else branch yields \(tensor<\?xf32>\)"):
        verify(branches("stensor<2xf32>", "dtensor<?xf32>", "tensor<2xf32>"))
    with pytest.raises(VerifyError, match="the then branch yields"):
        verify(branches("stensor<2xf32>", "dtensor<?xf32>", "tensor<?xf32>"))


def test_types_along_edges_of_a_while() -> None:
    body = (
        "%y = coreai.while %x {{\n^bb0(%i: {0}):\n%c = coreai.constant dense<false> : tensor<i1>\n"
        "coreai.condition %c, %i : (tensor<i1>, {0})\n}} do {{\n^bb0(%j: {1}):\ncoreai.yield %j : {1}\n}}"
        " : (tensor<2xf32>) -> ({2})"
    )
    static, dynamic = "tensor<2xf32>", "tensor<?xf32>"
    verify(program(f"%x: {static}", body.format(static, static, static), static))
    for types, words in (
        ((dynamic, static, static), "the first region takes"),
        ((static, dynamic, static), "the second region takes"),
        ((static, static, dynamic), "the results are"),
    ):
        with pytest.raises(VerifyError, match=words):
            verify(program(f"%x: {static}", body.format(*types), types[2]))


REGION = """%y = patcomp.region @norm(%x) {{argument_names = [{0}]}} : (tensor<2xf32>) -> tensor<2xf32> {{
^bb0(%i: {1}):
  {2}
  coreai.yield {3} : {1}
}}"""


@pytest.mark.parametrize(
    ("names", "type_", "body", "value", "words"),
    [
        ('"a"', "tensor<2xf32>", "", "%i", None),
        ('"a", "b"', "tensor<2xf32>", "", "%i", "2 argument names for 1 operands"),
        ('"a"', "tensor<3xf32>", "", "%i", "the body takes (tensor<3xf32>)"),
        ('"a"', "tensor<2xf32>", "%0 = coreai.abs %x : tensor<2xf32> -> tensor<2xf32>", "%i", "not visible here"),
    ],
)
def test_regions(names: str, type_: str, body: str, value: str, words: str | None) -> None:
    text = graph_text("%x: tensor<2xf32>", REGION.format(names, type_, body, value), "tensor<2xf32>")
    if words is None:
        verify(IRModule.parse(text))
    else:
        with pytest.raises(VerifyError, match=re.escape(words)):
            verify(IRModule.parse(text))


# ---- aten ops -----------------------------------------------------------------------------------------

MIXED = """%0 = aten.add.Tensor %x, %x : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
%1 = aten.cat tensors = [%0, %x], dim = 0 : (tensor<2xf32>, tensor<2xf32>) -> tensor<4xf32>
%2:2 = aten.split.Tensor %1, split_size = 2 : (tensor<4xf32>) -> (tensor<2xf32>, tensor<2xf32>)
%y = coreai.tanh %2#0 : tensor<2xf32> -> tensor<2xf32>"""


def aten_op(name: str) -> tuple[IRModule, object]:
    module = program("%x: tensor<2xf32>", MIXED, "tensor<2xf32>")
    return module, next(op for op in module.op.walk() if op.name == name)


def test_both_dialects_in_one_graph() -> None:
    module, _ = aten_op("aten.cat")
    verify(module)


def test_bad_aten_ops_are_refused() -> None:
    module, op = aten_op("aten.add.Tensor")
    op.operands = [*op.operands, op.operands[0]]
    with pytest.raises(VerifyError, match="stand for 2 operands, but it has 3"):
        verify(module)
    module, op = aten_op("aten.cat")
    op.properties["axis"] = IntegerAttr(0, IntegerType(64))
    with pytest.raises(VerifyError, match="has no argument `axis`"):
        verify(module)
    module, op = aten_op("aten.cat")
    del op.properties["dim"]
    with pytest.raises(VerifyError, match="stand for 3 operands, but it has 2"):
        verify(module)
    module, op = aten_op("aten.cat")
    from patcomp.ir.aten import NONE

    op.properties["dim"] = NONE
    with pytest.raises(VerifyError, match="`dim` of type int cannot be none"):
        verify(module)


def test_an_aten_op_with_too_many_results_is_refused() -> None:
    body = '%y, %z = "aten.relu"(%x) : (tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>)'
    with pytest.raises(VerifyError, match="makes 1 results, but has 2"):
        verify(program("%x: tensor<2xf32>", body, "tensor<2xf32>"))


# ---- the report ------------------------------------------------------------------------------------------


def test_all_problems_are_reported_with_their_place() -> None:
    block = Block(arg_types=[tensor((2,), "f32")])
    with Builder(block, location=origin_location(Origin("relu_1", "model.layers.0", "model.py", 12))):
        value = Value(block.args[0])
        for _ in range(30):
            value = ops.abs_(value, result_type=tensor((3,), "f32"))
            value = ops.cast(value, "f32", result_type=tensor((2,), "f32"))
        ops.output(value)
    with pytest.raises(VerifyError) as caught:
        verify(block_module(block))
    problems = caught.value.problems
    assert len(problems) == 60
    assert problems[0].node == "relu_1"
    assert problems[0].module_path == "model.layers.0"
    assert problems[0].source == "model.py:12"
    message = str(caught.value)
    assert "the IR has 60 problems" in message
    assert "graph @main: result type must be exactly tensor<2xf32>" in message
    assert (
        "op coreai.abs(tensor<2xf32>) -> tensor<3xf32>, node %relu_1, in module model.layers.0, at model.py:12"
        in message
    )
    assert "and 40 more" in message


def test_a_large_module_is_checked_in_time() -> None:
    block = Block(arg_types=[tensor((4, 64), "f32")])
    with Builder(block):
        value = Value(block.args[0])
        for _ in range(2500):
            value = ops.tanh(ops.broadcasting_add(value, value))
            value = ops.transpose(ops.reshape(value, [64, 4]), [1, 0])
        ops.output(value)
    module = block_module(block)
    start = time.process_time()
    verify(module)
    assert time.process_time() - start < 1.0


def test_symbols_that_are_not_strings_do_not_stop_the_report() -> None:
    module = IRModule.parse(CALLEE)
    module.graph("f").properties["sym_name"] = IntegerAttr(1, IntegerType(32))
    with pytest.raises(VerifyError, match="sym_name"):
        verify(module)
    module.op.body.block.first_op.properties["sym_name"] = StringAttr("f")
    verify(module)
