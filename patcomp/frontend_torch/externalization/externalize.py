"""Externalization: select submodules that stay graphs of their own, and mark their calls during export.

    rms_norm = ExternalizeSpec(RMSNormImpl, "rms_norm", ["axes", "eps"])
    converter.add_pytorch_module(model, export_fn, externalize_modules=[rms_norm])

During export, the `forward` of each matched instance emits markers before and after its ops. The body stays part of the
single trace, with its parameters, options and mutations; the import forms regions from it.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from types import MethodType
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.export import ExportedProgram

from patcomp.errors import Problem, UnsupportedError
from patcomp.frontend_torch.externalization.markers import BEGIN, END, MarkedModule, marked_modules, scalar_text
from patcomp.ir.attributes import composite_value
from patcomp.pytorch import pytree


@dataclass(frozen=True)
class ExternalizeSpec:
    """Selects submodules that become graphs of their own.

    Args:
        target_class: an `nn.Module` class, subclasses included, or an `fnmatch` pattern of module paths,
            `"layers.*.mlp"`, where `*` may match several names.
        composite_op_name: the name of the composite op; without it, each graph is plain and public.
        composite_attrs: attributes of the instances to record as attributes of the composite; a member of an
            enumeration is recorded by its value.
        recover: whether other composites are recovered inside.

    Raises:
        TypeError: `target_class` is neither, or `composite_attrs` is not a list of names.
        ValueError: a name or pattern is empty, or `composite_attrs` is given without `composite_op_name`.
    """

    target_class: type[nn.Module] | str
    composite_op_name: str | None = None
    composite_attrs: Sequence[str] | None = None
    recover: bool = True

    def __post_init__(self) -> None:
        target, name, attributes = self.target_class, self.composite_op_name, self.composite_attrs
        if not isinstance(target, str) and not (isinstance(target, type) and issubclass(target, nn.Module)):
            raise TypeError(f"target_class must be an nn.Module class or a pattern of module paths, got {target!r}")
        if target == "":
            raise ValueError("target_class must not be an empty pattern")
        if name is not None and not isinstance(name, str):
            raise TypeError(f"composite_op_name must be a string, got {name!r}")
        if name is not None and not name.strip():
            raise ValueError("composite_op_name must not be empty")
        if attributes is not None:
            if not isinstance(attributes, list | tuple) or not all(isinstance(item, str) for item in attributes):
                raise TypeError(f"composite_attrs must be a list of attribute names, got {attributes!r}")
            if name is None:
                raise ValueError("composite_attrs needs composite_op_name, because only a composite op has attributes")

    @property
    def label(self) -> str:
        """The class's name, or the pattern."""
        return self.target_class if isinstance(self.target_class, str) else self.target_class.__name__

    def matches(self, module: nn.Module, paths: Sequence[str]) -> bool:
        """Whether the spec selects a module with the given paths."""
        if isinstance(self.target_class, str):
            return any(fnmatchcase(path, self.target_class) for path in paths)
        return isinstance(module, self.target_class)


ModuleChoice = ExternalizeSpec | type[nn.Module] | str


