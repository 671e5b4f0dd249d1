"""The real networks that the tests convert: unmodified classes, small configurations, random weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from patcomp.torchvision import declare_operators

declare_operators()  # the models are imported below, where they are made


@dataclass(frozen=True)
class Example:
    """A model in eval mode and example inputs for its forward."""

    model: nn.Module
    args: tuple[torch.Tensor, ...]


def _randomized(model: nn.Module) -> nn.Module:
    """Eval mode, with weights and statistics away from trivial initial values, so that outputs are of order one."""
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.running_mean.normal_(0, 0.2)
            module.running_var.uniform_(0.5, 1.5)
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=module.in_features**-0.5)
        elif isinstance(module, nn.LayerNorm | nn.GroupNorm):
            module.weight.data.uniform_(0.5, 1.5)
            module.bias.data.normal_(0, 0.2)
        elif type(module).__name__.endswith(("RMSNorm", "T5LayerNorm")):
            module.weight.data.uniform_(0.5, 1.5)
    return model.eval()


def _image(size: int = 64) -> tuple[torch.Tensor, ...]:
    return (torch.randn(1, 3, size, size),)


def resnet18() -> Example:
    from torchvision.models import resnet18

    return Example(_randomized(resnet18(num_classes=10)), _image())


def mobilenet_v3_small() -> Example:
    from torchvision.models import mobilenet_v3_small

    return Example(_randomized(mobilenet_v3_small(num_classes=10)), _image())


def convnext_tiny() -> Example:
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt

    stages = [
        CNBlockConfig(24, 48, 1),
        CNBlockConfig(48, 96, 1),
        CNBlockConfig(96, 192, 2),
        CNBlockConfig(192, None, 1),
    ]
    return Example(_randomized(ConvNeXt(stages, num_classes=10)), _image())


def vit() -> Example:
    from torchvision.models import VisionTransformer

    model = VisionTransformer(64, 16, num_layers=3, num_heads=4, hidden_dim=64, mlp_dim=128, num_classes=10)
    return Example(_randomized(model), _image())


def _tokens(vocabulary: int, length: int = 12) -> torch.Tensor:
    return torch.randint(0, vocabulary, (1, length))


class _Output(nn.Module):
    """A Hugging Face model as export takes it: tensors in, one tensor out, no cache."""

    def __init__(self, model: nn.Module, output: str):
        super().__init__()
        self.model, self.output = model, output

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None) -> torch.Tensor:
        return getattr(self.model(input_ids=input_ids, attention_mask=attention_mask), self.output)


def bert(attention: str = "sdpa") -> Example:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=99, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=64,
        max_position_embeddings=32, attn_implementation=attention,
    )  # fmt: skip
    mask = torch.ones(1, 12, dtype=torch.int64)
    mask[0, 9:] = 0
    return Example(_Output(_randomized(BertModel(config)), "last_hidden_state"), (_tokens(99), mask))


def gpt2(attention: str = "sdpa") -> Example:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=99, n_embd=32, n_layer=3, n_head=4, n_positions=32, use_cache=False, attn_implementation=attention,
    )  # fmt: skip
    return Example(_Output(_randomized(GPT2LMHeadModel(config)), "logits"), (_tokens(99),))


def llama(layers: int = 4, attention: str = "sdpa") -> Example:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=99, hidden_size=64, num_hidden_layers=layers, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=96, max_position_embeddings=64, use_cache=False, attn_implementation=attention,
    )  # fmt: skip
    return Example(_Output(_randomized(LlamaForCausalLM(config)), "logits"), (_tokens(99),))


def t5_encoder() -> Example:
    from transformers import T5Config, T5EncoderModel

    config = T5Config(
        vocab_size=99, d_model=32, d_kv=8, d_ff=64, num_layers=3, num_heads=4, feed_forward_proj="gated-gelu",
    )  # fmt: skip
    return Example(_Output(_randomized(T5EncoderModel(config)), "last_hidden_state"), (_tokens(99),))


class ESPCN(nn.Module):
    """Efficient sub-pixel convolutional network (Shi et al. 2016, arXiv:1609.05158)."""

    def __init__(self, upscale: int = 3, channels: int = 1):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(channels, 64, 5, padding=2), nn.Tanh(), nn.Conv2d(64, 32, 3, padding=1), nn.Tanh()
        )
        self.upscale = nn.Sequential(nn.Conv2d(32, channels * upscale**2, 3, padding=1), nn.PixelShuffle(upscale))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return torch.clamp(self.upscale(self.features(image)), 0.0, 1.0)


def espcn() -> Example:
    return Example(ESPCN().eval(), (torch.rand(1, 1, 24, 24),))


class _UNetBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.SiLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.SiLU(),
        )  # fmt: skip
        self.skip = nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x) + self.skip(x)


class UNet(nn.Module):
    """A U-Net with group normalisation: two levels down, nearest and transposed-convolution up, skips."""

    def __init__(self, channels: int = 16):
        super().__init__()
        self.down1, self.down2 = _UNetBlock(3, channels), _UNetBlock(channels, 2 * channels)
        self.middle = _UNetBlock(2 * channels, 2 * channels)
        self.up2 = nn.ConvTranspose2d(2 * channels, 2 * channels, 2, stride=2)
        self.decode2 = _UNetBlock(4 * channels, channels)
        self.up1 = nn.Upsample(scale_factor=2, mode="nearest")
        self.decode1 = _UNetBlock(2 * channels, channels)
        self.pool, self.head = nn.MaxPool2d(2), nn.Conv2d(channels, 3, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        first = self.down1(image)
        second = self.down2(self.pool(first))
        x = self.middle(self.pool(second))
        x = self.decode2(torch.cat([self.up2(x), second], 1))
        x = self.decode1(torch.cat([self.up1(x), first], 1))
        return self.head(x)


def unet() -> Example:
    return Example(_randomized(UNet()), (torch.randn(1, 3, 32, 32),))


MODELS: dict[str, Callable[[], Example]] = {
    "resnet18": resnet18,
    "mobilenet_v3_small": mobilenet_v3_small,
    "convnext_tiny": convnext_tiny,
    "vit": vit,
    "bert": bert,
    "gpt2": gpt2,
    "llama": llama,
    "t5_encoder": t5_encoder,
    "espcn": espcn,
    "unet": unet,
}


def build(name: str) -> Example:
    """The model of a name with seeded weights and inputs."""
    torch.manual_seed(0)
    return MODELS[name]()
