"""The `patcomp` command, in process: what it prints, what it writes, how it fails."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch import nn

from patcomp import TorchConverter, __version__, get_decomp_table
from tests.helpers import warm
from tests.helpers.command import Command, Outcome


class Norm(nn.Module):
    """RMSNorm and a product, large enough that the weight is not in the text."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(32) + 0.5)
        self.linear = nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(self.scale * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)))


def save(model: nn.Module, path: Path, *, decomposed: bool = False, shape: tuple[int, ...] = (2, 32)) -> None:
    """Writes the exported program of a model."""
    exported = torch.export.export(model.eval(), (torch.rand(shape),))
    torch.export.save(exported.run_decompositions(get_decomp_table()) if decomposed else exported, path)


@pytest.mark.parametrize("decomposed", [False, True])
def test_convert_to_text(patcomp: Command, tmp_path: Path, decomposed: bool) -> None:
    save(Norm(), tmp_path / "norm.pt2", decomposed=decomposed)
    done = patcomp("convert", "norm.pt2", "--text", "norm.mlir", "--dump-stages", "stages")
    assert done.code == 0, done.err
    assert "composites 1 x rms_norm" in done.err
    for stage in ("normalize", "recover", "lower", "target", "outline", "state", "optimize"):
        assert stage in done.err
    assert [path.name for path in sorted((tmp_path / "stages").iterdir())][0::8] == ["00-import.mlir", "08-emit.mlir"]
    assert (tmp_path / "norm.mlir").read_text() == (tmp_path / "stages/08-emit.mlir").read_text()
    assert not (tmp_path / "norm.aimodel").exists()


@pytest.mark.skipif(find_spec("coreai") is None, reason="needs coreai-core")
def test_convert_to_an_asset(patcomp: Command, tmp_path: Path) -> None:
    save(Norm(), tmp_path / "norm.pt2")
    done = patcomp("convert", "norm.pt2")
    assert done.code == 0, done.err
    assert (tmp_path / "norm.aimodel").is_dir()
    assert "norm.aimodel" in done.err


def test_convert_to_an_asset_without_the_toolchain(
    patcomp: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "coreai.authoring", None)
    monkeypatch.setattr(TorchConverter, "to_coreai", lambda self: pytest.fail("it must be found before"))
    save(Norm(), tmp_path / "norm.pt2")
    done = patcomp("convert", "norm.pt2", "--writer", "coreai")
    assert done.code == 1
    assert "needs coreai-core" in done.err


def test_opt_repeats_what_conversion_did(patcomp: Command, tmp_path: Path) -> None:
    save(Norm(), tmp_path / "norm.pt2")
    assert patcomp("convert", "norm.pt2", "--text", "norm.mlir", "--dump-stages", "stages").code == 0
    stages = "normalize,recover,lower,outline,state,optimize"
    assert patcomp("opt", "stages/00-import.mlir", "-p", stages).out == (tmp_path / "norm.mlir").read_text()
    dump = tmp_path / "stages/02-recover.mlir"
    assert patcomp("opt", str(dump)).out == dump.read_text()
    generic = patcomp("opt", str(dump), "--generic").out
    (tmp_path / "generic.mlir").write_text(generic)
    assert '"patcomp.region"' in generic
    assert patcomp("opt", "generic.mlir").out == dump.read_text()


def test_questions(patcomp: Command, tmp_path: Path) -> None:
    save(Norm(), tmp_path / "norm.pt2")
    assert "made by rule rms_norm" in patcomp("explain", "norm.pt2", "rsqrt").out
    assert patcomp("why-not", "layer_norm", "norm.pt2").out.startswith("layer_norm: there is no ")


