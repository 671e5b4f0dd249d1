"""Models that recognise speech while it is spoken, for hosts of your own: Apple's Swift package has no such kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from patcomp.errors import Problem
from patcomp_models.bundle_folders.contract import FLOATS, PROCESSOR, Interface, function_of, problem
from patcomp_models.bundles.components import KindOfComponents
from patcomp_models.bundles.kind import Component
from patcomp_models.bundles.speech.folders import class_named, content_of
from patcomp_models.bundles.speech.transducer import NUMBERS, Transducer, interfaces
from patcomp_models.bundles.streaming.contract import state_problems
from patcomp_models.errors import BundleError

if TYPE_CHECKING:
    from patcomp_models.tasks.entries import Entry

_PLAIN, _PROMPTED = "NemotronAsrStreamingForRNNT", "Nemotron3_5AsrForRNNT"
_CHUNKS = ("lookahead", "encoder_frames", "first_mel_frames", "mel_frames")
"""What `metadata.json` says of chunks."""


@dataclass(frozen=True)
class SpeechStreaming(KindOfComponents):
    """Nemotron's streaming transducers: an encoder that reads a spectrum in chunks, a decoder step and a joint.

    Attributes:
        lookahead: how many later frames the encoder sees; a chunk has one more. By default what the model says.
    """

    lookahead: int | None = None

    name: ClassVar[str] = "speech_streaming"
    holds: ClassVar[str] = f"{_PLAIN} or {_PROMPTED} of transformers"
    default_dtype: ClassVar[str] = "float32"

    @classmethod
    def fits(cls, folder: Path, config: Mapping[str, Any]) -> bool:
        return class_named(config) in (_PLAIN, _PROMPTED)

    def components(self) -> Sequence[Component]:
        if self._class not in (_PLAIN, _PROMPTED):
            raise BundleError(
                f"{str(self.folder)!r} holds {self._class or 'no class that it names'}, and not {self.holds}"
            )
        window = self._config["encoder_config"]["sliding_window"]
        if type(self._lookahead) is not int or not 0 <= self._lookahead < window:
            raise BundleError(f"lookahead is {self._lookahead!r}, and must be a number of frames less than {window}")
        encoder, *others = self._transducer.components()
        return [Component(encoder.role, encoder.file, self._encoder), *others]

    def metadata(self) -> Mapping[str, Any]:
        told = {**self._transducer.metadata(), "chunks": self._chunks}
        if self._class == _PROMPTED:
            names = {"prompts": "num_prompts", "default_prompt": "default_prompt_id"}
            told["config"] |= {name: self._config[own] for name, own in names.items()}
        return told

    def write_files(self, bundle: Path) -> None:
        self._transducer.write_files(bundle)

    @classmethod
    def problems(cls, bundle: Path, metadata: Mapping[str, Any], revision: str) -> list[Problem]:
        config, chunks, assets = metadata.get("config"), metadata.get("chunks"), metadata["assets"]
        if not isinstance(config, Mapping) or not isinstance(chunks, Mapping):
            return [problem("config or chunks is missing")]
        told = config.get("encoder")
        encoder: Mapping[str, Any] = told if isinstance(told, Mapping) else {}
        numbers = {f"config.{name}": config.get(name) for name in NUMBERS}
        numbers |= {f"config.encoder.{name}": encoder.get(name) for name in ("num_mel_bins", "subsampling_factor")}
        numbers |= {f"chunks.{name}": chunks.get(name) for name in _CHUNKS}
        if "prompts" in config:
            numbers |= {f"config.{name}": config.get(name) for name in ("prompts", "default_prompt")}
        found = [problem(f"{name} is {value!r}, and must be an integer") for name, value in numbers.items()
                 if type(value) is not int]  # fmt: skip
        found += [problem(f"assets.{role} is missing") for role in ("encoder", "decoder_step", "joint")
                  if role not in assets]  # fmt: skip
        for name in ("preprocessor_config.json", "tokenizer.json"):
            if not (bundle / PROCESSOR / name).is_file():
                found.append(problem(f"there is no {PROCESSOR}/{name}"))
        if found:
            return found
        factor, lookahead = encoder["subsampling_factor"], chunks["lookahead"]
        if chunks != _sizes(factor, lookahead):
            found.append(problem(f"chunks is {dict(chunks)}, and must be {_sizes(factor, lookahead)}"))
        parts = interfaces({**config, "durations": []}, None)
        for role in ("decoder_step", "joint"):
            function, wrong = function_of(bundle / assets[role])
            found += wrong if function is None else parts[role].problems(role, function)
        for name, size in (("first", chunks["first_mel_frames"]), ("main", chunks["mel_frames"])):
            taken: dict[str, Any] = {"input_features": ((1, size, encoder["num_mel_bins"]), FLOATS)}
            if "prompts" in config:
                taken["prompt_id"] = ((1,), ("int32",))
            made = {"encoder_hidden_states": ((1, lookahead + 1, config["decoder_hidden_size"]), FLOATS)}
            function, wrong = function_of(bundle / assets["encoder"], name)
            where = f"{name} of encoder"
            found += wrong
            if function is not None:
                found += Interface(taken, made).problems(where, function) + state_problems(where, "encoder", function)
        return found

    @property
    def _config(self) -> dict[str, Any]:
        return content_of(self.folder / "config.json")

    @property
    def _class(self) -> str:
        return class_named(self._config)

    @property
    def _lookahead(self) -> Any:
        own = self._config["encoder_config"]["default_num_lookahead_tokens"]
        return own if self.lookahead is None else self.lookahead

    @property
    def _chunks(self) -> dict[str, int]:
        return _sizes(self._config["encoder_config"]["subsampling_factor"], self._lookahead)

    @property
    def _transducer(self) -> Transducer:
        return Transducer(self.folder, self.dtype, self._class, False, None, None)

    def _encoder(self) -> list[Entry]:
        import torch

        from patcomp_models.bundles.loading import model_of
        from patcomp_models.bundles.streaming.recognisers import SpectrumEncode

        model = model_of(self.folder, "transformers", self._class, self.dtype)
        draw, chunks, entries = torch.Generator().manual_seed(0), self._chunks, []
        for name, size in (("first", chunks["first_mel_frames"]), ("main", chunks["mel_frames"])):
            spectrum = torch.randn(1, size, model.config.encoder_config.num_mel_bins, generator=draw)
            inputs = {"input_features": spectrum.to(model.dtype)}
            if self._class == _PROMPTED:
                inputs["prompt_id"] = torch.zeros(1, dtype=torch.int32)
            module = SpectrumEncode(model, self._lookahead, is_first=name == "first")
            entries.append(module.entry(name, inputs, "encoder_hidden_states"))
        return entries


def _sizes(factor: int, lookahead: int) -> dict[str, int]:
    """The frames of chunks: of the encoder, and of the spectrum."""
    return dict(zip(_CHUNKS, (lookahead, lookahead + 1, 1 + factor * lookahead, factor * (lookahead + 1)), strict=True))
