"""The text of a recording, by the parts of a bundle on the Core AI runtime: for checks, not for speed.

The loops are those of `generate` of transformers with the most probable token in each step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from patcomp.emit.asset import Asset, load
from patcomp_models.bundle_folders.contract import PROCESSOR, general_problems
from patcomp_models.bundle_folders.interfaces import Interfaces
from patcomp_models.bundles.speech.folders import content_of, extractor_of, tokenizer_of, unpadded
from patcomp_models.bundles.speech.recordings import samples_of
from patcomp_models.bundles.speech.times import ended, times_of
from patcomp_models.bundles.speech.whisper import FORCED, GENERATION
from patcomp_models.checkpoints.json_files import metadata_in
from patcomp_models.errors import BundleError

AUDIO = "audio"
"""The function of an encoder that takes samples."""


@dataclass(frozen=True)
class Transcription:
    """What was recognised."""

    tokens: list[int]
    """Without those before the text and behind it; of CTC one for each frame."""
    text: str


def transcribe(
    bundle: str | Path, recording: str | Path | np.ndarray, *, language: str | None = None, task: str | None = None
) -> Transcription:
    """The text of a recording.

    Args:
        bundle: the folder of a bundle of a model that recognises speech.
        recording: a WAVE file, or samples, (samples,) of floats from -1 to 1 at the rate of the model.
        language: of the text, such as `"de"`, in the place of the one that a bundle of Whisper was made for.
        task: the same, `"transcribe"` or `"translate"`.

    Raises:
        BundleError: the folder is no such bundle, lacks a file, or the recording does not fit it.
        MissingToolchainError: coreai-core is not installed.
    """
    folder = Path(bundle)
    metadata = metadata_in(folder)
    loop = _LOOPS.get(str(metadata.get("kind")))
    if loop is None:
        raise BundleError(
            f"{str(folder)!r} is a bundle of the kind {metadata.get('kind')!r}, and not of a model that recognises "
            f"speech: {', '.join(_LOOPS)}"
        )
    if wrong := general_problems(folder, metadata):
        raise BundleError(f"{str(folder)!r} cannot be used: {wrong[0].message}")
    options = {name: value for name, value in (("language", language), ("task", task)) if value is not None}
    if options and metadata.get("config", {}).get("architecture") != "whisper":
        raise BundleError(f"only bundles of Whisper take the option {next(iter(options))}; leave it out")
    with ExitStack() as opened:
        parts = {role: load(folder / file) for role, file in metadata["assets"].items()}
        told = {role: Interfaces.of(folder / file) for role, file in metadata["assets"].items()}
        for part in parts.values():
            opened.callback(part.close)
        processor = folder / PROCESSOR if (folder / PROCESSOR).is_dir() else folder
        extractor = extractor_of(processor)
        if isinstance(recording, str | Path):
            recording = samples_of(recording, extractor.sampling_rate)
        samples = np.asarray(recording, np.float32)
        if samples.ndim != 1 or not samples.size:
            raise BundleError(f"a recording is one row of samples, got an array of {list(samples.shape)}")
        return loop(_Recogniser(folder, metadata, parts, told, extractor, tokenizer_of(processor), options), samples)


@dataclass(frozen=True)
class _Recogniser:
    """The parts of a bundle."""

    folder: Path
    metadata: Mapping[str, Any]
    parts: Mapping[str, Asset]
    interfaces: Mapping[str, Interfaces]
    extractor: Any
    tokenizer: Any
    options: Mapping[str, str]

    def too_long(self, samples: np.ndarray, most: int) -> str:
        """The message for a recording with more samples than the bundle takes."""
        seconds = [count / self.extractor.sampling_rate for count in (len(samples), most)]
        return f"the recording is {seconds[0]:.1f} s long, and the bundle takes {seconds[1]:.1f} s"

    def call(self, role: str, inputs: Mapping[str, Any], states: Any = None, function: str = "main") -> Any:
        """A call of a part, with numbers in the types that it takes."""
        told = self.interfaces[role].function(function).inputs
        typed = {name: np.asarray(value).astype(told[name].dtype) for name, value in inputs.items()}
        return self.parts[role].run(typed, states, function)

    def empty(self, role: str, capacity: int, function: str = "main") -> dict[str, np.ndarray]:
        """The states of a part before the first call, for one text; an open capacity becomes the given one."""
        states = self.interfaces[role].function(function).states
        return {
            name: np.zeros(
                [(1 if axis == 1 else capacity) if size is None else size for axis, size in enumerate(state.shape)],
                state.dtype,
            )
            for name, state in states.items()
        }

    def size(self, role: str, name: str, axis: int, function: str = "main") -> int | None:
        """A size of an input; None if it is open."""
        return self.interfaces[role].function(function).inputs[name].shape[axis]

    def takes_samples(self, role: str) -> bool:
        return AUDIO in self.interfaces[role].names

    def fitted(self, samples: np.ndarray, most: int | None) -> np.ndarray:
        """Samples with silence behind them, if a part takes one length only.

        Raises:
            BundleError: they are too long.
        """
        if most is None:
            return samples
        if len(samples) > most:
            raise BundleError(f"{self.too_long(samples, most)}; cut it into parts")
        return np.pad(samples, (0, most - len(samples)))


# ---- encoders with a decoder ---------------------------------------------------------------------------


def _by_tokens(model: _Recogniser, samples: np.ndarray) -> Transcription:
    """Whisper: one token after the other, until the end token."""
    told = content_of(model.folder / GENERATION)
    prefix = _prefix(model, told)
    if len(samples) > getattr(model.extractor, "n_samples", len(samples)):
        made = _by_windows(model, told, prefix, samples)
    else:
        made = _written(model, told, prefix, _encoded(model, samples))
    return Transcription(made, model.tokenizer.decode(made, skip_special_tokens=True))


def _by_caches(model: _Recogniser, samples: np.ndarray) -> Transcription:
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


def _most_probable(
    told: Mapping[str, Any], prefix: list[int], logits_of: Callable[[list[int], int], np.ndarray]
) -> list[int]:
    """The tokens behind a prefix, up to an end token.

    Args:
        told: the generation configuration.
        prefix: the tokens in front of the text.
        logits_of: of the token behind new tokens, from these and the number of all tokens.
    """
    never, never_first = told.get("suppress_tokens") or [], told.get("begin_suppress_tokens") or []
    ends = told["eos_token_id"] if isinstance(told["eos_token_id"], list) else [told["eos_token_id"]]
    made, waiting = list[int](), prefix
    while len(made) < told["max_new_tokens"]:
        logits = logits_of(waiting, len(prefix) + len(made))
        logits[[*never, *([] if made else never_first)]] = -np.inf
        waiting = [int(logits.argmax())]
        if waiting[0] in ends:
            break
        made += waiting
    return made


def _prefix(model: _Recogniser, told: Mapping[str, Any]) -> list[int]:
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


def _by_windows(model: _Recogniser, told: Mapping[str, Any], prefix: list[int], samples: np.ndarray) -> list[int]:
    """Whisper: windows of a long recording, one from where the last one ended, by the tokens of times."""
    window = model.size("encoder", "input_features", 2) or 0
    words = model.interfaces["decoder"].function().outputs["logits"].shape[2] or 0
    too_long = model.too_long(samples, model.extractor.n_samples)
    rule = times_of(told, words, too_long)
    prefix = [token for token in prefix if token != told["no_timestamps_token_id"]]
    spectrum = _features(model, samples, ("input_features",), truncation=False, padding="longest")["input_features"]
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
    model: _Recogniser, told: Mapping[str, Any], prefix: list[int], encoded: np.ndarray, rule: Any = None
) -> list[int]:
    """The tokens behind a prefix, up to the end token.

    Args:
        model: the parts.
        told: the generation configuration.
        prefix: the tokens in front of the text.
        encoded: the encoder's output.
        rule: which tokens of times may follow, of `times_of`.
    """
    never, never_first = told.get("suppress_tokens") or [], told.get("begin_suppress_tokens") or []
    most = told["max_new_tokens"]
    states, made, waiting, places = model.empty("decoder", len(prefix) + most), list[int](), prefix, 0
    while len(made) < most:
        for token in waiting:
            places += 1
            inputs = {"input_ids": [[token]], "position_ids": [range(places)], "encoder_hidden_states": encoded}
            logits = model.call("decoder", inputs, states)["logits"][0, -1].astype(np.float32)
        logits[[*never, *([] if made else never_first)]] = -np.inf
        if rule is not None:
            logits = rule.allowed(made, logits)
        waiting = [int(logits.argmax())]
        if waiting[0] == told["eos_token_id"]:
            break
        made += waiting
    return made


def _encoded(model: _Recogniser, samples: np.ndarray) -> np.ndarray:
    """The encoder's output."""
    if model.takes_samples("encoder"):
        samples = model.fitted(samples, model.size("encoder", AUDIO, 1, AUDIO))
        made = model.call("encoder", {AUDIO: samples[None]}, function=AUDIO)
    else:
        model.fitted(samples, getattr(model.extractor, "n_samples", None))
        made = model.call("encoder", _features(model, samples, ("input_features", "input_values")))
    return np.asarray(made["encoder_hidden_states"])


