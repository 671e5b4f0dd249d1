"""Writes in place become new values, as far as it is certain which tensors share memory.

Every tensor has a memory: its own, or that of the tensor that it is a view of. A write gives the written tensor a new
value, and each base of it a value with the new part; other views of the memory are built again when they are next read.
If a tensor may share memory with another, but not for certain, a write to one of them makes the other unknown, and a
program that still reads it cannot be followed.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
from torch.export.graph_signature import InputKind
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from patcomp.frontend_torch.functional.overloads import without_writes
from patcomp.frontend_torch.functional.views import changed_base, is_new, is_view
from patcomp.frontend_torch.fx.nodes import (
    arguments_text,
    copy_node,
    given_arguments,
    is_assertion,
    is_untyped,
    writes_in_place,
)
from patcomp.frontend_torch.fx.sizes import known_shape
from patcomp.ir.aten_facts import facts_of
from patcomp.pytorch import (
    FakeTensor,
    OpOverload,
    base_name,
    enable_python_dispatcher,
    no_questions,
    pytree,
    schema_of_overload,
    statically_known_true,
    sym_eq,
)


class NotFollowedError(Exception):
    """The results of a program's writes cannot be determined.

    Args:
        reason: what is not known.
        node: the node of the given graph at which this was found.
    """

    def __init__(self, reason: str, node: Node):
        super().__init__(reason)
        self.node = node


@dataclass(eq=False)
class _Memory:
    owner: Node
    """The node of the given graph that made it."""
    version: int = 0
    """How often it was written."""
    unknown: tuple[str, Node] | None = None
    """Why its content is not known, and the write that changed it."""
    may_share: set[_Memory] = field(default_factory=set)


@dataclass(eq=False)
class _Tensor:
    node: Node
    """The node of the given graph that made it; the view, if it is one."""
    memory: _Memory
    value: Node
    """Its content in the new graph, as of a version of the memory."""
    version: int
    base: _Tensor | None = None
    """The tensor whose memory this tensor views."""
    index: int | None = None
    """Which of the views it is, if the node has several results."""


class Functional:
    """A graph rebuilt without writes in place.

    Args:
        graph: the graph, which is not changed.
        kinds: the kind of each placeholder, by name.
        shared: the names of placeholders whose tensors share memory with others.

    Attributes:
        graph: the new graph. Placeholders keep their names.
        written: the new content of each placeholder that is written to, by the name of the placeholder; the new graph
            returns them first, in this order.

    Raises:
        NotFollowedError: it is not certain which tensors a write changes, or what it writes.
    """

    def __init__(self, graph: Graph, kinds: Mapping[str, InputKind], shared: Iterable[str]):
        self.graph = Graph(graph.owning_module)
        self.written: dict[str, Node] = {}
        self._kinds, self._shared = kinds, frozenset(shared)
        self._tensors: dict[Node, _Tensor] = {}
        self._others: dict[Node, Any] = {}
        """The new values of nodes that are not tensors."""
        self._types: dict[Any, torch.dtype] = {}
        self._own: list[Node] = []
        """The nodes that are not copies."""
        self._writes = 0
        self._seen: dict[Node, tuple[int, dict[int, _Tensor]]] = {}
        """For nodes with several results, the number of writes before them, and the results that are read so far."""
        for node in graph.nodes:
            if node.op != "output":
                self._copy(node)
        for node in graph.find_nodes(op="placeholder"):
            if node in self._tensors and (tensor := self._tensors[node]).memory.version + bool(tensor.memory.unknown):
                self.written[node.name] = self._final(node, tensor)
        output = graph.output_node()
        results = map_arg(output.args[0], lambda source: self._read(source, output))
        self.graph.output((*self.written.values(), *results)).meta = dict(output.meta)  # type: ignore[misc]
        for node in reversed(self._own):
            if not node.users:
                self.graph.erase_node(node)

    def _final(self, node: Node, tensor: _Tensor) -> Node:
        if self._kinds.get(node.name) not in (InputKind.BUFFER, InputKind.USER_INPUT):
            raise NotFollowedError(f"a write may change the constant or parameter {node.name!r}", node)
        if node.name in self._shared:
            raise NotFollowedError(f"the buffer {node.name!r} shares memory with another", node)
        return self._content(tensor, node)

    # ---- nodes ---------------------------------------------------------------------------------------

    def _copy(self, node: Node) -> None:
        if is_untyped(node):
            raise NotFollowedError("the type of the result is not recorded", node)
        if node.target is operator.getitem and node.args[0] in self._seen:
            self._item(node)
        elif isinstance(node.target, OpOverload) and writes_in_place(node) and not is_assertion(node):
            self._write(node)
        elif is_assertion(node) and all(source in self._tensors for source in node.all_input_nodes):
            # the assertions are about types, which a write does not change
            self._others[node] = self.graph.node_copy(node, lambda source: self._tensors[source].value)
        else:
            copied = copy_node(self.graph, node, lambda source: self._read(source, node))
            recorded = node.meta.get("val")
            if isinstance(recorded, torch.Tensor):
                self._tensors[node] = self._tensor(node, copied)
            else:
                self._others[node] = copied
                if isinstance(recorded, list | tuple):
                    self._seen[node] = self._writes, {}

    def _item(self, node: Node) -> None:
        """One of several results."""
        source, index = node.args
        assert isinstance(source, Node)
        assert isinstance(index, int)
        writes, tensors = self._seen[source]
        if isinstance(node.meta.get("val"), list | tuple):
            raise NotFollowedError("the op has lists of tensors among its results", source)
        if not isinstance(node.meta.get("val"), torch.Tensor):
            self._others[node] = self.graph.node_copy(node, self._others.__getitem__)
            return
        if writes != self._writes:
            raise NotFollowedError("the results of an op are read after a write", node)
        if index not in tensors:
            tensors[index] = self._tensor(source, self.graph.node_copy(node, self._others.__getitem__), index)
        self._tensors[node] = tensors[index]

    def _tensor(self, node: Node, value: Node, index: int | None = None) -> _Tensor:
        """The tensor that a node returns, or one of several."""
        if is_view(node) and (base := self._tensors.get(node.args[0])) is not None:  # type: ignore[arg-type]
            return _Tensor(node, base.memory, value, base.memory.version, base, index)
        memory = _Memory(node)
        if node.op != "placeholder" and not is_new(node):
            others = [self._tensors[source] for source in node.all_input_nodes if source in self._tensors]
            if index is not None:
                others += self._seen[node][1].values()  # the results may share memory with each other
            for other in others:
                memory.may_share.add(other.memory)
                other.memory.may_share.add(memory)
        return _Tensor(node, memory, value, 0, None, index)

    # ---- reading -------------------------------------------------------------------------------------

    def _read(self, source: Node, reader: Node) -> Node:
        if source in self._tensors:
            return self._content(self._tensors[source], reader)
        if source in self._seen:
            raise NotFollowedError("the op reads a list of tensors", reader)
        return self._others[source]  # type: ignore[no-any-return]

    def _content(self, tensor: _Tensor, reader: Node) -> Node:
        """The present content of a tensor; a view of a memory that was written since is built again."""
        if tensor.memory.unknown:
            raise NotFollowedError(*tensor.memory.unknown)
        if tensor.version != tensor.memory.version:
            assert tensor.base is not None
            base = self._content(tensor.base, reader)
            name, meta = f"{tensor.node.name}_again", tensor.node.meta
            view = self._made(name, tensor.node.target, *self._arguments(tensor.node, base), meta=meta)
            if tensor.index is not None:
                meta = meta | {"val": meta["val"][tensor.index]}
                view = self._made(f"{name}_{tensor.index}", operator.getitem, (view, tensor.index), meta=meta)
            tensor.value, tensor.version = view, tensor.memory.version
        return tensor.value

    def _arguments(self, node: Node, first: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a node in the new graph, with another first one; the others are sizes."""

        def new(source: Node) -> Any:
            return first if source is node.args[0] else self._read(source, node)

        return map_arg((node.args, node.kwargs), new)  # type: ignore[return-value]

    def _made(self, name: str, target: Any, args: Any, kwargs: Any = None, *, meta: Mapping[str, Any]) -> Node:
        """A new node that is no copy."""
        node = self.graph.create_node("call_function", target, args, kwargs, name)
        node.meta = dict(meta)
        self._own.append(node)
        return node

    # ---- writing -------------------------------------------------------------------------------------

    def _write(self, node: Node) -> None:
        target = node.args[0] if node.args else None
        tensor = self._tensors.get(target) if isinstance(target, Node) else None
        if tensor is None:
            raise NotFollowedError("what the op writes to is not known", node)
        self._tensors[node] = tensor  # it returns the tensor that it writes to
        assert isinstance(node.target, OpOverload)
        functional = facts_of(f"aten.{base_name(node.target).removesuffix('_')}")
        if functional.written == "same" and given_arguments(node).get("train") in (None, False):
            return  # `detach_`, and a dropout that is off
        new = self._copied(node) if base_name(node.target) == "copy_" else self._computed(node, node.target)
        changed = [(tensor, new)]
        while tensor.base is not None:
            new = self._changed_base(node, tensor, new)
            tensor = tensor.base
            changed.append((tensor, new))
        memory = tensor.memory
        memory.version += 1
        self._writes += 1
        for tensor, value in changed:
            tensor.value, tensor.version = value, memory.version
        reached, found = {memory}, [memory]
        while found:
            found += (fresh := found.pop().may_share - reached)
            reached |= fresh
            for other in fresh:
                owners = f"%{memory.owner.name} is written, and %{other.owner.name}"
                reason = f"{owners}, which is read later, may share its memory"
                other.unknown = reason, node

    def _copied(self, node: Node) -> Node:
        """The value of a tensor after `copy_`."""
        source = given_arguments(node)["src"]
        if not isinstance(source, Node):  # export leaves a number as it is: `x.copy_(0.5)`
            wanted = node.meta["val"]
            call = (known_shape(wanted), source), {"dtype": wanted.dtype, "device": wanted.device}
            return self._made(f"{node.name}_full", torch.ops.aten.full.default, *call, meta=node.meta)
        new, was, wanted = self._read(source, node), source.meta["val"], node.meta["val"]
        if was.dtype != wanted.dtype:
            new = self._converted(new, node, was.shape)
        if not statically_known_true(sym_eq(was.shape, wanted.shape)):
            new = self._made(
                f"{node.name}_expand", torch.ops.aten.expand.default, (new, known_shape(wanted)), meta=node.meta
            )
        return new

    def _computed(self, node: Node, target: OpOverload) -> Node:
        """The value of a tensor after another write."""
        functional = _functional(target)
        if functional is None:
            raise NotFollowedError("it is not known which value the op writes", node)
        args, kwargs = map_arg((node.args, node.kwargs), lambda source: self._read(source, node))
        if _keeps_type(self._types, functional, args, kwargs, node):
            return self._made(node.name, functional, args, kwargs, meta=node.meta)
        result, wanted = _recorded(functional, args, kwargs, node), node.meta["val"]
        if not statically_known_true(sym_eq(result.shape, wanted.shape)):
            raise NotFollowedError(f"the op would write a value of shape {tuple(result.shape)}", node)
        if result.dtype == wanted.dtype:
            return self._made(node.name, functional, args, kwargs, meta=node.meta)
        new = self._made(node.name, functional, args, kwargs, meta=node.meta | {"val": result})
        return self._converted(new, node, wanted.shape)

    def _converted(self, value: Node, node: Node, shape: Any) -> Node:
        """A value as an element type of a write's target."""
        was, wanted = value.meta["val"], node.meta["val"]
        if was.is_complex() or wanted.is_complex():
            raise NotFollowedError(f"the op writes {was.dtype} to {wanted.dtype}", node)
        with was.fake_mode:
            recorded = torch.empty(shape, dtype=wanted.dtype, device=wanted.device)
        meta = node.meta | {"val": recorded}
        return self._made(
            f"{node.name}_to", torch.ops.aten._to_copy.default, (value,), {"dtype": wanted.dtype}, meta=meta
        )

    def _changed_base(self, node: Node, tensor: _Tensor, part: Node) -> Node:
        """The value of a view's base after the view was written."""
        assert tensor.base is not None
        base = self._content(tensor.base, node)
        args, kwargs = self._arguments(tensor.node, base)
        names = [argument.name for argument in schema_of_overload(tensor.node.target).arguments]
        given = dict(zip(names, args, strict=False)) | kwargs
        call = changed_base(tensor.node, given, tensor.index, base, part)
        if call is None:
            name = tensor.node.target.name()  # type: ignore[union-attr]
            raise NotFollowedError(f"it is not known how a write to a view by {name} changes the tensor", node)
        if isinstance(call, Node):
            return call
        return self._made(f"{node.name}_{base_name(call[0])}", *call, meta=node.meta | {"val": base.meta["val"]})


