"""`program.compress(inputs=...)`: weights that are rounded so that the outputs of their products stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from patcomp import ExternalizeSpec, TorchConverter, mark_for_externalization
from patcomp.composite_ops import GatherMM
from patcomp.compression import Scheme
from patcomp.compression.gptq import compensate, damped, fitted_weights
from patcomp.compression.scheme import Layout
from patcomp.emit.native import Native
from patcomp.evaluate.lockstep import windows
from patcomp.program.program import AIProgram

SCHEMES = ["w4_block32", "w3_block32", "w2_block32", "w8", "w2", "pal4", "pal3_group16"]


def inputs_of_low_rank(*shape: int, seed: int = 0) -> Tensor:
    """Inputs that mostly move in a quarter of their directions, as those of trained models do."""
    generator = torch.Generator().manual_seed(seed)
    *rows, size = shape
    directions = torch.randn(size // 4, size, generator=torch.Generator().manual_seed(9))
    drawn = torch.randn(*rows, size // 4, generator=generator)
    return drawn @ directions + 0.05 * torch.randn(*shape, generator=generator)


def converted(model: nn.Module, *inputs: Tensor) -> AIProgram:
    return TorchConverter().add_exported_program(torch.export.export(model.eval(), inputs)).to_coreai()


def error_of(program: AIProgram, small: AIProgram, *inputs: Tensor) -> float:
    wanted, made = program.run(*inputs), small.run(*inputs)
    return float((wanted - made).float().norm() / wanted.float().norm())


# ---- the arithmetic -------------------------------------------------------------------------------


def nearest_quarter(first: int, columns: np.ndarray) -> Any:
    return lambda place, column: np.rint(column * 4) / 4


def test_a_later_input_makes_up_for_the_rounding_of_an_earlier_one() -> None:
    """Two inputs that are nearly equal: what the first weight loses, the second one gets."""
    moments = np.array([[1.0, 0.999], [0.999, 1.0]])
    weight, found = np.float32([[0.1, 0.1]]), []

    def start(first: int, columns: np.ndarray) -> Any:
        def nearest(place: int, column: np.ndarray) -> np.ndarray:
            found.append(np.rint(column * 4) / 4)
            return found[-1]

        return nearest

    compensate(weight, moments, 2, start)
    assert [float(each[0]) for each in found] == [0.0, 0.25]  # 0.1 + 0.1 is 0.25 rather than 0
    assert weight.tolist() == np.float32([[0.1, 0.1]]).tolist()  # the argument stays


@pytest.mark.parametrize("size", [5, 128, 131, 300])
@pytest.mark.parametrize("block", [5, 64, 300])
def test_parts_of_the_inputs_change_nothing(size: int, block: int) -> None:
    """The lazy update is the one of each input after the other (Frantar et al. 2022, algorithm 1)."""
    random = np.random.default_rng(0)
    inputs = random.standard_normal((2 * size, size)) @ random.standard_normal((size, size))
    moments, weight = inputs.T @ inputs, random.standard_normal((3, size)).astype(np.float32)
    left, upper = weight.astype(np.float64), np.linalg.cholesky(np.linalg.inv(damped(moments))).T
    wanted = np.empty_like(left)
    for place in range(size):
        wanted[:, place] = np.rint(left[:, place] * 4) / 4
        left[:, place:] -= np.outer((left[:, place] - wanted[:, place]) / upper[place, place], upper[place, place:])
    made = np.empty_like(left)

    def start(first: int, columns: np.ndarray) -> Any:
        assert columns.shape == (3, min(block, size - first))

        def nearest(place: int, column: np.ndarray) -> np.ndarray:
            made[:, place] = np.rint(column * 4) / 4
            return made[:, place]

        return nearest

    compensate(weight, moments, block, start)
    assert (made != wanted).mean() < 0.02  # ties of float32 and float64


def test_a_fitted_weight_gives_the_outputs_for_other_inputs() -> None:
    random = np.random.default_rng(0)
    own, weight = random.standard_normal((200, 8)), random.standard_normal((3, 8)).astype(np.float32)
    made = own @ (np.eye(8) + 0.1 * random.standard_normal((8, 8)))  # the inputs of the rounded program
    better = fitted_weights(weight, made.T @ made / 200, made.T @ own / 200)
    lost, before = (np.abs(made @ each.T - own @ weight.T).mean() for each in (better, weight))
    assert lost < 0.1 * before
    same = fitted_weights(weight, own.T @ own / 200, own.T @ own / 200)
    assert np.allclose(same, weight, atol=1e-5)


def test_a_weight_whose_inputs_are_all_zero_is_rounded() -> None:
    stored = Scheme.parse("w4_block32").store_for(
        np.ones((4, 32), np.float32), Layout((0,), 1), np.dtype("f4"), [np.zeros((32, 32))]
    )
    assert np.allclose(stored.floats(), 1)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("kept", [(0,), (1,), (0, 2), (1, 0)])
def test_all_layouts_store_the_same(scheme: str, kept: tuple[int, ...]) -> None:
    """The axes of a weight may be in any order."""
    random = np.random.default_rng(0)
    rank = len(kept) + 1
    summed = next(axis for axis in range(rank) if axis not in kept)
    matrices = random.standard_normal((*(3, 48)[-len(kept) :], 64)).astype(np.float32)
    moments = [np.cov(random.standard_normal((64, 90))) for _ in range(3 if rank == 3 else 1)]
    order = np.argsort([*kept, summed])
    weight = np.ascontiguousarray(matrices.transpose(order))
    made = Scheme.parse(scheme).store_for(weight, Layout(kept, summed), np.dtype("f4"), moments).floats()
    plain = Layout(tuple(range(rank - 1)), rank - 1)
    wanted = Scheme.parse(scheme).store_for(matrices, plain, np.dtype("f4"), moments).floats()
    assert np.array_equal(made, wanted.transpose(order))


# ---- programs -------------------------------------------------------------------------------------


class Layers(nn.Module):
    """Products of all kinds: of both sides, several matrices, one weight for two, a lookup, a convolution."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(64, 64, bias=False), nn.Linear(64, 64)
        self.left = nn.Parameter(torch.randn(64, 64) / 8)
        self.several = nn.Parameter(torch.randn(4, 64, 48) / 8)
        self.conv = nn.Conv1d(64, 64, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.second(torch.tanh(self.first(x)))
        x = x + self.first(x)  # again
        x = x + (self.left @ x.mT).mT
        x = x + self.conv(x.mT).mT
        heads = x[:, None] @ self.several  # (batch, 4, rows, 48)
        return heads.sum(1)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_less_is_lost_on_other_inputs(scheme: str, native: Native) -> None:
    """Also on inputs that the rounding has not seen; and the runtime computes the same."""
    shape = (2, 256, 64)
    program = converted(Layers(), inputs_of_low_rank(*shape))
    near = program.compress(scheme)
    small = program.compress(scheme, inputs=[(inputs_of_low_rank(*shape, seed=seed),) for seed in (1, 2)])
    assert near.compression is not None
    assert small.compression is not None
    assert near.compression.after == small.compression.after  # the same bytes
    other = inputs_of_low_rank(*shape, seed=3)
    assert error_of(program, small, other) < 0.8 * error_of(program, near, other)
    (made,) = native.run(small.module, {program.input_names()[0]: other}).values()
    assert torch.allclose(torch.as_tensor(made), small.run(other), atol=2e-3)


def test_the_inputs_can_be_for_the_report_alone() -> None:
    program = converted(Layers(), inputs_of_low_rank(1, 32, 64))
    near, same = (
        program.compress("w4", **options)
        for options in ({}, {"inputs": (inputs_of_low_rank(1, 32, 64),), "calibrate": False})
    )
    assert str(near) == str(same)
    assert same.compression is not None
    assert same.compression.output_psnr


def test_the_order_of_examples_and_their_number_do_not_matter() -> None:
    """One example of two rows is two examples of a row, up to float32."""
    model = nn.Linear(64, 64)
    program = TorchConverter().add_exported_program(
        torch.export.export(model, (torch.randn(2, 64),), dynamic_shapes=({0: torch.export.Dim("rows", min=1)},))
    ).to_coreai()  # fmt: skip
    x = inputs_of_low_rank(128, 64)
    together, apart = program.compress("w4", inputs=(x,)), program.compress("w4", inputs=[(x[:50],), (x[50:],)])
    assert error_of(together, apart, x) < 0.01


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype: torch.dtype) -> None:
    x = inputs_of_low_rank(4, 64, 64).to(dtype)
    program = converted(Layers().to(dtype), x)
    near, small = program.compress("w3_block32"), program.compress("w3_block32", inputs=(x,))
    assert error_of(program, small, x) < 0.6 * error_of(program, near, x)


