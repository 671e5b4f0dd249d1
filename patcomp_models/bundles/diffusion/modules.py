"""Models of diffusers and their text encoders as functions of tensors alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


class ModelFunction(nn.Module):
    """A function of a model."""

    def __init__(self, model: Any):
        super().__init__()
        self.model = model


class TextEncoder(ModelFunction):
    """The last hidden state of a text: (1, length) to (1, length, width)."""

    def forward(self, input_ids: Tensor) -> Tensor:
        found: Tensor = self.model(input_ids).last_hidden_state
        return found


class MaskedTextEncoder(ModelFunction):
    """The last hidden state of a text with a mask: (1, length) to (1, length, width)."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        found: Tensor = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        return found


class PooledTextEncoder(ModelFunction):
    """The vector of a text: (1, length) to (1, width)."""

    def forward(self, input_ids: Tensor) -> Tensor:
        found: Tensor = self.model(input_ids).pooler_output
        return found


class PenultimateTextEncoder(ModelFunction):
    """The last hidden state but one, on which Stable Diffusion XL and 3 condition, and the projected vector.

    A model without projection has no second output.
    """

    def forward(self, input_ids: Tensor) -> tuple[Tensor, ...]:
        found = self.model(input_ids, output_hidden_states=True)
        hidden = found.hidden_states[-2]
        return (hidden, found.text_embeds) if hasattr(found, "text_embeds") else (hidden,)


class JoinedTextEncoder(ModelFunction):
    """Hidden states of some layers side by side: (1, length) and its mask to (1, length, layers * width).

    Args:
        model: of transformers.
        layers: which; 0 is the embedding.
    """

    def __init__(self, model: Any, layers: Sequence[int]):
        super().__init__(model)
        self.layers = tuple(layers)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        found = self.model(
            input_ids=input_ids, attention_mask=attention_mask, output_hidden_states=True, use_cache=False
        ).hidden_states
        return torch.cat([found[layer] for layer in self.layers], -1)


class SelectedTextEncoder(JoinedTextEncoder):
    """The hidden states of the first token and of the last ones, as a pipeline takes them: (1, count, layers * width).

    Args:
        model: of transformers.
        layers: which; 0 is the embedding.
        count: of the states.
    """

    def __init__(self, model: Any, layers: Sequence[int], count: int):
        super().__init__(model, layers)
        self.count = count

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        hidden = super().forward(input_ids, attention_mask)
        return torch.cat([hidden[:, :1], hidden[:, 1 - self.count :]], 1)


class Denoiser(ModelFunction):
    """What a model of diffusers computes of keyword arguments, given by position.

    Args:
        model: of diffusers.
        names: of the arguments; `"added_cond_kwargs.time_ids"` is an entry of a dictionary.
        options: further arguments, which are no tensors.
    """

    def __init__(self, model: Any, names: Sequence[str], options: Mapping[str, Any] | None = None):
        super().__init__(model)
        self.names, self.options = tuple(names), dict(options or {})

    def forward(self, *values: Tensor) -> Tensor:
        arguments: dict[str, Any] = {}
        for name, value in zip(self.names, values, strict=True):
            outer, _, inner = name.partition(".")
            if inner:
                arguments.setdefault(outer, {})[inner] = value
            else:
                arguments[outer] = value
        found: Tensor = self.model(**arguments, **self.options, return_dict=False)[0]
        return found


class GuidedDenoiser(ModelFunction):
    """SANA-Sprint's transformer, which takes the guidance as a user says it.

    Args:
        model: of diffusers; its configuration says by what the guidance is multiplied.
    """

    def forward(
        self, hidden_states: Tensor, encoder_hidden_states: Tensor, encoder_attention_mask: Tensor, timestep: Tensor,
        guidance: Tensor,
    ) -> Tensor:  # fmt: skip
        """The velocity of latents, of the shape of the latents.

        Args:
            hidden_states: (1, channels, height, width), the latents of a flow.
            encoder_hidden_states: (1, tokens, width).
            encoder_attention_mask: (1, tokens) of floats, 0 or 1.
            timestep: (1,), the noise of the latents, from 0 to 1.
            guidance: (1,)
        """
        found: Tensor = self.model(
            hidden_states, encoder_hidden_states=encoder_hidden_states, encoder_attention_mask=encoder_attention_mask,
            timestep=timestep, guidance=guidance * self.model.config.guidance_embeds_scale, return_dict=False,
        )[0]  # fmt: skip
        return found


