"""Models that read texts in images: the text is that of upstream's `generate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.runtime_loop import tokens_of, writing
from patcomp import AIProgram
from patcomp.emit.native import Native
from patcomp_models.language.conventions import CACHE
from patcomp_models.tasks import convert_folder
from tests.helpers.command import Command
from tests.models.tasks.comparing import runs
from tests.models.tasks.reading_models import LINES, PAIRS, READERS, image_to_text, lines, reader

LENGTH = 10


def written(program: AIProgram, cross: dict[str, torch.Tensor], native: Native | None) -> list[int]:
    """The tokens that a host writes greedily, on the runtime or on the evaluator."""
    states = states_of(cross)
    tensors = {name: torch.from_numpy(value) for name, value in states.items()}
    tokens = [0]
    while len(tokens) < LENGTH and tokens[-1] != 2:
        inputs = {"input_ids": torch.tensor([tokens[-1:]]).int(), "position_ids": torch.arange(len(tokens))[None].int()}
        inputs |= cross
        if native is None:
            found: Any = program.run(inputs, entrypoint="decode", state=tensors)
        else:
            arrays = {name: value.numpy() for name, value in inputs.items()}
            found = native.run(program.module, arrays, states, entry="decode")
        tokens.append(int(np.asarray(found["logits"])[0, -1].argmax()))
    return tokens


@pytest.mark.parametrize(
    "name", [name if name == "trocr" else pytest.param(name, marks=pytest.mark.slow) for name in PAIRS]
)
def test_texts(name: str, tmp_path: Path, native: Native) -> None:
    model = image_to_text(tmp_path, name, scale=3)
    program = convert_folder(tmp_path)
    pixels = image_of(program)
    wanted = model.generate(pixels, max_length=LENGTH, num_beams=1, do_sample=False)[0].tolist()
    assert len(set(wanted)) > 3
    for backend, cross in zip((None, native), runs(program, native, "encode", {"pixel_values": pixels}), strict=True):
        assert written(program, cross, backend) == wanted


@pytest.mark.slow
@pytest.mark.parametrize("name", PAIRS)
def test_logits(name: str, tmp_path: Path, native: Native) -> None:
    """Logits of a few tokens, and of further ones, within 1e-5 of the largest."""
    model = image_to_text(tmp_path, name)
    program = convert_folder(tmp_path)
    pixels, tokens = image_of(program), torch.tensor([[0, 17, 40, 5, 33, 20]])
    with torch.no_grad():
        wanted = model(pixels, decoder_input_ids=tokens).logits
    evaluated, ran = runs(program, native, "encode", {"pixel_values": pixels})
    states = states_of(evaluated), states_of(ran)
    tensors = {name: torch.from_numpy(value) for name, value in states[0].items()}
    for start, end in ((0, 4), (4, 5), (5, 6), (3, 6)):
        inputs = {"input_ids": tokens[:, start:end].int(), "position_ids": torch.arange(end)[None].int()}
        arrays = {name: value.numpy() for name, value in (inputs | ran).items()}
        for found in (
            program.run(inputs | evaluated, entrypoint="decode", state=tensors),
            native.run(program.module, arrays, states[1], entry="decode"),
        ):
            logits = torch.as_tensor(np.asarray(found["logits"]))
            torch.testing.assert_close(logits, wanted[:, start:end], atol=1e-5 * float(wanted.abs().max()), rtol=0)


@pytest.mark.parametrize(
    "name", [name if name == "pix2struct" else pytest.param(name, marks=pytest.mark.slow) for name in READERS]
)
def test_what_a_model_writes_about_an_image(name: str, tmp_path: Path) -> None:
    """The tokens of `generate`, by a loop of its own on the runtime."""
    pytest.importorskip("coreai")
    model, read = reader(tmp_path, name)
    convert_folder(tmp_path).save_asset(tmp_path / "out.aimodel")
    # BLIP leaves out the last token of a prompt, and takes no other end of a text
    options = {"input_ids": torch.tensor([[1, 7, 8, 2]])} if name == "blip" else {"eos_token_id": -1}
    wanted = model.generate(**read, **options, do_sample=False, num_beams=1, min_new_tokens=8, max_new_tokens=8)
    start, new = wanted[0, :-8].tolist(), wanted[0, -8:].tolist()
    assert len(set(new)) > 2
    given = {name: (each if each.is_floating_point() else each.int()).numpy() for name, each in read.items()}
    assert tokens_of(writing(tmp_path / "out.aimodel", given, start, 8)) == new


def image_of(program: AIProgram) -> torch.Tensor:
    (shape,) = (spec.shape for spec in program.signature("encode").inputs)
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def states_of(cross: dict[str, torch.Tensor]) -> dict[str, np.ndarray]:
    """Empty caches."""
    layers, _, heads, _, width = cross["crossKeys"].shape
    return {name: np.zeros((layers, 1, heads, 16, width), np.float32) for name in ("keyCache", "valueCache")}


@pytest.mark.slow
def test_the_command_with_a_photo(patcomp: Command, tmp_path: Path) -> None:
    """`--image` puts the processor in front of `encode`, and leaves `decode` as it is."""
    from PIL import Image
    from transformers import DonutImageProcessor

    model = image_to_text(tmp_path / "donut", "donut")
    processor = DonutImageProcessor(size={"height": 32, "width": 48})
    processor.save_pretrained(tmp_path / "donut")
    done = patcomp("convert", str(tmp_path / "donut"), "--image", "60x50", "--verify")
    assert done.code == 0, done.err
    assert done.err.count("against eager PyTorch: passed") == 2, done.err
    photo = np.random.default_rng(1).integers(0, 256, (60, 50, 3), dtype=np.uint8)
    Image.fromarray(photo).save(tmp_path / "photo.png")
    done = patcomp("run", str(tmp_path / "donut.aimodel"), "--entrypoint", "encode", "--input",
                   f"image={tmp_path / 'photo.png'}", "-o", str(tmp_path / "out.npz"))  # fmt: skip
    assert done.code == 0, done.err
    with torch.no_grad():
        pixels = processor(images=Image.fromarray(photo), return_tensors="pt")["pixel_values"]
        wanted = model(pixels, decoder_input_ids=torch.tensor([[0]]))[CACHE].cross_attention_cache.layers
    keys = torch.from_numpy(np.load(tmp_path / "out.npz")["crossKeys"])
    torch.testing.assert_close(keys, torch.stack([each.keys for each in wanted[:2]]), atol=1e-5, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", LINES)
def test_pp_ocr(name: str, tmp_path: Path, native: Native) -> None:
    """Probabilities of characters in a line, or of text at each pixel: those of upstream's model."""
    model = lines(tmp_path, name)
    program = convert_folder(tmp_path)
    (shape,) = (spec.shape for spec in program.signature().inputs)
    pixels = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        wanted = model(pixels).last_hidden_state
    assert wanted.std() > 1e-3 * wanted.max()
    for found in runs(program, native, "main", {"pixel_values": pixels}):
        assert found.keys() == {"last_hidden_state"}
        torch.testing.assert_close(found["last_hidden_state"], wanted, atol=1e-5 * float(wanted.max()), rtol=0)
