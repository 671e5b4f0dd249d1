"""From a checkpoint folder, or a vision-language model of transformers, to a bundle."""

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
from torch.export import Dim

from patcomp import AIProgram, TorchConverter
from patcomp.compression import CompressionRequest
from patcomp.emit.asset import Writer
from patcomp.emit.toolchain.library import has_toolchain
from patcomp.errors import ConversionWarning
from patcomp.hub import is_hub_id
from patcomp.ir.anonymous import make_anonymous
from patcomp_models.bundle_folders.unfinished import request_of, unfinished
from patcomp_models.checkpoints.agreement import Allowed
from patcomp_models.checkpoints.exporting import exported_module
from patcomp_models.checkpoints.folders import check_class, check_weight_files, checked_folder, weight_files
from patcomp_models.checkpoints.hub import checkpoint_of
from patcomp_models.checkpoints.left_out import names_in, notes_on_weights
from patcomp_models.checkpoints.loading import DTYPES, classes_of, implementations, in_dtype, loaded
from patcomp_models.checkpoints.quantized.formats import format_of
from patcomp_models.errors import LanguageModelError
from patcomp_models.language.asked import context_of
from patcomp_models.language.bundle import Bundle
from patcomp_models.language.compressing import applied, plan_for
from patcomp_models.language.contract import (
    DRAFT,
    EMBEDDING,
    EMBEDDINGS,
    FEATURES,
    MAIN,
    PIXELS,
    TOKENS,
    TOWER,
    VISION,
    engine_refusal,
)
from patcomp_models.language.dynamic_form import Function, dynamic_program, exported
from patcomp_models.language.multi_token import HEAD, load_head
from patcomp_models.language.rotary import check_one_set
from patcomp_models.language.sources import Step
from patcomp_models.language.text_part import text_part
from patcomp_models.language.vision.checking import VisionComparison
from patcomp_models.language.vision.decoder import EmbeddedHead, EmbeddingDecoder, EmbeddingTable
from patcomp_models.language.vision.prompts import image_keys, with_placed_images
from patcomp_models.language.vision.settings import TILES, ImageSettings, processor_of
from patcomp_models.language.vision.tower import Tower
from patcomp_models.language.vision.towers import check_known, tower_of
from patcomp_models.language.writing import card, chosen_tokenizer, description, write_description

_AUTO = "AutoModelForImageTextToText"
_PURPOSE = "as a model of images and text"
_NEW = 16
"""The tokens of the example with which the table of embeddings is exported."""


