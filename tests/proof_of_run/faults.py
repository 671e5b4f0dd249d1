"""Faults in the code of the stages, not in rules: what each one breaks, and a small program that shows it.

Each fault is valid IR, so that no verifier finds it, and only the numbers, or the order of accesses, are wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._higher_order_ops import while_loop

from patcomp.defects.known import moved_copies
from patcomp.ir import cleanup
from patcomp.ir.value import Value
from patcomp.ir.xdsl import ops_inside, replace_uses
from patcomp.narrowing.check import Narrowed
from patcomp.program.proof_of_run import Equality
from patcomp.rewrites import folding, lower, normalize, optimize, outline, pipeline, recover, single_steps, state
from patcomp.rewrites.target import half, prepared_weights, transposes
from patcomp.targets import Target
from tests.proof_of_run.exported import Function

Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Fault:
    """A fault.

    Attributes:
        stage: the stage that computes something else with it.
        inject: puts it into the code.
        model, inputs: a program that shows it.
        target: the target of the conversion.
        options: further options of the converter.
        equality: what the proof says of the stage.
        is_refused: whether the program is refused without the fault.
    """

    stage: str
    inject: Callable[[Patch], None]
    model: Callable[[], nn.Module]
    inputs: tuple[Any, ...]
    target: Target | None = None
    options: dict[str, Any] | None = None
    is_refused: bool = False
    equality: Equality = Equality.WRONG


def _float(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape)))


def _of(function: Callable[..., Any]) -> Callable[[], nn.Module]:
    return lambda: Function(function)


# ---- normalize and recover -----------------------------------------------------------------------------


def _after(function: Callable[..., Any], then: Callable[[Any], None]) -> Callable[..., Any]:
    """A driver that does something to the graph after its rules."""

    def run(graph: Any, *rest: Any) -> Any:
        statistics = function(graph, *rest)
        then(graph)
        return statistics

    return run


def swap_of_differences(patch: Patch) -> None:
    def swap(graph: Any) -> None:
        for op in ops_inside(graph):
            if op.name == "aten.sub.Tensor":
                op.operands = [op.operands[1], op.operands[0]]

    patch.setattr(normalize, "run", _after(normalize.run, swap))


def dropped_rounding(patch: Patch) -> None:
    def drop(graph: Any) -> None:
        for op in ops_inside(graph):
            if op.name == "aten.round":
                replace_uses(op.results[0], op.operands[0])

    patch.setattr(normalize, "run", _after(normalize.run, drop))


def dropped_clamp(patch: Patch) -> None:
    def drop(graph: Any) -> None:
        for op in ops_inside(graph):
            if op.name == "aten.clamp":
                replace_uses(op.results[0], op.operands[0])

    patch.setattr(normalize, "run", _after(normalize.run, drop))


def absolute_for_itself(patch: Patch) -> None:
    def drop(graph: Any) -> None:
        for op in ops_inside(graph):
            if op.name == "aten.abs":
                replace_uses(op.results[0], op.operands[0])

    patch.setattr(normalize, "run", _after(normalize.run, drop))


def inlined_with_other_operands(patch: Patch) -> None:
    plain = recover._inline

    def inline(region: Any, *rest: Any) -> None:
        first, second, *others = region.operands
        region.operands = [second, first, *others]
        plain(region, *rest)

    patch.setattr(recover, "_inline", inline)


# ---- lower -----------------------------------------------------------------------------------------


def lists_in_reverse(patch: Patch) -> None:
    plain = lower._map

    def mapped(argument: Any, values: Any) -> Any:
        made = plain(argument, values)
        return made[::-1] if isinstance(made, list) and all(isinstance(each, Value) for each in made) else made

    patch.setattr(lower, "_map", mapped)


def results_in_reverse(patch: Patch) -> None:
    plain = lower._Lowering.op

    def op(self: Any, *args: Any) -> Any:
        return [*plain(self, *args)][::-1]

    patch.setattr(lower._Lowering, "op", op)


def weights_by_type(patch: Patch) -> None:
    plain = lower._Lowering._narrowed

    def narrowed(self: Any, op: Any, attribute: Any, wanted: Any) -> Any:
        known = self.__dict__.setdefault("by_type", {})
        return known.setdefault(wanted, plain(self, op, attribute, wanted))

    patch.setattr(lower._Lowering, "_narrowed", narrowed)


def narrowing_without_check(patch: Patch) -> None:
    import numpy as np

    patch.setattr(pipeline, "_narrowed", lambda module, options: Narrowed())
    patch.setattr(lower._Lowering, "_narrow", lambda self, op, values, name: values.astype(np.int32))


class Tables(nn.Module):
    """Two tables of 64-bit integers, the second of which is read."""

    def __init__(self, large: int = 0):
        super().__init__()
        self.register_buffer("first", torch.arange(300))
        self.register_buffer("second", torch.arange(300) * 3 + large)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.first + self.second


# ---- target ----------------------------------------------------------------------------------------


def inverse_transposes(patch: Patch) -> None:
    plain = transposes._transposed

    def transposed(x: Any, permutation: Any) -> Any:
        inverse = [permutation.index(axis) for axis in range(len(permutation))]
        same = [x.static_shape[axis] for axis in inverse] == [x.static_shape[axis] for axis in permutation]
        return plain(x, inverse if same else permutation)

    patch.setattr(transposes, "_transposed", transposed)


def clamped_weights(patch: Patch) -> None:
    patch.setattr(half, "LARGEST", 1.0)


def one_prepared_weight(patch: Patch) -> None:
    patch.setattr(prepared_weights, "_key", lambda op: tuple(map(str, op.result_types)))


# ---- outline ---------------------------------------------------------------------------------------


def bodies_by_name(patch: Patch) -> None:
    plain = outline.GraphSymbols.place_shared

    def place_shared(self: Any, region: Any, caller: Any) -> str:
        found: str = self.__dict__.setdefault("by_stem", {}).setdefault(region.symbol.data, "")
        if not found:
            found = self.by_stem[region.symbol.data] = plain(self, region, caller)
        return found

    patch.setattr(outline.GraphSymbols, "place_shared", place_shared)


def operands_in_reverse(patch: Patch) -> None:
    plain = outline.create_op

    def create_op(name: str, operands: Any, *rest: Any) -> Any:
        return plain(name, operands[::-1] if name == "coreai.invoke" else operands, *rest)

    patch.setattr(outline, "create_op", create_op)


def constants_of_one_type(patch: Patch) -> None:
    plain = outline._order_constants

    def ordered(block: Any) -> None:
        plain(block)
        known: dict[Any, Any] = {}
        for op in block.ops:
            if op.name == "coreai.constant":
                replace_uses(op.results[0], known.setdefault(op.results[0].type, op.results[0]))

    patch.setattr(outline, "_order_constants", ordered)


# ---- state -----------------------------------------------------------------------------------------


def lost_write(patch: Patch) -> None:
    patch.setattr(state, "_write", lambda handle, content, token, output, *, read_again: token)


def write_by_an_old_token(patch: Patch) -> None:
    plain, first = state._write, {}

    def write(handle: Any, content: Any, token: Any, output: Any, *, read_again: bool) -> Any:
        return plain(handle, content, first.setdefault(handle.ssa, token), output, read_again=read_again)

    patch.setattr(state, "_write", write)


def states_swapped(patch: Patch) -> None:
    plain = state._marked

    def marked(graph: Any) -> Any:
        found = plain(graph)
        return dict(zip(found, reversed(found.values()), strict=True))

    patch.setattr(state, "_marked", marked)


def first_part_only(patch: Patch) -> None:
    plain = state._contents
    patch.setattr(state, "_contents", lambda last, first: plain(last, first)[:1])


def new_content_for_the_old(patch: Patch) -> None:
    plain = state._write

    def write(handle: Any, content: Any, token: Any, output: Any, *, read_again: bool) -> Any:
        last = plain(handle, content, token, output, read_again=read_again)
        old = next(op for op in ops_inside(output.parent_op()) if op.name == "coreai.read_handle").results[0]
        later = {op for op in ops_inside(output.parent_op()) if content.owner.is_before_in_block(op)}
        old.replace_uses_with_if(content, lambda use: use.operation in later)
        return last

    patch.setattr(state, "_write", write)


class Counters(nn.Module):
    """Two buffers that a call changes, one of them in two parts."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(4, 3))
        self.register_buffer("sums", torch.zeros(4, 3))

    def forward(self, x: Tensor) -> Tensor:
        self.cache[0] = x[0]
        first = self.cache.sum(0)
        self.cache[1] = x[1] * 2
        old = self.sums.exp()
        self.sums.add_(x)
        return self.cache * first + old


