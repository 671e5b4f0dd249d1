"""Small programs for tests, written with the authoring functions.

module = program({"x": "2x3xf32"}, lambda x: coreai.exp(x))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from patcomp.ir import Builder, IRModule, Value, coreai, create_graph, tensor
from patcomp.ir.types import TOKEN, HandleType, TensorType
from patcomp.ir.xdsl import Block


def tensor_type(text: str) -> TensorType:
    """The type that `"2x?xf32"` spells: dimensions, then the element type."""
    *dims, element = text.replace("complex", "c").split("x")
    element = element.replace("c<", "complex<")
    return tensor([None if dim == "?" else int(dim) for dim in dims], element)


def program(
    inputs: Mapping[str, str],
    body: Callable[..., Value | Sequence[Value]],
    *,
    states: Mapping[str, str] | None = None,
    name: str = "main",
    module: IRModule | None = None,
) -> IRModule:
    """A module with one graph, whose results are named `y0`, `y1`, ....

    Args:
        inputs: type of each input by name, such as `"2x3xf32"`.
        body: makes the results out of the inputs, after the state handles if there are any. With states, its
            last results are their tokens, in order.
        states: type of each state by name.
        name: symbol of the graph.
        module: where to add the graph; a new module when None.
    """
    module = module or IRModule()
    states = states or {}
    types = [HandleType.new([tensor_type(text)]) for text in states.values()]
    block = Block(arg_types=[*types, *(tensor_type(text) for text in inputs.values())])
    with Builder(block, blobs=module.blobs):
        results = body(*map(Value, block.args))
        results = [results] if isinstance(results, Value) else list(results)
        coreai.output(*results)
    tokens = [result for result in results if result.ssa.type == TOKEN]
    names = [f"y{index}" for index in range(len(results) - len(tokens))] + list(states)[: len(tokens)]
    graph = create_graph(name, block, argument_names=[*states, *inputs], result_names=names)
    module.op.body.block.add_op(graph)
    return module


def storage_of(values: Sequence[int] | np.ndarray, bits: int) -> bytes:
    """Integers bit-packed as the runtime reads sub-byte weights: one little-endian bit stream, no row padding."""
    flat = np.asarray(values).reshape(-1).astype(np.int64) & ((1 << bits) - 1)
    stream = ((flat[:, None] >> np.arange(bits)) & 1).astype(np.uint8).reshape(-1)
    return np.packbits(stream, bitorder="little").tobytes()
