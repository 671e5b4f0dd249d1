"""How rows of `benchmarks/packages.py` name a model, its inputs and the sizes that stay open."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.further import Build, OpenSizes

if TYPE_CHECKING:
    import torch


class Open(NamedTuple):
    """A size that is open in the second export."""

    name: str
    example: int
    other: int
    """The size on which the program of the second export is compared."""
    multiple: int = 1
    least: int = 1
    most: int = 60


BATCH = Open("batch", 2, 1)
Size = int | Open


class Input(NamedTuple):
    """An input of a model."""

    shape: tuple[Size, ...]
    fill: Callable[[tuple[int, ...]], torch.Tensor]


def noise(*shape: Size) -> Input:
    """Normal random numbers."""
    return Input(shape, lambda sizes: torch_module().randn(sizes))


def tokens(*shape: Size, below: int = 30) -> Input:
    """Random integers."""
    return Input(shape, lambda sizes: torch_module().randint(1, below, sizes))


def steps(*shape: Size) -> Input:
    """Times of a diffusion process: random floats below 1000."""
    return Input(shape, lambda sizes: torch_module().rand(sizes) * 999)


def fractions(*shape: Size) -> Input:
    """Times of a diffusion process whose model multiplies them by 1000: random floats below 1."""
    return Input(shape, lambda sizes: torch_module().rand(sizes))


def ones(*shape: Size) -> Input:
    """A mask of 1, as integers."""
    return Input(shape, lambda sizes: torch_module().ones(sizes, dtype=torch_module().int64))


def torch_module() -> Any:
    """PyTorch, which the rows do not import."""
    return import_module("torch")


def made(path: str, /, *args: Any, **settings: Any) -> Any:
    """What a class or function with a dotted name makes of arguments; those that are functions are called first."""
    module, _, name = path.rpartition(".")
    settings = {key: value() if callable(value) else value for key, value in settings.items()}
    return getattr(import_module(module), name)(*args, **settings)


def nested(path: str, /, *args: Any, **settings: Any) -> Callable[[], Any]:
    """An argument of `made` that is made when it is needed."""
    return lambda: made(path, *args, **settings)


def package(
    model: str | Callable[..., Any],
    /,
    *inputs: Input,
    named: Mapping[str, Input] | None = None,
    fixed: Mapping[str, Any] | None = None,
    select: Callable[[Any], Any] = lambda results: results,
    method: str = "forward",
    call: Callable[..., Any] | None = None,
    own_weights: bool = False,
    **settings: Any,
) -> Build:
    """A model of a package.

    Args:
        model: the dotted name of its class or of a function that makes it, or such a function.
        inputs: its inputs by position.
        named: its inputs by name.
        fixed: arguments that are no inputs.
        select: takes tensors from its results.
        method: what is exported.
        call: runs the model on its inputs, in place of `fixed` and `method`.
        own_weights: whether the model keeps the weights that its class gives it; others get random ones.
        settings: arguments of the class.
    """
    named, fixed = named or {}, fixed or {}

    def build() -> Any:
        torch = torch_module()
        from tests.models.architectures import randomized
        from tests.models.zoo import Example

        class Adapted(torch.nn.Module):  # type: ignore[misc, name-defined]
            """Tensors in by position, tensors out."""

            def __init__(self) -> None:
                super().__init__()
                self.model = made(model, **settings) if isinstance(model, str) else model(**settings)

            def forward(self, *tensors: torch.Tensor) -> Any:
                if call is not None:
                    return select(call(self.model, *tensors))
                positional, by_name = tensors[: len(inputs)], dict(zip(named, tensors[len(inputs) :], strict=True))
                return select(getattr(self.model, method)(*positional, **by_name, **fixed))

        every = [*inputs, *named.values()]
        adapted = Adapted().eval() if own_weights else randomized(Adapted())
        args = tuple(each.fill(tuple(_size(size, "example") for size in each.shape)) for each in every)
        names = dict.fromkeys(size.name for each in every for size in each.shape if isinstance(size, Open))
        if not names:
            return Example(adapted, args)
        others = tuple(each.fill(tuple(_size(size, "other") for size in each.shape)) for each in every)
        shapes = tuple(
            {axis: size.multiple * torch.export.Dim(size.name, min=size.least, max=size.most)
             for axis, size in enumerate(each.shape) if isinstance(size, Open)}
            for each in every
        )  # fmt: skip
        return Example(adapted, args), OpenSizes(tuple(names), shapes, others)

    return build


def _size(size: Size, which: str) -> int:
    return size if isinstance(size, int) else int(getattr(size, which)) * size.multiple
