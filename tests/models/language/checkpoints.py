"""Small causal language models of every tested architecture, with random weights."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import patcomp_models.language.rwkv7  # noqa: F401 (registers a type with transformers)
from patcomp.torchvision import declare_operators
from patcomp_models.language.bundle import Bundle
from patcomp_models.language.choices import CloseChoices

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

_FITTING: dict[str, Any] = {
    "head_dim": 8, "moe_intermediate_size": 24, "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4,
    "num_experts_per_tok": 2, "shared_expert_intermediate_size": 24, "moe_shared_expert_intermediate_size": 24,
    "shared_intermediate_size": 24, "sliding_window": 8, "topk_group": 1, "n_group": 1,
}  # fmt: skip
"""Sizes for the further architectures that have them."""
_DELTA = {
    "layer_types": ["linear_attention", "full_attention"], "head_dim": 16, "linear_key_head_dim": 8,
    "linear_value_head_dim": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
}  # fmt: skip
_MAMBA2 = {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 8, "mamba_chunk_size": 8}
_LATENT = {
    "num_key_value_heads": 4, "q_lora_rank": 24, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16,
    "v_head_dim": 16, "head_dim": None,
}  # fmt: skip
_MIXED = {"layer_types": ["sliding_attention", "full_attention"]}
_SHARED = {
    "num_hidden_layers": 4, "layer_types": ["sliding_attention", "full_attention"] * 2, "num_kv_shared_layers": 2,
    "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": VOCABULARY,
}  # fmt: skip
SETTINGS: dict[str, dict[str, Any]] = {
    "llama": {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
    "qwen2": {},
    "qwen3": {"head_dim": 8},
    "qwen3_moe": {"head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24},
    "mistral": {"head_dim": 8, "sliding_window": 8},
    "mixtral": _EXPERTS,
    "phi3": {"partial_rotary_factor": 0.5},
    "phimoe": _EXPERTS,
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
    # convolutions and recurrences
    "lfm2": {"layer_types": ["conv", "full_attention"], "block_auto_adjust_ff_dim": False},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "qwen3_5_text": _DELTA,
    "qwen3_5_moe_text": _DELTA,
    "qwen3_next": _DELTA,
    "kimi_linear": {
        **_LATENT,
        "layer_types": ["linear_attention", "full_attention"],
        "mlp_layer_types": ["dense", "sparse"],
    },
    "mamba": {"state_size": 8, "time_step_rank": 8},
    "falcon_mamba": {"state_size": 8, "time_step_rank": 8},
    "mamba2": {"num_heads": 4, "head_dim": 16, "state_size": 8, "n_groups": 1, "chunk_size": 8},
    "rwkv": {"attention_hidden_size": 32, "rescale_every": 1},
    "rwkv7": dict.fromkeys([f"{name}_low_rank_dim" for name in ("decay", "a", "v", "gate")], 8),
    "minimax": {"layer_types": ["full_attention", "linear_attention"], "block_size": 8},
    "zaya": {
        "layer_types": ["hybrid", "hybrid_sliding"],
        "num_experts_per_tok": 1,
        "router_hidden_size": 16,
    },
    "jamba": {
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "expert_layer_period": 2,
        "expert_layer_offset": 1,
        "mamba_dt_rank": 8,
        "mamba_d_state": 8,
        "use_mamba_kernels": False,
    },
    "bamba": {"attn_layer_indices": [1], **_MAMBA2},
    "falcon_h1": {"mamba_d_ssm": 64, **_MAMBA2},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"], "mamba_n_groups": 1, **_MAMBA2},
    "nemotron_h": {
        "layers_block_type": ["linear_attention", "moe", "full_attention", "mlp"],
        "mamba_num_heads": 4,
        "mamba_head_dim": 16,
        "ssm_state_size": 8,
        "n_groups": 2,
        "chunk_size": 8,
    },
    "zamba2": {
        "num_hidden_layers": 3,
        "layers_block_type": ["linear_attention", "hybrid", "linear_attention"],
        "n_mamba_heads": 4,
        "mamba_headdim": 16,
        "mamba_d_state": 8,
        "chunk_size": 8,
        "num_mem_blocks": 1,
        "use_mem_eff_path": False,
        "attention_head_dim": 16,
        "attention_hidden_size": 64,
        "adapter_rank": 8,
        "num_key_value_heads": 4,
    },
    # heads of two sizes, shared keys, latent keys
    "gemma4_text": {**_SHARED, "global_head_dim": 16},
    "gemma3n_text": {
        **_SHARED,
        "laurel_rank": 8,
        "altup_num_inputs": 2,
        "intermediate_size": [48] * 4,
        "activation_sparsity_pattern": [0.95, 0.0, 0.0, 0.0],
    },
    "deepseek_v3": {**_LATENT, "mlp_layer_types": ["dense", "sparse"], "first_k_dense_replace": 1, "n_group": 2},
    "deepseek_v32": {
        **_LATENT,
        "mlp_layer_types": ["dense", "sparse"],
        "index_topk": 8,
        "index_head_dim": 16,
        "index_n_heads": 16,
    },
    "glm_moe_dsa": {
        **_LATENT,
        "mlp_layer_types": ["dense", "sparse", "sparse"],
        "index_topk": 8,
        "index_head_dim": 16,
        "index_n_heads": 16,
        "num_hidden_layers": 3,
        "indexer_types": ["full", "shared", "full"],
    },
    "youtu": _LATENT,
    "minicpm3": _LATENT,
    "glm4_moe_lite": {**_LATENT, "mlp_layer_types": ["dense", "sparse"]},
    # plain caches
    "exaone4": _MIXED,
    "ernie4_5": {},
    "ernie4_5_moe": {"moe_num_experts": 4, "moe_k": 2, "moe_num_shared_experts": 1, "moe_layer_start_index": 1},
    "hunyuan_v1_dense": {},
    "hunyuan_v1_moe": {"moe_topk": 2},
    "bitnet": {},
    "seed_oss": {},
    "apertus": {},
    "nanochat": {},
    "arcee": {},
    "olmo3": _MIXED,
    "ministral3": {},
    "cohere2": _MIXED,
    "glm4_moe": {},
    "dots1": {**_MIXED, "first_k_dense_replace": 1, "n_shared_experts": 1},
    "afmoe": {**_MIXED, "num_dense_layers": 1},
    "granite_swa": {},
    "phi4_multimodal": {},
    "minimax_m2": {},
    "vaultgemma": {**_MIXED, "query_pre_attn_scalar": 8},
}
"""What differs from the common sizes, by `model_type`."""
_FURTHER = list(SETTINGS)[list(SETTINGS).index("lfm2") :]


def configuration(kind: str) -> dict[str, Any]:
    """The sizes of a small model."""
    from transformers import AutoConfig

    settings = {**_SIZES, **SETTINGS[kind]}
    if kind in ("gpt_neox", "gpt2", "opt"):
        del settings["num_key_value_heads"]  # each head has keys of its own
    if kind in _FURTHER:
        default = AutoConfig.for_model(kind)
        known = {*default.to_dict(), *default.attribute_map}
        settings = {name: size for name, size in {**_SIZES, **_FITTING}.items() if name in known} | SETTINGS[kind]
        settings = {name: size for name, size in settings.items() if (name, size) != ("head_dim", None)}
        if kind == "nemotron_h":
            settings.pop("num_hidden_layers", None)  # follows from the types
    return settings


def checkpoint(kind: str) -> nn.Module:
    """A model in eval mode, with outputs of order one."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    return drawn(AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **configuration(kind))).eval())


