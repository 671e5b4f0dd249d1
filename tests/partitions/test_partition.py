"""`patcomp.partition`: the parts, what stays in PyTorch, what crosses, and the numbers of the composition."""

from __future__ import annotations

import copy
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import patcomp
from patcomp.partitions.running import Backend
from tests.partitions.models import Branch, Detector, Mixture, TwoCustomOps

BACKENDS: tuple[Backend, ...] = ("evaluator", "runtime") if find_spec("coreai") else ("evaluator",)


def exported(model: nn.Module, *args: Tensor, **dynamic: Any) -> torch.export.ExportedProgram:
    return torch.export.export(model.eval(), args, dynamic_shapes=dynamic.get("shapes"))


def of(model: nn.Module, *args: Tensor, **options: Any) -> patcomp.Partitioned:
    return patcomp.partition(exported(model, *args), **options)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def test_two_custom_ops() -> None:
    """Four calls with a state: two on each backend, after the state of the exported program."""
    model, x = TwoCustomOps(), torch.randn(5, 24)
    program = exported(model, x)
    found = patcomp.partition(program)
    report = found.report
    assert [part.name for part in report.parts] == ["part_0", "part_1"]
    assert [part.multiply_adds for part in report.parts] == [5 * 24 * 24, 2 * 5 * 24 * 24]
    assert report.converted_multiply_adds == 1
    left = {problem.op: problem for problem in report.left}
    assert set(left) == {"partitions.flipped", "auto_functionalized_v2"}
    assert left["partitions.flipped"].source.startswith("tests/partitions/models.py:")
    assert "patcomp rule new flipped" in left["partitions.flipped"].advice
    assert "partitions::bump writes to its arguments" in left["auto_functionalized_v2"].advice
    assert report.converted_ops == 1 - 2 / report.ops
    crossings = {each.value: (each.bytes, each.source, each.readers) for each in report.crossings}
    assert crossings["x"] == (480, "input", ("part_0",))
    assert crossings["b_seen"] == (96, "input", ("part_1",))
    assert crossings["flipped"] == (480, "PyTorch", ("part_1",))
    assert report.crossing_bytes == sum(each.bytes * len(each.readers) for each in report.crossings)
    assert f"{report.crossing_bytes:,} bytes cross" in str(report)
    assert "%flipped" in str(report)

    found.verify((x,), tolerance=1e-5, backends=BACKENDS).check()
    for backend in BACKENDS:
        reference = copy.deepcopy(model)
        found.reset()
        for _ in range(2):
            for got, wanted in zip(found.run(x, backend=backend), reference(x), strict=True):
                torch.testing.assert_close(got, wanted, atol=1e-5, rtol=0)
        torch.testing.assert_close(found.state()["seen"], reference.seen, atol=1e-5, rtol=0)
    assert not program.state_dict["seen"].any()
    assert found.program is not None
    assert len([blob for blob in found.program.module.blobs if "weight" in blob.key and "norm" not in blob.key]) == 1


def test_a_branch_on_data() -> None:
    """The branch with a custom op stays in PyTorch; the other one converts."""
    found = of(Branch(), x := torch.randn(4, 16))
    (left,) = found.report.left
    assert (left.op, left.node) == ("partitions.flipped", "true_graph_0_flipped")
    assert len(found.parts) == 2
    assert str(found.rest.graph).count("higher_order.cond]") == 1
    for sign in (1, -1):
        found.verify((sign * x,), tolerance=1e-5, backends=BACKENDS).check()


def test_a_mixture_with_a_loop_in_python() -> None:
    """It converts whole; with its router kept out, the experts are a part whose sizes data decide."""
    x = torch.randn(6, 16)
    whole = of(Mixture(), x)
    assert len(whole.parts) == 1
    assert not whole.report.left
    found = of(Mixture(), x, do_not_convert=["router"])
    assert [problem.module_path for problem in found.report.left] == ["router"]
    for each in (whole, found):
        each.verify((x,), tolerance=1e-5, backends=BACKENDS).check()