_RANDOM = {
    torch.ops.aten.bernoulli_.float: torch.ops.aten.bernoulli.p,
    torch.ops.aten.normal_.default: torch.ops.aten.normal_functional.default,
}
"""Operators that return the values that other operators write, under another schema or name."""


@lru_cache(maxsize=4096)
def _functional(target: OpOverload) -> OpOverload | None:
    """The functional form of an operator that writes to its first argument: `add` for `add_`; None if there is none."""
    if target in _RANDOM:
        return _RANDOM[target]
    name, schema = base_name(target), schema_of_overload(target)
    written = [argument for argument in schema.arguments if argument.alias_info and argument.alias_info.is_write]
    if target.namespace != "aten" or torch.Tag.inplace_view in target.tags:
        return None
    if len(schema.returns) != 1 or len(written) != 1 or written[0] is not schema.arguments[0]:
        return None
    name = re.sub(r"^__i(\w+)__$", r"__\1__", name) if name.startswith("__") else name.removesuffix("_")
    return without_writes(target, name)


def _keeps_type(known: dict[Any, torch.dtype], target: OpOverload, args: Any, kwargs: Any, node: Node) -> bool:
    """Whether a call certainly has a result of the recorded shape and type: an element-wise op on tensors like it.

    For such ops one shape tells the type of the result for all; PyTorch needs up to 5 ms to compute it.

    Args:
        known: the types of the results of such ops, by op, type and other arguments.
        target, args, kwargs: the call.
        node: the node whose result is recorded.
    """
    wanted = node.meta["val"]
    given: list[Any] = []
    map_arg((args, kwargs), lambda source: given.append(source.meta.get("val")))
    if torch.Tag.pointwise not in target.tags or not all(type(each) is FakeTensor for each in (wanted, *given)):
        return False
    if any(each.dtype != wanted.dtype or each.device != wanted.device for each in given):
        return False
    if not all(type(size) is int for size in wanted.shape) or any(each.shape != wanted.shape for each in given):
        return False
    key = target, wanted.dtype, wanted.device, wanted.dim() == 0, arguments_text(node)
    if key not in known:
        known[key] = _recorded(target, args, kwargs, node).dtype
    return known[key] == wanted.dtype


def _recorded(target: OpOverload, args: Any, kwargs: Any, node: Node) -> torch.Tensor:
    """The result of a call, as PyTorch's shape functions compute it.

    Raises:
        NotFollowedError: the result holds only for some sizes.
    """
    given = map_arg((args, kwargs), lambda source: source.meta["val"])
    mode = node.meta["val"].fake_mode
    environment = mode.shape_env
    try:
        with mode, torch.no_grad(), enable_python_dispatcher():
            if environment is None:
                result = target(*given[0], **given[1])
            else:
                with no_questions(environment), environment.ignore_fresh_unbacked_symbols():
                    result = target(*given[0], **given[1])
    except Exception as error:  # shape functions raise errors of any class
        raise NotFollowedError(f"PyTorch cannot compute the shape of {target.name()}", node) from error
    assert isinstance(pytree.tree_leaves(result)[0], torch.Tensor)
    return result  # type: ignore[no-any-return]
