"""patcomp in the place of coreai_torch: in a process by a call, and around a program by `patcomp exec`."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import patcomp
from patcomp.as_coreai_torch import MODULES
from tests.helpers import warm


@pytest.fixture
def installed() -> Iterator[None]:
    """patcomp in the place of coreai_torch, until the test ends."""
    before = list(sys.meta_path)
    patcomp.install_as_coreai_torch()
    try:
        yield
    finally:
        sys.meta_path[:] = before
        for name in [name for name in sys.modules if name.partition(".")[0] == "coreai_torch"]:
            del sys.modules[name]


@pytest.mark.usefixtures("installed")
def test_every_name_is_that_of_patcomp() -> None:
    for name, (source, names) in MODULES.items():
        module = importlib.import_module(name)
        assert {*names} <= {*module.__all__}
        for each in names:
            assert getattr(module, each) is getattr(importlib.import_module(source), each)
    import coreai_torch
    from coreai_torch._utils import get_operand
    from coreai_torch.composite_ops import RMSNormImpl

    assert coreai_torch.composite_ops.RMSNormImpl is RMSNormImpl
    assert get_operand is patcomp.get_operand


@pytest.mark.usefixtures("installed")
def test_programs_find_the_package_and_its_version() -> None:
    import coreai_torch

    for name in ("coreai-torch", "coreai_torch"):
        assert importlib.metadata.version(name) == coreai_torch.__version__ == "0.4.3"
    assert importlib.metadata.metadata("coreai-torch")["Name"] == "coreai-torch"
    assert importlib.util.find_spec("coreai_torch") is not None
    assert importlib.metadata.version("torch").startswith(torch.__version__.partition("+")[0])


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("coreai_torch.nothing", "has no coreai_torch.nothing; coreai_torch has ExternalizeSpec, "),
        ("from coreai_torch import nothing", "has no coreai_torch.nothing; "),
        ("from coreai_torch.composite_ops import nothing", "coreai_torch.composite_ops has GatedDeltaUpdate, "),
        ("import coreai_torch.debugging", "has no coreai_torch.debugging; "),
        ("from coreai_torch._compression.utils import nothing", "has no coreai_torch._compression; "),
    ],
)
def test_a_name_that_patcomp_lacks(line: str, said: str) -> None:
    import coreai_torch

    with pytest.raises((AttributeError, ImportError), match="patcomp stands in for coreai_torch") as found:
        exec(line, {"coreai_torch": coreai_torch})
    assert said in str(found.value)
    assert not hasattr(coreai_torch, "nothing")


@pytest.mark.usefixtures("installed")
def test_a_second_call_does_nothing() -> None:
    before = list(sys.meta_path)
    import coreai_torch

    patcomp.install_as_coreai_torch()
    assert sys.meta_path == before
    assert sys.modules["coreai_torch"] is coreai_torch


def test_coreai_torch_itself_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "coreai_torch", types.ModuleType("coreai_torch"))
    with pytest.raises(patcomp.PatcompError, match="imported already"):
        patcomp.install_as_coreai_torch()
    assert not any("coreai" in type(each).__module__ for each in sys.meta_path)


@pytest.mark.parametrize("system", ["v26", "27", 27])
def test_the_only_system(system: object, tmp_path: Path) -> None:
    exported = torch.export.export(torch.nn.ReLU(), (torch.randn(2),))
    program = patcomp.TorchConverter().add_exported_program(exported).to_coreai()
    with pytest.raises(ValueError, match="minimum_os must be 'v27'"):
        program.save_asset(tmp_path / "net.aimodel", None, system)
    program.save_asset(tmp_path / "net.aimodel", None, types.SimpleNamespace(value="v27"))


SCRIPT = """
import sys
from pathlib import Path
import torch
import beside
from coreai_torch import TorchConverter, get_decomp_table
from coreai_torch.composite_ops import RMSNorm

model = RMSNorm(8)
exported = torch.export.export(model, (torch.randn(2, 8),)).run_decompositions(get_decomp_table())
converter = TorchConverter().add_exported_program(exported, input_names=["x"], output_names=["y"])
program = converter.to_coreai()
program.optimize()
program.save_asset(Path(sys.argv[2]), None)
print(__name__, sys.argv[1:], type(program).__module__)
sys.exit(beside.CODE)
"""


def test_a_program_by_exec(tmp_path: Path) -> None:
    """The script converts by patcomp, has its own arguments and the modules beside it, and its exit code."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "convert.py").write_text(SCRIPT)
    (tmp_path / "scripts" / "beside.py").write_text("CODE = 7\n")
    done = warm.run(tmp_path, "-m", "patcomp", "exec", "--", "scripts/convert.py", "--json", "net.aimodel")
    assert done.returncode == 7, done.stderr
    assert done.stdout.splitlines()[-1] == "__main__ ['--json', 'net.aimodel'] patcomp.program.program"
    x = torch.randn(2, 8)
    outputs = patcomp.load(tmp_path / "net.aimodel").evaluate({"x": x})
    torch.testing.assert_close(torch.from_numpy(outputs["y"]), x * torch.rsqrt(x.pow(2).mean(-1, True) + 1e-5))


def test_modules_and_commands_by_exec(tmp_path: Path) -> None:
    (tmp_path / "tool.py").write_text("import coreai_torch, sys\nprint(sys.argv[1:])\nraise ValueError('wrong')\n")
    done = warm.run(tmp_path, "-m", "patcomp", "exec", "-m", "tool", "-x")
    assert done.returncode == 1
    assert done.stdout == "['-x']\n"
    assert "Traceback" in done.stderr
    assert "ValueError: wrong" in done.stderr
    done = warm.run(tmp_path, "-m", "patcomp", "exec", "--", "patcomp", "--version")
    assert (done.returncode, done.stdout) == (0, f"patcomp {patcomp.__version__}\n"), done.stderr


@pytest.mark.parametrize(
    ("command", "said"), [("python convert.py", "leave 'python' out"), ("nothing", "neither a file nor a command")]
)
def test_what_exec_does_not_run(command: str, said: str, tmp_path: Path) -> None:
    done = warm.run(tmp_path, "-m", "patcomp", "exec", "--", *command.split())
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr
