"""Models of images and sound: the tokens of a bundle are those of transformers' processor and `generate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.runtime_loop import language, tokens_of
from patcomp.errors import PatcompError
from patcomp_models.checkpoints.loading import export_implementations
from patcomp_models.language import convert_vision_language_model
from patcomp_models.language.bundle import Bundle
from patcomp_models.language.hearing import READ
from patcomp_models.language.vision.media import prepared_media
from patcomp_models.language.vision.sounds import SOUNDS, sound_of
from patcomp_models.language.vision.towers import TOWERS, tower_of
from tests.models.language import vision_checkpoints
from tests.models.language.omni import AUDIO, IMAGE, SIDE, VIDEO, film, omni
from tests.models.language.vision_checkpoints import checkpoint, picture

_NEW = 8
_LAYERS = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
_FURTHER: dict[str, dict[str, Any]] = {
    "gemma4": {"audio_config": {**_LAYERS, "subsampling_conv_channels": [128, 8], "output_proj_dims": 32}},
    "gemma4_unified": {"audio_config": {"audio_embed_dim": 16}},
}
"""Settings of small models that hear."""


def _own(model: Any, read: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The features of a recording that the model computes of it without padding, (tokens, width)."""
    if model.config.model_type == "gemma3n":
        found = model.model.get_audio_features(read, ~mask, return_dict=True)
        filling = model.model.embed_audio(input_ids=torch.tensor([[model.model.vocab_size - 1]]))[0]
        made = torch.where(found.audio_mel_mask[..., None], filling, found.pooler_output)[0]
        return torch.cat([made, filling.expand(12 - len(made), -1)])
    found = model.model.get_audio_features(read, mask, return_dict=True)
    if model.config.model_type.startswith("gemma4"):
        return found.pooler_output[found.attention_mask]  # type: ignore[no-any-return]
    return found.last_hidden_state  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", SOUNDS)
