"""From a checkpoint folder, or a model of transformers, to a bundle."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import astuple
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import torch
from torch import nn
from torch.export import Dim, ExportedProgram

from patcomp import AIProgram, TorchConverter
from patcomp.emit.asset import Writer
from patcomp.errors import ConversionWarning
from patcomp.hub import is_hub_id
from patcomp.language.architectures import ARCHITECTURES, Architecture
from patcomp.language.bundle import Bundle, card, chosen_tokenizer, description, write_description
from patcomp.language.checking import check_program, compare
from patcomp.language.contract import LOGITS, POSITIONS, engine_refusal
from patcomp.language.decoder import Decoder
from patcomp.language.errors import LanguageModelError
from patcomp.language.exporting import exported_module
from patcomp.language.folders import CAUSAL, check_language_model, check_weight_files, checked_folder
from patcomp.language.hub import checkpoint_of
from patcomp.language.loading import (
    DTYPES,
    Allowed,
    check_configuration,
    classes_of,
    implementations,
    in_dtype,
    load_model,
    loaded,
)
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
from patcomp.language.text_part import text_part, whole_class
from patcomp.language.unfinished import Unfinished, request_of, unfinished

Step = Callable[[str], AbstractContextManager[Any]]
"""A context manager around a step, by what the step does."""

_NEW, _TOTAL = 16, 24
"""The new tokens, and all tokens, of the example that is exported; both sizes are open."""


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
    check: bool | str | Sequence[int] = True,
    progress: Step | None = None,
    writer: Writer | None = None,
) -> Bundle:
    """Convert a causal language model to a bundle: prefill, decode, and the cache as state.

    Args:
        folder_or_model: the folder of a checkpoint (`config.json`, `*.safetensors`, a tokenizer); an id of the hub,
            `"owner/name"`, which is downloaded; or a model of transformers, which is not changed.
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
        check: whether the converted program is compared with the model; a prompt, as token ids or as a text that the
            tokenizer splits, is compared in place of a few tokens.
        progress: called with what is done next, for a context manager around it: `rich.console.Console().status`.
            If its value is a function, it is called with the bytes that are written of the asset, and all of them.
        writer: what writes the asset, `"python"` or `"coreai"`; by default coreai-core where it is installed.

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
    place = Path(out)
    if place.exists():
        raise LanguageModelError(f"{str(place)!r} exists; choose another folder for the bundle, or move it away")
    step: Step = progress or (lambda what: nullcontext())
    source, identifier = None, None
    if not isinstance(folder_or_model, nn.Module):
        with step("downloading the checkpoint") if is_hub_id(folder_or_model) else nullcontext():
            checkpoint = checkpoint_of(folder_or_model, trust_remote_code=trust_remote_code)
        source, identifier, name = checkpoint.folder, checkpoint.identifier, name or checkpoint.name
        config = checked_folder(source, trust_remote_code=trust_remote_code)
        whole = whole_class(config)
        if whole is None:
            check_language_model(source, config, classes_of(CAUSAL, config))
        check_weight_files(source, config)
        check_configuration(source, trust_remote_code=trust_remote_code)
    allowed = Allowed.of(allow_missing, allow_unexpected)
    if source is None and (allowed.missing or allowed.unexpected):
        raise LanguageModelError("allow_missing= and allow_unexpected= go with the folder of a checkpoint")
    options = {
        "context": max_context, "dtype": dtype, "name": name, "target": target,
        "check": check if isinstance(check, bool | str) else [*check], "quantize_embeddings": quantize_embeddings,
        "allowed": astuple(allowed), "tokenizer": tokenizer is not False,
    }  # fmt: skip
    # a later run does not know an object again
    again = source is not None and (tokenizer is None or tokenizer is False)
    words = chosen_tokenizer(tokenizer, source, trust_remote_code=trust_remote_code)
    prompt = _prompt(check, words, max_context)
    with unfinished(place, request_of(source, options) if source is not None and again else uuid4().hex) as work:
        model: Any
        if source is None:
            assert isinstance(folder_or_model, nn.Module)
            model = in_dtype(folder_or_model, dtype)
        else:
            with step("loading the model"):
                purpose = "as a model with a language model"
                model = (
                    loaded(whole, purpose, source, dtype, trust_remote_code, allowed) if whole else
                    load_model(source, dtype, trust_remote_code=trust_remote_code, allowed=allowed)
                )  # fmt: skip
        model, notes = _text_only(model)
        architecture = _architecture(model)
        context = context_of(model, max_context)
        if target == "neural_engine":
            _check_has_static_form(model, architecture)
            context = checked_context(model, context if max_context else default_context(context))
        name = name or str(model.config.model_type)
        with implementations(model):
            decoder = Decoder(model) if target == "gpu" else None
            refusal = engine_refusal([state.grows for state in decoder.states.states]) if decoder is not None else ""
            if refusal:
                warnings.warn(f"{model.config.model_type}: {refusal}", ConversionWarning, stacklevel=2)
            described = description(model, context, name, identifier, (*notes, *([refusal] if refusal else [])))
            work.once("description", lambda: write_description(work.folder, described, words))
            checked = work if check is not False else None
            if decoder is not None:
                program = _dynamic(decoder, context, DTYPES[dtype], step, checked, prompt)
            else:
                program = _static(model, context, quantize_embeddings, step, checked)
        with step("writing the asset") as shown:
            advance = shown if callable(shown) else None
            asset = work.folder / f"{name}.aimodel"
            program.save_asset(asset, metadata=card(source), writer=writer, progress=advance)
    return Bundle(place)


