"""Models with externalized modules, and what the tests ask of their programs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from patcomp import TorchConverter, get_decomp_table
from patcomp.emit.native import Native
from patcomp.frontend_torch.externalization.externalize import ModuleChoice
from patcomp.ir.attributes import CompositeDeclarationAttr
from patcomp.ir.coreai_op import CoreaiOp
from patcomp.ir.module import graph_name
from patcomp.ir.xdsl import ArrayAttr, DictionaryAttr, FloatAttr, IntegerAttr, IntegerType
from patcomp.program.program import AIProgram

X = torch.randn(2, 4)


def exporter(*args: Any, **options: Any) -> Callable[[nn.Module], torch.export.ExportedProgram]:
    """What exports a model with given arguments."""
    return lambda model: torch.export.export(model, args, **options).run_decompositions(get_decomp_table())


def state_of(model: nn.Module) -> list[list[tuple[str, Any]]]:
    """What the modules of a model hold under which names, in order."""
    return [list(vars(module).items()) for module in model.modules()]


def convert(model: nn.Module, targets: Sequence[ModuleChoice], *args: Any, strict: bool = False) -> AIProgram:
    """The program of a model, which is left as it was."""
    before = state_of(model.eval())
    converter = TorchConverter().add_pytorch_module(model, exporter(*args or (X,), strict=strict), targets)
    assert state_of(model) == before
    return converter.to_coreai()


def check(program: AIProgram, model: nn.Module, native: Native, *args: torch.Tensor) -> None:
    """The program computes what the model does, on the evaluator and on the runtime."""
    args = args or (X,)
    expected = copy.deepcopy(model)(*copy.deepcopy(args))
    expected = [expected] if isinstance(expected, torch.Tensor) else list(expected)
    inputs = dict(zip(program.input_names(), args, strict=True))
    state = {name: np.asarray(value).copy() for name, value in program.new_state().items()}
    for outputs in (program.run(inputs), native.run(program.module, inputs, state)):
        for name, wanted in zip(program.output_names(), expected, strict=True):
            np.testing.assert_allclose(np.asarray(outputs[name]), wanted.detach().numpy(), rtol=1e-5, atol=1e-5)


def graphs(program: AIProgram) -> dict[str, CoreaiOp]:
    """The externalized graphs by module path or composite, without the hash."""
    others = [graph for graph in program.module.graphs if graph_name(graph) != "main"]
    return {graph_name(graph).rpartition("_")[0]: graph for graph in others}


def declared(program: AIProgram, graph: str) -> dict[str, Any]:
    """Names and attributes in the declaration of a composite's graph."""
    declaration = graphs(program)[graph].properties["composite_decl"]
    assert isinstance(declaration, CompositeDeclarationAttr)
    fields: dict[str, Any] = dict(declaration.fields.data)
    return {
        "name": declaration.composite_name.data,
        **{key: [name.data for name in fields[key].data] for key in ("input_names", "output_names")},
        **{key: python_value(value) for key, value in fields["op_attrs"].data.items()},
    }


def python_value(attribute: Any) -> Any:
    """The Python value of a composite's attribute."""
    if isinstance(attribute, ArrayAttr):
        return [python_value(item) for item in attribute.data]
    if isinstance(attribute, DictionaryAttr):
        return {key: python_value(item) for key, item in attribute.data.items()}
    if isinstance(attribute, IntegerAttr) and attribute.type == IntegerType(1):
        return bool(attribute.value.data)
    return attribute.value.data if isinstance(attribute, IntegerAttr | FloatAttr) else attribute.data


def calls(program: AIProgram, graph: str = "main") -> list[str]:
    """The graphs that a graph invokes, without their hashes."""
    return [
        op.properties["callee"].symbol.root_reference.data.rpartition("_")[0]  # type: ignore[attr-defined]
        for op in program.module.graph(graph).walk() if op.name == "coreai.invoke"
    ]  # fmt: skip


class Scale(nn.Module):
    def __init__(self, factor: float = 2.0) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x):  # no annotations: none are needed
        return x * self.factor


class Affine(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("offset", torch.randn(4))
        self.weight = nn.Parameter(torch.randn(4))
        self.unused = nn.Parameter(torch.randn(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight + self.offset


class Around(nn.Module):
    """`sin(inner(x + 1))`, where the inner module may be called with more arguments."""

    def __init__(self, inner: nn.Module, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.inner, self.args, self.kwargs = inner, args, kwargs

    def forward(self, x: torch.Tensor) -> Any:
        result = self.inner(x + 1, *self.args, **self.kwargs)
        return torch.sin(result)


class Twice(nn.Module):
    """Two instances, or one under two names, called with different inputs."""

    def __init__(self, a: nn.Module, b: nn.Module) -> None:
        super().__init__()
        self.a, self.b = a, b

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.a(x) + torch.sin(self.b(torch.cos(x)))
