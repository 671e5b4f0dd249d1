"""The aspects in which a generated test program may differ from a rule's example. A rule can leave an aspect open:

    @op_rule("recover", "aten.native_batch_norm", unspecified={"infinities and zeros": "eager folds its weights"})

Some results are not specified by PyTorch: its kernels differ in their results for infinities, and some operators do not
check their arguments. The declaration of a rule gives the reason, and such programs are not compared.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from patcomp.errors import RuleError

SPECIAL = {
    "infinities and zeros": (math.inf, -math.inf, 0.0, -0.0),
    "NaN": (math.nan,),
    "halves": (0.5, -0.5, 1.5, -1.5, 2.5, -2.5),
}
"""The special values of each aspect that is about values."""

RANKS = "ranks"
"""The aspect of programs with tensors of other ranks and lists of other lengths."""

LARGE = "large numbers"
"""The aspect of numbers around 100, whose exponential overflows."""

TIES = "equal numbers"
"""The aspect of inputs with many equal numbers, for programs that return places of numbers."""

NARROW = "limits of 16 bits"
"""The aspect of numbers at which arithmetic in a 16-bit float overflows, becomes zero, or rounds visibly."""

VARIED = (*SPECIAL, LARGE, TIES, NARROW, "axes", "options", "broadcasts", RANKS, "sizes", "element types")
"""The aspects that a rule can leave open. Its examples and the programs drawn from its pattern are always compared."""


class FurtherResults(str):
    """A reason for all results except the first; the first result is compared."""


Unspecified = Mapping[str, str]
"""The aspects that a rule leaves open, each with the reason."""


def is_left_open(unspecified: Unspecified, aspect: str) -> bool:
    """Whether the programs of an aspect are not compared at all."""
    return aspect in unspecified and not isinstance(unspecified[aspect], FurtherResults)


def check_unspecified(unspecified: Unspecified) -> None:
    """Check the aspects that a declaration leaves open.

    Raises:
        RuleError: an aspect does not exist, or has no reason.
    """
    for aspect, reason in unspecified.items():
        if aspect not in VARIED:
            raise RuleError(f"unspecified= names {aspect!r}; the aspects are {', '.join(VARIED)}")
        if not reason:
            raise RuleError(f"unspecified= gives no reason for {aspect!r}")
