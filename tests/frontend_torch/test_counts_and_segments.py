"""`bincount` and `segment_reduce` of as many numbers as an input has."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from patcomp import TorchConverter
from patcomp.emit.native import Native
from patcomp.evaluate.inputs import prepare_input


class Counts(nn.Module):
    def forward(self, numbers: Tensor, x: Tensor, lengths: Tensor) -> Any:
        at_least = torch.bincount(numbers, minlength=7)
        means = torch.segment_reduce(x, "mean", lengths=lengths, axis=0)
        largest = torch.segment_reduce(x, "max", lengths=lengths, axis=0, initial=0.5)
        return torch.bincount(numbers).float(), at_least[:7], torch.bincount(numbers, x[:, 0]), means, largest


def test_open_sizes(native: Native) -> None:
    calls = [
        (torch.tensor(numbers), torch.arange(2.0 * len(numbers)).reshape(-1, 2), torch.tensor(lengths))
        for numbers, lengths in (([0, 3, 3, 5], [1, 0, 3]), ([9, 1, 9], [2, 1]), ([0, 0, 0, 0, 0], [0, 1, 0, 4]))
    ]
    count, segments = Dim("count", min=2, max=99), Dim("segments", min=2, max=99)
    exported = torch.export.export(Counts(), calls[0], dynamic_shapes=({0: count}, {0: count}, {0: segments}))
    program = TorchConverter().add_exported_program(exported).to_coreai()
    types = [argument.type for argument in program.module.graph("main").regions[0].block.args]
    for call in calls:
        given = zip(program.input_names(), call, types, strict=True)
        inputs = {name: prepare_input(value, type_, name) for name, value, type_ in given}
        for outputs in (program.run(inputs), native.run(program.module, inputs)):
            for name, wanted in zip(program.output_names(), Counts()(*call), strict=True):
                torch.testing.assert_close(torch.as_tensor(outputs[name]), wanted, check_dtype=False, equal_nan=True)
