"""`program.prove()` finds every fault of the table, and names its stage; without the fault, it proves the program."""

from __future__ import annotations

import pytest
import torch

from patcomp import AIProgram, MismatchError, TorchConverter, UnsupportedError
from tests.helpers.as_users_run import AS_USERS_RUN
from tests.proof_of_run.exported import exported
from tests.proof_of_run.faults import FAULTS, Fault

pytestmark = AS_USERS_RUN


def converted(fault: Fault) -> AIProgram:
    torch.manual_seed(0)
    converter = TorchConverter().add_exported_program(exported(fault.model(), fault.inputs))
    return converter.to_coreai(target=fault.target, **(fault.options or {}))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("what", FAULTS)
def test_every_fault_is_found(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = FAULTS[what]
    if fault.is_refused:
        with pytest.raises(UnsupportedError):
            converted(fault)
    else:
        right = converted(fault).prove(fault.inputs)
        assert right, str(right)
    fault.inject(monkeypatch)
    proof = converted(fault).prove(fault.inputs)
    failed = [each for each in proof.all_stages if not each.equality.is_proof]
    assert [each.stage for each in failed] == [fault.stage], str(proof)
    assert failed[0].equality is fault.equality
    assert failed[0].unproved
    with pytest.raises(MismatchError, match=f"stage {fault.stage}: {fault.equality.value}"):
        proof.check()