def _features(model: _Recogniser, samples: np.ndarray, names: tuple[str, ...], **options: Any) -> dict[str, Any]:
    """What the extractor of transformers makes of samples; of these names."""
    rate = model.extractor.sampling_rate
    made = model.extractor(samples, sampling_rate=rate, return_tensors="np", **options)
    return {name: np.asarray(made[name]) for name in names if name in made}


# ---- spectra with a mask -------------------------------------------------------------------------------


def _from_spectrum(model: _Recogniser, role: str, output: str, samples: np.ndarray) -> tuple[np.ndarray, int]:
    """The frames that an encoder of Parakeet makes, and how many of them are of the recording."""
    hop = model.extractor.hop_length
    if model.takes_samples(role):
        padded = model.fitted(samples, model.size(role, AUDIO, 1, AUDIO))
        made = model.call(role, {AUDIO: padded[None], "audio_length": [len(samples)]}, function=AUDIO)
        frames = len(samples) // hop
    else:
        taken = model.size(role, "input_features", 1)
        most = None if taken is None else (taken - 1) * hop
        model.fitted(samples, most)
        padding = {} if most is None else {"padding": "max_length", "max_length": most}
        inputs = _features(model, samples, ("input_features", "attention_mask"), **padding)
        made, frames = model.call(role, inputs), int(inputs["attention_mask"].sum())
    factor = model.metadata["config"]["encoder"]["subsampling_factor"]
    while factor > 1:  # convolutions that halve
        frames, factor = (frames - 1) // 2 + 1, factor // 2
    return np.asarray(made[output])[0], frames


