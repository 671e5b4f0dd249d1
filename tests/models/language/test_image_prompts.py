"""What stands around an image in a prompt, beside the processors of transformers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from patcomp.errors import ConversionWarning
from patcomp_models.language.vision.generating import expanded_prompt
from patcomp_models.language.vision.prompts import EXPANDED, PLACEHOLDER, image_keys, placed, with_placed_images
from patcomp_models.language.vision.towers import TOWERS
from tests.models.language.vision_checkpoints import (
    IMAGE_TOKEN,
    NAMED,
    SIZE,
    SPECIAL,
    SQUARE,
    TEMPLATE,
    words,
)


def processor(kind: str, tokenizer: Any) -> Any:
    """A processor whose images of 32 x 32 have 4 tokens."""
    import transformers as tf

    if kind == "idefics3":
        images = tf.Idefics3ImageProcessorPil(size={"longest_edge": SIZE}, max_image_size={"longest_edge": SIZE},
                                              do_image_splitting=False)  # fmt: skip
        return tf.Idefics3Processor(images, tokenizer, image_seq_len=4)
    if kind == "gemma3":
        return tf.Gemma3Processor(tf.Gemma3ImageProcessorPil(size=SQUARE), tokenizer, image_seq_length=4)
    if kind == "internvl":
        images = tf.GotOcr2ImageProcessorPil(size=SQUARE, crop_to_patches=False)
        return tf.InternVLProcessor(images, tokenizer, tf.InternVLVideoProcessor(), image_seq_length=4)
    if kind == "lfm2_vl":
        images = tf.Lfm2VlImageProcessor(size=SQUARE, encoder_patch_size=8, tile_size=SIZE, do_image_splitting=False,
                                         min_image_tokens=1, max_image_tokens=4)  # fmt: skip
        return tf.Lfm2VlProcessor(images, tokenizer)
    if kind == "mistral3":
        images = tf.PixtralImageProcessorPil(size={"longest_edge": SIZE}, patch_size=16)
        return tf.PixtralProcessor(images, tokenizer, patch_size=16, image_token="<image>")
    images = tf.SiglipImageProcessorPil(size=SQUARE)
    return tf.LlavaProcessor(images, tokenizer, patch_size=16, vision_feature_select_strategy="full")


@pytest.mark.parametrize("kind", SPECIAL)
def test_as_the_processor(kind: str) -> None:
    image = pytest.importorskip("PIL.Image").fromarray(np.zeros((SIZE, SIZE, 3), np.uint8))
    tokenizer = words(*SPECIAL[kind])
    for name, token in NAMED.items():
        setattr(tokenizer, name, token)
        setattr(tokenizer, f"{name}_id", tokenizer.convert_tokens_to_ids(token))
    keys = image_keys(TOWERS[kind].around, IMAGE_TOKEN, tokenizer, (2, 2))
    vision = {"image_token_id": IMAGE_TOKEN, "image_token_count": 4, **keys}
    text = f"word5 word6 {keys.get(PLACEHOLDER, '<image>')} word7"
    wanted = processor(kind, tokenizer)(images=[image], text=[text])["input_ids"][0]
    assert expanded_prompt(tokenizer(placed(text, vision))["input_ids"], vision, counts=[4]) == list(wanted)
    assert placed(placed(text, vision), vision) == placed(text, vision)


def test_templates() -> None:
    tokenizer = words(*SPECIAL["idefics3"])
    tokenizer.chat_template = TEMPLATE
    keys = image_keys(TOWERS["smolvlm"].around, IMAGE_TOKEN, tokenizer)
    assert keys == {
        PLACEHOLDER: "<image>", EXPANDED: "<fake_token_around_image><global-img><image><fake_token_around_image>",
    }  # fmt: skip
    made = with_placed_images(tokenizer, keys)
    messages = [{"image": True, "text": "word5"}]
    assert made.apply_chat_template(messages, tokenize=False) == f"User: {keys[EXPANDED]}word5"
    assert tokenizer.chat_template == TEMPLATE
    tokenizer.chat_template = {"default": TEMPLATE}
    assert with_placed_images(tokenizer, keys).chat_template == {"default": made.chat_template}
    assert with_placed_images(tokenizer, {}) is tokenizer
    assert image_keys(TOWERS["llava"].around, IMAGE_TOKEN, tokenizer) == {}
    with pytest.warns(ConversionWarning, match="the tokenizer has no token '<fake_token_around_image>'"):
        assert image_keys(TOWERS["smolvlm"].around, IMAGE_TOKEN, words()) == {}
