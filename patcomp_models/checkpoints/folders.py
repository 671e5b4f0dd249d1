"""What the folder of a checkpoint holds, read before anything is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from patcomp.errors import reason_of
from patcomp_models.checkpoints.contents import ADAPTER, ADAPTER_WEIGHTS, adapter_of, check_contents
from patcomp_models.checkpoints.quantized.formats import format_of
from patcomp_models.checkpoints.quantized.formats.refused import REASONS
from patcomp_models.checkpoints.untrusted import bytes_of, inside, object_in, tensors_in
from patcomp_models.checkpoints.weight_sets import check_sets, say_what_is_not_read, shards_without_index
from patcomp_models.errors import LanguageModelError

CAUSAL = "AutoModelForCausalLM"
"""The class of transformers that loads language models."""
LANGUAGE_MODELS = ("ForCausalLM", "LMHeadModel")
"""The ends of the names of their classes."""

WRITTEN_HERE = ("RWKV7ForCausalLM",)
"""Classes whose code lies in packages of their own, and which patcomp has written itself."""

WITHOUT_THEIR_CODE = ("LLaDAModelLM", "DreamModel", "LLaDAMoEModel", "LLaDAMoEModelLM", "SDARForCausalLM")
"""Classes whose code lies in their checkpoints, and for which a class of transformers stands in a bundle."""

_BY_FUNCTION = "export it by FILE.py:FUNCTION, a function that returns the module and its inputs"


def checked_folder(folder: Path, *, trust_remote_code: bool) -> dict[str, Any]:
    """The configuration of a checkpoint folder. `check_weight_files` checks the rest.

    Raises:
        LanguageModelError: the folder is not a checkpoint, its weights are quantised, or it needs its own code.
    """
    check_contents(folder)
    config = _read_object(folder / "config.json")
    if "_class_name" in config and "_diffusers_version" in config:
        raise LanguageModelError(f"{str(folder)!r} holds {config['_class_name']} of diffusers; {_BY_FUNCTION}")
    if (form := quantization(folder, config)) and format_of(folder, config) is None:
        reason = REASONS.get(form.partition(",")[0])
        raise LanguageModelError(
            f"the weights in {str(folder)!r} are quantised ({form}), and that form is not read"
            f"{f', because {reason}' if reason else ''}; give the checkpoint of plain floats that it was made from"
        )
    if "auto_map" in config and not trust_remote_code and class_name(config) not in WRITTEN_HERE:
        way = (
            "it becomes a bundle without this code: patcomp convert FOLDER -o NAME"
            if class_name(config) in WITHOUT_THEIR_CODE
            else "read it, then pass trust_remote_code=True (--trust-remote-code of convert-lm, --trusted of convert)"
        )
        raise LanguageModelError(f"the model in {str(folder)!r} runs Python code of its folder; {way}")
    return config


def _read_object(file: Path) -> dict[str, Any]:
    """The content of a JSON file that holds an object.

    Raises:
        LanguageModelError: it holds something else.
    """
    return object_in(file, LanguageModelError)


# ---- weights ----------------------------------------------------------------------------------------

_PICKLED = "pickled files of PyTorch, which can run code"
_OTHER_FORMS = {
    ".bin": _PICKLED, ".pth": _PICKLED, ".pt": _PICKLED, ".gguf": "GGUF", ".h5": "TensorFlow's form",
    ".msgpack": "Flax's form",
}  # fmt: skip
"""The kinds of weight files that patcomp does not read, by the ends of their names."""
_OF_A_TRAINING = ("training_args.bin", "optimizer.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth")


def weight_files(folder: Path, config: dict[str, Any]) -> list[Path]:
    """The weight files that transformers or timm load for a folder's model.

    Raises:
        LanguageModelError: a file is missing, or no file is in safetensors.
    """
    stated = config.get("quantization_config")
    if isinstance(stated, dict) and stated.get("quant_method") == "gguf":
        if not (found := sorted(folder.glob("*.gguf"))):
            raise LanguageModelError(f"{str(folder)!r} lacks the GGUF file that its config.json speaks of")
        return found[:1]
    stored = config.get("transformers_weights")
    named = stored if isinstance(stored, str) else "model.safetensors"
    single = inside(folder, named, "transformers_weights of config.json", LanguageModelError)
    index = single if single.name.endswith(".index.json") else folder / "model.safetensors.index.json"
    if single != index and single.is_file():
        return [single]
    if index.is_file():
        places = _read_object(index).get("weight_map")
        if not isinstance(places, dict) or not places or not all(isinstance(name, str) for name in places.values()):
            raise LanguageModelError(f"{str(index)!r} has no weight_map, the table of the files that hold each weight")
        names = sorted(set(places.values()))
        files = [inside(folder, name, f"a file that {index.name} names", LanguageModelError) for name in names]
        if missing := [name for name, file in zip(names, files, strict=True) if not file.is_file()]:
            raise LanguageModelError(
                f"{str(folder)!r} lacks {len(missing)} of the files of weights that {index.name} names: "
                f"{', '.join(missing[:3])}"
            )
        return files
    if "pretrained_cfg" in config and (found := sorted(folder.glob("*.safetensors"))):
        return found[:1]
    for path in sorted(folder.iterdir()):
        form = _OTHER_FORMS.get(path.suffix)
        if form and path.name not in _OF_A_TRAINING:
            raise LanguageModelError(
                f"{str(folder)!r} has its weights in {form} ({path.name}), and only safetensors are read; save the "
                "checkpoint again as safetensors, as save_pretrained of transformers does"
            )
    if shards := shards_without_index(folder):
        raise LanguageModelError(
            f"{str(folder)!r} has the shards {shards}, and lacks {index.name}, the table of the files that hold each "
            "weight; get it, too, or save the checkpoint again"
        )
    raise LanguageModelError(f"{str(folder)!r} lacks {single.name}, the file of its weights")


def check_weight_files(folder: Path, config: dict[str, Any], *, takes_adapter: bool = False) -> None:
    """Check that the files of weights are there and whole, and one set; only their headers are read if there is one.

    Args:
        folder: of the checkpoint.
        config: the content of its `config.json`.
        takes_adapter: whether the caller reads an adapter beside the weights.

    Raises:
        LanguageModelError: one is missing, damaged or cut off, there are two sets that differ, or there is an adapter.
    """
    from safetensors import SafetensorError

    if (folder / ADAPTER).is_file() and not takes_adapter:
        raise LanguageModelError(f"{str(folder)!r} {adapter_of(folder)}")
    files = weight_files(folder, config)
    for file in files:
        if file.suffix == ".gguf":
            continue  # its header was read, with the size of each tensor
        try:
            with tensors_in(file):
                pass
        except (SafetensorError, OSError) as error:
            pointer = bytes_of(file, 32).startswith(b"version https://git-lfs")
            reason = "it is a pointer of Git LFS; `git lfs pull` fetches the file" if pointer else reason_of(error)
            raise LanguageModelError(f"{str(file)!r} is not a whole file of safetensors: {reason}") from None
    if files[:1] and files[0].suffix == ".safetensors":
        if "transformers_weights" not in config:  # which says the set that is meant
            check_sets(folder)
        say_what_is_not_read(folder, [*files, *([folder / ADAPTER_WEIGHTS] if takes_adapter else [])])


_QUANTIZERS = {"quantize_config.json": "gptq", "quant_config.json": "awq", "hf_quant_config.json": "modelopt"}
"""The files in which quantisers of their own describe a checkpoint."""


def quantization(folder: Path, config: dict[str, Any]) -> str:
    """The form of quantised weights, and where it is stated: `fp8, says quantization_config of config.json`.

    Empty for plain floats.

    Raises:
        LanguageModelError: `config.json` describes the quantisation by something else than an object.
    """
    text = config.get("text_config")
    for part in (config, text if isinstance(text, dict) else {}):
        for key in ("quantization_config", "compression_config", "quantization"):
            stated = part.get(key)
            if stated is not None and not isinstance(stated, dict):
                raise LanguageModelError(f"{key} in config.json of {str(folder)!r} is not an object with settings")
            if stated:
                method = stated.get("quant_method") or ("MLX" if "group_size" in stated else "an unknown method")
                return f"{method}, says {key} of config.json"
    return next((f"{form}, says {name}" for name, form in _QUANTIZERS.items() if (folder / name).is_file()), "")


# ---- what model it is -------------------------------------------------------------------------------

_NAMELESS = "a model without a name"


def class_name(config: dict[str, Any]) -> str:
    """The class of the model in a folder, or `_NAMELESS` if the configuration does not say it."""
    names = config.get("architectures")
    name = names[0] if isinstance(names, list) and names else None
    return name if isinstance(name, str) and name.isidentifier() else _NAMELESS


def _type_of(config: dict[str, Any]) -> str:
    return f"of type {config['model_type']!r}" if config.get("model_type") else "whose config.json has no model_type"


def _has_own_code(auto: str, config: dict[str, Any]) -> bool:
    """Whether code of the folder, which the user trusts, has the class of the model."""
    return isinstance(config.get("auto_map"), dict) and auto in config["auto_map"]


def check_class(folder: Path, config: dict[str, Any], auto: str, classes: Sequence[type], purpose: str) -> None:
    """Check that transformers loads the very class that a folder names.

    Args:
        folder: of the checkpoint.
        config: its configuration.
        auto: the class of transformers that loads it.
        classes: of models that `auto` loads for the configuration (`loading.classes_of`).
        purpose: what it is loaded for, in an error's words.

    Raises:
        LanguageModelError: it loads another one, or none.
    """
    if _has_own_code(auto, config):
        return
    name, known = class_name(config), [each.__name__ for each in classes]
    if not known:
        raise LanguageModelError(
            f"{str(folder)!r} holds {name} {_type_of(config)}, and transformers has no such model {purpose}"
        )
    if name not in known:
        raise LanguageModelError(
            f"{str(folder)!r} holds {name}, and {purpose} transformers would load {known[0]} in its place; "
            f"{_BY_FUNCTION}"
        )


def check_language_model(folder: Path, config: dict[str, Any], classes: Sequence[type]) -> None:
    """Check that a folder holds a causal language model and nothing else (`text_part.whole_class`).

    Args:
        folder: of the checkpoint.
        config: its configuration.
        classes: of causal language models that transformers has for the configuration (`loading.classes_of`).

    Raises:
        LanguageModelError: it holds another model.
    """
    if "pretrained_cfg" in config:
        raise LanguageModelError(f"{str(folder)!r} holds an image model of timm; `patcomp convert` converts it")
    if _has_own_code(CAUSAL, config):
        return
    elsewhere = "`patcomp convert` converts models of other tasks"
    name = class_name(config)
    if not classes:
        raise LanguageModelError(
            f"{str(folder)!r} holds {name} {_type_of(config)}, and transformers has no such causal language model; "
            f"{elsewhere}"
        )
    known = [each.__name__ for each in classes]
    if name not in (_NAMELESS, *known) and not name.endswith(LANGUAGE_MODELS):
        raise LanguageModelError(f"{str(folder)!r} holds {name}, which is not a causal language model; {elsewhere}")
