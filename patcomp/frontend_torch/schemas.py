"""Operator schemas of the installed PyTorch, with its tag of elementwise operators, as `patcomp.ir.aten` reads them.

`python -m patcomp.frontend_torch.schemas > patcomp/ir/aten_schemas.txt` updates the bundled table.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.ao.quantization.fx._decomposed

from patcomp.pytorch import all_schemas

_NAMESPACES = ("aten", "quantized_decomposed")

_GRADIENTS = (
    "aten::mish_backward", "aten::mse_loss_backward", "aten::rrelu_with_noise_backward",
    "aten::soft_margin_loss_backward", "aten::threshold_backward",
)  # fmt: skip
"""The gradients that rules decompose; the others are left out."""


def functional_schemas() -> list[str]:
    """The schemas of PyTorch's overloads that return new tensors and mutate nothing, as sorted texts with the tag."""
    texts = set()
    for schema in all_schemas():
        mutates = any(a.alias_info is not None and a.alias_info.is_write for a in schema.arguments)
        takes_tensors = any("Tensor" in str(part.type) for part in (*schema.arguments, *schema.returns))
        known = schema.name.partition("::")[0] in _NAMESPACES
        is_left_out = "backward" in schema.name and schema.name not in _GRADIENTS
        if known and not mutates and takes_tensors and not is_left_out:
            texts.add(f"{schema}  # pointwise" if _is_pointwise(schema) else str(schema))
    return sorted(texts)


def _is_pointwise(schema: Any) -> bool:
    """Whether PyTorch tags an operator as elementwise, and the operator returns one tensor."""
    namespace, _, name = schema.name.partition("::")
    if namespace != "aten":
        return False
    found = getattr(getattr(torch.ops.aten, name), schema.overload_name or "default", None)
    return found is not None and torch.Tag.pointwise in found.tags and str(schema.returns[0].type) == "Tensor"


if __name__ == "__main__":
    print("\n".join(functional_schemas()))
