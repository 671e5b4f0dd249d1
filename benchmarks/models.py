"""The models that the suite converts: random weights, made from configurations, named `llama-16` or `resnet50`.

Both compilers' processes make them, so this file imports PyTorch, torchvision and transformers only.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

Made = tuple[nn.Module, tuple[torch.Tensor, ...]]
"""A model and example inputs for its `forward`."""


def declare_torchvision_operators() -> None:
    """Let torchvision be imported although its C++ operators do not load, as with a PyTorch of another build.

    The models of transformers import torchvision, and no model here calls these operators. patcomp has such a function
    too, but the process of another compiler must not import patcomp.
    """
    spec = find_spec("torchvision")
    folders = spec.submodule_search_locations if spec else None
    for extension in Path(folders[0]).glob("_C*.so") if folders else ():
        try:
            torch.ops.load_library(extension)
            return
        except (OSError, ImportError):
            continue
    for name in ("nms", "qnms") if not hasattr(torch.ops.torchvision, "nms") else ():
        torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


class Output(nn.Module):
    """A Hugging Face model as export takes it: tensors in, one tensor out, no cache."""

    def __init__(self, model: nn.Module, output: str, inputs: Mapping[str, torch.Tensor]):
        super().__init__()
        self.model, self.output, self.names = model, output, tuple(inputs)

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        return getattr(self.model(**dict(zip(self.names, args, strict=True))), self.output)


def hugging_face(model: nn.Module, output: str, **inputs: torch.Tensor) -> Made:
    return Output(model, output, inputs), tuple(inputs.values())


def tokens(vocabulary: int, length: int) -> torch.Tensor:
    return torch.randint(0, vocabulary, (1, length))


def llama(layers: int) -> Made:
    """Grouped-query attention, and small weights: its structure costs the time."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=99, hidden_size=64, num_hidden_layers=layers, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=96, max_position_embeddings=64, use_cache=False,
    )  # fmt: skip
    return hugging_face(LlamaForCausalLM(config), "logits", input_ids=tokens(99, 12))


def gpt2() -> Made:
    """124 million parameters."""
    from transformers import GPT2Config, GPT2LMHeadModel

    return hugging_face(GPT2LMHeadModel(GPT2Config(use_cache=False)), "logits", input_ids=tokens(50257, 64))


def bert() -> Made:
    """BERT-base."""
    from transformers import BertConfig, BertModel

    mask = torch.ones(1, 64, dtype=torch.int64)
    return hugging_face(BertModel(BertConfig()), "last_hidden_state", input_ids=tokens(30522, 64), attention_mask=mask)


def t5() -> Made:
    """T5-small, encoder and decoder."""
    from transformers import T5Config, T5ForConditionalGeneration

    model = T5ForConditionalGeneration(T5Config(use_cache=False))
    return hugging_face(model, "logits", input_ids=tokens(32128, 32), decoder_input_ids=tokens(32128, 16))


def whisper() -> Made:
    """The decoder of Whisper-tiny."""
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperDecoder

    config = WhisperConfig(
        d_model=384, decoder_layers=4, decoder_attention_heads=6, decoder_ffn_dim=1536, use_cache=False
    )
    audio = torch.randn(1, 1500, 384)
    return hugging_face(
        WhisperDecoder(config), "last_hidden_state", input_ids=tokens(51865, 16), encoder_hidden_states=audio
    )


def of_torchvision(name: str) -> Callable[[], Made]:
    def made() -> Made:
        from torchvision import models

        return getattr(models, name)(), (torch.randn(1, 3, 224, 224),)

    return made


class Residual(nn.Module):
    """Two convolutions with group normalisation, shifted by the embedding of the time step."""

    def __init__(self, inputs: int, outputs: int, time: int):
        super().__init__()
        self.norms = nn.ModuleList([nn.GroupNorm(8, inputs), nn.GroupNorm(8, outputs)])
        self.first, self.second = nn.Conv2d(inputs, outputs, 3, padding=1), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.time, self.skip = nn.Linear(time, outputs), nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        y = self.first(F.silu(self.norms[0](x))) + self.time(F.silu(time))[:, :, None, None]
        return self.skip(x) + self.second(F.silu(self.norms[1](y)))


class Attention(nn.Module):
    """Attention of the pixels to a context, or to one another, on normalised inputs."""

    def __init__(self, channels: int, context: int, heads: int = 4):
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(channels)
        self.query, self.output = nn.Linear(channels, channels, bias=False), nn.Linear(channels, channels)
        self.key, self.value = nn.Linear(context, channels, bias=False), nn.Linear(context, channels, bias=False)

    def forward(self, x: torch.Tensor, context: torch.Tensor | None = None) -> torch.Tensor:
        y = self.norm(x)
        source = y if context is None else context
        parts = [
            layer(of).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer, of in ((self.query, y), (self.key, source), (self.value, source))
        ]
        return x + self.output(F.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(2))


