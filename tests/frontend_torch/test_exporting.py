"""`patcomp.export`: the models that need each of its steps, what it says, and what it leaves as it was."""

from __future__ import annotations

import dataclasses
import logging
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import patcomp
from patcomp import AIProgram, ConversionWarning, EvaluationError, ExportError, TorchConverter


def exported(model: nn.Module, *args: Any, **options: Any) -> tuple[ExportedProgram, list[str]]:
    """The program of a model in eval mode, and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        program = patcomp.export(model.eval(), args, **options)
    return program, [str(each.message) for each in caught if each.category is ConversionWarning]


def converted(program: ExportedProgram) -> AIProgram:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConversionWarning)  # about checks of values
        return TorchConverter().add_exported_program(program).to_coreai()


def agrees(program: AIProgram, model: nn.Module, *inputs: Any) -> None:
    program.verify_against(model, inputs, backends=["evaluator"]).check()


def fails_plainly(model: nn.Module, *args: Any, **options: Any) -> None:
    """Check that the model needs more than `torch.export.export`."""
    with pytest.raises(Exception):  # noqa: B017, PT011  its errors are of many classes
        torch.export.export(model.eval(), args, strict=False, **options)


pytestmark = pytest.mark.filterwarnings("ignore:The tensor attributes:UserWarning")  # PyTorch about lists of weights


# ---- the first step -----------------------------------------------------------------------------------


class Named(nn.Module):
    def forward(
        self, batch: dict[str, Tensor], *, scale: float = 1.0, shift: Tensor | None = None
    ) -> dict[str, Tensor]:
        return {
            "sum": batch["left"] * scale + batch["right"],
            "shifted": batch["left"] + (0 if shift is None else shift),
        }


def test_what_torch_export_takes_needs_no_word() -> None:
    given = {"left": torch.randn(2, 3), "right": torch.randn(2, 3)}
    program, said = exported(Named(), given, kwargs={"scale": 2.0, "shift": torch.ones(3)})
    assert said == []
    results = converted(program).run(given, scale=2.0, shift=torch.ones(3), backend="evaluator")
    torch.testing.assert_close(results["sum"], given["left"] * 2 + given["right"])


class Delayed(nn.Module):
    def forward(self, x: Tensor, before: Tensor) -> Tensor:
        return torch.cat([before, (x * 2.0)[:, :-1]], 1)


class Windowed(nn.Module):
    def forward(self, x: Tensor, before: Tensor) -> Tensor:
        windows = torch.cat([before, x], 1).transpose(1, 2).unfold(2, 4, 1).flip(3)
        return (windows * torch.arange(4.0)).sum(3)


@pytest.mark.parametrize(("model", "before"), [(Delayed(), 1), (Windowed(), 3)])
def test_sizes_are_not_forbidden_for_the_layout_of_tensors(model: nn.Module, before: int) -> None:
    """PyTorch asks whether a tensor of n - 1 rows has one row, only to know whether it is contiguous; and whether there
    are more windows than numbers in one, only to know the order of axes in memory."""
    given, sizes = (torch.randn(1, 5, 4), torch.randn(1, before, 4)), ({1: Dim("n", min=1, max=64)}, {})
    fails_plainly(model, *given, dynamic_shapes=sizes)
    program, said = exported(model, *given, dynamic_shapes=sizes)
    assert said == []
    for rows in (1, 2, 3, 7):
        agrees(converted(program), model, torch.randn(1, rows, 4), given[1])


def test_the_mode_of_the_model_stays() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).train()
    program = patcomp.export(model, (torch.randn(3, 2),))
    assert model.training
    assert any("batch_norm" in str(node.target) and node.args[5] is True for node in program.graph.nodes)


@dataclasses.dataclass
class Pair:
    left: Tensor
    right: Tensor


class OfPair(nn.Module):
    def forward(self, pair: Pair) -> Tensor:
        return pair.left @ pair.right


def test_dataclasses_are_registered() -> None:
    pair = Pair(torch.randn(2, 3), torch.randn(3, 2))
    program, _ = exported(OfPair(), pair)
    torch.testing.assert_close(program.module()(pair), pair.left @ pair.right)
    agrees(converted(program), OfPair(), pair)
    exported(OfPair(), pair)  # a second time: PyTorch knows the class now


# ---- numbers in buffers -------------------------------------------------------------------------------


class Padding(nn.Module):
    """As EnCodec pads: by numbers computed from integer buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(2, 3, 4, stride=2)
        self.register_buffer("stride", torch.tensor(2), persistent=False)
        self.register_buffer("size", torch.tensor(4))

    def forward(self, x: Tensor) -> Tensor:
        frames = torch.ceil((x.shape[-1] - self.size) / self.stride + 1).to(torch.int64) - 1
        extra = int(frames * self.stride + self.size - x.shape[-1])
        return self.conv(x if extra == 0 else nn.functional.pad(x, (0, extra)))


