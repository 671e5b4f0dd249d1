"""How much is lost if one weight is stored in a scheme: at the outputs for example inputs, or of the weight itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import numpy as np

from patcomp.compression.scheme import Layout, Stored
from patcomp.compression.weights import Weight

Measure = Literal["outputs", "weights"]
"""`"outputs"`: how far the outputs move if this weight alone is compressed. `"weights"`: how far its channels move."""

OutputSignal = Callable[[Weight, Stored], float | None]
"""The least PSNR of an output, in dB, if one weight alone has a stored form; None if the examples do not read it."""

_MOST = 30
"""The exponent of 10 for the loss of an output that should be zero, or finite."""


def relative_error(exact: np.ndarray, stored: Stored, layout: Layout) -> float:
    """The squared error of a channel over its squared length: the mean over output channels or over inputs, whichever
    is larger.

    A few large elements do not hide what the others lose, as they do beside the largest element or the length of the
    whole weight. A channel that is lost counts 1, however small it is.

    Args:
        exact: the floats.
        stored: their stored form.
        layout: which axes count the channels of the weight.
    """
    *stack, _ = layout.kept
    return max(_relative(exact, stored, axes) for axes in (layout.kept, (*stack, layout.summed)))


def _relative(exact: np.ndarray, stored: Stored, kept: tuple[int, ...]) -> float:
    """The mean over some axes of the squared error over the squared length; in parts, because a weight may be large."""
    errors, lengths = np.zeros((2, *(size if axis in kept else 1 for axis, size in enumerate(exact.shape))))
    others = tuple(axis for axis in range(exact.ndim) if axis not in kept)
    for place, made in stored.parts():
        channels, part = place if 0 in kept else slice(None), exact[place].astype(np.float32)
        errors[channels] += ((made - part) ** 2).sum(axis=others, keepdims=True, dtype=np.float64)
        lengths[channels] += (part**2).sum(axis=others, keepdims=True, dtype=np.float64)
    beside = np.where(lengths > 0, lengths, lengths.mean() or 1.0)
    return float(np.minimum(errors / beside, 1).mean()) if errors.size else 0.0


def decibels(loss: float) -> float:
    """A relative squared error in dB; infinite for none."""
    return math.inf if loss == 0 else -10 * math.log10(loss)


def loss_of(psnr: float) -> float:
    """The relative squared error of a PSNR in dB."""
    return 10.0 ** min(-psnr / 10, _MOST)
