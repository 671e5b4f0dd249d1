"""Programs as ONNX models: the same numbers from onnxruntime, and refusals by name."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pytest
import torch
from torch import nn

from patcomp import AIProgram, PatcompError, TorchConverter, UnsupportedError
from patcomp.evaluate.comparison import compare
from patcomp.ir.dialect import OPS
from patcomp.onnx import save_onnx, to_onnx
from patcomp.onnx.emission import emitter, nodes
from patcomp.onnx.emission.model import emit
from patcomp.program.running import run_entry_point
from tests.fuzz import judge
from tests.fuzz.generator import generate
from tests.helpers.command import Command
from tests.networks.zoo import MODELS, build

ENGINES = ["evaluator", "onnxruntime"]
SAMPLE = ("espcn", "unet")


def convert(model: nn.Module, *args: Any, **options: Any) -> AIProgram:
    exported = torch.export.export(model.eval(), args, **options)
    return TorchConverter().add_exported_program(exported).to_coreai()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in SAMPLE else pytest.mark.slow) for name in MODELS]
)
def test_networks(name: str) -> None:
    example = build(name)
    program = convert(example.model, *example.args, strict=False)
    program.verify_against(example.model, example.args, backends=["onnxruntime"]).check()
    model = to_onnx(program)
    onnx.checker.check_model(model)
    functions = [function.doc_string.removeprefix("composite ") for function in model.functions]
    assert {*functions} == {*program.composites}


class Function(nn.Module):
    """A module of a function."""

    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(*args)


F = nn.functional


def elementwise(x: torch.Tensor, n: torch.Tensor) -> dict[str, torch.Tensor]:
    small = n.to(torch.int8)
    return {
        "floor_divide": torch.floor_divide(n, 3), "float floor": torch.floor_divide(x, 0.7),
        "fmod": torch.fmod(n, 3), "power": n**3, "wrapped": small * small * small,
        "comparison": (n > 1) ^ (n == 2), "bools": (n > 1) > (n < 0), "where": torch.where(x > 0, x, -x),
        "rsqrt": torch.rsqrt(x.abs() + 1), "silu": F.silu(x), "gelu": F.gelu(x), "tanh": F.gelu(x, approximate="tanh"),
        "relu": torch.relu(n), "half": F.silu(x.half()) + x.half(), "round": torch.round(x * 3), "erf": torch.erf(x),
        "bits": n & 5 | 8, "maximum": torch.maximum(x, -x), "inf": torch.floor_divide(x / 0, 2.0),
    }  # fmt: skip


def moving(x: torch.Tensor, n: torch.Tensor) -> dict[str, torch.Tensor]:
    updated = x.clone()
    updated[1:3, ::2] = 0.0
    return {
        "reverse": x.flip(0, 1), "updated": updated, "split": x.split(3, 1)[1] + 1, "chunk": x.chunk(2, 0)[1],
        "tile": x.repeat(2, 3), "expand": x[:1].expand(4, 8), "gather": x.gather(1, n), "index": x[n[:, 0]],
        "scatter": x.scatter(1, n, 1.0), "scatter_add": x.scatter_add(1, n, x), "pad": F.pad(x, (1, 2, 0, 1), value=3),
        "reflect": F.pad(x[None], (2, 1), mode="reflect"), "edge": F.pad(x[None], (2, 1), mode="replicate"),
        "circular": F.pad(x[None], (2, 1), mode="circular"), "sub": x.scatter_reduce(1, n, x, "amax"),
        "put": torch.index_put(x, (n[:, 0],), x[0]), "strided": x[::2, 1::3], "range": torch.arange(5) + n[0, 0],
    }  # fmt: skip


def summing(x: torch.Tensor, n: torch.Tensor) -> dict[str, torch.Tensor]:
    image = x.reshape(1, 1, 4, 8)
    values, places = torch.sort(n, dim=1, descending=True, stable=True)
    return {
        "prod": x.prod(1), "any": (x > 1).any(1), "all": (x > -9).all(0), "argmax": x.argmax(1), "values": values,
        "places": places, "topk": x.topk(3).values, "cumsum": x.cumsum(0), "cumprod": x.cumprod(1),
        "cummax": x.cummax(1).values, "backwards": n.flip(1).cummin(1).values, "mean": x.mean(), "amin": n.amin(1),
        "max_pool": F.max_pool2d(image, 3, 2, ceil_mode=True), "avg_pool": F.avg_pool2d(image, 2),
        "bilinear": F.interpolate(image, scale_factor=2, mode="bilinear"), "nearest": F.interpolate(image, (3, 5)),
        "convolution": F.conv2d(image, image[:, :, :2, :3], stride=2, padding=1),
        "transposed": F.conv_transpose2d(image, image[:, :, :2, :3], stride=2, padding=1, output_padding=1),
        "nonzero": torch.nonzero(n > 1).sum(0), "matmul": n.float() @ x.T, "softmax": x.softmax(0),
    }  # fmt: skip


@pytest.mark.parametrize("function", [elementwise, moving, summing], ids=lambda function: function.__name__)
def test_rows(function: Callable[..., Mapping[str, torch.Tensor]]) -> None:
    x, n = torch.randn(4, 8), torch.randint(0, 4, (4, 8))
    model = Function(function)
    program = convert(model, x, n)
    program.verify_against(model, (x, n), backends=ENGINES).check()


def test_bfloat16() -> None:
    model, x = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.SiLU()).bfloat16(), torch.randn(2, 8).bfloat16()
    convert(model, x).verify_against(model, (x,), backends=ENGINES).check()


def test_casts_saturate_as_in_the_program() -> None:
    """PyTorch leaves these numbers open, so eager PyTorch is no judge."""
    x = torch.tensor([-3e9, -1.7, torch.nan, 300.0, torch.inf])

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.to(torch.int32), x.to(torch.uint8), (x * 0 + 70000).to(torch.int16), x.to(torch.int32).to(torch.int8)

    program = convert(Function(function), x)
    for expected, given in zip(*(program.run(x, backend=engine) for engine in ENGINES), strict=True):
        assert torch.equal(expected, given)


REFUSED = {
    "reduce", "reduce_index", "interpolate_coordinates", "create_complex", "imaginary_part", "real_part",
    "asymmetric_quantization_statistics", "symmetric_quantization_statistics", "lut_to_dense",
    "lut_to_sparse_with_bitmask", "build_sparse_with_bitmask", "sparse_with_bitmask_to_dense", "isolated_group",
    "delegate", "image_to_tensor", "tensor_to_image", "metal4_kernel",
}  # fmt: skip
NOT_COMPUTED = {"graph", "output", "yield", "condition", "target_spec"}


def test_each_op_has_a_row_or_is_refused() -> None:
    emitter.Emitter({})
    known = {*nodes.EMISSION_ROWS, *emitter._SPECIAL}
    dialect = {name for name in OPS if name.startswith("coreai.")}
    assert known <= dialect
    assert {name.removeprefix("coreai.") for name in dialect - known} == REFUSED | NOT_COMPUTED


def test_refusals_name_each_op_and_its_place() -> None:
    program = convert(Function(lambda x: x * 2), torch.randn(4, dtype=torch.complex64))
    with pytest.raises(UnsupportedError, match="cannot be written as ONNX") as caught:
        to_onnx(program)
    ops = {problem.op: problem for problem in caught.value.problems if problem.op}
    assert {*ops} == {"coreai.real_part", "coreai.imaginary_part", "coreai.create_complex"}
    assert all(problem.node == "mul" and problem.source for problem in ops.values())
    assert any("elements of type complex<f32>" in problem.message for problem in caught.value.problems)


class Counter(nn.Module):
    """A model with a state, an open size, a branch and a loop."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        before = self.total.clone()  # type: ignore[operator]
        self.total += x.sum(0)  # type: ignore[operator]
        (halved,) = torch.while_loop(lambda y: y.abs().max() > 0.1, lambda y: (y / 2,), (x,))
        signed = torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,))
        return halved.reshape(-1) + signed.reshape(x.shape[0] * 3), before


