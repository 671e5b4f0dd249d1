"""A program that is ready for import."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import ref

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from patcomp.errors import Problem
from patcomp.frontend_torch.fx.dtypes import has_values
from patcomp.frontend_torch.interface.core_ml import CompressedWeight
from patcomp.frontend_torch.interface.dims import InputSizes
from patcomp.frontend_torch.interface.names import Names, model_call
from patcomp.frontend_torch.interface.signature import Signature
from patcomp.interface.checks import ValueChecks
from patcomp.interface.dims import Dims
from patcomp.interface.signature import ModelCall
from patcomp.pytorch import without_tensors


@dataclass(frozen=True, kw_only=True)
class Staged:
    """A program on its way in, and what was found out about it; complete after the steps of `way_in.py`."""

    name: str
    """Its entry point."""
    program: ExportedProgram
    """Its graph: the user's, or a copy that steps changed."""
    lowerings: tuple[str, ...]
    """The lowerings that were registered then."""
    left_to_pytorch: tuple[Problem, ...] = ()
    """Why PyTorch had to decompose all of the program; empty if it did not."""
    signature: Signature = field(default_factory=Signature)
    sizes: InputSizes = field(default_factory=InputSizes)
    """What is known of dynamic sizes."""
    expansions: Mapping[Node, GraphModule] = field(default_factory=dict)
    """Graphs to import in place of some nodes, with a placeholder for each of their input nodes."""
    conditions: tuple[Any, ...] = ()
    """Conditions on sizes, as SymPy expressions, under which ops were decomposed."""
    names: Names = field(default_factory=Names)
    dims: Dims = field(default_factory=Dims)
    """The dynamic dimensions."""
    compressed: Mapping[str, CompressedWeight | str] = field(default_factory=dict)
    """The weights that buffers describe as compressed, or why the buffers do not describe them, by the FX name of the
    weight's placeholder."""
    checks: ValueChecks | None = None
    """What the program checks of values."""
    diagnostics: tuple[Problem, ...] = ()
    """The warnings about the program."""
    problems: tuple[Problem, ...] = ()
    """What cannot be converted; after the decomposition, custom ops that nothing lowers yet."""

    @property
    def call(self) -> ModelCall:
        """How the model is called."""
        return model_call(self.program, self.signature, self.names)

    @property
    def has_values(self) -> bool:
        """Whether all weights have values."""
        return all(has_values(weight) for _, weight in self.signature.constants.values())

    def without(self, weights: Collection[object]) -> Staged:
        """The same program, which keeps neither some tensors alive nor the initial contents of its states."""
        constants = _Lent(self.signature.constants, {id(weight) for weight in weights})
        states = tuple(replace(state, initial=None) for state in self.signature.states)
        signature = replace(self.signature, constants=constants, states=states)
        return replace(self, program=without_tensors(self.program), signature=signature)


class _Lent(Mapping[str, tuple[str, torch.Tensor]]):
    """The constants of a signature, of which some have no values any more once nobody else holds them.

    Args:
        constants: path and tensor by FX name.
        lent: the identities of tensors that are not to be kept.
    """

    def __init__(self, constants: Mapping[str, tuple[str, torch.Tensor]], lent: Collection[int]):
        self._kept = {name: item for name, item in constants.items() if id(item[1]) not in lent}
        self._paths = {name: path for name, (path, _) in constants.items()}
        weights = {name: weight for name, (_, weight) in constants.items() if name not in self._kept}
        empty = {id(weight): weight.detach().to("meta") for weight in weights.values()}  # one for tied weights
        self._lent = {name: (ref(weight), empty[id(weight)]) for name, weight in weights.items()}

    def __getitem__(self, name: str) -> tuple[str, torch.Tensor]:
        if name in self._kept:
            return self._kept[name]
        weight, empty = self._lent[name]
        held = weight()
        return self._paths[name], empty if held is None else held

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)
