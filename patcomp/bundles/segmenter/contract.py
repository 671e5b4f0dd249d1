"""What Apple's Swift package asks of a segmenter's asset and tokenizer."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from pathlib import Path

from patcomp.bundle_folders.contract import FLOATS, Interface, problem
from patcomp.bundle_folders.interfaces import Function
from patcomp.errors import Problem

TEXT_OUTPUTS = ("pred_masks", "pred_boxes", "pred_logits", "presence_logits", "semantic_seg")
POINT_INPUTS = ("batched_images", "batched_points", "batched_point_labels")
POINT_OUTPUTS = ("pred_masks", "iou_scores")
_Parts = dict[str, Callable[[str], bool]]
"""How Swift finds values: by parts of their names."""
_TEXT_IN: _Parts = {
    "pixel_values": lambda name: "pixel" in name or "image" in name,
    "input_ids": lambda name: "feat" not in name and any(part in name for part in ("input_id", "token", "text")),
}
_TEXT_OUT: _Parts = {
    "pred_masks": lambda name: "mask" in name,
    "pred_boxes": lambda name: "box" in name,
    "pred_logits": lambda name: "logit" in name and "presence" not in name,
    "presence_logits": lambda name: "presence" in name,
    "semantic_seg": lambda name: "semantic" in name,
}
_POINTS_IN: _Parts = {
    "batched_images": lambda name: "image" in name or "pixel" in name,
    "batched_points": lambda name: "point" in name and "label" not in name,
    "batched_point_labels": lambda name: "point" in name and "label" in name,
}
_POINTS_OUT: _Parts = {
    "pred_masks": lambda name: "mask" in name,
    "iou_scores": lambda name: "iou" in name or "score" in name,
}


def asset_problems(found: Function) -> list[Problem]:
    """What Swift would refuse of the function of a segmenter.

    Args:
        found: its description.
    """
    of_points = any("point" in name for name in found.inputs)
    ins, outs = (_POINTS_IN, _POINTS_OUT) if of_points else (_TEXT_IN, _TEXT_OUT)
    given, lacking = _names(found.inputs, ins, "input")
    made, lost = _names(found.outputs, outs, "output")
    if lacking or lost:
        return lacking + lost
    return _shapes(found, given, made, of_points)


def _names(names: Collection[str], parts: _Parts, what: str) -> tuple[dict[str, str], list[Problem]]:
    """The name of each value that Swift looks for, and what it would not find."""
    found = {role: [name for name in names if fits(name)] for role, fits in parts.items()}
    others = [name for name in names if not any(name in each for each in found.values())]
    wrong = [
        problem(f"the {what} {role} of main is {'missing' if not each else 'one of ' + ', '.join(each)}; Swift finds "
                f"it by its name, and the {what}s are {', '.join(names) or 'none'}")
        for role, each in found.items() if len(each) != 1
    ]  # fmt: skip
    wrong += [problem(f"main has the {what} {name}, which Swift does not know") for name in others]
    return {role: each[0] for role, each in found.items() if each}, wrong


def _shapes(found: Function, given: dict[str, str], made: dict[str, str], of_points: bool) -> list[Problem]:
    def sizes(name: str, rank: int, output: bool = False) -> list[int | None]:
        shape = (found.outputs if output else found.inputs)[name].shape
        return [*shape, *[0] * rank][:rank]

    if of_points:
        height, width = sizes(given["batched_images"], 4)[2:]
        batch, queries, count, _ = sizes(given["batched_points"], 4)
        choices = sizes(made["iou_scores"], 3, output=True)[2]
        wanted = Interface(
            {given["batched_images"]: ((batch, 3, height, width), FLOATS),
             given["batched_points"]: ((batch, queries, count, 2), FLOATS),
             given["batched_point_labels"]: ((batch, queries, count), FLOATS)},
            {made["pred_masks"]: ((batch, queries, choices, "*", "*"), FLOATS),
             made["iou_scores"]: ((batch, queries, choices), FLOATS)},
        )  # fmt: skip
    else:
        side = sizes(given["pixel_values"], 4)[2]
        queries, height, width = sizes(made["pred_masks"], 4, output=True)[1:]
        wanted = Interface(
            {given["pixel_values"]: ((1, 3, side, side), FLOATS), given["input_ids"]: ((1, "*"), ("int32",))},
            {made["pred_masks"]: ((1, queries, height, width), FLOATS),
             made["pred_boxes"]: ((1, queries, 4), FLOATS), made["pred_logits"]: ((1, queries), FLOATS),
             made["presence_logits"]: ((1, 1), FLOATS), made["semantic_seg"]: ((1, 1, height, width), FLOATS)},
        )  # fmt: skip
    return wanted.problems("main", found)


def tokenizer_problems(bundle: Path) -> list[Problem]:
    """What Swift's tokenizer of CLIP would refuse of `tokenizer/tokenizer.json`."""
    file = bundle / "tokenizer" / "tokenizer.json"
    if not file.is_file():
        return [problem("there is no tokenizer/tokenizer.json, which Swift reads for texts")]
    try:
        model = json.loads(file.read_text(encoding="utf-8"))["model"]
        vocabulary, merges = model["vocab"], model["merges"]
    except (ValueError, LookupError, TypeError):
        return [problem("tokenizer/tokenizer.json has no model with vocab and merges")]
    if not isinstance(vocabulary, dict) or not vocabulary:
        return [problem("vocab of tokenizer/tokenizer.json is no object of words and numbers")]
    if not isinstance(merges, list) or not all(isinstance(each, list) and len(each) == 2 for each in merges):
        return [problem("merges of tokenizer/tokenizer.json are not all pairs")]
    return []
