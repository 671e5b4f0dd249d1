"""`patcomp.convert`: one call from a module, an exported program, a file or a folder to a program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import patcomp
from patcomp.conversion import habits
from patcomp.evaluate.verification import Verification


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(64, 64)

    def forward(self, x: torch.Tensor, *, scale: float = 2.0) -> torch.Tensor:
        return self.linear(x).relu() * scale


x = torch.ones(2, 64)


@pytest.fixture(scope="module")
def net() -> Net:
    return Net().eval()


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The assets that are compared with the model; None for a program in memory."""
    found: list[Any] = []
    compare = patcomp.AIProgram.verify_against

    def recorded(self: patcomp.AIProgram, *args: Any, **options: Any) -> Verification:
        found.append(options.get("asset"))
        return compare(self, *args, **options | {"backends": ["evaluator"]})

    monkeypatch.setattr(patcomp.AIProgram, "verify_against", recorded)
    return found


@pytest.mark.parametrize("inputs", [x, (x,), [x], {"x": x, "scale": 2.0}], ids=["tensor", "tuple", "list", "keywords"])
def test_example_inputs(net: Net, inputs: Any) -> None:
    program = patcomp.convert(net, inputs)
    assert [spec.shape for spec in program.signature().inputs] == [(2, 64)]
    torch.testing.assert_close(program.run({"x": x})["mul"], net(x))


def test_what_it_does_is_what_the_parts_do(net: Net, compared: list[Any]) -> None:
    names = {"input_names": ["rows"], "output_names": ["scores"]}
    program = patcomp.convert(net, (x,), dynamic_shapes=({0: torch.export.Dim("batch", max=8)},), target="gpu", **names)
    exported = torch.export.export(net, (x,), dynamic_shapes=({0: torch.export.Dim("batch", max=8)},))
    converter = patcomp.TorchConverter().add_exported_program(exported, **names)
    assert str(program) == str(converter.to_coreai(target="gpu"))
    assert str(patcomp.convert(exported, target="gpu", **names)) == str(program)
    assert compared == []


@pytest.mark.parametrize("compress", [None, "w8"])
def test_an_asset_is_compared_before_it_takes_its_place(
    net: Net, tmp_path: Path, compared: list[Any], compress: str | None
) -> None:
    program = patcomp.convert(net, x, verify=True, compress=compress, save=tmp_path / "net.aimodel")
    assert (tmp_path / "net.aimodel" / "main.mlirb").is_file()
    assert (program.compression is None) == (compress is None)
    assert len(compared) == 1
    assert (compared[0] is None) == (compress is not None)  # what compression loses is compared apart


class Worse(Net):
    """Another function in eager mode than in an export."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return super().forward(x) + (0 if torch.compiler.is_exporting() else 1)


@pytest.mark.parametrize("save", [True, False])
def test_other_numbers_are_an_error_and_nothing_is_saved(tmp_path: Path, save: bool) -> None:
    with pytest.raises(patcomp.MismatchError, match=r"differs from eager PyTorch by 1,"):
        patcomp.convert(Worse().eval(), x, verify=True, save=tmp_path / "net.aimodel" if save else None)
    assert list(tmp_path.iterdir()) == []


def test_files(net: Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compared: list[Any]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("nets.py").write_text("import torch\ndef net(): return torch.nn.Linear(4, 4).eval(), (torch.ones(2, 4),)\n")
    assert patcomp.convert("nets.py:net", verify=True).signature().inputs[0].shape == (2, 4)
    torch.export.save(torch.export.export(net, (x,)), "net.pt2")
    assert patcomp.convert(Path("net.pt2"), save="net.aimodel").signature().inputs[0].shape == (2, 64)
    assert Path("net.aimodel").is_dir()
    assert len(compared) == 1


def test_a_folder_becomes_a_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    import patcomp_models.bundles

    given: dict[str, Any] = {}
    monkeypatch.setattr(
        patcomp_models.bundles, "convert_bundle", lambda model, **options: given.update(model=model, **options)
    )
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"], "model_type": "llama"}))
    patcomp.convert(tmp_path, save=tmp_path / "bundle", compress="4bit")
    assert given == {
        "model": str(tmp_path), "out": tmp_path / "bundle", "verify": True, "target": None, "compress": "4bit",
    }  # fmt: skip
    with pytest.raises(patcomp.PatcompError, match=r"language models become bundles.*patcomp.convert\(FOLDER, save="):
        patcomp.convert(tmp_path)
    (tmp_path / "model_index.json").write_text("{}")
    for save in (None, "net.aimodel"):
        with pytest.raises(ValueError, match="the folder of a pipeline of models, which becomes a bundle"):
            patcomp.convert(tmp_path, save=save)


def test_names_of_other_converters_are_told_what_to_write(net: Net) -> None:
    for name, advice in habits.ARGUMENTS.items():
        with pytest.raises(TypeError) as raised:
            patcomp.convert(net, x, **{name: 1})
        assert str(raised.value) == f"convert has no argument {name!r}; {advice}"
    for name, advice in habits.NAMES.items():
        with pytest.raises(AttributeError) as wrong:
            getattr(patcomp, name)
        assert str(wrong.value) == f"module 'patcomp' has no attribute {name!r}; {advice}"
    with pytest.raises(TypeError, match="did you mean compress"):
        patcomp.convert(net, x, compres="4bit")
    with pytest.raises(AttributeError, match="did you mean convert"):
        patcomp.converts  # noqa: B018


def test_inputs_of_coremltools_are_refused(net: Net) -> None:
    kind = type("TensorType", (), {"__module__": "coremltools.converters.mil.input_types"})
    with pytest.raises(TypeError, match="TensorType of coremltools is no example input; example inputs say shapes"):
        patcomp.convert(net, [kind()])
