"""The models of GGUF as transformers has them: the configuration from the keys, and the names of weights.

Sources: `gguf.constants` and `conversion` of llama.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from patcomp.language.errors import LanguageModelError
from patcomp.language.gguf.header import Header

_LAYER = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "attn_qkv": "self_attn.qkv_proj",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "mlp.experts.gate_proj", "ffn_up_exps": "mlp.experts.up_proj",
    "ffn_down_exps": "mlp.experts.down_proj",
}  # fmt: skip
_OUTSIDE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


@dataclass(frozen=True)
class Architecture:
    """A kind of models.

    Attributes:
        kind: its `model_type`.
        name: its class.
        names: the names of weights of a layer that differ from most models'.
        permutes: whether the rows of queries and keys are in the order of interleaved rotary embeddings.
        adds_one: whether 1 was added to the weights of norms.
    """

    kind: str
    name: str
    names: Mapping[str, str]
    permutes: bool = False
    adds_one: bool = False


ARCHITECTURES = {
    "llama": Architecture("llama", "LlamaForCausalLM", _LAYER, permutes=True),
    "mistral": Architecture("mistral", "MistralForCausalLM", _LAYER, permutes=True),
    "mixtral": Architecture("mixtral", "MixtralForCausalLM", _LAYER, permutes=True),
    "qwen2": Architecture("qwen2", "Qwen2ForCausalLM", _LAYER),
    "qwen3": Architecture("qwen3", "Qwen3ForCausalLM", _LAYER),
    "qwen3moe": Architecture("qwen3_moe", "Qwen3MoeForCausalLM", _LAYER),
    "phi3": Architecture("phi3", "Phi3ForCausalLM", {**_LAYER, "ffn_up": "mlp.gate_up_proj"}),
    "gemma3": Architecture("gemma3_text", "Gemma3ForCausalLM", {
        **_LAYER, "post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_feedforward_layernorm",
        "post_ffw_norm": "post_feedforward_layernorm",
    }, adds_one=True),
}  # fmt: skip
"""By `general.architecture`; a llama with experts is a mixtral."""

ROTARY = ("rope_freqs", "rope_factors_long", "rope_factors_short")
"""The tensors that are no weights: factors of the frequencies of rotary embeddings."""


def architecture_of(header: Header) -> Architecture:
    """The kind of the model of a file.

    Raises:
        LanguageModelError: it is not read.
    """
    name = header.keys.get("general.architecture")
    if name == "llama" and header.keys.get("llama.expert_count"):
        name = "mixtral"
    if name not in ARCHITECTURES:
        raise LanguageModelError(
            f"the file holds a model of the architecture {name!r} of GGUF; {', '.join(ARCHITECTURES)} are read"
        )
    return ARCHITECTURES[name]


def name_of(architecture: Architecture, name: str) -> str | None:
    """The name of a weight in transformers; None if it is no weight of the model."""
    base, _, kind = name.rpartition(".")
    if base in _OUTSIDE:
        return f"{_OUTSIDE[base]}.{kind}"
    match = re.fullmatch(r"blk\.(\d+)\.(\w+)", base)
    if match is None or match[2] not in architecture.names:
        return None
    return f"model.layers.{match[1]}.{architecture.names[match[2]]}.{kind}"


def config_of(header: Header) -> dict[str, Any]:
    """The content of a `config.json`.

    Raises:
        LanguageModelError: a key is missing, or says what is not read.
    """
    found, prefix = architecture_of(header), str(header.keys["general.architecture"])
    keys = {key.removeprefix(f"{prefix}."): value for key, value in header.keys.items() if key.startswith(f"{prefix}.")}

    def needed(key: str) -> Any:
        if key not in keys:
            raise LanguageModelError(f"the file lacks the key {prefix}.{key}")
        return keys[key]

    table = header.tensors.get("token_embd.weight")
    if table is None:
        raise LanguageModelError("the file lacks token_embd.weight, the table of embeddings")
    hidden, heads = int(needed("embedding_length")), int(needed("attention.head_count"))
    width = int(keys.get("attention.key_length") or keys.get("rope.dimension_count") or hidden // heads)
    if keys.get("attention.value_length", width) != width:
        raise LanguageModelError("the file has values of another width than keys, which are not read")
    made: dict[str, Any] = {
        "architectures": [found.name], "model_type": found.kind, "hidden_size": hidden,
        "num_hidden_layers": int(needed("block_count")), "intermediate_size": int(needed("feed_forward_length")),
        "num_attention_heads": heads, "num_key_value_heads": int(keys.get("attention.head_count_kv", heads)),
        "head_dim": width, "rms_norm_eps": float(needed("attention.layer_norm_rms_epsilon")),
        "max_position_embeddings": int(needed("context_length")), "vocab_size": table.shape[0],
        "tie_word_embeddings": "output.weight" not in header.tensors, "rope_parameters": _rotary(header, keys, width),
        "quantization_config": {"quant_method": "gguf"}, "pad_token_id": None,
    }  # fmt: skip
    for key in ("bos", "eos"):
        made[f"{key}_token_id"] = header.keys.get(f"tokenizer.ggml.{key}_token_id")
    if found.kind == "llama":
        made["attention_bias"] = "blk.0.attn_q.bias" in header.tensors
    if found.kind in ("mixtral", "qwen3_moe"):
        made["num_local_experts"] = made["num_experts"] = int(needed("expert_count"))
        made["num_experts_per_tok"] = int(needed("expert_used_count"))
        made["moe_intermediate_size"] = int(keys.get("expert_feed_forward_length", made["intermediate_size"]))
        made["norm_topk_prob"] = True
    if found.kind != "gemma3_text":
        made["sliding_window"] = keys.get("attention.sliding_window")
        return made
    layers = range(made["num_hidden_layers"])
    other = {"rope_type": "default", "rope_theta": float(keys.get("rope.freq_base_swa", 10000.0))}
    made["rope_parameters"] = {"full_attention": made["rope_parameters"], "sliding_attention": other}
    made["sliding_window"] = int(needed("attention.sliding_window"))
    made["layer_types"] = ["sliding_attention" if (layer + 1) % 6 else "full_attention" for layer in layers]
    # the largest model divides scores by another number than the width of a head
    made["query_pre_attn_scalar"] = hidden // heads if len(layers) == 62 else width
    made["hidden_activation"], made["pad_token_id"] = "gelu_pytorch_tanh", 0
    return made


def _rotary(header: Header, keys: Mapping[str, Any], width: int) -> dict[str, Any]:
    """The rotary embeddings."""
    made: dict[str, Any] = {"rope_type": "default", "rope_theta": float(keys.get("rope.freq_base", 10000.0))}
    turned = int(keys.get("rope.dimension_count", width))
    if turned != width:
        made["partial_rotary_factor"] = turned / width
    kind = keys.get("rope.scaling.type", "none")
    factors = [header.tensors.get(f"{name}.weight") for name in ROTARY[1:]]
    if factors[0] is not None and factors[1] is not None:
        from numpy import float32

        long, short = (each.data.view(float32).flatten().tolist() for each in factors if each is not None)
        return {**made, "rope_type": "longrope", "long_factor": long, "short_factor": short,
                "original_max_position_embeddings": int(keys["rope.scaling.original_context_length"]),
                "attention_factor": keys.get("rope.scaling.attn_factor")}  # fmt: skip
    if kind == "none":
        return made
    if kind not in ("linear", "yarn"):
        raise LanguageModelError(f"the file scales rotary embeddings by {kind!r}; linear, yarn and factors are read")
    made |= {"rope_type": kind, "factor": float(keys["rope.scaling.factor"])}
    if kind == "yarn" and "rope.scaling.original_context_length" in keys:
        made["original_max_position_embeddings"] = int(keys["rope.scaling.original_context_length"])
    return made
