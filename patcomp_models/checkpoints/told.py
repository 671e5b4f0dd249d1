"""The fields of a configuration, each of which somebody asks for: what nobody asks for may change the numbers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from patcomp_models.errors import BundleError

_GENERAL = {
    "_name_or_path", "_commit_hash", "_attn_implementation_autoset", "_from_model_config", "architectures", "auto_map",
    "custom_generate", "dtype", "model_type", "torch_dtype", "transformers_version", "transformers_weights",
    "use_cache", "output_attentions", "output_hidden_states", "output_history", "return_dict",
    "return_dict_in_generate", "bos_token_id", "eos_token_id", "pad_token_id",
    "quantization_config", "quantization", "compression_config",
}  # fmt: skip
"""What transformers writes of any model, and what names tokens: none of it changes the numbers of a denoiser. Who loads
the weights refuses those in few bits."""


class Told:
    """The fields of a configuration.

    Args:
        file: which has them.
        content: of the file.
    """

    def __init__(self, file: Path, content: Mapping[str, Any]):
        self._file = file
        self._left = {name: value for name, value in content.items() if name not in _GENERAL}

    def take(self, name: str, default: Any) -> Any:
        """The value of a field, or the one that the published code has for it."""
        return self._left.pop(name, default)

    def need(self, name: str) -> None:
        """Check that a field is there.

        Raises:
            BundleError: it is not, or is null.
        """
        if self._left.get(name) is None:
            raise BundleError(f"{str(self._file)!r} lacks {name}, which has no one default")

    def ignore(self, *names: str) -> None:
        """Say that fields change no numbers outside of a training."""
        for name in names:
            self._left.pop(name, None)

    def must(self, name: str, default: Any, *taken: Any) -> None:
        """Check that a field has one of the values with which the model is converted.

        Args:
            name: of the field.
            default: what the published code has for it.
            taken: the values.

        Raises:
            BundleError: it has another one.
        """
        value = self._left.pop(name, default)
        if value not in taken:
            wanted = " or ".join(map(repr, taken))
            raise BundleError(f"{name} of {str(self._file)!r} is {value!r}; models with {wanted} are converted")

    def check(self, model: str) -> None:
        """Check that each field was asked for.

        Raises:
            BundleError: the file has one that the published code of the model does not have.
        """
        if self._left:
            raise BundleError(
                f"{str(self._file)!r} has {', '.join(sorted(self._left))}, which the published {model} has not, and "
                "which may change its numbers; remove what changes none"
            )
