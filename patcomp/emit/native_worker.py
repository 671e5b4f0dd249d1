"""The child process of `patcomp.emit.native.Native`: pickled jobs on standard input, answers on standard output."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable
from typing import Any

from patcomp.emit.asset import parse_with_toolchain, temporary_asset
from patcomp.ir.module import IRModule
from patcomp.ir.text import TextParser, context
from patcomp.ir.types import TensorType


def _unpack(packed: tuple[str, list[tuple[str, bytes, str]]]) -> IRModule:
    text, weights = packed
    module = IRModule.parse(text)
    for key, data, type_text in weights:
        type_ = TextParser(context(), type_text).parse_type()
        assert isinstance(type_, TensorType)
        stored = module.blobs.add(key, data, type_)
        assert stored == key, f"the weight {key} came over as {stored}"
    return module


def _run(packed: Any, inputs: dict, state: dict, entry: str) -> Any:
    with temporary_asset(_unpack(packed)) as asset:
        return asset.run(inputs, state, entry), state


def _check(packed: Any, pretty: bool) -> tuple[str, ...]:
    return parse_with_toolchain(_unpack(packed), pretty=pretty)


def main() -> None:
    # the runtime prints to standard output, so answers go through a copy of it
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    jobs: dict[str, Callable[..., Any]] = {"run": _run, "check": _check}
    while True:
        try:
            name, *arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer: tuple[str, Any] = ("ok", jobs[name](*arguments))
        except Exception as error:
            cause = f" || {error.__cause__}" if error.__cause__ else ""
            answer = (type(error).__name__, f"{error}{cause}")
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    main()
