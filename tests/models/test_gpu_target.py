"""Decoders for the GPU: attention without a mask operand, with static and with dynamic lengths."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn

from patcomp import AIProgram, TorchConverter
from patcomp.commands.torchvision import declare_operators
from patcomp.emit.native import Native

declare_operators()

WINDOW = 4
WINDOWS = {
    "Llama": [0, 0],
    "Mistral": [WINDOW, WINDOW],
    "Qwen3": [0, 0],
    "Gemma3": [WINDOW, 0],
    "Mixtral": [0, 0],
    "GptOss": [WINDOW, 0],
}
"""The window of each layer; 0 for a layer that attends to all keys before."""

PRODUCTS = {"Mixtral": 3, "GptOss": 3}
"""The products of each layer: of experts, only their choice is one outside composites."""

LAYERS = ["sliding_attention", "full_attention"]
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
OPTIONS: dict[str, dict[str, Any]] = {
    "Mistral": {"sliding_window": WINDOW},
    "Gemma3": {"sliding_window": WINDOW, "layer_types": LAYERS},
    "Mixtral": {**EXPERTS, "experts_implementation": "batched_mm"},
    "GptOss": {**EXPERTS, "sliding_window": WINDOW, "layer_types": LAYERS, "attn_implementation": "eager"},
}

QUICK = {("Mistral", False), ("Mistral", True)}
CASES = [
    pytest.param(name, dynamic, id=f"{name}-{'dynamic' if dynamic else 'static'}",
                 marks=() if (name, dynamic) in QUICK else pytest.mark.slow)
    for name in WINDOWS
    for dynamic in (False, True)
]  # fmt: skip
each_decoder = pytest.mark.parametrize(("name", "dynamic"), CASES)


class Logits(nn.Module):
    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.model(input_ids=input_ids).logits
        return logits


@cache
def decoder(name: str) -> Logits:
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, "Gemma3TextConfig" if name == "Gemma3" else f"{name}Config")
    made = config(
        vocab_size=96, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, max_position_embeddings=64, use_cache=False, pad_token_id=0,
        **OPTIONS.get(name, {}),
    )  # fmt: skip
    return Logits(getattr(transformers, f"{name}ForCausalLM")(made)).eval()


def tokens(length: int) -> torch.Tensor:
    return torch.arange(length)[None] * 7 % 95 + 1


@cache
def converted(name: str, dynamic: bool) -> AIProgram:
    sizes = {"input_ids": {1: torch.export.Dim("length", min=2, max=64)}} if dynamic else None
    exported = torch.export.export(decoder(name), (tokens(8),), dynamic_shapes=sizes)
    return TorchConverter().add_exported_program(exported).to_coreai(target="gpu")


def attentions(program: AIProgram) -> list[tuple[int, bool, int]]:
    """The number of operands, `is_causal` and `window_size` of each call of attention."""
    text = str(program)
    found = []
    for body, operands in re.findall(r"coreai\.invoke @(scaled_dot_product_attention\w*)\(([^)]*)\)", text):
        declared = next(line for line in text.splitlines() if f"coreai.graph private noinline @{body}(" in line)
        causal, window = re.search(r"is_causal = (\w+)", declared), re.search(r"window_size = (\d+)", declared)
        assert causal
        assert window
        found.append((len(operands.split(",")), causal[1] == "true", int(window[1])))
    return found


@each_decoder
def test_no_attention_reads_a_mask(name: str, dynamic: bool) -> None:
    operands = 4 if name == "GptOss" else 3  # with sinks
    assert attentions(converted(name, dynamic)) == [(operands, True, window) for window in WINDOWS[name]]


@each_decoder
def test_query_key_and_value_are_one_product(name: str, dynamic: bool) -> None:
    main = str(converted(name, dynamic)).split("coreai.graph @main")[1]
    assert main.count("broadcasting_batch_matmul") == 2 * PRODUCTS.get(name, 5) + 1


@each_decoder
def test_numbers(name: str, dynamic: bool, native: Native) -> None:
    program = converted(name, dynamic)
    for length in (3, 8, 13) if dynamic else (8,):
        ids = tokens(length)
        with torch.no_grad():
            wanted = decoder(name)(ids)
        given = {"input_ids": ids.int()}
        for outputs in (program.run(given), native.run(program.module, given)):
            (made,) = outputs.values()
            torch.testing.assert_close(torch.as_tensor(made), wanted, atol=1e-4, rtol=1e-4)
