"""Bad folders of strangers: each is refused in one line, in seconds, and nothing outside of it is read or written."""

from __future__ import annotations

import json
import os
import struct
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from patcomp.errors import PatcompError
from patcomp_models.bundles import loading as bundles_loading
from patcomp_models.bundles.diffusion.controlnet import StableDiffusionControlNet
from patcomp_models.checkpoints.loading import STRICT
from patcomp_models.checkpoints.room import check_room
from patcomp_models.checkpoints.tokenizers import save
from patcomp_models.checkpoints.untrusted import array_in, check_folder, copy_files, inside, named_class
from patcomp_models.errors import BundleError
from patcomp_models.language.asked import prompt_of
from patcomp_models.language.sources import language_model_of, source_of
from patcomp_models.language.writing import chosen_tokenizer
from tests.hostile import worker
from tests.hostile.folders import OUTSIDE, Given, prepare, run
from tests.hostile.judge import judge

Change = Callable[[Path], object]
CHECKPOINT, SHARDS, GGUF, GEMMA, PIPELINE, BUNDLE = range(6)


@pytest.fixture(scope="module")
def givens() -> list[Given]:
    return prepare()


def changed(name: str, *keys: str, **values: Any) -> Change:
    """Changes the object in a JSON file, or an object inside it."""

    def change(folder: Path) -> None:
        whole = json.loads((folder / name).read_text())
        found = whole
        for key in keys:
            found = found[key]
        found.update(values)
        (folder / name).write_text(json.dumps(whole))

    return change


def linked(name: str, target: str) -> Change:
    def change(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target if target.startswith("/") else folder / target)

    return change


def pipe(name: str) -> Change:
    def change(folder: Path) -> None:
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return change


def index_of(file: str) -> Change:
    """One weight of an index is in another file."""

    def change(folder: Path) -> None:
        table = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
        changed("model.safetensors.index.json", "weight_map", **{next(iter(table)): file})(folder)

    return change


def gguf_key(kind: int, value: bytes) -> Change:
    """Adds a key to a GGUF file."""

    def change(folder: Path) -> None:
        data = (folder / "model.gguf").read_bytes()
        count = struct.unpack("<Q", data[16:24])[0]
        name = struct.pack("<Q", 1) + b"k" + struct.pack("<I", kind)
        (folder / "model.gguf").write_bytes(data[:16] + struct.pack("<Q", count + 1) + name + value + data[24:])

    return change


def gguf_number(key: bytes, value: int) -> Change:
    """Another value of 32 bits of a key of a GGUF file."""

    def change(folder: Path) -> None:
        data = (folder / "model.gguf").read_bytes()
        at = data.index(key) + len(key) + 4
        (folder / "model.gguf").write_bytes(data[:at] + struct.pack("<I", value) + data[at + 4 :])

    return change


def pattern(regex: str) -> Change:
    split = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
    return changed("tokenizer.json", pre_tokenizer=split)


