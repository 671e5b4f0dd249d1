"""Calls of operators at their edges: PyTorch's samples and variations of them, and calls that are made from schemas."""

from __future__ import annotations

import fnmatch
import random
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from patcomp.ir import aten
from patcomp.pytorch import OpOverload, schema_of_overload
from tests.operators.samples import DTYPES, OpInfo

Leaves = list[Any]


@dataclass(frozen=True)
class Call:
    """A function of tensors and options, and its arguments."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    text: str

    def __call__(self) -> Any:
        return self.function(*pytree.tree_map(_copied, self.args), **pytree.tree_map(_copied, self.kwargs))

    def with_leaves(self, leaves: Leaves, form: str) -> Call:
        """The same call with other tensors and options."""
        _, structure = pytree.tree_flatten((self.args, self.kwargs))
        args, kwargs = pytree.tree_unflatten(leaves, structure)
        return Call(self.function, args, kwargs, form)

    @property
    def leaves(self) -> Leaves:
        """The tensors and options."""
        return pytree.tree_leaves((self.args, self.kwargs))

    def __str__(self) -> str:
        args = [*map(_text, self.args), *(f"{name}={_text(value)}" for name, value in self.kwargs.items())]
        return f"{self.text}({', '.join(args)})"


def _copied(leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, torch.Tensor) else leaf


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_text, value))}]"
    if not isinstance(value, torch.Tensor):
        return repr(value)
    dtype = str(value.dtype).removeprefix("torch.")
    return f"{dtype}{value.tolist()}" if value.numel() <= 6 else f"{dtype}{list(value.shape)}"


# ---- variations ----------------------------------------------------------------------------------------


def _tensors(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Leaves], Leaves]:
    return lambda leaves: [change(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]


def _cycled(x: torch.Tensor, values: list[Any], every: int = 2) -> torch.Tensor:
    flat = x.flatten().clone()
    places = torch.arange(0, len(flat), every)
    flat[places] = torch.tensor([values[i % len(values)] for i in range(len(places))], dtype=x.dtype)
    return flat.reshape(x.shape)


def _special(x: torch.Tensor) -> torch.Tensor:
    if x.is_complex():
        return torch.view_as_complex(_special(torch.view_as_real(x.resolve_conj()).contiguous()))
    if x.is_floating_point():
        return _cycled(x, [torch.nan, 0.0, torch.inf, -0.0, -torch.inf])
    return x


def _extreme(x: torch.Tensor) -> torch.Tensor:
    if x.is_floating_point():
        limits = torch.finfo(x.dtype)
        large = limits.max**0.4  # exponentials overflow, but not products of two, which eager may fuse with a sum
        return _cycled(x, [large, limits.tiny, large / 2, 20, -20, limits.eps])
    if x.dtype in {torch.bool, torch.complex64}:
        return x
    limits = torch.iinfo(x.dtype)
    least = limits.min + 1 if limits.min else 0  # the least number divided by -1 ends the process
    return _cycled(x, [limits.max, least, limits.max // 2 + 1])


def _tied(x: torch.Tensor) -> torch.Tensor:
    if x.is_floating_point():
        return x.clamp(-1, 1).round()
    return x % 2 if x.dtype not in {torch.bool, torch.complex64} else x


def _halves(x: torch.Tensor) -> torch.Tensor:
    return (x * 2).round() / 2 if x.is_floating_point() else x


def _padded(index: int) -> Callable[[torch.Tensor], torch.Tensor]:
    def changed(x: torch.Tensor) -> torch.Tensor:
        if x.dtype != torch.int64 or not x.dim() or not x.numel():
            return x
        x = x.clone()
        x[..., x.shape[-1] // 2 :] = index
        return x

    return changed


def _apart(x: torch.Tensor) -> torch.Tensor:
    return x.mT.contiguous().mT if x.dim() > 1 else x


_FORMS: dict[str, Callable[[Leaves], Leaves]] = {
    "as it is": lambda leaves: leaves,
    "special": _tensors(_special),
    "extreme": _tensors(_extreme),
    "extreme negative": _tensors(lambda x: -_extreme(x) if x.is_floating_point() else x),
    "ties": _tensors(_tied),
    "halves": _tensors(_halves),
    "padded -1": _tensors(_padded(-1)),
    "padded -100": _tensors(_padded(-100)),
    "apart": _tensors(_apart),
    "row": _tensors(lambda x: x[0] if x.dim() and len(x) else x),
    "vector": _tensors(lambda x: x.flatten()),
    "point": _tensors(lambda x: x.flatten()[0] if x.numel() else x),
    "batch": _tensors(lambda x: x.unsqueeze(0)),
}


def variations(call: Call) -> Iterator[Call]:
    """A call and its variations: values, shapes, dimensions and flags. PyTorch may refuse any of them."""
    leaves = call.leaves
    for name, change in _FORMS.items():
        changed = change(leaves)
        if name == "as it is" or any(new is not old for new, old in zip(changed, leaves, strict=True)):
            yield call.with_leaves(changed, f"{call.text} {name}")
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    for size in sorted({size for tensor in tensors for size in tensor.shape}):
        for other in {0, 1} - {size}:
            if other < size:
                resized = _tensors(lambda x, size=size, other=other: _resized(x, size, other))
                yield call.with_leaves(resized(leaves), f"{call.text} {size}->{other}")
    rank = tensors[0].dim() if tensors else 0
    for index, leaf in enumerate(leaves):
        if isinstance(leaf, bool):
            yield call.with_leaves([*leaves[:index], not leaf, *leaves[index + 1 :]], f"{call.text} flag {index}")
        elif isinstance(leaf, int) and -rank <= leaf < rank:
            other = leaf - rank if leaf >= 0 else leaf + rank
            yield call.with_leaves([*leaves[:index], other, *leaves[index + 1 :]], f"{call.text} wrapped {index}")


def _resized(x: torch.Tensor, size: int, other: int) -> torch.Tensor:
    for dim, length in enumerate(x.shape):
        if length == size:
            x = x.narrow(dim, 0, other)
    return x


def sampled_calls(op: OpInfo, dtype: torch.dtype, limit: int) -> Iterator[Call]:
    """PyTorch's first samples of an operator, and their variations."""
    torch.manual_seed(0)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        for count, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=False)):
            if count >= limit:
                return
            if all(leaf.layout is torch.strided for leaf in pytree.tree_leaves(sample.input) if _is_tensor(leaf)):
                call = Call(op.op, (sample.input, *sample.args), sample.kwargs, op.name)
                yield from (each for each in variations(call) if not _is_not_survived(each))