def _by_frames_and_durations(model: _Recogniser, samples: np.ndarray) -> Transcription:
    """A transducer that reads a whole recording."""
    encoded, count = _from_spectrum(model, "encoder", "encoder_hidden_states", samples)
    return _transduced(model, encoded, count, model.metadata["config"]["max_symbols_per_step"] * len(encoded) - 1)


def _by_chunks(model: _Recogniser, samples: np.ndarray) -> Transcription:
    """A transducer that reads chunks of a spectrum, with zeros behind the last one."""
    chunks, config = model.metadata["chunks"], model.metadata["config"]
    (spectrum,) = _features(model, samples, ("input_features",)).values()
    ends = range(chunks["first_mel_frames"], spectrum.shape[1] + chunks["mel_frames"], chunks["mel_frames"])
    spectrum = np.pad(spectrum, ((0, 0), (0, ends[-1] - spectrum.shape[1]), (0, 0)))
    prompt = {"prompt_id": [config["default_prompt"]]} if "default_prompt" in config else {}
    states, made = model.empty("encoder", 0), []
    for start, end in zip((0, *ends), ends, strict=False):
        inputs = {"input_features": spectrum[:, start:end], **prompt}
        found = model.call("encoder", inputs, states, "main" if start else "first")
        made.append(np.asarray(found["encoder_hidden_states"])[0])
    encoded = np.concatenate(made)
    return _transduced(model, encoded, len(encoded), config["max_symbols_per_step"] * len(encoded))


