"""What staging says of programs that are incomplete, or that may not be the program that was meant."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import ExportedProgram

from patcomp import (
    AIProgram,
    ConversionWarning,
    EvaluationError,
    PatcompError,
    TorchConverter,
    UnsupportedError,
    get_decomp_table,
    supports,
)
from patcomp.ir.xdsl import ops_inside

X = torch.randn(2, 4)


def staged(program: ExportedProgram) -> TorchConverter:
    return TorchConverter().add_exported_program(program)


def converted(model: nn.Module, *inputs: torch.Tensor) -> tuple[AIProgram, list[str]]:
    """The program of a model and the warnings of its conversion."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        program = staged(torch.export.export(model, inputs or (X,))).to_coreai()
    texts = [str(each.message) for each in caught if issubclass(each.category, ConversionWarning)]
    assert texts == [str(problem) for problem in program.diagnostics]
    return program, texts


def refusal(program: ExportedProgram) -> str:
    with pytest.raises(UnsupportedError) as error:
        staged(program)
    return str(error.value)


# ---- training mode ----------------------------------------------------------------------------------


def norms() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.BatchNorm1d(4, momentum=0.5))


TABLES: dict[str, Callable[[ExportedProgram], ExportedProgram]] = {
    "undecomposed": lambda program: program,
    "PyTorch's table": lambda program: program.run_decompositions(),
    "ours": lambda program: program.run_decompositions(get_decomp_table()),
}


@pytest.mark.parametrize("table", TABLES)
def test_batch_norm_in_training_mode(table: str) -> None:
    program = TABLES[table](torch.export.export(norms().train(), (X,)))
    with pytest.warns(ConversionWarning, match="the batch norms '1', '2' are in training mode") as caught:
        text = str(staged(program).to_coreai().report())
    assert sum("training mode" in str(each.message) for each in caught) == 1
    assert "call model.eval() before torch.export.export" in text


def test_training_mode_and_weights_without_values_are_found_when_staged() -> None:
    """With the line of the caller, and only once."""
    for program, message in (
        (torch.export.export(norms().train(), (X,)), "in training mode"),
        (on_the_meta_device(), "have no values, because they are fake or on the meta device"),
    ):
        with pytest.warns(ConversionWarning, match=message) as caught:
            converter = TorchConverter().add_exported_program(program)
        places = [Path(each.filename).name for each in caught if each.category is ConversionWarning]
        assert places == [Path(__file__).name]
        with warnings.catch_warnings():
            warnings.simplefilter("error", ConversionWarning)
            assert [problem.advice for problem in converter.to_coreai().diagnostics if "\n" not in problem.advice]
            assert supports(program)


def test_equal_advice_is_given_once() -> None:
    model = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.Dropout()) for _ in range(5))).train()
    lines = refusal(torch.export.export(model, (X,))).splitlines()
    assert [line[:4] for line in lines[1:6]] == [f"  {number}." for number in range(1, 6)]
    assert len(lines) == 7
    assert "dropout is for training: call model.eval() before torch.export.export" in lines[6]


