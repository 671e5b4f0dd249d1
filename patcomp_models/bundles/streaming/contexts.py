"""The left contexts of causal convolutions: what each sees of the chunks before, all in one tensor.

transformers has a padding cache of its own for each model; `Contexts` takes its place in the unmodified code.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from patcomp_models.errors import BundleError

Shapes = Mapping[str, tuple[int, ...]]
"""The shape of each context, by the name of its convolution, in the order of the first call."""
ZEROS, REPEATED, REFLECTED = "constant", "replicate", "reflect"
"""PyTorch's names of what a padding has."""


class Contexts:
    """The contexts in one call.

    Args:
        held: those of the call before, (size,); None to find out their shapes from zeros.
        shapes: of the contexts.
        is_first: whether this is the first chunk, a boolean tensor or known.
    """

    def __init__(self, held: Tensor | None = None, shapes: Shapes | None = None, is_first: Any = True):
        self.held, self.is_first = held, is_first
        self.before: dict[str, Tensor] = {}
        self.after: dict[str, Tensor] = {}
        if held is not None:
            assert shapes is not None
            parts = held.split([prod(shape) for shape in shapes.values()])
            self.before = {key: part.view(shape) for (key, shape), part in zip(shapes.items(), parts, strict=True)}

    @property
    def shapes(self) -> Shapes:
        """The shapes of the contexts of this call."""
        return {key: tuple(value.shape) for key, value in self.after.items()}

    def joined(self, key: str, new: Tensor, width: int, mode: str = ZEROS) -> Tensor:
        """New elements behind their context, along the third dimension.

        Args:
            key: the name of the convolution.
            new: (1, channels, elements, ...).
            width: of the context.
            mode: what is in front of the first chunk: zeros, its first element, or its first elements, reflected.

        Raises:
            BundleError: the chunk has fewer elements than are reflected.
        """
        if width == 0:
            return new
        zeros = new.new_zeros(*new.shape[:2], width, *new.shape[3:])
        before = zeros if self.held is None else self.before[key]
        if mode == REFLECTED and new.shape[2] <= width:
            raise BundleError(
                f"the convolution {key} reflects {width} elements in front of a recording, and a chunk has "
                f"{new.shape[2]} there; choose more frames"
            )
        if mode != ZEROS:
            first = new.narrow(2, 1, width).flip(2) if mode == REFLECTED else new.narrow(2, 0, 1).expand_as(before)
            before = torch.where(torch.as_tensor(self.is_first), first, before)
        both = torch.cat([before, new], 2)
        self.after[key] = both.narrow(2, both.shape[2] - width, width)
        return both

    def update(self, new: Tensor, key: str, convolution: Any) -> Tensor:
        """Join the cached padding and new input, as the padding caches of transformers do for a convolution."""
        both = self.joined(key, new, convolution.left_pad)
        more = getattr(convolution, "left_pad_init", convolution.left_pad) - convolution.left_pad
        if more == 0 or self.is_first is False:
            return both
        return torch.cat([both.new_zeros(*both.shape[:2], more, *both.shape[3:]), both], 2)

    def write(self) -> None:
        """Keep the contexts for the next call."""
        assert self.held is not None
        self.held.copy_(torch.cat([self.after[key].reshape(-1) for key in self.before]))


@dataclass(frozen=True)
class Causal:
    """A causal convolution of Mimi's kind.

    Attributes:
        module: which pads, and convolves.
        width: how many elements before the new ones it sees.
        mode: what takes the place of the elements in front of a recording, as in `Contexts.joined`.
    """

    module: Any
    width: int
    mode: str


def causal_convolutions(model: nn.Module, modes: Container[str] = (ZEROS, REPEATED)) -> dict[str, Causal]:
    """The convolutions of Mimi's kind in a model, by name.

    Args:
        model: half of a codec.
        modes: what convolutions may have in front of a recording.

    Raises:
        BundleError: one sees later elements, or pads in a form that has no stream.
    """
    found = {}
    for name, module in model.named_modules():
        if not hasattr(module, "causal"):
            continue
        if not module.causal or getattr(module, "trim_right_ratio", 1.0) != 1.0:
            raise BundleError(f"the convolution {name} sees later samples, so that chunks cannot be coded one by one")
        mode = getattr(module, "pad_mode", ZEROS)
        if mode not in modes:
            raise BundleError(f"the convolution {name} pads by {mode!r}, for which transformers has no stream")
        size, stride = module.conv.kernel_size[0], module.conv.stride[0]
        is_transposed = isinstance(module.conv, nn.ConvTranspose1d)
        width = -(-size // stride) - 1 if is_transposed else int(module.padding_total)
        found[name] = Causal(module, width, mode)
    return found


@contextmanager
def convolutions_with(contexts: Contexts, convolutions: Mapping[str, Causal]) -> Iterator[None]:
    """Let convolutions see their contexts.

    transformers does so in the encoders of Mimi's kind only: each chunk of a decoder begins as a recording does.
    """
    for name, each in convolutions.items():
        each.module.forward = _with_context(contexts, name, each)  # hides the method of the class
    try:
        yield
    finally:
        for each in convolutions.values():
            del each.module.forward


def _with_context(contexts: Contexts, name: str, causal: Causal) -> Callable[..., Tensor]:
    convolution = causal.module.conv
    stride = convolution.stride[0]

    def forward(new: Tensor, padding_cache: object = None) -> Tensor:
        made: Tensor = convolution(contexts.joined(name, new, causal.width, causal.mode))
        return made

    def transposed(new: Tensor) -> Tensor:
        made: Tensor = convolution(contexts.joined(name, new, causal.width))
        return made.narrow(2, causal.width * stride, new.shape[2] * stride)

    return transposed if isinstance(convolution, nn.ConvTranspose1d) else forward
