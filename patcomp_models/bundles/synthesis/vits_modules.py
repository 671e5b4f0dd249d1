"""VITS of transformers as two functions of tensors alone, with the noise as inputs.

    durations = durations(input_ids, duration_noise)
    waveform = main(input_ids, durations, noise)    # noise for as many frames as the durations have in all

The number of frames depends on the first result, so it is a size of the second function's input.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers.models.vits import modeling_vits

from patcomp_models.tasks.replacing import replaced

_SPLINE, _INNER = "_unconstrained_rational_quadratic_spline", "_rational_quadratic_spline"
_CHECK = "torch_compilable_check"
"""Of the numbers inside, which is not a part of a program."""


@contextmanager
def splines_without_selections() -> Iterator[None]:
    """Compute the splines of all numbers, and take those inside of the interval.

    The code of transformers selects the numbers inside, which makes sizes that depend on data.
    """
    names = vars(modeling_vits)
    inner = names[_INNER]

    def spline(inputs: Tensor, *parts: Tensor, reverse: bool = False, tail_bound: float = 5.0, **least: Any) -> Any:
        widths, heights, derivatives = parts
        least = {"min_bin_width": 1e-3, "min_bin_height": 1e-3, "min_derivative": 1e-3, **least}
        constant = torch.tensor(1 - least["min_derivative"]).double().exp().sub(1).log().item()
        edge = torch.full_like(derivatives[..., :1], constant)
        made, _ = inner(
            inputs=inputs.clamp(-tail_bound, tail_bound), unnormalized_widths=widths, unnormalized_heights=heights,
            unnormalized_derivatives=torch.cat([edge, derivatives, edge], -1), reverse=reverse, tail_bound=tail_bound,
            **least,
        )  # fmt: skip
        return torch.where(inputs.abs() <= tail_bound, made, inputs), torch.zeros_like(inputs)

    with replaced(names, **{_SPLINE: spline, _CHECK: lambda *given, **options: None}):
        yield


class _Part(nn.Module):
    """What both functions need."""

    def __init__(self, model: Any):
        super().__init__()
        self.model = model

    def _read(self, input_ids: Tensor, speaker_id: Tensor | None) -> tuple[Any, Tensor, Tensor | None]:
        """The result of the text encoder, the mask of its tokens, and the embedding of a speaker."""
        mask = torch.ones(1, input_ids.shape[1], 1, dtype=self.model.dtype)
        speaker = None if speaker_id is None else self.model.embed_speaker(speaker_id).unsqueeze(-1)
        return self.model.text_encoder(input_ids=input_ids, padding_mask=mask), mask.transpose(1, 2), speaker


class VitsDurations(_Part):
    """The number of frames of each token, of a model that computes it."""

    def forward(self, input_ids: Tensor, speaker_id: Tensor | None = None) -> Tensor:
        """(1, tokens).

        Args:
            input_ids: (1, tokens).
            speaker_id: (1,), if the model has several speakers.
        """
        read, mask, speaker = self._read(input_ids, speaker_id)
        return self._frames(self.model.duration_predictor(read.last_hidden_state.transpose(1, 2), mask, speaker))

    def _frames(self, logarithms: Tensor) -> Tensor:
        return torch.ceil(logarithms.exp() * (1.0 / self.model.speaking_rate)).squeeze(1)


class DrawnDurations(VitsDurations):
    """The number of frames of each token, of a model that draws it: as its predictor, with given noise."""

    def forward(self, input_ids: Tensor, duration_noise: Tensor, speaker_id: Tensor | None = None) -> Tensor:  # type: ignore[override]
        """(1, tokens).

        Args:
            input_ids: (1, tokens).
            duration_noise: (1, 2, tokens), of the normal distribution.
            speaker_id: (1,), if the model has several speakers.
        """
        read, mask, speaker = self._read(input_ids, speaker_id)
        predictor = self.model.duration_predictor
        given = predictor.conv_pre(read.last_hidden_state.transpose(1, 2))
        if speaker is not None:
            given = given + predictor.cond(speaker)
        given = predictor.conv_proj(predictor.conv_dds(given, mask)) * mask
        last, *flows = reversed(predictor.flows)
        latents = duration_noise * self.model.noise_scale_duration
        with splines_without_selections():
            for flow in (last, *flows[:-2], flows[-1]):
                latents = flow(latents.flip(1), mask, global_conditioning=given, reverse=True)[0]
        return self._frames(latents.narrow(1, 0, 1))


class VitsSpeech(_Part):
    """The samples of a text."""

    def forward(
        self, input_ids: Tensor, durations: Tensor, noise: Tensor, speaker_id: Tensor | None = None
    ) -> Tensor:  # fmt: skip
        """(1, samples).

        Args:
            input_ids: (1, tokens).
            durations: (1, tokens), whole numbers.
            noise: (1, channels, frames), of the normal distribution; the frames are the sum of the durations.
            speaker_id: (1,), if the model has several speakers.
        """
        read, _, speaker = self._read(input_ids, speaker_id)
        ends = durations.cumsum(1).unsqueeze(1)
        places = torch.arange(noise.shape[2], dtype=durations.dtype)[None, :, None]
        of_token = ((places < ends) & (places >= ends - durations.unsqueeze(1))).to(noise.dtype)
        means = (of_token @ read.prior_means).transpose(1, 2)
        deviations = (of_token @ read.prior_log_variances).transpose(1, 2).exp()
        mask = torch.ones_like(noise.narrow(1, 0, 1))
        latents = self.model.flow(means + noise * deviations * self.model.noise_scale, mask, speaker, reverse=True)
        samples: Tensor = self.model.decoder(latents, speaker).squeeze(1)
        return samples
