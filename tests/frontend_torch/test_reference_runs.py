"""`save_intermediates` and `save_asset(debug_info=True)`: what Core AI Debugger compares, and where it leads to."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from patcomp import AIProgram, TorchConverter
from patcomp.emit.asset import Asset
from patcomp.emit.native import Native
from patcomp.emit.stored.debug_mappings import mappings
from patcomp.emit.stored.folder import read_folder
from patcomp.emit.stored.storing import stored_program
from patcomp.errors import AssetError, ConversionWarning, EvaluationError
from patcomp.evaluate.machine import Machine, evaluate
from patcomp.ir import IRModule
from patcomp.ir.xdsl import set_name


class Scale(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(size) + 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(x) * self.weight


class Net(nn.Module):
    """A composite, several results of a node, a value that is moved, and a buffer that is written to."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(8, 64), nn.LayerNorm(64)
        self.last = nn.Linear(64, 64)
        self.scales = nn.ModuleList([Scale(32), Scale(32)])
        self.register_buffer("total", torch.ones(32))

    def forward(self, x: torch.Tensor, shift: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        left, right = self.last(self.norm(self.linear(x))).chunk(2, 1)
        y = self.scales[0](left) + self.scales[1](right)
        self.total.add_(y.sum(0))
        return (y + shift).T.reshape(-1).bfloat16(), self.total * 2


INPUTS = torch.linspace(-2, 2, 24).reshape(3, 8), torch.ones(32)


def net() -> nn.Module:
    torch.manual_seed(0)
    return Net().eval()


def converter(model: nn.Module, **options: Any) -> TorchConverter:
    exported = torch.export.export(model, INPUTS)
    return TorchConverter(**options).add_exported_program(exported, state_names=["total"])


def metadata(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "metadata.json").read_text())


def arrays(folder: Path) -> dict[str, np.ndarray]:
    found = metadata(folder)
    described = [each for kind in ("inputs", "outputs", "intermediates") for each in found[kind].values()]
    return {each["node_name"]: np.load(folder / each["data_file"]) for each in described}


def mapped(folder: Path) -> dict[tuple[str, int], tuple[int, int]]:
    """The op and its result, by node and its result."""
    found = metadata(folder)["mappings"]
    names = {number: each["identifiers"][0] for number, each in found["sources"]["torch"].items()}
    places = {
        (names[str(each["source_op_id"])], each["source_output"]): (each["target_op_id"], each["target_output"])
        for each in found["outputs"]
    }
    assert len(places) == len(found["outputs"]), "a result of a node has one op"
    return places


def facts_of(asset: Path) -> dict[int, tuple[str, dict[str, Any]]]:
    """The name of each stored op and its metadata, by its number; those of the first node where an op has several."""

    def plain(value: Any) -> Any:
        match value:
            case ("dictionary", items):
                return {key: plain(each) for _, key, (each,) in items}
            case ("array", items):
                return [plain(each) for each in items]
            case ("integer", (_, _, number)):
                return number
        return value[1]

    found = {}
    for graph in read_folder(asset).asset.regions[0][0].ops:
        for op in (*graph.regions[0][0].ops, graph):
            facts: dict[str, Any] = {"location": op.location}
            for _, name, (_, value) in op.location[4]:
                known = plain(value)
                facts[f"{name} {known['type']}" if name == "op_id" else name] = known
            found[facts["op_id coreai"]["value"]] = (op.name, facts)
    return found


def values_of_ops(asset: Asset, inputs: dict[str, Any], state: dict[str, Any], entry: str) -> dict[int, list[Any]]:
    """What each op of an asset computes on the evaluator, by its number in the debug information."""
    numbers = {}
    stored = read_folder(asset.path).asset.regions[0][0].ops
    for graph, loaded in zip(stored, asset.module.graphs, strict=True):
        for op, own in zip(graph.regions[0][0].ops, loaded.regions[0].block.ops, strict=True):
            (number,) = (
                value[1][1][2][0][1][2]
                for _, name, (_, value) in op.location[4]
                if name == "op_id" and value[1][0][2][0] == ("string", "coreai")
            )
            numbers[own] = number
    found: dict[int, list[Any]] = {}

    def watch(op: Any, results: Any) -> None:
        if op in numbers:
            found[numbers[op]] = list(results)

    machine = Machine(asset.module, watch=watch)
    evaluate(asset.module, inputs, entry=entry, state=state, machine=machine)
    return found


@pytest.fixture(scope="module")
def program() -> AIProgram:
    return converter(net()).to_coreai()


