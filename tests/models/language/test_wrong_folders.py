"""Folders that cannot be converted as asked: one sentence before anything is loaded, and nothing is left."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from patcomp.errors import PatcompError
from patcomp_models.checkpoints.folders import CAUSAL, check_language_model, checked_folder, quantization, weight_files
from patcomp_models.checkpoints.loading import classes_of
from patcomp_models.language import LanguageModelError, convert_language_model
from patcomp_models.tasks import convert_folder
from tests.helpers.command import Command
from tests.models.language.checkpoints import folder
from tests.models.language.wrong_folders import BAD, config, only, renamed, sharded


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder(tmp_path_factory.mktemp("checkpoint") / "small")


@pytest.fixture
def nothing_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*arguments: object, **options: object) -> None:
        raise AssertionError("a model is loaded")

    for name in ("AutoModelForCausalLM", "AutoModelForSequenceClassification", "AutoModel"):
        monkeypatch.setattr(getattr(transformers, name), "from_pretrained", load)


@pytest.mark.usefixtures("nothing_is_loaded")
@pytest.mark.parametrize("case", BAD)
def test_bad_folders(case: str, source: Path, tmp_path: Path) -> None:
    change, message = BAD[case]
    shutil.copytree(source, tmp_path / "copy")
    change(tmp_path / "copy")
    with pytest.raises(LanguageModelError, match=message) as raised:
        convert_language_model(tmp_path / "copy", out=tmp_path / "out/bundle")
    assert len(str(raised.value).splitlines()) == 1
    assert len(str(raised.value)) < 600 + 2 * len(str(tmp_path))
    assert {path.name for path in tmp_path.iterdir()} <= {"copy"}


@pytest.mark.usefixtures("nothing_is_loaded")
def test_the_commands_say_one_line(patcomp: Command, source: Path, tmp_path: Path) -> None:
    shutil.copytree(source, tmp_path / "copy")
    config(architectures=["LlamaForSequenceClassification"])(tmp_path / "copy")
    for change, command, message in (
        (None, ("convert-lm", "-o", "bundle"), "holds LlamaForSequenceClassification, which is not a causal"),
        (renamed("q4.gguf"), ("convert",), "has its weights in GGUF"),
        (only(("model_index.json", "{}")), ("convert-lm", "-o", "bundle"), "holds a pipeline of diffusers"),
        (only(), ("convert",), "is empty"),
    ):
        if change is not None:
            change(tmp_path / "copy")
        done = patcomp(command[0], "copy", *command[1:])
        assert done.code == 1
        assert done.err.startswith("error: 'copy' ")
        assert message in done.err
        assert done.err.count("\n") == 1
        assert [path.name for path in tmp_path.iterdir()] == ["copy"]


@pytest.mark.parametrize(
    "words",
    [("compress", "copy"), ("diff", "copy", "copy"), ("audit", "copy", "--target", "cpu"), ("explain", "copy", "mul"),
     ("why-not", "rms_norm", "copy")],
)  # fmt: skip
def test_commands_that_take_no_language_model(
    words: tuple[str, ...], patcomp: Command, source: Path, tmp_path: Path
) -> None:
    shutil.copytree(source, tmp_path / "copy")
    done = patcomp(*words)
    assert done.code == 1
    assert done.err == (
        "error: 'copy' holds LlamaForCausalLM; language models become bundles, by patcomp convert-lm, or in Python by "
        "patcomp.convert(FOLDER, save=BUNDLE)\n"
    )


METHODS = (
    "bitsandbytes", "gptq", "awq", "aqlm", "vptq", "quanto", "eetq", "higgs", "hqq", "compressed-tensors", "fbgemm_fp8",
    "torchao", "bitnet", "spqr", "mxfp4", "fp8", "quark", "fp_quant", "auto-round", "nvfp4", "mxfp8", "modelopt",
)  # fmt: skip


def test_every_form_of_quantised_weights_is_named(tmp_path: Path) -> None:
    for method in METHODS:
        for key in ("quantization_config", "compression_config"):
            for stated in ({key: {"quant_method": method}}, {"text_config": {key: {"quant_method": method}}}):
                assert quantization(tmp_path, stated) == f"{method}, says {key} of config.json"
    assert quantization(tmp_path, {"quantization_config": {"bits": 4}}).startswith("an unknown method, says")
    for plain in ({}, {"quantization_config": None}):
        assert quantization(tmp_path, plain) == ""
    (tmp_path / "quantize_config.json").write_text("{}")
    assert quantization(tmp_path, {}) == "gptq, says quantize_config.json"


def test_files_that_transformers_chooses(source: Path, tmp_path: Path) -> None:
    """The one file comes before the index, and a name in the configuration before both."""
    shutil.copytree(source, tmp_path / "copy")
    kept = (tmp_path / "copy/model.safetensors").read_bytes()
    sharded()(tmp_path / "copy")
    names = lambda found: [path.name for path in weight_files(tmp_path / "copy", found)]  # noqa: E731
    assert names({}) == ["a.safetensors", "b.safetensors"]
    (tmp_path / "copy/model.safetensors").write_bytes(kept)
    assert names({}) == ["model.safetensors"]
    assert names({"transformers_weights": "b.safetensors"}) == ["b.safetensors"]
    assert names({"transformers_weights": "model.safetensors.index.json"}) == ["a.safetensors", "b.safetensors"]


@pytest.mark.parametrize(
    "values",
    [{"architectures": None}, {"architectures": ["LLaMAForCausalLM"]}, {"architectures": ["My"], "auto_map": {
        "AutoModelForCausalLM": "my.My"}}],
)  # fmt: skip
def test_language_models_by_other_names(values: dict[str, Any], source: Path, tmp_path: Path) -> None:
    shutil.copytree(source, tmp_path / "copy")
    config(**values)(tmp_path / "copy")
    found = checked_folder(tmp_path / "copy", trust_remote_code=True)
    check_language_model(tmp_path / "copy", found, classes_of(CAUSAL, found))


@pytest.mark.usefixtures("nothing_is_loaded")
def test_a_tokenizer_without_words(source: Path, tmp_path: Path) -> None:
    """transformers makes them of classes that find no vocabulary."""
    for kind in (transformers.Qwen2Tokenizer, transformers.GemmaTokenizer, transformers.LlamaTokenizer):
        with pytest.raises(LanguageModelError, match=r"the tokenizer \(\w+Tokenizer\) has no vocabulary; pass token"):
            convert_language_model(source, out=tmp_path / "bundle", tokenizer=kind())
    for wrong in ("small", True, transformers.Qwen2Tokenizer):
        with pytest.raises(LanguageModelError, match="tokenizer= takes a tokenizer of transformers, None or False, g"):
            convert_language_model(source, out=tmp_path / "bundle", tokenizer=wrong)
    assert list(tmp_path.iterdir()) == []


# ---- other tasks ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("nothing_is_loaded")
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"architectures": ["T5EncoderModel"], "model_type": "t5"},
         "holds T5EncoderModel, and for feature extraction transformers would load T5Model in its place; export it by"),
        ({"architectures": ["LlamaForImageClassification"]},
         "holds LlamaForImageClassification of type 'llama', and transformers has no such model for image classificat"),
        ({"architectures": ["GPT2LMHeadModel"]}, "language models become bundles, by patcomp convert-lm"),
        ({"architectures": ["LlamaModel"], "quantization": {"quant_method": "hqq"}}, "the weights in .* are quantised"),
    ],
)  # fmt: skip
def test_bad_folders_of_other_tasks(values: dict[str, Any], message: str, source: Path, tmp_path: Path) -> None:
    shutil.copytree(source, tmp_path / "copy")
    config(**values)(tmp_path / "copy")
    with pytest.raises(PatcompError, match=message):
        convert_folder(tmp_path / "copy")


def test_a_model_of_several_inputs(tmp_path: Path) -> None:
    """Its class does not say what it takes: only a run shows it."""
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "visual_feat_dim": 8}
    settings = transformers.LxmertConfig(**sizes, l_layers=1, x_layers=1, r_layers=1, vocab_size=99)
    torch.manual_seed(0)
    transformers.LxmertModel(settings).save_pretrained(tmp_path)
    message = r"LxmertModel in .* does not run on the inputs of models for feature extraction: `visual_feats`"
    with pytest.raises(PatcompError, match=message):
        convert_folder(tmp_path)