def mark_for_externalization(model: nn.Module, targets: Sequence[ModuleChoice]) -> Marking:
    """Mark the calls of submodules while a block runs; export, or quantize and export, inside the block.

        with mark_for_externalization(model, [ExternalizeSpec(RMSNormImpl, "rms_norm", ["axes", "eps"])]) as marking:
            exported = torch.export.export(model, args)
        marking.check(exported)  # an error if a pass inside the block removed a mark
        program = TorchConverter().add_exported_program(exported).to_coreai()

    Inside the block the model computes the same results and gradients. Afterwards it is unchanged, even if the block
    fails.

    Args:
        model: the module to export; the module itself is never matched.
        targets: specs, classes or patterns of module paths; a class or pattern alone means a plain graph. The first
            target that matches a submodule wins.

    Raises:
        TypeError: the targets are not a list of these, or a composite's attribute has a value of an unsupported type.
        AttributeError: an instance lacks an attribute that `composite_attrs` lists.
        RuntimeError: a submodule is marked already.
    """
    if not isinstance(targets, list | tuple):
        raise TypeError(f"the modules to externalize must be a list, got {targets!r}")
    specs = [target if isinstance(target, ExternalizeSpec) else ExternalizeSpec(target) for target in targets]
    paths: dict[nn.Module, list[str]] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        paths.setdefault(module, []).append(path)
    names: dict[int, list[str]] = {}
    for name, tensor in _tensors(model, remove_duplicate=False):
        names.setdefault(id(tensor), []).append(name)
    matched: set[int] = set()
    forwards: dict[str, tuple[nn.Module, MethodType]] = {}
    for module, where in paths.items():
        index = next((index for index, spec in enumerate(specs) if spec.matches(module, where)), None)
        if module is model or index is None:
            continue
        if _marked(module) is not None:
            raise RuntimeError(f"submodule {where[0]!r} is already marked for externalization")
        matched.add(index)
        forwards[where[0]] = module, _marked_forward(module, _described(module, where[0], specs[index], names))
    for module, forward in forwards.values():
        vars(module)["forward"] = forward  # not by setattr, which the module's class may override
    return Marking(
        {path: module for path, (module, _) in forwards.items()},
        tuple(spec.label for spec in specs),
        tuple(spec.label for index, spec in enumerate(specs) if index not in matched),
    )


@dataclass(frozen=True)
class Marking:
    """The submodules of a model whose calls are marked, by path, until `remove` or the end of a `with` block."""

    modules: dict[str, nn.Module]
    labels: tuple[str, ...] = ()
    """The requested class names and patterns."""
    unmatched: tuple[str, ...] = ()
    """The requested names that are no submodule's first match."""

    def __enter__(self) -> Marking:
        return self

    def __exit__(self, *exception: object) -> None:
        self.remove()

    def remove(self) -> None:
        """Remove the marks."""
        for module in self.modules.values():
            if (marked := _marked(module)) is not None:
                if marked.own_forward is None:
                    del vars(module)["forward"]
                else:
                    vars(module)["forward"] = marked.own_forward

    def check(self, program: ExportedProgram) -> None:
        """Check that a program exported inside the block has every mark.

        Raises:
            UnsupportedError: a target matched no submodule, or the program has no call of a matched submodule: the
                model does not call it, or another module replaced it, as eager-mode quantization does.
        """
        if complaints := self.complaints(program):
            raise UnsupportedError("marks for externalization are not in the program:", list(map(Problem, complaints)))

    def complaints(self, program: ExportedProgram) -> list[str]:
        """Warnings about requested modules that are not in a program."""
        found = []
        if self.unmatched:
            found.append(
                "externalize_modules: the following target class(es) did not match any submodule in the model: "
                + ", ".join(self.unmatched)
            )
        called = {module.path for module in marked_modules(program)}
        found += [
            f"No call sites found for externalized submodule {path!r} in exported_program. It will not be externalized."
            for path in self.modules if path not in called
        ]  # fmt: skip
        return found


def _tensors(module: nn.Module, *, remove_duplicate: bool) -> Iterator[tuple[str, torch.Tensor]]:
    yield from module.named_parameters(remove_duplicate=remove_duplicate)
    yield from module.named_buffers(remove_duplicate=remove_duplicate)


def _described(module: nn.Module, path: str, spec: ExternalizeSpec, names: dict[int, list[str]]) -> MarkedModule:
    if spec.composite_op_name is None:
        return MarkedModule(path, recover=spec.recover)
    attributes = {}
    for attribute in spec.composite_attrs or ():
        what = f"{type(module).__name__}.{attribute} of submodule {path!r}"
        if not hasattr(module, attribute):
            raise AttributeError(f"{what} does not exist, but composite_attrs lists it")
        try:
            value = _plain(getattr(module, attribute))
            if value is not None:
                composite_value(value)
                attributes[attribute] = value
        except (TypeError, OverflowError) as error:
            raise type(error)(f"{what} cannot be an attribute of a composite: {error}") from None
    if type(attributes.get("version", 1)) is not int:
        raise TypeError(f"version of submodule {path!r} must be an int, got {attributes['version']!r}")
    own = {name: names[id(tensor)] for name, tensor in _tensors(module, remove_duplicate=True)}
    return MarkedModule(path, spec.composite_op_name, attributes, spec.recover, own)


