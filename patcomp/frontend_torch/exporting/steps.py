"""`export`: the steps that are tried one after the other until one exports the model."""

from __future__ import annotations

import functools
import logging
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr
from typing import Any, TextIO

import torch
from torch import nn
from torch.export import ExportedProgram

from patcomp.errors import ConversionWarning, ExportError, PatcompError, Problem
from patcomp.frontend_torch.exporting.assigned import AssignedData, check_assignments
from patcomp.frontend_torch.exporting.constants import ConstantNumbers
from patcomp.frontend_torch.exporting.draft import assumptions, branches
from patcomp.frontend_torch.exporting.examples import check_example, check_packing, failure_of
from patcomp.frontend_torch.exporting.failures import (
    baked_in,
    explained,
    stateful,
    unfit,
    what_is_wrong_with,
    wrong_shapes,
)
from patcomp.frontend_torch.exporting.kept import copied, data_of, kept, reassigned, registered
from patcomp.frontend_torch.exporting.open_sizes import check_open, larger_example, narrowed
from patcomp.frontend_torch.exporting.over_time import RecurrentNetworks
from patcomp.frontend_torch.exporting.packed import PackedSequences, open_batches
from patcomp.frontend_torch.exporting.refusals import RefusedError
from patcomp.frontend_torch.exporting.remembered import remembered
from patcomp.frontend_torch.fx.nodes import reads_known_number
from patcomp.pytorch import callers_defaults, draft_export, needless_casts, open_layouts, open_pools, open_views, quiet

_LOGGER = logging.getLogger("patcomp.export")

_Call = tuple[tuple[Any, ...], dict[str, Any], Any]
"""Positional arguments, keyword arguments and dynamic shapes."""
_Step = Callable[[nn.Module, _Call], tuple[ExportedProgram, list[Problem]]]

_ONE_AT_A_TIME = threading.RLock()
"""An export puts its own tensors in the place of the model's parameters, and PyTorch's tracing has global state."""


def export(
    model: nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    strict: bool = False,
    draft: bool = True,
    assume_branch: bool = False,
) -> ExportedProgram:
    """Export a model with `torch.export`, and in other ways if it fails.

    The steps, each only if the one before failed:

    1. `torch.export.export`, not strict. Where it fixes a size that `dynamic_shapes` leaves open because the example
       has 0 or 1 there, and the `Dim` allows 2, it is given an example with 2. The program has yours. Recurrent
       networks over an open number of steps are loops, also in steps 2 and 4.
    2. Numbers that the model reads from small integer buffers, or from tensors made of constants, are constants of the
       program; packed sequences of full lengths, or of an open number of steps, run unpacked; `.data` may be assigned.
    3. `torch.export.export`, strict.
    4. `torch.export.draft_export`, with the constants of step 2. A decision in Python by data is refused, or with
       `assume_branch` is the one for the example.

    A warning says which step was needed and what the program assumes. The model keeps its mode, its
    attributes and its buffers. Exports wait for each other; do not run the model in another thread meanwhile.

    Args:
        model: the module.
        args: positional example arguments. Instances of a dataclass that PyTorch does not know are registered with
            `torch.export.register_dataclass`.
        kwargs: keyword example arguments.
        dynamic_shapes: the dynamic sizes, as `torch.export.export` takes them.
        strict: try step 3 alone.
        draft: whether step 4 may follow.
        assume_branch: whether the program of step 4 may be for inputs for which the model makes the same decisions as
            for the example only. `program.run` checks them, and an asset cannot.

    Returns:
        The exported program, which `TorchConverter.add_exported_program` takes.

    Raises:
        ExportError: the model decides by data, without `assume_branch`; it keeps tensors from one run to the next that
            are no buffers; no step exports the model with the open sizes
            that `dynamic_shapes` asks for (`Dim.AUTO` leaves the choice to PyTorch); or `dynamic_shapes` names other
            arguments than the example has, or an axis that a tensor lacks. The message says where, why and what to do.
        TypeError: `model` is not a module, or `args` or `kwargs` is not of the type above.
    """
    if (wrong := what_is_wrong_with(model, args, kwargs)) is not None:
        raise TypeError(wrong)
    call = tuple(args), dict(kwargs or {}), dynamic_shapes
    if (unfit_shapes := wrong_shapes(model, call)) is not None:
        raise unfit_shapes
    larger = larger_example(model, call)
    open_sizes = [] if larger is None else [functools.partial(_with_larger_sizes, larger)]
    drafts: list[_Step] = [functools.partial(_as_a_draft, assume_branch)] if draft else []
    further = [_with_constants, _strictly, *drafts]
    steps: list[_Step] = [_strictly] if strict else [_plainly, *open_sizes, *further]
    failures: list[BaseException] = []
    with _ONE_AT_A_TIME, callers_defaults(), open_pools(), needless_casts():
        registered(call[:2])
        for step in steps:
            try:
                with kept(model), _silently():
                    program, problems = step(model, call)
                check_assignments(program)
                if names := remembered(program, model, call):
                    raise stateful(names, model)
            except Exception as error:  # an error of the model's own code, or of PyTorch while it traces the code
                if isinstance(error, PatcompError) and not isinstance(error, RefusedError):
                    raise  # a refusal of the model itself
                failures.append(error)
                continue
            if strict:
                problems = []
            for problem in problems:
                warnings.warn(str(problem), ConversionWarning, stacklevel=2)
            _drop_dead_reads(program)
            return program
        failure = _failure(failures, model, call)
    raise failure from None


