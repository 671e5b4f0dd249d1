"""Compress the weights of a converted program, one at a time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from patcomp.compression.config import CompressionConfig
from patcomp.compression.measures import OutputSignal, decibels, relative_error
from patcomp.compression.report import WeightReport
from patcomp.compression.scheme import Layout, Scheme, Stored
from patcomp.compression.weights import Weight, weights_of
from patcomp.ir.blobs import BlobStore
from patcomp.ir.builder import Builder
from patcomp.ir.constants import constant_values
from patcomp.ir.locations import fused
from patcomp.ir.module import IRModule
from patcomp.ir.pages import release
from patcomp.ir.types import ML_DTYPES, element_name, storage_bytes
from patcomp.ir.value import replace_op
from patcomp.ir.verify import verify
from patcomp.ir.xdsl import Block, Operation, SSAValue

_Choice = Callable[[Weight], Scheme | None]


def compress_module(
    module: IRModule,
    config: CompressionConfig,
    choose: _Choice | None = None,
    rounded: Mapping[str, Stored] = MappingProxyType({}),
    by_examples: Collection[str] = (),
    signal: OutputSignal | None = None,
) -> tuple[IRModule, list[WeightReport]]:
    """A copy of a program with compressed weights, and what became of each weight.

    Args:
        module: the program, which is not changed.
        config: which scheme each weight gets.
        choose: a function that gives the scheme instead.
        rounded: the stored forms of weights that were rounded before, by key; others are rounded to the nearest.
        by_examples: the keys of those that examples rounded.
        signal: measures what is lost at the outputs; without it, reports have what the weights themselves lose.

    Raises:
        ValueError: a pattern of the config matches no weight, or a weight has NaN or infinities.
    """
    made = module.clone()
    made.blobs = module.blobs.copy()
    weights = list(weights_of(made))
    config.check(weights)
    reports = []
    for weight in weights:
        scheme = (choose or config.scheme_of)(weight)
        size = storage_bytes(weight.shape, weight.type.element_type)
        if scheme is None:
            reports.append(WeightReport(weight.name, weight.kinds, weight.shape, "", size, size, math.inf))
            continue
        values = floats(weight, made.blobs)
        stored = rounded.get(weight.key) or stored_as(scheme, weight, values)
        made.blobs.remove(weight.key)
        others = set(made.blobs.keys)
        _replace(weight, stored, scheme, made.blobs)
        measured = signal(weight, stored) if signal else decibels(relative_error(values, stored, weight.layout))
        release([module.blobs[weight.key].data, *(blob.data for blob in made.blobs if blob.key not in others)])
        named = weight.name, weight.kinds, weight.shape, scheme.name
        reports.append(WeightReport(*named, size, stored.size, measured, weight.key in by_examples))
    verify(made, runtime=True)
    return made, reports


def floats(weight: Weight, blobs: BlobStore) -> np.ndarray:
    """The values of a weight.

    Raises:
        ValueError: it has no values, or NaN or infinities.
    """
    values = constant_values(weight.constants[0].results[0], blobs)
    if values is None:
        raise ValueError(f"the weight {weight.name!r} has no values; convert the model with its weights, then compress")
    if values.size and not (np.isfinite(values.min()) and np.isfinite(values.max())):
        raise ValueError(
            f"the weight {weight.name!r} has NaN or infinities, which no scheme can store; leave it alone with "
            f'{{"names": {{"{weight.name}": None}}}}'
        )
    return values


def float_dtype_of(weight: Weight) -> np.dtype:
    """The dtype of a weight's floats, in which scales and palettes are."""
    name = element_name(weight.type.element_type)
    return ML_DTYPES[name] if name in ML_DTYPES else np.dtype(f"float{name[1:]}")


def stored_as(scheme: Scheme, weight: Weight, values: np.ndarray, moments: Sequence[np.ndarray] = ()) -> Stored:
    """The stored form of a weight's values in a scheme; moments are those of `Scheme.store_for`."""
    kernel = values.shape[2:] if weight.kinds == ("conv",) else ()
    if moments and kernel:  # its inputs are the channels at each place of the kernel
        rows = scheme.for_places(math.prod(kernel))
        made = rows.store_for(values.reshape(len(values), -1), Layout((0,), 1), float_dtype_of(weight), moments)
        return made.reshaped(values.shape)
    if moments:
        return scheme.store_for(values, weight.layout, float_dtype_of(weight), moments)
    return scheme.store(values, weight.layout, float_dtype_of(weight))


def _replace(weight: Weight, stored: Stored, scheme: Scheme, blobs: BlobStore) -> None:
    """Replace a weight by its compressed form. The data is stored once; each graph gets a copy of the ops."""
    first, *others = weight.constants
    assert first.parent is not None
    before = first.prev_op
    with Builder(first.parent, before=first, blobs=blobs, location=fused(f"compress {scheme.name}", [first])):
        made = stored.unpacked(element_name(weight.type.element_type), weight.key)
    ops = list(itertools.takewhile(lambda op: op is not first, _from(before, first.parent)))
    for other in others:
        assert other.parent is not None
        copies: dict[SSAValue, SSAValue] = {}
        for op in ops:
            copy = op.clone(copies)
            copy.location = fused(f"compress {scheme.name}", [other])
            other.parent.insert_op_before(copy, other)
        replace_op(other, [copies[made.ssa]])
    replace_op(first, [made.ssa])


def _from(before: Operation | None, block: Block) -> Iterator[Operation]:
    """The ops of a block after one of them."""
    op = block.first_op if before is None else before.next_op
    while op is not None:
        yield op
        op = op.next_op
