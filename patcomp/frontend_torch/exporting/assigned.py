"""Weights that a model computes in `forward` and assigns to `.data` of others: `self.conv.weight.data = fused`.

`torch.export` leaves the assignment out, so that the program would have the old numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor
from torch.export import ExportedProgram
from torch.overrides import TorchFunctionMode

from patcomp.frontend_torch.exporting.places import line_of_now
from patcomp.frontend_torch.exporting.refusals import RefusedError
from patcomp.frontend_torch.fx.nodes import ASSIGNS_DATA, operator_name
from patcomp.pytorch import pytree, tree_map_only

_SIZES = frozenset({"size", "dim", "numel", "stride"})
"""The functions that read nothing of a tensor's content, beside properties that are no tensors."""


class AssignedData(TorchFunctionMode):
    """While a model is traced: a tensor whose `data` it assigns is what was assigned, from there on.

    The assignment is that of every run only if it depends on no input, and if the model does not read the old content,
    which a run before may have changed. Other assignments raise a `RefusedError`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._assigned: dict[int, tuple[Tensor, Tensor]] = {}
        self._read: dict[int, Tensor] = {}
        self._of_inputs: dict[int, Tensor] = {}
        self._is_known = True
        """Whether `_of_inputs` has all tensors that depend on inputs; a write into a view may change others."""

    def following(self, inputs: Any) -> AssignedData:
        """This, at the beginning of a trace."""
        self._assigned, self._read, self._is_known = {}, {}, True
        self._of_inputs = {id(each): each for each in _tensors(inputs)}
        return self

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        if name == "__set__" and getattr(getattr(func, "__self__", None), "__name__", "") == "data":
            return self._assign(*args)
        given = _tensors((args, kwargs))
        kwargs = dict(kwargs or {})
        if self._assigned:
            args, kwargs = tree_map_only(Tensor, self._now, (args, kwargs))
        depends = [id(each) in self._of_inputs for each in _tensors((args, kwargs))]
        if any(depends) and ("out" in kwargs or (not depends[0] and _writes(name))):
            self._is_known = False
        made = func(*args, **kwargs)
        results = _tensors(made)
        if any(depends):
            self._of_inputs |= {id(each): each for each in results}
        if name not in _SIZES and (name != "__get__" or results):
            self._read |= {id(each): each for each in given if id(each) not in self._assigned}
        return made

    def _now(self, tensor: Tensor) -> Tensor:
        return self._assigned.get(id(tensor), (None, tensor))[1]

    def _assign(self, tensor: Tensor, value: Tensor) -> None:
        if not self._is_known or id(value) in self._of_inputs:
            raise RefusedError(f"the model assigns what may depend on an input to `.data`, at {line_of_now()}")
        if id(tensor) in self._read:
            raise RefusedError(f"the model reads a tensor and then assigns to its `.data`, at {line_of_now()}")
        self._assigned[id(tensor)] = tensor, self._now(value).detach()


def check_assignments(program: ExportedProgram) -> None:
    """Check that a program leaves no assignment out.

    Raises:
        RefusedError: it has the old numbers of a tensor to whose `.data` the model assigns.
    """
    if any(operator_name(node) == ASSIGNS_DATA for node in program.graph.nodes):
        raise RefusedError("the model assigns to `.data`, which torch.export leaves out")


def _writes(name: str) -> bool:
    """Whether a function writes to its first tensor, such as `add_` and `x[0] = y`."""
    return name.startswith(("__i", "__set")) or (name.endswith("_") and not name.endswith("__"))


def _tensors(values: Any) -> list[Tensor]:
    return [each for each in pytree.tree_leaves(values) if isinstance(each, Tensor)]
