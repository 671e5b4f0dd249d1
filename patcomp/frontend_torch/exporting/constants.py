"""Read numbers from tensors of known values during an export: from small integer buffers, and from tensors made of
constants.

`torch.export` takes every buffer for unknown data. A model that keeps its kernel size in a buffer and pads by a number
computed from it stops there, although the number is the same in every run. Here each tensor of the trace that is
computed from known values alone has its value beside it, and reading such a tensor gives the number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from patcomp.frontend_torch.exporting.places import line_of_now
from patcomp.pytorch import FakeTensor, TorchDispatchMode, outside_of_traces, pytree, schema_of_overload

MOST_OF_A_BUFFER = 64
"""The elements of the largest buffer that is taken for numbers: sizes, strides, shapes of feature maps."""
_MOST = 4096
"""The elements of the largest tensor whose value is kept."""

_READERS = frozenset({
    "item", "tolist", "__int__", "__float__", "__bool__", "__index__", "__complex__", "__contains__", "is_nonzero",
    "equal", "allclose",
})  # fmt: skip
"""The functions that give numbers of Python."""
_FACTORIES = frozenset(
    {"tensor", "as_tensor", "scalar_tensor", "arange", "zeros", "ones", "full", "eye", "linspace", "range"}
)
"""The functions that make tensors of numbers alone."""
_TAKE_SIZES = _FACTORIES | {
    "empty", "rand", "randn", "randint", "new_zeros", "new_ones", "new_empty", "new_full", "view", "reshape", "expand",
    "repeat", "tile", "narrow", "split", "chunk", "unflatten", "roll", "select", "unfold", "pad", "interpolate",
}  # fmt: skip
"""The functions that read numbers from 0-d integer tensors where they expect a size."""

_SIZED_BY_VALUES = frozenset({"nonzero", "argwhere", "masked_select", "repeat_interleave", "bincount"})
"""The functions whose results have as many elements as the values of an argument say."""


class _Known(NamedTuple):
    tensor: Tensor
    version: int
    """How often the tensor had been written to when its value was known; views count the writes of their base."""
    value: Tensor
    buffers: frozenset[str]
    """The names of the buffers from which the value is computed."""


class ConstantNumbers(TorchFunctionMode):
    """While a model is traced: numbers that it reads from known tensors are constants."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.read: dict[str, str] = {}
        """The buffers from which numbers were read, and the first line that did. The empty name is that of tensors
        without a buffer."""
        self._buffers: dict[str, tuple[Mapping[str, Any], str, Tensor]] = {}
        """Buffers, and tensors that are attributes: where a module has it, and its value."""
        self._known: dict[int, _Known] = {}
        self._seen: dict[str, _Known] = {}
        self._replaced: set[str] = set()
        self._lifted = _Lifted(self)
        for path, module in model.named_modules():
            for table in (module._buffers, vars(module)):
                for name, value in table.items():
                    if isinstance(value, Tensor) and _is_number(value):
                        self._buffers[f"{path}.{name}".removeprefix(".")] = table, name, value.detach().cpu().clone()

    def written(self) -> list[str]:
        """The buffers that the model both reads numbers from and writes to; the next run would read other numbers."""
        return [name for name in self.read if name in self._replaced or self._is_written(name)]

    def _is_written(self, name: str) -> bool:
        seen = self._seen.get(name)
        return seen is not None and seen.tensor._version != seen.version

    def __enter__(self) -> ConstantNumbers:
        self._lifted.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._lifted.__exit__(*error)
        for name, seen in self._seen.items():
            table, key, _ = self._buffers[name]
            if table.get(key) is not seen.tensor:
                self._replaced.add(name)

    def value_of(self, tensor: Any) -> Tensor | None:
        """The value of a tensor of the trace; None if it depends on an input."""
        known = self._of(tensor)
        return None if known is None else known.value

    def remember(self, tensor: Tensor, value: Tensor, buffers: frozenset[str] = frozenset()) -> None:
        """Keep the value of a tensor of the trace."""
        if value.numel() <= _MOST and not tensor.is_inference():
            self._known[id(tensor)] = _Known(tensor, tensor._version, value, buffers)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if name in ("__get__", "__set__"):
            if getattr(getattr(func, "__self__", None), "__name__", "") == "data":
                self._forget(args[0])
            return func(*args, **kwargs)
        value, buffers = self._evaluated(func, name, args, kwargs)
        if name in _READERS and value is not None:
            self._reads(buffers)
            return value
        if name in _SIZED_BY_VALUES and value is not None:
            self._reads(buffers)
            return pytree.tree_map(partial(self._made, buffers=buffers), value)
        if name == "repeat_interleave" and kwargs.get("output_size") is None:
            kwargs |= self._output_size(*args, **kwargs)
        elif name == "__getitem__" and self._of(args[0]) is None:
            args = args[0], self._with_numbers(args[1])
        elif name in _TAKE_SIZES:
            keeps_types = name in ("tensor", "as_tensor")
            args, kwargs = self._with_numbers(args, keeps_types), self._with_numbers(kwargs, keeps_types)
        result = func(*args, **kwargs)
        return result if value is None else self._remembered(result, value, buffers)

    def _forget(self, tensor: Tensor) -> None:
        """Forget a tensor whose `data` the model takes, because writes to `data` are not counted."""
        known = self._of(tensor)
        if known is not None:
            self._replaced |= known.buffers
            del self._known[id(tensor)]

    def _of(self, tensor: Any) -> _Known | None:
        if not isinstance(tensor, Tensor) or tensor.is_inference():
            return None
        known = self._known.get(id(tensor))
        if known is not None:
            return known if known.version == tensor._version else None
        if not _is_number(tensor):
            return None
        for name, (table, key, value) in self._buffers.items():
            if id(table.get(key)) == id(tensor) and name not in self._seen:
                self._seen[name] = self._known[id(tensor)] = _Known(tensor, tensor._version, value, frozenset({name}))
                return self._seen[name]
        return None

    def _evaluated(
        self, func: Callable[..., Any], name: str, args: Any, kwargs: dict[str, Any]
    ) -> tuple[Any, frozenset[str]]:
        """The result of a function on known values, and the buffers behind it; None if it is not known."""
        leaves, tree = pytree.tree_flatten((args, kwargs))
        values, buffers, tensors = [], frozenset[str](), 0
        for leaf in leaves:
            if isinstance(leaf, torch.SymInt | torch.SymFloat | torch.SymBool):
                return None, buffers
            if isinstance(leaf, Tensor):
                known = self._of(leaf)
                if known is None:
                    return None, buffers
                buffers, tensors = buffers | known.buffers, tensors + 1
                values.append(known.value)
            else:
                values.append(leaf)
        if not tensors and name not in _FACTORIES:
            return None, buffers
        args, kwargs = pytree.tree_unflatten(values, tree)
        try:
            with outside_of_traces(), _OnlyValues():
                return func(*args, **kwargs), buffers
        except Exception:  # the traced call follows, which raises what is wrong with the call
            return None, buffers

    def _remembered(self, result: Any, value: Any, buffers: frozenset[str]) -> Any:
        results, tree = pytree.tree_flatten(result)
        values = pytree.tree_leaves(value)
        if len(results) != len(values):
            return result
        for index, (traced, known) in enumerate(zip(results, values, strict=True)):
            if not isinstance(traced, Tensor) or not isinstance(known, Tensor):
                continue
            if any(isinstance(size, torch.SymInt) for size in traced.shape):  # how many are nonzero, for example
                if known.numel() > _MOST:
                    continue
                self._reads(buffers)
                results[index] = self._made(known, buffers)
            elif traced.shape == known.shape and traced.dtype == known.dtype:
                self.remember(traced, known, buffers)
        return pytree.tree_unflatten(results, tree)

    def _made(self, value: Any, buffers: frozenset[str]) -> Any:
        """A constant of the trace."""
        if not isinstance(value, Tensor):
            return value
        with outside_of_traces():
            numbers = value.tolist()
        made = torch.tensor(numbers, dtype=value.dtype).reshape(value.shape)
        self.remember(made, value, buffers)
        return made

    def _output_size(self, input: Any, repeats: Any = None, dim: Any = None, **options: Any) -> dict[str, int]:
        """The option of `repeat_interleave` that says how long its result is, if the repeats are known."""
        known = self._of(repeats)
        if known is None or known.value.dim() != 1 or (known.value.numel() == 1 and not isinstance(dim, int)):
            return {}
        with outside_of_traces():
            total = int(known.value.sum())
        if known.value.numel() == 1:
            total *= int(input.shape[dim])
        self._reads(known.buffers)
        return {"output_size": total}

    def _with_numbers(self, arguments: Any, keeps_types: bool = False) -> Any:
        """Arguments with numbers in place of known 0-d integer tensors.

        Args:
            keeps_types: whether the result has the type of the tensors; numbers of Python are 64-bit ones.
        """

        def number(leaf: Any) -> Any:
            if isinstance(leaf, slice):
                return slice(number(leaf.start), number(leaf.stop), number(leaf.step))
            known = self._of(leaf)
            if known is None or known.value.dim() or not _is_integer(known.value):
                return leaf
            if keeps_types and known.value.dtype is not torch.int64:
                return leaf
            self._reads(known.buffers)
            return int(known.value)

        return pytree.tree_map(number, arguments)

    def _reads(self, buffers: frozenset[str]) -> None:
        for name in sorted(buffers) or [""]:
            self.read.setdefault(name, line_of_now())


