"""The loops over the frames of an encoder: transducers and CTC."""

from __future__ import annotations

import numpy as np

from patcomp_models.bundles.speech.recogniser import AUDIO, Recogniser, Transcription


def _from_spectrum(model: Recogniser, role: str, output: str, samples: np.ndarray) -> tuple[np.ndarray, int]:
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
        inputs = model.features(samples, ("input_features", "attention_mask"), **padding)
        made, frames = model.call(role, inputs), int(inputs["attention_mask"].sum())
    factor = model.metadata["config"]["encoder"]["subsampling_factor"]
    while factor > 1:  # convolutions that halve
        frames, factor = (frames - 1) // 2 + 1, factor // 2
    return np.asarray(made[output])[0], frames


def by_frames_and_durations(model: Recogniser, samples: np.ndarray) -> Transcription:
    """A transducer that reads a whole recording."""
    encoded, count = _from_spectrum(model, "encoder", "encoder_hidden_states", samples)
    return _transduced(model, encoded, count, model.metadata["config"]["max_symbols_per_step"] * len(encoded) - 1)


def by_chunks(model: Recogniser, samples: np.ndarray) -> Transcription:
    """A transducer that reads chunks of a spectrum, with zeros behind the last one."""
    chunks, config = model.metadata["chunks"], model.metadata["config"]
    (spectrum,) = model.features(samples, ("input_features",)).values()
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


def _transduced(model: Recogniser, encoded: np.ndarray, count: int, most: int) -> Transcription:
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


def by_frames(model: Recogniser, samples: np.ndarray) -> Transcription:
    """CTC: the most probable token of each frame; the tokenizer joins equal ones and leaves blanks out."""
    config = model.metadata["config"]
    if "subsampling_factor" in config.get("encoder", {}):
        logits, count = _from_spectrum(model, "main", "logits", samples)
    else:
        if model.takes_samples("main"):
            made = model.call("main", {AUDIO: samples[None]}, function=AUDIO)
        else:
            names = tuple(model.interfaces["main"].function().inputs)
            made = model.call("main", model.features(samples, names))
        logits = np.asarray(made["logits"])[0]
        count = len(logits)
    tokens = logits.argmax(1)
    tokens[count:] = config["blank_token_id"]
    return Transcription(tokens.tolist(), model.tokenizer.decode(tokens.tolist(), skip_special_tokens=True))
