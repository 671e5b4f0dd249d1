"""`TorchConverter`: staging, names, inputs and outputs as the model has them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from patcomp import TorchConverter, get_decomp_table
from patcomp.ir import parse_module
from tests.frontend_torch.models import PAIR, Function, TwoBranches, export


def test_default_names_are_those_of_forward_and_of_the_nodes() -> None:
    program = TorchConverter().add_exported_program(export(TwoBranches(), *PAIR)).to_coreai()
    assert program.input_names() == ("x", "z")
    assert program.output_names() == ("add", "mul")


def test_given_names_replace_them() -> None:
    converter = TorchConverter().add_exported_program(
        export(TwoBranches(), *PAIR), input_names=["image", "mask"], output_names=["sum", "product"]
    )
    program = converter.to_coreai()
    assert program.input_names() == ("image", "mask")
    assert program.output_names() == ("sum", "product")
    outputs = program.run({"image": PAIR[0], "mask": PAIR[1]})
    assert torch.equal(outputs["product"], PAIR[0] * PAIR[1])


def test_names_are_accepted_by_position_as_documented() -> None:
    exported = export(TwoBranches(), *PAIR)
    program = TorchConverter().add_exported_program(exported, ["a", "b"], ["c", "d"], None, "entry").to_coreai()
    assert program.entrypoints == ("entry",)
    assert program.input_names("entry") == ("a", "b")


def test_staging_returns_the_converter() -> None:
    converter = TorchConverter()
    assert converter.add_exported_program(export(TwoBranches(), *PAIR)) is converter
    assert converter.add_pytorch_module(TwoBranches(), lambda m: export(m, *PAIR), entrypoint_name="two") is converter


@pytest.mark.parametrize("keyword", ["model", "module"])
def test_add_pytorch_module_takes_the_module_by_either_keyword(keyword: str) -> None:
    calls = []

    def export_fn(module: nn.Module) -> torch.export.ExportedProgram:
        calls.append(module)
        return export(module, *PAIR)

    model = TwoBranches()
    converter = TorchConverter().add_pytorch_module(**{keyword: model}, export_fn=export_fn)
    assert str(converter.to_coreai()) == str(TorchConverter().add_exported_program(export(model, *PAIR)).to_coreai())
    assert calls == [model]


def test_repr() -> None:
    assert repr(TorchConverter()) == "TorchConverter(\n  programs:\n    (none)\n)"
    converter = TorchConverter().add_exported_program(export(TwoBranches(), *PAIR), input_names=["a", "b"])
    converter.add_pytorch_module(TwoBranches(), lambda m: export(m, *PAIR), entrypoint_name="two")
    assert repr(converter) == (
        "TorchConverter(\n  programs:\n    main: ExportedProgram ['a', 'b'] -> []\n    two: nn.Module [] -> []\n)"
    )


def test_several_entry_points_in_the_order_of_staging() -> None:
    converter = TorchConverter()
    converter.add_exported_program(export(TwoBranches(), *PAIR), entrypoint_name="second")
    converter.add_exported_program(export(lambda x: x - 1, PAIR[0]), entrypoint_name="first")
    assert converter.to_coreai().entrypoints == ("second", "first")
    assert converter.to_coreai(entrypoints=["first"]).entrypoints == ("first",)
    converter.clear(entrypoints=["second"])
    assert converter.to_coreai().entrypoints == ("first",)
    converter.clear()
    with pytest.raises(RuntimeError, match="No programs to convert"):
        converter.to_coreai()


def test_weights_of_several_entry_points_are_shared() -> None:
    linear = nn.Linear(32, 32)
    converter = TorchConverter()
    for name in ("one", "two"):
        converter.add_exported_program(export(linear, torch.randn(2, 32)), entrypoint_name=name)
    assert len(list(converter.to_coreai().module.blobs)) == 1


def test_weights_are_not_copied() -> None:
    linear = nn.Linear(32, 32)
    program = TorchConverter().add_exported_program(export(linear, torch.randn(2, 32))).to_coreai()
    (blob,) = program.module.blobs
    assert blob.array().__array_interface__["data"][0] == linear.weight.data_ptr()


def test_a_converter_stays_usable_and_follows_live_weights() -> None:
    linear = nn.Linear(4, 2)
    x = torch.randn(3, 4)
    converter = TorchConverter().add_exported_program(export(linear, x))
    first = converter.to_coreai().run({"input": x})
    assert torch.allclose(next(iter(first.values())), linear(x), atol=1e-6)
    linear.weight.data.mul_(2.0)
    second = converter.to_coreai().run({"input": x})
    assert torch.allclose(next(iter(second.values())), linear(x), atol=1e-6)


# ---- inputs and outputs one to one ----------------------------------------------------------------


def check(function: Callable[..., Any], *args: torch.Tensor) -> Any:
    program = TorchConverter().add_exported_program(export(function, *args)).to_coreai()
    assert program.verify_against(Function(function), args, backends=["evaluator"]).passed
    return program


def test_an_output_returned_twice_stays_two_outputs() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x + 1
        return y, x * 2, y

    assert check(function, PAIR[0]).output_names() == ("add", "mul", "add_1")


def test_an_input_returned_stays_an_output() -> None:
    assert len(check(lambda x, y: (x, x + y), *PAIR).output_names()) == 2


def test_a_constant_returned_stays_an_output() -> None:
    model = nn.Linear(3, 2)
    program = TorchConverter().add_exported_program(export(lambda x: (model.weight, x + 1), PAIR[0])).to_coreai()
    outputs = program.run({program.input_names()[0]: PAIR[0]})
    assert torch.equal(outputs[program.output_names()[0]], model.weight)


def test_none_and_numbers_among_outputs_are_left_to_the_signature() -> None:
    assert check(lambda x: (None, x + 1, 3), PAIR[0]).output_names() == ("add",)


def test_python_inputs_are_folded_in() -> None:
    exported = export(lambda x, k, flag: x * k if flag else x, PAIR[0], 3, True)
    program = TorchConverter().add_exported_program(exported).to_coreai()
    assert len(program.input_names()) == 1
    outputs = program.run({program.input_names()[0]: PAIR[0]})
    assert torch.equal(next(iter(outputs.values())), PAIR[0] * 3)


def test_nested_containers_are_flattened_in_order() -> None:
    def function(x: dict[str, torch.Tensor]) -> dict[str, Any]:
        return {"sum": x["a"] + x["b"], "rest": [x["a"], x["b"] * 2]}

    exported = export(function, {"a": PAIR[0], "b": PAIR[1]})
    program = TorchConverter().add_exported_program(exported).to_coreai()
    assert program.verify_against(Function(function), ({"a": PAIR[0], "b": PAIR[1]},), backends=["evaluator"]).passed


def test_an_unused_input_stays_an_input() -> None:
    program = check(lambda x, y: x + 1, *PAIR)
    assert len(program.input_names()) == 2


def test_no_inputs() -> None:
    program = TorchConverter().add_exported_program(export(lambda: torch.ones(2) * 3)).to_coreai()
    assert program.run({})[program.output_names()[0]].tolist() == [3.0, 3.0]


def test_64_bit_inputs_are_narrowed_only_when_they_fit() -> None:
    from patcomp import EvaluationError

    program = check(lambda x: x + 1, torch.tensor([1, 2, 3]))
    name = program.input_names()[0]
    with pytest.raises(EvaluationError, match="do not fit"):
        program.run({name: torch.tensor([1, 2, 2**40])})
    program = check(lambda x: x + 1, torch.tensor([1.0, 2.0], dtype=torch.float64))
    with pytest.raises(EvaluationError, match="do not fit"):
        program.run(torch.tensor([1.0, 1e300], dtype=torch.float64))
    infinite = torch.tensor([1.0, torch.inf], dtype=torch.float64)
    assert program.run(infinite).tolist() == [2.0, torch.inf]


# ---- the program ----------------------------------------------------------------------------------


def test_optimize_returns_the_program_and_changes_nothing() -> None:
    program = TorchConverter().add_exported_program(export(TwoBranches(), *PAIR)).to_coreai()
    text = str(program)
    assert program.optimize() is program
    assert str(program.optimize()) == text


def test_deepcopy_is_independent_and_equal() -> None:
    program = TorchConverter().add_exported_program(export(TwoBranches(), *PAIR)).to_coreai()
    other = copy.deepcopy(program)
    assert str(other) == str(program)
    assert other.module.op is not program.module.op


def test_dumps_of_every_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    converter = TorchConverter().add_exported_program(export(TwoBranches(), *PAIR))
    program = converter.to_coreai(dump_ir=tmp_path / "dumps")
    names = sorted(path.name for path in (tmp_path / "dumps").iterdir())
    assert names == [
        "00-import.mlir", "01-normalize.mlir", "02-recover.mlir", "03-lower.mlir", "04-target.mlir",
        "05-outline.mlir", "06-state.mlir", "07-optimize.mlir", "08-emit.mlir",
    ]  # fmt: skip
    for path in (tmp_path / "dumps").iterdir():
        parse_module(path.read_text())
    assert (tmp_path / "dumps" / "08-emit.mlir").read_text() == str(program) + "\n"
    monkeypatch.setenv("PATCOMP_DUMP", str(tmp_path / "by-environment"))
    converter.to_coreai()
    assert len(list((tmp_path / "by-environment").iterdir())) == 9


def test_release_mode_drops_locations() -> None:
    converter = TorchConverter(mode=TorchConverter.Mode.RELEASE).add_exported_program(export(TwoBranches(), *PAIR))
    assert 'loc("' not in converter.to_coreai().text(locations=True)
    converter = TorchConverter().add_exported_program(export(TwoBranches(), *PAIR))
    assert 'loc("' in converter.to_coreai().text(locations=True)


def test_verify_against_sees_a_difference() -> None:
    program = TorchConverter().add_exported_program(export(TwoBranches(), *PAIR)).to_coreai()
    verification = program.verify_against(lambda x, z: (x + z + 0.5, x * z), PAIR, backends=["evaluator"])
    assert not verification.passed
    assert abs(verification.max_abs - 0.5) < 1e-5
    assert [error.name for error in verification.errors if error.max_abs > 0.1] == ["add"]


def test_a_copied_converter_goes_on_by_itself() -> None:
    @torch.library.custom_op("patcomp_test::copied", mutates_args=())
    def copied(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    copied.register_fake(lambda x: torch.empty_like(x))
    converter = TorchConverter().add_exported_program(export(lambda x: copied(x), PAIR[0]))
    for copy_of in (copy.copy, copy.deepcopy):
        other = copy_of(converter)
        other.register_torch_lowering("patcomp_test::copied")(lambda values, node, loc: values[node.args[0].name])
        program = other.to_coreai()
        assert program.run(PAIR[0]).equal(PAIR[0])
        other.clear()
        assert "main" in repr(converter)
        assert "copied" not in repr(converter)
        assert [problem.op for problem in converter.open_problems()] == ["patcomp_test.copied"]


def test_stages_are_those_of_the_conversion() -> None:
    """They are computed when asked for, whatever was registered since."""
    converter = TorchConverter().add_exported_program(export(lambda x: torch.relu(x), PAIR[0]))
    program = converter.to_coreai()
    converter.register_torch_lowering("aten::relu", allow_override=True)(lambda values, node, loc: values["x"])
    assert "coreai.relu" in program.stages["emit"]


def test_entry_points_may_be_any_iterable() -> None:
    converter = TorchConverter().add_exported_program(export(lambda x: x + 1, PAIR[0]), entrypoint_name="a")
    assert converter.to_coreai(entrypoints=iter(["a"])).entrypoints == ("a",)
    converter.clear(entrypoints=iter(["a"]))
    assert "(none)" in repr(converter)


def test_get_decomp_table_is_fresh_and_keeps_the_composites() -> None:
    table = get_decomp_table()
    default = torch.export.default_decompositions()
    kept = sorted(str(op) for op in set(default) - set(table))
    assert kept == [
        "aten.hardsigmoid.default", "aten.hardswish.default", "aten.instance_norm.default",
        "aten.logit_backward.default", "aten.pixel_shuffle.default",
        "aten.reflection_pad1d.default", "aten.reflection_pad2d.default", "aten.reflection_pad3d.default",
        "aten.replication_pad1d.default", "aten.replication_pad2d.default", "aten.replication_pad3d.default",
        "aten.scaled_dot_product_attention.default", "aten.select_scatter.default", "aten.silu.default",
        "aten.smooth_l1_loss_backward.default", "aten.upsample_bicubic2d.vec",
    ]  # fmt: skip
    table.clear()
    assert get_decomp_table()
