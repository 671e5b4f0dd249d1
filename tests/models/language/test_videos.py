"""Videos: the tokens of a bundle are those of transformers' processor and `generate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from patcomp.errors import PatcompError
from patcomp_models.language.bundle import Bundle
from patcomp_models.language.vision.pictures import loaded_processor
from patcomp_models.language.vision.videos import VIDEOS
from tests.models.language.omni import film
from tests.models.language.test_image_shapes import FILMS, converted
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
