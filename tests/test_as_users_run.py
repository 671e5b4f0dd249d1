"""Some modules run as users run: these tests fail if they do not, or if other tests would run so, too."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from patcomp import ConversionWarning, TorchConverter
from patcomp.frontend_torch import conversion
from patcomp.frontend_torch.decomposition import shared_graphs
from patcomp.patterns import OpView, RuleSet, op_rule
from patcomp.rewrites import Options
from tests.helpers import warm
from tests.helpers.as_users_run import AS_USERS_RUN, users_environment

pytestmark = AS_USERS_RUN

MODULES = [
    *(f"tests.models.test_{name}" for name in ("models", "dynamic_models", "torchvision_models")),
    *(f"tests.models.test_{name}" for name in ("neural_engine", "gpu_target")),
    *(f"tests.frontend_torch.test_{name}" for name in ("control_flow", "open_control_flow", "state", "targets")),
]


@op_rule("normalize", "aten.gelu", name="a rule that fails")
def _fails(op: OpView, a: Any) -> Any:
    return [][op.result.rank]


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(24), nn.Linear(24, 24), nn.Linear(24, 24)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.3)  # rules read a weight of equal numbers, and no layer stands for others

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x)))).tanh()


@pytest.mark.parametrize("name", MODULES)
def test_networks_control_flow_states_and_targets_run_as_users_run(name: str) -> None:
    assert importlib.import_module(name).pytestmark is AS_USERS_RUN


def test_options_are_those_of_users() -> None:
    assert not Options().strict
    assert not Options().verify_all


def test_a_rule_that_fails_is_an_error_of_the_test() -> None:
    exported = torch.export.export(nn.GELU(), (torch.zeros(2),))
    converter = TorchConverter(catalog=[RuleSet([_fails])]).add_exported_program(exported)
    with pytest.raises(ConversionWarning, match=r"a rule that fails .* failed: IndexError"):
        converter.to_coreai()


def test_stamped_layers_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program of a user is the stamped one, and nothing converts all layers beside."""
    stamped = []
    stamp = conversion.stamp
    monkeypatch.setattr(conversion, "stamp", lambda shortened: (stamped.append(shortened.layers), stamp(shortened)))
    monkeypatch.setattr(conversion.Conversion, "_check_stamped", lambda *_: pytest.fail("the program is compared"))
    model, x = nn.Sequential(*(Layer() for _ in range(24))).eval(), torch.randn(2, 24)
    program = TorchConverter().add_exported_program(torch.export.export(model, (x,))).to_coreai()
    assert stamped == [20]
    program.verify_against(model, (x,), backends=["evaluator"]).check()


def test_the_cache_is_written(users_cache: tuple[str, Any]) -> None:
    assert (os.environ["PATCOMP_CACHE"], shared_graphs._shared_graphs) == users_cache
    exported = torch.export.export(nn.PixelUnshuffle(2), (torch.zeros(1, 1, 4, 4),))
    TorchConverter().add_exported_program(exported).to_coreai()
    assert list(Path(users_cache[0]).glob("decompositions-*.sqlite"))


def _exit_code_of_settings() -> None:
    raise SystemExit(3 if Options().strict or Options().verify_all else 4)


def test_child_processes_have_the_settings_of_the_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert warm.exit_code(_exit_code_of_settings) == 4
    monkeypatch.setenv("PATCOMP_STRICT", "1")
    assert warm.exit_code(_exit_code_of_settings) == 3


def test_other_tests_have_their_settings_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in {"PATCOMP_STRICT": "1", "PATCOMP_VERIFY": "all", "PATCOMP_CACHE": ""}.items():
        monkeypatch.setenv(name, value)
    before = dict(os.environ), shared_graphs._shared_graphs
    with users_environment(str(tmp_path), lambda *_: None):
        assert not Options().strict
        assert not Options().verify_all
    assert (dict(os.environ), shared_graphs._shared_graphs) == before
    assert Options().strict
    assert Options().verify_all
