"""Operator schemas of the installed PyTorch, in the form that `patcomp.ir.aten` reads.

`python -m patcomp.frontend_torch.schemas > patcomp/ir/aten_schemas.txt` updates the bundled table.
"""

from __future__ import annotations

import torch.ao.quantization.fx._decomposed  # noqa: F401  (registers the ops of `quantized_decomposed`)

from patcomp.pytorch import all_schemas

_NAMESPACES = ("aten", "quantized_decomposed")


def functional_schemas() -> list[str]:
    """The schemas of PyTorch's overloads that return new tensors and mutate nothing, as sorted texts."""
    texts = set()
    for schema in all_schemas():
        mutates = any(a.alias_info is not None and a.alias_info.is_write for a in schema.arguments)
        takes_tensors = any("Tensor" in str(part.type) for part in (*schema.arguments, *schema.returns))
        known = schema.name.partition("::")[0] in _NAMESPACES
        if known and not mutates and takes_tensors and "backward" not in schema.name:
            texts.add(str(schema))
    return sorted(texts)


if __name__ == "__main__":
    print("\n".join(functional_schemas()))