NESTED = struct.pack("<IQ", 9, 1) * 100_000 + struct.pack("<IQ", 4, 0)
RECORD, MODELS = ("metadata.json", "diffusers"), ("metadata.json", "diffusers", "models")
UNET = {"library": "evil_mod", "class": "C", "config": {}}
BAD: dict[str, tuple[int, Change, str]] = {
    "a key that is a path": (
        PIPELINE,
        changed("model_index.json", **{"tokenizer/../../../x": ["transformers", "CLIPTokenizer"]}),
        r"has 'tokenizer/\.\./\.\./\.\./x'",
    ),
    "a key that begins as a tokenizer": (
        PIPELINE,
        changed("model_index.json", **{"tokenizer/x": ["transformers", "CLIPTokenizer"]}),
        "must have the name of a folder",
    ),
    "a link in a tokenizer": (
        PIPELINE,
        linked("tokenizer/notes.txt", f"../{OUTSIDE}/secret.txt"),
        "notes.txt' is a link that leads out",
    ),
    "a folder that is a link": (
        PIPELINE,
        lambda folder: (folder / "tokenizer_2").symlink_to(folder.parent / OUTSIDE),
        "tokenizer_2' is a link that leads out",
    ),
    "a link to its own folder": (
        PIPELINE,
        lambda folder: (folder / "tokenizer/all").symlink_to(folder),
        "all' is a link to a folder",
    ),
    "a module in metadata.json": (BUNDLE, changed(*MODELS, unet=UNET), "the library of a model is 'evil_mod'"),
    "a setting of another type": (
        BUNDLE,
        changed(*MODELS, "text_encoder", "config", vocab_size=0.5),
        "the settings of CLIPTextModel in metadata.json do not fit it: StrictDataclassFieldValidationError",
    ),
    "settings that name a folder": (
        BUNDLE,
        changed("metadata.json", "diffusers", "scheduler", config=f"../{OUTSIDE}"),
        "the settings of PNDMScheduler in metadata.json are no object",
    ),
    "settings of a model that name a folder": (
        BUNDLE,
        changed(*MODELS, "unet", config=f"../{OUTSIDE}"),
        "the settings of UNet2DConditionModel in metadata.json are no object",
    ),
    "an asset outside": (
        BUNDLE,
        changed("metadata.json", "assets", unet="../outside"),
        r"assets.unet of metadata.json is '\.\./outside'",
    ),
    "a tokenizer outside": (
        BUNDLE,
        changed(*RECORD, tokenizers={"../outside": "CLIPTokenizer"}),
        "a tokenizer is '../outside'",
    ),
    "an index that leads out": (
        SHARDS,
        index_of(f"../{OUTSIDE}/secret.txt"),
        "a file that model.safetensors.index.json names is",
    ),
    "weights outside": (
        CHECKPOINT,
        changed("config.json", transformers_weights="../x.safetensors"),
        "transformers_weights of",
    ),
    "weights that are a link": (
        CHECKPOINT,
        linked("model.safetensors", f"../{OUTSIDE}/secret.txt"),
        "is a link that leads out",
    ),
    "a device": (CHECKPOINT, linked("config.json", "/dev/zero"), "config.json' is a link that leads out"),
    "a pipe": (CHECKPOINT, pipe("config.json"), "config.json' is no file"),
    "code of the hub": (
        CHECKPOINT,
        changed("config.json", attn_implementation="owner/kernel"),
        "code of the hub, which is not run",
    ),
    "a class with a path": (
        CHECKPOINT,
        changed("config.json", architectures=["evil_mod.LlamaForCausalLM"], model_type="no"),
        "holds a model without a name",
    ),
    "files of tokens outside": (
        CHECKPOINT,
        changed("tokenizer_config.json", fast_tokenizer_files=["../tokenizer.4.0.json"]),
        "a file that tokenizer_config.json names",
    ),
    "a vocabulary outside": (
        CHECKPOINT,
        changed("tokenizer_config.json", vocab_file=f"../{OUTSIDE}/secret.txt"),
        "vocab_file of .* names .*secret.txt', which is outside of the folder; leave the key out",
    ),
    "weights of timm outside": (
        CHECKPOINT,
        changed("config.json", pretrained_cfg={"source": "", "file": "/etc/passwd"}),
        "file of .*config.json' names '/etc/passwd', which is outside",
    ),
    "a backbone outside": (
        PIPELINE,
        changed("text_encoder/config.json", backbone_config={"backbone": f"local-dir:../../{OUTSIDE}"}),
        "backbone of .* names .*outside', which is outside",
    ),
    "a policy's language model outside": (
        CHECKPOINT,
        lambda folder: changed("config.json", vlm_model_name=str(folder.parent / OUTSIDE))(folder),
        "vlm_model_name of .* names .*outside', which is outside",
    ),
    "inputs of a tokenizer": (
        CHECKPOINT,
        changed("tokenizer_config.json", init_inputs=["/etc/hostname"]),
        "may name any file",
    ),
    "a billion layers": (
        CHECKPOINT,
        changed("config.json", num_hidden_layers=10**9),
        "num_hidden_layers .* is 1000000000, and must be below 1024",
    ),
    "two billion layers in a block": (
        PIPELINE,
        changed("unet/config.json", layers_per_block=2**31 - 1),
        "layers_per_block .* is 2147483647, and must be below 1024",
    ),
    "a billion as a token": (CHECKPOINT, changed("config.json", eos_token_id=10**9), "eos_token_id .* is 1000000000"),
    "a billion as a token of a tokenizer": (
        CHECKPOINT,
        changed("tokenizer.json", "model", "vocab", zzz=10**9),
        "has the token id 1000000000",
    ),
    "2^62 positions": (
        CHECKPOINT,
        changed("config.json", max_position_embeddings=2**62),
        "max_position_embeddings .* is 4611686018427387904",
    ),
    "2^31 positions": (
        CHECKPOINT,
        changed("config.json", max_position_embeddings=2**31),
        "and must be below 2147483648",
    ),
    "an epsilon below zero": (
        CHECKPOINT,
        changed("config.json", rms_norm_eps=-1),
        "rms_norm_eps .* is -1, and must be from 0 to 1",
    ),
    "a number of 4000 digits": (
        CHECKPOINT,
        changed("config.json", vocab_size=10**4000),
        r"is about 2\^13288",
    ),
    "a width of a million": (
        CHECKPOINT,
        changed("config.json", hidden_size=10**6),
        "asks for .* numbers, and its files have",
    ),
    "a pattern that never ends": (CHECKPOINT, pattern("(a+)+$"), "cannot split the text of check=: PanicException"),
    "a chat template with a number": (
        CHECKPOINT,
        changed("tokenizer_config.json", chat_template={"a": 1}),
        "transformers cannot save the .* of the checkpoint: TypeError: write",
    ),
    "deep JSON": (
        CHECKPOINT,
        lambda folder: (folder / "config.json").write_text('{"a":' * 100_000),
        "is not JSON: RecursionError: maximum",
    ),
    "arrays in arrays": (GGUF, gguf_key(9, NESTED), "has arrays in arrays in a key"),
    "no heads": (GGUF, gguf_number(b"llama.attention.head_count", 0), "head_count is 0, and must be a whole number"),
    "four billion layers": (GEMMA, gguf_number(b"gemma3.block_count", 2**32 - 1), "block_count is 4294967295"),
    "a million layers": (GEMMA, gguf_number(b"gemma3.block_count", 10**6), "num_hidden_layers .* is 1000000"),
}


