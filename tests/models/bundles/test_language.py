"""Language models, and those of images and text, by the conversion, the check and the commands of all bundles."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from patcomp_models.bundles import BundleError, check_bundle, convert_bundle
from patcomp_models.language import checkpoint_to_bundle, convert_language_model, convert_vision_language_model
from patcomp_models.language.vision import checkpoint_to_bundle as vision_to_bundle
from tests.helpers.command import Command
from tests.models.bundles.refusals import unchanged, without
from tests.models.language.checkpoints import folder
from tests.models.language.vision_checkpoints import folder as vision_folder
from tests.models.language.wrong_folders import BAD, config, cut, renamed, text

GGUF = Path(__file__).parents[2] / "data" / "gguf" / "llama-Q4_0.gguf"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder(tmp_path_factory.mktemp("checkpoint") / "small")


@pytest.fixture(scope="module")
def vision_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return vision_folder(tmp_path_factory.mktemp("checkpoint") / "small")


def _files(bundle: Path) -> dict[str, bytes]:
    return {str(path.relative_to(bundle)): path.read_bytes() for path in bundle.rglob("*") if path.is_file()}


@pytest.mark.slow
@pytest.mark.usefixtures("one_child")
def test_a_language_model(source: Path, tmp_path: Path, patcomp: Command) -> None:
    """The commands for all bundles convert, inspect, verify and run it; the check is that of its kind."""
    options = ("--set", "max_context=512", "--set", "prefill=4", "--no-check")
    done = patcomp("convert", str(source), "-o", "made", *options, "--json")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert (told["bundle"], told["metadata"]["kind"], len(told["problems"])) == ("made", "llm", 1)
    assert "main, function prefill" in patcomp("inspect", "made").out
    assert "passed" in patcomp("verify", "made", "--entrypoint", "prefill").out
    assert "1x4x96xf16" in patcomp("run", "made", "--entrypoint", "prefill").out
    prompt = ("--prompt", "a town")
    assert patcomp("run", "made", *prompt).out == patcomp("generate", "made", *prompt).out != ""
    (tmp_path / "made" / "metadata.json").write_text(json.dumps({**told["metadata"], "kind": "vlm"}))
    assert "assets.embedding is missing" in [problem.message for problem in check_bundle(tmp_path / "made")]


@pytest.mark.slow
def test_the_same_files(
    source: Path, vision_source: Path, tmp_path: Path, patcomp: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command makes the bundles of the functions, byte for byte. `verify` takes functions of fixed sizes, too; the
    runtime of Linux runs them without their constraints."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    shutil.copy(GGUF, tmp_path)
    made, settings = tmp_path / "made", {"max_context": 256, "check": False, "out": tmp_path / "same"}
    for given, options, convert in (
        (source, ("--set", "drafted=3"), lambda: convert_language_model(source, verify=3, **settings)),
        (source, ("--target", "neural_engine"), lambda: convert_language_model(source, "neural_engine", **settings)),
        (vision_source, (), lambda: convert_vision_language_model(vision_source, **settings)),
        (
            GGUF.name, ("--set", "tokenizer=false", "--dtype", "float32"),
            lambda: convert_language_model(GGUF.name, tokenizer=False, dtype="float32", **settings),
        ),
    ):  # fmt: skip
        done = patcomp(
            "convert", str(given), "-o", str(made), "--set", "max_context=256", "--no-check", *options
        )  # fmt: skip
        assert done.code == 0, done.err
        assert _files(made) == _files(convert().path)
        verified = patcomp("verify", str(made))
        assert verified.code == 0, verified.err
        shutil.rmtree(made)
        shutil.rmtree(tmp_path / "same")


class _BegunError(Exception):
    """A conversion has begun; the text says what an interrupted one would go on with."""


LLM: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"drafted": 3, "prefill": 8, "hidden": True}, {"verify": 3, "prefill": 8, "hidden": True}),
    ({"dtype": "bfloat16", "compress": "4bit", "name": "other"},) * 2,
    ({"verify": False, "tokenizer": False}, {"check": False, "tokenizer": False}),
    ({"check": "a town"},) * 2,
    ({"target": "neural_engine", "quantize_embeddings": False},) * 2,
    ({"allow_missing": ["a.*"], "allow_unexpected": "b", "float32": ["lm_head"], "window_caches": True},) * 2,
]  # fmt: skip
VLM: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"image_size": 32, "max_context": 512, "compress": "8bit"},) * 2,
    ({"verify": False, "draft": "mtp", "name": "x"}, {"check": False, "draft": "mtp", "name": "x"}),
]  # fmt: skip


@pytest.mark.parametrize("form", ["llm", "vlm"])
def test_the_same_is_asked(
    form: str, source: Path, vision_source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A conversion goes on with what the function of the kind has finished, because it asks for the same."""

    def begin(place: Path, request: str) -> None:
        raise _BegunError(f"{place}: {request}")

    for module in (checkpoint_to_bundle, vision_to_bundle):
        monkeypatch.setattr(module, "unfinished", begin)

    def asked(convert: Callable[..., object], *given: object, **options: Any) -> str:
        with pytest.raises(_BegunError) as begun:
            convert(*given, out=tmp_path / "out", **options)
        return str(begun.value)

    given, function, table = (
        (source, convert_language_model, LLM) if form == "llm" else (vision_source, convert_vision_language_model, VLM)
    )
    requests = [asked(convert_bundle, given, **options) for options, _ in table]
    assert requests == [asked(function, given, **options) for _, options in table]
    assert len({*requests}) == len(table)


