"""Processors of small models that take images of any shape, and folders with them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from patcomp_models.language import convert_vision_language_model
from patcomp_models.language.bundle import Bundle
from patcomp_models.language.vision.towers import tower_of
from tests.models.language.vision_checkpoints import (
    CONTEXT,
    SIZE,
    checkpoint,
    words,
)

GEMMA = ["<image>", "<|video|>", "<start>", "<end>"]
MUSE = [f"<|{name}|>" for name in ("patch", "video", "image_start", "image_end")]
SPECIAL = {
    "minimax_m3_vl": [f"]<]{name}[>[" for name in ("image", "video", "start of image", "end of image")],
    "cohere_compass": [f"<|{name}|>" for name in ("IMAGE_PAD", "VIDEO_PAD", "VISION_START", "VISION_END")],
    "dots3_note": ["<|imgpad|>", "<|video_pad|>", "<start>", "<end>"],
    "gemma4": GEMMA,
    "idefics2": ["<image>", "<video>", "<fake_token_around_image>", "<end_of_utterance>"],
    "gemma4_unified": GEMMA,
    "muse_glimmer": MUSE,
    "muse_spark": MUSE,
}
"""The tokens of processors that do not read them of the tokenizer."""
PROCESSORS = {
    "cosmos3_omni": "Qwen3VLProcessor", "glm_ocr": "Glm46VProcessor", "glmga": "Glm46VProcessor",
}  # fmt: skip
"""The processors that folders name, and transformers' table of types does not."""
IMAGES = {
    "glm_ocr": "Glm46VImageProcessor",
    "glm4v_moe": "Glm4vImageProcessor",
    "qwen3_vl_moe": "Qwen2VLImageProcessor",
}
VIDEOS = {"glm_ocr": "Glm46VVideoProcessor", "glm4v_moe": "Glm4vVideoProcessor"}
SOUNDS = {"dots3_note": "Dots3NoteFeatureExtractor", "muse_spark": "MuseSparkFeatureExtractor"}
FURTHER = {
    "lfm2_vl": "image_thumbnail_token",
    "mistral3": "image_break_token",
    "mistral_large4": "image_break_token",
    "lighton_ocr": "image_break_token",
}
"""A further token that a processor reads."""
PLACES = ("_start", "_end")
FILMS = ("<|begin_of_video|>", "<|end_of_video|>")
"""The tokens around a video of GLM."""
TOKEN_NAMES = {
    "qwen3": {"vision_start_token": "<start>", "vision_end_token": "<end>"},
    "idefics2": {"image_boundary_token": "<fake_token_around_image>"},
    "gemma": {
        "boi_token": "<start>", "eoi_token": "<end>", "boa_token": "word6", "eoa_token": "word7",
        "audio_token": "word8",
    },
    "minicpm": {
        "slice_start_token": "<s>", "slice_end_token": "</s>", "image_id_start_token": "word6",
        "image_id_end_token": "word7",
    },
}  # fmt: skip
"""Further names of tokens that processors read, by the beginning of the type."""
PICTURES = {"gemma": [(64, 100), (100, 64)], "minicpm": [(48, 64), (50, 30)]}
"""Height and width of pictures of which a processor makes other shapes."""
SHAPES_OF = {
    "gemma4": [(96, 160), (160, 96)],
    "gemma4_unified": [(48, 80), (80, 48)],
    "minicpmv4_6": [(48, 32)],
    "minicpm_ocr": [(24, 32), (40, 24)],
}
"""These shapes, beside the square."""


def of_type(known: Mapping[str, Any], kind: str, default: Any) -> Any:
    """What is known of a type by its beginning."""
    return next((value for start, value in known.items() if kind.startswith(start)), default)


