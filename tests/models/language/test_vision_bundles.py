"""Vision-language bundles: from a folder, the check that reads them as Apple's package does, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from patcomp import AIProgram
from patcomp.compression import CompressionConfig, CompressionRequest, compressed_weights
from patcomp.emit.asset import load
from patcomp_models.language import (
    Bundle,
    LanguageModelError,
    check_bundle,
    compress_bundle,
    convert_language_model,
    convert_vision_language_model,
    measure_compression,
)
from patcomp_models.language.compressing import plans_for
from patcomp_models.language.held_out import HeldOut
from patcomp_models.language.vision import checking
from patcomp_models.language.vision.images import pixels_of
from patcomp_models.language.vision.settings import TILES
from patcomp_models.language.vision.towers import tower_of
from tests.helpers.command import Command
from tests.models.language import checkpoints
from tests.models.language.checkpoints import edited
from tests.models.language.vision_checkpoints import (
    IMAGE_TOKEN,
    PROCESSOR,
    SIZE,
    TEMPLATE,
    VOCABULARY,
    checkpoint,
    folder,
    generated,
)

PROMPT = "word5 word6 <image> word7 word8 word9"
TOKENS = [5, 6, IMAGE_TOKEN, 7, 8, 9]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = folder(tmp_path_factory.mktemp("checkpoint") / "small")
    (path / "preprocessor_config.json").write_text(json.dumps({**PROCESSOR, "do_image_splitting": True}))
    return path


@pytest.fixture(scope="module")
def made(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return convert_vision_language_model(source, out=tmp_path_factory.mktemp("bundles") / "small", max_context=512)


def test_a_folder(made: Bundle) -> None:
    assert check_bundle(made.path) == ()
    assert sorted(path.name for path in made.path.iterdir()) == [
        "embed.aimodel", "metadata.json", "small.aimodel", "tokenizer", "vision.aimodel",
    ]  # fmt: skip
    metadata = made.metadata
    assert metadata["kind"] == "vlm"
    assert metadata["assets"] == {
        "main": "small.aimodel", "embedding": "embed.aimodel", "vision": "vision.aimodel",
    }  # fmt: skip
    assert metadata["vision"] == {
        "image_size": SIZE, "patch_size": 8, "image_token_count": 4, "image_token_id": IMAGE_TOKEN,
        "image_mean": PROCESSOR["image_mean"], "image_std": PROCESSOR["image_std"], "rescale_factor": 1.0,
        "image_strategy": "stretch", "resample": "bicubic", "image_placeholder": "<image>",
        "image_text": "<fake_token_around_image><global-img><image><fake_token_around_image>",
    }  # fmt: skip
    template = (made.path / "tokenizer" / "chat_template.jinja").read_text()
    assert template == TEMPLATE.replace("<image>", metadata["vision"]["image_text"])
    assert metadata["language"]["max_context_length"] == 512
    assert metadata["notes"] == [TILES]


def test_in_few_bits(made: Bundle, source: Path, tmp_path: Path) -> None:
    """Decoder, table and tower; the assets compute what the compressed programs do on the evaluator."""
    small = convert_vision_language_model(
        source, out=tmp_path / "small", max_context=512, compress={"scheme": "w8", "threshold": 256}
    )
    assert small.metadata["compression"] == "mixed"
    assert check_bundle(small.path) == ()
    for file in small.metadata["assets"].values():
        assert list(compressed_weights(load(small.path / file).module)), file
    assert len(small.generate(TOKENS, 3, np.zeros((1, 3, SIZE, SIZE), np.float32))) == 3


def test_pictures_round_the_weights(made: Bundle, source: Path, tmp_path: Path) -> None:
    """All three assets are written again, and rounded by pictures and their texts; a copy computes nothing else, and
    neither does a bundle that is rounded when it is converted."""
    image = pytest.importorskip("PIL.Image")
    folders = [tmp_path / name for name in ("train", "held_out")]
    for number, place in enumerate(folders):
        place.mkdir()
        drawn = np.random.default_rng(number)
        for each in range(4):
            image.fromarray(drawn.integers(0, 256, (20, 30, 3), np.uint8)).save(place / f"{each}.png")
            words = " ".join(f"word{word}" for word in drawn.integers(3, 80, 30))
            (place / f"{each}.txt").write_text(f"word5 <image> {words}")
    train, held_out = folders
    scheme = {"scheme": "w4_block32", "threshold": 256}
    small = compress_bundle(made.path, scheme, out=tmp_path / "small", calibrate=train)
    assert check_bundle(small.path) == ()
    assert sorted(path.name for path in small.path.iterdir()) == sorted(path.name for path in made.path.iterdir())
    by_examples = {}
    for role in ("main", "vision"):
        read = HeldOut.of(train, programs := programs_of(made), made.path)
        (plan,) = [plans_for(programs, CompressionRequest.of(scheme), VOCABULARY, read)[role]]
        by_examples[role] = len(plan.by_examples)
    assert by_examples == {"main": 11, "vision": 10}  # positions are looked up
    near, better = (
        measure_compression(made.path, [scheme], held_out, calibrate=calibrate).after[0] for calibrate in (None, train)
    )
    assert near.bytes == better.bytes
    assert near.agreement < better.agreement
    with pytest.raises(LanguageModelError, match="calibrate= goes with compress="):
        convert_vision_language_model(source, out=tmp_path / "converted", calibrate=train)
    converted = convert_vision_language_model(
        source, out=tmp_path / "converted", max_context=512, compress=scheme, calibrate=train, check=False
    )
    for each in (small, converted):
        read = HeldOut.of(held_out, programs_of(each), each.path).read_by(programs_of(each))
        assert read.loss == pytest.approx(better.loss, abs=1e-3)
    with pytest.raises(LanguageModelError, match="a budget of 9 bytes does not say how many each of 3 assets may take"):
        compress_bundle(made.path, CompressionRequest("9", CompressionConfig.of("w8"), budget=9), out=tmp_path / "x")


def programs_of(bundle: Bundle) -> dict[str, AIProgram]:
    assets = {role: load(bundle.path / file) for role, file in bundle.metadata["assets"].items()}
    return {role: AIProgram(each.module, initial_state=each.initial_state) for role, each in assets.items()}


def test_an_image_of_a_file(made: Bundle, tmp_path: Path, patcomp: Command) -> None:
    """The tokens of the model's own generation, by the library and by the command."""
    image = pytest.importorskip("PIL.Image")
    values = np.random.default_rng(3).integers(0, 256, (20, 30, 3), np.uint8)
    path = tmp_path / "image.png"
    image.fromarray(values).save(path)
    model: Any = checkpoint("smolvlm").half()
    pixels = torch.from_numpy(pixels_of(path, made.metadata["vision"])).half()
    tower, tokens = tower_of(model, SIZE), [IMAGE_TOKEN] * 4
    wanted, _ = generated(model, tower, [5, 6, *tokens, 7, 8, 9], pixels, 4)
    around, _ = generated(model, tower, [5, 6, 91, 92, *tokens, 91, 7, 8, 9], pixels, 4)
    assert made.generate(TOKENS, 4, path) == wanted
    assert made.generate(PROMPT, 4, image.open(path)) == around
    assert made.generate(TOKENS, 4, np.zeros((1, 3, SIZE, SIZE))) != wanted
    done = patcomp("generate", str(made.path), "--prompt", PROMPT, "--max-new-tokens", "4", "--image", str(path))
    assert done.code == 0, done.err
    assert done.out.strip() == made.decoded(around)


