"""The models of GGUF as transformers has them: the configuration from the keys, and the names of weights.

Sources: `gguf.constants` and `conversion` of llama.cpp.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from patcomp.errors import shortened
from patcomp_models.checkpoints.gguf.header import Header
from patcomp_models.errors import LanguageModelError

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


_ARCHITECTURES = {
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
    if not isinstance(name, str) or name not in _ARCHITECTURES:
        raise LanguageModelError(
            f"the file holds a model of the architecture {name!r} of GGUF; {', '.join(_ARCHITECTURES)} are read"
        )
    return _ARCHITECTURES[name]


def transformers_name(architecture: Architecture, name: str) -> str | None:
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
    found, keys = architecture_of(header), _Keys(header, f"{header.keys['general.architecture']}.")
    table = header.tensors.get("token_embd.weight")
    if table is None or len(table.shape) != 2:
        raise LanguageModelError("the file lacks token_embd.weight, the table of embeddings")
    hidden, heads = keys.count("embedding_length"), keys.count("attention.head_count")
    width = keys.count("attention.key_length", keys.count("rope.dimension_count", max(hidden // heads, 1)))
    if keys.count("attention.value_length", width) != width:
        raise LanguageModelError("the file has values of another width than keys, which are not read")
    made: dict[str, Any] = {
        "architectures": [found.name], "model_type": found.kind, "hidden_size": hidden,
        "num_hidden_layers": keys.count("block_count"), "intermediate_size": keys.count("feed_forward_length"),
        "num_attention_heads": heads, "num_key_value_heads": keys.count("attention.head_count_kv", heads),
        "head_dim": width, "rms_norm_eps": keys.number("attention.layer_norm_rms_epsilon"),
        "max_position_embeddings": keys.count("context_length"), "vocab_size": table.shape[0],
        "tie_word_embeddings": "output.weight" not in header.tensors, "rope_parameters": _rotary(header, keys, width),
        "quantization_config": {"quant_method": "gguf"}, "pad_token_id": None,
    }  # fmt: skip
    for key in ("bos", "eos"):
        name = f"tokenizer.ggml.{key}_token_id"
        made[f"{key}_token_id"] = _Keys(header, "").count(name, least=0) if name in header.keys else None
    if found.kind == "llama":
        made["attention_bias"] = "blk.0.attn_q.bias" in header.tensors
    if found.kind in ("mixtral", "qwen3_moe"):
        made["num_local_experts"] = made["num_experts"] = keys.count("expert_count")
        made["num_experts_per_tok"] = keys.count("expert_used_count")
        made["moe_intermediate_size"] = keys.count("expert_feed_forward_length", made["intermediate_size"])
        made["norm_topk_prob"] = True
    if found.kind != "gemma3_text":
        made["sliding_window"] = keys.count("attention.sliding_window", 0) or None
        return made
    layers = range(keys.count("block_count"))
    other = {"rope_type": "default", "rope_theta": keys.number("rope.freq_base_swa", 10000.0)}
    made["rope_parameters"] = {"full_attention": made["rope_parameters"], "sliding_attention": other}
    made["sliding_window"] = keys.count("attention.sliding_window")
    made["layer_types"] = ["sliding_attention" if (layer + 1) % 6 else "full_attention" for layer in layers]
    # the largest model divides scores by another number than the width of a head
    made["query_pre_attn_scalar"] = hidden // heads if len(layers) == 62 else width
    made["hidden_activation"], made["pad_token_id"] = "gelu_pytorch_tanh", 0
    return made


@dataclass(frozen=True)
class _Keys:
    """The keys of a file with a prefix, as numbers."""

    header: Header
    prefix: str

    def has(self, key: str) -> bool:
        return self.prefix + key in self.header.keys

    def number(self, key: str, usual: float | None = None) -> float:
        """A number above zero; `usual` if the key is missing.

        Raises:
            LanguageModelError: it is missing or is something else.
        """
        found = self.header.keys.get(self.prefix + key, usual)
        if found is None:
            raise LanguageModelError(f"the file lacks the key {self.prefix}{key}")
        if isinstance(found, bool) or not isinstance(found, int | float) or not 0 < found < math.inf:
            raise LanguageModelError(
                f"the key {self.prefix}{key} is {shortened(str(found), 80)}, and must be a number above 0"
            )
        return float(found)

    def count(self, key: str, usual: int | None = None, *, least: int = 1) -> int:
        """A whole number below 2^31; `usual` if the key is missing.

        Raises:
            LanguageModelError: it is missing or is something else.
        """
        found = self.header.keys.get(self.prefix + key, usual)
        if found is None:
            raise LanguageModelError(f"the file lacks the key {self.prefix}{key}")
        if usual is not None and found == usual:
            return usual
        if isinstance(found, bool) or not isinstance(found, int) or not least <= found < 1 << 31:
            raise LanguageModelError(
                f"the key {self.prefix}{key} is {shortened(str(found), 80)}, and must be a whole number from {least} "
                "to 2^31"
            )
        return found


def _rotary(header: Header, keys: _Keys, width: int) -> dict[str, Any]:
    """The rotary embeddings."""
    made: dict[str, Any] = {"rope_type": "default", "rope_theta": keys.number("rope.freq_base", 10000.0)}
    turned = keys.count("rope.dimension_count", width)
    if turned != width:
        made["partial_rotary_factor"] = turned / width
    kind = header.keys.get(f"{keys.prefix}rope.scaling.type", "none")
    long, short = (header.floats(f"{name}.weight") for name in ROTARY[1:])
    if long is not None and short is not None:
        scaled = keys.number("rope.scaling.attn_factor") if keys.has("rope.scaling.attn_factor") else None
        return {**made, "rope_type": "longrope", "long_factor": long.tolist(), "short_factor": short.tolist(),
                "original_max_position_embeddings": keys.count("rope.scaling.original_context_length"),
                "attention_factor": scaled}  # fmt: skip
    if kind == "none":
        return made
    if kind not in ("linear", "yarn"):
        raise LanguageModelError(f"the file scales rotary embeddings by {kind!r}; linear, yarn and factors are read")
    made |= {"rope_type": kind, "factor": keys.number("rope.scaling.factor")}
    if kind == "yarn" and keys.has("rope.scaling.original_context_length"):
        made["original_max_position_embeddings"] = keys.count("rope.scaling.original_context_length")
    return made
