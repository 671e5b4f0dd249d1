"""Assets that patcomp and coreai-core write compute the same bits on the Core AI runtime."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from patcomp import (
    AIProgram,
    ExternalizeSpec,
    MetalParameter,
    TorchConverter,
    TorchMetalKernel,
    mark_for_externalization,
)
from patcomp.emit.asset import save_asset
from patcomp.emit.bytecode import read_program
from patcomp.emit.native import Native
from patcomp.emit.stored.folder import PROGRAM, read_folder
from patcomp.evaluate.given import as_array
from patcomp.ir import Value, coreai
from patcomp.targets import TARGETS
from tests.asset.structure import encoded, settled, structure
from tests.helpers.programs import program
from tests.networks.zoo import MODELS, build


def saved_by_both(program: AIProgram, folder: Path) -> tuple[Path, Path]:
    """The assets of a program that patcomp and coreai-core write."""
    paths = folder / "python.aimodel", folder / "coreai.aimodel"
    for path in paths:
        program.save_asset(path, writer=path.stem)  # type: ignore[arg-type]
    return paths


def check(native: Native, program: AIProgram, folder: Path, values: Mapping[str, Mapping[str, Any]]) -> bool:
    """Check that both assets of a program compute the same bits; return whether they also have the same structure,
    except for what `settled` names.

    Args:
        values: the inputs by name of each entry point to call.
    """
    paths = saved_by_both(program, folder)
    for entry, inputs in values.items():
        state = {name: as_array(value).copy() for name, value in program.initial_state.get(entry, {}).items()}
        arrays = {name: as_array(value) for name, value in inputs.items()}
        ours, theirs = (native.call(path, arrays, state, entry) for path in paths)
        for mine, other in zip(ours, theirs, strict=True):
            assert mine.keys() == other.keys()
            for name, array in mine.items():
                assert array.tobytes() == other[name].tobytes(), name
    first, second = map(read_folder, paths)
    assert encoded(second) == (paths[1] / PROGRAM).read_bytes()
    return bool(structure(settled(first)) == structure(second))


def converted(model: nn.Module, *inputs: Any, **options: Any) -> AIProgram:
    return TorchConverter().add_exported_program(torch.export.export(model.eval(), inputs, **options)).to_coreai()


def named(program: AIProgram, *inputs: Any, entry: str = "main") -> dict[str, dict[str, Any]]:
    """The inputs of an entry point by name; 64-bit integers become 32-bit."""
    given = [value.int() if value.dtype == torch.int64 else value for value in inputs]
    return {entry: {spec.name: value for spec, value in zip(program.signature(entry).inputs, given, strict=True)}}


def test_control_flow_states_and_open_sizes(native: Native, tmp_path: Path) -> None:
    """A branch that reads a weight, a loop that reads nothing from outside, one that does, and a state."""

    def body(seen: Value, x: Value) -> list[Value]:
        weight = coreai.constant(np.random.default_rng(0).random((24, 24), np.float32))
        content, token = coreai.read_handle(seen, coreai.create_token())
        total = coreai.reshape(coreai.reduce_sum(x, [0, 1]), [0][:0])
        positive = coreai.greater(total, 0.0)
        (y,) = coreai.if_(positive, lambda: [coreai.broadcasting_batch_matmul(x, weight)], lambda: [coreai.sigmoid(x)])
        less = lambda i, z: coreai.greater(coreai.constant(3, "si32"), i)  # noqa: E731
        step = lambda i, z: [coreai.add(i, coreai.constant(1, "si32")), coreai.broadcasting_mul(z, 0.5)]  # noqa: E731
        _, y = coreai.while_([coreai.constant(0, "si32"), y], less, step)
        outer = lambda i, z: [coreai.add(i, coreai.constant(1, "si32")), coreai.broadcasting_add(z, content)]  # noqa: E731
        _, y = coreai.while_([coreai.constant(0, "si32"), y], less, outer)
        return [coreai.softmax(y, -1), coreai.write_handle(seen, coreai.add(content, content), token)]

    module = program({"x": "?x24xf32"}, body, states={"seen": "24xf32"})
    paths = [tmp_path / f"{writer}.aimodel" for writer in ("python", "coreai")]
    for path in paths:
        save_asset(module, path, writer=path.stem)  # type: ignore[arg-type]
    for sign in (1, -1):
        state = {"seen": np.arange(24, dtype=np.float32)}
        x = sign * np.random.default_rng(1).random((5, 24), np.float32)
        (ours, mine), (theirs, other) = (native.call(path, {"x": x}, state) for path in paths)
        assert ours["y0"].tobytes() == theirs["y0"].tobytes()
        assert mine["seen"].tobytes() == other["seen"].tobytes()
    assert structure(read_folder(paths[0])) == structure(read_folder(paths[1]))
    data = (paths[1] / "main.mlirb").read_bytes()
    assert encoded(read_program(data)) == data


def test_equal_weights_of_two_shapes_are_stored_once(native: Native, tmp_path: Path) -> None:
    """As in GPT-2 for the Neural Engine, where a lookup and a product read one matrix in two shapes."""
    weight = np.arange(400, dtype=np.float32)

    def body(x: Value) -> Value:
        y = coreai.reshape(coreai.add(x, coreai.constant(weight)), [20, 20])
        return coreai.broadcasting_add(
            coreai.mul(y, coreai.constant(weight.reshape(20, 20))), coreai.constant(weight[:20])
        )

    module = program({"x": "400xf32"}, body)
    paths = [tmp_path / f"{writer}.aimodel" for writer in ("python", "coreai")]
    for path in paths:
        save_asset(module, path, writer=path.stem)  # type: ignore[arg-type]
    first, second = map(read_folder, paths)
    assert [len(weight.data) for weight in first.weights.values()] == [1600]
    assert structure(first) == structure(second)
    (ours, _), (theirs, _) = (native.call(path, {"x": weight}, {}) for path in paths)
    assert ours["y0"].tobytes() == theirs["y0"].tobytes()


class Norm(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x / x.abs().sum(-1, keepdim=True)


def test_several_entry_points_and_externalized_modules(native: Native, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 20), Norm(), nn.Linear(20, 20), Norm()).eval()
    converter = TorchConverter()
    inputs = {"prefill": (torch.randn(6, 20),), "decode": (torch.randn(1, 20),)}
    with mark_for_externalization(model, [ExternalizeSpec(Norm, "my_norm", [])]) as marking:
        for entry, arguments in inputs.items():
            exported = torch.export.export(model, arguments)
            marking.check(exported)
            converter.add_exported_program(exported, entrypoint_name=entry)
        made = converter.to_coreai()
    calls: dict[str, dict[str, Any]] = {}
    for entry, arguments in inputs.items():
        calls |= named(made, *arguments, entry=entry)
    assert check(native, made, tmp_path, calls)


class Tied(nn.Module):
    """A lookup, a product with a bias, and a product whose weight the lookup also reads."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.up, self.down = nn.Embedding(96, 64), nn.Linear(64, 128), nn.Linear(128, 64)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        return (x + self.down(torch.relu(self.up(x)))) @ self.embedding.weight.t()


