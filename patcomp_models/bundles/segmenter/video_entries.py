"""The functions of SAM 3 for videos with example inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from patcomp_models.bundles.segmenter import video_modules as made
from patcomp_models.bundles.segmenter.video_contract import VIDEO_FUNCTIONS


def video_modules(model: Any) -> dict[str, nn.Module]:
    """The functions of `Sam3VideoModel`, by name."""
    kinds = (made.FrameEncode, made.WordsEncode, made.DetectInFrame, made.TrackerEncode, made.TrackerStep,
             made.MemoryEncode, made.TrackerMaskInit)  # fmt: skip
    return {name: kind(model).eval() for name, kind in zip(VIDEO_FUNCTIONS, kinds, strict=True)}


def video_inputs(
    model: Any, modules: Mapping[str, nn.Module], length: int, places: int, pointers: int
) -> dict[str, dict[str, Tensor]]:
    """Example inputs of the functions, by function and name: what the functions before it make of noise.

    Args:
        model: `Sam3VideoModel`.
        modules: its functions, as `video_modules` gives them.
        length: of a text, in tokens.
        places: for memories.
        pointers: for pointers to an object.
    """
    draw, tracker, dtype = torch.Generator().manual_seed(0), model.tracker_model, model.dtype
    text, side = model.config.detector_config.text_config, int(model.config.image_size)
    ids = torch.full((1, length), text.eos_token_id, dtype=torch.int32)
    ids[0, : min(4, length - 1)] = torch.tensor([text.bos_token_id, 5, 7, 9]).int()[: length - 1]
    mask_side = 4 * tracker.prompt_encoder.mask_input_size[0]

    def noise(*sizes: int) -> Tensor:
        return torch.randn(*sizes, generator=draw)

    known: dict[str, Tensor] = {
        "pixel_values": noise(1, 3, side, side).to(dtype), "input_ids": ids,
        "attention_mask": (torch.arange(length)[None] < min(5, length)).int(),
        "spatial_memory": noise(places, *_per_place(tracker)).to(made.MEMORY_DTYPE),
        "spatial_memory_pos": noise(places, *_per_place(tracker)).to(made.MEMORY_DTYPE),
        "spatial_tpos_idx": torch.arange(places, dtype=torch.int32) % tracker.num_maskmem,
        "spatial_valid": (torch.arange(places) < max(1, places - 2)).to(dtype),
        "object_pointers": noise(pointers, 1, tracker.hidden_dim).to(made.MEMORY_DTYPE),
        "ptr_tpos": torch.linspace(0, 1, pointers),
        "ptr_valid": (torch.arange(pointers) < max(1, pointers // 2)).to(dtype),
        "mask_logits": noise(1, 1, mask_side, mask_side).to(dtype), "binarize_mask": torch.zeros((), dtype=dtype),
    }  # fmt: skip
    inputs = {}
    with torch.no_grad():
        for name, (given, outputs) in VIDEO_FUNCTIONS.items():
            if "mask_input" in given:
                known["mask_input"] = (known["pred_masks"] > known["pred_masks"].median()).to(dtype)
            inputs[name] = {each: known[each] for each in given}
            found = modules[name](*inputs[name].values())
            known |= zip(outputs, found if isinstance(found, tuple) else (found,), strict=True)
    return inputs


def _per_place(tracker: Any) -> tuple[int, int, int]:
    """The sizes of a memory."""
    height, width = tracker.backbone_feature_sizes[-1]
    return height * width, 1, tracker.mem_dim
