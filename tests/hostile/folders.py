"""Broken folders of strangers: checkpoints, GGUF files, pipelines and bundles, with their tokenizers and indexes."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from patcomp.errors import PatcompError
from tests.hostile.judge import Case
from tests.hostile.mutation import broken_bytes, broken_text

DATA = Path(__file__).parents[1] / "data"
OUTSIDE = "outside"
"""The folder of a file that no case may read into a bundle, or change."""
SECRET = "what the user keeps for herself"

VALUES: list[Any] = [
    0, 1, -1, 2, 3, 7, 1000, 10**6, 10**9, 2**31 - 1, 2**31, 2**32, 2**62, 2**63, 2**64, 10**40, -(2**63), 0.5, -1.0,
    1e-300, 1e300, float("nan"), float("inf"), True, False, None, "", "0", "a", "../../x", "/etc/hostname", "..", ".",
    "a/b", "a\\b", "\0", "\x1b[31m", "<script>", "\u202e", "owner/name", "owner/name--a.B", "os.system", "os",
    "x" * 5000,
    [], [[]], [None], [0] * 1000, {}, {"a": 1}, [1, 2], ["os", "system"], [None, None], ["transformers", "pipeline"],
    ["diffusers", "DiffusionPipeline"], ["transformers", "AutoModel"],
]  # fmt: skip
KEYS = (
    "auto_map", "attn_implementation", "_attn_implementation", "quantization_config", "text_config", "vision_config",
    "transformers_weights", "num_hidden_layers", "rope_scaling", "rope_parameters", "layer_types", "architectures",
    "model_type", "dtype", "torch_dtype", "tie_word_embeddings", "is_encoder_decoder", "pretrained_cfg", "_class_name",
    "_diffusers_version", "init_inputs", "fast_tokenizer_files", "tokenizer_file", "vocab_file", "tokenizer_class",
    "added_tokens_decoder", "chat_template", "head_dim", "pad_token_id", "eos_token_id", "vocab_size", "hidden_size",
    "tokenizer/../../x", "../x", "tokenizer_2", "text_encoder", "safety_checker", "pipeline", "library", "class",
)  # fmt: skip
PATTERNS = ("(a+)+$", "(a|a)*$", "(", "(?:a*)*b", "\\p{L}+", "(?=(a+)+$)", "", ".{1,100000}", "[" * 1000)


@dataclass(frozen=True)
class Given:
    """A folder that a user might have, and what reads it."""

    files: dict[str, bytes]
    read: Callable[[Path], object]


def prepare() -> list[Given]:
    """The folders that are broken."""
    from tests.models.bundles.pipelines import clip_tokenizer
    from tests.models.language.checkpoints import folder
    from tests.models.language.wrong_folders import sharded

    with tempfile.TemporaryDirectory() as made:
        place = Path(made)
        small = files_of(folder(place / "small"))
        shutil.copytree(place / "small", place / "shards")
        sharded()(place / "shards")
        clip_tokenizer(place / "clip")
        clip = files_of(place / "clip")
        return [
            Given(small, read_checkpoint),
            Given(files_of(place / "shards"), read_checkpoint),
            Given({"model.gguf": (DATA / "gguf/llama-Q4_0.gguf").read_bytes()}, read_gguf),
            Given({"model.gguf": (DATA / "gguf/gemma3-Q5_0.gguf").read_bytes()}, read_gguf),
            Given(pipeline_of(clip), read_pipeline),
            Given(bundle_of(clip), read_bundle),
        ]  # fmt: skip


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def pipeline_of(clip: dict[str, bytes]) -> dict[str, bytes]:
    """A pipeline without its weights, which are read late."""
    models = {"text_encoder": "CLIPTextModel", "unet": "UNet2DConditionModel", "vae": "AutoencoderKL"}
    index = {
        "_class_name": "StableDiffusionPipeline", "_diffusers_version": "0.35.0",
        "tokenizer": ["transformers", "CLIPTokenizer"], "scheduler": ["diffusers", "PNDMScheduler"],
        "safety_checker": [None, None],
        "requires_safety_checker": False,
        **{part: ["transformers" if part == "text_encoder" else "diffusers", name] for part, name in models.items()},
    }  # fmt: skip
    config = {
        "text_encoder": {"architectures": ["CLIPTextModel"], "model_type": "clip_text_model", "hidden_size": 32,
                         "intermediate_size": 37, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 200,
                         "max_position_embeddings": 77},
        "unet": {"_class_name": "UNet2DConditionModel", "sample_size": 8, "block_out_channels": [16, 32],
                 "layers_per_block": 1, "cross_attention_dim": 32, "attention_head_dim": 4, "norm_num_groups": 8,
                 "in_channels": 4, "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D"],
                 "up_block_types": ["CrossAttnUpBlock2D", "UpBlock2D"]},
        "vae": {"_class_name": "AutoencoderKL", "block_out_channels": [8, 8, 8, 8], "norm_num_groups": 4,
                "scaling_factor": 0.18215, "latent_channels": 4},
    }  # fmt: skip
    scheduler = {"_class_name": "PNDMScheduler", "num_train_timesteps": 1000, "beta_start": 0.00085, "beta_end": 0.012,
                 "beta_schedule": "scaled_linear"}  # fmt: skip
    return {
        "model_index.json": _bytes(index),
        "scheduler/scheduler_config.json": _bytes(scheduler),
        **{f"{part}/config.json": _bytes(found) for part, found in config.items()},
        **{f"tokenizer/{name}": data for name, data in clip.items()},
        "tokenizer/tokenizer_config.json": _bytes({"model_max_length": 77, "tokenizer_class": "CLIPTokenizer"}),
    }


def bundle_of(clip: dict[str, bytes]) -> dict[str, bytes]:
    """A bundle of images whose assets are empty folders but for a file."""
    roles = {"text_encoder": "TextEncoder", "unet": "Unet", "vae_decoder": "VAEDecoder", "vae_encoder": "VAEEncoder"}
    models = {"text_encoder": ("transformers", "CLIPTextModel"), "unet": ("diffusers", "UNet2DConditionModel"),
              "vae": ("diffusers", "AutoencoderKL")}  # fmt: skip
    metadata = {
        "metadata_version": "0.2", "kind": "diffusion", "name": "small",
        "assets": {role: f"{name}.aimodel" for role, name in roles.items()},
        "diffusion": {"type": "stable-diffusion", "prediction_type": "epsilon", "image_size": 64, "default_steps": 50,
                      "encoder_scale_factor": 0.18215, "decoder_scale_factor": 0.18215, "default_guidance_scale": 7.5},
        "diffusers": {
            "pipeline": "StableDiffusionPipeline", "settings": {}, "tokenizers": {"tokenizer": "CLIPTokenizer"},
            "scheduler": {"class": "PNDMScheduler", "config": {}},
            "models": {part: {"library": library, "class": name, "config": {"scaling_factor": 0.18215}}
                       for part, (library, name) in models.items()},
        },
    }  # fmt: skip
    assets = {f"{name}.aimodel/metadata.json": b"{}" for name in roles.values()}
    return {"metadata.json": _bytes(metadata), **assets, **{f"tokenizer/{name}": data for name, data in clip.items()}}


def _bytes(value: Any) -> bytes:
    return json.dumps(value).encode()


# ---- what reads them ---------------------------------------------------------------------------------


def read_checkpoint(folder: Path) -> None:
    """As far as the model and the tokenizer of a language model, and a text that is split."""
    from patcomp_models.bundles.folder_to_bundle import bundle_kind
    from patcomp_models.checkpoints.loading import STRICT
    from patcomp_models.checkpoints.tokenizers import save
    from patcomp_models.language.asked import prompt_of
    from patcomp_models.language.sources import language_model_of, source_of
    from patcomp_models.language.writing import card, chosen_tokenizer

    bundle_kind(folder)
    source = source_of(folder, lambda what: nullcontext(), trust_remote_code=False)
    words = chosen_tokenizer(None, source.folder, trust_remote_code=False)
    prompt_of("a town is no aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab", words, None)
    card(source.folder)
    language_model_of(source, "float32", STRICT, trust_remote_code=False)
    save(words, folder.parent / "made")


def read_gguf(folder: Path) -> None:
    from patcomp_models.checkpoints.loading import STRICT
    from patcomp_models.language.sources import language_model_of, source_of

    source = source_of(folder / "model.gguf", lambda what: nullcontext(), trust_remote_code=False)
    language_model_of(source, "float32", STRICT, trust_remote_code=False, expand=True)


def read_pipeline(folder: Path) -> None:
    """A whole conversion but for the components, which have no weights; these are loaded as far as they can be."""
    from patcomp_models.bundles import components
    from patcomp_models.bundles.folder_to_bundle import convert_bundle

    def load(component: Any, *others: object) -> None:
        with contextlib.suppress(PatcompError):
            component.entries()

    with patch.object(components, "_write", load), patch.object(components, "gc"):
        convert_bundle(folder, out=folder.parent / "made")


def read_bundle(folder: Path) -> None:
    from patcomp_models.bundles.check import check_bundle
    from patcomp_models.bundles.diffusion.generation import _config, _scheduler, _tokenizer, generate_image
    from patcomp_models.checkpoints.json_files import metadata_in
    from patcomp_models.checkpoints.untrusted import inside, named_class, reading

    for problem in check_bundle(folder):
        str(problem)
    record = metadata_in(folder).get("diffusers")
    with reading(folder):
        for name, kind in record["tokenizers"].items():
            _tokenizer(inside(folder, name, "a tokenizer"), named_class("transformers", kind, "tokenizer"))
        _scheduler(record["scheduler"]["class"], record["scheduler"]["config"])
        for model in record["models"].values():
            _config(model)
    generate_image(folder, "a")


# ---- cases -------------------------------------------------------------------------------------------


def draw(givens: list[Given], random: Random) -> Case:
    given = random.choice(givens)
    files, steps, told = dict(given.files), list[tuple[str, Callable[[Path], object]]](), list[str]()
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        name = random.choice([*files, *(each for each in files if each.endswith(".json"))])
        change = random.choice((of_json, of_json, of_json, of_json, of_bytes, of_text, of_header, of_place))
        if change is of_place:
            what, step = of_place(name, random)
            steps.append((what, step))
            told.append(f"{name}: {what}")
            continue
        files[name] = change(files[name], random)  # type: ignore[operator]
        told.append(f"{name}: {change.__name__}")
    kept = {name: data.decode("latin-1")[:20_000] for name, data in files.items() if data != given.files.get(name)}
    return Case(partial(run, given, files, [step for _, step in steps]), _bytes([told, kept]), "; ".join(told))


def run(given: Given, files: dict[str, bytes], steps: list[Callable[[Path], object]]) -> None:
    """Write a folder, read it, and check that nothing outside of it was read or written.

    Raises:
        PatcompError: the folder is refused.
    """
    with tempfile.TemporaryDirectory() as made, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        place = Path(made)
        (place / OUTSIDE).mkdir()
        (place / OUTSIDE / "secret.txt").write_text(SECRET)
        folder = place / "case"
        for name, data in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        for step in steps:
            step(folder)
        before = _listed(place)
        try:
            given.read(folder)
        finally:
            assert _listed(place) == before, "a file outside of the folder was written"
            assert not _holds_the_secret(place / "made"), "a file outside of the folder was read"


def _listed(place: Path) -> set[str]:
    """The files of a place, but for what the reader may write."""
    return {str(path) for path in place.rglob("*") if path.relative_to(place).parts[0] != "made"}


def _holds_the_secret(folder: Path) -> bool:
    return any(SECRET.encode() in path.read_bytes() for path in folder.rglob("*") if path.is_file())


def of_json(data: bytes, random: Random) -> bytes:
    """A value, a key or a pattern of a JSON file is another."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return of_bytes(data, random)
    places = list(_places(value))
    if not places:
        return data
    holder, key = random.choice(places)
    match random.randrange(6):
        case 0 if isinstance(holder, dict):
            holder[random.choice(KEYS)] = random.choice(VALUES)
        case 1:
            del holder[key]
        case 2 if "pre_tokenizer" in value:
            pattern = {"Regex": random.choice(PATTERNS)}
            place = random.choice(("pre_tokenizer", "normalizer"))
            kind = {"type": "Split", "behavior": "Isolated", "invert": False} if place == "pre_tokenizer" else {
                "type": "Replace", "content": random.choice(("", "a" * 100))}  # fmt: skip
            value[place] = {**kind, "pattern": pattern}
        case 3 if isinstance(holder, dict):
            holder[random.choice(KEYS)] = holder[key]
        case _:
            holder[key] = random.choice(VALUES)
    return json.dumps(value).encode("utf-8", "surrogatepass")


