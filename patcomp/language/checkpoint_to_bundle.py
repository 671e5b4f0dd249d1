"""From a checkpoint folder, or a model of transformers, to a bundle."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import astuple
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import torch
from torch import nn

from patcomp import AIProgram
from patcomp.bundle_folders.unfinished import Unfinished, request_of, unfinished
from patcomp.compression import CompressionRequest
from patcomp.emit.asset import Writer, has_toolchain
from patcomp.errors import ConversionWarning
from patcomp.ir.anonymous import make_anonymous
from patcomp.language.agreement import STRICT, Allowed
from patcomp.language.architectures import ARCHITECTURES
from patcomp.language.asked import context_of, own_context, prompt_of, tokens_of
from patcomp.language.bundle import Bundle
from patcomp.language.checking import Comparison, check_programs, compare, comparisons_of, notes_on_spans
from patcomp.language.compressing import compressed
from patcomp.language.contract import FIRST_LENGTH, ONE_TOKEN, OUTSIDE, PER_LAYER, engine_refusal
from patcomp.language.decoder import Decoder
from patcomp.language.dynamic_form import dynamic_program, exported, functions_of, unread_weights
from patcomp.language.entry_points import EntryPoints, function_map
from patcomp.language.errors import LanguageModelError
from patcomp.language.head_checking import HeadComparison
from patcomp.language.latent import check_absorbed, check_can_absorb
from patcomp.language.loading import DTYPES, implementations
from patcomp.language.multi_token import HEAD, HeadDecoder, load_head
from patcomp.language.per_layer import PerLayerDecoder, described_table, outside, write_table
from patcomp.language.precision import names_of
from patcomp.language.rotary import check_one_set, first_length, note_on_engines
from patcomp.language.sources import Step, model_of, source_of, stored_in
from patcomp.language.states import states_of
from patcomp.language.static_contract import EXTEND, QUERIES
from patcomp.language.static_form import (
    Embeddings,
    Extend,
    checked_context,
    constrained,
    context_sizes,
    converted,
    default_context,
    extend_arguments,
    rotary_tables,
)
from patcomp.language.text_loss import Text
from patcomp.language.writing import card, chosen_tokenizer, description, write_description
from patterns_catalog.optional import latent_attention


def convert_language_model(
    folder_or_model: str | Path | nn.Module,
    target: Literal["gpu", "neural_engine"] = "gpu",
    *,
    out: str | Path,
    max_context: int | None = None,
    dtype: Literal["float16", "bfloat16", "float32"] = "float16",
    name: str | None = None,
    tokenizer: Any = None,
    allow_missing: str | Sequence[str] = (),
    allow_unexpected: str | Sequence[str] = (),
    trust_remote_code: bool = False,
    quantize_embeddings: bool = True,
    compress: str | Path | Mapping[str, Any] | None = None,
    calibrate: str | Path | Sequence[int] | None = None,
    expand: bool = False,
    prefill: int | None = None,
    verify: int | None = None,
    hidden: bool = False,
    draft: str | Path | nn.Module | None = None,
    window_caches: bool = False,
    absorb_latents: bool = False,
    embeddings: Literal["inside", "outside"] = "inside",
    float32: str | Sequence[str] = (),
    catalog: Sequence[Any] = (),
    check: bool | str | Sequence[int] = True,
    progress: Step | None = None,
    writer: Writer | None = None,
) -> Bundle:
    """Convert a causal language model to a bundle: prefill, decode, and the cache as state.

    Args:
        folder_or_model: the folder of a checkpoint (`config.json`, `*.safetensors`, a tokenizer); a GGUF file; an id
            of the hub, `"owner/name"`, which is downloaded; or a model of transformers, which is not changed.
        target: the device; `"gpu"` is the form of macOS, one function with dynamic sizes; `"neural_engine"` is the
            form of iOS, functions of fixed sizes over a table of embeddings, for llama, qwen2, qwen3 and mistral.
        out: the folder of the bundle, which must not exist.
        max_context: the most tokens, those of the prompt included; by default the model's own, and at most 4096 for
            the Neural Engine.
        dtype: the type of the weights and the cache. The Swift package takes float16 logits, which both half types
            give; float32 is for checks.
        name: of the bundle; by default that of the folder.
        tokenizer: a tokenizer of transformers; by default that of the folder, and none for a model that is given.
            `False` for none: the bundle then generates from token ids only.
        allow_missing: names of weights, or patterns such as `"lm_head.*"`, that a folder may lack, or have in another
            shape; they are drawn at random, and a warning names them.
        allow_unexpected: the same for weights of a folder that the model has no place for; they are left out.
        trust_remote_code: whether to run code of the checkpoint's folder.
        quantize_embeddings: whether the table of embeddings of the Neural Engine's form is of int8, with one scale.
        compress: how small the weights become: `"4bit"` (for the GPU integers in blocks of 32, the head in 8 bits; for
            the Neural Engine palettes of 32 channels, and the table of embeddings as it is), `"8bit"`, the name of
            another scheme, a config, or a budget, `"4.5bits"` or `"30%"` (docs/compression.md). None leaves them as
            they are. The program is compared with the model before its weights are compressed.
        calibrate: the path of a text, or token ids, like what the model will read: weights are then rounded so that the
            outputs of products stay (GPTQ), which halves the rise of the loss or better. At most 16 parts of 512 tokens
            are read, spread over the text.
        expand: whether weights become floats whose bits cannot be kept, such as those of GGUF's IQ2_XXS; a note in
            `metadata.json` says which.
        prefill: makes two functions of fixed sizes in place of one for any number of tokens: `prefill` takes so many
            tokens, and `main` takes one. A recurrence then has no loop in `main`.
        verify: adds the function `verify`, which takes one token and so many drafted ones behind it.
        hidden: whether each function also returns `hidden`, what the head takes.
        draft: a smaller language model (a folder, an id or a model) that becomes the function `draft` of the same
            asset, with weights and states of its own; `Bundle.generate(draft=True)` drafts with it. `"mtp"` for the
            head of the checkpoint that foresees tokens (multi-token prediction), which takes the model's `hidden`.
        window_caches: whether layers with a sliding window smaller than `max_context` keep the tokens of the window
            only, in states of fixed size. To go back to an earlier token, Apple's engines then read the whole prompt
            again.
        absorb_latents: whether layers of latent attention (DeepSeek) attend to the latents in the cache, and make no
            keys and values of heads from them; decoding behind many tokens is faster, and long prompts are slower. The
            rule is `patterns_catalog.optional.latent_attention`.
        embeddings: `"outside"` writes the table of per-layer embeddings (Gemma 3n, Gemma 4) into a file of its own,
            `per_layer_embeddings.safetensors`; their rows are then the input `per_layer_embeddings` of each function.
            The table stays in floats, and Apple's engines do not give such an input.
        float32: names of modules, or patterns such as `["lm_head", "*.self_attn"]`, that compute in float32 inside of a
            program of half precision; the cache is of half precision.
        catalog: catalogs of rules, lowerings and Metal kernels, as `TorchConverter` takes them.
        check: whether the converted program is compared with the model, on the evaluator, and on the Core AI runtime
            where it is installed; a prompt, as token ids or as a text that the tokenizer splits, is compared in place
            of a few tokens.
        progress: called with what is done next, for a context manager around it: `rich.console.Console().status`.
            If its value is a function, it is called with the bytes that are written of the asset, and all of them.
        writer: what writes the asset, `"python"` or `"coreai"`; by default as for `AIProgram.save_asset`.

    Nothing is at `out` until the bundle is complete, and nothing is left after an error. After a killed run of a folder
    the same call goes on with what was finished.

    Raises:
        LanguageModelError: the checkpoint is incomplete, is no causal language model, has no tokenizer, or keeps
            between calls what a bundle cannot hold; or an argument does not fit it.
        UnsupportedError: the model has ops that cannot be converted; the message lists all of them.
    """
    if target not in ("gpu", "neural_engine"):
        raise LanguageModelError(
            f"the target {target!r} has no form of language models; there are 'gpu' and 'neural_engine'"
        )
    if target == "neural_engine" and dtype != "float16":
        raise LanguageModelError(f"the form for the Neural Engine is of float16, got dtype={dtype!r}")
    if dtype not in DTYPES:
        raise LanguageModelError(f"dtype is one of {', '.join(DTYPES)}, got {dtype!r}")
    wide = names_of(float32)
    if wide and (dtype == "float32" or target == "neural_engine"):
        raise LanguageModelError("float32= goes with dtype='float16' or 'bfloat16', and with target='gpu'")
    compression = None if compress is None else CompressionRequest.of(compress, target)
    word = None if compression is None else compression.text
    if calibrate is not None and (compression is None or target == "neural_engine"):
        raise LanguageModelError("calibrate= goes with compress=, and with target='gpu'")
    points = EntryPoints(prefill, verify, hidden or draft == HEAD)
    points.check(max_context)
    if target == "neural_engine" and (points != EntryPoints() or draft is not None or window_caches or absorb_latents):
        raise LanguageModelError(
            "prefill=, verify=, hidden=, draft=, window_caches= and absorb_latents= go with target='gpu'; the Neural "
            "Engine's form has functions of its own"
        )
    is_outside = embeddings == "outside"
    if embeddings not in ("inside", "outside") or (is_outside and (target == "neural_engine" or calibrate is not None)):
        raise LanguageModelError(
            "embeddings= is 'inside' or 'outside', and 'outside' goes with target='gpu' and without calibrate="
        )
    place = Path(out)
    if place.exists():
        raise LanguageModelError(f"{str(place)!r} exists; choose another folder for the bundle, or move it away")
    step: Step = progress or (lambda what: nullcontext())
    source = source_of(folder_or_model, step, trust_remote_code=trust_remote_code)
    takes_head = isinstance(draft, str) and draft == HEAD
    if takes_head and source.folder is None:
        raise LanguageModelError(
            f"draft={HEAD!r} goes with the folder of a checkpoint: transformers does not load heads that foresee tokens"
        )
    smaller = (
        None if draft is None or takes_head else source_of(draft, step, trust_remote_code=trust_remote_code)
    )  # fmt: skip
    word = ", ".join(part for part in (source.form and source.form.name, word) if part) or None
    allowed = Allowed.of(allow_missing, allow_unexpected)
    if source.folder is None and (allowed.missing or allowed.unexpected):
        raise LanguageModelError("allow_missing= and allow_unexpected= go with the folder of a checkpoint")
    name = name or source.name
    words = chosen_tokenizer(tokenizer, source.folder, trust_remote_code=trust_remote_code)
    seen = None if calibrate is None else tokens_of(calibrate, words)
    options = {
        "context": max_context, "dtype": dtype, "name": name, "target": target, "points": astuple(points),
        "check": check if isinstance(check, bool | str) else [*check], "quantize_embeddings": quantize_embeddings,
        "allowed": astuple(allowed), "tokenizer": tokenizer is not False, "float32": wide,
        "expand": expand, "compress": repr(compression), "calibrate": seen, "window_caches": window_caches,
        "absorb_latents": absorb_latents, "embeddings": embeddings,
        "draft": request_of(smaller.folder, {}) if smaller and smaller.folder else takes_head,
    }  # fmt: skip
    # a later run does not know an object again
    known = source.folder if (tokenizer is None or tokenizer is False) and not catalog else None
    known = None if smaller is not None and smaller.folder is None else known
    prompt = prompt_of(check, words, max_context)
    with unfinished(place, request_of(known, options) if known else uuid4().hex) as work:
        with step("loading the model") if source.folder else nullcontext():
            model, notes = model_of(
                source, dtype, allowed, wide, trust_remote_code=trust_remote_code, expand=expand, takes_head=takes_head
            )
        context = context_of(model, max_context)
        name = name or str(model.config.model_type)
        comparisons: list[Comparison] = []
        checked = work if check is not False else None
        with ExitStack() as chosen:
            chosen.enter_context(implementations(model))
            if target == "neural_engine":
                _check_has_static_form(model)
                most = min(context, first_length(model) or context)
                context = checked_context(model, context if max_context else default_context(most))
                described = description(model, context, name, source.identifier, notes, compression=word)
                work.once("description", lambda: write_description(work.folder, described, words))
                program = _static(model, context, quantize_embeddings, step, checked)
            else:
                points.check(context)
                for given, what in ((points.prefill, "prefill="), (takes_head, f"draft={HEAD!r}")):
                    if given:
                        check_one_set(model, context, what)
                if absorb_latents:
                    check_can_absorb(model)
                    catalog = [*catalog, latent_attention]
                form_of_states: dict[str, Any] = {
                    "hidden": points.hidden, "dtype": DTYPES[dtype], "context": context if window_caches else None
                }  # fmt: skip
                table = chosen.enter_context(outside(model)) if is_outside else None
                decoders = [
                    Decoder(model, **form_of_states) if table is None else
                    PerLayerDecoder(model, table, **form_of_states)
                ]  # fmt: skip
                if window_caches and not decoders[0].states.has_windows:
                    raise LanguageModelError(
                        f"{type(model).__name__} has no layer with a sliding window of less than {context} tokens; "
                        "leave window_caches= (--window-caches) out, or pass a larger max_context="
                    )
                if smaller is not None:
                    with step("loading the draft"):
                        drafting, _ = model_of(
                            smaller, dtype, STRICT, trust_remote_code=trust_remote_code, expand=expand
                        )
                    chosen.enter_context(implementations(drafting))
                    decoders.append(_draft_decoder(drafting, model, context))
                if takes_head:
                    with step("loading the head that foresees tokens"):
                        form, files = stored_in(source, expand=expand)
                        head = load_head(model, files, form, dtype, str(source.folder))
                    chosen.enter_context(implementations(head))
                    decoders.append(HeadDecoder(head, DTYPES[dtype]))
                notes = (*notes, *_notes_on_engines(decoders[0], points, context))
                for note in notes_on_spans(model, prompt, context) if checked is not None else ():
                    warnings.warn(note, ConversionWarning, stacklevel=2)
                    notes = (*notes, note)
                functions = function_map(points, has_draft=draft is not None)
                described = description(model, context, name, source.identifier, notes, functions, word)
                if (length := first_length(model)) is not None and length < context:
                    described["language"][FIRST_LENGTH] = length
                if table is not None:
                    described[PER_LAYER] = described_table(table.weight)
                    with step("writing the table of per-layer embeddings"):
                        work.once("table", lambda: write_table(work.folder, table.weight))
                work.once("description", lambda: write_description(work.folder, described, words))
                program, comparisons = _dynamic(decoders, points, context, catalog, DTYPES[dtype], step, prompt)
                if absorb_latents:
                    check_absorbed(program, decoders[0], points.sizes)
                if checked is not None:
                    with step("comparing the program with the model"):
                        work.once("comparison", lambda: check_programs(comparisons, program))
        if compression is not None:
            with step("compressing the weights"):
                calibration = None if seen is None else Text.of(program, seen, context)
                program = compressed(program, compression, model.config.vocab_size, calibration)
        make_anonymous(program.module)  # a bundle does not tell where its model was
        asset = work.folder / f"{name}.aimodel"
        with step("writing the asset") as shown:
            advance = shown if callable(shown) else None
            program.save_asset(asset, metadata=card(source.folder), writer=writer, progress=advance)
        if checked is not None and comparisons and has_toolchain():
            with step("comparing the asset with the model"):
                for each in comparisons:
                    each.check_asset(asset, None if compression is None else program)
    return Bundle(place)


def _dynamic(
    decoders: Sequence[Decoder],
    points: EntryPoints,
    context: int,
    catalog: Sequence[Any],
    dtype: torch.dtype,
    step: Step,
    prompt: Sequence[int],
) -> tuple[AIProgram, list[Comparison]]:
    """The functions with dynamic sizes of a model and perhaps of a draft, and what compares each with its model."""
    functions = functions_of(decoders[0], points, *decoders[1:])
    with step("exporting the model"):
        programs = [(function, exported(function, context)) for function in functions]
    for decoder in decoders:
        if unread := unread_weights(program for function, program in programs if function.decoder is decoder):
            warnings.warn(
                f"{type(decoder.model).__name__} does not read all of its weights for a text; left out: {unread}",
                ConversionWarning,
                stacklevel=3,
            )
    with step("converting the program"):
        program = dynamic_program(programs, catalog)
    comparisons: list[Comparison] = []
    for decoder in decoders:
        of_one = [function for function in functions if function.decoder is decoder]
        if isinstance(decoder, HeadDecoder):
            comparisons.append(HeadComparison(of_one, prompt, dtype, context, decoders[0].model))
        else:
            comparisons += comparisons_of(of_one, prompt, dtype, context)
    return program, comparisons


def _draft_decoder(draft: Any, model: Any, context: int) -> Decoder:
    """The decoder of a draft.

    Raises:
        LanguageModelError: the draft has another vocabulary, or takes fewer tokens than the bundle.
    """
    words = model.config.vocab_size, draft.config.vocab_size
    if words[0] != words[1]:
        raise LanguageModelError(
            f"the draft has {words[1]} tokens and the model {words[0]}; a draft must have the same vocabulary"
        )
    own = own_context(draft)
    if own is not None and own < context:
        raise LanguageModelError(f"the draft takes {own} tokens and the bundle {context}; pass max_context={own}")
    check_one_set(draft, context, "draft")
    return Decoder(draft)


def _notes_on_engines(decoder: Decoder, points: EntryPoints, context: int) -> list[str]:
    """Why Apple's engines do not take a bundle, or not with their own settings; each is a warning, too."""
    refusal = engine_refusal([state.grows for state in decoder.states.states])
    outside_note = OUTSIDE if PER_LAYER in decoder.further else ""
    rotary_note = note_on_engines(decoder.model, context)
    for note in filter(None, (refusal, outside_note, rotary_note)):
        warnings.warn(f"{decoder.model.config.model_type}: {note}", ConversionWarning, stacklevel=3)
    return [note for note in (refusal, outside_note, rotary_note, ONE_TOKEN if points.prefill else "") if note]