def _failure(failures: list[BaseException], model: nn.Module, call: _Call) -> ExportError:
    """The error that says why every step failed."""
    for each in failures:
        _LOGGER.debug("torch.export fails with %s: %s", type(each).__name__, each)
    with kept(model), _silently():
        own = failure_of(model, call)
    return explained(failures, model) if own is None else unfit(own, model, call)


def _exported(model: nn.Module, call: _Call, *, strict: bool = False) -> ExportedProgram:
    args, kwargs, shapes = call
    with nullcontext() if strict else RecurrentNetworks():
        return torch.export.export(model, args, kwargs, dynamic_shapes=shapes, strict=strict)


def _plainly(model: nn.Module, call: _Call) -> tuple[ExportedProgram, list[Problem]]:
    try:
        return _exported(model, call), []
    except Exception as error:
        if "generated guard" not in str(error):
            raise
        # perhaps PyTorch forbids sizes only to know how tensors lie in memory, which no program depends on
        for without_questions in (open_layouts, open_views):
            try:
                with without_questions():
                    return _exported(model, call), []
            except Exception as other:  # of the same classes; the first one is the user's
                _LOGGER.debug("torch.export fails with %s: %s", type(other).__name__, other)
        raise


def _with_larger_sizes(larger: _Call, model: nn.Module, call: _Call) -> tuple[ExportedProgram, list[Problem]]:
    """Export with an example of larger sizes; the program gets the caller's example."""
    program = _exported(model, larger)
    program.example_inputs = call[:2]
    return program, []


def _strictly(model: nn.Module, call: _Call) -> tuple[ExportedProgram, list[Problem]]:
    before = data_of(model)
    program = _exported(model, call, strict=True)
    if reassigned(before):
        raise RefusedError("the model assigns to `.data`, which strict export leaves out")
    return program, [
        Problem(f"{type(model).__name__} is exported strictly, because the other mode of torch.export fails")
    ]


def _with_constants(model: nn.Module, call: _Call) -> tuple[ExportedProgram, list[Problem]]:
    return _with_known_numbers(model, call, lambda: _exported(model, call), AssignedData())


