"""Folders of every task: the numbers of the model, on the evaluator and on the runtime."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from benchmarks.runtime_loop import tokens_of, writing
from patcomp.emit.native import Native
from patcomp.errors import ConversionWarning, PatcompError
from patcomp_models.tasks import TASKS, convert_folder
from patcomp_models.tasks.table import task_of
from tests.helpers.command import Command
from tests.models.tasks.comparing import image, runs, same
from tests.models.tasks.folders import HEADS, MODELS, SERIES, TRANSLATORS, draw, folder
from tests.models.tasks.reading_models import LINES

IN_CI = ("ViTForImageClassification", "YolosForObjectDetection", "WhisperForConditionalGeneration")


def test_every_task_is_tested() -> None:
    tested = {task_of(name).name for name in (*MODELS, *LINES, "VisionEncoderDecoderModel", "DacModel")}
    assert {task.name for task in TASKS} - tested == {
        "universal segmentation",
        "image and text to text",
    }  # SciPy; below


def text(length: int, padded: int = 0) -> dict[str, torch.Tensor]:
    ids = torch.randint(3, 96, (1, length), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    if padded:
        mask[:, -padded:] = 0
    return {"input_ids": ids, "attention_mask": mask}


OTHERS = ("clip", "siglip", "clap", "whisper", "markuplm")
WHOLE = [
    name for name, (kind, _) in MODELS.items() if kind not in OTHERS and name not in {**SERIES, **HEADS, **TRANSLATORS}
]


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


QUICK = ("WhisperForConditionalGeneration", "BartForConditionalGeneration")


@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in (QUICK[0], *TRANSLATORS)],
)
def test_sequences(name: str, tmp_path: Path, native: Native) -> None:
    """The input is read once; then a few tokens, one more, and one after a step back, of one text and of three."""
    model = folder(tmp_path / "model", name)
    program = convert_folder(tmp_path / "model")
    read = torch.randn(1, 8, 40) if "Whisper" in name else text(11)["input_ids"]
    (cross, other) = runs(program, native, "encode", {program.input_names("encode")[0]: read})
    for each, value in cross.items():
        same(other[each], value)
    layers, _, heads, _, width = cross["crossKeys"].shape
    for written in (torch.tensor([[1, 17, 80, 5, 33, 60]]), text(18)["input_ids"].reshape(3, 6)):
        with torch.no_grad():
            wanted = model(read.expand(len(written), *read.shape[1:]), decoder_input_ids=written).logits
        states = [{state: np.zeros((layers, len(written), heads, 24, width), np.float32)
                   for state in ("keyCache", "valueCache")} for _ in range(2)]  # fmt: skip
        tensors = {state: torch.from_numpy(value) for state, value in states[0].items()}
        for start, end in ((0, 3), (3, 4), (4, 6), (2, 5)):
            inputs = {"input_ids": written[:, start:end].int(), "position_ids": torch.arange(end)[None].int(), **cross}
            arrays = {each: value.numpy() for each, value in inputs.items()}
            evaluated = program.run(inputs, entrypoint="decode", state=tensors)
            for found in (evaluated, native.run(program.module, arrays, states[1], entry="decode")):
                same(torch.as_tensor(np.asarray(found["logits"])), wanted[:, start:end])


def test_as_generate_writes(tmp_path: Path) -> None:
    """The best token of each call, and three beams whose states are put in another order after each call."""
    model = folder(tmp_path / "model", "T5ForConditionalGeneration")
    program = convert_folder(tmp_path / "model")
    read = text(11)["input_ids"]
    cross = program.run({"input_ids": read.int()}, entrypoint="encode")
    layers, _, heads, _, width = cross["crossKeys"].shape
    for beams in (1, 3):
        states = {each: torch.zeros(layers, beams, heads, 12, width) for each in ("keyCache", "valueCache")}
        scores = torch.tensor([0.0, *[-1e9] * (beams - 1)])
        written = torch.zeros(beams, 1, dtype=torch.int64)
        for length in range(1, 9):
            inputs = {"input_ids": written[:, -1:].int(), "position_ids": torch.arange(length)[None].int(), **cross}
            logits = program.run(inputs, entrypoint="decode", state=states)["logits"][:, -1].log_softmax(-1)
            logits[:, 1] = -1e9  # no end
            scores, best = (scores[:, None] + logits).flatten().topk(beams)
            rows = best // logits.shape[1]
            written = torch.cat([written[rows], (best % logits.shape[1])[:, None]], 1)
            for state in states.values():
                state.copy_(state[:, rows])
        wanted = model.generate(
            read, num_beams=beams, do_sample=False, min_new_tokens=8, max_new_tokens=8, length_penalty=0.0
        )
        assert written[0].tolist() == wanted[0].tolist()


HEARD = ("Wav2Vec2ForSequenceClassification", "BertForMultipleChoice", "LayoutLMForTokenClassification")


@pytest.mark.parametrize(
    "name", [name if name in HEARD else pytest.param(name, marks=pytest.mark.slow) for name in HEADS]
)
def test_heads(name: str, tmp_path: Path, native: Native) -> None:
    model = folder(tmp_path / "model", name)
    program = convert_folder(tmp_path / "model")
    inputs = _other_sizes({spec.name: spec for spec in program.signature().inputs})
    with torch.no_grad():
        wanted = model(**{model.main_input_name if each == "sound" else each: value for each, value in inputs.items()})
    for found in runs(program, native, "main", inputs):
        assert found
        for output, value in found.items():
            same(value, wanted[output])


def _other_sizes(specs: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Random inputs; open sizes are 3 choices or kinds, 1,001 samples, or 9 tokens."""
    numbers = torch.Generator().manual_seed(1)
    sizes = {"choices": 3, "kinds": 3, "samples": 1001, "frames": 33, "length": 9}
    made = {}
    for name, spec in specs.items():
        shape = [size if isinstance(size, int) else sizes[str(size)] for size in spec.shape]
        if name == "attention_mask":
            made[name] = torch.ones(shape, dtype=torch.int64)
        elif name == "bbox":
            made[name] = torch.tensor([[1, 2, 3, 4], [10, 20, 30, 60], [100, 20, 300, 40]]).repeat(3, 1)[None]
        elif name in ("input_ids", "token_type_ids"):
            made[name] = torch.randint(3, 96, shape, generator=numbers) % (2 if name == "token_type_ids" else 96)
        else:
            made[name] = torch.randn(shape, generator=numbers)
    return made


