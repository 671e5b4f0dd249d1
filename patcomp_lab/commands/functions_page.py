"""The pages of the authoring functions: `c.NAME(...)`, with which rules and bodies of composites build Core AI ops."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from patcomp.commands.tables import escaped, markdown_table
from patcomp.ir import coreai
from patcomp.ir.builder import Builder
from patcomp.ir.module import IRModule
from patcomp.ir.rows import Row, Slot
from patcomp.ir.types import FAMILIES
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Attribute, Block
from patcomp.patterns.example_types import parse_type
from patcomp_lab.commands.pages import PageEntry, Section, pages
from patcomp_lab.commands.stubs import coreai_rows

_SPARSE = "#coreai.sparse_tensor_encoding<bitmask, numNonZero = 2, posWidth = 1, crdWidth = 1>"
_VALUES = {
    "x": "2x3xf32", "y": "2x3xf32", "row": "3xf32", "n": "2x3xsi32", "m": "2x3xsi32", "p": "2x3xi1", "q": "2x3xi1",
    "flag": "i1", "z": "2x3xcomplex<f32>", "batch": "4x2x3xf32", "right": "3x5xf32", "stack": "4x3x5xf32",
    "image": "1x4x8x8xf32", "kernel": "6x4x3x3xf32", "volume": "1x4x6x8x8xf32", "kernel3d": "6x4x3x3x3xf32",
    "small": "2x3xsi8", "zero": "si8", "picked": "2x1xsi32", "new": "4x3xf32", "bits": "2x3xui1", "pixels": "4x6x3xui8",
    "sparse": f"tensor<2x3xf32, {_SPARSE}>", "sparse_bits": f"tensor<2x3xui1, {_SPARSE}>",
    "laid_out": "tensor<2x3xf32, #coreaix.hw_constraints<MTLBuffer, alignments: [1x1], interleave: [1]>>",
    "state": "!coreai.handle<tensor<2x3xf32>>", "picture": "!coreai.image<<k24RGB> x 4 : i64 x 6 : i64>",
}  # fmt: skip
"""The values of the examples, and their types."""

_EXAMPLES = {
    "all_": "c.all_(p, [-1])",
    "any_": "c.any_(p, [-1])",
    "argmax": "c.argmax(x, 1)",
    "argsort": "c.argsort(x, 1, False, True)",
    "asymmetric_quant_stats": "c.asymmetric_quant_stats(x, [-128.0, 127.0], 0)",
    "batch_matmul": "c.batch_matmul(batch, stack)",
    "blockwise_shift_scale": "c.blockwise_shift_scale(small, [[0.1], [0.2]], [[0], [0]], [[0.0], [0.0]])",
    "broadcast_in_dims": "c.broadcast_in_dims(c.reshape(row, [1, 3]), [2], [0])",
    "broadcast_shapes": "c.broadcast_shapes([2, 1], [3])",
    "broadcast_to": "c.broadcast_to(row, [2, 3])",
    "broadcasting_batch_matmul": "c.broadcasting_batch_matmul(batch, right)",
    "build_sparse_with_bitmask": "c.build_sparse_with_bitmask([1.0, 2.0], bits)",
    "cast": 'c.cast(x, "f16")',
    "concat": "c.concat(0, [x, y])",
    "constant": 'c.constant([1, 2, 3], "f32")',
    "conv2d": "c.conv2d(image, kernel, [1, 1], [1, 1], 1)",
    "conv3d": "c.conv3d(volume, kernel3d, [1, 1, 1], [1, 1, 1], 1)",
    "conv_transpose2d": "c.conv_transpose2d(c.slice_(image, [0, 0, 0, 0], [1, 4, 4, 4], [1, 1, 1, 1]), "
    "c.transpose(kernel, [1, 0, 2, 3]), [2, 2], [1, 1], [1, 1], [0, 0], 1)",
    "conv_transpose3d": "c.conv_transpose3d(volume, c.transpose(kernel3d, [1, 0, 2, 3, 4]), [1, 1, 1], [0, 0, 0], "
    "[1, 1, 1], [0, 0, 0], 1)",
    "copy_discarding_constraints": "c.copy_discarding_constraints(laid_out, result_type=x.type)",
    "copy_with_constraints": "c.copy_with_constraints(x, result_type=laid_out.type)",
    "coreaix_cast": "c.coreaix_cast(laid_out, result_type=laid_out.type)",
    "create_complex": "c.create_complex(x, y)",
    "create_token": "c.create_token()",
    "expand_dims": "c.expand_dims(row, [0])",
    "gather_along_axis": "c.gather_along_axis(x, picked, 1)",
    "gather_nd": "c.gather_nd(x, [[1], [0]])",
    "gelu": 'c.gelu(x, approximate="tanh")',
    "graph": 'c.graph(lambda x: c.sin(x), provided_name="sine")(x)',
    "if_": "c.if_(flag, lambda: x, lambda: y)",
    "image_to_tensor": "c.image_to_tensor(picture)",
    "interpolate": "c.interpolate(image, [1, 4, 16, 16], [1.0, 1.0, 0.5, 0.5], [0.0, 0.0, 0.0, 0.0], "
    'interpolation_mode="linear")',
    "interpolate_coordinates": 'c.interpolate_coordinates(x, [[0.5, 1.5]], interpolation_mode="linear")',
    "invoke": 'c.invoke("sine", [x], [x.type])',
    "join_token": "c.join_token(c.create_token(), [c.create_token()])",
    "lut_to_dense": "c.lut_to_dense(bits, [[[[0.5], [1.0]]]], 0)",
    "lut_to_sparse_with_bitmask": "c.lut_to_sparse_with_bitmask(sparse_bits, [[[[0.5], [1.0]]]], 0)",
    "maxpool2d": "c.maxpool2d(image, [2, 2], [2, 2], [1, 1], False)",
    "maxpool3d": "c.maxpool3d(volume, [2, 2, 2], [2, 2, 2], [1, 1, 1], False)",
    "metal4_kernel": 'c.metal4_kernel([x], [6, 1, 1], [1, 1, 1], [[2, 3]], kernel_source="...", kernel_name="twice", '
    "result_type=x.type)",
    "output": "c.output(x)",
    "pad": 'c.pad(x, [0, 0, 1, 1], 0.0, padding_mode="constant")',
    "quantize": "c.quantize(x, 0.1, zero, 0.0, 0)",
    "dequantize": "c.dequantize(small, 0.1, zero, 0.0, 0)",
    "range_": "c.range_(0, 6, 2)",
    "read_handle": "c.read_handle(state, c.create_token())",
    "reshape": "c.reshape(x, [3, -1])",
    "reverse": "c.reverse(x, [1])",
    "scan": 'c.scan(x, 1, False, scan_op="sum")',
    "scatter_along_axis": 'c.scatter_along_axis(x, picked, c.slice_(y, [0, 0], [2, 1], [1, 1]), 1, scatter_mode="add")',
    "scatter_nd": "c.scatter_nd(new, [[2], [0]], y)",
    "shrink_dims": "c.shrink_dims(picked, [1])",
    "slice_": "c.slice_(x, [0, 1], [2, 3], [1, 1])",
    "slice_update": "c.slice_update(x, [0, 0], [1, 3], [1, 1], c.reshape(row, [1, 3]))",
    "softmax": "c.softmax(x, -1)",
    "sort": "c.sort(x, 1, False, True)",
    "sparse_with_bitmask_to_dense": "c.sparse_with_bitmask_to_dense(sparse)",
    "split": "c.split(x, [1, 2], 1)",
    "sumpool2d": "c.sumpool2d(image, [2, 2], [2, 2], [1, 1])",
    "sumpool3d": "c.sumpool3d(volume, [2, 2, 2], [2, 2, 2], [1, 1, 1])",
    "symmetric_quant_stats": "c.symmetric_quant_stats(x, [-127.0, 127.0], 0)",
    "tensor_to_image": "c.tensor_to_image(pixels, result_type=picture.type)",
    "tile": "c.tile(x, [1, 2])",
    "transpose": "c.transpose(x, [1, 0])",
    "view": "c.view(laid_out, result_type=laid_out.type)",
    "where": "c.where(p, x, y)",
    "while_": "c.while_([x], lambda x: c.broadcasting_greater(c.reshape(c.reduce_max(x, [0, 1]), []), 1.0), "
    "lambda x: c.broadcasting_mul(x, 0.5))",
    "write_handle": "c.write_handle(state, x, c.create_token())",
    "yield_": "c.yield_(x)",
}
"""An example of each function whose operands are not like those of many others."""

_OPERANDS = {"F": ["x", "y"], "f32": ["x", "y"], "INT": ["n", "m"], "B": ["p", "q"], "C": ["z"]}
"""Values for operands of a family of element types, the preferred family first."""


def functions_pages() -> dict[str, str]:
    """The pages docs/generated/authoring-functions.md and those that it lists."""
    opening = [
        "Made by `patcomp catalog functions --markdown docs/generated` from the table of the "
        "Core AI ops. `c.NAME(...)` in a lowering, in the body of a composite and in the target of an optimize rule is "
        "one of",
        "these functions. Numbers, lists and arrays in the place of a tensor become constants. All functions also take",
        "`loc=` and `result_type=`. A row with *one element type* says that the operands of this row must have equal",
        "element types. The families of element types:",
        "",
    ]
    families = [(f"`{name}`", ", ".join(f"`{element}`" for element in types)) for name, types in FAMILIES.items()]
    opening += markdown_table(["family", "element types"], families)
    opening += ["", "The values of the examples, which are built when the pages are made:", ""]
    opening += markdown_table(["value", "type"], [(f"`{name}`", f"`{type_}`") for name, type_ in _VALUES.items()])
    entries = [
        PageEntry(f"c.{name}", _entry(name, row, aliases)) for name, (row, aliases) in authoring_functions().items()
    ]
    return pages("authoring-functions", "Authoring functions", opening, [
        Section("", "Authoring functions", "function", (), entries)
    ])  # fmt: skip


def _entry(name: str, row: Row, aliases: list[str]) -> list[str]:
    """What the page says of a function."""
    lines = ["", f"## c.{name}", "", f"{escaped(row.doc[:1].upper() + row.doc[1:])}.", ""]
    lines += ["```text", f"c.{name}({signature_of(name, row)})", "```", ""]
    lines += [f"* `{slot.name}`: {_types(slot)}{_shape(slot)}" for slot in row.operands]
    lines += [
        f"* `{prop.name}`: {', '.join(f'`{word}`' for word in prop.words)}" for prop in row.properties if prop.words
    ]
    lines += [f"* one element type: {', '.join(f'`{item}`' for item in group)}" for group in row.same if len(group) > 1]
    lines += [f"* {text}" for text in _broadcasting(row)]
    lines += [f"* other names: {', '.join(f'`c.{alias}`' for alias in aliases)}"] if aliases else []
    if call := example_of(name, row):
        types = _result_of(call)
        return [*lines, f"* example: `{call}` has {f'the type {types}' if types else 'no result'}"]
    return [*lines, "* no example: the op describes a module, and no rule builds it"]


def authoring_functions() -> dict[str, tuple[Row, list[str]]]:
    """Each function by its name, with its row and its other names."""
    found: dict[int, tuple[str, Row, list[str]]] = {}
    for name, row in coreai_rows().items():
        function = coreai.FUNCTIONS[name]
        _, _, names = found.setdefault(id(function), (row.builder, row, []))
        names.append(name)
    named = {builder if builder in names else names[0]: (row, names) for builder, row, names in found.values()}
    return {name: (row, [other for other in names if other != name]) for name, (row, names) in sorted(named.items())}


def signature_of(name: str, row: Row) -> str:
    """The parameters of a function as Python text."""
    function = coreai.FUNCTIONS[name]
    if function.__code__.co_name == name:  # written out, not made from the row
        parameters = [item.replace(annotation=item.empty) for item in inspect.signature(function).parameters.values()]
        return ", ".join(str(item) for item in parameters if item.name != "loc")
    properties = [f"{p.name}={p.default!r}" if p.optional or p.default is not None else p.name for p in row.properties]
    return ", ".join([*(slot.name for slot in row.operands), *properties])


def _types(slot: Slot) -> str:
    if slot.types[0] in ("ANY", "TOKEN", "HANDLE", "IMAGE"):
        return {"ANY": "any value", "TOKEN": "a token", "HANDLE": "a handle", "IMAGE": "an image"}[slot.types[0]]
    several = "list of tensors, " if slot.variadic else ""
    return several + ", ".join(f"`{name}`" for name in slot.types)


def _shape(slot: Slot) -> str:
    ranks = " or ".join(map(str, slot.ranks))
    length = f" with {slot.length} elements" if slot.length is not None else ""
    return f"; rank {ranks}{length}" if slot.ranks else ""


def _broadcasting(row: Row) -> Iterator[str]:
    if row.infer == "broadcast":
        yield "the operands broadcast as in NumPy"
    elif row.infer == "matmul" and "broadcasting" in row.name:
        yield "the leading dimensions broadcast as in NumPy"
    elif row.infer == "same_shape":
        yield "the operands have one shape; they do not broadcast"


def example_of(name: str, row: Row) -> str:
    """A call of a function with the values of `_VALUES`; empty for an op that no rule builds."""
    if name in _EXAMPLES:
        return _EXAMPLES[name]
    arguments: list[str] = []
    for slot in row.operands:
        if slot.types[0] == "IDX":
            arguments.append("[1]")
            continue
        known = next((names for family, names in _OPERANDS.items() if family in slot.types), [])
        arguments.append(next((value for value in known if value not in arguments), ""))
    if row.infer == "broadcast" and arguments[-1] == "y":
        arguments[-1] = "row"
    usual = row.infer in ("like_first", "same_shape", "broadcast", "reduce", "complex_part", "get_shape", "non_zero")
    return f"c.{name}({', '.join(arguments)})" if usual and all(arguments) and row.pure else ""


def _result_of(call: str) -> str:
    """The types of a call's results, empty if it has none; the call is built in a graph of its own."""
    module, block = IRModule(), Block()
    values: Mapping[str, Any] = {
        name: Value(block.insert_arg(_parsed(type_), len(block.args))) for name, type_ in _VALUES.items()
    }
    with Builder(block, blobs=module.blobs):
        made = eval(call, {"c": coreai, **values})
    results = [] if made is None else made if isinstance(made, list | tuple) else [made]
    return ", ".join(f"`{value.type}`" for value in results)


def _parsed(text: str) -> Attribute:
    """The type that `_VALUES` writes, as examples of rules do or in full."""
    if not text.startswith(("tensor<", "!")):
        return parse_type(text)
    module = IRModule.parse(f"module {{ coreai.graph @f(%value: {text}) {{ coreai.output }} }}")
    return module.graph("f").regions[0].block.args[0].type
