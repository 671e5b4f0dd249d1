"""Parakeet's transducers: an encoder, one step of the prediction network, and the joint network.

Apple's Swift package has the loop for those with durations (TDT); those without (RNN-T) are for other hosts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from patcomp.errors import Problem
from patcomp_models.bundle_folders.contract import FLOATS, PROCESSOR, Interface, Values, function_of, problem
from patcomp_models.bundle_folders.interfaces import Function
from patcomp_models.bundles.kind import Component
from patcomp_models.bundles.speech.folders import check_processor, content_of, extractor_of, write_processor
from patcomp_models.errors import BundleError

if TYPE_CHECKING:
    from patcomp_models.tasks.entries import Entry

TDT, RNNT = "ParakeetForTDT", "ParakeetForRNNT"
TRANSDUCERS = {
    TDT: "parakeet_tdt",
    RNNT: "parakeet_rnnt",
    "NemotronAsrStreamingForRNNT": "nemotron_asr_streaming",
    "Nemotron3_5AsrForRNNT": "nemotron3_5_asr",
}
NUMBERS = ("vocab_size", "blank_token_id", "decoder_hidden_size", "num_decoder_layers", "max_symbols_per_step")
"""What a loop needs to know of the model."""
TRANSDUCER_PARTS = ("encoder", "decoder_step", "joint")
"""The roles of the assets."""
_EXAMPLE_FRAMES = 97
"""Of a spectrum, where any number is possible."""
_FEWEST_FRAMES, _MOST_FRAMES = 64, 2**20
"""The bounds of any number."""


@dataclass(frozen=True)
class Transducer:
    """A checkpoint of a transducer.

    Attributes:
        folder: of the checkpoint.
        dtype: of the weights.
        name: of the class.
        audio: whether the encoder also has the function `audio`, which takes samples.
        frames: of the spectrum, if the encoder takes one length only.
        streaming: the frames of the encoder to the left of a chunk, in it, and to the right, if recordings are read
            in windows.
    """

    folder: Path
    dtype: str
    name: str
    audio: bool
    frames: int | None
    streaming: Sequence[int] | None

    def components(self) -> list[Component]:
        """The three parts.

        Raises:
            BundleError: a file is missing, or the windows do not fit the model.
        """
        check_processor(self.folder)
        self._check_streaming()
        if self.frames is not None and (type(self.frames) is not int or self.frames < 2 * self._factor):
            raise BundleError(f"frames is {self.frames!r}, and must be a number of at least {2 * self._factor}")
        makers = (self._encoder, self._step, self._joint)
        return [Component(role, f"{role}.aimodel", make) for role, make in zip(TRANSDUCER_PARTS, makers, strict=True)]

    def metadata(self) -> Mapping[str, Any]:
        config, extractor = self._config, extractor_of(self.folder)
        told: dict[str, Any] = {
            "config": {
                "architecture": TRANSDUCERS[self.name],
                **{name: config[name] for name in NUMBERS},
                **({"durations": list(config["durations"])} if self.name == TDT else {}),
                "encoder": {name: config["encoder_config"][name] for name in ("num_mel_bins", "subsampling_factor")},
            }
        }
        if self.streaming is not None:
            sides = ("left_context_encoder_frames", "chunk_encoder_frames", "right_context_encoder_frames")
            told["streaming"] = {
                **dict(zip(sides, self.streaming, strict=True)),
                "window_mel_frames": self._window,
                "hop_length": extractor.hop_length,
                "subsampling_factor": self._factor,
                "sample_rate": extractor.sampling_rate,
            }
        return told

    def write_files(self, bundle: Path) -> None:
        """The tokenizer and the extractor."""
        write_processor(self.folder, bundle / PROCESSOR)

    @property
    def _config(self) -> dict[str, Any]:
        return content_of(self.folder / "config.json")

    @property
    def _factor(self) -> int:
        return int(self._config["encoder_config"]["subsampling_factor"])

    @property
    def _window(self) -> int | None:
        """The frames of the spectrum that the encoder takes; None for any number."""
        return self.frames if self.streaming is None else self._factor * sum(self.streaming) + 1

    def _check_streaming(self) -> None:
        given = self.streaming
        if given is None:
            return
        if self.name != TDT or self.frames is not None:
            raise BundleError("streaming is for models with durations (TDT), and decides frames; leave the other out")
        if not isinstance(given, list | tuple) or len(given) != 3 or not all(type(n) is int and n > 0 for n in given):
            raise BundleError(f"streaming is {given!r}, and must be three numbers of frames: [left, chunk, right]")
        longest = max(self._config["durations"])
        if given[0] < given[1] or given[2] < longest:
            raise BundleError(
                f"streaming is {given!r}; the left side must be as long as the chunk, and the right side as the "
                f"longest duration, {longest}"
            )

    def _model(self) -> Any:
        from patcomp_models.bundles.loading import model_of

        return model_of(self.folder, "transformers", self.name, self.dtype)

    def _encoder(self) -> list[Entry]:
        from patcomp_models.bundles.speech.modules import TransducerEncoder

        model = self._model()
        return spectrum_entries(
            TransducerEncoder(model), model.dtype, extractor_of(self.folder), self._window, "encoder_hidden_states",
            with_audio=self.audio,
        )  # fmt: skip

    def _step(self) -> list[Entry]:
        import torch

        from patcomp_models.bundles.speech.modules import TransducerStep
        from patcomp_models.tasks.entries import Entry

        model = self._model()
        config, draw = model.config, torch.Generator().manual_seed(0)
        shape = (config.num_decoder_layers, 1, config.decoder_hidden_size)
        states = {name: torch.randn(shape, generator=draw).to(model.dtype) for name in ("hidden_state", "cell_state")}
        token = torch.tensor([[config.vocab_size // 2]], dtype=torch.int32)
        made = ("decoder_output", "new_hidden_state", "new_cell_state")
        return [Entry("main", TransducerStep(model), {"input_ids": token, **states}, made)]

    def _joint(self) -> list[Entry]:
        import torch

        from patcomp_models.bundles.speech.modules import TransducerJoint
        from patcomp_models.tasks.entries import Entry

        model, draw = self._model(), torch.Generator().manual_seed(0)
        inputs = {
            name: torch.randn(1, 1, model.config.decoder_hidden_size, generator=draw).to(model.dtype)
            for name in ("decoder_hidden_states", "encoder_hidden_states")
        }
        return [Entry("main", TransducerJoint(model), inputs, ("logits",))]


def spectrum_entries(
    module: Any, dtype: Any, extractor: Any, frames: int | None, output: str, *, with_audio: bool
) -> list[Entry]:
    """The functions of a module that reads Parakeet's spectrum and the mask of its frames.

    Args:
        module: takes both.
        dtype: of its weights.
        extractor: of the spectrum.
        frames: of the spectrum; None for any number.
        output: the name of the result.
        with_audio: whether there is the function `audio`, of samples and their number.
    """
    import torch
    from torch.export import Dim

    from patcomp_models.bundles.speech.examples import samples
    from patcomp_models.bundles.speech.mel import FromSamples, ParakeetFeatures
    from patcomp_models.tasks.entries import Entry

    features = ParakeetFeatures(extractor)
    count = ((frames or _EXAMPLE_FRAMES) - 1) * extractor.hop_length
    audio, length = samples(count), torch.tensor([count - count // 5], dtype=torch.int32)
    with torch.no_grad():
        read, mask = features(audio, length)
    names = ("input_features", "attention_mask")
    open_length = Dim.DYNAMIC(min=_FEWEST_FRAMES, max=_MOST_FRAMES)
    dynamic = {} if frames else {name: {1: open_length} for name in names}
    inputs = dict(zip(names, (read.to(dtype), mask), strict=True))
    entries = [Entry("main", module, inputs, (output,), dynamic)]
    if with_audio:
        hop = extractor.hop_length
        open_audio = Dim.DYNAMIC(min=_FEWEST_FRAMES * hop, max=_MOST_FRAMES * hop)
        any_length = {} if frames else {"audio": {1: open_audio}}
        inputs = {"audio": audio, "audio_length": length}
        entries.append(Entry("audio", FromSamples(features, module, dtype), inputs, (output,), any_length))
    return entries


# ---- what Apple's Swift package reads ------------------------------------------------------------------


def swift_transducer_problems(
    bundle: Path, metadata: Mapping[str, Any], *, has_durations: bool = True
) -> list[Problem]:
    """What Swift would refuse or misread of a bundle of a transducer, or a host of one without durations."""
    assets, config = metadata["assets"], metadata["config"]
    found = [problem(f"assets.{role} is missing") for role in TRANSDUCER_PARTS if role not in assets]
    if not (bundle / PROCESSOR / "tokenizer.json").is_file():
        found.append(problem(f"there is no {PROCESSOR}/tokenizer.json"))
    found += [problem(f"config.{name} is {config.get(name)!r}, and must be an integer") for name in NUMBERS
              if type(config.get(name)) is not int]  # fmt: skip
    found += encoder_problems(config)
    durations = config.get("durations") if has_durations else []
    is_list = isinstance(durations, list) and all(type(each) is int for each in durations)
    if not is_list or (has_durations and not durations):
        found.append(problem(f"config.durations is {durations!r}, and must be a list of integers"))
    if found:
        return found
    if not 0 <= config["blank_token_id"] < config["vocab_size"]:
        found.append(problem("config.blank_token_id must be less than config.vocab_size"))
    parts = {}
    for role in TRANSDUCER_PARTS:
        parts[role], wrong = function_of(bundle / assets[role])
        found += wrong
    if None in parts.values():
        return found
    frames = frames_of(parts["encoder"])
    for role, interface in interfaces({**config, "durations": durations}, frames).items():
        found += interface.problems(role, parts[role])
    if "streaming" in metadata and has_durations:
        factor = config["encoder"]["subsampling_factor"]
        found += _streaming_problems(metadata["streaming"], factor, max(durations), frames)
    return found


def encoder_problems(config: Mapping[str, Any]) -> list[Problem]:
    """Problems of the entry `encoder` in a bundle's configuration."""
    told = config.get("encoder")
    encoder: Mapping[str, Any] = told if isinstance(told, Mapping) else {}
    found = [problem(f"config.encoder.{name} is {encoder.get(name)!r}, and must be an integer")
             for name in ("num_mel_bins", "subsampling_factor") if type(encoder.get(name)) is not int]  # fmt: skip
    factor = encoder.get("subsampling_factor")
    if type(factor) is int and (factor < 1 or factor & (factor - 1)):
        found.append(problem(f"config.encoder.subsampling_factor is {factor}, and must be a power of two"))
    return found