def _is_tensor(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor)


# ---- from schemas --------------------------------------------------------------------------------------

_SHAPES: list[tuple[int, ...]] = [
    (), (0,), (1,), (3,), (5,), (1, 3), (2, 3), (3, 3), (0, 3), (3, 0), (2, 1, 3), (2, 3, 4), (1, 2, 3, 4),
    (2, 1, 5, 5), (1, 1, 1), (1, 2, 3, 4, 5),
]  # fmt: skip
_INDICES = ("index", "indices", "target", "label")
_MASKS = ("mask", "condition")
_WORDS = (
    "none",
    "mean",
    "sum",
    "tanh",
    "floor",
    "trunc",
    "constant",
    "reflect",
    "right",
    "left",
    "prod",
    "amax",
    "fro",
)
_NUMBERS = (0, 1, 2, -1, 0.5, 1.0, 0.0, -1.5, 2.0, 3.0, float("inf"), float("-inf"))
_KINDS = ("float32", "float32", "float32", "float16", "bfloat16", "int32", "int64", "uint8", "bool", "float64")


class Maker:
    """Makes arguments of an operator's schema, always the same ones.

    Args:
        op: the operator.
        dtype: the element type of most tensors; by default it is another one in each call.
    """

    def __init__(self, op: OpOverload, dtype: torch.dtype | None = None):
        self._op, self._dtype = op, dtype
        self._dice = random.Random(zlib.crc32(op.name().encode()))
        self._generator = torch.Generator().manual_seed(zlib.crc32(op.name().encode()))

    def call(self) -> Call:
        """The next call; PyTorch may refuse it."""
        dice = self._dice
        shape, dtype = dice.choice(_SHAPES), self._dtype or DTYPES[dice.choice(_KINDS)]
        given: dict[str, Any] = {}
        for argument in schema_of_overload(self._op).arguments:
            if argument.has_default_value() and dice.random() < 0.4:
                continue
            type_ = str(argument.real_type)
            value = self._value(argument.name, type_, shape, dtype)
            if value is not _NONE:
                given[argument.name] = value
        form = dice.choice(("as it is", "special", "extreme", "ties", "halves", "padded -1", "apart"))
        call = Call(self._op, (), given, aten.op_name(self._op.name()))
        return call.with_leaves(_FORMS[form](call.leaves), call.text)

    def _value(self, name: str, type_: str, shape: tuple[int, ...], dtype: torch.dtype) -> Any:
        dice = self._dice
        if type_.startswith("Optional["):
            if dice.random() < 0.4:
                return None
            type_ = type_.removeprefix("Optional[").removesuffix("]")
        if type_ == "Tensor":
            return self._tensor(name, shape, dtype)
        if type_ in {"List[Tensor]", "List[Optional[Tensor]]"}:
            return [self._tensor(name, shape, dtype) for _ in range(dice.randint(1, 3))]
        if type_ in {"int", "SymInt"}:
            return dice.randint(0, 2) if name == "reduction" else dice.choice((-2, -1, 0, 1, 2, 3))
        if type_.startswith(("List[int", "List[SymInt")):
            return [dice.choice((-1, 0, 1, 2, 3)) for _ in range(dice.choice((0, 1, 1, 2, 2, 3, 4)))]
        if type_ in {"float", "SymFloat"}:
            return float(dice.choice(_NUMBERS))
        if type_ in {"number", "Scalar"}:
            return dice.choice(_NUMBERS)
        if type_ == "List[bool]":
            return [dice.random() < 0.5 for _ in range(dice.randint(1, 3))]
        if type_ == "bool":
            return dice.random() < 0.5
        if type_ == "str":
            return dice.choice(_WORDS)
        if name == "dtype":
            return DTYPES[dice.choice(_KINDS)]
        return _NONE

    def _tensor(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        dice = self._dice
        if dice.random() < 0.3:
            shape = dice.choice(_SHAPES)
        elif dice.random() < 0.2:
            shape = shape[: dice.randint(0, len(shape))]
        elif dice.random() < 0.2:
            shape = shape[dice.randint(0, len(shape)) :]
        if dice.random() < 0.1:
            dtype = DTYPES[dice.choice(_KINDS)]
        if any(part in name for part in _MASKS):
            dtype = torch.bool
        if dtype == torch.bool:
            return torch.rand(shape, generator=self._generator) < 0.5
        if any(part in name for part in _INDICES):
            low = dice.choice((-1, 0))
            return torch.randint(low, 3, shape, generator=self._generator)
        if dtype.is_complex:
            return torch.randn(shape, generator=self._generator, dtype=dtype)
        if dtype.is_floating_point:
            return (torch.randn(shape, generator=self._generator) * dice.choice((1, 1, 20))).to(dtype)
        return torch.randint(-9, 10, shape, generator=self._generator).to(dtype)


_NONE = object()


def made_calls(op: OpOverload, tries: int, dtype: torch.dtype | None = None) -> Iterator[Call]:
    """Calls of an operator that are made from its schema, of one element type or of each."""
    maker = Maker(op, dtype)
    for _ in range(tries):
        call = maker.call()
        if not _is_not_survived(call):
            yield call


# ---- what eager PyTorch does not survive ---------------------------------------------------------------


def _is_outside(given: dict[str, Any]) -> bool:
    indices, size = given["indices"], given["num_weights"]
    return bool(((indices < 0) | (indices >= size)).any())


def _has_norms(v: torch.Tensor, g: torch.Tensor, dim: int = 0) -> bool:
    return (
        0 <= dim < v.dim() and v.numel() > 0 and list(g.shape) == [n if i == dim else 1 for i, n in enumerate(v.shape)]
    )


_NOT_SURVIVED: dict[str, Callable[[Call], bool]] = {
    "aten._weight_norm_interface": lambda call: not _has_norms(**call.kwargs),
    "aten.embedding_dense_backward": lambda call: _is_outside(call.kwargs),
    "special.*_polynomial_*": lambda call: any(bool((torch.as_tensor(leaf) > 1e6).any()) for leaf in call.leaves),
    "nn.functional.embedding_bag": lambda call: not torch.as_tensor(call.kwargs.get("offsets", 0)).numel(),
    "linalg.eigvals": lambda call: not all(leaf.isfinite().all() for leaf in call.leaves if _is_tensor(leaf)),
}
"""Calls with which eager PyTorch divides by the size 0, leaves its memory, fails in LAPACK or has no end."""


def _is_not_survived(call: Call) -> bool:
    name = call.text.partition(" ")[0]
    return any(ends(call) for pattern, ends in _NOT_SURVIVED.items() if fnmatch.fnmatch(name, pattern))
