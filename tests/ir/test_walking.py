"""The public walk of a program."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from patcomp import AIProgram, EvaluationError, TorchConverter
from patcomp.ir import walk


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(8), nn.Linear(8, 64)
        self.register_buffer("total", torch.zeros(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total += x.sum(0)  # type: ignore[operator]
        return self.linear(self.norm(x)).cumsum(-1)


@pytest.fixture(scope="module")
def program() -> AIProgram:
    dims = ({0: torch.export.Dim("batch", min=2, max=8)},)
    exported = torch.export.export(Net(), (torch.randn(4, 8),), dynamic_shapes=dims)
    return TorchConverter().add_exported_program(exported).to_coreai()


def test_graphs_follow_what_they_call_and_say_what_they_are(program: AIProgram) -> None:
    norm, main = walk(program.module)
    assert (norm.is_entry, main.is_entry, main.name) == (False, True, "main")
    assert norm.composite is not None
    assert norm.composite.name == "layer_norm"
    assert norm.composite.inputs == ("input", "gamma", "beta")
    assert norm.composite.attributes["axes"] == [1]
    assert norm.composite.attributes["eps"] == pytest.approx(1e-5)
    assert main.composite is None
    assert [op.callee for op in main.ops if op.callee] == [norm.name]


def test_ports_are_inputs_states_and_tokens(program: AIProgram) -> None:
    *_, main = walk(program.module)
    state, x = main.inputs
    assert (state.name, state.is_state, state.type and state.type.shape) == ("b_total", True, (8,))
    assert (x.name, x.is_state, x.value.shape, x.value.dtype) == ("x", False, (None, 8), "f32")
    assert [port.type and port.type.shape for port in main.outputs] == [None, (None, 64)]
    assert [port.value for port in main.outputs] == list(main.results)


def test_ops_have_attributes_places_and_weights_that_are_not_copied(program: AIProgram) -> None:
    *_, main = walk(program.module)
    ops = {op.name: op for op in main.ops}
    assert ops["coreai.scan"].attributes == {"scan_op": "sum"}
    assert ops["coreai.scan"].origins[0].node == "cumsum"
    assert ops["coreai.scan"].place.startswith("%cumsum at ")
    weights = {op.weight: op.constant for op in main.ops if op.weight}
    (key, values), *more = weights.items()
    assert not more
    assert values is not None
    assert np.shares_memory(values, program.module.blobs[str(key)].array())


class Branches(nn.Module):
    def forward(self, x: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
        return torch.cond(flag, nn.functional.gelu, torch.neg, (x,))


def test_branches_have_bodies_and_enumerations_their_defaults() -> None:
    exported = torch.export.export(Branches(), (torch.randn(2, 3), torch.tensor(True)))
    (graph,) = walk(TorchConverter().add_exported_program(exported).to_coreai().module)
    (branch,) = [op for op in graph.ops if op.bodies]
    then, otherwise = branch.bodies
    (gelu,) = [op for op in then.ops if op.constant is None]
    assert (branch.name, gelu.name, gelu.attributes["approximate"]) == ("coreai.if", "coreai.gelu", "none")
    assert then.results == gelu.results
    assert otherwise.results[0] not in gelu.results


def test_a_weight_without_values_is_an_error() -> None:
    with torch.device("meta"):
        model = nn.Linear(32, 32)
    exported = torch.export.export(model, (torch.randn(2, 32, device="meta"),))
    program = TorchConverter().add_exported_program(exported).to_coreai()
    weight, *_ = [op for graph in walk(program.module) for op in graph.ops if op.weight]
    with pytest.raises(EvaluationError, match="has no values"):
        _ = weight.constant
