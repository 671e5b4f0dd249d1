"""Operator schemas of the installed PyTorch, with what the operators do with elements, as `patcomp.ir.aten` reads them.

`python -m patcomp.frontend_torch.schemas > patcomp/ir/aten_schemas.txt` updates the bundled table.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.ao.quantization.fx._decomposed

from patcomp.pytorch import all_schemas

_NAMESPACES = ("aten", "quantized_decomposed")

_MARKED = {
    "pointwise": "_to_copy alias contiguous detach full_like hardswish lift_fresh_copy",
    "same_shape": "_log_softmax _softmax cumprod cumsum native_layer_norm rms_norm",
    "view": "alias chunk contiguous detach diagonal expand expand_as flatten.using_ints lift_fresh mT movedim.int"
    " movedim.intlist narrow narrow.Tensor numpy_T permute ravel reshape reshape_as select.int slice.Tensor split"
    " split.Tensor split.sizes split_with_sizes squeeze squeeze.dim squeeze.dims swapaxes swapdims t transpose.int"
    " unbind.int unflatten.int unfold unsqueeze view view_as",
    "selection": "as_strided gather index.Tensor index_select masked_select pixel_shuffle reflection_pad1d"
    " reflection_pad2d reflection_pad3d repeat repeat_interleave.self_int replication_pad1d replication_pad2d"
    " replication_pad3d",
    "whole": "_unsafe_view alias clone contiguous detach expand flip lift_fresh_copy permute reshape squeeze"
    " squeeze.dim squeeze.dims t transpose.int unsqueeze view",
    "movement": "_reshape_alias _reshape_copy _unsafe_index.Tensor _unsafe_index_put as_strided_scatter cat"
    " channel_shuffle constant_pad_nd copy diag_embed diagonal_copy diagonal_scatter embedding expand_copy fill.Scalar"
    " fill.Tensor im2col index_copy index_fill.int_Scalar index_fill.int_Tensor index_put masked_fill.Scalar"
    " masked_fill.Tensor masked_scatter permute_copy pixel_unshuffle roll rot90 scatter.src scatter.value"
    " select_scatter slice_copy.Tensor slice_scatter squeeze_copy squeeze_copy.dim squeeze_copy.dims stack"
    " take_along_dim tile tril triu unsqueeze_copy view_copy where.Scalar where.ScalarOther where.ScalarSelf where.self"
    " zero",
}
"""What the operators do with elements, by the mark of a trait; pointwise are also those that PyTorch tags so."""


_GRADIENTS = (
    "aten::mish_backward", "aten::mse_loss_backward", "aten::rrelu_with_noise_backward",
    "aten::soft_margin_loss_backward", "aten::threshold_backward",
)  # fmt: skip
"""The gradients that rules decompose; the others are left out."""


def functional_schemas() -> list[str]:
    """The schemas of PyTorch's overloads that return new tensors and mutate nothing, as sorted texts with marks."""
    texts = set()
    for schema in all_schemas():
        mutates = any(a.alias_info is not None and a.alias_info.is_write for a in schema.arguments)
        takes_tensors = any("Tensor" in str(part.type) for part in (*schema.arguments, *schema.returns))
        known = schema.name.partition("::")[0] in _NAMESPACES
        is_left_out = "backward" in schema.name and schema.name not in _GRADIENTS
        if known and not mutates and takes_tensors and not is_left_out:
            marks = " ".join(_marks(schema))
            texts.add(f"{schema}  # {marks}" if marks else str(schema))
    return sorted(texts)


def _marks(schema: Any) -> list[str]:
    """The names of an operator's traits."""
    namespace, _, name = schema.name.partition("::")
    if namespace != "aten":
        return []
    overload = f"{name}.{schema.overload_name}" if schema.overload_name else name
    found = getattr(getattr(torch.ops.aten, name), schema.overload_name or "default", None)
    tagged = found is not None and torch.Tag.pointwise in found.tags and str(schema.returns[0].type) == "Tensor"
    listed = {mark: overload in operators.split() for mark, operators in _MARKED.items()}
    return [mark for mark, holds in listed.items() if holds or (mark == "pointwise" and tagged)]


if __name__ == "__main__":
    print("\n".join(functional_schemas()))