def test_batch_norms_that_are_no_surprise() -> None:
    assert converted(norms().eval())[1] == []
    assert converted(nn.Sequential(nn.BatchNorm1d(4, track_running_stats=False)).train())[1] == []


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("running_mean", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.running_mean.lerp_(x.mean(0), 0.5)
        return x - self.running_mean


def test_running_statistics_of_the_models_own_are_no_batch_norm() -> None:
    assert converted(Counts())[1] == []


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("layer", [nn.Dropout(), nn.AlphaDropout(), nn.Dropout1d(), nn.RReLU()])
def test_dropout_in_training_mode(layer: nn.Module, table: str) -> None:
    text = refusal(TABLES[table](torch.export.export(nn.Sequential(layer).train(), (X,))))
    assert "which draws random numbers" in text
    assert "dropout is for training: call model.eval() before torch.export.export" in text


class Noise(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.randn_like(x)


class NoiseInPlace(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + x.new_empty(x.shape).normal_()


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize(("model", "ops"), [(Noise(), "randn_like"), (NoiseInPlace(), "normal_functional")])
def test_the_first_line_about_random_numbers_says_what_to_do(model: nn.Module, ops: str, table: str) -> None:
    text = refusal(TABLES[table](torch.export.export(model, (X,))))
    first, *_ = text.splitlines()
    assert 'it draws random numbers, for which there is random="inputs": aten.' in first
    assert table == "PyTorch's table" or ops in first
    assert "unsupported" not in first
    assert 'convert with random="inputs" (--random inputs)' in text


class Types(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.to(torch.promote_types(x.dtype, torch.float64)) if torch.can_cast(x.dtype, torch.float64) else x
        return wide + torch.ones(4, dtype=torch.int64).to(torch.result_type(x, 2))


@pytest.mark.parametrize("table", TABLES)
def test_questions_about_types_are_answered_by_export(table: str) -> None:
    program = staged(TABLES[table](torch.export.export(Types(), (X,)))).to_coreai()
    torch.testing.assert_close(program.run(X), Types()(X), check_dtype=False)


class Assigns(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.given, self.used = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.used.weight.data = self.given.weight.detach() * 2
        return self.used(x)


def test_an_assignment_to_data_is_refused() -> None:
    """PyTorch leaves it out of the program, which then has the weight as it was."""
    text = refusal(torch.export.export(Assigns(), (X,)))
    assert "the model assigns to `.data`, which the exported program leaves out: it has the old numbers" in text
    assert "assign the weights before the export, and leave the assignment out of `forward`" in text


def test_recurrent_networks_without_dropout_are_not_random() -> None:
    assert converted(nn.LSTM(4, 4).train())[1] == []
    lstm = nn.LSTM(4, 4, num_layers=2, dropout=0.5)
    assert "which draws random numbers" in refusal(torch.export.export(lstm.train(), (X,)))
    assert converted(lstm.eval())[1] == []


# ---- incomplete programs ----------------------------------------------------------------------------


class Scaled(nn.Module):
    """A model with weights of several kinds, one of them in 64 bits, and a tied one."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64, bias=False)
        self.second.weight = self.first.weight
        self.register_buffer("offsets", torch.arange(64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x).relu()) * self.offsets


def on_the_meta_device() -> ExportedProgram:
    return torch.export.export(Scaled().eval().to("meta"), (torch.randn(2, 64, device="meta"),))


def in_fake_mode() -> ExportedProgram:
    with FakeTensorMode():
        return torch.export.export(Scaled().eval(), (torch.randn(2, 64),))


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("make", [on_the_meta_device, in_fake_mode])
def test_weights_without_values_convert_to_text(
    make: Callable[[], ExportedProgram], table: str, tmp_path: Path
) -> None:
    x = torch.randn(2, 64)
    wanted = staged(torch.export.export(Scaled().eval(), (x,))).to_coreai()
    with pytest.warns(ConversionWarning, match="have no values, because they are fake or on the meta device") as caught:
        program = staged(TABLES[table](make())).to_coreai()
    assert any("model.to_empty(device='cpu') and model.load_state_dict(...)" in str(each.message) for each in caught)
    assert "dense_resource<second.weight>" in program.text()
    ours, theirs = (Counter(op.name for op in ops_inside(one.module.op)) for one in (program, wanted))
    kinds = ("decomposable.broadcasting_batch_matmul", "decomposable.broadcasting_add", "relu")
    assert [ours[f"coreai.{kind}"] for kind in kinds] == [theirs[f"coreai.{kind}"] for kind in kinds] == [2, 1, 1]
    assert program.stages["recover"]
    with pytest.raises(EvaluationError, match="has no values"):
        program.run(x)
    with pytest.raises(PatcompError, match=r"the weight .* has no values, .* then export and convert it again"):
        program.save_asset(tmp_path / "a.aimodel")
    assert not list(tmp_path.iterdir())


def test_states_without_values() -> None:
    assert "the buffer 'running_mean', which the program writes to, has no values" in refusal(
        torch.export.export(Counts().to("meta"), (X.to("meta"),))
    )


class Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("unused", torch.empty(1000, device="meta"))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


def test_unused_weights_need_no_values() -> None:
    program, texts = converted(Unused())
    assert texts == []
    assert torch.equal(program.run(X), X + 1)


def with_untyped_nodes(used: bool) -> ExportedProgram:
    """A program with nodes that lack `meta["val"]`, as passes of other tools leave them."""
    program = torch.export.export(nn.ReLU(), (X,)).run_decompositions()
    graph = program.graph_module.graph
    (x,) = graph.find_nodes(op="placeholder")
    (relu,) = graph.find_nodes(op="call_function", target=torch.ops.aten.relu.default)
    with graph.inserting_after(x):
        first = graph.call_function(torch.ops.aten.neg.default, (x,))
    with graph.inserting_after(first):
        second = graph.call_function(torch.ops.aten.squeeze.dims, (first, [0]))
    if used:
        relu.args = (second,)
    return program


def test_dead_nodes_without_a_type_are_left_out() -> None:
    program = with_untyped_nodes(used=False)
    nodes = [node.name for node in program.graph.nodes]
    converted = staged(program).to_coreai()
    assert "neg" not in str(converted.stages["import"])
    assert torch.equal(converted.run(X), X.relu())
    assert [node.name for node in program.graph.nodes] == nodes


def test_used_nodes_without_a_type_are_named() -> None:
    text = refusal(with_untyped_nodes(used=True))
    assert "1. the node has no meta['val'], which records the shape and element type of its result (op aten.neg" in text
    assert (
        "2. the node has no meta['val'], which records the shape and element type of its result (op aten.squeeze.dims, "
    )
    assert "node %squeeze" in text


# ---- compression that is not read -------------------------------------------------------------------


class Described(nn.Module):
    """A linear layer beside which are buffers that describe its weight."""

    def __init__(self, buffers: dict[str, Any], persistent: bool = True):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        for name, value in buffers.items():
            self.fc.register_buffer(name, torch.as_tensor(value), persistent=persistent)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x)


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("persistent", [True, False])
def test_compression_described_for_core_ml(table: str, persistent: bool) -> None:
    described = {
        "_COREML_/weight/compression_type": [3],
        "_COREML_/weight/quantization_n_bits": 8,
        "_COREML_/weight/quantization_scale": torch.ones(4, 1),
    }
    model = nn.Sequential(Described(described, persistent), nn.Linear(4, 4))
    model.register_buffer("_COREML_/metadata_version", torch.tensor(1))
    with pytest.warns(ConversionWarning) as caught:
        program = staged(TABLES[table](torch.export.export(model, (X,)))).to_coreai()
    (problem,) = program.diagnostics
    assert problem.message == (
        "the weights '0.fc.weight' become floats of 64 bytes, because the buffers `_COREML_/...` beside them do not "
        "say how they are compressed: the weight is not (integer - zero point) * scale"
    )
    assert [str(each.message) for each in caught if each.category is ConversionWarning] == [str(problem)]
    assert "0.fc.weight" in str(program.report())


@pytest.mark.parametrize(
    "name", ["weight_scale", "weight_scale_inv", "weight_zero_point", "weight_lut", "weight_absmax"]
)
def test_other_buffers_that_describe_a_weight(name: str) -> None:
    _, (text,) = converted(Described({name: torch.ones(4, 1)}))
    assert text.startswith(
        f"the weights 'fc.weight' become floats of 64 bytes: the program does not read 'fc.{name}', which by their"
    )


class Dequantizes(nn.Module):
    """A symmetric quantization: the zero point is there, and not needed."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(-8, 8, (4, 4)).float())
        self.register_buffer("weight_scale", torch.rand(4, 1))
        self.register_buffer("weight_zero_point", torch.zeros(4, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ (self.weight * self.weight_scale)


class Ordinary(nn.Module):
    """Buffers of ordinary models that no program reads."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.embed = nn.BatchNorm1d(4), nn.Embedding(8, 4)
        self.register_buffer("position_ids", torch.arange(8)[None])
        self.register_buffer("inv_freq", torch.rand(2), persistent=False)
        self.register_buffer("original_inv_freq", torch.rand(2), persistent=False)
        self.register_buffer("logit_scale", torch.tensor(1.0))
        self.logit = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x) + self.embed.weight[0]


@pytest.mark.parametrize(
    "model",
    [Dequantizes(), Ordinary(), Described({"scale": torch.ones(1), "weight_count": torch.ones(1)})],
    ids=["zero point not needed", "ordinary", "other names"],
)
def test_no_false_alarm(model: nn.Module) -> None:
    assert converted(model.eval())[1] == []
