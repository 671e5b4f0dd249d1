"""In what a program that tests make may differ from a rule's example, and what of that a rule leaves open.

    @op_rule("recover", "aten.native_batch_norm", unspecified={"infinities and zeros": "eager folds its weights"})

PyTorch does not say what becomes of everything: its kernels differ in what infinities give, and some operators of its
own do not check their arguments. A rule says so where it is declared, with the reason; such programs are not compared.
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
"""Special values, by the aspect in which a program with them differs from the example."""

VARIED = (*SPECIAL, "axes", "options", "broadcasts", "ranks", "sizes", "element types")
"""The aspects that a rule can leave open; its examples and the programs drawn of its pattern are always compared."""


class FurtherResults(str):
    """A reason that concerns all results but the first: the first one is compared."""


Unspecified = Mapping[str, str]
"""The reason why a rule leaves an aspect open, by the aspect."""


def is_left_open(unspecified: Unspecified, aspect: str) -> bool:
    """Whether nothing that differs from an example in an aspect is compared."""
    return aspect in unspecified and not isinstance(unspecified[aspect], FurtherResults)


def check_unspecified(unspecified: Unspecified) -> None:
    """Checks what a declaration leaves open.

    Raises:
        RuleError: there is no such aspect, or no reason.
    """
    for aspect, reason in unspecified.items():
        if aspect not in VARIED:
            raise RuleError(f"unspecified= names {aspect!r}; the aspects are {', '.join(VARIED)}")
        if not reason:
            raise RuleError(f"unspecified= gives no reason for {aspect!r}")
