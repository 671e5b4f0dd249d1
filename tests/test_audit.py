"""The audit: what it finds, where, and which rule would mend it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

from patcomp import AIProgram, TorchConverter
from patcomp.questions.audit import Audit, Finding
from patcomp.targets import NEURAL_ENGINE, Target
from tests.helpers.command import Command
from tests.models import zoo


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
        (lambda x: torch.argmax(x, 1), (X,), "coreai.argmax", ()),
    ],
)  # fmt: skip
def test_kinds(function: object, args: tuple[torch.Tensor, ...], what: str, mended_by: tuple[str, ...] | None) -> None:
    found = converted(function, *args).audit("neural_engine")
    one = finding(found, what)
    assert not found.clean
    assert one.count >= 1
    assert mended_by is None or one.mended_by == mended_by


def test_dynamic_sizes_are_right_and_found() -> None:
    rows = torch.export.Dim("rows", min=2, max=64)
    model = nn.Linear(64, 64)
    program = converted(model, X, target="neural_engine", dynamic_shapes={"input": {0: rows}})
    assert finding(program.audit("neural_engine"), "dynamic sizes").mended_by == ("AIProgram.specialize",)
    program.verify_against(model, (torch.randn(5, 64),), backends=["evaluator"]).check()


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
    )
    done = patcomp("audit", "net.py:net", "--target", "neural_engine", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["clean"]
    done = patcomp("audit", "net.py:net", "--target", "neural_engine", "--without", "half precision")
    assert done.code == 3
    assert "f32 values" in done.out
    done = patcomp("audit", "net.py:net", "--target", "neural")
    assert (done.code, "there is no target 'neural'" in done.err) == (1, True)
    done = patcomp("convert", "net.py:net", "--text", "-", "--target", "neural_engine", "--without", "half precisoin")
    assert (done.code, "half precision" in done.err) == (1, True)
    done = patcomp("convert", "net.py:net", "--text", "net.mlir", "--target", "neural_engine")
    assert done.code == 0, done.err
    assert "coreai.conv2d" in (tmp_path / "net.mlir").read_text()
    assert patcomp("audit", "net.mlir", "--target", "neural_engine").code == 0
    assert patcomp("convert", "net.py:net", "--text", "-", "--without", "half precision").code == 2
