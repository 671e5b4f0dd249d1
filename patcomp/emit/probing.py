"""Run the programs that show defects of the toolchain, in a child process, and say which defects are there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from patcomp.defects import Defect, Probe
from patcomp.emit.native import Native, NativeError, ProcessDied
from patcomp.emit.toolchain.library import toolchain
from patcomp.ir.elements import numpy_dtype
from patcomp.ir.module import IRModule, names_of
from patcomp.ir.types import ML_DTYPES, HandleType, TensorType, element_name

_Outcome = Literal["is right", "dies", "is refused", "is wrong"]
"""What a toolchain does with a program; the last three are symptoms of a defect."""

_TOLERANCE = 1e-3
"""Relative; a defect changes numbers by more."""


@dataclass(frozen=True)
class _Finding:
    """What the probes of a defect showed on the installed toolchain."""

    defect: Defect
    outcomes: tuple[_Outcome, ...]

    @property
    def state(self) -> str:
        """`healed`, if every program gave the right numbers, `present`, or `no probe`."""
        if not self.outcomes:
            return "no probe"
        return "healed" if set(self.outcomes) == {"is right"} else "present"


def probe(defects: Iterable[Defect]) -> Iterator[_Finding]:
    """Run the probes of defects, one after another; a child process that dies is started again.

    Raises:
        MissingToolchainError: `coreai-core` is not installed.
    """
    toolchain()
    with closing(Native()) as native:
        for defect in defects:
            programs = () if isinstance(defect.probes, str) else defect.probes
            yield _Finding(defect, tuple(outcome_of(each, native) for each in programs))


def outcome_of(probe: Probe, native: Native) -> _Outcome:
    """What the installed toolchain does with a program."""
    module = IRModule.parse(probe.program)
    states = arrays_of(module, probe.states)
    try:
        outputs = native.run(module, arrays_of(module, probe.inputs), states)
    except ProcessDied:
        return "dies"
    except NativeError:
        return "is refused"
    return "is right" if all(_agrees(outputs.get(name), right) for name, right in probe.gives.items()) else "is wrong"


def arrays_of(module: IRModule, given: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Numbers as arrays of the arguments' element types."""
    graph = module.graph("main")
    types = dict(zip(names_of(graph, "arg_attrs"), (each.type for each in graph.regions[0].block.args), strict=True))
    made = {}
    for name, numbers in given.items():
        type_ = types[name]
        content = type_.tensor_type if isinstance(type_, HandleType) else type_
        element = content.element_type if isinstance(content, TensorType) else content
        made[name] = np.array(numbers).astype(numpy_dtype(element) or ML_DTYPES[element_name(element)])
    return made


def _agrees(found: np.ndarray | None, right: Any) -> bool:
    if found is None or found.shape != np.shape(right):
        return False
    return np.allclose(found.astype(np.complex128), right, rtol=_TOLERANCE, atol=0, equal_nan=True)
