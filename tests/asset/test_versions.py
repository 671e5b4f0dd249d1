"""The version of the format that coreai-core stores for a program is the one that patcomp computes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from patcomp.emit.bytecode import StoredProgram, read_program
from patcomp.emit.stored.elements import STORED_ELEMENTS
from patcomp.emit.stored.outline import Outline
from patcomp.emit.stored.storing import stored_program
from patcomp.emit.toolchain.hand_over import hand_over_text
from patcomp.ir import IRModule
from tests.asset.native_programs import saved
from tests.asset.single_ops import single_ops

_GRAPH = """
"builtin.module"() ({{
  "coreai.graph"() <{{sym_name = "main", function_type = ({type}) -> {type},
      param_decls = #param.decl.array<[]>{more}}}> ({{
  ^bb0(%x: {type}):
    "coreai.output"(%x) : ({type}) -> ()
  }}) : () -> ()
}}) : () -> ()
"""
_TYPES = (
    *(f"tensor<?x3x{element}>" for element in STORED_ELEMENTS),
    "tensor<2x3xf32, #coreai.sparse_tensor_encoding<bitmask, numNonZero = 3, posWidth = 1, crdWidth = 1>>",
    "tensor<4xf32, #coreaix.hw_constraints<MTLBuffer, alignments: [1x1], interleave: [1]>>",
    "!coreai.image<<k24RGB> x 4 : i64 x 6 : i64>",
)
_VALUES = (
    "true", "1 : si32", "1 : ui64", "1.0 : f32", "1.0 : f64", '"s"', "[1 : si32]", "unit", "{a = 1 : si32}", "@a",
    "[{a = unit}]",
)  # fmt: skip


def version(program: StoredProgram) -> int:
    _, (_, _, number) = program.asset.properties["version"]
    return number  # type: ignore[no-any-return]


def of_types_and_attributes() -> dict[str, IRModule]:
    texts = {type_: _GRAPH.format(type=type_, more="") for type_ in _TYPES}
    for value in _VALUES:
        declared = f', priv, composite_decl = #coreai.composite_declaration<"c" = {{k = {value}}}>'
        texts[value] = _GRAPH.format(type="tensor<f32>", more=declared)
    texts["flags"] = _GRAPH.format(type="tensor<f32>", more=", no_inline, externalize")
    return {name: IRModule.parse(text) for name, text in texts.items()}


def test_types_and_attributes_have_dates() -> None:
    """Those that coreai-core stores; the slow test compares with it."""
    found = {name: version(stored_program(module)) for name, module in of_types_and_attributes().items()}
    assert found["tensor<?x3xf32>"] == found["[1 : si32]"] == 20250707
    assert found["tensor<?x3xui6>"] == 20251003
    assert found["[{a = unit}]"] == 20260313
    assert [found[name] for name in _TYPES[-3:]] == [20251112, 20250825, 20251114]


@pytest.mark.slow
def test_the_version_of_each_op_type_and_attribute_is_the_native_one(tmp_path: Path) -> None:
    pytest.importorskip("coreai")
    programs = of_types_and_attributes()
    for op, modules in single_ops().items():
        programs |= {f"{op} {number}": module for number, module in enumerate(modules)}
    natives = saved({name: hand_over_text(module) for name, module in programs.items()}, tmp_path)
    compared = set()
    for name, data in natives.items():
        native, ours = read_program(data), stored_program(programs[name])
        if Counter(Outline(native).op_names()) == Counter(Outline(ours).op_names()):  # nothing was folded
            assert version(ours) == version(native), name
            compared.add(name.split()[0])
    assert len(compared) > 150
