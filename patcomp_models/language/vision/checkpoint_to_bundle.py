"""From a checkpoint folder, or a vision-language model of transformers, to a bundle."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import astuple, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import torch
from torch import nn
from torch.export import Dim, ExportedProgram

from patcomp import AIProgram, TorchConverter
from patcomp.compression import CompressionRequest
from patcomp.emit.toolchain.library import has_toolchain
from patcomp.errors import ConversionWarning
from patcomp.hub import is_hub_id
from patcomp.ir.anonymous import make_anonymous
from patcomp.options import takes
from patcomp_models.bundle_folders.contract import PROCESSOR
from patcomp_models.bundle_folders.unfinished import Unfinished, request_of, unfinished
from patcomp_models.checkpoints.agreement import Allowed
from patcomp_models.checkpoints.exporting import exported_module
from patcomp_models.checkpoints.folders import check_class, check_weight_files, checked_folder, weight_files
from patcomp_models.checkpoints.hub import checkpoint_of
from patcomp_models.checkpoints.left_out import names_in, notes_on_weights
from patcomp_models.checkpoints.loading import DTYPES, classes_of, export_implementations, in_dtype, loaded
from patcomp_models.checkpoints.quantized.formats import format_of
from patcomp_models.checkpoints.quantized.formats.base import Format
from patcomp_models.errors import LanguageModelError
from patcomp_models.language.asked import context_of
from patcomp_models.language.bundle import Bundle
from patcomp_models.language.compressing import plans_for
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
from patcomp_models.language.dynamic_form import BundleFunction, dynamic_program, exported_function
from patcomp_models.language.hearing import HEARD, SOUND, rate_of
from patcomp_models.language.held_out import HeldOut
from patcomp_models.language.multi_token import HEAD, load_head
from patcomp_models.language.quality import all_applied
from patcomp_models.language.request import allowed_by, check_dtype, check_place, step_of
from patcomp_models.language.rotary import check_one_set
from patcomp_models.language.text_part import text_part
from patcomp_models.language.vision.checking import VisionComparison
from patcomp_models.language.vision.decoder import EmbeddedHead, EmbeddingDecoder, EmbeddingTable
from patcomp_models.language.vision.moments import AS_TILES, VIDEO, video_function
from patcomp_models.language.vision.packed import PACKED
from patcomp_models.language.vision.pictures import PATCHES, loaded_processor
from patcomp_models.language.vision.prompts import LINES, has_lines, image_keys, with_placed_images
from patcomp_models.language.vision.settings import TILES, TILES_HERE, ImageSettings, makes_tiles, settings_of
from patcomp_models.language.vision.shapes import (
    HEIGHT,
    IMAGE_PARTS,
    IMAGE_SHAPES,
    ONE_SHAPE,
    TOKEN_COUNT,
    WIDTH,
    function_name,
    shapes_in,
)
from patcomp_models.language.vision.sounds import SOUNDS, SoundEncoder, sound_of
from patcomp_models.language.vision.thinkers import NOTE, THINKERS, is_whole
from patcomp_models.language.vision.tower import Tower
from patcomp_models.language.vision.towers import TOWERS, check_known, tower_of
from patcomp_models.language.vision.videos import AS_IMAGES, check_videos, moment_inputs, video_keys
from patcomp_models.language.writing import card, chosen_tokenizer, description, write_description
from patcomp_models.options import Progress, VisionOptions

_AUTO = "AutoModelForImageTextToText"
_PURPOSE = "as a model of images and text"
_NEW = 16
"""The tokens of the example with which the table of embeddings is exported."""


@takes(VisionOptions)
def convert_vision_language_model(options: VisionOptions) -> Bundle:
    """Convert a vision-language model to a bundle: the vision tower, the table of embeddings, and the decoder.

    Nothing is at `out` until the bundle is complete, and nothing is left after an error.

    Raises:
        LanguageModelError: the vision tower is not known, takes no image of the size, or it is not known how images are
            prepared; the checkpoint is incomplete; or an argument does not fit it.
        UnsupportedError: the model has ops that cannot be converted; the message lists all of them.
    """
    request = _Request.of(options)
    with unfinished(Path(options.out), request.key) as work:
        model = request.loaded()
        name = request.name or str(model.config.model_type)
        notes = request.notes_on(model)
        for note in notes:
            warnings.warn(note, ConversionWarning, stacklevel=3)
        with export_implementations(model):
            _write(request, model, name, notes, work)
    return Bundle(Path(options.out))


@dataclass(frozen=True)
class _Request:
    """A conversion of a vision-language model, before anything is loaded.

    Attributes:
        options: of the user.
        folder: of the checkpoint; None for a model that is given.
        identifier: of the checkpoint: its path or id.
        name: of the bundle, if it is known.
        config: of the checkpoint.
        allowed: how the weights of the folder may differ from the model's.
        compression: how small the weights become.
        settings: how images are prepared.
        tokenizer: of transformers, or None.
        processor: of images and text, of a folder whose processor makes tiles; or None.
    """

    options: VisionOptions
    folder: Path | None
    identifier: str | None
    name: str | None
    config: dict[str, Any]
    allowed: Allowed
    compression: CompressionRequest | None
    settings: ImageSettings
    tokenizer: Any
    processor: Any

    @classmethod
    def of(cls, options: VisionOptions) -> Self:
        check_dtype(options)
        check_place(options)
        given, draft = options.folder_or_model, options.draft
        if draft not in (None, HEAD) or (draft is not None and isinstance(given, nn.Module)):
            raise LanguageModelError(
                f"draft= is {HEAD!r} or None here, and {HEAD!r} goes with the folder of a checkpoint; "
                "Bundle.generate(draft=) takes the bundle of a smaller model"
            )
        folder, identifier, name, config = None, None, options.name, {}
        if not isinstance(given, nn.Module):
            with step_of(options)("downloading the checkpoint") if is_hub_id(given) else nullcontext():
                checkpoint = checkpoint_of(given)
            folder, identifier, name = checkpoint.folder, checkpoint.identifier, name or checkpoint.name
            config = checked_folder(folder, trust_remote_code=True)  # its code is never run: see `check_known`
            if not is_whole(config):
                check_known(config.get("model_type"), str(folder))
                check_class(folder, {**config, "auto_map": None}, _AUTO, classes_of(_AUTO, config), _PURPOSE)
            check_weight_files(folder, config)
        if options.calibrate is not None and options.compress is None:
            raise LanguageModelError("calibrate= goes with compress=")
        allowed = allowed_by(options, folder)
        compression = None if options.compress is None else CompressionRequest.of(options.compress, "gpu")
        settings = settings_of(options.image_processor, folder)
        tokenizer = chosen_tokenizer(options.tokenizer, folder, trust_remote_code=False)
        own = folder if options.image_processor is None else None  # the folder's prepares images in another way
        kind = str(config.get("model_type"))
        processor = _processor(own, settings, THINKERS[kind][0] if is_whole(config) else kind)
        if processor is not None:  # its own settings come before those of its image processor
            asked = {**processor.image_processor.to_dict(), **getattr(processor, "images_kwargs", {})}
            settings = replace(settings, makes_tiles=makes_tiles(asked))
        return cls(options, folder, identifier, name, config, allowed, compression, settings, tokenizer, processor)

    @property
    def key(self) -> str:
        """What determines the bundle; an interrupted conversion with the same key goes on."""
        own = self.options
        # a later run does not know an object again
        if self.folder is None or not (own.tokenizer is None or own.tokenizer is False):
            return uuid4().hex
        facts = {
            "kind": VISION, "context": own.max_context, "dtype": own.dtype, "name": self.name, "check": own.check,
            "size": own.image_size, "allowed": astuple(self.allowed), "tokenizer": own.tokenizer is not False,
            "settings": astuple(self.settings), "compress": repr(self.compression), "draft": own.draft,
            "shapes": shapes_in(own.image_shapes), "videos": shapes_in(own.video_shapes),
        }  # fmt: skip
        return request_of(self.folder, facts)

    def loaded(self) -> Any:
        """The model, in eval mode; one that is given is not changed."""
        if self.folder is not None:
            with step_of(self.options)("loading the model"):
                auto = THINKERS[self.config["model_type"]][1] if is_whole(self.config) else _AUTO
                return loaded(auto, _PURPOSE, self.folder, self.options.dtype, False, self.allowed)
        given: Any = self.options.folder_or_model
        check_known(getattr(getattr(given, "config", None), "model_type", None), "the model")
        return in_dtype(given, self.options.dtype)

    def stored(self) -> tuple[Format | None, list[Path]]:
        """How the weights of the folder are stored, if they are in few bits, and their files."""
        assert self.folder is not None
        return format_of(self.folder, self.config), weight_files(self.folder, self.config)

    def notes_on(self, model: Any) -> list[str]:
        """What a user of the bundle must know."""
        notes = [TILES if self.processor is None else TILES_HERE] if self.settings.makes_tiles else []
        notes += [NOTE] if is_whole(self.config) else []
        if self.folder is not None:
            form, files = self.stored()
            notes += notes_on_weights(model, names_in(files, form), taken=int(self.options.draft is not None))
        return notes


def _write(request: _Request, model: Any, name: str, notes: list[str], work: Unfinished) -> None:
    """Convert the programs of a model, compare them with it, and write them with what describes them.

    Raises:
        LanguageModelError: an image takes all tokens.
    """
    options, step = request.options, step_of(request.options)
    settings = request.settings
    tower = tower_of(model, options.image_size or settings.size, fine=settings.fine)
    further = [*shapes_in(options.image_shapes), *([(settings.part, settings.part)] if settings.part else [])]
    towers = [tower, *(tower_of(model, each, fine=settings.fine) for each in further if each != tower.shape)]
    context = context_of(model, options.max_context)
    check_one_set(model, context, "image")
    shapes = shapes_in(options.video_shapes)
    video = check_videos(model.config.model_type) if shapes else None
    filmed = [tower_of(model, each) for each in shapes]
    if (most := max(each.token_count for each in (*towers, *filmed))) >= context:
        raise LanguageModelError(f"an image takes {most} tokens, and max_context is {context}")
    decoder = EmbeddingDecoder(tower, hidden=options.draft is not None)
    with ExitStack() as chosen:
        head = None if options.draft is None else _head(request, model, tower, chosen)
        refusal = engine_refusal([state.grows for state in decoder.states.states], VISION)
        if refusal:
            warnings.warn(f"{model.config.model_type}: {refusal}", ConversionWarning, stacklevel=4)
        sound = sound_of(tower)
        programs = _programs(towers, filmed, sound, decoder, head, context, step)
        functions = {role: [role] for role in (MAIN, *([DRAFT] if head is not None else []))}
        word = None if request.compression is None else request.compression.text
        keys = _image_keys(towers, settings, request.tokenizer)
        notes = [*notes, *([refusal] if refusal else []), *([LINES] if has_lines(keys) else [])]
        described = description(model, context, name, request.identifier, notes, functions, word)
        described |= {"kind": VISION, "assets": {role: _file(role, name) for role in programs}}
        described[TOWER] = keys
        if sound is not None:
            described[SOUND] = sound.row.keys(model.config, rate_of(request.processor))
        if video is not None:
            keys[VIDEO] = video_keys(filmed, video, model.config)
        if tower.takes_patches and (video is not None or request.processor is not None):
            keys[PATCHES] = tower.layout
        if request.processor is not None:
            keys[PROCESSOR] = PROCESSOR
            if model.config.model_type in AS_IMAGES:
                keys[VIDEO] = {AS_TILES: True}
            if tower.packs:
                keys[PACKED] = True
            parts = [request.processor, *([model.config] if tower.packs else [])]
            work.once("processor", lambda: [part.save_pretrained(work.folder / PROCESSOR) for part in parts])
        words = with_placed_images(request.tokenizer, keys)
        work.once("description", lambda: write_description(work.folder, described, words))
        comparisons = [
            VisionComparison(decoder, each, DTYPES[options.dtype], sound if each is tower else None) for each in towers
        ] + [VisionComparison(decoder, each, DTYPES[options.dtype], video=video) for each in filmed]
        if options.check:
            with step("comparing the programs with the model"):
                for each in comparisons:
                    work.once(f"comparison of {each.function}", partial(each.check_programs, programs, head))
    if request.compression is not None:
        with step("compressing the weights"):
            read = None if options.calibrate is None else HeldOut.of(options.calibrate, programs, work.folder)
            plans = plans_for(programs, request.compression, model.config.get_text_config().vocab_size, read)
            programs = all_applied(plans)
    for role, program in programs.items():
        make_anonymous(program.module)  # a bundle does not tell where its model was
        with step(f"writing the asset {_file(role, name)}") as shown:
            advance = shown if callable(shown) else None
            asset = work.folder / _file(role, name)
            program.save_asset(asset, metadata=card(request.folder), writer=options.writer, progress=advance)
    if options.check and has_toolchain():
        with step("comparing the assets with the model"):
            for each in comparisons:
                each.check_assets(work.folder, described["assets"], None if request.compression is None else programs)


def _head(request: _Request, model: Any, tower: Tower, chosen: ExitStack) -> EmbeddedHead:
    """The checkpoint's head that foresees tokens."""
    form, files = request.stored()
    found = load_head(text_part(model).model, files, form, request.options.dtype, str(request.folder))
    chosen.enter_context(export_implementations(found))
    return EmbeddedHead(found, tower)


