"""Policies of robots that lerobot saved: from observations to a chunk of actions, in the numbers of the model.

The inputs are the observations of the folder, `observation.images.top` as `observation_images_top`. What lerobot's
processors do around a policy, such as the normalisation of observations and actions, is the caller's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from patcomp.errors import PatcompError, reason_of
from patcomp.language.loading import DTYPES, STRICT, Allowed
from patcomp.tasks.entries import Entry
from patcomp.tasks.replacing import replaced

_POLICIES = {"act": "ACTPolicy", "diffusion": "DiffusionPolicy"}
_OTHERS = ("smolvla", "pi0", "pi05", "pi0_fast", "vqbet", "tdmpc", "groot", "xvla", "wall_x", "sac")
KINDS = (*_POLICIES, *_OTHERS)
"""What `type` of a `config.json` of lerobot says."""
_IMAGES = "observation.images"
_FEW_STEPS = 100
"""How many steps of a diffusion policy are written out in a program at most."""


def of_folder(folder: Path, config: Mapping[str, Any], dtype: str, allowed: Allowed) -> list[Entry]:
    """The functions of the policy of a folder.

    Args:
        folder: of `save_pretrained` of lerobot.
        config: its `config.json`.
        dtype: of the weights.
        allowed: how the weights may differ from the policy's, which must be in no way.

    Raises:
        PatcompError: it is another policy, lerobot cannot be used, or it cannot load the policy.
    """
    kind = config["type"]
    if allowed != STRICT:
        raise PatcompError("the weights of a policy of lerobot must all be there; leave allow_missing= and "
                           "allow_unexpected= out")  # fmt: skip
    if kind not in _POLICIES:
        raise PatcompError(
            f"{str(folder)!r} holds the policy {kind!r} of lerobot, and patcomp knows {' and '.join(_POLICIES)}; "
            "export it by FILE.py:FUNCTION, a function that returns a module and its inputs"
        )
    try:
        policy = getattr(import_module(f"lerobot.policies.{kind}.modeling_{kind}"), _POLICIES[kind])
    except Exception as error:  # the package imports much, which may not fit the installed versions
        raise PatcompError(
            f"{str(folder)!r} holds a policy of lerobot, which cannot be used: {reason_of(error)}; pip install lerobot"
        ) from error
    try:
        loaded = policy.from_pretrained(folder, local_files_only=True, strict=True).to(DTYPES[dtype]).eval()
    except Exception as error:  # files can make lerobot raise anything
        raise PatcompError(f"lerobot cannot load {str(folder)!r}: {reason_of(error)}") from error
    return (_act if kind == "act" else _diffusion)(loaded, DTYPES[dtype])


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
            batch[_IMAGES] = self.joined(images)
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


class Condition(OfDiffusion):
    """What all steps see of the observations, (1, width)."""

    def forward(self, *observations: Tensor) -> Tensor:
        model, seen = self.policy.diffusion, list[Tensor]()

        def sample(size: int, global_cond: Tensor, noise: None) -> Tensor:
            seen.append(global_cond)
            return global_cond.new_zeros(1, model.config.horizon, 1)

        with replaced(vars(model), conditional_sample=sample):
            model.generate_actions(self.batch(observations))
        return seen[0]


class Denoise(nn.Module):
    """One step of a diffusion policy: what its network says of actions with noise, (1, horizon, actions)."""

    def __init__(self, policy: Any):
        super().__init__()
        self.network = policy.diffusion.unet

    def forward(self, sample: Tensor, timestep: Tensor, condition: Tensor) -> Tensor:
        made: Tensor = self.network(sample, timestep, global_cond=condition)
        return made


class Diffusion(OfDiffusion):
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


def _observations(policy: Any, dtype: torch.dtype, *further: int) -> dict[str, Tensor]:
    """Examples by the names of inputs, with sizes in front of those of the features."""
    draw = torch.Generator().manual_seed(0)
    return {
        key.replace(".", "_"): torch.rand(1, *further, *feature.shape, generator=draw).to(dtype)
        for key, feature in policy.config.input_features.items()
    }


def _act(policy: Any, dtype: torch.dtype) -> list[Entry]:
    return [Entry("main", Act(policy), _observations(policy, dtype), ("actions",))]


def _diffusion(policy: Any, dtype: torch.dtype) -> list[Entry]:
    """`condition` and `denoise` for a loop outside; `main` with the loop inside, if its steps draw nothing."""
    config, model = policy.config, policy.diffusion
    seen, condition = _observations(policy, dtype, config.n_obs_steps), Condition(policy)
    noise = torch.randn(1, config.horizon, config.action_feature.shape[0], generator=torch.Generator().manual_seed(1))
    noise = noise.to(dtype)
    with torch.no_grad():
        made = condition(*seen.values())
    step = {"sample": noise, "timestep": torch.tensor([config.num_train_timesteps // 2]), "condition": made}
    entries = [
        Entry("condition", condition, seen, ("condition",)),
        Entry("denoise", Denoise(policy), step, ("prediction",)),
    ]
    if config.noise_scheduler_type == "DDIM" and model.num_inference_steps <= _FEW_STEPS:
        entries.insert(0, Entry("main", Diffusion(policy), {"noise": noise, **seen}, ("actions",)))
    return entries
