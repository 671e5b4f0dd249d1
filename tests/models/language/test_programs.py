"""The form of converted language models, beside that of the graphs that Apple's package writes by hand."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from patcomp_models.checkpoints.loading import export_implementations
from patcomp_models.language.decoder import Decoder
from patcomp_models.language.dynamic_form import BundleFunction, dynamic_program, exported_function

LAYERS = {"gemma3_text": 6}
EXPERTS = {"num_experts_per_tok": 2, "num_local_experts": 4}
SETTINGS: dict[str, dict[str, Any]] = {
    "qwen3": {},
    "qwen3_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 96},
    "mistral": {"sliding_window": None},
    "gemma3_text": {"sliding_window": 8},
    "gpt_oss": {**EXPERTS, "sliding_window": 8},
}


@dataclass(frozen=True)
class Counts:
    """What a program has."""

    ops: int
    """The ops of `main` that are no constants."""
    calls: dict[str, int] = field(default_factory=dict)
    """The calls of each composite."""


BY_HAND = {
    "qwen3": Counts(108, {"rms_norm": 7, "rope": 2, "scaled_dot_product_attention": 2}),
    "qwen3_moe": Counts(133, {"rms_norm": 7, "rope": 2, "scaled_dot_product_attention": 2, "gather_mm": 6}),
    "mistral": Counts(106, {"rms_norm": 5, "rope": 2, "scaled_dot_product_attention": 2}),
    "gemma3_text": Counts(300, {"rms_norm": 31, "rope": 6, "scaled_dot_product_attention": 6}),
    "gpt_oss": Counts(202, {"rms_norm": 5, "rope": 4, "scaled_dot_product_attention": 2, "gather_mm": 6}),
}
"""The graphs that Apple's package writes by hand, at the same sizes."""


def counts(kind: str) -> tuple[Counts, Counter[str]]:
    """What the program of a model has, and how often each op is in `main`."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    config = AutoConfig.for_model(
        kind, hidden_size=64, num_hidden_layers=LAYERS.get(kind, 2), num_attention_heads=4, num_key_value_heads=2,
        head_dim=16, intermediate_size=96, vocab_size=256, max_position_embeddings=128, pad_token_id=0,
        bos_token_id=1, eos_token_id=2, **SETTINGS[kind],
    )  # fmt: skip
    model: Any = AutoModelForCausalLM.from_config(config).eval()
    with export_implementations(model):
        function = BundleFunction("main", Decoder(model))
        program = dynamic_program([(function, exported_function(function, 128))])
    names = Counter(op.name.removeprefix("coreai.") for op in program.module.graph("main").regions[0].block.ops)
    calls = Counter(re.findall(r"coreai\.invoke @(\w+)_[0-9a-f]{8}\b", str(program)))
    return Counts(names.total() - names["constant"], dict(calls)), names


@pytest.mark.parametrize(
    "kind", ["qwen3", *(pytest.param(kind, marks=pytest.mark.slow) for kind in BY_HAND if kind != "qwen3")]
)
def test_no_more_than_by_hand(kind: str) -> None:
    found, names = counts(kind)
    wanted = BY_HAND[kind]
    assert found.ops <= wanted.ops
    assert all(found.calls.get(name, 0) <= count for name, count in wanted.calls.items())
    assert found.calls.get("gather_mm") == wanted.calls.get("gather_mm")  # gate, up and down of each layer
    layers = LAYERS.get(kind, 2)
    for name, count in (("slice_update", 2 * layers), ("write_handle", 2 * layers), ("read_handle", 2 * layers + 2)):
        assert names[name] == count, name
