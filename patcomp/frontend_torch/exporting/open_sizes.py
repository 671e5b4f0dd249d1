"""The sizes that a caller leaves open, which `torch.export` fixes where the example has 0 or 1."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from patcomp.errors import Problem
from patcomp.frontend_torch.exporting.refusals import RefusedError
from patcomp.frontend_torch.fx.sizes import known_shape
from patcomp.pytorch import int_oo, pytree

_Call = tuple[tuple[Any, ...], dict[str, Any], Any]


@dataclass(frozen=True)
class _Open:
    """An axis of a tensor of the example whose size is to be open."""

    tensor: Tensor
    argument: str
    axis: int
    dim: Any
    """A `Dim`, a size that derives from one, or `Dim.DYNAMIC`."""

    @property
    def name(self) -> str:
        return str(getattr(self.dim, "__name__", "a size"))

    @property
    def root(self) -> Any:
        """What decides the size: the `Dim` that it derives from, or itself."""
        return getattr(self.dim, "root", self.dim)

    def size(self, root: int) -> int:
        """The size where the root has a size."""
        return int(self.dim.fn(root)) if hasattr(self.dim, "fn") else root


def _open_sizes(model: nn.Module, call: _Call) -> list[_Open]:
    args, kwargs, shapes = call
    try:
        given = inspect.signature(model.forward).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        return []  # the example itself does not fit, or forward has no signature
    specs = shapes if isinstance(shapes, Mapping) else dict(zip(given, shapes or (), strict=False))
    return [each for name, value in given.items() for each in _walk(value, specs.get(name), name)]


def _walk(value: Any, spec: Any, name: str) -> Iterator[_Open]:
    if isinstance(value, Tensor) and isinstance(spec, Mapping | list | tuple):
        pairs = spec.items() if isinstance(spec, Mapping) else enumerate(spec)
        yield from (_Open(value, name, axis % value.dim(), dim) for axis, dim in pairs if _is_asked(dim))
    elif isinstance(value, list | tuple) and isinstance(spec, list | tuple):
        for each, part in zip(value, spec, strict=False):
            yield from _walk(each, part, name)
    elif isinstance(value, Mapping) and isinstance(spec, Mapping):
        for key, each in value.items():
            yield from _walk(each, spec.get(key), name)


def _is_asked(dim: Any) -> bool:
    """Whether a size must stay open; with `Dim.AUTO`, PyTorch may fix it."""
    if dim is None or isinstance(dim, int):
        return False
    return getattr(dim, "type", None) not in (Dim.AUTO.type, Dim.STATIC.type)


def larger_example(model: nn.Module, call: _Call) -> _Call | None:
    """The call with an example that has 2 where it has 0 or 1 in a size of a `Dim`, whose range must allow both; values
    are repeated. None if there is no such size."""
    asked = [each for each in _open_sizes(model, call) if isinstance(each.root, Dim)]
    small = [each for each in asked if each.dim is each.root and each.tensor.shape[each.axis] < 2]
    if not small or not all(each.root.min <= each.tensor.shape[each.axis] and each.root.max >= 2 for each in small):
        return None
    roots = {id(each.root) for each in small}
    made: dict[int, Tensor] = {}
    for each in asked:
        if id(each.root) in roots:
            before = made.get(id(each.tensor), each.tensor)
            made[id(each.tensor)] = _resized(before, each.axis, each.size(2))
    args, kwargs, shapes = call
    args, kwargs = pytree.tree_map(lambda leaf: made.get(id(leaf), leaf), (args, kwargs))
    return args, kwargs, shapes


def _resized(tensor: Tensor, axis: int, size: int) -> Tensor:
    """A tensor with another size along an axis: its values again and again, or zeros if it has none."""
    if not tensor.shape[axis]:
        return tensor.new_zeros([*tensor.shape[:axis], size, *tensor.shape[axis + 1 :]])
    return tensor.detach().index_select(axis, torch.arange(size) % tensor.shape[axis])


def check_open(program: ExportedProgram, model: nn.Module, call: _Call) -> None:
    """Check that the sizes that are to be open are open in a program.

    Raises:
        RefusedError: some are fixed.
    """
    fixed = [each for each, size in _recorded(program, model, call) if isinstance(size, int)]
    if fixed:
        first = fixed[0]
        size = first.tensor.shape[first.axis]
        advice = "; give an example with 2 or more, and a Dim that allows it" if size < 2 else ""
        raise RefusedError(
            f"dynamic_shapes leaves {first.name} open (dimension {first.axis} of {first.argument}), and the model "
            f"fixes it to the {size} of the example{advice}"
        )


def narrowed(program: ExportedProgram, model: nn.Module, call: _Call) -> Iterator[Problem]:
    """Give the sizes of a draft the names of their `Dim`s, which a draft loses, and warn of smaller ranges.

    A `Dim` whose sizes the draft takes for different ones keeps no name. Neither does a size that is two `Dim`s, nor
    one that derives from a `Dim` of which the draft does not know, such as `2 * Dim("half")`.
    """
    dims: dict[str, _Open] = {}
    symbols: dict[str, dict[Any, Any]] = {}
    for each, size in _recorded(program, model, call):
        if isinstance(each.root, Dim) and size.node.expr.is_Symbol:
            dims[each.name] = each
            symbols.setdefault(each.name, {})[size.node.expr] = size.node.shape_env
    for name, own in symbols.items():
        asked = dims[name].dim
        for symbol, environment in own.items():
            is_only = len(own) == 1 == sum(symbol in others for others in symbols.values())
            if is_only and name == dims[name].root.__name__:
                environment.source_name_to_debug_name[environment.var_to_sources[symbol][0].name] = name
        for limits in dict.fromkeys(program.range_constraints[symbol] for symbol in own):
            if limits.lower > asked.min or limits.upper < asked.max:
                yield Problem(
                    f"dynamic_shapes leaves {name} open {_range(asked.min, asked.max)}, and the program takes it "
                    f"{_range(limits.lower, limits.upper)}"
                )


def _range(low: Any, high: Any) -> str:
    return f"from {low}" if high == int_oo else f"from {low} to {high}"


def _recorded(program: ExportedProgram, model: nn.Module, call: _Call) -> list[tuple[_Open, Any]]:
    """The sizes that are to be open, with what a program has for each: a symbol, or a number."""
    args, kwargs, _ = call
    leaves = [id(leaf) for leaf in pytree.tree_leaves((args, kwargs))]
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    names = [name if isinstance(name, str) else "" for name in program.graph_signature.user_inputs]
    recorded = dict(zip(leaves, (values.get(name) for name in names), strict=False))
    return [
        (each, known_shape(value)[each.axis])
        for each in _open_sizes(model, call)
        if isinstance(value := recorded.get(id(each.tensor)), Tensor)
    ]
