"""Bark: three models of tokens, one behind the other, and the decoder of EnCodec."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from patcomp.errors import Problem
from patcomp_models.bundle_folders.contract import FLOATS, PROCESSOR, Interface, problem
from patcomp_models.bundles.kind import Component
from patcomp_models.bundles.speech.folders import content_of, tokenizer_of
from patcomp_models.bundles.synthesis.form import SynthesisForm, functions_of, number_problems, part_problems
from patcomp_models.checkpoints.tokenizers import save
from patcomp_models.checkpoints.untrusted import copy_files
from patcomp_models.errors import BundleError

if TYPE_CHECKING:
    from patcomp_models.tasks.entries import Entry

BARK = "BarkModel"
_ROLES = ("semantic", "coarse", "fine", "codec")
_STATES = ("keyCache", "valueCache")
_GENERATION = "generation_config.json"
_NUMBERS = ("sample_rate", "samples_per_frame", "codebooks", "codebooks_given", "longest_text", "fine_frames",
            "semantic_vocabulary", "coarse_vocabulary", "fine_vocabulary")  # fmt: skip
_FRAMES, _FEWEST_FRAMES = 24, 16
_NEW, _TOTAL = 3, 6
"""The new tokens, and all tokens, of the example."""


@dataclass(frozen=True)
class Bark(SynthesisForm):
    """A checkpoint of Bark."""

    def components(self) -> Sequence[Component]:
        tokenizer_of(self.folder)
        told = self._generation
        for name in ("semantic_config", "coarse_acoustics_config", "fine_acoustics_config"):
            if not isinstance(told.get(name), Mapping):
                raise BundleError(
                    f"{str(self.folder / _GENERATION)!r} has no {name}, which says how tokens are made; save the "
                    "generation configuration of the model"
                )
        if self.config["semantic_config"].get("bias") is None:
            raise BundleError(f"{str(self.folder / 'config.json')!r} has no settings of the semantic model")
        makers: Sequence[Callable[[Any], list[Entry]]] = (self._semantic, self._coarse, self._fine, self._codec)
        return [
            Component(role, f"{role}.aimodel", partial(self._entries, make))
            for role, make in zip(_ROLES, makers, strict=True)
        ]

    def metadata(self) -> Mapping[str, Any]:
        config, told = self.config, self._generation
        codec = config["codec_config"]
        return {
            "architecture": "bark",
            "sample_rate": told.get("sample_rate", codec["sampling_rate"]),
            "samples_per_frame": prod(codec["upsampling_ratios"]),
            "codebooks": config["fine_acoustics_config"]["n_codes_total"],
            "codebooks_given": config["fine_acoustics_config"]["n_codes_given"],
            "longest_text": told["semantic_config"]["max_input_semantic_length"],
            "fine_frames": told["fine_acoustics_config"]["max_fine_input_length"],
            "semantic_vocabulary": config["semantic_config"]["output_vocab_size"],
            "coarse_vocabulary": config["coarse_acoustics_config"]["output_vocab_size"],
            "fine_vocabulary": config["fine_acoustics_config"]["output_vocab_size"],
        }

    def write_files(self, bundle: Path) -> None:
        """The tokenizer, and the settings of the loops."""
        save(tokenizer_of(self.folder), bundle / PROCESSOR)
        copy_files(self.folder / _GENERATION, bundle / _GENERATION)

    @classmethod
    def problems(cls, bundle: Path, metadata: Mapping[str, Any]) -> list[Problem]:
        config, assets = metadata["config"], metadata["assets"]
        found = number_problems(config, _NUMBERS) + part_problems(bundle, metadata, _ROLES)
        if not (bundle / _GENERATION).is_file():
            found.append(problem(f"there is no {_GENERATION}, which says how tokens are made"))
        if found:
            return found
        for role, interfaces in _interfaces(config).items():
            functions, wrong = functions_of(bundle / assets[role], interfaces)
            found += wrong
            for name, interface in interfaces.items():
                if name in functions:
                    where = f"{name} of {role}"
                    found += interface.problems(where, functions[name])
                    states = _STATES if role in ("semantic", "coarse") else ()
                    if set(functions[name].states) != set(states):
                        listed = ", ".join(functions[name].states) or "none"
                        wanted = ", ".join(states) or "none"
                        found.append(problem(f"the states of {where} are {listed}; they must be {wanted}"))
        return found

    @property
    def config(self) -> dict[str, Any]:
        """The folder's configuration, completed by the defaults of transformers."""
        from transformers import AutoConfig

        config: dict[str, Any] = AutoConfig.from_pretrained(
            self.folder, local_files_only=True, trust_remote_code=False
        ).to_dict()
        return config

    @property
    def _generation(self) -> dict[str, Any]:
        return content_of(self.folder / _GENERATION)

    def _entries(self, make: Callable[[Any], list[Entry]]) -> list[Entry]:
        from patcomp_models.bundles.loading import model_of

        return make(model_of(self.folder, "transformers", BARK, self.dtype))

    def _semantic(self, model: Any) -> list[Entry]:
        import torch
        from torch.export import Dim

        from patcomp_models.bundles.synthesis.bark_modules import Prompt
        from patcomp_models.tasks.entries import Entry

        told = self._generation["semantic_config"]
        longest, most = told["max_input_semantic_length"], model.semantic.config.block_size
        ids = torch.arange(longest, dtype=torch.int32)[None] % model.semantic.config.input_vocab_size
        states = _states(model.semantic, 2 * longest + 3)
        capacity = {
            name: {3: Dim(f"{name[:-5]}_capacity", min=longest + 2, max=2 * most)} for name in _STATES
        }  # fmt: skip
        prompt = Prompt(model.semantic, told["semantic_infer_token"])
        inputs = {"text_ids": ids, "history_ids": ids.flip(1), **states}
        return [
            Entry("prompt", prompt, inputs, ("logits",), capacity, _STATES, keeps_sizes=True),
            _tokens(model.semantic),
        ]

    def _coarse(self, model: Any) -> list[Entry]:
        return [_tokens(model.coarse_acoustics)]

    def _fine(self, model: Any) -> list[Entry]:
        import torch

        from patcomp_models.bundles.synthesis.bark_modules import Codebook
        from patcomp_models.tasks.entries import Entry

        fine, frames = model.fine_acoustics, self._generation["fine_acoustics_config"]["max_fine_input_length"]
        given, total = fine.config.n_codes_given, fine.config.n_codes_total
        count = frames * total
        codes = (torch.arange(count, dtype=torch.int32) % fine.config.input_vocab_size).view(1, frames, total)
        return [
            Entry(f"codebook_{number}", Codebook(fine, number), {"codes": codes}, ("logits",))
            for number in range(given, total)
        ]  # fmt: skip

    def _codec(self, model: Any) -> list[Entry]:
        import torch
        from torch.export import Dim

        from patcomp_models.bundles.synthesis.bark_modules import BarkDecode
        from patcomp_models.tasks.entries import Entry

        total, size = model.fine_acoustics.config.n_codes_total, model.codec_model.config.codebook_size
        codes = (torch.arange(total * _FRAMES, dtype=torch.int32) * 7 % size).view(1, total, _FRAMES)
        frames = {2: Dim.DYNAMIC(min=_FEWEST_FRAMES, max=2**16)}
        return [Entry("main", BarkDecode(model), {"codes": codes}, ("audio",), {"codes": frames})]