def test_states_open_sizes_branches_and_loops() -> None:
    batch = torch.export.Dim("batch", min=2, max=9)
    program = convert(Counter(), torch.randn(4, 3), dynamic_shapes=({0: batch},))
    states = {engine: program.new_state() for engine in ENGINES}
    for rows, sign in ((4, 1), (2, -1), (9, 1)):
        x = sign * torch.rand(rows, 3)
        results = [program.run(x, backend=engine, state=states[engine]) for engine in ENGINES]
        for expected, given in zip(*results, strict=True):
            assert torch.allclose(expected, given, atol=1e-6)
    assert torch.allclose(states["evaluator"]["b_total"], states["onnxruntime"]["b_total"])
    model = to_onnx(program)
    assert model.graph.output[0].name == "b_total.next"
    assert model.graph.input[1].type.tensor_type.shape.dim[0].dim_param == "batch"


def test_weights_in_a_second_file(tmp_path: Path) -> None:
    linear, x = nn.Linear(32, 16), torch.randn(2, 32)
    save_onnx(convert(linear, x), tmp_path / "net.onnx", external=True)
    assert (tmp_path / "net.onnx.data").stat().st_size >= 32 * 16 * 4
    session = onnxruntime.InferenceSession(str(tmp_path / "net.onnx"), providers=["CPUExecutionProvider"])
    (result,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    assert torch.allclose(torch.from_numpy(result), linear(x), atol=1e-5)


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Tanh())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.tanh(self.first(x)).exp()) + 1


