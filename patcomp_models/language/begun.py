"""A conversion of a language model that has begun: the model is loaded, and its bundle is being written."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from patcomp.errors import ConversionWarning
from patcomp_models.bundle_folders.unfinished import Unfinished
from patcomp_models.language.contract import MAIN
from patcomp_models.language.request import LanguageRequest
from patcomp_models.language.writing import description, write_description


@dataclass(frozen=True)
class Begun:
    """What a form of language models is made of.

    Attributes:
        request: what the user asks.
        model: of transformers.
        context: the most tokens.
        name: of the bundle.
        notes: what a user of the bundle must know.
        work: the folder of the bundle, and the steps that are finished.
    """

    request: LanguageRequest
    model: Any
    context: int
    name: str
    notes: list[str]
    work: Unfinished

    @property
    def checks(self) -> bool:
        """Whether the program is compared with the model."""
        return self.request.options.check is not False

    def warn(self, notes: Iterable[str], front: str = "") -> None:
        """Warn of notes, and keep them for `metadata.json`."""
        for note in notes:
            warnings.warn(front + note, ConversionWarning, stacklevel=5)
            self.notes.append(note)

    def describe(
        self,
        functions: Mapping[str, Sequence[str]] = MappingProxyType({MAIN: [MAIN]}),
        language: Mapping[str, Any] = MappingProxyType({}),
        further: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Write the tokenizer and `metadata.json`.

        Args:
            functions: their names by role.
            language: further entries of the block `language`.
            further: further blocks.
        """
        identifier = self.request.source.identifier
        told = description(self.model, self.context, self.name, identifier, self.notes, functions, self.request.word)
        told["language"] |= language
        told |= further
        self.work.once("description", lambda: write_description(self.work.folder, told, self.request.tokenizer))
