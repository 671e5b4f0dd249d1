"""The functions of CSM: tables of texts and of codes, the backbone, and the depth decoder."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn


class TextTable(nn.Module):
    """From tokens of a text, (1, q), to embeddings, (1, q, width)."""

    def __init__(self, model: Any):
        super().__init__()
        self.table = model.embed_text_tokens

    def forward(self, input_ids: Tensor) -> Tensor:
        made: Tensor = self.table(input_ids)
        return made


class CodeTable(nn.Module):
    """From codes of frames, (1, q, codebooks), to embeddings, (1, q, width)."""

    def __init__(self, model: Any):
        super().__init__()
        self.table = model.backbone_model.embed_tokens

    def forward(self, codes: Tensor) -> Tensor:
        made: Tensor = self.table(codes)
        return made


class Depth(nn.Module):
    """The logits of the next code of a frame, (1, codes), from those before, (1, k), and the hidden state, (1, width).

    It keeps nothing between calls: a frame has a few codes only.
    """

    def __init__(self, model: Any):
        super().__init__()
        self.decoder = model.depth_decoder

    def forward(self, codes: Tensor, hidden: Tensor) -> Tensor:
        behind_hidden = nn.functional.pad(codes, (1, 0))
        made: Tensor = self.decoder(
            input_ids=behind_hidden, backbone_last_hidden_state=hidden, use_cache=False, logits_to_keep=1
        ).logits
        return made[:, -1]
