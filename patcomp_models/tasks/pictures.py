"""Models of images and videos whose functions differ from their own outputs or inputs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from patcomp.errors import PatcompError
from patcomp_models.tasks.entries import Entry, Outputs, whole_entries


def detection(model: Any, folder: Path) -> list[Entry]:
    """A detector: its outputs are those that Apple's Swift package finds, classes and a box for each query."""
    (entry,) = whole_entries(model, folder)
    names = ("logits", "pred_boxes")
    if lacking := [name for name in names if name not in entry.outputs]:
        raise PatcompError(f"{type(model).__name__} has no output {lacking[0]}, and is no detector by queries")
    return [replace(entry, module=type(entry.module)(model, names), outputs=names)]


class Videos(Outputs):
    """A model that takes videos."""

    def forward(self, pixel_values: Tensor) -> tuple[Tensor, ...]:
        return self.chosen(**{str(self.model.main_input_name): pixel_values})


def video(model: Any, folder: Path) -> list[Entry]:
    """A model of videos: frames of one video (1, frames, channels, height, width)."""
    config = model.config
    frames = getattr(config, "num_frames", None) or getattr(config, "frames_per_clip", None)
    size = getattr(config, "image_size", None) or getattr(config, "crop_size", None)
    if frames is None or size is None:
        raise PatcompError(f"the configuration of {type(model).__name__} names no number of frames or no size of them")
    height, width = size if isinstance(size, list | tuple) else (size, size)
    shape = (1, frames, getattr(config, "num_channels", 3), height, width)
    pixels = torch.linspace(-1, 1, shape[1] * shape[2] * height * width).reshape(shape).to(model.dtype)
    return [Entry("main", Videos(model, ("logits",)), {"pixel_values": pixels}, ("logits",))]
