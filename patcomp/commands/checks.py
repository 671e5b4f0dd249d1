"""The checks of `patcomp convert`: which ops stay in float32, and whether the program that is written is the model."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from patcomp.commands.common import error_console
from patcomp.commands.tables import show
from patcomp.conversion.comparing import comparisons
from patcomp.errors import ConversionWarning

if TYPE_CHECKING:
    from patcomp import AIProgram
    from patcomp.conversion.source import ModelSource
    from patcomp.emit.asset import Asset
    from patcomp.evaluate.verification import Verification


class CheckFailed(Exception):  # noqa: N818
    """An asset does not pass, so it is not to take its place."""


@dataclass
class Check:
    """Compares a program with its model on example inputs, and shows the results on standard error."""

    sources: Sequence[ModelSource]
    """The functions of the model."""
    converted: AIProgram
    """The program before its weights are compressed."""
    written: AIProgram
    """The program that is written; the same one if nothing is compressed."""
    quiet: bool
    """Whether only what fails is shown."""
    by_module: bool
    """Whether values inside are compared, too, also if the outputs pass."""
    result: Verification | None = None
    """The last comparison; the one that failed if one did."""

    @property
    def passed(self) -> bool:
        """Whether everything that was compared passed."""
        return bool(self.result)

    def of_asset(self, asset: Asset) -> None:
        """Compare an asset of the program.

        Raises:
            CheckFailed: it does not pass.
        """
        if not self.of(asset):
            raise CheckFailed

    def of(self, asset: Asset | None) -> bool:
        """Compare the program as it is in memory, or as it is in an asset; return whether it passed."""
        by: Literal["module", "output"] = "module" if self.by_module else "output"
        results = comparisons(self.sources, self.converted, self.written, asset, by=by)
        return all(map(self._passes, results))

    def _passes(self, result: Verification) -> bool:
        self.result = result
        if not (self.quiet and result):
            show(result, error_console())
        return bool(result)


def kept_for(convert: Callable[..., AIProgram], sources: Sequence[ModelSource]) -> tuple[str, ...]:
    """The FX nodes whose ops stay in float32, so that outputs are finite for the example inputs.

    Args:
        convert: converts the model, with `keep=`.
        sources: the functions of the model.

    Raises:
        EvaluationError: no ops in float32 make the outputs finite.
    """
    kept: dict[str, None] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConversionWarning)  # the last conversion gives them
        while True:
            program = convert(keep=tuple(kept))
            found = [
                name
                for source in sources
                for name in program.needs_float32(source.inputs_for(program), entrypoint=source.entry)
            ]
            if kept.keys() >= set(found):
                return tuple(kept)
            kept.update(dict.fromkeys(found))
