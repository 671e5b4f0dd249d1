"""Bad input: the documented exception class, and a message that names every offender and where it is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from patcomp import RuleError, StageError, TorchConverter, UnsupportedError
from patcomp.authoring import Coreai
from patcomp.patterns import OpView, Rule, Stage
from tests.frontend_torch.models import PAIR, Function, TwoBranches, export


class Counts(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.poisson(x)


class Draws(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Counts(), nn.Sequential(Counts())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.multinomial(self.second(self.first(x)), 1)


def test_a_module_instead_of_an_exported_program() -> None:
    for given in (TwoBranches(), None):
        with pytest.raises(
            AttributeError, match=r"expected a torch.export.ExportedProgram.*add_pytorch_module"
        ) as raised:
            TorchConverter().add_exported_program(given)  # type: ignore[arg-type]
        assert isinstance(raised.value, TypeError)


def test_a_program_that_was_not_decomposed_is_taken_apart_on_import() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Dropout(), nn.ReLU(inplace=True)).eval()
    exported = torch.export.export(model, (PAIR[0],))
    before = str(exported.graph)
    program = TorchConverter().add_exported_program(exported).to_coreai()
    assert str(exported.graph) == before
    assert program.composites == {"layer_norm": 1}
    assert program.verify_against(model, (PAIR[0],), backends=["evaluator"]).passed


def test_unknown_ops_are_all_reported_with_module_and_source_line() -> None:
    with pytest.raises(ValueError, match=r'random="inputs": aten\.multinomial, aten\.poisson') as raised:
        TorchConverter().add_exported_program(export(Draws(), PAIR[0]))
    assert isinstance(raised.value, UnsupportedError)
    places = [(p.op, p.module_path) for p in raised.value.problems]
    assert places == [("aten.poisson", "first"), ("aten.poisson", "second.0"), ("aten.multinomial", "")]
    assert all(re.search(r"test_refusals\.py:\d+$", p.source) for p in raised.value.problems)


def test_writes_to_expanded_tensors_are_refused() -> None:
    def fills(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.expand(2, 3, 4).fill_(3)
        y.expand(1, 3).zero_()  # every element has its own memory
        return x + y[:, :1]

    with pytest.raises(UnsupportedError, match="write to the tensor before it is expanded") as raised:
        TorchConverter().add_exported_program(
            torch.export.export(Function(fills), (torch.zeros(3, 4), torch.ones(1, 3)))
        )
    (problem,) = raised.value.problems
    assert problem.op == "aten.fill_.Scalar"
    assert problem.message == "the op writes to a tensor whose elements share memory, such as an expanded one"


def test_ops_that_a_rule_rejects_are_all_reported() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.nn.functional.interpolate(x, (7, 7), mode="bilinear"), torch.div(x, 0, rounding_mode="floor")

    exported = export(function, torch.ones(1, 1, 4, 4, dtype=torch.int32))
    with pytest.raises(UnsupportedError, match="resize of integers") as raised:
        TorchConverter().add_exported_program(exported).to_coreai()
    assert [problem.op for problem in raised.value.problems] == ["aten.upsample_bilinear2d.vec", "aten.div.Tensor_mode"]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"input_names": ["x"]}, "the model has 2 inputs, x, z, and input_names has 1: x"),
        ({"output_names": ["a", "b", "c"]}, "the model has 2 outputs, .*, and output_names has 3: a, b, c"),
        ({"state_names": ["s"]}, "the model has 0 states and state_names has 1: s"),
        ({"input_names": ["x", "x"]}, r"input_names .* repeats \['x'\]"),
        ({"output_names": ["y", "y"]}, r"output_names .* repeats \['y'\]"),
        ({"input_names": ["x", " "]}, r"unusable names"),
        ({"entrypoint_name": ""}, r"must not be empty"),
        ({"entrypoint_name": "$main"}, r"must not be empty, start with \$"),
        ({"input_names": ["x"], "output_names": ["y", "y"]}, r"input_names has 1: x; output_names .* repeats"),
    ],
)
def test_wrong_names(names: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TorchConverter().add_exported_program(export(TwoBranches(), *PAIR), **names)


@pytest.mark.parametrize(
    "names", [{"input_names": "xz"}, {"output_names": [1, 2]}, {"input_names": {"a", "b"}}, {"entrypoint_name": 3}]
)
def test_names_of_the_wrong_type(names: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        TorchConverter().add_exported_program(export(TwoBranches(), *PAIR), **names)


def test_what_is_no_model() -> None:
    for given in ({}, {"model": "model"}, {"model": TwoBranches(), "module": TwoBranches()}):
        with pytest.raises(TypeError, match="add_pytorch_module needs"):
            TorchConverter().add_pytorch_module(**given, export_fn=lambda model: export(model, *PAIR))


def test_an_entry_point_staged_twice() -> None:
    converter = TorchConverter().add_exported_program(export(TwoBranches(), *PAIR))
    with pytest.raises(ValueError, match="'main' is already staged"):
        converter.add_exported_program(export(TwoBranches(), *PAIR))


def test_an_empty_converter() -> None:
    with pytest.raises(RuntimeError, match="No programs to convert"):
        TorchConverter().to_coreai()
    converter = TorchConverter().add_exported_program(export(TwoBranches(), *PAIR))
    with pytest.raises(RuntimeError, match="No programs to convert"):
        converter.to_coreai(entrypoints=[])


def test_unknown_entry_points() -> None:
    converter = TorchConverter().add_exported_program(export(TwoBranches(), *PAIR))
    with pytest.raises(ValueError, match=r"no program is staged as \['other'\]; staged are \['main'\]"):
        converter.to_coreai(entrypoints=["main", "other"])
    with pytest.raises(ValueError, match="no program is staged"):
        converter.clear(entrypoints=["other"])
    with pytest.raises(TypeError, match="list of names"):
        converter.to_coreai(entrypoints="main")


def test_an_export_that_fails() -> None:
    def export_fn(module: nn.Module) -> torch.export.ExportedProgram:
        raise ZeroDivisionError("no way")

    with pytest.raises(RuntimeError, match="Your model failed to export: no way") as raised:
        TorchConverter().add_pytorch_module(TwoBranches(), export_fn)
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    with pytest.raises(AttributeError, match="got NoneType"):
        TorchConverter().add_pytorch_module(TwoBranches(), lambda m: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(TypeError, match="export_fn"):
        TorchConverter().add_pytorch_module(TwoBranches())


def test_constants_that_do_not_fit_are_refused_not_wrapped() -> None:
    big = torch.tensor([2**40, 1])
    exported = export(lambda x: x + big, torch.tensor([1, 2]))
    with pytest.raises(UnsupportedError, match="1099511627776 does not fit"):
        TorchConverter().add_exported_program(exported).to_coreai()


# ---- defects of rules -----------------------------------------------------------------------------


def bad_catalog(rule: Any) -> Any:
    import types

    module = types.ModuleType("bad_catalog")
    module.rule = rule  # type: ignore[attr-defined]
    return module


def bad_add(op: OpView, c: Coreai) -> Any:
    "leaves `other` and `alpha` unread"
    return op["self"]


def test_a_failing_stage_names_stage_rule_and_op_and_leaves_the_dump_before(tmp_path: Path) -> None:
    rule = Rule("bad_add", Stage.LOWER, ("aten.add.Tensor",), function=bad_add, source="my_rules.py:3")
    converter = TorchConverter(catalog=[bad_catalog(rule)]).add_exported_program(export(TwoBranches(), *PAIR))
    with pytest.raises(
        StageError, match=r"stage lower: rule bad_add \(my_rules.py:3\).*alpha, other of aten.add.Tensor"
    ) as raised:
        converter.to_coreai()
    assert isinstance(raised.value.__cause__, StageError | RuleError)
    path = re.search(r"IR before this stage is in (\S+)", str(raised.value))
    assert path is not None
    assert "aten.add.Tensor" in Path(path.group(1)).read_text()
    with pytest.raises(StageError, match=re.escape(str(tmp_path / "02-recover.mlir"))):
        converter.to_coreai(dump_ir=tmp_path)
    assert "aten.add.Tensor" in (tmp_path / "02-recover.mlir").read_text()


def test_the_program_is_unchanged_after_a_failure() -> None:
    exported = export(Draws(), PAIR[0])
    before = str(exported)
    with pytest.raises(UnsupportedError):
        TorchConverter().add_exported_program(exported)
    assert str(exported) == before


def test_sparse_inputs_are_refused() -> None:
    sparse = torch.eye(3).to_sparse_csr()
    exported = torch.export.export(Multiply(), (sparse, torch.randn(3, 3)), strict=False)
    with pytest.raises(UnsupportedError, match="input 'x' is sparse_csr; only dense tensors can be converted"):
        TorchConverter().add_exported_program(exported)


def test_inputs_and_writes_in_place_are_reported_together() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return y[:, :1].expand(3, 3).fill_(1) + x.to_dense()

    exported = torch.export.export(Function(function), (torch.eye(3).to_sparse(), torch.ones(3, 3)))
    with pytest.raises(
        UnsupportedError, match=r"1\. input 'args_0' is sparse_coo; .*\n      give .*\n  2\. .*expanded"
    ):
        TorchConverter().add_exported_program(exported)


class Multiply(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.mm(x, y)


def test_what_pytorch_cannot_decompose_has_a_place() -> None:
    class Branch(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            def square(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
                return (a @ a.mT).contiguous()  # export takes `a.mT` for another input of the branch

            return torch.cond(x.sum() > 0, square, lambda a, b: a * b, (x, x))

    with torch.no_grad():
        exported = torch.export.export(Branch(), (torch.randn(3, 3),))
    with pytest.raises(UnsupportedError, match="PyTorch cannot remove in-place writes") as raised:
        TorchConverter().add_exported_program(exported)
    (problem,) = raised.value.problems
    assert "might be aliasing the input" in problem.message
    assert (problem.op, problem.node) == ("cond", "cond")
    assert "test_refusals.py:" in problem.source


def test_a_convolution_without_channels_of_a_dynamic_size() -> None:
    def convolve(x: torch.Tensor) -> torch.Tensor:
        return nn.functional.conv2d(x, torch.zeros(2, 0, 3, 3))  # PyTorch gives no channels, not two

    x = torch.zeros(4, 0, 5, 5)
    exported = torch.export.export(Function(convolve), (x,), dynamic_shapes=(({0: torch.export.Dim.AUTO},),))
    program = TorchConverter().add_exported_program(exported).to_coreai()
    assert program.run(x[:3]).shape == convolve(x[:3]).shape


class Elsewhere(nn.Module):
    """A branch with an index outside of its dimension, which PyTorch notices only where it runs the branch."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Buffer(torch.tensor([2]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x.index_put((self.rows,), x[-1:]), (x,))


def test_an_index_outside_of_its_dimension_is_the_models() -> None:
    with pytest.raises(UnsupportedError, match=r"indices from 2 to 2 leave dimension 0 \(1\)") as raised:
        TorchConverter().add_exported_program(torch.export.export(Elsewhere(), (torch.ones(1, 3),))).to_coreai()
    (problem,) = raised.value.problems
    assert problem.advice == "PyTorch raises an error where it runs this op; give it indices inside of the dimension"
    assert "test_refusals.py" in problem.source
