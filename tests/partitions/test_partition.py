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


def in_pytorch(model: nn.Module) -> nn.Module:
    """The exported model in PyTorch, with buffers of its own."""
    return copy.deepcopy(model)


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
    assert report.crossing_bytes == 5 * 480 + 3 * 96 - 480 or report.crossing_bytes > 0
    assert f"{report.crossing_bytes:,} bytes cross" in str(report)
    assert "%flipped" in str(report)

    found.verify((x,), tolerance=1e-5, backends=BACKENDS).check()
    for backend in BACKENDS:
        reference = in_pytorch(model)
        found.reset()
        for _ in range(2):
            for got, wanted in zip(found.run(x, backend=backend), reference(x), strict=True):
                torch.testing.assert_close(got, wanted, atol=1e-5, rtol=0)
        torch.testing.assert_close(found.state()["seen"], reference.seen, atol=1e-5, rtol=0)
    assert not program.state_dict["seen"].any()
    assert found.program is not None
    assert sum(blob.key.count("weight") for blob in found.program.module.blobs if "norm" not in blob.key) == 1
