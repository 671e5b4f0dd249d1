"""Models of speech with an encoder and a decoder write what `generate` writes, or are refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers.models.auto import modeling_auto

from patcomp.errors import PatcompError
from patcomp_models.bundles import check_bundle, convert_bundle, transcribe
from patcomp_models.bundles.kind import kinds
from patcomp_models.bundles.speech.refused import RECOGNISERS, SPEAKERS
from tests.models.bundles.speech_models import RATE, sound
from tests.models.bundles.speech_seq2seq_models import SEQ2SEQ, seq2seq

_MAPPINGS = ("SPEECH_SEQ_2_SEQ", "CTC", "RNNT", "TDT", "TEXT_TO_WAVEFORM", "TEXT_TO_SPECTROGRAM")
_SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in [*SEQ2SEQ, "SpeechEncoderDecoderModel"]
         if not name.startswith("Cohere")]  # fmt: skip


@pytest.mark.parametrize("name", ["CohereAsrForConditionalGeneration", *_SLOW])
def test_the_text_is_that_of_generate(name: str, tmp_path: Path) -> None:
    pytest.importorskip("coreai")
    folder = seq2seq(tmp_path / "model", name)
    out = convert_bundle(folder, out=tmp_path / "out", dtype="float32", prompt="<|en|>")
    assert check_bundle(out) == ()
    model = getattr(transformers, name).from_pretrained(folder).eval()
    extractor = transformers.AutoFeatureExtractor.from_pretrained(folder)
    begun: dict[str, Any] = {"decoder_input_ids": torch.tensor([[0, 4]])}
    if name.startswith("Seamless"):
        model.generation_config.text_decoder_lang_to_code_id = {"en": 4}
        begun = {"tgt_lang": "en"}
    padded = {"padding": True, "pad_to_multiple_of": 80, "return_attention_mask": True} if "Streaming" in name else {}
    heard = []
    for count in (20000, 33333):
        read = extractor(sound(count), sampling_rate=RATE, return_tensors="pt", **padded)
        given = {key: read[key] for key in ("input_features", "input_values", "attention_mask") if key in read}
        tokens = model.generate(**given, **begun)[0].tolist()
        assert transcribe(out, sound(count)).tokens == [token for token in tokens[2:] if token != 2]
        heard.append(tokens)
    assert heard[0] != heard[1]
    assert len({*heard[0][2:], *heard[1][2:]}) > 2


@pytest.mark.parametrize("mapping", _MAPPINGS)
def test_each_model_of_speech_has_a_kind(mapping: str, tmp_path: Path) -> None:
    names = set(getattr(modeling_auto, f"MODEL_FOR_{mapping}_MAPPING_NAMES").values())
    assert names
    without = [name for name in names if not any(kind.fits(tmp_path, {"architectures": [name]}) for kind in kinds())]
    assert without == []


@pytest.mark.parametrize(("name", "reason"), [*RECOGNISERS.items(), *SPEAKERS.items()])
def test_others_are_refused_by_name(name: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": [name], "model_type": "any"}))
    with pytest.raises(PatcompError) as caught:
        convert_bundle(tmp_path, out=tmp_path / "out")
    assert name in str(caught.value)
    assert reason in str(caught.value)


def test_a_prompt_has_tokens_of_the_model(tmp_path: Path) -> None:
    folder = seq2seq(tmp_path / "model", "SpeechT5ForSpeechToText")
    with pytest.raises(PatcompError, match=r"prompt is '<\|fr\|>', and the tokenizer"):
        convert_bundle(folder, out=tmp_path / "out", prompt="<|fr|>")
