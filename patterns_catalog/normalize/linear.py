"""Linear layers of tensors as one product, without joining the leading dimensions before and splitting them after.

PyTorch has products of matrices only, so that a linear layer of a tensor is view, product, view.
"""

from __future__ import annotations

from patcomp.authoring import AtenSource, AtenTarget, aten
from patcomp.ir.namespaces import aten_namespace
from patcomp.ir.types import Shape, TensorType, is_float, shape_of, tensor
from patcomp.ir.value import Value
from patcomp.patterns import Attr, Capture, Rewrite, build, call, rule


def _is_layer(x: TensorType, matrix: Shape, row: Shape, rows: Shape, result: Shape) -> bool:
    """Whether the result is the product of floats and a matrix, and no view has two unknown sizes."""
    shape = shape_of(x)
    known = len(matrix) == 2 and None not in matrix and 0 not in matrix and len(row) < 2
    few_unknown = shape.count(None) < 2 and rows.count(None) < 2
    fits = len(shape) > 1 and shape[-1] == matrix[0] and result == (*shape[:-1], matrix[-1])
    return is_float(x.element_type) and known and few_unknown and fits


def _product(x: Value, matrix: Value) -> Value:
    return aten.matmul(tensor((*x.shape[:-1], matrix.shape[-1]), x.element_type), x, matrix)


def _layer(x: Value, matrix: Value, row: Value) -> Value:
    product = _product(x, matrix)
    return aten.add.Tensor(product.type, product, row, alpha=1)


@rule(stage="normalize", into=aten_namespace, example={
    "x": "2x3x4xf32", "matrix": "4x5xf32", "s": [6, 4], "t": [2, 3, 5],
})  # fmt: skip
def linear_layer(a: AtenSource, c: AtenTarget, x: Capture, matrix: Capture, s: Attr, t: Attr) -> Rewrite:
    "view(mm(view(x), matrix)) -> matmul(x, matrix) where that has the shape of the second view"
    rows = a.mm(a.escaping(a.view(x, size=s)), matrix)
    y = a.view(rows, size=t)
    return Rewrite(
        y, to=build(_product, x, matrix), where=[call(_is_layer, x.type, matrix.shape, (), rows.shape, y.shape)]
    )


@rule(stage="normalize", into=aten_namespace, example={
    "x": "2x3x4xf32", "matrix": "4x5xf32", "row": "5xf32", "s": [6, 4], "t": [2, 3, 5],
})  # fmt: skip
def linear_layer_and_row(
    a: AtenSource, c: AtenTarget, x: Capture, matrix: Capture, row: Capture, s: Attr, t: Attr
) -> Rewrite:
    "view(addmm(row, view(x), matrix)) -> matmul(x, matrix) + row where that has the shape of the second view"
    rows = a.addmm(row, a.escaping(a.view(x, size=s)), matrix, beta=1, alpha=1)
    y = a.view(rows, size=t)
    return Rewrite(
        y,
        to=build(_layer, x, matrix, row),
        where=[call(_is_layer, x.type, matrix.shape, row.shape, rows.shape, y.shape)],
    )
