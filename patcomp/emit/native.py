"""The Core AI runtime in a child process, because native code can abort its process.

with contextlib.closing(Native()) as native:
    outputs = native.run(module, {"x": array})
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from patcomp.emit.toolchain.hand_over import HandOver, hand_over_text
from patcomp.errors import PatcompError
from patcomp.evaluate.given import as_array
from patcomp.ir.module import IRModule

if TYPE_CHECKING:
    from patcomp.emit.timing import Timing
    from patcomp.emit.toolchain.compute_units import ComputeUnit

_PATIENCE = 10
"""Seconds that the child process has to end by itself."""


class NativeError(PatcompError, RuntimeError):
    """The toolchain or the runtime refused the program; `kind` is the class name of its exception, `message` what it
    says."""

    def __init__(self, kind: str, message: str):
        self.kind, self.message = kind, message
        super().__init__(f"{kind}: {message}")


class ProcessDied(PatcompError, RuntimeError):  # noqa: N818
    """The runtime aborted its process; `signal` is the signal's number, `log` the end of its output."""

    def __init__(self, number: int, log: str):
        self.signal = number
        self.log = log
        name = signal.Signals(number).name if number else "an exit"
        super().__init__(f"the runtime died of {name}\n{log}")


class Native:
    """A child process that saves and runs programs; it is started when needed and again when it died.

    Args:
        folder: where it saves them; by default where the system has temporary files.
    """

    def __init__(self, folder: str | None = None) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115

    def run(
        self,
        module: IRModule,
        inputs: Mapping[str, Any],
        state: dict[str, Any] | None = None,
        entry: str = "main",
    ) -> dict[str, np.ndarray]:
        """Save a module as an asset and run a function of it.

        Args:
            module: the program with its weights.
            inputs: numpy arrays or torch tensors by name.
            state: state buffers by name; numpy arrays, replaced in the dict by their new content.
            entry: name of the function.

        Raises:
            NativeError: the program was refused, by any layer.
            ProcessDied: the child process died.
        """
        program = HandOver.of(module).with_copied_weights()
        ((outputs, new_state),) = self._ask("run", program, [(entry, _arrays(inputs), _copies(state))])
        if state is not None:
            state.update(new_state)
        return outputs

    def run_each(self, module: IRModule, calls: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, np.ndarray]]:
        """Save a module as an asset and run some of its functions, which takes little longer than one.

        Args:
            module: the program with its weights.
            calls: the inputs by name of each function to run.

        Returns:
            The outputs by name of each of the functions.

        Raises:
            NativeError: the program was refused, by any layer.
            ProcessDied: the child process died.
        """
        program = HandOver.of(module).with_copied_weights()
        answers = self._ask("run", program, [(entry, _arrays(inputs), {}) for entry, inputs in calls.items()])
        return {entry: outputs for entry, (outputs, _) in zip(calls, answers, strict=True)}

    def call(
        self, asset: Path, inputs: Mapping[str, Any], state: Mapping[str, Any] | None = None, entry: str = "main"
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Run a function of a saved asset; return the outputs and the new contents of its states, by name.

        Args:
            asset: the `.aimodel` folder.
            inputs, state: numpy arrays or torch tensors by name; a state that is not given has its initial value.
            entry: name of the function.

        Raises:
            NativeError: the asset or the call was refused, by any layer.
            ProcessDied: the child process died.
        """
        return self._ask("call", asset.absolute(), _arrays(inputs), _copies(state), entry)

    def time(
        self,
        asset: Path,
        inputs: Mapping[str, Any],
        state: Mapping[str, Any],
        entry: str,
        *,
        calls: int,
        unit: ComputeUnit | None = None,
        patience: float,
    ) -> Timing:
        """Time a function of a saved asset, as `patcomp.emit.timing.timed` does.

        Args:
            patience: the seconds after which the child process is killed.

        Raises:
            NativeError: the asset or a call was refused, by any layer.
            ProcessDied: the child process died.
            TimeoutError: it did not answer in time.
        """
        late = threading.Event()

        def give_up() -> None:
            late.set()
            self.kill()

        timer = threading.Timer(patience, give_up)
        timer.start()
        try:
            timing: Timing = self._ask("time", asset.absolute(), _arrays(inputs), _copies(state), entry, calls, unit)
            return timing
        except ProcessDied as error:
            if late.is_set():
                raise TimeoutError(f"the runtime gave no answer within {patience:g} s") from error
            raise
        finally:
            timer.cancel()

    def read(self, asset: Path, *, values: bool = False) -> tuple[str, dict[str, str]]:
        """The text of a saved asset, without the weights; and a hash of each weight by name, if `values`.

        Raises:
            NativeError, ProcessDied: the asset is broken.
        """
        return self._ask("read", asset.absolute(), values)

    def check(self, module: IRModule, *, pretty: bool = False) -> tuple[str, ...]:
        """The diagnostics of the real parser and verifier for the module's text; empty when it is accepted."""
        return self._ask("check", module.text() if pretty else hand_over_text(module))

    def kill(self) -> None:
        """Kill a child process that does not answer; the next job starts another."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        """End the child process."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                self._process.wait(timeout=_PATIENCE)
            except subprocess.TimeoutExpired:  # native code hangs, or the machine is busy
                self.kill()
            self._process = None

    def _ask(self, *job: Any) -> Any:
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            pickle.dump(job, process.stdin)
            process.stdin.flush()
            kind, answer = pickle.load(process.stdout)
        except (EOFError, BrokenPipeError, pickle.UnpicklingError):
            self._process = None
            code = process.wait(timeout=60)
            self._log.seek(0)
            raise ProcessDied(max(-code, 0), self._log.read()[-2000:].decode(errors="replace")) from None
        if kind != "ok":
            raise NativeError(kind, answer)
        return answer

    def _start(self) -> subprocess.Popen[bytes]:
        self._log.seek(0)
        self._log.truncate()
        root = str(Path(__file__).parents[2])
        paths = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "patcomp.emit.native_worker"],
            env=os.environ | {"PYTHONPATH": paths} | ({"TMPDIR": self._folder} if self._folder else {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        return self._process


def _arrays(values: Mapping[str, Any]) -> dict[str, np.ndarray]:
    return {name: as_array(value) for name, value in values.items()}


def _copies(values: Mapping[str, Any] | None) -> dict[str, np.ndarray]:
    return {name: np.array(array) for name, array in _arrays(values or {}).items()}