@pytest.mark.parametrize("scheme", ["w4_block32", "sparse75_pal4"])
def test_compressed_weights(native: Native, tmp_path: Path, scheme: str) -> None:
    _compressed(native, tmp_path, scheme)


@pytest.mark.slow
@pytest.mark.parametrize(
    "scheme",
    ["w8", "w4", "w2_block32", "pal8", "pal6", "pal4", "pal4_group16", "pal3", "pal1", "pal4_vector2", "pal8_vector4",
     "sparse50", "sparse50_w8"],
)  # fmt: skip
def test_all_compression_schemes(native: Native, tmp_path: Path, scheme: str) -> None:
    _compressed(native, tmp_path, scheme)


def _compressed(native: Native, folder: Path, scheme: str) -> None:
    tokens = torch.arange(12).reshape(2, 6) * 7
    made = converted(Tied(), tokens).compress(scheme)
    assert check(native, made, folder, named(made, tokens))


def torch_add(x: Tensor, y: Tensor) -> Tensor:
    return x + y


ADD = TorchMetalKernel(
    "vector_add",
    input_names=["x", "y"],
    result_names=["output"],
    src="output[id] = x[id] + y[id];",
    torch_defn=torch_add,
    metal_params=[MetalParameter("id", "uint", "thread_position_in_grid")],
)


