"""The evaluator as a whole: names, constants, state, control flow, calls, regions, errors."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

from patcomp.errors import EvaluationError
from patcomp.evaluate.machine import evaluate, evaluate_graph
from patcomp.evaluate.registry import implementations
from patcomp.ir import Builder, IRModule, Value, coreai, create_graph
from patcomp.ir.constants import constant_attribute
from patcomp.ir.dialect import OPS, create_op
from patcomp.ir.region import create_region
from patcomp.ir.types import element_type, tensor
from patcomp.ir.xdsl import Block, DenseResourceAttr
from tests.evaluate.agreement import assert_agree, assert_all_agree
from tests.helpers.programs import program, storage_of, tensor_type


def test_every_op_is_implemented():
    structure = {"coreai.graph", "coreai.output", "coreai.yield", "coreai.condition"}
    assert {name for name in OPS if name.startswith("coreai.")} - structure <= set(implementations())


def test_the_ir_does_not_import_torch():
    code = (
        "import sys, patcomp.ir, patcomp.emit.asset; assert 'torch' not in sys.modules and 'coreai' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_unnamed_arguments_and_results_go_by_position():
    block = Block(arg_types=[tensor_type("2xf32"), tensor_type("2xf32")])
    with Builder(block):
        x, y = map(Value, block.args)
        coreai.output(coreai.add(x, y), coreai.sub(x, y))
    module = IRModule()
    module.op.body.block.add_op(create_graph("main", block))
    results = evaluate(module, {"0": torch.tensor([1.0, 2.0]), "1": np.float32([3.0, 5.0])})
    assert {name: value.tolist() for name, value in results.items()} == {"0": [4.0, 7.0], "1": [-2.0, -3.0]}


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "needs input x"),
        ({"x": torch.zeros(2), "z": torch.zeros(2)}, "has no input z; its inputs are x"),
        ({"x": torch.zeros(3)}, r"input 'x' must be of type tensor<2xf32>, got torch.float32 of shape \(3,\)"),
        ({"x": torch.zeros(2, dtype=torch.float64)}, "got torch.float64"),
    ],
)
def test_wrong_inputs(inputs: dict, message: str):
    with pytest.raises(EvaluationError, match=message):
        evaluate(program({"x": "2xf32"}, coreai.exp), inputs)


def test_results_share_no_memory_with_inputs_and_weights():
    module = program({"x": "2xf32"}, lambda x: [x, coreai.constant([1.0, 2.0])])
    x = torch.tensor([3.0, 4.0])
    for _ in range(2):
        results = evaluate(module, {"x": x})
        assert [value.tolist() for value in results.values()] == [[3.0, 4.0], [1.0, 2.0]]
        for value in results.values():
            value.zero_()


def test_evaluation_leaves_the_module_alone():
    module = program({"x": "4xf32"}, lambda x: coreai.add(x, coreai.constant([1.0, 2.0, 3.0, 4.0])))
    before = module.text(locations=True)
    evaluate(module, {"x": torch.zeros(4)})
    assert module.text(locations=True) == before


def test_weights_are_not_copied():
    weight = torch.randn(16, 32)
    module = IRModule()
    body = lambda x: coreai.broadcasting_add(x, coreai.constant(weight.numpy()))  # noqa: E731
    program({"x": "32xf32"}, body, module=module)
    assert torch.equal(evaluate(module, {"x": torch.zeros(32)})["y0"], weight)
    weight.fill_(2.0)
    assert torch.equal(evaluate(module, {"x": torch.zeros(32)})["y0"], weight)


@pytest.mark.parametrize("element", ["ui1", "ui2", "ui3", "ui4", "ui6", "ui8"])
def test_packed_weights(native, element: str):
    bits = int(element[2:])
    indices = np.random.default_rng(0).integers(0, 2**bits, (20, 15))
    module = IRModule()

    def body(x: Value) -> Value:
        type_ = tensor(indices.shape, element)
        key = module.blobs.add("palette", np.frombuffer(storage_of(indices, bits), np.uint8), type_)
        op = create_op("coreai.constant", (), (type_,), {"value": DenseResourceAttr.from_params(key, type_)})
        packed = Value(Builder.current().insert(op).results[0])
        table = coreai.constant(np.arange(2**bits, dtype=np.float32).reshape(1, 1, -1, 1))
        return coreai.add(x, coreai.lut_to_dense(packed, table, coreai.constant(0, "si16")))

    program({"x": "20x15xf32"}, body, module=module)
    x = torch.zeros(20, 15)
    results = evaluate(module, {"x": x})
    np.testing.assert_array_equal(results["y0"].numpy(), indices)
    assert_all_agree(results, native.run(module, {"x": x}))


@pytest.mark.parametrize("element", ["si2", "si4"])
def test_signed_packed_weights(element: str):
    bits = int(element[2:])
    numbers = np.random.default_rng(0).integers(-(2 ** (bits - 1)), 2 ** (bits - 1), 300)
    module = IRModule()

    def body(x: Value) -> Value:
        type_ = tensor((300,), element)
        key = module.blobs.add("weight", np.frombuffer(storage_of(numbers, bits), np.uint8), type_)
        op = create_op("coreai.constant", (), (type_,), {"value": DenseResourceAttr.from_params(key, type_)})
        return coreai.add(x, coreai.cast(Value(Builder.current().insert(op).results[0]), "f32"))

    program({"x": "300xf32"}, body, module=module)
    np.testing.assert_array_equal(evaluate(module, {"x": torch.zeros(300)})["y0"].numpy(), numbers)


def test_a_missing_weight_is_named():
    module = program({"x": "300xf32"}, lambda x: coreai.add(x, coreai.constant(np.arange(300, dtype=np.float32))))
    module.blobs.blobs.clear()
    with pytest.raises(EvaluationError, match="no weight 'constant'"):
        evaluate(module, {"x": torch.zeros(300)})


def accumulate(handle: Value, x: Value) -> list[Value]:
    content, token = coreai.read_handle(handle, coreai.create_token())
    total = coreai.add(content, x)
    return [total, coreai.write_handle(handle, total, token)]


def test_state_is_written_in_place(native):
    module = program({"x": "2x3xf32"}, accumulate, states={"total": "2x3xf32"})
    x, total, as_numpy = torch.ones(2, 3), torch.zeros(2, 3), np.zeros((2, 3), np.float32)
    native_state = {"total": np.zeros((2, 3), np.float32)}
    for step in (1.0, 2.0):
        results = evaluate(module, {"x": x}, state={"total": total})
        assert torch.equal(results["y0"], torch.full((2, 3), step))
        assert torch.equal(total, results["y0"])
        evaluate(module, {"x": x}, state={"total": as_numpy})
        np.testing.assert_array_equal(as_numpy, total.numpy())
        assert_all_agree(results, native.run(module, {"x": x}, native_state))
        assert_agree(total, native_state["total"])


def test_two_states_can_be_swapped():
    def swap(first: Value, second: Value) -> list[Value]:
        a, token_a = coreai.read_handle(first, coreai.create_token())
        b, token_b = coreai.read_handle(second, coreai.create_token())
        return [coreai.write_handle(first, b, token_a), coreai.write_handle(second, a, token_b)]

    state = {"first": torch.tensor([1.0]), "second": torch.tensor([2.0])}
    assert evaluate(program({}, swap, states={"first": "1xf32", "second": "1xf32"}), {}, state=state) == {}
    assert [value.item() for value in state.values()] == [2.0, 1.0]


def test_state_that_is_missing():
    module = program({"x": "2xf32"}, accumulate, states={"total": "2xf32"})
    with pytest.raises(EvaluationError, match="needs state total"):
        evaluate(module, {"x": torch.zeros(2)})


def test_a_loop_that_uses_outer_values(native):
    def body(x: Value, count: Value) -> list[Value]:
        one = coreai.constant(1)
        return coreai.while_(
            [coreai.constant(0), x],
            lambda i, value: coreai.greater(count, i),
            lambda i, value: [coreai.add(i, one), coreai.mul(value, x)],
        )

    module = program({"x": "3xf32", "count": "si32"}, body)
    for count in (0, 1, 4):
        inputs = {"x": torch.tensor([1.0, 2.0, -0.5]), "count": torch.tensor(count, dtype=torch.int32)}
        results = evaluate(module, inputs)
        assert torch.equal(results["y1"], inputs["x"] ** (count + 1))
        assert_all_agree(results, native.run(module, inputs))


def test_branches(native):
    body = lambda c, x: coreai.if_(c, lambda: [coreai.exp(x)], lambda: [x])  # noqa: E731
    module = program({"c": "i1", "x": "2xf32"}, body)
    for condition in (True, False):
        inputs = {"c": torch.tensor(condition), "x": torch.tensor([0.0, 1.0])}
        results = evaluate(module, inputs)
        assert torch.equal(results["y0"], inputs["x"].exp() if condition else inputs["x"])
        assert_all_agree(results, native.run(module, inputs))


def test_calls():
    module = program({"x": "2xf32"}, coreai.exp, name="inner")
    result_type = tensor((2,), "f32")
    program({"x": "2xf32"}, lambda x: coreai.invoke("inner", [x], [result_type]), module=module)
    x = torch.tensor([0.0, 1.0])
    assert torch.equal(evaluate(module, {"x": x})["y0"], x.exp())
    assert torch.equal(evaluate(module, {"x": x}, entry="inner")["y0"], x.exp())
    assert torch.equal(evaluate_graph(module.graph("inner"), [x], module)[0], x.exp())
    with pytest.raises(KeyError, match="no graph @other; there are @inner, @main"):
        evaluate(module, {"x": x}, entry="other")


def test_regions_run_their_body():
    inner = Block(arg_types=[tensor_type("2xf32")])
    with Builder(inner):
        coreai.yield_(coreai.exp(Value(inner.args[0])))

    def body(x: Value) -> Value:
        region = create_region("double", [x.ssa], inner, [tensor((2,), "f32")], ["x"])
        return Value(Builder.current().insert(region).results[0])

    x = torch.tensor([0.0, 1.0])
    assert torch.equal(evaluate(program({"x": "2xf32"}, body), {"x": x})["y0"], x.exp())


def test_an_unknown_op_is_named_with_its_place():
    text = """
    module {
      coreai.graph @main(%x: tensor<2xf32> {coreai.name = "x"}) -> (tensor<2xf32> {coreai.name = "y"}) {
        %0 = "aten.celu"(%x) <{alpha = 1.0 : f64}> : (tensor<2xf32>) -> tensor<2xf32> loc("celu@act"("model.py":7:0))
        coreai.output %0 : tensor<2xf32>
      }
    }"""
    with pytest.raises(EvaluationError, match=r"does not know the op aten\.celu \(%celu in act at model\.py:7\)"):
        evaluate(IRModule.parse(text), {"x": torch.zeros(2)})


@pytest.mark.parametrize("shape", [(2,), (2, 4)])
def test_a_result_that_is_not_of_its_type_is_an_error(shape: tuple):
    """The runtime believes a wrong type, and cuts or garbles the result."""
    body = lambda x: coreai.reduce_sum(x, [1], result_type=tensor(shape, "f32"))  # noqa: E731
    with pytest.raises(EvaluationError, match=r"result of coreai\.reduce_sum must be of type"):
        evaluate(program({"x": "2x4xf32"}, body), {"x": torch.zeros(2, 4)})


def test_bfloat16_and_small_float_constants():
    def body(x: Value) -> Value:
        attribute = constant_attribute(np.uint16([0x3F80, 0x4000]), element_type("bf16"), None)
        op = create_op("coreai.constant", (), (attribute.type,), {"value": attribute})
        return coreai.add(x, Value(Builder.current().insert(op).results[0]))

    result = evaluate(program({"x": "2xbf16"}, body), {"x": torch.zeros(2, dtype=torch.bfloat16)})["y0"]
    assert result.tolist() == [1.0, 2.0]


def test_splats_take_one_element_of_memory():
    module = program({"x": "3xf32"}, lambda x: coreai.add(x, coreai.constant(np.full(3, 7.0, np.float32))))
    assert evaluate(module, {"x": torch.zeros(3)})["y0"].tolist() == [7.0, 7.0, 7.0]
