"""Models as functions of Python files make them: modules that are exported here, with the options of the command."""

from __future__ import annotations

import copy
import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from patcomp.commands.common import UsageError, run_file, running
from patcomp.conversion.source import ModelSource
from patcomp.errors import ExportError, PatcompError, did_you_mean, near_names

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class ExportOptions:
    """How a module becomes an exported program."""

    train: bool = False
    """Whether a module keeps its mode; otherwise it is put into eval mode, with a note."""
    half: str = ""
    """`float16` or `bfloat16`: convert the module and its floating-point inputs to it."""
    dynamic: tuple[str, ...] = ()
    """Dynamic dimensions: `x:0=batch:1..64`."""
    strict: bool = False
    """Whether `torch.export` traces in strict mode."""
    assume_branch: bool = False
    """Whether a decision by data is that for the example inputs, as in `patcomp.export`."""

    def given(self) -> list[str]:
        """The options that only modules take, as the user wrote them."""
        half = {"float16": "--half", "bfloat16": "--bfloat16"}.get(self.half, "")
        assumes = ("--assume-branch", self.assume_branch)
        options = ((half, self.half), ("--dynamic", self.dynamic), ("--strict", self.strict), assumes)
        return [name for name, value in options if value]


Preparation = Callable[["torch.nn.Module", Any, Any], tuple["torch.nn.Module", Any]]
"""Puts preprocessing before a module: takes the module, its inputs and the transforms that a function returns behind
them, or None; returns the whole and its inputs."""

AS_IT_IS = ExportOptions()
"""In eval mode, with fixed sizes."""


def exported_by(path: Path, function: str, options: ExportOptions, prepare: Preparation | None = None) -> ModelSource:
    """The model that a function of a Python file returns: an exported program, or a module with inputs.

    The inputs are a tuple, or a dict of keyword arguments; `dynamic_shapes` of `torch.export` may follow, or for
    `prepare`, which puts preprocessing before the module, transforms.

    Raises:
        UsageError: there is no such function, or an option does not fit the model.
        PatcompError: the function or the export fails, or the function returns something else.
    """
    import torch

    from patcomp import export

    held = vars(run_file(path))
    made = held.get(function)
    if not callable(made):
        near = did_you_mean(function.strip(":()"), [name for name, value in held.items() if callable(value)])
        raise UsageError(f"{path} has no function {function}{near}")
    with running(f"{function} of {path}"):
        model = made()
    name = f"{path}:{function}"
    if isinstance(model, torch.export.ExportedProgram):
        check_unused(name, options, prepare)
        return ModelSource(name, model)
    if not (isinstance(model, tuple) and len(model) in (2, 3) and isinstance(model[0], torch.nn.Module)):
        raise PatcompError(
            f"{function} of {path} returns {_returned(model)}, not an ExportedProgram, nor a module and its inputs"
        )
    module, inputs, *shapes = model
    has_transforms = bool(shapes) and callable(shapes[0])
    if not isinstance(inputs, tuple | list | Mapping):
        raise PatcompError(
            f"{function} of {path}: the inputs must be a tuple, or a dict of keyword arguments, "
            f"got {type(inputs).__name__}"
        )
    if has_transforms != (bool(shapes) and prepare is not None):
        raise UsageError(
            f"{function} of {path} returns transforms behind the inputs; give --preprocess image"
            if has_transforms
            else f"{function} of {path} returns dynamic shapes, and --preprocess image takes images of one size"
        )
    if prepare is not None:
        with running(f"the preprocessing of {function} of {path}"):
            module, inputs = prepare(module, inputs, shapes.pop() if shapes else None)
    if shapes and options.dynamic:
        raise UsageError(f"{function} of {path} returns dynamic shapes itself; leave out --dynamic")
    note = ""
    if not options.train and any(part.training for part in module.modules()):
        module.eval()
        note = f"{name} is converted in eval mode; --train keeps its train mode"
    float32_model = None
    if options.half:
        float32_model, inputs, lost = _in_half(module, inputs, getattr(torch, options.half))
        note = "\nnote: ".join(filter(None, (note, lost)))
    keywords = dict(inputs) if isinstance(inputs, Mapping) else {}
    positional = () if isinstance(inputs, Mapping) else tuple(inputs)
    dynamic = shapes[0] if shapes else _dynamic_shapes(dynamic_sizes(options.dynamic), module, positional, keywords)
    with running(f"the export of {function} of {path}"):
        try:
            exported = export(
                module,
                positional,
                keywords,
                dynamic_shapes=dynamic,
                strict=options.strict,
                assume_branch=options.assume_branch,
            )
        except ExportError as error:
            raise PatcompError(f"{function} of {path} cannot be exported: {error.problem}") from error
    return ModelSource(name, exported, module, float32_model, note=note)


