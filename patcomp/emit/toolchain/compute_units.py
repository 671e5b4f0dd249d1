"""The compute unit that a program is compiled for, which coreai-core lets its caller choose on macOS.

Facts: coreai-core 1.0.0b3 raises `RuntimeError` on Linux, "SpecializationOptions.default() is only available on
macOS". Its type stubs declare `ComputeUnitKind` with `cpu`, `gpu` and `neural_engine`; no Mac was tried.
"""

from __future__ import annotations

import sys
from typing import Any, Literal

from patcomp.errors import EvaluationError

ComputeUnit = Literal["cpu", "gpu", "neural_engine"]


def check_compute_unit(unit: ComputeUnit | None) -> None:
    """Check that the runtime lets its caller choose a compute unit.

    Raises:
        EvaluationError: this is no Mac.
    """
    if unit is not None and sys.platform != "darwin":
        raise EvaluationError(
            f"coreai-core lets its caller choose a compute unit on macOS alone, and this is {sys.platform}; "
            "leave --unit out"
        )


def specialization_options(unit: ComputeUnit | None) -> Any:
    """The `SpecializationOptions` that prefer a compute unit, or allow the CPU alone; None lets the runtime choose.

    Raises:
        EvaluationError: the installed coreai-core has no names for compute units.
    """
    if unit is None:
        return None
    import coreai.runtime as runtime

    if unit == "cpu":
        return runtime.SpecializationOptions.cpu_only()
    kinds = getattr(runtime, "ComputeUnitKind", None)
    if kinds is None:
        raise EvaluationError(f"the installed coreai-core has no coreai.runtime.ComputeUnitKind to choose {unit} by")
    return runtime.SpecializationOptions.from_preferred_compute_unit_kind(getattr(kinds, unit)())


def placement(model: Any) -> dict[str, Any] | None:
    """What the runtime says of the compute units of a loaded `AIModel`; None if it says nothing, as on Linux."""
    options = model.specialization_options
    if options is None:
        return None
    return {
        "allowed": [str(kind) for kind in options.allowed_compute_unit_kinds],
        "preferred": None if options.preferred_compute_unit_kind is None else str(options.preferred_compute_unit_kind),
    }
