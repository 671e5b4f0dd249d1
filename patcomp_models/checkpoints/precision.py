"""The types of a model's weights: one for all, or float32 for some of its modules.

A module that is kept in float32 takes its inputs in float32, and its results go back to the type of the others. So do
keys and values that it puts into the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from patcomp_models.checkpoints.quantized.weight import Unpacking
from patcomp_models.errors import LanguageModelError


def set_types(model: nn.Module, dtype: torch.dtype, kept: Sequence[str] = ()) -> None:
    """Cast the weights of a model, in place.

    Tables that a checkpoint does not hold, such as the frequencies of rotary embeddings, keep their type: transformers
    computes with them in float32.

    Args:
        model: of transformers.
        dtype: of the weights.
        kept: names of modules, or patterns such as `"*.self_attn"`, that are in float32.

    Raises:
        LanguageModelError: a pattern fits no module, or one whose weights are in few bits.
    """
    outermost = _outermost(model, kept)
    for module in outermost:
        if any(isinstance(part, Unpacking) for part in module.modules()):
            raise LanguageModelError(
                f"float32= names {type(module).__name__}, whose weights are stored in few bits and stay so"
            )
    inside = {id(part) for module in outermost for part in module.modules()}
    # weights that are shared stay shared; the old ones are kept, so that no new one has the id of one of them
    cast: dict[tuple[int, torch.dtype], tuple[nn.Parameter, nn.Parameter]] = {}
    stored = model.state_dict().keys()
    for path, module in model.named_modules():
        wanted = torch.float32 if id(module) in inside else dtype
        for name, weight in [*module.named_parameters(recurse=False, remove_duplicate=False)]:
            if weight.is_floating_point() and weight.dtype != wanted:
                key = id(weight), wanted
                if key not in cast:
                    cast[key] = nn.Parameter(weight.detach().to(wanted), weight.requires_grad), weight
                setattr(module, name, cast[key][0])
        for name, buffer in [*module.named_buffers(recurse=False, remove_duplicate=False)]:
            if buffer.is_floating_point() and (f"{path}.{name}" if path else name) in stored:
                setattr(module, name, buffer.to(wanted))
    for module in outermost:
        module.register_forward_pre_hook(_widen(dtype), with_kwargs=True)
        module.register_forward_hook(_narrow(dtype))


def _outermost(model: nn.Module, kept: Sequence[str]) -> list[nn.Module]:
    """The modules that patterns name, without those inside of others."""
    names = [name for name, _ in model.named_modules() if name]
    for pattern in kept:
        if not any(fnmatchcase(name, pattern) for name in names):
            shown = ", ".join(name for name in names if name.count(".") > 1)[:100].rpartition(",")[0] or names[0]
            raise LanguageModelError(
                f"float32= names {pattern!r}, and no module has such a name; there are {shown}, ..."
            )
    chosen: list[str] = []
    for name in names:
        if any(fnmatchcase(name, each) for each in kept) and not any(name.startswith(f"{other}.") for other in chosen):
            chosen.append(name)
    return [model.get_submodule(name) for name in chosen]


def _widen(dtype: torch.dtype) -> Callable[..., Any]:
    def hook(module: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        return _cast(arguments, dtype, torch.float32), _cast(options, dtype, torch.float32)

    return hook


def _narrow(dtype: torch.dtype) -> Callable[..., Any]:
    def hook(module: nn.Module, arguments: tuple[Any, ...], result: Any) -> Any:
        return _cast(result, torch.float32, dtype)

    return hook


def _cast(value: Any, given: torch.dtype, wanted: torch.dtype) -> Any:
    """A value in which tensors of one type are of another one; caches and other objects stay."""
    if isinstance(value, Tensor):
        return value.to(wanted) if value.dtype == given else value
    if isinstance(value, Mapping):
        parts = {name: _cast(part, given, wanted) for name, part in value.items()}
        return parts if type(value) is dict else type(value)(**parts)
    if type(value) in (tuple, list):
        return type(value)(_cast(part, given, wanted) for part in value)
    return value


def given_names(given: str | Iterable[str]) -> tuple[str, ...]:
    """The names that a user gives; one need not be in a list."""
    return (given,) if isinstance(given, str) else tuple(given)
