"""Folders that become no language model, and what is said of each."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

Change = Callable[[Path], object]


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
    "nested JSON": (text("config.json", "[" * 100_000), "config.json' is not JSON: RecursionError: maximum"),
    "no text": (lambda path: (path / "config.json").write_bytes(b"\xff\xfe"), "config.json' is not JSON"),
    "a list": (text("config.json", "[1]"), "config.json' must hold a JSON object, and holds a list"),
    "settings that are a text": (
        config(quantization_config="fp8"),
        "quantization_config in config.json of .* is not an object with settings",
    ),
    "an adapter": (
        only(("adapter_config.json", '{"base_model_name_or_path": "Qwen/Qwen3-0.6B"}')),
        "holds an adapter of the type None, and only LORA is read",
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
    "patches of bytes": (config(model_type="blt"), "of the architecture 'blt' are not converted: it reads bytes in"),
    "two streams": (config(model_type="xlnet"), "'xlnet' are not converted: it foresees a token by a second stream"),
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
