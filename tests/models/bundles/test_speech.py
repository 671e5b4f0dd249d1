"""Models that recognise speech: the text of a bundle is that of `generate` of transformers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from patcomp import ConversionWarning
from patcomp.emit.asset import load
from patcomp_models.bundles import check_bundle, convert_bundle, transcribe
from tests.helpers.command import Command
from tests.models.bundles.speech_models import CTC, RATE, ctc, moonshine, parakeet, sound, whisper, write_wave

pytest.importorskip("coreai")


def loaded(folder: Path, name: str) -> tuple[Any, Any, Any]:
    """The model, the extractor and the tokenizer of a folder."""
    return (
        getattr(transformers, name).from_pretrained(folder).eval(),
        transformers.AutoFeatureExtractor.from_pretrained(folder),
        transformers.AutoTokenizer.from_pretrained(folder),
    )


# ---- Whisper -------------------------------------------------------------------------------------------


def _generated(folder: Path, language: str, task: str = "transcribe") -> tuple[list[int], str]:
    model, extractor, tokenizer = loaded(folder, "WhisperForConditionalGeneration")
    features = extractor(sound(), sampling_rate=RATE, return_tensors="pt").input_features
    tokens = model.generate(features, language=language, task=task)[0].tolist()
    return tokens, tokenizer.decode(tokens, skip_special_tokens=True)


def test_whisper_writes_what_generate_writes(whisper_folder: Path, whisper_bundle: Path) -> None:
    assert check_bundle(whisper_bundle) == ()
    made = transcribe(whisper_bundle, sound())
    tokens, text = _generated(whisper_folder, "en")
    assert len(set(tokens)) > 5
    assert (made.tokens, made.text) == (tokens, text)
    told = json.loads((whisper_bundle / "generation_config.json").read_text())
    names = transformers.AutoTokenizer.from_pretrained(whisper_bundle).convert_ids_to_tokens(
        [token for _, token in told["forced_decoder_ids"]]
    )
    assert names == ["<|startoftranscript|>", "<|en|>", "<|transcribe|>", "<|notimestamps|>"]


def test_a_full_cache_of_whisper(whisper_folder: Path, whisper_bundle: Path) -> None:
    """The last token that fits: export leaves this size to the caller."""
    from patcomp_models.bundles.speech.whisper import Whisper

    (entry,) = Whisper(whisper_folder, "float32", False, None, "transcribe")._decoder()
    states = {name: value[:, :, :, :3].clone() for name, value in entry.inputs.items() if name in entry.states}
    inputs = {name: value for name, value in entry.inputs.items() if name in entry.given}
    inputs["position_ids"] = torch.arange(3, dtype=torch.int32)[None]
    held = {name: value.numpy().copy() for name, value in states.items()}
    asset = load(whisper_bundle / "decoder.aimodel")
    made = asset.run(inputs, held)["logits"]
    asset.close()
    with torch.no_grad():
        wanted = entry.module(*inputs.values(), *states.values())
    np.testing.assert_allclose(made, wanted.numpy(), atol=1e-5)
    for name, value in states.items():
        np.testing.assert_allclose(held[name], value.numpy(), atol=1e-5)


@pytest.mark.slow
def test_whisper_from_samples_in_another_language(whisper_folder: Path, tmp_path: Path) -> None:
    out = convert_bundle(
        whisper_folder, out=tmp_path / "out", dtype="float32", audio=True, language="de", task="translate"
    )
    assert check_bundle(out) == ()
    made = transcribe(out, sound())
    assert (made.tokens, made.text) == _generated(whisper_folder, "de", "translate")


@pytest.mark.slow
def test_long_recordings(tmp_path: Path) -> None:
    """Windows that begin where the last one ended, also in another language than that of the bundle."""
    folder = whisper(tmp_path / "model", bins=80, max_initial_timestamp_index=50)
    out = convert_bundle(folder, out=tmp_path / "out")
    model, extractor, tokenizer = loaded(folder, "WhisperForConditionalGeneration")
    recording = sound(RATE * 65)
    features = extractor(
        recording, sampling_rate=RATE, return_tensors="pt", truncation=False, padding="longest",
        return_attention_mask=True,
    )  # fmt: skip
    for options in ({}, {"language": "de", "task": "translate"}):
        given = {"language": "en", "task": "transcribe", **options}
        tokens = model.generate(**features, return_timestamps=True, **given)[0].tolist()
        made = transcribe(out, recording, **options)
        assert made.tokens == tokens
        assert made.text == tokenizer.decode(tokens, skip_special_tokens=True)
        assert len(set(tokens)) > 10


def test_the_end_of_a_window() -> None:
    """Of tokens of which those of times begin with 100: what is kept, and the frames to go on."""
    from patcomp_models.bundles.speech.times import ended

    assert ended([100, 1, 2, 110, 110, 3], 100, 3000) == ([100, 1, 2, 110, 110], 20)
    assert ended([100, 1, 110, 110, 3, 120, 120, 4], 100, 3000) == ([100, 1, 110, 110, 3, 120, 120], 40)
    assert ended([100, 1, 110, 110, 3, 120], 100, 900) == ([100, 1, 110, 110, 3, 120], 900)
    assert ended([100, 1, 2], 100, 3000) == ([100, 1, 2], 3000)
    assert ended([], 100, 3000) == ([], 3000)


@pytest.mark.slow
def test_small_whispers_are_not_for_swift(tmp_path: Path) -> None:
    folder = whisper(tmp_path / "model", bins=80)
    out = convert_bundle(folder, out=tmp_path / "out")
    assert "input_features of encoder is 1 x 80 x 3000 of float32, and must be 1 x 128 x 3000" in str(check_bundle(out))
    assert len(transcribe(out, sound()).tokens) == 24


# ---- Parakeet ------------------------------------------------------------------------------------------


def _transduced(folder: Path, name: str) -> tuple[list[int], str]:
    model, extractor, tokenizer = loaded(folder, name)
    features = extractor(sound(), sampling_rate=RATE, return_tensors="pt")
    tokens = model.generate(**features).sequences[0].tolist()
    tokens = [token for token in tokens if token != model.config.blank_token_id]
    return tokens, tokenizer.decode(tokens, skip_special_tokens=True, group_tokens=False)


def test_parakeet_writes_what_generate_writes(parakeet_folder: Path, parakeet_bundle: Path) -> None:
    """The spectrum is computed in the asset, of a recording that is shorter than what the asset takes."""
    assert check_bundle(parakeet_bundle) == ()
    made = transcribe(parakeet_bundle, sound())
    assert len(set(made.tokens)) > 2
    assert (made.tokens, made.text) == _transduced(parakeet_folder, "ParakeetForTDT")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ParakeetForTDT", "ParakeetForRNNT"])
@pytest.mark.parametrize("options", [{}, {"audio": True}, {"frames": 161}], ids=str)
def test_transducers(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    folder = parakeet(tmp_path / "model", name)
    out = convert_bundle(folder, out=tmp_path / "out", dtype="float32", **options)
    assert check_bundle(out) == ()
    made = transcribe(out, sound())
    assert (made.tokens, made.text) == _transduced(folder, name)


@pytest.mark.slow
def test_windows(parakeet_folder: Path, tmp_path: Path) -> None:
    out = convert_bundle(parakeet_folder, out=tmp_path / "out", dtype="float32", streaming=[8, 4, 4])
    assert check_bundle(out) == ()
    metadata = json.loads((out / "metadata.json").read_text())
    assert metadata["streaming"]["window_mel_frames"] == 129
    file = out / "metadata.json"
    for name, value, message in (
        ("window_mel_frames", 130, "window_mel_frames is 130, and must be 129"),
        ("right_context_encoder_frames", 3, "less than the longest duration, 4"),
        ("left_context_encoder_frames", 3, "less than those of the chunk"),
        ("subsampling_factor", 4, "is not that of config.encoder"),
        ("hop_length", None, "streaming must have integers"),
    ):
        file.write_text(json.dumps({**metadata, "streaming": {**metadata["streaming"], name: value}}))
        assert message in "\n".join(map(str, check_bundle(out)))


# ---- half precision ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_sums_that_the_runtime_rounds_are_named(tmp_path: Path) -> None:
    """The runtime rounds the partial sums over 1500 frames, and the bundle is right."""
    with pytest.warns(ConversionWarning, match="rounds every partial sum of float16"):
        out = convert_bundle(whisper(tmp_path / "model"), out=tmp_path / "out", dtype="float16")
    assert check_bundle(out) == ()


# ---- Moonshine -----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_moonshine(dtype: Any, tmp_path: Path) -> None:
    folder = moonshine(tmp_path / "model")
    out = convert_bundle(folder, out=tmp_path / "out", dtype=dtype)
    assert check_bundle(out) == ()
    model, extractor, tokenizer = loaded(folder, "MoonshineForConditionalGeneration")
    tokens = model.generate(**extractor(sound(), sampling_rate=RATE, return_tensors="pt"))[0].tolist()
    assert len(set(tokens)) > 4
    made = transcribe(out, sound())
    assert made.tokens == [token for token in tokens[1:] if token != model.config.eos_token_id]
    assert made.text == tokenizer.decode(tokens, skip_special_tokens=True)


# ---- CTC -----------------------------------------------------------------------------------------------


_OF_FEATURES = ("Wav2Vec2BertForCTC", "LasrForCTC")
_FROM_SAMPLES = [
    pytest.param(name, {"audio": True}, marks=pytest.mark.slow) for name in CTC if name not in _OF_FEATURES
]
_FROM_FEATURES = [*(pytest.param(name, {}, marks=pytest.mark.slow) for name in _OF_FEATURES), ("Wav2Vec2ForCTC", {})]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("name", "options"), [*_FROM_FEATURES, *_FROM_SAMPLES])
@pytest.mark.filterwarnings("ignore:the model was exported for sizes")
def test_ctc(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    folder = ctc(tmp_path / "model", name)
    out = convert_bundle(folder, out=tmp_path / "out", dtype="float32", **options)
    assert check_bundle(out) == ()
    model, extractor, tokenizer = loaded(folder, name)
    with torch.no_grad():
        logits = model(**extractor(sound(), sampling_rate=RATE, return_tensors="pt")).logits
    tokens = logits.argmax(-1)[0].tolist()
    made = transcribe(out, sound())
    assert len(set(tokens)) > (1 if name == "LasrForCTC" else 5)
    assert (made.tokens, made.text) == (tokens, tokenizer.decode(tokens, skip_special_tokens=True))


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"audio": True}, {"audio": True, "frames": 161}], ids=str)
def test_parakeet_with_ctc(options: dict[str, Any], tmp_path: Path) -> None:
    folder = parakeet(tmp_path / "model", "ParakeetForCTC")
    out = convert_bundle(folder, out=tmp_path / "out", dtype="float32", **options)
    assert check_bundle(out) == ()
    model, extractor, tokenizer = loaded(folder, "ParakeetForCTC")
    tokens = model.generate(**extractor(sound(), sampling_rate=RATE, return_tensors="pt"))[0].tolist()
    made = transcribe(out, sound())
    assert made.tokens[: len(tokens)] == tokens
    assert set(made.tokens[len(tokens) :]) <= {model.config.pad_token_id}
    assert made.text == tokenizer.decode(tokens, skip_special_tokens=True)


def test_the_command(patcomp: Command, parakeet_bundle: Path, tmp_path: Path) -> None:
    file = write_wave(tmp_path / "sound.wav", sound())
    done = patcomp("transcribe", str(parakeet_bundle), str(file), "--json")
    assert done.code == 0, done.err
    assert len(json.loads(done.out)["tokens"]) > 5
    slow = write_wave(tmp_path / "slow.wav", sound(), rate=8000)
    refused = patcomp("transcribe", str(parakeet_bundle), str(slow))
    assert refused.code != 0
    assert "has 8000 samples a second, and the model takes 16000; `ffmpeg -i slow.wav -ar 16000" in refused.err


@pytest.mark.slow
def test_a_bundle_is_inspected_in_a_fresh_process(whisper_bundle: Path) -> None:
    """Nothing has declared torchvision's operators there."""
    command = [sys.executable, "-m", "patcomp", "inspect", str(whisper_bundle)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "decoder, function main" in done.stdout
