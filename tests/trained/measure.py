"""Convert the model of a row in float32, float16 and 4 bits, and compare what is decided by its outputs.

python -m tests.trained.measure ROW FOLDER_OF_PACKAGES RESULT.json
"""

from __future__ import annotations

import copy
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree

import patcomp
from patcomp import AIProgram, TorchConverter
from patcomp.emit.toolchain.library import has_toolchain
from patcomp.torchvision import declare_operators
from tests.trained.packages import Trained
from tests.trained.rows import ROWS


def measured(trained: Trained) -> dict[str, Any]:
    """The share of equal labels and the bytes of the weights, by form."""
    wanted = [trained.labels(*_tensors(copy.deepcopy(trained.model)(*each))) for each in trained.inputs]
    plain = _converted(trained, half=False)
    half = _converted(trained, half=True) if trained.takes_half else plain
    forms = {"float32": plain, **({"float16": half} if half is not plain else {}), "4bit": half.compress("4bit")}
    found: dict[str, Any] = {"labels": sum(each.numel() for each in wanted), "kinds": len(torch.cat([
        each.reshape(-1).long() for each in wanted]).unique())}  # fmt: skip
    for name, program in forms.items():
        made = [trained.labels(*_outputs(program, each)) for each in trained.inputs]
        equal = sum(int((a == b).sum()) for a, b in zip(wanted, made, strict=True))
        found[name] = {"equal": equal, "bytes": sum(memoryview(blob.data).nbytes for blob in program.module.blobs)}
    return found


def _converted(trained: Trained, *, half: bool) -> AIProgram:
    model, example = copy.deepcopy(trained.model), trained.inputs[0]
    if half:
        model, example = model.half(), _in_half(example)
    with torch.no_grad():
        return TorchConverter().add_exported_program(patcomp.export(model, example)).to_coreai()


def _in_half(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(each.half() if each.is_floating_point() else each for each in tensors)


def _outputs(program: AIProgram, inputs: tuple[Tensor, ...]) -> list[Tensor]:
    is_half = any(spec.element_type == "f16" for spec in program.signature().inputs)
    backend = "runtime" if has_toolchain() else "evaluator"
    return _tensors(program.run(*(_in_half(inputs) if is_half else inputs), backend=backend))


def _tensors(outputs: Any) -> list[Tensor]:
    return [torch.as_tensor(each).detach().float() for each in _pytree.tree_leaves(outputs)]


def main() -> None:
    name, folder, result = sys.argv[1:]
    sys.path.insert(0, folder)
    warnings.simplefilter("ignore")
    declare_operators()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with torch.no_grad():
        found = measured(ROWS[name].build())
    Path(result).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
