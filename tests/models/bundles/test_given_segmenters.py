"""Segmenters that are given as objects: a bundle computes what the object does, and the object stays as it is."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from patcomp.emit.asset import load
from patcomp_models.bundles import BundleError, check_bundle, components, convert_segmenter

_SIDE = 64


class Places(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.register_buffer("frequencies", torch.randn(2, width // 2))

    def forward_with_coords(self, points: Tensor, size: tuple[int, int]) -> Tensor:
        angles = (points / size[0]) @ self.frequencies
        return torch.cat([angles.sin(), angles.cos()], -1)


class Prompts(nn.Module):
    """Writes to the places of a mask, as upstream."""

    def __init__(self, width: int):
        super().__init__()
        self.pe_layer, self.input_image_size = Places(width), (_SIDE, _SIDE)
        self.invalid_points, self.point_embeddings = nn.Embedding(1, width), nn.Embedding(1, width)
        self.bbox_top_left_embeddings, self.bbox_bottom_right_embeddings = (
            nn.Embedding(1, width),
            nn.Embedding(1, width),
        )

    def get_dense_pe(self) -> Tensor:
        grid = torch.stack(torch.meshgrid(torch.arange(8.0), torch.arange(8.0), indexing="xy"), -1)
        return self.pe_layer.forward_with_coords(grid.reshape(1, 64, 2), (8, 8))

    def forward(self, coords: Tensor, labels: Tensor) -> Tensor:
        found = self.pe_layer.forward_with_coords(coords + 0.5, self.input_image_size)
        found[labels == -1] += self.invalid_points.weight
        found[labels == 1] += self.point_embeddings.weight
        found[labels == 2] += self.bbox_top_left_embeddings.weight
        found[labels == 3] += self.bbox_bottom_right_embeddings.weight
        return found


class LikeEfficientSam(nn.Module):
    """The parts of EfficientSAM by which it is known, and little behind them."""

    decoder_max_num_input_points = 6

    def __init__(self, width: int = 16):
        super().__init__()
        self.image_encoder = nn.Conv2d(3, width, 8, 8)
        self.image_encoder.img_size = _SIDE  # type: ignore[assignment]
        self.prompt_encoder, self.mask_decoder = Prompts(width), nn.Linear(width, 3 * width)

    def forward(
        self, images: Tensor, points: Tensor, labels: Tensor, scale_to_original_image_size: bool = True
    ) -> tuple[Tensor, Tensor]:
        assert not scale_to_original_image_size
        _, queries, count, _ = points.shape
        embedded = self.prompt_encoder(points.reshape(queries, count, 2), labels.reshape(queries, count))
        image = self.image_encoder(images).flatten(2).transpose(1, 2) + self.prompt_encoder.get_dense_pe()
        heads = self.mask_decoder(embedded.sum(1)).reshape(1, queries, 3, -1)
        masks = (heads @ image.transpose(1, 2)[:, None]).reshape(1, queries, 3, 8, 8)
        return masks, heads.mean(-1)


def efficient_sam() -> nn.Module:
    """The model of the package, which is on GitHub alone, of small sizes."""
    pytest.importorskip("efficient_sam")
    from efficient_sam.efficient_sam import EfficientSam
    from efficient_sam.efficient_sam_decoder import MaskDecoder, PromptEncoder
    from efficient_sam.efficient_sam_encoder import ImageEncoderViT
    from efficient_sam.two_way_transformer import TwoWayTransformer

    width, kind = 32, {"normalization_type": "layer_norm"}
    decoder = {"activation": nn.GELU, "normalize_before_activation": False}
    model = EfficientSam(
        ImageEncoderViT(
            img_size=_SIDE, patch_size=16, in_chans=3, patch_embed_dim=48, depth=2, num_heads=3, mlp_ratio=4.0,
            neck_dims=[width, width], act_layer=nn.GELU, **kind,
        ),
        PromptEncoder(embed_dim=width, image_embedding_size=(4, 4), input_image_size=(_SIDE, _SIDE)),
        6,
        MaskDecoder(
            transformer_dim=width, num_multimask_outputs=3, iou_head_depth=2, iou_head_hidden_dim=32,
            upscaling_layer_dims=[16, 8], **kind, **decoder,
            transformer=TwoWayTransformer(depth=2, embedding_dim=width, num_heads=8, mlp_dim=64, **decoder),
        ),
    )  # fmt: skip
    nn.init.normal_(model.image_encoder.pos_embed)
    made: nn.Module = model.eval()
    return made


@pytest.mark.parametrize(("queries", "points"), [(1, 6), (3, 4)])
@pytest.mark.parametrize("made", [LikeEfficientSam, efficient_sam])
def test_the_bundle_computes_what_the_object_does(made: Any, queries: int, points: int, tmp_path: Path) -> None:
    pytest.importorskip("coreai")
    torch.manual_seed(0)
    model: Any = made()
    before, encoder = {name: value.clone() for name, value in model.state_dict().items()}, model.prompt_encoder
    out = convert_segmenter(model, out=tmp_path / "out", queries=queries, points=points, dtype="float32")
    assert check_bundle(out) == ()
    assert sorted(path.name for path in out.iterdir()) == ["Segmenter.aimodel", "metadata.json"]
    assert model.prompt_encoder is encoder
    assert model.state_dict().keys() == before.keys()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    labels = torch.tensor([3.0, 2.0, 1.0, -1.0, 0.0, 1.0])[torch.arange(queries * points) % 6]
    inputs = {
        "batched_images": torch.rand(1, 3, _SIDE, _SIDE),
        "batched_points": torch.rand(1, queries, points, 2) * _SIDE,
        "batched_point_labels": labels.reshape(1, queries, points),
    }
    with torch.no_grad():
        wanted = model(*inputs.values(), scale_to_original_image_size=False)
    asset = load(out / "Segmenter.aimodel")
    for found in (asset.run(inputs), asset.evaluate(inputs)):
        for name, reference in zip(("pred_masks", "iou_scores"), wanted, strict=True):
            assert np.abs(found[name] - reference.numpy()).max() <= 1e-5 * float(reference.abs().max())


def test_half_precision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that is called like the model's class is not what is converted: nothing tells a later run by it."""
    pytest.importorskip("coreai")
    monkeypatch.chdir(tmp_path)
    Path("LikeEfficientSam").mkdir()
    monkeypatch.setattr(components, "request_of", lambda *given: pytest.fail("it is asked for files"))
    torch.manual_seed(0)
    assert check_bundle(convert_segmenter(LikeEfficientSam(), out=tmp_path / "out")) == ()


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (nn.Linear(2, 2), {}, "Linear has no image_encoder.img_size, and convert_segmenter takes EfficientSAM"),
        (SimpleNamespace(image_encoder=SimpleNamespace(img_size=8)), {}, "has no prompt_encoder.pe_layer"),
        (LikeEfficientSam(), {"points": 7}, "points is 7, and the model takes 6 of an object"),
        (LikeEfficientSam(), {"queries": 0}, "queries is 0 and points is 6, and both must be at least 1"),
        (LikeEfficientSam(), {"dtype": "int8"}, "dtype is one of float16, bfloat16, float32, got 'int8'"),
    ],
)
def test_refusals(model: Any, options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=message):
        convert_segmenter(model, out=tmp_path / "out", **options)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_over(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="exists; choose another folder"):
        convert_segmenter(LikeEfficientSam(), out=tmp_path)
