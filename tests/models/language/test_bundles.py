"""Bundles: from a folder, what is refused, and the check that reads them as Apple's package does."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import GenerationConfig

from patcomp.errors import ConversionWarning
from patcomp_models.bundle_folders.unfinished import unfinished
from patcomp_models.checkpoints.loading import in_dtype, load_model
from patcomp_models.errors import BundleError
from patcomp_models.language import (
    Bundle,
    LanguageModelError,
    check_bundle,
    convert_language_model,
    dynamic_bundle,
)
from patcomp_models.language.writing import description
from tests.helpers.command import Command
from tests.models.language.checkpoints import checkpoint, edited, folder, generated, with_stops


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder(tmp_path_factory.mktemp("checkpoint") / "small")


@pytest.fixture(scope="module")
def made(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return convert_language_model(source, out=tmp_path_factory.mktemp("bundles") / "small", max_context=512)


def test_a_folder(source: Path, made: Bundle) -> None:
    assert check_bundle(made.path) == ()
    assert sorted(path.name for path in made.path.iterdir()) == ["metadata.json", "small.aimodel", "tokenizer"]
    assert made.metadata["language"]["max_context_length"] == 512
    from patcomp import load

    assert load(made.asset).native.metadata.license == "apache-2.0"
    tokens = made.generate("the capital of a country", 4)
    assert made.generate(made._words.split("the capital of a country"), 4) == tokens
    assert isinstance(made.text("the capital", 2), str)


def test_settings_that_change_the_most_probable_token_are_a_note() -> None:
    """The note is in `metadata.json`, because a host applies them, and `Bundle.generate` does not."""
    model = checkpoint("llama")
    for changed, noted in (
        ({"do_sample": True, "temperature": 0.6, "top_p": 0.9, "repetition_penalty": 1.0, "min_length": 0}, False),
        ({"repetition_penalty": 1.1}, True),
        ({"suppress_tokens": [3, 4]}, True),
    ):
        model.generation_config = GenerationConfig(**changed)
        notes = description(model, 512, "small", None, ["a note"]).get("notes")
        assert notes[0] == "a note"
        assert [next(iter(changed)) in note for note in notes[1:]] == ([True] if noted else [])
    model.generation_config = GenerationConfig()
    assert "notes" not in description(model, 512, "small", None)


def test_the_model_is_not_changed(tmp_path: Path) -> None:
    model = checkpoint("llama")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    attention = model.config._attn_implementation
    convert_language_model(model, out=tmp_path / "bundle", check=False)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.config._attn_implementation == attention
    assert {value.dtype for value in model.state_dict().values()} == {torch.float32}


DEPARTURES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no metadata": (lambda path: (path / "metadata.json").unlink(), "there is no metadata.json"),
    "no JSON": (lambda path: (path / "metadata.json").write_text("{"), "metadata.json' is not JSON"),
    "a list": (lambda path: (path / "metadata.json").write_text("[]"), "metadata.json' must hold a JSON object"),
    "another version": (edited(lambda it: it.update(metadata_version="0.1")), "metadata_version is '0.1'"),
    "no version": (edited(lambda it: it.pop("metadata_version")), "metadata_version is None"),
    "another kind": (edited(lambda it: it.update(kind="diffusion")), "kind is 'diffusion'"),
    "no name": (edited(lambda it: it.pop("name")), "name is missing"),
    "no asset": (edited(lambda it: it["assets"].pop("main")), "assets.main is missing"),
    "no language": (edited(lambda it: it.pop("language")), "language is missing"),
    "no tokenizer's name": (edited(lambda it: it["language"].pop("tokenizer")), "language.tokenizer is missing"),
    "a vocabulary in words": (
        edited(lambda it: it["language"].update(vocab_size="96")), "language.vocab_size is '96'",
    ),
    "another vocabulary": (edited(lambda it: it["language"].update(vocab_size=95)), "their last size must be"),
    "no context": (edited(lambda it: it["language"].pop("max_context_length")), "max_context_length is missing"),
    "no tokenizer": (lambda path: shutil.rmtree(path / "tokenizer"), "there is no tokenizer/tokenizer.json"),
    "a broken tokenizer": (
        lambda path: (path / "tokenizer/tokenizer.json").write_text("{"), "tokenizer.json' is not JSON"),
    "another asset's name": (edited(lambda it: it["assets"].update(main="big.aimodel")), "there is no asset"),
    "a damaged asset": (lambda path: (path / "small.aimodel/main.mlirb").write_bytes(b"?"), "is damaged"),
}  # fmt: skip


@pytest.mark.parametrize("name", DEPARTURES)
def test_departures_are_found(name: str, made: Bundle, tmp_path: Path) -> None:
    depart, message = DEPARTURES[name]
    shutil.copytree(made.path, tmp_path / "bundle")
    depart(tmp_path / "bundle")
    assert any(message in problem.message for problem in check_bundle(tmp_path / "bundle"))


def test_float32_logits_are_found(tmp_path: Path) -> None:
    bundle = convert_language_model(checkpoint("llama"), out=tmp_path / "bundle", dtype="float32", check=False)
    assert [problem.message for problem in check_bundle(bundle.path)] == ["logits are float32, and must be float16"]


# ---- bad input --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_context": 4096}, "max_context is 4096; the model takes 24 to 1024 tokens"),
        ({"max_context": 8}, "max_context is 8; the model takes 24 to 1024 tokens"),
        ({"dtype": "int8"}, "dtype is one of float16, bfloat16, float32, got 'int8'"),
        ({"target": "cpu"}, "the target 'cpu' has no form of language models; there are 'gpu' and 'neural"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str, source: Path, tmp_path: Path) -> None:
    with pytest.raises(LanguageModelError, match=message):
        convert_language_model(source, out=tmp_path / "out/bundle", **options)
    assert not (tmp_path / "out").exists() or list((tmp_path / "out").iterdir()) == []


# ---- types of weights, and own code -------------------------------------------------------------------


def stored(source: Path, path: Path, change: Callable[[str, torch.Tensor], torch.Tensor]) -> Path:
    """A copy of a checkpoint with other weights."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(source, path)
    weights = load_file(path / "model.safetensors")
    changed = {name: change(name, weight) for name, weight in weights.items()}
    save_file(changed, path / "model.safetensors", metadata={"format": "pt"})
    return path


