"""What `program.prove()` says: how strongly stages are equal, for which inputs, and what is not proved."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from patcomp import AIProgram, EvaluationError, MismatchError, TorchConverter
from patcomp.program.proof_of_run import Equality, StageProof
from patcomp.rewrites import STAGES
from tests.helpers.as_users_run import AS_USERS_RUN
from tests.helpers.command import Command
from tests.proof_of_run.exported import exported

pytestmark = AS_USERS_RUN

X = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))


def converted(model: nn.Module | Callable[..., Any], *inputs: Tensor, sizes: Any = None) -> AIProgram:
    return TorchConverter().add_exported_program(exported(model, inputs, sizes)).to_coreai()


def stages(program: AIProgram, *inputs: Tensor) -> dict[str, StageProof]:
    return {each.stage: each for each in program.prove(inputs).stages["main"]}


def test_a_composite_is_proved_by_its_body() -> None:
    found = stages(converted(nn.LayerNorm(6), X), X)
    assert found["recover"].equality is Equality.REALS
    assert found["recover"].proved == 1
    assert found["outline"].equality is Equality.BITS
    assert found["outline"].proved == 0  # a region and the graph that is called are the same ops


def test_the_verdict_is_that_of_the_weakest_stage() -> None:
    proof = converted(nn.LayerNorm(6), X).prove((X,))
    assert proof.equality is Equality.REALS
    assert proof
    proof.check()


def test_a_program_of_moved_elements_is_equal_to_the_bit() -> None:
    proof = converted(lambda x: torch.cat([x.permute(1, 0), x.T.flip(0)], 1), X).prove((X,))
    assert proof.equality is Equality.BITS


def test_an_identity_of_numbers_is_named() -> None:
    proof = converted(lambda x: (x * 1.0).exp(), X).prove((X,))
    assert proof.equality is Equality.LEMMA
    assert [each.lemmas for each in proof.all_stages if each.lemmas] == [("x * 1 = x",)]
    assert "equal with an identity of numbers (x * 1 = x)" in str(proof)


def test_what_is_not_proved_is_named() -> None:
    proof = converted(lambda x: x.exp().argmax(-1), X).prove((X,))
    assert not proof
    (failed,) = [each for each in proof.all_stages if not each.equality.is_proof]
    assert (failed.stage, failed.equality) == ("lower", Equality.NUMBERS)
    (value,) = failed.unproved
    assert value.value == "argmax"
    assert "exported.py:" in value.source  # where the function is called
    assert "an index of an order" in value.reason
    with pytest.raises(MismatchError, match=r"stage lower: not proved, equal on numbers \(%argmax = "):
        proof.check()
    assert proof.to_dict()["stages"]["main"][2]["unproved"][0]["value"] == "argmax"
    assert proof.to_dict()["proved"] is False


class Places(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.exp().argmax(-1)


def test_the_module_of_what_is_not_proved_is_named() -> None:
    proof = converted(nn.Sequential(nn.Identity(), Places()), X).prove((X,))
    assert [(value.value, value.module) for each in proof.all_stages for value in each.unproved] == [("argmax", "1")]


def test_stages_behind_a_value_that_is_not_proved_are_proved() -> None:
    proof = converted(lambda x: x.argmax(-1) * 2 + 1, X).prove((X,))
    failed = [each.stage for each in proof.all_stages if not each.equality.is_proof]
    assert failed == ["lower"]


# ---- integers, booleans, sizes -----------------------------------------------------------------------


class Lookup(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(300, 6)

    def forward(self, indices: Tensor) -> Tensor:
        return self.table(indices) * 2


def test_lookups_are_proved_for_every_index() -> None:
    indices = torch.tensor([3, 299, 0])
    proof = converted(Lookup(), indices).prove((indices,))
    assert proof, str(proof)
    assert not any(each.drawn for each in proof.all_stages)


def test_integers_that_symbols_do_not_reach_are_drawn() -> None:
    indices = torch.tensor([3, 1, 0])
    found = stages(converted(lambda x, i: x[i], X, indices), X, indices)
    assert found["lower"].equality.is_proof
    assert found["lower"].drawn == 1
    assert "integers were drawn for 1 value" in found["lower"].remark


@pytest.mark.parametrize("bound", [1e-3, 1e6])
def test_a_bound_is_seen_whatever_its_size(bound: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of the usual size do not reach large bounds, and symbols do."""
    from patcomp.ir.xdsl import ops_inside, replace_uses
    from patcomp.rewrites import optimize

    def drop(graph: Any, *rest: Any) -> int:
        for op in ops_inside(graph):
            if op.name in ("coreai.clamp", "coreai.decomposable.broadcasting_maximum", "coreai.maximum"):
                replace_uses(op.results[0], op.operands[0])
        return 0

    program = converted(lambda x: x.exp().clamp_min(-bound).sin(), X)
    assert program.prove((X,))
    monkeypatch.setattr(optimize, "fold_constants", drop)
    proof = converted(lambda x: x.exp().clamp_min(-bound).sin(), X).prove((X,))
    assert [each.stage for each in proof.all_stages if not each.equality.is_proof] == ["optimize"], str(proof)


