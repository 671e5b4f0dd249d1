"""Models that draw random numbers, with the draws as inputs: on the evaluator and on the runtime."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional

from patcomp import AIProgram, TorchConverter
from patcomp.emit.toolchain.library import has_toolchain
from tests.helpers.as_users_run import AS_USERS_RUN

pytestmark = AS_USERS_RUN
BATCH = Dim("batch", min=1, max=64)


class VAE(nn.Module):
    """An autoencoder whose code is drawn by the reparameterisation trick."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(12, 8), nn.Linear(4, 12)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, log_variance = self.encoder(x).chunk(2, -1)
        code = mean + torch.exp(0.5 * log_variance) * torch.randn_like(log_variance)
        return self.decoder(code), mean, log_variance


class DiffusionStep(nn.Module):
    """A step of DDPM training (noise at random times), and the ancestral step back (Ho et al. 2020)."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("alphas", torch.linspace(0.99, 0.05, 50))
        self.network = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        time = torch.randint(0, 50, (image.shape[0],))
        alpha = self.alphas[time][:, None, None, None]
        noise = torch.randn_like(image)
        noisy = alpha.sqrt() * image + (1 - alpha).sqrt() * noise
        guess = self.network(noisy)
        back = (noisy - (1 - alpha) * guess) / alpha.sqrt() + 0.1 * torch.randn_like(image)
        return functional.mse_loss(guess, noise), back


class NextToken(nn.Module):
    """The next token of a language model, sampled from the most likely ones with a temperature."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(40, 16), nn.Linear(16, 40)

    def forward(self, tokens: Tensor) -> Tensor:
        logits = self.head(self.embedding(tokens)[:, -1]) / 0.7
        least = logits.topk(10).values[:, -1:]
        weights = torch.where(logits < least, -torch.inf, logits).softmax(-1)
        return torch.multinomial(weights, num_samples=1)


class Classifier(nn.Module):
    """A classifier whose dropout stays on, to estimate its uncertainty (Gal and Ghahramani 2016)."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x).softmax(-1)


def verified(model: nn.Module, example: tuple[Tensor, ...], others: list[tuple[Tensor, ...]]) -> AIProgram:
    """The program of a model with any batch size, compared with eager PyTorch at several sizes and seeds."""
    exported = torch.export.export(model, example, dynamic_shapes=[{0: BATCH}])
    program = TorchConverter(random="inputs").add_exported_program(exported).to_coreai()
    backends: Any = ["evaluator", "runtime"] if has_toolchain() else ["evaluator"]
    for seed, inputs in enumerate([example, *others]):
        verification = program.verify_against(model, inputs, seed=seed, backends=backends)
        assert verification.passed, verification
    return program


def noise_of(program: AIProgram) -> list[str]:
    return [str(spec) for spec in program.signature().inputs if spec.distribution]


@pytest.fixture(autouse=True)
def _same_weights() -> None:
    torch.manual_seed(0)


def test_vae() -> None:
    program = verified(VAE(), (torch.randn(3, 12),), [(torch.randn(1, 12),)])
    assert noise_of(program) == ["randn_like_noise: [batch]x4xf32, standard normal"]


def test_diffusion_step() -> None:
    program = verified(DiffusionStep(), (torch.randn(2, 3, 8, 8),), [(torch.randn(5, 3, 8, 8),)])
    assert noise_of(program) == [
        "randint_noise: [batch]xf32, uniform on [0, 1)",
        "randn_like_noise: [batch]x3x8x8xf32, standard normal",
        "randn_like_1_noise: [batch]x3x8x8xf32, standard normal",
    ]


def test_next_token() -> None:
    model = NextToken()
    tokens = torch.randint(40, (2, 5))
    program = verified(model, (tokens,), [(tokens[:1],)])
    assert noise_of(program) == ["multinomial_noise: [batch]x40xf32, standard Gumbel"]
    logits = model.head(model.embedding(tokens)[:, -1])
    likely = {(row, int(token)) for row, best in enumerate(logits.topk(10).indices) for token in best}
    drawn = {(row, int(token)) for seed in range(40) for row, token in enumerate(program.run(tokens, seed=seed))}
    assert drawn <= likely
    assert len(drawn) > 8
    greedy = program.run(tokens, multinomial_noise=torch.zeros(2, 40))
    assert greedy.equal(logits.argmax(-1, keepdim=True))


def test_dropout_for_uncertainty() -> None:
    model, x = Classifier().train(), torch.randn(4, 6)
    program = verified(model, (x,), [(torch.randn(2, 6),)])
    assert noise_of(program) == ["dropout_noise: [batch]x32xf32, uniform on [0, 1)"]
    samples = torch.stack([program.run(x, seed=seed) for seed in range(60)])
    own = torch.stack([model(x) for _ in range(60)]).detach()
    torch.testing.assert_close(samples.mean(0), own.mean(0), atol=0.05, rtol=0)
    assert float(samples.std(0).mean()) == pytest.approx(float(own.std(0).mean()), rel=0.25)
