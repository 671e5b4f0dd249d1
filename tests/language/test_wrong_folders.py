"""Folders that cannot be converted as asked: one sentence before anything is loaded, and nothing is left."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from patcomp.errors import PatcompError
from patcomp.language import LanguageModelError, convert_language_model
from patcomp.language.folders import CAUSAL, check_language_model, checked_folder, quantization, weight_files
from patcomp.language.loading import classes_of
from patcomp.tasks import convert_folder
from tests.helpers.command import Command
from tests.language.checkpoints import folder

Change = Callable[[Path], object]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder(tmp_path_factory.mktemp("checkpoint") / "small")


@pytest.fixture
def nothing_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*arguments: object, **options: object) -> None:
        raise AssertionError("a model is loaded")

    for name in ("AutoModelForCausalLM", "AutoModelForSequenceClassification", "AutoModel"):
        monkeypatch.setattr(getattr(transformers, name), "from_pretrained", load)


def without(*names: str) -> Change:
    return lambda path: [(path / name).unlink() for name in names]


def config(**values: Any) -> Change:
    """Changes `config.json`; None removes a value."""

    def change(path: Path) -> None:
        found = json.loads((path / "config.json").read_text()) | values
        kept = {key: value for key, value in found.items() if value is not None}
        (path / "config.json").write_text(json.dumps(kept))

    return change


def text(name: str, content: str) -> Change:
    return lambda path: (path / name).write_text(content)


def only(*files: tuple[str, str]) -> Change:
    """Puts other files in the place of all files."""

    def change(path: Path) -> None:
        shutil.rmtree(path)
        path.mkdir()
        for name, content in files:
            (path / name).write_text(content)

    return change


def renamed(name: str) -> Change:
    return lambda path: (path / "model.safetensors").rename(path / name)


def cut(path: Path) -> None:
    file = path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-10])


def sharded(*missing: str, table: object = None) -> Change:
    """Splits the weights into two files with an index, some of which are missing."""

    def change(path: Path) -> None:
        weights = load_file(path / "model.safetensors")
        (path / "model.safetensors").unlink()
        names = ["a.safetensors", "b.safetensors"]
        places = {key: names[number % 2] for number, key in enumerate(sorted(weights))}
        for name in names:
            part = {key: value for key, value in weights.items() if places[key] == name}
            save_file(part, path / name, metadata={"format": "pt"})
        index = {"metadata": {}, "weight_map": places if table is None else table}
        (path / "model.safetensors.index.json").write_text(json.dumps(index))
        for name in missing:
            (path / name).unlink()

    return change


BAD: dict[str, tuple[Change, str]] = {
    "no folder": (shutil.rmtree, "there is no folder .*; give the folder of a checkpoint"),
    "an empty folder": (only(), "is empty; give the folder of a checkpoint as transformers saves it"),
    "no config": (without("config.json"), "has no config.json, so it is not the folder of a checkpoint"),
    "no JSON": (text("config.json", "{"), "config.json' is not JSON: Expecting property name"),
    "nested JSON": (text("config.json", "[" * 100_000), "config.json' is not JSON: maximum recursion depth"),
    "no text": (lambda path: (path / "config.json").write_bytes(b"\xff\xfe"), "config.json' is not JSON"),
    "a list": (text("config.json", "[1]"), "config.json' must hold a JSON object, and holds a list"),
    "an adapter": (
        only(("adapter_config.json", '{"base_model_name_or_path": "Qwen/Qwen3-0.6B"}')),
        "holds an adapter for Qwen/Qwen3-0.6B, and only whole models are converted; merge the adapter",
    ),
    "a model and an adapter": (text("adapter_config.json", "{}"), "holds an adapter for None, and only whole models"),
    "a pipeline of diffusers": (only(("model_index.json", "{}")), "holds a pipeline of diffusers, which has several"),
    "a part of diffusers": (
        only(("config.json", '{"_class_name": "UNet2DConditionModel", "_diffusers_version": "0.3"}')),
        "holds UNet2DConditionModel of diffusers; export it by FILE.py:FUNCTION",
    ),
    "an asset": (only(("main.mlirb", ""), ("metadata.json", "{}")), "is an asset, which is converted already"),
    "a bundle": (only(("small.aimodel", ""), ("metadata.json", "{}")), "is a bundle, which is converted already"),
    "GGUF": (only(("q4.gguf", "")), "holds files of GGUF; give one of them, FILE.gguf"),
    "GGUF beside a config": (renamed("q4.gguf"), r"has its weights in GGUF \(q4.gguf\), and only safetensors are read"),
    "pickled weights": (renamed("pytorch_model.bin"), r"in pickled files of PyTorch, which can run code \(pytorch_mod"),
    "no weights": (without("model.safetensors"), "lacks model.safetensors, the file of its weights"),
    "another file of weights": (renamed("other.safetensors"), "lacks model.safetensors, the file of its weights"),
    "weights that were cut off": (cut, "model.safetensors' is not a whole file of safetensors: .*incomplete"),
    "a pointer": (
        text("model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"),
        "model.safetensors' is not a whole file of safetensors: it is a pointer of Git LFS",
    ),
    "a header that is too long": (
        lambda path: (path / "model.safetensors").write_bytes(struct.pack("<Q", 2**40) + b"{}"),
        "model.safetensors' is not a whole file of safetensors",
    ),
    "a shard is missing": (sharded("b.safetensors"), "lacks 1 of the files of weights that .*index.json names: b.safe"),
    "an index without a table": (sharded(table=[]), "index.json' has no weight_map, the table of the files"),
    "a table of numbers": (sharded(table={"a": 1}), "index.json' has no weight_map, the table of the files"),
    "code": (config(auto_map={"AutoModel": "x.Y"}), "runs Python code of its folder; read it, then pass trust_remote"),
    "AQLM": (
        config(quantization_config={"quant_method": "aqlm"}),
        r"are quantised \(aqlm, says quantization_config of config.json\), and that form is not read, because its "
        "weights are sums of vectors of large tables, and a table of Core AI has 256 entries at most; give the",
    ),
    "a classifier": (
        config(architectures=["LlamaForSequenceClassification"]),
        "holds LlamaForSequenceClassification, which is not a causal language model; `patcomp convert` converts",
    ),
    "a base model": (config(architectures=["LlamaModel"]), "holds LlamaModel, which is not a causal language model"),
    "an encoder and a decoder": (
        config(architectures=["BartForConditionalGeneration"], model_type="bart", is_encoder_decoder=True),
        "holds BartForConditionalGeneration, which is not a causal language model",
    ),
    "an encoder": (
        config(architectures=["ViTModel"], model_type="vit"),
        "holds ViTModel of type 'vit', and transformers has no such causal language model; `patcomp convert`",
    ),
    "nothing of it is known": (
        config(architectures=None, model_type=None),
        "holds a model without a name whose config.json has no model_type, and transformers has no such",
    ),
    "an unknown type": (config(model_type="mistery"), "holds LlamaForCausalLM of type 'mistery', and transformers has"),
    "a type that is no text": (config(model_type=["x"]), r"of type \['x'\], and transformers has no such causal"),
    "images and texts": (
        config(architectures=["SiglipModel"], model_type="siglip"),
        "holds SiglipModel of type 'siglip', and transformers has no such causal language model; `patcomp convert`",
    ),
    "a configuration of other values": (
        config(num_hidden_layers="two"), "transformers cannot read '.*config.json': .*num_hidden_layers",
    ),
    "timm": (config(pretrained_cfg={}), "holds an image model of timm; `patcomp convert` converts it"),
    "no tokenizer": (
        without("tokenizer.json", "tokenizer_config.json"),
        r"has no tokenizer; pass tokenizer= with that of the model, or tokenizer=False \(--no-tokenizer\)",
    ),
    "a damaged tokenizer": (
        lambda path: [text(name, "{")(path) for name in ("tokenizer.json", "tokenizer_config.json")],
        r"transformers cannot load the tokenizer of .*; pass tokenizer= with",
    ),
}  # fmt: skip


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
    assert done.err == "error: 'copy' holds LlamaForCausalLM; language models are converted by patcomp convert-lm\n"


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
        ({"architectures": ["GPT2LMHeadModel"]}, "language models are converted by patcomp convert-lm"),
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
    part = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    settings = transformers.BlipConfig(
        text_config={**part, "vocab_size": 99, "max_position_embeddings": 16, "projection_dim": 16},
        vision_config={**part, "image_size": 16, "patch_size": 8},
    )
    torch.manual_seed(0)
    transformers.BlipModel(settings).save_pretrained(tmp_path)
    message = r"BlipModel in .* does not run on the inputs of models for feature extraction: You have to"
    with pytest.raises(PatcompError, match=message):
        convert_folder(tmp_path)
