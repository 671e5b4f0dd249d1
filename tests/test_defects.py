"""The defects of the toolchain: each is shown by a program, refused or mended, and off for a version that healed it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from patcomp.defects import Defect, installed_version, known_defects, mends, mends_for, registry, warnings_of
from patcomp.defects.known.empty_tensors import ops_that_need_elements
from patcomp.emit.native import Native
from patcomp.emit.probing import arrays_of, outcome_of, probe
from patcomp.errors import VerifyError
from patcomp.evaluate.machine import evaluate
from patcomp.ir import IRModule
from patcomp.ir.verify import verify
from patcomp.patterns.statistics import Statistics
from patcomp.rewrites import Options
from patcomp.rewrites.optimize import optimize
from patterns_catalog import default_rules

ROOT = Path(__file__).parents[1]
DEFECTS = {defect.name: defect for defect in known_defects()}
PROBED = {name: defect.probes for name, defect in DEFECTS.items() if not isinstance(defect.probes, str)}
WITHOUT_PROBES = {
    "branches_without_results", "conditions_in_place", "damaged_assets", "full_disks", "grown_weights", "moved_copies",
    "nested_results", "repeated_state_reads", "sizes_as_data", "weight_alignment",
}  # fmt: skip
MENDED = {name for name in PROBED if DEFECTS[name].mend is not None}


def test_each_defect_is_described() -> None:
    assert DEFECTS.keys() - PROBED.keys() == WITHOUT_PROBES
    files = (ROOT / "patcomp/defects/known").glob("*.py")
    assert sorted(DEFECTS) == sorted(path.stem for path in files if path.stem != "__init__")
    for defect in DEFECTS.values():
        assert defect.says.endswith("."), defect.name
        assert defect.action, f"{defect.name}: patcomp does nothing about it"
        assert all((ROOT / file).is_file() for file in defect.met_in), defect.name
        assert {*defect.after} <= {each.name for each in mends(defect.stage)}, defect.name


def _texts() -> list[str]:
    return [each.program for probes in PROBED.values() for each in probes]


@pytest.mark.parametrize("name", [name for name, defect in DEFECTS.items() if defect.ops])
def test_a_program_without_the_ops_of_a_defect_has_nothing_to_mend(name: str) -> None:
    defect, without = DEFECTS[name], 0
    for text in _texts():
        module = IRModule.parse(text)
        names = {op.name for op in module.op.walk()}
        is_asked = name in {each.name for each, _ in mends_for(module, defect.stage)}
        assert is_asked == (not names.isdisjoint(defect.ops))
        if not is_asked:
            statistics = Statistics()
            assert defect.mend is not None
            defect.mend(module, statistics)
            assert statistics.rewrites == 0, text
            without += 1
    assert without > 0


# ---- probes ---------------------------------------------------------------------------------------


def is_as_seen(name: str, native: Native) -> None:
    version = installed_version()
    assert version in DEFECTS[name].seen_in, f"run `patcomp defects --probe`; {version} belongs to seen_in or healed_in"
    assert [outcome_of(each, native) for each in PROBED[name]] == [each.symptom for each in PROBED[name]]


DEADLY = {name for name, probes in PROBED.items() if any(each.symptom == "dies" for each in probes)}


@pytest.mark.parametrize("name", sorted(PROBED.keys() - DEADLY))
def test_the_installed_toolchain_has_the_defect(name: str, native: Native) -> None:
    is_as_seen(name, native)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", sorted(DEADLY))
def test_the_installed_toolchain_dies_of_the_defect(name: str, native: Native) -> None:
    """Each takes a process of its own."""
    is_as_seen(name, native)


@pytest.mark.parametrize("name", sorted(MENDED - {"empty_tensors"}))
def test_mended_programs_give_the_right_numbers(name: str, native: Native) -> None:
    for each in PROBED[name]:
        module, statistics = IRModule.parse(each.program), Statistics()
        DEFECTS[name].mend(module, statistics)  # type: ignore[misc]
        assert statistics.fired
        verify(module)
        assert outcome_of(replace(each, program=module.text()), native) == "is right"


def test_inputs_without_elements_are_named_with_the_op() -> None:
    """A program is meant for inputs with elements, so these probes are not mended but refused when they are called."""
    for each in PROBED["empty_tensors"]:
        module = IRModule.parse(each.program)
        (op,) = [op.name for op in module.op.walk() if op.results[:1] and op.results[0].name_hint == "y"]
        assert ops_that_need_elements(module) == [op]


OTHERWISE = {
    "bare_numbers", "branches_without_else", "enumerated_shapes", "equal_names", "general_reductions",
    "missing_names", "open_same_shapes", "overflowing_sums", "reductions_of_no_axis", "scatter_regions",
}  # fmt: skip
"""Defects whose programs the evaluator does not run: signatures, and ops and sums that it refuses."""


@pytest.mark.parametrize("name", sorted(PROBED.keys() - OTHERWISE))
def test_the_right_numbers_are_those_of_the_evaluator(name: str) -> None:
    for each in PROBED[name]:
        module = IRModule.parse(each.program)
        outputs = evaluate(module, arrays_of(module, each.inputs), state=dict(arrays_of(module, each.states)))
        for key, right in each.gives.items():
            found = outputs[key].to(torch.complex64)
            expected = torch.as_tensor(right, dtype=torch.complex64)
            assert found.shape == expected.shape
            torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-6, equal_nan=True)


def test_a_probe_tells_a_healed_toolchain() -> None:
    pytest.importorskip("coreai")
    (shown,) = PROBED["dropped_casts"]
    right = replace(shown, program=shown.program.replace("si32", "f64"), gives={"y": [1.5, -2.5]})
    wrong = replace(right, gives={"y": [1.5, 2.5]})
    probes = ((right,), (right, wrong), "there is no way")
    findings = probe(replace(DEFECTS["dropped_casts"], probes=each) for each in probes)
    assert [finding.state for finding in findings] == ["healed", "present", "no probe"]


# ---- what patcomp does, and where it is off ---------------------------------------------------------


@pytest.fixture
def healed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every defect is healed in a new version, which is installed."""
    made = tuple(replace(defect, healed_in=("2.0",)) for defect in DEFECTS.values())
    monkeypatch.setattr(registry, "known_defects", lambda: made)
    monkeypatch.setattr(registry, "installed_version", lambda: "2.0")
    yield
    for kept in (registry._detectors, registry._mends):
        kept.cache_clear()


