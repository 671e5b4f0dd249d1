"""Heads of models of texts, sounds, and images with texts, whose inputs are more than one text or image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.export import Dim

from patcomp.errors import PatcompError
from patcomp_models.tasks.entries import Entry, Outputs, image, text_entries, text_inputs, texts, with_all_outputs

_CHOICES = 16
"""The most choices of one question."""
_SAMPLES = 2**21
"""The most samples of one sound: two minutes at 16 kHz."""
_FRAMES = 2**13
"""The most frames of one spectrum: more than two minutes in steps of 20 ms."""


def pairs(model: Any, folder: Path) -> list[Entry]:
    """A model that takes a question and a text, or two sentences, with the types of their tokens where it has such."""
    return text_entries(model, folder, pairs=True)


def choices(model: Any, folder: Path) -> list[Entry]:
    """A model that takes a text for each of several choices, (1, choices, length)."""
    wrapper, inputs, open_sizes = text_inputs(model, folder, pairs=True)
    several = {name: torch.stack([value, value.flip(1)], 1) for name, value in inputs.items()}
    number = Dim("choices", min=2, max=_CHOICES)
    sizes = {name: {1: number, 2: open_sizes[name][1]} for name in several}
    return [with_all_outputs(model, wrapper, several, sizes)]


class Sounds(Outputs):
    """A model that takes samples, or a spectrum."""

    def forward(self, sound: Tensor) -> tuple[Tensor, ...]:
        return self.chosen(**{str(self.model.main_input_name): sound})


def sounds(model: Any, folder: Path) -> list[Entry]:
    """A model that takes samples of any number, (1, samples), or a spectrum of the size that its folder says."""
    name, config = str(model.main_input_name), model.config
    if name == "input_values" and hasattr(config, "conv_kernel"):
        sizes: dict[str, dict[int, Any]] = {name: {1: Dim("samples", min=_least(config), max=_SAMPLES)}}
        shape: tuple[int, ...] = (1, _least(config) * 8)
    elif name == "input_features" and hasattr(config, "feature_projection_input_dim"):  # of Wav2Vec2-BERT
        sizes, shape = {name: {1: Dim("frames", min=2, max=_FRAMES)}}, (1, 32, config.feature_projection_input_dim)
    elif hasattr(config, "num_mel_bins") and hasattr(config, "max_source_positions"):
        sizes, shape = {}, (1, config.num_mel_bins, 2 * config.max_source_positions)
    elif hasattr(config, "num_mel_bins") and hasattr(config, "max_length"):
        sizes, shape = {}, (1, config.max_length, config.num_mel_bins)
    else:
        raise PatcompError(
            f"{type(model).__name__} takes {name}, and its configuration does not say their size; export it by "
            "FILE.py:FUNCTION"
        )
    sound = torch.sin(torch.arange(torch.Size(shape).numel()) * 0.3).reshape(shape).to(model.dtype)
    return [with_all_outputs(model, Sounds, {name: sound}, sizes)]


def _least(config: Any) -> int:
    """The samples of which the convolutions make two frames."""
    length = 2
    for kernel, stride in zip(reversed(config.conv_kernel), reversed(config.conv_stride), strict=True):
        length = (length - 1) * stride + kernel
    return length


class NamedObjects(Outputs):
    """A model that takes an image, and a text for each kind of object."""

    def forward(self, pixel_values: Tensor, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, ...]:
        return self.chosen(pixel_values=pixel_values, input_ids=input_ids, attention_mask=attention_mask)


def named_objects(model: Any, folder: Path) -> list[Entry]:
    """OWL-ViT and OWLv2: `input_ids` (kinds, length) of the names of kinds; their number and length are fixed."""
    config = model.config.text_config
    words = {
        name: value.expand(2, -1).contiguous() for name, value in texts(model, config.max_position_embeddings).items()
    }
    inputs = {"pixel_values": image(model, folder), **words}
    kinds = Dim("kinds", min=1, max=512)
    names = ("logits", "pred_boxes")
    sizes = {name: {0: kinds} for name in words}
    return [Entry("main", NamedObjects(model, names), inputs, names, sizes)]