def test_the_features_of_a_window_are_those_of_the_recording(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the padding of the window, for several lengths."""
    settings = {**vision_checkpoints.SETTINGS[kind], **_FURTHER.get(kind, {})}
    monkeypatch.setitem(vision_checkpoints.SETTINGS, kind, settings)
    model = checkpoint(kind)
    tower = tower_of(model, None if kind == "gemma3n" else vision_checkpoints.SIZE)
    sound = sound_of(tower)
    assert sound is not None
    full, _ = sound.window
    axis, most = sound.row.axis, full.shape[sound.row.axis]
    for length in {most, most - 5, 143, 137} if kind != "gemma4" else {143, 137}:
        read = full.narrow(axis, 0, length)
        padded, mask = torch.zeros_like(full), torch.arange(most)[None] < length
        padded.narrow(axis, 0, length).copy_(read)
        with torch.no_grad(), export_implementations(model):
            wanted = _own(model, read, torch.ones(1, length, dtype=torch.bool))
            made = sound(padded, mask)[0]
        assert made.shape[1] == tower.hidden + tower.extra
        assert len(made) - len(wanted) < len(made)
        assert torch.allclose(made[: len(wanted), : tower.hidden], wanted, atol=1e-5)
        assert wanted.std() > 0.1
        assert not tower.is_marked or bool((made[:, -tower.mark_columns :] == 0).all())


def test_every_encoder_is_of_a_model_that_sees() -> None:
    assert SOUNDS.keys() <= TOWERS.keys()


def _samples(count: int, seed: int = 0) -> np.ndarray:
    noise = np.random.default_rng(seed).standard_normal(count)
    return (0.5 * np.sin(np.arange(count) * (0.1 + 0.1 * seed)) + 0.1 * noise).astype(np.float32)


def _generated(thinker: Any, processor: Any, text: str, **given: Any) -> list[int]:
    """The tokens of transformers, with what the processor makes of a text, images and recordings."""
    made = processor(text=[text], return_tensors="pt", **given)
    made.pop("num_audio_tokens", None)
    length = made["input_ids"].shape[1]
    found = thinker.generate(**made, max_new_tokens=_NEW, do_sample=False, eos_token_id=-1, pad_token_id=2)
    return found[0, length:].tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", ["Qwen2_5Omni", pytest.param("Qwen3OmniMoe", marks=pytest.mark.slow)])
def test_sounds_pictures_and_videos_in_one_prompt(name: str, tmp_path: Path) -> None:
    """A recording of several windows; two recordings; recordings and pictures, of which the first is no square."""
    pytest.importorskip("coreai")
    thinker, processor = omni(tmp_path / "model", name)
    side, out = SIDE[name], tmp_path / "out"
    with pytest.warns(match="the talker, which speaks, is left out"):
        bundle = convert_vision_language_model(
            tmp_path / "model", out=out, dtype="float32", image_size=side, image_shapes=[(side, 2 * side)],
            video_shapes=[(5 * side, 7 * side)],
            max_context=1024,
        )  # fmt: skip
    wide, square = picture(2 * side, side), picture(side, side)
    written = set()
    for text, images, recordings in (
        (f"ab{AUDIO}cd", [], [_samples(50000)]),
        (f"ab{AUDIO}cd{AUDIO}e", [], [_samples(50000), _samples(33333, 1)]),
        (f"ab{AUDIO}cd{IMAGE}e{AUDIO}f{IMAGE}g", [wide, square], [_samples(17600, 2), _samples(70000)]),
    ):
        seen = {"images": images} if images else {}
        wanted = _generated(thinker, processor, text, audio=recordings, **seen)
        assert bundle.generate(text, _NEW, image=images or None, audio=recordings, ignore_eos=True) == wanted
        written.add(tuple(wanted))
    for images, recordings, text in (
        ([], [], f"ab{VIDEO}cd"),
        ([wide], [_samples(20000)], f"ab{VIDEO}cd{IMAGE}e{AUDIO}fg"),
    ):
        seen = {name: each for name, each in (("images", images), ("audio", recordings)) if each}
        wanted = _generated(thinker, processor, text, videos=[film(6)], **seen)
        given = {"image": images or None, "audio": recordings or None, "video": film(6)}
        assert bundle.generate(text, _NEW, ignore_eos=True, **given) == wanted
        written.add(tuple(wanted))
    # the last prompt again, by a loop that shares no line with `Bundle.generate`
    media = prepared_media(out, bundle.metadata, text, [wide], [_samples(20000)], [film(6)])
    assert tokens_of(language(out, media.tokens, _NEW, media.pixels, media.recordings[0], media.moments)) == wanted
    assert len(written) == 5
    assert max(len(set(tokens)) for tokens in written) > 3
    _refuses(bundle, name)


def _refuses(bundle: Bundle, name: str) -> None:
    """A bundle refuses what it does not know."""
    with pytest.raises(PatcompError, match="token ids go with what the processor made"):
        bundle.generate([4, 5], audio=_samples(20000))
    with pytest.raises(PatcompError, match="one row of samples, got an array of"):
        bundle.generate(f"a{AUDIO}", audio=_samples(20000)[None])
    with pytest.raises(PatcompError, match="the bundle's processor refuses the prompt"):
        bundle.generate(f"a{AUDIO}b{AUDIO}", audio=_samples(20000))
    if name == "Qwen3OmniMoe":
        with pytest.raises(PatcompError, match="the recording has 60 frames, and the bundle takes 100 or more"):
            bundle.generate(f"a{AUDIO}", audio=_samples(9600))


def test_a_bundle_without_sound_takes_none(tmp_path: Path) -> None:
    (tmp_path / "metadata.json").write_text('{"kind": "vlm", "vision": {}, "language": {}}')
    with pytest.raises(PatcompError, match="takes no audio"):
        Bundle(tmp_path).generate([1, 2], audio={READ: np.zeros((1, 8, 4))})