@pytest.mark.parametrize("kind", ["llama", pytest.param("gpt_oss", marks=pytest.mark.slow)])
def test_bfloat16(kind: str, tmp_path: Path) -> None:
    """Each token is the best of the same weights in float32, as far as bfloat16 tells tokens apart: the runtime rounds
    partial sums, and its logits are off by 2 to 2.5 times as much as PyTorch's (0.23 and 0.11 for a Llama, beside the
    same weights in float32). Two logits are compared, so that their difference is off by 5 times as much.

    gpt_oss is such a case: its fourth token is 0.025 ahead in float32, and PyTorch's own bfloat16 is 0.096 off there.
    """
    model = checkpoint(kind)
    bundle = convert_language_model(model, out=tmp_path / "bundle", dtype="bfloat16")
    assert check_bundle(bundle.path) == ()
    half: Any = in_dtype(model, "bfloat16")
    prompt = [3, 80, 7, 33, 9, 44, 21, 5, 6]
    made = bundle.generate(prompt, 10)
    with torch.no_grad():
        tokens = torch.tensor([prompt + made])
        own, exact = half(tokens).logits[0].float(), in_dtype(half, "float32")(tokens).logits[0]
    for position, token in enumerate(made, start=len(prompt) - 1):
        off = float((own[position] - exact[position]).abs().max())
        assert exact[position, token] >= exact[position].max() - 5 * off


