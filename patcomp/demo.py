"""The demo: a small Llama of the transformers library, unmodified, converted, checked and saved.

`patcomp demo` runs it. The model has every layer type of the large ones (grouped-query attention, rotary
embedding, gated feed-forward), random weights, and needs no download.
"""

from __future__ import annotations

from pathlib import Path

import torch
from rich.console import Console

from patcomp import TorchConverter, get_decomp_table
from patcomp.errors import PatcompError
from patcomp.report import composites_line, has_toolchain, stage_table

_DECLARATIONS = torch.library.Library("torchvision", "FRAGMENT")


def import_torchvision() -> None:
    """Imports torchvision, which transformers does too, where its C++ extension does not fit PyTorch.

    The wheel built for CUDA beside a CPU build of PyTorch fails at import for want of two operators. No model
    here uses them, so that declaring them is enough.
    """
    try:
        import torchvision  # noqa: F401
    except ImportError:
        pass
    except RuntimeError:
        _DECLARATIONS.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _DECLARATIONS.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


def small_llama() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """A Llama with four layers and seeded random weights, and tokens for it.

    Raises:
        PatcompError: transformers is not installed.
    """
    import_torchvision()
    try:
        from transformers import LlamaConfig, LlamaForCausalLM
    except ImportError as error:
        raise PatcompError('the demo needs transformers: pip install "patcomp[models]"') from error
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=512,
        hidden_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=176,
        max_position_embeddings=64,
        use_cache=False,
    )
    model = LlamaForCausalLM(config).eval()
    for parameter in model.parameters():
        if parameter.dim() == 1:  # the scales of the norms, which start as ones
            parameter.data.uniform_(0.5, 1.5)
    return model, (torch.randint(0, config.vocab_size, (1, 16)),)


def run_demo(console: Console, folder: Path) -> bool:
    """Converts the Llama, prints what happened, and writes asset and stage dumps; whether the numbers agree.

    Raises:
        PatcompError: transformers is not installed.
    """
    model, inputs = small_llama()
    console.print(
        "exporting LlamaForCausalLM of transformers: 4 layers, grouped-query attention, random weights", soft_wrap=True
    )
    exported = torch.export.export(model, inputs).run_decompositions(get_decomp_table())
    converter = TorchConverter().add_exported_program(exported, output_names=["logits"])
    stages = folder / "stages"
    program = converter.to_coreai(dump_ir=stages)
    console.print(f"{len(exported.graph.nodes)} FX nodes became {program!r}\n", highlight=False)
    console.print(stage_table(program))
    console.print(composites_line(program), highlight=False)
    verification = program.verify_against(model, inputs)
    console.print(verification)
    if has_toolchain():
        program.save_asset(folder / "llama.aimodel")
        console.print(f"asset:       {folder}/llama.aimodel", highlight=False)
    else:
        console.print('asset:       not saved; it needs coreai-core: pip install "patcomp[coreai]"', highlight=False)
    console.print(f"stage dumps: {stages}/00-import.mlir ... {stages}/07-emit.mlir", highlight=False)
    return verification.passed