def _transduced(model: _Recogniser, encoded: np.ndarray, count: int, most: int) -> Transcription:
    """The joint network says the next token of a frame, and how many frames to go on.

    Args:
        model: the parts.
        encoded: (frames, width).
        count: how many frames are of the recording.
        most: how many steps there are at most.
    """
    config = model.metadata["config"]
    words, blank, durations = config["vocab_size"], config["blank_token_id"], config.get("durations")
    shape = (config["num_decoder_layers"], 1, config["decoder_hidden_size"])
    hidden = cell = np.zeros(shape, np.float32)
    token, frame, here, made, output = blank, 0, 0, list[int](), None
    for _ in range(most):
        if output is None or token != blank:
            inputs = {"input_ids": [[token]], "hidden_state": hidden, "cell_state": cell}
            step = model.call("decoder_step", inputs)
            output, hidden, cell = (step[name] for name in ("decoder_output", "new_hidden_state", "new_cell_state"))
        inputs = {"decoder_hidden_states": output, "encoder_hidden_states": encoded[None, frame : frame + 1]}
        logits = model.call("joint", inputs)["logits"][0, 0]
        token = int(logits[:words].argmax())
        if token != blank:
            made.append(token)
        if durations is not None:
            forward = int(logits[words:].argmax()) or int(token == blank)
        else:
            here = 0 if token == blank else here + 1
            forward = int(token == blank or here >= config["max_symbols_per_step"])
            here = 0 if forward else here
        frame += forward
        if frame >= count:
            break
    return Transcription(made, model.tokenizer.decode(made, skip_special_tokens=True, group_tokens=False))


def _by_frames(model: _Recogniser, samples: np.ndarray) -> Transcription:
    """CTC: the most probable token of each frame; the tokenizer joins equal ones and leaves blanks out."""
    config = model.metadata["config"]
    if "subsampling_factor" in config.get("encoder", {}):
        logits, count = _from_spectrum(model, "main", "logits", samples)
    else:
        if model.takes_samples("main"):
            made = model.call("main", {AUDIO: samples[None]}, function=AUDIO)
        else:
            names = tuple(model.interfaces["main"].function().inputs)
            made = model.call("main", _features(model, samples, names))
        logits = np.asarray(made["logits"])[0]
        count = len(logits)
    tokens = logits.argmax(1)
    tokens[count:] = config["blank_token_id"]
    return Transcription(tokens.tolist(), model.tokenizer.decode(tokens.tolist(), skip_special_tokens=True))


def _of_swift(model: _Recogniser, samples: np.ndarray) -> Transcription:
    """The two forms of Apple's Swift package."""
    is_transducer = "decoder_step" in model.parts
    return (_by_frames_and_durations if is_transducer else _by_tokens)(model, samples)


_LOOPS: Mapping[str, Callable[[_Recogniser, np.ndarray], Transcription]] = {
    "speech_recognizer": _of_swift, "speech_transducer": _by_frames_and_durations, "speech_ctc": _by_frames,
    "speech_seq2seq": _by_caches, "speech_streaming": _by_chunks,
}  # fmt: skip
"""By the kind of the bundle."""
