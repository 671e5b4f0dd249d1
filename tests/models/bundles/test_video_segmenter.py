"""SAM 3 for videos: what a host computes with the seven functions is what transformers' own tracker does."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from patcomp.emit.reading import opened
from patcomp_models.bundle_folders.interfaces import Interfaces
from patcomp_models.bundle_folders.revisions import NEW, OLD
from patcomp_models.bundles import check_bundle, convert_bundle
from patcomp_models.bundles.segmenter.video_contract import VIDEO_FUNCTIONS
from patcomp_models.bundles.segmenter.video_entries import video_inputs, video_modules
from tests.models.bundles import segmenters
from tests.models.bundles.described import Change, Described, changed, drop, put
from tests.models.bundles.refusals import assert_refused

Call = Callable[..., dict[str, Tensor]]
PLACES, POINTERS = 5, 4
_MEMORY = 0.01
"""Of the largest number: transformers keeps memories in bfloat16, and the functions in float16."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    place = tmp_path_factory.mktemp("videos")
    return segmenters.sam3_video(place), place / "sam3"


def close(found: Tensor, wanted: Tensor, part: float = 2e-5) -> None:
    assert found.shape == wanted.shape
    torch.testing.assert_close(found.float(), wanted.float(), atol=part * float(wanted.abs().max()), rtol=0)


def check_tracking(model: Any, call: Call) -> None:
    """Three frames of one object, whose mask is given in the first; then a frame in which it is absent.

    Args:
        model: of transformers, unmodified.
        call: a function by name, with its inputs.
    """
    from transformers.models.sam3.modeling_sam3 import Sam3VisionEncoderOutput
    from transformers.models.sam3_tracker_video.modeling_sam3_tracker_video import Sam3TrackerVideoInferenceSession

    draw, tracker = torch.Generator().manual_seed(1), model.tracker_model
    frames = torch.randn(3, 3, 112, 112, generator=draw)
    session = Sam3TrackerVideoInferenceSession(frames, 112, 112, dtype=torch.float32)
    mask = torch.zeros(1, 1, 32, 32)
    mask[..., 6:20, 9:24] = 1
    index = session.obj_id_to_idx(1)
    session.add_mask_inputs(index, 0, mask.bool())
    session.obj_with_new_inputs = [1]
    kept: list[tuple[int, dict[str, Tensor]]] = []
    for number, frame in enumerate(frames):
        encoded = call("image_encode", pixel_values=frame[None])
        features = call("tracker_encode", **encoded)
        with torch.no_grad():
            hidden = model.detector_model.vision_encoder.backbone(frame[None]).last_hidden_state
            close(encoded["last_hidden_state"], hidden)
            own, positions = model.get_vision_features_for_tracker(Sam3VisionEncoderOutput(last_hidden_state=hidden))
            for level in range(3):
                close(features[f"vision_feat_{level}"], own[level])
                close(features[f"vision_pos_{level}"], positions[level])
            session.cache.cache_vision_features(number, {"vision_feats": own, "vision_pos_embeds": positions})
            tracker(inference_session=session, frame_idx=number, reverse=False, run_mem_encoder=True)
        outputs = session.output_dict_per_obj[index]
        wanted = (outputs["cond_frame_outputs"] if number == 0 else outputs["non_cond_frame_outputs"])[number]
        levels = {name: features[name] for name in ("vision_feat_0", "vision_feat_1", "vision_feat_2")}
        if number == 0:
            found = call("tracker_mask_init", **levels, mask_input=mask)
        else:
            found = call("tracker_step", **levels, vision_pos_2=features["vision_pos_2"], **bank(kept, number, tracker))
            for name in ("pred_masks", "high_res_masks", "object_score_logits"):
                close(found[name], wanted[name], 1e-3)
        close(found["object_pointer"], wanted["object_pointer"], 1e-3)
        large = torch.nn.functional.interpolate(wanted["high_res_masks"], size=(128, 128), mode="bilinear")
        memory = call(
            "memory_encode", vision_feat_2=features["vision_feat_2"], mask_logits=large,
            object_score_logits=wanted["object_score_logits"], binarize_mask=torch.tensor(float(number == 0)),
        )  # fmt: skip
        for name in ("maskmem_features", "maskmem_pos_enc"):
            close(memory[name], wanted[name], _MEMORY)
        kept.append((number, wanted))
    with torch.no_grad():
        absent, _ = tracker._encode_new_memory(own[2], large, torch.full((1, 1, 1), -3.0), False)
    found = call(
        "memory_encode", vision_feat_2=features["vision_feat_2"], mask_logits=large,
        object_score_logits=torch.full((1, 1, 1), -3.0), binarize_mask=torch.tensor(0.0),
    )  # fmt: skip
    close(found["maskmem_features"], absent, _MEMORY)


