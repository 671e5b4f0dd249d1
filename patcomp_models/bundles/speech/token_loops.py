"""The loops of encoders with a decoder: one token after the other, until the end token."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from patcomp.errors import reason_of
from patcomp_models.bundle_folders.contract import PROCESSOR
from patcomp_models.bundles.speech.folders import content_of, unpadded
from patcomp_models.bundles.speech.recogniser import AUDIO, Recogniser, Transcription
from patcomp_models.bundles.speech.times import ended, times_of
from patcomp_models.bundles.speech.whisper import FORCED, GENERATION
from patcomp_models.errors import BundleError
from patcomp_models.language.bundle import Bundle
from patcomp_models.language.contract import STOPS
from patcomp_models.language.vision.pictures import loaded_processor


def by_tokens(model: Recogniser, samples: np.ndarray) -> Transcription:
    """Whisper: one token after the other, until the end token."""
    told = content_of(model.folder / GENERATION)
    prefix = _prefix(model, told)
    if len(samples) > getattr(model.extractor, "n_samples", len(samples)):
        made = _by_windows(model, told, prefix, samples)
    else:
        made = _written(model, told, prefix, _encoded(model, samples))
    return Transcription(made, model.tokenizer.decode(made, skip_special_tokens=True))


def by_caches(model: Recogniser, samples: np.ndarray) -> Transcription:
    """The others: the recording is read once, and its keys and values go into each call."""
    if "main" not in model.parts:
        raise BundleError(f"{str(model.folder)!r} is of an earlier version of patcomp; convert the model again")
    told = content_of(model.folder / GENERATION)
    read = unpadded(model.extractor, samples, model.metadata["config"].get("samples_of_frame", 1))
    cross = model.call("main", dict([read]), function="encode")
    prefix, most = [token for _, token in told[FORCED]], told["max_new_tokens"]
    states = model.empty("main", len(prefix) + most, "decode")

    def logits_of(tokens: list[int], places: int) -> np.ndarray:
        inputs = {"input_ids": [tokens], "position_ids": [range(places)], **cross}
        logits: np.ndarray = model.call("main", inputs, states, "decode")["logits"][0, -1].astype(np.float32)
        return logits

    made = _most_probable(told, prefix, logits_of)
    return Transcription(made, model.tokenizer.decode(made, skip_special_tokens=True))


def by_hearing(model: Recogniser, samples: np.ndarray) -> Transcription:
    """Language models that hear: the processor of the checkpoint asks for the text of the recording.

    Raises:
        BundleError: the processor has no such request, or needs another package for it.
    """
    bundle, told = Bundle(model.folder), content_of(model.folder / GENERATION)
    if bundle.metadata[AUDIO].get("is_added"):
        made, asked = _begun(model, told, samples), None
    else:
        made, asked = _request(model, samples), told.get("max_new_tokens")
    tokens, language = made["input_ids"][0].tolist(), bundle.metadata["language"]
    room = language["max_context_length"] - len(tokens)
    found = bundle.generate(tokens, min(room, asked or room), audio=made)
    found = found[:-1] if found and found[-1] in language[STOPS] else found
    return Transcription(found, model.tokenizer.decode(found, skip_special_tokens=True))


def _request(model: Recogniser, samples: np.ndarray) -> Mapping[str, Any]:
    """The processor's own request for the text of a recording."""
    processor = loaded_processor(model.folder / PROCESSOR)
    if not hasattr(processor, "apply_transcription_request"):
        raise BundleError(
            f"the processor of {str(model.folder)!r}, {type(processor).__name__}, has no request for a transcription; "
            "Bundle.generate(prompt, audio=samples) of patcomp.language takes a prompt of your own"
        )
    try:
        made: Mapping[str, Any] = processor.apply_transcription_request(audio=[samples])
    except Exception as error:  # the code of a processor and its template can raise anything
        raise BundleError(f"the processor of {str(model.folder)!r} refuses the request: {reason_of(error)}") from error
    return made


def _begun(model: Recogniser, told: Mapping[str, Any], samples: np.ndarray) -> Mapping[str, Any]:
    """What the extractor makes of a recording, and the token that begins; the text ends with the recording."""
    begins = told.get("bos_token_id")
    if "delay" in model.metadata[AUDIO] or type(begins) is not int:
        raise BundleError(
            f"the prompt of {str(model.folder)!r} is not known here; Bundle.generate(tokens, audio=made) of "
            "patcomp.language takes token ids, and what the processor of the model makes of the recording"
        )
    made = model.extractor(samples, sampling_rate=model.extractor.sampling_rate, return_tensors="np")
    return {**made, "input_ids": np.array([[begins]])}


