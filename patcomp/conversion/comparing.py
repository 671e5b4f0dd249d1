"""Whether a converted program, or what is written of it, computes what its model computes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from patcomp.conversion.source import ModelSource
    from patcomp.emit.asset import Asset
    from patcomp.evaluate.verification import Verification
    from patcomp.program.program import AIProgram


def comparisons(
    sources: Sequence[ModelSource],
    converted: AIProgram,
    written: AIProgram,
    asset: Asset | None = None,
    *,
    by: Literal["module", "output"] = "output",
) -> Iterator[Verification]:
    """The comparisons of a program with its model on example inputs, function by function.

    Args:
        sources: the functions of the model.
        converted: the program before its weights are compressed, which is compared with the model.
        written: the program that is written; if its weights are compressed, what they lose is compared, too.
        asset: the program as it was saved.
        by: whether values inside are compared, too, also if the outputs pass; if they do not, they always are.

    Raises:
        PatcompError: a function has no example inputs.
    """
    for source in sources:
        inputs = source.inputs_for(converted)
        of_model: dict[str, Any] = {"entrypoint": source.entry, "float32_model": source.float32_model}
        if written is converted:
            of_model["asset"] = asset
        else:
            of_model["backends"] = ["evaluator"]
        result = converted.verify_against(source.model, inputs, by=by, **of_model)
        if not result and by == "output":  # say where
            result = converted.verify_against(source.model, inputs, by="module", **of_model)
        result = replace(result, reference=source.reference)
        if written is converted:
            yield result
        else:
            yield replace(result, reference=f"{result.reference}, before compression")
            yield written.verify_compressed(source.model, inputs, entrypoint=source.entry, asset=asset)
