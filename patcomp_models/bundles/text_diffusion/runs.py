"""The functions of a bundle on the Core AI runtime, as the loops call them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from patcomp.emit.asset import Asset
from patcomp_models.bundle_folders.interfaces import Function, Interfaces
from patcomp_models.bundles.text_diffusion.canvas_form import BEFORE, DENOISE_CANVAS, IS_CONDITIONED, READ_TEXT
from patcomp_models.language.contract import LOGITS, POSITIONS, STOPS, TOKENS


class RunDenoiser:
    """A model that fills in mask tokens.

    Args:
        asset: of the bundle.
        config: the block `config` of `metadata.json`.
    """

    def __init__(self, asset: Asset, config: Mapping[str, Any]):
        self.mask = int(config["mask_token_id"])
        self.calls = 0
        self._asset, self._is_shifted = asset, config["is_shifted"]

    def logits(self, text: Tensor) -> Tensor:
        self.calls += 1
        logits = _floats(self._asset.run({TOKENS: text.numpy().astype(np.int32)})[LOGITS])
        return torch.cat([logits[:, :1], logits[:, :-1]], 1) if self._is_shifted else logits


class RunBlocks:
    """A model that fills in blocks behind a cache.

    Args:
        asset: of the bundle.
        interfaces: its functions.
        config: the block `config` of `metadata.json`.
        most: how many tokens the text has.
    """

    def __init__(self, asset: Asset, interfaces: Interfaces, config: Mapping[str, Any], most: int):
        self.mask, self.stops = int(config["mask_token_id"]), config[STOPS]
        self.calls = 0
        self._asset, self._states = asset, _empty(interfaces.function(), most)

    def block_logits(self, block: Tensor, start: int) -> Tensor:
        self.calls += 1
        return _floats(self._asset.run(_given(block, start + block.shape[1]), self._states)[LOGITS])


class RunCanvases:
    """A model that reads a text and denoises canvases behind it.

    Args:
        asset: of the bundle.
        interfaces: its functions.
        config: the block `config` of `metadata.json`.
        most: how many tokens the text and its last canvas have.
    """

    def __init__(self, asset: Asset, interfaces: Interfaces, config: Mapping[str, Any], most: int):
        self.length, self.words = int(config["canvas_length"]), int(config["vocab_size"])
        self.stops, self.padding = config[STOPS], config.get("pad_token_id")
        self.calls = 0
        self._asset, self._count = asset, 0
        function = interfaces.function(DENOISE_CANVAS)
        self._dtype = function.inputs[BEFORE].dtype
        self._states = _empty(function, most)

    def read(self, tokens: Tensor) -> None:
        self._count += tokens.shape[1]
        self._asset.run(_given(tokens, self._count), self._states, READ_TEXT)

    def denoised(self, canvas: Tensor, before: Tensor | None) -> Tensor:
        self.calls += 1
        given = _given(canvas, self._count + self.length)
        shape = 1, self.length, self.words
        given[BEFORE] = np.zeros(shape, self._dtype) if before is None else before.numpy().astype(self._dtype)
        given[IS_CONDITIONED] = np.array([before is not None])
        return _floats(self._asset.run(given, self._states, DENOISE_CANVAS)[LOGITS])


def _given(tokens: Tensor, total: int) -> dict[str, np.ndarray]:
    """New tokens, and the positions of all."""
    return {TOKENS: tokens.numpy().astype(np.int32), POSITIONS: np.arange(total, dtype=np.int32)[None]}


def _empty(function: Function, most: int) -> dict[str, np.ndarray]:
    """The states for some tokens before the first call, and one place more, because a call may not fill all places."""
    return {
        name: np.zeros([most + 1 if size is None else size for size in state.shape], state.dtype)
        for name, state in function.states.items()
    }


def _floats(made: Any) -> Tensor:
    return torch.from_numpy(np.asarray(made).astype(np.float32))
