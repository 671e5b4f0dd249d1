"""The transformer of FLUX.2 in the forms of two revisions of Apple's Swift package."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from patcomp_models.bundles.diffusion.modules import ModelFunction, called_in_turn


class Flux2Denoiser(ModelFunction):
    """FLUX.2 with the tables of its rotary embedding as inputs, rows of the text first, as Swift makes them."""

    def forward(
        self, hidden_states: Tensor, encoder_hidden_states: Tensor, timestep: Tensor, guidance: Tensor,
        rotary_emb_cos: Tensor, rotary_emb_sin: Tensor,
    ) -> Tensor:  # fmt: skip
        length = encoder_hidden_states.shape[1]
        # the model makes the tables of the image and of the text of these numbers, 1 and 0
        ids = [torch.full((count, 1), side) for side, count in ((1, hidden_states.shape[1]), (0, length))]
        image, text = slice(length, None), slice(0, length)
        tables = [(rotary_emb_cos[part], rotary_emb_sin[part]) for part in (image, text)]
        with called_in_turn(self.model, "pos_embed", tables):
            found: Tensor = self.model(
                hidden_states=hidden_states, encoder_hidden_states=encoder_hidden_states, timestep=timestep,
                guidance=guidance, img_ids=ids[0], txt_ids=ids[1], return_dict=False,
            )[0]  # fmt: skip
        return found


class Flux2ByPlaces(ModelFunction):
    """FLUX.2 with the places of patches and words as inputs, as the later revision of Apple's package gives them.

    The rows of an image that a new one follows come behind those of the noise.

    Args:
        model: of diffusers, whose rotary embedding is replaced: its own computes in float64.
    """

    def __init__(self, model: Any):
        super().__init__(model)
        model.pos_embed = RotaryTables(model.pos_embed.theta, model.pos_embed.axes_dim)

    def forward(
        self, hidden_states: Tensor, encoder_hidden_states: Tensor, timestep: Tensor, guidance: Tensor,
        img_ids: Tensor, txt_ids: Tensor,
    ) -> Tensor:  # fmt: skip
        found: Tensor = self.model(
            hidden_states=hidden_states, encoder_hidden_states=encoder_hidden_states, timestep=timestep,
            guidance=guidance, img_ids=img_ids, txt_ids=txt_ids, return_dict=False,
        )[0]  # fmt: skip
        return found


class RotaryTables(nn.Module):
    """The cosines and sines of places, (rows, axes) to twice (rows, sum of the widths), whose columns come in pairs.

    Args:
        theta: the base of the frequencies.
        widths: of the axes.
    """

    frequencies: Tensor

    def __init__(self, theta: float, widths: Sequence[int]):
        super().__init__()
        self.counts = [width // 2 for width in widths]
        exact = [theta ** (-torch.arange(0, width, 2, dtype=torch.float64) / width) for width in widths]
        self.register_buffer("frequencies", torch.cat(exact).float(), persistent=False)

    def forward(self, places: Tensor) -> tuple[Tensor, Tensor]:
        each = [places[:, axis, None].expand(-1, count) for axis, count in enumerate(self.counts)]
        angles = torch.cat(each, -1).float() * self.frequencies
        return angles.cos().repeat_interleave(2, -1), angles.sin().repeat_interleave(2, -1)
