"""Who speaks in each chunk: what transformers computes in its own stream, also while frames are chosen to be kept."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from patcomp.emit.asset import load
from patcomp_models.bundle_folders.interfaces import Interfaces
from patcomp_models.bundles import check_bundle, convert_bundle
from tests.models.bundles import streaming_models
from tests.models.bundles.refusals import (
    Change,
    assert_departs,
    assert_refused,
    config,
    edited,
    unchanged,
    without,
)

pytest.importorskip("coreai")
_CHUNKS, _SIZE, _BEHIND = 14, 3, 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return streaming_models.sortformer(tmp_path_factory.mktemp("streaming") / "model")


@pytest.fixture(scope="module")
def bundle(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("bundles") / "out"
    return convert_bundle(folder, out=out, chunk=_SIZE, lookahead=_BEHIND)


@pytest.mark.slow
def test_each_chunk(folder: Path, bundle: Path) -> None:
    assert check_bundle(bundle) == ()
    model = transformers.Nemotron3DiarizationForAudioFrameClassification.from_pretrained(folder).eval()
    told = Interfaces.of(bundle / "main.aimodel").function("main").states
    with closing(load(bundle / "main.aimodel")) as asset, torch.no_grad():
        for seed in (1, 2):
            spectrum = torch.randn(1, _CHUNKS * _SIZE * 2, 8, generator=torch.Generator().manual_seed(seed))
            states = {name: np.zeros(state.shape, state.dtype) for name, state in told.items()}
            cache, heard, chosen = None, list[torch.Tensor](), list[bool]()
            for start in range(0, spectrum.shape[1], _SIZE * 2):
                is_last = start + _SIZE * 2 == spectrum.shape[1]
                behind = 0 if is_last else _BEHIND
                part = spectrum[:, start : start + (_SIZE + _BEHIND) * 2]
                if part.shape[1] < (_SIZE + _BEHIND) * 2 and not is_last:  # what is behind is not spoken yet
                    part = torch.nn.functional.pad(part, (0, 0, 0, (_SIZE + _BEHIND) * 2 - part.shape[1]))
                wanted = model(part, speaker_cache=cache, num_lookahead_frames=behind)
                cache = wanted.speaker_cache
                given = {"input_features": part.numpy().copy()}
                made = asset.run(given, states, "last" if is_last else "main")["logits"]
                np.testing.assert_allclose(made, wanted.logits, rtol=1e-5, atol=1e-5)
                heard.append(wanted.logits > 0)
                chosen.append(cache.is_compressed)
                assert states["counts"].tolist() == [cache.num_cache_frames, cache.num_fifo_frames, cache.is_compressed]
            assert chosen.count(True) > 4
            assert 0.1 < torch.cat(heard).float().mean() < 0.9


DEPARTURES: dict[str, tuple[Change, str]] = {
    "no config": (edited(lambda m: m.pop("config")), "config is missing"),
    "no asset": (without("main.aimodel"), "assets.main is main.aimodel, which does not exist"),
    "another role": (edited(lambda m: m.update(assets={"model": "main.aimodel"})), "assets.main is missing"),
    "no extractor": (without("processor/preprocessor_config.json"), "there is no processor/preprocessor_config.json"),
    "no rate": (config(sample_rate=None), "config.sample_rate is None, and must be an integer"),
    "no chunk": (edited(lambda m: m["config"].pop("chunk")), "config.chunk is None"),
    "half a frame": (config(lookahead=0.5), "config.lookahead is 0.5"),
    "other chunks": (config(chunk=4), "the input input_features of last is 1 x 6 x 8 of float32, and must be 1 x 8"),
    "another lookahead": (config(lookahead=3), "the input input_features of main is 1 x 10 x 8"),
    "other bins": (config(num_mel_bins=80), "input_features of main is 1 x 10 x 8 of float32, and must be 1 x 10 x 80"),
    "more speakers": (config(num_speakers=4), "the output logits of main is 1 x 6 x 3"),
    "another factor": (config(subsampling_factor=8), "the input input_features of main is 1 x 10 x 8"),
    "other kept frames": (config(kept_frames=8), "the state speakerFrames of main is 1 x 12 x 16 of float32, and must"),
    "another queue": (config(queue_frames=8), "the state queue of last is 1 x 6 x 16"),
    "another width": (config(hidden_size=8), "the state speakerFrames of last is 1 x 12 x 16"),
    "a damaged asset": (without("main.aimodel/main.mlirb"), "is not an asset"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", DEPARTURES)
def test_departures(name: str, bundle: Path, tmp_path: Path) -> None:
    assert_departs(bundle, tmp_path, *DEPARTURES[name])


BAD: dict[str, tuple[Change, dict[str, Any], str]] = {
    "no chunk": (unchanged, {"chunk": 0}, "chunk is 0, and must be a number of frames of at least 1"),
    "a negative lookahead": (unchanged, {"lookahead": -1}, "lookahead is -1, and must be a number of frames of at"),
    "no extractor": (without("preprocessor_config.json"), {}, "has no preprocessor_config.json"),
    "no weights": (without("model.safetensors"), {}, "lacks model.safetensors, the file of its weights"),
    "another class": (
        edited(lambda c: c.update(architectures=["BertModel"]), "config.json"), {"kind": "speaker_diarization"},
        "holds BertModel, and not Nemotron3Diarization"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_folders(name: str, folder: Path, tmp_path: Path) -> None:
    assert_refused(folder, *BAD[name], tmp_path)
