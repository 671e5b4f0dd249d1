"""What a model keeps from one run to the next where `torch.export` makes a constant of it: in plain attributes."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from patcomp.frontend_torch.exporting.examples import run_example
from patcomp.frontend_torch.exporting.kept import kept
from patcomp.pytorch import pytree


def remembered(
    program: ExportedProgram, model: nn.Module, call: tuple[tuple[Any, ...], dict[str, Any], Any]
) -> list[str]:
    """The attributes that became constants of the program although a run of the example changes their content.

    An attribute that a run sets to the same content is a constant: `self.table = self.table.to(x.device)`.
    """
    read = _constants(program)
    before = {name: tensor for name, tensor in (_attributes(model) if read else {}).items() if _storage(tensor) in read}
    if not before:
        return []
    contents = {name: tensor.detach().clone() for name, tensor in before.items()}

    def contents_after(*args: Any, **kwargs: Any) -> dict[str, Tensor]:
        model(*args, **kwargs)
        return _attributes(model)

    with kept(model):
        after = run_example(contents_after, call, (*model.buffers(), *before.values()))
    return [name for name, content in contents.items() if name not in after or not _equal(content, after[name])]


def _constants(program: ExportedProgram) -> set[int]:
    """The memory of the constant tensors that a node of a program reads."""
    used = {node.name for node in program.graph.nodes if node.op == "placeholder" and node.users}
    specs = program.graph_signature.input_specs
    read = {spec.target for spec in specs if spec.kind is InputKind.CONSTANT_TENSOR and spec.arg.name in used}
    return {_storage(value) for name, value in program.constants.items() if name in read}


def _attributes(model: nn.Module) -> dict[str, Tensor]:
    """The tensors in attributes of modules, also inside lists and dicts, that are no parameters and no buffers."""
    known = {id(tensor) for tensor in (*model.parameters(), *model.buffers())}
    found = {}
    for path, module in model.named_modules():
        plain = {name: value for name, value in vars(module).items() if name not in ("_parameters", "_buffers")}
        for attribute, value in plain.items():
            for keys, leaf in pytree.tree_flatten_with_path(value)[0]:
                if isinstance(leaf, Tensor) and id(leaf) not in known:
                    name = f"{attribute}{pytree.keystr(keys)}"
                    found[f"{path}.{name}" if path else name] = leaf
    return found


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _equal(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return bool(((one == other) | (one != one) & (other != other)).all())