def read(folder: Path) -> None:
    """A checkpoint or GGUF file as far as its model, with a text that its tokenizer splits."""
    given = folder / "model.gguf" if (folder / "model.gguf").exists() else folder
    source = source_of(given, lambda what: nullcontext(), trust_remote_code=False)
    if given == folder:
        words = chosen_tokenizer(None, source.folder, trust_remote_code=False)
        prompt_of("a" * 40 + "!", words, None)
        save(words, folder.parent / "made")
    language_model_of(source, "float32", STRICT, trust_remote_code=False)


@pytest.mark.parametrize("case", BAD)
def test_bad_folders(case: str, givens: list[Given], capfd: pytest.CaptureFixture[str]) -> None:
    number, change, message = BAD[case]
    given = givens[number]
    reader = Given(given.files, given.read if number in (PIPELINE, BUNDLE) else read)
    with pytest.raises(PatcompError, match=message) as raised:
        run(reader, dict(given.files), [change])
    assert len(str(raised.value).splitlines()) == 1
    assert len(str(raised.value)) < 1000


def test_the_folders_that_are_broken_are_whole(givens: list[Given]) -> None:
    for number in (CHECKPOINT, SHARDS, GGUF, GEMMA):
        run(Given(givens[number].files, read), dict(givens[number].files), [])


