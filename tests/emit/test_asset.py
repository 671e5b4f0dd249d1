"""Saving assets: what is handed over, what is refused, and that nothing half-written stays."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

import patcomp
from patcomp import AIProgram, TorchConverter
from patcomp.emit import asset
from patcomp.emit.asset import Asset, AssetError, save_asset
from patcomp.emit.native import NativeError, ProcessDied
from patcomp.emit.toolchain import writing
from patcomp.emit.toolchain.writing import parse_with_toolchain
from patcomp.errors import MissingToolchainError, VerifyError
from patcomp.ir import IRModule, Value, coreai, tensor
from tests.emit.assets import adds, ramp
from tests.helpers.programs import program

pytest.importorskip("coreai")


def size_of(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def test_saved_program_runs(tmp_path: Path, native):
    module = adds(ramp(300), ramp(300, 5.0))
    saved = save_asset(module, str(tmp_path / "deep" / "model.aimodel"), metadata={"author": "Ada"})
    assert saved.path == tmp_path / "deep" / "model.aimodel"
    assert list(saved.summary().function_names) == ["main"]
    assert saved.metadata.author == "Ada"
    assert Asset.load(saved.path).path == saved.path
    result = native.run(module, {"x": np.zeros(300, np.float32)})["y0"]
    np.testing.assert_array_equal(result, ramp(300) + ramp(300, 5.0))


def test_run_takes_tensors_and_writes_state(tmp_path: Path):
    def body(handle: Value, x: Value) -> list[Value]:
        content, token = coreai.read_handle(handle, coreai.create_token())
        total = coreai.add(content, x)
        return [total, coreai.write_handle(handle, total, token)]

    module = program({"x": "2xbf16"}, body, states={"total": "2xbf16"})
    state = {"total": torch.ones(2, dtype=torch.bfloat16)}
    outputs = save_asset(module, tmp_path / "m.aimodel").run({"x": torch.ones(2, dtype=torch.bfloat16)}, state)
    assert outputs["y0"].dtype.name == "bfloat16"
    assert outputs["y0"].tolist() == state["total"].tolist() == [2.0, 2.0]


def test_run_and_executable_in_an_event_loop(tmp_path: Path):
    from coreai.runtime import NDArray

    saved = save_asset(adds(ramp(4)), tmp_path / "m.aimodel")
    x = np.ones(4, np.float32)

    async def both() -> tuple[np.ndarray, np.ndarray]:
        async with saved.executable() as model:
            outputs = await model.load_function("main")({"x": NDArray(x)})
            return outputs["y0"].numpy().copy(), saved.run({"x": x})["y0"]

    for result in asyncio.run(both()):
        np.testing.assert_array_equal(result, ramp(4) + 1)


@pytest.mark.parametrize("name", ["model", "model.mlmodel", "aimodel"])
def test_wrong_suffix(tmp_path: Path, name: str):
    with pytest.raises(ValueError, match=r"must end in \.aimodel"):
        save_asset(adds(ramp(4)), tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_missing_and_short_weights_are_named(tmp_path: Path):
    """The toolchain would crash on the first and read stray memory for the second."""
    module = adds(ramp(300))
    (blob,) = module.blobs
    blob.data = blob.data[:-4]
    with pytest.raises(VerifyError, match=r"'constant' has 1196 bytes, but tensor<300xf32> takes 1200"):
        save_asset(module, tmp_path / "m.aimodel")
    module.blobs.blobs.clear()
    with pytest.raises(VerifyError, match="the weight 'constant', which is not in its blob store"):
        save_asset(module, tmp_path / "m.aimodel")
    assert not list(tmp_path.iterdir())


def test_without_the_toolchain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "coreai.authoring", None)
    with pytest.raises(MissingToolchainError, match=r'pip install "patcomp\[coreai\]"'):
        save_asset(adds(ramp(4)), tmp_path / "m.aimodel", writer="coreai")
    save_asset(adds(ramp(4)), tmp_path / "m.aimodel")
    loaded = Asset.load(tmp_path / "m.aimodel")
    assert loaded.function_names == ["main"]
    assert loaded.module.text() == adds(ramp(4)).text()
    with pytest.raises(MissingToolchainError, match="running an asset"):
        loaded.run({"x": ramp(4)})


def test_large_programs_are_written_without_the_toolchain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(asset, "LARGE_WEIGHTS", 4 * 4096)
    large, small = adds(ramp(4096)), adds(ramp(4095))
    assert [asset.chosen_writer(None, module) for module in (large, small)] == ["python", "coreai"]
    assert asset.chosen_writer("coreai", large) == "coreai"
    saved = save_asset(large, tmp_path / "large.aimodel")
    assert '"producer": "patcomp' in (saved.path / "metadata.json").read_text()
    np.testing.assert_array_equal(saved.run({"x": np.ones(4096, np.float32)})["y0"], ramp(4096) + 1)


def test_equal_weights_are_stored_once(tmp_path: Path):
    once = size_of(save_asset(adds(ramp(65536)), tmp_path / "once.aimodel").path)
    module = adds(ramp(65536), ramp(65536))
    assert len(list(module.blobs)) == 2
    assert size_of(save_asset(module, tmp_path / "twice.aimodel").path) < once + 2000
    different = size_of(save_asset(adds(ramp(65536), ramp(65536, 1.0)), tmp_path / "different.aimodel").path)
    assert different > once + 4 * 65536


def test_weights_in_nested_regions_are_attached(native):
    body = lambda c, x: coreai.if_(c, lambda: [coreai.add(x, coreai.constant(ramp(300)))], lambda: [x])  # noqa: E731
    module = program({"c": "i1", "x": "300xf32"}, body, module=IRModule())
    x = np.ones(300, np.float32)
    np.testing.assert_array_equal(native.run(module, {"c": np.array(True), "x": x})["y0"], ramp(300) + 1)


def test_weights_do_not_go_through_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    texts = []
    parse = writing.parsed
    monkeypatch.setattr(writing, "parsed", lambda tools, text: (texts.append(text), parse(tools, text))[1])
    saved = save_asset(adds(np.random.default_rng(0).random((1024, 1024), np.float32)), tmp_path / "m.aimodel")
    assert size_of(saved.path) > 4 * 1024 * 1024
    assert len(texts) == 1
    assert len(texts[0]) < 2000
    assert "dialect_resources" not in texts[0]
    assert "dense_resource<constant>" in str(saved.program)


def test_a_refused_program_leaves_everything_as_it_was(tmp_path: Path):
    path = tmp_path / "m.aimodel"
    save_asset(adds(ramp(4)), path)
    before = sorted((file, file.read_bytes()) for file in tmp_path.rglob("*") if file.is_file())
    dynamic = tensor((None, 3), "f32")
    unparsable = program({"x": "2xf32"}, lambda x: coreai.exp(x, result_type=tensor((3,), "f32")))
    unsavable = program({"x": "2x3xf32"}, lambda x: coreai.add(x, x, result_type=dynamic))
    for module, message in ((unparsable, r"coreai\.exp"), (unsavable, "same element type")):
        with pytest.raises(AssetError, match=message) as refused:
            save_asset(module, path)
        assert refused.value.diagnostics
    assert sorted((file, file.read_bytes()) for file in tmp_path.rglob("*") if file.is_file()) == before


FULL_DISK = """
import resource, signal, sys
sys.path[:0] = sys.argv[2:]
from patcomp.emit.asset import save_asset
from tests.emit.assets import adds, ramp

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
save_asset(adds(ramp(65536)), sys.argv[1])
"""


def test_the_toolchain_dies_while_it_writes(tmp_path: Path) -> None:
    """It ends the process on a write error, here a limit of the file size; the old asset stays."""
    path = tmp_path / "m.aimodel"
    save_asset(adds(ramp(4)), path)
    command = [sys.executable, "-c", FULL_DISK, str(path), *sys.path]
    died = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert "IO failure on output stream" in died.stderr
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".m.aimodel.saving", "m.aimodel"]
    np.testing.assert_array_equal(Asset.load(path).run({"x": np.zeros(4, np.float32)})["y0"], ramp(4))
    saved = save_asset(adds(ramp(8)), path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["m.aimodel"]
    np.testing.assert_array_equal(saved.run({"x": np.zeros(8, np.float32)})["y0"], ramp(8))


def test_a_full_disk_is_an_error_before_the_toolchain_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.aimodel"
    save_asset(adds(ramp(4)), path)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage._replace(free=200_000))
    with pytest.raises(OSError, match=r"needs about 0.3 MB, and 0.2 MB are free"):
        save_asset(adds(ramp(65536)), path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["m.aimodel"]
    np.testing.assert_array_equal(Asset.load(path).run({"x": np.zeros(4, np.float32)})["y0"], ramp(4))


def test_what_is_not_an_asset_is_refused_before_anything_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asset, "toolchain", lambda: pytest.fail("it must not be needed"))
    path = tmp_path / "m.aimodel"
    path.write_text("mine")
    with pytest.raises(FileExistsError, match="it is a file"):
        save_asset(adds(ramp(4)), path)
    assert path.read_text() == "mine"


@pytest.mark.parametrize("pretty", [False, True])
def test_diagnostics(pretty: bool):
    assert parse_with_toolchain(adds(ramp(300)), pretty=pretty) == ()
    wrong = program({"x": "2xf32"}, lambda x: coreai.exp(x, result_type=tensor((2,), "f16")))
    assert any("coreai.exp" in message for message in parse_with_toolchain(wrong, pretty=pretty))


def test_the_child_process_is_started_again_after_it_died(native):
    aborts = program({"x": "1xsi32", "y": "1xsi32"}, coreai.divide)
    with pytest.raises(ProcessDied) as death:
        native.run(aborts, {"x": np.int32([1]), "y": np.int32([0])})
    assert death.value.signal == 4
    assert native.run(aborts, {"x": np.int32([6]), "y": np.int32([3])})["y0"].tolist() == [2]
    with pytest.raises(NativeError, match="UnknownNameError: there is no entry point 'other'"):
        native.run(aborts, {"x": np.int32([6]), "y": np.int32([3])}, entry="other")
    assert native.check(aborts) == ()


def converted() -> AIProgram:
    catalog = ModuleType("my_rules")
    catalog.__version__ = "2.1"  # type: ignore[attr-defined]
    torch.manual_seed(0)
    exported = torch.export.export(torch.nn.Linear(4, 4), (torch.zeros(2, 4),))
    return TorchConverter(catalog=[catalog, ModuleType("others")]).add_exported_program(exported).to_coreai()


def test_the_metadata_has_the_versions(tmp_path: Path) -> None:
    from coreai.runtime import AIModelAssetMetadata

    given = AIModelAssetMetadata()
    given.author = "Ada"
    given.set_custom("mine", "1")
    made = converted()
    expected = {
        "patcomp.version": patcomp.__version__,
        "patcomp.torch": torch.__version__,
        "patcomp.xdsl": version("xdsl"),
        "patcomp.coreai-core": version("coreai-core"),
        "patcomp.catalogs": f"patterns_catalog {patcomp.__version__}, my_rules 2.1, others",
    }
    assert {f"patcomp.{name}": each for name, each in made.versions.items()} == expected
    assert made.manifest["rules"]["normalize"] == {
        "linear_layer_and_row": 1, "normalize drop_copy": 1, "normalize t": 1,
    }  # fmt: skip
    expected |= {f"patcomp.{name}": json.dumps(made.manifest[name], sort_keys=True) for name in ("options", "rules")}
    for metadata in (given, {"author": "Ada", "creator_defined_metadata": {"mine": "1"}}):
        saved = made.save_asset(tmp_path / "m.aimodel", metadata)
        assert saved.metadata.author == "Ada"
        assert saved.metadata.creator_defined_metadata == {**expected, "mine": "1"}
    assert given.creator_defined_metadata == {"mine": "1"}
    with pytest.raises(ValueError, match="an asset has no metadata field 'autor'; there are author, license"):
        made.save_asset(tmp_path / "m.aimodel", {"autor": "Ada"})


def test_equal_programs_become_equal_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    first, second = (converted().save_asset(tmp_path / f"{name}.aimodel") for name in ("a", "b"))
    assert "20231114T221320Z" in (first.path / "metadata.json").read_text()
    assert second.metadata.creation_date == 1700000000
    files = [{file.name: file.read_bytes() for file in made.path.iterdir()} for made in (first, second)]
    assert files[0] == files[1]
    np.testing.assert_allclose(first.run({"input": torch.zeros(2, 4)})["linear"].shape, (2, 4))
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    with pytest.raises(ValueError, match="SOURCE_DATE_EPOCH must be a number of seconds since 1970, got 'yesterday'"):
        converted().save_asset(tmp_path / "c.aimodel")
    assert not (tmp_path / "c.aimodel").exists()
