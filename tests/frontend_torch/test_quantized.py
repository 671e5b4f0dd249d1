"""Quantized models: the ops that quantizers write, marked calls in what they leave behind, and what is refused."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from operator import getitem
from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # registers the ops
from torch import nn
from torch.ao.quantization import get_default_qconfig_mapping, quantize_fx
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_map

from patcomp import ExternalizeSpec, TorchConverter, mark_for_externalization
from patcomp.emit.native import Native
from patcomp.errors import UnsupportedError
from patcomp.frontend_torch.externalization.externalize import ModuleChoice
from patcomp.program.program import AIProgram
from tests.frontend_torch.externalizing import calls, check, declared, graphs

OPS = torch.ops.quantized_decomposed
X = torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(0))


class Norm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.eps = 1e-5
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + self.eps) * self.scale


class Model(nn.Module):
    """A norm between two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 8), Norm(), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.norm(self.first(x))))


NORM = ExternalizeSpec(Norm, "rms_norm", ["eps"])


@pytest.fixture
def model() -> Model:
    torch.manual_seed(0)
    return Model().eval()


# ---- quantizers ------------------------------------------------------------------------------------


class Quantizer:
    """Puts ops into an exported graph where quantizers put them: right behind what makes a value."""

    def __init__(self, model: nn.Module, targets: Sequence[ModuleChoice]):
        with mark_for_externalization(model, targets):
            self.module: GraphModule = torch.export.export(model, (X,)).module()

    def find(self, target: Any, index: int = 0) -> Node:
        return [node for node in self.module.graph.nodes if node.target == target][index]

    def _behind(self, node: Node, target: Any, *args: Any) -> Node:
        with self.module.graph.inserting_after(node):
            return self.module.graph.call_function(target, args)

    def static(self, node: Node) -> None:
        """A value is quantized, and every reader gets a dequantized value of its own."""
        readers = list(node.users)
        parameters = (0.03125, 3, -128, 127, torch.int8)
        quantized = self._behind(node, OPS.quantize_per_tensor.default, node, *parameters)
        for reader in readers:
            value = self._behind(quantized, OPS.dequantize_per_tensor.default, quantized, *parameters)
            reader.replace_input_with(node, value)

    def dynamic(self, node: Node, reader: Node) -> None:
        """A reader of a value gets it quantized with a scale and zero point that are computed."""
        limits = (-128, 127)
        chosen = self._behind(node, OPS.choose_qparams.tensor, node, *limits, 2.0**-12, torch.int8)
        scale = self._behind(chosen, getitem, chosen, 0)
        parameters = (scale, self._behind(scale, getitem, chosen, 1), *limits, torch.int8)
        quantized = self._behind(parameters[1], OPS.quantize_per_tensor.tensor, node, *parameters)
        value = self._behind(quantized, OPS.dequantize_per_tensor.tensor, quantized, *parameters)
        reader.replace_input_with(node, value)

    def weight(self, node: Node) -> None:
        """A parameter is stored in eight bits."""
        name = f"stored_{node.name}"
        scale = torch.tensor(getattr_path(self.module, node.target).abs().max().item() / 127)
        value = torch.round(getattr_path(self.module, node.target) / scale).to(torch.int8)
        self.module.register_buffer(name, value.detach())
        with self.module.graph.inserting_before(node):
            stored = self.module.graph.get_attr(name)
        parameters = (scale.item(), 0, -127, 127, torch.int8)
        node.replace_all_uses_with(self._behind(stored, OPS.dequantize_per_tensor.default, stored, *parameters))

    def program(self, native: Native | None = None) -> AIProgram:
        """The program of the quantized model, which computes what that does."""
        self.module.recompile()
        program = TorchConverter().add_exported_program(torch.export.export(self.module, (X,))).to_coreai()
        program.optimize()
        if native is not None:
            check(program, self.module, native, X)
        return program


def getattr_path(module: nn.Module, path: Any) -> torch.Tensor:
    return module.get_parameter(str(path))


