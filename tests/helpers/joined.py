"""Several programs in one module, because saving and compiling takes the runtime about as long for many as for one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from patcomp.emit.native import Native, NativeError, ProcessDied
from patcomp.ir.attributes import symbol_constant
from patcomp.ir.module import IRModule, callee, graph_name
from patcomp.ir.xdsl import StringAttr

_Arrays = Mapping[str, Any]


def join(programs: Mapping[str, IRModule]) -> IRModule:
    """A module with the graphs of all programs; `@main` of each has the program's name. They must have no weights."""
    joined = IRModule()
    for program, module in programs.items():
        assert not list(module.blobs)
        copy = module.clone()
        for op in copy.op.walk():
            if op.name == "coreai.graph":
                op.properties["sym_name"] = StringAttr(_symbol(program, graph_name(op)))
            elif op.name == "coreai.invoke":
                op.properties["callee"] = symbol_constant(_symbol(program, callee(op)))
        for graph in list(copy.graphs):
            graph.detach()
            joined.op.body.block.add_op(graph)
    return joined


def _symbol(program: str, graph: str) -> str:
    return program if graph == "main" else f"{program}_{graph}"


def run_each(native: Native, programs: Mapping[str, tuple[IRModule, _Arrays]]) -> dict[str, dict[str, np.ndarray]]:
    """The outputs of `@main` of each program on the real runtime; those without weights run as one asset.

    Args:
        native: the runtime.
        programs: programs and their inputs by name; names are identifiers.

    Raises:
        NativeError, ProcessDied: a program is refused or ends the child process; a note names it.
    """
    joined = {name: program for name, program in programs.items() if not list(program[0].blobs)}
    failure: Exception | None = None
    outputs: dict[str, dict[str, np.ndarray]] = {}
    if len(joined) > 1:
        module = join({name: module for name, (module, _) in joined.items()})
        try:
            outputs = native.run_each(module, {name: inputs for name, (_, inputs) in joined.items()})
        except (NativeError, ProcessDied) as error:
            failure = error
    for name, (module, inputs) in programs.items():
        if name not in outputs:
            with noted(f"the program is {name}"):
                outputs[name] = native.run(module, inputs)
    if failure is not None:
        failure.add_note("each program runs by itself")
        raise failure
    return outputs


@contextmanager
def noted(note: str) -> Iterator[None]:
    """An exception in the block says more."""
    try:
        yield
    except Exception as error:
        error.add_note(note)
        raise