def frames_of(encoder: Function) -> int | None:
    """The frames that an encoder takes; None for any number, or no spectrum."""
    taken = encoder.inputs.get("input_features")
    return taken.shape[1] if taken is not None and len(taken.shape) == 3 else None


def spectrum(config: Mapping[str, Any], frames: int | None) -> Values:
    """The inputs of an encoder."""
    return {"input_features": ((1, frames, config["encoder"]["num_mel_bins"]), FLOATS),
            "attention_mask": ((1, frames), ("bool",))}  # fmt: skip


def frames_after(frames: int | None, config: Mapping[str, Any]) -> int | None:
    """The number of frames after the encoder, from the number of frames of a spectrum."""
    factor = config["encoder"]["subsampling_factor"]
    while frames is not None and factor > 1:
        frames, factor = (frames - 1) // 2 + 1, factor // 2
    return frames


def interfaces(config: Mapping[str, Any], frames: int | None) -> dict[str, Interface]:
    """The interfaces of the parts, for an encoder that takes some frames, or any number of them."""
    width, layers = config["decoder_hidden_size"], config["num_decoder_layers"]
    one, state = ((1, 1, width), FLOATS), ((layers, 1, width), FLOATS)
    scores = config["vocab_size"] + len(config["durations"])
    return {
        "encoder": Interface(
            spectrum(config, frames), {"encoder_hidden_states": ((1, frames_after(frames, config), width), FLOATS)}
        ),
        "decoder_step": Interface(
            {"input_ids": ((1, 1), ("int32",)), "hidden_state": state, "cell_state": state},
            {"decoder_output": one, "new_hidden_state": state, "new_cell_state": state},
        ),
        "joint": Interface(
            {"decoder_hidden_states": one, "encoder_hidden_states": one}, {"logits": ((1, 1, scores), FLOATS)}
        ),
    }  # fmt: skip


def _streaming_problems(block: Any, factor: int, longest: int, frames: int | None) -> list[Problem]:
    """What is wrong with the windows of a bundle."""
    names = ("left_context_encoder_frames", "chunk_encoder_frames", "right_context_encoder_frames",
             "window_mel_frames", "hop_length", "subsampling_factor", "sample_rate")  # fmt: skip
    if not isinstance(block, Mapping) or not all(type(block.get(name)) is int for name in names):
        return [problem(f"streaming must have integers: {', '.join(names)}")]
    left, chunk, right, window = (block[name] for name in names[:4])
    wanted = factor * (left + chunk + right) + 1
    rules = {
        "streaming.left_context_encoder_frames is less than those of the chunk": left >= chunk,
        f"streaming.right_context_encoder_frames is less than the longest duration, {longest}": right >= longest,
        f"streaming.window_mel_frames is {window}, and must be {wanted}": window == wanted,
        f"encoder takes {frames or 'any number of'} frames, and streaming says {window}": frames == window,
        "streaming.subsampling_factor is not that of config.encoder": block["subsampling_factor"] == factor,
    }
    return [problem(text) for text, holds in rules.items() if not holds]
