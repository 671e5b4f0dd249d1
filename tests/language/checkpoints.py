"""Small causal language models of every tested architecture, with random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from patcomp.commands.torchvision import declare_operators

declare_operators()

PROMPT = [int(token) for token in torch.randint(3, 96, (12,), generator=torch.Generator().manual_seed(1))]
SECOND = [5, 80, 7, 33, 9]
"""Prompts of 12 and of 5 tokens."""

VOCABULARY = 96
CONTEXT = 1024
_SIZES: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 48, "vocab_size": VOCABULARY, "max_position_embeddings": CONTEXT, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_EXPERTS = {"num_experts_per_tok": 2, "num_local_experts": 4}
_SLIDING = {"num_hidden_layers": 3, "sliding_window": 8}

SETTINGS: dict[str, dict[str, Any]] = {
    "llama": {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
    "qwen2": {},
    "qwen3": {"head_dim": 8},
    "qwen3_moe": {"head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24},
    "mistral": {"head_dim": 8, "sliding_window": 8},
    "mixtral": _EXPERTS,
    "phi3": {"partial_rotary_factor": 0.5},
    "gemma2": {"head_dim": 8, **_SLIDING, "query_pre_attn_scalar": 8},
    "gemma3_text": {
        "head_dim": 8,
        **_SLIDING,
        "query_pre_attn_scalar": 8,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
    "gpt_oss": {**_EXPERTS, "head_dim": 8, "sliding_window": 8},
    "olmo2": {},
    "granite": {"embedding_multiplier": 2.0, "logits_scaling": 2.0, "residual_multiplier": 0.5},
    "smollm3": {"num_hidden_layers": 4},
    "cohere": {"logit_scale": 0.5},
    "stablelm": {"partial_rotary_factor": 0.5},
    "gpt_neox": {"rotary_pct": 0.5},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": CONTEXT},
    "opt": {"word_embed_proj_dim": 32, "ffn_dim": 48},
}
"""What differs from the common sizes, by `model_type`."""


def checkpoint(kind: str) -> nn.Module:
    """A model in eval mode, with outputs of order one."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    settings = {**_SIZES, **SETTINGS[kind]}
    if kind in ("gpt_neox", "gpt2", "opt"):
        del settings["num_key_value_heads"]  # each head has keys of its own
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **settings)).eval()
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, 0, max(parameter.shape[-1], 8) ** -0.5)
        elif "norm" in name or ".ln_" in name or "sinks" in name:
            nn.init.uniform_(parameter, 0.5, 1.5)
        else:
            nn.init.normal_(parameter, 0, 0.2)
    return model


def generated(model: Any, prompt: list[int], new_tokens: int) -> list[int]:
    """The tokens of the model's own greedy generation."""
    ids = torch.tensor([prompt])
    made = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=new_tokens, do_sample=False, eos_token_id=None,
        pad_token_id=0,
    )  # fmt: skip
    return [int(token) for token in made[0, len(prompt) :]]


def assert_best(model: Any, prompt: list[int], made: list[int]) -> None:
    """Check that each token is the model's most probable one, up to the rounding of float16."""
    with torch.no_grad():
        logits = model(torch.tensor([prompt + made])).logits[0, len(prompt) - 1 : -1].float()
    chosen = logits.gather(1, torch.tensor(made)[:, None])
    assert float((logits.max(1, keepdim=True).values - chosen).max()) < 5e-3


def folder(path: Path, kind: str = "llama") -> Path:
    """A checkpoint folder with a tokenizer that is trained on a few words, and a model card."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    checkpoint(kind).save_pretrained(path)
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=["<unk>", "<s>", "</s>"])
    tokenizer.train_from_iterator(["the capital of a country is a town in it", "a town is no country"], trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", eos_token="</s>")
    fast.save_pretrained(path)
    (path / "README.md").write_text("---\nlicense: apache-2.0\n---\n\nA small model.\n")
    return path
