"""ACT and diffusion policies of lerobot as functions of their observations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from patcomp_models.tasks.entries import Entry
from patcomp_models.tasks.replacing import replaced

IMAGES = "observation.images"
FEW_STEPS = 100
"""How many steps of a policy are written out in a program at most."""


class Policy(nn.Module):
    """A policy whose observations are given one after the other.

    Args:
        policy: of lerobot.
    """

    def __init__(self, policy: Any):
        super().__init__()
        self.policy, self.keys = policy, list(policy.config.input_features)

    def batch(self, observations: Sequence[Tensor]) -> dict[str, Any]:
        """The observations by lerobot's names, and the images together as its policies take them."""
        batch: dict[str, Any] = dict(zip(self.keys, observations, strict=True))
        images = [batch[key] for key in self.policy.config.image_features]
        if images:
            batch[IMAGES] = self.joined(images)
        return batch

    def joined(self, images: list[Tensor]) -> Any:
        """The images of all cameras."""
        return images


class Act(Policy):
    """Action Chunking with Transformers (Zhao et al. 2023, arXiv:2304.13705): (1, chunk, actions)."""

    def forward(self, *observations: Tensor) -> Tensor:
        made: Tensor = self.policy.model(self.batch(observations))[0]
        return made


class OfDiffusion(Policy):
    """A part of a diffusion policy (Chi et al. 2023, arXiv:2303.04137), whose observations are (1, steps, ...) each."""

    def joined(self, images: list[Tensor]) -> Any:
        return torch.stack(images, dim=-4)


class DiffusionCondition(OfDiffusion):
    """What all steps see of the observations, (1, width)."""

    def forward(self, *observations: Tensor) -> Tensor:
        model, seen = self.policy.diffusion, list[Tensor]()

        def sample(size: int, global_cond: Tensor, noise: None) -> Tensor:
            seen.append(global_cond)
            return global_cond.new_zeros(1, model.config.horizon, 1)

        with replaced(vars(model), conditional_sample=sample):
            model.generate_actions(self.batch(observations))
        return seen[0]


class DiffusionStep(nn.Module):
    """One step of a diffusion policy: what its network says of actions with noise, (1, horizon, actions)."""

    def __init__(self, policy: Any):
        super().__init__()
        self.network = policy.diffusion.unet

    def forward(self, sample: Tensor, timestep: Tensor, condition: Tensor) -> Tensor:
        made: Tensor = self.network(sample, timestep, global_cond=condition)
        return made


class DiffusionActions(OfDiffusion):
    """All steps of a diffusion policy from noise, (1, horizon, actions), to the actions that are used."""

    def __init__(self, policy: Any):
        super().__init__(policy)
        model = policy.diffusion
        model.noise_scheduler.set_timesteps(model.num_inference_steps)
        self.steps = model.noise_scheduler.timesteps.tolist()

    def forward(self, noise: Tensor, *observations: Tensor) -> Tensor:
        model, steps = self.policy.diffusion, self.steps
        with replaced(vars(model.noise_scheduler), set_timesteps=lambda *given: None, timesteps=steps):
            made: Tensor = model.generate_actions(self.batch(observations), noise=noise)
        return made


def input_name(key: str) -> str:
    """The name of an input, for lerobot's name of an observation."""
    return key.replace(".", "_")


def observations(policy: Any, dtype: torch.dtype, *further: int) -> dict[str, Tensor]:
    """Random examples by input name, of shape (1, further sizes, feature sizes)."""
    draw = torch.Generator().manual_seed(0)
    return {
        input_name(key): torch.rand(1, *further, *feature.shape, generator=draw).to(dtype)
        for key, feature in policy.config.input_features.items()
    }


def act(policy: Any, dtype: torch.dtype) -> list[Entry]:
    return [Entry("main", Act(policy), observations(policy, dtype), ("actions",))]


def diffusion(policy: Any, dtype: torch.dtype) -> list[Entry]:
    """`condition` and `denoise` for a loop outside; `main` with the loop inside, if its steps draw nothing."""
    config, model = policy.config, policy.diffusion
    seen, condition = observations(policy, dtype, config.n_obs_steps), DiffusionCondition(policy)
    noise = torch.randn(1, config.horizon, config.action_feature.shape[0], generator=torch.Generator().manual_seed(1))
    noise = noise.to(dtype)
    with torch.no_grad():
        made = condition(*seen.values())
    step = {"sample": noise, "timestep": torch.tensor([config.num_train_timesteps // 2]), "condition": made}
    entries = [
        Entry("condition", condition, seen, ("condition",)),
        Entry("denoise", DiffusionStep(policy), step, ("prediction",)),
    ]
    if config.noise_scheduler_type == "DDIM" and model.num_inference_steps <= FEW_STEPS:
        entries.insert(0, Entry("main", DiffusionActions(policy), {"noise": noise, **seen}, ("actions",)))
    return entries