def _as_a_draft(assume_branch: bool, model: nn.Module, call: _Call) -> tuple[ExportedProgram, list[Problem]]:
    args, kwargs, shapes = call

    def draft() -> ExportedProgram:
        # its log file goes with the folder; real tensors flow through the model, and draw random numbers
        with tempfile.TemporaryDirectory() as folder, torch.random.fork_rng(devices=[]):
            return draft_export(model, copied(args), copied(kwargs), shapes, folder)

    program, problems = _with_known_numbers(model, call, draft)
    if not assume_branch and (decisions := branches(program)):
        raise baked_in(decisions, model)
    check_open(program, model, call)
    check_example(program, model, call)
    drafted = Problem(
        f"{type(model).__name__} is exported by torch.export.draft_export, because torch.export.export fails"
    )
    return program, [drafted, *problems, *assumptions(program), *narrowed(program, model, call)]


def _with_known_numbers(
    model: nn.Module, call: _Call, traced: Callable[[], ExportedProgram], assigned: AssignedData | None = None
) -> tuple[ExportedProgram, list[Problem]]:
    """A program in which numbers from known tensors are constants, packed sequences are unpacked, and with `assigned`,
    what the model assigns to `.data` are values.

    Raises:
        RefusedError: the program could compute something else than the model.
    """
    constants = ConstantNumbers(model)
    packed = PackedSequences(constants)
    forward = model.forward

    @functools.wraps(forward)
    def with_modes(*args: Any, **kwargs: Any) -> Any:
        following = nullcontext() if assigned is None else assigned.following((args, kwargs))
        with constants, following, packed, open_batches():  # `packed` comes first: it looks at who calls
            return forward(*args, **kwargs)

    model.forward = with_modes  # `kept` restores it
    program = traced()
    if written := constants.written():
        raise RefusedError(
            f"the model decides by the content of {', '.join(written)} and writes to it, so that each run may differ"
        )
    if packed.assumed or packed.limited:
        check_packing(program, call, ", ".join(packed.assumed), ", ".join(packed.limited))
    return program, [*_of_constants(constants.read), *_of_packed(packed)]


def _of_constants(read: Mapping[str, str]) -> Iterator[Problem]:
    names = [name for name in read if name]
    if names:
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        yield Problem(
            f"numbers that are read from buffers are constants of the program: {', '.join(names[:_SHOWN])}{more}",
            source=read[names[0]],
            advice="export the model again if their content changes",
        )
    if not names and "" in read:
        yield Problem("numbers that are read from tensors of constants are constants of the program", source=read[""])


_SHOWN = 3


def _of_packed(packed: PackedSequences) -> Iterator[Problem]:
    for line in packed.proven:
        yield Problem("a packed sequence, whose lengths are all full, runs unpacked", source=line)
    for line in packed.assumed:
        yield Problem(
            "a packed sequence runs unpacked, which is right if an input says that all lengths are full",
            source=line,
            advice="program.run checks the lengths, but an asset cannot: give the asset no padding",
        )


def _drop_dead_reads(program: ExportedProgram) -> None:
    """Erase unused reads of numbers known to the export. PyTorch saves a program with such reads, but cannot load
    it."""
    for node in reversed(program.graph.nodes):
        if reads_known_number(node) and not node.users:
            program.graph.erase_node(node)
    program.graph_module.recompile()


@contextmanager
def _silently() -> Iterator[None]:
    """Hide what PyTorch logs and prints of failing traces, and its warnings about its own code."""
    with quiet(), warnings.catch_warnings(), redirect_stderr(_WithoutGraphs(sys.stderr)):
        warnings.filterwarnings("ignore", message=".*LeafSpec.*", category=FutureWarning)
        # recurrent networks list their weights twice; `kept` puts both lists back
        warnings.filterwarnings(
            "ignore", message=r"The tensor attributes? self\.\S*_flat_weights", category=UserWarning
        )
        yield


class _WithoutGraphs:
    """Standard error without the graphs that `torch.export` prints if a trace fails."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def write(self, text: str) -> int:
        if sys._getframe(1).f_globals.get("__name__") == torch.export.export.__module__ + "._trace":
            return len(text)
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
