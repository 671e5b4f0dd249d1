"""Language models that write by diffusion: a denoiser, and a loop of the host around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from patcomp.errors import Problem
from patcomp_models.bundle_folders.contract import FLOATS, PROCESSOR, Interface, function_of, problem
from patcomp_models.bundles.components import KindOfComponents
from patcomp_models.bundles.kind import Component
from patcomp_models.bundles.speech.folders import class_named, content_of, tokenizer_of
from patcomp_models.bundles.speech.whisper import GENERATION
from patcomp_models.bundles.synthesis.form import number_problems, part_problems
from patcomp_models.bundles.text_diffusion.rows import DENOISERS, DenoiserRow
from patcomp_models.bundles.text_diffusion.unmasking import loop_of
from patcomp_models.checkpoints.tokenizers import save
from patcomp_models.errors import BundleError
from patcomp_models.language.contract import LOGITS, MAIN, STOPS, TOKENS

if TYPE_CHECKING:
    from patcomp_models.tasks.entries import Entry

_MOST = 4096
"""The most tokens of a bundle, if the user does not say and the model takes more."""
_NUMBERS = ("vocab_size", "max_context_length", "mask_token_id")


@dataclass(frozen=True)
class TextDiffusion(KindOfComponents):
    """Diffusion language models.

    Attributes:
        max_context: the most tokens, those of the prompt too; by default those of the model, and 4096 at most.
    """

    max_context: int | None = None

    name: ClassVar[str] = "text_diffusion"
    holds: ClassVar[str] = f"a diffusion language model: {', '.join(DENOISERS)}"

    @classmethod
    def fits(cls, folder: Path, config: Mapping[str, Any]) -> bool:
        return class_named(config) in DENOISERS

    def components(self) -> Sequence[Component]:
        if self._class not in DENOISERS:
            raise BundleError(f"{str(self.folder)!r} holds {self._class or 'no class'}, and not {self.holds}")
        own = self._row.configuration(self.folder).max_position_embeddings
        if self.max_context is not None and not 2 <= self.max_context <= own:
            raise BundleError(f"max_context is {self.max_context}; the model takes 2 to {own} tokens")
        self._tokenizer()
        self.metadata()
        return [Component(MAIN, "main.aimodel", self._entries)]

    def metadata(self) -> Mapping[str, Any]:
        row, told = self._row, content_of(self.folder / "config.json")
        config, generation = row.configuration(self.folder), content_of(self.folder / GENERATION)
        mask = told.get("mask_token_id")
        if type(mask) is not int or not 0 <= mask < config.vocab_size:
            raise BundleError(f"mask_token_id of {str(self.folder)!r} is {mask!r}, and must be a token of the model")
        ends: Any = next((found for each in (generation, told) if (found := each.get("eos_token_id")) is not None), [])
        return {
            "config": {
                "architecture": self._class, "vocab_size": config.vocab_size, "max_context_length": self._context,
                "mask_token_id": mask, STOPS: [*ends] if isinstance(ends, list) else [ends],
                "is_shifted": row.is_shifted, "loop": row.loop, "settings": asdict(row.settings_of(self.folder)),
            }
        }  # fmt: skip

    def write_files(self, bundle: Path) -> None:
        save(self._tokenizer(), bundle / PROCESSOR)

    @classmethod
    def problems(cls, bundle: Path, metadata: Mapping[str, Any], revision: str) -> list[Problem]:
        config = metadata.get("config")
        if not isinstance(config, Mapping):
            return [problem("config is missing")]
        found = number_problems(config, _NUMBERS) + part_problems(bundle, metadata, (MAIN,)) + _loop_problems(config)
        if found:
            return found
        function, found = function_of(bundle / metadata["assets"][MAIN], MAIN)
        tokens, words = (1, None), config["vocab_size"]
        interface = Interface({TOKENS: (tokens, ("int32",))}, {LOGITS: ((*tokens, words), FLOATS)}).with_bfloat16()
        return found or interface.problems(MAIN, function)

    @property
    def _class(self) -> str:
        return class_named(content_of(self.folder / "config.json"))

    @property
    def _row(self) -> DenoiserRow:
        return DENOISERS[self._class]

    @property
    def _context(self) -> int:
        return self.max_context or min(int(self._row.configuration(self.folder).max_position_embeddings), _MOST)

    def _tokenizer(self) -> Any:
        return tokenizer_of(self.folder, self._row.tokenizer)

    def _entries(self) -> list[Entry]:
        from patcomp_models.bundles.loading import model_of
        from patcomp_models.bundles.text_diffusion.denoisers import denoiser_entry

        row = self._row
        model = model_of(
            self.folder, "transformers", row.stands_for, self.dtype, config=row.configuration(self.folder),
            names=row.names,
        )  # fmt: skip
        return [denoiser_entry(model, self._context)]


def _loop_problems(config: Mapping[str, Any]) -> list[Problem]:
    """What is wrong with the settings of the loop."""
    stops, settings = config.get(STOPS), config.get("settings")
    if not isinstance(stops, list) or not all(type(each) is int for each in stops):
        return [problem(f"config.{STOPS} is {stops!r}, and must be token ids")]
    if type(config.get("is_shifted")) is not bool or not isinstance(settings, Mapping):
        return [problem("config.is_shifted must be true or false, and config.settings an object")]
    try:
        loop_of(config.get("loop"), settings, "config")
    except BundleError as error:
        return [problem(str(error))]
    return []