def bank(kept: list[tuple[int, dict[str, Tensor]]], number: int, tracker: Any) -> dict[str, Tensor]:
    """The memories of a frame as Swift packs them; what is in the places without one has no effect."""
    given = {
        "spatial_memory": torch.full((PLACES, 64, 1, 64), 3.0).half(),
        "spatial_memory_pos": torch.full((PLACES, 64, 1, 64), -2.0).half(),
        "spatial_tpos_idx": torch.zeros(PLACES, dtype=torch.int32), "spatial_valid": torch.zeros(PLACES),
        "object_pointers": torch.full((POINTERS, 1, 128), 5.0).half(), "ptr_tpos": torch.zeros(POINTERS),
        "ptr_valid": torch.zeros(POINTERS),
    }  # fmt: skip
    longest = min(3, tracker.config.max_object_pointers_in_encoder) - 1
    for place, (frame, output) in enumerate(kept):
        given["spatial_memory"][place] = output["maskmem_features"]
        given["spatial_memory_pos"][place] = output["maskmem_pos_enc"]
        # the first frame has the mask that was given, and the last row of the embedding of time
        given["spatial_tpos_idx"][place] = (0 if frame == 0 else number - frame) - 1
        given["spatial_tpos_idx"][place] %= tracker.num_maskmem
        given["object_pointers"][place] = output["object_pointer"][0]
        given["ptr_tpos"][place] = (number - frame) / longest
        given["spatial_valid"][place] = given["ptr_valid"][place] = 1
    return given


def check_detection(model: Any, call: Call) -> None:
    """Objects of a text in a frame."""
    frame, ids = torch.randn(1, 3, 112, 112, generator=torch.Generator().manual_seed(2)), torch.arange(32)[None] % 9
    mask = (torch.arange(32)[None] < 6).int()
    with torch.no_grad():
        wanted = model.detector_model(pixel_values=frame, input_ids=ids, attention_mask=mask.long())
    words = call("text_encode", input_ids=ids.int(), attention_mask=mask)
    found = call("detect", **call("image_encode", pixel_values=frame), **words, attention_mask=mask)
    for name, value in found.items():
        close(value, wanted[name])


def test_functions(folder: tuple[Any, Path]) -> None:
    """Before anything is converted, the functions compute what the unmodified model does."""
    model, _ = folder
    modules = video_modules(copy.deepcopy(model))

    def call(name: str, **inputs: Tensor) -> dict[str, Tensor]:
        with torch.no_grad():
            found = modules[name](**inputs)
        return dict(zip(VIDEO_FUNCTIONS[name][1], found if isinstance(found, tuple) else (found,), strict=True))

    check_tracking(model, call)
    check_detection(model, call)


@pytest.mark.slow
def test_a_bundle(folder: tuple[Any, Path], tmp_path: Path) -> None:
    model, source = folder
    bundle = convert_bundle(
        source, out=tmp_path / "bundle", kind="video_segmenter", dtype="float32", verify=False, memories=PLACES,
        pointers=POINTERS,
    )  # fmt: skip
    assert check_bundle(bundle, NEW) == ()
    assert "kind is 'video_segmenter', and must be one of diffusion, " in check_bundle(bundle)[0].message
    described = json.loads((bundle / "metadata.json").read_text())
    assert described["runtime"] == {"image_size": 112, "spatial_slots": 5, "ptr_slots": 4, "max_text_seq_len": 32}
    assert described["tracking"]["recondition_on_trk_masks"] is False
    assert (described["tracking"]["num_maskmem"], described["tracking"]["max_num_objects"]) == (3, 10000)
    asset = bundle / described["assets"]["main"]

    def tensors(values: Any) -> dict[str, Tensor]:
        return {name: torch.as_tensor(np.asarray(value)) for name, value in values.items()}

    with opened(asset) as native:

        def call(name: str, **inputs: Tensor) -> dict[str, Tensor]:
            return tensors(native.call(asset, {each: value.numpy() for each, value in inputs.items()}, {}, name)[0])

        check_tracking(model, call)
        check_detection(model, call)


def test_frames_of_another_size(folder: tuple[Any, Path]) -> None:
    """The weights are those of the folder; sizes follow the frame, and areas of masks its square."""
    from patcomp_models.bundles.kinds.video_segmenter import VideoSegmenter
    from patcomp_models.bundles.loading import model_of

    form = VideoSegmenter.of(folder[1], "float32", {"image_size": 56, "pointers": 4})
    assert form.metadata()["runtime"]["image_size"] == 56
    assert form.metadata()["tracking"]["fill_hole_area"] == 4
    model = model_of(folder[1], "transformers", "Sam3VideoModel", "float32", config=form._config)
    inputs = video_inputs(model, video_modules(model), 32, PLACES, 4)
    assert inputs["tracker_step"]["spatial_memory"].shape == (PLACES, 16, 1, 64)
    assert inputs["tracker_mask_init"]["mask_input"].shape == (1, 1, 16, 16)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "few memories": ({"memories": 3}, "memories is 3, and must be at least 4 for this model"),
    "few pointers": ({"pointers": 2}, "pointers is 2, and must be at least 3 for this model"),
    "a long text": ({"length": 33}, "length is 33, and the model reads 32 tokens"),
    "half a window": ({"image_size": 84}, "image_size is 84, and must be a multiple of 56"),
    "another type": ({"dtype": "bfloat16"}, "Swift fills inputs of float16 and float32, got the dtype bfloat16"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, folder: tuple[Any, Path], tmp_path: Path) -> None:
    options, message = REFUSED[name]
    assert_refused(folder[1], lambda it: None, {"kind": "video_segmenter", **options}, message, tmp_path)


