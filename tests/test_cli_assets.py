"""`patcomp inspect`, `run`, `verify` and `diff`: what they say of assets, models and texts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from patcomp.ir import IRModule
from patcomp.ir.difference import difference
from tests.helpers.command import Command

pytestmark = pytest.mark.usefixtures("one_child")

MODELS = """
import torch
from torch import nn
from torch.export import Dim

class Net(nn.Module):
    def __init__(self, bias=0.0):
        super().__init__()
        torch.manual_seed(0)
        self.norm, self.linear = nn.RMSNorm(16), nn.Linear(16, 16)
        self.linear.weight.data += bias

    def forward(self, x, scale=None):
        y = self.linear(self.norm(x))
        return y if scale is None else y * scale

class Sums(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.ones(4))
        self.register_buffer("twice", torch.zeros(4))

    def forward(self, x):
        self.total.add_(x)
        self.twice.add_(2 * x)
        return self.total[:2] * 2

class Picks(nn.Module):
    def forward(self, x, index):
        return x[index].bfloat16()

class Noisy(nn.Module):
    def forward(self, x):
        return x + torch.randn_like(x) + torch.rand(x.shape[0], 1)

class Frames(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 2, 9, stride=4)

    def forward(self, samples, weights):
        return self.conv(samples) * weights[:, 4:].mean()

