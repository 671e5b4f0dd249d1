"""Archives of `torch.export.save` with a harmless payload: loading one as PyTorch does makes the folder `ran`."""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

MARK = "ran"
CODE = f"__import__('os').mkdir('{MARK}')"


class Payload:
    """Makes the folder when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (MARK,)


class Scaled(nn.Module):
    """A weight, a buffer, a dynamic size and a branch: each kind of member of an archive."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("scale", torch.ones(4))
        self.shift = torch.ones(4)  # a constant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))
        return self.linear(y) * self.scale + self.shift + x.shape[0]


def saved() -> dict[str, bytes]:
    """The members of an archive of a small program."""
    batch = torch.export.Dim("batch", min=2, max=16)
    program = torch.export.export(Scaled().eval(), (torch.ones(3, 4),), dynamic_shapes={"x": {0: batch}})
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    with zipfile.ZipFile(buffer) as archive:
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def write(
    path: Path | io.BytesIO, members: Mapping[str, bytes], *, folder: str = "program/", method: int = zipfile.ZIP_STORED
) -> None:
    """Write an archive with these members."""
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(f"{folder}{name}", data)


# ---- payloads ------------------------------------------------------------------------------------

PROGRAM, WEIGHTS = "models/model.json", "data/weights/model_weights_config.json"
CONSTANTS, INPUTS = "data/constants/model_constants_config.json", "data/sample_inputs/model.pt"

Members = dict[str, bytes]


def _pickled() -> bytes:
    buffer = io.BytesIO()
    torch.save(((Payload(),), {}), buffer)
    return buffer.getvalue()


def changed_json(members: Members, name: str, change: Callable[[Any], Any]) -> Members:
    """The members with the JSON of one changed in place."""
    tree = json.loads(members[name])
    change(tree)
    return members | {name: json.dumps(tree).encode()}


def inputs(members: Members) -> Members:
    return members | {INPUTS: _pickled()}


def weight(members: Members) -> Members:
    def change(tree: Any) -> None:
        tree["config"]["linear.weight"]["use_pickle"] = True
        tree["config"]["linear.weight"]["path_name"] = "weight_9"

    return changed_json(members, WEIGHTS, change) | {"data/weights/weight_9": _pickled()}


def older_weights(members: Members) -> Members:
    return members | {"data/weights/model.pt": _pickled()}


def _entry(member: str) -> dict[str, Any]:
    return {"path_name": member, "is_param": False, "use_pickle": True, "tensor_meta": None}


def opaque_object(members: Members) -> Members:
    def change(tree: Any) -> None:
        tree["config"]["evil"] = {
            "path_name": "opaque_obj_0",
            "is_param": False,
            "use_pickle": True,
            "tensor_meta": None,
        }

    return changed_json(members, CONSTANTS, change) | {"data/constants/opaque_obj_0": pickle.dumps(Payload())}


def size(members: Members) -> Members:
    def change(tree: Any) -> None:
        sizes = tree["graph_module"]["graph"]["tensor_values"]["x"]["sizes"]
        sizes[0]["as_expr"]["expr_str"] = f"{CODE} or 3"

    return changed_json(members, PROGRAM, change)


def input_name(members: Members) -> Members:
    evil = f"x={CODE}"
    return members | {PROGRAM: members[PROGRAM].replace(b'"x"', json.dumps(evil).encode())}


PAYLOADS = (inputs, weight, older_weights, opaque_object, size, input_name)
"""Payloads that run while PyTorch loads the archive."""


def compiled(members: Members) -> Members:
    return members | {"data/aotinductor/model/model.so": b"", "data/aotinductor/model/model_metadata.json": b"{}"}


def torch_script_object(members: Members) -> Members:
    def change(tree: Any) -> None:
        tree["config"]["evil"] = {
            "path_name": "custom_obj_0",
            "is_param": False,
            "use_pickle": True,
            "tensor_meta": None,
        }

    return changed_json(members, CONSTANTS, change) | {"data/constants/custom_obj_0": b""}


def condition(members: Members) -> Members:
    return changed_json(members, PROGRAM, lambda tree: tree.update(guards_code=[CODE]))


def operator(members: Members) -> Members:
    def change(tree: Any) -> None:
        tree["graph_module"]["graph"]["nodes"][-1]["target"] = "torch.os.system"

    return changed_json(members, PROGRAM, change)


def enumeration(members: Members) -> Members:
    def change(tree: Any) -> None:
        context = json.dumps(json.dumps({"__enum__": True, "fqn": "this:d", "name": "A"}))
        signature = tree["graph_module"]["module_call_graph"][0]["signature"]
        signature["in_spec"] = json.dumps([1, {"type": "builtins.tuple", "context": context, "children_spec": []}])

    return changed_json(members, PROGRAM, change)


def keyword(members: Members) -> Members:
    def change(tree: Any) -> None:
        signature = tree["graph_module"]["module_call_graph"][0]["signature"]
        signature["forward_arg_names"] = [f"x={CODE}"]

    return changed_json(members, PROGRAM, change)


def symbol(members: Members) -> Members:
    limits = {"min_val": 2, "max_val": 16}
    return changed_json(members, PROGRAM, lambda tree: tree["range_constraints"].update(u99999999999=limits))


ROUTES = (compiled, torch_script_object, condition, operator, enumeration, keyword, symbol)
"""Other routes: code of another kind, code that runs later, and numbers that PyTorch counts up to for hours."""
