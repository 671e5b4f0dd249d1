"""ExecuTorch with patcomp: which nodes are delegated, and that each delegate's asset has PyTorch's numbers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

pytest.importorskip("executorch")

from executorch.backends.apple import coreai
from executorch.backends.apple.coreai.partition.partitioner import do_not_delegate
from executorch.exir import to_edge_transform_and_lower
from executorch.exir.lowered_backend_module import executorch_call_delegate, get_lowered_backend_modules
from executorch.exir.pass_base import PassResult

from patcomp import PatcompError
from patcomp.interface.graphs import argument_types
from patcomp_executorch import CoreAIPartitioner, delegated_assets


class Block(nn.Module):
    """Ops that ExecuTorch's edge dialect takes apart or copies, and ids of 64 bits."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.norm, self.linear = nn.Embedding(16, 8), nn.LayerNorm(8), nn.Linear(8, 8)

    def forward(self, ids: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.linear(self.norm(self.embedding(ids) + x))
        attended = nn.functional.scaled_dot_product_attention(y, y, y)
        return attended.transpose(1, 2)[:, :4], attended.cumsum(1)


def lowered(model: nn.Module, inputs: tuple[Any, ...], partitioner: CoreAIPartitioner, **options: Any) -> Any:
    sizes = options.pop("dynamic_shapes", None)
    exported = torch.export.export(model.eval(), inputs, dynamic_shapes=sizes)
    return to_edge_transform_and_lower(
        exported,
        partitioner=[partitioner],
        transform_passes=[*coreai.get_default_passes(), *options.pop("passes", ())],
        compile_config=coreai.get_default_compile_config(),
    )


def ops_outside(program: Any) -> list[str]:
    calls = [node for node in program.graph.nodes if node.op == "call_function"]
    names = [str(node.target) for node in calls if node.target is not executorch_call_delegate]
    return [name for name in names if "getitem" not in name]


def test_a_delegate_has_the_numbers_of_the_model(tmp_path: Path) -> None:
    """Only the casts of the ids stay outside; the file has the asset, and attention is one composite in it."""
    model, inputs = Block(), (torch.randint(0, 16, (2, 4)), torch.randn(2, 4, 8))
    partitioner = CoreAIPartitioner(min_deployment_version="27")
    manager = lowered(model, inputs, partitioner)
    program = manager.exported_program()
    assert all("_to_copy" in name for name in ops_outside(program))
    assert all("torch.int64" in reason for reason in partitioner.left_out.values())
    (asset,) = delegated_assets(program, tmp_path)
    ids, x = argument_types(asset.module.graph("main"))
    found = asset.evaluate({ids: inputs[0].int(), x: inputs[1]})
    for output, expected in zip(found.values(), model(*inputs), strict=True):
        torch.testing.assert_close(torch.from_numpy(output), expected)
    (module,) = get_lowered_backend_modules(program.graph_module)
    manifest = json.loads(bytes(module.processed_bytes))
    assert (module.backend_id, manifest["packaging"], manifest["min_deployment_version"]) == (
        "CoreAIBackend", "inline", "27.0",
    )  # fmt: skip
    assert (asset.path / "main.mlirb").read_bytes() in bytes(manager.to_executorch().buffer)


class Noisy(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        values, order = torch.sort(x * 2.0)
        return values + torch.rand(2, 3), order


def test_what_is_left_out_has_a_reason() -> None:
    """A draw does not convert, and the order is a result of 64 bits."""
    partitioner = CoreAIPartitioner()
    program = lowered(Noisy(), (torch.randn(2, 3),), partitioner).exported_program()
    left = {name.rpartition("aten_")[2]: reason for name, reason in partitioner.left_out.items()}
    outside = ops_outside(program)
    assert {"sort_default", "rand_default"} == left.keys()
    assert "gives a tensor of torch.int64" in left["sort_default"]
    assert "random" in left["rand_default"]
    assert any("sort" in name for name in outside)
    assert not any("mul" in name or "add" in name for name in outside)


class _LeaveProducts:
    def __call__(self, module: torch.fx.GraphModule) -> PassResult:
        for node in module.graph.nodes:
            if "mul" in str(node.target):
                do_not_delegate(node)
        return PassResult(module, True)


class Chain(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (torch.cat([x, x]) + 1.0) * 2.0 - 3.0


def test_assets_beside_the_file_with_enumerated_sizes(tmp_path: Path) -> None:
    """Two delegates around a product; the sizes of the second follow from those of the input."""
    partitioner = CoreAIPartitioner(uses_sidecar=True, input_enumerations=[{0: [2, 5]}])
    with coreai.coreai_sidecar_dir(str(tmp_path)):
        manager = lowered(
            Chain(), (torch.randn(3, 4),), partitioner, passes=[_LeaveProducts()],
            dynamic_shapes={"x": {0: Dim("batch", min=2, max=8)}},
        )  # fmt: skip
    program = manager.exported_program()
    first, second = delegated_assets(program, tmp_path / "none", tmp_path)
    shapes = [_input_shapes(asset) for asset in (first, second)]
    assert sorted(map(sorted, shapes)) == [[(2, 4), (5, 4)], [(4, 4), (10, 4)]]
    assert [name.partition("mul")[1] for name in ops_outside(program)] == ["mul"]


class Pairs(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x + 1.0).reshape(x.shape[0] * 2, 4) * 2.0


def test_sizes_are_computed_inside_of_a_delegate(tmp_path: Path) -> None:
    partitioner = CoreAIPartitioner()
    sizes = {"x": {0: Dim("batch", min=2, max=8)}}
    program = lowered(Pairs(), (torch.randn(3, 8),), partitioner, dynamic_shapes=sizes).exported_program()
    assert (ops_outside(program), partitioner.left_out) == ([], {})
    (asset,) = delegated_assets(program, tmp_path)
    x = torch.randn(5, 8)
    (found,) = asset.evaluate({"x": x}).values()
    torch.testing.assert_close(torch.from_numpy(found), Pairs()(x))


def _input_shapes(asset: Any) -> Sequence[tuple[int, ...]]:
    return [graph.regions[0].block.args[0].type.get_shape() for graph in asset.module.entry_graphs]


def test_other_parts_are_executorchs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of ExecuTorch's own partitioner do not go to patcomp."""
    from executorch.backends.apple.coreai import CoreAIBackend

    from patcomp_executorch import backend

    monkeypatch.setattr(backend, "_convert_by_executorch", lambda program, specs: ("theirs", program, specs))
    assert CoreAIBackend.preprocess("program", []) == ("theirs", "program", [])


def test_recipes(tmp_path: Path) -> None:
    """In float16, weights, inputs and outputs are halves; dynamic sizes are refused."""
    from executorch.export import ExportRecipe, export

    from patcomp_executorch.recipes import PatcompRecipe

    model, x = nn.Sequential(nn.Linear(8, 8), nn.ReLU()).eval(), torch.randn(2, 8)
    session = export(model, [(x,)], ExportRecipe.get_recipe(PatcompRecipe.FP16))
    (asset,) = delegated_assets(session.get_edge_program_manager().exported_program(), tmp_path)
    ((name, type_),) = argument_types(asset.module.graph("main")).items()
    assert "xf16" in str(type_)
    (found,) = asset.evaluate({name: x.half()}).values()
    torch.testing.assert_close(torch.from_numpy(found).float(), model(x), atol=5e-3, rtol=5e-3)
    assert len(session.get_pte_buffer()) > 0
    (in_half,) = ExportRecipe.get_recipe(PatcompRecipe.FP16).aten_transform_passes
    dynamic = torch.export.export(model, (x,), dynamic_shapes={"input": {0: Dim("batch", min=2, max=8)}})
    with pytest.raises(PatcompError, match="forward has dynamic sizes"):
        in_half("forward", dynamic)
    assert model[0].weight.dtype == torch.float32
