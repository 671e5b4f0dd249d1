"""Recurrent networks over an open number of steps: loops that are equal at every length, also of packed sequences."""

from __future__ import annotations

import io
import itertools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import patcomp
from patcomp import AIProgram, ConversionWarning, EvaluationError, ExportError, TorchConverter
from patcomp.emit.native import Native
from patcomp.frontend_torch.exporting.over_time import RecurrentNetworks

pytestmark = pytest.mark.filterwarnings("ignore:The tensor attributes:UserWarning")  # PyTorch about lists of weights

STEPS, BATCH = Dim("steps", min=1, max=64), Dim("batch", min=1, max=8)
SIZES = ((1, 1), (2, 2), (7, 3), (50, 2))
"""Steps and batch."""


def converted(exported: ExportedProgram) -> AIProgram:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConversionWarning)  # about checks of values
        return TorchConverter().add_exported_program(exported).to_coreai()


def loops(program: AIProgram) -> int:
    return str(program).count("coreai.while")


def agrees(program: AIProgram, model: nn.Module, *inputs: Any) -> None:
    program.verify_against(model, inputs, backends=["evaluator"]).check()


class Network(nn.Module):
    """A recurrent network with all of its results; its inputs for some sizes, and which of their sizes are open."""

    def __init__(
        self, kind: type[nn.RNNBase], *, has_state: bool = False, is_batched: bool = True,
        dtype: torch.dtype = torch.float32, **options: Any,
    ):  # fmt: skip
        super().__init__()
        self.network = kind(4, 5, **options).to(dtype)
        self.has_state, self.is_batched, self.dtype = has_state, is_batched, dtype
        self.eval()

    def forward(self, x: Tensor, state: Any = None) -> Any:
        return self.network(x, state)

    def layers(self) -> int:
        return self.network.num_layers * (2 if self.network.bidirectional else 1)

    def inputs(self, steps: int, batch: int) -> tuple[Any, ...]:
        if not self.is_batched:
            return (torch.randn(steps, 4, dtype=self.dtype),)
        sizes = (batch, steps) if self.network.batch_first else (steps, batch)
        x = torch.randn(*sizes, 4, dtype=self.dtype)
        hidden, cell = (
            torch.randn(self.layers(), batch, size, dtype=self.dtype) for size in (self.network.proj_size or 5, 5)
        )
        state = (hidden, cell) if isinstance(self.network, nn.LSTM) else hidden
        return (x, state) if self.has_state else (x,)

    def open_sizes(self) -> tuple[Any, ...]:
        if not self.is_batched:
            return ({0: STEPS},)
        x = {0: BATCH, 1: STEPS} if self.network.batch_first else {0: STEPS, 1: BATCH}
        state = ({1: BATCH}, {1: BATCH}) if isinstance(self.network, nn.LSTM) else {1: BATCH}
        return (x, state) if self.has_state else (x,)


NETWORKS: dict[str, Callable[[], Network]] = {
    "LSTM, unbatched": lambda: Network(nn.LSTM, is_batched=False),
    "LSTM, projected, two ways": lambda: Network(nn.LSTM, proj_size=3, bidirectional=True, has_state=True),
    "LSTM, projected, no bias": lambda: Network(nn.LSTM, proj_size=3, bias=False, num_layers=2, batch_first=True),
    "GRU, two layers and ways": lambda: Network(nn.GRU, num_layers=2, bidirectional=True, batch_first=True),
    "GRU, no bias, dropout in eval": lambda: Network(nn.GRU, bias=False, num_layers=2, dropout=0.5, has_state=True),
    "RNN": lambda: Network(nn.RNN, batch_first=True, has_state=True),
    "RNN, relu, halves": lambda: Network(nn.RNN, nonlinearity="relu", bidirectional=True, dtype=torch.float16),
}


def opened(model: Network) -> AIProgram:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConversionWarning)
        return converted(patcomp.export(model, model.inputs(6, 2), dynamic_shapes=model.open_sizes()))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_are_loops_that_are_equal_at_every_length(name: str) -> None:
    model = NETWORKS[name]()
    before = dict(vars(model.network)), {key: id(value) for key, value in model.network.named_parameters()}
    program = opened(model)
    assert (dict(vars(model.network)), {key: id(value) for key, value in model.network.named_parameters()}) == before
    assert loops(program) == model.layers()
    for steps, batch in SIZES:
        agrees(program, model, *model.inputs(steps, batch))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_all_options_at_once(kind: type[nn.RNNBase], dtype: torch.dtype) -> None:
    switches = itertools.product((False, True), repeat=5)
    for number, (bidirectional, batch_first, bias, has_state, is_projected) in enumerate(switches):
        if is_projected and kind is not nn.LSTM:
            continue
        model = Network(
            kind, has_state=has_state, dtype=dtype, num_layers=1 + number % 2, bidirectional=bidirectional,
            batch_first=batch_first, bias=bias, **({"proj_size": 2} if is_projected else {}),
        )  # fmt: skip
        program = opened(model)
        for steps, batch in SIZES:
            agrees(program, model, *model.inputs(steps, batch))