@pytest.mark.filterwarnings("ignore:.*new_dynamic_size:FutureWarning", "ignore::patcomp.ConversionWarning")
def test_a_detector_with_suppression() -> None:
    import torchvision  # noqa: F401  (the shape of its operator)

    nms, image = torch.ops.torchvision.nms, torch.rand(1, 3, 32, 32)
    found = of(Detector(), image, do_not_convert=[nms])
    assert [problem.op for problem in found.report.left] == ["torchvision.nms"]
    assert len(found.parts) == 2
    found.verify((image,), tolerance=1e-5, backends=BACKENDS).check()


@pytest.mark.filterwarnings("ignore:.*new_dynamic_size:FutureWarning", "ignore::patcomp.ConversionWarning")
@pytest.mark.parametrize("backend", BACKENDS)
def test_pytorch_computes_a_part_of_nothing(backend: Backend) -> None:
    """No box is kept, and the runtime may end the process on empty tensors."""
    import torchvision  # noqa: F401

    image = torch.rand(1, 3, 32, 32)
    found = of(Detector(least=2.0), image, do_not_convert=["aten.index", "torchvision.nms"])
    with pytest.warns(patcomp.ConversionWarning, match="PyTorch computes part_1 for these sizes: .* is empty"):
        boxes, classes = found.run(image, backend=backend)
    assert (boxes.shape, classes.shape) == ((0, 4), (0, 10))


class Refused(nn.Module):
    """The converter has a rule for `nonzero`, which refuses tensors without dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = self.linear(x)
        return y.relu(), y.sum().nonzero().sum(), y.mean().nonzero().sum()


def test_what_a_rule_refuses_stays_out() -> None:
    found = of(Refused(), x := torch.randn(4, 16))
    assert [(each.op, each.node) for each in found.report.left if "0-d" in each.message] == [
        ("aten.nonzero", "nonzero"), ("aten.nonzero", "nonzero_1"),
    ]  # fmt: skip
    assert len(found.parts) == 1
    found.verify((x,), tolerance=1e-5).check()


@pytest.mark.parametrize(
    "name",
    [
        "fir*", "first", nn.LayerNorm, "aten.layer_norm", "aten::layer_norm", torch.ops.aten.layer_norm,
        torch.ops.aten.layer_norm.default, "%layer_norm",
    ],
    ids=str,
)  # fmt: skip
def test_the_user_keeps_ops_out(name: Any) -> None:
    model = nn.Sequential()
    model.add_module("first", nn.Linear(16, 16))
    model.add_module("norm", nn.LayerNorm(16))
    found = of(model, x := torch.randn(2, 16), do_not_convert=[name])
    (left,) = [problem.op for problem in found.report.left if problem.message.startswith("do_not_convert names ")]
    assert left == ("aten.linear" if str(name).startswith("fir") else "aten.layer_norm")
    torch.testing.assert_close(found(x), model(x), atol=1e-5, rtol=0)


def test_a_name_that_nothing_has() -> None:
    with pytest.raises(patcomp.UnknownNameError, match=r"'frist', but no op .* first"):
        of(TwoCustomOps(), torch.randn(2, 24), do_not_convert="frist")


def test_a_part_must_be_worth_what_crosses() -> None:
    """A sum of two tensors computes a third of what crosses; a product by 16 columns computes 16 for each element."""

    class Model(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return torch.ops.partitions.flipped(x + y) @ y.T

    x, y = torch.randn(16, 16), torch.randn(16, 16)
    found = of(Model(), x, y)
    assert [problem.op for problem in found.report.left] == ["aten.add.Tensor", "partitions.flipped"]
    assert "computes 256 for 768 elements" in found.report.left[0].message
    assert found.report.left[0].advice == "least_intensity=0.33 makes it a part"
    both = of(Model(), x, y, least_intensity=0.33)
    assert len(both.parts) == 2
    for each in (found, both):
        each.verify((x, y), tolerance=1e-5, backends=BACKENDS).check()


def test_a_program_that_converts_whole_is_one_part() -> None:
    found = of(nn.ReLU(), x := torch.randn(2, 3))
    assert len(found.parts) == 1
    assert torch.equal(found(x), x.relu())


def test_a_program_of_which_nothing_converts() -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.ops.partitions.flipped(x)

    found = of(Model(), x := torch.randn(2, 3))
    assert (found.parts, found.program, found.report.converted_ops) == ((), None, 0)
    assert torch.equal(found.run(x, backend="evaluator"), x.flip(-1) * 2)


def test_dynamic_sizes() -> None:
    """Other sizes than the example's; a part measures the sizes of its tensors and takes no number for them."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            y = torch.ops.partitions.flipped(x).reshape(2 * x.shape[0], 4)
            return self.linear(y.reshape(x.shape[0], 8)) * x.shape[0]

    batch = torch.export.Dim("batch", min=2, max=64)
    found = patcomp.partition(exported(Model(), torch.randn(4, 8), shapes={"x": {0: batch}}))
    (part,) = found.parts
    assert [node.name for node in part.inputs] == ["flipped"]
    assert found.report.crossings[0].bytes == 4 * 8 * 4
    for size in (2, 9, 64):
        found.verify((torch.randn(size, 8),), tolerance=1e-4, backends=BACKENDS).check()
    with pytest.raises(AssertionError, match="64"):
        found(torch.randn(65, 8))