def convert_vision_language_model(
    folder_or_model: str | Path | nn.Module,
    *,
    out: str | Path,
    image_size: int | None = None,
    max_context: int | None = None,
    dtype: Literal["float16", "bfloat16", "float32"] = "float16",
    name: str | None = None,
    tokenizer: Any = None,
    image_processor: Any = None,
    allow_missing: str | Sequence[str] = (),
    allow_unexpected: str | Sequence[str] = (),
    compress: str | Path | Mapping[str, Any] | None = None,
    draft: Literal["mtp"] | None = None,
    check: bool = True,
    progress: Step | None = None,
    writer: Writer | None = None,
) -> Bundle:
    """Convert a vision-language model to a bundle: the vision tower, the table of embeddings, and the decoder.

    Args:
        folder_or_model: the folder of a checkpoint, an id of the hub, or a model of transformers, which is not changed.
        out: the folder of the bundle, which must not exist.
        image_size: the side of the image, a square, in pixels; by default what the image processor makes, or what the
            architecture is usual with.
        max_context: the most tokens, those of the image and the prompt included; by default the model's own.
        dtype: the type of the weights and the cache. Images are float32; features, embeddings and logits are float16
            for both half types. float32 is for checks.
        name: of the bundle; by default that of the folder.
        tokenizer: a tokenizer of transformers; by default that of the folder. `False` for none.
        image_processor: an image processor of transformers, or its settings as a dict; by default those of the folder.
        allow_missing: names of weights, or patterns, that a folder may lack; they are drawn at random.
        allow_unexpected: names of weights of a folder that the model has no place for; they are left out.
        compress: how small the weights of decoder, table of embeddings and vision tower become, as of
            `convert_language_model`; a budget is of each.
        draft: `"mtp"` makes the function `draft` of the checkpoint's head that foresees tokens (multi-token
            prediction), which takes the output `hidden` that `main` then has.
        check: whether the converted programs are compared with the model on an image and a few tokens, on the
            evaluator, and on the Core AI runtime where it is installed.
        progress: as of `convert_language_model`.
        writer: what writes the assets, `"python"` or `"coreai"`; by default as for `AIProgram.save_asset`.

    Nothing is at `out` until the bundle is complete, and nothing is left after an error.

    Raises:
        LanguageModelError: the vision tower is not known, takes no image of the size, or it is not known how images are
            prepared; the checkpoint is incomplete; or an argument does not fit it.
        UnsupportedError: the model has ops that cannot be converted; the message lists all of them.
    """
    if dtype not in DTYPES:
        raise LanguageModelError(f"dtype is one of {', '.join(DTYPES)}, got {dtype!r}")
    place = Path(out)
    if place.exists():
        raise LanguageModelError(f"{str(place)!r} exists; choose another folder for the bundle, or move it away")
    if draft not in (None, HEAD) or (draft is not None and isinstance(folder_or_model, nn.Module)):
        raise LanguageModelError(
            f"draft= is {HEAD!r} or None here, and {HEAD!r} goes with the folder of a checkpoint; "
            "Bundle.generate(draft=) takes the bundle of a smaller model"
        )
    step: Step = progress or (lambda what: nullcontext())
    allowed = Allowed.of(allow_missing, allow_unexpected)
    source, identifier = None, None
    if not isinstance(folder_or_model, nn.Module):
        with step("downloading the checkpoint") if is_hub_id(folder_or_model) else nullcontext():
            checkpoint = checkpoint_of(folder_or_model)
        source, identifier, name = checkpoint.folder, checkpoint.identifier, name or checkpoint.name
        config = checked_folder(source, trust_remote_code=True)  # code of the folder is never run: see `check_known`
        check_known(config.get("model_type"), str(source))
        check_class(source, {**config, "auto_map": None}, _AUTO, classes_of(_AUTO, config), _PURPOSE)
        check_weight_files(source, config)
    elif allowed.missing or allowed.unexpected:
        raise LanguageModelError("allow_missing= and allow_unexpected= go with the folder of a checkpoint")
    request = None if compress is None else CompressionRequest.of(compress, "gpu")
    settings = _settings(image_processor, source)
    words = chosen_tokenizer(tokenizer, source, trust_remote_code=False)
    options = {
        "kind": VISION, "context": max_context, "dtype": dtype, "name": name, "check": check, "size": image_size,
        "allowed": astuple(allowed), "tokenizer": tokenizer is not False, "settings": astuple(settings),
        "compress": repr(request), "draft": draft,
    }  # fmt: skip
    again = source is not None and (tokenizer is None or tokenizer is False)
    with unfinished(place, request_of(source, options) if source is not None and again else uuid4().hex) as work:
        model: Any
        if source is None:
            assert isinstance(folder_or_model, nn.Module)
            check_known(getattr(getattr(folder_or_model, "config", None), "model_type", None), "the model")
            model = in_dtype(folder_or_model, dtype)
        else:
            with step("loading the model"):
                model = loaded(_AUTO, _PURPOSE, source, dtype, False, allowed)
        name = name or str(model.config.model_type)
        notes = [TILES] if settings.makes_tiles else []
        if source is not None:
            form, files = format_of(source, config), weight_files(source, config)
            notes += notes_on_weights(model, names_in(files, form), takes_head=draft is not None)
        for note in notes:
            warnings.warn(note, ConversionWarning, stacklevel=2)
        with ExitStack() as chosen:
            chosen.enter_context(implementations(model))
            tower = tower_of(model, image_size or settings.size)
            context = context_of(model, max_context)
            check_one_set(model, context, "image")
            if tower.token_count >= context:
                raise LanguageModelError(f"an image takes {tower.token_count} tokens, and max_context is {context}")
            decoder = EmbeddingDecoder(tower, hidden=draft is not None)
            head = None
            if draft is not None:
                assert source is not None
                found = load_head(text_part(model).model, files, form, dtype, str(source))
                chosen.enter_context(implementations(found))
                head = EmbeddedHead(found, tower)
            refusal = engine_refusal([state.grows for state in decoder.states.states], VISION)
            if refusal:
                warnings.warn(f"{model.config.model_type}: {refusal}", ConversionWarning, stacklevel=2)
            programs = _programs(tower, decoder, head, context, step)
            word = None if request is None else request.text
            functions = {role: [role] for role in (MAIN, *([DRAFT] if head is not None else []))}
            notes += [refusal] if refusal else []
            described = description(model, context, name, identifier, notes, functions, word)
            described |= {"kind": VISION, "assets": {role: _file(role, name) for role in (MAIN, EMBEDDING, TOWER)}}
            described[TOWER] = keys = _image_keys(tower, settings, words)
            work.once("description", lambda: write_description(work.folder, described, with_placed_images(words, keys)))
            comparison = VisionComparison(decoder, DTYPES[dtype])
            if check:
                with step("comparing the programs with the model"):
                    work.once("comparison", lambda: comparison.check_programs(programs, head))
        if request is not None:
            with step("compressing the weights"):
                programs = _compressed(programs, request, model.config.get_text_config().vocab_size)
        for role, program in programs.items():
            make_anonymous(program.module)  # a bundle does not tell where its model was
            with step(f"writing the asset {_file(role, name)}") as shown:
                advance = shown if callable(shown) else None
                asset = work.folder / _file(role, name)
                program.save_asset(asset, metadata=card(source), writer=writer, progress=advance)
        if check and has_toolchain():
            with step("comparing the assets with the model"), implementations(model):
                comparison.check_assets(work.folder, described["assets"], None if request is None else programs)
    return Bundle(place)


