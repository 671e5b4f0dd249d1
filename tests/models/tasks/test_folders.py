"""Folders of every task: the numbers of the model, on the evaluator and on the runtime."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from patcomp.emit.native import Native
from patcomp.errors import PatcompError
from patcomp_models.tasks import TASKS, convert_folder
from patcomp_models.tasks.table import task_of
from tests.helpers.command import Command
from tests.models.tasks.comparing import image, runs, same
from tests.models.tasks.folders import MODELS, SERIES, folder
from tests.models.tasks.reading_models import LINES

IN_CI = ("ViTForImageClassification", "YolosForObjectDetection", "WhisperForConditionalGeneration")


def test_every_task_is_tested() -> None:
    tested = {task_of(name).name for name in (*MODELS, *LINES, "VisionEncoderDecoderModel", "DacModel")}
    assert {task.name for task in TASKS} - tested == {"universal segmentation"}  # SciPy


def text(length: int, padded: int = 0) -> dict[str, torch.Tensor]:
    ids = torch.randint(3, 96, (1, length), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    if padded:
        mask[:, -padded:] = 0
    return {"input_ids": ids, "attention_mask": mask}


OTHERS = ("clip", "siglip", "clap", "whisper", "t5")
WHOLE = [name for name, (kind, _) in MODELS.items() if kind not in OTHERS and name not in SERIES]


@pytest.mark.parametrize(
    "name", [name if name in IN_CI else pytest.param(name, marks=pytest.mark.slow) for name in WHOLE]
)
def test_images_and_texts(name: str, tmp_path: Path, native: Native) -> None:
    model = folder(tmp_path / "model", name)
    program = convert_folder(tmp_path / "model")
    if model.main_input_name.startswith("pixel_values"):
        (shape,) = (spec.shape for spec in program.signature().inputs)
        examples = [{"pixel_values": torch.randn(shape, generator=torch.Generator().manual_seed(1))}]
    else:
        examples = [text(7), text(20, padded=5)]
    for inputs in examples:
        with torch.no_grad():
            wanted = model(*inputs.values()) if "pixel_values" in inputs else model(**inputs)
        expected = {each for each, value in wanted.items() if isinstance(value, torch.Tensor)}
        expected = {"logits", "pred_boxes"} if name.endswith("ForObjectDetection") else expected
        for found in runs(program, native, "main", inputs):
            assert found.keys() == expected
            for output, value in found.items():
                same(value, wanted[output])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["CLIPModel", "SiglipModel", "ClapModel"])
def test_two_towers(name: str, tmp_path: Path, native: Native) -> None:
    model = folder(tmp_path / "model", name)
    program = convert_folder(tmp_path / "model")
    first, inputs = {"pixel_values": image(32)}, text(20, padded=6)
    if name == "SiglipModel":
        del inputs["attention_mask"]
    elif name == "ClapModel":
        first = {"input_features": torch.randn(1, 1, 512, 32, generator=torch.Generator().manual_seed(1))}
        inputs["input_ids"] = torch.where(inputs["attention_mask"] > 0, inputs["input_ids"], 1)
    with torch.no_grad():
        wanted = model(**first, **inputs)
    function = "audio" if name == "ClapModel" else "image"
    for found in runs(program, native, function, first):
        same(found[f"{function}_embeds"], wanted[f"{function}_embeds"])
    for found in runs(program, native, "text", inputs):
        same(found["text_embeds"], wanted.text_embeds)


@pytest.mark.parametrize(
    "name", ["WhisperForConditionalGeneration", pytest.param("T5ForConditionalGeneration", marks=pytest.mark.slow)]
)
def test_sequences(name: str, tmp_path: Path, native: Native) -> None:
    """The input is read once; then a few tokens, one more, and one after a step back."""
    model = folder(tmp_path / "model", name)
    program = convert_folder(tmp_path / "model")
    read = torch.randn(1, 8, 40) if "Whisper" in name else text(11)["input_ids"]
    written = torch.tensor([[1, 17, 80, 5, 33, 60]])
    with torch.no_grad():
        wanted = model(read, decoder_input_ids=written).logits
    (cross, other) = runs(program, native, "encode", {program.input_names("encode")[0]: read})
    for each, value in cross.items():
        same(other[each], value)
    layers, _, heads, _, width = cross["crossKeys"].shape
    states = [{state: np.zeros((layers, 1, heads, 24, width), np.float32) for state in ("keyCache", "valueCache")}
              for _ in range(2)]  # fmt: skip
    tensors = {state: torch.from_numpy(value) for state, value in states[0].items()}
    for start, end in ((0, 3), (3, 4), (4, 6), (2, 5)):
        inputs = {"input_ids": written[:, start:end].int(), "position_ids": torch.arange(end)[None].int(), **cross}
        arrays = {each: value.numpy() for each, value in inputs.items()}
        evaluated = program.run(inputs, entrypoint="decode", state=tensors)
        for found in (evaluated, native.run(program.module, arrays, states[1], entry="decode")):
            same(torch.as_tensor(np.asarray(found["logits"])), wanted[:, start:end])


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"architectures": ["LlamaForCausalLM"]}, "language models are converted by patcomp convert-lm"),
        ({"architectures": ["VitsForTextToSpeech"]}, "and no task takes it; known tasks: image"),
        ({}, "a model without a name, and no task takes it"),
        ({"architectures": ["ViTModel"], "auto_map": {"AutoModel": "x.Y"}}, "runs Python code of its folder"),
        ({"architectures": ["ViTModel"], "model_type": "vit"}, "model.safetensors' is not a whole file of safetensors"),
    ],
)
def test_bad_folders(config: dict[str, Any], message: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes(b"?")
    with pytest.raises(PatcompError, match=message):
        convert_folder(tmp_path)


def test_the_command(patcomp: Command, tmp_path: Path) -> None:
    folder(tmp_path / "resnet-1.5", "ResNetForImageClassification")
    done = patcomp("convert", str(tmp_path / "resnet-1.5"), "--half", "--verify")
    assert done.code == 0, done.err
    assert (tmp_path / "resnet-1.5.aimodel").is_dir()
    done = patcomp("convert", str(tmp_path / "resnet-1.5"), "--dynamic", "pixel_values:0=batch", "--strict")
    assert done.code == 2
    assert "is the folder of a model, whose task decides --dynamic, --strict; leave it out" in done.err


@pytest.mark.slow
def test_the_command_with_several_functions(patcomp: Command, tmp_path: Path) -> None:
    for name in ("CLIPModel", "WhisperForConditionalGeneration"):
        folder(tmp_path / name, name)
        done = patcomp("convert", str(tmp_path / name), "--verify")
        assert done.code == 0, done.err
        assert done.err.count("against eager PyTorch: passed") == 2, done.err
