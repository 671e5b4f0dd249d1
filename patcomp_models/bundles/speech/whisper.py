"""Whisper: the two assets that Apple's Swift package loads by their names, and its file of forced tokens."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from patcomp.errors import Problem
from patcomp_models.bundle_folders.contract import FLOATS, Interface, Values, function_of, problem, shown_tensor
from patcomp_models.bundle_folders.interfaces import Function
from patcomp_models.bundles.kind import Component
from patcomp_models.bundles.speech.folders import check_processor, content_of, extractor_of, write_processor
from patcomp_models.errors import BundleError

if TYPE_CHECKING:
    from patcomp_models.tasks.entries import Entry

WHISPER = "WhisperForConditionalGeneration"
GENERATION = "generation_config.json"
FORCED = "forced_decoder_ids"
_BINS, _FRAMES, _PLACES = 128, 3000, 448
"""Bins and frames of the spectrum, and places for tokens, which are constants of Swift's code."""
_NEW_TOKENS = 50
"""What Swift's loop takes if the file does not say how many tokens to write."""


@dataclass(frozen=True)
class Whisper:
    """A checkpoint of Whisper.

    Attributes:
        folder: of the checkpoint.
        dtype: of the weights.
        audio: whether the encoder also has the function `audio`, which takes samples.
        language: of the text, a code such as `"en"`, for a model of many languages.
        task: `"transcribe"`, or `"translate"` into English.
    """

    folder: Path
    dtype: str
    audio: bool
    language: str | None
    task: str

    def components(self) -> list[Component]:
        """Encoder and decoder.

        Raises:
            BundleError: a file is missing, or the model does not know the language or the task.
        """
        check_processor(self.folder)
        self.forced()
        return [
            Component("encoder", "encoder.aimodel", self._encoder),
            Component("decoder", "decoder.aimodel", self._decoder),
        ]

    def metadata(self) -> Mapping[str, Any]:
        return {"config": {"architecture": "whisper"}}

    def write_files(self, bundle: Path) -> None:
        """The tokenizer, the extractor, and what the loop of tokens needs, in the bundle's root."""
        write_processor(self.folder, bundle)
        config, generation = content_of(self.folder / "config.json"), content_of(self.folder / GENERATION)
        (bundle / "config.json").write_text(json.dumps(config, indent=2) + "\n")  # Swift's tokenizers read it
        end = generation.get("eos_token_id", config.get("eos_token_id"))
        forced = self.forced()
        most = int(generation.get("max_new_tokens") or generation.get("max_length") or _PLACES)
        told = {
            **generation,
            FORCED: [[place, token] for place, token in enumerate(forced)],
            "decoder_start_token_id": forced[0],
            "eos_token_id": end[0] if isinstance(end, list) else end,
            "max_new_tokens": min(most, int(config["max_target_positions"]) - len(forced)),
        }
        (bundle / GENERATION).write_text(json.dumps(told, indent=2) + "\n")

    def forced(self) -> list[int]:
        """The tokens before the text, as `generate` of transformers starts with them.

        Raises:
            BundleError: the model has no such language or task.
        """
        config, generation = content_of(self.folder / "config.json"), content_of(self.folder / GENERATION)
        start = generation.get("decoder_start_token_id", config.get("decoder_start_token_id"))
        languages, tasks = generation.get("lang_to_id") or {}, generation.get("task_to_id") or {}
        if self.language is not None and not languages:
            raise BundleError(f"{str(self.folder)!r} is of one language, and takes no option language")
        if self.task not in ("transcribe", "translate") or (self.task != "transcribe" and self.task not in tasks):
            known = ", ".join(tasks) or "transcribe"
            raise BundleError(f"task is {self.task!r}, and the model in {str(self.folder)!r} knows {known}")
        if type(start) is not int:
            raise BundleError(f"{str(self.folder)!r} does not say decoder_start_token_id; save its {GENERATION}")
        found = [start]
        if languages:
            word = f"<|{self.language or 'en'}|>"
            if word not in languages:
                known = ", ".join(sorted(each.strip("<|>") for each in languages))
                raise BundleError(f"language is {self.language or 'en'!r}, and the model knows {known}")
            found.append(int(languages[word]))
        if languages and self.task in tasks:
            found.append(int(tasks[self.task]))
        if (silent := generation.get("no_timestamps_token_id")) is not None:
            found.append(int(silent))
        return found

    def _model(self) -> Any:
        from patcomp_models.bundles.loading import model_of

        return model_of(self.folder, "transformers", WHISPER, self.dtype)

    def _encoder(self) -> list[Entry]:
        import torch

        from patcomp_models.bundles.speech.examples import samples
        from patcomp_models.bundles.speech.mel import FromSamples, WhisperFeatures
        from patcomp_models.bundles.speech.modules import SpeechEncoder
        from patcomp_models.tasks.entries import Entry

        model, extractor = self._model(), extractor_of(self.folder)
        config, encoder = model.config, SpeechEncoder(model)
        features = WhisperFeatures(extractor)
        audio = samples(2 * config.max_source_positions * extractor.hop_length)
        with torch.no_grad():
            read = features(audio).to(model.dtype)
        if read.shape[1] != config.num_mel_bins:
            raise BundleError(
                f"the extractor of {str(self.folder)!r} makes {read.shape[1]} bins, and the model reads "
                f"{config.num_mel_bins}; save the processor of this model"
            )
        output = ("encoder_hidden_states",)
        entries = [Entry("main", encoder, {"input_features": read}, output)]
        if self.audio:
            entries.append(Entry("audio", FromSamples(features, encoder, model.dtype), {"audio": audio}, output))
        return entries

    def _decoder(self) -> list[Entry]:
        import torch

        model = self._model()
        config = model.config
        encoded = torch.randn(
            1, config.max_source_positions, config.d_model, generator=torch.Generator().manual_seed(0)
        )
        return decoder_entries(model, encoded.to(model.dtype), config.max_target_positions)


