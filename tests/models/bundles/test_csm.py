"""CSM writes the frames that `generate` of transformers writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from patcomp.emit.asset import load
from patcomp_models.bundles import check_bundle, convert_bundle
from tests.models.bundles.speaking_models import csm

_FRAMES = 5


def _written(bundle: Path, tokens: list[int]) -> list[list[int]]:
    """The most probable frames: the loop of `docs/speaking.md`."""
    asset = load(bundle / "main.aimodel")
    states: dict[str, Any] = {name: np.zeros((2, 1, 2, 64, 8), np.float32) for name in ("keyCache", "valueCache")}
    new = asset.run({"input_ids": np.array([tokens], np.int32)}, entrypoint="text")["embeddings"]
    frames: list[list[int]] = []
    for step in range(_FRAMES):
        places = np.arange(len(tokens) + step, dtype=np.int32)[None]
        made = asset.run({"inputs_embeds": new, "position_ids": places}, states)
        frame = [int(made["logits"][0, -1].argmax())]
        while len(frame) < 4:
            given = {"codes": np.array([frame], np.int32), "hidden": made["hidden"][:, -1]}
            frame.append(int(asset.run(given, entrypoint="depth")["logits"][0].argmax()))
        frames.append(frame)
        new = asset.run({"codes": np.array([[frame]], np.int32)}, entrypoint="codes")["embeddings"]
    asset.close()
    return frames


def test_the_frames_are_those_of_generate(tmp_path: Path) -> None:
    pytest.importorskip("coreai")
    folder = csm(tmp_path / "model")
    out = convert_bundle(folder, out=tmp_path / "out", dtype="float32")
    assert check_bundle(out) == ()
    model = transformers.CsmForConditionalGeneration.from_pretrained(folder).eval()
    model.generation_config.do_sample = model.depth_decoder.generation_config.do_sample = False
    written = []
    for tokens in ([3, 4, 5, 6], [9, 8, 12]):
        made = model.generate(input_ids=torch.tensor([tokens]), max_new_tokens=_FRAMES)
        assert _written(out, tokens) == made[0].tolist()
        written.append(made[0].tolist())
    assert written[0] != written[1]
    assert len({code for frame in written[0] for code in frame}) > 4
