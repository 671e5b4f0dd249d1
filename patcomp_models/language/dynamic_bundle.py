"""The form of macOS: functions of open sizes of a model, and perhaps of a draft."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from patcomp import AIProgram
from patcomp.errors import ConversionWarning
from patcomp_models.bundle_folders.revisions import FIXED, GROWING
from patcomp_models.checkpoints.agreement import STRICT
from patcomp_models.checkpoints.left_out import heads_in, names_in
from patcomp_models.checkpoints.loading import export_implementations
from patcomp_models.errors import LanguageModelError
from patcomp_models.language.adapted import with_adapter
from patcomp_models.language.asked import own_context
from patcomp_models.language.batches import BatchComparison, BatchDecoder
from patcomp_models.language.begun import Begun
from patcomp_models.language.checking import Comparison, check_programs, comparisons_of, notes_on_spans
from patcomp_models.language.contract import (
    ADAPTERS,
    BATCH,
    FIRST_LENGTH,
    HEADLESS,
    LOGITS,
    MOST_ON_IPHONES,
    ON_IPHONES,
    ONE_TOKEN,
    OUTSIDE,
    PER_LAYER,
    SEVERAL_TEXTS,
    STATE_KINDS,
    TABLE_FILE,
    engine_refusal,
)
from patcomp_models.language.decoder import Decoder
from patcomp_models.language.dynamic_form import (
    BundleFunction,
    adapted_main,
    decoder_functions,
    dynamic_program,
    exported_function,
    unread_weights,
)
from patcomp_models.language.entry_points import function_map
from patcomp_models.language.head_checking import HeadComparison
from patcomp_models.language.latent import check_absorbed, check_can_absorb
from patcomp_models.language.multi_token import HEAD, HeadDecoder, load_head
from patcomp_models.language.per_layer import PerLayerDecoder, described_table, outside, write_table
from patcomp_models.language.quantized_cache import QuantizedCacheComparison, cache_scales, note_on_loss
from patcomp_models.language.request import takes_head
from patcomp_models.language.rotary import check_one_set, first_length, note_on_engines
from patcomp_models.language.sources import LanguageSource, language_model_of, stored_in
from patterns_catalog.optional import latent_attention


def dynamic_functions(begun: Begun) -> tuple[AIProgram, list[Comparison]]:
    """The functions with open sizes of a model and perhaps of a draft, and what compares each with its model.

    Raises:
        LanguageModelError: an option does not fit the model.
    """
    model, context, options, step = begun.model, begun.context, begun.request.options, begun.request.step
    points = begun.request.points
    points.check(context)
    for given, what in ((points.prefill, "prefill="), (takes_head(options), f"draft={HEAD!r}")):
        if given:
            check_one_set(model, context, what)
    if options.absorb_latents:
        check_can_absorb(model)
    with ExitStack() as chosen:
        table = chosen.enter_context(outside(model)) if options.embeddings == "outside" else None
        decoders = [_decoder(begun, table)]
        beside = {
            name: Decoder(with_adapter(model, each), **_form(begun)) for name, each in begun.request.adapters.items()
        }
        if begun.request.draft is not None:
            decoders.append(_draft(begun, begun.request.draft, chosen))
        if takes_head(options):
            decoders += _heads(begun, chosen)
        begun.warn(_notes_on_engines(decoders[0], context), f"{model.config.model_type}: ")
        begun.notes.extend([HEADLESS.format(found=f"returns {LOGITS}"), ONE_TOKEN] if points.prefill else [])
        begun.warn(notes_on_spans(model, begun.request.prompt, context) if begun.checks else ())
        length = first_length(model)
        begun.describe(
            function_map(points, len(decoders) - 1),
            {
                STATE_KINDS: {each.name: GROWING if each.grows else FIXED for each in decoders[0].states.states},
                **({FIRST_LENGTH: length} if length is not None and length < context else {}),
                **({BATCH: options.batch} if options.batch > 1 else {}),
                **({ADAPTERS: {name: adapted_main(name) for name in beside}} if beside else {}),
            },
            {} if table is None else {PER_LAYER: described_table(table.weight)},
        )
        if table is not None:
            with step("writing the table of per-layer embeddings"):
                begun.work.once("table", lambda: write_table(begun.work.folder / TABLE_FILE, table.weight))
        program, comparisons = _converted(begun, decoders, beside)
        if options.absorb_latents:
            check_absorbed(program, decoders[0], points.sizes)
        if begun.checks:
            with step("comparing the program with the model"):
                begun.work.once("comparison", lambda: check_programs(comparisons, program))
    return program, comparisons


def _decoder(begun: Begun, table: Any) -> Decoder:
    """The decoder of the model, over a table of per-layer embeddings that is outside of it, if there is one.

    Raises:
        LanguageModelError: the caches of windows are asked for, and no layer has a window.
    """
    model, context, options = begun.model, begun.context, begun.request.options
    form = _form(begun)
    part: list[int] = []
    if options.cache == "int8":
        with begun.request.step("measuring keys and values for int8 caches"):
            form["scales"], part = cache_scales(model, begun.request.text or [], context)
    if options.batch > 1:
        begun.warn([SEVERAL_TEXTS.format(count=options.batch)], f"{model.config.model_type}: ")
        return BatchDecoder(model, options.batch, **form)
    decoder = Decoder(model, **form) if table is None else PerLayerDecoder(model, table, **form)
    if part:
        begun.notes.append(note_on_loss(decoder, part))
    if options.window_caches and not decoder.states.has_windows:
        raise LanguageModelError(
            f"{type(model).__name__} has no layer with a sliding window of less than {context} tokens; "
            "leave window_caches= (--window-caches) out, or pass a larger max_context="
        )
    return decoder


def _form(begun: Begun) -> dict[str, Any]:
    """The options of the decoder of the model."""
    options = begun.request.options
    return {
        "hidden": begun.request.points.hidden, "dtype": begun.request.dtype,
        "context": begun.context if options.window_caches else None,
    }  # fmt: skip


def _draft(begun: Begun, source: LanguageSource, chosen: ExitStack) -> Decoder:
    """The decoder of a draft.

    Raises:
        LanguageModelError: the draft has another vocabulary, or takes fewer tokens than the bundle.
    """
    options, context = begun.request.options, begun.context
    with begun.request.step("loading the draft"):
        draft, _ = language_model_of(
            source, options.dtype, STRICT, trust_remote_code=options.trust_remote_code, expand=options.expand
        )
    chosen.enter_context(export_implementations(draft))
    words = begun.model.config.vocab_size, draft.config.vocab_size
    if words[0] != words[1]:
        raise LanguageModelError(
            f"the draft has {words[1]} tokens and the model {words[0]}; a draft must have the same vocabulary"
        )
    own = own_context(draft)
    if own is not None and own < context:
        raise LanguageModelError(f"the draft takes {own} tokens and the bundle {context}; pass max_context={own}")
    check_one_set(draft, context, "draft")
    return Decoder(draft)


def _heads(begun: Begun, chosen: ExitStack) -> list[HeadDecoder]:
    """The decoders of the checkpoint's heads that foresee tokens."""
    source, options = begun.request.source, begun.request.options
    with begun.request.step("loading the heads that foresee tokens"):
        form, files = stored_in(source, expand=options.expand)
        count = len(heads_in(names_in(files, form)))
        place = str(source.folder)
        heads = [load_head(begun.model, files, form, options.dtype, place, each) for each in range(max(count, 1))]
    for head in heads:
        chosen.enter_context(export_implementations(head))
    return [HeadDecoder(head, begun.request.dtype) for head in heads]


