"""The tokenizer of a bundle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patcomp_models.checkpoints.tokenizers import tokenizing
from patcomp_models.checkpoints.untrusted import check_file
from patcomp_models.errors import LanguageModelError
from patcomp_models.language.vision.prompts import PLACEHOLDER

_FILE = Path("tokenizer", "tokenizer.json")


@dataclass(frozen=True)
class BundleTokenizer:
    """The tokenizer of a bundle, which may have none.

    Attributes:
        path: of the bundle.
    """

    path: Path

    def split(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """The token ids of a text.

        Raises:
            LanguageModelError: there is no tokenizer, or it cannot split the text.
        """
        tokenizer = self._loaded()
        with tokenizing(f"the tokenizer of {str(self.path)!r} cannot split the text", LanguageModelError):
            return list(tokenizer.encode(text, add_special_tokens=add_special_tokens).ids)

    def decoded(self, tokens: Sequence[int]) -> str:
        """The text of tokens.

        Raises:
            LanguageModelError: there is no tokenizer.
        """
        return str(self._loaded().decode(list(tokens)))

    def of_image(self, vision: Mapping[str, Any]) -> str:
        """What stands for an image in a prompt, if it is known.

        Args:
            vision: the block `vision` of `metadata.json`.
        """
        if not (self.path / _FILE).is_file():
            return ""
        return vision.get(PLACEHOLDER) or self._loaded().id_to_token(vision["image_token_id"]) or ""

    def _loaded(self) -> Any:
        from tokenizers import Tokenizer

        file = self.path / _FILE
        if not file.is_file():
            raise LanguageModelError(f"the bundle {str(self.path)!r} has no tokenizer; give token ids")
        check_file(file, LanguageModelError)
        with tokenizing(f"tokenizers cannot read {str(file)!r}", LanguageModelError):
            return Tokenizer.from_file(str(file))
