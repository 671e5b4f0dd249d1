"""Policies of robots: the actions of lerobot, where it can be imported; what is refused, everywhere."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from patcomp.emit.native import Native
from patcomp.errors import PatcompError
from patcomp_models.tasks import convert_folder
from tests.models.tasks.comparing import runs
from tests.models.tasks.folders import draw
from tests.models.tasks.policies import modules_of

KEYS = ("observation.state", "observation.images.top", "observation.images.wrist")


def saved(kind: str, name: str, folder: Path, **settings: Any) -> Any:
    """A small policy with drawn weights, which is saved in a folder too."""
    policies, configs, types = modules_of(kind)

    def feature(role: str, *shape: int) -> Any:
        return types.PolicyFeature(types.FeatureType[role], shape)

    observed = [feature("STATE", 4), feature("VISUAL", 3, 32, 32), feature("VISUAL", 3, 32, 32)]
    config = getattr(configs, f"{name}Config")(
        input_features=dict(zip(KEYS, observed, strict=True)), output_features={"action": feature("ACTION", 3)},
        pretrained_backbone_weights=None, device="cpu", **settings,
    )  # fmt: skip
    torch.manual_seed(0)
    policy = draw(getattr(policies, f"{name}Policy")(config).eval())
    policy.save_pretrained(folder)
    return policy


def observations(*further: int) -> Iterator[dict[str, torch.Tensor]]:
    """Two examples, by lerobot's names."""
    for seed in (1, 2):
        generator = torch.Generator().manual_seed(seed)
        shapes = [(4,), (3, 32, 32), (3, 32, 32)]
        yield {
            key: torch.rand(1, *further, *shape, generator=generator) for key, shape in zip(KEYS, shapes, strict=True)
        }


def named(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {key.replace(".", "_"): value for key, value in batch.items()}


def test_act(tmp_path: Path, native: Native) -> None:
    policy = saved(
        "act", "ACT", tmp_path, chunk_size=6, n_action_steps=6, dim_model=16, n_heads=2, dim_feedforward=24,
        n_encoder_layers=1, n_decoder_layers=1, latent_dim=4, n_vae_encoder_layers=1,
    )  # fmt: skip
    program = convert_folder(tmp_path)
    for batch in observations():
        wanted = policy.predict_action_chunk(dict(batch))
        for found in runs(program, native, "main", named(batch)):
            torch.testing.assert_close(found["actions"], wanted, rtol=1e-5, atol=1e-5)
        assert wanted.std() > 1e-3


@pytest.mark.parametrize("scheduler", ["DDIM", "DDPM"])
def test_diffusion(scheduler: str, tmp_path: Path, native: Native) -> None:
    """The loop inside, where it draws nothing, and outside."""
    policy = saved(
        "diffusion", "Diffusion", tmp_path, horizon=8, n_action_steps=4, n_obs_steps=2, down_dims=(8, 16),
        diffusion_step_embed_dim=8, kernel_size=3, n_groups=4, spatial_softmax_num_keypoints=4, crop_shape=(28, 28),
        noise_scheduler_type=scheduler, num_train_timesteps=20, num_inference_steps=4,
    )  # fmt: skip
    program, model = convert_folder(tmp_path), policy.diffusion
    assert program.entrypoints == (("main",) if scheduler == "DDIM" else ()) + ("condition", "denoise")
    for batch in observations(2):
        noise = torch.randn(1, 8, 3, generator=torch.Generator().manual_seed(7))
        images = torch.stack([batch[key] for key in KEYS[1:]], dim=-4)
        torch.manual_seed(5)
        with torch.no_grad():
            wanted = model.generate_actions({**batch, "observation.images": images}, noise=noise)
        if scheduler == "DDIM":
            for found in runs(program, native, "main", {"noise": noise, **named(batch)}):
                torch.testing.assert_close(found["actions"], wanted, rtol=1e-5, atol=1e-5)
        for place, condition in enumerate(runs(program, native, "condition", named(batch))):
            torch.manual_seed(5)
            sample = noise
            for step in model.noise_scheduler.timesteps:
                given = {"sample": sample, "timestep": step[None], "condition": condition["condition"]}
                made = runs(program, native, "denoise", given)[place]["prediction"]
                sample = model.noise_scheduler.step(made, step, sample).prev_sample
            torch.testing.assert_close(sample[:, 1:5], wanted, rtol=1e-5, atol=1e-5)


def folder_of(place: Path, kind: str) -> Path:
    save_file({"weight": torch.zeros(2)}, place / "model.safetensors")
    (place / "config.json").write_text(json.dumps({"type": kind, "input_features": {}}))
    return place


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "another policy": (
        "pi0",
        {},
        "holds the policy 'pi0' of lerobot, and patcomp knows act, diffusion, smolvla; export",
    ),
    "weights that may be missing": ("act", {"allow_missing": "x"}, "the weights of a policy of lerobot must all be"),
    "an image": ("act", {"image": (4, 4)}, "the observations of a policy are floats; leave image= "),
    "no policy": ("unknown", {}, "a model without a name, and no task takes it"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_policies(name: str, tmp_path: Path) -> None:
    kind, options, message = REFUSED[name]
    with pytest.raises(PatcompError) as caught:
        convert_folder(folder_of(tmp_path, kind), **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_without_lerobot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("lerobot", "lerobot.policies.act.modeling_act"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(PatcompError, match=r"holds a policy of lerobot, which cannot be used: .*; pip install lerobot"):
        convert_folder(folder_of(tmp_path, "act"))
