"""One message about a model that no step exports: where, why, and what to change."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from patcomp.errors import ExportError, Problem, reason_of, shortened
from patcomp.frontend_torch.exporting.places import line_of, module_path_of, raises_itself
from patcomp.frontend_torch.exporting.refusals import RefusedError
from patcomp.pytorch import pytree

_LOGGER = logging.getLogger("patcomp.export")

_CONTROL_FLOW = (
    "write a decision at run time with torch.cond or torch.where, a loop with while_loop or scan, and give a number "
    "that is the same in every run as a Python number; see docs/control-flow.md"
)
_SIZES = "see docs/dynamic-shapes.md"
_TEXT = "see docs/export.md. PyTorch's own text is logged at the level debug"
_SCRIPTED = (
    "export the Python module that was scripted or traced; where only the file is left, write the module again and "
    "give it the state_dict() of the file. If the model is also there as a file of ONNX, patcomp converts this file"
)
_GENERAL = "change the model there, or export a part of it; see docs/export.md and docs/control-flow.md"

_ON_VALUES = re.compile(
    r"data-dependent|_local_scalar_dense|DataDependentOutput|DynamicOutputShape|unbacked|data is not allocated yet"
    r"|\.numpy\(\) is not supported for tensor subclasses",
    re.IGNORECASE,
)
_ON_SIZES = re.compile(r"Constraints violated|dynamic_shapes")
_FIXED = re.compile(r"You marked (\w+) as dynamic but your code specialized it to be a constant \((\d+)\)")
_ASKED = re.compile(
    r"Could not (?:guard on|extract specialized integer from) data-dependent expression (.+?)(?: \(|$)", re.MULTILINE
)
_GIVEN_A_SIZE = re.compile(r"argument '(\w+)'.{0,40} must be \w+, not Sym(Bool|Int|Float)")
_KINDS = {
    "Bool": "a condition on a dynamic size",
    "Int": "a dynamic size",
    "Float": "a number computed from a dynamic size",
}


def what_is_wrong_with(model: Any, args: Any, kwargs: Any) -> str | None:
    """What `export` cannot take of its arguments, as a sentence."""
    if not isinstance(model, nn.Module):
        if isinstance(args, nn.Module):
            return "export takes the module first, then its example arguments: export(model, (x,))"
        return f"export takes a torch.nn.Module, got {type(model).__name__}; put a function into the forward of one"
    if isinstance(model, torch.jit.ScriptModule):
        return f"export takes a module of Python, and this one is of TorchScript; {_SCRIPTED}"
    if isinstance(args, Tensor | Mapping | str) or not isinstance(args, Sequence):
        advice = "kwargs takes keyword arguments" if isinstance(args, Mapping) else "write (x,) for one argument"
        return f"the example arguments must be a tuple, got {type(args).__name__}; {advice}"
    if kwargs is not None and not isinstance(kwargs, Mapping):
        return f"kwargs must be a dict of keyword arguments, got {type(kwargs).__name__}"
    return None


def wrong_shapes(model: nn.Module, call: tuple[tuple[Any, ...], dict[str, Any], Any]) -> ExportError | None:
    """The error about names and axes of dynamic shapes that the example does not have."""
    wrong = _wrong_shapes(model, call)
    if wrong is None:
        return None
    return ExportError(f"{type(model).__name__} cannot be exported", Problem(wrong, advice=_SIZES))


def _wrong_shapes(model: nn.Module, call: tuple[tuple[Any, ...], dict[str, Any], Any]) -> str | None:
    args, kwargs, shapes = call
    try:
        given = inspect.signature(model.forward).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        return None  # the example itself does not fit, or forward has no signature
    if isinstance(shapes, Mapping):
        if set(shapes) != set(given):
            own, named = (", ".join(map(str, names)) or "none" for names in (given, shapes))
            return f"dynamic_shapes must have one entry for each argument of the example, {own}, and has {named}"
        shapes = [shapes[name] for name in given]
    return _wrong_axis(list(given.values()), shapes)


def _wrong_axis(value: Any, shapes: Any) -> str | None:
    """The first axis that a tensor does not have, as a sentence."""
    if isinstance(value, Tensor) and isinstance(shapes, Mapping):
        wrong = [axis for axis in shapes if isinstance(axis, int) and not -value.dim() <= axis < value.dim()]
        sizes = "x".join(map(str, value.shape)) or "one number"
        return f"dynamic_shapes has the axis {wrong[0]} of a tensor of {sizes}" if wrong else None
    if isinstance(value, list | tuple) and isinstance(shapes, list | tuple):
        return next(filter(None, map(_wrong_axis, value, shapes)), None)
    if isinstance(value, Mapping) and isinstance(shapes, Mapping):
        return next(filter(None, (_wrong_axis(value[key], shapes[key]) for key in value if key in shapes)), None)
    return None


def baked_in(branches: Sequence[tuple[str, str]], model: nn.Module) -> ExportError:
    """The error about decisions by data that a draft makes once and for all.

    Args:
        branches: the line and the code of each.
    """
    places = dict.fromkeys(
        ", ".join(filter(None, (code and f"`{shortened(code, 100)}`", line and f"at {line}")))
        for line, code in branches
    )
    listed = "; ".join(filter(None, places))
    message = "the model decides in Python by a value that only a run knows"
    advice = f"{_CONTROL_FLOW}. If all inputs decide as the example does, assume_branch=True (--assume-branch) fixes it"
    problem = Problem(f"{message}: {listed}" if listed else message, advice=advice)
    return ExportError(f"{type(model).__name__} cannot be exported", problem)


def stateful(names: Sequence[str], model: nn.Module) -> ExportError:
    """The error about tensors in plain attributes that a model changes in each run."""
    why = f"the model keeps {', '.join(names)} from one run to the next, and torch.export makes constants of attributes"
    advice = "make each a buffer (register_buffer), which is state of the program, or an argument and a result"
    return ExportError(
        f"{type(model).__name__} cannot be exported",
        Problem(why, advice=f"{advice}; see docs/inputs-outputs-and-state.md"),
    )


def unfit(own: Exception, model: nn.Module, call: tuple[tuple[Any, ...], dict[str, Any], Any]) -> ExportError:
    """The error for the user about a model that does not run on its example inputs in eager PyTorch either.

    Args:
        own: what the model raises.
        call: positional and keyword arguments, and dynamic shapes.
    """
    args, kwargs, _ = call
    _LOGGER.debug("the model fails on its example inputs with %s: %s", type(own).__name__, own)
    path, line, advice = module_path_of(own, model), line_of(own), f"give inputs with which the model runs; {_TEXT}"
    taken = inspect.signature(model.forward)
    try:
        given = taken.bind(*args, **kwargs).arguments
    except TypeError as error:
        why, path, line = f"the example inputs do not fit forward({', '.join(taken.parameters)}): {error}", "", ""
    else:
        why = f"the model fails on its example inputs in eager PyTorch, too; they are {_described(given)}"
        failing = model.get_submodule(path)
        devices = _devices(model), _devices(given)
        if "meta" in devices[0] | devices[1] and devices[0] != devices[1]:
            why += f"; the model is on {' and '.join(sorted(devices[0]))}, and they are on " + " and ".join(devices[1])
        elif raises_itself(own) or not isinstance(own, RuntimeError | TypeError | IndexError | ValueError):
            why = reason_of(own)
        elif type(failing).__module__.startswith("torch.nn"):
            why += f", and {' '.join(str(failing).split())} does not take what it gets"
    headline = f"{type(model).__name__} cannot be exported"
    return ExportError(headline, Problem(why, module_path=path, source=line, advice=advice))


def _devices(held: nn.Module | Mapping[str, Any]) -> set[str]:
    """The kinds of devices of a model's weights, or of the tensors among some arguments."""
    if isinstance(held, nn.Module):
        return {each.device.type for each in (*held.parameters(), *held.buffers())}
    return {leaf.device.type for leaf in pytree.tree_leaves(dict(held)) if isinstance(leaf, Tensor)}


