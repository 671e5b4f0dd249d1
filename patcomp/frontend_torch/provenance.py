"""Where an FX node comes from: module path and line of the user's source, never as an absolute path."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

import torch
from torch.fx import Node

from patcomp.ir.locations import Origin

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_TORCH = str(Path(torch.__file__).parent) + os.sep


def origin_of(node: Node) -> Origin:
    """The origin of a node, as far as export recorded one."""
    path = ""
    stack = node.meta.get("nn_module_stack")
    if stack:
        path = str(list(stack.values())[-1][0])
        path = re.sub(r"\['([^']*)'\]", r".\1", path).removeprefix("L.self").lstrip(".")
    file, line = _user_frame(node.meta.get("stack_trace") or "")
    return Origin(node.name, path, file, line)


@cache
def _user_frame(trace: str) -> tuple[str, int]:
    frames = _FRAME.findall(trace)
    for name, line in reversed(frames):
        if not name.startswith(_TORCH):
            return _relative(name), int(line)
    return (_relative(frames[-1][0]), int(frames[-1][1])) if frames else ("", 0)


@cache
def _relative(name: str) -> str:
    """A path that means the same on every machine: below site-packages, below the working folder, or bare."""
    parts = Path(name).parts
    for anchor in ("site-packages", "dist-packages"):
        if anchor in parts:
            return "/".join(parts[parts.index(anchor) + 1 :])
    try:
        return Path(name).relative_to(Path.cwd()).as_posix()
    except ValueError:
        return Path(name).name