class Half(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.register_buffer("kept", torch.ones(2, 3))
        self.conv = nn.Conv1d(2, 4, 3, padding=1)

    def forward(self, x, index):
        self.kept.mul_(x[:, :3])
        y = torch.cat([torch.sort(self.conv(x[None])[0]).values, x[index]])
        return torch.where(y > 0, y, y.flip(0)).cumsum(-1), y.float()

def half():
    return Half().half().eval(), (torch.rand(2, 8).half(), torch.tensor([1, 0, 1]))
def frames():
    n = Dim("n", min=30, max=9999)
    return Frames().eval(), (torch.rand(1, 1, 60), torch.rand(1, 60)), {"samples": {2: n}, "weights": {1: n}}
def noisy(): return Noisy().eval(), (torch.rand(3, 40),), {"x": {0: Dim("rows", min=2, max=9)}}
def net(): return Net().eval(), (torch.rand(2, 16),)
def changed(): return Net(0.5).eval(), (torch.rand(2, 16),)
def scaled(): return Net().eval(), {"x": torch.rand(2, 16), "scale": torch.rand(16)}
def sums(): return Sums().eval(), (torch.rand(4),)
def picks():
    shapes = {"x": {0: Dim("rows", min=2, max=9)}, "index": None}
    return Picks().eval(), (torch.rand(3, 4), torch.tensor([1, 0])), shapes
"""


@pytest.fixture(scope="module")
def assets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an asset of each model that tests look at."""
    pytest.importorskip("coreai")
    from patcomp import TorchConverter
    from patcomp.commands.models import load_exported

    folder = tmp_path_factory.mktemp("assets")
    (folder / "models.py").write_text(MODELS)
    for name in ("net", "sums", "picks", "frames", "half"):
        exported = load_exported(f"{folder / 'models.py'}:{name}")
        outputs = ["z"] if name == "sums" else None
        program = TorchConverter().add_exported_program(exported, output_names=outputs).to_coreai()
        program.save_asset(folder / f"{name}.aimodel", {"author": "somebody"})
    return folder


def test_inspect(patcomp: Command, assets: Path) -> None:
    out = patcomp("inspect", f"{assets}/net.aimodel").out
    for part in ("author: somebody", "function main", "input  x: 2x16xf32", "rms_norm", "linear.weight", "1.0 kB"):
        assert part in out
    data = json.loads(patcomp("inspect", f"{assets}/net.aimodel", "--json").out)
    assert data["composites"] == {"rms_norm": 1}
    assert data["weights"] == [{"name": "linear.weight", "shape": [16, 16], "element_type": "f32", "bytes": 1024}]
    assert data["ops"]["coreai.rsqrt"] == 1
    data = json.loads(patcomp("inspect", f"{assets}/sums.aimodel", "--json").out)
    assert [state["name"] for state in data["functions"]["main"]["states"]] == ["b_total", "b_twice"]


def test_run(patcomp: Command, assets: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", x=np.arange(4, dtype=np.float32), b_total=np.full(4, 10, np.float32))
    done = patcomp("run", f"{assets}/sums.aimodel", "--inputs", "in.npz", "-o", "out.npz", "--json")
    assert [each["mean"] for each in json.loads(done.out)["states"]] == [11.5, 3.0]
    with np.load(tmp_path / "out.npz") as saved:
        np.testing.assert_array_equal(saved["z"], [20, 22])
        np.testing.assert_array_equal(saved["b_twice"], [0, 2, 4, 6])
    done = patcomp("run", f"{assets}/picks.aimodel", "--size", "x:0=7")
    assert "2x4xbf16" in done.out
    assert "random inputs, with seed 0" in done.err


def test_the_values_of_a_run_for_core_ai_debugger(patcomp: Command, assets: Path, tmp_path: Path) -> None:
    """On example inputs, and on given inputs and states; for an asset with debug information."""
    model = f"{assets}/models.py:sums"
    assert patcomp("convert", model, "-o", "sums.aimodel", "--debug-info", "--quiet").code == 0
    np.savez(tmp_path / "in.npz", x=np.arange(4, dtype=np.float32), b_total=np.full(4, 10, np.float32))
    write = ("run", model, "--intermediates", "sums.aimodelintermediates")
    for options, total in ((("--inputs", "in.npz", "--asset", "sums.aimodel"), [10, 11, 12, 13]), ((), None)):
        done = patcomp(*write, *options, "--json")
        assert (done.code, "intermediates: sums.aimodelintermediates" in done.err) == (0, True), done.err
        found = json.loads((tmp_path / "sums.aimodelintermediates" / "metadata.json").read_text())
        assert len(found["mappings"]["outputs"]) >= 3
        values = [
            np.load(tmp_path / "sums.aimodelintermediates" / each["data_file"]) for each in found["outputs"].values()
        ]
        assert total is None or any(np.array_equal(value, total) for value in values)
    done = patcomp("run", "sums.aimodel", "--intermediates", "other.aimodelintermediates")
    assert (done.code, done.err) == (
        2, "error: --intermediates goes with a model, which PyTorch runs, and sums.aimodel is an asset\n",
    )  # fmt: skip
    done = patcomp(*write, "--asset", f"{assets}/sums.aimodel")
    assert (done.code, "has no debug information" in done.err) == (1, True)


def test_dimensions_for_which_2_is_too_small(patcomp: Command, assets: Path) -> None:
    """The asset says what its smallest sizes are: 30 samples are 6 frames. The runtime dies of fewer than 9."""
    path = f"{assets}/frames.aimodel"
    assert "1x2x6xf32" in patcomp("run", path).out
    assert "1x2x8xf32" in patcomp("run", path, "--size", "samples:2=40", "--size", "weights:1=40").out
    assert patcomp("verify", path).code == 0


def test_verify_of_half_precision_uses_a_twin_of_the_program(patcomp: Command, assets: Path) -> None:
    found = json.loads(patcomp("verify", f"{assets}/half.aimodel", "--json").out)
    assert found["passed"]
    assert {error["reference"] for error in found["errors"] if error["element_type"] == "f16"} == {"float32 twin"}


def test_assets_with_random_numbers_as_inputs(patcomp: Command, assets: Path) -> None:
    path = str(assets / "noisy.aimodel")
    model = f"{assets / 'models.py'}:noisy"
    assert patcomp("convert", model, "--random", "inputs", "-o", path, "--input-names", "features").code == 0
    out = patcomp("inspect", path).out
    assert "input  randn_like_noise: ?x40xf32, standard normal" in out
    assert "input  rand_noise: ?x1xf32, uniform on [0, 1)" in out
    (described,) = json.loads(patcomp("run", path, "--json", "--seed", "3").out)["outputs"]
    assert described["min"] < -1  # normal numbers beside those between 0 and 1
    assert patcomp("run", path, "--json", "--seed", "3").out != patcomp("run", path, "--json").out
    assert "passed" in patcomp("verify", model, path).out
    assert "noise" not in patcomp("diff", model, path).out  # only the name of the other input differs


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["run", "picks.aimodel", "--size", "x:1=7"], 2, "the input has no such dynamic dimension; there are x:0"),
        (["run", "picks.aimodel", "--size", "x=7"], 2, "must have the form INPUT:AXIS=SIZE"),
        (["inspect", "broken.aimodel"], 1, "error: the asset 'broken.aimodel' cannot be read"),
        (["verify", "models.py:net", "sums.aimodel"], 1, "sums.aimodel is not an asset of models.py:net"),
        (["verify", "models.py:sums", "net.aimodel"], 1, "net.aimodel is not an asset of models.py:sums"),
    ],
)
def test_mistakes_are_messages(
    patcomp: Command, assets: Path, tmp_path: Path, arguments: list[str], code: int, complaint: str
) -> None:
    shutil.copytree(assets, tmp_path, dirs_exist_ok=True)
    shutil.copytree(assets / "net.aimodel", tmp_path / "broken.aimodel")
    program = tmp_path / "broken.aimodel" / "main.mlirb"
    program.write_bytes(program.read_bytes()[:-200])
    done = patcomp(*arguments)
    assert (done.code, done.out) == (code, ""), done.err
    assert complaint in done.err


