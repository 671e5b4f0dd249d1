"""What Apple's Swift package asks of the asset of a segmenter of videos.

Read in VideoSegmentationEngine.swift, e9371cf; MemoryBankPacker.swift, bc2b18d; VideoSegmentationBundle.swift, 251056c,
of https://github.com/apple/coreai-models.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from patcomp.errors import Problem
from patcomp_models.bundle_folders.contract import FLOATS, Interface, InterfaceSizes, problem
from patcomp_models.bundle_folders.interfaces import Function

_LEVELS = ("vision_feat_0", "vision_feat_1", "vision_feat_2")
_POSITIONS = ("vision_pos_0", "vision_pos_1", "vision_pos_2")
_MEMORY = ("spatial_memory", "spatial_memory_pos", "spatial_tpos_idx", "spatial_valid", "object_pointers", "ptr_tpos",
           "ptr_valid")  # fmt: skip
VIDEO_FUNCTIONS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "image_encode": (("pixel_values",), ("last_hidden_state",)),
    "text_encode": (("input_ids", "attention_mask"), ("text_features",)),
    "detect": (("last_hidden_state", "text_features", "attention_mask"),
               ("pred_masks", "pred_boxes", "pred_logits", "presence_logits", "semantic_seg")),
    "tracker_encode": (("last_hidden_state",), (*_LEVELS, *_POSITIONS)),
    "tracker_step": ((*_LEVELS, _POSITIONS[2], *_MEMORY),
                     ("pred_masks", "high_res_masks", "object_pointer", "object_score_logits")),
    "memory_encode": (("vision_feat_2", "mask_logits", "object_score_logits", "binarize_mask"),
                      ("maskmem_features", "maskmem_pos_enc")),
    "tracker_mask_init": ((*_LEVELS, "mask_input"), ("object_pointer",)),
}  # fmt: skip
"""The functions, with the names of their inputs and outputs. Swift calls all of them."""
_UNREAD = ("semantic_seg", *_POSITIONS[:2])
"""Outputs that Swift does not ask for."""
_HELD = ("float16",)
"""The type of what the host keeps between frames, and copies as float16."""
MEMORIES = {"num_maskmem": 7, "max_cond_frame_num": 4}
"""The memories that Swift keeps of an object, where `tracking` does not say it."""


def video_problems(found: Mapping[str, Function], metadata: Mapping[str, Any]) -> list[Problem]:
    """What Swift would refuse or misread of a segmenter of videos.

    Args:
        found: the functions of its asset, by name.
        metadata: its `metadata.json`, whose blocks `runtime` and `tracking` are right.
    """
    if absent := [name for name in VIDEO_FUNCTIONS if name not in found]:
        return [
            problem(f"the asset has no function {name}; Swift calls {', '.join(VIDEO_FUNCTIONS)}") for name in absent
        ]
    given = {name: _read(found[name]) for name in VIDEO_FUNCTIONS}
    wanted = _interfaces(given, metadata["runtime"])
    wrong = [each for name, form in wanted.items() for each in form.problems(name, given[name])]
    tracking = {**MEMORIES, **(metadata.get("tracking") or {})}
    needed = tracking["max_cond_frame_num"] + tracking["num_maskmem"] - 1
    if metadata["runtime"]["spatial_slots"] < needed:
        wrong.append(
            problem(
                f"runtime.spatial_slots is {metadata['runtime']['spatial_slots']}, and the memories of tracking are up "
                f"to {needed}",
                "convert the model again with a larger memories=",
            )
        )
    return wrong


def _read(function: Function) -> Function:
    """A function with the outputs that Swift asks for."""
    outputs = {name: tensor for name, tensor in function.outputs.items() if name not in _UNREAD}
    return Function(function.inputs, outputs, function.states)


def _interfaces(found: Mapping[str, Function], runtime: Mapping[str, int]) -> Mapping[str, Interface]:
    """What each function takes and gives, for the sizes of the asset and of `runtime`."""
    side, length = runtime["image_size"], runtime["max_text_seq_len"]
    places, pointers = runtime["spatial_slots"], runtime["ptr_slots"]
    queries, mask = _sizes(found, "detect", "pred_masks", 4)[1:3]
    count, width = _sizes(found, "memory_encode", "maskmem_features", 3)[::2]
    memory_mask = _sizes(found, "memory_encode", "mask_logits", 4)[2]
    large, hidden = _sizes(found, "tracker_step", "high_res_masks", 4)[2], _sizes(
        found, "tracker_step", "object_pointers", 3)[2]  # fmt: skip
    texts, score = ((1, length), ("int32",)), ((1, 1, 1), FLOATS)
    patches, words = (_handed(found, *each) for each in (
        ("image_encode", "last_hidden_state", 3), ("text_encode", "text_features", 3)))  # fmt: skip
    features = {name: _handed(found, "tracker_encode", name, 3) for name in (*_LEVELS, _POSITIONS[2])}
    levels = {name: features[name] for name in _LEVELS}
    masks, memory = ((1, 1, mask, mask), FLOATS), ((count, 1, width), _HELD)
    pointer = ((1, 1, hidden), _HELD)
    return {
        "image_encode": Interface({"pixel_values": ((1, 3, side, side), FLOATS)},
                                  {"last_hidden_state": ((1, "*", "*"), FLOATS)}),
        "text_encode": Interface({"input_ids": texts, "attention_mask": texts},
                                 {"text_features": ((1, length, "*"), FLOATS)}),
        "detect": Interface(
            {"last_hidden_state": patches, "text_features": words, "attention_mask": texts},
            {"pred_masks": ((1, queries, mask, mask), FLOATS), "pred_boxes": ((1, queries, 4), FLOATS),
             "pred_logits": ((1, queries), FLOATS), "presence_logits": ((1, 1), FLOATS)},
        ),
        "tracker_encode": Interface({"last_hidden_state": patches},
                                    dict.fromkeys(features, (("*", 1, "*"), FLOATS))),
        "tracker_step": Interface(
            {**features, "spatial_memory": ((places, count, 1, width), _HELD),
             "spatial_memory_pos": ((places, count, 1, width), _HELD), "spatial_tpos_idx": ((places,), ("int32",)),
             "spatial_valid": ((places,), FLOATS), "object_pointers": ((pointers, 1, hidden), _HELD),
             "ptr_tpos": ((pointers,), FLOATS), "ptr_valid": ((pointers,), FLOATS)},
            {"pred_masks": masks, "high_res_masks": ((1, 1, large, large), FLOATS), "object_pointer": pointer,
             "object_score_logits": score},
        ),
        "memory_encode": Interface(
            {"vision_feat_2": levels["vision_feat_2"], "mask_logits": ((1, 1, memory_mask, memory_mask), FLOATS),
             "object_score_logits": score, "binarize_mask": ((), FLOATS)},
            {"maskmem_features": memory, "maskmem_pos_enc": memory},
        ),
        "tracker_mask_init": Interface({**levels, "mask_input": masks}, {"object_pointer": pointer}),
    }  # fmt: skip


def _sizes(found: Mapping[str, Function], function: str, name: str, rank: int) -> list[int | None]:
    """The shape of a value, as long as its rank should be; zeros where there is no such value."""
    tensor = {**found[function].inputs, **found[function].outputs}.get(name)
    return [*(tensor.shape if tensor else ()), *[0] * rank][:rank]


def _handed(found: Mapping[str, Function], function: str, name: str, rank: int) -> tuple[InterfaceSizes, Any]:
    """What another function must take of the output of a function, which Swift hands on as it is."""
    tensor = found[function].outputs.get(name)
    return ((0,) * rank, FLOATS) if tensor is None else (tensor.shape, (tensor.dtype,))