def test_weights_of_several_types(source: Path, made: Bundle, tmp_path: Path) -> None:
    types = {"mlp": torch.bfloat16, "self_attn": torch.float16}
    mixed = stored(source, tmp_path / "mixed", lambda name, weight: weight.to(
        next((dtype for part, dtype in types.items() if part in name), torch.float32)))  # fmt: skip
    bundle = convert_language_model(mixed, out=tmp_path / "bundle", max_context=512)
    assert bundle.generate("the capital of a country", 4) == made.generate("the capital of a country", 4)


def test_weights_that_are_too_large(source: Path, tmp_path: Path) -> None:
    large = stored(source, tmp_path / "large", lambda name, weight: weight * 1e6 if "down_proj" in name else weight)
    with pytest.raises(LanguageModelError, match=r"down_proj.*has numbers that float16 cannot hold; pass dtype="):
        convert_language_model(large, out=tmp_path / "bundle")
    with pytest.raises(LanguageModelError, match="has numbers that float16 cannot hold"):
        convert_language_model(load_model(large, "float32", trust_remote_code=False), out=tmp_path / "bundle")
    assert [path.name for path in tmp_path.iterdir()] == ["large"]


def test_logits_that_are_not_finite(source: Path, tmp_path: Path) -> None:
    large = stored(source, tmp_path / "large", lambda name, weight: weight * 6e4 if "down_proj" in name else weight)
    with pytest.raises(LanguageModelError, match="the model's own logits are not finite in float16; pass dtype="):
        convert_language_model(large, out=tmp_path / "bundle")


def test_quantised_weights(source: Path, tmp_path: Path) -> None:
    model = checkpoint("llama")
    linear = model.get_submodule("model.layers.1.mlp.up_proj")
    linear.weight = nn.Parameter(linear.weight.to(torch.float8_e4m3fn), requires_grad=False)
    with pytest.raises(LanguageModelError, match=r"the weights are quantised: model.*up_proj.*is torch"):
        convert_language_model(model, out=tmp_path / "bundle")


OWN_CODE = """
from transformers import LlamaForCausalLM

class Negated(LlamaForCausalLM):
    def forward(self, *arguments, **options):
        result = super().forward(*arguments, **options)
        result.logits = -result.logits
        return result
"""