def _dynamic(
    decoder: Decoder, context: int, dtype: torch.dtype, step: Step, work: Unfinished | None, prompt: Sequence[int]
) -> AIProgram:
    """One function with dynamic sizes; compared with the model if there is a folder to record the comparison in."""
    with step("exporting the model"):
        exported = exported_decoder(decoder, context)
    with step("converting the program"):
        program = converted_decoder(exported, decoder)
    if work is not None:
        with step("comparing the program with the model"):
            work.once("comparison", lambda: check_program(program, decoder, prompt, dtype))
    return program


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


def _text_only(model: Any) -> tuple[Any, tuple[str, ...]]:
    """The language model of a model, and a note about what of the model is left out, if it has other parts.

    Raises:
        LanguageModelError: as `text_part`.
    """
    config = getattr(model, "config", None)
    if config is None or not hasattr(config, "get_text_config") or config.get_text_config(decoder=True) is config:
        return model, ()
    part = text_part(model)
    note = f"of {type(model).__name__}, only the language model is converted"
    note += f"; left out: {part.left_out}" if part.left_out else ""
    warnings.warn(note, ConversionWarning, stacklevel=3)
    return part.model, (note,)


def _prompt(check: bool | str | Sequence[int], tokenizer: Any, context: int | None) -> list[int]:
    """The tokens to compare program and model on; none for the built-in ones.

    Raises:
        LanguageModelError: the prompt is empty, longer than the context, or a text without a tokenizer.
    """
    if isinstance(check, bool):
        return []
    if isinstance(check, str) and tokenizer is None:
        raise LanguageModelError("check= is a text, and the bundle has no tokenizer; give token ids")
    prompt = [int(token) for token in (tokenizer(check)["input_ids"] if isinstance(check, str) else check)]
    if not prompt or (context is not None and len(prompt) > context):
        raise LanguageModelError(f"check= is a prompt of {len(prompt)} tokens; it must be of 1 to {context or 'all'}")
    return prompt


def context_of(model: Any, wanted: int | None) -> int:
    """The most tokens of a bundle."""
    config = model.config.get_text_config()
    own = getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", None)
    if wanted is not None and (wanted < _TOTAL or (own is not None and wanted > own)):
        raise LanguageModelError(
            f"max_context is {wanted}; the model takes {_TOTAL} to {own} tokens" if own else
            f"max_context is {wanted}; it must be at least {_TOTAL}"
        )  # fmt: skip
    if wanted is None and own is None:
        raise LanguageModelError("the model's configuration does not say how many tokens it takes; pass max_context=")
    return wanted or int(own or 0)


def _architecture(model: Any) -> Architecture:
    kind = getattr(getattr(model, "config", None), "model_type", None)
    if kind is None or not hasattr(model, "set_attn_implementation"):
        raise LanguageModelError(f"{type(model).__name__} is not a causal language model of transformers")
    own_code = not type(model).__module__.startswith(("transformers.", "patcomp."))
    if kind not in ARCHITECTURES or own_code:
        what = f"code of {type(model).__name__}" if own_code else f"architecture {kind!r}"
        warnings.warn(
            f"the {what} is not tested; compare the bundle with the model on your own prompts",
            ConversionWarning,
            stacklevel=3,
        )
    return ARCHITECTURES.get(kind, Architecture())


def _check_has_static_form(model: Any, architecture: Architecture) -> None:
    if not architecture.has_static_form:
        names = ", ".join(kind for kind, each in ARCHITECTURES.items() if each.has_static_form)
        raise LanguageModelError(
            f"{model.config.model_type!r} has no form for the Neural Engine; these architectures have one: {names}"
        )


def _arguments(decoder: Decoder, new: int, total: int, capacity: int) -> tuple[torch.Tensor, ...]:
    """Example arguments of a decoder, with empty states."""
    return decoder.example(new), torch.arange(total)[None], *decoder.states.zeros(capacity)


def exported_decoder(decoder: Decoder, context: int) -> ExportedProgram:
    """The decoder with dynamic numbers of new tokens and all tokens, and dynamic capacities of growing states."""
    capacity = min(2048, max(context, _TOTAL + 8))
    new, total = Dim("new", min=1, max=context), Dim("total", min=1, max=context)
    open_states = tuple(
        {3: Dim(f"capacity_of_{state.name}", min=1, max=2 * context)} if state.grows else {}
        for state in decoder.states.states
    )
    arguments = _arguments(decoder, _NEW, _TOTAL, capacity)
    return exported_module(decoder, arguments, type(decoder.model).__name__, ({1: new}, {1: total}, open_states))


def converted_decoder(exported: ExportedProgram, decoder: Decoder) -> AIProgram:
    """The program of a decoder."""
    converter = TorchConverter(mode=TorchConverter.Mode.RELEASE)
    with warnings.catch_warnings():
        # the caller keeps the sizes: no more new tokens than tokens, and no more tokens than the caches hold
        warnings.filterwarnings("ignore", "the model was exported for sizes", ConversionWarning)
        converter.add_exported_program(
            exported, input_names=[decoder.takes, POSITIONS], output_names=[LOGITS], state_names=decoder.states.names
        )
        return converter.to_coreai(target="gpu")
