"""Check the speech recognition bundles of custom hosts for everything that a host needs: parts, numbers, files,
interfaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from patcomp.errors import AssetError, Problem
from patcomp_models.bundle_folders.contract import (
    FLOATS,
    PROCESSOR,
    Interface,
    Values,
    function_of,
    problem,
    shown_tensor,
)
from patcomp_models.bundle_folders.interfaces import Function, Interfaces
from patcomp_models.bundles.speech import transducer, whisper


def ctc_problems(bundle: Path, metadata: Mapping[str, Any]) -> list[Problem]:
    """What is wrong with a bundle of a model with a head for CTC."""
    found = _general(bundle, metadata, ("main",), ("vocab_size", "blank_token_id", "sample_rate"))
    if found:
        return found
    config, asset = metadata["config"], bundle / metadata["assets"]["main"]
    found += _blank_problems(config)
    if "encoder" in config:
        found += transducer.encoder_problems(config)
    function, wrong = function_of(asset)
    if found or function is None:
        return [*found, *wrong]
    frames = transducer.frames_of(function)
    taken: Values
    if "encoder" in config:
        taken = transducer.spectrum(config, frames)
        made = transducer.frames_after(frames, config)
    else:
        taken, made = _inputs_like(function), None
    logits: Values = {"logits": ((1, made, config["vocab_size"]), FLOATS)}
    return [*Interface(taken, logits).problems("main", function), *_audio_problems(asset, logits, "encoder" in config)]


def transducer_problems(bundle: Path, metadata: Mapping[str, Any]) -> list[Problem]:
    """What is wrong with a bundle of a transducer without durations."""
    found = _general(bundle, metadata, transducer.TRANSDUCER_PARTS, transducer.NUMBERS)
    found = found or transducer.swift_transducer_problems(bundle, metadata, has_durations=False)
    if found:
        return found
    asset = bundle / metadata["assets"]["encoder"]
    function, _ = function_of(asset)
    made = transducer.interfaces({**metadata["config"], "durations": []}, transducer.frames_of(function))
    return _audio_problems(asset, made["encoder"].outputs, True)


def seq2seq_problems(bundle: Path, metadata: Mapping[str, Any]) -> list[Problem]:
    """What is wrong with a bundle of an encoder and a decoder."""
    found = _general(bundle, metadata, ("main",), ("sample_rate",))
    if found:
        return found
    found += whisper.generation_problems(bundle, is_of_swift=False)
    asset = bundle / metadata["assets"]["main"]
    (encode, wrong), (decode, further) = (function_of(asset, name) for name in ("encode", "decode"))
    found += [*wrong, *further]
    if encode is None or decode is None:
        return found
    made: Values = dict.fromkeys(("crossKeys", "crossValues"), (("*", 1, "*", "*", "*"), FLOATS))
    read = "input_features" if "input_features" in encode.inputs else "input_values"
    sizes = (1, None, "*") if read == "input_features" else (1, None)
    found += Interface({read: (sizes, FLOATS)}, made).problems("encode", encode)
    taken: Values = {"input_ids": (("*", None), ("int32",)), "position_ids": ((1, None), ("int32",)), **made}
    found += Interface(taken, {"logits": (("*", None, "*"), FLOATS)}).problems("decode", decode)
    for name in made:
        given, wanted = encode.outputs.get(name), decode.inputs.get(name)
        if given is not None and wanted is not None and given != wanted:
            shown = shown_tensor(given), shown_tensor(wanted)
            found.append(problem(f"encode makes {name} of {shown[0]}, and decode takes {shown[1]}"))
    if set(decode.states) != {"keyCache", "valueCache"}:
        listed = ", ".join(decode.states) or "none"
        found.append(problem(f"the states of decode are {listed}; they must be keyCache, valueCache"))
    return found


def _general(bundle: Path, metadata: Mapping[str, Any], roles: Sequence[str], numbers: Sequence[str]) -> list[Problem]:
    """What is wrong with the names of the parts, the numbers of the loop, and the processor."""
    config = metadata.get("config")
    if not isinstance(config, Mapping):
        return [problem("config is missing")]
    found = [problem(f"assets.{role} is missing") for role in roles if role not in metadata["assets"]]
    if not isinstance(config.get("architecture"), str):
        found.append(problem(f"config.architecture is {config.get('architecture')!r}, and must be a text"))
    found += [problem(f"config.{name} is {config.get(name)!r}, and must be an integer") for name in numbers
              if type(config.get(name)) is not int]  # fmt: skip
    if type(rate := config.get("sample_rate")) is int and rate < 1:
        found.append(problem(f"config.sample_rate is {rate}, and must be positive"))
    for name in ("preprocessor_config.json", "tokenizer_config.json"):
        if not (bundle / PROCESSOR / name).is_file():
            found.append(problem(f"there is no {PROCESSOR}/{name}"))
    return found


def _blank_problems(config: Mapping[str, Any]) -> list[Problem]:
    if 0 <= config["blank_token_id"] < config["vocab_size"]:
        return []
    return [problem("config.blank_token_id must be less than config.vocab_size, and at least 0")]


def _inputs_like(function: Function) -> Values:
    """The inputs of a model that reads samples, or the features of an extractor with their mask."""
    if "input_features" not in function.inputs:
        return {"input_values": ((1, None), FLOATS)}
    mask: Values = {"attention_mask": ((1, None), ("bool",))} if "attention_mask" in function.inputs else {}
    return {"input_features": ((1, None, "*"), FLOATS), **mask}


def _audio_problems(asset: Path, made: Values, takes_length: bool) -> list[Problem]:
    """What is wrong with the function of samples, if there is one.

    Args:
        asset: which may have it; it was read before.
        made: the outputs, with their sizes of `main`.
        takes_length: whether the number of samples is an input.
    """
    try:
        told = Interfaces.of(asset)
    except (FileNotFoundError, AssetError) as error:
        return [problem(str(error))]
    if "audio" not in told.names:
        return []
    taken: Values = {"audio": ((1, "*"), FLOATS), **({"audio_length": ((1,), ("int32",))} if takes_length else {})}
    return Interface(taken, made).problems("audio", told.function("audio"))
