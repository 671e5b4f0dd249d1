"""The third form of a rule: an ATen op written in PyTorch, by which it is taken apart on import.

    @decomposition("aten.addbmm", examples=[example("3x5xf32", "2x3x4xf32", "2x4x5xf32", beta=0.5)])
    def addbmm(self, batch1, batch2, *, beta=1, alpha=1):
        "beta * self + alpha * sum of the products"
        return beta * self + alpha * (batch1 @ batch2).sum(0)

The function has the op's own signature and is traced with the shapes and types of the node at hand, so it may branch
on shapes, dtypes and options, but not on values. It is for ops that are sums of others; what the target dialect can
say better is a lowering. It may raise `Rejected` with a reason.

With `of_complex` it is for calls with a complex tensor or number alone, and goes before all other ways, lowerings
included: the target has no complex arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from patcomp.patterns.aspects import Unspecified, check_unspecified
from patcomp.patterns.pattern import place_of
from patcomp.patterns.procedural import Example
from patcomp.patterns.stage import Stage


@dataclass(frozen=True)
class Decomposition:
    """How ops are taken apart on import, before any rule sees them."""

    name: str
    ops: tuple[str, ...]
    function: Callable[..., Any]
    """Takes the op's arguments as PyTorch does."""
    doc: str = ""
    examples: tuple[Example, ...] = ()
    source: str = ""
    """File and line of the declaration."""
    of_complex: bool = False
    """Whether it takes only calls with complex tensors or numbers."""
    stage: Stage = Stage.IMPORT
    size: int = 1
    priority: int = 0
    unspecified: Unspecified = field(default_factory=dict)
    """What it leaves open, by aspect, with the reason."""


def decomposition(
    *ops: str,
    examples: Iterable[Example] = (),
    name: str | None = None,
    of_complex: bool = False,
    unspecified: Unspecified | None = None,
) -> Callable[[Callable[..., Any]], Decomposition]:
    """Declares how the named ops of the `aten` dialect are taken apart; the decorated name becomes a `Decomposition`.

    Args:
        ops: names such as `"aten.addbmm"`, all with the function's signature.
        examples: what the generated tests run it on.
        name: the rule's name, where it is not the function's.
        of_complex: whether it takes only calls with complex tensors or numbers.
        unspecified: aspects that the tests do not compare (`patterns.aspects`), with the reason.

    Raises:
        RuleError: `unspecified` names no aspect, or gives no reason.
    """
    check_unspecified(unspecified or {})

    def declare(function: Callable[..., Any]) -> Decomposition:
        return Decomposition(
            name or f"decompose {'complex ' * of_complex}{function.__name__.strip('_')}",
            ops,
            function,
            (function.__doc__ or "").strip(),
            tuple(examples),
            place_of(function),
            of_complex,
            unspecified=unspecified or {},
        )

    return declare