class Convolutions(nn.Module):
    """Windows with strides and gaps, in two and three dimensions; a transposed and a grouped one."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Conv2d(32, 64, 3, stride=2, padding=1)
        self.second = nn.Conv2d(64, 64, (3, 1), dilation=2, padding=(2, 0))
        self.volume = nn.Conv3d(16, 32, (1, 3, 3), padding=(0, 1, 1))
        self.grouped, self.up = nn.Conv2d(64, 64, 3, padding=1, groups=4), nn.ConvTranspose2d(64, 32, 2, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.second(torch.tanh(self.first(x)))
        x = self.volume(x.unflatten(1, (4, 16)).transpose(1, 2)).transpose(1, 2).flatten(1, 2)
        return self.up(torch.tanh(nn.functional.pad(self.grouped(x[:, :64]), (0, 0, 0, 0))))


@pytest.mark.parametrize("scheme", ["w4_block32", "w3", "pal3", "pal3_group16"])
def test_less_is_lost_by_convolutions(scheme: str, native: Native) -> None:
    def images(seed: int) -> Tensor:
        return inputs_of_low_rank(4, 24, 24, 32, seed=seed).permute(0, 3, 1, 2).contiguous()

    program = converted(Convolutions(), images(0))
    config = {"scheme": scheme, "names": {"grouped.weight": "w8", "up.weight": "w8"}}
    near, small = program.compress(config), program.compress(config, inputs=(images(1),))
    assert near.compression is not None
    assert small.compression is not None
    assert near.compression.after == small.compression.after
    assert error_of(program, small, images(3)) < 0.85 * error_of(program, near, images(3))
    assert "3 of 5 weights were rounded by the examples; 2 by conv were rounded number by number" in str(
        small.compression
    )
    (made,) = native.run(small.module, {program.input_names()[0]: images(3)}).values()
    assert torch.allclose(torch.as_tensor(made), small.run(images(3)), atol=1e-3)


@pytest.mark.parametrize(("kernel", "stride", "dilation"), [((3, 2), (1, 2), (2, 1)), ((1, 1), (1, 1), (1, 1))])
def test_windows(kernel: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int]) -> None:
    x = torch.randn(2, 3, 9, 8)
    expected = nn.functional.unfold(x, kernel, dilation=dilation, stride=stride)
    made = windows(x, kernel, stride, dilation)
    assert torch.equal(made, expected.mT.reshape(1, -1, expected.shape[1]))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(64, 96), nn.Linear(96, 64)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.relu(self.up(x)))


def test_modules_of_one_graph_are_rounded_by_their_own_inputs() -> None:
    """An externalized module is a graph that is called with the weights of each place."""
    torch.manual_seed(0)
    model = nn.Sequential(Block(), Block(), Block()).eval()
    x = inputs_of_low_rank(1, 128, 64)
    plain = converted(model, x)
    with mark_for_externalization(model, [ExternalizeSpec(Block, "block", [])]):
        exported = torch.export.export(model, (x,))
    outlined = TorchConverter().add_exported_program(exported).to_coreai()
    assert "coreai.invoke" in str(outlined)
    small, wanted = (each.compress("w2_block32", inputs=(x,)).compression for each in (outlined, plain))
    assert small is not None
    assert wanted is not None
    assert [each.signal for each in small.weights] == pytest.approx([each.signal for each in wanted.weights], abs=0.1)


class Experts(nn.Module):
    """Each row goes to two chosen matrices, and what they make to two others."""

    def __init__(self, batch: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.product, self.batch = GatherMM(num_batch_axes=batch), batch
        shapes = ((*[1] * batch, 5, *sizes) for sizes in ((32, 64), (64, 32)))
        self.up, self.down = (nn.Parameter(torch.randn(shape) / 6) for shape in shapes)

    def forward(self, x: Tensor, chosen: Tensor) -> Tensor:
        x = x[None] if self.batch else x
        up = torch.relu(self.product(x, self.up, rhs_indices=chosen))
        return self.product(up, self.down, rhs_indices=chosen)


@pytest.mark.parametrize(("scheme", "batch"), [("w2_block32", 1), ("pal3", 0)])
def test_experts_are_rounded_by_the_rows_that_choose_them(scheme: str, batch: int, native: Native) -> None:
    """The inputs of each expert lie in directions of their own; nobody chooses the last one."""
    generator = torch.Generator().manual_seed(3)
    directions = torch.randn(5, 6, 32, generator=generator)

    def drawn(seed: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        first = torch.randint(4, (300,), generator=generator)
        chosen = torch.stack([first, (first + 1) % 4], 1)
        x = torch.randn(300, 1, 6, generator=generator) @ directions[first]
        return x.reshape(300, 1, 1, 32), chosen

    program = converted(Experts(batch), *drawn(0))
    near, small = program.compress(scheme), program.compress(scheme, inputs=[drawn(1), drawn(2)])
    assert error_of(program, small, *drawn(5)) < 0.7 * error_of(program, near, *drawn(5))
    x, chosen = drawn(5)
    made = native.run(small.module, dict(zip(program.input_names(), (x, chosen.int()), strict=True)))
    assert torch.allclose(torch.as_tensor(next(iter(made.values()))), small.run(x, chosen), atol=2e-3)
    stays = torch.full_like(chosen, 4)
    assert error_of(program, small, x, stays) == pytest.approx(error_of(program, near, x, stays), rel=0.2)


class Loop(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inside, self.behind, self.taken, self.seldom = (nn.Linear(64, 64) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        from torch._higher_order_ops.while_loop import while_loop

        x = torch.cond(x.sum() < 9e9, lambda x: self.taken(x), lambda x: self.seldom(x), (x,))
        _, x = while_loop(lambda i, x: i < 2, lambda i, x: (i + 1, torch.tanh(self.inside(x))), (torch.tensor(0), x))
        return self.behind(x)


def test_weights_in_loops_and_branches() -> None:
    """All iterations count; a branch that no example takes is rounded to the nearest."""
    x = inputs_of_low_rank(256, 64)
    program = converted(Loop(), x)
    near, small = program.compress("w3_block32"), program.compress("w3_block32", inputs=(x,), measure="weights")
    assert small.compression is not None
    by_examples = {each.name.split(".")[-2] for each in small.compression.weights if each.by_examples}
    assert by_examples == {"taken", "inside", "behind"}
    other = inputs_of_low_rank(256, 64, seed=3)
    assert error_of(program, small, other) < 0.7 * error_of(program, near, other)