def test_a_fixed_length_is_unrolled() -> None:
    model, x = Network(nn.LSTM, bidirectional=True), torch.randn(3, 2, 4)
    text = str(converted(patcomp.export(model, (x,))))
    assert text == str(converted(torch.export.export(model, (x,))))
    assert "coreai.while" not in text


def test_a_fixed_length_is_a_loop_if_asked_for() -> None:
    class Chunk(Network):
        def forward(self, x: Tensor, state: Any = None) -> Any:
            with RecurrentNetworks(every=True):
                return super().forward(x, state)

    model, x = Chunk(nn.GRU), torch.randn(3, 2, 4)
    program = converted(torch.export.export(model, (x,)))
    assert loops(program) == 1
    agrees(program, model.network, x)


def test_pytorch_may_open_the_length() -> None:
    """`torch.export` alone fixes a length that it may choose."""
    model = Network(nn.RNN)
    program = converted(patcomp.export(model, (torch.randn(6, 2, 4),), dynamic_shapes=({0: Dim.AUTO},)))
    agrees(program, model, torch.randn(9, 2, 4))


@pytest.mark.parametrize("way", ["saved", "decomposed"])
def test_loops_are_saved_and_decomposed(way: str) -> None:
    model = Network(nn.LSTM, proj_size=3)
    exported = patcomp.export(model, model.inputs(6, 2), dynamic_shapes=model.open_sizes())
    if way == "decomposed":
        exported = exported.run_decompositions()
    else:
        file = io.BytesIO()
        torch.export.save(exported, file)
        exported = torch.export.load(io.BytesIO(file.getvalue()))
    program = converted(exported)
    for steps, batch in SIZES:
        if way == "decomposed" or batch > 1:  # a file keeps PyTorch's guard, batch != 1, but not where it comes from
            agrees(program, model, *model.inputs(steps, batch))


def test_dropout_between_layers_is_refused() -> None:
    model = Network(nn.LSTM, num_layers=2, dropout=0.5).train()
    with pytest.raises(ExportError, match=r"dropout between recurrent layers is random; export after model\.eval"):
        patcomp.export(model, model.inputs(6, 2), dynamic_shapes=model.open_sizes())


