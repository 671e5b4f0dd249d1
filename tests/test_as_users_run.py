"""Some modules run as users run: these tests fail if they do not, or if other tests would run so, too."""

from __future__ import annotations

import importlib
import os
from typing import Any

import pytest
import torch
from torch import nn

from patcomp import ConversionWarning, TorchConverter
from patcomp.patterns import OpView, RuleSet, op_rule
from patcomp.rewrites import Options
from tests.helpers import warm
from tests.helpers.as_users_run import AS_USERS_RUN, users_environment

pytestmark = AS_USERS_RUN

MODULES = [
    *(f"tests.networks.test_{name}" for name in ("models", "dynamic_models", "torchvision_models")),
    *(f"tests.networks.test_{name}" for name in ("neural_engine", "gpu_target")),
    *(f"tests.frontend_torch.test_{name}" for name in ("control_flow", "open_control_flow", "targets")),
    "tests.rewrites.test_state",
]


@op_rule("normalize", "aten.gelu", name="a rule that fails")
def _fails(op: OpView, a: Any) -> Any:
    return [][op.result.rank]


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


def _exit_code_of_settings() -> None:
    raise SystemExit(3 if Options().strict or Options().verify_all else 4)


def test_child_processes_have_the_settings_of_the_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert warm.exit_code(_exit_code_of_settings) == 4
    monkeypatch.setenv("PATCOMP_STRICT", "1")
    assert warm.exit_code(_exit_code_of_settings) == 3


def test_other_tests_have_their_settings_again(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"PATCOMP_STRICT": "1", "PATCOMP_VERIFY": "all"}.items():
        monkeypatch.setenv(name, value)
    before = dict(os.environ)
    with users_environment():
        assert not Options().strict
        assert not Options().verify_all
    assert dict(os.environ) == before
    assert Options().strict
    assert Options().verify_all