class Windows(nn.Module):
    """Sizes in a buffer of two numbers, as lists, in views and as bounds of slices."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.tensor([2, 3]))
        self.register_buffer("causal", torch.tensor(True))

    def forward(self, x: Tensor) -> Tensor:
        height, width = self.window.tolist()
        rows = x.view(-1, self.window[0], x.shape[1] // width, width)[..., : self.window.sum() - 3]
        return rows.tril() if self.causal else rows * height


class Grid(nn.Module):
    """Coordinates out of a tensor of constants, as SAM 3 makes them."""

    def forward(self, x: Tensor) -> Tensor:
        shapes = torch.tensor([[2, 3], [1, 1]])
        height, width = shapes[0]
        rows = torch.arange(0, height, dtype=x.dtype) / height
        columns = torch.arange(0, width, dtype=x.dtype) / width
        grid = rows.view(1, -1, 1) + columns.view(1, 1, -1)
        return grid + x if len(torch.nonzero(shapes[:, 0] > 1)) == 1 else x


class Level(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.levels = torch.tensor([3, 1])  # no buffer, but a constant as well

    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if self.levels.sum() > 2 else x


@pytest.mark.parametrize(
    ("make", "shape", "names"),
    [(Padding, (1, 2, 11), "size, stride"), (Padding, (2, 2, 12), "size"), (Windows, (4, 6), "window, causal"),
     (Grid, (1, 2, 3), "tensors of constants")],
)  # fmt: skip
def test_numbers_of_buffers_are_constants(make: Callable[[], nn.Module], shape: tuple[int, ...], names: str) -> None:
    model, x = make(), torch.randn(shape)
    fails_plainly(model, x)
    program, said = exported(model, x)
    assert len(said) == 1
    assert "are constants of the program" in said[0]
    assert all(name in said[0] for name in names.split(", "))
    assert "(at test_exporting.py:" in said[0]
    agrees(converted(program), model, torch.randn(shape))


class Small(nn.Module):
    """Integers of 32 bits stay such, by themselves and in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("size", torch.tensor(2, dtype=torch.int32))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return x[: int(self.size)], torch.as_tensor(self.size) + 1, torch.full((self.size,), self.size * 2)


def test_types_of_constants_stay() -> None:
    model, x = Small(), torch.randn(4)
    program, _ = exported(model, x)
    for one, other in zip(program.module()(x), model(x), strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)


