"""Spectra in the graph are those of transformers' extractors; recordings are read as they are."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from patcomp_models.bundles import BundleError, transcribe
from patcomp_models.bundles.speech.mel import Normalised, ParakeetFeatures, WhisperFeatures
from patcomp_models.bundles.speech.recordings import samples_of
from tests.models.bundles.speech_models import RATE, sound, write_wave


def test_spectrum_of_whisper() -> None:
    extractor = transformers.WhisperFeatureExtractor(feature_size=80, chunk_length=3)
    wanted = extractor(sound(), sampling_rate=RATE, return_tensors="pt").input_features
    made = WhisperFeatures(extractor)(torch.from_numpy(np.pad(sound(), (0, 28000)))[None])
    torch.testing.assert_close(made, wanted, atol=1e-4, rtol=0)


@pytest.mark.parametrize("padding", [0, 5000])
@pytest.mark.parametrize("emphasis", [0.97, None])
def test_spectrum_of_parakeet(padding: int, emphasis: float | None) -> None:
    extractor = transformers.ParakeetFeatureExtractor(feature_size=80, preemphasis=emphasis)
    wanted = extractor(sound(), sampling_rate=RATE, return_tensors="pt")
    samples = torch.from_numpy(np.pad(sound(), (0, padding)))[None]
    made, mask = ParakeetFeatures(extractor)(samples, torch.tensor([len(sound())], dtype=torch.int32))
    frames = wanted.input_features.shape[1]
    torch.testing.assert_close(made[:, :frames], wanted.input_features, atol=5e-4, rtol=0)
    assert mask.sum() == wanted.attention_mask.sum() == frames - 1
    assert not made[:, frames - 1 :].any()


@pytest.mark.parametrize("normalised", [True, False])
def test_samples_of_wav2vec2(normalised: bool) -> None:
    extractor = transformers.Wav2Vec2FeatureExtractor(do_normalize=normalised)
    wanted = extractor(sound(), sampling_rate=RATE, return_tensors="pt").input_values
    made = Normalised(extractor)(torch.from_numpy(sound())[None])
    torch.testing.assert_close(made, wanted, atol=1e-5, rtol=0)


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_recordings(width: int, tmp_path: Path) -> None:
    """Two channels of the same sound, of each number of bytes."""
    whole = np.round(sound(100).astype(np.float64) * 2 ** (8 * width - 2)).astype(np.int64)
    stored = whole + 128 if width == 1 else whole
    columns = np.repeat(stored[:, None], 2, 1).reshape(-1).astype("<i8")
    content = columns.view(np.uint8).reshape(-1, 8)[:, :width].tobytes()
    with wave.open(str(tmp_path / "a.wav"), "wb") as opened:
        opened.setparams((2, width, RATE, 0, "NONE", ""))
        opened.writeframes(content)
    np.testing.assert_allclose(samples_of(tmp_path / "a.wav", RATE), whole / 2 ** (8 * width - 1), atol=1e-7)


def test_files_that_are_no_recordings(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"there is no recording .*a\.wav"):
        samples_of(tmp_path / "a.wav", RATE)
    (tmp_path / "a.wav").write_bytes(b"RIFF")
    with pytest.raises(BundleError, match=r"is not a WAVE file of whole numbers: .*; `ffmpeg -i a\.wav"):
        samples_of(tmp_path / "a.wav", RATE)
    with pytest.raises(BundleError, match="has no samples"):
        samples_of(write_wave(tmp_path / "b.wav", sound(0)), RATE)


def test_recordings_that_do_not_fit(whisper_bundle: Path, parakeet_bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(
        BundleError, match=r"the recording is 31\.2 s long, and the bundle takes 30\.0 s; the model writes no times"
    ):
        transcribe(whisper_bundle, sound(500_000))
    with pytest.raises(BundleError, match=r"the recording is 31\.2 s long, and the bundle takes 1\.6 s"):
        transcribe(parakeet_bundle, sound(500_000))
    with pytest.raises(BundleError, match=r"one row of samples, got an array of \[2, 5\]"):
        transcribe(whisper_bundle, np.zeros((2, 5), np.float32))
    (tmp_path / "metadata.json").write_text('{"kind": "diffusion"}')
    with pytest.raises(BundleError, match="of the kind 'diffusion', and not of a model that recognises speech"):
        transcribe(tmp_path, sound())
