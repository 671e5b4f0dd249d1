"""Nemotron's streaming Sortformer: who speaks in each frame of a chunk, with the frames that it keeps as states.

The model sees three parts one behind the other: kept frames of each speaker, a queue of the latest frames, and the
chunk. How many there are depends on the number of chunks before. In a program all parts have their largest size:
frames are moved so that those that count are together in front.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.models.nemotron3_diarization import modeling_nemotron3_diarization as modeling

from patcomp_models.tasks.entries import Entry

_STATES = ("speakerFrames", "speakerProbabilities", "queue", "counts")
"""The kept frames, (1, kept, width), and what was thought of them, (1, kept, speakers); the queue, (1, frames, width);
how many frames are kept, how many are in the queue, and whether kept frames were chosen by their scores, (3,)."""


class Diarize(nn.Module):
    """The activity of speakers in a chunk.

    Args:
        model: `Nemotron3DiarizationForAudioFrameClassification`.
        chunk: how many frames of the encoder a chunk has.
        lookahead: how many later frames it also sees.
    """

    def __init__(self, model: Any, chunk: int, lookahead: int):
        super().__init__()
        self.model, self.chunk, self.lookahead = model, chunk, lookahead
        self.policy = modeling.Nemotron3DiarizationSpeakerCache(model.config.streaming_config)

    def forward(self, input_features: Tensor, kept: Tensor, thought: Tensor, queue: Tensor, counts: Tensor) -> Tensor:
        """The logits, (1, mel frames of the chunk, speakers); the states are written.

        Args:
            input_features: the spectrum of the chunk and of what is behind it, (1, mel frames, bins).
            kept, thought, queue, counts: as in `_STATES`.
        """
        own, queued, was_chosen = (counts.narrow(0, place, 1) for place in range(3))
        new = self.model.model.audio_tower.embedder(input_features)
        places = torch.arange(kept.shape[1] + queue.shape[1] + new.shape[1], dtype=torch.int32)
        behind = kept.shape[1] - own, kept.shape[1] + queue.shape[1] - own - queued
        moved = torch.where(places < own, places, places + torch.where(places < own + queued, *behind))
        frames = torch.cat([kept, queue, new], 1)[:, moved.clamp(max=len(places) - 1)]
        logits = self._logits(frames, places, own + queued + new.shape[1])
        factor = self.policy.subsampling_factor
        first = (own + queued) * factor + torch.arange(self.chunk * factor, dtype=torch.int32)
        made = logits[:, first]

        probabilities = functional.avg_pool1d(logits.sigmoid().transpose(1, 2), factor, factor).transpose(1, 2)
        together = queued + self.chunk
        most = max(self.policy.speaker_cache_update_period, self.chunk)
        leaving = (together - self.policy.fifo_length).clamp(min=self.policy.speaker_cache_update_period)
        leaving = torch.where(together <= self.policy.fifo_length, 0, torch.minimum(leaving, together))
        size = kept.shape[1]
        count, known = own + leaving, functional.pad(thought, (0, 0, 0, most))
        is_old = (places < own) & (was_chosen == 1)
        candidates = torch.where(is_old[: size + most, None], known, probabilities[:, : size + most])
        candidates = candidates * (places[: size + most, None] < count)
        chosen, chosen_probabilities = self._chosen(frames[:, : size + most], candidates)
        is_full = count > size
        next_queue = frames[:, (count + torch.arange(queue.shape[1], dtype=torch.int32)).clamp(max=len(places) - 1)]
        kept.copy_(torch.where(is_full, chosen, frames[:, :size]))
        thought.copy_(torch.where(is_full, chosen_probabilities, candidates[:, :size]))
        queue.copy_(next_queue)
        counts.copy_(torch.cat([count.clamp(max=size), together - leaving, was_chosen | is_full.int()]))
        return made

    def _logits(self, frames: Tensor, places: Tensor, count: Tensor) -> Tensor:
        """The logits of all places; those behind the count are nothing."""
        inner, counts = self.model.model, places < count
        hidden = inner.audio_tower(
            inputs_embeds=frames, attention_mask=counts[None], position_ids=places[None]
        ).last_hidden_state  # fmt: skip
        hidden = inner.proj(hidden) * counts[:, None]  # the convolution behind it sees one frame more
        made: Tensor = self.model.classifier(inner.upsampler(hidden))
        return made

    def _chosen(self, frames: Tensor, probabilities: Tensor) -> tuple[Tensor, Tensor]:
        """The frames to keep, by speaker, and their probabilities: as transformers chooses them (Medennikov et al.
        2025, arXiv:2507.18446).

        Args:
            frames: (1, candidates, width).
            probabilities: (1, candidates, speakers), zeros for those that do not count.
        """
        policy, silence = self.policy, self.policy.num_silence_frames
        size, speakers = policy.speaker_cache_length, policy.num_speakers
        yes = probabilities.clamp(min=policy.prediction_score_threshold).log()
        no = (1.0 - probabilities).clamp(min=policy.prediction_score_threshold).log()
        scores = yes - no + no.sum(-1, keepdim=True) - math.log(0.5)
        is_speech = probabilities > 0.5
        scores = scores.masked_fill(~is_speech, -torch.inf)
        is_positive = scores > 0
        is_enough = is_positive.sum(1, keepdim=True) >= policy.min_positive_scores
        scores = scores.masked_fill(~is_positive & is_speech & is_enough, -torch.inf)
        latest = torch.arange(scores.shape[1]) >= size
        scores = scores + latest[:, None] * policy.latest_frames_score_boost
        for count, share in ((policy.num_strong_boosted_frames, 2.0), (policy.num_weak_boosted_frames, 1.0)):
            if count:
                _, best = scores.topk(count, 1)
                scores = scores.scatter_add(1, best, scores.new_full(best.shape, -share * math.log(0.5)))
        scores = functional.pad(scores, (0, 0, 0, silence), value=torch.inf)
        candidates = frames.shape[1]
        flat = scores.transpose(1, 2).reshape(1, -1)
        best_scores, best = flat.topk(size, 1)
        none = (candidates + silence) * speakers
        best, _ = best.masked_fill(best_scores == -torch.inf, none).sort(1)
        chosen = torch.where(best == none, candidates, (best % (candidates + silence)).clamp(max=candidates))[0]
        with_silence = torch.cat([frames, self.model.silence_embeds.to(frames.dtype).view(1, 1, -1)], 1)
        return with_silence[:, chosen], functional.pad(probabilities, (0, 0, 0, 1))[:, chosen]

    def entry(self, name: str) -> Entry:
        """The function to export."""
        config, policy = self.model.config, self.policy
        width, bins = config.audio_config.hidden_size, config.audio_config.num_mel_bins
        count = (self.chunk + self.lookahead) * policy.subsampling_factor
        dtype = self.model.dtype
        states = (
            torch.zeros(1, policy.speaker_cache_length, width, dtype=dtype),
            torch.zeros(1, policy.speaker_cache_length, policy.num_speakers, dtype=dtype),
            torch.zeros(1, policy.fifo_length, width, dtype=dtype), torch.zeros(3, dtype=torch.int32),
        )  # fmt: skip
        spectrum = torch.randn(1, count, bins, generator=torch.Generator().manual_seed(0)).to(dtype)
        inputs = {"input_features": spectrum, **dict(zip(_STATES, states, strict=True))}
        return Entry(name, self, inputs, ("logits",), states=_STATES)