def test_what_a_model_would_do_without(tmp_path: Path) -> None:
    folder(tmp_path / "model", "MarkupLMForTokenClassification")
    with pytest.raises(
        PatcompError, match="MarkupLMForTokenClassification takes xpath_tags_seq too, and without it computes"
    ):
        convert_folder(tmp_path / "model")


def test_a_text_with_an_image(tmp_path: Path) -> None:
    """Florence-2: the tokens of `generate`, by a loop of its own on the runtime."""
    bart = {"d_model": 32, "vocab_size": 96, "max_position_embeddings": 64, "decoder_start_token_id": 2}
    for part in ("encoder", "decoder"):
        bart |= {f"{part}_layers": 2, f"{part}_attention_heads": 4, f"{part}_ffn_dim": 48}
    widths = {"embed_dim": [8, 16, 16, 32], "num_heads": [2, 2, 2, 4], "num_groups": [2, 2, 2, 4]}
    vision = {**widths, "depths": [1] * 4, "window_size": 2, "projection_dim": 32, "max_position_embeddings": 8}
    config = transformers.Florence2Config(text_config={"model_type": "bart", **bart}, vision_config=vision)
    config.image_token_id = 90
    torch.manual_seed(0)
    model = draw(transformers.Florence2ForConditionalGeneration(config).eval())
    model.save_pretrained(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"size": {"height": 64, "width": 64}}))
    convert_folder(tmp_path).save_asset(tmp_path / "out.aimodel")
    for words, pixels in (([5, 6, 7], image(64)), ([30, 8, 21, 44, 9], -image(64))):
        count = model.get_image_features(pixels).pooler_output.shape[1]
        tokens = torch.tensor([[90] * count + words])
        made = model.generate(
            tokens, pixel_values=pixels, do_sample=False, num_beams=1, min_new_tokens=6, max_new_tokens=6,
            forced_eos_token_id=None,
        )  # fmt: skip
        read = {"input_ids": tokens.int().numpy(), "pixel_values": pixels.numpy()}
        wanted = made[0].tolist()
        assert tokens_of(writing(tmp_path / "out.aimodel", read, wanted[:1], 6)) == wanted[1:]


def test_a_model_that_chooses_its_attention_for_good(tmp_path: Path) -> None:
    """BigBird computes full attention from the first short text on; a fresh one reads a long text in blocks."""
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.BigBirdConfig(**sizes, vocab_size=96, max_position_embeddings=256, block_size=8)
    transformers.BigBirdForMaskedLM(config).save_pretrained(tmp_path)
    with pytest.warns(ConversionWarning, match="length open from 2 to 256, and the program takes it from 2 to 88"):
        convert_folder(tmp_path)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"architectures": ["LlamaForCausalLM"]}, "language models become bundles, by patcomp convert-lm"),
        ({"architectures": ["VitsForText"]}, "and no task takes it; known tasks: image"),
        (
            {"architectures": ["LightGlueForKeypointMatching"]},
            "not converted: it keeps as many keypoints as an image has",
        ),
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