def test_ops_by_name(patcomp: Command) -> None:
    for name in ("aten.add", "add", "aten::add", "torch.ops.aten.add"):
        out = patcomp("ops", name).out
        assert "aten.add.Tensor" in out
        assert out.endswith("2 ops\n")
    assert patcomp("ops", "aten.add.Tensor").out.endswith("1 op\n")
    assert "aten.add.Scalar" in patcomp("ops", "add*").out
    assert "PyTorch has no operator aten.addd; similar names are " in patcomp("ops", "aten.addd").err
    assert "aten.rand, aten.rand.generator: PyTorch has it, but no rule" in patcomp("ops", "aten.rand").err
    assert "--random inputs" in patcomp("ops", "aten.rand").err
    assert "--random inputs" not in patcomp("ops", "aten.linalg_eig").err
    assert "not converted: aten.index.Tensor_hacked_twin" in patcomp("ops", "aten.index").err
    assert "no supported op has a name like nothing*" in patcomp("ops", "nothing*").err


def test_catalog_composites(patcomp: Command) -> None:
    out = patcomp("catalog", "composites").out
    assert "scaled_dot_product_attention" in out
    assert "hard_sigmoid" in out


def test_convert_reports_composites(patcomp: Command, tmp_path: Path) -> None:
    save(Norm(), tmp_path / "norm.pt2")
    convert = ("convert", "norm.pt2", "--text", "norm.mlir")
    done = patcomp(*convert, "--report")
    assert "rms_norm: 1\n  %mul_1 at tests/test_cli.py:" in done.err
    assert "by rule 'rms_norm'\n" in done.err
    assert "composites none" in patcomp(*convert, "--recover", "none").err
    assert "composites 1 x rms_norm" in patcomp(*convert, "--recover", "rms_norm, layer_norm").err
    done = patcomp(*convert, "--recover", "rmsnorm")
    assert done.code == 1
    assert "no composite is called rmsnorm; there are " in done.err


