"""Every example of the dialect: types inferred, evaluated, run on the real runtime, compared."""

from __future__ import annotations

import pytest
import torch

from patcomp.errors import EvaluationError
from patcomp.evaluate.element_types import array_of
from patcomp.evaluate.machine import evaluate
from patcomp.ir import IRModule
from patcomp.ir.infer import compatible, infer_types
from patcomp.ir.module import names_of
from patcomp.ir.types import HandleType, element_name, shape_of
from patcomp.ir.xdsl import TensorType
from tests.evaluate.agreement import assert_agree, assert_all_agree, native_array, random_input
from tests.helpers.dialect_cases import READABLE, DialectCase

GIVEN = {
    "range": {"x0": torch.tensor(1), "x1": torch.tensor(9), "x2": torch.tensor(3)},
    "while": {"x0": torch.tensor(3)},
    "dyn_reduce_axis": {"x1": torch.tensor([1])},
    "dyn_reshape": {"x0": torch.arange(4.0)},
    "gather_along_axis": {"x1": torch.tensor([[0, -1, 4], [1, 1, -5]])},
    "gather_nd": {"x1": torch.tensor([[3], [-4]])},
    "scatter_nd": {"x1": torch.tensor([[0], [-1]])},
}
"""Inputs that cannot be random: bounds, axes, indices."""

REFUSED = {"asym_stats": "overflows si8"}
"""Programs that run, but to wrong numbers: the runtime computes 127 - -128 in si8."""

RUNNABLE = [case for case in READABLE if case.outcome == "ok" and case.id not in REFUSED]


def inputs_of(case: DialectCase, name: str, type_: TensorType) -> torch.Tensor:
    given = GIVEN.get(case.id, {}).get(name)
    if given is None and case.op == "coreai.scatter_along_axis" and name == "x1":
        given = torch.tensor([[0, -1], [3, 3]])
    drawn = random_input(type_, f"{case.id}.{name}", *((1.1, 3.0) if case.id == "acosh" else (0.1, 0.9)))
    return drawn if given is None else given.to(drawn.dtype)


@pytest.mark.parametrize("case", RUNNABLE, ids=lambda case: case.id)
def test_evaluator_and_runtime_agree(case: DialectCase, native):
    module = IRModule.parse(case.text)
    before = module.text()
    graph = module.graph("main")
    inputs, state, native_inputs, native_state = {}, {}, {}, {}
    for name, argument in zip(names_of(graph, "arg_attrs"), graph.regions[0].block.args, strict=True):
        type_ = argument.type.tensor_type if isinstance(argument.type, HandleType) else argument.type
        value = inputs_of(case, name, type_)
        if isinstance(argument.type, HandleType):
            state[name], native_state[name] = value, array_of(value.clone())
        else:
            inputs[name], native_inputs[name] = value, native_array(value, element_name(type_.element_type))
    ours = evaluate(module, inputs, state=state)
    assert module.text() == before
    assert_all_agree(ours, native.run(module, native_inputs, native_state))
    for name, content in state.items():
        assert_agree(content, native_state[name], f"state {name}")


@pytest.mark.parametrize("case", RUNNABLE, ids=lambda case: case.id)
def test_inferred_types_fit_the_declared_ones(case: DialectCase):
    for op in IRModule.parse(case.text).op.walk():
        row = getattr(op, "ROW", None)
        if row is None or row.infer in (None, "cast"):
            continue
        inferred = infer_types(row, op.operands, op.properties)
        for declared, type_ in zip(op.results, inferred, strict=True):
            if not isinstance(type_, TensorType):
                assert declared.type == type_
                continue
            assert compatible(shape_of(declared.type), shape_of(type_))
            if row.name not in ("argmax", "argsort", "lut_to_sparse_with_bitmask"):
                assert declared.type.element_type == type_.element_type


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_runtime_gets_wrong_is_refused(name: str):
    case = next(case for case in READABLE if case.id == name)
    module = IRModule.parse(case.text)
    (argument,) = module.graph("main").regions[0].block.args
    with pytest.raises(EvaluationError, match=REFUSED[name]):
        evaluate(module, {"x0": random_input(argument.type, name)})


@pytest.mark.parametrize("name", ["reduce", "reduce_index"])
def test_regions_of_reductions(name: str):
    """The runtime cannot load these two ops, so torch is the reference."""
    case = next(case for case in READABLE if case.id == name)
    x = torch.tensor([[1.0, 4.0, 4.0], [3.0, -2.0, 0.5]])
    result = evaluate(IRModule.parse(case.text), {"x0": x})["y0"]
    expected = x.sum(1, keepdim=True) if name == "reduce" else torch.tensor([[1], [0]], dtype=torch.uint32)
    assert torch.equal(result, expected)