# ---- marked calls ----------------------------------------------------------------------------------


def test_quantization_around_a_composite_is_no_part_of_it(model: Model, native: Native) -> None:
    quantizer = Quantizer(model, [NORM])
    quantizer.static(quantizer.find(torch.ops.aten.linear.default))
    quantizer.static(quantizer.find(torch.ops.aten.mul.Tensor, 2))
    program = quantizer.program(native)
    assert calls(program) == ["norm"]
    assert declared(program, "norm")["input_names"] == ["scale", "x"]
    assert declared(program, "norm")["output_names"] == ["output"]
    ops = {op.name for op in graphs(program)["norm"].walk()}
    assert not ops & {"coreai.quantize", "coreai.dequantize"}
    assert sum(op.name == "coreai.quantize" for op in program.module.graph("main").walk()) == 2


def test_computed_scales_behind_a_composite_are_no_part_of_it(model: Model, native: Native) -> None:
    quantizer = Quantizer(model, [NORM, "*"])
    quantizer.dynamic(quantizer.find(torch.ops.aten.mul.Tensor, 2), quantizer.find(torch.ops.aten.relu.default))
    program = quantizer.program(native)
    assert calls(program) == ["first", "norm", "last"]
    assert declared(program, "norm")["output_names"] == ["output"]
    assert len(graphs(program)["norm"].regions[0].block.args) == 2


def test_quantization_between_nested_calls_is_in_the_outer_one(model: Model, native: Native) -> None:
    quantizer = Quantizer(nn.Sequential(model, nn.Linear(4, 4)).eval(), [NORM, "*"])
    for node in [node for node in quantizer.module.graph.nodes if node.target == torch.ops.aten.linear.default]:
        quantizer.static(node)
    program = quantizer.program(native)
    assert calls(program) == ["0", "1"]
    assert {name: len(graph.regions[0].block.args) for name, graph in graphs(program).items()} == {
        "0.first": 1, "0.norm": 2, "0.last": 1, "0": 1, "1": 1,
    }  # fmt: skip
    quantizing = {name for name, graph in graphs(program).items() if any("quantize" in op.name for op in graph.walk())}
    assert quantizing == {"0"}


def test_a_call_that_quantizes_for_itself_keeps_that(model: Model, native: Native) -> None:
    quantizer = Quantizer(model, [NORM])
    quantizer.static(quantizer.find(torch.ops.aten.rsqrt.default))
    program = quantizer.program(native)
    assert "coreai.quantize" in {op.name for op in graphs(program)["norm"].walk()}
    assert declared(program, "norm")["input_names"] == ["scale", "x"]


def test_quantized_weights_are_inside_a_plain_graph(model: Model, native: Native) -> None:
    quantizer = Quantizer(model, [nn.Linear])
    for weight in [node for node in quantizer.module.graph.nodes if str(node.target).endswith(".weight")]:
        quantizer.weight(weight)
    program = quantizer.program(native)
    for graph in (graphs(program)["first"], graphs(program)["last"]):
        assert len(graph.regions[0].block.args) == 1
        assert "coreai.dequantize" in {op.name for op in graph.walk()}


def test_a_composite_whose_parameter_is_quantized_is_refused(model: Model) -> None:
    quantizer = Quantizer(model, [NORM])
    quantizer.weight(next(node for node in quantizer.module.graph.nodes if node.target == "norm.scale"))
    with pytest.raises(UnsupportedError, match="composite 'norm' reads quantized weights in place of its inputs scale"):
        quantizer.program()


def test_lost_marks_are_reported(model: Model) -> None:
    with mark_for_externalization(model, [NORM, "l*st", nn.Conv2d]) as marking:
        other = copy.deepcopy(model)
        other.last = nn.Linear(8, 4)  # as quantization in eager mode replaces modules
        exported = torch.export.export(other, (X,))
    with pytest.raises(UnsupportedError) as caught:
        marking.check(exported)
    assert len(caught.value.problems) == 2
    assert "Conv2d" in str(caught.value)
    assert "'last'" in str(caught.value)
    with mark_for_externalization(model, [NORM]) as marking:
        exported = torch.export.export(model, (X,))
    marking.check(exported)


