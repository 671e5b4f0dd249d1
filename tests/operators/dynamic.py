"""Operators with every dimension dynamic: one program, run with other sizes than those it was exported with.

    python -m tests.operators.dynamic --only 'aten.*'          # the examples of Core ATen
    python -m tests.operators.dynamic --only cumsum --limit 5  # OpInfo's samples of some operators

Outcomes are those of `operators.sweep`; a program whose dimensions export makes static counts, too.
"""

from __future__ import annotations

import argparse
import fnmatch
import logging
import warnings
from collections.abc import Iterator, Sequence
from copy import copy
from types import SimpleNamespace
from typing import Any

import sympy
import torch
from torch.export import Dim, ExportedProgram

from patcomp import AIProgram, TorchConverter, UnsupportedError, get_decomp_table
from patcomp.emit.native import Native, NativeError, ProcessDied
from patcomp.evaluate.eager import overload_of
from patcomp.evaluate.inputs import prepare_input
from patcomp.ir import aten
from tests.catalog.cases import eager_argument, make_case
from tests.operators.core import EXAMPLES
from tests.operators.samples import DTYPES, Program, Sample, name_of, operators, samples
from tests.operators.sweep import Outcome, TimeIsUp, mismatch, time_limit

CHANGES = ("as exported", "larger", "smaller")
"""How the sizes of the runs of a program differ from those of the export."""


def core_sample(name: str) -> Sample:
    """The example call of an overload of Core ATen."""
    case = make_case(name, EXAMPLES[name].args, EXAMPLES[name].kwargs)
    schema = aten.schema_of(name)
    assert schema is not None
    arguments = {key: eager_argument(value, schema[key].type) for key, value in case.arguments.items()}
    op = SimpleNamespace(name=name, op=lambda _, **given: overload_of(name)(**given))
    program = Program(op, SimpleNamespace(input=None, args=(), kwargs=arguments))  # type: ignore[arg-type]
    return Sample(program, program(*program.tensors), name)


def export(program: Program) -> ExportedProgram:
    """Exports with every dimension dynamic that may be; PyTorch decides for each."""
    shapes = [{axis: Dim.AUTO for axis, size in enumerate(x.shape) if size > 1} for x in program.tensors]
    return torch.export.export(program, program.tensors, dynamic_shapes=(tuple(shapes),), strict=False)


def resized(exported: ExportedProgram, program: Program, change: str) -> tuple[torch.Tensor, ...] | None:
    """Inputs whose sizes differ from the example's as far as the program allows; None where there are no others."""
    names = set(exported.graph_signature.user_inputs)
    fakes = [node.meta["val"] for node in exported.graph.nodes if node.op == "placeholder" and node.name in names]
    hints: dict[sympy.Symbol, int] = {}
    for fake, real in zip(fakes, program.tensors, strict=True):
        for size, number in zip(fake.shape, real.shape, strict=True):
            if isinstance(size, torch.SymInt) and isinstance(size.node.expr, sympy.Symbol):
                hints[size.node.expr] = number
    chosen = {}
    for place, (symbol, hint) in enumerate(hints.items()):
        bounds = exported.range_constraints[symbol]
        wanted = hint + 1 + place if change == "larger" else hint - 1
        chosen[symbol] = int(min(max(wanted, bounds.lower), bounds.upper))
    if chosen == hints:
        return None
    sizes = [[_number(size, chosen) for size in fake.shape] for fake in fakes]
    generator = torch.Generator().manual_seed(0)
    tensors = tuple(_like(real, shape, generator) for real, shape in zip(program.tensors, sizes, strict=True))
    try:
        exported.module()(*tensors)
    except Exception:  # the sizes break a guard of the program, or eager does not take the inputs
        return None
    return tensors


def _number(size: Any, chosen: dict[sympy.Symbol, int]) -> int:
    return int(size.node.expr.subs(chosen)) if isinstance(size, torch.SymInt) else size


