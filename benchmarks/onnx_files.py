"""Files of ONNX: thirty models by both exporters of PyTorch, as programs of Core AI.

    python -m benchmarks.onnx_files [NAME...]

Writes a line for each file: the largest difference of the program from ONNX Runtime on the evaluator, relative to the
largest output, its composites, and those of the model that is exported and converted without ONNX. The weights are
random. It needs timm, torchvision, transformers and onnxscript.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from patcomp import TorchConverter, export
from patcomp.errors import PatcompError
from patcomp.onnx.importing import from_onnx
from patcomp.onnx.importing.original import OnnxRuntimeModel
from patcomp.torchvision import declare_operators

Made = tuple[nn.Module, tuple[torch.Tensor, ...]]
_SMALL = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 100,
}
_IMAGES_OF_TIMM = {
    "resnet18": 64, "mobilenetv3_small_100": 64, "efficientnet_b0": 64, "convnext_atto": 64, "regnety_002": 64,
    "mobilevit_xxs": 64, "ghostnet_100": 64, "densenet121": 64, "vit_tiny_patch16_224": 224, "levit_128s": 224,
    "swin_tiny_patch4_window7_224": 224, "mixer_s32_224": 224,
}  # fmt: skip
_OF_TORCHVISION: dict[str, dict[str, Any]] = {
    "squeezenet1_1": {}, "shufflenet_v2_x0_5": {}, "mnasnet0_5": {},
    "googlenet": {"init_weights": False, "aux_logits": False}, "regnet_y_400mf": {},
    "deeplabv3_mobilenet_v3_large": {"weights_backbone": None}, "lraspp_mobilenet_v3_large": {"weights_backbone": None},
    "r3d_18": {},
}  # fmt: skip
_TINY = {"num_key_value_heads": 2}
_OF_TRANSFORMERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "BertModel": ("masked", "BertConfig", _SMALL),
    "OPTModel": ("masked", "OPTConfig", {
        "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 128, "vocab_size": 100,
        "word_embed_proj_dim": 64,
    }),
    "DistilBertModel": ("ids", "DistilBertConfig", {
        "dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 128, "vocab_size": 100,
    }),
    "LlamaForCausalLM": ("masked", "LlamaConfig", _SMALL | _TINY),
    "Qwen3ForCausalLM": ("masked", "Qwen3Config", _SMALL | _TINY | {"head_dim": 16}),
    "AlbertModel": ("ids", "AlbertConfig", _SMALL | {"embedding_size": 32}),
    "CLIPVisionModel": ("image", "CLIPVisionConfig", {
        key: value for key, value in _SMALL.items() if key != "vocab_size"
    } | {"image_size": 64, "patch_size": 16}),
    "SegformerForSemanticSegmentation": ("image", "SegformerConfig", {
        "hidden_sizes": [16, 32, 40, 64], "depths": [1, 1, 1, 1], "decoder_hidden_size": 64,
    }),
    "Wav2Vec2Model": ("sound", "Wav2Vec2Config", _SMALL | {"conv_dim": (32,) * 7}),
    "BartModel": ("ids", "BartConfig", {
        "d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "vocab_size": 100,
    }),
}  # fmt: skip


class Tensors(nn.Module):
    """A model of transformers that gives its tensors, without a cache."""

    def __init__(self, model: nn.Module, **options: Any):
        super().__init__()
        self.model, self.options = model, options

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The tensors of the model's result."""
        results = self.model(*inputs, **self.options).to_tuple()
        return tuple(each for each in results if isinstance(each, torch.Tensor))


def _of_timm(name: str, size: int) -> Made:
    import timm

    return timm.create_model(name), (torch.randn(1, 3, size, size),)


def _of_torchvision(name: str, options: dict[str, Any]) -> Made:
    import torchvision

    x = torch.randn(1, 3, 4, 32, 32) if name == "r3d_18" else torch.randn(1, 3, 64, 64)
    return torchvision.models.get_model(name, weights=None, **options), (x,)


def _of_transformers(name: str, inputs: str, config: str, options: dict[str, Any]) -> Made:
    import transformers

    ids = torch.randint(0, 100, (1, 12))
    given = {"ids": (ids,), "masked": (ids, torch.ones_like(ids)), "image": (torch.randn(1, 3, 64, 64),),
             "sound": (torch.randn(1, 4000),)}  # fmt: skip
    model = getattr(transformers, name)(getattr(transformers, config)(**options))
    takes_cache = (inputs == "masked" and name != "BertModel") or name == "BartModel"
    return Tensors(model, **({"use_cache": False} if takes_cache else {})), given[inputs]


def models() -> dict[str, Callable[[], Made]]:
    """The models, by package and name."""
    made: dict[str, Callable[[], Made]] = {
        f"timm/{name}": partial(_of_timm, name, size) for name, size in _IMAGES_OF_TIMM.items()
    }
    made |= {f"torchvision/{name}": partial(_of_torchvision, name, each) for name, each in _OF_TORCHVISION.items()}
    return made | {
        f"transformers/{name}": partial(_of_transformers, name, *each) for name, each in _OF_TRANSFORMERS.items()
    }


def _of_file(path: Path, inputs: tuple[torch.Tensor, ...]) -> str:
    """The difference and the composites of a file."""
    found = from_onnx(path)
    program = TorchConverter().add_exported_program(found.exported, found.input_names, found.output_names).to_coreai()
    program.optimize()
    wanted = OnnxRuntimeModel(path)(*inputs[: len(found.input_names)])
    results = program.run(dict(zip(found.input_names, inputs, strict=False)))
    error = max(
        float((results[name].double() - each.double()).abs().max() / each.double().abs().max().clamp(min=1e-9))
        for name, each in zip(found.output_names, wanted, strict=True)
    )
    return f"{error:.1e} {dict(program.composites)}"


def lines(wanted: list[str]) -> Iterator[str]:
    """The result of each file of the models whose names hold one of the texts, or of all."""
    for name, make in models().items():
        if wanted and not any(each in name for each in wanted):
            continue
        torch.manual_seed(0)
        module, inputs = make()
        module.eval()
        own = TorchConverter().add_exported_program(export(module, inputs)).to_coreai()
        yield f"{name}  without ONNX  {dict(own.composites)}"
        for dynamo in (True, False):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "model.onnx"
                how = {} if dynamo else {"opset_version": 17}
                torch.onnx.export(module, inputs, str(path), dynamo=dynamo, verbose=False, **how)
                try:
                    result = _of_file(path, inputs)
                except PatcompError as error:
                    result = f"{type(error).__name__}: {error}"
            yield f"{name}  dynamo={dynamo}  {result}"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    declare_operators()
    for line in lines(sys.argv[1:]):
        print(line, flush=True)
