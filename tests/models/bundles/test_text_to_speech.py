"""Models that speak: the samples of a bundle are those of transformers with the same noise."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from patcomp.emit.asset import load
from patcomp_models.bundles import BundleError, check_bundle, convert_bundle
from tests.models.bundles.vits_models import vits

pytest.importorskip("coreai")


def spoken(folder: Path, text: str, speaker: int | None, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any, Any]:
    """Token ids, the noise that the model drew, and its samples."""
    drawn: list[torch.Tensor] = []
    for name in ("randn", "randn_like"):
        own = getattr(torch, name)

        def kept(*given: Any, _own: Any = own, **options: Any) -> torch.Tensor:
            drawn.append(_own(*given, **options))
            return drawn[-1]

        monkeypatch.setattr(torch, name, kept)
    model = transformers.VitsModel.from_pretrained(folder).eval()
    ids = transformers.AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt").input_ids
    del drawn[:]
    with torch.no_grad():
        samples = model(input_ids=ids, speaker_id=speaker).waveform
    monkeypatch.undo()
    return ids, drawn, samples


CASES = [
    pytest.param({}, id="durations that are drawn", marks=pytest.mark.slow),
    pytest.param({"use_stochastic_duration_prediction": False}, id="durations", marks=pytest.mark.slow),
    pytest.param({"num_speakers": 3, "speaker_embedding_size": 8}, id="speakers", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("options", CASES)
def test_vits(options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = vits(tmp_path / "model", **options)
    out = convert_bundle(folder, out=tmp_path / "out")
    assert check_bundle(out) == ()
    config = json.loads((out / "metadata.json").read_text())["config"]
    speaker = {"speaker_id": np.array([2], np.int32)} if "num_speakers" in options else {}
    asset = load(out / "main.aimodel")
    for text in ("hello", "a longer text than the other one"):
        ids, drawn, wanted = spoken(folder, text, 2 if speaker else None, monkeypatch)
        given = {"input_ids": ids.int().numpy(), **speaker}
        noise = {"duration_noise": drawn[0].numpy()} if len(drawn) == 2 else {}
        durations = asset.run({**given, **noise}, entrypoint="durations")["durations"]
        assert durations.sum() * config["samples_per_frame"] == wanted.shape[1]
        made = asset.run({**given, "durations": durations, "noise": drawn[-1].numpy()})["waveform"]
        np.testing.assert_allclose(made, wanted.numpy(), atol=1e-5)
    asset.close()


def test_numbers_outside_of_the_splines() -> None:
    """Those that are left as they are, and those at the ends."""
    from transformers.models.vits import modeling_vits

    from patcomp_models.bundles.synthesis.vits_modules import splines_without_selections

    name = "_unconstrained_rational_quadratic_spline"
    inputs = torch.tensor([[[-9.0, -5.0, -1.0, 0.0, 2.5, 5.0, 5.1]]])
    draw = torch.Generator().manual_seed(0)
    parts = [torch.randn(1, 1, 7, size, generator=draw) for size in (4, 4, 3)]
    own = getattr(modeling_vits, name)
    wanted, _ = own(inputs, *parts, reverse=True)
    with splines_without_selections():
        made, _ = getattr(modeling_vits, name)(inputs, *parts, reverse=True)
    torch.testing.assert_close(made, wanted)
    assert getattr(modeling_vits, name) is own


def test_models_that_become_no_bundle(tmp_path: Path) -> None:
    name = "SeamlessM4Tv2ForTextToSpeech"
    (tmp_path / "config.json").write_text(json.dumps({"architectures": [name]}))
    with pytest.raises(BundleError, match=f"holds {name}, which becomes no bundle, because it.*FILE.py:FUNCTION"):
        convert_bundle(tmp_path, out=tmp_path / "out")


def test_a_model_without_tokenizer(tmp_path: Path) -> None:
    folder = vits(tmp_path / "model")
    (folder / "vocab.json").unlink()
    with pytest.raises(BundleError, match=r"has no tokenizer\.json"):
        convert_bundle(folder, out=tmp_path / "out")
    shutil.rmtree(folder)
    assert not list(tmp_path.iterdir())
