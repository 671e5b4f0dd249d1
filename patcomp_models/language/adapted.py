"""Language models with adapters: merged into the weights, or beside weights that several models share."""

from __future__ import annotations

import copy
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from patcomp.errors import ConversionWarning
from patcomp_models.checkpoints.adapters import Adapter, LowRank, summed
from patcomp_models.errors import LanguageModelError
from patcomp_models.language.exchanging import exchange_modules

_TRANSPOSED = Conv1D, nn.Embedding
"""Modules whose weights are (in, out)."""


def merge_adapters(model: nn.Module, adapters: Iterable[tuple[Adapter, float]]) -> None:
    """Add adapters to the weights of a model of float32, in place.

    Args:
        model: of transformers.
        adapters: each with the share of it that is added.

    Raises:
        LanguageModelError: a weight of an adapter fits no module; or an adapter is added in part, or beside another
            one, and is no sum.
    """
    given = [*adapters]
    for adapter, share in given:
        is_sum = not adapter.weights and all(each.magnitude is None for each in adapter.products.values())
        if not is_sum and (share != 1 or len(given) > 1):
            raise LanguageModelError(
                f"the adapter {str(adapter.folder)!r} has weights that take the place of the model's, or magnitudes "
                "(DoRA), and cannot be added in part or beside another adapter; give it alone"
            )
        _replace_weights(model, adapter)
        for module, product in _modules(model, adapter):
            merged = summed(module.weight, product, share, is_transposed=isinstance(module, _TRANSPOSED))
            module.weight = nn.Parameter(merged, requires_grad=False)
            if product.bias is not None:
                module.bias = nn.Parameter(module.bias.float() + share * product.bias, requires_grad=False)


def with_adapter(model: nn.Module, adapter: Adapter) -> nn.Module:
    """A model with an adapter beside its weights, which it shares with the given model.

    Raises:
        LanguageModelError: a weight of the adapter fits no module.
    """
    shared = {id(each): each for each in (*model.parameters(), *model.buffers())}
    made = copy.deepcopy(model, shared)
    _replace_weights(made, adapter)
    exchange_modules(made, {module: _Adapted(module, product) for module, product in _modules(made, adapter)})
    return made


class _Adapted(nn.Module):
    """A module with the product of an adapter.

    Args:
        base: the module.
        product: what the adapter adds.
    """

    a: Tensor
    b: Tensor
    factor: Tensor | None
    bias: Tensor | None

    def __init__(self, base: Any, product: LowRank):
        super().__init__()
        dtype, weight = base.weight.dtype, base.weight
        self.base = base
        self.is_table = isinstance(base, nn.Embedding)
        self.scale = float(getattr(base, "embed_scale", 1.0)) if self.is_table else 1.0
        factor = None
        if product.magnitude is not None:
            is_transposed = isinstance(base, _TRANSPOSED)
            plain = summed(weight, LowRank(product.a, product.b), is_transposed=is_transposed)
            factor = product.magnitude / torch.linalg.norm(plain, dim=0 if is_transposed else 1)
        a = product.a.T.contiguous() if self.is_table else product.a
        for name, given in (("a", a), ("b", product.b), ("factor", factor), ("bias", product.bias)):
            weight = None if given is None else nn.Parameter(given.to(dtype), requires_grad=False)
            self.register_parameter(name, weight)

    def forward(self, x: Tensor) -> Tensor:
        """The result of the module, as if the product were a part of its weight."""
        made: Tensor = self.base(x)
        inner = nn.functional.embedding(x, self.a) * self.scale if self.is_table else nn.functional.linear(x, self.a)
        added = nn.functional.linear(inner, self.b)
        if self.factor is not None:  # it is a factor of the weight, and not of the bias
            bias = getattr(self.base, "bias", None)
            made = made if bias is None else made - bias
            made = (made + added) * self.factor
            made = made if bias is None else made + bias
        else:
            made = made + added
        return made if self.bias is None else made + self.bias


def _modules(model: nn.Module, adapter: Adapter) -> Sequence[tuple[Any, LowRank]]:
    """The modules that an adapter changes, and what it adds to each.

    Raises:
        LanguageModelError: there is no such module, or it is of another size.
    """
    tied = _tied(model)
    found = []
    for name, product in adapter.products.items():
        module: Any = _module(model, adapter, name)
        if not isinstance(module, nn.Linear | nn.Embedding | Conv1D):
            raise LanguageModelError(
                f"the adapter {str(adapter.folder)!r} changes {name}, a {type(module).__name__}; products are added to "
                "Linear, Conv1D and Embedding of plain floats"
            )
        sizes = (product.b.shape[0], product.a.shape[1])
        if tuple(module.weight.shape) != (sizes[::-1] if isinstance(module, _TRANSPOSED) else sizes):
            raise LanguageModelError(
                f"the adapter {str(adapter.folder)!r} has a product of {list(sizes)} for {name}, whose weight in the "
                f"model is {list(module.weight.shape)}; is it for another model ({adapter.base})?"
            )
        if product.bias is not None and module.bias is None:
            raise LanguageModelError(f"the adapter {str(adapter.folder)!r} has a bias for {name}, which has none")
        if id(module.weight) in tied:
            warnings.warn(
                f"the adapter {str(adapter.folder)!r} changes {name}, whose weight is the weight of another module, "
                "too; as where it was trained, only this module changes (merge_and_unload of peft changes both)",
                ConversionWarning,
                stacklevel=2,
            )
        found.append((module, product))
    return found


def _tied(model: nn.Module) -> set[int]:
    """The weights that several modules have."""
    counts = Counter(id(each) for _, each in model.named_parameters(remove_duplicate=False))
    return {each for each, count in counts.items() if count > 1}


def _replace_weights(model: nn.Module, adapter: Adapter) -> None:
    """Put the weights of an adapter in the place of a model's.

    Raises:
        LanguageModelError: the model has no such weight, or has it in another shape.
    """
    for name, weight in adapter.weights.items():
        module, _, kind = name.rpartition(".")
        owner = _module(model, adapter, module)
        own = dict(owner.named_parameters(recurse=False)).get(kind)
        if own is None or own.shape != weight.shape:
            what = "no such weight" if own is None else f"it as {list(own.shape)}"
            raise LanguageModelError(
                f"the adapter {str(adapter.folder)!r} has the weight {name} of {list(weight.shape)}, and the model has "
                f"{what}"
            )
        setattr(owner, kind, nn.Parameter(weight.to(own.dtype), requires_grad=False))


def _module(model: nn.Module, adapter: Adapter, name: str) -> nn.Module:
    """The module of a name in the model that an adapter was trained with, of which the model may be a part, or whose
    language model transformers has elsewhere now."""
    for each in (
        name, name.replace("language_model.", ""), name.replace("language_model.model.", "model.language_model."),
    ):  # fmt: skip
        try:
            return model.get_submodule(each)
        except AttributeError:
            continue
    raise LanguageModelError(
        f"the adapter {str(adapter.folder)!r} changes {name}, and {type(model).__name__} has no such module"
    )