class Add(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        sizes = {"threads_per_grid": (4, 1, 1), "threads_per_thread_group": (1, 1, 1)}
        return ADD(x * 2, y, result_shapes=[x.shape], **sizes)  # type: ignore[no-any-return]


def test_metal_kernels_have_the_native_structure(tmp_path: Path) -> None:
    """The runtime of Linux has no Metal."""
    pytest.importorskip("coreai")
    exported = torch.export.export(Add().eval(), (torch.rand(4), torch.rand(4)))
    made = TorchConverter().register_custom_kernels([ADD]).add_exported_program(exported).to_coreai()
    assert any(op.name == "coreai.metal4_kernel" for op in made.module.op.walk())
    first, second = map(read_folder, saved_by_both(made, tmp_path))
    assert structure(first) == structure(second)


def test_equal_programs_become_equal_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    for name in ("first", "second"):
        converted(Tied(), torch.arange(12).reshape(2, 6)).save_asset(tmp_path / f"{name}.aimodel", writer="python")
    for file in ("main.mlirb", "main.hash", "metadata.json"):
        first, second = ((tmp_path / f"{name}.aimodel" / file).read_bytes() for name in ("first", "second"))
        assert first == second


def test_metadata_is_that_of_the_toolchain(tmp_path: Path) -> None:
    toolchain = pytest.importorskip("coreai.runtime")
    metadata = toolchain.AIModelAssetMetadata()
    metadata.author, metadata.license, metadata.model_description = "Ada", "MIT", 'a "net" / é'
    metadata.set_custom("n", {"a": [1, 2.5, True, "s"]})
    made = converted(Norm(), torch.rand(2, 4))
    found = []
    for writer in ("python", "coreai"):
        asset = made.save_asset(tmp_path / f"{writer}.aimodel", metadata, writer=writer)
        native = asset.metadata
        found.append((native.author, native.license, native.model_description, native.creator_defined_metadata))
        assert asset.summary()
    assert found[0] == found[1]


GATHERED = ("bert", "gpt2")
"""Where coreai-core computes a lookup of weights at constant positions."""


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_networks(native: Native, tmp_path: Path, name: str) -> None:
    example = build(name)
    made = converted(example.model, *example.args)
    assert check(native, made, tmp_path, named(made, *example.args)) == (name not in GATHERED)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", MODELS)
def test_the_structure_of_networks_for_devices(tmp_path: Path, name: str, target: str) -> None:
    pytest.importorskip("coreai")
    example = build(name)
    converter = TorchConverter().add_exported_program(torch.export.export(example.model, example.args))
    paths = saved_by_both(converter.to_coreai(target=target), tmp_path)  # type: ignore[arg-type]
    first, second = map(read_folder, paths)
    assert encoded(second) == (paths[1] / PROGRAM).read_bytes()
    assert structure(settled(first)) == structure(second)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["gpu", "neural_engine"])
def test_networks_for_devices(native: Native, tmp_path: Path, target: Literal["gpu", "neural_engine"]) -> None:
    example = build("vit")
    converter = TorchConverter().add_exported_program(torch.export.export(example.model, example.args))
    made = converter.to_coreai(target=target)
    values = {
        spec.name: np.random.default_rng(0).random(spec.shape).astype(np.dtype(f"float{spec.element_type[1:]}"))  # type: ignore[arg-type]
        for spec in made.signature().inputs
    }
    check(native, made, tmp_path, {"main": values})