def _described(given: Mapping[str, Any]) -> str:
    """The shapes and types of the tensors among some arguments: `x: 2x31 of float32`."""
    leaves = pytree.tree_flatten_with_path(dict(given))[0]
    return (
        ", ".join(
            f"{pytree.keystr(path).replace(chr(39), '').removeprefix('[').replace(']', '', 1)}: "
            + ("x".join(map(str, leaf.shape)) or "one number")
            + f" of {str(leaf.dtype).removeprefix('torch.')}"
            for path, leaf in leaves
            if isinstance(leaf, Tensor)
        )
        or f"no tensors, but {', '.join(dict.fromkeys(type(leaf).__name__ for _, leaf in leaves)) or 'nothing'}"
    )


def explained(failures: Sequence[BaseException], model: nn.Module) -> ExportError:
    """The error for the user, from the failure of each step.

    Args:
        failures: in the order of the steps. patcomp's own refusal explains most. Otherwise take the first failure with
            a line of the model, because later steps fail for the same reason.
    """
    ours = [failure for failure in failures if isinstance(failure, RefusedError)]
    scripted = [path for path, module in model.named_modules() if isinstance(module, torch.jit.ScriptModule)]
    if scripted and not ours:
        return ExportError(
            f"{type(model).__name__} cannot be exported",
            Problem(
                "the model is TorchScript, which torch.export does not read", module_path=scripted[0], advice=_SCRIPTED
            ),
        )
    placed = [failure for failure in failures[:2] if line_of(failure)]
    failure = (ours or placed[::-1] or list(failures))[0]
    why, advice = _why(failure)
    return ExportError(
        f"{type(model).__name__} cannot be exported",
        Problem(why, module_path=module_path_of(failure, model), source=line_of(failure), advice=advice),
    )


