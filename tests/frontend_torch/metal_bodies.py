"""Metal kernels of the kinds that people write first, and one mistake in each of twelve of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from patcomp import MetalParameter, TorchMetalKernel

ID = MetalParameter("id", "uint", "thread_position_in_grid")
POSITION = MetalParameter("at", "uint2", "thread_position_in_grid")
OF_ROW = [
    MetalParameter("row", "uint", "threadgroup_position_in_grid"),
    MetalParameter("lane", "uint", "thread_position_in_threadgroup"),
    MetalParameter("lanes", "uint", "threads_per_threadgroup"),
]


@dataclass(frozen=True)
class Case:
    """A kernel, its inputs, and how it is called."""

    name: str
    src: str
    torch_defn: Callable[..., Any]
    args: tuple[Any, ...]
    grid: tuple[int, int, int]
    group: tuple[int, int, int] = (32, 1, 1)
    params: list[MetalParameter] = field(default_factory=lambda: [ID])
    helper: str | None = None
    types: dict[str, str] | None = None

    def kernel(self, src: str | None = None, params: list[MetalParameter] | None = None) -> TorchMetalKernel:
        names = list(self.torch_defn.__annotations__)[:-1]
        return TorchMetalKernel(
            self.name, names, ["out"], src or self.src, self.torch_defn, params or self.params, self.helper, self.types
        )

    @property
    def call(self) -> dict[str, Any]:
        shape = list(self.torch_defn(*self.args).shape)
        return {"threads_per_grid": self.grid, "threads_per_thread_group": self.group, "result_shapes": [shape]}


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape))).to(dtype)


def scaled_add(x: Tensor, y: Tensor, scale: float) -> Tensor:
    return x + y * scale


def silu(x: Tensor) -> Tensor:
    return torch.nn.functional.silu(x)


def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return torch.nn.functional.rms_norm(x, [x.shape[-1]], weight, eps)


def rope(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    left, right = x.chunk(2, -1)
    return torch.cat([left * cosine - right * sine, right * cosine + left * sine], -1)


def gather(table: Tensor, index: Tensor) -> Tensor:
    return table[index]


def blurred(x: Tensor) -> Tensor:
    return torch.nn.functional.avg_pool2d(x[None], 3, 1, 1, count_include_pad=True)[0]


def total(x: Tensor) -> Tensor:
    return x.reshape(-1, 64).sum(1)


def swapped(x: Tensor) -> Tensor:
    return x.permute(2, 1, 0).contiguous()


SCALED_ADD = Case(
    "scaled_add",
    "if (id >= x.get_extent(0)) return;\nout[id] = x[id] + y[id] * T(scale);",
    scaled_add,
    (numbers(100), numbers(100).flip(0), 0.5),
    (128, 1, 1),
    types={"x": "T"},
)
SILU_HALF = Case(
    "silu_half",
    "const uint first = id * 4;\nfor (uint i = first; i < min(first + 4, uint(x.get_extent(0))); ++i)\n"
    "    out[i] = silu(x[i]);",
    silu,
    (numbers(42, dtype=torch.float16),),
    (11, 1, 1),
    helper="inline half silu(half x) { return x / (1.0h + exp(-x)); }",
)
SOFTMAX = Case(
    "softmax_row",
    """
const uint n = x.get_extent(0);
float most = -INFINITY;
for (uint i = lane; i < n; i += 32) most = max(most, x[i, row]);
most = simd_max(most);
float sum = 0;
for (uint i = lane; i < n; i += 32) sum += exp(x[i, row] - most);
sum = simd_sum(sum);
for (uint i = lane; i < n; i += 32) out[i, row] = exp(x[i, row] - most) / sum;
""",
    softmax,
    (numbers(3, 50),),
    (96, 1, 1),
    params=OF_ROW[:2],
)
RMS_NORM = Case(
    "rms_norm_row",
    """
threadgroup float sums[64];
const uint n = x.get_extent(0);
float squares = 0;
for (uint i = lane; i < n; i += lanes) {
    const float value = float(x[i, row]);
    squares += value * value;
}
sums[lane] = squares;
threadgroup_barrier(mem_flags::mem_threadgroup);
for (uint half_of = lanes / 2; half_of > 0; half_of /= 2) {
    if (lane < half_of) sums[lane] += sums[lane + half_of];
    threadgroup_barrier(mem_flags::mem_threadgroup);
}
const float scale = rsqrt(sums[0] / n + eps);
for (uint i = lane; i < n; i += lanes) out[i, row] = T(float(x[i, row]) * scale) * weight[i];
""",
    rms_norm,
    (numbers(3, 70, dtype=torch.bfloat16), numbers(70, dtype=torch.bfloat16), 1e-6),
    (192, 1, 1),
    (64, 1, 1),
    params=OF_ROW,
    types={"x": "T"},
)
ROPE = Case(
    "rope",
    """
const uint half_size = x.get_extent(0) / 2;
const float left = x[at.x, at.y], right = x[at.x + half_size, at.y];
const float c = cosine[at.x, at.y], s = sine[at.x, at.y];
out[at.x, at.y] = left * c - right * s;
out[at.x + half_size, at.y] = fma(right, c, left * s);
""",
    rope,
    (numbers(5, 16), torch.cos(numbers(5, 8)), torch.sin(numbers(5, 8))),
    (8, 5, 1),
    (8, 2, 1),
    params=[POSITION],
)
GATHER = Case(
    "gather_rows",
    "out[at.x, at.y] = table[at.x, index[at.y]];",
    gather,
    (numbers(9, 6), torch.tensor([8, 0, 3, 3])),
    (6, 4, 1),
    (4, 4, 1),
    params=[POSITION],
)
BLUR = Case(
    "blur",
    """