def test_the_values_of_the_exported_model(program: AIProgram, tmp_path: Path) -> None:
    model = net()
    run = program.save_intermediates(tmp_path / "net.aimodelintermediates", INPUTS)
    found, values = metadata(run), arrays(run)
    assert run == tmp_path / "net.aimodelintermediates"
    assert [*found["inputs"]] == ["x", "shift"]
    assert found["inputs"]["x"] == {
        "node_name": "x", "node_op": "placeholder", "node_target": "x", "data_file": found["inputs"]["x"]["data_file"],
        "shape": [3, 8], "torch_dtype": "torch.float32", "numel": 24,
    }  # fmt: skip
    weights = {name: each for name, each in found["intermediates"].items() if each["node_op"] == "get_attr"}
    assert weights["linear_weight"]["node_target"] == "linear.weight"
    for name, tensor in model.state_dict().items():
        assert np.array_equal(values[name.replace(".", "_")], tensor), name
    with torch.no_grad():
        linear = model.linear(INPUTS[0])
        halves = model.last(model.norm(linear)).chunk(2, 1)
        y = sum(scale(half) for scale, half in zip(model.scales, halves, strict=True))
        expected = model(*INPUTS)
    for name, tensor in (("linear", linear), ("layer_norm", model.norm(linear)), ("add", y)):
        np.testing.assert_array_equal(values[name], tensor.detach())
    assert not {"chunk", "getitem", "reshape"} & found["intermediates"].keys()
    outputs = list(found["outputs"].values())
    assert [each["torch_dtype"] for each in outputs] == ["torch.float32"] * 3  # bfloat16 is stored as float32
    results = [values[each["node_name"]] for each in outputs]
    for tensor in (expected[0].float(), expected[1], model.total):
        assert any(each.shape == tensor.shape and np.array_equal(each, tensor) for each in results)


def test_each_mapped_op_computes_the_value_of_its_node(program: AIProgram, tmp_path: Path, native: Native) -> None:
    asset = program.save_asset(tmp_path / "net.aimodel", debug_info=True)
    run = program.save_intermediates(tmp_path / "net.aimodelintermediates", INPUTS)
    again = program.save_intermediates(tmp_path / "again.aimodelintermediates", INPUTS, asset=asset.path)
    assert mapped(run) == mapped(again)
    assert {name for name, _ in mapped(run)} >= {"linear", "layer_norm", "chunk", "sigmoid", "mul", "add", "mul_2"}
    assert {output for name, output in mapped(run) if name == "chunk"} == {0, 1}
    inputs, state = dict(zip(("x", "shift"), INPUTS, strict=True)), {"total": torch.ones(32)}
    computed, values = values_of_ops(asset, inputs, state, "main"), arrays(run)
    checked = 0
    for (name, output), (op, result) in mapped(run).items():
        if name in values:
            given = computed[op][result].float()
            np.testing.assert_allclose(given, values[name].astype(np.float32), rtol=1e-5, atol=1e-5, err_msg=name)
            checked += 1
        assert output == result or name != "chunk"
    assert checked >= 8
    given, _ = native.call(asset.path, inputs)  # coreai-core takes the locations
    expected = program.run(*INPUTS)
    np.testing.assert_allclose(np.asarray(list(given.values())[-1], np.float32), expected[1], rtol=1e-5)


def test_the_places_of_an_op(program: AIProgram, tmp_path: Path) -> None:
    asset = program.save_asset(tmp_path / "net.aimodel", debug_info=True).path
    number, _ = mapped(program.save_intermediates(tmp_path / "net.aimodelintermediates", INPUTS))["sigmoid_1", 0]
    name, facts = facts_of(asset)[number]
    assert name == "sigmoid_v1"
    assert facts["call_stack"] == ["Scale$2", "Net$1"]
    assert facts["sources"] == [{"id": facts["op_id torch"]["value"], "identifiers": ["sigmoid_1"], "name": "torch"}]
    assert facts["output_maps"][0]["source"]["id"] == facts["op_id torch"]["value"]
    _, (_, file, line, *_), scope, others, _ = facts["location"]
    assert (file[1], scope) == (__file__, ("symbol_ref_v1", ("main",)))
    lines = Path(__file__).read_text().splitlines()
    assert "torch.sigmoid(x) * self.weight" in lines[line - 1]
    assert [lines[other[1][2] - 1].strip() for other in others][-1].startswith("y = self.scales[0](left)")
    unit = read_folder(asset).asset.location[2]
    assert unit[0] == "compile_unit"
    own = next(each for each in unit[6] if each[1] == Path(__file__).name)
    assert own[2:] == (str(Path(__file__).parent), hashlib.sha256(Path(__file__).read_bytes()).hexdigest())
    assert not any(Path(each[2], each[1]).match("*/patcomp/*") for each in unit[6])
    for number, (name, facts) in facts_of(asset).items():
        nested = [inner for other in facts["location"][3] for inner in other[3]]
        assert not nested, f"{name} {number}: OS 27 does not load deeper locations"
    plain = program.save_asset(tmp_path / "plain.aimodel", writer="python").path
    assert str(Path(__file__).parent).encode() not in (plain / "main.mlirb").read_bytes()


