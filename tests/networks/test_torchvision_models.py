"""Unmodified architectures of torchvision, small, with shifted windows: views and permutations of many ranks."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from patcomp import TorchConverter
from patcomp.emit.native import Native
from tests.helpers.as_users_run import AS_USERS_RUN
from tests.networks.zoo import _randomized

pytestmark = AS_USERS_RUN


@pytest.mark.parametrize("version", [1, 2])
def test_swin(version: int, native: Native) -> None:
    from torchvision.models import swin_transformer as swin

    options = {"block": swin.SwinTransformerBlockV2, "downsample_layer": swin.PatchMergingV2} if version == 2 else {}
    model = _randomized(
        swin.SwinTransformer(
            [4, 4], 16, [2, 2], [2, 4], [3, 3], num_classes=5, norm_layer=partial(torch.nn.LayerNorm, eps=1e-5),
            **options,
        )
    )  # fmt: skip
    image = torch.randn(1, 3, 40, 40)
    program = TorchConverter().add_exported_program(torch.export.export(model, (image,))).to_coreai()
    assert program.diagnostics == ()
    assert program.verify_against(model, (image,), backends=["evaluator"])
    with torch.no_grad():
        expected = model(image)
    (made,) = native.run(program.module, {program.input_names()[0]: image.numpy()}).values()
    torch.testing.assert_close(torch.as_tensor(made), expected, atol=1e-4, rtol=1e-4)
