"""`to_coreai(fixed=...)`: sizes that are fixed before a target's rules, and targets that take no open ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

from patcomp import AIProgram, TorchConverter
from patcomp.emit.native import Native
from patcomp.errors import ConversionWarning, UnsupportedError
from tests.frontend_torch.models import assert_same, run_on
from tests.frontend_torch.open_models import MODELS, M, N

LENGTH = Dim("length", min=2, max=64)


class Encoder(nn.Module):
    """Composites whose bodies are shared by calls of open sizes, positions, and a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(50, 32), nn.Embedding(64, 32)
        self.norm, self.project, self.last = nn.LayerNorm(32), nn.Linear(32, 96), nn.LayerNorm(32)

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        batch, length = tokens.shape
        x = self.norm(self.embedding(tokens) + self.positions(torch.arange(length)))
        query, key, value = self.project(x).view(batch, length, 3, 4, 8).permute(2, 0, 3, 1, 4)
        x = nn.functional.scaled_dot_product_attention(query, key, value, mask[:, None, None, :].bool())
        return self.last(x.transpose(1, 2).reshape(batch, length, 32))


def inputs_of(length: int) -> tuple[torch.Tensor, torch.Tensor]:
    mask = torch.ones(1, length, dtype=torch.int32)
    mask[:, length - 1] = 0
    return torch.randint(50, (1, length), generator=torch.Generator().manual_seed(0)), mask


def encoder() -> nn.Module:
    torch.manual_seed(0)
    return Encoder().eval()


def staged(model: nn.Module, args: tuple[Any, ...], shapes: Any = None, name: str = "main") -> TorchConverter:
    exported = torch.export.export(model, args, dynamic_shapes=shapes)
    return TorchConverter().add_exported_program(exported, entrypoint_name=name)


def open_encoder(model: nn.Module) -> TorchConverter:
    return staged(model, inputs_of(10), {"tokens": {1: LENGTH}, "mask": {1: LENGTH}})


def ops(program: AIProgram) -> Counter[str]:
    return Counter(op.name for op in program.module.op.walk())


@pytest.mark.parametrize("target", ["neural_engine", "gpu", None])
def test_the_program_of_a_static_export(target: Any, native: Native) -> None:
    """The rules of a target see the sizes: the ops are those of an export with the same sizes."""
    model, inputs = encoder(), inputs_of(24)
    program = open_encoder(model).to_coreai(target=target, fixed={"length": 24})
    static = staged(model, inputs).to_coreai(target=target)
    assert "?" not in str(program)
    assert ops(program) == ops(static)
    assert program.signature().dims == {}
    assert [spec.shape for spec in program.signature().inputs] == [(1, 24), (1, 24)]
    if target is not None:
        assert program.audit(target).to_dict() == static.audit(target).to_dict()
    program.verify_against(model, inputs, backends=["evaluator"]).check()
    if target is None:
        assert_same(run_on(native, program, inputs), model(*inputs))
        assert ops(open_encoder(model).to_coreai().specialize({"length": 24})) == ops(program)


def test_the_stages_and_the_questions() -> None:
    model = encoder()
    program = open_encoder(model).to_coreai(target="neural_engine", fixed={"length": 24})
    assert "?" in program.stages["lower"]
    assert "?" not in program.stages["target"]
    assert "linear as convolution" in program.why_not("linear as convolution")
    assert program.verify_against(model, inputs_of(24), backends=["evaluator"], by="module").passed


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("fixed", [("n", "m"), pytest.param(("m",), marks=pytest.mark.slow)])
def test_branches_loops_and_states(name: str, fixed: tuple[str, ...], native: Native) -> None:
    sizes = {"n": 2, "m": 7}
    converter = staged(MODELS[name](), (torch.randn(3, 5, 4),), {"x": {0: N, 1: M}})
    program = converter.to_coreai(fixed={key: sizes[key] for key in fixed})
    assert list(program.signature().dims) == [key for key in ("n", "m") if key not in fixed]
    x = torch.randn(2, 7, 4)
    assert_same(program.run(x), MODELS[name]()(x.clone()))
    if name != "updates":
        assert_same(run_on(native, program, (x,)), MODELS[name]()(x.clone()))
    else:
        assert program.signature().states[0].shape == (2 if "n" in fixed else "n", 7, 4)


