"""A sample of hostile inputs, and the defects that campaigns found: each input gives a result or a clear error."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

import patcomp
from patcomp import PatcompError, TorchConverter, UnsupportedError
from patcomp.commands.batch import jobs_in
from patcomp.commands.common import UsageError
from patcomp.emit.asset import AssetError
from patcomp.emit.files.state_file import STATE_FILE, StateFileError, read_state, write_state
from patcomp.errors import ParseError, VerifyError
from patcomp.ir import IRModule, parse_module
from patcomp.ir.verify import verify
from tests.hostile import worker
from tests.hostile.judge import MEMORY, RAW, REFUSED, UNCLEAR, Case, judge
from tests.hostile.payloads import MARK, Payload
from tests.hostile.programs import Counter

DATA = Path(__file__).parents[1] / "data" / "hostile"
prepared = cache(worker.prepared)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


# ---- a sample ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "cases"), [("texts", 60), ("programs", 10), ("archives", 10), ("catalogs", 10), ("stored", 60)]
)
def test_hostile_inputs_give_a_result_or_a_clear_error(target: str, cases: int) -> None:
    @settings(max_examples=cases, derandomize=True, deadline=None, database=None)
    @given(number=st.integers(0, 2**32))
    def run(number: int) -> None:
        outcome = judge(worker.drawn(target, 0, number, prepared(target)))
        assert not outcome.is_finding, f"case {number}: {outcome.kind}: {outcome.message} [{outcome.place}]"
        assert not Path(MARK).exists()

    run()


def _raise(error: BaseException) -> None:
    raise error


def _wrap(error: Exception, message: str) -> None:
    raise PatcompError(message) from error


@pytest.mark.parametrize(
    ("run", "kind"),
    [
        (lambda: _raise(PatcompError("the line 3 has no end")), REFUSED),
        (lambda: _raise(IndexError("list index out of range")), RAW),
        (lambda: _raise(RecursionError()), RAW),
        (lambda: _raise(MemoryError()), MEMORY),
        (lambda: _raise(PatcompError("")), UNCLEAR),
        (lambda: _raise(PatcompError("x" * 20_000)), UNCLEAR),
        (lambda: _wrap(KeyError("x"), "it fails: 'x'"), UNCLEAR),
        (lambda: _wrap(KeyError("x"), "PyTorch fails with KeyError: x"), REFUSED),
    ],
)
def test_accidents_are_findings(run: Callable[[], object], kind: str) -> None:
    assert judge(Case(run, b"")).kind == kind


def test_a_case_is_the_same_in_every_run() -> None:
    first, second = (worker.drawn("texts", 5, 7, prepared("texts")) for _ in range(2))
    assert (first.data, first.what) == (second.data, second.what)


# ---- texts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(DATA.glob("*.mlir")), ids=lambda path: path.stem)
def test_broken_texts_are_refused_with_a_short_message(path: Path) -> None:
    with pytest.raises(ParseError) as refused:
        parse_module(path.read_text(), name=path.name)
    assert len(str(refused.value)) < 2000


def test_names_of_thousands_of_characters_are_cut() -> None:
    name = "a" * 5000
    bad = "".join(f"%{i} = coreai.abs %x : tensor<2xf32> -> tensor<{i + 3}xf32>\n" for i in range(5))
    text = f"module {{ coreai.graph @{name}(%x: tensor<2xf32>) -> () {{ {bad} coreai.output }} }}"
    with pytest.raises(VerifyError, match="the IR has 5 problems") as error:
        verify(IRModule(parse_module(text)), runtime=False)
    assert len(str(error.value)) < 6000


def test_an_invalid_producer_of_sizes_is_refused() -> None:
    text = (DATA / "invalid" / "reshape_without_operands.mlir").read_text()
    with pytest.raises(VerifyError, match=r"coreai\.reshape"):
        verify(IRModule(parse_module(text)), runtime=False)


# ---- programs ------------------------------------------------------------------------------------


@pytest.fixture
def program() -> ExportedProgram:
    return torch.export.export(Counter().eval(), (torch.ones(3, 4),))


def cycle(program: ExportedProgram) -> None:
    first, *_, last = program.graph.find_nodes(op="call_function", target=torch.ops.aten.sum.dim_IntList) + [
        node for node in program.graph.nodes if node.op == "call_function"
    ]
    first.args = (last, *first.args[1:])


def lost_weight(program: ExportedProgram) -> None:
    program.state_dict.clear()


def other_name(program: ExportedProgram) -> None:
    next(s for s in program.graph_signature.input_specs if s.kind == InputKind.USER_INPUT).arg.name = "none"  # type: ignore[union-attr]


def other_output(program: ExportedProgram) -> None:
    program.graph_signature.output_specs[-1].arg.name = "none"  # type: ignore[union-attr]


def no_outputs(program: ExportedProgram) -> None:
    program.graph_signature.output_specs.clear()


def no_function(program: ExportedProgram) -> None:
    next(node for node in program.graph.nodes if node.op == "call_function").target = "text"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (cycle, "which is not computed before it"),
        (no_function, "the node calls 'text', which is not a function"),
        (lost_weight, "the program has nothing for the weight 'count'"),
        (other_name, "the signature has the input 'none', which the graph does not have"),
        (no_outputs, "the signature has 0 outputs, but the graph returns"),
        (other_output, "the signature has the output 'none', which no node computes"),
    ],
)
def test_inconsistent_programs_are_refused(
    program: ExportedProgram, change: Callable[[ExportedProgram], None], message: str
) -> None:
    change(program)
    with pytest.raises(UnsupportedError, match=message):
        TorchConverter().add_exported_program(program)


class Cut(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second = x.unbind(1)
        return torch.cat([first.chunk(2)[0], second.tensor_split(2)[1]])


@pytest.mark.parametrize("op", ["unbind", "chunk", "tensor_split"])
def test_many_more_parts_than_recorded_are_refused(op: str) -> None:
    exported = torch.export.export(Cut(), (torch.ones(4, 2),))
    node = next(node for node in exported.graph.nodes if op in str(node.target))
    if op != "unbind":
        node.args = (node.args[0], 2**40)
    node.args[0].meta["val"] = torch.empty(2**20, 2**20, device="meta")
    with pytest.raises(UnsupportedError, match="records 2 results, but the op cuts its input into 1,"):
        TorchConverter().add_exported_program(exported)


@pytest.mark.parametrize("value", [None, 3, "text", {"a": None}, {"a": ()}, ["a"]])
def test_metadata_of_any_kind_is_no_obstacle(value: Any) -> None:
    program = torch.export.export(Plain(), (torch.ones(3),))
    for node in program.graph.nodes:
        node.meta["nn_module_stack"] = node.meta["stack_trace"] = value
    assert "coreai" in str(TorchConverter().add_exported_program(program).to_coreai())


def test_a_number_of_more_than_64_bits_is_a_problem_of_its_node() -> None:
    exported = torch.export.export(Plain(), (torch.ones(3),))
    (node,) = exported.graph.find_nodes(op="call_function", target=torch.ops.aten.add.Tensor)
    node.args = (node.args[0], 2**70)
    with pytest.raises(UnsupportedError, match=f"{2**70} does not fit 64 bits"):
        TorchConverter().add_exported_program(exported).to_coreai()


class Total(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(x)
        return self.total * 2


def test_names_that_are_no_identifiers() -> None:
    program = torch.export.export(Total(), (torch.ones(3),))
    node = next(node for node in program.graph.nodes if node.op == "placeholder")
    old = node.name
    node.name = node.target = "b😀"
    for spec in (*program.graph_signature.input_specs, *program.graph_signature.output_specs):
        if getattr(spec.arg, "name", None) == old:
            spec.arg.name = "b😀"  # type: ignore[union-attr]
    assert "coreai" in str(TorchConverter().add_exported_program(program).to_coreai())


class Plain(torch.nn.Module):
    def __init__(self, weight: torch.Tensor | None = None) -> None:
        super().__init__()
        self.register_buffer("weight", weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if self.weight is None else x + self.weight[0]


def test_an_expanded_constant_is_not_written_out() -> None:
    exported = torch.export.export(Plain(torch.ones(1).expand(2**40)), (torch.ones(3),))
    with pytest.raises(UnsupportedError, match="a constant of 4096 GB is an expanded view of 4 bytes"):
        TorchConverter().add_exported_program(exported).to_coreai()


# ---- specs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["a = " + "[" * 5000, '[[models]]\nmodel = "a\\u0000b.py:net"', "a = " + "1" * 5000])
def test_a_broken_batch_is_a_wrong_use(text: str) -> None:
    Path("batch.toml").write_text(text)
    with pytest.raises(UsageError, match=r"batch\.toml"):
        jobs_in(Path("batch.toml"))


# ---- assets --------------------------------------------------------------------------------------


def _state(arrays: dict[str, Any], index: Any) -> bytes:
    buffer = io.BytesIO()
    text = index if isinstance(index, str) else json.dumps(index)
    np.savez(buffer, index=np.array(text), **arrays)
    return buffer.getvalue()


def _huge() -> bytes:
    header, buffer = io.BytesIO(), io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (2**40,)})
    with zipfile.ZipFile(buffer, "w") as archive, zipfile.ZipFile(io.BytesIO(_state({}, [ENTRY]))) as other:
        archive.writestr("index.npy", other.read("index.npy"))
        archive.writestr("state_0.npy", header.getvalue())
    return buffer.getvalue()


ENTRY = {"entrypoint": "main", "state": "count", "dtype": "float32"}
ZEROS = {"state_0": np.zeros(4, np.float32)}


@pytest.mark.parametrize(
    "data",
    [
        b"", b"not an archive", _state(ZEROS, [ENTRY])[:-40], _state({}, [ENTRY]), _state(ZEROS, "[" * 100_000),
        _state(ZEROS, [None]), _state(ZEROS, [ENTRY | {"dtype": "object"}]), _state(ZEROS, [ENTRY | {"dtype": None}]),
        _state({"state_0": np.array(Payload())}, [ENTRY]), _huge(),
    ],
)  # fmt: skip
def test_a_damaged_state_is_refused(data: bytes) -> None:
    folder = Path("model.aimodel")
    folder.mkdir()
    (folder / STATE_FILE).write_bytes(data)
    with pytest.raises(StateFileError, match="does not hold the initial state of an asset"):
        read_state(folder)
    assert not Path(MARK).exists()


def test_a_state_is_read_back() -> None:
    folder = Path("model.aimodel")
    folder.mkdir()
    write_state(folder, {"main": {"count": np.arange(4.0)}, "other": {}})
    assert read_state(folder)["main"]["count"].tolist() == [0, 1, 2, 3]


def test_a_damaged_program_does_not_reach_the_toolchain() -> None:
    pytest.importorskip("coreai")
    folder = Path("model.aimodel")
    folder.mkdir()
    for name in ("metadata.json", "main.mlirb", "main.hash"):
        (folder / name).write_bytes(b"{}")
    with pytest.raises(AssetError, match=r"main.mlirb is not the file that main.hash describes"):
        patcomp.load(folder)
    (folder / "main.mlirb").unlink()
    (folder / "main.mlirb").symlink_to("/dev/zero")
    with pytest.raises(AssetError, match=r"main.mlirb' is not a regular file"):
        patcomp.load(folder)


def test_a_range_of_terabytes_is_refused() -> None:
    class Range(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.arange(10.0)[:3] + x

    program = torch.export.export(Range(), (torch.ones(3),))
    node = next(node for node in program.graph.nodes if "arange" in str(node.target))
    node.args = (2.0**33,)
    with node.meta["val"].fake_mode:
        node.meta["val"] = torch.arange(2**33, dtype=torch.float32)
    with pytest.raises(UnsupportedError, match="the tensor has 8,589,934,592 elements"):
        TorchConverter().add_exported_program(program).to_coreai()