def test_open_sizes_are_those_of_the_inputs() -> None:
    batch = Dim("batch", min=2, max=9)
    program = converted(lambda x: x.reshape(x.shape[0], -1).softmax(-1), X, sizes=(({0: batch},),))
    proof = program.prove((X[:3],))
    assert proof, str(proof)
    assert "of shape (3, 6), as sizes are open" in str(proof)
    assert not any(each.drawn for each in proof.all_stages)
    assert "of shape (2, 6), as sizes are open" in str(program.prove())


def test_both_branches_of_a_condition_are_compared() -> None:
    program = converted(lambda x: torch.cond(x.sum() > 0, lambda x: (x * 2 + 1,), lambda x: (x.exp() - 1,), (x,))[0], X)
    assert program.prove((X,))


# ---- states ----------------------------------------------------------------------------------------


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("sums", torch.zeros(4, 6))

    def forward(self, x: Tensor) -> Tensor:
        self.sums.add_(x)
        return self.sums * 2


def test_the_content_of_a_state_is_an_output() -> None:
    program = converted(Counter(), X)
    found = stages(program, X)
    assert all(each.equality is Equality.BITS for each in found.values())


# ---- which programs --------------------------------------------------------------------------------


def test_every_entry_point_is_proved() -> None:
    converter = TorchConverter()
    for name, function in {"first": torch.exp, "second": torch.sin}.items():
        converter.add_exported_program(exported(function, (X,)), entrypoint_name=name)
    program = converter.to_coreai()
    proof = program.prove()
    assert list(proof.stages) == ["first", "second"]
    assert "first: lower" in str(proof)
    assert list(program.prove((X,), entrypoint="second").stages) == ["second"]
    with pytest.raises(
        ValueError, match=r"inputs are for one entry point; name it with entrypoint=, one of first, second"
    ):
        program.prove((X,))
    with pytest.raises(LookupError, match=r"no entry point 'third' was converted; there are first, second"):
        program.prove(entrypoint="third")


def test_other_inputs_are_an_error() -> None:
    with pytest.raises(EvaluationError, match="the number of tensors among the inputs is 2"):
        converted(torch.exp, X).prove((X, X))


def test_a_program_without_a_history_has_no_stages() -> None:
    program = AIProgram(converted(torch.exp, X).module)
    with pytest.raises(LookupError, match="not made by a converter"):
        program.prove()


def test_the_program_that_is_proved_is_the_one_that_would_be_saved() -> None:
    """Weights of more than 256 elements are in no text."""
    torch.manual_seed(0)
    x = torch.randn(2, 20)
    program, other = (converted(nn.Linear(20, 20), x) for _ in range(2))
    program.module = other.module
    proof = program.prove((x,))
    assert [each.stage for each in proof.all_stages if not each.equality.is_proof] == ["emit"]
    assert proof.equality is Equality.WRONG


def test_what_follows_the_conversion_is_not_proved() -> None:
    x = torch.randn(2, 64)
    program = converted(nn.Linear(64, 64), x)
    small = program.compress("w8")
    proof = small.prove((x,))
    assert not proof
    assert proof.all_stages[-1].equality is Equality.UNDECIDED
    with pytest.raises(MismatchError, match=r"stage compress: not proved \(it changes numbers, and is not compared"):
        proof.check()


# ---- the command -----------------------------------------------------------------------------------

NETS = """
import torch
from torch import nn

class Largest(nn.Module):
    def forward(self, x):
        return x.argmax(-1)

def norm(): return nn.LayerNorm(6), (torch.randn(4, 6),)
def largest(): return Largest(), (torch.randn(4, 6),)
"""


def test_the_command_prints_the_table(patcomp: Command, tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(NETS)
    ended = patcomp("prove", "nets.py:norm")
    assert ended.code == 0, ended.err
    lines = ended.out.splitlines()
    assert lines[0].split() == ["stage", "same", "ops", "on", "symbols", "seconds", "verdict"]
    assert [line.split()[0] for line in lines[1:]] == [*(stage.name for stage in STAGES), "emit"]


def test_the_command_ends_with_3_if_a_stage_is_not_proved(patcomp: Command, tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(NETS)
    ended = patcomp("prove", "nets.py:largest", "--json")
    assert ended.code == 3
    told = json.loads(ended.out)
    assert told["equality"] == "not proved, equal on numbers"
    assert [each["stage"] for each in told["stages"]["main"] if each["unproved"]] == ["lower"]