class Patches(nn.Module):
    """As the vision towers of Qwen: lengths of images by `repeat_interleave`, of known and of unknown numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("grid", torch.tensor([[2, 2, 3], [1, 1, 2]]))

    def forward(self, x: Tensor) -> Tensor:
        lengths = torch.repeat_interleave(self.grid[:, 1] * self.grid[:, 2], self.grid[:, 0]).cumsum(0)
        first = torch.masked_select(lengths, lengths > 6)
        rows = torch.repeat_interleave(x, self.grid[:, 0], dim=0)
        columns = x.repeat_interleave(repeats=self.grid[:1, 0], dim=1)
        parts = rows.split([int(first[0]) - 11, 2])
        return torch.cat([part.sum(0) for part in parts]) * first.sum() + columns.sum()


def test_lengths_by_repeats_are_constants() -> None:
    model, x = Patches(), torch.randn(2, 4)
    fails_plainly(model, x)
    program, said = exported(model, x)
    assert "constants of the program: grid" in said[0]
    assert len(said) == 1
    agrees(converted(program), model, torch.randn(2, 4))


def test_a_tensor_that_is_an_attribute_is_a_constant() -> None:
    x = torch.randn(3)
    fails_plainly(Level(), x)
    program, said = exported(Level(), x)
    assert said[0].startswith("numbers that are read from buffers are constants of the program: levels (at test_exp")
    agrees(converted(program), Level(), x)


def test_an_open_size_beside_constants_stays_open() -> None:
    model, x = Windows(), torch.randn(4, 6)
    program, said = exported(model, x, dynamic_shapes={"x": {0: 2 * Dim("rows", min=1, max=8)}})
    assert len(said) == 1
    assert "constants" in said[0]
    agrees(converted(program), model, torch.randn(10, 6))


class Counting(nn.Module):
    """Decides by a buffer that it writes to: in place, through a view, or by assignment."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way
        self.register_buffer("count", torch.tensor([0]))

    def forward(self, x: Tensor) -> Tensor:
        first = bool(self.count == 0)
        if self.way == "in place":
            self.count += 1
        elif self.way == "through its data":
            self.count.data.add_(1)
        elif self.way == "through a view":
            self.count.view(()).add_(1)
        else:
            self.count = self.count + 1
        return x if first else -x


@pytest.mark.parametrize("way", ["in place", "through a view", "through its data", "by assignment"])
def test_a_number_that_the_next_run_changes_is_no_constant(way: str) -> None:
    model = Counting(way)
    with pytest.raises(ExportError, match=r"decides by the content of count and writes to it"):
        exported(model, torch.randn(2))
    assert model.count.tolist() == [0]


class Written(nn.Module):
    """A tensor of constants that is written to has another value afterwards."""

    def forward(self, x: Tensor, by: Tensor) -> Tensor:
        sizes = torch.tensor([1, 2])
        sizes[0] += by
        return x[: int(sizes.sum())]


def test_a_constant_that_is_written_to_is_none() -> None:
    model, inputs = Written(), (torch.randn(8), torch.tensor(2))
    program, _ = exported(model, *inputs)
    torch.testing.assert_close(program.module()(*inputs), model(*inputs))
    torch.testing.assert_close(program.module()(inputs[0], torch.tensor(3)), model(inputs[0], torch.tensor(3)))


