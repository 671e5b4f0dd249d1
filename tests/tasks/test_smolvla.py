"""SmolVLA: the actions of lerobot, where it can be imported; what is ours, everywhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from patcomp.emit.native import Native
from patcomp.errors import PatcompError
from patcomp.tasks import convert_folder
from patcomp.tasks.robots import part_of_lerobot
from patcomp.tasks.smolvla import Condition, smolvla, waves_of_time
from tests.language.vision_checkpoints import SETTINGS, words
from tests.tasks.comparing import runs
from tests.tasks.folders import draw
from tests.tasks.policies import modules_of

TOKENS, MASK = "observation.language.tokens", "observation.language.attention_mask"
LENGTH, CHUNK, WIDTH = 7, 6, 16


def vision_language_model(folder: Path) -> None:
    """The configuration and the processor that lerobot makes SmolVLM of."""
    import transformers as tf

    tf.SmolVLMConfig(**SETTINGS["smolvlm"]).save_pretrained(folder)
    named = {"fake_image_token": "<fake_token_around_image>", "global_image_token": "<global-img>"}
    tokenizer = tf.PreTrainedTokenizerFast(
        tokenizer_object=words(*named.values(), "<end>").backend_tokenizer, unk_token="<unk>", eos_token="</s>",
        extra_special_tokens={**named, "image_token": "<image>", "end_of_utterance_token": "<end>"},
    )  # fmt: skip
    images, videos = tf.SmolVLMImageProcessor(), tf.SmolVLMVideoProcessor()
    tf.SmolVLMProcessor(images, tokenizer, videos, image_seq_len=4).save_pretrained(folder)


def saved(place: Path, joints: int, actions: int, **settings: Any) -> Any:
    """A small policy with drawn weights, which is saved in a folder too."""
    policies, configs, types = modules_of("smolvla")
    vision_language_model(place / "policy" / "vlm")

    def feature(role: str, *shape: int) -> Any:
        return types.PolicyFeature(types.FeatureType[role], shape)

    observed = {
        "observation.images.top": feature("VISUAL", 3, 24, 40), "observation.state": feature("STATE", joints),
        "observation.images.wrist": feature("VISUAL", 3, 32, 32),
    }  # fmt: skip
    chosen: dict[str, Any] = {"num_steps": 3, "num_vlm_layers": 2, "empty_cameras": 1, **settings}
    config = configs.SmolVLAConfig(
        input_features=observed, output_features={"action": feature("ACTION", actions)}, device="cpu",
        vlm_model_name=str(place / "policy" / "vlm"), chunk_size=CHUNK, n_action_steps=CHUNK, max_state_dim=WIDTH,
        max_action_dim=WIDTH, resize_imgs_with_padding=(32, 32), tokenizer_max_length=LENGTH, **chosen,
    )  # fmt: skip
    torch.manual_seed(0)
    policy = draw(policies.SmolVLAPolicy(config).eval())
    policy.save_pretrained(place / "policy")
    return policy


def observations(joints: int) -> Iterator[tuple[dict[str, torch.Tensor], torch.Tensor, int]]:
    """Two examples, their noise, and how many of their tokens are of the text."""
    for seed, used in ((1, LENGTH), (2, 4)):
        generator = torch.Generator().manual_seed(seed)
        yield (
            {
                "observation.images.top": torch.rand(1, 3, 24, 40, generator=generator),
                "observation.state": torch.rand(1, joints, generator=generator),
                "observation.images.wrist": torch.rand(1, 3, 32, 32, generator=generator),
                TOKENS: torch.randint(90, (1, LENGTH), generator=generator),
                MASK: torch.arange(LENGTH)[None] < used,
            },
            torch.randn(1, CHUNK, WIDTH, generator=generator),
            used,
        )


POLICIES: dict[str, tuple[int, int, dict[str, Any]]] = {
    "cross and self attention": (4, 3, {"num_steps": 10}),
    "fewer layers of actions": (4, 3, {"num_expert_layers": 1, "self_attn_every_n_layers": -1}),
    "self attention": (4, 3, {"attention_mode": "self_attn", "empty_cameras": 0}),
    "padding and tokens around images": (4, 3, {"prefix_length": 40, "add_image_special_tokens": True}),
    "a robot of Aloha": (14, 14, {"adapt_to_pi_aloha": True}),
}


def close(found: torch.Tensor, wanted: torch.Tensor) -> None:
    assert wanted.std() > 0.1
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5 * float(wanted.abs().max()))


@pytest.mark.parametrize("name", POLICIES)
def test_smolvla(name: str, tmp_path: Path, native: Native) -> None:
    """The loop inside and outside; padding of a text changes nothing."""
    joints, actions, settings = POLICIES[name]
    policy = saved(tmp_path, joints, actions, **settings)
    steps = policy.config.num_steps
    program = convert_folder(tmp_path / "policy")
    assert program.entrypoints == ("main", "condition", "denoise")
    for observed, noise, used in observations(joints):
        batch = {key: value.clone() for key, value in observed.items()}
        batch[TOKENS], batch[MASK] = batch[TOKENS][:, :used], batch[MASK][:, :used]
        policy.reset()
        wanted = policy.predict_action_chunk(batch, noise=noise.clone())
        given = {key.replace(".", "_"): value for key, value in observed.items()}
        for found in runs(program, native, "main", {"noise": noise, **given}):
            close(found["actions"], wanted)
        for place, condition in enumerate(runs(program, native, "condition", given)):
            sample = noise
            for step in range(steps):
                inputs = {"sample": sample, "timestep": torch.tensor([1 - step / steps]), **condition}
                sample = sample - runs(program, native, "denoise", inputs)[place]["prediction"] / steps
            made = sample[..., :actions]
            close(policy._pi_aloha_encode_actions(made) if policy.config.adapt_to_pi_aloha else made, wanted)


def test_many_steps(tmp_path: Path) -> None:
    saved(tmp_path, 4, 3, num_steps=101, num_vlm_layers=1, self_attn_every_n_layers=1)
    assert convert_folder(tmp_path / "policy").entrypoints == ("condition", "denoise")


@pytest.mark.parametrize("periods", [(4e-3, 4.0), (1e-3, 1.0)])
def test_waves_of_time(periods: tuple[float, float]) -> None:
    """The formula in 64 bits, at all times of loops."""
    times = torch.cat([torch.arange(1, steps + 1) / steps for steps in range(1, 101)])
    longer = min(periods) * (max(periods) / min(periods)) ** np.linspace(0, 1, 48)
    angles = times.double().numpy()[:, None] * (2 * np.pi / longer)
    wanted = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    found = waves_of_time(times, 96, *periods)
    assert found.dtype == torch.float32
    assert np.abs(found.numpy() - wanted).max() < 1e-6
    plain = torch.sin(times[:, None] * torch.tensor(2 * np.pi / longer, dtype=torch.float32))
    assert np.abs(plain.numpy() - wanted[:, :48]).max() > 2e-5  # what the exact products are for


def chunking(*, enabled: bool, debug: bool = False) -> SimpleNamespace:
    return SimpleNamespace(enabled=enabled, debug=debug)


REFUSED: dict[str, tuple[dict[str, Any], torch.dtype, str]] = {
    "half": ({}, torch.float16, "lerobot computes the actions of SmolVLA in float32; leave dtype= (--dtype) out"),
    "real-time chunking": ({"rtc_config": chunking(enabled=True)}, torch.float32, "set rtc_config to null in"),
    "recorded steps": ({"rtc_config": chunking(enabled=False, debug=True)}, torch.float32, "set rtc_config to null"),
    "no cache": ({"rtc_config": chunking(enabled=False), "use_cache": False}, torch.float32, "set use_cache to true"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused_settings(name: str) -> None:
    settings, dtype, message = REFUSED[name]
    policy = SimpleNamespace(config=SimpleNamespace(**{"rtc_config": None, "use_cache": True, **settings}), model=None)
    with pytest.raises(PatcompError) as caught:
        smolvla(policy, dtype)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_refused_version() -> None:
    config = SimpleNamespace(rtc_config=None, use_cache=True)
    policy = SimpleNamespace(config=config, model=None, prepare_language=lambda batch: None)
    with pytest.raises(PatcompError, match=r"makes tokens of a text in the policy; pip install 'lerobot==0.4.\*'"):
        smolvla(policy, torch.float32)


class Later:
    """lerobot 0.6, as far as its cache goes."""

    config = SimpleNamespace(input_features=["observation.state"], empty_cameras=0, chunk_size=1, max_action_dim=1)

    def __init__(self) -> None:
        self.model = SimpleNamespace(denoise_step=None)

    def predict_action_chunk(self, batch: dict[str, torch.Tensor], noise: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.model.denoise_step(
            x_t=noise, prefix_pad_masks=batch[MASK], past_key_values=object(), timestep=torch.ones(1)
        )
        return result


def test_refused_cache() -> None:
    seen = torch.zeros(1, 4), torch.zeros(1, 2, dtype=torch.int64), torch.ones(1, 2, dtype=torch.bool)
    with pytest.raises(
        PatcompError, match=r"in a cache of transformers, which is not supported; pip install 'lerobot=="
    ):
        Condition(Later())(*seen)


def test_refused_folder(tmp_path: Path) -> None:
    """In a sentence that names the folder."""
    saved(tmp_path, 4, 3)
    with pytest.raises(
        PatcompError, match=r"policy' holds the policy 'smolvla': lerobot computes the actions of"
    ) as caught:
        convert_folder(tmp_path / "policy", dtype="float16")
    assert "\n" not in str(caught.value)


@pytest.fixture
def broken_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package lerobot, one policy of which does not fit the installed versions."""
    policies = tmp_path / "lerobot" / "policies"
    (policies / "act").mkdir(parents=True)
    (tmp_path / "lerobot" / "__init__.py").touch()
    (policies / "__init__.py").write_text("raise TypeError('GR00T does not fit')\n")
    (policies / "act" / "__init__.py").touch()
    (policies / "act" / "modeling_act.py").write_text("ACTPolicy = 'the policy'\n")
    before = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == "lerobot"}
    monkeypatch.syspath_prepend(str(tmp_path))
    yield policies
    for name in [name for name in sys.modules if name.split(".")[0] == "lerobot"]:
        del sys.modules[name]
    sys.modules.update(before)


def test_other_policies_do_not_matter(broken_package: Path) -> None:
    module: Any = part_of_lerobot("act", "modeling")
    assert module.ACTPolicy == "the policy"
    assert Path(module.__file__).is_relative_to(broken_package)
    assert "lerobot.policies" not in sys.modules
    with pytest.raises(ModuleNotFoundError, match="smolvla"):
        part_of_lerobot("smolvla", "modeling")