class Projections(ModelFunction):
    """Stable Audio's projections, of a text and of the seconds where a sound starts and ends."""

    def forward(
        self, text_hidden_states: Tensor, start_seconds: Tensor, end_seconds: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        found = self.model(text_hidden_states, start_seconds, end_seconds)
        return found.text_hidden_states, found.seconds_start_hidden_states, found.seconds_end_hidden_states


class ControlledUnet(ModelFunction):
    """A UNet with what a ControlNet adds to it.

    Args:
        model: the UNet.
        network: the ControlNet.
    """

    def __init__(self, model: Any, network: Any):
        super().__init__(model)
        self.network = network

    def forward(
        self, sample: Tensor, timestep: Tensor, encoder_hidden_states: Tensor, controlnet_cond: Tensor,
        conditioning_scale: Tensor,
    ) -> Tensor:  # fmt: skip
        given = (sample, timestep, encoder_hidden_states)
        down, middle = self.network(*given, controlnet_cond, conditioning_scale, return_dict=False)
        found: Tensor = self.model(
            *given, down_block_additional_residuals=down, mid_block_additional_residual=middle, return_dict=False
        )[0]
        return found


class FluxDenoiser(ModelFunction):
    """FLUX.1 with the tables of its rotary embedding as inputs, rows of the text first, as of FLUX.2."""

    def forward(
        self, hidden_states: Tensor, encoder_hidden_states: Tensor, pooled_projections: Tensor, timestep: Tensor,
        rotary_emb_cos: Tensor, rotary_emb_sin: Tensor, guidance: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        ids = torch.zeros(1, 1)  # the model makes the tables of them
        with called_in_turn(self.model, "pos_embed", [(rotary_emb_cos, rotary_emb_sin)]):
            found: Tensor = self.model(
                hidden_states=hidden_states, encoder_hidden_states=encoder_hidden_states,
                pooled_projections=pooled_projections, timestep=timestep, guidance=guidance, img_ids=ids, txt_ids=ids,
                return_dict=False,
            )[0]  # fmt: skip
        return found


_MULTIPLE = 32
"""What Z-Image makes the number of patches, and of rows of a text, a multiple of."""


class ZImageDenoiser(ModelFunction):
    """Z-Image for one image and one text, whose rows beyond the mask are not words.

    The model takes lists of texts of any length. Rows that are no words make a text a multiple of 32, and are
    attended to; further ones, up to the length of the input, are masked.

    Args:
        model: of diffusers.
        side: of the image, in patches.
    """

    def __init__(self, model: Any, side: int):
        super().__init__(model)
        self.side = side
        model.rope_embedder(torch.zeros(1, 3, dtype=torch.long))  # makes its tables at the first call

    def forward(
        self, hidden_states: Tensor, timestep: Tensor, encoder_hidden_states: Tensor,
        encoder_hidden_states_mask: Tensor,
    ) -> Tensor:  # fmt: skip
        model, is_word = self.model, encoder_hidden_states_mask.bool()[..., None]
        length, count = encoder_hidden_states.shape[1], self.side**2
        rows = (is_word.sum() + _MULTIPLE - 1) // _MULTIPLE * _MULTIPLE
        time = model.t_embedder(timestep * model.t_scale).type_as(hidden_states)

        channels, side = hidden_states.shape[1], self.side
        patches = hidden_states.reshape(channels, side, 2, side, 2).permute(1, 3, 2, 4, 0).reshape(count, 4 * channels)
        image = model.all_x_embedder["2-1"](patches)
        padding = model.x_pad_token.expand(-count % _MULTIPLE, -1)
        image = torch.cat([image, padding])[None]
        places = model.create_coordinate_grid((1, side, side)).flatten(0, 2)
        places = places + torch.stack([rows + 1, rows * 0, rows * 0])
        places = torch.cat([places, places.new_zeros(-count % _MULTIPLE, 3)])
        image_angles = model.rope_embedder(places)[None]
        for layer in model.noise_refiner:
            image = layer(image, None, image_angles, time)

        words = torch.where(is_word, model.cap_embedder(encoder_hidden_states), model.cap_pad_token)
        word_angles = model.rope_embedder(model.create_coordinate_grid((length, 1, 1), (1, 0, 0)).flatten(0, 2))[None]
        is_seen = torch.arange(length)[None] < rows
        for layer in model.context_refiner:
            words = layer(words, is_seen, word_angles)

        both, angles = torch.cat([image, words], 1), torch.cat([image_angles, word_angles], 1)
        mask = torch.cat([torch.ones(1, image.shape[1], dtype=torch.bool), is_seen], 1)
        for layer in model.layers:
            both = layer(both, mask, angles, time)
        both = model.all_final_layer["2-1"](both, c=time)
        found: Tensor = model.unpatchify([both[0]], [(1, 2 * side, 2 * side)], 2, 1)[0]
        return found[None, :, 0]


@contextmanager
def called_in_turn(model: nn.Module, name: str, results: Sequence[Any]) -> Any:
    """While a model runs, one of its modules returns these results, one a call."""
    waiting = iter(results)
    vars(model)[name] = lambda *arguments: next(waiting)  # an attribute hides the module of its name
    try:
        yield
    finally:
        del vars(model)[name]


class LatentDecoder(ModelFunction):
    """The image of latents, from -1 to 1."""

    def forward(self, z: Tensor) -> Tensor:
        found: Tensor = self.model.decode(z).sample
        return found


class TimedDecoder(ModelFunction):
    """The video of latents that still have noise of a time."""

    def forward(self, z: Tensor, timestep: Tensor) -> Tensor:
        found: Tensor = self.model.decode(z, timestep).sample
        return found


class LatentEncoder(ModelFunction):
    """The latents of an image, by an autoencoder that draws none."""

    def forward(self, image: Tensor) -> Tensor:
        found: Tensor = self.model.encode(image).latent
        return found


class FrameDecoder(ModelFunction):
    """The image of latents, by an autoencoder of videos."""

    def forward(self, z: Tensor) -> Tensor:
        found: Tensor = self.model.decode(z[:, :, None]).sample[:, :, 0]
        return found


class FrameEncoder(ModelFunction):
    """The mean of an image's latents, by an autoencoder of videos."""

    def forward(self, image: Tensor) -> Tensor:
        found: Tensor = self.model.encode(image[:, :, None]).latent_dist.mean[:, :, 0]
        return found


class MeanEncoder(ModelFunction):
    """The mean of an image's latents. Swift's encoder for editing takes as many channels as the latents have."""

    def forward(self, image: Tensor) -> Tensor:
        found: Tensor = self.model.encode(image).latent_dist.mean
        return found