def test_two_images(made: Bundle) -> None:
    model: Any = checkpoint("smolvlm").half()
    images = np.random.default_rng(3).standard_normal((2, 1, 3, SIZE, SIZE)).astype(np.float32)
    ids = torch.tensor([[5, *[IMAGE_TOKEN] * 4, 6, *[IMAGE_TOKEN] * 4, 7]])
    with torch.no_grad():
        wanted = model(input_ids=ids, pixel_values=torch.from_numpy(images).half().transpose(0, 1)).logits[0, -1]
    prompt = [5, IMAGE_TOKEN, 6, IMAGE_TOKEN, 7]
    assert made.generate(prompt, 1, [*images]) == [int(wanted.argmax())]
    with pytest.raises(LanguageModelError, match="1 times; put it 2 times"):
        made.generate(TOKENS, 1, [*images])


def test_text_only(made: Bundle) -> None:
    model: Any = checkpoint("smolvlm").half()
    assert made.generate([5, 6, 7], 3) == checkpoints.generated(model, [5, 6, 7], 3)


def test_drafts_beside_an_image(made: Bundle, tmp_path: Path) -> None:
    """The tokens are those without a draft, which may be wrong."""
    image = np.random.default_rng(3).standard_normal((1, 3, SIZE, SIZE))
    wanted = made.generation(TOKENS, 9, image)
    seen: list[list[int]] = []

    def foresees(tokens: Sequence[int], count: int) -> list[int]:
        seen.append([*tokens])
        known = [5, 6, *[IMAGE_TOKEN] * 4, 7, 8, 9, *wanted.tokens]
        return [(token + (place == 11)) % 90 for place, token in enumerate(known)][len(tokens) : len(tokens) + count]

    drafted = made.generation(TOKENS, 9, image, draft=foresees)
    assert (drafted.tokens, drafted.calls) == (wanted.tokens, 4)
    stopped = checkpoints.with_stops(made, tmp_path / "stops", wanted.tokens[3])
    end = wanted.tokens.index(wanted.tokens[3]) + 1
    assert stopped.generate(TOKENS, 9, image) == wanted.tokens[:end]
    assert stopped.generate(TOKENS, 9, image, draft=foresees) == wanted.tokens[:end]
    assert seen[0] == [5, 6, *[IMAGE_TOKEN] * 4, 7, 8, 9, wanted.tokens[0]]
    with pytest.raises(LanguageModelError, match="has no draft in its asset"):
        made.generate(TOKENS, 3, image, draft=True)


