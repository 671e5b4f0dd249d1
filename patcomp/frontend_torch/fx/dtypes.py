"""PyTorch dtypes, tensors and element types of the IR."""

from __future__ import annotations

import numpy as np
import torch

from patcomp.evaluate.element_types import ELEMENT_OF_DTYPE
from patcomp.frontend_torch.fx.sizes import known_shape
from patcomp.ir.types import element_name, element_type, tensor
from patcomp.ir.xdsl import Attribute, TensorType
from patcomp.pytorch import FakeTensor, is_traceable_wrapper_subclass

_DTYPES = {name: dtype for dtype, name in ELEMENT_OF_DTYPE.items()}


def element_of(dtype: torch.dtype) -> Attribute:
    """The element type of a PyTorch dtype.

    Raises:
        TypeError: the IR has no such element type.
    """
    try:
        return element_type(ELEMENT_OF_DTYPE[dtype])
    except KeyError:
        raise TypeError(f"{dtype} has no Core AI element type") from None


def dtype_of(element: Attribute) -> torch.dtype:
    """The PyTorch dtype of an element type.

    Raises:
        TypeError: PyTorch has no such dtype (sub-byte types).
    """
    try:
        return _DTYPES[element_name(element)]
    except KeyError:
        raise TypeError(f"element type {element_name(element)} has no PyTorch dtype") from None


LARGEST_VIEW = 2**32
"""Bytes of a constant that may be larger than the memory that it is a view of."""


def type_of(value: torch.Tensor) -> TensorType:
    """The tensor type of a (fake) tensor; symbolic sizes become dynamic dimensions."""
    sizes = known_shape(value)
    return tensor([size if isinstance(size, int) else None for size in sizes], element_of(value.dtype))


def has_values(value: torch.Tensor) -> bool:
    """Whether a tensor has numbers: it is neither fake nor on the meta device."""
    return not (isinstance(value, FakeTensor) or value.is_meta)


def storage_array(value: torch.Tensor) -> np.ndarray:
    """A tensor's values as a numpy array in storage form, without copying a contiguous CPU tensor.

    bfloat16 becomes uint16 bit patterns, as in `elements.to_numpy`; f8 becomes uint8.

    Raises:
        TypeError: the tensor is a subclass that wraps other tensors, or an expanded view that is too large.
    """
    if is_traceable_wrapper_subclass(value):
        raise TypeError(
            f"the values of a {type(value).__name__} cannot be read; exported.run_decompositions() splits it into "
            "plain tensors"
        )
    size = value.numel() * value.element_size()
    if size > LARGEST_VIEW and not value.is_contiguous() and value.untyped_storage().nbytes() < size:
        raise TypeError(
            f"a constant of {size / 2**30:.0f} GB is an expanded view of {value.untyped_storage().nbytes()} bytes, and "
            "an asset has to hold all of it; expand it in forward instead"
        )
    value = value.detach().cpu().contiguous()
    if value.dtype == torch.bfloat16:
        return value.view(torch.uint16).numpy()
    if value.dtype in (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu):
        return value.view(torch.uint8).numpy()
    return value.numpy()
