"""An asset in memory: compiled once, then called any number of times, without `asyncio`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import numpy as np

from patcomp.emit.toolchain.runtime_lines import kept_apart
from patcomp.errors import UnknownNameError, near_names
from patcomp.evaluate.given import array_in_type, check_input_names
from patcomp.ir.packing import is_packed
from patcomp.ir.types import ELEMENT_OF_TORCH, tensor
from patcomp.ir.xdsl import TensorType

_ELEMENTS = {name.replace("_", ""): element for name, element in ELEMENT_OF_TORCH.items() if not is_packed(element)}
"""The element types of a byte and more, by their names in the runtime's descriptors."""


class LoadedModel:
    """A compiled asset.

    The runtime's functions are coroutines, and a thread has only one event loop, which may be running already (in a
    notebook). So the model lives on a loop in a thread of its own.

    Args:
        executable: what `AIModelAsset.executable()` returns.

    Raises:
        RuntimeError: the toolchain cannot compile the program.
    """

    def __init__(self, executable: AbstractAsyncContextManager[Any]):
        self._executable = executable
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="patcomp runtime", daemon=True)
        self._thread.start()
        self._functions: dict[str, Any] = {}
        try:
            self._model = self._wait(executable.__aenter__())
        except BaseException:
            self._stop()
            raise

    @property
    def model(self) -> Any:
        """The runtime's `AIModel`."""
        return self._model

    @property
    def names(self) -> list[str]:
        """The names of the functions."""
        return list(self._model.function_names)

    def function(self, name: str) -> Any:
        """The runtime's function of an entry point.

        Raises:
            UnknownNameError: there is none; it is a `KeyError`.
        """
        names = self.names
        if name not in names:
            raise UnknownNameError(f"there is no entry point {name!r}; there are {near_names(name, names)}")
        if name not in self._functions:
            with kept_apart():
                self._functions[name] = self._model.load_function(name)
        return self._functions[name]

    def call(self, function: Any, inputs: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The outputs of a function for `NDArray`s, in the order of its signature; the state is written in place."""

        async def called() -> dict[str, np.ndarray]:
            results = await function(inputs, state) if state else await function(inputs)
            # copies: a view's memory belongs to the model, which may be closed before the view is read
            # the runtime's own dict has another order in every process
            return {name: np.array(results[name].numpy()) for name in function.desc.output_names}

        return self._wait(called())

    def close(self) -> None:
        """Release the model; nothing happens when it is closed already."""
        if not self._loop.is_closed():
            try:
                self._wait(self._executable.__aexit__(None, None, None))
            finally:
                self._stop()

    def _wait(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        with kept_apart():
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def checked(
    function: Any, inputs: Mapping[str, Any], state: Mapping[str, Any], entrypoint: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Convert inputs and states to arrays of the function's types, because the runtime aborts on some others.

    Raises:
        EvaluationError: one is missing, unknown, or of another type or shape.
    """
    descriptor = function.desc
    check_input_names(entrypoint, "input", inputs, descriptor.input_names)
    check_input_names(entrypoint, "state", state, descriptor.state_names)

    def prepared(what: str, values: Mapping[str, Any], described: Any) -> dict[str, Any]:
        return {
            name: value if (type_ := _type_of(described(name))) is None else array_in_type(value, type_, name, what)
            for name, value in values.items()
        }

    return (
        prepared("input", inputs, descriptor.input_descriptor),
        prepared("state", state, descriptor.state_descriptor),
    )


def _type_of(described: Any) -> TensorType | None:
    """The type of a descriptor; None for an element type below a byte."""
    element = _ELEMENTS.get(described.dtype)
    shape = [None if size is None or size < 0 else size for size in described.shape]
    return None if element is None else tensor(shape, element)