def processor(kind: str) -> Any:
    """A processor of images of the sizes here."""
    import transformers as tf
    from transformers.models.auto.feature_extraction_auto import FEATURE_EXTRACTOR_MAPPING_NAMES as SOUNDS_OF
    from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING_NAMES as IMAGES_OF
    from transformers.models.auto.processing_auto import PROCESSOR_MAPPING_NAMES as PROCESSORS_OF
    from transformers.models.auto.video_processing_auto import VIDEO_PROCESSOR_MAPPING_NAMES as VIDEOS_OF

    special = SPECIAL.get(kind, ["<image>", "<video>", "<start>", "<end>"])
    names = dict(zip(("image_token", "video_token", "image_start_token", "image_end_token"), special, strict=True))
    if further := FURTHER.get(kind):
        names[further] = "<further>"
        special = [*special, "<further>"]
    names |= of_type(TOKEN_NAMES, kind, {})
    special = [*special, *(FILMS if kind.startswith("glm") else ())]
    if kind == "ernie4_5_vl_moe":
        names = {f"{part}{place}_token": f"<{part}{place}>" for part in ("image", "video") for place in ("", *PLACES)}
        names |= {"image_start_token": "<start>", "image_end_token": "<end>"}
        ids = checkpoint(kind).config
        special = [names[name] for name in sorted(names, key=lambda name: getattr(ids, f"{name}_id"))]
    sound = ["<sound>"] if kind in SOUNDS else []  # at the place of the small models' token of sounds
    tokenizer = tf.PreTrainedTokenizerFast(
        tokenizer_object=words(special[1], *sound, *special[2:], image=special[0])._tokenizer,
        unk_token="<unk>", eos_token="</s>", pad_token="<s>", extra_special_tokens=names,
    )  # fmt: skip
    if kind == "lfm2_vl":
        images = tf.Lfm2VlImageProcessor(
            encoder_patch_size=8, tile_size=SIZE, min_image_tokens=1, max_image_tokens=9, downsample_factor=2,
            do_image_splitting=False,
        )  # fmt: skip
        return tf.Lfm2VlProcessor(images, tokenizer)
    if kind == "idefics2":
        size = {"shortest_edge": 16, "longest_edge": 48}
        return tf.Idefics2Processor(tf.Idefics2ImageProcessorPil(size=size), tokenizer, image_seq_len=4)
    tower = tower_of(checkpoint(kind), SIZE)
    own: dict[str, Any] = {"patch_size": tower.vision.patch_size}
    if kind.startswith("gemma4"):
        own |= {"pooling_kernel_size": tower.vision.pooling_kernel_size, "max_soft_tokens": 70}
        return getattr(tf, PROCESSORS_OF[kind])(
            getattr(tf, SOUNDS_OF[kind])(), getattr(tf, IMAGES_OF[kind]["torchvision"])(**own), tokenizer,
            getattr(tf, VIDEOS_OF[kind]["torchvision"])(),
        )  # fmt: skip
    if kind.startswith("minicpm"):
        own |= {"scale_resolution": SIZE, "downsample_mode": tower.model.config.downsample_mode}
    if kind == "nemotron_h_omni":
        own |= {"min_num_patches": 4, "max_num_patches": 64}
    if kind.startswith(("minicpm", "nemotron")):
        sounds = [tf.ParakeetFeatureExtractor()] if kind == "nemotron_h_omni" else []
        return getattr(tf, PROCESSORS_OF[kind])(
            getattr(tf, IMAGES_OF[kind]["torchvision"])(**own), getattr(tf, VIDEOS_OF[kind]["torchvision"])(),
            tokenizer, *sounds,
        )  # fmt: skip
    if kind in ("mistral3", "mistral_large4", "lighton_ocr"):
        side, merged = tower.patch_size, tower.unit // tower.patch_size
        images = tf.PixtralImageProcessor(patch_size={"height": side, "width": side}, size={"longest_edge": 64})
        own = {name: names[name] for name in ("image_token", "image_break_token", "image_end_token")}
        return getattr(tf, PROCESSORS_OF[kind])(
            images, tokenizer, patch_size=side, spatial_merge_size=merged, **(own if kind != "lighton_ocr" else {})
        )
    layout = {
        "patch_size": tower.patch_size, "merge_size": tower.unit // tower.patch_size,
        "temporal_patch_size": getattr(tower.vision, "temporal_patch_size", getattr(tower.vision, "patch_temporal", 1)),
        "size": {"shortest_edge": 16 * 16, "longest_edge": 64 * 64},
    }  # fmt: skip
    if kind == "kimi_k25":
        layout["size"] = {"max_height": 64, "max_width": 64}
    if kind in ("cosmos3_edge", "paddleocr_vl", "kimi_k25"):
        del layout["temporal_patch_size"]
    images = getattr(tf, IMAGES.get(kind) or IMAGES_OF[kind]["torchvision"])(**layout)
    make = getattr(tf, PROCESSORS.get(kind) or PROCESSORS_OF[kind])
    if kind in ("paddleocr_vl", "hunyuan_vl"):
        return make(images, tokenizer)
    layout["size"] = {"shortest_edge": 16 * 16, "longest_edge": 16 * 64 * 64}  # of all frames
    if kind == "ernie4_5_vl_moe":
        layout |= {"draw_on_frames": False, "temporal_patch_size": 2}
    if kind.startswith("glm"):
        layout["max_image_size"] = layout["size"]
    videos = getattr(tf, VIDEOS.get(kind) or VIDEOS_OF[kind]["torchvision"])(**layout, do_sample_frames=False)
    sounds = {"feature_extractor": getattr(tf, SOUNDS[kind])()} if kind in SOUNDS else {}
    return make(image_processor=images, tokenizer=tokenizer, video_processor=videos, **sounds)


def converted(kind: str, path: Path, **options: Any) -> tuple[Any, Bundle]:
    """The model and its bundle, from a folder with the processor."""
    model: Any = checkpoint(kind)
    model.save_pretrained(path / "folder")
    processor(kind).save_pretrained(path / "folder")
    return model, convert_vision_language_model(
        path / "folder", out=path / "bundle", dtype="float32", max_context=CONTEXT, **options
    )
