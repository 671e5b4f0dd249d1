"""Videos: the tokens of a bundle are those of transformers' processor and `generate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from patcomp.errors import PatcompError
from patcomp_models.language.bundle import Bundle
from patcomp_models.language.contract import FEATURES, PIXELS
from patcomp_models.language.vision.moments import (
    MOMENT,
    features_of_videos,
    several_videos,
    video_options,
    videos_in,
)
from patcomp_models.language.vision.pictures import loaded_processor
from patcomp_models.language.vision.videos import VIDEOS, check_videos
from tests.models.language.omni import film
from tests.models.language.shaped_processors import FILMS, converted
from tests.models.language.vision_checkpoints import SIZE, picture

_NEW = 8
_OMNI = ("qwen2_5_omni_thinker", "qwen3_omni_moe_thinker")
_KINDS = [kind for kind in VIDEOS if kind not in _OMNI]


def _generated(model: Any, processor: Any, text: str, **given: Any) -> list[int]:
    """The tokens of transformers, with what the processor makes of a text, videos and images."""
    made = processor(text=[text], return_tensors="pt", **given)
    made.pop("video_metadata", None)
    with torch.no_grad():
        found = model.generate(**made, max_new_tokens=_NEW, do_sample=False, eos_token_id=-1, pad_token_id=0)
    return found[0, made["input_ids"].shape[1] :].tolist()  # type: ignore[no-any-return]


def _check(model: Any, bundle: Bundle) -> None:
    """A video alone, one of a second shape and of other times, and a video with an image if the model takes both."""
    make, written = loaded_processor(bundle.path.parent / "folder"), []
    image, video = (f"<start>{token}<end>" for token in (make.image_token, make.video_token))
    if model.config.model_type.startswith("glm4"):
        video = make.video_token.join(FILMS)
    slow = {"fps": 1.0, "total_num_frames": 4, "frames_indices": [0, 1, 2, 3]}
    for text, seen, given in (
        (f"{video}<end>", {"videos": [film(6)]}, {"video": film(6)}),
        (f"<start>{video}<end>", {"videos": [film(4, 48, 16)], "video_metadata": [slow]},
         {"video": {"frames": film(4, 48, 16), "fps": 1.0}}),
        (f"{image}{video}<end>{image}", {"videos": [film(8)], "images": [picture(SIZE, SIZE), picture(16, 48)]},
         {"video": film(8), "image": [picture(SIZE, SIZE), picture(16, 48)]}),
    ):  # fmt: skip
        if "image" in given and model.config.model_type.startswith("glm4"):
            with pytest.raises(PatcompError, match="one token for images and videos"):
                bundle.generate(text, _NEW, **given)
            continue
        wanted = _generated(model, make, text, **seen)
        assert bundle.generate(text, _NEW, ignore_eos=True, **given) == wanted
        written.append(tuple(wanted))
    assert len({*written}) > 1


@pytest.mark.filterwarnings("ignore:.*Apple's engines:patcomp.errors.ConversionWarning")
@pytest.mark.parametrize(
    "kind", [kind if kind == "qwen2_5_vl" else pytest.param(kind, marks=pytest.mark.slow) for kind in _KINDS]
)
def test_videos_of_two_shapes(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("coreai")
    shapes = [(SIZE, 48), (48, 16)]
    _check(*converted(kind, tmp_path, image_size=SIZE, image_shapes=shapes[1:], video_shapes=shapes))


_TOLD = {
    "patch_size": 4, "patches": {"merged": 2, "channels_last": False},
    "video": {"frames": 2, "seconds": "second_per_grid_ts", "positions": 4, "is_whole": True,
              "shapes": {"video_16x8": {"height": 16, "width": 8, "image_token_count": 2}}},
}  # fmt: skip


def _made(moments: int, seconds: float = 0.3) -> dict[str, Any]:
    rows = torch.randn(moments * 8, 3 * 2 * 16, generator=torch.Generator().manual_seed(0))
    return {
        "video_grid_thw": torch.tensor([[moments, 4, 2]]), "pixel_values_videos": rows,
        "second_per_grid_ts": torch.tensor([seconds]),
    }  # fmt: skip


def test_moments_have_their_frames_and_times() -> None:
    """The time of a moment is rounded down, as the model does."""
    made = _made(3)
    found = videos_in(made, _TOLD)
    assert [each[MOMENT].tolist() for each in found] == [[0, 3, 0], [1, 3, 1], [2, 3, 2]]
    assert [each[PIXELS].shape for each in found] == [(2, 3, 16, 8)] * 3
    patch = made["pixel_values_videos"][8].reshape(3, 2, 4, 4)  # the first one of the second moment
    assert np.array_equal(found[1][PIXELS][:, :, :4, :4], patch.permute(1, 0, 2, 3).numpy())
    exact = {**_TOLD, "video": {**_TOLD["video"], "is_whole": False}}
    assert videos_in(_made(2, 0.125), exact)[1][MOMENT].tolist() == [1, 2, 0.5]


def test_what_no_function_takes_is_refused() -> None:
    other = {**_TOLD, "video": {**_TOLD["video"], "shapes": {"video_8x16": {"height": 8, "width": 16}}}}
    with pytest.raises(PatcompError, match="makes frames of 16x8 of a video, and the bundle takes 8x16; convert"):
        videos_in(_made(2), other)
    with pytest.raises(PatcompError, match="moment 1 of 2 has the position 4101 in time, which float16 has not"):
        videos_in(_made(2, 1025.25), _TOLD)
    with pytest.raises(PatcompError, match="has 3 tokens of videos, and the videos have 4; put the placeholder"):
        features_of_videos(lambda *_: {FEATURES: np.zeros((1, 2, 4))}, videos_in(_made(2), _TOLD), 3)
    with pytest.raises(PatcompError, match="a video is frames x height x width x 3 of uint8"):
        video_options([np.zeros((2, 3, 8, 8), np.uint8)])
    with pytest.raises(PatcompError, match="some videos have fps, and others have none"):
        video_options([film(2), {"frames": film(2), "fps": 2}])
    with pytest.raises(PatcompError, match="smolvlm reads the frames of a video as images; leave it out"):
        check_videos("smolvlm")
    with pytest.raises(PatcompError, match="the videos of aria are not built; these have functions for videos: "):
        check_videos("aria")


def test_several_videos() -> None:
    one, frames = film(2), [picture(8, 8), picture(8, 8)]
    assert [len(several_videos(each)) for each in (None, one, frames, [one, one], [frames], {"frames": one})] == [
        0, 1, 1, 2, 1, 1,
    ]  # fmt: skip
    known = video_options([{"frames": frames, "fps": 2}])
    assert known["videos"][0].shape == (2, 8, 8, 3)
    assert known["video_metadata"] == [{"fps": 2.0, "total_num_frames": 2, "frames_indices": [0, 1]}]