@pytest.mark.parametrize("name", [name for name in PROBED if DEFECTS[name].detect])
def test_the_verifier_refuses_what_a_defect_would_break(name: str) -> None:
    for each in PROBED[name]:
        module = IRModule.parse(each.program)
        verify(module, runtime=False)
        with pytest.raises(VerifyError):
            verify(module)


@pytest.mark.usefixtures("healed")
def test_a_healed_defect_costs_nothing() -> None:
    for stage in ("recover", "lowered", "optimize"):
        assert mends(stage) == ()
    assert registry.detectors(finished=True) == {}
    for name in PROBED:
        for each in PROBED[name] if DEFECTS[name].detect else ():
            verify(IRModule.parse(each.program))
    text = PROBED["merged_branches"][0].program
    module = IRModule.parse(text)
    optimize(module, default_rules().stage("optimize"), Options())
    assert module.text().count("broadcasting_maximum") == 0
    assert list(warnings_of(module)) == []


@pytest.mark.parametrize(
    ("version", "is_on", "state"),
    [("1.0", True, "present"), ("1.1", False, "healed"), ("1.2", True, "not probed"), (None, True, "no toolchain")],
)
def test_a_defect_is_off_for_the_versions_that_healed_it(version: str | None, is_on: bool, state: str) -> None:
    defect = Defect(name="x", says="X.", probes="none", seen_in=("1.0",), healed_in=("1.1",))
    assert (defect.is_on(version), defect.state(version)) == (is_on, state)


def test_defects_that_the_last_stage_mends_are_asked_of_finished_programs() -> None:
    (shown,) = PROBED["merged_branches"]
    verify(IRModule.parse(shown.program), finished=False)
    with pytest.raises(VerifyError):
        verify(IRModule.parse(shown.program), finished=True)
    (cast,) = PROBED["dropped_casts"]
    with pytest.raises(VerifyError):
        verify(IRModule.parse(cast.program), finished=False)
