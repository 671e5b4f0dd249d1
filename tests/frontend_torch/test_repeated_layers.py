"""Networks of equal layers: a few layers are converted and the others stamped, and nothing else changes.

In tests every stamped program is compared with the conversion of all layers, places included (`PATCOMP_VERIFY=all`), so
a conversion that ends has passed that check. These tests say when layers are stamped, and when they must not be.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.export import Dim

import patcomp
from patcomp.authoring import AtenSource, AtenTarget
from patcomp.frontend_torch import conversion
from patcomp.ir.namespaces import aten_namespace
from patcomp.patterns import Capture, OpView, Rewrite, Rule, RuleSet, check, op_rule, rule
from patcomp.rewrites.repeats import stamping

WIDTH = 24


class Layer(nn.Module):
    """Attention and a feed-forward part, written without PyTorch's own modules for them."""

    def __init__(self, width: int = WIDTH, scale: float = 0.5):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.scale = scale
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.3)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        y = self.first(x)
        scores = self.query(y) @ self.key(y).transpose(1, 2) * self.scale
        if mask is not None:
            scores = scores + mask
        x = x + self.output(scores.softmax(-1) @ self.value(y))
        return x + self.down(nn.functional.gelu(self.up(self.second(x))))


class Network(nn.Module):
    """An embedding, layers, and a head."""

    def __init__(self, layers: int = 24, make: Callable[[int], nn.Module] = lambda number: Layer()):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.head = nn.Linear(3, WIDTH), nn.Linear(WIDTH, 2)
        self.layers = nn.ModuleList(make(number) for number in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


INPUT = torch.linspace(-1, 1, 15).reshape(1, 5, 3)


@pytest.fixture
def stamped(caplog: pytest.LogCaptureFixture) -> Callable[[], int]:
    """How many layers were stamped."""
    caplog.set_level(logging.INFO, logger=conversion.__name__)

    def count() -> int:
        texts = [record.getMessage() for record in caplog.records if "are copies of other layers" in record.message]
        return int(texts[-1].split()[0]) if texts else 0

    return count


def converted(model: nn.Module, *inputs: Tensor, decompose: bool = False, **options: object) -> patcomp.AIProgram:
    program = torch.export.export(model.eval(), inputs)
    if decompose:
        program = program.run_decompositions(patcomp.get_decomp_table())
    converter = patcomp.TorchConverter(**options).add_exported_program(program)  # type: ignore[arg-type]
    return converter.to_coreai()


@pytest.mark.parametrize("decompose", [False, True])
def test_equal_layers_are_stamped(stamped: Callable[[], int], decompose: bool) -> None:
    model = Network()
    program = converted(model, INPUT, decompose=decompose)
    assert stamped() == 24 - 3
    assert program.composites["layer_norm"] == 48
    program.verify_against(model, (INPUT,)).check()
    program.verify_against(model, (INPUT,), backends=["runtime"]).check()


def test_reports_are_those_of_all_layers(stamped: Callable[[], int]) -> None:
    program = converted(Network(), INPUT)
    assert stamped()
    assert program.reports[-1].ops_after == program.module.op_count()
    assert {f"layers.{number}.first" in str(program.report()) for number in range(24)} == {True}
    assert program.stages["emit"] == program.text()
    assert "layers.11.query" in program.explain("linear_68")


def test_a_shared_mask_and_a_second_sequence_of_layers(stamped: Callable[[], int]) -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = Network(12)
            self.decoder = nn.ModuleList(Layer(WIDTH, 0.25) for _ in range(12))

        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            x = self.network.embed(x)
            for layer in self.network.layers:
                x = layer(x)
            x = x * 2
            for layer in self.decoder:
                x = layer(x, mask)
            return x

    model, mask = Both(), torch.zeros(5, 5).fill_diagonal_(-1)
    program = converted(model, INPUT, mask)
    assert stamped() == 2 * (12 - 3)
    program.verify_against(model, (INPUT, mask)).check()


def test_layers_after_another_one_are_stamped(stamped: Callable[[], int]) -> None:
    model = Network(24, lambda number: Layer(scale=0.5 if number > 4 else 0.3 + number))
    converted(model, INPUT).verify_against(model, (INPUT,)).check()
    assert stamped() == 19 - 4  # the run begins within a layer, so that a fourth one is needed


def _equal(model: Network) -> None:
    """All layers have the same norm weights, which stay readable."""
    for layer in model.layers:
        nn.init.ones_(layer.first.weight)
        nn.init.zeros_(layer.first.bias)


def _one_of_zeros(model: Network) -> None:
    nn.init.zeros_(model.layers[11].up.bias)


def _shared(model: Network) -> None:
    for layer in model.layers:
        layer.query = model.layers[0].query


def _tied(model: Network) -> None:
    model.layers[9].key.weight = model.layers[5].key.weight


def _pairs(model: Network) -> None:
    """Every second layer is another one: a period is two layers."""
    for layer in model.layers[::2]:
        layer.scale = 0.3


@pytest.mark.parametrize(
    ("change", "count"), [(_equal, 21), (_one_of_zeros, 0), (_shared, 20), (_tied, 0), (_pairs, 9)]
)
def test_weights(stamped: Callable[[], int], change: Callable[[Network], None], count: int) -> None:
    model = Network()
    change(model)
    converted(model, INPUT).verify_against(model, (INPUT,)).check()
    assert stamped() == count


class Hidden(Network):
    """Returns what an inner layer gives."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        x, inner = self.embed(x), []
        for layer in self.layers:
            inner.append(x)
            x = layer(x)
        return self.head(x), inner[9]


class Counting(nn.Module):
    """A layer that hands an integer to the next one, whose range grows from layer to layer."""

    def __init__(self, number: int):
        super().__init__()
        self.layer = Layer()

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


class Counted(Network):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        count = x[0, :, 0].to(torch.int64)
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
            count = count * 3 + x.argmax(-1)[0]
        return self.head(x), count


class Masked(nn.Module):
    """A layer that computes its mask itself, from constants."""

    def __init__(self, number: int):
        super().__init__()
        self.layer = Layer()

    def forward(self, x: Tensor) -> Tensor:
        rows = torch.arange(20.0)
        return self.layer(x, torch.where(rows[:, None] >= rows, 0.0, -5.0))


def test_a_mask_that_each_layer_computes_is_stored_once(stamped: Callable[[], int]) -> None:
    model, x = Network(24, Masked), torch.rand(1, 20, 3)
    program = converted(model, x)
    assert stamped() == 24 - 3
    assert [blob.key for blob in program.module.blobs if blob.key.startswith("constant")] == ["constant"]
    program.verify_against(model, (x,)).check()


class Growing(nn.Module):
    """A layer that gives the next one a row more."""

    def __init__(self, number: int):
        super().__init__()
        self.layer = Layer()

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(torch.cat([x, x[:, :1]], dim=1))


def test_open_sizes(stamped: Callable[[], int]) -> None:
    model, rows = Network(), Dim("rows", min=2, max=4096)
    program = torch.export.export(model.eval(), (INPUT,), dynamic_shapes=({1: rows},))
    made = patcomp.TorchConverter().add_exported_program(program).to_coreai()
    assert stamped() == 24 - 3
    made.verify_against(model, (INPUT[:, :3],)).check()


def test_sizes_that_grow_from_layer_to_layer(stamped: Callable[[], int]) -> None:
    model, rows = Network(24, Growing), Dim("rows", min=2, max=4096)
    program = torch.export.export(model.eval(), (INPUT,), dynamic_shapes=({1: rows},))
    made = patcomp.TorchConverter().add_exported_program(program).to_coreai()
    assert not stamped()
    made.verify_against(model, (INPUT[:, :3],)).check()


class Buffered(nn.Module):
    """A layer that counts its calls."""

    def __init__(self, number: int):
        super().__init__()
        self.layer = Layer()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.layer(x) * self.calls


@pytest.mark.parametrize("model", [Hidden(), Counted(), Network(24, Buffered)], ids=["hidden", "integers", "states"])
def test_layers_that_are_more_than_a_chain_are_converted(stamped: Callable[[], int], model: Network) -> None:
    with torch.no_grad():
        program = converted(model, INPUT)
    assert not stamped()
    assert program.composites["layer_norm"] == 48


def test_lowerings_of_users_are_called_for_all_layers(stamped: Callable[[], int]) -> None:
    converter, calls = patcomp.TorchConverter(), []

    @converter.register_torch_lowering("aten::gelu", allow_override=True)
    def gelu(values: Any, node: Any, loc: Any) -> Any:
        calls.append(node)
        return patcomp.ir.coreai.gelu(values[node.args[0].name], loc=loc)

    model = Network()
    converter.add_exported_program(torch.export.export(model.eval(), (INPUT,)))
    converter.to_coreai().verify_against(model, (INPUT,)).check()
    assert not stamped()
    assert len(calls) == 24


def test_every_problem_is_reported() -> None:
    class Broken(nn.Module):
        def __init__(self, number: int):
            super().__init__()
            self.layer = Layer()

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x) + torch.linalg.eigvals(x[:, :5, :5]).real.sum()

    with pytest.raises(patcomp.UnsupportedError) as caught:
        converted(Network(24, Broken), INPUT)
    assert {problem.module_path for problem in caught.value.problems} >= {f"layers.{number}" for number in range(24)}


@op_rule("normalize", "aten.addmm", name="product without a small bias")
def without_small_bias(op: OpView, a: Any) -> Any:
    """Reads the values of a weight, and gives another program where they are small."""
    op.expect(op.alpha == op.beta == 1, "a factor")
    values = op["self"].constant
    product = a.build("aten.mm", op.result.attribute, self=op.mat1, mat2=op.mat2)
    return None if values is None or abs(values).max() > 0.6 else product


@pytest.mark.parametrize("strict", ["1", ""])
def test_a_rule_that_reads_weights_sees_those_of_all_layers(
    stamped: Callable[[], int], strict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATCOMP_STRICT", strict)
    program = converted(Network(), INPUT, catalog=[RuleSet([without_small_bias])])
    assert not stamped()
    assert 0 < program.reports[0].statistics.fired["product without a small bias"] < 24 * 6


@op_rule("normalize", "aten.addmm", name="product without the bias of layer 17")
def without_bias_of_one_layer(op: OpView, a: Any) -> Any:
    """Reads where an op is from, which no argument tells."""
    op.ignore("self", because="this rule is wrong, and must be wrong in one layer alone")
    op.expect(op.alpha == op.beta == 1 and "layers.17" in str(op.operation.location), "another layer")
    return a.build("aten.mm", op.result.attribute, self=op.mat1, mat2=op.mat2)


@rule(
    stage="normalize", target=aten_namespace, name="relu for gelu of layer 17", example={"x": "2x3xf32"},
)  # fmt: skip
def relu_of_one_layer(a: AtenSource, c: AtenTarget, x: Capture) -> Rewrite:
    """The same in a condition."""
    gelu = a.gelu(x, approximate="none")
    here = check("in layer 17", lambda match: "layers.17" in str(match.value_of(gelu).ssa.owner.location))
    return Rewrite(gelu, to=c.relu(x), where=here)


@pytest.mark.parametrize("one", [without_bias_of_one_layer, relu_of_one_layer], ids=lambda one: one.name)
def test_a_rule_that_reads_places_sees_those_of_all_layers(
    stamped: Callable[[], int], one: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PATCOMP_VERIFY")  # which would find the difference
    program = converted(Network(), INPUT, catalog=[RuleSet([one])])
    assert not stamped()
    assert program.reports[0].statistics.fired[one.name] in (1, 6)


@settings(max_examples=5, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(
    layers=st.integers(10, 30),
    parts=st.lists(st.sampled_from(["norm", "linear", "relu", "residual", "reshape", "shared", "twice"]), min_size=4),
    data=st.data(),
)
def test_any_layers(layers: int, parts: list[str], data: st.DataObject) -> None:
    """Chains of layers of random parts become what the conversion of all of them gives."""

    class Random(nn.Module):
        def __init__(self, number: int):
            super().__init__()
            self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in parts)
            self.linears = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in parts)

        def forward(self, x: Tensor) -> Tensor:
            start = x
            for part, norm, linear in zip(parts, self.norms, self.linears, strict=True):
                match part:
                    case "norm":
                        x = norm(x)
                    case "linear":
                        x = linear(x)
                    case "relu":
                        x = x.relu()
                    case "residual":
                        x = x + start
                    case "reshape":
                        x = x.reshape(1, -1, 2, WIDTH // 2).transpose(1, 2).reshape(1, -1, WIDTH)
                    case "shared":
                        x = x * torch.arange(WIDTH)
                    case "twice":
                        x = linear(linear(x).relu())
            return x

    converted(Network(layers, Random), INPUT, decompose=data.draw(st.booleans()))


def test_without_stamping_the_texts_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check of all these tests is not blind."""
    monkeypatch.setattr(stamping._Origin, "give", lambda *arguments: None)
    with pytest.raises(patcomp.StageError, match="stamping them gives another one"):
        converted(Network(), INPUT)
