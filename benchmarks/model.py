"""The model that the benchmarks convert; only PyTorch and transformers are needed to make it."""

from __future__ import annotations

from contextlib import suppress

import torch


def exported_llama(layers: int, decompositions: dict) -> torch.export.ExportedProgram:
    """A small Llama with grouped-query attention and random weights, exported and decomposed."""
    with suppress(ImportError):  # the environment of coreai-torch has no patcomp
        from patcomp.commands.torchvision import declare_operators

        declare_operators()
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
