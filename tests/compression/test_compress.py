"""`program.compress`: numbers and bytes of each scheme, configs, budgets, reports, and what is refused."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from patcomp import ExternalizeSpec, TorchConverter, mark_for_externalization
from patcomp.composite_ops import GatherMM
from patcomp.compression import Scheme
from patcomp.compression.k_means import palette, vector_palette
from patcomp.compression.scheme import Layout
from patcomp.compression.schemes.integers import Scaled
from patcomp.emit.native import Native
from patcomp.ir.constants import is_constant
from patcomp.ir.xdsl import DenseResourceAttr, ops_inside
from patcomp.program.program import AIProgram
from tests.helpers.command import Command

SCHEMES = ["w8", "w4", "w4_block32", "w3_block32", "w2_block32", "pal8", "pal6", "pal4", "pal4_group16", "pal3", "pal1",
           "pal4_vector2", "pal8_vector4", "sparse50",
           "sparse50_w8", "sparse75_pal4"]  # fmt: skip


class Model(nn.Module):
    """A lookup, a convolution, a product with a bias, and a product whose weight the lookup also reads."""

    def __init__(self, channels: int = 64) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(96, channels)
        self.conv = nn.Conv1d(channels, channels, 3, padding=1)
        self.up = nn.Linear(channels, 128)
        self.down = nn.Linear(128, channels)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        x = x + self.conv(x.transpose(1, 2)).transpose(1, 2)
        x = x + self.down(torch.relu(self.up(x)))
        return x @ self.embedding.weight.t()


TOKENS = torch.arange(12).reshape(2, 6) * 7


def converted(model: nn.Module, *inputs: Tensor) -> AIProgram:
    return TorchConverter().add_exported_program(torch.export.export(model.eval(), inputs)).to_coreai()


@pytest.fixture(scope="module")
def program() -> AIProgram:
    return converted(Model(), TOKENS)


def size_of(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


# ---- schemes --------------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_program_computes_with_the_stored_weights(
    scheme: str, program: AIProgram, native: Native, tmp_path: Path
) -> None:
    before = str(program)
    small = program.compress(scheme, inputs=(TOKENS,))
    assert str(program) == before
    assert small.compression is not None
    assert {weight.scheme for weight in small.compression.weights} == {scheme}
    (exact,), (close,) = (small.run({"tokens": TOKENS}).values(), native.run(small.module, {"tokens": TOKENS}).values())
    torch.testing.assert_close(torch.as_tensor(close), exact, rtol=1e-5, atol=1e-5)
    (psnr_of_output,) = small.compression.output_psnr.values()
    assert psnr_of_output > min(weight.signal for weight in small.compression.weights) - 10
    small.save_asset(tmp_path / "small.aimodel")
    assert size_of(tmp_path / "small.aimodel") <= 1.02 * small.compression.after + 20 * 1024
    assert str(program.compress(scheme, inputs=(TOKENS,))) == str(small)


def test_better_schemes_lose_less(program: AIProgram) -> None:
    def lowest(scheme: str) -> float:
        report = program.compress(scheme).compression
        assert report is not None
        return min(weight.signal for weight in report.weights)

    for order in (["w2_block32", "w4", "w4_block32", "w8"], ["pal1", "pal2", "pal3", "pal4", "pal6", "pal8"]):
        found = [lowest(scheme) for scheme in order]
        assert all(small < large for small, large in pairwise(found))


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(SCHEMES),
    st.integers(1, 40),
    st.integers(1, 70),
    st.sampled_from(["f2", "f4", "bf16"]),
    st.integers(0, 9),
)
def test_any_matrix_can_be_stored(scheme: str, rows: int, columns: int, dtype: str, seed: int) -> None:
    weight = np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)
    weight[:, seed % columns] = 0
    round_to = np.dtype(ml_dtypes.bfloat16) if dtype == "bf16" else np.dtype(dtype)
    stored = Scheme.parse(scheme).store(weight, Layout((0,), 1), round_to)
    made = stored.floats()
    assert made.shape == weight.shape
    assert np.isfinite(made).all()
    if isinstance(stored, Scaled) and stored.bits > 3:  # of fewer bits, clipping large elements may lose less
        steps = np.abs(weight - made) / np.repeat(
            stored.scales.astype(np.float32), columns // stored.scales.shape[1], 1
        )
        assert steps.max() <= (0.51 if dtype == "f4" else 1.0)


def test_a_palette_of_few_numbers_is_exact() -> None:
    numbers = np.random.default_rng(0).choice(np.float32([-3.5, 0, 0.25, 7]), 1000)
    table, indices = palette(numbers, 2, np.dtype("f4"))
    assert np.array_equal(table[indices], numbers)


def least_error(numbers: np.ndarray, count: int) -> float:
    """The least squared error of any palette, by dynamic programming over all elements."""
    ordered = np.sort(numbers).astype(np.float64)
    sums, squares = (np.concatenate([[0.0], np.cumsum(ordered**power)]) for power in (1, 2))
    sizes = np.subtract.outer(np.arange(len(sums)), np.arange(len(sums))).T
    errors = np.subtract.outer(squares, squares).T - np.subtract.outer(sums, sums).T ** 2 / np.maximum(sizes, 1)
    errors = np.where(sizes > 0, errors, np.inf)
    best = errors[0]
    for _ in range(count - 1):
        best = (best[:, None] + errors).min(axis=0)
    return float(best[-1])


@pytest.mark.parametrize("bits", [2, 4, 6])
@pytest.mark.parametrize("draw", ["normal", "laplace", "standard_cauchy"])
def test_a_palette_is_nearly_the_best(draw: str, bits: int) -> None:
    numbers = getattr(np.random.default_rng(0), draw)(size=1500).astype(np.float32)
    table, indices = palette(numbers, bits, np.dtype("f4"))
    error = float(np.sum((numbers.astype(np.float64) - table[indices]) ** 2))
    assert error <= 1.02 * least_error(numbers, 1 << bits)


def test_a_palette_of_few_vectors_is_exact() -> None:
    vectors = np.float32([[0, 1], [5, -2], [0.5, 0.5]])[np.random.default_rng(0).integers(3, size=500)]
    table, indices = vector_palette(vectors, 2, np.dtype("f4"))
    assert np.array_equal(table[indices], vectors)


def test_a_palette_of_vectors_is_better_than_one_of_numbers() -> None:
    angles = np.random.default_rng(0).uniform(0, 2 * np.pi, 4096)  # a circle is no product of two sets of numbers
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    pairs, chosen = vector_palette(vectors, 4, np.dtype("f4"))
    numbers, single = palette(vectors.reshape(-1), 2, np.dtype("f4"))
    # 16 equal arcs have the error 1 - sin(a)^2/a^2 with a = pi/16, shared by two elements
    assert np.mean((vectors - pairs[chosen]) ** 2) < 1.2 * (1 - (np.sin(np.pi / 16) / (np.pi / 16)) ** 2) / 2
    assert np.mean((vectors - pairs[chosen]) ** 2) < 10**-0.4 * np.mean((vectors.reshape(-1) - numbers[single]) ** 2)


def test_a_palette_is_better_than_even_steps() -> None:
    numbers = np.random.default_rng(0).standard_normal(20000).astype(np.float32)
    table, indices = palette(numbers, 4, np.dtype("f4"))
    step = (numbers.max() - numbers.min()) / 15
    even = np.round((numbers - numbers.min()) / step) * step + numbers.min()
    # the least squared error of 16 numbers for a normal distribution is 0.0095 (Max 1960, table I)
    assert np.mean((table[indices] - numbers) ** 2) < 0.0097
    assert np.mean((table[indices] - numbers) ** 2) < np.mean((even - numbers) ** 2) / 2


# ---- configs --------------------------------------------------------------------------------------


def schemes_of(program: AIProgram, config: Any) -> dict[str, str]:
    report = program.compress(config).compression
    assert report is not None
    return {weight.name: weight.scheme for weight in report.weights}


def test_the_most_specific_entry_wins(program: AIProgram, tmp_path: Path) -> None:
    config = {
        "scheme": "w8", "kinds": {"conv": "pal4", "gather": None}, "names": {"down.*": "w4_block32"}, "threshold": 8192,
    }  # fmt: skip
    wanted = {"embedding.weight": "", "conv.weight": "pal4", "up.weight": "w8", "down.weight": "w4_block32"}
    assert schemes_of(program, config) == wanted
    path = tmp_path / "config.toml"
    path.write_text('scheme = "w8"\nthreshold = 8192\n[kinds]\nconv = "pal4"\ngather = "none"\n'
                    '[names]\n"down.*" = "w4_block32"\n')  # fmt: skip
    assert schemes_of(program, path) == wanted
    path = tmp_path / "config.yaml"
    path.write_text("scheme: w8\nthreshold: 8192\nkinds: {conv: pal4, gather: null}\nnames: {down.*: w4_block32}\n")
    assert schemes_of(program, path) == wanted
    path.write_text("scheme: [w8")
    with pytest.raises(ValueError, match="is no YAML"):
        program.compress(path)
    assert schemes_of(program, {"scheme": "w8", "threshold": 9000})["up.weight"] == ""


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("w5", "integers have 2, 3, 4, 8 bits, not 5"), ("pal5", "palettes have 1, 2, 3, 4, 6, 8 bits, not 5"),
        ("int8", "is not a compression scheme; the schemes are w8"), ("w4_group16", "palettes have groups"),
        ("pal4_block16", "palettes go by groups"), ("sparse50_sparse20", "is sparse once"),
        ("sparse100", "between 1 and 99"), ("sparse50_w4_block32", "a sparse weight has no blocks"),
        ("", "is not a compression scheme"),
        ({"scheme": "w8", "kind": {}}, "no key 'kind'; there are scheme, kinds"),
        ({"kinds": {"linear": "w8"}}, "no kind 'linear'; there are matmul"),
        ({"scheme": "w8", "names": {"upp.*": "w4"}}, "no weight is called 'upp.*'; there are"),
        ({"scheme": "w8", "threshold": 10**9}, "compresses no weight of this program; its weights are embedding"),
        ({"scheme": 8}, "a scheme is a name such as 'w8', not 8"), ({"kinds": "w8"}, "kinds is a mapping"),
        ("pal4_vector0", "a vector needs elements"),
        ({"threshold": "many"}, "threshold is a number of elements"),
    ],
)  # fmt: skip
def test_wrong_configs(program: AIProgram, config: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        program.compress(config)


# ---- budgets --------------------------------------------------------------------------------------


def test_a_budget_is_met_and_beats_one_scheme_for_all(program: AIProgram) -> None:
    uniform = program.compress("pal4", inputs=(TOKENS,)).compression
    chosen = program.compress(bits_per_weight=4.5, inputs=(TOKENS,)).compression
    assert uniform is not None
    assert chosen is not None
    elements = sum(np.prod(weight.shape) for weight in chosen.weights)
    assert chosen.after <= 4.5 * elements / 8
    (one,), (other,) = uniform.output_psnr.values(), chosen.output_psnr.values()
    assert other > one
    again = program.compress(bits_per_weight=4.5, inputs=(TOKENS,)).compression
    assert again is not None
    assert [weight.scheme for weight in again.weights] == [weight.scheme for weight in chosen.weights]


class Branches(nn.Module):
    """Two products, of which the second adds a thousandth to the output."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.strong, self.weak = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        return self.strong(x) + self.weak(x) / 1000


