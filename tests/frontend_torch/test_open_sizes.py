"""`patcomp.export` gives the open sizes that it is asked for, also for an example of size 0 or 1, or refuses."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, _meta_registrations, nn
from torch.export import Dim

import patcomp
from patcomp import ConversionWarning, ExportError, TorchConverter
from patcomp.pytorch import open_pools

BATCH = Dim("batch", min=1, max=8)


class Pairs(nn.Module):
    """Takes a dict with a list, and a size that derives from another."""

    def forward(self, x: Tensor, more: dict[str, Any]) -> Tensor:
        y, z = more["pair"]
        return x + y.reshape(2, -1).sum(0) + z.sum()


class Decides(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1 if x.sum() > -1e9 else x


class Fixes(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(3, 4)


def exported(model: nn.Module, args: tuple[Any, ...], shapes: Any, **options: Any) -> torch.export.ExportedProgram:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConversionWarning)
        return patcomp.export(model.eval(), args, dynamic_shapes=shapes, **options)


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("by_name", [False, True])
def test_a_batch_of_one_is_open(size: int, by_name: bool) -> None:
    model, x = nn.Sequential(nn.Linear(4, 3), nn.ReLU()), torch.randn(size, 4)
    program = exported(model, (x,), {"input": {0: BATCH}} if by_name else ({0: BATCH},))
    ((example,), _) = program.example_inputs
    assert example is x
    converted = TorchConverter().add_exported_program(program).to_coreai()
    for batch in (1, 2, 8):
        assert converted.verify_against(model, (torch.randn(batch, 4),), backends=["evaluator"]).passed


def test_an_empty_example_is_open() -> None:
    model, x = nn.Linear(4, 3), torch.randn(0, 4)
    program = exported(model, (x,), ({0: Dim("rows", min=0, max=8)},))
    converted = TorchConverter().add_exported_program(program).to_coreai()
    for rows in (0, 1, 5):
        assert converted.run(torch.ones(rows, 4)).shape == (rows, 3)


def test_derived_sizes_follow() -> None:
    model = Pairs()
    inputs = torch.randn(1), {"pair": [torch.randn(2), torch.randn(5)]}
    shapes = ({0: BATCH}, {"pair": [{0: 2 * BATCH}, None]})
    with pytest.raises(Exception, match="specialized"):
        torch.export.export(model, inputs, dynamic_shapes=shapes)
    converted = TorchConverter().add_exported_program(exported(model, inputs, shapes)).to_coreai()
    for batch in (1, 4):
        given = torch.randn(batch), {"pair": [torch.randn(2 * batch), torch.randn(5)]}
        assert converted.verify_against(model, given, backends=["evaluator"]).passed


@pytest.mark.parametrize(
    ("model", "x", "dim", "message"),
    [
        (Decides(), torch.randn(1), BATCH, r"leaves batch open \(dimension 0 of x\).*fixes it to the 1 of the example"),
        (Fixes(), torch.randn(3, 4), BATCH, r"leaves batch open .* and the model fixes it to the 3 of the example"),
        (nn.Linear(3, 3), torch.randn(1, 3), Dim("one", min=0, max=1), r"give an example with 2 or more"),
        (nn.Linear(3, 3), torch.randn(1, 3), Dim.DYNAMIC, r"cannot be exported"),
    ],
    ids=["a decision", "a fixed size", "a range without 2", "no range"],
)  # fmt: skip
def test_what_cannot_be_open_is_refused(model: nn.Module, x: Tensor, dim: Any, message: str) -> None:
    with pytest.raises(ExportError, match=message):
        exported(model, (x,), ({0: dim},), assume_branch=True)


def test_sizes_that_need_not_be_open_may_be_fixed() -> None:
    for dim in (Dim.AUTO, Dim.STATIC, None):
        program = exported(nn.Linear(3, 3), (torch.randn(1, 3),), ({0: dim},))
        assert program.range_constraints == {}
    decides = exported(Decides(), (torch.randn(3),), ({0: Dim.AUTO},), assume_branch=True)
    assert decides.example_inputs is not None


def test_pools_that_round_up_leave_sizes_open() -> None:
    """PyTorch forbids them, because it cannot prove that the last window begins within the input."""
    model = nn.MaxPool2d(2, ceil_mode=True)
    program = patcomp.export(model, (torch.randn(2, 3, 8, 8),), dynamic_shapes=({0: BATCH, 2: Dim("height")},))
    converted = TorchConverter().add_exported_program(program).to_coreai()
    assert set(converted.signature().dims) == {"batch", "height"}
    for height in (2, 7, 12):
        x = torch.randn(1, 3, height, 8)
        (result,) = converted.run({"input": x}).values()
        assert torch.equal(torch.as_tensor(result), model(x))


def test_the_sizes_of_pools_are_pytorchs() -> None:
    settings = itertools.product(range(1, 13), range(1, 5), range(3), range(3), range(1, 5), (1, 2), (False, True))
    cases = [each for each in settings if each[0] + each[2] + each[3] > each[5] * (each[1] - 1)]
    expected = [_meta_registrations.pooling_output_shape_pad_lr(*each) for each in cases]
    with open_pools():
        assert [_meta_registrations.pooling_output_shape_pad_lr(*each) for each in cases] == expected


class Limited(nn.Module):
    """A draft exports it, because it allows 1 to 8 rows and at most 5 columns."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        if x.shape[1] > 5:
            raise ValueError("too long")
        return x + y if self.training else x * y.sum()


@pytest.mark.parametrize("agree", [True, False])
def test_a_draft_keeps_the_names_of_sizes_and_says_which_it_does_not_take(agree: bool) -> None:
    model, length = Limited().train(agree), Dim("length", min=2, max=7)
    shapes = {"x": {0: BATCH, 1: length}, "y": {0: 1 * BATCH, 1: length}}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConversionWarning)
        program = patcomp.export(model, (torch.ones(2, 3), torch.ones(2, 3)), dynamic_shapes=shapes)
    said = [text for each in caught if (text := str(each.message)).startswith("dynamic_shapes leaves")]
    assert said == [
        "dynamic_shapes leaves batch open from 1 to 8, and the program takes it from 2 to 8",
        "dynamic_shapes leaves length open from 2 to 7, and the program takes it from 2 to 5",
    ]
    dims = TorchConverter().add_exported_program(program).to_coreai().signature().dims
    own = {"batch": (2, 8), "length": (2, 5)}
    # without `agree`, the draft does not know that x and y have one batch and one length
    assert dims == (own if agree else {"s0": (2, 8), "s1": (2, 5), "s2": (2, 8), "s3": (2, 7)})
