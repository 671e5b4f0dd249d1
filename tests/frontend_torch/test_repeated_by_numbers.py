"""`repeat_interleave` with a tensor of repeats, as the length regulators of speech models expand tokens to frames."""

from __future__ import annotations

import io
from typing import Any

import torch
from torch import nn
from torch.export import Dim

from patcomp import TorchConverter
from patcomp.emit.native import Native
from patcomp.evaluate.inputs import prepare_input


class LengthRegulator(nn.Module):
    """Frames of tokens by predicted durations, the token of each frame, and repeats in other forms."""

    def forward(self, x: torch.Tensor, durations: torch.Tensor) -> Any:
        frames = x.repeat_interleave(durations, dim=1)
        index = torch.repeat_interleave(durations.int())
        each = durations.repeat_interleave(torch.tensor([2]), dim=-1)
        constant = x.repeat_interleave(torch.tensor([1, 0, 3]), dim=2)
        return (
            frames.sum(1) * frames.shape[1],
            index,
            each,
            constant,
            x[0, 0].repeat_interleave(durations[:3], output_size=6),
        )


CALLS = [
    (torch.arange(2.0 * count * 3).reshape(2, count, 3), torch.tensor(durations))
    for count, durations in ((4, [2, 1, 3, 1]), (3, [0, 5, 1]), (5, [0, 6, 0, 1, 4]))
]


def test_repeats_by_numbers(native: Native) -> None:
    model, count = LengthRegulator(), Dim("tokens", min=3, max=64)
    exported = torch.export.export(model, CALLS[0], dynamic_shapes=({1: count}, {0: count}))
    stored = io.BytesIO()
    torch.export.save(exported, stored)
    stored.seek(0)
    programs = [
        TorchConverter().add_exported_program(each).to_coreai()
        for each in (exported, torch.export.load(stored), exported.run_decompositions())
    ]
    arguments = [argument.type for argument in programs[0].module.graph("main").regions[0].block.args]
    for call in CALLS:
        wanted = model(*call)
        given = zip(programs[0].input_names(), call, arguments, strict=True)
        inputs = {name: prepare_input(value, type_, name) for name, value, type_ in given}
        made = [list(native.run(programs[0].module, inputs).values())]
        made += [list(program.run(*call)) for program in programs]
        for outputs in made:
            for output, expected in zip(outputs, wanted, strict=True):
                torch.testing.assert_close(torch.as_tensor(output), expected, check_dtype=False)


def test_nothing_is_repeated(native: Native) -> None:
    class Only(nn.Module):
        def forward(self, x: torch.Tensor, repeats: torch.Tensor) -> torch.Tensor:
            return x.repeat_interleave(repeats, dim=0) * 2

    call = torch.ones(3, 2), torch.tensor([0, 0, 0])
    program = TorchConverter().add_exported_program(torch.export.export(Only(), call)).to_coreai()
    arguments = [argument.type for argument in program.module.graph("main").regions[0].block.args]
    given = zip(program.input_names(), call, arguments, strict=True)
    inputs = {name: prepare_input(value, type_, name) for name, value, type_ in given}
    (output,) = native.run(program.module, inputs).values()
    assert output.shape == torch.as_tensor(program.run(*call)).shape == (0, 2)
