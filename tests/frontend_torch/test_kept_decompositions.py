"""Decompositions that earlier processes kept on disk: used when they are right, and left alone when anything is odd."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from patcomp import TorchConverter
from patcomp.frontend_torch.decomposition import shared_graphs
from patcomp.frontend_torch.decomposition.decompose import Decomposer
from patcomp.frontend_torch.decomposition.kept_texts import KeptTexts
from patcomp.frontend_torch.decomposition.kinds import kind_of
from patcomp.frontend_torch.decomposition.written_graphs import key_of, read, written
from patcomp.patterns import RuleSet, decomposition, example
from patcomp.pytorch import FakeTensorMode, registrations
from tests.frontend_torch.models import Function
from tests.helpers.later_process import forget_graphs

X = torch.arange(24.0).reshape(4, 6)


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """An empty folder for the cache, and a process that has decomposed nothing."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("PATCOMP_CACHE", str(folder))
    forget_graphs()
    yield folder
    forget_graphs()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ops that are decomposed, and not read from the cache."""
    made: list[str] = []
    decomposed = Decomposer._decomposed

    def noted(self: Decomposer, node: torch.fx.Node, *rest: object) -> object:
        made.append(str(node.target))
        return decomposed(self, node, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Decomposer, "_decomposed", noted)
    return made


def exported(function: Callable[..., object], *tensors: Tensor, **options: object) -> ExportedProgram:
    with torch.no_grad():
        return torch.export.export(Function(function), tensors or (X,), **options)  # type: ignore[arg-type]


def mixed(x: Tensor) -> Tensor:
    """Ops with numbers, types, tuples, lists, several results, and a slice that begins within its memory."""
    y = nn.functional.glu(nn.functional.layer_norm(x, (6,)), -1)
    y = nn.functional.pad(y, (1, 2), value=-float("inf")).masked_fill(x > 0, 1.0)
    return torch.cat([y[:2], x.diff(dim=0)[1:], x.std(0, keepdim=True)]).to(torch.float16)


def text_of(program: ExportedProgram, **options: object) -> str:
    return TorchConverter(**options).add_exported_program(program).to_coreai().text()  # type: ignore[arg-type]


def in_later_process(program: ExportedProgram, **options: object) -> str:
    forget_graphs()
    return text_of(program, **options)


def files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def test_a_later_process_reads_what_an_earlier_one_decomposed(folder: Path, made: list[str]) -> None:
    program = exported(mixed)
    text = text_of(program)
    assert len(made) > 4
    assert len(files(folder)) == 1
    made.clear()
    assert in_later_process(program) == text
    assert made == []


def test_results_are_those_of_eager_from_the_cache(made: list[str]) -> None:
    program = exported(mixed)
    text_of(program)
    made.clear()
    forget_graphs()
    converted = TorchConverter().add_exported_program(program).to_coreai()
    assert made == []
    torch.testing.assert_close(converted.run(X), mixed(X))


def test_a_program_without_new_kinds_of_nodes_writes_nothing(folder: Path) -> None:
    text_of(exported(mixed))
    (file,) = files(folder)
    before = file.stat().st_mtime_ns, file.read_bytes()
    in_later_process(exported(mixed, X + 1))
    assert (file.stat().st_mtime_ns, file.read_bytes()) == before


def test_processes_share_the_file_and_its_results(folder: Path, tmp_path: Path) -> None:
    """Four processes convert at once, and all have the text of this process; so has one that comes later."""
    program = exported(mixed)
    torch.export.save(program, tmp_path / "model.pt2")
    code = (
        "import sys, torch; from patcomp import TorchConverter\n"
        "program = torch.export.load(sys.argv[1])\n"
        "sys.stdout.write(TorchConverter().add_exported_program(program).to_coreai().text())"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "model.pt2")]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    texts = {process.communicate(timeout=300)[0] for process in running}
    texts.add(subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout)
    assert all(process.returncode == 0 for process in running)
    assert len(texts) == 1
    (file,) = files(folder)
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert texts == {in_later_process(torch.export.load(tmp_path / "model.pt2"))}  # perhaps from a file of its own


def _is_no_database(file: Path) -> None:
    file.write_bytes(b"something else" * 1000)


def _is_cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:5000])


def _has_zeros(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[4096:8192] = bytes(4096)
    file.write_bytes(content)


def _is_empty(file: Path) -> None:
    file.write_bytes(b"")


def _is_a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def _execute(file: Path, command: str) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(command)


def _has_another_table(file: Path) -> None:
    _execute(file, "DROP TABLE texts")
    _execute(file, "CREATE TABLE texts (something INTEGER)")


def _has_wrong_graphs(file: Path) -> None:
    _execute(file, "UPDATE texts SET text = replace(text, 'aten::mul.Tensor', 'aten::add.Tensor')")


def _has_numbers(file: Path) -> None:
    _execute(file, "UPDATE texts SET text = x'ff00', seal = 7")


@pytest.mark.parametrize(
    "damage",
    [
        _is_no_database,
        _is_cut,
        _has_zeros,
        _is_empty,
        _is_a_folder,
        _has_another_table,
        _has_wrong_graphs,
        _has_numbers,
    ],
)
def test_a_damaged_file_changes_no_result(damage: Callable[[Path], None], folder: Path) -> None:
    program = exported(mixed)
    text = text_of(program)
    (file,) = files(folder)
    damage(file)
    assert in_later_process(program) == text
    assert in_later_process(program) == text


@pytest.mark.parametrize("damage", [_is_no_database, _is_cut, _has_zeros, _is_empty])
def test_a_damaged_file_is_made_again(damage: Callable[[Path], None], folder: Path, made: list[str]) -> None:
    program = exported(mixed)
    text_of(program)
    (file,) = files(folder)
    damage(file)
    in_later_process(program)  # may find the damage only while it reads, and removes the file
    in_later_process(program)
    made.clear()
    in_later_process(program)
    assert made == []


@pytest.mark.parametrize(
    "graph",
    [
        "",
        "[]",
        "[1, 2]",
        '{"a": 1}',
        '[["call_function", "x", "aten::no_such_op", [], {}, null]]',
        '[["call_function", "x", "aten::relu", [{"node": "missing"}], {}, null]]',
        '[["placeholder", "x", "x", [], {}, {"tensor": [1, 2]}]]',
        '[["placeholder", "x", "x", [], {}, {"something": 1}]]',
    ],
)
def test_a_text_that_is_no_graph_is_an_error(graph: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read(graph, FakeTensorMode(allow_non_fake_inputs=True, export=True))


def test_a_graph_that_cannot_be_read_is_made_again(
    folder: Path, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = exported(mixed)
    text = text_of(program)
    count = len(made)

    def refused(*_: object) -> None:
        raise ValueError("a test")

    monkeypatch.setattr(shared_graphs, "read", refused)
    made.clear()
    assert in_later_process(program) == text
    assert len(made) == count


def test_a_folder_that_cannot_be_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, made: list[str]
) -> None:
    """Neither a file in the way of the folder, nor a missing disk, nor a folder without rights is an error."""
    program = exported(mixed)
    text = text_of(program)
    (tmp_path / "file").write_text("in the way")
    for path in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/patcomp"), Path("/dev/full")):
        monkeypatch.setenv("PATCOMP_CACHE", str(path))
        made.clear()
        assert in_later_process(program) == text
        assert made


def test_a_locked_file_is_not_waited_for_long(folder: Path) -> None:
    program = exported(mixed)
    text = text_of(program)
    (file,) = files(folder)
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        assert in_later_process(program) == text


def test_an_empty_variable_means_no_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    monkeypatch.setenv("PATCOMP_CACHE", "")
    in_later_process(exported(mixed))
    assert files(home) == []
    monkeypatch.delenv("PATCOMP_CACHE")
    in_later_process(exported(mixed))
    assert [file.suffix for file in files(home / "cache" / "patcomp")] == [".sqlite"]


def test_edited_sources_have_a_file_of_their_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = exported(mixed)
    text_of(program)
    monkeypatch.setattr(shared_graphs, "_sources", lambda: ["patcomp edited.py 1 1"])
    in_later_process(program)
    assert len(files(folder)) == 2
    monkeypatch.setattr(shared_graphs, "_sources", list)  # (sources in an archive cannot be told apart)
    in_later_process(program)
    assert len(files(folder)) == 2


def test_sources_are_those_of_the_compiler_and_the_catalog() -> None:
    names = {each.split()[1] for each in shared_graphs._sources()}
    assert {"frontend_torch/converter.py", "normalize/__init__.py"} <= names


def test_old_files_are_removed(folder: Path) -> None:
    folder.mkdir()
    others = [folder / f"decompositions-{number}.sqlite" for number in range(12)]
    for age, other in enumerate(others):
        other.write_bytes(b"")
        os.utime(other, (1000 - age, 1000 - age))
    (folder / "notes.txt").write_text("not ours")
    text_of(exported(mixed))
    assert len(files(folder)) == 8 + 1
    assert set(others[:7]) < set(files(folder))


@decomposition("aten.glu", examples=[example("4x6xf32")])
def glu_of_user(x: Tensor, dim: int = -1) -> Tensor:
    """A decomposition that may read anything."""
    first, second = x.chunk(2, dim)
    return first * second.sigmoid()


def test_decompositions_of_others_are_not_kept(folder: Path) -> None:
    text_of(exported(mixed), catalog=[RuleSet([glu_of_user])])
    assert files(folder) == []


def test_changed_formulas_of_pytorch_are_not_kept(folder: Path) -> None:
    library = torch.library.Library("aten", "IMPL")
    try:
        library.impl("glu", lambda x, dim=-1: x.chunk(2, dim)[0], "CompositeExplicitAutograd", allow_override=True)
        in_later_process(exported(nn.functional.glu))
        assert files(folder) == []
    finally:
        library._destroy()


def test_vmap_changes_no_file(folder: Path) -> None:
    """PyTorch registers kernels for `vmap` when it is first used, and they decompose nothing."""
    program = exported(mixed)
    text_of(program)
    torch.vmap(torch.sin)(X)
    in_later_process(program)
    assert len(files(folder)) == 1


def test_a_registered_shape_function_has_a_file_of_its_own(folder: Path) -> None:
    """What a user registers for PyTorch's own ops changes the file; for other libraries it does not."""
    program = exported(mixed)
    text_of(program)
    before = registrations()
    library = torch.library.Library("kept_lib", "DEF")
    try:
        library.define("shape_it(Tensor x) -> Tensor")
        library.impl("shape_it", lambda x: x + 1, "Meta")
        assert registrations() is not before
        in_later_process(program)
    finally:
        library._destroy()
    assert len(files(folder)) == 1


