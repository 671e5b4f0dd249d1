"""`AIProgram`: a converted program, to read, run, check and save."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from patcomp.emit.asset import Asset, save_asset
from patcomp.emit.report import CompositeReport, composite_calls
from patcomp.ir.module import IRModule, graph_name, names_of
from patcomp.ir.types import TensorType


class Stages(Mapping[str, str]):
    """The text of the program after each stage: `program.stages["recover"]`.

    Nothing is kept for it during conversion; the first access runs the stages again.
    """

    def __init__(self, replay: Callable[[], dict[str, str]]):
        self._replay = replay
        self._texts: dict[str, str] | None = None

    def _all(self) -> dict[str, str]:
        if self._texts is None:
            self._texts = self._replay()
        return self._texts

    def __getitem__(self, stage: str) -> str:
        return self._all()[stage]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())


def _unexplained(what: str) -> str:
    raise LookupError(f"{what!r}: this program was not made by a converter, so nothing is known of its making")


@dataclass(eq=False)
class AIProgram:
    """A Core AI program: IR, weights, and how it came about.

    `str(program)` is the MLIR text. `reports` has what each stage did, `stages` the text after each.
    """

    module: IRModule
    reports: tuple[Any, ...] = ()
    stages: Mapping[str, str] = field(default_factory=dict)
    explain: Callable[[str], str] = _unexplained
    """`program.explain("%linear")` or `("model.py:12")`: which rules made these ops, from which nodes and lines."""
    why_not: Callable[[str], str] = _unexplained
    """`program.why_not("rms_norm")`: where that rule came closest to a match, and what was missing."""

    def __str__(self) -> str:
        return self.module.text()

    def __repr__(self) -> str:
        return f"<AIProgram {', '.join('@' + name for name in self.entrypoints)}: {self.module.op_count()} ops>"

    def __deepcopy__(self, memo: dict[int, Any]) -> AIProgram:
        return replace(self, module=self.module.clone())

    def text(self, *, generic: bool = False, locations: bool = False) -> str:
        """The MLIR text: pretty or generic, with or without locations; weights appear by name only."""
        return self.module.text(generic=generic, locations=locations)

    @property
    def entrypoints(self) -> tuple[str, ...]:
        """The names of the graphs that can be called."""
        return tuple(graph_name(graph) for graph in self.module.entry_graphs)

    def input_names(self, entrypoint: str = "main") -> tuple[str, ...]:
        """The names of an entry point's inputs, in order."""
        return tuple(name or str(i) for i, name in enumerate(names_of(self.module.graph(entrypoint), "arg_attrs")))

    def output_names(self, entrypoint: str = "main") -> tuple[str, ...]:
        """The names of an entry point's outputs, in order."""
        return tuple(name or str(i) for i, name in enumerate(names_of(self.module.graph(entrypoint), "res_attrs")))

    @property
    def composites(self) -> dict[str, int]:
        """How many calls of each composite the program makes, by composite name."""
        return self.report().counts

    def report(self) -> CompositeReport:
        """Each call of a composite: the rule that recovered it, and where in the model it comes from.

        `print(program.report())` shows a line for each. A program of `Mode.RELEASE` knows no places.
        """
        return CompositeReport(composite_calls(self.module))

    def optimize(self) -> AIProgram:
        """Returns the program: `to_coreai` has optimized it already."""
        return self

    def save_asset(self, path: str | Path, metadata: Any = None) -> Asset:
        """Writes the program as an `.aimodel` folder, replacing what is there.

        Raises:
            MissingToolchainError: coreai-core is not installed.
            ValueError: the path does not end in `.aimodel`.
            AssetError: coreai-core refused the program.
        """
        return save_asset(self.module, path, metadata=metadata)

    def run(self, inputs: Mapping[str, Any], *, entrypoint: str = "main", backend: str = "evaluator") -> dict[str, Any]:
        """Runs an entry point.

        Args:
            inputs: a torch tensor or numpy array for each input name. 64-bit values are narrowed when they fit.
            entrypoint: the graph to call.
            backend: `"evaluator"` (torch tensors out, anywhere) or `"runtime"` (numpy arrays out, coreai-core).

        Raises:
            EvaluationError: an input is missing, unknown or of another type.
            MissingToolchainError: the runtime is asked for and coreai-core is not installed.
        """
        from patcomp.ir.evaluate import evaluate, prepare_input

        graph = self.module.graph(entrypoint)
        types = dict(zip(self.input_names(entrypoint), (a.type for a in graph.regions[0].block.args), strict=True))
        prepared = {
            name: prepare_input(value, types[name], name) if isinstance(types.get(name), TensorType) else value  # type: ignore[arg-type]
            for name, value in inputs.items()
        }
        if backend == "evaluator":
            return evaluate(self.module, prepared, entry=entrypoint)
        if backend != "runtime":
            raise ValueError(f"backend must be 'evaluator' or 'runtime', got {backend!r}")
        with tempfile.TemporaryDirectory() as folder:
            return self.save_asset(Path(folder) / "program.aimodel").run(prepared, entry=entrypoint)

    def verify_against(
        self,
        model: Callable[..., Any],
        inputs: Sequence[Any] | Mapping[str, Any],
        *,
        entrypoint: str = "main",
        tolerance: float = 1e-4,
        backends: Sequence[str] | None = None,
    ) -> Any:
        """Compares the program with eager PyTorch on given inputs.

        Args:
            model: the PyTorch model, unchanged by this.
            inputs: its arguments, as a sequence or by keyword.
            entrypoint: the graph to call.
            tolerance: largest absolute difference that passes.
            backends: `"evaluator"`, `"runtime"`; by default both where coreai-core is installed.

        Returns:
            A `Verification`: for each output and backend the largest absolute and relative error and the PSNR;
            `.passed` says whether all are within the tolerance.
        """
        from patcomp.ir.evaluate import verify_outputs

        if backends is None:
            backends = ("evaluator", "runtime") if find_spec("coreai") else ("evaluator",)
        runs: dict[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]] = {
            backend: partial(self.run, entrypoint=entrypoint, backend=backend) for backend in backends
        }
        return verify_outputs(
            model, inputs, runs, self.input_names(entrypoint), self.output_names(entrypoint), tolerance
        )
