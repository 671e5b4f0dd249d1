"""No file that claims to be data runs code, unless the user trusts it."""

from __future__ import annotations

import contextlib
import os
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from patcomp.cli import main
from patcomp.commands.archives import code_in
from patcomp.commands.models import load_exported
from patcomp.errors import PatcompError
from tests.hostile import payloads
from tests.hostile.payloads import MARK, PAYLOADS, ROUTES, Members, saved, write


@pytest.fixture(scope="module")
def members() -> Members:
    return saved()


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda payload: payload.__name__)
def test_code_in_an_archive_runs_only_if_it_is_trusted(payload: Callable[[Members], Members], members: Members) -> None:
    write(path := Path("model.pt2"), payload(members))
    with pytest.raises(PatcompError, match=r"model.pt2 can run code .*Give --trusted if you trust"):
        load_exported("model.pt2")
    assert not Path(MARK).exists()
    with contextlib.suppress(PatcompError):  # PyTorch may refuse the program after the payload has run
        load_exported("model.pt2", trusted=True)
    assert Path(MARK).is_dir(), f"the payload of {path} does not run, so the test shows nothing"


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.__name__)
def test_other_routes_to_code_are_refused(route: Callable[[Members], Members], members: Members) -> None:
    write(Path("model.pt2"), route(members))
    with pytest.raises(PatcompError, match=r"model.pt2 can run code .*Give --trusted if you trust"):
        load_exported("model.pt2")


def test_a_long_error_of_the_loader_is_cut(members: Members) -> None:
    version = next(name for name in members if name.endswith("archive_version"))
    write(Path("model.pt2"), {**members, version: b"9" * 20_000})
    with pytest.raises(PatcompError, match=r"model.pt2 is not a program that torch.export.save wrote: ") as error:
        load_exported("model.pt2")
    assert len(str(error.value)) < 2000


def test_the_command_refuses_code_and_takes_trusted(
    members: Members, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(Path("model.pt2"), payloads.inputs(members))

    def run(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["patcomp", "convert", "model.pt2", "--text", "model.mlir", *arguments])
        with pytest.raises(SystemExit) as ending:
            main()
        return int(ending.value.code or 0)

    assert run() == 1
    message = capsys.readouterr().err
    assert "error: model.pt2 can run code while PyTorch loads it, because it holds a pickled posix.mkdir" in message
    assert not Path(MARK).exists()
    run("--trusted")
    assert Path(MARK).is_dir()


def test_programs_that_export_saved_are_data(members: Members) -> None:
    write(Path("model.pt2"), members)
    assert code_in(Path("model.pt2")) == ""
    assert isinstance(load_exported("model.pt2"), torch.export.ExportedProgram)
    assert "TORCH_FORCE_WEIGHTS_ONLY_LOAD" not in os.environ


@pytest.mark.parametrize(
    "expression",
    ["2*s0 + 1", "Add(Mul(Integer(2), Symbol('s77', positive=True, integer=True)), Integer(1))", "s0**2", "Max(1, u0)",
     "FloorDiv(Symbol('s0', integer=True), Integer(2))", "Pow(Symbol('s0', integer=True), Integer(2))"],
)  # fmt: skip
def test_expressions_that_export_writes_are_data(members: Members, expression: str) -> None:
    assert code_of_size(members, expression) == ""


@pytest.mark.parametrize(
    "expression",
    ["lambdify((), 'x')", "s0.__class__", "Symbol.mro()", "9**9**9", "Pow(9, 99999)", "S('s0')", "(lambda: 1)()",
     "[c for c in ()]", "Symbol('a b')", "((s0**64)**64)**64", "s0 +", "exec", "s0" + " + s0" * 9999],
)  # fmt: skip
def test_other_expressions_are_code(members: Members, expression: str) -> None:
    assert "expression of sizes" in code_of_size(members, expression)


def code_of_size(members: Members, expression: str) -> str:
    """What the check finds in a program with this expression as a size."""

    def change(tree: dict) -> None:  # type: ignore[type-arg]
        sizes = tree["graph_module"]["graph"]["tensor_values"]["x"]["sizes"]
        sizes[0]["as_expr"]["expr_str"] = expression

    write(Path("model.pt2"), payloads.changed_json(members, payloads.PROGRAM, change))
    return code_in(Path("model.pt2"))


@pytest.mark.parametrize("guard", ["L['x'].size()[0] <= 16", "not (L['x'].size()[0] % 2 == 0)", "L['flag'] == 'fast'"])
def test_conditions_that_export_writes_are_data(members: Members, guard: str) -> None:
    write(Path("model.pt2"), payloads.changed_json(members, payloads.PROGRAM, lambda t: t.update(guards_code=[guard])))
    assert code_in(Path("model.pt2")) == ""


def test_an_older_archive_is_checked_too(members: Members) -> None:
    older = {
        "version": b"8.15",
        "serialized_exported_program.json": members[payloads.PROGRAM],
        "serialized_state_dict.pt": b"",
        "serialized_constants.pt": b"",
        "serialized_example_inputs.pt": payloads.inputs(members)[payloads.INPUTS],
    }
    write(Path("model.pt2"), older, folder="")
    with pytest.raises(PatcompError, match="can run code"):
        load_exported("model.pt2")
    assert not Path(MARK).exists()


def test_a_compressed_archive_is_refused_before_it_is_read(members: Members) -> None:
    write(Path("model.pt2"), members | {"data/weights/weight_0": bytes(50_000_000)}, method=zipfile.ZIP_DEFLATED)
    with pytest.raises(PatcompError, match="its members are larger than the file"):
        load_exported("model.pt2")


def test_a_cut_archive_is_refused(members: Members) -> None:
    write(path := Path("model.pt2"), members)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(PatcompError, match="it is a damaged zip archive"):
        load_exported("model.pt2")


def test_range_constraints_that_are_no_mapping_are_refused(members: Members) -> None:
    write(
        Path("model.pt2"),
        payloads.changed_json(members, payloads.PROGRAM, lambda tree: tree.update(range_constraints=7)),
    )
    with pytest.raises(PatcompError):
        load_exported("model.pt2")


def test_a_long_name_of_a_member_is_cut(members: Members) -> None:
    """The header of a member says that its name has 60,000 bytes, and zipfile repeats them."""
    write(path := Path("model.pt2"), members | {"data/weights/weight_0": b"\xff" * 60_000})
    data = bytearray(path.read_bytes())
    name = data.index(f"program/{payloads.PROGRAM}".encode())
    data[name - 4 : name - 2] = (60_000).to_bytes(2, "little")
    data[data.index(b"program/archive_format") - 30] = 0  # PyTorch's own reader gives up, and zipfile is the next
    path.write_bytes(data)
    with pytest.raises(PatcompError, match="is damaged") as caught:
        load_exported("model.pt2")
    assert len(str(caught.value)) < 3_000