class Random(nn.Module):
    """A random number is no constant, though it is drawn from constants."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if bool(torch.zeros(2).bernoulli(0.5).sum() > 0) else x


def test_random_numbers_are_no_constants() -> None:
    with pytest.raises(ExportError, match="only a run knows"):
        exported(Random(), torch.randn(2), draft=False)


# ---- packed sequences ---------------------------------------------------------------------------------


class Packing(nn.Module):
    """A recurrent network on a packed sequence."""

    def __init__(
        self, kind: type[nn.RNNBase] = nn.LSTM, *, batch_first: bool = True, total: int | None = None, **options: Any
    ):
        super().__init__()
        self.network = kind(4, 3, batch_first=batch_first, bidirectional=True, num_layers=2, **options)
        self.batch_first, self.total = batch_first, total

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        packed = pack_padded_sequence(x, lengths, batch_first=self.batch_first, enforce_sorted=False)
        result, state = self.network(packed)
        rows, counts = pad_packed_sequence(
            result, batch_first=self.batch_first, padding_value=-1.0, total_length=self.total
        )
        return rows, state[0] if isinstance(state, tuple) else state, counts


class Texts(nn.Module):
    """As Kokoro packs: by lengths that follow from the shape."""

    def __init__(self, short: int = 0) -> None:
        super().__init__()
        self.packing, self.short = Packing(), short

    def forward(self, x: Tensor) -> Tensor:
        lengths = torch.LongTensor([x.shape[1]] * (x.shape[0] - 1) + [x.shape[1] - self.short])
        return self.packing(x, lengths)[0]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(
    "model",
    [Packing(), Packing(batch_first=False), Packing(nn.GRU), Packing(nn.RNN), Packing(nn.RNN, nonlinearity="relu"),
     Packing(total=7), Packing(bias=False)],
)  # fmt: skip
def test_packed_sequences_of_full_lengths_run_unpacked(model: Packing, batch: int) -> None:
    x = torch.randn((batch, 5, 4) if model.batch_first else (5, batch, 4))
    lengths = torch.full((batch,), 5)
    fails_plainly(model, x, lengths)
    program, said = exported(model, x, lengths)
    assert len(said) == 1
    assert "runs unpacked" in said[0]
    assert "program.run checks the lengths" in said[0]
    done = converted(program)
    agrees(done, model, torch.randn_like(x), lengths)
    with pytest.raises(EvaluationError, match="the lengths of packed sequences are full"):
        done.run(x, torch.full((batch,), 4), backend="evaluator")


@pytest.mark.parametrize("batch", [1, 3])
def test_lengths_that_follow_from_the_shape_need_no_check(batch: int) -> None:
    model, x = Texts(), torch.randn(batch, 5, 4)
    fails_plainly(model, x)
    program, said = exported(model, x)
    assert [each.partition(" (at")[0] for each in said] == [
        "a packed sequence, whose lengths are all full, runs unpacked"
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConversionWarning)
        done = TorchConverter().add_exported_program(program).to_coreai()
    agrees(done, model, torch.randn(batch, 5, 4))


def test_packed_sequences_of_an_open_batch() -> None:
    model = Packing()
    program, _ = exported(
        model,
        torch.randn(3, 5, 4),
        torch.full((3,), 5),
        dynamic_shapes=({0: (batch := Dim("batch", min=2, max=8))}, {0: batch}),
    )
    agrees(converted(program), model, torch.randn(6, 5, 4), torch.full((6,), 5))


@pytest.mark.parametrize("lengths", [[5, 3, 5], [4, 4, 4]])
def test_ragged_sequences_are_refused(lengths: list[int]) -> None:
    with pytest.raises(ExportError, match=r"packs sequences at test_exporting\.py:\d+, .* not all full") as raised:
        exported(Packing(), torch.randn(3, 5, 4), torch.tensor(lengths))
    assert len(str(raised.value).splitlines()) == 2


def test_ragged_sequences_by_the_shape_are_refused() -> None:
    with pytest.raises(
        ExportError,
        match=r"whose lengths are \[5, 5, 3\], not all full; dynamic_shapes can leave .* open \(in module packing, at",
    ):
        exported(Texts(short=2), torch.randn(3, 5, 4))


# ---- strict, and drafts -------------------------------------------------------------------------------


class OfArrays(nn.Module):
    """Computes with NumPy, which only the strict mode follows."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.from_numpy(np.sin(x.numpy()) * 2)


def test_a_model_that_only_strict_exports() -> None:
    model, x = OfArrays(), torch.randn(3)
    fails_plainly(model, x)
    program, said = exported(model, x)
    assert said == ["OfArrays is exported strictly, because the other mode of torch.export fails"]
    agrees(converted(program), model, torch.randn(3))
    assert exported(model, x, strict=True)[1] == []


