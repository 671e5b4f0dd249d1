"""What patcomp stores of a program is what coreai-core stores, ops, decompositions and version included."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from patcomp.emit.bytecode import ProgramWriter, read_program
from patcomp.emit.stored.decompositions import has_decomposition
from patcomp.emit.stored.folder import PROGRAM, read_folder
from patcomp.emit.stored.forms import FORMS, OPS_BY_FORM
from patcomp.emit.stored.loading import loaded_module
from patcomp.emit.stored.storing import stored_program
from patcomp.emit.stored.streaming import write_folder
from patcomp.emit.toolchain.hand_over import hand_over_text
from patcomp.errors import UnsupportedError
from patcomp.ir import IRModule, Value, coreai, create_graph
from patcomp.ir.attributes import composite_declaration
from patcomp.ir.dialect import OPS
from patcomp.ir.locations import Origin, origin_location, origins
from patcomp.ir.verify import verify
from tests.asset.composite_programs import composite_programs
from tests.asset.native_programs import native_programs, saved
from tests.asset.structure import encoded, structure
from tests.emit.assets import adds, ramp
from tests.helpers.dialect_cases import READABLE
from tests.helpers.joined import join
from tests.helpers.programs import program

FOLDED = {
    "broadcast_shapes": "computed when saved",
    "get_shape": "computed when saved",
    "range_const": "computed when saved",
    "create_token": "a token that no op reads is dropped",
}
"""The cases that coreai-core changes when it saves them."""

NOT_STORED = {"delegate"}
"""The cases that only coreai-core can save."""

MERGED = ("where 2x3x,,2x3x", "where 3x,,2x3x", "where 3x,,?x")
"""coreai-core merges equal constants here."""


def test_all_cases_are_stored_as_natively() -> None:
    natives, changed = native_programs(), []
    for case in READABLE:
        if case.id in natives and case.id not in NOT_STORED:
            made = stored_program(IRModule.parse(case.text))
            assert structure(read_program(encoded(made))) == structure(made)
            if structure(made) != structure(read_program(natives[case.id])):
                changed.append(case.id)
    assert set(changed) == set(FOLDED)


def test_all_cases_are_loaded_and_stored_again() -> None:
    loaded = 0
    for name, data in native_programs().items():
        if name in NOT_STORED or name.startswith(("udml", "debuginfo", "invoke_ns")):
            continue
        native = read_program(data)
        module = loaded_module(native)
        assert structure(stored_program(module)) == structure(native), name
        assert structure(stored_program(IRModule.parse(module.text()))) == structure(native), name
        loaded += 1
    assert loaded > 220


def test_a_sample_of_decompositions_is_the_native_one(tmp_path: Path) -> None:
    """In one asset, because to save many programs takes little longer than one."""
    pytest.importorskip("coreai")
    programs = [module for name, module in composite_programs() if "f8" not in name and name not in MERGED]
    module = join({f"graph{number}": each for number, each in enumerate(programs[::6])})
    native = saved({"all": hand_over_text(module)}, tmp_path)["all"]
    assert structure(stored_program(module)) == structure(read_program(native))


@pytest.mark.slow
def test_all_decompositions_are_the_native_ones(tmp_path: Path) -> None:
    pytest.importorskip("coreai")
    programs = dict(composite_programs())
    natives = saved({name: hand_over_text(module) for name, module in programs.items()}, tmp_path)
    changed = [
        name
        for name, data in natives.items()
        if structure(stored_program(programs[name])) != structure(read_program(data))
    ]
    assert len(natives) > 900
    assert set(changed) == set(MERGED)


def test_every_op_has_a_stored_form_or_is_known_to_have_none() -> None:
    assert set(OPS) - set(FORMS) == {"coreai.delegate", "coreaix.cast", "coreaix.view"}
    assert set(FORMS) <= set(OPS)
    assert len(OPS_BY_FORM) == len(FORMS)
    for name, form in FORMS.items():
        assert has_decomposition(form.name) == (form.name.count(".") == 0), name
        assert bool(form.property) == any(declared.words for declared in OPS[name].ROW.properties), name


def test_what_an_asset_cannot_hold_is_refused_with_all_reasons() -> None:
    text = """
    "builtin.module"() ({
      "coreai.graph"() <{sym_name = "main", function_type = (tensor<4xf32>) -> tensor<4xf32>,
          param_decls = #param.decl.array<[]>}> ({
      ^bb0(%x: tensor<4xf32>):
        %a = "coreai.delegate"(%x) <{delegate_id = "a", resource = array<i8: 1>}> : (tensor<4xf32>) -> tensor<4xf32>
        %b = "coreai.cast"(%a) : (tensor<4xf32>) -> tensor<4xcomplex<f64>>
        %c = "coreai.cast"(%b) : (tensor<4xcomplex<f64>>) -> tensor<4xf32>
        "coreai.output"(%c) : (tensor<4xf32>) -> ()
      }) : () -> ()
    }) : () -> ()
    """
    with pytest.raises(UnsupportedError, match="saved without coreai-core") as error:
        stored_program(IRModule.parse(text))
    first, second = error.value.problems
    assert (first.op, second.op) == ("coreai.delegate", "coreai.cast")
    assert "complex<f64>" in second.message
    assert 'writer="coreai"' in first.advice


def test_weights_are_mapped_and_equal_ones_are_stored_once(tmp_path: Path) -> None:
    module = adds(ramp(300), ramp(300), ramp(300, 1.0))
    writer = ProgramWriter(stored_program(module))
    written = []
    write_folder(tmp_path / "a.aimodel", writer, {"assetVersion": "2.0"}, lambda *sizes: written.append(sizes))
    path = tmp_path / "a.aimodel" / PROGRAM
    assert path.stat().st_size == writer.size
    assert len(written) > 2
    assert written == sorted({(done, writer.size) for done, _ in written})
    assert written[-1] == (writer.size, writer.size)
    stored = read_folder(path.parent)
    assert len(stored.weights) == 2
    loaded = loaded_module(stored)
    names = {blob.key for blob in loaded.blobs}
    assert names == set(stored.weights)
    np.testing.assert_array_equal(sorted(blob.array()[0] for blob in loaded.blobs), [0, 1])
    assert encoded(stored_program(loaded)) == path.read_bytes()


def test_constants_of_every_element_type_stay_the_same() -> None:
    for name, data in native_programs().items():
        if not name.startswith(("add_", "passthrough", "lut", "blockwise", "sparse", "cast")):
            continue
        module = loaded_module(read_program(data))
        text = module.text()
        assert IRModule.parse(text).text() == text, name


SPLATS = [("i1", "true"), ("i1", "false"), ("ui1", "1"), ("ui1", "0"), ("si4", "-1"), ("si32", "7")]
"""Element types, and the value of all elements of a constant."""


def graph_of(body: str, type_: str) -> IRModule:
    """A graph that returns `%y`, which the body computes from `%x` of the same type."""
    head = f'coreai.graph @main(%x: {type_} {{coreai.name = "x"}}) -> ({type_} {{coreai.name = "y"}})'
    return IRModule.parse(f"module {{ {head} {{ {body} coreai.output %y : {type_} }} }}")


def test_constants_of_equal_elements_are_the_native_ones(tmp_path: Path) -> None:
    pytest.importorskip("coreai")
    types = {f"{name} {value}": (f"tensor<3x4x{name}>", value) for name, value in SPLATS}
    made = {
        key: graph_of(f"%y = coreai.constant dense<{value}> : {type_}", type_) for key, (type_, value) in types.items()
    }
    natives = saved({key: hand_over_text(module) for key, module in made.items()}, tmp_path)
    for key, module in made.items():
        native = read_program(natives[key])
        assert structure(stored_program(module)) == structure(native), key
        assert loaded_module(native).text() == loaded_module(stored_program(module)).text()
        (line,) = [line for line in loaded_module(native).text().splitlines() if "coreai.constant" in line]
        assert f"dense<{types[key][1]}> : {types[key][0]}" in line


def test_coreai_core_moves_constants_to_the_right_of_products(tmp_path: Path) -> None:
    """The Python writer keeps the order of the program."""
    pytest.importorskip("coreai")
    type_, one = "tensor<2x4xf32>", "%c = coreai.constant dense<2.0> : tensor<1x4xf32>"
    signature = "(tensor<2x4xf32>, tensor<1x4xf32>) -> tensor<2x4xf32>"
    right = graph_of(f"{one} %y = coreai.decomposable.broadcasting_mul %x, %c : {signature}", type_)
    signature = "(tensor<1x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>"
    left = graph_of(f"{one} %y = coreai.decomposable.broadcasting_mul %c, %x : {signature}", type_)
    native = structure(read_program(saved({"left": hand_over_text(left)}, tmp_path)["left"]))
    assert native == structure(stored_program(right)) != structure(stored_program(left))


def test_places_in_the_model_are_kept() -> None:
    module = program({"x": "2xf32"}, lambda x: coreai.exp(coreai.relu(x)))
    relu, *_ = module.graph("main").regions[0].block.ops
    relu.location = origin_location(Origin("relu", "layers.0", "model.py", 12))
    again = loaded_module(read_program(encoded(stored_program(module))))
    first, second, _ = again.graph("main").regions[0].block.ops
    assert [(origin.file, origin.line) for origin in origins(first.location)] == [("model.py", 12)]
    assert origins(second.location) == ()


def test_declarations_and_keywords_of_graphs_are_kept() -> None:
    module = program({"x": "2xf32"}, lambda x: coreai.invoke("norm", [x], [x.ssa.type])[0])
    inner = program({"x": "2xf32"}, lambda x: coreai.mul(x, x), name="norm").graph("norm")
    declared = {"eps": -1.5, "axes": [-1, 2**40], "name": "é", "flag": True, "inner": {"a": [1.0]}}
    declaration = composite_declaration("rms_norm", input_names=["x"], attributes=declared)
    block = inner.regions[0].block
    inner.regions[0].detach_block(block)
    module.op.body.block.add_op(
        create_graph("norm", block, argument_names=["x"], private=True, no_inline=True, declaration=declaration)
    )
    again = loaded_module(read_program(encoded(stored_program(module))))
    assert again.text() == module.text()
    assert again.composite_names() == {"norm": "rms_norm"}


def test_states_branches_and_loops_are_kept() -> None:
    def body(total: Value, x: Value) -> list[Value]:
        content, token = coreai.read_handle(total, coreai.create_token())
        condition = coreai.greater(coreai.reduce_sum(content, [0]), coreai.constant(np.zeros(1, np.float32)))
        flag = coreai.reshape(condition, coreai.constant(np.zeros(0, np.int32)))
        (chosen,) = coreai.if_(flag, lambda: [coreai.add(x, content)], lambda: [x])
        (looped,) = coreai.while_([chosen], lambda value: flag, lambda value: [coreai.add(value, content)])
        return [looped, coreai.write_handle(total, looped, token)]

    module = program({"x": "2xf32"}, body, states={"total": "2xf32"})
    again = loaded_module(read_program(encoded(stored_program(module))))
    assert structure(stored_program(again)) == structure(stored_program(module))
    verify(again)
