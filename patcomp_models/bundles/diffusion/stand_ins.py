"""Modules that run the assets of a bundle where a pipeline of diffusers calls its models.

The pipeline computes in float32; what crosses to an asset is cast to the asset's types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from patcomp_models.bundles.diffusion.tiles import decoded_in_tiles
from patcomp_models.bundles.diffusion.variant import with_rows
from patcomp_models.errors import BundleError


@dataclass(frozen=True)
class AssetFunction:
    """A function of an asset.

    Attributes:
        role: of the asset.
        description: what the runtime says of the function.
        call: runs it, on inputs by name.
        others: functions of the asset with other sizes.
    """

    role: str
    description: Any
    call: Callable[[Mapping[str, Any]], Mapping[str, np.ndarray]]
    others: Sequence[AssetFunction] = ()

    def __call__(self, **inputs: Tensor) -> dict[str, Tensor]:
        """Run the function. Outputs are float32.

        A batch of one is repeated for an asset that takes two, and the outputs are those of the first.

        Raises:
            BundleError: an input does not fit.
        """
        for other in self.others:
            if other._sizes() == {name: tuple(inputs[name].shape) for name in other.description.input_names}:
                return other(**inputs)
        wanted = {name: self.description.input_descriptor(name) for name in self.description.input_names}
        made = self.call({name: self._fitted(name, inputs[name], wanted[name]) for name in wanted})
        count = inputs[next(iter(wanted))].shape[0]
        return {name: torch.from_numpy(np.array(value, np.float32))[:count] for name, value in made.items()}

    def _sizes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the inputs."""
        return {name: tuple(self.description.input_descriptor(name).shape) for name in self.description.input_names}

    def _fitted(self, name: str, value: Tensor, wanted: Any) -> Tensor:
        shape = tuple(wanted.shape)
        if value.ndim == 0 or (value.shape[0] == 1 and shape[0] != 1):
            value = value.expand(shape[0], *value.shape[1:])
        if tuple(value.shape) != shape:
            raise BundleError(
                f"the input {name} of {self.role} is {' x '.join(map(str, shape))}, and the pipeline gives "
                f"{' x '.join(map(str, value.shape))}; convert the pipeline again"
            )
        return value.to(getattr(torch, wanted.dtype.lower())).contiguous()


class StandIn(nn.Module):
    """What pipelines ask models about.

    Args:
        config: the model's configuration.
    """

    def __init__(self, config: Any):
        nn.Module.__init__(self)  # not that of a model of diffusers, beside which a subclass names this one
        self.config = config
        self.dtype, self.device = torch.float32, torch.device("cpu")

    def __getattr__(self, name: str) -> Any:
        """What a model keeps of its configuration."""
        if name != "config" and name in (config := vars(self)["config"]):
            return config[name]
        return super().__getattr__(name)


@dataclass(frozen=True)
class Encoded:
    """What a text encoder gives: the first result, some hidden states by their layer, the vector of the text."""

    first: Tensor
    hidden_states: Mapping[int, Tensor] = field(default_factory=dict)
    pooler_output: Tensor | None = None

    def __getitem__(self, place: int) -> Tensor:
        return (self.first,)[place]

    @property
    def last_hidden_state(self) -> Tensor:
        return self.first


class TextEncoderStandIn(StandIn):
    """A text encoder.

    Args:
        config: the model's configuration.
        function: whose outputs say by their names what they are.
        layers: of the hidden states that the function gives side by side. Such a model is causal: a text is padded to
            the function's length.
        cuts: whether longer texts are cut, because the pipeline drops what is given for their end.
    """

    def __init__(self, config: Any, function: AssetFunction, layers: tuple[int, ...] = (), cuts: bool = False):
        super().__init__(config)
        self.function, self.layers, self.cuts = function, layers, cuts

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, **options: Any) -> Encoded:
        given = {"input_ids": input_ids} if attention_mask is None else locals()
        names = self.function.description.input_names
        inputs = {name: given[name] for name in names}
        length = self.function.description.input_descriptor("input_ids").shape[-1]
        if self.layers and (self.cuts or input_ids.shape[1] <= length):
            inputs = {name: with_rows(value, length) for name, value in inputs.items()}
        made = self.function(**inputs)
        if "hidden_states" in made:
            hidden = made["hidden_states"]
            if lacking := length - hidden.shape[1]:  # an asset gives the first state and the last ones only
                between = hidden.new_zeros(1, lacking, hidden.shape[-1])
                hidden = torch.cat([hidden[:, :1], between, hidden[:, 1:]], 1)
            hidden = with_rows(hidden, input_ids.shape[1])
            return Encoded(hidden, dict(zip(self.layers, hidden.chunk(len(self.layers), -1), strict=True)))
        if "hidden_embeds" in made:
            hidden = made["hidden_embeds"]
            return Encoded(made.get("pooled_outputs", hidden), {-2: hidden})
        first = next(iter(made.values()))
        return Encoded(first, pooler_output=made.get("pooler_output"))


