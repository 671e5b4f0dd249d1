"""The audit: what it finds, where, and which rule would mend it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

from patcomp import AIProgram, TorchConverter
from patcomp.errors import EvaluationError
from patcomp.ir.module import IRModule
from patcomp.questions.audit import audit
from patcomp.questions.findings import Audit, Finding
from patcomp.targets import NEURAL_ENGINE, Target
from patterns_catalog import default_rules
from tests.helpers.command import Command
from tests.networks import zoo


class Calling(nn.Module):
    def __init__(self, function: object):
        super().__init__()
        self.function = function

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        return self.function(*tensors)  # type: ignore[operator]


def converted(
    function: object, *args: torch.Tensor, target: str | Target | None = None, **options: object
) -> AIProgram:
    model = function if isinstance(function, nn.Module) else Calling(function)
    exported = torch.export.export(model.eval(), args, **options)
    return TorchConverter().add_exported_program(exported).to_coreai(target=target)


def finding(found: Audit, what: str) -> Finding:
    (one,) = (each for each in found.findings if each.what == what)
    return one


X = torch.randn(2, 64)


def test_element_types_name_their_places() -> None:
    found = finding(converted(lambda x: x.sin() * 2, X).audit("neural_engine"), "f32 values")
    assert found.count > 2
    assert found.mended_by == ("half precision",)
    assert any("test_audit.py:" in place and "sin" in place for place in found.places)


@pytest.mark.parametrize(
    ("function", "args", "what", "mended_by"),
    [
        (lambda x: x.sort()[0], (X,), "coreai.argsort", ()),
        (lambda x: x.view(2, 2, 2, 2, 2, 2, 2).sin(), (X,), "rank over 5", None),
        (lambda x, i: x[i], (X, torch.tensor([1, 0])), "coreai.gather_nd", ("gather of runs as slices",)),
        (lambda x: functional.pad(x, (1, 1)) * 2, (X,), "coreai.pad", ("pad as concat",)),
        (lambda x: x * 1e6, (X,), "the number 1e+06, beyond float16", ()),
        (lambda x: x[:1].repeat(70000, 1).sin(), (X,), "a dimension over 65536", ()),
        (lambda x: torch.argmax(x, 1), (X,), "coreai.argmax", ("argmax by comparison",)),
    ],
)  # fmt: skip
def test_kinds(function: object, args: tuple[torch.Tensor, ...], what: str, mended_by: tuple[str, ...] | None) -> None:
    found = converted(function, *args).audit("neural_engine")
    one = finding(found, what)
    assert not found.clean
    assert one.count >= 1
    assert mended_by is None or one.mended_by == mended_by


def test_dynamic_sizes_are_found() -> None:
    rows = torch.export.Dim("rows", min=2, max=64)
    program = converted(nn.Linear(64, 64), X, dynamic_shapes={"input": {0: rows}})
    mended_by = ("to_coreai(fixed=...)", "--fix NAME=SIZE")
    assert finding(program.audit("neural_engine"), "dynamic sizes").mended_by == mended_by


def test_complex_numbers_are_right_and_found() -> None:
    model = Calling(lambda x: torch.view_as_real(torch.fft.fft(x)))
    program = converted(model, X, target="neural_engine")
    program.verify_against(model, (X,), backends=["evaluator"]).check()
    assert isinstance(program.audit("neural_engine"), Audit)


def test_a_target_that_wants_nothing() -> None:
    found = converted(lambda x: x.sin(), X).audit(Target("mine"))
    assert found.findings == ()
    assert str(found) == "mine: nothing to mend"


def test_padding_of_windows_is_taken() -> None:
    program = converted(nn.Conv2d(32, 32, 3, padding=1), torch.randn(1, 32, 32, 32), target="neural_engine")
    found = program.audit("neural_engine")
    assert found.clean
    assert "coreai.pad" in str(program)


def test_advice_is_no_problem() -> None:
    found = converted(nn.Linear(64, 8), X, target="neural_engine").audit(NEURAL_ENGINE)
    assert found.clean
    assert [each.is_advice for each in found.findings] == [True]
    assert str(found).startswith("neural_engine: takes the program")


def test_rows_of_inputs_and_outputs() -> None:
    found = converted(lambda x: x.sin(), torch.randn(2, 40), target="neural_engine").audit("neural_engine")
    one = finding(found, "an input or output with rows of 80 bytes, not of 64")
    assert (one.count, one.is_advice) == (2, True)


@pytest.mark.parametrize(("stride", "taken"), [(1, True), (2, True), (6, True), (5, False), (7, False)])
def test_strides(stride: int, taken: bool) -> None:
    model = nn.Conv2d(32, 32, 7, stride=stride)
    found = converted(model, torch.randn(1, 32, 64, 64), target="neural_engine").audit("neural_engine")
    assert ("strides of other factors than 2, 3" in [each.what for each in found.findings]) != taken
    assert found.clean


PALETTIZED = """module {
  coreai.graph @main(%x: tensor<1x32x64x64xf16>, %indices: tensor<32x32x4x4xui4>) -> (tensor<1x32x16x16xf16>) {
    %lut = coreai.constant dense<0.5> : tensor<1x1x1x1x16x1xf16>
    %axis = coreai.constant dense<0> : tensor<si16>
    %strides = coreai.constant dense<4> : tensor<2xui32>
    %ones = coreai.constant dense<1> : tensor<2xui32>
    %one = coreai.constant dense<1> : tensor<ui32>
    %weight = coreai.lut_to_dense %indices, %lut, %axis
      : (tensor<32x32x4x4xui4>, tensor<1x1x1x1x16x1xf16>, tensor<si16>) -> tensor<32x32x4x4xf16>
    %y = coreai.conv2d %x, %weight, %strides, %ones, %one
      : (tensor<1x32x64x64xf16>, tensor<32x32x4x4xf16>, tensor<2xui32>, tensor<2xui32>, tensor<ui32>)
      -> tensor<1x32x16x16xf16>
    coreai.output %y : tensor<1x32x16x16xf16>
  }
}
"""


def test_strides_with_palettized_weights() -> None:
    found = audit(IRModule.parse(PALETTIZED), NEURAL_ENGINE, default_rules())
    assert finding(found, "strides over 2 with palettized weights").count == 1


@pytest.mark.parametrize(
    ("function", "x", "regions"),
    [
        pytest.param(lambda x: x.sin().argsort(-1), X, 1, id="at the end"),
        pytest.param(lambda i: X[i].sin(), torch.tensor([1, 0, 1]), 1, id="at the start"),
        pytest.param(lambda x: x.sin().sort(-1)[0].cos(), X, 2, id="between"),
        pytest.param(lambda x: x.sin() + x.cos().sort(-1)[0].cos(), X, 2, id="beside"),
        pytest.param(lambda x: x.sin().sort(-1)[0].cos().sort(-1)[0].exp(), X, 3, id="twice"),
    ],
)
def test_regions(function: object, x: torch.Tensor, regions: int) -> None:
    found = converted(function, x, target="neural_engine").audit("neural_engine")
    listed = [each for each in found.findings if each.what == "regions with other ops between them"]
    assert [(each.count, each.is_advice) for each in listed] == ([(regions, True)] if regions > 1 else [])
    assert all("sort" in place for each in listed for place in each.places)


def overflowing(x: torch.Tensor) -> torch.Tensor:
    large = (x * 300).square()
    return large.mean(-1, keepdim=True).sqrt() + x


def test_a_run_names_what_overflows_first() -> None:
    program = converted(overflowing, X)
    assert "values beyond float16" not in str(program.audit("neural_engine"))
    one = finding(program.audit("neural_engine", (10 * X,)), "values beyond float16")
    assert one.count == 1  # not the mean, whose operand is too large already
    assert "test_audit.py:" in one.places[0]
    assert "square" in one.places[0]
    assert "values beyond float16" not in str(program.audit("neural_engine", X / 1000))
    assert "values beyond float16" not in str(program.audit("gpu", X))  # which computes float32


def test_a_run_in_float16() -> None:
    program = converted(overflowing, X.half())
    one = finding(program.audit("gpu", (10 * X.half(),)), "values beyond float16")
    assert one.places[0].startswith("inf of ")


def test_a_run_looks_into_composites() -> None:
    model = nn.Sequential(nn.RMSNorm(64, eps=1e-6), nn.Linear(64, 64))
    x = 1000 * X
    one = finding(converted(model, x).audit("neural_engine", x), "values beyond float16")
    assert "in rms_norm" in one.places[0]
    assert one.mended_by == ("rms_norm divided first",)
    assert "values beyond float16" not in str(converted(model, x, target="neural_engine").audit("neural_engine", x))


def test_masks_do_not_overflow() -> None:
    def masked(x: torch.Tensor) -> torch.Tensor:
        scores = x @ x.mT
        return torch.softmax(scores.masked_fill(torch.ones(2, 2).triu(1).bool(), -torch.inf), -1)

    assert "values beyond float16" not in str(converted(masked, X).audit("neural_engine", X))


def test_inputs_of_another_model() -> None:
    with pytest.raises(EvaluationError, match="the number of tensors among the inputs is 2"):
        converted(overflowing, X).audit("neural_engine", (X, X))


@pytest.mark.parametrize("target", ["cpu", "gpu", "neural_engine"])
@pytest.mark.parametrize(
    "name", ["mobilenet_v3_small", *(pytest.param(n, marks=pytest.mark.slow) for n in ("resnet18", "unet", "vit"))]
)
def test_networks_are_clean(name: str, target: str) -> None:
    torch.manual_seed(0)
    example = zoo.build(name)
    program = converted(example.model, *example.args, target=target)
    found = program.audit(target)
    assert [each.what for each in found.findings if not each.is_advice] == []


def test_plain_data_and_the_command(patcomp: Command, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "import torch\n\n\ndef net():\n    return torch.nn.Linear(64, 64), (torch.ones(1, 64),)\n"
        "\n\nclass Square(torch.nn.Module):\n    def forward(self, x):\n        return x * x\n"
        "\n\ndef large():\n    return Square(), (torch.full((1, 64), 300.0),)\n"
    )
    done = patcomp("audit", "net.py:net", "--target", "neural_engine", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["clean"]
    done = patcomp("audit", "net.py:net", "--target", "neural_engine", "--without", "half precision")
    assert done.code == 3
    assert "f32 values" in done.out
    done = patcomp("audit", "net.py:net", "--target", "neural_engine", "--run")
    assert done.code == 0, done.err
    assert patcomp("audit", "net.py:large", "--target", "neural_engine").code == 0
    done = patcomp("audit", "net.py:large", "--target", "neural_engine", "--run")
    assert (done.code, "values beyond float16" in done.out) == (3, True)
    done = patcomp("audit", "net.py:net", "--target", "neural")
    assert (done.code, "there is no target 'neural'" in done.err) == (1, True)
    done = patcomp("convert", "net.py:net", "--text", "-", "--target", "neural_engine", "--without", "half precisoin")
    assert (done.code, "half precision" in done.err) == (1, True)
    done = patcomp("convert", "net.py:net", "--text", "net.mlir", "--target", "neural_engine")
    assert done.code == 0, done.err
    assert "coreai.conv2d" in (tmp_path / "net.mlir").read_text()
    assert patcomp("audit", "net.mlir", "--target", "neural_engine").code == 0
    assert patcomp("audit", "net.mlir", "--target", "neural_engine", "--run").code == 2
    assert patcomp("convert", "net.py:net", "--text", "-", "--without", "half precision").code == 2