class Recogniser(nn.Module):
    """Reads a line of text: a convolution, a recurrent network along the width, and scores of characters for CTC."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.ReLU(), nn.MaxPool2d((2, 1)))
        self.network = nn.LSTM(16, 6, bidirectional=True, batch_first=True)
        self.head = nn.Linear(12, 11)

    def forward(self, image: Tensor) -> Tensor:
        columns = self.features(image).permute(0, 3, 1, 2).flatten(2)
        return self.head(self.network(columns)[0]).log_softmax(-1)


def test_a_recogniser_is_one_asset_for_every_width(native: Native, tmp_path: Path) -> None:
    """`torch.export` refuses the linear layer of a fixed batch behind the convolution, whose width follows from another
    one, also without a recurrent network."""
    model = Recogniser().eval()
    width = {3: Dim("width", min=3, max=256)}
    program = converted(patcomp.export(model, (torch.randn(1, 1, 16, 24),), dynamic_shapes=(width,)))
    assert program.signature().guards == ()
    asset = tmp_path / "recogniser.aimodel"
    program.save_asset(asset)
    for size in (3, 4, 7, 100):
        image = torch.randn(1, 1, 16, size)
        agrees(program, model, image)
        (result,) = native.call(asset, {"image": image})[0].values()
        torch.testing.assert_close(torch.as_tensor(result), model(image).detach(), atol=1e-5, rtol=1e-4)


# ---- packed sequences ---------------------------------------------------------------------------------


class Packed(nn.Module):
    """A recurrent network on a packed sequence of an open number of steps."""

    def __init__(
        self, kind: type[nn.RNNBase] = nn.LSTM, *, has_total: bool = False, is_sorted: bool = False,
        reads: Callable[[PackedSequence], Any] | None = None, **options: Any,
    ):  # fmt: skip
        super().__init__()
        self.network = kind(4, 3, bidirectional=True, **options)
        self.has_total, self.is_sorted, self.reads = has_total, is_sorted, reads
        self.eval()

    def forward(self, x: Tensor, lengths: Tensor) -> Any:
        first = self.network.batch_first
        packed = pack_padded_sequence(x, lengths, batch_first=first, enforce_sorted=self.is_sorted)
        made, state = self.network(packed)
        total = x.shape[1 if first else 0] if self.has_total else None
        rows, counts = pad_packed_sequence(made, batch_first=first, padding_value=-2.0, total_length=total)
        return rows, counts, state, None if self.reads is None else self.reads(packed)

    def inputs(self, steps: int, batch: int, *lengths: int) -> tuple[Tensor, Tensor]:
        drawn = torch.tensor(lengths) if lengths else torch.randint(1, steps + 1, (batch,))
        sizes = (batch, steps) if self.network.batch_first else (steps, batch)
        return torch.randn(*sizes, 4), drawn.sort(descending=True)[0] if self.is_sorted else drawn

    def exported(self, *lengths: int) -> ExportedProgram:
        x = {0: BATCH, 1: STEPS} if self.network.batch_first else {0: STEPS, 1: BATCH}
        return patcomp.export(self, self.inputs(6, 3, *lengths), dynamic_shapes=(x, {0: BATCH}))


PACKED: dict[str, Callable[[], Packed]] = {
    "LSTM": lambda: Packed(batch_first=True),
    "LSTM, with a total": lambda: Packed(batch_first=True, has_total=True, num_layers=2),
    "LSTM, projected": lambda: Packed(proj_size=2, has_total=True),
    "GRU, sorted": lambda: Packed(nn.GRU, is_sorted=True),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", PACKED)
def test_packed_sequences_may_have_any_lengths(name: str) -> None:
    model = PACKED[name]()
    program = converted(model.exported(4, 6, 2))
    assert loops(program) == 2 * model.network.num_layers
    for steps, batch in SIZES:
        agrees(program, model, *model.inputs(steps, batch))


@pytest.mark.parametrize("is_sorted", [True, False])
def test_lengths_that_pytorch_does_not_pack(is_sorted: bool) -> None:
    """No steps, fewer, more than there are, and in another order than the model says."""
    model = Packed(batch_first=True, has_total=True, is_sorted=is_sorted)
    exported, message = model.exported(6, 4, 2), "the lengths of packed sequences are from 1 to the number of steps"
    program = converted(exported)
    for lengths in ((5, 0), (5, -1), (6, 5), *[(3, 5)] * is_sorted):
        given = torch.randn(2, 5, 4), torch.tensor(lengths)
        with pytest.raises(RuntimeError):
            model(*given)
        with pytest.raises(RuntimeError, match=message):
            exported.module()(*given)
        with pytest.raises(EvaluationError, match=message):
            program.run(*given, backend="evaluator")
    agrees(program, model, *model.inputs(5, 1, 5))
    with pytest.raises(ExportError, match="the model fails on its example inputs in eager PyTorch, too"):
        model.exported(6, 4, 0)
    with pytest.raises(ExportError, match="cannot be exported"):
        patcomp.export(model, (torch.randn(2, 0, 4), torch.tensor([0, 0])))


def test_packed_sequences_run_in_an_asset(native: Native, tmp_path: Path) -> None:
    model = Packed(nn.GRU, batch_first=True, has_total=True)
    asset = tmp_path / "packed.aimodel"
    program = converted(model.exported(4, 6, 2))
    program.save_asset(asset)
    for steps, batch in SIZES:
        x, lengths = model.inputs(steps, batch)
        results = native.call(asset, {"x": x, "lengths": lengths.int()})[0]
        rows, counts, state, _ = model(x, lengths)
        for name, wanted in zip(program.output_names(), (rows, counts.int(), state), strict=True):
            torch.testing.assert_close(torch.as_tensor(results[name]), wanted.detach(), atol=1e-5, rtol=1e-4)


READS: dict[str, Callable[[PackedSequence], Any]] = {
    "data": lambda packed: packed.data.tanh().sum(),
    "number of rows": lambda packed: packed.data.shape[0] * torch.ones(1),
    "batch sizes": lambda packed: packed.batch_sizes * 2,
    "a batch size": lambda packed: packed.batch_sizes[1] * torch.ones(1),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", READS)
def test_what_a_model_computes_of_packed_data_needs_full_lengths(name: str) -> None:
    model = Packed(batch_first=True, reads=READS[name])
    with pytest.warns(ConversionWarning, match="a packed sequence runs unpacked, .* all lengths are full"):
        exported = model.exported(6, 6, 6)
    exported.module()(*model.inputs(6, 3, 6, 6, 6))
    with pytest.raises(RuntimeError, match="the lengths of packed sequences are full"):
        exported.module()(*model.inputs(6, 3, 6, 4, 6))


def test_a_program_refuses_lengths_that_are_not_full_if_a_model_reads_packed_data() -> None:
    model = Packed(batch_first=True, reads=READS["data"])
    with pytest.warns(ConversionWarning, match="runs unpacked"):
        program = converted(model.exported(6, 6, 6))
    agrees(program, model, *model.inputs(7, 2, 7, 7))
    with pytest.raises(EvaluationError, match="the lengths of packed sequences are full"):
        program.run(*model.inputs(7, 2, 7, 5), backend="evaluator")
    with pytest.raises(ExportError, match="the lengths of the example are not all full"):
        model.exported(6, 4, 6)