def test_several_entry_points_and_modules_that_stay_graphs(tmp_path: Path) -> None:
    """Nodes of equal names in two entry points; a graph that is called twice stands for two nodes."""

    class Twice(nn.Module):
        def __init__(self, scales: int) -> None:
            super().__init__()
            self.scales = nn.ModuleList([Scale(8) for _ in range(scales)])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(2 if len(self.scales) == 1 else 1):
                for scale in self.scales:
                    x = scale(x) + 1
            return x

    staged = TorchConverter()
    models = {"shared": Twice(1).eval(), "apart": Twice(2).eval()}
    for name, model in models.items():
        staged.add_pytorch_module(
            model,
            export_fn=lambda model: torch.export.export(model, INPUTS[:1]),
            externalize_modules=[Scale],
            entrypoint_name=name,
        )
    program = staged.to_coreai()
    asset = program.save_asset(tmp_path / "net.aimodel", debug_info=True)
    for name, model in models.items():
        run = program.save_intermediates(tmp_path / f"{name}.aimodelintermediates", INPUTS[:1], entrypoint=name)
        values, computed = arrays(run), values_of_ops(asset, {"x": INPUTS[0]}, {}, name)
        for (node, _), (op, result) in mapped(run).items():
            np.testing.assert_allclose(
                computed[op][result], values[node], rtol=1e-5, atol=1e-6, err_msg=f"{name} {node}"
            )
        nodes = {node for node, _ in mapped(run)}
        assert {"mul", "add", "mul_1", "add_1"} <= nodes
        assert ("sigmoid" in nodes, "sigmoid_1" in nodes) == (name == "apart", name == "apart")
        with torch.no_grad():
            np.testing.assert_array_equal(values["add_1"], model(INPUTS[0]))


def test_an_asset_with_other_weights_or_types(program: AIProgram, tmp_path: Path) -> None:
    with pytest.warns(ConversionWarning, match="no longer in bfloat16"):
        made = converter(net()).to_coreai(target="neural_engine")
    device = made.save_asset(tmp_path / "device.aimodel", debug_info=True)
    small = program.compress("w8", inputs=None).save_asset(tmp_path / "small.aimodel", debug_info=True)
    path = tmp_path / "net.aimodelintermediates"
    for asset, dtype in ((device, torch.float16), (small, torch.float32)):
        program.save_intermediates(path, INPUTS, asset=asset.path)
        inputs = {name: value.to(dtype) for name, value in zip(("x", "shift"), INPUTS, strict=True)}
        computed, values = values_of_ops(asset, inputs, {"total": torch.ones(32, dtype=dtype)}, "main"), arrays(path)
        checked = [
            (torch.as_tensor(values[name]).float(), computed[op][result].float())
            for (name, _), (op, result) in mapped(path).items()
            if name in values
        ]
        assert len(checked) >= 4
        for expected, given in checked:
            torch.testing.assert_close(given, expected, rtol=0.05, atol=0.05)


def test_a_name_of_two_values_is_no_place(program: AIProgram) -> None:
    facts = program.history.debug_facts()  # type: ignore[union-attr]

    def nodes_with_an_op(module: IRModule) -> set[str]:
        nodes, outputs = mappings(stored_program(module, facts))
        return {nodes[each.node] for each in outputs}

    module = program.module.clone()
    assert "sigmoid" in nodes_with_an_op(module)
    other = next(op for op in module.graph("main").walk() if op.results and op.results[0].name_hint == "mul")
    set_name(other.results[0], "sigmoid")
    assert nodes_with_an_op(module) == nodes_with_an_op(program.module) - {"sigmoid", "mul"}


