"""Weights, configuration and model must agree: what is refused, what is said, and what is neither."""

from __future__ import annotations

import json
import re
import shutil
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from patcomp.errors import ConversionWarning
from patcomp_models.bundles.loading import model_of as model_of_bundle
from patcomp_models.checkpoints.agreement import STRICT
from patcomp_models.errors import BundleError
from patcomp_models.language.sources import language_model_of, source_of
from tests.models.bundles.speech_models import ctc, whisper
from tests.models.bundles.vits_models import vits
from tests.models.language.checkpoints import folder
from tests.models.language.wrong_folders import config, renamed

Weights = dict[str, Tensor]
HEAD, TABLE = "lm_head.weight", "model.embed_tokens.weight"


def saved(change: Callable[[Weights], Weights], name: str = "model.safetensors") -> Callable[[Path], object]:
    """Writes changed weights into a file."""
    return lambda path: save_file(change(load_file(path / "model.safetensors")), path / name, metadata={"format": "pt"})


def in_front(front: str, only: str = "") -> Callable[[Path], object]:
    """Puts something in front of the names of weights, of those that begin so."""
    return saved(lambda weights: {front * name.startswith(only) + name: each for name, each in weights.items()})


def other_head(path: Path) -> None:
    saved(lambda weights: {**weights, HEAD: weights[TABLE] * 2})(path)
    config(tie_word_embeddings=True)(path)