def _places(value: Any, most: int = 400) -> Iterator[tuple[Any, Any]]:
    """The containers and keys of a JSON value, of the first ones of each."""
    waiting = [value]
    while waiting and most > 0:
        holder = waiting.pop()
        found = list(holder.items() if isinstance(holder, dict) else enumerate(holder))[:40]
        most -= len(found)
        for key, inner in found:
            yield holder, key
            if isinstance(inner, dict | list):
                waiting.append(inner)


def of_bytes(data: bytes, random: Random) -> bytes:
    return broken_bytes(data, random)


def of_text(data: bytes, random: Random) -> bytes:
    if len(data) > 20_000:
        return broken_bytes(data, random)
    text = data.decode(errors="replace")
    return broken_text(text, [text], random).encode(errors="surrogatepass")


def of_header(data: bytes, random: Random) -> bytes:
    """A number or a key of the beginning of a file is another; or the file is deep."""
    if random.random() < 0.05:
        depth = random.choice((500, 100_000))
        return b"[" * depth + b"]" * depth
    changed = bytearray(data)
    start = random.randrange(min(len(changed), 3000) + 1)
    number = random.choice((b"\xff" * 8, b"\0" * 8, b"\x09\0\0\0", b"\xff\xff\xff\x7f", b"\x01", b"\x7f", b"9"))
    changed[start : start + len(number)] = number
    return bytes(changed)


def of_place(name: str, random: Random) -> tuple[str, Callable[[Path], object]]:
    """Another thing is in the place of a file."""
    return random.choice((
        ("is missing", lambda folder: _free(folder / name)),
        ("is a pipe", lambda folder: os.mkfifo(_free(folder / name))),
        ("is a device", lambda folder: _free(folder / name).symlink_to("/dev/zero")),
        ("is a link out", lambda folder: _free(folder / name).symlink_to(folder.parent / OUTSIDE / "secret.txt")),
        ("is a link to a folder out", lambda folder: _free(folder / name).symlink_to(folder.parent / OUTSIDE)),
        ("is a link to itself", lambda folder: _free(folder / name).symlink_to(folder / name)),
        ("is a link to its folder", lambda folder: _free(folder / name).symlink_to(folder)),
        ("is a folder", lambda folder: _free(folder / name).mkdir()),
        ("is empty", lambda folder: _free(folder / name).touch()),
        ("has a link beside it", lambda folder: _free((folder / name).with_name("notes.txt")).symlink_to(
            folder.parent / OUTSIDE / "secret.txt")),
    ))  # fmt: skip


def _free(path: Path) -> Path:
    """A path at which nothing is any more."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
