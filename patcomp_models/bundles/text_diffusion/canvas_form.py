"""DiffusionGemma: one asset with the functions `read`, which extends the cache, and `denoise`, which reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from patcomp_models.bundle_folders.contract import FLOATS, Interface
from patcomp_models.bundles.speech.folders import configuration_of, content_of, tokenizer_of
from patcomp_models.bundles.speech.whisper import GENERATION
from patcomp_models.bundles.text_diffusion.form import TextDiffusionForm, own_settings
from patcomp_models.checkpoints.told import Told
from patcomp_models.errors import BundleError
from patcomp_models.language.contract import LOGITS, POSITIONS, TOKENS

if TYPE_CHECKING:
    from patcomp_models.tasks.entries import Entry

DIFFUSION_GEMMA = "DiffusionGemmaForBlockDiffusion"
READ_TEXT, DENOISE_CANVAS = "read", "denoise"
"""The names of the functions."""
READ_COUNT = "count"
"""The output of `read`: how many tokens the states hold."""
BEFORE, IS_CONDITIONED = "self_conditioning_logits", "is_conditioned"
"""The inputs of `denoise` for the logits of the step before, and whether there are such."""


class CanvasForm(TextDiffusionForm):
    """`DiffusionGemmaForBlockDiffusion` of transformers, without images."""

    numbers: ClassVar[tuple[str, ...]] = (*TextDiffusionForm.numbers, "canvas_length")
    loops: ClassVar[tuple[str, ...]] = ("canvas",)

    def configuration(self) -> Any:
        found = configuration_of(self.folder)
        text = found.get_text_config()
        if text.use_bidirectional_attention == "all":
            raise BundleError(
                f"use_bidirectional_attention of {str(self.folder)!r} is 'all', with which the encoder reads a text "
                "without a causal mask; models whose encoder is causal are converted"
            )
        return text

    def told(self) -> Mapping[str, Any]:
        whole, padding = configuration_of(self.folder), content_of(self.folder / GENERATION).get("pad_token_id")
        length, words = whole.canvas_length, whole.get_text_config().vocab_size
        if type(length) is not int or length < 1 or padding not in (None, *range(words)):
            raise BundleError(
                f"canvas_length of {str(self.folder)!r} is {length!r} and pad_token_id {padding!r}; they must be a "
                "number of tokens and a token of the model"
            )
        return {"canvas_length": length, "pad_token_id": padding}

    def tokenizer(self) -> Any:
        return tokenizer_of(self.folder)

    @property
    def loop(self) -> str:
        return self.loops[0]

    def take(self, told: Told) -> Mapping[str, Any]:
        told.must("max_length", None, None)
        told.must("cache_implementation", None, None, "dynamic", "static", "offloaded", "offloaded_static")
        told.ignore("cache_config", "disable_compile", "max_new_tokens")
        sampler = told.take("sampler_config", None) or {}
        inner = Told(self.folder / GENERATION, sampler if isinstance(sampler, dict) else {"sampler_config": sampler})
        inner.must("_cls_name", "EntropyBoundSamplerConfig", "EntropyBoundSamplerConfig")
        bound = inner.take("entropy_bound", None)
        inner.check("sampler")
        settings = own_settings(told, self.loop)
        return settings if bound is None else {**settings, "entropy_bound": bound}

    def entries(self) -> Sequence[Entry]:
        from patcomp_models.bundles.loading import model_of
        from patcomp_models.bundles.text_diffusion.canvas_functions import canvas_entries

        assert self.context is not None
        return canvas_entries(model_of(self.folder, "transformers", DIFFUSION_GEMMA, self.dtype), self.context)

    @staticmethod
    def interfaces(config: Mapping[str, Any]) -> Mapping[str, Interface]:
        ids, canvas = ((1, None), ("int32",)), (1, config["canvas_length"])
        words = (*canvas, config["vocab_size"])
        denoise: Any = {TOKENS: (canvas, ("int32",)), POSITIONS: ids, BEFORE: (words, FLOATS),
                        IS_CONDITIONED: ((1,), ("bool",))}  # fmt: skip
        return {
            READ_TEXT: Interface({TOKENS: ids, POSITIONS: ids}, {READ_COUNT: ((1,), ("int32",))}),
            DENOISE_CANVAS: Interface(denoise, {LOGITS: (words, FLOATS)}),
        }
