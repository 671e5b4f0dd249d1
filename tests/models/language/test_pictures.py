"""Pictures of different shapes: the tokens of a bundle are those of transformers' processor and `generate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from patcomp_models.bundle_folders.contract import PROCESSOR
from patcomp_models.language import LanguageModelError, convert_vision_language_model
from patcomp_models.language.bundle import Bundle
from patcomp_models.language.vision.generating import expanded_prompt
from patcomp_models.language.vision.prompts import image_keys, placed
from patcomp_models.language.vision.towers import TOWERS, tower_of
from tests.models.language.vision_checkpoints import (
    CONTEXT,
    IMAGE_TOKEN,
    NAMED,
    SIZE,
    SPECIAL,
    SQUARE,
    checkpoint,
    picture,
    words,
)
from tests.models.language.vision_types import CANVASES

NEW = 6
SHAPES = (64, 48), (30, 50)
LARGE = (180, 100), (90, 70)
"""Pictures with 2 parts, and without any."""
AYA = ("<picture>", "<|START_OF_IMG|>", "<|END_OF_IMG|>", "TILE", "TILE_GLOBAL")
COHERE = ("<|START_OF_IMG|>", "<|END_OF_IMG|>", "<|IMG_LINE_BREAK|>")
PLACEHOLDERS = {"aya_vision": "<picture>", "llama4": "<|image|>", "gemma3": "<start_of_image>", "got_ocr2": "<imgpad>"}
PATCHES = {"llama4": "<|patch|>", "got_ocr2": "<imgpad>", "ovis2": "<IMG_ATOM>"}
"""The names of image tokens that are not `<image>`."""
PACKED = ("llava_next", "llava_next_video", "llava_onevision", "granite4_vision")
LLAMA = ("<|image|>", "<|image_start|>", "<|image_end|>", "<|tile_x_separator|>", "<|tile_y_separator|>")
GOT = ("<img>", "</img>")
OVIS = ("<IMG_START>", "<IMG_GRID>", "<IMG_COL>", "<IMG_ROW>", "<IMG_END>")
DOCLING = ("<fake_token_around_image>", "<global-img>")
VIEWS, FINE = "deepseek_ocr2 of two views", "granite_docling, fine"
KINDS = ("idefics3", "smolvlm", "internvl", "aya_vision", "cohere2_vision", "llama4", "granite_docling", FINE,
         "perception_lm", "got_ocr2", "qianfan_ocr", "ovis2", "gemma3", VIEWS, *PACKED)  # fmt: skip


def processor(kind: str) -> Any:
    """A processor that makes tiles of 32 x 32 with 4 tokens each."""
    import transformers as tf

    special = {
        "smolvlm": SPECIAL["idefics3"], "aya_vision": AYA, "cohere2_vision": COHERE, "llama4": LLAMA,
        "gemma3n": SPECIAL["gemma3"],
        "granite_docling": DOCLING, FINE: DOCLING, "got_ocr2": GOT, "qianfan_ocr": GOT, "ovis2": OVIS, **SPECIAL,
    }  # fmt: skip
    names = NAMED | {"img_line_break_token": COHERE[2]}
    if kind == "gemma3n":
        names |= {"audio_token": "word8", "boa_token": "word9", "eoa_token": "word10"}
    if kind == "cohere2_vision":
        names |= {"boi_token": COHERE[0], "eoi_token": COHERE[1]}
    further = ["<video>"] if kind in ("internvl", "perception_lm", "llava_next_video", "llava_onevision") else []
    tokens = ["<image>", *special.get(kind, ()), *further]
    named = {name: token for name, token in names.items() if token in tokens or token.startswith("word")}
    # the names are stored with the tokenizer, as in the folders of the hub
    tokenizer = tf.PreTrainedTokenizerFast(
        tokenizer_object=words(*tokens[1:], image=PATCHES.get(kind, "<image>"))._tokenizer,
        unk_token="<unk>", eos_token="</s>", pad_token="<s>", extra_special_tokens=named,
    )  # fmt: skip
    cropped: dict[str, Any] = {"size": SQUARE, "crop_to_patches": True, "min_patches": 1, "max_patches": 6}
    if kind in ("idefics3", "smolvlm"):
        name = {"idefics3": "Idefics3", "smolvlm": "SmolVLM"}[kind]
        options: dict[str, Any] = {"size": {"longest_edge": 2 * SIZE}, "max_image_size": {"longest_edge": SIZE}}
        images = getattr(tf, f"{name}ImageProcessorPil")(**options, do_image_splitting=True)
        if kind == "idefics3":
            return tf.Idefics3Processor(images, tokenizer, image_seq_len=4)
        return tf.SmolVLMProcessor(images, tokenizer, tf.SmolVLMVideoProcessor(), image_seq_len=4)
    if kind == "internvl":
        images = tf.GotOcr2ImageProcessorPil(**cropped)
        return tf.InternVLProcessor(images, tokenizer, tf.InternVLVideoProcessor(), image_seq_length=4)
    if kind == "aya_vision":
        return tf.AyaVisionProcessor(
            tf.GotOcr2ImageProcessorPil(**cropped), tokenizer, patch_size=8, img_size=SIZE, downsample_factor=2,
            image_token="<picture>", img_patch_token="<image>",
        )  # fmt: skip
    if kind == "cohere2_vision":
        return tf.Cohere2VisionProcessor(tf.Cohere2VisionImageProcessor(**cropped, patch_size=2), tokenizer)
    if kind == "llama4":
        return tf.Llama4Processor(tf.Llama4ImageProcessor(size=SQUARE, max_patches=6), tokenizer, patch_size=8)
    if kind in ("granite_docling", FINE):
        images = tf.GraniteDoclingImageProcessorPil(**cropped, fine_route=kind == FINE)
        return tf.GraniteDoclingProcessor(images, tokenizer, image_seq_len=4)
    if kind == "got_ocr2":
        return tf.GotOcr2Processor(tf.GotOcr2ImageProcessorPil(**cropped), tokenizer)
    if kind == "qianfan_ocr":
        return tf.QianfanOCRProcessor(tf.GotOcr2ImageProcessorPil(**cropped), tokenizer, image_seq_length=4)
    if kind == "ovis2":
        return tf.Ovis2Processor(tf.Ovis2ImageProcessorPil(**cropped), tokenizer, image_seq_length=16)
    if kind == "gemma3":
        images = tf.Gemma3ImageProcessorPil(
            size=SQUARE, do_pan_and_scan=True, pan_and_scan_min_crop_size=8, pan_and_scan_max_num_crops=3,
            pan_and_scan_min_ratio_to_activate=1.1,
        )  # fmt: skip
        return tf.Gemma3Processor(images, tokenizer, image_seq_length=4)
    if kind == "gemma3n":
        images = tf.SiglipImageProcessorPil(size=SQUARE)
        return tf.Gemma3nProcessor(tf.Gemma3nAudioFeatureExtractor(), images, tokenizer, image_seq_length=4)
    if kind == VIEWS:
        images = tf.DeepseekOcr2ImageProcessorPil(size={"height": 128, "width": 128}, tile_size=96)
        return tf.DeepseekOcr2Processor(images, tokenizer, patch_size=2)
    if kind == "perception_lm":
        images = tf.PerceptionLMImageProcessor(tile_size=SIZE, max_num_tiles=4)
        return tf.PerceptionLMProcessor(tf.PerceptionLMVideoProcessor(), images, tokenizer, patch_size=8)
    canvases = {"image_grid_pinpoints": CANVASES, "size": SQUARE, "crop_size": SQUARE}
    if kind == "llava_onevision":
        return tf.LlavaOnevisionProcessor(
            tf.LlavaOnevisionImageProcessorPil(**canvases), tokenizer, tf.LlavaOnevisionVideoProcessor(),
            num_image_tokens=16, vision_feature_select_strategy="full", vision_aspect_ratio="anyres_max_2",
        )  # fmt: skip
    images = tf.LlavaNextImageProcessorPil(**canvases)
    if kind == "granite4_vision":
        return tf.Granite4VisionProcessor(
            images, tokenizer, patch_size=8, vision_feature_select_strategy="full", downsample_rate="1/2"
        )
    options = {"patch_size": 8, "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1}
    if kind == "llava_next":
        return tf.LlavaNextProcessor(images, tokenizer, **options)
    return tf.LlavaNextVideoProcessor(tf.LlavaNextVideoVideoProcessor(), images, tokenizer, **options)


def converted(kind: str, path: Path) -> tuple[Any, Bundle]:
    """The model and its bundle, from a folder with the processor."""
    model: Any = checkpoint(kind.partition(",")[0])
    model.save_pretrained(path / "folder")
    processor(kind).save_pretrained(path / "folder")
    return model, convert_vision_language_model(
        path / "folder", out=path / "bundle", dtype="float32", max_context=CONTEXT, check=False
    )


@pytest.mark.filterwarnings("ignore::patcomp.errors.ConversionWarning")
@pytest.mark.parametrize(
    "kind",
    [
        kind if kind in ("idefics3", "llava_next", "got_ocr2") else pytest.param(kind, marks=pytest.mark.slow)
        for kind in KINDS
    ],
)
def test_two_shapes(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each picture alone, and both in one prompt."""
    pytest.importorskip("coreai")
    if kind in ("got_ocr2", "gemma3"):  # whose processors make tiles when a call asks for them
        import transformers

        monkeypatch.setattr(transformers.Gemma3Processor, "images_kwargs", {"do_pan_and_scan": True})
        monkeypatch.setattr(transformers.GotOcr2Processor, "images_kwargs", {"crop_to_patches": True})
        monkeypatch.setattr(transformers.GotOcr2Processor, "num_image_tokens", 1)
    if kind == "smolvlm":
        pytest.importorskip("num2words")  # which its processor needs
    model, bundle = converted(kind, tmp_path)
    assert bundle.metadata["vision"][PROCESSOR] == PROCESSOR
    make, place = processor(kind), PLACEHOLDERS.get(kind, "<image>")
    one, two = (picture(*shape) for shape in (LARGE if kind == VIEWS else SHAPES))
    counts = []
    for images in ([one], [two], [one, two]):
        text = f"word5 {' word6 '.join([place] * len(images))} word7 word8"
        given = make(text=[text], images=images, return_tensors="pt")
        given.pop("num_patches", None)
        given["pixel_values"] = given["pixel_values"].to(model.dtype)  # bfloat16 of Llama 4's processor
        length = given["input_ids"].shape[1]
        with torch.no_grad(), tower_of(model, None).mended():
            wanted = model.generate(**given, max_new_tokens=NEW, do_sample=False, pad_token_id=0, eos_token_id=-1)
        assert bundle.generate(text, NEW, images, ignore_eos=True) == wanted[0, length:].tolist()
        counts.append(length)
    assert max(counts[:2]) > (4 + 4 if kind == "got_ocr2" else 4 + 4 + 8)  # several tiles
    with pytest.raises(LanguageModelError, match="the prompt"):
        bundle.generate("word5", NEW, [one])


