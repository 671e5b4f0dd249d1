"""Models that fill in mask tokens, whose code lies in their checkpoints: LLaDA, Dream and SDAR."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from patcomp_models.bundle_folders.contract import FLOATS, Interface
from patcomp_models.bundles.speech.folders import content_of, tokenizer_of
from patcomp_models.bundles.text_diffusion.form import TextDiffusionForm, own_settings
from patcomp_models.bundles.text_diffusion.rows import DENOISERS, DenoiserRow
from patcomp_models.checkpoints.told import Told
from patcomp_models.errors import BundleError
from patcomp_models.language.contract import LOGITS, MAIN, POSITIONS, TOKENS

if TYPE_CHECKING:
    from patcomp_models.tasks.entries import Entry


class UnmaskingForm(TextDiffusionForm):
    """A type of `rows.DENOISERS`."""

    numbers: ClassVar[tuple[str, ...]] = (*TextDiffusionForm.numbers, "mask_token_id")
    loops: ClassVar[tuple[str, ...]] = ("blocks", "schedule", "cached_blocks")

    def configuration(self) -> Any:
        return self._row.configuration(self.folder)

    def told(self) -> Mapping[str, Any]:
        mask = content_of(self.folder / "config.json").get("mask_token_id", self._row.mask)
        if type(mask) is not int or not 0 <= mask < self.configuration().vocab_size:
            raise BundleError(f"mask_token_id of {str(self.folder)!r} is {mask!r}, and must be a token of the model")
        return {"mask_token_id": mask, "is_shifted": self._row.is_shifted}

    def tokenizer(self) -> Any:
        return tokenizer_of(self.folder, self._row.tokenizer)

    @property
    def loop(self) -> str:
        return self._row.loop

    def take(self, told: Told) -> Mapping[str, Any]:
        told.ignore("mask_token_id", "max_length", "max_new_tokens")
        return own_settings(told, self.loop)

    def entries(self) -> Sequence[Entry]:
        from patcomp_models.bundles.loading import model_of
        from patcomp_models.bundles.text_diffusion.denoisers import cached_entry, denoiser_entry

        row = self._row
        model = model_of(
            self.folder, "transformers", row.stands_for, self.dtype, config=self.configuration(), names=row.names
        )
        assert self.context is not None
        return [(cached_entry if row.loop == "cached_blocks" else denoiser_entry)(model, self.context)]

    @staticmethod
    def interfaces(config: Mapping[str, Any]) -> Mapping[str, Interface]:
        ids, words = ((1, None), ("int32",)), config["vocab_size"]
        places = {POSITIONS: ids} if config["loop"] == "cached_blocks" else {}
        return {MAIN: Interface({TOKENS: ids, **places}, {LOGITS: ((1, None, words), FLOATS)})}

    @property
    def _row(self) -> DenoiserRow:
        return DENOISERS[self.model_class]
