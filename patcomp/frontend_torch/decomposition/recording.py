"""A light tracer: it records the ops that a function calls on fake tensors.

`make_fx` takes 3 to 20 ms for an op, mostly for constructs that decompositions rarely have: writes in place, symbolic
sizes, tensors of other origin. This tracer takes a tenth of the time and gives up on such constructs.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from patcomp.frontend_torch.fx.sizes import SYMBOLIC
from patcomp.pytorch import (
    FakeTensor,
    LazyGraphModule,
    OpOverload,
    TorchDispatchMode,
    base_name,
    free_unbacked_symbols,
    outside_of_traces,
    pytree,
    schema_of_overload,
)


class NotRecordedError(Exception):
    """The function contains constructs that only PyTorch's own tracer follows."""


class _Recorder(TorchDispatchMode):
    """Records the calls of operators as the nodes of a graph.

    Args:
        table: decompositions; one may return `NotImplemented`, and the op stays.
    """

    def __init__(self, table: Mapping[Any, Callable[..., Any]]):
        super().__init__()
        self.graph = Graph()
        self._table = table
        self._nodes: dict[int, Node] = {}
        self.symbols: set[Any] = set()
        """The sizes that depend on data, of the arguments."""
        self._kept: list[torch.Tensor] = []  # so that no other tensor gets the number of a dead one

    def name(self, value: torch.Tensor, node: Node) -> None:
        """Take a node for the value of a tensor from now on."""
        node.meta["val"] = value
        self._nodes[id(value)] = node
        self._kept.append(value)

    def node_of(self, value: Any) -> Any:
        """The node of a tensor; any other value as it is."""
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in self._nodes:
            raise NotRecordedError("a tensor of unknown origin")
        return self._nodes[id(value)]

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not isinstance(op, OpOverload) or schema_of_overload(op).is_mutable:
            raise NotRecordedError(f"{op} is no pure operator")
        if op.namespace == "prim":  # a question such as `x.device`
            return op(*args, **kwargs)
        if op is torch.ops.aten.detach.default:
            result = op(*args, **kwargs)
            self.name(result, self.node_of(args[0]))  # without gradients it is the tensor itself
            return result
        for decomposition in (self._table.get(op), op.decompose):
            if decomposition is not None:
                with self:
                    result = decomposition(*args, **kwargs)
                if result is not NotImplemented:
                    return result
        made: Any = None
        if op is torch.ops.aten._native_batch_norm_legit_no_training.default:
            made = batch_norm_results(*args, **kwargs)
        result = made or op(*args, **kwargs)
        self._record(op, args, kwargs, result)
        return result

    def _record(self, op: OpOverload, args: Any, kwargs: Any, result: Any) -> None:
        if any(isinstance(leaf, SYMBOLIC) for leaf in pytree.tree_leaves((args, kwargs))):
            raise NotRecordedError("a size of the program")
        args, kwargs = pytree.tree_map(self.node_of, (args, kwargs))
        node = self.graph.create_node("call_function", op, args, kwargs, base_name(op))
        if type(result) is FakeTensor:
            self._result(result, node)
        elif isinstance(result, list | tuple) and all(type(each) is FakeTensor for each in result):
            node.meta["val"] = result
            for index, each in enumerate(result):
                self._result(each, self.graph.call_function(operator.getitem, (node, index)))
        else:
            raise NotRecordedError(f"the result of {op} is not made of tensors")

    def _result(self, value: FakeTensor, node: Node) -> None:
        if value.constant is not None or id(value) in self._nodes:
            raise NotRecordedError("the result is a constant or an argument")
        if free_unbacked_symbols(value) - self.symbols:
            raise NotRecordedError("a size that depends on data")
        self.name(value, node)


def batch_norm_results(x: torch.Tensor, *others: Any, **options: Any) -> tuple[torch.Tensor, ...] | None:
    """The results of a batch norm of tensors of one type, for whose shapes PyTorch computes the whole formula."""
    tensors = [other for other in (*others, *options.values()) if isinstance(other, torch.Tensor)]
    if any(other.dtype != x.dtype for other in tensors):
        return None
    if type(x) is not FakeTensor or not all(type(size) is int for size in x.shape) or not x.is_contiguous():
        return torch.empty_like(x), x.new_empty((0,)), x.new_empty((0,))
    with outside_of_traces():  # so that PyTorch makes the tensors without asking its modes
        shapes = (tuple(x.shape), (0,), (0,))
        return tuple(FakeTensor(x.fake_mode, torch.empty(s, dtype=x.dtype, device="meta"), x.device) for s in shapes)


def recorded(
    function: Callable[..., Any], samples: Sequence[torch.Tensor], table: Mapping[Any, Callable[..., Any]]
) -> GraphModule:
    """The graph of what a function calls, with a placeholder for each sample, as `make_fx` would trace it.

    Raises:
        NotRecordedError: it writes in place, or makes tensors from Python's numbers.
    """
    recorder = _Recorder(table)
    for index, sample in enumerate(samples):
        recorder.name(sample, recorder.graph.placeholder(f"arg{index}_1"))
        recorder.symbols |= free_unbacked_symbols(sample)
    with recorder:
        result = function(*samples)
    recorder.graph.output(pytree.tree_map(recorder.node_of, result))
    return LazyGraphModule({}, recorder.graph)