def test_examples_say_which_weight_matters() -> None:
    x = torch.randn(8, 64, generator=torch.Generator().manual_seed(0))
    program = converted(Branches(), x)
    blind, seeing = (program.compress(bits_per_weight=5, inputs=inputs).compression for inputs in (None, (x,)))
    assert blind is not None
    assert seeing is not None
    strong, weak = (weight.after for weight in seeing.weights)
    assert strong > weak
    assert abs(blind.weights[0].after - blind.weights[1].after) < strong - weak


@pytest.mark.parametrize("budget", ["60%", "25%", "12.5%", 40_000])
def test_budgets(program: AIProgram, budget: str | int) -> None:
    report = program.compress({"scheme": "w8", "names": {"up.weight": "pal6"}}, budget=budget).compression
    assert report is not None
    assert next(weight.scheme for weight in report.weights if weight.name == "up.weight") == "pal6"
    limit = budget if isinstance(budget, int) else report.before * float(budget[:-1]) / 100
    assert report.after <= limit


@pytest.mark.parametrize(
    ("options", "words"),
    [({"budget": "1%"}, "cannot be met; the smallest schemes need"), ({"budget": "many"}, "a share such as '60%'"),
     ({"budget": -1}, "a share such as"), ({"budget": "50%", "bits_per_weight": 4}, "not both")],
)  # fmt: skip
def test_wrong_budgets(program: AIProgram, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        program.compress(**options)


# ---- models ---------------------------------------------------------------------------------------


def test_a_weight_of_two_readers_is_stored_once(program: AIProgram) -> None:
    small = program.compress("w8")
    constants = [op for op in ops_inside(small.module.op) if is_constant(op)]
    stored = {op.properties["value"] for op in constants if isinstance(op.properties["value"], DenseResourceAttr)}
    shapes = [value.type.get_shape() for value in stored]
    assert shapes.count((96, 64)) == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype: torch.dtype, native: Native) -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).to(dtype), torch.randn(2, 64).to(dtype)
    small = converted(model, x).compress("w4_block32")
    (exact,), (close,) = (
        small.run({"x": x} if "x" in small.input_names() else {small.input_names()[0]: x}).values(),
        (native.run(small.module, {small.input_names()[0]: x}).values()),
    )
    np.testing.assert_allclose(np.asarray(close, np.float32), exact.float().numpy(), rtol=0.02, atol=0.02)


