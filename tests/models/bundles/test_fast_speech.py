"""FastSpeech 2: the rows of phonemes, repeated by their durations, become the sound that transformers makes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from patcomp_models.bundles import check_bundle, convert_bundle
from tests.models.bundles import speaking_models
from tests.models.bundles.bundle_parts import parts_of

pytest.importorskip("coreai")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "speed", "longer"),
    [("FastSpeech2ConformerWithHifiGan", 1.2, 1.3), ("FastSpeech2ConformerModel", 1.0, -9.0)],  # a frame of each
)
def test_fast_speech(kind: str, speed: float, longer: float, tmp_path: Path) -> None:
    several = {"num_speakers": 2, "speaker_embed_dim": 6, "num_languages": 3} if "Hifi" in kind else {}
    folder = speaking_models.fast_speech(
        tmp_path / "model", has_vocoder="Hifi" in kind, longer=longer, speaking_speed=speed, **several
    )
    bundle = convert_bundle(folder, out=tmp_path / "out", verify=False)
    assert check_bundle(bundle) == ()
    assert (bundle / "vocab.json").read_bytes() == (folder / "vocab.json").read_bytes()
    model = getattr(transformers, kind).from_pretrained(folder).eval()
    with parts_of(bundle) as parts:
        for ids, speaker, language in (([3, 5, 9, 1, 7, 11, 2], 1, 2), ([4, 8, 8], 0, 1)):
            voice = torch.randn(1, 6, generator=torch.Generator().manual_seed(speaker))
            whose = {"speaker_ids": torch.tensor([[speaker]]), "lang_ids": torch.tensor([[language]])}
            with torch.no_grad():
                expected = model(torch.tensor([ids]), **({**whose, "speaker_embedding": voice} if several else {}))
            given = {"input_ids": [ids]}
            if several:
                given |= {"speaker_id": [speaker], "language_id": [language], "speaker_embedding": voice}
            made = parts.call("main", "durations", given)
            hidden = np.repeat(made["hidden"], made["durations"][0], 1)
            name = "waveform" if "Hifi" in kind else "spectrogram"
            found, wanted = parts.call("main", "main", {"hidden": hidden})[name], expected[name]
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
            assert wanted.std() > 1e-2
            assert len(set(made["durations"][0].tolist())) > (2 if longer > 0 else 0)