def _returned(made: Any) -> str:
    """What a function returned in the place of a model: `a tuple of Tensor and Net`."""
    import torch

    if isinstance(made, torch.nn.Module):
        return f"{type(made).__name__} without example inputs"
    if not isinstance(made, tuple | list) or not made:
        return type(made).__name__
    kinds = " and ".join(f"the class {e.__name__}" if isinstance(e, type) else type(e).__name__ for e in made[:3])
    first = any(isinstance(each, torch.nn.Module) for each in made[1:])
    return f"a {type(made).__name__} of {kinds}" + (" (the module comes first)" if first else "")


def check_unused(name: str, options: ExportOptions, prepare: Preparation | None = None) -> None:
    """Refuse the options of an export, because the program is exported already.

    Raises:
        UsageError: one is.
    """
    if unused := [*options.given(), *(["--preprocess"] if prepare else [])]:
        raise UsageError(
            f"{', '.join(unused)} must be known when a module is exported, and {name} is exported already; "
            "use FILE.py:FUNCTION with a function that returns the module and its inputs"
        )


def _in_half(module: torch.nn.Module, inputs: Any, dtype: torch.dtype) -> tuple[torch.nn.Module | None, Any, str]:
    """Convert a module to half precision.

    Returns:
        A copy of the module as it was, its inputs in half precision, and what to tell the user of numbers that half
        precision cannot hold. No copy of a module that Python cannot copy, such as one with weight norm.
    """
    import torch

    from patcomp.pytorch import pytree

    lost: list[str] = []

    def narrowed(path: Any, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or not leaf.is_floating_point():
            return leaf
        made = leaf.to(dtype)
        if bool((leaf.isfinite() & ~made.isfinite()).any()):
            lost.append(path if isinstance(path, str) else f"input{pytree.keystr(path)}")
        return made

    try:
        before = copy.deepcopy(module)
    except (RuntimeError, TypeError, NotImplementedError):
        before = None
    for name, weight in (*module.named_parameters(), *module.named_buffers()):
        narrowed(name, weight.detach())
    made = pytree.tree_map_with_path(narrowed, inputs)
    names = ", ".join(lost[:3]) + (f" and {len(lost) - 3} more" if len(lost) > 3 else "")
    what = f"{str(dtype).removeprefix('torch.')} cannot hold numbers of {names}, which become infinite" if lost else ""
    module.to(dtype)
    return before, made, what


@dataclass(frozen=True)
class _DynamicSize:
    """What `--dynamic INPUT:AXIS=NAME:MIN..MAX` says."""

    text: str
    input: str
    axis: int
    name: str
    limits: dict[str, int]


_DYNAMIC = re.compile(r"(?P<input>[^:=]+):(?P<axis>\d+)=(?P<name>[A-Za-z_]\w*)(:(?P<min>\d+)\.\.(?P<max>\d*))?")


def dynamic_sizes(texts: Sequence[str]) -> list[_DynamicSize]:
    """What `INPUT:AXIS=NAME:MIN..MAX` texts say; equal names are one size, with the range that one of them gives.

    Raises:
        UsageError: a text has another form, or a name has two ranges, or an empty one.
    """
    sizes: list[tuple[str, str, int, str]] = []
    ranges: dict[str, dict[str, int]] = {}
    for text in texts:
        found = _DYNAMIC.fullmatch(text)
        if found is None:
            raise UsageError(f"--dynamic {text} must have the form INPUT:AXIS=NAME:MIN..MAX, such as x:0=batch:1..64")
        limits = {side: int(found[side]) for side in ("min", "max") if found[side]}
        known = ranges.get(found["name"], {})
        if limits and known and limits != known:
            raise UsageError(f"--dynamic {text}: {found['name']} has another range elsewhere; equal names are one size")
        if limits.get("min", 0) > limits.get("max", sys.maxsize):
            raise UsageError(f"--dynamic {text}: the range is empty")
        ranges[found["name"]] = limits or known
        sizes.append((text, found["input"], int(found["axis"]), found["name"]))
    return [_DynamicSize(*size, ranges[size[-1]]) for size in sizes]


def _dynamic_shapes(
    sizes: Sequence[_DynamicSize], module: torch.nn.Module, positional: tuple[Any, ...], keywords: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The `dynamic_shapes` of `torch.export`.

    Raises:
        UsageError: a size names no tensor or axis that the model takes.
    """
    import torch
    from torch.export import Dim

    if not sizes:
        return None
    given = inspect.signature(module.forward).bind(*positional, **keywords).arguments
    shapes: dict[str, Any] = dict.fromkeys(given)
    dims = {size.name: Dim(size.name, **size.limits) for size in sizes}
    for size in sizes:
        value = given.get(size.input)
        if not isinstance(value, torch.Tensor):
            tensors = [each for each, value in given.items() if isinstance(value, torch.Tensor)]
            raise UsageError(
                f"--dynamic {size.text}: no tensor input is called {size.input}; there are "
                f"{near_names(size.input, tensors)}"
            )
        if size.axis >= value.dim():
            raise UsageError(f"--dynamic {size.text}: {size.input} has {value.dim()} dimensions, counted from 0")
        shapes[size.input] = {**(shapes[size.input] or {}), size.axis: dims[size.name]}
    return shapes
