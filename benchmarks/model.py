"""The model that the benchmarks convert. Imports PyTorch and transformers only, so that any environment can."""

from __future__ import annotations

import torch


def exported_llama(layers: int, decompositions: dict) -> torch.export.ExportedProgram:
    """A small Llama with grouped-query attention and random weights, exported and decomposed."""
    try:
        import torchvision  # noqa: F401
    except ImportError:
        pass
    except RuntimeError:  # its C++ extension does not fit this PyTorch, and transformers imports it
        declarations = torch.library.Library("torchvision", "FRAGMENT")
        declarations.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        declarations.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        KEPT.append(declarations)
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=99,
        hidden_size=64,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=96,
        max_position_embeddings=64,
        use_cache=False,
    )
    model = LlamaForCausalLM(config).eval()
    return torch.export.export(model, (torch.randint(0, 99, (1, 12)),)).run_decompositions(decompositions)


KEPT: list[torch.library.Library] = []
"""Declarations last as long as their library."""
