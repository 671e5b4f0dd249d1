"""`to_coreai(sizes=...)`: an entry point for each size of a dynamic dimension."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.export import Dim

from patcomp import TorchConverter
from patcomp.ir.weights import stored_weights


class Net(nn.Module):
    """Whose weight is moved for a target, and which counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 64)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        return self.linear(x) @ y


def net() -> tuple[nn.Module, TorchConverter]:
    torch.manual_seed(0)
    model = Net().eval()
    rows = Dim("rows", min=2, max=64)
    shapes = {"x": {0: rows}, "y": {1: Dim("width", max=8)}}
    exported = torch.export.export(model, (torch.rand(6, 64), torch.rand(64, 3)), dynamic_shapes=shapes)
    return model, TorchConverter().add_exported_program(exported)


def test_an_entry_point_for_each_size() -> None:
    """With the program of the size alone, the weights once, a state that passes from one to the other, and an audit."""
    model, converter = net()
    program = converter.to_coreai(target="neural_engine", fixed={"width": 2}, sizes={"rows": (8, 3)})
    assert program.entrypoints == ("main_8", "main_3")
    alone = converter.to_coreai(target="neural_engine", fixed={"width": 2, "rows": 3})
    body = str(alone.graph("main")).partition("{")[2]
    assert str(program.graph("main_3")).partition("{")[2] == body
    weights = [sum(weight.bytes for weight in stored_weights(each.module)) for each in (program, alone)]
    assert weights[0] == weights[1] >= 64 * 64 * 2
    for rows in (3, 8):
        inputs = torch.rand(rows, 64), torch.rand(64, 2)
        assert program.verify_against(
            model, inputs, entrypoint=f"main_{rows}", backends=["evaluator"], by="module"
        ).passed
    state = program.new_state("main_8")
    for rows in (8, 3):
        program.run(torch.rand(rows, 64), torch.rand(64, 2), entrypoint=f"main_{rows}", state=state)
    assert [value.item() for value in state.values()] == [2]
    assert {name: each.to_dict() for name, each in program.audit_each("neural_engine").items()} == {
        f"main_{rows}": alone.audit("neural_engine").to_dict() for rows in (8, 3)
    }


def test_each_audit_is_of_its_entry_point_alone() -> None:
    """Also of the composites that only one of them calls."""
    _, converter = net()
    norm = torch.export.export(nn.LayerNorm(4), (torch.rand(1, 4),))
    program = converter.add_exported_program(norm, entrypoint_name="norm").to_coreai(sizes={"rows": (8,)})
    audits = program.audit_each("neural_engine")
    assert [*audits] == ["main_8", "norm"]
    main, alone = ({each.what: each.count for each in audits[name].findings} for name in audits)
    whole = {each.what: each.count for each in program.audit("neural_engine").findings}
    assert whole["f32 values"] == main["f32 values"] + alone["f32 values"]
    assert alone["f32 values"] > 0


def test_sizes_of_several_dimensions() -> None:
    """Each choice; an entry point without the dimension stays."""
    _, converter = net()
    converter.add_exported_program(torch.export.export(nn.Linear(4, 2), (torch.rand(1, 4),)), entrypoint_name="other")
    program = converter.to_coreai(sizes={"rows": (3, 8), "width": [1, 2]})
    assert program.entrypoints == ("main_3_1", "main_3_2", "main_8_1", "main_8_2", "other")
    assert [spec.shape for spec in program.signature("main_8_1").inputs] == [(8, 64), (64, 1)]


def test_what_is_refused() -> None:
    _, converter = net()
    for sizes, message in (
        ({"rows": (3, 65)}, r"rows cannot be 65; there are rows \(2 to 64\), width \(0 to 8\)"),
        ({"length": (3,)}, "no dimension is called 'length'; there are rows"),
        ({"rows": (3, True)}, "rows takes a list of sizes"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            converter.to_coreai(sizes=sizes)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"rows is in fixed and in sizes \(--fix and --sizes\)"):
        converter.to_coreai(fixed={"rows": 3}, sizes={"rows": (4, 5)})
    odd = torch.export.export(nn.Linear(4, 2), (torch.rand(1, 4),))
    converter.add_exported_program(odd, entrypoint_name="main_3")
    with pytest.raises(ValueError, match="several entry points would be called main_3; stage them under other names"):
        converter.to_coreai(sizes={"rows": (3, 8)})


def test_the_asset_has_the_weights_once(tmp_path: Path) -> None:
    _, converter = net()
    small, large = (
        converter.to_coreai(sizes={"rows": rows}).save_asset(tmp_path / f"{len(rows)}.aimodel", writer="python").path
        for rows in ((3,), (3, 8, 16))
    )
    assert (large / "main.mlirb").stat().st_size - (small / "main.mlirb").stat().st_size < 64 * 64