def _processor(folder: Path | None, settings: ImageSettings, kind: str) -> Any:
    """The processor that makes images of several shapes, or tiles, for a bundle; None, with a warning of the reason, if
    the folder has none."""
    if folder is None:
        return None
    tower = TOWERS[kind]
    if not (tower.takes_shapes or tower.has_tiles or kind in SOUNDS):
        return None
    try:
        return loaded_processor(folder)
    except LanguageModelError as error:
        if tower.takes_shapes or settings.makes_tiles:
            warnings.warn(f"{error}; Bundle.generate makes one image of each picture", ConversionWarning, stacklevel=5)
        return None


def _file(role: str, name: str) -> str:
    """The file of an asset, as Apple's exporter names it."""
    files = {MAIN: f"{name}.aimodel", EMBEDDING: "embed.aimodel", TOWER: "vision.aimodel", SOUND: "audio.aimodel"}
    return files[role]


def _image_keys(towers: Sequence[Tower], settings: ImageSettings, tokenizer: Any) -> dict[str, Any]:
    """The block `vision` of `metadata.json`; Apple's package does not read the keys from `resample` on."""
    tower, *others = towers
    shapes = {
        function_name(each.shape, tower.size): {
            HEIGHT: each.shape[0],
            WIDTH: each.shape[1],
            TOKEN_COUNT: each.token_count,
        }
        for each in others
    }
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
        **({IMAGE_SHAPES: shapes} if tower.takes_shapes else {IMAGE_PARTS: shapes} if shapes else {}),
        **({ONE_SHAPE: True} if tower.takes_one_shape else {}),
        **image_keys(tower.around, tower.model.config.image_token_id, tokenizer, tower.grid),
    }


