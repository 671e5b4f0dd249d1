"""A folder with small models, assets and files, in which wrong uses are tried, and the names that calls use."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

NETS = """
import torch
from torch import nn
from torch.export import Dim


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(64, 64)

    def forward(self, x):
        return self.linear(x).relu()


class Branches(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


class Draws(nn.Module):
    def forward(self, x):
        return x + torch.randn_like(x)


class Twice(nn.Module):
    def forward(self, x):
        return torch.ops.wrong_uses.twice(x)


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x):
        self.total.add_(x)
        return self.total * 2


if not hasattr(torch.ops.wrong_uses, "twice"):
    library = torch.library.Library("wrong_uses", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")

x = torch.ones(2, 64)


def net(): return Net().eval(), (x,)
def any_rows(): return Net().eval(), (x,), {"x": {0: Dim("rows", min=2, max=64)}}
def narrow(): return Net().eval(), (torch.ones(2, 63),)
def two_inputs(): return Net().eval(), (x, x)
def branches(): return Branches(), (x,)
def draws(): return Draws(), (x,)
def twice(): return Twice(), (x,)
def nothing(): return None
def a_tensor(): return Net(), x
def raises(): raise RuntimeError("the weights are not here")
def takes(argument): return net()
def swapped(): return (x,), Net()
def alone(): return Net()
def a_class(): return Net, (x,)
def scripted(): return torch.jit.trace(Net().eval(), x), (x,)
number = 3
def exported(): return torch.export.export(*net())


class Unsupported(nn.Module):
    def forward(self, x):
        return torch.poisson(torch.multinomial(x, 1).float())


def unsupported(): return Unsupported().eval(), (x,)
"""

RULES = """
from patcomp.patterns import example, lowering


@lowering("aten.frac", examples=[example("2x3xf32")])
def frac(op, c):
    "x - trunc(x)"
    return c.add(op["self"], op["self"])
"""

BATCH = """
[[models]]
name = "a"
model = "nets.py:net"
outputs = "a.aimodel"
"""


def make_folder(place: Path) -> dict[str, Any]:
    """Fill a folder; the value has what Python calls use."""
    import torch

    import patcomp
    from patcomp import TorchConverter
    from patcomp.torchvision import declare_operators

    declare_operators()
    (place / "nets.py").write_text(NETS)
    (place / "rules.py").write_text(RULES)
    (place / "no_rules.py").write_text("x = 1\n")
    (place / "broken.py").write_text("def net(:\n")
    (place / "needs.py").write_text("import a_module_that_is_not_here\n")
    (place / "batch.toml").write_text(BATCH)
    (place / "exits.py").write_text("raise SystemExit(3)\n")
    np.savez(place / "wide.npz", x=np.zeros((2, 65), np.float32))
    (place / "text.pt2").write_text("not a program\n")
    (place / "broken.toml").write_text("[[models]\n")
    (place / "notes.txt").write_text("notes\n")
    (place / "broken.mlir").write_text("module {\n  coreai.nothing\n}\n")
    (place / "model.onnx").write_text("onnx")
    (place / "model.gguf").write_text("GGUF")
    for name in ("empty", "other", "taken.aimodel"):
        (place / name).mkdir()
    (place / "other" / "notes.txt").write_text("notes\n")
    (place / "taken.aimodel" / "notes.txt").write_text("notes\n")
    names: dict[str, Any] = {}
    exec(compile(NETS, str(place / "nets.py"), "exec"), names)
    model, inputs = names["net"]()
    exported = torch.export.export(model, inputs)
    torch.export.save(exported, place / "net.pt2")
    torch.save(model.state_dict(), place / "weights.pt")
    program = TorchConverter().add_exported_program(exported).to_coreai()
    program.save_asset(place / "net.aimodel", writer="python")
    (place / "net.mlir").write_text(str(program))
    counts = TorchConverter().add_exported_program(torch.export.export(names["Counts"](), (torch.ones(4),)))
    counts = counts.to_coreai()
    counts.save_asset(place / "counts.aimodel", writer="python")
    shutil.copytree(place / "net.aimodel", place / "broken.aimodel")
    (place / "broken.aimodel" / "main.mlirb").write_bytes(b"MLIR")
    for bundle, roles in (("bundle", ("net", "counts")), ("bundle_without_assets", ())):
        (place / bundle).mkdir()
        about = {
            "metadata_version": "0.2",
            "kind": "ours",
            "name": bundle,
            "assets": {r: f"{r}.aimodel" for r in roles},
        }
        (place / bundle / "metadata.json").write_text(json.dumps(about))
        for role in roles:
            shutil.copytree(place / f"{role}.aimodel", place / bundle / f"{role}.aimodel")
    from patcomp.commands.batch import jobs_in
    from patcomp.ir import IRModule
    from patcomp.patterns import collect, rule
    from patcomp_models.bundles import convert_bundle
    from patcomp_models.language import Bundle, compress_bundle, convert_language_model
    from patcomp_models.tasks import convert_folder
    from patterns_catalog import default_rules

    return names | {
        "convert_bundle": convert_bundle, "jobs_in": jobs_in, "IRModule": IRModule, "Bundle": Bundle,
        "compress_bundle": compress_bundle, "convert_language_model": convert_language_model, "collect": collect,
        "rule": rule, "convert_folder": convert_folder, "default_rules": default_rules,
        "patcomp": patcomp, "torch": torch, "TorchConverter": TorchConverter, "Path": Path, "model": model,
        "exported": exported, "program": program, "counts": counts, "asset": patcomp.load(place / "net.aimodel"),
    }  # fmt: skip