def _like(x: torch.Tensor, shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    """A tensor of another shape whose elements lie between those of `x`, as far as there are any."""
    if tuple(x.shape) == tuple(shape) or not x.numel():
        return x.new_zeros(shape) if tuple(x.shape) != tuple(shape) else x
    picked = [x.reshape(-1)[torch.randint(0, x.numel(), tuple(shape), generator=generator)] for _ in range(2)]
    if not (x.is_floating_point() or x.is_complex()):
        return picked[0]
    share = torch.rand(tuple(shape), generator=generator).to(x.dtype)
    return picked[0] * share + picked[1] * (1 - share)


def run_dynamic(sample: Sample, native: Native, *, decompose: bool = False) -> Outcome:
    """Exports and converts once, and compares with eager PyTorch at each of several sizes."""
    try:
        exported = export(sample.program)
        exported = exported.run_decompositions(get_decomp_table()) if decompose else exported
    except TimeIsUp:
        raise
    except Exception as error:  # PyTorch's exporter raises whatever its tracers raise
        return Outcome("not exported", f"{type(error).__name__}: {error}"[:200])
    change = "conversion"
    try:
        program = TorchConverter().add_exported_program(exported).to_coreai()
        for change, other in _calls(exported, sample):
            message = _compared(program, other, native)
            if message:
                return Outcome("mismatch", f"{change}: {message}")
    except UnsupportedError as error:
        return Outcome("refused", "; ".join(sorted({f"{p.op}: {p.message}" for p in error.problems}))[:600])
    except ProcessDied as error:
        return Outcome("crash", f"{change}: {error}"[-400:])
    except TimeIsUp:
        raise
    except NativeError as error:
        return Outcome("error", f"{change}: runtime: {error}"[:900])
    except Exception as error:  # a defect: to be listed, not to end the sweep
        return Outcome("error", f"{change}: {type(error).__name__}: {error}"[:600])
    return Outcome("pass")


def _calls(exported: ExportedProgram, sample: Sample) -> Iterator[tuple[str, Sample]]:
    yield CHANGES[0], sample
    for change in CHANGES[1:]:
        tensors = resized(exported, sample.program, change)
        if tensors is None:
            continue
        program = copy(sample.program)
        program.tensors = tensors
        try:
            with torch.no_grad():
                expected = program(*(x.clone() for x in tensors))
        except Exception:  # places that smaller tensors do not have
            continue
        if [x.dim() for x in expected] != [x.dim() for x in sample.expected]:
            continue  # a squeeze, for which export takes a dynamic dimension as one that is never 1
        yield change, Sample(program, expected, sample.text)


def _compared(program: AIProgram, sample: Sample, native: Native) -> str:
    block = program.module.graph("main").regions[0].block
    inputs = {
        name: prepare_input(tensor, argument.type, name)  # type: ignore[arg-type]
        for name, tensor, argument in zip(program.input_names(), sample.program.tensors, block.args, strict=True)
    }
    empty = any(0 in tensor.shape for tensor in (*sample.program.tensors, *sample.expected))
    runs = {"evaluator": lambda: program.run(inputs), "runtime": lambda: native.run(program.module, inputs)}
    for where in ("evaluator",) if empty else tuple(runs):  # the runtime takes no tensors without elements
        outputs = runs[where]()
        if message := mismatch(sample, [outputs[name] for name in program.output_names()]):
            return f"{where}: {message}"
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=["*"], metavar="NAME", help="shell patterns of names")
    parser.add_argument("--limit", type=int, help="samples of each operator of OpInfo")
    parser.add_argument("--dtype", default="float32", choices=list(DTYPES))
    parser.add_argument("--every", type=int, default=1, help="only every n-th operator")
    parser.add_argument("--offset", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    torch.set_num_threads(1)
    found = {name: [core_sample(name)] for name in sorted(EXAMPLES)}
    infos = {name_of(op): op for op in operators(DTYPES[options.dtype])}
    names = [n for n in (*found, *infos) if any(fnmatch.fnmatch(n, pattern) for pattern in options.only)]
    native = Native()
    for name in names[options.offset :: options.every]:
        seen = set()
        for sample in found[name] if name in found else samples(infos[name], DTYPES[options.dtype], options.limit):
            for decompose in (False, True):
                try:
                    with time_limit(60):
                        outcome = run_dynamic(sample, native, decompose=decompose)
                except TimeIsUp as error:
                    outcome = Outcome("error", str(error))
                    native.close()
                if (outcome.kind, outcome.message) not in seen:
                    seen.add((outcome.kind, outcome.message))
                    message = outcome.message.replace("\n", " ")
                    print(name, "|", outcome.kind, "|", sample.text, "|", message, flush=True)


if __name__ == "__main__":
    main()
