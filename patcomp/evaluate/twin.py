"""The twin of a model or a program: the same one, which computes in a wider element type."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from patcomp.evaluate.draws import draws
from patcomp.evaluate.machine import Machine, evaluate
from patcomp.evaluate.registry import EvaluatedOp, Implementation
from patcomp.ir.module import IRModule
from patcomp.ir.xdsl import Attribute, Operation
from patcomp.pytorch import HigherOrderOperator, TorchDispatchMode, schema_of_overload, tree_map

HALF = (torch.float16, torch.bfloat16)
IN_FLOAT32: dict[torch.dtype, torch.dtype] = {
    **dict.fromkeys(HALF, torch.float32),
    torch.complex32: torch.complex64,
}
_IN_FLOAT64: dict[torch.dtype, torch.dtype] = {
    **dict.fromkeys((*HALF, torch.float32), torch.float64),
    **dict.fromkeys((torch.complex32, torch.complex64), torch.complex128),
}
_Key = TypeVar("_Key")
_Watch = Callable[[Operation, Sequence[Any]], object]


@dataclass(frozen=True)
class Twin:
    """A value of a model in a wider type."""

    value: Tensor
    of: torch.dtype
    """The narrowest type that the model computes in."""

    @property
    def name(self) -> str:
        """The twin's name, by the type that it computes in."""
        return "float32 twin" if self.of in HALF else "float64 twin"


class Wider(TorchDispatchMode):
    """Run each operator in wider element types: its tensors, its results and the types among its arguments.

    Args:
        wider: what to use instead of an element type.

    Raises:
        NotImplementedError: an operator has other results in a wider type: random numbers, or the bits of a float.
    """

    supports_higher_order_operators = True

    def __init__(self, wider: dict[torch.dtype, torch.dtype]) -> None:
        super().__init__()
        self.wider = wider
        self.narrowest: torch.dtype | None = None
        """The narrowest type that was widened; of complex numbers, the one of their parts."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, HigherOrderOperator):
            return self._control_flow(func, args)
        with self:  # inside branches and loops, a cast arrives as a composite that looks like a view
            if (result := func.decompose(*args, **kwargs)) is not NotImplemented:
                return result
        if (func is torch.ops.aten.view.dtype and args[0].dtype != args[1]) or draws(func, args, kwargs):
            raise NotImplementedError(f"{func} has other results in a wider type")
        if any(argument.alias_info is not None for argument in schema_of_overload(func).arguments):
            return func(*args, **kwargs)  # a view, or a write, which a converted copy would lose
        args, kwargs = tree_map(self.widened, (args, kwargs))
        return tree_map(self.widened, func(*args, **kwargs))

    def _control_flow(self, func: HigherOrderOperator, args: Any) -> Any:
        """Run the operators of a branch or a loop."""
        with self:
            if func is torch.ops.higher_order.cond:
                condition, then, otherwise, operands = args
                return (then if condition else otherwise)(*operands)
            if func is torch.ops.higher_order.while_loop:
                condition, body, carried, more = args
                while condition(*carried, *more):
                    carried = body(*carried, *more)
                return carried
        raise NotImplementedError(f"{func} has no twin")

    def widened(self, value: Any) -> Any:
        """A tensor or element type in its wider type; anything else as it is."""
        if isinstance(value, torch.dtype) and value in self.wider:
            self._find(value)
            return self.wider[value]
        if type(value) in (Tensor, torch.nn.Parameter, torch.nn.Buffer) and value.dtype in self.wider:
            self._find(value.dtype)
            return value.detach().to(self.wider[value.dtype])
        return value

    def _find(self, dtype: torch.dtype) -> None:
        real = dtype.to_real()
        self.narrowest = max(self.narrowest or real, real, key=lambda each: torch.finfo(each).eps)


def twins_of(run: Callable[[Wider], Mapping[_Key, Tensor]]) -> Mapping[_Key, Twin]:
    """The outputs of a model in float32, if it computes anything in half precision; otherwise in float64.

    Args:
        run: runs the model in a mode, which it must enter.

    Returns:
        Nothing if the model does not run in other types, because it checks them for instance, or is random.
    """
    for wider in (IN_FLOAT32, _IN_FLOAT64):
        values, narrowest = _values_in(wider, run)
        if values is None:
            return {}
        if narrowest is not None:
            return {key: Twin(value, narrowest) for key, value in values.items()}
    return {}


def _values_in(
    wider: dict[torch.dtype, torch.dtype], run: Callable[[Wider], Mapping[_Key, Tensor]]
) -> tuple[Mapping[_Key, Tensor] | None, torch.dtype | None]:
    """The values of a model run in wider types, and the narrowest type that was widened; None if it does not run so."""
    mode = Wider(wider)
    try:
        with torch.compiler.set_stance("force_eager"):  # `torch.cond` compiles itself, which a mode disturbs
            return run(mode), mode.narrowest
    except Exception:  # whatever a model raises that does not expect these types
        return None, None


@dataclass(eq=False, kw_only=True)
class _WideMachine(Machine):
    """Computes with values that are wider than their types. An evaluation in the types themselves has checked them."""

    wider: Wider

    def run_op(self, op: EvaluatedOp, implementation: Implementation, operands: Sequence[Any]) -> list[Any]:
        return super().run_op(op, implementation, [self.wider.widened(each) for each in operands])

    def mismatch(self, value: Any, type_: Attribute) -> str:
        return ""


def twins_of_program(
    module: IRModule, inputs: Mapping[str, Tensor], state: Mapping[str, Tensor], entrypoint: str
) -> Mapping[str, Twin]:
    """The outputs and new states of a program on the evaluator, in float32 or float64, as for `twins_of`.

    Args:
        module: the program.
        inputs, state: tensors by name.
        entrypoint: the name of the graph.
    """
    return twins_of(_in_wider_types(module, inputs, state, entrypoint))


def run_wide(
    module: IRModule, inputs: Mapping[str, Tensor], state: Mapping[str, Tensor], entrypoint: str, watch: _Watch
) -> Mapping[str, Tensor] | None:
    """Run a program of half precision on the evaluator in float32; None if it does not run so.

    Args:
        module, inputs, state, entrypoint: as for `twins_of_program`.
        watch: called with each op that was run, and its results.
    """
    return _values_in(IN_FLOAT32, _in_wider_types(module, inputs, state, entrypoint, watch))[0]


def _in_wider_types(
    module: IRModule,
    inputs: Mapping[str, Tensor],
    state: Mapping[str, Tensor],
    entrypoint: str,
    watch: _Watch | None = None,
) -> Callable[[Wider], Mapping[str, Tensor]]:
    """What runs a program in a mode."""
    copy = module.clone()  # which has decoded constants of its own, because they may be wider

    def run(wider: Wider) -> dict[str, Tensor]:
        contents: dict[str, Any] = {name: value.clone() for name, value in state.items()}
        machine = _WideMachine(copy, watch=watch, wider=wider)
        with wider:
            outputs = evaluate(copy, inputs, entry=entrypoint, state=contents, machine=machine)
        return {**outputs, **contents}

    return run
