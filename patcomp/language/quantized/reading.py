"""The weights of a checkpoint in few bits, for a model of transformers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from patcomp.language.errors import LanguageModelError
from patcomp.language.folders import weight_files
from patcomp.language.quantized.formats.base import Format
from patcomp.language.quantized.weight import Unpacking, store


def fill(model: Any, folder: Path, form: Format, dtype: torch.dtype) -> None:
    """Give a model without weights those of a checkpoint; weights in few bits stay so.

    Args:
        model: of transformers, whose parameters are on the meta device.
        folder: of the checkpoint.
        form: its format.
        dtype: of the floats.

    Raises:
        LanguageModelError: a weight is missing, left over, damaged or of another shape, or the dtype cannot hold it.
    """
    described = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    tensors = _Tensors(weight_files(folder, described))
    given = set(tensors)
    for path, module in list(model.named_modules()):
        if f"{path}.{form.mark}" in given:
            parts = {part: tensors[f"{path}.{part}"] for part in form.parts if f"{path}.{part}" in given}
            given -= {f"{path}.{part}" for part in parts}
            _store(module, path, form, parts, dtype)
    _tie(model)
    _assign(model, folder, {name: tensors[name] for name in given}, dtype)


def _store(module: nn.Module, path: str, form: Format, parts: Mapping[str, Tensor], dtype: torch.dtype) -> None:
    if not isinstance(module, nn.Linear | nn.Embedding):
        raise LanguageModelError(
            f"{path} is a {type(module).__name__} whose weights are in few bits; only those of linear layers and "
            "tables of embeddings are read"
        )
    try:
        stored = form.read(path, parts)
    except KeyError as error:
        raise LanguageModelError(
            f"the checkpoint lacks {path}.{error.args[0]}, a part of a {form.name} weight"
        ) from None
    expected = tuple(module.weight.shape)
    if stored.shape != expected:
        shapes = ("x".join(map(str, shape)) for shape in (stored.shape, expected))
        raise LanguageModelError("{}: {} stores a weight of {}, and the model has {}".format(path, form.name, *shapes))
    store(module, Unpacking(stored, dtype, path), stored.order)


def _tie(model: Any) -> None:
    """Let a head that is the table of embeddings read what is stored of the table."""
    table, head = model.get_input_embeddings(), model.get_output_embeddings()
    if head is None or not getattr(model.config, "tie_word_embeddings", False) or hasattr(head, "unpacking"):
        return
    if hasattr(table, "unpacking"):
        store(head, table.unpacking)


def _assign(model: Any, folder: Path, tensors: Mapping[str, Tensor], dtype: torch.dtype) -> None:
    own = dict(model.named_parameters(remove_duplicate=False))
    left = sorted(tensors.keys() - own.keys())
    floats = {name: tensor.to(dtype) for name, tensor in tensors.items() if name in own}
    wrong = [name for name, tensor in floats.items() if tensor.shape != own[name].shape]
    fitting = {name: tensor for name, tensor in floats.items() if name not in wrong}
    model.load_state_dict(fitting, strict=False, assign=True)
    if model.config.tie_word_embeddings and not hasattr(model.get_input_embeddings(), "unpacking"):
        model.tie_weights()
    lacking = sorted(name for name, parameter in model.named_parameters() if parameter.is_meta)
    for what, names in (("has other shapes for", wrong), ("has no place for", left), ("lacks", lacking)):
        if names:
            shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
            subject = "the model" if what == "has no place for" else "the checkpoint"
            raise LanguageModelError(
                f"the weights in {str(folder)!r} are not those of the model: {subject} {what} {shown}"
            )


class _Tensors:
    """The tensors of files, mapped into memory, by name."""

    def __init__(self, files: Iterable[Path]):
        from safetensors import safe_open

        self._files = [safe_open(file, "pt") for file in files]
        self._places = {key: file for file in self._files for key in file.keys()}  # noqa: SIM118

    def __iter__(self) -> Any:
        return iter(self._places)

    def __getitem__(self, name: str) -> Tensor:
        tensor: Tensor = self._places[name].get_tensor(name)
        return tensor
