"""Networks for which no installed library has a class, written as their authors write them."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class _ResidualBlock(nn.Module):
    def __init__(self, channels: int, scale: float):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(True), nn.Conv2d(channels, channels, 3, padding=1)
        )
        self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x).mul(self.scale)


class EDSR(nn.Module):
    """Enhanced deep super-resolution (Lim et al. 2017, arXiv:1707.02921): residual blocks without normalisation."""

    def __init__(self, blocks: int = 3, channels: int = 16, upscale: int = 4):
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.4488, 0.4371, 0.4040]).view(1, 3, 1, 1))
        self.head = nn.Conv2d(3, channels, 3, padding=1)
        self.body = nn.Sequential(
            *[_ResidualBlock(channels, 0.1) for _ in range(blocks)], nn.Conv2d(channels, channels, 3, padding=1)
        )
        steps: list[nn.Module] = []
        for _ in range(upscale.bit_length() - 1):
            steps += [nn.Conv2d(channels, 4 * channels, 3, padding=1), nn.PixelShuffle(2)]
        self.tail = nn.Sequential(*steps, nn.Conv2d(channels, 3, 3, padding=1))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.head(image - self.mean)
        return self.tail(x + self.body(x)) + self.mean


class ResnetBlock2D(nn.Module):
    """The residual block of a diffusion U-Net, which adds a projection of the time embedding."""

    def __init__(self, inputs: int, outputs: int, time_channels: int, groups: int = 8):
        super().__init__()
        self.norm1 = nn.GroupNorm(groups, inputs, eps=1e-6)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.time_emb_proj = nn.Linear(time_channels, outputs)
        self.norm2 = nn.GroupNorm(groups, outputs, eps=1e-6)
        self.dropout = nn.Dropout(0.1)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.nonlinearity = nn.SiLU()
        self.conv_shortcut = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else None

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        hidden = self.conv1(self.nonlinearity(self.norm1(x)))
        hidden = hidden + self.time_emb_proj(self.nonlinearity(time))[:, :, None, None]
        hidden = self.conv2(self.dropout(self.nonlinearity(self.norm2(hidden))))
        skip = x if self.conv_shortcut is None else self.conv_shortcut(x)
        return (skip + hidden) / 1.0


class SpatialAttention(nn.Module):
    """Attention between the pixels of a feature map, by the fused function or by matrix products."""

    def __init__(self, channels: int, heads: int, attention: str, context: int | None = None, groups: int = 8):
        super().__init__()
        self.group_norm = nn.GroupNorm(groups, channels, eps=1e-6)
        self.to_q = nn.Linear(channels, channels)
        self.to_k = nn.Linear(context or channels, channels)
        self.to_v = nn.Linear(context or channels, channels)
        self.to_out = nn.Sequential(nn.Linear(channels, channels), nn.Dropout(0.0))
        self.heads, self.attention = heads, attention

    def forward(self, x: torch.Tensor, context: torch.Tensor | None = None) -> torch.Tensor:
        batch, channels, height, width = x.shape
        hidden = self.group_norm(x.view(batch, channels, height * width)).transpose(1, 2)
        source = hidden if context is None else context
        query, key, value = self.to_q(hidden), self.to_k(source), self.to_v(source)
        head = channels // self.heads
        if self.attention == "sdpa":
            query, key, value = (t.view(batch, -1, self.heads, head).transpose(1, 2) for t in (query, key, value))
            hidden = functional.scaled_dot_product_attention(query, key, value, dropout_p=0.0, is_causal=False)
            hidden = hidden.transpose(1, 2).reshape(batch, -1, channels)
        else:
            query, key, value = (
                t.reshape(batch, -1, self.heads, head).permute(0, 2, 1, 3).reshape(batch * self.heads, -1, head)
                for t in (query, key, value)
            )
            empty = torch.empty(query.shape[0], query.shape[1], key.shape[1], dtype=query.dtype, device=query.device)
            scores = torch.baddbmm(empty, query, key.transpose(-1, -2), beta=0, alpha=head**-0.5)
            hidden = torch.bmm(scores.softmax(dim=-1), value)
            hidden = hidden.reshape(batch, self.heads, -1, head).permute(0, 2, 1, 3).reshape(batch, -1, channels)
        return self.to_out(hidden).transpose(-1, -2).reshape(batch, channels, height, width) + x


class DiffusionBlock(nn.Module):
    """A level of a diffusion U-Net: residual, self-attention and cross-attention blocks at a time step."""

    def __init__(self, attention: str, channels: int = 32, context: int = 24):
        super().__init__()
        self.channels = channels
        self.time_embedding = nn.Sequential(nn.Linear(channels, 64), nn.SiLU(), nn.Linear(64, 64))
        self.conv_in = nn.Conv2d(4, channels, 3, padding=1)
        self.resnets = nn.ModuleList([ResnetBlock2D(channels, channels, 64), ResnetBlock2D(channels, 2 * channels, 64)])
        self.self_attention = SpatialAttention(channels, 4, attention)
        self.cross_attention = SpatialAttention(2 * channels, 4, attention, context)
        self.downsample = nn.Conv2d(2 * channels, 2 * channels, 3, stride=2, padding=1)
        self.upsample = nn.Conv2d(2 * channels, channels, 3, padding=1)
        self.norm_out, self.act, self.conv_out = nn.GroupNorm(8, channels), nn.SiLU(), nn.Conv2d(channels, 4, 3, 1, 1)

    def forward(self, sample: torch.Tensor, timestep: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        half = self.channels // 2
        frequencies = torch.exp(-9.21 * torch.arange(half, dtype=torch.float32) / half)
        angles = timestep[:, None].float() * frequencies[None]
        time = self.time_embedding(torch.cat([torch.cos(angles), torch.sin(angles)], dim=-1))
        x = self.self_attention(self.resnets[0](self.conv_in(sample), time))
        x = self.cross_attention(self.resnets[1](x, time), context)
        x = functional.interpolate(self.downsample(x), scale_factor=2.0, mode="nearest")
        return self.conv_out(self.act(self.norm_out(self.upsample(x))))


class StyleNet(nn.Module):
    """Fast neural style transfer (Johnson et al. 2016, arXiv:1603.08155), with instance normalisation."""

    def __init__(self, channels: int = 8):
        super().__init__()

        def convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Sequential:
            return nn.Sequential(nn.ReflectionPad2d(kernel // 2), nn.Conv2d(inputs, outputs, kernel, stride))

        self.encoder = nn.Sequential(
            convolution(3, channels, 9), nn.InstanceNorm2d(channels, affine=True), nn.ReLU(),
            convolution(channels, 2 * channels, 3, 2), nn.InstanceNorm2d(2 * channels, affine=True), nn.ReLU(),
        )  # fmt: skip
        self.residual = nn.Sequential(
            convolution(2 * channels, 2 * channels, 3), nn.InstanceNorm2d(2 * channels, affine=True), nn.ReLU(),
            convolution(2 * channels, 2 * channels, 3), nn.InstanceNorm2d(2 * channels),
        )  # fmt: skip
        self.decoder = nn.Sequential(
            nn.Upsample(scale_factor=2, mode="nearest"), convolution(2 * channels, channels, 3),
            nn.InstanceNorm2d(channels, affine=True), nn.ReLU(), convolution(channels, 3, 9),
        )  # fmt: skip

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.encoder(image)
        return self.decoder(x + self.residual(x))