class EarlyExit(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x + 1
        return x - 1


def test_a_draft_decides_as_for_the_example_and_says_so() -> None:
    model, x = EarlyExit(), torch.ones(3)
    fails_plainly(model, x)
    with pytest.raises(
        ExportError, match=r"(?s)only a run knows: `if x.sum\(\) > 0:`, at .*py:\d+.*assume_branch=True"
    ):
        exported(model, x)
    program, said = exported(model, x, assume_branch=True)
    assert said[0].startswith("EarlyExit is exported by torch.export.draft_export, because")
    assert len(said) == 2
    assert "only a run knows, `if x.sum() > 0:`; the program assumes True, as for the example" in said[1]
    assert "(at test_exporting.py:" in said[1]
    done = converted(program)
    agrees(done, model, torch.full((3,), 2.0))
    with pytest.raises(EvaluationError, match=r"sum\(x\) > 0"):
        done.run(-x, backend="evaluator")


class Gated(nn.Module):
    """Decides by what it computes from its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.first = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second = self.first  # tied

    def forward(self, x: Tensor) -> Tensor:
        gate = self.gate(x)
        if gate.mean() > 0:
            return self.first(x)
        return -self.second(gate)


@pytest.mark.parametrize("bias", [-50.0, 50.0])
def test_a_draft_decides_by_weights(bias: float) -> None:
    """`torch.export.draft_export` itself has empty memory in the place of parameters."""
    model, x = Gated(), torch.randn(2, 4)
    nn.init.constant_(model.gate.bias, bias)
    program, said = exported(model, x, assume_branch=True)
    assert f"assumes {bias > 0}, as for the example" in said[1]
    assert all(program.state_dict[name] is value for name, value in model.named_parameters())
    agrees(converted(program), model, torch.randn(2, 4))


def test_a_draft_can_be_refused() -> None:
    with pytest.raises(ExportError, match=r"decides in Python by a value that only a run knows"):
        exported(EarlyExit(), torch.ones(3), draft=False)


@torch.library.custom_op("exporting_test::doubled", mutates_args=())
def doubled(x: Tensor) -> Tensor:
    return x * 2


class OfAnOperator(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return doubled(x) + 1


def test_a_draft_names_an_operator_without_shape_function() -> None:
    x = torch.randn(3)
    fails_plainly(OfAnOperator(), x)
    program, said = exported(OfAnOperator(), x)
    assert "PyTorch cannot know the shapes of the results of exporting_test.doubled" in said[1]
    assert "torch.library.register_fake" in said[1]
    torch.testing.assert_close(program.module()(x), x * 2 + 1)


class Halves(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0] // 4, 4, -1).sum(1)


def test_a_draft_names_the_sizes_that_it_needs() -> None:
    model, x = Halves(), torch.randn(8, 3)
    program, said = exported(model, x, dynamic_shapes={"x": {0: Dim("rows", min=4, max=64)}})
    assert any("dynamic_shapes allows more" in each and "`return x.view" in each for each in said), said
    torch.testing.assert_close(program.module()(x), model(x))


# ---- failures -----------------------------------------------------------------------------------------


class Inner(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if float(x.sum()) > 0:
            return x
        return -x


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3), Inner()])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def test_a_failure_is_one_message(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), pytest.raises(ExportError) as raised:
        exported(Outer(), torch.randn(2, 3), draft=False)
    message = str(raised.value)
    assert message.startswith("Outer cannot be exported: the model decides in Python by a value that only a run knows")
    assert "(in module layers.1, at test_exporting.py:" in message
    assert "torch.cond" in message
    assert "docs/control-flow.md" in message
    assert len(message.splitlines()) == 2
    assert "Traceback" not in message
    assert raised.value.problem.module_path == "layers.1"
    assert raised.value.__suppress_context__
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")


class InASet(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * len(set(x.sum(1).to(torch.int64).tolist()))


class AsATensor(nn.Module):
    """Reads its own size from a tensor, as the RT-DETR of ultralytics does for its own exporter."""

    def forward(self, x: Tensor) -> Tensor:
        return x.topk(torch._shape_as_tensor(x)[1].clamp(max=2))[0]


class AsAnArray(nn.Module):
    """Goes by a number of NumPy, as the TimesNet of neuralforecast does."""

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(x.sum(1).argmax().numpy() + 1):
            x = x + 1
        return x


class Picky(nn.Module):
    def forward(self, x: Tensor, lengths: Any = None) -> Tensor:
        if lengths is not None:
            raise TypeError("takes no lengths")
        return x + 1


class Trying(nn.Module):
    """Finds out by a failing call what its layer takes, as the x-vector of SpeechBrain does."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Picky(), nn.ReLU()])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            try:
                x = layer(x, lengths=3)
            except TypeError:
                x = layer(x)
        return x


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (Trying(), "the model catches an exception that one of its modules raises"),
        (InASet(), "the model looks up, in a set or dict, a number that only a run knows"),
        (AsATensor(), "the model reads a number from a tensor whose values only a run knows"),
        (AsAnArray(), "the model reads a number from a tensor whose values only a run knows"),
    ],
)
def test_a_failure_is_said_without_the_text_of_pytorch(model: nn.Module, why: str) -> None:
    with pytest.raises(ExportError) as raised:
        exported(model, torch.ones(2, 3), draft=False)
    assert why in str(raised.value)
    assert "torch.cond" in str(raised.value) or "instead of try and except" in str(raised.value)


