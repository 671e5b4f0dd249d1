"""Every stage of the ten networks' conversions is proved. A sample runs always, `-m slow` runs the rest."""

from __future__ import annotations

import pytest

from patcomp import TorchConverter
from patcomp.program.proof_of_run import Equality
from patcomp.rewrites import STAGES
from tests.helpers.as_users_run import AS_USERS_RUN
from tests.networks.zoo import MODELS, build
from tests.proof_of_run.exported import exported

pytestmark = AS_USERS_RUN

SAMPLE = ("espcn", "gpt2")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in SAMPLE else pytest.mark.slow) for name in MODELS]
)
def test_every_stage_is_proved(name: str) -> None:
    example = build(name)
    program = TorchConverter().add_exported_program(exported(example.model, example.args)).to_coreai()
    proof = program.prove(example.args)
    assert proof, str(proof)
    assert [each.stage for each in proof.stages["main"]] == [*(stage.name for stage in STAGES), "emit"]
    by_name = {each.stage: each for each in proof.stages["main"]}
    assert by_name["lower"].proved > 5
    assert all(by_name[stage].equality is Equality.BITS for stage in ("target", "outline", "state", "emit"))
    assert sum(each.drawn for each in proof.all_stages) == 0