WRONG: dict[str, tuple[Mapping[str, Any], str]] = {
    "an unknown option": ({"steps": 4}, "bundles of the kind 'llm' have no option 'steps'; they have max_context, tok"),
    "a context in words": ({"max_context": "long"}, "max_context is 'long', and must be a whole number"),
    "a truth that is a number": ({"hidden": 1}, "hidden is 1, and must be true or false"),
    "names that are numbers": ({"float32": [1]}, "float32 is [1], and must be a text or a list, each of it a text"),
    "another place of embeddings": ({"embeddings": "here"}, "embeddings is 'here', and must be 'inside' or 'outside'"),
    "a device without a form": ({"target": "cpu"}, "the target 'cpu' has no form of language models"),
    "a prompt that is not compared": ({"check": "a town", "verify": False}, "check is a prompt to compare the bundle"),
    "too long a context": ({"max_context": 4096}, "max_context is 4096; the model takes 24 to 1024 tokens"),
    "another kind": ({"kind": "vlm"}, "'llama'"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_options(name: str, source: Path, tmp_path: Path) -> None:
    options, message = WRONG[name]
    with pytest.raises(BundleError) as caught:
        convert_bundle(source, out=tmp_path / "out", **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("kind", ["llm", None])
def test_bad_folders(case: str, kind: str | None, source: Path, tmp_path: Path) -> None:
    """The messages of `convert_language_model`, if the user says the kind or the folder does."""
    change, message = BAD[case]
    shutil.copytree(source, tmp_path / "copy")
    change(tmp_path / "copy")
    with pytest.raises(BundleError, match=message if kind else None) as raised:
        convert_bundle(tmp_path / "copy", out=tmp_path / "out", kind=kind)
    assert len(str(raised.value).splitlines()) == 1
    assert {path.name for path in tmp_path.iterdir()} <= {"copy"}


BAD_VISION: dict[str, tuple[Callable[[Path], object], Mapping[str, Any], str]] = {
    "no tokenizer": (without("tokenizer.json", "tokenizer_config.json"), {}, "has no tokenizer"),
    "no image processor": (without("preprocessor_config.json"), {}, "image processor"),
    "a broken image processor": (text("preprocessor_config.json", "{"), {}, "preprocessor_config.json"),
    "no weights": (without("model.safetensors"), {}, "lacks model.safetensors"),
    "weights that were cut off": (cut, {}, "is not a whole file of safetensors"),
    "pickled weights": (renamed("pytorch_model.bin"), {}, "in pickled files of PyTorch"),
    "no configuration": (without("config.json"), {}, "has no model_index.json and no config.json"),
    "a broken configuration": (text("config.json", "{"), {}, "is not JSON"),
    "a damaged tokenizer": (
        lambda f: [text(name, "{")(f) for name in ("tokenizer.json", "tokenizer_config.json")], {},
        "transformers cannot load the tokenizer"),
    "weights in a form that is not read": (
        config(quantization_config={"quant_method": "aqlm"}), {}, "are quantised (aqlm, says"),
    "another type of weights": (unchanged, {"dtype": "int8"}, "dtype is one of float16, bfloat16, float32, got 'int8'"),
    "too long a context": (unchanged, {"max_context": 4096}, "max_context is 4096; the model takes 24 to 1024 tokens"),
    "an unknown tower": (config(model_type="mistery"), {}, "'mistery'"),
    "a size in words": (unchanged, {"image_size": "32"}, "image_size is '32', and must be a whole number"),
    "a size that does not divide": (unchanged, {"image_size": 33}, "33"),
    "an option of language models": (unchanged, {"prefill": 8}, "bundles of the kind 'vlm' have no option 'pre"),
    "another device": (unchanged, {"target": "neural_engine"}, "bundles of the kind 'vlm' are for the target 'g"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_VISION)
def test_bad_folders_of_images_and_text(case: str, vision_source: Path, tmp_path: Path) -> None:
    change, options, message = BAD_VISION[case]
    shutil.copytree(vision_source, tmp_path / "copy")
    change(tmp_path / "copy")
    with pytest.raises(BundleError) as raised:
        convert_bundle(tmp_path / "copy", out=tmp_path / "out", **options)
    assert message in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["copy"]
