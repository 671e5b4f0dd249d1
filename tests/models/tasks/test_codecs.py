"""Codecs of whole recordings: codes and samples are those of transformers, for several lengths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from patcomp.emit.native import Native
from patcomp.errors import PatcompError
from patcomp_models.tasks import convert_folder
from tests.models.bundles.speech_models import drawn_model, save
from tests.models.bundles.streaming_models import encodec
from tests.models.tasks.comparing import runs

OF_48_KHZ: dict[str, Any] = {
    "use_causal_conv": False, "norm_type": "time_group_norm", "normalize": True, "chunk_length_s": 0.4,
    "overlap": 0.05, "audio_channels": 2,
}  # fmt: skip


def dac(folder: Path) -> Any:
    """DAC with frames of 24 samples."""
    torch.manual_seed(0)
    config = transformers.DacConfig(
        encoder_hidden_size=4, downsampling_ratios=[2, 3, 4], decoder_hidden_size=32, n_codebooks=3, codebook_size=32,
        codebook_dim=4, sampling_rate=400,
    )  # fmt: skip
    return save(folder, drawn_model(transformers.DacModel(config)))


def close(found: Any, wanted: torch.Tensor) -> None:
    np.testing.assert_allclose(np.asarray(found), wanted.numpy(), rtol=0, atol=1e-5 * float(wanted.abs().max()))


@pytest.mark.slow
def test_dac(tmp_path: Path, native: Native) -> None:
    model = transformers.DacModel.from_pretrained(dac(tmp_path / "model")).eval()
    program = convert_folder(tmp_path / "model")
    for frames in (7, 20):
        audio = torch.randn(1, 1, 24 * frames, generator=torch.Generator().manual_seed(frames))
        with torch.no_grad():
            codes = model.encode(audio).audio_codes
            wanted = model.decode(audio_codes=codes).audio_values
        for found in runs(program, native, "encode", {"audio": audio}):
            np.testing.assert_array_equal(found["codes"], codes)
        for found in runs(program, native, "decode", {"codes": codes.int()}):
            close(found["audio"], wanted[:, None])
        assert len(np.unique(codes)) > 8


@pytest.mark.slow
def test_encodec(tmp_path: Path, native: Native) -> None:
    """Causal: any number of frames."""
    model = transformers.EncodecModel.from_pretrained(encodec(tmp_path / "model")).eval()
    program = convert_folder(tmp_path / "model")
    for frames in (7, 30):
        audio = torch.randn(1, 1, 8 * frames, generator=torch.Generator().manual_seed(frames))
        with torch.no_grad():
            codes = model.encode(audio, bandwidth=1.0).audio_codes
            wanted = model.decode(codes, [None]).audio_values
        for found in runs(program, native, "encode", {"audio": audio}):
            np.testing.assert_array_equal(found["codes"], codes[0])
        for found in runs(program, native, "decode", {"codes": codes[0].int()}):
            close(found["audio"], wanted)


@pytest.mark.slow
def test_encodec_of_chunks(tmp_path: Path, native: Native) -> None:
    """Of 48 kHz: the chunks of a recording, which transformers adds where they overlap."""
    folder = encodec(tmp_path / "model", **OF_48_KHZ)
    model = transformers.EncodecModel.from_pretrained(folder).eval()
    program = convert_folder(folder)
    stride, size = model.config.chunk_stride, model.config.chunk_length
    audio = torch.randn(1, 2, 2 * stride + size, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        whole = model.encode(audio, bandwidth=1.0)
        wanted = model.decode(whole.audio_codes[:3], whole.audio_scales[:3]).audio_values
    for way in range(2):  # the evaluator, and the runtime
        chunks = []
        for number, start in enumerate((0, stride, 2 * stride)):
            found = list(runs(program, native, "encode", {"audio": audio[..., start : start + size].contiguous()}))[way]
            np.testing.assert_array_equal(found["codes"], whole.audio_codes[number])
            close(found["scale"], whole.audio_scales[number])
            coded = {name: torch.as_tensor(np.asarray(value)) for name, value in found.items()}
            made = list(runs(program, native, "decode", coded))[way]["audio"]
            chunks.append(torch.as_tensor(np.asarray(made)))
        close(model._linear_overlap_add(chunks, stride), wanted)
    assert len(np.unique(whole.audio_codes)) > 16


def test_a_chunk_of_no_whole_frames(tmp_path: Path) -> None:
    folder = encodec(tmp_path / "model", **{**OF_48_KHZ, "chunk_length_s": 0.41})
    with pytest.raises(PatcompError, match=r"chunk_length_s .* is 0.41, which is no whole number of frames of 8"):
        convert_folder(folder)