def _converted(
    begun: Begun, decoders: Sequence[Decoder], beside: Mapping[str, Decoder]
) -> tuple[AIProgram, list[Comparison]]:
    """The program of decoders, also of those with adapters by name, and what compares each function with its model."""
    request, context = begun.request, begun.context
    functions = decoder_functions(decoders[0], request.points, *decoders[1:])
    functions += [BundleFunction(adapted_main(name), decoder) for name, decoder in beside.items()]
    decoders = [*decoders, *beside.values()]
    with request.step("exporting the model"):
        programs = [(function, exported_function(function, context)) for function in functions]
    for decoder in decoders:
        if unread := unread_weights(program for function, program in programs if function.decoder is decoder):
            warnings.warn(
                f"{type(decoder.model).__name__} does not read all of its weights for a text; left out: {unread}",
                ConversionWarning,
                stacklevel=5,
            )
    absorbed = [latent_attention] if request.options.absorb_latents else []
    with request.step("converting the program"):
        program = dynamic_program(programs, [*request.options.catalog, *absorbed])
    comparisons: list[Comparison] = []
    kind = QuantizedCacheComparison if request.options.cache == "int8" else Comparison
    kind = BatchComparison if request.options.batch > 1 else kind
    for decoder in decoders:
        of_one = [function for function in functions if function.decoder is decoder]
        if isinstance(decoder, HeadDecoder):
            comparisons.append(HeadComparison(of_one, request.prompt, request.dtype, context, decoders[0].model))
        else:
            of_which = kind if decoder is decoders[0] else Comparison
            comparisons += comparisons_of(of_one, request.prompt, request.dtype, context, of_which)
    return program, comparisons


def _notes_on_engines(decoder: Decoder, context: int) -> list[str]:
    """Why Apple's engines do not take a bundle, or not with their own settings."""
    refusal = engine_refusal([state.grows for state in decoder.states.states])
    further = OUTSIDE if PER_LAYER in decoder.further else ""
    grows = any(state.grows for state in decoder.states.states)
    phones = ON_IPHONES if grows and not refusal and context > MOST_ON_IPHONES else ""
    return [note for note in (refusal, further, note_on_engines(decoder.model, context), phones) if note]