@pytest.mark.slow
def test_a_draft_of_text_beside_an_image(made: Bundle, source: Path, tmp_path: Path) -> None:
    image = np.random.default_rng(3).standard_normal((1, 3, SIZE, SIZE))
    wanted = made.generation(TOKENS, 9, image)
    text = convert_language_model(source, out=tmp_path / "text", max_context=512, check=False)
    assert made.generation(TOKENS, 9, image, draft=text).tokens == wanted.tokens
    with pytest.raises(LanguageModelError, match="takes images, and a draft is a bundle of text only"):
        text.generate([5, 6], 3, draft=made)


DEPARTURES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no vision": (edited(lambda it: it.pop("vision")), "vision is missing"),
    "no asset of images": (edited(lambda it: it["assets"].pop("vision")), "assets.vision is missing"),
    "no asset of embeddings": (edited(lambda it: it["assets"].pop("embedding")), "assets.embedding is missing"),
    "no main asset": (edited(lambda it: it["assets"].pop("main")), "assets.main is missing"),
    "another kind": (edited(lambda it: it.update(kind="llm")), "the inputs of main are inputs_embeds, position_ids"),
    "an unknown kind": (edited(lambda it: it.update(kind="vision")), "kind is 'vision', and must be 'llm' or 'vlm'"),
    "no size": (edited(lambda it: it["vision"].pop("image_size")), "vision.image_size is None, and must be a pos"),
    "another size": (
        edited(lambda it: it["vision"].update(image_size=64)),
        "pixel_values is 1 x 3 x 32 x 32 of float32, and must be 1 x 3 x 64 x 64 of float32",
    ),
    "another count": (
        edited(lambda it: it["vision"].update(image_token_count=5)),
        "image_features is 1 x 4 x 32 of float16, and must be 1 x 5 x 32 of float16",
    ),
    "too many tokens": (
        edited(lambda it: it["vision"].update(image_token_count=512)),
        "an image takes 512 tokens, and language.max_context_length is 512",
    ),
    "no image token": (edited(lambda it: it["vision"].pop("image_token_id")), "vision.image_token_id is None"),
    "two means": (edited(lambda it: it["vision"].update(image_mean=[0, 0])), "vision.image_mean is [0, 0]"),
    "a deviation of 0": (edited(lambda it: it["vision"].update(image_std=[1, 0, 1])), "vision.image_std has a 0"),
    "a factor in words": (edited(lambda it: it["vision"].update(rescale_factor="1")), "vision.rescale_factor is '1'"),
    "another strategy": (
        edited(lambda it: it["vision"].update(image_strategy="fit")), "vision.image_strategy is 'fit', and must be",
    ),
    "another vocabulary": (edited(lambda it: it["language"].update(vocab_size=95)), "their last size must be"),
    "assets exchanged": (
        edited(lambda it: it["assets"].update(vision="embed.aimodel", embedding="vision.aimodel")),
        "the inputs of the asset vision are input_ids; they must be pixel_values",
    ),
    "an asset that is not there": (lambda path: shutil.rmtree(path / "vision.aimodel"), "there is no asset"),
    "a damaged asset": (lambda path: (path / "embed.aimodel/main.mlirb").write_bytes(b"?"), "is damaged"),
}  # fmt: skip