@pytest.mark.parametrize("bytes_", [0, 64_000])
def test_a_model_has_no_more_modules_than_its_files_can_fill(bytes_: int, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(bytes(bytes_))
    most = 10_000 + bytes_ // 64

    def made(count: int) -> Callable[[], torch.nn.Module]:
        return lambda: torch.nn.Sequential(*(torch.nn.Identity() for _ in range(count)))

    check_room(tmp_path, made(most))
    with pytest.raises(BundleError, match=f"asks for more than {most} modules, and its files have {bytes_} bytes"):
        check_room(tmp_path, made(most + 1))
    assert len(made(most + 1)()) == most + 1  # nothing is counted any longer


_opened = set[str]()
"""The files of cases, and those outside of these, that Python opened."""


def _watch(event: str, found: tuple[Any, ...]) -> None:
    if event == "open" and Path(str(found[0])).parent.name in ("case", OUTSIDE):
        _opened.add(str(found[0]))


sys.addaudithook(_watch)


def test_names_that_nothing_opens(givens: list[Given], monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints say where they were saved, and name files of their own; only these are opened."""

    def change(folder: Path) -> None:
        other, secret = folder.parent / OUTSIDE, str(folder.parent / OUTSIDE / "secret.txt")
        changed("config.json", _name_or_path=str(other), backbone=OUTSIDE, architecture="resnet18")(folder)
        changed(
            "tokenizer_config.json", name_or_path=str(other), special_tokens_map_file=secret, vocab_file="/none",
            tokenizer_file=str(folder / "tokenizer.json"),
            chat_template="{% for a in range(10**9) %}{{ a * 10**9 }}{% endfor %}",  # nothing renders it
        )(folder)  # fmt: skip
        monkeypatch.chdir(folder.parent)  # where `backbone` is a folder
        _opened.clear()

    run(Given(givens[CHECKPOINT].files, read), dict(givens[CHECKPOINT].files), [change])
    assert any("/case/tokenizer_config.json" in each for each in _opened)
    assert not any(f"/{OUTSIDE}/" in each for each in _opened)


def test_the_model_of_an_adapter_is_not_loaded(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "clip_text_model"}')
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "/elsewhere", "peft_type": "LORA"}')
    with pytest.raises(BundleError, match="holds an adapter for /elsewhere, and only whole models are converted"):
        bundles_loading.model_of(tmp_path, "transformers", "CLIPTextModel", "float32")


def test_links_of_the_hub_are_followed(givens: list[Given], tmp_path: Path) -> None:
    """The hub's cache has each file as a link to `blobs`, beside the folder of its snapshots."""
    hub = tmp_path / "models--owner--name"
    folder, blobs = hub / "snapshots" / "0123abc", hub / "blobs"
    folder.mkdir(parents=True), blobs.mkdir()
    for number, (name, data) in enumerate(givens[CHECKPOINT].files.items()):
        (blobs / str(number)).write_bytes(data)
        (folder / name).symlink_to(Path("../../blobs") / str(number))
    read(folder)
    copy_files(folder, tmp_path / "copy")
    assert {each.name: each.read_bytes() for each in (tmp_path / "copy").iterdir()} == givens[CHECKPOINT].files
    (hub / "secret").write_text("no blob")
    (folder / "notes.txt").symlink_to("../../secret")
    with pytest.raises(BundleError, match="is a link that leads out"):
        check_folder(folder)


def test_links_inside_a_folder_are_followed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/vocab.json").write_text("{}")
    (tmp_path / "a/link.json").symlink_to("vocab.json")
    (tmp_path / "a/absent.json").symlink_to("none.json")
    check_folder(tmp_path / "a")
    copy_files(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b/link.json").read_text() == "{}"
    assert not (tmp_path / "b/link.json").is_symlink()


@pytest.mark.parametrize(
    "name", ["", "/etc/hostname", "..", "a/../../b", "a\\..\\b", "a\nb", "a" * 300, None, 3, ["a"]]
)
def test_names_that_lead_out(name: object, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"a name is .*, and must be the name of a file or folder"):
        inside(tmp_path, name, "a name")


@pytest.mark.parametrize("name", ["a", "a.b", "a/b.json", "é"])
def test_names_that_stay_inside(name: str, tmp_path: Path) -> None:
    assert inside(tmp_path, name, "a name") == tmp_path / name


@pytest.mark.parametrize(
    ("library", "name", "role", "message"),
    [
        ("os", "system", "model", "the library of a model is 'os', and must be diffusers or transformers"),
        (["transformers"], "AutoModel", "model", "the library of a model is"),
        ("transformers", "os.path", "model", "which is no name of a class"),
        ("transformers", "_LazyModule", "model", "which is no name of a class"),
        ("transformers", "AutoModel", "model", "AutoModel of transformers is no model"),
        ("transformers", "CLIPTextModel", "tokenizer", "CLIPTextModel of transformers is no tokenizer"),
        ("transformers", "NoSuchModel", "model", "has no class NoSuchModel"),
        ("transformers", "CLIPTokenizer", "scheduler", "the library of a scheduler is 'transformers', and must be"),
    ],
)
def test_classes_that_are_not_found(library: object, name: object, role: str, message: str) -> None:
    with pytest.raises(BundleError, match=message):
        named_class(library, name, role)


def test_models_of_a_pipeline_are_of_two_libraries(givens: list[Given], tmp_path: Path) -> None:
    index = json.loads(givens[PIPELINE].files["model_index.json"]) | {"controlnet": ["evil_mod", "C"]}
    (tmp_path / "model_index.json").write_text(json.dumps(index))
    library, name = StableDiffusionControlNet(tmp_path, "float32").class_of("controlnet")
    assert (library, name) == ("diffusers", "C")
    with pytest.raises(BundleError, match="the installed version of diffusers has no class C"):
        bundles_loading.model_of(tmp_path / "controlnet", library, name, "float32")


def test_arrays_take_no_memory_by_their_header(tmp_path: Path) -> None:
    np.save(tmp_path / "whole.npy", np.arange(3.0))
    assert array_in(tmp_path / "whole.npy").tolist() == [0, 1, 2]
    data = (tmp_path / "whole.npy").read_bytes()
    (tmp_path / "large.npy").write_bytes(data.replace(b"(3,), }" + b" " * 12, b"(9999999999999,), }"))
    np.save(tmp_path / "objects.npy", np.array([{}]), allow_pickle=True)
    for name in ("large.npy", "objects.npy"):
        with pytest.raises(BundleError, match="is no array of numpy"):
            array_in(tmp_path / name)


def test_hostile_folders_give_a_result_or_a_clear_error(givens: list[Given], monkeypatch: pytest.MonkeyPatch) -> None:
    @settings(max_examples=60, derandomize=True, deadline=None, database=None)
    @given(number=st.integers(0, 2**32))
    def check(number: int) -> None:
        outcome = judge(worker.drawn("folders", 0, number, givens))
        assert not outcome.is_finding, f"case {number}: {outcome.kind}: {outcome.message} [{outcome.place}]"

    check()