def with_shards(
    beside: Callable[[Weights], Weights] | None = None, twice: tuple[str, ...] = (), index: bool = True
) -> Callable[[Path], object]:
    """Splits the weights into two shards, perhaps with weights that are in both, and beside another file of all."""

    def change(path: Path) -> None:
        file = path / "model.safetensors"
        weights = load_file(file)
        file.unlink()
        shards = {"model-00001-of-00002.safetensors": sorted(weights)[::2]}
        shards["model-00002-of-00002.safetensors"] = [*sorted(weights)[1::2], *twice]
        for name, names in shards.items():
            save_file({each: weights[each] for each in names}, path / name, metadata={"format": "pt"})
        places = {each: name for name, names in shards.items() for each in names}
        if index:
            (path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
        if beside is not None:
            save_file(beside(weights), file, metadata={"format": "pt"})

    return change


def both(*changes: Callable[[Path], object]) -> Callable[[Path], object]:
    return lambda path: [change(path) for change in changes]


def doubled(weights: Weights) -> Weights:
    return {**weights, HEAD: weights[HEAD] * 2}


def with_not_a_number(path: Path) -> None:
    """In both sets: NaN is the same as itself."""

    def change(weights: Weights) -> Weights:
        return {**weights, HEAD: torch.full_like(weights[HEAD], torch.nan)}

    saved(change)(path)
    with_shards(lambda weights: weights)(path)


REFUSED, SAID, TAKEN = "refused", "said", "taken"
LANGUAGE: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "fewer layers": (REFUSED, config(num_hidden_layers=1), "unexpected model.layers.1.input_layernorm.weight, "),
    "more layers": (REFUSED, config(num_hidden_layers=3), "missing model.layers.2.input_layernorm.weight, "),
    "another width": (REFUSED, config(intermediate_size=40), "layers.0.mlp.down_proj.weight is 32x48 and must be 32x4"),
    "fewer words": (REFUSED, config(vocab_size=90), "lm_head.weight is 96x32 and must be 90x32; model.embed_tokens"),
    "another file beside shards": (REFUSED, with_shards(doubled), "model.safetensors and the 2 files of .* lm_head.we"),
    "a file of fewer weights beside shards": (
        REFUSED, with_shards(lambda weights: {TABLE: weights[TABLE]}), "two sets of weights, .*, and lm_head.weight di",
    ),
    "a file of another type beside shards": (
        REFUSED, with_shards(lambda weights: {**weights, HEAD: weights[HEAD].half()}), "and lm_head.weight differs; re",
    ),
    "a weight in two shards": (
        REFUSED, with_shards(twice=(HEAD,)), "lm_head.weight is in two of the files .* model-00001-of-00002.safetensor",
    ),
    "shards without an index": (
        REFUSED, with_shards(index=False), "the shards model-00001-of-00002.safetensors, model-00002-of-00002.safetens",
    ),
    "a wrapper around a part": (REFUSED, in_front("module.", "model."), "missing model.embed_tokens.weight, "),
    "the other numbers of a tied head": (SAID, other_head, "lm_head.weight is model.embed_tokens.weight .* have other"),
    "a file of another form": (
        SAID, saved(lambda weights: {"tok_embeddings.weight": weights[TABLE]}, "consolidated.safetensors"),
        "files of weights in .* are not read: consolidated.safetensors; the model is loaded from model.safetensors",
    ),
    "a shard of another checkpoint": (
        SAID, both(with_shards(), lambda path: shutil.copy(path / "model-00001-of-00002.safetensors",
                                                           path / "model-00003-of-00003.safetensors")),
        "not read: model-00003-of-00003.safetensors; the model is loaded from model-00001-of-00002.safetensors and 1 m",
    ),
    "the same file beside shards": (TAKEN, with_shards(lambda weights: weights), ""),
    "NaN in both sets": (TAKEN, with_not_a_number, ""),
    "a set that the configuration names": (
        TAKEN, both(with_shards(doubled), config(transformers_weights="model.safetensors.index.json")), "",
    ),
    "a file of another type by its name": (TAKEN, saved(lambda weights: weights, "model.fp16.safetensors"), ""),
    "DataParallel": (TAKEN, in_front("module."), ""),
    "torch.compile": (TAKEN, in_front("_orig_mod."), ""),
    "both of them": (TAKEN, in_front("module._orig_mod."), ""),
    "a wrapper around shards": (TAKEN, both(in_front("module."), with_shards()), ""),
    "a tied head with the same numbers": (
        TAKEN,
        both(saved(lambda weights: {**weights, HEAD: weights[TABLE].clone()}), config(tie_word_embeddings=True)), "",
    ),
    "frequencies of an old checkpoint": (
        TAKEN, saved(lambda weights: {**weights, "model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}), "",
    ),
    "attention that is not installed": (TAKEN, config(_attn_implementation="flash_attention_2"), ""),
    "the same by its newer name": (TAKEN, config(attn_implementation="flash_attention_3"), ""),
}  # fmt: skip
"""What is done with a folder of a language model, and what is said."""

SOUNDS: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "HuBERT of fewer layers": ("HubertForCTC", config(num_hidden_layers=1), "unexpected hubert.encode"),
    "HuBERT of another width": ("HubertForCTC", config(intermediate_size=20), "intermediate_dense.bias is 48 and must"),
    "Whisper of fewer layers": (
        "WhisperForConditionalGeneration", config(decoder_layers=1), "unexpected model.decoder.layers.1.encoder_attn",
    ),
    "Whisper of more layers": (
        "WhisperForConditionalGeneration", config(encoder_layers=3), "missing model.encoder.layers.1.fc1.bias, ",
    ),
    "VITS of fewer flows": ("VitsModel", config(prior_encoder_num_flows=1), "unexpected flow.flows.1."),
    "VITS in two files": ("VitsModel", with_shards(lambda weights: {}), "has two sets of weights, model.safetensors a"),
    "HuBERT in a wrapper and in none": (
        "HubertForCTC", in_front("module.", "lm_head"), "unexpected module.lm_head.bias, module.lm_hea",
    ),
}  # fmt: skip
"""The class of a folder of sounds, a change, and what is said when it is refused."""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder(tmp_path_factory.mktemp("checkpoint") / "small")


@pytest.fixture(scope="module")
def sounds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("sounds")
    return {
        "HubertForCTC": ctc(place / "hubert", "HubertForCTC"),
        "WhisperForConditionalGeneration": whisper(place / "whisper"),
        "VitsModel": vits(place / "vits"),
    }


def loaded(path: Path) -> Any:
    source = source_of(path, lambda what: nullcontext(), trust_remote_code=False)
    return language_model_of(source, "float32", STRICT, trust_remote_code=False)[0]


@pytest.mark.parametrize("case", LANGUAGE)
def test_language_models(case: str, source: Path, tmp_path: Path) -> None:
    what, change, message = LANGUAGE[case]
    shutil.copytree(source, tmp_path / "copy")
    change(tmp_path / "copy")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", ConversionWarning)
        if what == REFUSED:
            with pytest.raises(BundleError, match=message) as raised:
                loaded(tmp_path / "copy")
            assert "\n" not in str(raised.value)
            assert len(str(raised.value)) < 900 + 2 * len(str(tmp_path))
            return
        model = loaded(tmp_path / "copy")
    texts = [str(each.message) for each in said if issubclass(each.category, ConversionWarning)]
    assert len(texts) == (what == SAID)
    assert not texts or re.search(message, texts[0])
    weights = load_file(source / "model.safetensors")
    if "head" in case:
        weights[HEAD] = weights[TABLE] * (2 if what == SAID else 1)
    elif case == "NaN in both sets":
        weights[HEAD] = torch.full_like(weights[HEAD], torch.nan)
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, weights[name], rtol=0, atol=0, equal_nan=True)
    assert (model.lm_head.weight is model.model.embed_tokens.weight) == ("same numbers" in case)
    assert model.config._attn_implementation == "sdpa"


@pytest.mark.parametrize("case", SOUNDS)
def test_sounds(case: str, sounds: dict[str, Path], tmp_path: Path) -> None:
    name, change, message = SOUNDS[case]
    shutil.copytree(sounds[name], tmp_path / "copy")
    if case == "VITS of fewer flows":
        assert model_of_bundle(tmp_path / "copy", "transformers", name, "float32").config.model_type == "vits"
    change(tmp_path / "copy")
    with pytest.raises(BundleError) as raised:
        model_of_bundle(tmp_path / "copy", "transformers", name, "float32")
    assert message in str(raised.value)


def test_the_folder_of_another_file(source: Path, tmp_path: Path) -> None:
    """No shards are made up."""
    shutil.copytree(source, tmp_path / "copy")
    renamed("other.safetensors")(tmp_path / "copy")
    with pytest.raises(BundleError, match=r"lacks model.safetensors, the file of its weights"):
        loaded(tmp_path / "copy")