def test_values_that_a_target_stores_transposed(tmp_path: Path) -> None:
    """They keep their names, and the shape does not show the transpose where sizes are equal."""

    class Turned(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return (x.transpose(1, 2) * 3).sigmoid().transpose(1, 2) + x, (y.transpose(1, 2) * 3).exp()

    inputs = torch.rand(1, 4, 4, 8), torch.rand(1, 4, 5, 8)
    staged = TorchConverter().add_exported_program(torch.export.export(Turned(), inputs))
    run = tmp_path / "net.aimodelintermediates"
    for target in (None, "neural_engine"):
        program = staged.to_coreai(target=target)  # type: ignore[arg-type]
        asset = program.save_asset(tmp_path / "net.aimodel", debug_info=True)
        program.save_intermediates(run, inputs)
        dtype = torch.float32 if target is None else torch.float16
        given = {name: value.to(dtype) for name, value in zip(("x", "y"), inputs, strict=True)}
        computed, values = values_of_ops(asset, given, {}, "main"), arrays(run)
        compared = {name: place for (name, _), place in mapped(run).items() if name in values}
        assert "sigmoid" not in compared or target is None
        assert compared
        for name, (op, result) in compared.items():
            torch.testing.assert_close(
                computed[op][result].float(), torch.as_tensor(values[name]), rtol=0.02, atol=0.02, msg=name
            )


def test_a_view_that_stands_for_a_product(tmp_path: Path) -> None:
    """A linear layer over three dimensions is decomposed into a product of a matrix, whose value no op has."""

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 4, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x) + (torch.arange(4.0) * 2).view(1, 4)  # which is one constant

    exported = torch.export.export(Layer(), (torch.rand(2, 3, 8),)).run_decompositions()
    program = TorchConverter().add_exported_program(exported).to_coreai()
    run = program.save_intermediates(tmp_path / "net.aimodelintermediates", (torch.rand(2, 3, 8),))
    views = [node for node in exported.graph.nodes if str(node.target) == "aten.view.default"]
    saved = [node.args[0].name for node in views if node.name in metadata(run)["intermediates"]]
    assert (len(views), saved) == (3, ["mm"])


def test_a_run_that_fails_replaces_nothing(program: AIProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = program.save_intermediates(tmp_path / "net.aimodelintermediates", INPUTS)
    before = metadata(run)
    calls = []

    def full(path: object, *_: object, **__: object) -> None:
        calls.append(path)
        if len(calls) > 3:
            raise OSError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr("patcomp.emit.files.intermediates.np.save", full)
        with pytest.raises(OSError, match="no space left"):
            program.save_intermediates(run, (INPUTS[0] + 1, INPUTS[1]))
    assert metadata(run) == before
    assert [each.name for each in tmp_path.iterdir()] == ["net.aimodelintermediates"]


def test_what_is_refused(program: AIProgram, tmp_path: Path) -> None:
    path = tmp_path / "net.aimodelintermediates"
    with pytest.raises(ValueError, match=r"must end in .aimodelintermediates, got 'net'"):
        program.save_intermediates("net", INPUTS)
    (tmp_path / "other.aimodelintermediates").mkdir()
    (tmp_path / "other.aimodelintermediates" / "notes.txt").touch()
    with pytest.raises(FileExistsError, match="it is no reference run"):
        program.save_intermediates(tmp_path / "other.aimodelintermediates", INPUTS)
    with pytest.raises(EvaluationError):
        program.save_intermediates(path, (INPUTS[0][:2, :3], INPUTS[1]))
    plain = program.save_asset(tmp_path / "plain.aimodel", writer="python").path
    with pytest.raises(AssetError, match=r"has no debug information; save it with debug_info=True \(--debug-info\)"):
        program.save_intermediates(path, INPUTS, asset=plain)
    other = TorchConverter().add_exported_program(torch.export.export(nn.ReLU(), (torch.rand(2),))).to_coreai()
    foreign = other.save_asset(tmp_path / "other.aimodel", debug_info=True).path
    with pytest.raises(AssetError, match="was made of another model, or has other entry points: its node relu"):
        program.save_intermediates(path, INPUTS, asset=foreign)
    with pytest.raises(ValueError, match="patcomp itself writes debug information"):
        program.save_asset(tmp_path / "a.aimodel", debug_info=True, writer="coreai")
    released = converter(net(), mode=TorchConverter.Mode.RELEASE).to_coreai()
    with pytest.raises(LookupError, match=r"a program of Mode\.RELEASE has no debug information"):
        released.save_asset(tmp_path / "a.aimodel", debug_info=True)
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "other.aimodel", "other.aimodelintermediates", "plain.aimodel",
    ]  # fmt: skip
