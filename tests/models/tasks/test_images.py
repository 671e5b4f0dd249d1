"""Images of bytes: the numbers of a model behind its image processor, as the processor computes them from a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from patcomp import TorchConverter
from patcomp.emit.native import Native
from patcomp.errors import PatcompError
from patcomp_models.tasks import convert_folder
from patcomp_models.tasks.entries import Entry
from patcomp_models.tasks.folder_to_program import exported_entry
from patcomp_models.tasks.images import with_image
from tests.helpers.command import Command
from tests.models.tasks.comparing import runs
from tests.models.tasks.folders import folder

PROCESSORS: dict[str, tuple[str, dict[str, Any]]] = {
    "linear": ("ViTImageProcessor", {"size": {"height": 32, "width": 24}}),
    "enlarged": ("ViTImageProcessor", {"size": {"height": 70, "width": 90}}),
    "cubic, cropped": (
        "CLIPImageProcessor", {"size": {"shortest_edge": 36}, "crop_size": {"height": 32, "width": 32}}),
    "two edges": ("DetrImageProcessor", {"size": {"shortest_edge": 32, "longest_edge": 40}}),
    "padded": ("SamImageProcessor", {"size": {"longest_edge": 32}, "pad_size": {"height": 32, "width": 32}}),
    "divisible": ("Mask2FormerImageProcessor", {"size": {"shortest_edge": 40, "longest_edge": 64}}),
    "padded to a square": ("Owlv2ImageProcessor", {"size": {"height": 32, "width": 32}}),
    "only rescaled": ("ViTImageProcessor", {"do_resize": False, "do_normalize": False}),
}  # fmt: skip


def photo(height: int, width: int) -> Any:
    from PIL import Image

    return Image.fromarray(np.random.default_rng(1).integers(0, 256, (height, width, 3), dtype=np.uint8))


def pixels_of(image: Any) -> torch.Tensor:
    return torch.from_numpy(np.array(image))


@pytest.mark.parametrize(
    "name", ["cubic, cropped", *(pytest.param(n, marks=pytest.mark.slow) for n in PROCESSORS if n != "cubic, cropped")]
)
def test_processors(name: str, tmp_path: Path, native: Native) -> None:
    """The pixels are those of the processor for a Pillow image, to the last bit but one of float32."""
    import transformers

    kind, settings = PROCESSORS[name]
    processor = getattr(transformers, kind)(**settings)
    processor.save_pretrained(tmp_path)
    entry = Entry("main", nn.Identity(), {"pixel_values": torch.zeros(1, 3, 8, 8)}, ("pixels",))
    (entry,) = with_image([entry], tmp_path, (47, 65))
    program = TorchConverter().add_exported_program(exported_entry(entry), ["image"], ["pixels"]).to_coreai()
    image = photo(47, 65)
    wanted = processor(images=image, return_tensors="pt")["pixel_values"]
    for found in runs(program, native, "main", {"image": pixels_of(image)}):
        torch.testing.assert_close(found["pixels"], wanted, atol=1e-6, rtol=1e-6)


def test_an_image_file(patcomp: Command, tmp_path: Path) -> None:
    from PIL import Image
    from transformers import ViTImageProcessor

    model = folder(tmp_path / "vit", "ViTForImageClassification")
    processor = ViTImageProcessor(size={"height": 32, "width": 32})
    processor.save_pretrained(tmp_path / "vit")
    program = convert_folder(tmp_path / "vit", image=True)
    assert [spec.shape for spec in program.signature().inputs] == [(32, 32, 3)]  # those that the model takes
    program = convert_folder(tmp_path / "vit", image=(40, 48))
    program.save_asset(tmp_path / "vit.aimodel", writer="python")
    turned = Image.Exif()
    turned[0x0112] = 6  # a camera that was held upright
    photo(48, 40).save(tmp_path / "photo.png", exif=turned)
    photo(30, 48).save(tmp_path / "small.png")
    asset, given = str(tmp_path / "vit.aimodel"), f"image={tmp_path}/photo.png"
    done = patcomp("run", asset, "--input", given, "--backend", "evaluator", "-o", str(tmp_path / "out.npz"))
    assert done.code == 0, done.err
    assert "random" not in done.err
    wanted = model(**processor(photo(48, 40).rotate(-90, expand=True), return_tensors="pt")).logits
    found = torch.from_numpy(np.load(tmp_path / "out.npz")["logits"])
    torch.testing.assert_close(found, wanted.detach(), atol=1e-5, rtol=1e-5)
    np.save(tmp_path / "image.npy", np.zeros((40, 48, 3), np.uint8))
    done = patcomp("run", asset, "--input", f"image={tmp_path}/image.npy", "--backend", "evaluator")
    assert done.code == 0, done.err
    for value, message in {
        f"image={tmp_path}/small.png": "small.png is 30x48 pixels (height, width), and image takes 40x48; resize",
        f"image={tmp_path}/none.png": "there is no file",
        f"picture={tmp_path}/photo.png": "photo.png: there is no input picture; there are image",
        f"image={tmp_path}/vit/config.json": "is neither an image nor an array (.npy)",
    }.items():
        done = patcomp("run", asset, "--input", value, "--backend", "evaluator")
        assert (done.code, message in done.err) == (2, True), done.err


def _pixels_as_numbers(path: Path) -> None:
    from transformers import ViTImageProcessor

    ViTImageProcessor().save_pretrained(path)


BAD: dict[str, tuple[Callable[[Path], object], str, tuple[int, int], str]] = {
    "no processor": (lambda path: None, "ResNetForImageClassification", (8, 8), "has no preprocessor_config.json"),
    "a broken processor": (
        lambda path: (path / "preprocessor_config.json").write_text("{"), "ViTForImageClassification", (8, 8),
        "transformers cannot load the image processor"),
    "texts": (_pixels_as_numbers, "BertModel", (8, 8), "takes no image"),
    "no pixels": (_pixels_as_numbers, "ResNetForImageClassification", (0, 8), "an image of 0x8 has no pixels"),
    "another size": (
        _pixels_as_numbers, "ViTForImageClassification", (8, 8), "do not run on an image of 8x8: .*224.*32"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_inputs(name: str, tmp_path: Path) -> None:
    write, model, size, message = BAD[name]
    folder(tmp_path, model)
    write(tmp_path)
    with pytest.raises(PatcompError, match=message) as caught:
        convert_folder(tmp_path, image=size)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_boxes_in_a_photo(tmp_path: Path, native: Native) -> None:
    """From the bytes of a photo to boxes: those of upstream's processor, model and post-processing."""
    from transformers import DetrImageProcessor

    model = folder(tmp_path, "DetrForObjectDetection")
    processor = DetrImageProcessor(size={"shortest_edge": 64, "longest_edge": 96})
    processor.save_pretrained(tmp_path)
    program = convert_folder(tmp_path, image=(50, 90))
    image = photo(50, 90)
    with torch.no_grad():
        output = model(pixel_values=processor(images=image, return_tensors="pt")["pixel_values"])
    (wanted,) = processor.post_process_object_detection(output, threshold=0.2, target_sizes=[(50, 90)])
    assert len(wanted["boxes"])
    for found in runs(program, native, "main", {"image": pixels_of(image)}):
        assert found.keys() == {"logits", "pred_boxes"}
        made = type(output)(**found)
        (boxes,) = processor.post_process_object_detection(made, threshold=0.2, target_sizes=[(50, 90)])
        assert torch.equal(boxes["labels"], wanted["labels"])
        torch.testing.assert_close(boxes["boxes"], wanted["boxes"], atol=1e-3, rtol=0)
        torch.testing.assert_close(boxes["scores"], wanted["scores"], atol=1e-5, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["VideoMAEForVideoClassification", "VJEPA2ForVideoClassification"])
