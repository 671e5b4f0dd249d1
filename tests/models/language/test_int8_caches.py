"""Caches of int8: the tokens of the runtime loop, what the rounding does to the loss, and what has no such caches; and
notes about caches on iPhones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from patcomp import load
from patcomp.interface.graphs import argument_types
from patcomp_models.language import LanguageModelError, check_bundle, convert_language_model, quantized_cache
from patcomp_models.language.contract import AT_RUN_TIME, ON_IPHONES
from patcomp_models.language.conventions import CACHE
from patcomp_models.language.decoder import Decoder
from patcomp_models.language.dynamic_bundle import _notes_on_engines
from patcomp_models.language.quantized_cache import cache_scales, note_on_loss
from tests.models.language.checkpoints import PROMPT, checkpoint

TEXT = [int(token) for token in torch.randint(3, 96, (120,), generator=torch.Generator().manual_seed(0))]


def eager_tokens(model: Any, count: int) -> list[int]:
    """The most probable tokens of eager PyTorch with int8 caches, one call for each."""
    scales, _ = cache_scales(model, TEXT, 64)
    decoder = Decoder(model, scales=scales)
    states, made, read = decoder.states.zeros(64), [], 0
    waiting = PROMPT
    with torch.no_grad():
        while len(made) < count:
            read += len(waiting)
            logits = decoder(torch.tensor([waiting]), torch.arange(read)[None], *states)
            made.append(int(logits[0, -1].argmax()))
            waiting = made[-1:]
    return made


@pytest.mark.parametrize("kind", ["llama", pytest.param("falcon_h1", marks=pytest.mark.slow)])
def test_the_runtime_gives_the_tokens_of_eager_int8_caches(kind: str, tmp_path: Path) -> None:
    model = checkpoint(kind)
    bundle = convert_language_model(
        model, out=tmp_path / "bundle", tokenizer=False, max_context=64, cache="int8", calibrate=TEXT
    )
    types = argument_types(load(bundle.asset).module.graph("main"))
    assert ["xsi8>" in str(types[name]) for name in ("keyCache", "valueCache")] == [True, True]
    assert bundle.generate(PROMPT, 8, ignore_eos=True) == eager_tokens(model, 8)
    (note,) = bundle.metadata["notes"]
    assert note.startswith("int8 caches change the loss on 59 tokens of calibrate= from ")
    assert not check_bundle(bundle.path)


def test_scales_are_those_of_the_text_without_its_last_part() -> None:
    model = checkpoint("llama")
    scales, left = cache_scales(model, TEXT, 64)
    assert left == TEXT[60:]
    with torch.no_grad():
        layers = model(torch.tensor([TEXT[:60]]), use_cache=True)[CACHE].layers
    expected = [(float(each.keys.abs().max()) / 127, float(each.values.abs().max()) / 127) for each in layers]
    np.testing.assert_allclose(scales, expected)


def test_a_loss_that_rises_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = checkpoint("llama")
    exact, coarse = (Decoder(model, scales=[(scale, scale)] * 2) for scale in (0.02, 4.0))
    assert "nats" in note_on_loss(exact, TEXT[:30])
    monkeypatch.setattr(quantized_cache, "_MOST_RISE", -1.0)
    with pytest.raises(LanguageModelError, match=r"on 29 tokens of .* from \S+ to \S+ nats, which is a rise of"):
        note_on_loss(coarse, TEXT[:30])


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("llama", {"cache": "int4"}, "cache= is 'int8' or left out, got 'int4'"),
        ("llama", {"cache": "int8"}, "goes with target='gpu' and calibrate="),
        ("llama", {"cache": "int8", "calibrate": TEXT, "hidden": True}, "and without window_caches="),
        ("llama", {"cache": "int8", "calibrate": TEXT[:3]}, "has 3 tokens, and int8 caches take 4 at least"),
        ("llama", {"calibrate": TEXT}, "calibrate= goes with compress= or cache='int8'"),
        ("mamba2", {"cache": "int8", "calibrate": TEXT}, "Mamba2ForCausalLM keeps no keys and values"),
        ("glm_moe_dsa", {"cache": "int8", "calibrate": TEXT}, "keeps keys of an index in its cache"),
    ],
)
def test_what_has_no_int8_caches(kind: str, options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(LanguageModelError, match=message):
        convert_language_model(checkpoint(kind), out=tmp_path / "b", tokenizer=False, max_context=64, **options)


def test_notes_about_iphones() -> None:
    decoder = Decoder(checkpoint("llama"))
    assert _notes_on_engines(decoder, 1024) == []
    assert _notes_on_engines(decoder, 1025) == [ON_IPHONES]
    assert ON_IPHONES not in _notes_on_engines(Decoder(checkpoint("mamba2")), 4096)
    assert "coreai-models/issues/5" in AT_RUN_TIME