class Transformer(nn.Module):
    """Self-attention, cross-attention and a gated feed-forward layer over the pixels of an image."""

    def __init__(self, channels: int, context: int):
        super().__init__()
        self.own, self.cross = Attention(channels, channels), Attention(channels, context)
        self.norm, self.wide = nn.LayerNorm(channels), nn.Linear(channels, 8 * channels)
        self.narrow = nn.Linear(4 * channels, channels)

    def forward(self, x: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        y = self.cross(self.own(x.flatten(2).transpose(1, 2)), context)
        value, gate = self.wide(self.norm(y)).chunk(2, -1)
        y = y + self.narrow(value * F.gelu(gate))
        return y.transpose(1, 2).unflatten(2, x.shape[2:])


class UNet(nn.Module):
    """The denoiser of latent diffusion: two levels with transformers, and a middle."""

    def __init__(self, channels: int = 64, context: int = 96):
        super().__init__()
        time, wide = 4 * channels, 2 * channels
        self.time = nn.Sequential(nn.Linear(channels, time), nn.SiLU(), nn.Linear(time, time))
        self.begin, self.down = nn.Conv2d(4, channels, 3, padding=1), nn.Conv2d(channels, channels, 3, 2, 1)
        sizes = ((channels, channels), (channels, wide), (wide, wide), (2 * wide, wide), (wide + channels, channels))
        self.residuals = nn.ModuleList([Residual(inputs, outputs, time) for inputs, outputs in sizes])
        self.transformers = nn.ModuleList([Transformer(outputs, context) for _, outputs in sizes])
        self.up, self.end = nn.Conv2d(wide, wide, 3, padding=1), nn.Conv2d(channels, 4, 3, padding=1)
        self.norm = nn.GroupNorm(8, channels)
        self.register_buffer("frequencies", torch.exp(-torch.arange(channels // 2) * 0.3))

    def forward(self, latent: torch.Tensor, step: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        angles = step[:, None] * self.frequencies
        time = self.time(torch.cat([angles.sin(), angles.cos()], -1))

        def level(index: int, x: torch.Tensor) -> torch.Tensor:
            return self.transformers[index](self.residuals[index](x, time), context)

        first = level(0, self.begin(latent))
        second = level(1, self.down(first))
        x = level(3, torch.cat([level(2, second), second], 1))
        x = level(4, torch.cat([self.up(F.interpolate(x, scale_factor=2.0)), first], 1))
        return self.end(F.silu(self.norm(x)))


def unet() -> Made:
    return UNet(), (torch.randn(1, 4, 32, 32), torch.rand(1), torch.randn(1, 77, 96))


class Chain(nn.Module):
    """Layers of five ops each, one after the other."""

    def __init__(self, layers: int, size: int = 16):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(size, size, bias=False) for _ in range(layers)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + F.gelu(torch.tanh(layer(x) * 0.5))
        return x


def chain(ops: int) -> Made:
    return Chain(ops // 5), (torch.randn(2, 16),)


def mlp(megabytes: int) -> Made:
    """Eight linear layers whose weights are mapped from files of holes, which take no room on the disk."""
    layers, size = 8, max(16, int((megabytes * 2**20 / 8 / 4) ** 0.5))
    model = nn.Sequential()
    for _ in range(layers):
        layer = nn.Linear(size, size, bias=False, device="meta")
        with tempfile.NamedTemporaryFile() as file:  # a mapping outlives the name of its file
            file.write(torch.randn(4096).numpy().tobytes())  # else the weights would be equal, and all zeros
            file.truncate(4 * size * size)
            file.flush()
            weight = torch.from_file(file.name, shared=False, size=size * size).view(size, size)
        layer.weight = nn.Parameter(weight, requires_grad=False)
        model.append(layer)
    return model, (torch.randn(1, size),)


BUILDERS: dict[str, Callable[..., Made]] = {
    "llama": llama,
    "gpt2": gpt2,
    "bert": bert,
    "vit_b_16": of_torchvision("vit_b_16"),
    "resnet50": of_torchvision("resnet50"),
    "densenet121": of_torchvision("densenet121"),
    "efficientnet_b0": of_torchvision("efficientnet_b0"),
    "mobilenet_v3_large": of_torchvision("mobilenet_v3_large"),
    "unet": unet,
    "t5": t5,
    "whisper": whisper,
    "mlp": mlp,
    "chain": chain,
    "weights": mlp,
    "rules": lambda count: llama(16),
}
"""A function for each kind of model; the number in a name like `llama-16` is its argument."""


def build(name: str) -> Made:
    """The model of a name in eval mode, with seeded weights and inputs."""
    kind, _, number = name.partition("-")
    torch.manual_seed(0)
    arguments: list[Any] = [int(number)] if number else []
    model, inputs = BUILDERS[kind](*arguments)
    statistics = (buffer for name, buffer in model.named_buffers() if name.endswith(("running_mean", "running_var")))
    for tensor in (*model.parameters(), *statistics):
        if tensor.dim() == 1:  # initially zeros or ones, which compilers fold and merge; those of trained models differ
            tensor.data.uniform_(0.5, 1.5)
    return model.eval(), inputs
