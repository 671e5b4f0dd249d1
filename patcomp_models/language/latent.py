"""Attend to latents in the cache: check whether a model can, and whether all layers of a program do.

The rule is `patterns_catalog/optional/latent_attention.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import nn

from patcomp import AIProgram
from patcomp.ir.locations import origins, rules
from patcomp_models.checkpoints.loading import attention_of
from patcomp_models.errors import LanguageModelError
from patterns_catalog.optional.latent_attention import attention_to_latents

_METHOD, _ATTENTION = "expand_kv", "sdpa"


def check_can_absorb(model: Any) -> None:
    """Check that latents of a model can be absorbed.

    Raises:
        LanguageModelError: it has no latents, or a weight or an implementation that does not allow it.
    """
    layers = _layers(model)
    name = type(model).__name__
    if not layers:
        raise LanguageModelError(
            f"{name} has no latent attention of which transformers makes keys and values ({_METHOD}); leave "
            "absorb_latents= (--absorb-latents) out"
        )
    if attention_of(model) != _ATTENTION:
        raise LanguageModelError(f"absorb_latents= needs a model with attn_implementation={_ATTENTION!r}")
    for layer in layers.values():
        if type(layer.kv_b_proj) is not nn.Linear or not layer.kv_b_proj.weight.is_floating_point():
            raise LanguageModelError(
                "absorb_latents= splits the weights kv_b_proj, which this checkpoint has in few bits; leave it out, or "
                "convert floats and pass compress="
            )


def check_absorbed(program: AIProgram, decoder: nn.Module, functions: Iterable[str]) -> None:
    """Check that each layer of latent attention attends to latents in some functions of a program.

    Args:
        program: what was converted.
        decoder: the module that was exported as these functions.
        functions: their names.

    Raises:
        LanguageModelError: the rule did not take some layers; the message names them.
    """
    rule = attention_to_latents.name
    for function in functions:
        made = [op.location for op in program.module.graph(function).walk() if rule in rules(op.location)]
        absorbed = {origin.module_path for location in made for origin in origins(location)}
        if left := [name for name in _layers(decoder) if name not in absorbed]:
            raise LanguageModelError(
                f"absorb_latents=: the rule {rule!r} does not know the attention of {', '.join(left)} in the function "
                f"{function!r}; leave absorb_latents= (--absorb-latents) out"
            )


def _layers(model: nn.Module) -> dict[str, Any]:
    """The layers of latent attention of a model, by name."""
    return {name: module for name, module in model.named_modules() if hasattr(type(module), _METHOD)}