def _compressed(
    programs: Mapping[str, AIProgram], request: CompressionRequest, vocabulary: int
) -> dict[str, AIProgram]:
    """Programs with smaller weights, by role; a table of embeddings or a tower may have none that the request means."""
    plans = {role: plan_for(program, request, vocabulary) for role, program in programs.items()}
    return {role: applied(plan) if role == MAIN or plan.names else programs[role] for role, plan in plans.items()}


def _settings(image_processor: Any, source: Path | None) -> ImageSettings:
    """The settings of the image processor that the user gives, or of the folder."""
    if image_processor is None and source is not None:
        return ImageSettings.of(processor_of(source))
    if image_processor is None:
        raise LanguageModelError(
            "it is not known how images are prepared for the model; pass image_processor=, an image processor of "
            "transformers or a dict of its settings"
        )
    found = image_processor.to_dict() if hasattr(image_processor, "to_dict") else image_processor
    if not isinstance(found, Mapping):
        raise LanguageModelError(
            f"image_processor= takes an image processor of transformers or a dict of its settings, got "
            f"{type(image_processor).__name__}"
        )
    return ImageSettings.of(found)


def _file(role: str, name: str) -> str:
    """The file of an asset, as Apple's exporter names it."""
    return {MAIN: f"{name}.aimodel", EMBEDDING: "embed.aimodel", TOWER: "vision.aimodel"}[role]


def _image_keys(tower: Tower, settings: ImageSettings, tokenizer: Any) -> dict[str, Any]:
    """The block `vision` of `metadata.json`; Apple's package does not read the keys from `resample` on."""
    return {
        "image_size": tower.size,
        "patch_size": tower.patch_size,
        "image_token_count": tower.token_count,
        "image_token_id": tower.model.config.image_token_id,
        "image_mean": [*settings.mean],
        "image_std": [*settings.std],
        "rescale_factor": settings.rescale,
        "image_strategy": settings.strategy,
        "resample": settings.resample,
        **image_keys(tower.around, tower.model.config.image_token_id, tokenizer),
    }


def _programs(
    tower: Tower, decoder: EmbeddingDecoder, head: EmbeddedHead | None, context: int, step: Step
) -> dict[str, AIProgram]:  # fmt: skip
    """The programs of a bundle, by role."""
    name = type(tower.model).__name__
    tokens = torch.arange(_NEW)[None] % tower.model.config.get_text_config().vocab_size
    with step("exporting the vision tower"):
        seen = exported_module(tower, (torch.zeros(1, 3, tower.size, tower.size),), f"the vision tower of {name}")
    with step("exporting the language model"):
        length = ({1: Dim("new", min=1, max=context)},)
        table = exported_module(EmbeddingTable(tower), (tokens,), f"the embeddings of {name}", length)
        functions = [Function(MAIN, decoder), *([Function(DRAFT, head)] if head is not None else [])]
        asked = [(function, exported(function, context)) for function in functions]
    with step("converting the programs"):
        return {
            TOWER: _converted(seen, PIXELS, FEATURES),
            EMBEDDING: _converted(table, TOKENS, EMBEDDINGS),
            MAIN: dynamic_program(asked),
        }


def _converted(program: Any, given: str, made: str) -> AIProgram:
    """The program of a function with one input and one output."""
    converter = TorchConverter()
    converter.add_exported_program(program, input_names=[given], output_names=[made])
    return converter.to_coreai(target="gpu")