def test_results_of_parts_share_no_memory_with_states_and_have_the_strides_of_export() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("held", torch.ones(8, 8))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            old = self.held.clone()
            self.held.add_(x @ x)
            return old, torch.ops.partitions.strides((x @ x).T)

    found = of(Model(), x := torch.randn(8, 8), least_intensity=0)
    old, strides = found(x)
    assert torch.equal(old, torch.ones(8, 8))
    assert strides.tolist() == [1, 8]
    found.reset()
    assert torch.equal(found.state()["held"], torch.ones(8, 8))


def test_pytorch_reads_the_memory_that_export_recorded() -> None:
    """Of a view with gaps: what makes it stays in PyTorch, too."""

    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.as_strided((x @ x)[:, 1:3], (2, 8), (4, 1))

    found = of(Model(), x := torch.randn(8, 8), do_not_convert="aten.as_strided")
    assert [problem.op for problem in found.report.left] == ["aten.matmul", "aten.slice.Tensor", "aten.as_strided"]
    found.verify((x,), tolerance=1e-5, backends=BACKENDS).check()


def test_an_input_that_the_model_writes_to() -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            x.add_(x @ x)
            return torch.ops.partitions.flipped(x)

    found = of(Model(), x := torch.randn(8, 8))
    checked = found.verify((x,), tolerance=1e-5, backends=["evaluator"])
    checked.check()
    assert [error.name for error in checked.errors] == ["flipped", "input 0"]
    expected = x + x @ x
    found(x)
    torch.testing.assert_close(x, expected)


def test_a_converter_with_a_lowering_brings_an_op_in() -> None:
    from patcomp.ir import coreai

    converter = patcomp.TorchConverter()

    @converter.register_torch_lowering("partitions::flipped")
    def flipped(values: Any, node: Any, loc: Any) -> Any:
        x = patcomp.get_operand(values, node, 0, loc)
        return coreai.broadcasting_add(x, x, loc=loc)

    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.ops.partitions.flipped(x)

    found = of(Model(), torch.ones(2, 3), converter=converter)
    assert not found.report.left
    assert torch.equal(found(torch.ones(2, 3)), torch.full((2, 3), 2.0))
    with pytest.raises(RuntimeError, match="No programs"):
        converter.to_coreai()


def test_wrong_uses() -> None:
    with pytest.raises(TypeError, match=r"torch\.export\.ExportedProgram, got ReLU"):
        patcomp.partition(nn.ReLU())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="backend must be"):
        of(nn.ReLU(), torch.ones(2)).run(torch.ones(2), backend="gpu")  # type: ignore[arg-type]
