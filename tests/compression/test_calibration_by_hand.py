"""Each kind of product is rounded by examples as a few lines of PyTorch round it: the same three programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from patcomp import TorchConverter
from patcomp.composite_ops import GatherMM
from patcomp.compression.gptq import fitted_weights
from patcomp.compression.scheme import Layout, Scheme
from patcomp.program import calibration

INPUTS = 32
FLOAT32 = np.dtype("f4")


@dataclass(frozen=True)
class Kind:
    """A product of float32 values, (2, 40, 32), by a weight.

    Attributes:
        shape: the weight's shape.
        product: computes the product of values and a weight.
        rows: gives the inputs of each of the weight's matrices, (rows, inputs); none if each number is rounded to the
            nearest.
        matrices: the weight as (matrices, outputs, inputs), a view.
        places: how many places of a kernel each channel has.
        chosen: which matrix each row of the inputs reads; every row reads all by default.
        twice: whether the model has a second product by the weight, which the rounding does not see.
    """

    shape: tuple[int, ...]
    product: Callable[[Tensor, Tensor], Tensor]
    rows: Callable[[Tensor], list[Tensor]] | None
    matrices: Callable[[Tensor], Tensor] = lambda weight: weight[None]
    places: int = 1
    chosen: Callable[[Tensor], Tensor] | None = None
    twice: bool = False


def flat(x: Tensor) -> list[Tensor]:
    return [x.reshape(-1, x.shape[-1])]


def image(x: Tensor) -> Tensor:
    """(2, 32, 5, 8)"""
    return x.unflatten(1, (5, 8)).permute(0, 3, 1, 2)


def windows(x: Tensor, kernel: tuple[int, int], **options: Any) -> list[Tensor]:
    return flat(functional.unfold(x, kernel, **options).mT)


def heads(x: Tensor) -> Tensor:
    """(2, 2, 40, 16)"""
    return x.unflatten(-1, (2, 16)).transpose(1, 2)


def route(x: Tensor) -> Tensor:
    """The largest of the first three elements of each row: rows of rounded programs may choose another matrix."""
    return x[..., :3].argmax(-1)


def experts(batch: int) -> Callable[[Tensor, Tensor], Tensor]:
    product = GatherMM(num_batch_axes=batch)

    def run(x: Tensor, weight: Tensor) -> Tensor:
        rows = x.reshape(*[1] * batch, -1, 1, 1, INPUTS)
        return product(rows, weight, rhs_indices=route(x).reshape(-1, 1))

    return run


SQUARE = (INPUTS, INPUTS)
KINDS = {
    "right": Kind(SQUARE, lambda x, w: x @ w, flat, lambda w: w.mT[None]),
    "transposed": Kind(SQUARE, functional.linear, flat),
    "left": Kind(SQUARE, lambda x, w: (w @ x.mT).mT, flat),
    "one more axis": Kind(SQUARE, lambda x, w: x @ w[None], flat, lambda w: w.mT[None]),
    "several on the same": Kind((3, 32, 16), lambda x, w: x[:, None] @ w, lambda x: flat(x) * 3, lambda w: w.mT),
    "several on their own": Kind(
        (2, 16, 16), lambda x, w: heads(x) @ w, lambda x: [each.reshape(-1, 16) for each in heads(x).unbind(1)],
        lambda w: w.mT,
    ),
    "twice": Kind(SQUARE, functional.linear, flat, twice=True),
    "convolution of one dimension": Kind(
        (16, 32, 3), lambda x, w: functional.conv1d(x.mT, w, padding=1),
        lambda x: windows(x.mT[:, :, None], (1, 3), padding=(0, 1)), lambda w: w.flatten(1)[None], 3,
    ),
    "convolution": Kind(
        (16, 32, 2, 3), lambda x, w: functional.conv2d(image(x), w, stride=(2, 1), dilation=(1, 2)),
        lambda x: windows(image(x), (2, 3), stride=(2, 1), dilation=(1, 2)), lambda w: w.flatten(1)[None], 6,
    ),
    "convolution twice": Kind(
        (32, 32, 3), lambda x, w: functional.conv1d(x.mT, w, padding=1).mT,
        lambda x: windows(x.mT[:, :, None], (1, 3), padding=(0, 1)), lambda w: w.flatten(1)[None], 3, twice=True,
    ),
    "experts": Kind((3, 32, 16), experts(0), lambda x: flat(x) * 3, lambda w: w.mT, chosen=route),
    "experts behind an axis": Kind((1, 3, 32, 16), experts(1), lambda x: flat(x) * 3, lambda w: w[0].mT, chosen=route),
    "grouped convolution": Kind((16, 16, 3), lambda x, w: functional.conv1d(x.mT, w, groups=2), None),
    "transposed convolution": Kind((32, 16, 3), lambda x, w: functional.conv_transpose1d(x.mT, w), None),
    "along both axes": Kind(SQUARE, lambda x, w: functional.linear(x @ w, w), None),
    "lookup": Kind(SQUARE, lambda x, w: x + functional.embedding(route(x), w), None),
}  # fmt: skip


class Net(nn.Module):
    """A product before the one of a kind, so that the rounded programs have other inputs there."""

    def __init__(self, kind: Kind):
        super().__init__()
        draw = torch.Generator().manual_seed(0)
        self.kind = kind
        self.first = nn.Parameter(torch.randn(SQUARE, generator=draw) / 6)
        self.second = nn.Parameter(torch.randn(kind.shape, generator=draw) / 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.behind(self.before(x, self.first), self.second)

    def before(self, x: Tensor, first: Tensor) -> Tensor:
        return torch.tanh(functional.linear(x, first))

    def behind(self, x: Tensor, second: Tensor) -> Tensor:
        x = self.kind.product(x, second)
        return self.kind.product(torch.tanh(x), second) if self.kind.twice else x


def rounded(
    kind: Kind, scheme: Scheme, weight: Tensor, exact: list[Tensor], found: list[Tensor] | None = None
) -> Tensor:
    """A weight, rounded by its inputs in two programs; to the nearest without `found`."""
    matrices = kind.matrices(weight)
    layout = Layout((0,), 1) if len(matrices) == 1 else Layout((0, 1), 2)
    scheme = scheme.for_places(kind.places) if found is not None else scheme
    better, moments = matrices.numpy(), []
    if found is not None:
        assert kind.rows is not None
        ours, theirs = ([torch.cat(each).double() for each in zip(*map(kind.rows, xs), strict=True)]
                        for xs in (found, exact))  # fmt: skip
        if kind.chosen is not None:
            one, two = (torch.cat([kind.chosen(x).reshape(-1) for x in xs]) for xs in (found, exact))
            assert 0 < (one != two).sum() < len(one) / 4
            pairs = [((one == number) & (two == number)) for number in range(len(matrices))]
            ours, theirs = ([each[pair] for each, pair in zip(rows, pairs, strict=True)] for rows in (ours, theirs))
        moments = [(one.mT @ one / len(one)).numpy() for one in ours]
        crossed = [(one.mT @ two / len(one)).numpy() for one, two in zip(ours, theirs, strict=True)]
        better = np.stack([fitted_weights(*each) for each in zip(better, moments, crossed, strict=True)])
    given = better[0] if len(better) == 1 else better
    made = scheme.store_for(given, layout, FLOAT32, moments) if moments else scheme.store(given, layout, FLOAT32)
    result = weight.clone()
    kind.matrices(result).copy_(torch.from_numpy(made.floats()).reshape(matrices.shape))
    return result


@pytest.mark.parametrize("name", KINDS)
def test_the_three_programs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, scheme = KINDS[name], "w3_block16"
    xs = [torch.randn(2, 40, INPUTS, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2)]
    net = Net(kind).eval()
    program = TorchConverter().add_exported_program(torch.export.export(net, (xs[0],))).to_coreai()
    compared: list[Any] = []
    monkeypatch.setattr(calibration, "worse", lambda *given: compared.append(given) or "")
    config = {"scheme": scheme, "threshold": 1}
    near, small = program.compress(config), program.compress(config, inputs=[(x,) for x in xs])
    for got, made in zip(compared[0], (program, small, near), strict=True):
        for one, x in zip(got, xs, strict=True):
            torch.testing.assert_close(one, made.run(x))
    assert small.compression is not None
    assert [weight.by_examples for weight in small.compression.weights] == [True, kind.rows is not None]
    if kind.rows is None:
        return
    with torch.no_grad():
        parsed, linear = Scheme.parse(scheme), KINDS["transposed"]
        first = rounded(linear, parsed, net.first, xs, xs)
        inner = [[net.before(x, weight) for x in xs] for weight in (net.first, first)]
        second = rounded(kind, parsed, net.second, *inner)
        for x, values in zip(xs, inner[1], strict=True):
            wanted, exact = net.behind(values, second), net(x)
            # a scale that is as good as another one may be the other one, which changes a few weights
            assert (small.run(x) - wanted).norm() < 0.1 * (wanted - exact).norm()
