"""ONNX nodes under construction: a scope of them, and one op of the program as its row sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from patcomp.ir import ProgramOp, Value
from patcomp.ir.types import BIT_WIDTHS, ML_DTYPES

ONNX_TYPES = {
    "f16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16, "f32": TensorProto.FLOAT, "f64": TensorProto.DOUBLE,
    "si8": TensorProto.INT8, "si16": TensorProto.INT16, "si32": TensorProto.INT32, "si64": TensorProto.INT64,
    "ui8": TensorProto.UINT8, "ui16": TensorProto.UINT16, "ui32": TensorProto.UINT32, "ui64": TensorProto.UINT64,
    "i1": TensorProto.BOOL,
}  # fmt: skip
"""The ONNX type of each element type that models are written with."""

COMPUTED = {"bf16": "f32", **dict.fromkeys(("si8", "si16", "ui8", "ui16", "ui32"), "si64")}
"""The type in which onnxruntime, which has few kernels for these, computes; the result is cast back, so that integers
wrap around as they do in the program."""


class NotInOnnxError(Exception):
    """ONNX cannot say what an op does; the message says why."""


@dataclass
class FreshNames:
    """Names of values that are unique in a model."""

    taken: set[str] = field(default_factory=set)

    def fresh(self, wish: str) -> str:
        """The wished name, or with a number after it."""
        wish, number = wish or "v", 1
        name = wish
        while name in self.taken:
            name, number = f"{wish}_{number}", number + 1
        self.taken.add(name)
        return name


@dataclass
class NodeScope:
    """The nodes of a graph, a function or a branch."""

    names: FreshNames
    weights: dict[str, tuple[np.ndarray, int]] | None
    """The initializers of the model with their types; None where constants are nodes."""
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    place: str = ""
    """The place in the model that new nodes come from."""

    def node(self, kind: str, *inputs: str, wish: str = "", domain: str = "", **attributes: Any) -> str:
        """Add a node with one output; return the output's name."""
        return self.several(kind, inputs, [wish], domain, **attributes)[0]

    def several(
        self, kind: str, inputs: Sequence[str], wishes: Sequence[str], domain: str = "", **attributes: Any
    ) -> list[str]:
        """Add a node with an output for each wished name; return the names."""
        outputs = [self.names.fresh(wish) for wish in wishes]
        self.nodes.append(
            helper.make_node(kind, inputs, outputs, domain=domain, doc_string=self.place or None, **attributes)
        )
        return outputs

    def constant(self, values: Any, element: str = "si64", wish: str = "") -> str:
        """A constant of an element type; return its name."""
        array, type_ = onnx_array(np.asarray(values), element), ONNX_TYPES[element]
        name = self.names.fresh(wish or "c")
        if self.weights is None:
            tensor = numpy_helper.from_array(array, name)
            self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        else:
            self.weights[name] = (array, type_)
        return name

    def cast(self, name: str, element: str, **attributes: Any) -> str:
        """A value in another element type."""
        return self.node("Cast", name, to=ONNX_TYPES[element], **attributes)


def onnx_array(array: np.ndarray, element: str) -> np.ndarray:
    """An array in the dtype in which ONNX stores an element type."""
    if element in ML_DTYPES:
        return array.astype(ML_DTYPES[element], copy=False)
    kind = {"f": "float", "s": "int", "u": "uint"}.get(element[0])
    return array.astype(np.dtype(f"{kind}{BIT_WIDTHS[element]}" if kind else "bool"), copy=False)


@dataclass(frozen=True)
class EmittedOp:
    """An op of the program, and the names that its operands have in the model."""

    op: ProgramOp
    inputs: Sequence[str]
    scope: NodeScope
    constants: dict[Value, np.ndarray]
    """The values of the constants among all values of the program."""

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node; return the name of its output."""
        return self.scope.node(kind, *inputs, wish=self.op.results[0].name, **attributes)

    def constant(self, values: Any, element: str = "si64") -> str:
        return self.scope.constant(values, element)

    @property
    def element(self) -> str:
        """The element type of the first result."""
        return self.op.results[0].dtype

    def operand_element(self, index: int = 0) -> str:
        return self.op.operands[index].dtype

    def shape(self, index: int = 0) -> tuple[int | None, ...]:
        return self.op.operands[index].shape

    def rank(self, index: int = 0) -> int:
        return len(self.shape(index))

    def known(self, index: int) -> np.ndarray | None:
        """The numbers of an operand, if it is a constant."""
        return self.constants.get(self.op.operands[index])

    def numbers(self, index: int, what: str) -> list[Any]:
        """The numbers of an operand that is an attribute in ONNX."""
        if (values := self.known(index)) is None:
            raise NotInOnnxError(f"its {what} is computed, and is an attribute in ONNX")
        return values.reshape(-1).tolist()  # type: ignore[no-any-return]

    def axis(self, index: int) -> int:
        return int(self.numbers(index, "axis")[0])

    def indices(self, index: int) -> str:
        """An operand as ONNX takes sizes, axes and bounds: in 64 bits, with one dimension."""
        values = self.known(index)
        if values is not None:
            return self.constant(values.reshape(-1).astype(np.int64))
        name = self.inputs[index] if self.operand_element(index) == "si64" else self.cast(index, "si64")
        return name if self.rank(index) else self.node("Reshape", name, self.constant([1]))

    def cast(self, index: int, element: str) -> str:
        return self.scope.cast(self.inputs[index], element)

    def size(self, index: int, axis: int) -> str:
        """The size of an operand along an axis, with one dimension."""
        known = self.shape(index)[axis]
        if known is not None:
            return self.constant([known])
        return self.node("Shape", self.inputs[index], start=axis % self.rank(index), end=axis % self.rank(index) + 1)

    def computed(self, *indices: int) -> list[str]:
        """Operands in the type in which they are computed."""
        return [
            self.cast(index, COMPUTED[element]) if (element := self.operand_element(index)) in COMPUTED
            else self.inputs[index]
            for index in indices or range(len(self.inputs))
        ]  # fmt: skip

    def result(self, name: str, computed: str | None = None) -> str:
        """A value that was computed in another type (by default that of `computed`) in the type of the result."""
        source = computed or COMPUTED.get(self.element, self.element)
        return name if source == self.element else self.scope.cast(name, self.element)


RowFunction = Callable[[EmittedOp], str | list[str]]
"""What writes the nodes of an op, and returns the names of its results."""

EMISSION_ROWS: dict[str, RowFunction] = {}
"""The row of each op by name, `coreai.softmax`."""


def emits(*names: str) -> Callable[[RowFunction], RowFunction]:
    """Decorator: the row of ops, by names without `coreai.`; an element-wise op has a twin that broadcasts."""

    def declare(row: RowFunction) -> RowFunction:
        for name in names:
            EMISSION_ROWS[f"coreai.{name}"] = row
        return row

    return declare


def both(*names: str) -> list[str]:
    """The plain ops and their broadcasting twins."""
    return [prefix + name for name in names for prefix in ("", "decomposable.broadcasting_")]


def simple(kind: str, **attributes: Any) -> Callable[[EmittedOp], str]:
    """The row of an op that one node says."""
    return lambda call: call.result(call.node(kind, *call.computed(), **attributes))
