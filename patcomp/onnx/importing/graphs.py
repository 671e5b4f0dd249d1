"""What a file says, as plain objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from torch import Tensor

from patcomp.onnx.importing.values import KnownArray


@dataclass(frozen=True)
class FileWeight:
    """A tensor of the file; the module has it by this name."""

    name: str


@dataclass(frozen=True)
class OuterAttribute:
    """An attribute in a function of the file: the caller's attribute of this name."""

    name: str


@dataclass(frozen=True)
class OnnxNode:
    """An op."""

    op: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    """Names of values; empty where an input is left out."""
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    """Numbers, texts, lists of them, `KnownArray`, `FileWeight`, `OnnxGraph`, `OuterAttribute`."""

    def place(self, opset: int) -> str:
        """The node, for messages."""
        domain = f"{self.domain}::" if self.domain else ""
        name = f" {self.name!r}" if self.name else f" that makes {self.outputs[0]!r}" if self.outputs else ""
        return f"the node{name}, {domain}{self.op} of opset {opset}"


@dataclass(frozen=True)
class OnnxGraph:
    """Nodes in order, between inputs and outputs: the program, a branch, the body of a loop or of a function."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[OnnxNode, ...]
    constants: Mapping[str, KnownArray | FileWeight] = field(default_factory=dict)
    opsets: Mapping[str, int] = field(default_factory=dict)
    """The version of the ops of each domain."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """The attributes of a function where a call has none."""

    @cached_property
    def free(self) -> frozenset[str]:
        """The names that the graph takes from around it."""
        own, found = {*self.inputs, *self.constants, ""}, set()
        for node in self.nodes:
            inner = [name for each in node.attributes.values() if isinstance(each, OnnxGraph) for name in each.free]
            found |= {*node.inputs, *inner} - own
            own |= {*node.outputs}
        return frozenset(found | ({*self.outputs} - own))


@dataclass(frozen=True)
class OnnxInput:
    """An input of the program."""

    name: str
    dtype: Any
    """Of PyTorch."""
    shape: tuple[int | str, ...]
    """Sizes; open ones are names, which are distinct where the file has none."""


@dataclass(frozen=True)
class File:
    """A whole file."""

    path: str
    graph: OnnxGraph
    functions: Mapping[tuple[str, str], OnnxGraph]
    """The functions that the file defines, by domain and name."""
    arguments: tuple[OnnxInput, ...]
    weights: Mapping[str, Tensor]
    """The tensors of the file by the names that the module has for them; they share the memory of the file."""