def _most_probable(
    told: Mapping[str, Any], prefix: list[int], logits_of: Callable[[list[int], int], np.ndarray], rule: Any = None
) -> list[int]:
    """The tokens behind a prefix, up to an end token.

    Args:
        told: the generation configuration.
        prefix: the tokens in front of the text.
        logits_of: of the token behind new tokens, from these and the number of all tokens.
        rule: which tokens of times may follow, of `times_of`.
    """
    never, never_first = told.get("suppress_tokens") or [], told.get("begin_suppress_tokens") or []
    ends = told["eos_token_id"] if isinstance(told["eos_token_id"], list) else [told["eos_token_id"]]
    made, waiting = list[int](), prefix
    while len(made) < told["max_new_tokens"]:
        logits = logits_of(waiting, len(prefix) + len(made))
        logits[[*never, *([] if made else never_first)]] = -np.inf
        if rule is not None:
            logits = rule.allowed(made, logits)
        waiting = [int(logits.argmax())]
        if waiting[0] in ends:
            break
        made += waiting
    return made


def _prefix(model: Recogniser, told: Mapping[str, Any]) -> list[int]:
    """The tokens in front of the text, including the tokens of the chosen language and task.

    Raises:
        BundleError: the model has no such language or task.
    """
    prefix = [token for _, token in told[FORCED]]
    for name, table, form in (("language", "lang_to_id", "<|{}|>"), ("task", "task_to_id", "{}")):
        if name not in model.options:
            continue
        ids, word = told.get(table) or {}, form.format(model.options[name])
        if word not in ids or not set(prefix) & set(ids.values()):
            known = ", ".join(sorted(each.strip("<|>") for each in ids)) or "none"
            raise BundleError(f"{name} is {model.options[name]!r}, and the model knows {known}")
        prefix = [ids[word] if token in ids.values() else token for token in prefix]
    return prefix


def _by_windows(model: Recogniser, told: Mapping[str, Any], prefix: list[int], samples: np.ndarray) -> list[int]:
    """Whisper: windows of a long recording, one from where the last one ended, by the tokens of times."""
    window = model.size("encoder", "input_features", 2) or 0
    words = model.interfaces["decoder"].function().outputs["logits"].shape[2] or 0
    too_long = model.too_long(samples, model.extractor.n_samples)
    rule = times_of(told, words, too_long)
    prefix = [token for token in prefix if token != told["no_timestamps_token_id"]]
    spectrum = model.features(samples, ("input_features",), truncation=False, padding="longest")["input_features"]
    made, start, count = list[int](), 0, spectrum.shape[2]
    while start < count:
        part = spectrum[:, :, start : start + window]
        frames = part.shape[2]
        inputs = {"input_features": np.pad(part, ((0, 0), (0, 0), (0, window - frames)))}
        encoded = np.asarray(model.call("encoder", inputs)["encoder_hidden_states"])
        kept, forward = ended(_written(model, told, prefix, encoded, rule), rule.timestamp_begin, frames)
        made, start = made + kept, start + forward
    return made


def _written(
    model: Recogniser, told: Mapping[str, Any], prefix: list[int], encoded: np.ndarray, rule: Any = None
) -> list[int]:
    """The tokens behind a prefix, up to the end token.

    Args:
        model: the parts.
        told: the generation configuration.
        prefix: the tokens in front of the text.
        encoded: the encoder's output.
        rule: which tokens of times may follow, of `times_of`.
    """
    states = model.empty("decoder", len(prefix) + told["max_new_tokens"])

    def logits_of(waiting: list[int], count: int) -> np.ndarray:
        for places, token in enumerate(waiting, count - len(waiting) + 1):
            inputs = {"input_ids": [[token]], "position_ids": [range(places)], "encoder_hidden_states": encoded}
            made = model.call("decoder", inputs, states)
        return np.asarray(made["logits"][0, -1].astype(np.float32))

    return _most_probable(told, prefix, logits_of, rule)


def _encoded(model: Recogniser, samples: np.ndarray) -> np.ndarray:
    """The encoder's output."""
    if model.takes_samples("encoder"):
        samples = model.fitted(samples, model.size("encoder", AUDIO, 1, AUDIO))
        made = model.call("encoder", {AUDIO: samples[None]}, function=AUDIO)
    else:
        model.fitted(samples, getattr(model.extractor, "n_samples", None))
        made = model.call("encoder", model.features(samples, ("input_features", "input_values")))
    return np.asarray(made["encoder_hidden_states"])
