"""Runs PyTorch's decompositions at the edges of their operators, and compares them with the eager operators.

    python -m tests.operators.decomposition_sweep --output decompositions.jsonl
    python -m tests.operators.decomposition_sweep --from-schemas --only 'aten.norm*'

A decomposition *departs* if it gives other numbers, types or shapes than the operator. Then the first call of each kind
is also exported and converted, without `run_decompositions` and after the one with patcomp's table: each way must give
eager's numbers, or refuse the call. What PyTorch's own table makes of the call is listed.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import logging
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from patcomp import PatcompError, TorchConverter, UnsupportedError, get_decomp_table
from patcomp.evaluate.eager import DATA_DEPENDENT, without_data
from patcomp.evaluate.element_types import to_tensor
from patcomp.ir import aten
from patcomp.pytorch import (
    OpOverload,
    TorchDispatchMode,
    enable_python_dispatcher,
    global_decomposition_table,
    operator_of,
    python_decompositions,
    schema_of_overload,
)
from tests.helpers.time_limits import TimeIsUp, time_limit
from tests.operators.decomposition_cases import Call, made_calls, sampled_calls
from tests.operators.samples import DTYPES, name_of, operators

Table = Mapping[Any, Callable[..., Any]]
SECONDS = 30
"""How long the calls of one operator may take."""


class Decomposing(TorchDispatchMode):
    """Runs operators by their decompositions, also the operators that decompositions are made of."""

    def __init__(self, table: Table):
        super().__init__()
        self._table = table
        self.used: set[str] = set()
        """The operators that were decomposed."""

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        function = self._table.get(op)
        if function is not None and torch.Tag.nondeterministic_seeded not in op.tags:
            with self:
                result = function(*args, **kwargs)
            if result is not NotImplemented:
                self.used.add(aten.op_name(op.name()))
                return result
        return op(*args, **kwargs)


def every_decomposition() -> Table:
    """All of PyTorch's decompositions that are written in Python, those of the default table first. Kernels that are
    made of other operators run before a dispatch mode sees them."""
    return {**global_decomposition_table["post_autograd"], **python_decompositions()}


def compared(call: Call, table: Table) -> str | None:
    """How the decompositions of a call depart; an empty text if they do not.

    It is None if there is nothing to compare: eager PyTorch refuses the call, it cannot be exported, or no op is
    decomposed. So it is where a decomposition raises an error, because export traces it and raises the error.
    """
    with torch.no_grad():
        try:
            if not _can_be_exported(call):
                return None
            wanted = _results(call())
            mode = Decomposing(table)
            with enable_python_dispatcher(), mode:
                made = call()
            given = _results(made)
            if any(result.layout is not torch.strided for result in (*wanted, *given)):
                return None
        except TimeIsUp:
            raise
        except Exception:  # kernels and decompositions raise errors of any class
            return None
        message = departure(call, given, wanted)
        # kernels in Python run before the mode sees their op
        return message if message or mode.used else None


def _can_be_exported(call: Call) -> bool:
    """Whether the shape functions take a call; some kernels do not check their arguments, and read beyond them.

    Calls that differ in their numbers only are asked about once.
    """
    facts = [
        (leaf.dtype, leaf.shape, leaf.stride()) if isinstance(leaf, Tensor) else (type(leaf), leaf)
        for leaf in call.leaves
    ]
    key = call.function, str(pytree.tree_structure((call.args, call.kwargs))), tuple(facts)
    if key not in _EXPORTED:
        try:
            with without_data() as stripped:
                Call(call.function, stripped(call.args), stripped(call.kwargs), call.text)()
        except DATA_DEPENDENT:
            _EXPORTED[key] = True
        except TimeIsUp:
            raise
        except Exception:  # shape functions raise errors of any class
            _EXPORTED[key] = False
        else:
            _EXPORTED[key] = True
    return _EXPORTED[key]


_EXPORTED: dict[Any, bool] = {}


def _results(made: Any) -> list[Tensor]:
    leaves = pytree.tree_leaves(made)
    return [torch.as_tensor(leaf) for leaf in leaves if isinstance(leaf, Tensor | int | float | bool)]


_TOLERANCES = {torch.float16: 4e-3, torch.bfloat16: 3e-2}
"""Relative, and absolute to the largest value; other types have 1e-5."""
_WIDE = {torch.float16: torch.float64, torch.bfloat16: torch.float64, torch.float32: torch.float64}


def departure(call: Call, given: list[Tensor], wanted: list[Tensor]) -> str:
    """What is other than eager's, or an empty text; a number may be as near to its float64 twin as eager's is."""
    if len(given) != len(wanted):
        return f"{len(given)} results for {len(wanted)}"
    truth: list[Tensor] | None = None
    for index, (ours, eagers) in enumerate(zip(given, wanted, strict=True)):
        if ours.shape != eagers.shape or ours.dtype != eagers.dtype:
            return f"result {index} is {ours.dtype}{list(ours.shape)} for {eagers.dtype}{list(eagers.shape)}"
        if not (eagers.is_floating_point() or eagers.is_complex()):
            if not torch.equal(ours, eagers):
                return f"result {index}: {_shown(ours, eagers, ours != eagers)}"
            continue
        dtypes = [leaf.dtype for leaf in call.leaves if isinstance(leaf, Tensor)] + [eagers.dtype]
        relative = max(_TOLERANCES.get(dtype, 1e-5) for dtype in dtypes)
        same = torch.isclose(ours, eagers, rtol=relative, atol=relative, equal_nan=True)
        if bool(same.all()):
            continue
        truth = _twin(call) if truth is None else truth
        if len(truth) == len(wanted) and truth[index].shape == eagers.shape and not eagers.is_complex():
            exact = truth[index].double()
            finite = exact[exact.isfinite()].abs()
            scale = float(finite.max()) if finite.numel() else 1.0
            off, eager_off = ((x.double() - exact).abs() for x in (ours, eagers))
            right = torch.isclose(ours.double(), exact, rtol=relative, atol=relative * scale, equal_nan=True)
            same |= right | (off <= 2 * eager_off)
        if not bool(same.all()):
            return f"result {index}: {_shown(ours, eagers, ~same)}"
    return ""


def _shown(ours: Tensor, eagers: Tensor, differ: Tensor) -> str:
    return " for ".join(str(x[differ][:6].tolist()) for x in (ours, eagers))


def _twin(call: Call) -> list[Tensor]:
    """What eager gives for the same numbers in float64; nothing if PyTorch refuses them."""

    def widened(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return leaf.to(_WIDE.get(leaf.dtype, leaf.dtype))
        return _WIDE.get(leaf, leaf) if isinstance(leaf, torch.dtype) else leaf

    try:
        return _results(call.with_leaves(list(map(widened, call.leaves)), call.text)())
    except Exception:  # PyTorch's own check of an argument
        return []


class _Module(nn.Module):
    """A call as a module: its tensors are the inputs, all else is fixed."""

    def __init__(self, call: Call):
        super().__init__()
        self.call = call

    def forward(self, *tensors: Tensor) -> list[Tensor]:
        given = iter(tensors)
        leaves = [next(given) if isinstance(leaf, Tensor) else leaf for leaf in self.call.leaves]
        filled = self.call.with_leaves(leaves, self.call.text)
        result = filled.function(*filled.args, **filled.kwargs)
        return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor)]


WAYS = ("undecomposed", "patcomp's table")
BY_PYTORCH = "PyTorch's table"
"""A program that `run_decompositions()` has decomposed before patcomp gets it, and that PyTorch itself runs."""


def converted(call: Call, way: str) -> str:
    """`"right"`, `"refused: ..."`, `"not exported: ..."` or `"wrong: ..."`, for a call that is converted in a way."""
    tensors = tuple(leaf for leaf in call.leaves if isinstance(leaf, Tensor))
    module = _Module(call)
    with torch.no_grad():
        wanted = module(*(tensor.clone() for tensor in tensors))
    try:
        if way == BY_PYTORCH:
            return _verdict(changed_by_pytorch([call])[0])
        exported = torch.export.export(module, tensors, strict=False)
        if way == "patcomp's table":
            exported = exported.run_decompositions(get_decomp_table())
    except TimeIsUp:
        raise
    except Exception as error:  # PyTorch's exporter raises whatever its tracers raise
        return f"not exported: {error}".partition("\n")[0][:200]
    try:
        converter = TorchConverter(int64="keep", float64="keep")
        program = converter.add_exported_program(exported, mutated_inputs="output").to_coreai()
        outputs = program.run(dict(zip(program.input_names(), tensors, strict=True)))
    except UnsupportedError as error:
        return f"refused: {'; '.join(problem.message for problem in error.problems)}"
    except PatcompError as error:  # an index out of range, where the runtime would abort; a shape that export got wrong
        return f"refused: {error}"
    given = [to_tensor(np.asarray(value) if np.isscalar(value) else value) for value in outputs.values()][: len(wanted)]
    return _verdict(departure(call, given, wanted))


def changed_by_pytorch(calls: list[Call]) -> list[str]:
    """How each call of one program departs after `run_decompositions` with PyTorch's own table."""
    modules = nn.ModuleList(map(_Module, calls))

    class Together(nn.Module):
        def forward(self, *inputs: list[Tensor]) -> list[list[Tensor]]:
            return [module(*tensors) for module, tensors in zip(modules, inputs, strict=True)]

    inputs = tuple([leaf for leaf in call.leaves if isinstance(leaf, Tensor)] for call in calls)
    with torch.no_grad():
        wanted = Together()(*pytree.tree_map(torch.clone, inputs))
        given = torch.export.export(Together(), inputs, strict=False).run_decompositions().module()(*inputs)
    return [departure(*each) for each in zip(calls, given, wanted, strict=True)]