@pytest.mark.slow
def test_squares(tmp_path: Path) -> None:
    """The processor of Gemma 3n makes squares, and so does the bundle by the settings of the images."""
    pytest.importorskip("coreai")
    model, bundle = converted("gemma3n", tmp_path)
    assert PROCESSOR not in bundle.metadata["vision"]
    images = [picture(*shape) for shape in SHAPES]
    text = "word5 <image> word6 <image> word7"
    given = processor("gemma3n")(text=[text], images=images, return_tensors="pt")
    with torch.no_grad():
        wanted = model.generate(**given, max_new_tokens=NEW, do_sample=False, pad_token_id=0, eos_token_id=-1)
    assert bundle.generate(text, NEW, images, ignore_eos=True) == wanted[0, given["input_ids"].shape[1] :].tolist()


@pytest.mark.parametrize("kind", ["internvl", "aya_vision", "cohere2_vision"])
def test_one_tile(kind: str) -> None:
    """What Apple's engine puts around the one image is what the processor puts around a picture of one tile."""
    make, place = processor(kind), PLACEHOLDERS.get(kind, "<image>")
    keys = image_keys(TOWERS[kind].around, IMAGE_TOKEN, make.tokenizer)
    keys["image_placeholder"] = place  # the tokens of this test are fewer than the tokenizers' of the hub
    text = f"word5 {place} word7"
    wanted = make(text=[text], images=[[picture(SIZE, SIZE)]], return_tensors="pt")["input_ids"][0].tolist()
    vision = {"image_token_id": IMAGE_TOKEN, "image_token_count": 4, **keys}
    assert expanded_prompt(make.tokenizer(placed(text, vision))["input_ids"], vision, counts=[4]) == wanted


def test_a_tile_of_another_size(tmp_path: Path) -> None:
    """A bundle with another image size refuses the processor's tiles."""
    from patcomp_models.language.vision.pictures import prepared_pictures

    processor("internvl").save_pretrained(tmp_path / PROCESSOR)
    vision = {PROCESSOR: PROCESSOR, "image_size": 2 * SIZE, "image_token_count": 16, "image_token_id": 90}
    with pytest.raises(LanguageModelError, match="images of 32x32, and the bundle takes 64x64; convert"):
        prepared_pictures(tmp_path, vision, "word5 <image>", [picture(64, 48)])


@pytest.mark.parametrize("name", ["../elsewhere", "/etc", 3, "of\x00zero"])
def test_a_processor_outside_of_the_bundle_is_refused(tmp_path: Path, name: object) -> None:
    from patcomp_models.language.vision.pictures import prepared_pictures

    with pytest.raises(LanguageModelError, match=r"vision.processor of metadata.json is .* name of a file or folder"):
        prepared_pictures(tmp_path, {PROCESSOR: name}, "", [])