def drawn(model: Any) -> Any:
    """A model with random weights and outputs of order one."""
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, 0, max(parameter.shape[-1], 8) ** -0.5)
        elif "norm" in name or ".ln_" in name or "sinks" in name:
            nn.init.uniform_(parameter, 0.5, 1.5)
        else:
            nn.init.normal_(parameter, 0, 0.2)
    return model


def generated(model: Any, prompt: list[int], new_tokens: int) -> list[int]:
    """The tokens of the model's own greedy generation, which ends with a token that ends a text."""
    ids = torch.tensor([prompt])
    made = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=new_tokens, do_sample=False, pad_token_id=0
    )
    return [int(token) for token in made[0, len(prompt) :]]


def with_stops(bundle: Bundle, folder: Path, *stops: int) -> Bundle:
    """A copy of a bundle in which these tokens end a text."""
    shutil.copytree(bundle.path, folder)
    edited(lambda metadata: metadata["language"].update(stop_token_ids=[*stops]))(folder)
    return Bundle(folder)


def assert_best(model: Any, prompt: list[int], made: list[int], exact: Any = None) -> None:
    """Check that each token is the model's most probable one, up to the rounding of float16.

    Tokens where the rounding decides between two experts have the logits of other weights, and are left out.

    Args:
        model: in float16.
        prompt, made: token ids.
        exact: the same in float32; its difference from the model then is the rounding of a logit.
    """
    with torch.no_grad():
        tokens = torch.tensor([prompt + made])
        with CloseChoices(tokens.shape[1], torch.float16) as choices:
            model(tokens)
        logits, wide = (each(tokens).logits[0, len(prompt) - 1 : -1].float() for each in (model, exact or model))
    chosen = logits.gather(1, torch.tensor(made)[:, None])
    # Two logits are compared, each with an error. That of the runtime is 2 to 3 times the model's own (0.035 and 0.012
    # for a Llama, 0.018 and 0.006 for a Mixtral, beside float32), so that twice the model's is no loose bound.
    rounding = max(5e-3, 2 * float((logits - wide).abs().max()))
    is_sure = ~choices.is_close[len(prompt) - 1 : -1]
    assert int(is_sure.sum()) >= len(made) // 2
    assert float((logits.max(1, keepdim=True).values - chosen)[is_sure].max()) < rounding


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


def edited(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """A change of the content of a bundle's `metadata.json`."""

    def edit(path: Path) -> None:
        file = path / "metadata.json"
        metadata = json.loads(file.read_text())
        change(metadata)
        file.write_text(json.dumps(metadata))

    return edit
