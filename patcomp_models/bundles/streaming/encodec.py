"""EnCodec (Défossez et al. 2022, arXiv:2210.13438) in chunks: causal convolutions around an LSTM.

codes = encode(audio)
audio = decode(codes)
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from math import log2
from typing import Any

import torch
from torch import Tensor, nn

from patcomp.frontend_torch.exporting.over_time import RecurrentNetworks
from patcomp_models.bundles.streaming.contexts import (
    REFLECTED,
    REPEATED,
    ZEROS,
    Contexts,
    causal_convolutions,
    convolutions_with,
)
from patcomp_models.bundles.streaming.contract import LSTM_CELL, LSTM_HIDDEN, POSITION
from patcomp_models.bundles.streaming.streamed import Streamed
from patcomp_models.tasks.entries import Entry
from patcomp_models.tasks.replacing import replaced


class OfEncodec(Streamed):
    """Half of EnCodec.

    Args:
        model: `EncodecModel`.
        half: `"encoder"` or `"decoder"`.
        frames: how many frames a chunk has.
    """

    def __init__(self, model: Any, half: str, frames: int):
        super().__init__(half, None)
        self.model, self.frames = model, frames
        self.convolutions = causal_convolutions(getattr(model, half), (ZEROS, REPEATED, REFLECTED))
        (self.lstm,) = (each for each in getattr(model, half).modules() if isinstance(each, nn.LSTM))

    @abstractmethod
    def coded(self, chunk: Tensor) -> Tensor:
        """What transformers computes."""

    def computed(self, inputs: tuple[Tensor, ...], contexts: Contexts, past: Any) -> Tensor:
        """The result for a chunk; `past` are the states of the LSTM, which are written, or None for zeros."""

        def continued(sequence: Tensor) -> Any:
            with RecurrentNetworks(every=True):
                made, after = nn.LSTM.forward(self.lstm, sequence, past)
            for held, new in zip(past or (), after, strict=False):
                held.copy_(new)
            return made, after

        with convolutions_with(contexts, self.convolutions), replaced(vars(self.lstm), forward=continued):
            return self.coded(inputs[0])

    def forward(self, *tensors: Tensor) -> Tensor:
        """The result; the states are written.

        Args:
            tensors: a chunk; the contexts of the convolutions, (size,); the states of the LSTM, (layers, 1, size) each;
                and how many frames were before, (1,).
        """
        chunk, held, hidden, cell, position = tensors
        contexts = Contexts(held, self.shapes, position == 0)
        made = self.computed((chunk,), contexts, (hidden, cell))
        contexts.write()
        position.add_(self.frames)
        return made

    def entry(self, name: str, inputs: Mapping[str, Tensor], output: str) -> Entry:
        made = super().entry(name, inputs, output)
        zeros = torch.zeros(self.lstm.num_layers, 1, self.lstm.hidden_size, dtype=self.model.dtype)
        more = {LSTM_HIDDEN: zeros, LSTM_CELL: zeros.clone(), POSITION: torch.zeros(1, dtype=torch.int32)}
        named = {f"{self.prefix}{end}": value for end, value in more.items()}
        return replace(made, inputs={**made.inputs, **named}, states=(*made.states, *named))


class StreamingEncodecEncode(OfEncodec):
    """Samples, (1, channels, samples), to the codes of their frames, (1, codebooks, frames), int32."""

    def __init__(self, model: Any, frames: int, codebooks: int):
        super().__init__(model, "encoder", frames)
        # transformers counts codebooks in bits of a second, and rounds down
        self.bandwidth = (codebooks + 0.5) * log2(model.config.codebook_size) * model.config.frame_rate / 1000

    def coded(self, chunk: Tensor) -> Tensor:
        codes: Tensor = self.model.quantizer.encode(self.model.encoder(chunk), self.bandwidth)
        return codes.transpose(0, 1).int()


class StreamingEncodecDecode(OfEncodec):
    """Codes, (1, codebooks, frames), to the samples of their frames, (1, channels, samples)."""

    def __init__(self, model: Any, frames: int):
        super().__init__(model, "decoder", frames)

    def coded(self, chunk: Tensor) -> Tensor:
        made: Tensor = self.model.decode(chunk[None], [None]).audio_values
        return made


def encodec_functions(model: Any, frames: int, codebooks: int) -> tuple[Streamed, Streamed]:
    """The two functions of EnCodec."""
    return StreamingEncodecEncode(model, frames, codebooks), StreamingEncodecDecode(model, frames)