@pytest.mark.parametrize("name", DEPARTURES)
def test_departures_are_found(name: str, made: Bundle, tmp_path: Path) -> None:
    depart, message = DEPARTURES[name]
    shutil.copytree(made.path, tmp_path / "bundle")
    depart(tmp_path / "bundle")
    assert any(message in problem.message for problem in check_bundle(tmp_path / "bundle"))


@pytest.mark.slow
def test_widths_that_differ(made: Bundle, tmp_path: Path) -> None:
    """Apple's engine copies rows without a look at their width."""
    other = convert_vision_language_model(
        checkpoint("qwen3_vl"), out=tmp_path / "other", image_processor=PROCESSOR, check=False
    )
    shutil.copytree(made.path, tmp_path / "bundle")
    shutil.rmtree(tmp_path / "bundle/embed.aimodel")
    shutil.copytree(other.path / "embed.aimodel", tmp_path / "bundle/embed.aimodel")
    messages = [problem.message for problem in check_bundle(tmp_path / "bundle")]
    assert messages == ["embeddings is 1 x ? x 100 of float16, and must be 1 x ? x 32 of float16"]


# ---- bad input --------------------------------------------------------------------------------------


def changed(**values: Any) -> Callable[[Path], None]:
    """Changes `config.json`."""

    def change(path: Path) -> None:
        found = json.loads((path / "config.json").read_text()) | values
        (path / "config.json").write_text(json.dumps(found))

    return change


def processor(**values: Any) -> Callable[[Path], object]:
    return lambda path: (path / "preprocessor_config.json").write_text(json.dumps(values))


WRONG_FOLDERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "no processor": (lambda path: (path / "preprocessor_config.json").unlink(), "has no settings of an image proc"),
    "no image keys": (processor(size=32), "the image processor has no image_mean, so it is not known how"),
    "an image that is no square": (
        processor(**{**PROCESSOR, "size": {"height": 32, "width": 16}}), "makes images of 16 x 32, and the images of",
    ),
    "another size than the tower's": (
        processor(**{**PROCESSOR, "size": {"height": 64, "width": 64}}),
        "the image size is 64, and this smolvlm takes 32 at most",
    ),
    "a refused type": (changed(model_type="mllama"), "is of type 'mllama', which becomes no bundle"),
    "no tower": (changed(model_type="llama"), "is of type 'llama', whose vision tower is not known; these are: llava"),
    "no type": (changed(model_type=None), "is of type None, whose vision tower is not known"),
    "another class": (changed(architectures=["SmolVLMModel"]), "holds SmolVLMModel, and as a model of images and text"),
    "quantised": (
        changed(quantization_config={"quant_method": "aqlm"}), "are quantised (aqlm, says quantization_config of",
    ),
    "no weights": (lambda path: (path / "model.safetensors").unlink(), "lacks model.safetensors, the file of its"),
    "no tokenizer": (lambda path: (path / "tokenizer.json").unlink(), "has no tokenizer; pass tokenizer="),
    "no config": (lambda path: (path / "config.json").unlink(), "has no config.json, so it is not the folder of a"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_FOLDERS)