class Filled(torch.nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        return (q @ k.mT).masked_fill(~keep, -1e9).softmax(-1) @ v


def test_convert_assumes_what_it_is_told(patcomp: Command, tmp_path: Path) -> None:
    inputs = (*(torch.randn(1, 2, 4, 8) for _ in range(3)), torch.ones(4, 4, dtype=torch.bool))
    torch.export.save(torch.export.export(Filled(), inputs), tmp_path / "filled.pt2")
    convert = ("convert", "filled.pt2", "--text", "filled.mlir")
    assert "composites none" in patcomp(*convert).err
    assumed = patcomp(*convert, "--assume", "masked rows are not read")
    assert "composites 1 x scaled_dot_product_attention" in assumed.err
    done = patcomp(*convert, "--assume", "no NaN")
    assert done.code == 1
    assert "there is no assumption 'no NaN'; there are 'masked rows are not read'" in done.err


def test_catalog_list(patcomp: Command) -> None:
    everything = patcomp("catalog", "list").out
    recovering = patcomp("catalog", "list", "--stage", "recover").out
    assert "rms_norm" in recovering
    assert "reshape_of_reshape" in everything
    assert "reshape_of_reshape" not in recovering


def test_opt_shows_what_stages_do(patcomp: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(Norm(), tmp_path / "norm.pt2")
    assert patcomp("convert", "norm.pt2", "--text", "norm.mlir", "--dump-stages", "stages").code == 0
    normalized = (tmp_path / "stages/01-normalize.mlir").read_text()
    monkeypatch.setattr(sys, "stdin", io.StringIO(normalized))
    done = patcomp("opt", "-", "-p", "recover,lower", "--print-after-all", "--timing")
    assert done.out == (tmp_path / "stages/03-lower.mlir").read_text()
    first, _, second = done.err.partition("// ---- after lower\n")
    assert first == f"// ---- after recover\n{(tmp_path / 'stages/02-recover.mlir').read_text()}\n"
    assert second.startswith(done.out)
    assert "seconds" in second
    assert "recover" in second
    out = patcomp("opt", "stages/01-normalize.mlir", "-p", "recover", "--diff").out
    assert "+++ recover" in out
    assert [line for line in out.splitlines() if line.startswith("-") and "aten.rsqrt" in line]
    assert [line for line in out.splitlines() if line.startswith("+") and "patcomp.region" in line]


def test_opt_says_that_a_stage_needs_those_before_it(patcomp: Command, tmp_path: Path) -> None:
    save(Norm(), tmp_path / "norm.pt2")
    assert patcomp("convert", "norm.pt2", "--text", "norm.mlir", "--dump-stages", "stages").code == 0
    assert "state changes nothing" in patcomp("opt", "norm.mlir", "-p", "state", "--diff").out
    done = patcomp("opt", "stages/00-import.mlir", "-p", "lower")
    assert done.code == 1
    assert done.err.startswith("error: stage lower: ")
    assert " failed: " in done.err
    assert "have the stages before lower been run?" in done.err


def test_opt_says_where_a_text_is_wrong(patcomp: Command, tmp_path: Path) -> None:
    text = "coreai.graph @main(%x : tensor<2xf32>) -> (tensor<3xf32>) {\n  coreai.output %x : tensor<2xf32>\n}\n"
    (tmp_path / "wrong.mlir").write_text(text)
    done = patcomp("opt", "wrong.mlir", "-p", "optimize")
    assert done.code == 1
    assert "graph @main: " in done.err


def test_catalog_show_and_check(patcomp: Command, tmp_path: Path) -> None:
    out = patcomp("catalog", "show", "rms_norm").out
    for part in (
        "recover stage",
        "aten.rsqrt",
        "where:      eps.rank == 0",
        "example:    eps = 1e-06",
        "becomes:    _rms_norm(x, w, eps.value",
    ):
        assert part in out
    assert "cumsum" in patcomp("catalog", "show", "cumsum").out
    done = patcomp("catalog", "show", "rms_nor")
    assert (done.code, "there are rms_norm" in done.err) == (2, True)
    assert patcomp("catalog", "check").code == 0
    (tmp_path / "mine.py").write_text(
        "from patcomp.patterns import Rewrite, rule\n"
        "@rule(name='double sine', example={'x': '2xf32'})\n"
        "def double(a, c, x):\n"
        "    'sin(x) twice'\n"
        "    return Rewrite(a.sin(a.sin(x)), to=c.hard_sigmoid(x), where=[x.rank == 2])\n"
    )
    assert "double sine" in patcomp("catalog", "list", "--stage", "recover", "--catalog", "mine.py").out
    done = patcomp("catalog", "check", "--catalog", "mine.py")
    assert done.code == 3
    assert "double sine does not match its own source" in done.out
    done = patcomp("catalog", "list", "--catalog", "nothing.py")
    assert (done.code, done.err) == (2, "error: there is no file nothing.py\n")


UNREACHABLE = """
from patcomp.patterns import Rewrite, decomposition, example, lowering, optimization, rule

@rule(stage="optimize", example={"x": "2xf32"})
def aten_in_optimize(a, c, x): return Rewrite(a.sin(x), to=c.hard_sigmoid(x))

@lowering("coreai.sin", examples=[example("2xf32")])
def coreai_in_lower(op, c): "x"

@optimization("aten.sin", examples=[example("2xf32")])
def aten_op_in_optimize(op, c): "x"

@lowering("aten.cumsumm", examples=[example("2xf32", 0)])
def misspelt_op(op, c): "x"

@decomposition("aten.addbm", examples=[example("2xf32")])
def misspelt_decomposition(x): return x
"""


def test_rules_that_can_never_fire(patcomp: Command, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(UNREACHABLE)
    expected = {
        "aten_in_optimize": "the stage 'optimize' rewrites ops of coreai, and it starts from aten; choose from norm",
        "coreai_in_lower": "the stage 'lower' rewrites ops of aten, and it starts from coreai; choose from tar",
        "aten_op_in_optimize": "the stage 'optimize' rewrites ops of coreai, and it starts from aten",
        "misspelt_op": "PyTorch has no op aten.cumsumm; there are aten.cumsum",
        "misspelt_decomposition": "PyTorch has no op aten.addbm; there are aten.addbmm",
    }
    checked = patcomp("catalog", "check", "--catalog", "mine.py")
    tested = patcomp("rule", "test", "mine.py", "--no-runtime")
    assert (checked.code, tested.code) == (3, 3)
    assert checked.out.endswith("4 rules and 1 decomposition, 5 findings\n")
    assert tested.out.endswith("5 rules, 5 of them wrong\n")
    for name, reason in expected.items():
        for out in (checked.out, tested.out):
            (line,) = (line for line in out.splitlines() if f"{name} (" in line)
            assert f"can never fire: {reason}" in line


def test_counts_of_rules_agree(patcomp: Command) -> None:
    listed = patcomp("catalog", "list").out.splitlines()[-1]
    counts, _, data = listed.partition("; ")
    assert " rules and " in counts
    assert counts.endswith(" decompositions")
    assert data.endswith("rules are data: a pattern or a formula without branches")
    assert patcomp("catalog", "check").out == f"{counts}, no findings\n"


def test_a_model_can_be_a_function(patcomp: Command, tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text(
        "import torch\n"
        "def net(): return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.RMSNorm(4)), (torch.rand(2, 4),)\n"
        "def number(): return 3\n"
    )
    done = patcomp("convert", "models.py:net", "--text", "net.mlir")
    assert done.code == 0, done.err
    assert "1 x rms_norm" in done.err
    done = patcomp("convert", "models.py:number", "--text", "net.mlir")
    assert done.code == 1
    assert "number of models.py returns int, not an ExportedProgram" in done.err
    assert "models.py has no function nothing" in patcomp("why-not", "silu", "models.py:nothing").err


NETS = """
import torch
print("models that print")

class Net(torch.nn.Sequential):
    def forward(self, x):
        print("when they run, too")
        return super().forward(x)

def net(): return Net(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)), (torch.rand(2, 4),)
def evaluating(): return net()[0].eval(), (torch.rand(2, 4),)
"""


def test_text_on_standard_output(patcomp: Command, tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(NETS)
    done = patcomp("convert", "nets.py:net", "--text", "-", "--dump-stages", "stages", "--report", "--verbose")
    assert done.code == 0, done.err
    assert done.out == (tmp_path / "stages/08-emit.mlir").read_text()
    for part in ("models that print", "when they run, too", "ops out", "composites 1 x batch_norm", "dumps: stages"):
        assert part in done.err
    assert not (tmp_path / "-").exists()


def test_convert_says_that_it_turns_eval_mode_on(patcomp: Command, tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(NETS)
    note = "note: nets.py:net is converted in eval mode; --train keeps its train mode"
    done = patcomp("convert", "nets.py:net", "--text", "-")
    assert note in done.err
    assert "b_1_running_mean" not in done.out
    done = patcomp("convert", "nets.py:net", "--text", "-", "--train")
    assert "note: " not in done.err
    assert "b_1_running_mean" in done.out  # which a batch norm in train mode writes to
    assert note in patcomp("explain", "nets.py:net", "%linear").err
    assert "note: " not in patcomp("convert", "nets.py:evaluating", "--text", "-").err
    assert "note: " not in patcomp("convert", "nets.py:net", "--text", "-", "--quiet").err


def test_dumps_of_an_earlier_run_are_removed(patcomp: Command, tmp_path: Path) -> None:
    save(Norm(), tmp_path / "norm.pt2")
    stages = tmp_path / "stages"
    stages.mkdir()
    for name in ("01-normalize.mlir", "12-emit.mlir"):
        (stages / name).write_text("stale")
    others = ("notes.txt", "01-normalize.txt", "1-emit.mlir", "my-01-emit.mlir", "08-mine.mlir")
    for name in others:
        (stages / name).write_text("mine")
    assert patcomp("convert", "norm.pt2", "--text", "-", "--dump-stages", "stages").code == 0
    assert not (stages / "12-emit.mlir").exists()
    assert "stale" not in (stages / "01-normalize.mlir").read_text()
    assert len(list(stages.iterdir())) == 9 + len(others)
    for name in others:
        assert (stages / name).read_text() == "mine"


@pytest.mark.skipif(find_spec("coreai") is None, reason="needs coreai-core")
def test_convert_replaces_nothing_but_assets(patcomp: Command, tmp_path: Path) -> None:
    save(Norm(), tmp_path / "norm.pt2")
    mine = tmp_path / "mine.aimodel"
    mine.mkdir()
    (mine / "notes.txt").write_text("mine")
    convert = ("convert", "norm.pt2", "-o", "mine.aimodel")
    done = patcomp(*convert)
    assert done.code == 1
    assert "mine.aimodel is not replaced: it is a folder with notes.txt" in done.err
    assert (mine / "notes.txt").read_text() == "mine"
    assert patcomp(*convert, "--force").code == 0
    assert patcomp(*convert).code == 0
    assert not (mine / "notes.txt").exists()


def test_demo_without_the_toolchain(patcomp: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setitem(sys.modules, "coreai.authoring", None)
    done = patcomp("demo", "--output", "here")
    assert done.code == 0, done.err
    assert done.out.startswith("coreai-core is not installed: patcomp writes the asset itself")
    assert "against eager PyTorch: passed" in done.out
    assert "the asset, read again, computes the same numbers" in done.out
    assert {path.name for path in (tmp_path / "here").iterdir()} == {"stages", "llama.aimodel", "report.html"}


IMPORTING = """
import torch
from torchvision.models import resnet18
from torchvision.ops import nms

class Suppression(torch.nn.Module):
    def forward(self, boxes, scores): return nms(boxes, scores, 0.5)

def net(): return resnet18().eval(), (torch.rand(1, 3, 32, 32),)
def suppression(): return Suppression().eval(), (torch.rand(3, 4), torch.rand(3))
"""


def test_torchvision_that_does_not_fit(tmp_path: Path) -> None:
    """Its C++ operators are declared where they cannot be loaded, here because there are none."""
    spec = find_spec("torchvision")
    if spec is None or spec.origin is None:
        pytest.skip("needs torchvision")
    (tmp_path / "nets.py").write_text(IMPORTING)
    script = "import torch\ntorch.ops.load_library = lambda path: (_ for _ in ()).throw(OSError(path))\n"
    (tmp_path / "command.py").write_text(f"{script}from patcomp.cli import main\nmain()")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return warm.run(tmp_path, "command.py", *arguments)

    done = run("convert", "nets.py:net", "--text", "net.mlir")
    assert done.returncode == 0, done.stderr
    assert "composites 20 x batch_norm" in done.stderr
    note = "note: the C++ operators of torchvision do not fit this PyTorch"
    assert note in done.stderr
    assert "pip install" in done.stderr
    done = run("convert", "nets.py:suppression", "--text", "net.mlir")
    assert done.returncode == 1
    assert note in done.stderr
    assert "error: suppression of nets.py cannot be exported" in done.stderr


@pytest.mark.parametrize("extension", ["_C.so", "_C_stable.so"])
def test_operators_of_a_torchvision_that_fits_are_not_declared_again(extension: str, tmp_path: Path) -> None:
    """A second declaration would end the process when torchvision is imported."""
    (tmp_path / "torchvision").mkdir()
    for name in ("__init__.py", extension):
        (tmp_path / "torchvision" / name).touch()
    script = "import sys, torch\nsys.path.insert(0, '.')\n"
    script += "torch.ops.load_library = lambda path: print('loaded', path.name)\nimport patcomp.torchvision\n"
    (tmp_path / "script.py").write_text(script + "print(hasattr(torch.ops.torchvision, 'nms'))")
    done = warm.run(tmp_path, "script.py")
    assert done.stdout == f"loaded {extension}\nFalse\n", done.stderr


@pytest.mark.parametrize("room", ["bundles", "language", "tasks"])
def test_rooms_that_load_models_declare_operators_first(room: str, tmp_path: Path) -> None:
    (tmp_path / "torchvision.py").write_text("import torch\nprint(torch.ops.torchvision.nms.default)\n")
    script = f"import sys\nsys.path.insert(0, '.')\nimport patcomp.{room}\nimport torchvision\n"
    (tmp_path / "script.py").write_text(script)
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "torchvision.nms.default\n", done.stderr


def test_demo(patcomp: Command, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    done = patcomp("demo", "--output", "here")
    assert done.code == 0, done.err
    assert "9 x rms_norm, 8 x rope, 4 x scaled_dot_product_attention" in done.out
    assert "against eager PyTorch: passed" in done.out
    assert len(list((tmp_path / "here/stages").iterdir())) == 9
    assert re.search(r"here/llama.aimodel, \d+\.\d MB with \d+ ops and \d+ weights; look into it", done.out), done.out
    assert re.search(r"here/report.html; open it with: \S+ here/report.html$", done.out.strip()), done.out


def test_help_needs_no_torch() -> None:
    script = "import sys; sys.modules['torch'] = None; from patcomp.cli import main; main()"
    root = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", script, "catalog", "list"], capture_output=True, text=True, cwd=root, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "rms_norm" in done.stdout


def test_version(patcomp: Command) -> None:
    assert patcomp("--version") == Outcome(0, f"patcomp {__version__}\n", "")
    assert "lint-catalog" in patcomp("--help").out


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", ["composite", "normalize", "optimize", "reference"])
def test_rule_new_makes_a_rule_that_passes(patcomp: Command, kind: str) -> None:
    assert patcomp("rule", "new", f"my_{kind}", "--kind", kind).code == 0
    done = patcomp("rule", "test", f"my_{kind}.py", "--no-runtime")
    assert done.code == 0, done.out


@pytest.mark.parametrize(
    ("kind", "op", "filled"),
    [
        ("lowering", "aten.relu", "return c.relu(self_)"),
        ("composite", "aten.relu", "return mine(self_)"),
        ("normalize", "aten.t", "return c.permute(op.result, self_, [1, 0]) if self_.rank == 2 else None"),
        ("decomposition", "aten.frac", "return self - self.trunc()"),
    ],
)
def test_rule_new_for_an_op_passes_when_it_is_filled_in(
    patcomp: Command, tmp_path: Path, kind: str, op: str, filled: str
) -> None:
    assert patcomp("rule", "new", "mine", "--kind", kind, "--op", op).code == 0
    done = patcomp("rule", "test", "mine.py", "--no-runtime")
    assert done.code == 3
    assert "TODO: " in done.out
    text = (tmp_path / "mine.py").read_text()
    blank = next(line.strip() for line in text.splitlines() if "TODO: " in line and line.endswith(")"))
    (tmp_path / "filled.py").write_text(text.replace(blank, filled).replace("mine", "filled"))
    done = patcomp("rule", "test", "filled.py", "--no-runtime")
    assert done.code == 0, done.out


def test_rule_new_names_the_arguments_of_an_op(patcomp: Command, tmp_path: Path) -> None:
    assert patcomp("rule", "new", "mine", "--kind", "lowering", "--op", "aten::cumsum", "-o", "here.py").code == 0
    text = (tmp_path / "here.py").read_text()
    assert all(f'op["{argument}"]' in text for argument in ("self", "dim", "dtype"))
    assert patcomp("rule", "new", "other", "--kind", "decomposition", "--op", "aten.baddbmm").code == 0
    assert "batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:" in (tmp_path / "other.py").read_text()
    done = patcomp("rule", "test", "other.py", "--no-runtime")
    assert done.code == 3
    assert "PyTorch or the rule refuses its example" in done.out
    done = patcomp("rule", "new", "third", "--kind", "lowering", "--op", "aten.cumsun")
    assert (done.code, "did you mean aten.cumsum" in done.err) == (1, True)


@pytest.mark.skipif(find_spec("coreai") is None, reason="needs coreai-core")
def test_rule_test_on_the_runtime(patcomp: Command) -> None:
    assert patcomp("rule", "new", "quick", "--kind", "normalize").code == 0
    assert patcomp("rule", "test", "quick.py", "--runtime", "--rule", "quick").code == 0


BROKEN_EXAMPLE = """
from patcomp.patterns import example, op_rule

@op_rule("optimize", "coreai.relu", examples=[
    example("2xf32", program=lambda torch, x: torch.ops.aten.no_such_op(x)),
])
def relu_of_nothing(op, c): "x"
"""


def test_an_example_that_does_not_run_is_a_failure_of_its_rule(patcomp: Command, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(BROKEN_EXAMPLE)
    done = patcomp("rule", "test", "mine.py", "--no-runtime")
    assert done.code == 3
    assert "the program of an example of relu_of_nothing (" in done.out
    assert "mine.py:4) does not run: AttributeError: '_OpNamespace' 'aten' object has no attribute" in done.out
    assert "Traceback" not in done.out + done.err
