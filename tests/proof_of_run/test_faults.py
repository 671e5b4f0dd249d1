"""`program.prove()` finds every fault of the table, and names its stage; without the fault, it proves the program."""

from __future__ import annotations

import pytest
import torch

from patcomp import AIProgram, MismatchError, TorchConverter, UnsupportedError
from patcomp.emit.proof_of_run import Equality
from tests.helpers.as_users_run import AS_USERS_RUN
from tests.proof_of_run.faults import FAULTS, Fault

pytestmark = AS_USERS_RUN


def converted(fault: Fault) -> AIProgram:
    torch.manual_seed(0)
    exported = torch.export.export(fault.model().eval(), fault.inputs)
    return TorchConverter().add_exported_program(exported).to_coreai(target=fault.target, **(fault.options or {}))


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
    assert failed[0].equality is Equality.WRONG
    assert failed[0].unproved
    with pytest.raises(MismatchError, match=f"stage {fault.stage}: wrong"):
        proof.check()
