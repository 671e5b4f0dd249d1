"""How long a function of an asset takes, and how much memory: loading, the first call, and calls after that."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from patcomp.emit.asset import Asset
from patcomp.emit.toolchain.compute_units import ComputeUnit, placement, specialization_options
from patcomp.emit.toolchain.library import toolchain
from patcomp.emit.toolchain.loaded import LoadedModel, checked
from patcomp.evaluate.given import as_array
from patcomp.settings import plain_settings

PERCENTILES = (50, 90, 99)


@dataclass(frozen=True)
class Timing:
    """What a function of an asset took in a process of its own."""

    load_seconds: float
    """To load the asset, which compiles it, and to load the function."""
    first_seconds: float
    """The first call."""
    call_seconds: tuple[float, ...]
    """Each call after the first one, from arrays in memory to arrays in memory."""
    memory_before: int
    """The peak memory of the process before the asset is loaded, in bytes: Python and its libraries."""
    memory_loaded: int
    """The peak memory after the asset is loaded."""
    memory_called: int
    """The peak memory after the last call."""
    placement: Mapping[str, Any] | None
    """The allowed and the preferred compute units, if the runtime says them; it does not on Linux."""

    def percentile(self, percent: float) -> float:
        """The least time that so many percent of the calls after the first one do not exceed, in seconds."""
        return sorted(self.call_seconds)[max(0, math.ceil(percent / 100 * len(self.call_seconds)) - 1)]

    @property
    def mean(self) -> float:
        """The mean time of the calls after the first one, in seconds."""
        return sum(self.call_seconds) / len(self.call_seconds)

    def to_dict(self) -> dict[str, Any]:
        """The timing as plain data, with what follows from the times of the calls."""
        return asdict(self) | {
            "mean_seconds": self.mean,
            "least_seconds": min(self.call_seconds),
            "most_seconds": max(self.call_seconds),
            **{f"p{percent}_seconds": self.percentile(percent) for percent in PERCENTILES},
        }


def timed(
    path: Path,
    inputs: Mapping[str, Any],
    state: Mapping[str, Any],
    entrypoint: str,
    calls: int,
    unit: ComputeUnit | None = None,
) -> Timing:
    """Load a saved asset and call one of its functions again and again, each time with the same inputs and states.

    Only the runtime is timed: inputs are checked and states are copied before a call.

    Args:
        path: of the asset.
        inputs: arrays by name.
        state: the contents of states by name; those that are not given have their initial content.
        entrypoint: the name of the function.
        calls: how many calls to time after the first one.
        unit: the compute unit to compile for, on macOS.

    Raises:
        As `Asset.run` and `specialization_options`.
    """
    tools, asset = toolchain(), Asset.load(path)
    before, started = _peak_memory(), time.perf_counter()
    with plain_settings(), closing(LoadedModel(asset.executable(specialization_options(unit)))) as loaded:
        function = loaded.function(entrypoint)
        load_seconds, memory_loaded = time.perf_counter() - started, _peak_memory()
        initial = asset.new_state(entrypoint) if function.desc.state_names else {}
        values, contents = checked(function, inputs, {**initial, **state}, entrypoint)
        arrays = {name: tools.NDArray(as_array(value)) for name, value in values.items()}
        seconds = [_seconds_of_call(tools, loaded, function, arrays, contents) for _ in range(1 + calls)]
        return Timing(
            load_seconds, seconds[0], tuple(seconds[1:]), before, memory_loaded, _peak_memory(), placement(loaded.model)
        )


def _seconds_of_call(
    tools: Any, loaded: LoadedModel, function: Any, inputs: Mapping[str, Any], contents: Mapping[str, Any]
) -> float:
    buffers = {name: tools.NDArray(as_array(content).copy()) for name, content in contents.items()}
    started = time.perf_counter()
    loaded.call(function, inputs, buffers)
    return time.perf_counter() - started


def _peak_memory() -> int:
    """The peak memory of this process in bytes."""
    import resource  # not on Windows, where coreai-core does not run either

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
