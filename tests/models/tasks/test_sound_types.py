"""Each type that transformers classifies sounds with, by name: the whole sound, each frame, and vectors of speakers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers.models.auto import modeling_auto

from patcomp.errors import PatcompError
from patcomp_models.tasks import convert_folder
from tests.models.tasks.comparing import same
from tests.models.tasks.folders import HEADS, HEARS

_MAPPINGS = ("AUDIO_CLASSIFICATION", "AUDIO_FRAME_CLASSIFICATION", "AUDIO_XVECTOR")
_NAMES = sorted(
    (name, kind)
    for mapping in _MAPPINGS
    for kind, name in getattr(modeling_auto, f"MODEL_FOR_{mapping}_MAPPING_NAMES").items()
)
_OWN: dict[str, dict[str, Any]] = {
    **dict(HEADS.values()),
    "data2vec-audio": {**HEARS, "conv_pos_kernel_size": 3},
    "sew": {**HEARS, "squeeze_factor": 2},
    "wav2vec2-bert": {**HEARS, "feature_projection_input_dim": 24},
}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), _NAMES)
@pytest.mark.filterwarnings("ignore:the model was exported for")
def test_a_type(name: str, kind: str, tmp_path: Path) -> None:
    if kind == "nemotron3_diarization":
        (tmp_path / "config.json").write_text(f'{{"architectures": ["{name}"], "model_type": "{kind}"}}')
        with pytest.raises(PatcompError, match="speaker_diarization"):
            convert_folder(tmp_path)
        return
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **_OWN.get(kind, HEARS))
    model = getattr(transformers, name)(config).eval()
    model.save_pretrained(tmp_path / "model")
    program = convert_folder(tmp_path / "model")
    (taken,) = program.signature().inputs
    assert taken.name == model.main_input_name
    draw = torch.Generator().manual_seed(1)
    for size in (700, 1111):
        shape = [1 if place == 0 else each if isinstance(each, int) else size for place, each in enumerate(taken.shape)]
        sound = torch.randn(shape, generator=draw)
        with torch.no_grad():
            wanted = model(**{taken.name: sound})
        made = program.run({taken.name: sound})
        assert "logits" in made
        for output, value in made.items():
            same(torch.as_tensor(value), wanted[output])