# ---- what Swift would refuse -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def described(folder: tuple[Any, Path]) -> Described:
    """The bundle without its programs."""
    from patcomp_models.bundles.kinds.video_segmenter import VideoSegmenter

    form = VideoSegmenter.of(folder[1], "float32", {"memories": PLACES, "pointers": POINTERS})
    [component] = form.components()
    functions = {}
    for entry in component.entries():
        with torch.no_grad():
            found = entry.module(*entry.inputs.values())
        made = dict(zip(entry.outputs, found if isinstance(found, tuple) else (found,), strict=True))
        functions[entry.name] = (*(
            {name: (tuple(value.shape), str(value.dtype).removeprefix("torch.")) for name, value in values.items()}
            for values in (entry.inputs, made)
        ), {})  # fmt: skip
    metadata = {"metadata_version": "0.2", "kind": "video_segmenter", "name": "small",
                "assets": {"main": component.file}, **form.metadata()}  # fmt: skip
    words = {"model": {"vocab": {"a": 0}, "merges": []}}
    return Described(metadata, {"tokenizer/tokenizer.json": words}, {component.file: functions})


_ASSET = "Segmenter.aimodel"


def _metadata(block: str, **values: Any) -> Change:
    return lambda it: it.metadata[block].update(values)


DEPARTURES: dict[str, tuple[Change, str]] = {
    "no function": (
        lambda it: it.functions[_ASSET].pop("memory_encode"), "the asset has no function memory_encode; Swift calls"),
    "memories in float32": (
        put(f"{_ASSET}:tracker_step", "input", "spatial_memory", (5, 64, 1, 64), "float32"), "spatial_memory of"),
    "fewer places": (_metadata("runtime", spatial_slots=4), "the input spatial_memory of tracker_step is 5 x 64"),
    "too few places": (_metadata("tracking", num_maskmem=7), "and the memories of tracking are up to 8"),
    "no places": (_metadata("runtime", spatial_slots=0), "runtime.spatial_slots is 0, and must be a positive integer"),
    "no block": (lambda it: it.metadata.pop("runtime"), "runtime is missing"),
    "a threshold in words": (_metadata("tracking", new_det_thresh="high"), "tracking.new_det_thresh is 'high'"),
    "a share of frames": (_metadata("tracking", hotstart_delay=1.5), "tracking.hotstart_delay is 1.5, and must"),
    "no mask of the text": (drop(f"{_ASSET}:detect", "input", "attention_mask"), "the inputs of detect are"),
    "other features": (
        put(f"{_ASSET}:memory_encode", "input", "vision_feat_2", (64, 1, 32), "float32"), "vision_feat_2 of memory"),
    "a score of two sizes": (
        put(f"{_ASSET}:memory_encode", "input", "object_score_logits", (1, 1), "float32"), "object_score_logits of"),
    "other masks": (
        put(f"{_ASSET}:tracker_mask_init", "input", "mask_input", (1, 1, 64, 64), "float32"), "mask_input of tracker"),
    "no pointer": (drop(f"{_ASSET}:tracker_mask_init", "output", "object_pointer"), "the outputs of tracker_mask_init"),
    "frames of another size": (_metadata("runtime", image_size=336), "pixel_values of image_encode is 1 x 3 x 112"),
    "longer texts": (_metadata("runtime", max_text_seq_len=77), "input_ids of text_encode is 1 x 32"),
}  # fmt: skip


def test_the_form_is_right(described: Described, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without = changed(described, drop(f"{_ASSET}:detect", "output", "semantic_seg"))
    for place, each in (("whole", described), ("without", without)):
        assert each.problems(tmp_path / place, monkeypatch, NEW) == []
    assert described.problems(tmp_path / "earlier", monkeypatch, OLD)[0].startswith("kind is 'video_segmenter'")
    assert Interfaces.of(tmp_path / _ASSET).names == list(VIDEO_FUNCTIONS)


@pytest.mark.parametrize("name", DEPARTURES)
def test_departures(name: str, described: Described, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change, message = DEPARTURES[name]
    assert message in "\n".join(changed(described, change).problems(tmp_path / "bundle", monkeypatch, NEW))