def test_the_graph_quantizer_of_pytorch(model: Model) -> None:
    with mark_for_externalization(model, [NORM, nn.Linear]) as marking:
        prepared = quantize_fx.prepare_fx(copy.deepcopy(model), get_default_qconfig_mapping("x86"), (X,))
        prepared(X)
        quantized = quantize_fx._convert_to_reference_decomposed_fx(prepared)
        exported = torch.export.export(quantized, (X,))
    with pytest.raises(UnsupportedError, match=r"'first'.*\n.*'last'"):
        marking.check(exported)  # it puts other modules in place of the layers
    program = TorchConverter().add_exported_program(exported).to_coreai()
    assert program.composites == {"rms_norm": 1}
    scale = 4 * float(quantized(X).abs().max()) / 127
    assert program.verify_against(quantized, (X,), backends=["evaluator"], tolerance=scale).passed


# ---- weights ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("channels", [3, 300])
def test_weights_of_channels_stay_bytes(channels: int, native: Native) -> None:
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer(
                "weight", torch.arange(channels * 8).reshape(channels, 8).remainder(255).sub(127).char()
            )
            self.register_buffer("scale", torch.linspace(0.01, 0.02, channels))
            self.register_buffer("zero_point", torch.zeros(channels, dtype=torch.int64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            parameters = (self.scale, self.zero_point, 0, -127, 127, torch.int8)
            return x @ OPS.dequantize_per_channel(self.weight, *parameters).T

    program = TorchConverter().add_exported_program(torch.export.export(Layer(), (X,))).to_coreai()
    program.optimize()
    check(program, Layer(), native, X)
    text = str(program)
    assert f"tensor<{channels}x8xsi8>, tensor<{channels}xf32>, tensor<{channels}xsi8>" in text
    assert "coreai.cast" not in text  # neither zero points nor weights


def test_a_weight_of_a_tensor_subclass(native: Native) -> None:
    layer = nn.Sequential(nn.Linear(8, 64)).eval()
    with mark_for_externalization(layer, [nn.Linear]):
        stored = Bytes(torch.randint(-127, 128, (64, 8), dtype=torch.int8), torch.rand(64, 1) / 9)
        layer[0].weight = nn.Parameter(stored, requires_grad=False)
        exported = torch.export.export(layer, (X,))
    program = TorchConverter().add_exported_program(exported).to_coreai()
    check(program, layer, native, X)
    assert "tensor<64x8xsi8>" in str(program)
    with mark_for_externalization(layer, [ExternalizeSpec(nn.Linear, "linear")]):
        exported = torch.export.export(layer, (X,))
    with pytest.raises(UnsupportedError, match=r"composite has the input '0.weight', but the program has only parts"):
        TorchConverter().add_exported_program(exported).to_coreai()


class Bytes(torch.Tensor):
    """A weight of bytes with a scale, as quantizers of weights make it."""

    @staticmethod
    def __new__(cls, values: torch.Tensor, scale: torch.Tensor) -> Bytes:
        return torch.Tensor._make_wrapper_subclass(cls, values.shape, dtype=scale.dtype)  # type: ignore[attr-defined]

    def __init__(self, values: torch.Tensor, scale: torch.Tensor) -> None:
        self.values_, self.scale_ = values, scale

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["values_", "scale_"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, torch.Tensor], *_: Any) -> Bytes:
        return Bytes(inner["values_"], inner["scale_"])

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in (torch.ops.aten.detach.default, torch.ops.aten.clone.default):
            return Bytes(args[0].values_, args[0].scale_)
        return function(
            *tree_map(lambda a: a.values_ * a.scale_ if isinstance(a, Bytes) else a, args), **(kwargs or {})
        )