@pytest.mark.slow
def test_own_code_that_is_trusted(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.syspath_prepend(tmp_path / "modules")
    own = shutil.copytree(source, tmp_path / "own")
    (own / "negated.py").write_text(OWN_CODE)
    config = json.loads((own / "config.json").read_text())
    (own / "config.json").write_text(json.dumps({**config, "auto_map": {"AutoModelForCausalLM": "negated.Negated"}}))
    with pytest.warns(ConversionWarning, match="the code of Negated is not tested"):
        bundle = convert_language_model(own, out=tmp_path / "bundle", trust_remote_code=True, dtype="float32")
    model = load_model(own, "float32", trust_remote_code=True)
    assert type(model).__name__ == "Negated"
    assert bundle.generate([5, 6, 7], 3) == generated(model, [5, 6, 7], 3)


def test_what_exists_is_not_replaced(source: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(LanguageModelError, match="exists; choose another folder"):
        convert_language_model(source, out=tmp_path)


def test_no_model_of_transformers(tmp_path: Path) -> None:
    with pytest.raises(LanguageModelError, match="Linear is not a causal language model of transformers"):
        convert_language_model(nn.Linear(2, 2), out=tmp_path / "bundle")


KILLED = """
import os, signal, sys
from patcomp.torchvision import declare_operators
declare_operators()
from patcomp.program import program
from patcomp_models.errors import BundleError
from patcomp_models.language import convert_language_model
program.save_asset = lambda *arguments, **options: os.kill(os.getpid(), signal.SIGKILL)
convert_language_model(sys.argv[1], out=sys.argv[2])
"""


@pytest.mark.slow
def test_a_killed_conversion_goes_on(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is killed while it writes the asset: nothing is at the place, and the next run does not compare again."""
    place = tmp_path / "bundle"
    done = subprocess.run([sys.executable, "-c", KILLED, str(source), str(place)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert [path.name for path in tmp_path.iterdir()] == [".bundle.partial"]
    monkeypatch.setattr(dynamic_bundle, "check_programs", unexpected)
    steps: list[str] = []

    def progress(what: str) -> AbstractContextManager[None]:
        steps.append(what)
        return nullcontext()

    bundle = convert_language_model(source, out=place, progress=progress)
    assert check_bundle(bundle.path) == ()
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]
    assert sorted(path.name for path in place.iterdir()) == ["metadata.json", "small.aimodel", "tokenizer"]
    assert [step.split()[0] for step in steps] == [
        "loading",
        "exporting",
        "converting",
        "comparing",
        "writing",
        "comparing",
    ]


def unexpected(*arguments: object) -> None:
    raise AssertionError("this step was finished")


def test_another_conversion_starts_anew(tmp_path: Path) -> None:
    for request, finished in (("one", []), ("one", ["first"]), ("two", [])):
        with contextlib.suppress(KeyboardInterrupt), unfinished(tmp_path / "bundle", request) as work:
            assert work.finished == finished
            assert (work.folder / "held").exists() == bool(finished)
            (work.folder / "held").touch()
            work.once("first", unexpected if finished else lambda: None)
            raise KeyboardInterrupt
    with pytest.raises(OSError, match="full"), unfinished(tmp_path / "bundle", "two"):
        raise OSError("the disk is full")
    assert list(tmp_path.iterdir()) == []


def test_two_conversions_to_one_place(tmp_path: Path) -> None:
    with (
        unfinished(tmp_path / "bundle", "one"),
        pytest.raises(BundleError, match="another process is writing"),
        unfinished(tmp_path / "bundle", "one"),
    ):
        raise AssertionError("the second one was let in")
    assert [path.name for path in (tmp_path / "bundle").iterdir()] == []


@pytest.mark.parametrize(("prompt", "message"), [([], "a prompt of 0 tokens"), ([1] * 600, "a prompt of 600 tokens")])
def test_prompts_that_do_not_fit(prompt: list[int], message: str, made: Bundle) -> None:
    with pytest.raises(LanguageModelError, match=message):
        made.generate(prompt, 2)


def test_an_untested_architecture_is_tried(tmp_path: Path) -> None:
    model = checkpoint("llama")
    model.config.model_type = "another"
    with pytest.warns(ConversionWarning, match="the architecture 'another' is not tested"):
        bundle = convert_language_model(model, out=tmp_path / "bundle", dtype="float32", check=False)
    assert bundle.generate([5, 6, 7], 3) == generated(model, [5, 6, 7], 3)


def test_the_commands(patcomp: Command, source: Path, tmp_path: Path) -> None:
    done = patcomp("convert-lm", str(source), "-o", str(tmp_path / "bundle"), "--max-context", "256")
    assert done.code == 0, done.err
    done = patcomp("generate", str(tmp_path / "bundle"), "--prompt", "the capital", "--max-new-tokens", "3")
    assert done.code == 0, done.err
    assert done.out.strip()
    assert patcomp("convert-lm", str(source), "-o", str(tmp_path / "bundle")).code == 1
    tokens = Bundle(tmp_path / "bundle").generate("the capital", 3)
    stopped = with_stops(Bundle(tmp_path / "bundle"), tmp_path / "stops", tokens[0])
    words = ("generate", str(stopped.path), "--prompt", "the capital", "--max-new-tokens", "3")
    assert patcomp(*words).out.strip() == stopped.decoded(tokens[:1])
    assert patcomp(*words, "--ignore-eos").out.strip() == stopped.decoded(tokens)
    edited(lambda metadata: metadata["language"].update(stop_token_ids=7))(stopped.path)
    assert "language.stop_token_ids" in patcomp(*words).err
    assert patcomp("generate", str(tmp_path / "none"), "--prompt", "x").code == 1