def test_a_block_that_does_not_divide_a_channel_is_the_channel() -> None:
    program = converted(nn.Conv2d(3, 96, 5), torch.randn(1, 3, 9, 9))
    report = program.compress("w4_block32").compression
    assert report is not None
    assert report.weights[0].after == 96 * 3 * 25 // 2 + 96 * 4


class Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width, width))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x @ self.weight)


def test_a_weight_that_goes_into_an_externalized_module(native: Native) -> None:
    model = nn.Sequential(nn.Linear(64, 64), Norm(64)).eval()
    x = torch.randn(2, 64)
    with mark_for_externalization(model, [ExternalizeSpec(Norm, "my_norm", [])]) as marking:
        exported = torch.export.export(model, (x,))
    marking.check(exported)
    small = TorchConverter().add_exported_program(exported).to_coreai().compress("w4_block32")
    assert small.compression is not None
    assert [weight.name for weight in small.compression.weights] == ["0.weight", "1.weight"]
    second = small.compression.weights[1]
    assert (second.kinds, second.scheme, second.after) == (("matmul",), "w4_block32", 64 * 64 // 2 + 64 * 2 * 4)
    (exact,), (close,) = small.run({"input": x}).values(), native.run(small.module, {"input": x}).values()
    torch.testing.assert_close(torch.as_tensor(close), exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(number: float) -> None:
    model = nn.Linear(64, 64)
    with torch.no_grad():
        model.weight[3, 5] = number
    with pytest.raises(ValueError, match="weight 'weight' has NaN or infinities"):
        converted(model, torch.randn(2, 64)).compress("w8")


def test_a_compressed_program_has_nothing_left_to_compress(program: AIProgram) -> None:
    with pytest.raises(ValueError, match=r"compresses no weight of this program; .*; 4 are compressed already \(embed"):
        program.compress("w8").compress("pal4")


def test_what_is_left_can_be_compressed_later(program: AIProgram) -> None:
    small = program.compress({"kinds": {"conv": "pal6"}}).compress("w8").compression
    assert small is not None
    assert {weight.name: weight.scheme for weight in small.weights} == {
        "embedding.weight": "w8", "conv.weight": "pal6", "up.weight": "w8", "down.weight": "w8",
    }  # fmt: skip


class Experts(nn.Module):
    """Rows multiplied by chosen matrices."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.product, self.matrices = GatherMM(), nn.Parameter(torch.randn(6, 32, 64, dtype=dtype))

    def forward(self, x: Tensor, chosen: Tensor) -> Tensor:
        return self.product(x, self.matrices, rhs_indices=chosen)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("scheme", ["w4_block32", "pal4_group16", "pal4_vector2"])
def test_chosen_experts(scheme: str, dtype: torch.dtype, native: Native) -> None:
    x, chosen = torch.randn(2, 3, 1, 1, 32).to(dtype), torch.tensor([[[0, 5], [1, 1], [2, 4]]] * 2)
    model = Experts(dtype).eval()
    externalized = TorchConverter().add_exported_program(torch.export.export(model, (x, chosen))).to_coreai()
    small = externalized.compress(scheme)
    assert small.compression is not None
    (weight,) = small.compression.weights
    assert (weight.kinds, weight.scheme) == (("gather_mm",), scheme)
    bits = {"w4_block32": 4, "pal4_group16": 4, "pal4_vector2": 2}[scheme]
    assert weight.after < 6 * 32 * 64 * bits / 8 + 6 * 64 * 4 + 256
    inputs = {"x": x, "chosen": chosen.int()}
    (exact,), (close,) = small.run(inputs).values(), native.run(small.module, inputs).values()
    np.testing.assert_allclose(np.asarray(close, np.float32), exact.float().numpy(), rtol=0.01, atol=0.02)


# ---- what is shown --------------------------------------------------------------------------------


def test_the_stage_is_seen(program: AIProgram) -> None:
    small = program.compress("w4_block32")
    assert list(small.stages)[-1] == "compress"
    assert "blockwise_shift_scale" in small.stages["compress"]
    assert "blockwise_shift_scale" not in small.stages["optimize"]
    assert "compress" in str(small.stages)
    name = next(op.results[0].name_hint for op in ops_inside(small.module.op) if op.name.endswith("shift_scale"))
    assert "compress w4_block32" in small.explain(f"%{name}")


def test_the_report(program: AIProgram) -> None:
    report = program.compress("w8", inputs=(TOKENS,)).compression
    assert report is not None
    data = json.loads(json.dumps(report.as_dict()))
    assert [weight["name"] for weight in data["weights"]] == [
        "embedding.weight",
        "conv.weight",
        "up.weight",
        "down.weight",
    ]
    assert data["weights"][0]["kinds"] == ["matmul", "gather"]
    assert program.compress({"names": {"up.*": "w8"}}).compression.as_dict()["weights"][0]["signal"] == "inf"  # type: ignore[union-attr]
    assert data["before"] > 3.5 * data["after"]
    assert "up.weight" in str(report)
    assert "output " in str(report)


def test_the_command(patcomp: Command, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(
        "import torch\n\ndef make():\n    return torch.nn.Linear(64, 64), (torch.ones(2, 64),)\n"
    )
    done = patcomp(
        "compress", "model.py:make", "-o", "small.aimodel", "--config", "w4_block32", "--check", "inputs", "--json"
    )
    assert done.code == 0, done.err
    assert json.loads(done.out)["weights"][0]["scheme"] == "w4_block32"
    assert (tmp_path / "small.aimodel").is_dir()
    done = patcomp("compress", "model.py:make", "--bits", "5", "--json")
    assert list(json.loads(done.out)["output_psnr"]) == ["linear"]  # the budget went by the example inputs
    done = patcomp("compress", "model.py:make", "--config", "w5")
    assert done.code != 0
    assert "integers have 2, 3, 4, 8 bits" in done.err
