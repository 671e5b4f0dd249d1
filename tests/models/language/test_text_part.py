"""The language model of models that take images, too."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import LlamaForCausalLM

from patcomp.errors import ConversionWarning
from patcomp_models.language import LanguageModelError, check_bundle, convert_language_model
from patcomp_models.language.decoder import Decoder
from patcomp_models.language.dynamic_form import BundleFunction, exported_function, unread_weights
from patcomp_models.language.text_part import WithHead, text_part, whole_class
from tests.models.language.checkpoints import PROMPT, VOCABULARY, checkpoint, configuration, generated

_TOWER = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "depth": 1,
          "num_heads": 2, "out_hidden_size": 32, "image_size": 16, "patch_size": 8}  # fmt: skip
WHOLE: dict[str, tuple[str, str, str]] = {
    "qwen3_5": ("Qwen3_5ForConditionalGeneration", "qwen3_5_text", "Qwen3_5ForCausalLM"),
    "gemma4": ("Gemma4ForConditionalGeneration", "gemma4_text", "Gemma4ForCausalLM"),
    "llava": ("LlavaForConditionalGeneration", "llama", "LlamaForCausalLM"),
    "smolvlm": ("SmolVLMForConditionalGeneration", "llama", "LlamaForCausalLM"),
    "qwen3_vl": ("Qwen3VLForConditionalGeneration", "qwen3_vl_text", "WithHead"),
}
"""The class, the architecture of the text, and the class of the language model."""


def whole(kind: str) -> Any:
    """A small model with a tower for images, of outputs of order one."""
    import transformers

    torch.manual_seed(0)
    name, text, _ = WHOLE[kind]
    sizes = configuration("qwen3" if text == "qwen3_vl_text" else text)
    tower = {} if kind == "gemma4" else {"vision_config": _TOWER}
    names = ("image_token_id", "image_token_index", "video_token_id", "audio_token_id", "vision_start_token_id")
    ids = dict(zip(names, (6, 6, 7, 8, 9), strict=True)) | {"vision_end_token_id": 10, "pad_token_id": 0}
    config = transformers.AutoConfig.for_model(kind, text_config={**sizes, "model_type": text}, **tower, **ids)
    model = getattr(transformers, name)(config).eval()
    for weight in model.parameters():
        nn.init.normal_(weight, 0, max(weight.shape[-1], 8) ** -0.5) if weight.ndim > 1 else None
    return model


@pytest.mark.parametrize(
    "kind", [kind if kind == "llava" else pytest.param(kind, marks=pytest.mark.slow) for kind in WHOLE]
)
def test_folders(kind: str, tmp_path: Path) -> None:
    """A folder gives the tokens that the whole model generates from a text, and the bundle says what is left out."""
    model = whole(kind)
    model.save_pretrained(tmp_path / "whole")
    with pytest.warns(
        ConversionWarning, match=f"of {type(model).__name__}, only the language model is converted.*convert-vlm"
    ):
        bundle = convert_language_model(
            tmp_path / "whole", out=tmp_path / "bundle", dtype="float32", max_context=64, tokenizer=False
        )
    assert bundle.generate(PROMPT, 6) == generated(model, PROMPT, 6)
    assert bundle.metadata["language"]["vocab_size"] == VOCABULARY
    if kind != "gemma4":  # it has no tower here
        tower = "vision_model" if kind == "smolvlm" else "vision_tower" if kind == "llava" else "visual"
        assert f"model.{tower} (" in bundle.metadata["notes"][0]


def test_all_weights_of_the_language_model_are_taken() -> None:
    """The part has the very modules, the head too, and the whole model stays as it was."""
    for kind, (_, _, name) in WHOLE.items():
        model = whole(kind)
        before = {key: id(weight) for key, weight in model.named_parameters()}
        part = text_part(model)
        assert type(part.model).__name__ == name
        taken = {id(weight) for weight in part.model.parameters()}
        left = {key for key, weight in model.named_parameters() if id(weight) not in taken}
        assert all(".visual." in key or "vision" in key or "projector" in key or "connector" in key for key in left)
        assert {key: id(weight) for key, weight in model.named_parameters()} == before
        assert model.lm_head is part.model.get_submodule("lm_head")


def test_what_the_folder_names() -> None:
    named = {"architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5"}
    assert whole_class(named) == "Qwen3_5ForConditionalGeneration"
    for change in (
        {"architectures": ["Qwen3_5ForCausalLM"]},  # transformers takes the text's configuration
        {"architectures": None},
        {"architectures": ["CLIPModel"], "model_type": "clip"},
        {"architectures": ["BartForConditionalGeneration"], "model_type": "bart"},
        {"model_type": "qwen3_5_text"},
    ):
        assert whole_class({**named, **change}) is None


def test_a_part_that_computes_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Aya Vision, which leaves out the scale of Cohere's logits, and a model that no part explains."""
    model = whole("llava")
    head, forward = model.lm_head, model.forward

    def scaled(factor: float, *arguments: Any, **options: Any) -> Any:
        result = forward(*arguments, **options)
        result.logits = factor * result.logits
        return result

    assert not isinstance(text_part(model).model, WithHead)
    own = LlamaForCausalLM.forward

    def twice(self: Any, *arguments: Any, **options: Any) -> Any:
        result: Any = own(self, *arguments, **options)
        result.logits = 2 * result.logits
        return result

    monkeypatch.setattr(LlamaForCausalLM, "forward", twice)
    assert isinstance(text_part(model).model, WithHead)
    model.forward = partial(scaled, 3.0)
    with pytest.raises(LanguageModelError, match=r"does not compute the logits of the whole model for a text: they"):
        text_part(model)
    assert model.lm_head is head


def test_a_tower_without_a_decoder(tmp_path: Path) -> None:
    from transformers import T5Config, T5ForConditionalGeneration

    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2, "vocab_size": 32}
    model = T5ForConditionalGeneration(T5Config(**sizes))
    with pytest.raises(LanguageModelError, match="T5ForConditionalGeneration has no part that is a language model of"):
        convert_language_model(model, out=tmp_path / "bundle")
    assert check_bundle(tmp_path / "bundle")


def test_weights_that_no_function_reads() -> None:
    """Parts of a class that are not for a text; a weight with two names is read under one of them."""
    model: Any = checkpoint("llama")
    model.lm_head.weight = model.model.embed_tokens.weight
    model.model.tower = nn.Linear(2, 3)
    function = BundleFunction("main", Decoder(model), 1)
    assert unread_weights([exported_function(function, 64)]) == "model.tower (2 weights)"
    del model.model.tower
    assert unread_weights([exported_function(function, 64)]) == ""
