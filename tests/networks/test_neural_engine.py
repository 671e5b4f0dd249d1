"""Vision transformers for the Neural Engine: what is left in the program, and how much of the signal."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn

from patcomp import AIProgram, TorchConverter
from patcomp.emit.native import Native
from patcomp.targets import NEURAL_ENGINE, Target
from patcomp.torchvision import declare_operators
from tests.helpers.as_users_run import AS_USERS_RUN

pytestmark = AS_USERS_RUN

declare_operators()

LAYERS = 2
FLOAT32 = NEURAL_ENGINE.without("half precision")


def clip() -> nn.Module:
    from transformers import CLIPVisionConfig, CLIPVisionModel

    sizes = {"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128, "image_size": 64, "patch_size": 16}
    return CLIPVisionModel(CLIPVisionConfig(num_hidden_layers=LAYERS, **sizes))


def vit() -> nn.Module:
    from transformers import ViTConfig, ViTModel

    sizes = {"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128, "image_size": 64, "patch_size": 16}
    return ViTModel(ViTConfig(num_hidden_layers=LAYERS, **sizes))


def swin() -> nn.Module:
    """Two blocks with shifted windows and two without."""
    from transformers import SwinConfig, SwinModel

    return SwinModel(
        SwinConfig(image_size=64, patch_size=4, embed_dim=32, depths=[2, 2], num_heads=[2, 4], window_size=4)
    )


TRANSPOSES = {
    clip: LAYERS + 1,  # one for each attention, and one for the output
    vit: LAYERS + 1,
    swin: 4 + 2 * 4 + 1,  # and one into windows, one out of them, for each block
}
each_model = pytest.mark.parametrize("make", TRANSPOSES, ids=lambda make: make.__name__)


@cache
def exported(make: Callable[[], nn.Module]) -> tuple[nn.Module, torch.Tensor, torch.export.ExportedProgram]:
    torch.manual_seed(0)
    model, image = make().eval(), torch.randn(1, 3, 64, 64)
    for parameter in model.parameters():
        if parameter.ndim == 1:
            nn.init.normal_(parameter, 0.5, 0.3)
        else:
            nn.init.normal_(parameter, 0, 1.5 * parameter[0].numel() ** -0.5)
    return model, image, torch.export.export(model, (image,))


@cache
def converted(make: Callable[[], nn.Module], target: Target) -> AIProgram:
    return TorchConverter().add_exported_program(exported(make)[2]).to_coreai(target=target)


def psnr(made: Any, wanted: torch.Tensor) -> float:
    """The signal in dB: the largest square of what is wanted over the mean square of the error."""
    error = (torch.as_tensor(made).double() - wanted.double()).square().mean()
    return float(10 * torch.log10(wanted.double().abs().max() ** 2 / error))


@each_model
def test_structure(make: Callable[[], nn.Module]) -> None:
    text = str(converted(make, NEURAL_ENGINE))
    types = [found.split("x") for found in re.findall(r"tensor<([0-9x]+[a-z]\w*|\w+)>", text)]
    assert {kinds[-1] for kinds in types} <= {"f16", "si32", "ui32", "i1"}  # integers are axes, sizes and indices
    assert max(len(kinds) - 1 for kinds in types) <= 5
    ops = Counter(re.findall(r"= coreai\.([\w.]+)", text))
    assert ops["transpose"] == TRANSPOSES[make]
    assert ops["gather_nd"] == 0
    assert ops["layer_norm"] == ops["gelu"] == 0 or make is clip


@each_model
@pytest.mark.parametrize(("target", "least"), [(NEURAL_ENGINE, 55.0), (FLOAT32, 70.0)], ids=["float16", "float32"])
def test_signal(make: Callable[[], nn.Module], target: Target, least: float, native: Native) -> None:
    model, image, _ = exported(make)
    program = converted(make, target)
    with torch.no_grad():
        wanted = list(model(image).values())
    inputs = {"pixel_values": image.half() if target is NEURAL_ENGINE else image}
    for outputs in (program.run(inputs), native.run(program.module, inputs)):
        signals = [
            psnr(made, right) for made, right in zip(map(outputs.get, program.output_names()), wanted, strict=True)
        ]
        print([round(signal, 1) for signal in signals])
        assert min(signals) >= least