class Tracked(nn.Module):
    """A buffer whose old content is read behind its new one."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("sums", torch.zeros(4, 3))

    def forward(self, x: Tensor) -> Tensor:
        old = self.sums.clone()
        self.sums.copy_(self.sums * 0.5 + x)
        return old * self.sums + old.exp()


# ---- optimize --------------------------------------------------------------------------------------


def folded_wrongly(patch: Patch) -> None:
    plain = folding.evaluated

    def evaluated(op: Any, *rest: Any) -> Any:
        made = plain(op, *rest)
        return None if made is None else [each + 1 if each.dtype == "float32" else each for each in made]

    patch.setattr(folding, "evaluated", evaluated)


def folded_for_another(patch: Patch) -> None:
    plain, known = folding.constant_for, {}

    def constant(ops: Any, result: Any, array: Any, module: Any) -> Any:
        key = module, result.type
        return plain(ops, result, known.setdefault(key, array), module)

    patch.setattr(folding, "constant_for", constant)


def merged_with_other_attributes(patch: Patch) -> None:
    patch.setattr(cleanup, "_are_equal", lambda op, other: op.result_types == other.result_types)


def merged_in_either_order(patch: Patch) -> None:
    plain = cleanup._key

    def key(op: Any) -> Any:
        kind, *operands = plain(op)
        return (kind, *sorted(operands, key=id)) if "sub" in op.name else (kind, *operands)

    patch.setattr(cleanup, "_key", key)


def writes_of_what_was_read(patch: Patch) -> None:
    def drop(module: Any) -> int:
        for op in ops_inside(module.op):
            if op.name == "coreai.write_handle":
                replace_uses(op.results[0], op.operands[2])
                op.detach()
                op.erase()
        return 0

    patch.setattr(optimize, "drop_repeated_accesses", drop)


def other_choice(patch: Patch) -> None:
    plain = moved_copies._chosen
    patch.setattr(moved_copies, "_chosen", lambda condition, one, other: plain(condition, other, one))


def every_loop_runs_once(patch: Patch) -> None:
    patch.setattr(single_steps, "_runs_once", lambda loop, module: True)


def _three_steps(x: Tensor) -> Tensor:
    start = torch.zeros((), dtype=torch.int64)
    return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 0.5 + 1), (start, x))[1]


def _chosen(x: Tensor, y: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, lambda x, y: (x.clone(), x * y), lambda x, y: (y.clone(), x - y), (x, y))[0]


class Folded(nn.Module):
    """Two values that are computed from constants."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.arange(3.0).exp() + torch.arange(3.0).cos()


