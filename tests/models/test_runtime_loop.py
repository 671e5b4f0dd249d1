"""A loop that shares no line with ours writes the tokens of `generate` of transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.runtime_loop import language, tokens_of, writing
from patcomp_models.language import convert_language_model, convert_vision_language_model
from patcomp_models.language.vision.towers import tower_of
from patcomp_models.tasks import convert_folder
from tests.models.language import checkpoints, vision_checkpoints
from tests.models.tasks.folders import folder


def test_of_text(tmp_path: Path) -> None:
    model = checkpoints.checkpoint("llama")
    convert_language_model(model, out=tmp_path / "out", dtype="float32")
    wanted = checkpoints.generated(model, checkpoints.PROMPT, 6)
    assert tokens_of(language(tmp_path / "out", checkpoints.PROMPT, 6)) == wanted


def test_of_an_image(tmp_path: Path) -> None:
    model: Any = vision_checkpoints.checkpoint("llava")
    tower = tower_of(model, None)
    convert_vision_language_model(
        model, out=tmp_path / "out", dtype="float32", image_processor=vision_checkpoints.PROCESSOR
    )  # fmt: skip
    pixels = torch.rand(1, 3, tower.size, tower.size, generator=torch.Generator().manual_seed(0))
    tokens = vision_checkpoints.prompt(tower.token_count)
    wanted = vision_checkpoints.generated(model, tower, tokens, pixels, 6)[0]
    assert tokens_of(language(tmp_path / "out", tokens, 6, [pixels.numpy()])) == wanted


def test_of_a_sequence(tmp_path: Path) -> None:
    model = folder(tmp_path / "model", "T5ForConditionalGeneration")
    convert_folder(tmp_path / "model").save_asset(tmp_path / "out.aimodel")
    read = np.arange(5, 14, dtype=np.int32)[None]
    made = model.generate(torch.from_numpy(read).long(), do_sample=False, min_new_tokens=6, max_new_tokens=6)
    wanted = made[0].tolist()
    start = [model.config.decoder_start_token_id]
    assert tokens_of(writing(tmp_path / "out.aimodel", {"input_ids": read}, start, len(wanted) - 1)) == wanted[1:]
