"""The loss of a bundle on a text before and after compression, and weights that are rounded by a text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from patcomp import AIProgram
from patcomp.emit.asset import load
from patcomp_models.language import (
    Bundle,
    LanguageModelError,
    compress_bundle,
    convert_language_model,
    measure_compression,
)
from patcomp_models.language.held_out import HeldOut, HeldOutPart
from patcomp_models.language.text_loss import LENGTH, PARTS, parts_of
from tests.helpers.command import Command
from tests.models.language.checkpoints import VOCABULARY, folder

transformers = pytest.importorskip("transformers")

TEXT = "the capital of a country is a town in it and a town is no country " * 8


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder(tmp_path_factory.mktemp("quality") / "small")


@pytest.fixture(scope="module")
def bundle(checkpoint: Path) -> Bundle:
    return convert_language_model(checkpoint, out=checkpoint.parent / "bundle", dtype="float32", check=False)


@pytest.fixture(scope="module")
def text(checkpoint: Path) -> Path:
    place = checkpoint.parent / "text.txt"
    place.write_text(TEXT)
    return place


def program_of(bundle: Bundle) -> AIProgram:
    asset = load(bundle.asset)
    return AIProgram(asset.module, initial_state=asset.initial_state)


def test_the_loss_is_that_of_the_model(checkpoint: Path, bundle: Bundle, text: Path) -> None:
    programs, tokens = {"main": program_of(bundle)}, bundle.tokens_of(TEXT)
    whole = HeldOut.of(text, programs, bundle.path)
    assert [len(part.tokens) for part in whole.parts] == [len(tokens)]
    parts = HeldOut(whole.form, [HeldOutPart(tokens[start : start + 40]) for start in range(0, len(tokens) - 39, 40)])
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()
    ids = torch.tensor([part.tokens for part in parts.parts])
    with torch.no_grad():
        logits = model(input_ids=ids).logits[:, :-1]
    wanted = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), ids[:, 1:].reshape(-1))
    read = parts.read_by(programs)
    assert read.loss == pytest.approx(float(wanted), abs=1e-5)
    assert read.perplexity == pytest.approx(float(wanted.exp()), abs=1e-3)
    assert np.array_equal(read.best, logits.argmax(-1).reshape(-1).numpy())
    assert read.agreement(read) == 1


def test_parts_are_spread_over_a_long_text() -> None:
    made = parts_of(list(range(LENGTH * 40)), LENGTH)
    assert len(made) <= PARTS
    assert {len(part) for part in made} == {LENGTH}
    assert made[0][0] == 0
    assert made[-1][0] > LENGTH * 30


def test_rounding_by_a_text_keeps_the_logits(bundle: Bundle, tmp_path: Path) -> None:
    """On tokens that the rounding has not seen."""
    drawn = np.random.default_rng(0).integers(0, VOCABULARY, (2, 600)).tolist()
    nearest = compress_bundle(bundle.path, "w3_block32", out=tmp_path / "nearest")
    by_text = compress_bundle(bundle.path, "w3_block32", out=tmp_path / "by_text", calibrate=drawn[0])
    assert by_text.metadata["compression"] == "w3_block32"
    exact = program_of(bundle)
    (example,) = HeldOut.of(drawn[1][:200], {"main": exact}, bundle.path).examples({"main": exact})["main"].values
    wanted, *made = (program_of(each).run(example)["logits"] for each in (bundle, nearest, by_text))
    lost = [float((each - wanted).norm()) for each in made]
    assert lost[1] < lost[0]


def test_the_command_compares(bundle: Bundle, text: Path, tmp_path: Path, patcomp: Command) -> None:
    path = str(bundle.path)
    done = patcomp("compress", path, "--check", str(text), "--json", "--compare", "w8", "w2_block32")
    report = json.loads(done.out)
    assert [row["name"] for row in report["after"]] == ["w8", "w2_block32"]
    assert report["before"]["bits"] == 32
    first, second = report["after"]
    assert (first["bytes"] > second["bytes"], first["agreement"] > second["agreement"]) == (True, True)
    assert abs(first["loss"] - report["before"]["loss"]) < abs(second["loss"] - report["before"]["loss"])
    done = patcomp("compress", path, "--check", str(text), "--config", "w4", "-o", str(tmp_path / "small"))
    assert "w4: each layer alone" in done.out
    assert done.out.count("│ weight_") >= 4  # an asset does not keep the names of weights
    assert Bundle(tmp_path / "small").metadata["compression"] == "w4"


def test_several_are_reported_in_order(bundle: Bundle, text: Path) -> None:
    names: list[str] = []
    report = measure_compression(bundle.path, ["w8", "60%"], text, progress=names.append)
    assert names == ["w8", "60%"]
    assert report.after[1].bytes <= 0.6 * report.before.bytes


def test_a_sweep_of_a_folder(bundle: Bundle, tmp_path: Path, patcomp: Command) -> None:
    """Texts of a folder are read one behind the other; the budget is the bytes of four bits."""
    for name, half in (("a.txt", TEXT[:270]), ("b.md", TEXT[270:])):
        (tmp_path / name).write_text(half)
    (tmp_path / "notes.csv").write_text("no text")
    page = tmp_path / "sweep.html"
    done = patcomp("compress", str(bundle.path), "--sweep", "--check", str(tmp_path), "--json", "--html", str(page))
    assert done.code == 0, done.err
    report = json.loads(done.out)
    assert report["before"]["name"] == "float32"
    rows = {row["name"]: row for row in report["after"]}
    assert list(rows) == ["8bit", "4bit", "budget"]
    assert 0.8 * rows["4bit"]["bytes"] < rows["budget"]["bytes"] <= rows["4bit"]["bytes"] < rows["8bit"]["bytes"]
    assert rows["8bit"]["agreement"] >= rows["4bit"]["agreement"]
    assert page.read_text().count("<tr>") == 5
    assert "<svg" in page.read_text()
    (same,) = measure_compression(bundle.path, ["4bit"], bundle.tokens_of(f"{TEXT[:270]}\n\n{TEXT[270:]}")).after
    assert same.loss == rows["4bit"]["loss"]


WRONG = {
    "sweep without a text": (["{bundle}", "--sweep"], "error: name a text to measure on with --check"),
    "sweep and write": (["{bundle}", "--sweep", "--check", "{text}", "-o", "x"], "goes without --output, --compare"),
    "a folder without text": (["{bundle}", "--sweep", "--check", "{empty}"], "has no text; put files of .md, .txt"),
    "pictures for a text": (["{bundle}", "--sweep", "--check", "{pictures}"], "has pictures, such as a.png, and only"),
    "a picture alone": (["{bundle}", "--sweep", "--check", "{alone}"], "a.png' has no text of the same name, a.txt"),
    "compare without names": (["{bundle}", "--compare"], "error: name what to compare behind --compare: w8 w4_block32"),
    "names without compare": (["{bundle}", "w8", "-o", "x"], "error: w8: a scheme is the value of --config"),
    "compare without a text": (["{bundle}", "--compare", "w8", "w4"], "name the folder of the new bundle with"),
    "compare and write": (
        ["{bundle}", "--compare", "w8", "w4", "--check", "{text}", "-o", "x"], "--compare goes with --check TEXT and"
    ),
    "no such text": (["{bundle}", "--check", "gone.txt"], "error: there is no text at 'gone.txt'"),
    "a short text": (["{bundle}", "--check", "{short}"], "the text has 1 tokens, and it takes 2 at least"),
    "a text for a model": (["model.py:make", "--check", "{text}"], "--check with a text goes with the bundle"),
    "a wrong scheme": (["{bundle}", "--check", "{text}", "--compare", "w5"], "integers have 2, 3, 4, 8 bits, not 5"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_uses(case: str, bundle: Bundle, text: Path, tmp_path: Path, patcomp: Command) -> None:
    words, message = WRONG[case]
    short = tmp_path / "short.txt"
    short.write_text("the")
    (tmp_path / "model.py").write_text("")
    folders = {name: tmp_path / name for name in ("empty", "pictures", "alone")}
    for name, folder_ in folders.items():
        folder_.mkdir()
        if name != "empty":
            (folder_ / "a.png").touch()
    (folders["pictures"] / "a.txt").write_text("a picture")
    done = patcomp("compress", *(word.format(bundle=bundle.path, text=text, short=short, **folders) for word in words))
    assert done.code != 0
    assert message in done.err
    assert done.err.count("\n") <= 2
    assert not Path("x").exists()


def test_calibration_goes_with_compression(checkpoint: Path, text: Path, tmp_path: Path) -> None:
    with pytest.raises(LanguageModelError, match="calibrate= goes with compress="):
        convert_language_model(checkpoint, out=tmp_path / "bundle", calibrate=text)
    with pytest.raises(LanguageModelError, match="there is no text at 'gone'"):
        convert_language_model(checkpoint, out=tmp_path / "bundle", compress="4bit", calibrate="gone")
    assert not (tmp_path / "bundle").exists()


@pytest.mark.slow
def test_a_trained_model(tmp_path: Path) -> None:
    """Rounding by a text takes less than half of the loss; and so 3.5 bits are better than 4.5 of the nearest."""
    from benchmarks import trained_model

    place = trained_model.folder(tmp_path / "trained")
    made = convert_language_model(place, out=tmp_path / "bundle", max_context=192, check=False)
    schemes = ["w4_block32", "w3_block32", "w2_block32", "pal4_group16", "4.5bits", "3.5bits"]
    near, better = (
        {each.name: each.loss - report.before.loss for each in report.after}
        for report in (
            measure_compression(made.path, schemes, place / "held_out.txt", calibrate=calibrate)
            for calibrate in (None, place / "train.txt")
        )
    )
    for scheme in schemes[:4]:
        assert better[scheme] < 0.5 * near[scheme]
    assert better["3.5bits"] < near["w4_block32"]
    assert better["4.5bits"] < better["w4_block32"]
