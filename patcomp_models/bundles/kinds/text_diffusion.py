"""Language models that write by diffusion: functions of a denoiser, and a loop of the host around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from patcomp.errors import Problem
from patcomp_models.bundle_folders.contract import PROCESSOR, problem
from patcomp_models.bundles.components import KindOfComponents
from patcomp_models.bundles.kind import Component
from patcomp_models.bundles.speech.folders import class_named, content_of
from patcomp_models.bundles.speech.whisper import GENERATION
from patcomp_models.bundles.synthesis.form import (
    form_of_config,
    functions_of,
    mismatches,
    number_problems,
    part_problems,
)
from patcomp_models.bundles.text_diffusion.canvas_form import DIFFUSION_GEMMA, CanvasForm
from patcomp_models.bundles.text_diffusion.form import TextDiffusionForm
from patcomp_models.bundles.text_diffusion.loops import loop_of
from patcomp_models.bundles.text_diffusion.rows import DENOISERS
from patcomp_models.bundles.text_diffusion.unmasking_form import UnmaskingForm
from patcomp_models.checkpoints.tokenizers import save
from patcomp_models.errors import BundleError
from patcomp_models.language.contract import MAIN, STOPS

_FORMS: Mapping[str, type[TextDiffusionForm]] = {
    **dict.fromkeys(DENOISERS, UnmaskingForm), DIFFUSION_GEMMA: CanvasForm,
}  # fmt: skip
_MOST = 4096
"""The most tokens of a bundle, if the user does not say and the model takes more."""


@dataclass(frozen=True)
class TextDiffusion(KindOfComponents):
    """Diffusion language models.

    Attributes:
        max_context: the most tokens, those of the prompt too; by default those of the model, and 4096 at most.
    """

    max_context: int | None = None

    name: ClassVar[str] = "text_diffusion"
    holds: ClassVar[str] = f"a diffusion language model: {', '.join(_FORMS)}"

    @classmethod
    def fits(cls, folder: Path, config: Mapping[str, Any]) -> bool:
        return class_named(config) in _FORMS

    def components(self) -> Sequence[Component]:
        form = self._form
        form.tokenizer()
        self.metadata()
        return [Component(MAIN, "main.aimodel", form.entries)]

    def metadata(self) -> Mapping[str, Any]:
        form = self._form
        plain, generation = content_of(self.folder / "config.json"), content_of(self.folder / GENERATION)
        ends: Any = next((found for each in (generation, plain) if (found := each.get("eos_token_id")) is not None), [])
        return {
            "config": {
                "architecture": form.model_class, "vocab_size": form.configuration().vocab_size,
                "max_context_length": form.context, STOPS: [*ends] if isinstance(ends, list) else [ends],
                **form.told(), "loop": form.loop, "settings": asdict(form.settings()),
            }
        }  # fmt: skip

    def write_files(self, bundle: Path) -> None:
        save(self._form.tokenizer(), bundle / PROCESSOR)

    @classmethod
    def problems(cls, bundle: Path, metadata: Mapping[str, Any], revision: str) -> list[Problem]:
        form, found = form_of_config(metadata, _FORMS)
        if form is None:
            return found
        config = metadata["config"]
        if found := number_problems(config, form.numbers) or _loop_problems(form, config):
            return found
        if found := part_problems(bundle, metadata, (MAIN,)):
            return found
        interfaces = {name: each.with_bfloat16() for name, each in form.interfaces(config).items()}
        functions, found = functions_of(bundle / metadata["assets"][MAIN], interfaces)
        return found + mismatches(functions, interfaces)

    @property
    def _form(self) -> TextDiffusionForm:
        """The form of the model of the folder.

        Raises:
            BundleError: the folder holds another model, or does not take as many tokens.
        """
        name = class_named(content_of(self.folder / "config.json"))
        if name not in _FORMS:
            raise BundleError(f"{str(self.folder)!r} holds {name or 'no class that it names'}, and not {self.holds}")
        form = _FORMS[name](self.folder, self.dtype, self.max_context)
        own = int(form.configuration().max_position_embeddings)
        if self.max_context is not None and not 2 <= self.max_context <= own:
            raise BundleError(f"max_context is {self.max_context}; the model takes 2 to {own} tokens")
        return replace(form, context=self.max_context or min(own, _MOST))


def _loop_problems(form: type[TextDiffusionForm], config: Mapping[str, Any]) -> list[Problem]:
    """What is wrong with the loop and its tokens."""
    stops, settings, loop = config.get(STOPS), config.get("settings"), config.get("loop")
    if not isinstance(stops, list) or not all(type(each) is int for each in stops):
        return [problem(f"config.{STOPS} is {stops!r}, and must be token ids")]
    if type(config.get("is_shifted", False)) is not bool or not isinstance(settings, Mapping):
        return [problem("config.is_shifted must be true or false, and config.settings an object")]
    for name in ("mask_token_id", "pad_token_id"):
        token = config.get(name)
        if token is not None and (type(token) is not int or not 0 <= token < config["vocab_size"]):
            return [problem(f"config.{name} is {token!r}, and must be a token of the model")]
    if loop not in form.loops:
        return [problem(f"config.loop is {loop!r}, and must be {' or '.join(form.loops)}")]
    try:
        loop_of(loop, settings, "config")
    except BundleError as error:
        return [problem(str(error))]
    return []
