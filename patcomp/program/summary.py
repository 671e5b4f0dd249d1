"""What a program is, in a few lines: its signature, sizes, composites, the time of the conversion, the verification."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from patcomp.interface.signature import EntrySignature
from patcomp.ir.module import IRModule
from patcomp.ir.weights import stored_weights
from patcomp.program.units import size_text

if TYPE_CHECKING:
    from patcomp.evaluate.verification import Verification


@dataclass(frozen=True)
class Summary:
    """What a program is, in a few lines; `print(program.summary())`."""

    signatures: Mapping[str, EntrySignature]
    """The interface of each entry point."""
    ops: int
    """How many ops there are, in all graphs."""
    composites: Mapping[str, int]
    """How many calls of each composite there are."""
    weights: Mapping[str, int]
    """The bytes of the weights by element type. Weights that share memory count once; small constants do not count."""
    seconds: float
    """How long the conversion took."""
    warnings: int
    """How many warnings the conversion had."""
    verification: Verification | None = None
    """A comparison of the program with its model."""

    def to_dict(self) -> dict[str, Any]:
        """The summary as plain data for JSON."""
        return {
            "signatures": {name: signature.to_dict() for name, signature in self.signatures.items()},
            "ops": self.ops,
            "composites": dict(self.composites),
            "weights": dict(self.weights),
            "seconds": self.seconds,
            "warnings": self.warnings,
            "verification": None if self.verification is None else self.verification.to_dict(),
        }

    def __str__(self) -> str:
        lines = []
        for name, signature in self.signatures.items():
            lines += [f"@{name}", *(f"  {line}" for line in str(signature).splitlines())]
        composites = ", ".join(f"{count} x {name}" for name, count in self.composites.items())
        weights = ", ".join(f"{size_text(size)} {element}" for element, size in self.weights.items())
        total = f"{size_text(sum(self.weights.values()))} ({weights})" if len(self.weights) > 1 else weights
        lines += [
            f"ops        {self.ops:,}",
            f"composites {composites or 'none'}",
            f"weights    {total or 'none'}",
            f"converted  in {self.seconds:.2f} s{self._warned()}",
        ]
        if self.verification is not None:
            verdict = "passed" if self.verification else "FAILED"
            lines.append(f"verified   {verdict}, largest difference {self.verification.max_abs:.1e}")
        return "\n".join(lines)

    def _warned(self) -> str:
        plural = "s" if self.warnings > 1 else ""
        return f", {self.warnings} warning{plural} (program.report() has them)" if self.warnings else ""


def weight_sizes(module: IRModule) -> dict[str, int]:
    """The bytes of a module's weights by element type, the largest first; weights that share memory count once."""
    sizes: Counter[str] = Counter()
    for weight in stored_weights(module):
        sizes[weight.element_type] += weight.bytes
    return dict(sizes.most_common())
