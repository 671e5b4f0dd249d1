"""The attributes, types and properties of the private dialect `aicode`, as data.

A kind's number is what its encoding starts with; its fields follow in the order of the list:

    text       a text of the table of texts
    attribute  another attribute
    type       another type
    number     an unsigned number; `signed` a signed one; `byte` one byte
    bytes      a length and bytes
    resource   the position of a weight
    integer    width in bits, whether it is unsigned, bit pattern
    float      width in bits, bit pattern
    x*         a list of x

Facts: every asset that coreai-core 1.0.0b2 and b3 wrote in our tests is decoded and encoded again to the same bytes.
"""

from __future__ import annotations

Fields = tuple[str, ...]


def _table(rows: str) -> dict[int, tuple[str, Fields]]:
    """The kind and fields of each number, from lines of `number kind: fields`."""
    found = {}
    for line in rows.strip().splitlines():
        head, _, fields = line.partition(":")
        code, kind = head.split()
        found[int(code)] = (kind, tuple(fields.split()))
    return found


ATTRIBUTE_KINDS = _table("""
1 string: text
2 integer: integer
3 float: float
4 type: type
5 array: attribute*
6 dense_elements: byte bytes
7 dense_resource: resource
9 opaque: text attribute*
12 ax.hw_constraints_v1: signed* signed* number
14 symbol_ref_v1: text*
16 param.constant_v1: attribute type
17 padding_mode_v1: number
18 execution.lifecycle_phase_v1: number
19 approximate_v1: number
20 scatter_mode_v1: number
21 sparse_tensor_encoding_v1: number number number number* number
25 scan_combiner_v1: number
27 pixel_format_v1: number
28 execution.compilation_v1: number
29 execution.target_spec_v1: attribute attribute attribute
30 file: text text text
31 source: attribute number number number number
32 compile_unit: text attribute text number text attribute*
33 metadata_value: attribute
35 metadata: text attribute
36 subprogram: type attribute attribute text text number
37 local_variable: type text attribute attribute number number
40 location: attribute attribute attribute* attribute*
43 interpolation_mode_v1: number
45 dictionary: attribute*
46 unit_v1:
""")
"""Attributes by number. `dense_elements` says whether one element stands for all, and the bytes of the elements;
`hw_constraints_v1` alignments, interleave and the position of the backing; `source` file, first line and column, last
line and column; `location` source, scope, further locations that it is fused with, and metadata; `compile_unit`
language, file, producer, whether it is optimized, flags and all files; `subprogram` type of a function, unit, file,
name, name for the linker, and a number that was 0 in every file. coreai-torch writes these and `metadata`."""

TYPES = _table("""
2 tensor_v1: signed* type
3 tensor_v1: signed* type attribute
4 bool_v1:
5 float64_v1:
6 float32_v1:
7 float16_v1:
8 bfloat16_v1:
9 float8E5M2_v1:
10 float8E4M3FN_v1:
12 complex_float32_v1:
17 sint64_v1:
18 sint32_v1:
19 sint16_v1:
20 sint8_v1:
21 sint4_v1:
22 sint2_v1:
23 uint64_v1:
24 uint32_v1:
25 uint16_v1:
26 uint8_v1:
27 uint4_v1:
28 uint2_v1:
29 uint1_v1:
30 function_v1: type* type*
31 handle_v1: type
32 token_v1:
33 param.symbol_v1:
36 uint6_v1:
37 uint3_v1:
39 image_v1: attribute number number
41 debuginfo.unresolved_v1: type
46 float4E2M1FN_v1:
47 float8E8M0FN_v1:
""")
"""Types by number. `tensor_v1` has dimensions, element type and encoding; `function_v1` results before operands;
`image_v1` pixel format, height and width."""

ATTRIBUTE_NUMBERS = {kind: (code, fields) for code, (kind, fields) in ATTRIBUTE_KINDS.items()}
TYPE_NUMBERS = {(kind, len(fields)): (code, fields) for code, (kind, fields) in TYPES.items()}

PROPERTY_KEYS: dict[str, tuple[str, ...]] = {
    name: tuple(keys.split())
    for name, keys in {
        "serialization.asset": "_? version?",
        "dataflow.graph_v1": "argAttrs compositeDecl? externalize functionType isPrivate name noInline paramDecls "
        "resAttrs",
        "dataflow.namespace_v1": "name paramDecls",
        "dataflow.invoke_v1": "arg_attrs callee res_attrs",
        "dataflow.isolated_group_v1": "arg_attrs delegate_id res_attrs",
        "execution.delegate_v2": "arg_attrs delegate_attrs? delegate_id lifecycle res_attrs resource",
        "execution.target_spec_v1": "compilation spec",
        "primitive.constant_v1": "value",
        "primitive.gelu_v1": "approximate",
        "primitive.scan_v1": "combiner",
        "primitive.pad_v1": "padding_mode",
        "primitive.scatter_along_axis_v1": "scatter_mode",
        "primitive.interpolate_v1": "interpolation_mode",
        "primitive.interpolate_coordinates_v1": "interpolation_mode",
        "metal.metal4_kernel_v1": "kernel_name kernel_source",
        "debuginfo.record_v1": "id",
        "debuginfo.value_v1": "variable",
        "udml.placeholder_v1": "annotations _? opname",
        "udml.func_v1": "argAttrs functionType name noInline paramDecls resAttrs",
        "udml.call_v1": "arg_attrs callee res_attrs",
    }.items()
}
"""The properties of each op that has some, in the order of the file; `?` marks one that may be missing."""

OPEN_DIMENSION = -(2**63)
"""A dimension that is known only at run time."""
