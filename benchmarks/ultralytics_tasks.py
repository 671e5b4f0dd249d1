"""Ultralytics' tasks, exported and predicted by its own Core AI code with patcomp as coreai_torch.

    python -m benchmarks.ultralytics_tasks yolo26n yolo26n-seg:half yolo26n:nms=False

Each model comes from a YAML file of Ultralytics, with random weights. Random heads give every class the same small
score, so the statistics of the norms come from a forward pass in training mode, and the last convolutions of the
classes are scaled until scores spread. The table compares `model.predict` of the asset with that of PyTorch, both in
float32 by PyTorch, on one random image. On Linux, coreai-core's `AIModel.load` takes no asset, so the asset is compiled
first (`AIModelAsset.executable`); all else is Ultralytics' own code.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import patcomp
from patcomp.torchvision import declare_operators, misfit

HEADINGS = ("model", "options", "export, s", "results, PyTorch", "results, asset", "found again", "largest difference")
EXPORT_OPTIONS = {"half": {"quantize": 16}, "nms=True": {"nms": True}, "nms=False": {"nms": False}}
SPREAD = 0.7
"""The standard deviation of the logits of the classes."""


def measured(name: str, options: list[str], size: int) -> list[str]:
    """The row of a model: exported in a folder of its own, and its predictions beside PyTorch's."""
    from ultralytics import RTDETR, YOLO

    with _own_folder():
        torch.manual_seed(0)
        kind = RTDETR if name.startswith("rtdetr") else YOLO
        model = kind(f"{name}.yaml")
        _spread_scores(model.model, size)
        model.save(f"{name}.pt")
        image = np.random.default_rng(0).integers(0, 256, (size, size, 3), dtype=np.uint8)
        chosen = {"imgsz": size, "conf": 0.1, "device": "cpu", "verbose": False}
        nms = {"nms": False} if "nms=False" in options else {}
        expected = kind(f"{name}.pt").predict(image, **chosen, **nms)[0]
        task = {} if kind is RTDETR else {"task": model.task}  # of an asset, Ultralytics does not know it otherwise
        start = time.perf_counter()
        asset = kind(f"{name}.pt").export(
            format="coreai", imgsz=size, device="cpu", verbose=False,
            **{key: value for each in options for key, value in EXPORT_OPTIONS[each].items()},
        )  # fmt: skip
        seconds = time.perf_counter() - start
        found = kind(asset, **task).predict(image, **chosen)[0]
        return [name, " ".join(options), f"{seconds:.1f}", *_compared(expected, found)]


def _suppress_by_ultralytics() -> None:
    """Where the operators of torchvision do not load, Ultralytics' suppression of boxes stands for that one."""
    declare_operators()
    import torchvision
    from ultralytics.utils.nms import TorchNMS

    if misfit():
        torchvision.ops.nms = TorchNMS.nms


def _load_by_compilation() -> None:
    """Let `AIModel.load` take assets on Linux."""
    from coreai.authoring.asset import AIModelAsset
    from coreai.runtime import AIModel

    load_compiled = AIModel.load

    async def load(path: Path, **options: Any) -> Any:
        if Path(path).suffix != ".aimodel":
            return await load_compiled(path, **options)
        _COMPILED.append(context := AIModelAsset.load(Path(path)).executable())
        return await context.__aenter__()

    AIModel.load = load


_COMPILED: list[Any] = []
"""The compiled assets, which last as long as these objects."""


@contextlib.contextmanager
def _own_folder() -> Iterator[None]:
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


@torch.no_grad()
def _spread_scores(model: torch.nn.Module, size: int) -> None:
    """Give the norms the statistics of random images, and the scores of the classes a spread."""
    norms = [each for each in model.modules() if isinstance(each, torch.nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = None  # the mean of all batches
    model.train()
    head = model.model[-1]
    head.eval()  # heads in training mode need targets; their norms are set below
    for norm in (each for each in head.modules() if isinstance(each, torch.nn.BatchNorm2d)):
        norm.train()
    seen: list[tuple[torch.nn.Module, torch.Tensor]] = []
    hooks = [last.register_forward_hook(lambda m, i, o: seen.append((m, o))) for last in _class_layers(head)]
    images = torch.rand(2, 3, size, size)
    model(images)
    model.eval()
    for norm in norms:  # a channel that hardly varies would make rounding errors large
        norm.running_var.clamp_(min=float(norm.running_var.mean()))
    seen.clear()
    model(images)
    for hook in hooks:
        hook.remove()
    for layer, output in seen:
        scale = SPREAD / output.std().clamp(min=1e-6)
        layer.weight.mul_(scale)
        if layer.bias is not None:
            layer.bias.copy_((layer.bias - layer.bias.mean()) * scale - 2.5)


def _class_layers(head: torch.nn.Module) -> list[torch.nn.Module]:
    """The last layers of a head that give the logits of the classes."""
    branches = [getattr(head, name, None) for name in ("cv3", "one2one_cv3")]
    found = [scale[-1] for branch in branches if branch is not None for scale in branch]
    return found or [each for each in (*getattr(head, "dec_score_head", ()), getattr(head, "linear", None)) if each]


def _compared(expected: Any, found: Any) -> list[str]:
    """How many results there are, how many of PyTorch's are among the asset's, and by how much numbers differ.

    A result is found again if one of the same class and score has a box within a pixel.
    """
    if expected.probs is not None:
        gap = float((expected.probs.data - found.probs.data).abs().max())
        same = expected.probs.top5 == found.probs.top5
        return ["5 classes", "5 classes", "5" if same else "other order", f"{gap:.1e}"]
    plain = [name for name in ("semantic_mask", "depth") if getattr(expected, name, None) is not None]
    for name in plain:
        left, right = (torch.as_tensor(getattr(each, name).data).float() for each in (expected, found))
        return [
            name,
            name,
            f"{float(torch.isclose(left, right, atol=1e-3).float().mean()):.2%} of the pixels",
            f"{float((left - right).abs().max()):.1e}",
        ]
    ours, theirs = (each.obb if each.obb is not None else each.boxes for each in (found, expected))
    gaps, missing, changed = [], 0, 0.0
    for index, row in enumerate(theirs.data):
        near = (ours.data[:, :5] - row[:5]).abs().amax(1) + 1e3 * (ours.cls != row[-1])
        best = int(near.argmin()) if len(near) else -1
        if best < 0 or float(near[best]) > 1:
            missing += 1
            continue
        pairs = [(ours.data[best], row)]
        if expected.keypoints is not None:
            pairs.append((found.keypoints.data[best], expected.keypoints.data[index]))
        gaps.append(max(float((left - right).abs().max()) for left, right in pairs))
        if expected.masks is not None:
            changed += float((expected.masks.data[index] != found.masks.data[best]).float().mean())
    told = f"{max(gaps, default=0):.1e}"
    if expected.masks is not None:
        told += f", and {changed / max(len(gaps), 1):.1e} of the pixels of masks"
    return [str(len(theirs)), str(len(ours)), str(len(theirs) - missing), told]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="+", help="NAME, or NAME:OPTION,OPTION of half, nms=True and nms=False")
    parser.add_argument("--size", type=int, default=160, help="height and width of the image in pixels")
    given = parser.parse_args()
    patcomp.install_as_coreai_torch()
    _suppress_by_ultralytics()
    if sys.platform == "linux":
        _load_by_compilation()
    print("| " + " | ".join(HEADINGS) + " |\n|" + "---|" * len(HEADINGS))
    for each in given.models:
        name, _, options = each.partition(":")
        row = measured(name, options.split(",") if options else [], given.size)
        print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
