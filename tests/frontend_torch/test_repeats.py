"""Layers that a model repeats are converted once: the program is the same as without that, also where layers differ."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn

from patcomp import AIProgram, TorchConverter
from patcomp.frontend_torch.history import TorchHistory
from patcomp.frontend_torch.importing.importer import import_program
from patcomp.ir.locations import origins

WIDTH = 16
COUNT = 9


class Layer(nn.Module):
    """A layer whose ops are told apart by `kind`."""

    def __init__(self, number: int, kind: str):
        super().__init__()
        self.number, self.kind = number, kind
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.gain = nn.Parameter(torch.rand(4 * WIDTH) + 0.5)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.uniform_(self.norm.bias, -0.5, 0.5)

    def forward(self, x: Tensor, mask: Tensor, first: Tensor, whole: Tensor) -> Tensor:
        hidden = self.up(self.norm(x))
        hidden = torch.where(mask, torch.tanh(hidden) * torch.sigmoid(hidden), hidden.clamp(-1.0, 1.0))
        gain = self.gain[:WIDTH].repeat(4) if self.kind == "a weight is folded" else self.gain
        hidden = torch.softmax(hidden * gain, -1) + torch.sin(hidden) - hidden.abs().sqrt()
        if self.kind == "a constant that counts":
            hidden = hidden * (1.0 + self.number)
        if self.kind == "every second layer" and self.number % 2:
            hidden = torch.cos(hidden)
        if self.kind == "reads the first layer":
            hidden = hidden + first.mean()
        if self.kind == "a whole number grows":
            hidden = hidden + whole.to(hidden.dtype)
        y = x + self.down(hidden)
        return y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5)


class Model(nn.Module):
    """Layers that follow one another."""

    def __init__(self, kind: str):
        super().__init__()
        torch.manual_seed(0)
        self.kind = kind
        self.layers = nn.ModuleList(Layer(number, kind) for number in range(COUNT))
        if kind == "one layer has zeros":
            nn.init.zeros_(self.layers[3].up.weight)
        if kind == "two layers share a weight":
            self.layers[4].up.weight = self.layers[2].up.weight
        if kind == "one small weight is uniform":
            nn.init.ones_(self.layers[3].gain)
        if kind == "all small weights are uniform":
            for layer in self.layers:
                nn.init.ones_(layer.gain)

    def forward(self, x: Tensor) -> list[Tensor]:
        mask, states, first = x.mean(-1, keepdim=True) > 0, [x], x
        whole = torch.ones((), dtype=torch.int32)
        for layer in self.layers:
            x = layer(x, mask, first, whole)
            first = x if layer.number == 0 else first
            whole = whole + whole if self.kind == "a whole number grows" else whole
            if self.kind == "all states are returned":
                states.append(x)
        return [x, *states[1:], whole]


PLAIN = ("plain", "every second layer", "all small weights are uniform")
"""The kinds whose layers are found, and become equal."""
OTHERS = (
    "one layer has zeros",
    "a weight is folded",
    "a constant that counts",
    "reads the first layer",
    "a whole number grows",
    "two layers share a weight",
    "one small weight is uniform",
    "all states are returned",
)


def exported(kind: str) -> torch.export.ExportedProgram:
    return torch.export.export(Model(kind).eval(), (torch.randn(3, WIDTH),))


def converted(program: torch.export.ExportedProgram) -> AIProgram:
    return TorchConverter().add_exported_program(program).to_coreai()


def described(program: AIProgram) -> list[object]:
    """Text, names, places, weights in order, and counts of the stages."""
    ops = [(op.name, [each.name_hint for each in op.results], str(op.location)) for op in program.module.op.walk()]
    return [str(program), ops, program.module.blobs.keys, [(each.name, each.ops_after) for each in program.reports]]


@pytest.fixture
def imports(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each import, whether it left out layers."""
    found: list[bool] = []

    def noted(module: object, staged: object, lowerings: object, repeats: tuple[object, ...] = ()) -> object:
        found.append(bool(repeats))
        return import_program(module, staged, lowerings, repeats)  # type: ignore[arg-type]

    monkeypatch.setattr("patcomp.frontend_torch.history.import_program", noted)
    return found


@pytest.mark.parametrize("kind", PLAIN + OTHERS)
def test_program_is_the_same(kind: str, imports: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    program = exported(kind)
    ours = converted(program)
    assert (imports == [True]) == (kind in PLAIN)  # otherwise nothing is left out, or the whole is imported again
    monkeypatch.setattr(TorchHistory, "_by_layers", lambda self, advance: None)
    whole = converted(program)
    assert described(ours) == described(whole)
    for mine, other in zip(ours.reports, whole.reports, strict=True):
        assert {*mine.statistics.fired} == {*other.statistics.fired}
        assert sorted(map(str, mine.statistics.records)) == sorted(map(str, other.statistics.records))


@pytest.mark.parametrize("kind", [*PLAIN, "one small weight is uniform"])
def test_numbers(kind: str) -> None:
    program = exported(kind)
    x = torch.randn(3, WIDTH)
    given = converted(program).run({"x": x}, backend="evaluator")
    for value, wanted in zip(given.values(), program.module()(x), strict=True):
        torch.testing.assert_close(torch.as_tensor(value), wanted, rtol=1e-4, atol=1e-5)


def test_each_layer_has_its_places(imports: list[bool]) -> None:
    places = [
        origin.module_path for op in converted(exported("plain")).module.op.walk() for origin in origins(op.location)
    ]
    assert imports == [True]
    assert {f"layers.{number}.norm" for number in range(COUNT)} <= {*places}


def test_threads() -> None:
    program = exported("plain")
    with ThreadPoolExecutor(3) as pool:
        assert len({*pool.map(lambda _: str(converted(program)), range(3))}) == 1