def test_videos(name: str, tmp_path: Path, native: Native) -> None:
    """From the bytes of frames to logits: those of upstream's video processor and model."""
    from transformers import VideoMAEVideoProcessor, VJEPA2VideoProcessor

    model = folder(tmp_path, name)
    if name.startswith("VideoMAE"):
        processor: Any = VideoMAEVideoProcessor(size={"shortest_edge": 36}, crop_size={"height": 32, "width": 32})
    else:
        processor = VJEPA2VideoProcessor(crop_size=32)
    processor.save_pretrained(tmp_path)
    program = convert_folder(tmp_path, image=(47, 65))
    frames = torch.from_numpy(np.random.default_rng(1).integers(0, 256, (4, 47, 65, 3), dtype=np.uint8))
    made = processor(videos=[list(frames.permute(0, 3, 1, 2))], return_tensors="pt", do_sample_frames=False)
    with torch.no_grad():
        wanted = model(next(value for key, value in made.items() if key.startswith("pixel_values"))).logits
    for found in runs(program, native, "main", {"frames": frames}):
        torch.testing.assert_close(found["logits"], wanted, atol=1e-5 * float(wanted.abs().max()), rtol=0)


def test_videos_without_a_processor(tmp_path: Path) -> None:
    folder(tmp_path, "VideoMAEForVideoClassification")
    with pytest.raises(PatcompError, match="has no video processor that transformers can load") as caught:
        convert_folder(tmp_path, image=(47, 65))
    assert "\n" not in str(caught.value)