def _verdict(message: str) -> str:
    return f"wrong: {message}" if message else "right"


def _has_python_kernel(op: OpOverload) -> bool:
    """Whether PyTorch decomposes an operator before it asks any table."""
    return not {torch._C.DispatchKey.Autograd, torch._C.DispatchKey.CompositeImplicitAutograd}.isdisjoint(op.py_kernels)


def overloads() -> Iterator[OpOverload]:
    """The operators of ATen that PyTorch decomposes in Python, without writes, random numbers and undefined memory."""
    every = every_decomposition()
    for name in sorted(name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")):
        try:
            op = operator_of(name)
        except AttributeError:  # of a library that is not loaded
            continue
        writes = schema_of_overload(op).is_mutable
        unspecified = torch.Tag.nondeterministic_seeded in op.tags or "empty" in name or "resize" in name
        if (op in every or _has_python_kernel(op)) and not writes and not unspecified:
            yield op


def kind_of(call: Call, message: str) -> str:
    """What some departures of an operator have in common: the types of the tensors, and the sorts of numbers."""
    dtypes = {str(leaf.dtype) for leaf in call.leaves if isinstance(leaf, Tensor)}
    sorts = [set(re.findall(r"torch\.\w+|-?inf|[a-zA-Z]+", _NUMBER.sub("x", side))) for side in message.split(" for ")]
    return f"{sorted(dtypes)} {list(map(sorted, sorts))}"


_NUMBER = re.compile(r"\b\d[\d.]*(e[+-]?\d+)?j?")


def sweep(calls: Iterable[Call], table: Table) -> tuple[Counter[str], list[tuple[str, str, dict[str, str]]]]:
    """The number of calls by how they ended; and the first departure of each kind: call, what departs, and the verdict
    of each way."""
    counts: Counter[str] = Counter()
    departures: list[tuple[Call, str]] = []
    try:
        with time_limit(SECONDS):
            for call in calls:
                message = compared(call, table)
                if message is None:
                    continue
                counts["compared"] += 1
                if message:
                    counts["departs"] += 1
                    departures.append((call, message))
    except TimeIsUp:
        counts["out of time"] += 1
    found: list[tuple[str, str, dict[str, str]]] = []
    for call, message in {kind_of(*each): each for each in reversed(departures)}.values():
        verdicts = {}
        for way in (*WAYS, BY_PYTORCH):
            try:
                with time_limit(SECONDS):
                    verdicts[way] = converted(call, way)
            except TimeIsUp:
                verdicts[way] = "out of time"
        counts.update(f"{way}: {verdict.partition(':')[0]}" for way, verdict in verdicts.items())
        found.append((str(call), message, verdicts))
    return counts, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="NAME", help="operators, as a shell pattern")
    parser.add_argument("--skip", metavar="NAME", help="operators to leave out, as a shell pattern")
    parser.add_argument("--from-schemas", action="store_true", help="calls made from schemas, not PyTorch's samples")
    parser.add_argument("--tries", type=int, default=200, help="calls of each operator that are made from schemas")
    parser.add_argument("--limit", type=int, default=5, help="samples of each operator")
    parser.add_argument("--dtype", nargs="+", default=["float32"], choices=list(DTYPES))
    parser.add_argument("--output", type=Path, help="file for the results, a JSON list a line")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    table = every_decomposition()
    subjects: list[tuple[str, Iterable[Call]]] = []
    if options.from_schemas:
        subjects += [
            (f"{aten.op_name(op.name())} {dtype}", made_calls(op, options.tries, DTYPES[dtype]))
            for dtype in options.dtype
            for op in overloads()
        ]
    else:
        subjects += [
            (f"{name_of(op)} {dtype}", sampled_calls(op, DTYPES[dtype], options.limit))
            for dtype in options.dtype
            for op in operators(DTYPES[dtype])
        ]
    for name, calls in subjects:
        if options.skip and fnmatch.fnmatch(name, options.skip):
            continue
        if options.only and not fnmatch.fnmatch(name, options.only):
            continue
        counts, found = sweep(calls, table)
        lines = [json.dumps([name, dict(counts)]), *(json.dumps([name, *each]) for each in found)]
        if options.output:
            with options.output.open("a") as file:
                file.writelines(f"{line}\n" for line in lines)
        elif found:
            print("\n".join(lines))


if __name__ == "__main__":
    main()
