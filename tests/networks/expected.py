"""What a model has by its modules, and what of it a converted program has: the two sides of recovery.

The counting rule. One eager forward pass is watched, and each call of a module counts once:

- `layer_norm`, `group_norm`, `batch_norm`, `instance_norm`: `nn.LayerNorm` and so on, with their subclasses;
- `rms_norm`: classes whose name ends in `RMSNorm`, `RMSNormGated` or `T5LayerNorm`;
- `scaled_dot_product_attention`: classes with `Attention` in their name that hold no other such class;
- `rope`: two for each attention (queries and keys) of a model that has a class named `*RotaryEmbedding`;
- `gated_delta_update`: classes named `*GatedDeltaNet`;
- `gelu`, `silu`, `hard_sigmoid`: calls of PyTorch's functions, by modules or directly, and of the classes that write
  them out (`NewGELUActivation`, `QuickGELUActivation`, ...); hardswish is a product with a hard sigmoid. The activation
  of one and the same tensor by two modules counts once, as it is computed once;
- `pixel_shuffle`: `nn.PixelShuffle`;
- `gather_mm`: the three-dimensional weights of a class named `*Experts`, each of which is multiplied once.

In the program, `gelu` and `silu` are ops and everything else is a composite. An op or call inside of a graph counts as
often as that graph is called.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from patcomp import AIProgram
from patcomp.evaluate.inputs import prepare_input
from patcomp.ir.module import graph_name
from tests.networks.zoo import Example

KINDS = {
    "norms": ("layer_norm", "rms_norm", "group_norm", "batch_norm", "instance_norm"),
    "attentions": ("scaled_dot_product_attention", "gated_delta_update"),
    "ropes": ("rope",),
    "activations": ("gelu", "silu", "hard_sigmoid"),
    "shuffles": ("pixel_shuffle",),
    "expert products": ("gather_mm",),
}
"""The columns of the table, and the composites and ops that each of them sums."""

_NORMS: tuple[tuple[type[nn.Module], str], ...] = (
    (nn.LayerNorm, "layer_norm"),
    (nn.GroupNorm, "group_norm"),
    (nn.modules.batchnorm._BatchNorm, "batch_norm"),
    (nn.modules.instancenorm._InstanceNorm, "instance_norm"),
)
_FUNCTIONS = {
    functional.gelu: "gelu",
    functional.silu: "silu",
    functional.hardswish: "hard_sigmoid",
    functional.hardsigmoid: "hard_sigmoid",
}
_WRITTEN_OUT = ("NewGELUActivation", "FastGELUActivation", "QuickGELUActivation", "AccurateGELUActivation", "BloomGelu")


class _Activations(TorchFunctionMode):
    """Counts calls of PyTorch's activation functions on distinct tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs: dict[str, list[torch.Tensor]] = {}

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in _FUNCTIONS:
            seen = self.inputs.setdefault(_FUNCTIONS[function], [])
            if not any(args[0] is tensor for tensor in seen):
                seen.append(args[0])
        return function(*args, **(kwargs or {}))


def expected(model: nn.Module, args: tuple[torch.Tensor, ...]) -> dict[str, int]:
    """The composites and activations that a model has by its modules; see the counting rule above."""
    counts: Counter[str] = Counter()
    rotary = any(type(module).__name__.endswith("RotaryEmbedding") for module in model.modules())

    def count(found: dict[str, int]) -> Callable[..., None]:
        return lambda *_: counts.update(found)

    hooks = [module.register_forward_hook(count(_of_module(module, rotary))) for module in model.modules()]
    with torch.no_grad(), _Activations() as activations:
        model(*args)
    for hook in hooks:
        hook.remove()
    counts.update({name: len(inputs) for name, inputs in activations.inputs.items()})
    return dict(sorted(counts.items()))


def _of_module(module: nn.Module, rotary: bool) -> dict[str, int]:
    name = type(module).__name__
    for class_, composite in _NORMS:
        if isinstance(module, class_):
            return {composite: 1}
    if name.endswith(("RMSNorm", "RMSNormGated", "T5LayerNorm")):
        return {"rms_norm": 1}
    if "Attention" in name and not any("Attention" in type(part).__name__ for part in list(module.modules())[1:]):
        return {"scaled_dot_product_attention": 1, **({"rope": 2} if rotary else {})}
    if name.endswith("GatedDeltaNet"):
        return {"gated_delta_update": 1}
    if name.endswith("Experts"):
        return {"gather_mm": sum(parameter.dim() == 3 for parameter in module.parameters(recurse=False))}
    if isinstance(module, nn.PixelShuffle):
        return {"pixel_shuffle": 1}
    return {"gelu": 1} if name in _WRITTEN_OUT else {}


def recovered(program: AIProgram) -> dict[str, int]:
    """The composites and the activation ops of a converted program."""
    graphs = {graph_name(graph): graph for graph in program.module.graphs}

    def activations(name: str) -> Counter[str]:
        found: Counter[str] = Counter()
        for op in graphs[name].walk():
            if op.name in ("coreai.gelu", "coreai.silu"):
                found[op.name.removeprefix("coreai.")] += 1
            elif op.name == "coreai.invoke":
                found += activations(op.properties["callee"].symbol.string_value())
        return found

    return dict(sorted({**activations("main"), **program.composites}.items()))


def relative_error(
    program: AIProgram, example: Example, run: Callable[[dict[str, torch.Tensor]], Mapping[str, Any]]
) -> float:
    """The largest difference of the only output from eager PyTorch's, relative to the largest value of that.

    Args:
        run: runs the program on inputs by name, in the element types of the program.
    """
    with torch.no_grad():
        reference = example.model(*example.args)
    types = [argument.type for argument in program.module.graph("main").regions[0].block.args]
    named = zip(program.input_names(), example.args, types, strict=True)
    outputs = run({name: prepare_input(value, type_, name) for name, value, type_ in named})
    (given,) = outputs.values()
    difference = (torch.as_tensor(given) - reference).abs().max()
    return float(difference / reference.abs().max())


MISSES = {
    "gemma2 * scaled_dot_product_attention": "the scores go through a tanh (softcap) that the composite does not have",
}
"""Why a composite is not recovered, by `"architecture attention composite"`; `*` stands for any."""


def listed_miss(name: str, attention: str, composite: str) -> str:
    """The key of `MISSES` that covers a miss; empty where there is none."""
    for key in MISSES:
        if all(
            pattern in ("*", given) for pattern, given in zip(key.split(), (name, attention, composite), strict=True)
        ):
            return key
    return ""
