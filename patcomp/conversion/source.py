"""A model that is converted: its exported program, and the inputs that it is compared on."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from patcomp.errors import PatcompError

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

    from patcomp.frontend_torch.converter import TorchConverter
    from patcomp.interface.dims import Dims
    from patcomp.interface.signature import EntrySignature
    from patcomp.program.program import AIProgram


@dataclass(frozen=True)
class ModelSource:
    """A model: its exported program and its example inputs."""

    name: str
    exported: ExportedProgram
    module: torch.nn.Module | None = None
    """The module that was exported; None if there is only the exported program."""
    float32_model: torch.nn.Module | None = None
    """The module before it was converted to half precision, if it was."""
    entry: str = "main"
    """The function that it becomes."""
    input_names: tuple[str, ...] = ()
    output_names: tuple[str, ...] = ()
    state_names: tuple[str, ...] = ()
    """The names of the inputs, outputs and states, if they differ from the exported program's names."""
    note: str = ""
    """What happened to the module that the user did not ask for."""
    reference: str = "eager PyTorch"
    """What computes the results of `model`."""

    @cached_property
    def model(self) -> Callable[..., Any]:
        """The function that computes the model's results."""
        return self.exported.module() if self.module is None else self.module

    @property
    def inputs(self) -> tuple[Any, ...] | dict[str, Any]:
        """The example inputs, positional or by keyword.

        Raises:
            PatcompError: there are none.
        """
        return self._given(*self._example())

    def inputs_for(self, program: AIProgram) -> tuple[Any, ...] | dict[str, Any]:
        """The example inputs for a program with fixed sizes: repeated or cut where they have others.

        Raises:
            PatcompError: there are none.
        """
        call, dims = program.calls[self.entry], program.dims[self.entry]
        return self.inputs_of(replace(program.signature(self.entry), call=call), dims)

    def inputs_of(self, signature: EntrySignature, dims: Dims) -> tuple[Any, ...] | dict[str, Any]:
        """The example inputs for a signature with fixed sizes, as for `inputs_for`.

        Args:
            signature: of a program, with the call of this model.
            dims: its dimensions, of which some are fixed.

        Raises:
            PatcompError: there are none.
        """
        from patcomp.pytorch import pytree

        leaves, tree = pytree.tree_flatten(self._example())
        assert signature.call is not None
        shapes = {spec.name: spec.shape for spec in (*signature.inputs, *signature.states)}
        for index, name in enumerate(signature.call.arguments):
            if not isinstance(name, str):
                continue
            value = dims.extents.get((name, None))
            if value is not None and value.number is not None:
                leaves[index] = value.number
            for axis, size in enumerate(shapes[name]):
                if isinstance(size, int) and size != leaves[index].shape[axis]:
                    leaves[index] = _of_size(leaves[index], axis, size)
        return self._given(*pytree.tree_unflatten(leaves, tree))

    def _example(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if self.exported.example_inputs is None:
            raise PatcompError(f"{self.name} holds no example inputs; save it with those that it was exported with")
        positional, keywords = self.exported.example_inputs
        return positional, keywords

    def _given(self, positional: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[Any, ...] | dict[str, Any]:
        """Arguments as a tuple, or by keyword."""
        if positional and keywords:
            names = list(inspect.signature(self.model).parameters)[: len(positional)]
            return dict(zip(names, positional, strict=True)) | keywords
        return dict(keywords) if keywords else tuple(positional)


def _of_size(tensor: torch.Tensor, axis: int, size: int) -> torch.Tensor:
    """A tensor of another size along an axis: its values, and again from the first where there are too few."""
    import torch

    return tensor.index_select(axis, torch.arange(size) % tensor.shape[axis])


def add_sources(converter: TorchConverter, sources: Iterable[ModelSource]) -> TorchConverter:
    """A converter with the functions of a model, by the names that they have."""
    for source in sources:
        converter.add_exported_program(
            source.exported,
            source.input_names or None,
            source.output_names or None,
            source.state_names or None,
            source.entry,
        )
    return converter
