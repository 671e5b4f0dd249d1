"""`torch.compile(model, backend="patcomp")`: parts run on the runtime or the evaluator, the rest in PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any

import torch
from torch.export import ExportedProgram, ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import ExportGraphSignature, InputKind, InputSpec, OutputKind, OutputSpec
from torch.fx import GraphModule

from patcomp.emit.toolchain.library import has_toolchain
from patcomp.errors import PatcompError
from patcomp.frontend_torch.converter import TorchConverter
from patcomp.frontend_torch.fx.sizes import symbols_in
from patcomp.partitions.cutting import TargetChoice, partition_functional
from patcomp.partitions.extraction import signature_argument
from patcomp.partitions.left import Kept
from patcomp.partitions.partitioned import Partitioned
from patcomp.partitions.report import PartitionReport
from patcomp.partitions.running import Backend
from patcomp.pytorch import aot_autograd, is_static_input, make_boxed_func, pytree, version_of


class TrainingError(PatcompError, RuntimeError):
    """A model is compiled for training; patcomp runs models for inference."""


@dataclass(frozen=True)
class CompileOptions:
    """The `options` of `torch.compile(model, backend="patcomp", options={"engine": "evaluator"})`."""

    engine: Backend = field(default_factory=lambda: "runtime" if has_toolchain() else "evaluator")
    """What runs the parts: `"runtime"`, where coreai-core is installed, or `"evaluator"`."""
    target: TargetChoice = None
    """As for `patcomp.partition`, like the three that follow."""
    do_not_convert: Iterable[Kept] = ()
    least_intensity: float = 2.0
    converter: TorchConverter | None = None
    report: Callable[[PartitionReport], object] = lambda report: None
    """Is called with the report of each graph, `reports.append`."""

    @classmethod
    def of(cls, given: dict[str, Any] | None) -> CompileOptions:
        """The options that a user gave.

        Raises:
            ValueError: one does not exist, or there is no such engine.
        """
        known = [each.name for each in fields(cls)]
        for name in given or {}:
            if name not in known:
                near = get_close_matches(name, known, n=1) or known
                raise ValueError(f"backend 'patcomp' has no option {name!r}; did you mean {' or '.join(near)}?")
        made = cls(**given or {})
        if made.engine not in ("runtime", "evaluator"):
            raise ValueError(f"engine must be 'runtime' or 'evaluator', got {made.engine!r}")
        return made


def compile_graph(
    module: GraphModule, example_inputs: Sequence[Any], *, options: dict[str, Any] | None = None
) -> Callable[..., Any]:
    """The backend "patcomp" of `torch.compile`: it partitions each graph of a model, for inference.

        compiled = torch.compile(model, backend="patcomp", options={"engine": "evaluator"})
        with torch.no_grad():
            compiled(x)

    Ops that do not convert, and Python code between graphs, stay in PyTorch. Dynamic sizes stay dynamic, so that other
    sizes within their range need no new compilation. A graph is converted in its first call, with the model's weights
    as constants. A weight that is written to later becomes an input, and the graph is converted once more.

    Raises:
        TrainingError: gradients are recorded.
        ValueError: there is no such option.
    """
    chosen = CompileOptions.of(options)
    tensors = [each for each in example_inputs if isinstance(each, torch.Tensor)]
    if torch.is_grad_enabled() and any(each.requires_grad for each in tensors):
        raise TrainingError(
            "backend 'patcomp' runs models for inference, and this call records gradients; call the compiled model "
            "under torch.no_grad() or torch.inference_mode(), or freeze it by model.requires_grad_(False)"
        )

    def compile_functional(graph: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        return make_boxed_func(CompiledGraph(graph, chosen))

    compiled: Callable[..., Any] = aot_autograd(fw_compiler=compile_functional)(module, example_inputs)
    return compiled


class CompiledGraph:
    """A functional graph of `torch.compile`, partitioned for the weights of each model that it is called with."""

    def __init__(self, module: GraphModule, options: CompileOptions):
        self._module, self._options = module, options
        self._weights: list[int] | None = None
        """The positions of the inputs that are constants of the parts."""
        self._variants: dict[tuple[int, ...], tuple[list[torch.Tensor], list[int], Partitioned]] = {}
        """By the identities of the weights: the weights, their versions, and the partition."""

    def __call__(self, *values: Any) -> tuple[Any, ...]:
        """The results of the graph, for all its inputs."""
        if self._weights is None:
            self._weights = [index for index, value in enumerate(values) if is_static_input(value)]
        key = tuple(id(values[index]) for index in self._weights)
        if (known := self._variants.get(key)) is not None:
            weights, versions, _ = known
            if changed := {id(each) for each, old in zip(weights, versions, strict=True) if version_of(each) != old}:
                self._weights = [index for index in self._weights if id(values[index]) not in changed]
                self._variants.clear()
                return self(*values)
        if known is None:
            weights = [values[index] for index in self._weights]
            known = weights, list(map(version_of, weights)), self._partitioned(weights)
            self._variants[key] = known
        return known[2].run_graph(values, backend=self._options.engine)

    def _partitioned(self, weights: Sequence[torch.Tensor]) -> Partitioned:
        assert self._weights is not None
        options = self._options
        program = _program(self._module, dict(zip(self._weights, weights, strict=True)))
        made = partition_functional(
            program, program, options.do_not_convert, options.least_intensity, options.converter, options.target
        )
        options.report(made.report)
        return made


def _program(module: GraphModule, weights: dict[int, torch.Tensor]) -> ExportedProgram:
    """A functional graph as a program.

    Args:
        module: the graph.
        weights: the inputs that are constants, by position.
    """
    placeholders = module.graph.find_nodes(op="placeholder")
    inputs = [
        InputSpec(InputKind.CONSTANT_TENSOR, signature_argument(node), node.name)
        if index in weights
        else InputSpec(InputKind.USER_INPUT, signature_argument(node), None)
        for index, node in enumerate(placeholders)
    ]
    results: Any = module.graph.output_node().args[0]
    outputs = [OutputSpec(OutputKind.USER_OUTPUT, signature_argument(each), None) for each in results]
    sizes = [node.meta.get("val") for node in module.graph.nodes]
    environment = next((size.node.shape_env for size in sizes if isinstance(size, torch.SymInt)), None)
    given = pytree.tree_structure((tuple(0 for _ in range(len(placeholders) - len(weights))), {}))
    call = ModuleCallSignature([], [], given, pytree.tree_structure(tuple(0 for _ in results)))
    return ExportedProgram(
        module,
        module.graph,
        ExportGraphSignature(inputs, outputs),
        {},
        {symbol: environment.var_to_range[symbol] for symbol in symbols_in(sizes)} if environment else {},
        [ModuleCallEntry("", call)],
        constants={placeholders[index].name: weight.detach() for index, weight in weights.items()},
    )
