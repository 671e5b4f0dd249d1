"""How much of models that do not convert whole converts in parts: `python -m benchmarks.partitions`.

Each model has an op that the converter does not have: a custom kernel of its library, random numbers, or linear
algebra. The models have random weights, and the custom kernels are written here in PyTorch. The table says which shares
of ops and multiply-adds convert, in how many parts, what crosses in a run, and how far the composition is from PyTorch.
The multiply-adds of the custom kernels are not counted.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

import patcomp
import patcomp.torchvision

Model = tuple[nn.Module, tuple[Any, ...]]
MODELS: dict[str, Callable[[], Model]] = {}


def model(function: Callable[[], Model]) -> Callable[[], Model]:
    MODELS[function.__name__] = function
    return function


def kernel(name: str, shape: Callable[..., Sequence[Any]] | None = None) -> Any:
    """Decorator: a custom op of a library. Its result is like the first tensor, or of a given shape."""

    def declare(function: Callable[..., Tensor]) -> Any:
        op = torch.library.custom_op(f"models::{name}", mutates_args=())(function)
        op.register_fake(lambda *given: given[0].new_empty(shape(*given) if shape else given[0].shape))
        return getattr(torch.ops.models, name)

    return declare


@kernel("selective_scan")
def selective_scan(x: Tensor, step: Tensor, decay: Tensor, b: Tensor, c: Tensor) -> Tensor:
    state, results = x.new_zeros(len(x), x.shape[2], decay.shape[1]), []
    for t in range(x.shape[1]):
        change = step[:, t, :, None]
        state = state * (change * decay).exp() + change * b[:, t, None] * x[:, t, :, None]
        results.append((state * c[:, t, None]).sum(-1))
    return torch.stack(results, 1)


@kernel("flash_attention")
def flash_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


@kernel("deformable_attention", lambda values, places, weights: (*places.shape[:2], values.shape[2]))
def deformable_attention(values: Tensor, places: Tensor, weights: Tensor) -> Tensor:
    index = (places.sigmoid() * (values.shape[1] - 1)).long()
    found = torch.stack([value[each] for value, each in zip(values, index, strict=True)])
    return (found * weights.softmax(-1)[..., None]).sum(2)


@kernel("farthest_points", lambda points, count: (points.shape[0], count, 3))
def farthest_points(points: Tensor, count: int) -> Tensor:
    order = points.norm(dim=-1).argsort(dim=1)[:, :count]
    return points.gather(1, order[..., None].expand(-1, -1, 3))


@kernel("correlation", lambda left, right: (left.shape[0], 9, *left.shape[2:]))
def correlation(left: Tensor, right: Tensor) -> Tensor:
    shifts = [(dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)]
    return torch.stack([(left * right.roll(shift, (2, 3))).mean(1) for shift in shifts], 1)


@kernel("leaky_bias")
def leaky_bias(x: Tensor, bias: Tensor) -> Tensor:
    return F.leaky_relu(x + bias[:, None, None], 0.2) * math.sqrt(2)


@kernel("rolled_windows", lambda x, shift, size: (x.shape[1] * x.shape[2] // size**2 * len(x), size**2, x.shape[3]))
def rolled_windows(x: Tensor, shift: int, size: int) -> Tensor:
    n, height, width, channels = x.shape
    cut = x.roll((-shift, -shift), (1, 2)).reshape(n, height // size, size, width // size, size, channels)
    return cut.transpose(2, 3).reshape(-1, size**2, channels).clone()


@kernel("hashed", lambda ids, rows: ids.shape)
def hashed(ids: Tensor, rows: int) -> Tensor:
    return (ids * 2654435761) % rows


@kernel("grouped_product", lambda x, weights, sizes: (x.shape[0], weights.shape[2]))
def grouped_product(x: Tensor, weights: Tensor, sizes: Tensor) -> Tensor:
    return torch.cat([each @ weight for each, weight in zip(x.split(sizes.tolist()), weights, strict=True)])


@kernel("soft_suppression")
def soft_suppression(scores: Tensor, boxes: Tensor) -> Tensor:
    near = torch.cdist(boxes, boxes) < 0.05
    return scores * torch.where(near & (scores[None] > scores[:, None]), 0.5, 1.0).prod(1)


class Network(nn.Module):
    """A module made of layers and a function of them."""

    def __init__(self, function: Callable[..., Any], **layers: Any) -> None:
        super().__init__()
        self.function = function
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, *args: Any) -> Any:
        return self.function(self, *args)


def convolutions(*channels: int, stride: int = 2) -> nn.Sequential:
    pairs = pairwise(channels)
    return nn.Sequential(*(m for i, o in pairs for m in (nn.Conv2d(i, o, 3, stride, 1), nn.BatchNorm2d(o), nn.ReLU())))


def encoder(width: int, layers: int, heads: int = 4) -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(width, heads, 4 * width, batch_first=True, norm_first=True, activation="gelu")
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


@model
def mamba() -> Model:
    def block(width: int = 64, states: int = 16) -> Network:
        def forward(m: Any, x: Tensor) -> Tensor:
            y, gate = m.into(m.norm(x)).chunk(2, -1)
            y = F.silu(m.conv(y.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2))
            step, b, c = m.parts(y).split([width, states, states], -1)
            return x + m.out(selective_scan(y, F.softplus(step), -m.decay.exp(), b, c) * F.silu(gate))

        return Network(
            forward, norm=nn.RMSNorm(width), into=nn.Linear(width, 2 * width), out=nn.Linear(width, width),
            conv=nn.Conv1d(width, width, 4, padding=3, groups=width), parts=nn.Linear(width, width + 2 * states),
            decay=nn.Parameter(torch.rand(width, states)),
        )  # fmt: skip

    return nn.Sequential(nn.Embedding(256, 64), *(block() for _ in range(4)), nn.Linear(64, 256)), (
        torch.randint(256, (1, 32)),
    )


@model
def llama_with_flash_attention() -> Model:
    def block(width: int = 64, heads: int = 4) -> Network:
        def forward(m: Any, x: Tensor) -> Tensor:
            q, k, v = (each.unflatten(-1, (heads, -1)).transpose(1, 2) for each in m.qkv(m.first(x)).chunk(3, -1))
            x = x + m.out(flash_attention(q, k, v).transpose(1, 2).flatten(2))
            gate, up = m.up(m.second(x)).chunk(2, -1)
            return x + m.down(F.silu(gate) * up)

        return Network(
            forward, first=nn.RMSNorm(width), second=nn.RMSNorm(width), qkv=nn.Linear(width, 3 * width),
            out=nn.Linear(width, width), up=nn.Linear(width, 8 * width), down=nn.Linear(4 * width, width),
        )  # fmt: skip

    return nn.Sequential(nn.Embedding(256, 64), *(block() for _ in range(4)), nn.Linear(64, 256)), (
        torch.randint(256, (1, 32)),
    )


@model
def gpt2_with_sampling() -> Model:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=256, n_embd=64, n_layer=4, n_head=4, n_positions=64, use_cache=False)
    network = GPT2LMHeadModel(config)

    def forward(m: Any, ids: Tensor) -> Tensor:
        logits = m.network(ids).logits[:, -1] / 0.8
        return torch.multinomial(logits.softmax(-1), 1)

    return Network(forward, network=network), (torch.randint(256, (1, 32)),)


@model
def deformable_detr() -> Model:
    def forward(m: Any, image: Tensor) -> tuple[Tensor, Tensor]:
        memory = m.encoder(m.body(image).flatten(2).transpose(1, 2))
        queries = m.queries.weight[None]
        for layer in m.layers:
            queries = queries + layer[1](deformable_attention(memory, layer[0](queries), layer[2](queries)))
            queries = queries + layer[4](F.relu(layer[3](queries)))
        return m.classes(queries), m.boxes(queries).sigmoid()

    layers = nn.ModuleList(
        nn.ModuleList([nn.Linear(64, 8), nn.Linear(64, 64), nn.Linear(64, 8), nn.Linear(64, 256), nn.Linear(256, 64)])
        for _ in range(3)
    )
    network = Network(
        forward, body=convolutions(3, 16, 32, 64), encoder=encoder(64, 2), queries=nn.Embedding(20, 64), layers=layers,
        classes=nn.Linear(64, 11), boxes=nn.Linear(64, 4),
    )  # fmt: skip
    return network, (torch.rand(1, 3, 64, 64),)


@model
def detector_with_soft_suppression() -> Model:
    def forward(m: Any, image: Tensor) -> tuple[Tensor, Tensor]:
        features = m.body(image)
        boxes, scores = m.boxes(features).flatten(2)[0].T.sigmoid(), m.scores(features).flatten().sigmoid()
        best, order = soft_suppression(scores, boxes).topk(10)
        return boxes[order], m.classes(features.flatten(2)[0].T[order] * best[:, None])

    network = Network(
        forward, body=convolutions(3, 16, 32, 64), boxes=nn.Conv2d(64, 4, 1), scores=nn.Conv2d(64, 1, 1),
        classes=nn.Linear(64, 80),
    )  # fmt: skip
    return network, (torch.rand(1, 3, 64, 64),)


@model
def pointnet_with_farthest_points() -> Model:
    def forward(m: Any, points: Tensor) -> Tensor:
        centers = farthest_points(points, 64)
        near = torch.cdist(centers, points).topk(16, largest=False).indices
        groups = points[:, None].expand(-1, 64, -1, -1).gather(2, near[..., None].expand(-1, -1, -1, 3))
        return m.head(m.local(groups - centers[:, :, None]).amax(2).amax(1))

    local = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 128))
    head = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))
    return Network(forward, local=local, head=head), (torch.rand(2, 256, 3),)


@model
def optical_flow_with_correlation() -> Model:
    def forward(m: Any, first: Tensor, second: Tensor) -> Tensor:
        left, right = m.body(first), m.body(second)
        flow = m.head(torch.cat([correlation(left, right), left], 1))
        return F.interpolate(flow, scale_factor=4, mode="bilinear")

    head = nn.Sequential(nn.Conv2d(41, 32, 3, 1, 1), nn.ReLU(), nn.Conv2d(32, 2, 3, 1, 1))
    return Network(forward, body=convolutions(3, 16, 32), head=head), (
        torch.rand(1, 3, 64, 64),
        torch.rand(1, 3, 64, 64),
    )


@model
def stylegan_generator() -> Model:
    def forward(m: Any, z: Tensor) -> Tensor:
        style, x = m.mapping(z), m.start.expand(len(z), -1, -1, -1)
        for convolution, affine, bias in zip(m.convolutions, m.affines, m.biases, strict=True):
            x = F.interpolate(x, scale_factor=2, mode="bilinear") * affine(style)[:, :, None, None]
            x = convolution(x)
            x = leaky_bias(x + 0.1 * torch.randn_like(x[:, :1]), bias)
        return m.to_rgb(x)

    network = Network(
        forward, mapping=nn.Sequential(*(m for _ in range(4) for m in (nn.Linear(64, 64), nn.LeakyReLU(0.2)))),
        start=nn.Parameter(torch.randn(1, 64, 4, 4)), affines=nn.ModuleList(nn.Linear(64, 64) for _ in range(3)),
        convolutions=nn.ModuleList(nn.Conv2d(64, 64, 3, padding=1) for _ in range(3)), to_rgb=nn.Conv2d(64, 3, 1),
        biases=nn.ParameterList(torch.zeros(64) for _ in range(3)),
    )  # fmt: skip
    return network, (torch.randn(1, 64),)


@model
def swin_with_window_kernel() -> Model:
    def block(shift: int) -> Network:
        def forward(m: Any, x: Tensor) -> Tensor:
            windows = rolled_windows(x, shift, 4)
            y = m.layer(windows).reshape(len(x), 4, 4, 4, 4, -1).transpose(2, 3).reshape(x.shape)
            return y.roll((shift, shift), (1, 2))

        return Network(forward, layer=nn.TransformerEncoderLayer(48, 4, 192, batch_first=True, norm_first=True))

    def forward(m: Any, image: Tensor) -> Tensor:
        x = m.patches(image).permute(0, 2, 3, 1)
        return m.head(m.blocks(x).mean((1, 2)))

    blocks = nn.Sequential(*(block(shift) for shift in (0, 2, 0, 2)))
    return Network(forward, patches=nn.Conv2d(3, 48, 4, 4), blocks=blocks, head=nn.Linear(48, 100)), (
        torch.rand(1, 3, 64, 64),
    )


@model
def recommender_with_hashed_ids() -> Model:
    def forward(m: Any, dense: Tensor, ids: Tensor) -> Tensor:
        features = torch.cat([m.bottom(dense)[:, None], m.table(hashed(ids, 1000))], 1)
        pairs = (features @ features.transpose(1, 2)).flatten(1)
        return m.top(torch.cat([pairs, features[:, 0]], 1)).sigmoid()

    network = Network(
        forward, bottom=nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, 32)), table=nn.Embedding(1000, 32),
        top=nn.Sequential(nn.Linear(17 * 17 + 32, 128), nn.ReLU(), nn.Linear(128, 1)),
    )  # fmt: skip
    return network, (torch.rand(8, 13), torch.randint(10**6, (8, 16)))


@model
def mixture_with_grouped_products() -> Model:
    def forward(m: Any, x: Tensor) -> Tensor:
        for norm, router, up, down in m.layers:
            y = norm(x)
            weight, chosen = router(y).softmax(-1).max(-1)
            order = chosen.argsort(stable=True)
            sizes = F.one_hot(chosen, 4).sum(0)
            z = grouped_product(F.silu(grouped_product(y[order], up.weight, sizes)), down.weight, sizes)
            x = x + torch.zeros_like(x).index_copy(0, order, z) * weight[:, None]
        return x

    class Experts(nn.Module):
        def __init__(self, *shape: int) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(*shape) / 8)

    layers = [
        nn.ModuleList([nn.LayerNorm(64), nn.Linear(64, 4), Experts(4, 64, 128), Experts(4, 128, 64)]) for _ in range(3)
    ]
    return Network(forward, layers=nn.ModuleList(layers)), (torch.randn(24, 64),)


@model
def autoencoder_with_sampling() -> Model:
    from diffusers import AutoencoderKL

    network = AutoencoderKL(block_out_channels=(32, 64), down_block_types=("DownEncoderBlock2D",) * 2,
                            up_block_types=("UpDecoderBlock2D",) * 2, norm_num_groups=8)  # fmt: skip
    return Network(lambda m, x: m.network(x, sample_posterior=True).sample, network=network), (
        torch.rand(1, 3, 32, 32),
    )


@model
def diffusion_step_with_noise() -> Model:
    from diffusers import UNet2DModel

    network = UNet2DModel(
        sample_size=16, block_out_channels=(32, 64), down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"), norm_num_groups=8,
    )  # fmt: skip

    def forward(m: Any, x: Tensor, t: Tensor) -> Tensor:
        mean = (x - 0.1 * m.network(x, t).sample) / 0.99
        return mean + 0.01 * torch.randn_like(x)

    return Network(forward, network=network), (torch.randn(1, 3, 16, 16), torch.tensor([10]))


@model
def bert_with_dropout() -> Model:
    from transformers import BertConfig, BertModel

    config = BertConfig(vocab_size=256, hidden_size=64, num_hidden_layers=4, num_attention_heads=4,
                        intermediate_size=256)  # fmt: skip

    def forward(m: Any, ids: Tensor) -> Tensor:
        return m.head(F.dropout(m.network(ids).last_hidden_state[:, 0], 0.1, training=True))

    return Network(forward, network=BertModel(config), head=nn.Linear(64, 2)), (torch.randint(256, (2, 32)),)


@model
def quantizer_with_gumbel_noise() -> Model:
    def forward(m: Any, sound: Tensor) -> Tensor:
        features = m.context(m.body(sound).transpose(1, 2))
        return m.out(F.gumbel_softmax(m.logits(features), hard=True) @ m.codes.weight)

    body = nn.Sequential(*(m for i, o in ((1, 32), (32, 64)) for m in (nn.Conv1d(i, o, 8, 4), nn.GELU())))
    network = Network(
        forward, body=body, context=encoder(64, 2), logits=nn.Linear(64, 32), codes=nn.Embedding(32, 64),
        out=nn.Linear(64, 64),
    )  # fmt: skip
    return network, (torch.randn(1, 1, 512),)


@model
def masked_autoencoder() -> Model:
    def forward(m: Any, image: Tensor) -> Tensor:
        patches = m.into(F.unfold(image, 4, stride=4).transpose(1, 2)) + m.places
        kept = torch.rand(patches.shape[:2]).argsort(1)[:, :16, None].expand(-1, -1, 64)
        seen = m.encoder(patches.gather(1, kept))
        return m.out(m.decoder(m.places.expand(len(image), -1, -1).scatter(1, kept, seen)))

    network = Network(
        forward, into=nn.Linear(48, 64), encoder=encoder(64, 4), decoder=encoder(64, 2), out=nn.Linear(64, 48),
        places=nn.Parameter(torch.randn(1, 64, 64)),
    )  # fmt: skip
    return network, (torch.rand(1, 3, 32, 32),)


@model
def pose_with_singular_values() -> Model:
    def forward(m: Any, image: Tensor) -> Tensor:
        left, _, right = torch.linalg.svd(m.head(m.body(image).mean((2, 3))).unflatten(-1, (3, 3)))
        sign = torch.linalg.det(left @ right).sign()
        return torch.cat([left[..., :2], left[..., 2:] * sign[:, None, None]], -1) @ right

    return Network(forward, body=convolutions(3, 32, 64, 128), head=nn.Linear(128, 9)), (torch.rand(2, 3, 64, 64),)


@model
def network_with_whitening() -> Model:
    def forward(m: Any, image: Tensor) -> Tensor:
        x = m.body(image).flatten(2)
        covariance = x @ x.transpose(1, 2) / x.shape[2] + torch.eye(x.shape[1])
        values, vectors = torch.linalg.eigh(covariance)
        white = vectors @ (values.rsqrt()[:, :, None] * vectors.transpose(1, 2)) @ x
        return m.head(white.square().mean(2))

    return Network(forward, body=convolutions(3, 16, 32), head=nn.Linear(32, 10)), (torch.rand(1, 3, 32, 32),)


@model
def vocoder_with_noise_source() -> Model:
    def forward(m: Any, mel: Tensor, pitch: Tensor) -> Tensor:
        phase = (F.interpolate(pitch, scale_factor=16.0) / 16000).cumsum(-1) * 2 * math.pi
        source = phase.sin() + 0.03 * torch.randn_like(phase)
        x = m.first(mel)
        for up, excite, mix in m.layers:
            x = up(F.leaky_relu(x, 0.1))
            x = x + excite(F.interpolate(source, size=x.shape[-1]))
            x = x + mix(F.leaky_relu(x, 0.1))
        return m.last(x).tanh()

    layers = [
        nn.ModuleList([nn.ConvTranspose1d(i, o, 8, 4, 2), nn.Conv1d(1, o, 3, padding=1), nn.Conv1d(o, o, 3, padding=1)])
        for i, o in ((64, 32), (32, 16))
    ]
    network = Network(
        forward,
        first=nn.Conv1d(80, 64, 7, padding=3),
        layers=nn.ModuleList(layers),
        last=nn.Conv1d(16, 1, 7, padding=3),
    )
    return network, (torch.randn(1, 80, 32), torch.rand(1, 1, 32) * 200 + 80)


@model
def graph_network_with_sparse_products() -> Model:
    links = (torch.rand(64, 64) < 0.1).float().to_sparse_csr()

    @kernel("neighbours")
    def neighbours(x: Tensor) -> Tensor:
        return links @ x

    def forward(m: Any, x: Tensor) -> Tensor:
        for layer in m.layers:
            x = layer(neighbours(x)).relu() + x
        return m.head(x)

    layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(3))
    return Network(forward, layers=layers, head=nn.Linear(64, 7)), (torch.randn(64, 64),)


def row(name: str, backends: Sequence[Any]) -> list[str]:
    """A row of the table."""
    torch.manual_seed(0)
    network, args = MODELS[name]()
    exported = torch.export.export(network.eval(), args)
    started = time.process_time()
    found = patcomp.partition(exported)
    seconds = time.process_time() - started
    report, checked = found.report, found.verify(args, backends=backends)
    worst = max((error.max_rel for error in checked.errors), default=0.0)
    stay = sorted({problem.op for problem in report.left})
    return [
        name.replace("_", " "), f"{report.ops}", f"{report.converted_ops:.1%}", f"{report.multiply_adds / 1e6:.1f} M",
        f"{report.converted_multiply_adds:.1%}", f"{len(report.parts)}", f"{report.crossing_bytes / 1024:.0f} KiB",
        f"{worst:.0e}" if worst else "0", f"{seconds:.1f} s", ", ".join(f"`{op}`" for op in stay),
    ]  # fmt: skip


HEADINGS = ["model", "ops", "convert", "multiply-adds", "convert", "parts", "cross", "error", "time", "stay in PyTorch"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", help="by default all", choices=[*MODELS, []])
    given = parser.parse_args()
    backends = ["evaluator", *["runtime"] * bool(find_spec("coreai"))]
    print(f"| {' | '.join(HEADINGS)} |\n|{'---|' * len(HEADINGS)}", flush=True)
    for name in given.models or MODELS:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                print(f"| {' | '.join(row(name, backends))} |", flush=True)
        except Exception:
            traceback.print_exc(file=sys.stderr)


if __name__ == "__main__":
    main()