const int width = x.get_extent(0), height = x.get_extent(1);
const int column = at.x, line = at.y;
float sum = 0;
for (int dy = -1; dy <= 1; ++dy)
    for (int dx = -1; dx <= 1; ++dx) {
        const int i = column + dx, j = line + dy;
        if (i >= 0 && i < width && j >= 0 && j < height) sum += x[i, j];
    }
out[at.x, at.y] = sum / 9;
""",
    blurred,
    (numbers(6, 11),),
    (11, 6, 1),
    (8, 8, 1),
    params=[POSITION],
)
TOTAL = Case(
    "total",
    """
threadgroup float partial[2], first;
float4 four = float4(x[id * 2], x[id * 2 + 1], 0, 0);
four.xy *= 2.0f;
const float sum = simd_sum(dot(four, float4(0.5)));
if (lane % 32 == 0) partial[lane / 32] = sum;
threadgroup_barrier(mem_flags::mem_threadgroup);
if (lane == 0) {
    first = 0;
    for (uint i = 0; i < (lanes + 31) / 32; ++i) first += partial[i];
    out[row] = first;
}
""",
    total,
    (numbers(256),),
    (128, 1, 1),
    params=[*OF_ROW, ID],
)
SWAPPED = Case(
    "swapped",
    "out[at.z, at.y, at.x] = x[at.x, at.y, at.z];",
    swapped,
    (numbers(2, 3, 5),),
    (5, 3, 2),
    (2, 2, 2),
    params=[MetalParameter("at", "uint3", "thread_position_in_grid")],
)
RIGHT = [SCALED_ADD, SILU_HALF, SOFTMAX, RMS_NORM, ROPE, GATHER, BLUR, TOTAL, SWAPPED]


@dataclass(frozen=True)
class Mistake:
    """A kernel with a text of its body replaced, and what the message must say."""

    what: str
    case: Case
    right: str
    wrong: str
    says: str
    params: list[MetalParameter] | None = None

    def kernel(self) -> TorchMetalKernel:
        assert self.case.src.count(self.right) == 1, self.what
        return self.case.kernel(self.case.src.replace(self.right, self.wrong), self.params)


MISTAKES = [
    Mistake(
        "another operator", SCALED_ADD, "+ y[id]", "- y[id]",
        r"line 2 of src, `out\[id\] = .*`: out\[\d+\] is .*, and torch_defn gives .* elements differ",
    ),
    Mistake(
        "a misspelt name", SCALED_ADD, "out[id] = x", "outt[id] = x",
        r"line 2 of src, `outt\[id\] = .*`, does not compile: .*'outt'",
    ),
    Mistake(
        "no guard", SCALED_ADD, "if (id >= x.get_extent(0)) return;\n", "",
        r"line 1 of src, .*: thread \(100, 0, 0\) reads or writes .*\[100\], outside of its extents \[100\]",
    ),
    Mistake(
        "the last elements are left out", SILU_HALF, "first + 4", "first + 3",
        r"out\[3\] is never written, as are 9 other elements",
    ),
    Mistake(
        "axes in the order of PyTorch", SOFTMAX, "most = max(most, x[i, row])", "most = max(most, x[row, i])",
        r"line 3 of src, .*: thread \(0, 0, 0\) reads or writes x\[0, 32\], outside of its extents \[50, 3\]",
    ),
    Mistake(
        "a barrier too few", RMS_NORM, "sums[lane] = squares;\nthreadgroup_barrier(mem_flags::mem_threadgroup);",
        "sums[lane] = squares;", r"out\[\d+, \d+\] is .*, and torch_defn gives",
    ),
    Mistake(
        "threadgroup memory too small", RMS_NORM, "sums[64]", "sums[32]",
        r"line 8 of src, `sums\[lane\] = squares;`: .* reads or writes sums\[32\] of threadgroup memory, which has 32",
    ),
    Mistake(
        "an index below zero", BLUR, "i >= 0 && ", "",
        r"line 7 of src, .*: thread \(0, 0, 0\) reads or writes x\[-1, 0\]",
    ),
    Mistake(
        "a sum without a start", BLUR, "float sum = 0;", "float sum;", r"line 9 of src, .*: out\[.*torch_defn gives",
    ),
    Mistake(
        "a loop without end", GATHER, "out[at.x", "while (index[at.y] >= 0) {}\nout[at.x",
        r"the body, after line 1 of src, `while .*has not ended after 1 seconds",
    ),
    Mistake(
        "a thread returns before the barrier", TOTAL, "if (lane == 0) {", "if (lane > 0) return;\n"
        "threadgroup_barrier(mem_flags::mem_device);\n{",
        r"line 8 of src, `threadgroup_barrier.*threads of its group have returned",
    ),
    Mistake(
        "numbers of the wrong type", SWAPPED, "x[at.x", "x[at.x", "Metal fills .* with ushort, uint or their vectors",
        params=[MetalParameter("at", "int3", "thread_position_in_grid")],
    ),
]  # fmt: skip
