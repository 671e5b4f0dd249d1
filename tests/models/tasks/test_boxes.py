"""Detectors whose scores, labels and boxes are those of their image processors."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from patcomp.emit.native import Native
from patcomp.errors import PatcompError
from patcomp_models.tasks import convert_folder
from tests.helpers.command import Command
from tests.models.tasks.comparing import runs
from tests.models.tasks.folders import folder

PROCESSORS = {
    "YolosForObjectDetection": "YolosImageProcessor",
    "DeformableDetrForObjectDetection": "DeformableDetrImageProcessor",
    "DetrForObjectDetection": "DetrImageProcessor",
    "ConditionalDetrForObjectDetection": "ConditionalDetrImageProcessor",
    "TableTransformerForObjectDetection": "DetrImageProcessor",
    "RTDetrForObjectDetection": "RTDetrImageProcessor",
    "RTDetrV2ForObjectDetection": "RTDetrImageProcessor",
    "DFineForObjectDetection": "RTDetrImageProcessor",
}
IN_CI = ("YolosForObjectDetection", "ConditionalDetrForObjectDetection")


@pytest.mark.parametrize(
    "name", [name if name in IN_CI else pytest.param(name, marks=pytest.mark.slow) for name in PROCESSORS]
)
def test_boxes_are_those_of_the_processor(name: str, tmp_path: Path, native: Native) -> None:
    import transformers

    model = folder(tmp_path / "model", name)
    processor = getattr(transformers, PROCESSORS[name])()
    processor.save_pretrained(tmp_path / "model")
    program = convert_folder(tmp_path / "model", task="boxes")
    (spec,) = program.signature().inputs
    pixels = torch.randn(spec.shape, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        outputs = model(pixel_values=pixels)
    (wanted,) = processor.post_process_object_detection(outputs, threshold=-1.0, target_sizes=None)
    for found in runs(program, native, "main", {"pixel_values": pixels}):
        assert found["labels"].dtype == torch.int32
        for output, value in wanted.items():
            torch.testing.assert_close(found[output][0].to(value.dtype), value, rtol=0, atol=2e-5)


def test_what_has_no_boxes_is_refused(tmp_path: Path, patcomp: Command) -> None:
    folder(tmp_path / "model", "YolosForObjectDetection")
    done = patcomp("convert", str(tmp_path / "model"), "--task", "boxes")
    assert done.code == 1
    (line,) = [line for line in done.err.splitlines() if line.startswith("error:")]
    assert "has no image processor, which says what scores are" in line
    folder(tmp_path / "classes", "ViTForImageClassification")
    with pytest.raises(PatcompError, match="ViTForImageClassification"):
        convert_folder(tmp_path / "classes", task="boxes")