def _static(model: Any, context: int, quantized: bool, step: Step, work: Unfinished | None) -> AIProgram:
    """The functions of fixed sizes; the first is compared with the model if there is a folder to note it in."""
    embeddings = Embeddings.of(model.model.embed_tokens.weight, quantized=quantized)
    with rotary_tables(model, context, torch.float16):
        with step("exporting and converting the functions"):
            program = converted(model, embeddings, context)
        if work is not None:
            with step("comparing the program with the model"):
                work.once("comparison", lambda: _check_static(program, model, embeddings, context))
    return constrained(program, context)


def _check_static(program: AIProgram, model: Any, embeddings: Embeddings, context: int) -> None:
    """Compare the smallest function on its first block with the model.

    Raises:
        LanguageModelError: as `check_program`.
    """
    size, queries = context_sizes(context)[0], QUERIES[0]
    module = Extend(model, embeddings, logits=True)
    arguments = extend_arguments(model, embeddings, states_of(model).states, queries, size)
    compare(program, module, arguments, torch.float16, f"{EXTEND}_{size}_{queries}")


def _check_has_static_form(model: Any) -> None:
    kind = model.config.model_type
    if kind not in ARCHITECTURES or not ARCHITECTURES[kind].has_static_form:
        names = ", ".join(kind for kind, each in ARCHITECTURES.items() if each.has_static_form)
        raise LanguageModelError(f"{kind!r} has no form for the Neural Engine; these architectures have one: {names}")
