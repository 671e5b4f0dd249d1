"""Find equal values of two programs by their computation, and record their numbers.

Values of one class are equal. Two values are of one class if they are the same input, constants of equal elements, or
results of equal ops of operands of equal classes; the proof adds those that it finds equal. Each comparison of two
stages has classes of its own, because what is equal over the reals in one is not equal to the bit in the next one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from patcomp.errors import EvaluationError
from patcomp.evaluate.eager import overload_of
from patcomp.evaluate.element_types import TORCH_DTYPES
from patcomp.evaluate.machine import Machine, decode_constant
from patcomp.evaluate.registry import EvaluatedOp, Implementation, implementations
from patcomp.ir.aten import AtenOp
from patcomp.ir.constants import is_constant
from patcomp.ir.locations import erase_locations
from patcomp.ir.text import to_text
from patcomp.ir.types import element_name
from patcomp.ir.xdsl import Attribute, DenseResourceAttr, Operation, TensorType
from patcomp_lab.proof.run.flat import Flat, Node


@dataclass
class Classes:
    """The classes of values, by numbers."""

    known: dict[Any, int] = field(default_factory=dict)
    """The class of each key."""
    contents: dict[Any, Any] = field(default_factory=dict)
    """The key of each constant, which is known for all comparisons."""

    def of(self, key: Any) -> int:
        return self.known.setdefault(key, len(self.known))

    def join(self, one: int, other: int) -> None:
        """Let everything of one class be of the other class from now on."""
        self.known.update({key: other for key, each in self.known.items() if each == one})


@dataclass
class StageProgram:
    """An entry point after a stage, with the class and the numbers of each value.

    Attributes:
        flat: the program.
        classes: the classes of the two programs that are compared.
        others: how the ops run that the evaluator does not know.
        of: the class of each value that has one.
        members: the first value of each class.
        machine: the interpreter of the program.
    """

    flat: Flat
    classes: Classes
    others: Callable[[Operation], Implementation | None]
    of: dict[int, int] = field(default_factory=dict)
    members: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.fixed: set[int] = set()
        """The values that are computed from constants and from sizes alone."""
        self.machine = Machine(self.flat.module, self.others)
        for name, value in self.flat.inputs.items():
            self.put(value, self.classes.of(("input", name)))

    def put(self, value: int, of_class: int) -> None:
        self.of[value] = of_class
        self.members.setdefault(of_class, value)

    def join(self, value: int, other: int) -> None:
        """Let a value be of another class, which was found to be equal to its own."""
        own = self.of[value]
        self.classes.join(own, other)
        self.of.update({each: other for each, of_class in self.of.items() if of_class == own})
        self.members.setdefault(other, self.members.pop(own))

    def classify(self, node: Node) -> None:
        """Assign classes to the results of an op; the operands have theirs already."""
        op = node.op
        is_size = op.name in ("aten.sym_size.int", "coreai.get_shape")
        if is_size or (self.fixed.issuperset(node.operands) and not _draws(op)):
            self.fixed.update(node.results)
        if is_constant(op):
            self.put(node.results[0], self.classes.of(self._constant_key(op.properties["value"])))
            return
        key = (
            op.name,
            tuple(sorted(op.properties.items())),
            tuple(sorted(op.attributes.items())),
            id(self.flat.module.custom.get(op)),
            tuple(result.type for result in op.results),
            tuple(self.of[value] for value in node.operands),
            _text_of(op) if op.regions else "",
        )
        for index, result in enumerate(node.results):
            self.put(result, self.classes.of((key, index)))

    def _constant_key(self, attribute: Attribute) -> Any:
        known, place = self.classes.contents, (id(self.flat.module.blobs), attribute)
        if place not in known:
            known[place] = self._key_of(attribute)
        return known[place]

    def _key_of(self, attribute: Attribute) -> Any:
        blobs = self.flat.module.blobs
        if isinstance(attribute, DenseResourceAttr) and attribute.resource_handle.data in blobs.without_values:
            return "weight", attribute.resource_handle.data, attribute.type
        elements = decode_constant(attribute, blobs).contiguous()
        if elements.numel():
            content = hashlib.blake2b(elements.reshape(-1).view(torch.uint8).numpy().tobytes()).digest()
        else:
            content = b""
        assert isinstance(attribute.type, TensorType)  # type: ignore[attr-defined]
        element = element_name(attribute.type.element_type)  # type: ignore[attr-defined]
        return "constant", element, tuple(elements.shape), content

    def classify_all(self) -> None:
        """Give every value its class."""
        for node in self.flat.nodes:
            self.classify(node)

    def has_values(self, node: Node) -> bool:
        """Whether the elements of a constant are there: the weights of a model may be gone."""
        return self._constant_key(node.op.properties["value"])[0] == "constant"

    def run(self, node: Node, values: Mapping[int, Any]) -> list[Any]:
        """The results of an op.

        Raises:
            EvaluationError: the evaluator does not know the op, or it is not defined for its operands.
        """
        op = node.op
        function = implementations().get(op.name) or self.others(op)
        if function is None:
            raise EvaluationError(f"the evaluator does not know the op {op.name}")
        given = {value: values[number] for value, number in zip(node.read, node.operands, strict=True)}
        operands = [given[operand] for operand in op.operands]
        return self.machine.run_op(EvaluatedOp(op, self.machine, given), function, operands)

    def numbers(self, inputs: Mapping[str, Tensor]) -> dict[int, Any]:
        """The numbers of each value that the evaluator can compute, for inputs and contents of states by name."""
        made: dict[int, Any] = {}
        for name, value in self.flat.inputs.items():
            type_ = self.flat.types[value]
            if name in inputs and isinstance(type_, TensorType):
                made[value] = inputs[name].to(TORCH_DTYPES[element_name(type_.element_type)])
        with torch.no_grad():
            for node in self.flat.nodes:
                if not all(value in made for value in node.operands):
                    continue
                try:
                    made.update(zip(node.results, self.run(node, made), strict=True))
                except EvaluationError:
                    continue
        return made


def _draws(op: Operation) -> bool:
    """Whether an op of PyTorch draws random numbers."""
    return isinstance(op, AtenOp) and torch.Tag.nondeterministic_seeded in overload_of(op.name).tags


def _text_of(op: Operation) -> str:
    """The text of an op with its regions, without names and locations."""
    copy = op.clone()
    erase_locations(copy)
    return to_text(copy, generic=True, names=False)
