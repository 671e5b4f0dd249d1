"""SmolVLA of lerobot (Shukor et al. 2025, arXiv:2506.01844): images, a text and a state to a chunk of actions.

A vision-language model reads the observations once; an expert reads its keys and values in each step of flow matching.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from patcomp.errors import PatcompError
from patcomp_models.tasks.entries import Entry
from patcomp_models.tasks.policies import FEW_STEPS, IMAGES, Policy, input_name, observations
from patcomp_models.tasks.replacing import replaced

_STATE, _TOKENS, _MASK = "observation.state", "observation.language.tokens", "observation.language.attention_mask"
_PARTS = 4096
"""Into how many parts a unit of time is divided, a power of 2: a multiple of 1 / 4096 has 12 bits."""


def waves_of_time(time: Tensor, dimension: int, min_period: float, max_period: float, device: Any = "cpu") -> Tensor:
    """The sines and cosines of times, as lerobot's `create_sinusoidal_pos_embedding`, which computes in 64 bits.

    In 32 bits the largest angles, such as 1,570, are wrong by 1e-4. So whole turns are left out first, of products that
    are exact: a time is a multiple of 1 / 4096 and a rest, and the turns in 1 / 4096 are 12 bits and a rest.
    """
    turns = 1 / (min_period * (max_period / min_period) ** np.linspace(0, 1, dimension // 2))
    part = turns / _PARTS % 1
    high = np.round(part * _PARTS) / _PARTS
    of_time, of_part, of_rest = (
        torch.tensor(each.tolist(), dtype=torch.float32) for each in (turns, high, part - high)
    )
    time = time[:, None]
    parts = torch.floor(time * _PARTS)
    found = parts * of_part
    found = found - torch.floor(found) + parts * of_rest + (time - parts / _PARTS) * of_time
    angle = (found - torch.floor(found)) * (2 * np.pi)
    return torch.cat([torch.sin(angle), torch.cos(angle)], dim=1)


class OfVla(Policy):
    """A part of SmolVLA. The last two observations are the tokens of the text and their mask."""

    def __init__(self, policy: Any):
        super().__init__(policy)
        absent = {f"{IMAGES}.empty_camera_{number}" for number in range(policy.config.empty_cameras)}
        self.keys = [key for key in self.keys if key not in absent] + [_TOKENS, _MASK]

    def actions(self, noise: Tensor, seen: Sequence[Tensor]) -> Tensor:
        """All steps from noise, (1, chunk, largest width), to the actions, (1, chunk, actions)."""
        batch = dict(zip(self.keys, seen, strict=True))
        batch[_STATE] = batch[_STATE].clone()  # a policy for Aloha writes to it
        with _exact_times(self.policy.model):
            made: Tensor = self.policy.predict_action_chunk(batch, noise=noise)
        return made


class Actions(OfVla):
    """All steps of SmolVLA."""

    def forward(self, noise: Tensor, *seen: Tensor) -> Tensor:
        return self.actions(noise, seen)


class Condition(OfVla):
    """What all steps see: the keys and the values of each layer, (layers, 1, tokens, heads, width), and their mask."""

    def forward(self, *seen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        config, found = self.policy.config, list[tuple[Tensor, Any]]()

        def step(*, x_t: Tensor, prefix_pad_masks: Tensor, past_key_values: Any, timestep: Tensor) -> Tensor:
            found.append((prefix_pad_masks, past_key_values))
            return torch.zeros_like(x_t)

        with replaced(vars(self.policy.model), denoise_step=step):
            self.actions(torch.zeros(1, config.chunk_size, config.max_action_dim), seen)
        mask, cache = found[0]
        if not isinstance(cache, dict):
            raise PatcompError(
                "this version of lerobot holds the keys and values in a cache of transformers, which is not supported; "
                "pip install 'lerobot==0.4.*'"
            )
        layers = [(layer["key_states"], layer["value_states"]) for layer in cache.values()]
        keys, values = (torch.stack(each) for each in zip(*layers, strict=True))
        return keys, values, mask


class Denoise(nn.Module):
    """One step of SmolVLA: the velocity of actions with noise, (1, chunk, largest width)."""

    def __init__(self, policy: Any):
        super().__init__()
        self.model = policy.model

    def forward(self, sample: Tensor, timestep: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        cache = {
            index: {"key_states": key, "value_states": value}
            for index, (key, value) in enumerate(zip(keys, values, strict=True))
        }
        with _exact_times(self.model):
            made: Tensor = self.model.denoise_step(
                x_t=sample, prefix_pad_masks=mask, past_key_values=cache, timestep=timestep
            )
        return made


@contextmanager
def _exact_times(model: Any) -> Iterator[None]:
    """Let a model of lerobot compute the waves of times in 32 bits, as exactly as in 64."""
    names = vars(import_module(type(model).__module__))
    with replaced(names, create_sinusoidal_pos_embedding=waves_of_time):
        yield


def smolvla(policy: Any, dtype: torch.dtype) -> list[Entry]:
    """`condition` and `denoise` for a loop outside; `main` with the loop inside.

    Raises:
        PatcompError: the policy cannot be converted with its settings, or not in this type.
    """
    config, model = policy.config, policy.model
    _check(policy, dtype)
    vars(model).pop("sample_actions", None)  # what torch.compile made of it, with compile_model
    condition, denoise = Condition(policy), Denoise(policy)
    draw, length = torch.Generator().manual_seed(1), config.tokenizer_max_length
    examples = observations(policy, dtype) | {
        input_name(_TOKENS): torch.arange(length)[None] % model.vlm_with_expert.config.text_config.vocab_size,
        input_name(_MASK): torch.ones(1, length, dtype=torch.bool),
    }
    seen = {input_name(key): examples[input_name(key)] for key in condition.keys}
    noise = torch.randn(1, config.chunk_size, config.max_action_dim, generator=draw)
    with torch.no_grad():
        keys, values, mask = condition(*seen.values())
        step = {"sample": noise, "timestep": torch.tensor([0.5]), "keys": keys, "values": values, "mask": mask}
    entries = [
        Entry("condition", condition, seen, ("keys", "values", "mask")),
        Entry("denoise", denoise, step, ("prediction",)),
    ]
    if config.num_steps <= FEW_STEPS:
        entries.insert(0, Entry("main", Actions(policy), {"noise": noise, **seen}, ("actions",)))
    return entries


def _check(policy: Any, dtype: torch.dtype) -> None:
    config = policy.config
    chunking = getattr(config, "rtc_config", None)
    if dtype != torch.float32:
        raise PatcompError("lerobot computes the actions of SmolVLA in float32; leave dtype= (--dtype) out")
    if hasattr(policy, "prepare_language"):
        raise PatcompError("this version of lerobot makes tokens of a text in the policy; pip install 'lerobot==0.4.*'")
    if chunking is not None and (chunking.enabled or chunking.debug):
        raise PatcompError(
            "real-time chunking takes gradients of the steps, which a program cannot; set rtc_config to null in "
            "config.json"
        )
    if not config.use_cache:
        raise PatcompError(
            "the steps read the keys and values of the observations; set use_cache to true in config.json"
        )
