"""Pocket TTS and VibeVoice: the loop of a host with the functions of a bundle makes the sound of `generate`, with the
same random numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from patcomp_models.bundles import check_bundle, convert_bundle
from tests.models.bundles import latent_models
from tests.models.bundles.bundle_parts import Parts, parts_of

pytest.importorskip("coreai")


class Run:
    """A run of `main` with states of its own."""

    def __init__(self, parts: Parts):
        self.parts, self.seen = parts, 0
        self.states = parts.zeros("main", "main", 64)

    def __call__(self, *embeddings: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The logits and the hidden state of the last one."""
        new = np.concatenate(embeddings, 1)
        self.seen += new.shape[1]
        inputs = {"inputs_embeds": new, "position_ids": [range(self.seen)]}
        made = self.parts.call("main", "main", inputs, self.states)
        return made["logits"][:, -1], made["hidden"][:, -1]


@pytest.mark.parametrize(
    ("name", "flow", "sampled"),
    [
        ("PocketTTS", "lsd", True),
        pytest.param("PocketTTS", "drifting", False, marks=pytest.mark.slow),
        pytest.param("GradiumPhononTTS", "lsd", True, marks=pytest.mark.slow),
    ],
)
def test_pocket_tts(name: str, flow: str, sampled: bool, tmp_path: Path) -> None:
    folder = latent_models.pocket(tmp_path / "model", name, flow)
    bundle = convert_bundle(folder, out=tmp_path / "out", verify=False)
    assert check_bundle(bundle) == ()
    model = getattr(transformers, f"{name}ForConditionalGeneration").from_pretrained(folder).eval()
    before, width = ([38], 6) if name == "PocketTTS" else ([7], 10)
    voice, ids = torch.randn(1, 3, width, generator=torch.Generator().manual_seed(1)), [5, 9, 17, 4]
    torch.manual_seed(2)
    expected = model.generate(
        input_ids=torch.tensor([[*before, 36, 36, 36, *ids, 39]]), audio_prompt_latents=voice, do_sample=sampled,
        frames_after_eos=2, max_new_tokens=20,
    )[0]  # fmt: skip
    torch.manual_seed(2)
    told = model.generation_config
    with parts_of(bundle) as parts:

        def embedded(function: str, **given: Any) -> np.ndarray:
            return np.array(parts.call("main", function, given)["embeddings"])

        run, latents, left = Run(parts), list[np.ndarray](), -1
        new = [embedded("text", input_ids=[before]), embedded("voice", latents=voice),
               embedded("text", input_ids=[[*ids, 39]])]  # fmt: skip
        while left != 0 and len(latents) < 20:
            logits, hidden = run(*new)
            latent = (torch.randn(1, 6) * (told.temperature**0.5 if sampled else 0)).numpy()
            steps = told.num_flow_steps if flow == "lsd" else 1
            for step in range(steps):
                times = {"times": [[step / steps, (step + 1) / steps]]} if flow == "lsd" else {}
                made = parts.call("main", "flow", {"latents": latent, "hidden": hidden, **times})["flow"]
                latent = latent + made / steps if times else made
            is_end = left < 0 and logits[0, 0] > told.eos_threshold and len(latents) >= told.min_frames_before_eos
            left = 2 if is_end else left - 1 if left > 0 else left
            latents.append(latent[None])
            new = [embedded("frames", latents=latents[-1])]
        scaled = parts.call("main", "scaled", {"latents": np.concatenate(latents, 1)})["scaled_latents"]
    np.testing.assert_allclose(scaled[0], expected, rtol=1e-4, atol=1e-5)
    assert 4 < len(latents) < 20
    assert expected.std(0).min() > 1e-2


@pytest.mark.slow
def test_vibe_voice(tmp_path: Path) -> None:
    diffusers = pytest.importorskip("diffusers")
    folder = latent_models.vibe_voice(tmp_path / "model")
    bundle = convert_bundle(folder, out=tmp_path / "out", verify=False)
    assert check_bundle(bundle) == ()
    model = transformers.VibeVoiceForConditionalGeneration.from_pretrained(folder).eval()
    told, ids = model.generation_config, [5, 9, 17, 3]
    sound = torch.randn(1, 1, 24, generator=torch.Generator().manual_seed(1))
    prompt, most = [*ids, 38, 38, 38, 7, 36], 14
    torch.manual_seed(2)
    made = model.generate(
        input_ids=torch.tensor([prompt]), input_values=sound, padding_mask=torch.ones(1, 24), max_new_tokens=most,
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long), return_dict_in_generate=True,
    )  # fmt: skip
    torch.manual_seed(2)
    with parts_of(bundle) as parts:
        config = parts.metadata["config"]
        end = config["stop_token"]
        allowed = [config[name] for name in ("start_token", "audio_token", "end_token", "stop_token")]

        def call(function: str, **given: Any) -> np.ndarray:
            (value,) = parts.call("main", function, given, states.get(function)).values()
            return np.array(value)

        states = {name: parts.zeros("main", name, 0) for name in ("decode", "hear")}
        voice = call("encode", audio=sound)
        deviation = torch.randn(1) * config["voice_deviation"]
        laid = torch.empty(1, 6, 3).transpose(1, 2)  # PyTorch draws other numbers for another layout in memory
        voice = voice + (deviation * torch.randn_like(laid)).numpy()
        guided, free, words = Run(parts), Run(parts), Run(parts)
        new = [call("text", input_ids=[ids]), call("voice", latents=voice), call("text", input_ids=[[7, 36]])]
        word = free_new = call("text", input_ids=[[36]])
        tokens, audio = list[int](), list[np.ndarray]()
        while len(tokens) < most and tokens[-1:] != [end]:
            logits, hidden = guided(*new)
            without = words(word)[0]
            scores = without + told.guidance_scale * (logits - without)
            tokens.append(max(allowed, key=lambda token: scores[0, token]))
            free_new = new[0] if len(tokens) > 1 else free_new
            word = call("text", input_ids=[tokens[-1:]])
            new = [word]
            if tokens[-1] == config["start_token"]:
                free = Run(parts)
            if tokens[-1] == config["audio_token"]:
                both = np.concatenate([hidden, free(free_new)[1]])
                schedule = diffusers.DPMSolverMultistepScheduler(**told.noise_scheduler_config)
                schedule.set_timesteps(told.num_diffusion_steps)
                latent = torch.randn(2, 6)[:1]
                for time in schedule.timesteps:
                    given, without = call("denoise", latents=latent, timestep=time[None], hidden=both)
                    combined = torch.from_numpy(without + told.guidance_scale * (given - without))[None]
                    latent = schedule.step(combined, time, latent).prev_sample
                audio.append(call("decode", latents=latent[None]))
                new = [call("hear", audio=audio[-1], latents=latent[None])]
    assert tokens == made.sequences[0, len(prompt) :].tolist() == [38, 38, 36, 38, 38, 38, 37, 39]
    np.testing.assert_allclose(np.concatenate(audio, 2)[0], made.audio[0], rtol=1e-4, atol=1e-5)
    assert made.audio[0].std() > 1e-3


@pytest.mark.slow
def test_half_precision(tmp_path: Path) -> None:
    """The check of the bundle compares all functions with the model, one after the other."""
    folder = latent_models.vibe_voice(tmp_path / "model")
    assert check_bundle(convert_bundle(folder, out=tmp_path / "out", dtype="float16")) == ()