def _plain(value: Any) -> Any:
    """A value with members of enumerations and numpy scalars as Python values, and tuples as lists.

    Raises:
        TypeError: a key of a dict is empty or not a string.
    """
    if isinstance(value, Enum):
        return _plain(value.value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        if strange := [key for key in value if not isinstance(key, str) or not key]:
            raise TypeError(f"the keys of a dict must be strings that are not empty, got {strange[0]!r}")
        return {key: _plain(item) for key, item in value.items()}
    return value


# ---- the marked forward ---------------------------------------------------------------------------


def _marked(module: nn.Module) -> Any:
    """The function that marks a module's calls, or None."""
    function = getattr(vars(module).get("forward"), "__func__", None)
    return function if hasattr(function, "own_forward") else None


def _marked_forward(module: nn.Module, description: MarkedModule) -> MethodType:
    """The module's `forward` with markers around it.

    It is a method of the instance, so that a copy of the module calls itself, and plain enough for dynamo to trace.
    """
    own_forward = vars(module).get("forward")
    original: Any = own_forward or type(module).forward
    parameters = list(inspect.signature(original).parameters.values())[0 if own_forward else 1 :]
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    variadic = next((p.name for p in parameters if p.kind == p.VAR_POSITIONAL), "")
    order = [p.name for p in parameters if p.kind != p.VAR_KEYWORD]
    defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
    text, is_composite = description.text(), description.composite is not None

    @functools.wraps(original)
    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        given = {**defaults, **dict(zip(positional, args, strict=False)), **kwargs}
        if len(args) > len(positional):
            given[variadic] = args[len(positional) :]
        tensors: list[torch.Tensor] = []
        names: list[str] = []
        scalars: list[str] = []
        for name in [*order, *(name for name in kwargs if name not in order)]:
            if name in given:
                _flatten(name, given[name], tensors, names, scalars)
        BEGIN(tensors, names, scalars if is_composite else [], text)
        result = own_forward(*args, **kwargs) if own_forward else original(self, *args, **kwargs)
        results: list[torch.Tensor] = []
        _flatten("", result, results, [], [])
        END(results, text)
        return result

    forward.own_forward = own_forward  # type: ignore[attr-defined]
    return MethodType(forward, module)


_TENSORS = (torch.Tensor, torch.fx.Proxy)
"""The types of tensors in a call, including the proxies of `torch.fx.symbolic_trace`, which older quantizers use."""


def _flatten(name: str, value: Any, tensors: list[torch.Tensor], names: list[str], scalars: list[str]) -> None:
    """Split an argument into named tensors and the texts of all other values."""
    if isinstance(value, _TENSORS):
        tensors.append(value)  # type: ignore[arg-type]
        names.append(name)
    elif value is None:
        return
    elif not any(isinstance(leaf, _TENSORS) for leaf in pytree.tree_leaves(value)):
        scalars.append(scalar_text(name, value))
    else:
        items = value.items() if isinstance(value, dict) else enumerate(
            value if isinstance(value, list | tuple) else pytree.tree_leaves(value)
        )  # fmt: skip
        for key, item in items:
            _flatten(f"{name}_{key}", item, tensors, names, scalars)


# ---- two steps, as quantizers call them -----------------------------------------------------------


def _patch_model_for_externalization(model: nn.Module, targets: Sequence[ModuleChoice]) -> None:
    """Mark a model until `_subexport_and_restore`; new code uses `mark_for_externalization`."""
    mark_for_externalization(model, targets)


def _subexport_and_restore(
    model: nn.Module, exported: ExportedProgram, *, progress_bar: Any = None
) -> list[MarkedModule]:
    """Remove the marks of a model and list the externalized modules that the exported program calls.

    The program contains them already, so nothing is exported here, and `progress_bar` is ignored.
    """
    marking = Marking({
        path: module for path, module in model.named_modules() if path and _marked(module) is not None
    })  # fmt: skip
    marking.remove()
    for complaint in marking.complaints(exported):
        warnings.warn(complaint, UserWarning, stacklevel=2)
    return list({module.path: module for module in marked_modules(exported)}.values()) if marking.modules else []