def _states(model: Any, capacity: int) -> dict[str, Any]:
    """Examples of the states of a model of tokens."""
    import torch

    config, draw = model.config, torch.Generator().manual_seed(1)
    shape = (config.num_layers, 1, config.num_heads, capacity, config.hidden_size // config.num_heads)
    return {name: torch.randn(shape, generator=draw).to(model.dtype) for name in _STATES}


def _tokens(model: Any) -> Entry:
    """The function of a model of tokens, for any number of new ones."""
    import torch
    from torch.export import Dim

    from patcomp_models.bundles.synthesis.bark_modules import Tokens
    from patcomp_models.tasks.entries import Entry

    most = model.config.block_size
    inputs = {
        "input_ids": torch.arange(_NEW, dtype=torch.int32)[None] % model.config.input_vocab_size,
        "position_ids": torch.arange(_TOTAL, dtype=torch.int32)[None], **_states(model, 2 * _TOTAL),
    }  # fmt: skip
    open_sizes: dict[str, dict[int, Any]] = {
        "input_ids": {1: Dim("new", min=1, max=most)}, "position_ids": {1: Dim("total", min=1, max=most)},
        "keyCache": {3: Dim("key_capacity", min=1, max=2 * most)},
        "valueCache": {3: Dim("value_capacity", min=1, max=2 * most)},
    }  # fmt: skip
    return Entry("main", Tokens(model), inputs, ("logits",), open_sizes, _STATES, keeps_sizes=True)


def _interfaces(config: Mapping[str, Any]) -> dict[str, dict[str, Interface]]:
    """The functions of the parts."""
    longest, books = config["longest_text"], config["codebooks"]
    ids, places = ((1, None), ("int32",)), ((1, None), ("int32",))

    def logits(role: str, frames: int = 1) -> Any:
        return {"logits": ((1, frames, config[f"{role}_vocabulary"]), FLOATS)}

    tokens = {"input_ids": ids, "position_ids": places}
    text = {"text_ids": ((1, longest), ("int32",)), "history_ids": ((1, longest), ("int32",))}
    frames = config["fine_frames"]
    codes = {"codes": ((1, frames, books), ("int32",))}
    return {
        "semantic": {
            "prompt": Interface(text, logits("semantic")), "main": Interface(tokens, logits("semantic"))},
        "coarse": {"main": Interface(tokens, logits("coarse"))},
        "fine": {
            f"codebook_{number}": Interface(codes, logits("fine", frames))
            for number in range(config["codebooks_given"], books)},
        "codec": {
            "main": Interface({"codes": ((1, books, None), ("int32",))}, {"audio": ((1, None), FLOATS)})},
    }  # fmt: skip