def _programs(
    towers: Sequence[Tower], filmed: Sequence[Tower], sound: SoundEncoder | None, decoder: EmbeddingDecoder,
    head: EmbeddedHead | None, context: int, step: Progress,
) -> dict[str, AIProgram]:  # fmt: skip
    """The programs of a bundle, by role."""
    tower = towers[0]
    name = type(tower.model).__name__
    tokens = torch.arange(_NEW)[None] % tower.model.config.get_text_config().vocab_size
    with step("exporting the vision tower"):
        read = {function_name(each.shape, tower.size): {PIXELS: torch.zeros(1, 3, *each.shape)} for each in towers}
        read |= {video_function(each.shape): moment_inputs(each) for each in filmed}
        seen = {
            function: (exported_module(each, tuple(given.values()), f"the vision tower of {name}"), [*given])
            for each, (function, given) in zip((*towers, *filmed), read.items(), strict=True)
        }
    heard = {}
    if sound is not None:
        with step("exporting the encoder of sound"):
            exported = exported_module(sound, sound.window, f"the encoder of sound of {name}")
            heard[SOUND] = _converted({SOUND: (exported, [*sound.example])}, HEARD)
    with step("exporting the language model"):
        length = ({1: Dim("new", min=1, max=context)},)
        table = exported_module(EmbeddingTable(tower), (tokens,), f"the embeddings of {name}", length)
        functions = [BundleFunction(MAIN, decoder), *([BundleFunction(DRAFT, head)] if head is not None else [])]
        asked = [(function, exported_function(function, context)) for function in functions]
    with step("converting the programs"):
        return {
            TOWER: _converted(seen, FEATURES),
            **heard,
            EMBEDDING: _converted({MAIN: (table, [TOKENS])}, EMBEDDINGS),
            MAIN: dynamic_program(asked),
        }


def _converted(functions: Mapping[str, tuple[ExportedProgram, list[str]]], made: str) -> AIProgram:
    """The program of functions, with the names of their inputs, and one output; it has each weight once."""
    converter = TorchConverter()
    for name, (function, given) in functions.items():
        converter.add_exported_program(function, input_names=given, output_names=[made], entrypoint_name=name)
    return converter.to_coreai(target="gpu")