class DenoiserStandIn(StandIn):
    """The model that is called in each step.

    Args:
        config: the model's configuration.
        function: of the asset.
        inputs: those of the function, of the arguments of the model.
        positional: the inputs of the function that come by position.
    """

    def __init__(
        self, config: Any, function: AssetFunction, inputs: Callable[[Mapping[str, Any], Any], Mapping[str, Any]],
        positional: Sequence[str],
    ):  # fmt: skip
        super().__init__(config)
        self.function, self.inputs, self.positional = function, inputs, tuple(positional)
        width = getattr(config, "projection_class_embeddings_input_dim", None)
        self.add_embedding = SimpleNamespace(linear_1=SimpleNamespace(in_features=width))  # a pipeline asks

    def forward(self, *values: Any, **arguments: Any) -> tuple[Any]:
        given = {**dict(zip(self.positional, values, strict=False)), **arguments}
        for name, inner in arguments.items():
            if isinstance(inner, dict):  # a pipeline has dictionaries of tensors
                given |= {f"{name}.{key}": value for key, value in inner.items()}
        (made,) = self.function(**self.inputs(given, self.config)).values()
        return (made,)

    @contextmanager
    def cache_context(self, name: str, **options: Any) -> Iterator[None]:
        """Where a pipeline would keep what is equal in two steps; an asset keeps nothing."""
        yield


class ListDenoiser(DenoiserStandIn):
    """A denoiser that takes lists, of images (channels, 1, height, width) and of texts (length, width)."""

    def forward(self, *values: Any, **arguments: Any) -> tuple[Any]:
        images, times, texts = values
        made = [
            super(ListDenoiser, self).forward(image[None, :, 0], time[None], words[None])[0][0, :, None]
            for image, time, words in zip(images, times, texts, strict=True)
        ]
        return (made,)


def control_net(config: Any) -> StandIn:
    """A stand-in for a ControlNet: it passes the image and its weight on to the denoiser, whose asset contains the
    ControlNet.

    Args:
        config: of the ControlNet.
    """
    from diffusers import ControlNetModel

    class ControlNet(StandIn, ControlNetModel):  # type: ignore[misc]
        """Pipelines ask for the class."""

        config: Any = None  # properties of a model of diffusers otherwise
        dtype: Any = None
        device: Any = None

        def forward(
            self, *values: Any, controlnet_cond: Tensor, conditioning_scale: float, **options: Any
        ) -> tuple[tuple[Tensor, Tensor], None]:
            return (controlnet_cond, torch.tensor([conditioning_scale])), None

    return ControlNet(config)


class ProjectionsStandIn(StandIn):
    """Stable Audio's projections of texts and of seconds; a pipeline asks for the two at different times.

    Args:
        config: the model's configuration.
        function: of the asset, for one text.
    """

    def __init__(self, config: Any, function: AssetFunction):
        super().__init__(config)
        self.function = function

    def forward(
        self, text_hidden_states: Tensor | None = None, start_seconds: Tensor | None = None,
        end_seconds: Tensor | None = None,
    ) -> SimpleNamespace:  # fmt: skip
        shape = self.function.description.input_descriptor("text_hidden_states").shape
        words = torch.zeros(*shape) if text_hidden_states is None else text_hidden_states
        start, end = (torch.zeros(1) if each is None else each for each in (start_seconds, end_seconds))
        made = [self.function(text_hidden_states=row[None], start_seconds=start, end_seconds=end) for row in words]
        found = {name: torch.cat([each[name] for each in made]) for name in made[0]}
        return SimpleNamespace(
            text_hidden_states=found["text"], seconds_start_hidden_states=found["seconds_start"],
            seconds_end_hidden_states=found["seconds_end"],
        )  # fmt: skip


class Decoded(NamedTuple):
    """What a decoder gives."""

    sample: Tensor


class Autoencoder(StandIn):
    """The half of an autoencoder that makes the image, video or sound.

    Args:
        config: the model's configuration.
        function: of the decoder, for the whole image or for tiles of it.
        statistics: of the latents, where the pipeline scales by them.
        ratios: what a model of diffusers computes of its configuration.
        encoder: the function of the encoder, which gives the mean of latents.
    """

    def __init__(
        self, config: Any, function: AssetFunction, statistics: Mapping[str, Tensor], ratios: Mapping[str, int],
        encoder: AssetFunction | None = None,
    ):  # fmt: skip
        super().__init__(config)
        self.function, self.encoder = function, encoder
        self.bn = SimpleNamespace(**statistics)
        for name, value in {**statistics, **ratios}.items():
            setattr(self, name, value)

    def encode(self, image: Tensor) -> SimpleNamespace:
        """The latents of an image, which a pipeline takes as the mode of their distribution."""
        if self.encoder is None:
            raise BundleError("the bundle has no encoder of images; convert the pipeline again")
        (latents,) = self.encoder(image=image).values()
        return SimpleNamespace(latent_dist=SimpleNamespace(mode=lambda: latents))

    def decode(self, z: Tensor, timestep: Tensor | None = None, **options: Any) -> Decoded:
        """The image of latents, (1, channels, height, width), from -1 to 1; or the video or sound of others."""
        name, *others = self.function.description.input_names
        wanted = self.function.description.input_descriptor(name).shape
        if len(wanted) != 4:
            return Decoded(*self.function(**{name: z}, **dict.fromkeys(others, timestep)).values())
        if z.ndim == 5:  # an image of an autoencoder for videos
            return Decoded(self.decode(z[:, :, 0]).sample[:, :, None])
        tile = wanted[-1]

        def decode(part: Tensor) -> Tensor:
            (image,) = self.function(**{name: part}).values()
            return image

        return Decoded(decoded_in_tiles(z, tile, decode))