class CausalFromFive(nn.Module):
    """Attends to the past where there is more than a few, as Whisper's decoder does where there is more than one."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=x.shape[2] > 4)


def test_an_open_size_decides_an_argument() -> None:
    with pytest.raises(
        ExportError, match="the model passes a condition on a dynamic size as the argument is_causal of an operator"
    ):
        exported(CausalFromFive(), torch.ones(1, 2, 8, 4), dynamic_shapes=({2: Dim("n", min=2)},))


def test_example_inputs_that_do_not_fit(caplog: pytest.LogCaptureFixture) -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    with caplog.at_level(logging.DEBUG, "patcomp.export"), pytest.raises(ExportError) as raised:
        exported(model, torch.randn(2, 5))
    message = str(raised.value)
    assert "they are input: 2x5 of float32, and Linear(in_features=4, out_features=3, bias=True) does not" in message
    assert "(in module 0)" in message
    assert "docs/export.md" in message
    assert "cannot be multiplied" not in message
    assert "mat1 and mat2 shapes cannot be multiplied" in caplog.text
    with pytest.raises(ExportError, match=r"inputs do not fit forward\(input\): too many positional arguments\n"):
        exported(model, torch.randn(2, 4), torch.randn(2))


class WritesData(nn.Module):
    """Fails behind a write that PyTorch does not count."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.count.data.add_(1)
        return x @ x


def test_the_buffers_of_a_model_that_fails_stay() -> None:
    model = WritesData()
    with pytest.raises(ExportError, match="in eager PyTorch, too"):
        exported(model, torch.randn(2, 3))
    assert model.count.item() == 0


class Wrong(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise ValueError(f"expected 4 columns, got {x.shape[1]}")


def test_an_error_of_the_model_itself() -> None:
    with pytest.raises(ExportError, match=r"^Wrong cannot be exported: expected 4 columns, got 3 \(at test_exporting"):
        exported(Wrong(), torch.randn(2, 3))


def test_a_refusal_of_patcomp_passes() -> None:
    class Refusing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise patcomp.UnknownNameError("no such name")

    with pytest.raises(patcomp.UnknownNameError):
        exported(Refusing(), torch.randn(2))


def test_dynamic_shapes_that_do_not_fit() -> None:
    with pytest.raises(ExportError, match=r"docs/dynamic-shapes\.md") as raised:
        exported(Named(), {"left": torch.ones(2), "right": torch.ones(2)}, dynamic_shapes={"wrong": None})
    assert len(str(raised.value).splitlines()) == 2


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ((EarlyExit().forward, ()), "export takes a torch.nn.Module, got method"),
        ((EarlyExit(), torch.ones(3)), r"must be a tuple, got Tensor; write \(x,\)"),
        ((EarlyExit(), {"x": torch.ones(3)}), "must be a tuple, got dict; kwargs takes keyword"),
        ((EarlyExit(), (), (torch.ones(3),)), "kwargs must be a dict of keyword arguments, got tuple"),
    ],
)
def test_what_it_does_not_take(given: Any, match: str) -> None:
    with pytest.raises(TypeError, match=match):
        patcomp.export(*given)


