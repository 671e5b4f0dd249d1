"""Language models, and those of images and text: `patcomp_models.language` converts and checks them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self, get_type_hints

from torch import nn

from patcomp.emit.asset import Writer
from patcomp.errors import Problem
from patcomp.options import declared
from patcomp_models.bundles.kind import Conversion, Kind
from patcomp_models.checkpoints.folders import LANGUAGE_MODELS, WITHOUT_THEIR_CODE, class_name
from patcomp_models.checkpoints.gguf.folder import is_gguf
from patcomp_models.errors import BundleError
from patcomp_models.language import convert_language_model, convert_vision_language_model
from patcomp_models.language.bundle_check import language_problems
from patcomp_models.language.contract import LANGUAGE, VISION
from patcomp_models.language.vision.thinkers import is_whole
from patcomp_models.options import BundleOptions, LanguageOptions, VisionOptions

_OF_ALL = ("folder_or_model", "target", "out", "dtype", "name", "compress", "check", "progress", "writer")
"""The arguments of the functions that `convert_bundle` has for all kinds."""


@dataclass(frozen=True)
class _OfLanguage(Kind):
    """A kind that a function of `patcomp_models.language` converts; the arguments that only it has are the options.

    Attributes:
        given: the options of the user.
    """

    given: Mapping[str, Any]

    function: ClassVar[Callable[..., object]]
    """The function."""
    arguments: ClassVar[type[BundleOptions]]
    """Its arguments."""

    @classmethod
    def options(cls) -> Mapping[str, Any]:
        types = get_type_hints(cls.arguments, localns={"nn": nn, "Writer": Writer})
        return {name: types[name] for name in declared(cls.arguments) if name not in _OF_ALL}

    @classmethod
    def problems(cls, bundle: Path, metadata: Mapping[str, Any], revision: str) -> list[Problem]:
        return language_problems(bundle, metadata, revision)

    @classmethod
    def _with(cls, folder: Path, dtype: str, options: Mapping[str, Any]) -> Self:
        return cls(folder, dtype, options)

    def _write(self, chosen: Conversion, **arguments: Any) -> None:
        type(self).function(
            self.folder, out=chosen.out, dtype=self.dtype, name=chosen.name, compress=chosen.compress,
            progress=chosen.progress, writer=chosen.writer, **arguments,
        )  # fmt: skip


class LanguageModel(_OfLanguage):
    """A causal language model."""

    name: ClassVar[str] = LANGUAGE
    holds: ClassVar[str] = "a causal language model of transformers, or a GGUF file"
    function: ClassVar[Callable[..., object]] = convert_language_model
    arguments: ClassVar[type[BundleOptions]] = LanguageOptions

    @classmethod
    def fits(cls, folder: Path, config: Mapping[str, Any]) -> bool:
        name = class_name(dict(config))
        return is_gguf(folder) or (name.endswith(LANGUAGE_MODELS) and name not in WITHOUT_THEIR_CODE)

    @classmethod
    def options(cls) -> Mapping[str, Any]:
        own = dict(super().options())
        # of every kind, `verify` says whether the numbers are compared
        drafted = own.pop("verify")
        return {**own, "drafted": drafted, "check": str | Sequence[int] | None}

    def convert(self, chosen: Conversion) -> None:
        own = dict(self.given)
        prompt, drafted = own.pop("check", None), own.pop("drafted", None)
        if prompt is not None and not chosen.verify:
            raise BundleError(
                "check is a prompt to compare the bundle with the model on; it excludes verify=False (--no-check)"
            )
        check = chosen.verify if prompt is None else prompt
        self._write(chosen, target=chosen.target or "gpu", verify=drafted, check=check, **own)


class VisionLanguageModel(_OfLanguage):
    """A model of images and text."""

    name: ClassVar[str] = VISION
    holds: ClassVar[str] = "a model of images and text of transformers"
    function: ClassVar[Callable[..., object]] = convert_vision_language_model
    arguments: ClassVar[type[BundleOptions]] = VisionOptions

    @classmethod
    def fits(cls, folder: Path, config: Mapping[str, Any]) -> bool:
        is_one = "vision_config" in config and class_name(dict(config)).endswith("ForConditionalGeneration")
        return is_one or is_whole(config)

    def convert(self, chosen: Conversion) -> None:
        if chosen.target not in (None, "gpu"):
            raise BundleError(f"bundles of the kind {self.name!r} are for the target 'gpu'; leave the target out")
        self._write(chosen, check=chosen.verify, **self.given)
