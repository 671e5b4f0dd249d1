"""From a checkpoint folder, or a model of transformers, to a bundle."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

from patcomp import AIProgram
from patcomp.emit.toolchain.library import has_toolchain
from patcomp.ir.anonymous import make_anonymous
from patcomp.options import takes
from patcomp_models.bundle_folders.unfinished import unfinished
from patcomp_models.checkpoints.loading import export_implementations
from patcomp_models.checkpoints.precision import given_names
from patcomp_models.language.asked import context_of
from patcomp_models.language.begun import Begun
from patcomp_models.language.bundle import Bundle
from patcomp_models.language.checking import Comparison
from patcomp_models.language.compressing import plans_for
from patcomp_models.language.contract import MAIN
from patcomp_models.language.dynamic_bundle import dynamic_functions
from patcomp_models.language.held_out import HeldOut
from patcomp_models.language.quality import all_applied
from patcomp_models.language.request import LanguageRequest, allowed_by, takes_head
from patcomp_models.language.sources import language_model_of
from patcomp_models.language.static_bundle import static_functions
from patcomp_models.language.writing import card
from patcomp_models.options import LanguageOptions


@takes(LanguageOptions)
def convert_language_model(options: LanguageOptions) -> Bundle:
    """Convert a causal language model to a bundle: prefill, decode, and the cache as state.

    Nothing is at `out` until the bundle is complete, and nothing is left after an error. After a killed run of a folder
    the same call goes on with what was finished.

    Raises:
        LanguageModelError: the checkpoint is incomplete, is no causal language model, has no tokenizer, or keeps
            between calls what a bundle cannot hold; or an argument does not fit it.
        UnsupportedError: the model has ops that cannot be converted; the message lists all of them.
    """
    request = LanguageRequest.of(options)
    step, source = request.step, request.source
    with unfinished(Path(options.out), request.key) as work:
        with step("loading the model") if source.folder else nullcontext():
            model, notes = language_model_of(
                source, options.dtype, allowed_by(options, source.folder), given_names(options.float32),
                trust_remote_code=options.trust_remote_code, expand=options.expand, takes_head=takes_head(options),
            )  # fmt: skip
        context = context_of(model, options.max_context)
        name = options.name or source.name or str(model.config.model_type)
        begun = Begun(request, model, context, name, [*notes], work)
        with export_implementations(model):
            is_static = options.target == "neural_engine"
            program, comparisons = (static_functions if is_static else dynamic_functions)(begun)
        _write(begun, program, comparisons)
    return Bundle(Path(options.out))


def _write(begun: Begun, program: AIProgram, comparisons: list[Comparison]) -> None:
    """Compress the weights of the program, write it, and compare the asset with the model."""
    request, step = begun.request, begun.request.step
    if request.compression is not None:
        with step("compressing the weights"):
            text = None if request.text is None else HeldOut.of(request.text, {MAIN: program}, begun.work.folder)
            plans = plans_for({MAIN: program}, request.compression, begun.model.config.vocab_size, text)
            program = all_applied(plans)[MAIN]
    make_anonymous(program.module)  # a bundle does not tell where its model was
    asset = begun.work.folder / f"{begun.name}.aimodel"
    with step("writing the asset") as shown:
        advance = shown if callable(shown) else None
        metadata = card(request.source.folder)
        program.save_asset(asset, metadata=metadata, writer=request.options.writer, progress=advance)
    if begun.checks and comparisons and has_toolchain():
        with step("comparing the asset with the model"):
            for each in comparisons:
                each.check_asset(asset, None if request.compression is None else program)
