"""A partitioned program: the parts run on the evaluator or on the runtime, and the rest in PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.fx import GraphModule
from torch.fx.passes.utils.fuser_utils import fuse_by_partitions

from patcomp.emit.toolchain.library import has_toolchain
from patcomp.evaluate.comparison import compare
from patcomp.evaluate.inputs import call_arguments
from patcomp.evaluate.verification import OutputError, Verification
from patcomp.partitions.extraction import ModelPart
from patcomp.partitions.report import PartitionReport
from patcomp.partitions.running import BACKEND, Backend, PartCall, Parts
from patcomp.program.program import AIProgram
from patcomp.program.running import has_device
from patcomp.pytorch import callers_defaults, pytree, with_tensors


class Partitioned:
    """A model of which parts converted.

        partitioned(x)                              # as the model is called, for inference
        partitioned.run(x, backend="runtime")
        partitioned.program.save_asset("parts.aimodel")

    Its buffers keep their contents from call to call, as those of the model do; `reset` restores the initial ones.
    """

    parts: tuple[ModelPart, ...]
    """The parts in the order in which they run."""
    program: AIProgram | None
    """The parts as a program: each is an entry point of its own name, and they share weights. None without parts."""
    report: PartitionReport
    """What stays in PyTorch and why, and what crosses; it prints as text."""

    def __init__(
        self,
        exported: ExportedProgram,
        cut: ExportedProgram,
        parts: tuple[ModelPart, ...],
        program: AIProgram | None,
        report: PartitionReport,
    ):
        self.parts, self.program, self.report = parts, program, report
        self._exported = exported
        specs = cut.graph_signature.output_specs
        self._outputs = [spec.arg.name for spec in specs if spec.kind is OutputKind.USER_OUTPUT]
        self._writes_inputs = any(spec.kind is OutputKind.USER_INPUT_MUTATION for spec in specs)
        self._written = tuple(str(spec.target) for spec in specs if spec.kind is OutputKind.BUFFER_MUTATION)
        self._state = self._initial()
        self._running = Parts(program) if program is not None else None
        self._graph = self._composed(cut)
        self._cut = cut

    @cached_property
    def rest(self) -> GraphModule:
        """The whole model in torch.fx: what stays in PyTorch, with a submodule for each part."""
        return _with_state(self._cut, self._state).module()

    def __repr__(self) -> str:
        return f"<Partitioned: {len(self.parts)} parts, {self.report.converted_ops:.0%} of {self.report.ops} ops>"

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Run the composition with the parts on the evaluator: `run`."""
        return self.run(*arguments, **keywords)

    def run(self, *arguments: Any, backend: Backend = "evaluator", **keywords: Any) -> Any:
        """Run the parts on a backend and the rest in PyTorch, without gradients.

        Args:
            arguments: of the model, with the structure that they had at export.
            keywords: the same, by name.
            backend: `"evaluator"`, which runs anywhere, or `"runtime"`, which needs coreai-core. The runtime compiles
                the parts in the first call.

        Returns:
            The model's result.

        Raises:
            EvaluationError: a number that crosses does not fit 32 bits; or a part has a Metal kernel, and the runtime
                is not on an Apple device.
            MissingToolchainError: `"runtime"` needs coreai-core, which is not installed.
            ValueError: there is no such backend.
            Exception: PyTorch's errors about arguments that are not those of the exported model.
        """
        with _on(backend), torch.no_grad():
            return self.rest(*arguments, **keywords)

    def run_graph(self, values: Sequence[Any], *, backend: Backend) -> tuple[Any, ...]:
        """Run the graph itself.

        Args:
            values: of all its inputs, weights and states among them.
            backend: as for `run`.

        Returns:
            All its results: new contents of states come first.
        """
        with _on(backend), torch.no_grad():
            return self._graph(*values)

    def state(self) -> dict[str, torch.Tensor]:
        """Copies of the present contents of the buffers that the model writes to, by path."""
        return {path: value.clone() for path, value in self._state.items()}

    def reset(self) -> None:
        """Give these buffers the contents that they had in the exported program."""
        self._set(self._initial())

    def close(self) -> None:
        """Release what the runtime compiled; a later run compiles it again."""
        if self._running is not None:
            self._running.close()

    def verify(
        self, inputs: Any, *, tolerance: float | None = None, backends: Sequence[Backend] | None = None
    ) -> Verification:
        """Compare the composition with the exported program in PyTorch, from the initial state.

            partitioned.verify((x,)).check()

        Args:
            inputs: the model's arguments, as a sequence or by keyword, or the only one as a tensor.
            tolerance: the largest absolute difference that passes; by default that of each output's type.
            backends: `["evaluator", "runtime"]`, by default those that this machine has.

        Returns:
            The error of each output, written buffer and written input, on each backend.

        Raises:
            Exception: those of `run`.
        """
        on_runtime = has_toolchain() and (self.program is None or has_device(self.program.module))
        present: Sequence[Backend] = ("evaluator", "runtime") if on_runtime else ("evaluator",)
        args, kwargs = call_arguments(inputs)
        own = self._initial()
        with callers_defaults(), torch.no_grad():
            expected = self._observed(_with_state(self._exported, own).module(), own, args, kwargs)
        before, errors = self.state(), list[OutputError]()
        try:
            for backend in present if backends is None else backends:
                self.reset()
                with _on(backend), torch.no_grad():
                    given = self._observed(self.rest, self._state, args, kwargs)
                errors += [compare(name, backend, value, given[name], tolerance) for name, value in expected.items()]
        finally:
            self._set(before)
        return Verification(tuple(errors), tolerance, reference="the exported program in PyTorch")

    def _observed(
        self, model: Any, state: Mapping[str, torch.Tensor], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> dict[str, torch.Tensor]:
        """What a run of a model gives and writes, by name. Arguments are copied, random numbers have a fixed seed."""
        args, kwargs = copy.deepcopy((tuple(args), dict(kwargs)))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            results = pytree.tree_leaves(model(*args, **kwargs))
        leaves = zip(self._outputs, results, strict=True)
        found = {name: torch.as_tensor(value) for name, value in leaves if value is not None}
        found |= {path: value.clone() for path, value in state.items()}
        written = pytree.tree_leaves((args, kwargs)) if self._writes_inputs else []
        return found | {f"input {i}": value for i, value in enumerate(written) if isinstance(value, torch.Tensor)}

    def _initial(self) -> dict[str, torch.Tensor]:
        held = {**self._exported.constants, **self._exported.state_dict}
        return {path: held[path].detach().clone() for path in self._written}

    def _set(self, contents: Mapping[str, torch.Tensor]) -> None:
        for path, content in contents.items():
            self._state[path].copy_(content)

    def _composed(self, cut: ExportedProgram) -> GraphModule:
        """The graph with a call in place of each part."""
        module = fuse_by_partitions(cut.graph_module, [dict.fromkeys(part.nodes) for part in self.parts], "part_")
        for part in self.parts:
            assert self._running is not None
            setattr(module, part.name, PartCall(part, self._running))
            (call,) = module.graph.find_nodes(op="call_module", target=part.name)
            call.args = tuple(call.args[index] for index in part.taken)
        module.recompile()
        return module


def _with_state(program: ExportedProgram, state: Mapping[str, torch.Tensor]) -> ExportedProgram:
    """A copy of a program with other contents of some buffers."""
    held = (program.state_dict, program.constants)
    return with_tensors(program, *({**each, **{path: state[path] for path in state if path in each}} for each in held))


@contextmanager
def _on(backend: Backend) -> Iterator[None]:
    """Run parts on a backend."""
    if backend not in ("evaluator", "runtime"):
        raise ValueError(f"backend must be 'evaluator' or 'runtime', got {backend!r}")
    token = BACKEND.set(backend)
    try:
        yield
    finally:
        BACKEND.reset(token)