def _why(failure: BaseException) -> tuple[str, str]:
    text = f"{type(failure).__name__}: {failure}"
    if isinstance(failure, RefusedError):
        return str(failure), _GENERAL
    if fixed := _FIXED.search(text):
        return f"the model fixes the dimension {fixed[1]}, which dynamic_shapes leaves open, to {fixed[2]}", _SIZES
    if _ON_SIZES.search(text) and not _ASKED.search(text):
        return _first_lines(str(failure)), _SIZES
    if asked := _ASKED.search(str(failure)):
        return f"the model decides in Python by a value that only a run knows, {asked[1].strip()}", _CONTROL_FLOW
    if "data-dependent branching" in text.lower():
        return "the model decides in Python by a value that only a run knows", _CONTROL_FLOW
    if _ON_VALUES.search(text):
        return "the model reads a number from a tensor whose values only a run knows", _CONTROL_FLOW
    if "unhashable type: non-nested Sym" in text:
        return "the model looks up, in a set or dict, a number that only a run knows", _CONTROL_FLOW
    if given := _GIVEN_A_SIZE.search(text):
        return (
            f"the model passes {_KINDS[given[2]]} as the argument {given[1]} of an operator, which must be the same in "
            "every run"
        ), f"export with that dimension fixed, or decide by a number that is not a size; {_SIZES}"
    if "Unexpected key _export_root" in text:
        return (
            "the model catches an exception that one of its modules raises, after which torch.export has lost its "
            "place among the modules"
        ), "decide before the call what the module takes, instead of try and except"
    return reason_of(failure), _GENERAL


def _first_lines(text: str) -> str:
    """The facts of PyTorch's message about dynamic shapes: its first lines, without those about its own logs."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and "TORCH_LOGS" not in line]
    return " ".join(lines[:4])
