"""What Apple's Swift package asks of a segmenter's asset and tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from patcomp.errors import AssetError, Problem
from patcomp_models.bundle_folders.contract import FLOATS, Interface, InterfaceSizes, problem
from patcomp_models.bundle_folders.interfaces import Function, Interfaces, Tensor
from patcomp_models.checkpoints.untrusted import object_in

TEXT_OUTPUTS = ("pred_masks", "pred_boxes", "pred_logits", "presence_logits", "semantic_seg")
POINT_INPUTS = ("batched_images", "batched_points", "batched_point_labels")
POINT_OUTPUTS = ("pred_masks", "iou_scores")
TRIO = ("image_encode", "text_encode", "detect")
"""The functions of the form for the Neural Engine; Swift hands the results of the first two on to the third."""
SEGMENTER_FEATURES = ("backbone_features", "text_features")
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
_FEATURES: _Parts = {
    "backbone_features": lambda name: "backbone" in name,
    "text_features": lambda name: "text_feat" in name,
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


def main_functions(bundle: Path, metadata: Mapping[str, Any]) -> tuple[Mapping[str, Function], list[Problem]]:
    """The functions of the asset `main` of a bundle, or why there are none."""
    if "main" not in metadata["assets"]:
        return {}, [problem("assets.main is missing")]
    try:
        return Interfaces.of(bundle / metadata["assets"]["main"]).functions, []
    except (FileNotFoundError, AssetError) as error:
        return {}, [problem(str(error))]


def asset_problems(found: Function) -> list[Problem]:
    """What Swift would refuse of the function of a segmenter.

    Args:
        found: its description.
    """
    of_points = any("point" in name for name in found.inputs)
    ins, outs = (_POINTS_IN, _POINTS_OUT) if of_points else (_TEXT_IN, _TEXT_OUT)
    given, lacking = _names(found.inputs, ins, "input", "main")
    made, lost = _names(found.outputs, outs, "output", "main")
    if lacking or lost:
        return lacking + lost
    return _shapes(found, given, made, of_points)


def trio_problems(found: Mapping[str, Function]) -> list[Problem]:
    """What Swift would refuse or misread of a segmenter of three functions.

    Args:
        found: the functions of its asset, by name.
    """
    if absent := [name for name in TRIO if name not in found]:
        return [problem(f"the asset has no function {name}; Swift calls {', '.join(TRIO)}") for name in absent]
    parts = {
        "image_encode": (
            {"pixel_values": _TEXT_IN["pixel_values"]},
            {SEGMENTER_FEATURES[0]: _FEATURES[SEGMENTER_FEATURES[0]]},
        ),
        "text_encode": (
            {"input_ids": _TEXT_IN["input_ids"]},
            {SEGMENTER_FEATURES[1]: _FEATURES[SEGMENTER_FEATURES[1]]},
        ),
        "detect": (_FEATURES, _TEXT_OUT),
    }
    wrong, given, made = [], {}, {}
    for name, (ins, outs) in parts.items():
        given[name], lacking = _names(found[name].inputs, ins, "input", name)
        made[name], lost = _names(found[name].outputs, outs, "output", name)
        wrong += lacking + lost
    if wrong:
        return wrong
    images, texts, detect = (found[name] for name in TRIO)
    side = [*images.inputs[given["image_encode"]["pixel_values"]].shape, 0, 0, 0][2]
    handed = [
        (each, made[encoder][each], own.outputs[made[encoder][each]], given["detect"][each])
        for encoder, own, each in zip(TRIO[:2], (images, texts), SEGMENTER_FEATURES, strict=True)
    ]
    wanted = {
        "image_encode": Interface(
            {given["image_encode"]["pixel_values"]: ((1, 3, side, side), FLOATS)},
            {handed[0][1]: ((1, "*", 1, "*"), FLOATS)},
        ),
        "text_encode": Interface(
            {given["text_encode"]["input_ids"]: ((1, "*"), ("int32",))}, {handed[1][1]: ((1, "*", 1, "*"), FLOATS)}
        ),
        "detect": Interface(
            {own: (tensor.shape, (tensor.dtype,)) for _, _, tensor, own in handed},
            _text_outputs(detect, made["detect"]),
        ),
    }
    return [each for name in TRIO for each in wanted[name].problems(name, found[name])]


def _names(names: Collection[str], parts: _Parts, what: str, where: str) -> tuple[dict[str, str], list[Problem]]:
    """The names of the values that Swift looks for, by role, and a problem for each missing, ambiguous or unknown
    value."""
    found = {role: [name for name in names if fits(name)] for role, fits in parts.items()}
    others = [name for name in names if not any(name in each for each in found.values())]
    wrong = [
        problem(f"the {what} {role} of {where} is {'missing' if not each else 'one of ' + ', '.join(each)}; Swift "
                f"finds it by its name, and the {what}s are {', '.join(names) or 'none'}")
        for role, each in found.items() if len(each) != 1
    ]  # fmt: skip
    wrong += [problem(f"{where} has the {what} {name}, which Swift does not know") for name in others]
    return {role: each[0] for role, each in found.items() if each}, wrong


def _shapes(found: Function, given: dict[str, str], made: dict[str, str], of_points: bool) -> list[Problem]:
    if of_points:
        height, width = _sizes(found.inputs, given["batched_images"], 4)[2:]
        batch, queries, count, _ = _sizes(found.inputs, given["batched_points"], 4)
        choices = _sizes(found.outputs, made["iou_scores"], 3)[2]
        wanted = Interface(
            {given["batched_images"]: ((batch, 3, height, width), FLOATS),
             given["batched_points"]: ((batch, queries, count, 2), FLOATS),
             given["batched_point_labels"]: ((batch, queries, count), FLOATS)},
            {made["pred_masks"]: ((batch, queries, choices, "*", "*"), FLOATS),
             made["iou_scores"]: ((batch, queries, choices), FLOATS)},
        )  # fmt: skip
    else:
        side = _sizes(found.inputs, given["pixel_values"], 4)[2]
        wanted = Interface(
            {given["pixel_values"]: ((1, 3, side, side), FLOATS), given["input_ids"]: ((1, "*"), ("int32",))},
            _text_outputs(found, made),
        )
    return wanted.problems("main", found)


def _text_outputs(found: Function, made: dict[str, str]) -> dict[str, tuple[InterfaceSizes, Sequence[str]]]:
    """The required outputs of the function for text prompts: sizes and element types by name."""
    queries, height, width = _sizes(found.outputs, made["pred_masks"], 4)[1:]
    return {
        made["pred_masks"]: ((1, queries, height, width), FLOATS), made["pred_boxes"]: ((1, queries, 4), FLOATS),
        made["pred_logits"]: ((1, queries), FLOATS), made["presence_logits"]: ((1, 1), FLOATS),
        made["semantic_seg"]: ((1, 1, height, width), FLOATS),
    }  # fmt: skip


def _sizes(values: Mapping[str, Tensor], name: str, rank: int) -> list[int | None]:
    """The shape of a value, as long as its rank should be."""
    return [*values[name].shape, *[0] * rank][:rank]


def clip_tokenizer_problems(bundle: Path) -> list[Problem]:
    """What Swift's tokenizer of CLIP would refuse of `tokenizer/tokenizer.json`."""
    file = bundle / "tokenizer" / "tokenizer.json"
    if not file.is_file():
        return [problem("there is no tokenizer/tokenizer.json, which Swift reads for texts")]
    try:
        model = object_in(file)["model"]
        vocabulary, merges = model["vocab"], model["merges"]
    except (ValueError, LookupError, TypeError):
        return [problem("tokenizer/tokenizer.json has no model with vocab and merges")]
    if not isinstance(vocabulary, dict) or not vocabulary:
        return [problem("vocab of tokenizer/tokenizer.json is no object of words and numbers")]
    if not isinstance(merges, list) or not all(isinstance(each, list) and len(each) == 2 for each in merges):
        return [problem("merges of tokenizer/tokenizer.json are not all pairs")]
    return []
