"""Models of time series: what they predict, on the evaluator and on the runtime."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from patcomp import AIProgram
from patcomp.emit.native import Native
from patcomp.errors import PatcompError
from patcomp_models.tasks import convert_folder
from tests.models.tasks.comparing import runs
from tests.models.tasks.folders import MODELS, SERIES, folder

Inputs = dict[str, torch.Tensor]
IN_CI = ("PatchTSTForPrediction",)
CASES = [name if name in IN_CI else pytest.param(name, marks=pytest.mark.slow) for name in SERIES]


def drawn(program: AIProgram, seed: int) -> Inputs:
    """Inputs of a program; a few values are missing."""
    draw = torch.Generator().manual_seed(seed)
    made: Inputs = {}
    for spec in program.signature().inputs:
        shape = [size for size in spec.shape if isinstance(size, int)]
        if "mask" in spec.name:
            seen = torch.rand(shape, generator=draw) > 0.2
            made[spec.name] = seen if spec.element_type == "i1" else seen.float()
        elif spec.element_type == "si32":
            made[spec.name] = torch.randint(0, 3, shape, generator=draw, dtype=torch.int32)
        else:
            made[spec.name] = 2 + torch.randn(shape, generator=draw).cumsum(1) * 0.3
    if "padding" in made:
        made["padding"] = torch.zeros_like(made["padding"])
    return made


def wanted_of(model: Any, inputs: Inputs) -> dict[str, torch.Tensor]:
    """What transformers computes, by the names of the program."""
    given = {name: value.long() if value.dtype == torch.int32 else value for name, value in inputs.items()}
    if "timesfm" in model.config.model_type:
        missing = int(given.pop("padding").sum())
        given["past_values"] = [given["past_values"][0, missing:]]
        if "freq" in given:
            given["freq"] = given["freq"].tolist()
    if model.config.model_type == "autoformer":
        given["future_values"] = torch.rand(1, 8)
    with torch.no_grad():
        made = model(**given)
    found = {}
    for name, value in made.items():
        if isinstance(value, tuple):
            found |= {
                f"params_{own}": each for own, each in zip(model.distribution_output.args_dim, value, strict=True)
            }
        else:
            found[name] = value
    return found


def check(program: AIProgram, native: Native, model: Any, inputs: Inputs) -> None:
    wanted = wanted_of(model, inputs)
    for found in runs(program, native, "main", inputs):
        assert found.keys() <= wanted.keys()
        for name, value in found.items():
            torch.testing.assert_close(value, wanted[name], rtol=1e-5, atol=1e-5)
            assert value.numel() == 1 or value.std() > 1e-3


@pytest.mark.parametrize("name", CASES)
def test_series(name: str, tmp_path: Path, native: Native) -> None:
    model = folder(tmp_path / "model", name)
    program = convert_folder(tmp_path / "model")
    for seed in (1, 2):
        check(program, native, model, drawn(program, seed))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SERIES if name.startswith("TimesFm")])
def test_a_shorter_series(name: str, tmp_path: Path, native: Native) -> None:
    """Ones of `padding` are in front of it."""
    model = folder(tmp_path / "model", name)
    program = convert_folder(tmp_path / "model")
    inputs = drawn(program, 3)
    inputs["past_values"][:, :11] = 0
    inputs["padding"][:, :11] = 1
    check(program, native, model, inputs)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SERIES if name.endswith("ForPrediction") and "PatchTS" in name])
@pytest.mark.parametrize("loss", ["mse", "nll"])
def test_values_and_distributions(
    name: str, loss: str, tmp_path: Path, native: Native, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, settings = MODELS[name]
    monkeypatch.setitem(MODELS, name, (kind, {**settings, "loss": loss, "distribution_output": "normal"}))
    model = folder(tmp_path / "model", name)
    program = convert_folder(tmp_path / "model")
    has_parameters = "params_loc" in {spec.name for spec in program.signature().outputs}
    assert has_parameters == (loss == "nll")
    check(program, native, model, drawn(program, 1))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["TimeSeriesTransformerForPrediction", "InformerForPrediction"])
def test_the_loop_of_a_caller(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One value after the other, with means in the place of draws, gives what `generate` gives."""
    model = folder(tmp_path / "model", name)
    program = convert_folder(tmp_path / "model")
    inputs = drawn(program, 1)
    inputs["future_values"] = torch.zeros(1, 8)
    given = {key: value.long() if value.dtype == torch.int32 else value for key, value in inputs.items()}
    del given["future_values"]
    monkeypatch.setattr(
        torch.distributions.TransformedDistribution, "sample", lambda self: self.mean, raising=True
    )  # fmt: skip
    wanted = model.generate(**given).sequences[:, 0]
    for step in range(8):
        made = program.run(inputs)
        inputs["future_values"][:, step] = (made["params_loc"] * made["scale"] + made["loc"])[:, step]
    torch.testing.assert_close(inputs["future_values"], wanted, rtol=1e-5, atol=1e-5)


def test_an_informer_that_draws_keys(tmp_path: Path) -> None:
    folder(tmp_path / "model", "InformerForPrediction")
    config = tmp_path / "model" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "attention_type": "prob"}))
    with pytest.raises(PatcompError, match="this Informer draws the keys that it looks at") as caught:
        convert_folder(tmp_path / "model")
    assert "\n" not in str(caught.value)


def test_another_class(tmp_path: Path) -> None:
    """A class is loaded by itself only if the configuration is its own."""
    folder(tmp_path / "model", "PatchTSTForRegression")
    config = tmp_path / "model" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "model_type": "patchtsmixer"}))
    with pytest.raises(PatcompError, match="holds PatchTSTForRegression of type 'patchtsmixer'"):
        convert_folder(tmp_path / "model")