def test_wrong_folders(name: str, source: Path, tmp_path: Path, patcomp: Command) -> None:
    change, message = WRONG_FOLDERS[name]
    wrong = shutil.copytree(source, tmp_path / "wrong")
    change(wrong)
    done = patcomp("convert-vlm", str(wrong), "-o", str(tmp_path / "bundle"))
    assert done.code == 1
    assert message in " ".join(done.err.split())
    assert "Traceback" not in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["wrong"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image_size": 30}, "the image size is 30, and smolvlm takes multiples of 16 pixels"),
        ({"image_size": 64}, "the image size is 64, and this smolvlm takes 32 at most"),
        ({"image_size": -16}, "the image size is -16, and smolvlm takes multiples of 16 pixels"),
        ({"max_context": 4096}, "max_context is 4096; the model takes 24 to 1024 tokens"),
        ({"dtype": "int8"}, "dtype is one of float16, bfloat16, float32, got 'int8'"),
        ({"image_processor": 5}, "image_processor= takes an image processor of transformers or a dict of its settings"),
        ({"tokenizer": "words"}, "tokenizer= takes a tokenizer of transformers, None or False, got str"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str, source: Path, tmp_path: Path) -> None:
    with pytest.raises(LanguageModelError, match=message):
        convert_vision_language_model(source, out=tmp_path / "out/bundle", **options)
    assert not (tmp_path / "out").exists() or list((tmp_path / "out").iterdir()) == []


def test_models_that_are_given(tmp_path: Path) -> None:
    model = checkpoint("smolvlm")
    with pytest.raises(LanguageModelError, match="it is not known how images are prepared for the model; pass image_"):
        convert_vision_language_model(model, out=tmp_path / "bundle")
    for other, name in ((checkpoints.checkpoint("llama"), "'llama'"), (nn.Linear(2, 2), "None")):
        with pytest.raises(LanguageModelError, match=f"is of type {name}, whose vision tower is not known"):
            convert_vision_language_model(other, out=tmp_path / "bundle", image_processor=PROCESSOR)
    options: Any = {"image_processor": PROCESSOR, "image_size": 48, "max_context": 30}
    large = checkpoint("qwen2_5_vl")
    with pytest.raises(LanguageModelError, match="an image takes 36 tokens, and max_context is 30"):
        convert_vision_language_model(large, out=tmp_path / "bundle", **options)
    (tmp_path / "mine").mkdir()
    with pytest.raises(LanguageModelError, match="exists; choose another folder for the bundle"):
        convert_vision_language_model(model, out=tmp_path / "mine", image_processor=PROCESSOR)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_prompts_that_do_not_fit(made: Bundle, tmp_path: Path) -> None:
    pixels = np.zeros((1, 3, SIZE, SIZE), np.float32)
    for prompt, image, message in (
        ([1, 2], pixels, r"the prompt has the image token '<image>' \(token 90\) 0 times; put it once where the image"),
        ([1, 90], None, r"the prompt has the image token '<image>' \(token 90\), and there is no image"),
        ([1, 90], pixels[0], r"the pixels are of shape \[3, 32, 32\]; they must be 1 x 3 x 32 x 32"),
        ([90, *[1] * 508], pixels, "a prompt of 512 tokens and 1 new ones; the bundle takes 1 to 512 in all"),
    ):
        with pytest.raises(LanguageModelError, match=message):
            made.generate(prompt, 1, image)


@pytest.mark.slow
def test_a_bundle_of_text_takes_no_image(tmp_path: Path) -> None:
    bundle = convert_language_model(checkpoints.checkpoint("llama"), out=tmp_path / "text", check=False)
    with pytest.raises(LanguageModelError, match="takes no image; `patcomp convert-vlm` makes one"):
        bundle.generate([1, 2], 1, np.zeros((1, 3, SIZE, SIZE)))


@pytest.mark.slow
def test_wrong_programs_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The comparison says how far the features are off."""
    right = checking.features_of
    monkeypatch.setattr(checking, "features_of", lambda run, pixels: 2 * right(run, pixels))
    with pytest.raises(LanguageModelError, match=r"do not compute what SmolVLM.* the features of the image by 1 of"):
        convert_vision_language_model(checkpoint("smolvlm"), out=tmp_path / "bundle", image_processor=PROCESSOR)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_wrong_assets_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The programs are right, and what the runtime computes of the image is not."""
    pytest.importorskip("coreai")
    right = checking.features_of
    calls: list[int] = []

    def features(run: Any, pixels: np.ndarray) -> np.ndarray:
        calls.append(0)
        return right(run, pixels) * (1 if len(calls) == 1 else -20)

    monkeypatch.setattr(checking, "features_of", features)
    with pytest.raises(LanguageModelError, match="on the Core AI runtime the bundle's most probable token is another"):
        convert_vision_language_model(checkpoint("smolvlm"), out=tmp_path / "bundle", image_processor=PROCESSOR)
    assert list(tmp_path.iterdir()) == []
