"""Engines that patcomp did not write, beside its evaluator and the Core AI runtime: a third opinion on a program.

A package names an object of the class `FurtherEngine` by an entry point of the group `patcomp.engines`. The name of the
entry point is the name of the backend, as in `program.run(x, backend="onnxruntime")`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from patcomp.entry_points import entry_points_of
from patcomp.errors import PatcompError

if TYPE_CHECKING:
    from patcomp.evaluate.verification import Departure
    from patcomp.program.data import ProgramData

ENGINE_GROUP = "patcomp.engines"
EXTRA = "'patcomp[onnx]'"
"""What brings the libraries of patcomp's own engine."""


class FurtherEngine(ABC):
    """Runs converted programs."""

    @abstractmethod
    def run(
        self, program: ProgramData, entrypoint: str, inputs: Mapping[str, Any], states: dict[str, Any]
    ) -> dict[str, Any]:
        """The outputs of an entry point by name.

        Args:
            inputs: tensors by name, of the types that the program takes.
            states: the contents of the states by name, which are replaced by the new ones.

        Raises:
            UnsupportedError: the engine does not have an op of the program; the message lists all of them.
            EvaluationError: the engine fails.
        """

    @abstractmethod
    def departure(
        self, program: ProgramData, entrypoint: str, inputs: Mapping[str, Any], states: Mapping[str, Any]
    ) -> Departure | None:
        """The first op for which the engine computes other numbers than the evaluator; None if there is none."""


def engine_names() -> tuple[str, ...]:
    """The names of the installed engines."""
    return tuple(point.name for point in entry_points_of(ENGINE_GROUP))


def engine_of(name: str) -> FurtherEngine | None:
    """The engine of a name; None if no installed package has one.

    Raises:
        PatcompError: what the engine needs is not installed.
    """
    for point in entry_points_of(ENGINE_GROUP):
        if point.name == name:
            try:
                return point.load()  # type: ignore[no-any-return]
            except ImportError as error:
                raise PatcompError(f"the backend {name!r} is not installed: {error}; pip install {EXTRA}") from error
    return None