class Prepared(nn.Module):
    """Two products by transposed weights of one shape, on an input whose axes are moved."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(20, 20), nn.Linear(20, 20)

    def forward(self, x: Tensor) -> Tensor:
        return self.first(x) * self.second(x)


def _moved(x: Tensor) -> Tensor:
    return x.permute(1, 2, 0).softmax(0) + x.permute(1, 2, 0).exp().sum(1, keepdim=True)


_ATTENTION = tuple(_float(1, 2, 4, 4) + shift for shift in range(3))


def _two_norms(x: Tensor) -> Tensor:
    first = torch.nn.functional.layer_norm(x, (3,), eps=1e-5)
    return first + torch.nn.functional.layer_norm(x + 1, (3,), eps=0.5)


def _steps(*names: str) -> Target:
    return Target("tested", steps=names)


_sdpa = torch.nn.functional.scaled_dot_product_attention
_gelu = torch.nn.functional.gelu

FAULTS: dict[str, Fault] = {
    "the driver swaps the operands of differences":
        Fault("normalize", swap_of_differences, _of(lambda x, y: x - y.sin()), (_float(4, 3), _float(3))),
    "the driver drops a rounding to whole numbers":
        Fault("normalize", dropped_rounding, _of(lambda x: (x * 3).round() + x), (_float(4, 3),)),
    "the driver drops a clamp that drawn numbers do not reach":
        Fault("normalize", dropped_clamp, _of(lambda x: x.clamp(-100.0, 100.0).exp()), (_float(4, 3),),
              equality=Equality.NUMBERS),
    "the driver drops an absolute value of what is hardly ever negative":
        Fault("normalize", absolute_for_itself, _of(lambda x: (x + 50).abs().log()), (_float(4, 3),),
              equality=Equality.NUMBERS),
    "a composite is inlined with other operands":
        Fault("recover", inlined_with_other_operands, _of(_sdpa), _ATTENTION, options={"recover": "none"}),
    "lists of operands are rebuilt in reverse":
        Fault("lower", lists_in_reverse, _of(lambda x, y: torch.cat([x, y.exp()])), (_float(4, 3), _float(4, 3))),
    "results are rebuilt in reverse":
        Fault("lower", results_in_reverse, _of(lambda x: x.split(2)[0] * 2 - x.split(2)[1]), (_float(4, 3),)),
    "narrowed constants of one type share their elements":
        Fault("lower", weights_by_type, Tables, (_float(300),)),
    "64-bit numbers are narrowed without a check":
        Fault("lower", narrowing_without_check, lambda: Tables(2**33), (torch.arange(300),),
              is_refused=True),
    "transposes are carried the other way round":
        Fault("target", inverse_transposes, _of(_moved), (_float(4, 4, 4),), _steps("carry transposes")),
    "weights are clamped to another range":
        Fault("target", clamped_weights, _of(lambda x: x * torch.full((3,), 2.5) + 0.25), (_float(4, 3),),
              _steps("half precision")),
    "one prepared weight stands for others of its shape":
        Fault("target", one_prepared_weight, Prepared, (_float(4, 20),), _steps("store prepared weights")),
    "outlining merges bodies of one name":
        Fault("outline", bodies_by_name, _of(_two_norms), (_float(4, 3),)),
    "outlined calls take their operands in reverse":
        Fault("outline", operands_in_reverse, _of(_sdpa), _ATTENTION),
    "outlined bodies have one constant of each type":
        Fault("outline", constants_of_one_type, _of(lambda q, k, v: _sdpa(q, k, v, is_causal=True, scale=0.3)),
              _ATTENTION),
    "the write of a state is lost": Fault("state", lost_write, Tracked, (_float(4, 3),)),
    "a write takes the token of the first access":
        Fault("state", write_by_an_old_token, Counters, (_float(4, 3),)),
    "two states are swapped": Fault("state", states_swapped, Counters, (_float(4, 3),)),
    "only the first part of a state is written": Fault("state", first_part_only, Counters, (_float(4, 3),)),
    "the new content stands for the old one": Fault("state", new_content_for_the_old, Tracked, (_float(4, 3),)),
    "folding computes another number": Fault("optimize", folded_wrongly, Folded, (_float(4, 3),)),
    "folding stores what belongs to another op": Fault("optimize", folded_for_another, Folded, (_float(4, 3),)),
    "ops with other attributes are merged":
        Fault("optimize", merged_with_other_attributes, _of(lambda x: _gelu(x) - 2 * _gelu(x, approximate="tanh")),
              (3 * _float(4, 3),)),
    "differences are merged in either order":
        Fault("optimize", merged_in_either_order, _of(lambda x, y: (x - y).exp() + (y - x).sin()),
              (_float(4, 3), _float(4, 3) + 1)),
    "a state is never written": Fault("optimize", writes_of_what_was_read, Tracked, (_float(4, 3),)),
    "a choice takes the other value": Fault("optimize", other_choice, _of(_chosen), (_float(4, 3), _float(4, 3) + 1)),
    "a loop of three steps runs once": Fault("optimize", every_loop_runs_once, _of(_three_steps), (_float(4, 3),)),
}  # fmt: skip
"""The faults by what they do."""