def two_entry_points() -> TorchConverter:
    class Rows(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x * 2 + y.sum(0)

    rows, width = Dim("rows", min=1, max=16), Dim("width", min=2, max=8)
    converter = staged(Rows(), (torch.ones(3, 4), torch.ones(6, 4)), {"x": {0: rows}, "y": {0: 2 * rows}}, "first")
    exported = torch.export.export(
        Rows(), (torch.ones(3, 4), torch.ones(6, 4)), dynamic_shapes={"x": {0: rows, 1: width}, "y": {1: width}}
    )
    return converter.add_exported_program(exported, entrypoint_name="second")


def test_each_entry_point_takes_the_sizes_that_it_has() -> None:
    program = two_entry_points().to_coreai(fixed={"rows": 5, "width": 3}, target="neural_engine")
    assert {name: [spec.shape for spec in program.signature(name).inputs] for name in program.entrypoints} == {
        "first": [(5, 4), (10, 4)],
        "second": [(5, 3), (6, 3)],
    }
    program = two_entry_points().to_coreai(fixed={"width": 3})
    assert program.signature("first").dims == {"rows": (1, 16)}
    assert program.signature("second").dims == {"rows": (1, 16)}


@pytest.mark.parametrize(
    ("fixed", "message"),
    [
        ({"batch": 4}, r"^no dimension is called 'batch'; there are rows \(1 to 16\), width \(2 to 8\)$"),
        ({"rows": 17}, r"^rows cannot be 17; there are rows \(1 to 16\)"),
        ({"rows": 4, "width": 1}, r"^width cannot be 1; there are rows \(1 to 16\), width \(2 to 8\)$"),
        ({"width": "3"}, r"^width cannot be '3'"),
    ],
)
def test_sizes_that_are_refused(fixed: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        two_entry_points().to_coreai(fixed=fixed)


def test_sizes_that_break_a_guard() -> None:
    class Even(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2 if x.shape[0] % 2 == 0 else x + 1

    with pytest.warns(ConversionWarning, match="exported for sizes where"):
        converter = staged(Even(), (torch.randn(4),), {"x": {0: Dim.AUTO}})
    with pytest.raises(ValueError, match=r"exported for sizes where s0 % 2 == 0, which does not hold where s0 is 5"):
        converter.to_coreai(fixed={"s0": 5})
    assert converter.to_coreai(fixed={"s0": 6}, target="neural_engine").signature().guards == ()
    with pytest.raises(TypeError, match=r"sizes are given by the names of dimensions, \{'length': 128\}, got 's0=6'"):
        converter.to_coreai(fixed="s0=6")  # type: ignore[arg-type]


# ---- targets that take fixed sizes only -----------------------------------------------------------------


def test_open_sizes_are_refused_for_the_neural_engine() -> None:
    with pytest.raises(UnsupportedError) as raised:
        two_entry_points().to_coreai(target="neural_engine")
    assert str(raised.value) == (
        "the target neural_engine takes fixed sizes only, and these dimensions are dynamic; fix each of them, such as "
        "fixed={'rows': 16} (--fix rows=16):\n"
        "  1. the dimension rows (1 to 16): x, y of first; x of second\n"
        "  2. the dimension width (2 to 8): x, y of second"
    )
    with pytest.raises(UnsupportedError, match=r"fixed={'width': 8} .*\n  1. the dimension width \(2 to 8\): x, y of"):
        two_entry_points().to_coreai(target="neural_engine", fixed={"rows": 4})
    two_entry_points().to_coreai(target="gpu")


def test_numbers_are_no_sizes() -> None:
    """An integer that the model takes does not make sizes unknown."""

    class Adds(nn.Module):
        def forward(self, x: torch.Tensor, n: int) -> torch.Tensor:
            return x + n

    converter = staged(Adds(), (torch.randn(3), 4), {"x": None, "n": Dim.DYNAMIC})
    assert "?" not in str(converter.to_coreai(target="neural_engine"))


def test_sizes_that_depend_on_data_are_named() -> None:
    converter = staged(MODELS["selects"](), (torch.randn(3, 5, 4),), {"x": {0: N, 1: M}})
    with pytest.warns(ConversionWarning, match="the target neural_engine takes fixed sizes only, and the sizes of "):
        program = converter.to_coreai(target="neural_engine", fixed={"n": 3, "m": 5})
    (problem,) = program.diagnostics
    assert "open_models.py" in problem.source
