"""Checkpoints that do not have the weights of their model: refused by name, unless the user allows each of them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models
from torch import Tensor

from patcomp.errors import ConversionWarning
from patcomp_models.checkpoints.agreement import Allowed
from patcomp_models.checkpoints.loading import load_model
from patcomp_models.language import Bundle, LanguageModelError, convert_language_model
from patcomp_models.tasks import convert_folder
from tests.helpers.command import Command
from tests.models.language.checkpoints import checkpoint, folder
from tests.models.tasks.folders import folder as folder_of_task

DOWN, HEAD = "model.layers.1.mlp.down_proj.weight", "lm_head.weight"
ADVICE = (
    "complete the checkpoint, or pass allow_missing= (--allow-missing NAME) for weights that may be drawn at random"
)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder(tmp_path_factory.mktemp("checkpoint") / "small")


def changed(source: Path, path: Path, change: Callable[[dict[str, Tensor]], object]) -> Path:
    """A copy of a checkpoint whose weights by name are changed."""
    shutil.copytree(source, path)
    weights = load_file(path / "model.safetensors")
    change(weights)
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    return path


def loaded(path: Path, missing: str = "", unexpected: str = "") -> dict[str, Tensor]:
    allowed = Allowed.of(missing.split(), unexpected.split())
    return load_model(path, "float32", trust_remote_code=False, allowed=allowed).state_dict()


def test_each_difference_is_named(source: Path, tmp_path: Path) -> None:
    def change(weights: dict[str, Tensor]) -> None:
        del weights[DOWN]
        weights[HEAD] = weights[HEAD][:-1].clone()
        weights["model.layers.2.mlp.up_proj.weight"] = torch.ones(2)

    path = changed(source, tmp_path / "copy", change)
    with pytest.raises(LanguageModelError) as raised:
        loaded(path)
    assert str(raised.value) == (
        f"{str(path)!r} does not fit LlamaForCausalLM: {HEAD} is 95x32 and must be 96x32; missing "
        f"{DOWN}; unexpected model.layers.2.mlp.up_proj.weight; {ADVICE}; correct its config.json, or "
        "pass allow_unexpected= (--allow-unexpected NAME) for weights that may be left out"
    )
    # each is allowed for itself, by its name or a pattern
    for missing, unexpected, wrong in (
        (DOWN, "*layers.2*", f"{HEAD} is 95x32"),
        ("lm_head.*", "*layers.2*", f"missing {DOWN}"),
        (f"{DOWN} {HEAD}", "*layers.3*", "unexpected model.layers.2.mlp.up_proj.weight"),
        ("*layers.2*", f"{DOWN} {HEAD}", f"missing {DOWN}"),
    ):
        with pytest.raises(LanguageModelError, match=wrong):
            loaded(path, missing, unexpected)


def test_what_is_allowed_is_named_in_a_warning(source: Path, tmp_path: Path) -> None:
    kept = load_file(source / "model.safetensors")
    path = changed(source, tmp_path / "copy", lambda weights: weights.pop(HEAD))
    with pytest.warns(ConversionWarning, match=rf"weights of '.*copy' are drawn at random: {HEAD}$"):
        found = loaded(path, missing=HEAD)
    assert found[HEAD].std() > 0
    assert not torch.equal(found[HEAD], kept[HEAD])
    assert torch.equal(found[DOWN], kept[DOWN])
    path = changed(source, tmp_path / "other", lambda weights: weights.update({"value_head.weight": torch.ones(2)}))
    with pytest.warns(ConversionWarning, match=r"weights of '.*other' are left out: value_head.weight$"):
        assert loaded(path, unexpected="value_head.*").keys() == kept.keys()


def test_many_names_are_cut(source: Path, tmp_path: Path) -> None:
    path = changed(source, tmp_path / "copy", dict.clear)
    with pytest.raises(LanguageModelError, match=r"missing lm_head.weight(, model[\w.]+){4} and 16 more; complete"):
        loaded(path)


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("gpt2", lambda weights: weights.update({"h.0.attn.bias": torch.ones(1, 1, 4, 4)})),
        ("llama", lambda weights: weights.update({"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)})),
        ("opt", lambda weights: weights.pop("lm_head.weight", None)),
        ("gemma2", lambda weights: weights.pop("lm_head.weight", None)),
    ],
)
def test_what_transformers_ignores(kind: str, change: Callable[[dict[str, Tensor]], object], tmp_path: Path) -> None:
    """Buffers of old versions are no weights, and a head that shares the embeddings is not missing."""
    model = checkpoint(kind)
    model.save_pretrained(tmp_path / "saved")
    found = loaded(changed(tmp_path / "saved", tmp_path / "copy", change))
    assert all(torch.equal(value, found[name]) for name, value in model.state_dict().items())


def test_an_expert_that_is_missing(tmp_path: Path) -> None:
    """transformers joins experts: one that is missing makes it fail, or makes the joined weight smaller."""
    for kind, name in (
        ("qwen3_moe", "model.layers.0.mlp.experts.down_proj"), ("mixtral", "model.layers.0.mlp.experts.gate_up_proj"),
    ):  # fmt: skip
        checkpoint(kind).save_pretrained(tmp_path / kind)

        def change(weights: dict[str, Tensor]) -> None:
            del weights[next(each for each in weights if "experts.1." in each)]

        with pytest.raises(LanguageModelError, match=name):
            loaded(changed(tmp_path / kind, tmp_path / f"{kind}-2", change))


def test_the_language_command(patcomp: Command, source: Path, tmp_path: Path) -> None:
    """A folder without a weight and without a tokenizer, of which each is accepted by an option of its own."""
    path = changed(source, tmp_path / "copy", lambda weights: weights.pop(DOWN))
    convert = ("convert-lm", "copy", "-o", "bundle", "--max-context", "64")
    done = patcomp(*convert)
    assert done.code == 1
    assert f"missing {DOWN}; complete the checkpoint" in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["copy"]
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (path / name).unlink()
    done = patcomp(*convert, "--allow-missing", "*.down_proj.weight", "--no-tokenizer")
    assert done.code == 0, done.err
    assert f"warning: weights of 'copy' are drawn at random: {DOWN}\n" in done.err
    bundle = Bundle(tmp_path / "bundle")
    assert bundle.metadata["language"]["embedded_tokenizer"] is False
    assert not (bundle.path / "tokenizer").exists()
    done = patcomp("generate", "bundle", "--prompt", "the capital")
    assert (done.code, done.err) == (1, "error: the bundle 'bundle' has no tokenizer; give token ids\n")
    # earlier versions wrote tokenizers without words
    (bundle.path / "tokenizer").mkdir()
    Tokenizer(models.BPE()).save(str(bundle.path / "tokenizer/tokenizer.json"))
    done = patcomp("generate", "bundle", "--prompt", "the capital")
    assert done.code == 1
    assert "the tokenizer of 'bundle' finds no token in 'the capital'; give token ids" in done.err


def test_names_go_with_a_folder(tmp_path: Path) -> None:
    with pytest.raises(LanguageModelError, match="allow_missing= and allow_unexpected= go with the folder of a check"):
        convert_language_model(checkpoint("llama"), out=tmp_path / "bundle", allow_missing="x")


# ---- other tasks ------------------------------------------------------------------------------------


def test_a_classifier(patcomp: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A head for another number of classes is new if the user says so; a counter of a batch norm is nothing."""
    folder_of_task(tmp_path / "saved", "ResNetForImageClassification")

    def change(weights: dict[str, Tensor]) -> None:
        for name in [name for name in weights if name.endswith("num_batches_tracked")]:
            del weights[name]
        weights["classifier.1.weight"] = torch.ones(7, 16)

    path = changed(tmp_path / "saved", tmp_path / "copy", change)
    message = r"does not fit ResNetForImageClassification: classifier.1.weight is 7x16 and must be 2x16; complete"
    with pytest.raises(LanguageModelError, match=message):
        convert_folder(path)
    drawn = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        with pytest.warns(ConversionWarning, match="are drawn at random: classifier.1.weight"):
            drawn.append(convert_folder(path, allow_missing=["classifier.1.*"]))
    capsys.readouterr()  # the bar of transformers while the folder was saved
    first, second = ({blob.key: bytes(blob.data) for blob in program.module.blobs} for program in drawn)
    assert first == second  # the same folder, the same bytes
    assert str(drawn[0]) == str(drawn[1])
    done = patcomp("convert", "copy", "--text", "net.mlir", "--allow-missing", "classifier.*", "--quiet")
    assert done.code == 0, done.err
    assert done.err == "warning: weights of 'copy' are drawn at random: classifier.1.weight\n"


def test_options_that_no_folder_takes(patcomp: Command, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("")
    done = patcomp("convert", "net.py:net", "--allow-missing", "x", "--allow-unexpected", "y", "--text", "-")
    assert (done.code, done.err) == (
        2,
        "error: --allow-missing, --allow-unexpected goes with the folder of a checkpoint, and net.py:net is a function "
        "of a Python file\n",
    )
