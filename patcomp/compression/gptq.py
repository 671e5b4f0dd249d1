"""Round a weight and keep the outputs of its product: later inputs compensate for the rounding errors of earlier ones.

GPTQ (Frantar et al. 2022), which is optimal brain surgery for all inputs in turn, with weights that are first fitted to
the inputs that the rounded program has, as GPTAQ does (Li et al. 2025), here by least squares.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Nearest = Callable[[int, np.ndarray], np.ndarray]
"""The rounded weights of one input, from its number and its weights for all outputs."""

_PART = 128
"""How many inputs are compensated one by one before all that follow are, in one product."""
_DAMPING = 0.05
"""The share of the mean square of the inputs that is added to each, so that inputs that never vary do no harm."""


def damped(moments: np.ndarray) -> np.ndarray:
    """The second moments of inputs, of shape (inputs, inputs), as a matrix that has an inverse."""
    mean = float(np.trace(moments)) / len(moments)
    return moments + (_DAMPING * mean or 1.0) * np.eye(len(moments))


def fitted_weights(weight: np.ndarray, moments: np.ndarray, crossed: np.ndarray) -> np.ndarray:
    """The weight W' for which W' x' is closest to W x; x is the product's input, and x' its input in the rounded
    program.

    Args:
        weight: float32, of shape (outputs, inputs).
        moments: the second moments of the rounded program's inputs, of shape (inputs, inputs), not damped.
        crossed: the sum of the products of its inputs (rows) and of the program's own (columns).
    """
    inverted = damped(moments)
    damping = inverted[0, 0] - moments[0, 0]
    wanted = crossed + damping * np.eye(len(moments))
    return np.asarray(np.linalg.solve(inverted, wanted @ weight.T.astype(np.float64)).T, np.float32)


def compensate(
    weight: np.ndarray, moments: np.ndarray, block: int, start: Callable[[int, np.ndarray], Nearest]
) -> None:
    """Round the weights of one input after the other; the weights of later inputs compensate for the errors.

    Args:
        weight: float32, of shape (outputs, inputs).
        moments: the second moments of the inputs, of shape (inputs, inputs), not damped.
        block: inputs that are rounded in the same way.
        start: gives the rounding of a block, from the number of its first input and its weights, (outputs, block), as
            they are after the compensation of the inputs before it.
    """
    upper = np.linalg.cholesky(np.linalg.inv(damped(moments))).T.astype(np.float32)
    left, size = np.array(weight.T, np.float32, order="C"), weight.shape[1]
    for first in range(0, size, block):
        last = min(first + block, size)
        nearest = start(first, left[first:last].T)
        for begin in range(first, last, _PART):
            end = min(begin + _PART, last)
            errors = np.empty((end - begin, left.shape[1]), np.float32)
            for place in range(begin, end):
                error = (left[place] - nearest(place, left[place])) / upper[place, place]
                left[place + 1 : end] -= np.outer(upper[place, place + 1 : end], error)
                errors[place - begin] = error
            left[end:] -= upper[begin:end, end:].T @ errors