# ---- what stays ---------------------------------------------------------------------------------------


class Caching(nn.Module):
    """Keeps what it computed: as an attribute, in a dict and in a list; and decides by a value if it should fail."""

    def __init__(self, part: nn.Module, fails: bool) -> None:
        super().__init__()
        self.part, self.fails = part, fails
        self.kept: dict[str, Tensor] = {}
        self.all: list[Tensor] = [torch.zeros(1)]
        self.last: Tensor | None = None
        self.register_buffer("calls", torch.tensor(0.0))

    def forward(self, *args: Any) -> Any:
        result = self.part(*args)
        first = result[0] if isinstance(result, tuple) else result
        self.kept["first"], self.last = first, first
        self.all.append(first)
        self.calls.add_(1)
        if self.fails and args[0].sum() > 0:
            raise ValueError("it fails")
        return result


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize(
    ("part", "inputs"),
    [(nn.Linear(3, 3), (torch.ones(2, 3),)), (Padding(), (torch.ones(1, 2, 11),)), (EarlyExit(), (torch.ones(3),)),
     (Packing(), (torch.ones(2, 5, 4), torch.tensor([5, 5]))),
     (Packing(), (torch.ones(2, 5, 4), torch.tensor([5, 4])))],
)  # fmt: skip
def test_the_model_stays_as_it_was(part: nn.Module, inputs: tuple[Tensor, ...], fails: bool) -> None:
    model = Caching(part, fails).eval()
    model.part.train()
    attributes = {path: dict(vars(module)) for path, module in model.named_modules()}
    state = {name: (value, value.clone()) for name, value in (*model.named_parameters(), *model.named_buffers())}
    arguments = [value.clone() for value in inputs]
    generator = torch.get_rng_state()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            patcomp.export(model, inputs, assume_branch=True)
        except ExportError:
            assert fails or (len(inputs) == 2 and inputs[1].tolist() == [5, 4])
        else:
            assert not fails
    for path, module in model.named_modules():
        assert vars(module).keys() == attributes[path].keys()
        assert all(value is attributes[path][name] for name, value in vars(module).items())
    now = dict((*model.named_parameters(), *model.named_buffers()))
    assert now.keys() == state.keys()
    for name, (value, content) in state.items():
        assert now[name] is value
        assert torch.equal(value, content)
    assert (model.kept, len(model.all), model.last) == ({}, 1, None)
    assert (model.training, model.part.training, type(model)) == (False, True, Caching)
    assert all(map(torch.equal, inputs, arguments))
    assert torch.equal(torch.get_rng_state(), generator)


def test_threads_export_at_once() -> None:
    """One model in all threads, and one for each."""
    shared, results, errors = Padding().eval(), dict[int, tuple[nn.Module, ExportedProgram]](), list[BaseException]()

    def work(number: int) -> None:
        model = shared if number % 2 else Windows().eval()
        try:
            program = patcomp.export(model, (torch.randn((1, 2, 11) if number % 2 else (4, 6)),))
            results[number] = model, program
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConversionWarning)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert errors == []
    assert len(results) == 6
    for number, (model, program) in results.items():
        x = torch.randn((1, 2, 11) if number % 2 else (4, 6))
        torch.testing.assert_close(program.module()(x), model(x))


class Casts(nn.Module):
    """Casts its layer in each call, as routers of Switch Transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        self.layer = self.layer.to(torch.float32).to(x.device)
        return self.layer(x)


def test_a_cast_of_a_layer_that_has_the_type_already() -> None:
    model, x = Casts(), torch.rand(2, 4)
    program, said = exported(model, x)
    assert said == []
    agrees(converted(program), model, x)