def decoder_entries(model: Any, encoded: Any, longest: int) -> list[Entry]:
    """The function of a decoder with two states.

    Args:
        model: has an encoder and a decoder.
        encoded: an example of the encoder's output.
        longest: the most tokens that the model can write.
    """
    import torch
    from torch.export import Dim

    from patcomp_models.bundles.speech.modules import SpeechDecoder
    from patcomp_models.language.contract import KEY_CACHE, LOGITS, POSITIONS, TOKENS, VALUE_CACHE
    from patcomp_models.tasks.entries import Entry

    decoder, total, draw = SpeechDecoder(model), 4, torch.Generator().manual_seed(1)
    layers, heads, width = decoder.form(encoded)
    shape = (layers, 1, heads, 2 * total, width)
    states = {name: torch.randn(shape, generator=draw).to(encoded.dtype) for name in (KEY_CACHE, VALUE_CACHE)}
    inputs = {
        TOKENS: torch.tensor([[model.config.vocab_size // 2]], dtype=torch.int32),
        POSITIONS: torch.arange(total, dtype=torch.int32)[None],
        "encoder_hidden_states": encoded,
        **states,
    }
    dynamic: dict[str, dict[int, Any]] = {
        POSITIONS: {1: Dim("total", min=1, max=longest)},
        KEY_CACHE: {3: Dim("key_capacity", min=1, max=2 * longest)},
        VALUE_CACHE: {3: Dim("value_capacity", min=1, max=2 * longest)},
    }
    return [Entry("main", decoder, inputs, (LOGITS,), dynamic, tuple(states), keeps_sizes=True)]


# ---- what Apple's Swift package reads ------------------------------------------------------------------


def whisper_problems(bundle: Path, metadata: Mapping[str, Any]) -> list[Problem]:
    """What Swift would refuse or misread of a bundle of Whisper."""
    found = [
        problem(f"assets.{role} is {metadata['assets'].get(role)}; Swift loads {role}.aimodel, whatever it says")
        for role in ("encoder", "decoder") if metadata["assets"].get(role) != f"{role}.aimodel"
    ]  # fmt: skip
    found += [
        problem(f"there is no {name} in the bundle's root, which Swift's tokenizer reads")
        for name in ("tokenizer.json", "tokenizer_config.json") if not (bundle / name).is_file()
    ]  # fmt: skip
    if found:
        return found
    found += generation_problems(bundle)
    parts = {}
    for role in ("encoder", "decoder"):
        parts[role], wrong = function_of(bundle / f"{role}.aimodel")
        found += wrong
    if None in parts.values():
        return found
    taken: Values = {"input_features": ((1, _BINS, _FRAMES), FLOATS)}
    return found or whisper_part_problems(parts["encoder"], parts["decoder"], taken, _FRAMES // 2)


def whisper_part_problems(encoder: Function, decoder: Function, taken: Values, frames: int | None) -> list[Problem]:
    """What is wrong with the functions.

    Args:
        encoder, decoder: their descriptions.
        taken: the inputs that the encoder must have.
        frames: which it makes; None for any number.
    """
    hidden: Any = (1, frames, "*"), FLOATS
    made = {"encoder_hidden_states": hidden}
    given: Values = {
        "input_ids": ((1, 1), ("int32",)), "position_ids": ((1, None), ("int32",)), **made
    }  # fmt: skip
    found = Interface(taken, made).problems("encoder", encoder)
    found += Interface(given, {"logits": ((1, 1, "*"), FLOATS)}).problems("decoder", decoder)
    states = decoder.states
    if set(states) != {"keyCache", "valueCache"}:
        listed = ", ".join(states) or "none"
        return [*found, problem(f"the states of decoder are {listed}; they must be keyCache, valueCache")]
    if states["keyCache"] != states["valueCache"]:
        keys, values = shown_tensor(states["keyCache"]), shown_tensor(states["valueCache"])
        found.append(problem(f"keyCache of decoder is {keys} and valueCache {values}; they must be equal"))
    return found or _agreement(encoder, decoder)


def _agreement(encoder: Function, decoder: Function) -> list[Problem]:
    """Swift passes the encoder's array to the decoder as it is."""
    made, taken = encoder.outputs["encoder_hidden_states"], decoder.inputs["encoder_hidden_states"]
    if made == taken:
        return []
    return [problem(
        f"encoder makes encoder_hidden_states of {shown_tensor(made)}, and decoder takes {shown_tensor(taken)}"
    )]  # fmt: skip


def generation_problems(bundle: Path, *, is_of_swift: bool = True) -> list[Problem]:
    """Problems of the generation file that a token loop reads.

    Args:
        bundle: its folder.
        is_of_swift: whether the loop is Swift's, which knows one end token and has room for a number of tokens.
    """
    try:
        content = content_of(bundle / GENERATION)
    except BundleError as error:
        return [problem(str(error))]
    if not content:
        return [problem(f"there is no {GENERATION}, so that Swift starts without the tokens of language and task")]
    found, forced = [], content.get(FORCED)
    pairs = forced if isinstance(forced, list) else []
    is_list = bool(pairs) and all(
        isinstance(pair, list) and len(pair) == 2 and all(type(each) is int for each in pair) for pair in pairs
    )
    if not is_list or [pair[0] for pair in pairs] != [*range(len(pairs))]:
        found.append(problem(f"{FORCED} of {GENERATION} must be pairs of position and token, from the position 0 on"))
    elif pairs[0][1] != content.get("decoder_start_token_id", pairs[0][1]):
        found.append(problem(f"{FORCED} of {GENERATION} must begin with decoder_start_token_id"))
    end = content.get("eos_token_id")
    ends = end if isinstance(end, list) and end and not is_of_swift else [end]
    if any(type(each) is not int for each in ends):
        found.append(problem(f"eos_token_id of {GENERATION} is {end}, and must be one integer"))
    most = content.get("max_new_tokens", _NEW_TOKENS)
    if not is_of_swift and (type(most) is not int or most < 1):
        found.append(problem(f"max_new_tokens of {GENERATION} is {most}, and must be a positive integer"))
    elif is_of_swift and (type(most) is not int or not 0 < most <= _PLACES - len(pairs)):
        found.append(problem(f"max_new_tokens of {GENERATION} is {most}, and must leave room in {_PLACES} places"))
    return found
