"""Whether the converted head that foresees tokens (MTP) computes what the head of the checkpoint does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from patcomp.evaluate.given import as_array
from patcomp.ir.pages import release
from patcomp_models.language.checking import Comparison
from patcomp_models.language.contract import HIDDEN, POSITIONS, TOKENS
from patcomp_models.language.dynamic_form import BundleFunction
from patcomp_models.language.generation import AssetCall
from patcomp_models.language.memory import weight_memory
from patcomp_models.language.multi_token import HeadDecoder


class HeadComparison(Comparison):
    """A head that foresees tokens (MTP), on the tokens of a prompt and the hidden states of its model.

    Args:
        functions: of the head.
        model: whose hidden states it takes.
    """

    def __init__(
        self, functions: Sequence[BundleFunction], prompt: Sequence[int], dtype: torch.dtype, limit: int, model: Any
    ):  # fmt: skip
        super().__init__(functions, prompt, dtype, limit)
        self.model = model

    @cached_property
    def _hidden(self) -> Tensor:
        """The hidden states of the model for the tokens, (1, tokens, width)."""
        seen: list[Tensor] = []
        watch = self.model.get_output_embeddings().register_forward_pre_hook(
            lambda head, arguments: seen.append(arguments[0])
        )
        try:
            with torch.no_grad():
                self.model(input_ids=torch.tensor([self.tokens]), use_cache=False)
        finally:
            watch.remove()
        release(weight_memory(self.model))
        return seen[0].to(self.decoder.dtype)

    @cached_property
    def wanted(self) -> Tensor:
        """The head's logits, (tokens, vocabulary), if the tokens are those behind its hidden states."""
        assert isinstance(self.decoder, HeadDecoder)
        with torch.no_grad():
            embeddings = self.decoder.embeddings(torch.tensor([self.tokens]), self._hidden)
            logits: Tensor = self.decoder.model(inputs_embeds=embeddings, use_cache=False).logits[0].float()
        release(weight_memory(self.decoder.model))
        return logits

    def made(self, call: AssetCall) -> Tensor:
        def given(name: str, inputs: Mapping[str, Any], states: dict[str, Any]) -> Mapping[str, Any]:
            count, end = np.shape(inputs[TOKENS])[1], np.shape(inputs[POSITIONS])[1]
            return call(name, {**inputs, HIDDEN: as_array(self._hidden[:, end - count : end])}, states)

        return super().made(given)