@pytest.mark.parametrize("name", ["net", "sums", "picks"])
def test_verify(patcomp: Command, assets: Path, name: str) -> None:
    done = patcomp("verify", f"{assets}/models.py:{name}", f"{assets}/{name}.aimodel", "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["passed"]
    names = [error["name"] for error in found["errors"]]
    assert names == {"net": ["linear"], "sums": ["z", "b_total", "b_twice"], "picks": ["to"]}.get(name, names)
    assert len(names) == {"sums": 3}.get(name, 1)


def test_verify_finds_other_numbers(patcomp: Command, assets: Path) -> None:
    done = patcomp("verify", f"{assets}/models.py:changed", f"{assets}/net.aimodel")
    assert done.code == 3
    assert "FAILED" in done.out
    assert "the asset holds other weights than" in done.err
    assert "1 of its constants differs" in done.err


def test_verify_tells_wrong_numbers_from_other_weights(patcomp: Command, tmp_path: Path, assets: Path) -> None:
    text = MODELS.replace("return y if scale", "y = y.sin()\n        return y if scale")
    (tmp_path / "wrong.py").write_text(text)
    done = patcomp("verify", "wrong.py:net", f"{assets}/net.aimodel")
    assert (done.code, "other weights" in done.err) == (3, False), done.err


def test_diff_of_models_and_assets(patcomp: Command, assets: Path) -> None:
    models, asset = f"{assets}/models.py", f"{assets}/net.aimodel"
    same = patcomp("diff", f"{models}:net", asset)
    assert (same.code, same.out) == (0, "the programs have the same structure\n")
    other = patcomp("diff", f"{models}:changed", asset)
    assert (other.code, other.out) == (3, "weights with other values\n  linear.weight\n")
    found = json.loads(patcomp("diff", asset, f"{models}:scaled", "--json").out)
    assert not found["same"]
    (graph,) = found["graphs"]
    assert graph["graph"] == "main"
    assert [line[:2] for line in graph["lines"]] == ["- ", "+ ", "+ ", "+ ", "~ "]


PROGRAM = """
module {
  coreai.graph @main(%x: tensor<2xf32> {coreai.name = "x"}, %y: tensor<2xf32> {coreai.name = "y"}) ->
      (tensor<2xf32> {coreai.name = "out"}) {
    %0 = coreai.add %x, %y : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    %1 = coreai.sub %0, %y : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    coreai.output %1 : tensor<2xf32>
  }
}
"""


def test_diff_of_texts(patcomp: Command, tmp_path: Path) -> None:
    renamed = PROGRAM.replace("%0", "%sum").replace("%1", "%result")
    swapped = PROGRAM.replace("sub %0, %y", "sub %y, %0")
    (tmp_path / "a.mlir").write_text(PROGRAM)
    (tmp_path / "b.mlir").write_text(renamed)
    (tmp_path / "c.mlir").write_text(swapped)
    assert patcomp("diff", "a.mlir", "b.mlir").code == 0
    done = patcomp("diff", "a.mlir", "c.mlir")
    assert done.code == 3
    assert [line.strip()[:2] for line in done.out.splitlines()[1:]] == ["~ ", "~ "]
    assert "operand 1 is of coreai.add, and was argument %y" in done.out


def test_an_op_in_the_other_branch() -> None:
    def text(first: str, second: str) -> str:
        one = "tensor<2xf32> -> tensor<2xf32>"
        return "\n".join(
            [
                'module { coreai.graph @main(%c: tensor<i1> {coreai.name = "c"}, %x: tensor<2xf32> {coreai.name ='
                ' "x"}) -> (tensor<2xf32> {coreai.name = "out"}) {',
                f'%1 = "coreai.if"(%c) ({{ {first} "coreai.yield"(%x) : (tensor<2xf32>) -> () }}, {{ {second}',
                f'%3 = coreai.cos %x : {one}\n"coreai.yield"(%3) : (tensor<2xf32>) -> () }}) : (tensor<i1>) ->',
                "tensor<2xf32>\ncoreai.output %1 : tensor<2xf32>\n} }",
            ]
        )

    sine = "%2 = coreai.sin %x : tensor<2xf32> -> tensor<2xf32>\n"
    found = difference(IRModule.parse(text(sine, "")), IRModule.parse(text("", sine)))
    assert [line[0] for line in found.graphs[0].lines] == ["~"]
    assert found.graphs[0].lines[0].endswith("it is in another region")


def test_a_long_program_with_a_change_in_each_layer() -> None:
    def text(layers: int, op: str) -> str:
        one, two = "tensor<2xf32> -> tensor<2xf32>", "(tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>"
        lines = [f"%v0 = coreai.sin %x : {one}"]
        for layer in range(layers):
            lines.append(f"%a{layer} = coreai.cos %v{layer} : {one}")
            lines.append(f"%b{layer} = coreai.{op} %v{layer} : {one}")
            lines.append(f"%v{layer + 1} = coreai.add %a{layer}, %b{layer} : {two}")
        lines.append(f"coreai.output %v{layers} : tensor<2xf32>")
        head = 'coreai.graph @main(%x: tensor<2xf32> {coreai.name = "x"}) -> (tensor<2xf32> {coreai.name = "out"})'
        return "\n".join(["module {", head, "{", *lines, "}", "}"])

    found = difference(IRModule.parse(text(60, "exp")), IRModule.parse(text(60, "tanh")))
    signs = [line[0] for line in found.graphs[0].lines]
    assert (signs.count("-"), signs.count("+"), signs.count("~")) == (60, 60, 0)


@pytest.mark.parametrize("count", [40, 160])  # decimals, and a hexadecimal string
def test_the_difference_of_long_constants_fits_a_screen(count: int) -> None:
    def program(last: float) -> IRModule:
        numbers = ", ".join(["0.5"] + ["1.0"] * (count - 2) + [str(last)])
        return IRModule.parse(f"""module {{ coreai.graph @main() -> (tensor<{count}xf32> {{coreai.name = "out"}}) {{
            %0 = coreai.constant dense<[{numbers}]> : tensor<{count}xf32>
            coreai.output %0 : tensor<{count}xf32> }} }}""")

    found = difference(program(1.0), program(2.0))
    assert [line[0] for line in found.graphs[0].lines][:2] == ["-", "+"]
    assert all(
        "0.5, 1, 1, 1, 1, 1, 1, 1, ...]> : tensor<" in line and len(line) < 300 for line in found.graphs[0].lines[:2]
    )
    assert not difference(program(2.0), program(2.0))