def test_an_engine_that_disagrees_is_reported_with_the_op(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = Layers().eval(), torch.randn(2, 4)
    program = convert(model, x)
    emitter.Emitter({})
    wrong = nodes.simple("Sin")
    right, calls = nodes.EMISSION_ROWS["coreai.tanh"], []

    def second_is_wrong(call: nodes.EmittedOp) -> str | list[str]:
        calls.append(call)
        return (wrong if call.op.origins[0].module_path else right)(call)

    monkeypatch.setitem(nodes.EMISSION_ROWS, "coreai.tanh", second_is_wrong)
    result = program.verify_against(model, (x,), backends=ENGINES)
    assert not result
    assert result.departure is not None
    assert (result.departure.stage, result.departure.module) == ("onnxruntime", "second.1")
    assert "coreai.tanh" in result.departure.detail


def test_an_unknown_engine_is_named() -> None:
    program = convert(Layers(), torch.randn(2, 4))
    with pytest.raises(ValueError, match="'evaluator', 'runtime', 'onnxruntime', got 'nobody'"):
        program.run(torch.randn(2, 4), backend="nobody")


NETS = """
import torch
from torch import nn


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)), (torch.randn(2, 4),)
"""


def test_commands(tmp_path: Path, patcomp: Command) -> None:
    (tmp_path / "nets.py").write_text(NETS)
    done = patcomp("verify", "nets.py:net", "--with", "onnxruntime")
    assert done.code == 0, done.err
    assert "onnxruntime" in done.out
    assert patcomp("save-onnx", "nets.py:net", "-o", "net.onnx").code == 0
    onnx.checker.check_model(onnx.load(tmp_path / "net.onnx"))
    unknown = patcomp("verify", "nets.py:net", "--with", "nobody")
    assert unknown.code == 2
    assert "there are onnxruntime" in unknown.err


@pytest.mark.parametrize("first", [0, *(pytest.param(first, marks=pytest.mark.slow) for first in range(4, 110, 4))])
def test_random_programs_are_equal(first: int) -> None:
    """The states of a run are those of the one before it."""
    for number in range(first, first + 4):
        random = generate(f"77/{number}")
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            try:
                exported = judge.export(random)
            except Exception:  # PyTorch's exporter raises whatever its tracers raise
                continue
            try:
                program = TorchConverter().add_exported_program(exported).to_coreai()
            except UnsupportedError:
                continue
            emit(program, "main")
            _compare(program, random)


def _compare(program: AIProgram, random: Any) -> None:
    for sizes, call in judge.calls(random):
        call_of_model = program.signature().call
        assert call_of_model is not None
        values = judge.arguments_by_name(call_of_model, random.arguments(sizes, call), {})
        states = {engine: program.new_state() for engine in ENGINES}
        try:
            expected = run_entry_point(program, values, "main", states["evaluator"], "evaluator")
        except PatcompError:
            continue  # sizes or numbers that the model does not take
        given = run_entry_point(program, values, "main", states["onnxruntime"], "onnxruntime")
        for name, value in {**expected, **states["evaluator"]}.items():
            found = {**given, **states["onnxruntime"]}[name]
            error = compare(name, "onnxruntime", value, torch.as_tensor(found))
            assert error.passed, f"{name}: {error.max_abs} > {error.tolerance}\n{random.source()}"