class _Lifted(TorchDispatchMode):
    """Remember the values of tensors made from lists of numbers. A function mode would miss `torch.LongTensor([2])`."""

    supports_higher_order_operators = True

    def __init__(self, constants: ConstantNumbers):
        super().__init__()
        self.constants = constants

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in _LIFTS and not isinstance(args[0], FakeTensor) and args[0].numel() <= _MOST:
            with outside_of_traces():
                value = args[0].detach().clone()
            self.constants.remember(result, value)
        return result


_LIFTS = (torch.ops.aten.lift_fresh.default, torch.ops.aten.lift_fresh_copy.default)


class _OnlyValues(TorchDispatchMode):
    """Run only ops with results determined by their arguments; raise an error at any other op."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name()
        is_unspecified = torch.Tag.nondeterministic_seeded in func.tags or name.startswith(
            ("aten::empty", "aten::new_empty")
        )
        if is_unspecified or (schema_of_overload(func).is_mutable and name != "aten::detach_"):
            raise _NoValueError(name)
        return func(*args, **(kwargs or {}))


class _NoValueError(Exception):
    """The op draws random numbers, leaves memory as it is, or writes to an argument."""


def _is_integer(value: Tensor) -> bool:
    return not value.is_floating_point() and not value.is_complex() and value.dtype is not torch.bool


def _is_number(value: Tensor) -> bool:
    """Whether a buffer has integers or booleans, and few enough to be sizes."""
    return (
        not value.is_floating_point()
        and not value.is_complex()
        and all(isinstance(size, int) for size in value.shape)
        and value.numel() <= MOST_OF_A_BUFFER
    )