def test_dynamic_sizes_and_tensors_of_the_program_are_not_kept(folder: Path) -> None:
    """Such a decomposition belongs to its program."""
    text_of(exported(nn.functional.glu, dynamic_shapes=(({0: Dim("rows", max=64)},),)))
    (file,) = files(folder) or (None,)
    assert file is None or not any("glu" in key for key in KeptTexts(file).read())


def _graph_of(function: Callable[..., object]) -> torch.fx.GraphModule:
    return exported(function).graph_module


@pytest.mark.parametrize(
    "function",
    [lambda x: x + torch.tensor([1.0] * 6), lambda x: x.as_strided((2, 2), (1, 2))],
    ids=["a tensor of numbers", "reads the memory behind its argument"],
)
def test_graphs_with_more_than_ops_are_not_written(function: Callable[..., object]) -> None:
    with pytest.raises(TypeError):
        written(_graph_of(function))


def test_kinds_have_keys_of_their_own() -> None:
    programs = [
        exported(nn.functional.glu),
        exported(lambda x: nn.functional.glu(x, 0)),
        exported(nn.functional.glu, X[:2]),
        exported(nn.functional.glu, X.half()),
        exported(lambda x: nn.functional.glu(x.T.contiguous().T)),
        exported(lambda x: nn.functional.layer_norm(x, (6,))),
        exported(lambda x: torch.native_layer_norm(x, (6,), None, None, 1e-5)[0]),
        exported(lambda x: torch.native_layer_norm(x, (6,), None, None, 1e-5)[1]),
    ]
    kinds = [
        kind_of(next(node for node in program.graph.nodes if "glu" in node.name or "norm" in node.name))
        for program in programs
    ]
    assert len({key_of(kind) for kind in kinds if kind is not None}) == len(programs)
