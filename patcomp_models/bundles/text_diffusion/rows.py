"""Types of diffusion language models whose code lies in their checkpoints: each is a class of transformers without the
causal mask. The code of a checkpoint is never run; its configuration and the names of its weights are translated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from patcomp.errors import reason_of
from patcomp_models.bundles.speech.folders import content_of
from patcomp_models.checkpoints.told import Told
from patcomp_models.checkpoints.untrusted import named_class
from patcomp_models.errors import BundleError


@dataclass(frozen=True)
class DenoiserRow:
    """A type of models.

    Attributes:
        stands_for: the class of transformers that computes the same with a mask of its own.
        settings: the configuration of that class, from the fields of the checkpoint's.
        loop: the name of the loop of a host, of `loops.LOOPS`.
        mask: the mask token of the published loop, for a configuration that names none.
        is_shifted: whether the logits of a place foresee the token behind it.
        names: how the names of weights become those of the class, by regular expressions.
        tokenizer: the class of transformers for tokenizers of the type whose own class lies in the checkpoint.
    """

    stands_for: str
    settings: Callable[[Told], dict[str, Any]]
    loop: str
    mask: int
    is_shifted: bool = False
    names: Mapping[str, str] = field(default_factory=dict)
    tokenizer: str = "PreTrainedTokenizerFast"

    def configuration(self, folder: Path) -> Any:
        """The configuration of the class that stands for the model of a folder.

        Raises:
            BundleError: a field has a value with which the class would compute something else, or is not known.
        """
        file = folder / "config.json"
        content = content_of(file)
        told = Told(file, content)
        settings = self.settings(told)
        told.ignore("mask_token_id")
        told.check(str(content["architectures"][0]))
        try:
            return named_class("transformers", self.stands_for, "model").config_class(**settings)
        except Exception as error:  # a number of another kind can make transformers raise anything
            raise BundleError(f"{str(file)!r} has a field of another kind: {reason_of(error)}") from error


def _llada(told: Told) -> dict[str, Any]:
    """LLaDA 8B (Nie et al. 2025, arXiv:2502.09992), whose blocks are OLMo's in the form of Llama's; the defaults are
    those of its `configuration_llada.py`."""
    told.must("block_type", "sequential", "llama")
    told.must("activation_type", "swiglu", "silu")
    told.must("layer_norm_type", "default", "rms")
    told.must("rope", False, True)
    told.must("block_group_size", 1, 1)
    for name in ("alibi", "attention_layer_norm", "include_bias", "input_emb_norm", "scale_logits"):
        told.must(name, False, False)
    for name in ("bias_for_layer_norm", "include_qkv_bias", "multi_query_attention"):
        told.must(name, None, None, False)
    told.must("layer_norm_with_affine", True, True)
    told.ignore(
        "alibi_bias_max", "attention_layer_norm_with_affine", "rope_full_precision", "flash_attention",
        "attention_dropout", "residual_dropout", "embedding_dropout", "init_device", "init_fn", "init_std",
        "init_cutoff_factor", "precision",
    )  # fmt: skip
    width, heads, words = told.take("d_model", 768), told.take("n_heads", 12), told.take("vocab_size", 50257)
    ratio, inner = told.take("mlp_ratio", 4), told.take("mlp_hidden_size", None)
    return {
        "hidden_size": width, "num_attention_heads": heads, "num_hidden_layers": told.take("n_layers", 12),
        "num_key_value_heads": told.take("n_kv_heads", None) or heads,
        "intermediate_size": ratio * width if inner is None else inner,
        "vocab_size": told.take("embedding_size", 50304) or words,
        "max_position_embeddings": told.take("max_sequence_length", 1024),
        "rms_norm_eps": told.take("rms_norm_eps", 1e-5),
        "rope_parameters": {"rope_type": "default", "rope_theta": told.take("rope_theta", 10000.0)},
        "tie_word_embeddings": told.take("weight_tying", True), "hidden_act": "silu",
    }  # fmt: skip


_BLOCK = r"^model\.transformer\.blocks\.(\d+)\."
_LAYER = r"model.layers.\1."
_LLADA_NAMES = {
    r"^model\.transformer\.wte\.": "model.embed_tokens.",
    r"^model\.transformer\.ln_f\.": "model.norm.",
    r"^model\.transformer\.ff_out\.": "lm_head.",
    **{rf"{_BLOCK}{own}_proj\.": rf"{_LAYER}self_attn.{own}_proj." for own in "qkv"},
    rf"{_BLOCK}attn_out\.": rf"{_LAYER}self_attn.o_proj.",
    rf"{_BLOCK}attn_norm\.": rf"{_LAYER}input_layernorm.",
    rf"{_BLOCK}ff_norm\.": rf"{_LAYER}post_attention_layernorm.",
    rf"{_BLOCK}ff_proj\.": rf"{_LAYER}mlp.gate_proj.",
    rf"{_BLOCK}up_proj\.": rf"{_LAYER}mlp.up_proj.",
    rf"{_BLOCK}ff_out\.": rf"{_LAYER}mlp.down_proj.",
}


def _dream(told: Told) -> dict[str, Any]:
    """Dream 7B (Ye et al. 2025, arXiv:2508.15487), which began as Qwen2.5; the defaults are those of its
    `configuration_dream.py`."""
    told.must("rope_scaling", None, None)
    told.must("use_sliding_window", False, False)
    told.must("use_mrope", False, False)
    told.ignore("sliding_window", "max_window_layers", "attention_dropout", "initializer_range")
    heads = told.take("num_attention_heads", 32)
    return {
        "vocab_size": told.take("vocab_size", 151936), "hidden_size": told.take("hidden_size", 4096),
        "intermediate_size": told.take("intermediate_size", 22016),
        "num_hidden_layers": told.take("num_hidden_layers", 32), "num_attention_heads": heads,
        "num_key_value_heads": told.take("num_key_value_heads", 32) or heads,
        "hidden_act": told.take("hidden_act", "silu"),
        "max_position_embeddings": told.take("max_position_embeddings", 32768),
        "rms_norm_eps": told.take("rms_norm_eps", 1e-6),
        "rope_parameters": {"rope_type": "default", "rope_theta": told.take("rope_theta", 10000.0)},
        "tie_word_embeddings": told.take("tie_word_embeddings", False),
    }  # fmt: skip


def _llada_moe(told: Told) -> dict[str, Any]:
    """LLaDA-MoE (Zhu et al. 2025, arXiv:2509.24389): Qwen3's blocks with experts, whose weights are not normalised."""
    for name in ("clip_qkv", "rope_scaling", "router_num_group", "router_topk_group"):
        told.must(name, None, None)
    told.must("shared_expert_intermediate_size", None, None)
    told.must("qk_layernorm", None, True)
    told.must("partial_rotary_factor", -1, 1)
    told.must("routed_scaling_factor", 1, 1)
    told.must("moe_router_score_function", None, None, "softmax")
    for name in ("norm_topk_prob", "moe_router_enable_expert_bias"):
        told.must(name, None, None, False)
    layers, heads = told.take("num_hidden_layers", -1), told.take("num_attention_heads", -1)
    told.must("moe_layer_freq", [], [1] * layers if isinstance(layers, int) else None)
    told.ignore(
        "attention_dropout", "initializer_range", "output_router_logits", "router_aux_loss_coef",
        "dense_intermediate_size",
    )  # fmt: skip
    width = told.take("hidden_size", -1)
    return {
        "vocab_size": told.take("vocab_size", -1), "hidden_size": width, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": told.take("num_key_value_heads", None) or heads,
        "head_dim": width // heads, "moe_intermediate_size": told.take("expert_intermediate_size", -1),
        "num_experts": told.take("num_experts", -1), "num_experts_per_tok": told.take("num_experts_per_tok", -1),
        "hidden_act": told.take("hidden_act", "silu"), "norm_topk_prob": False, "decoder_sparse_step": 1,
        "attention_bias": told.take("attention_bias", False),
        "max_position_embeddings": told.take("max_position_embeddings", 4096),
        "rms_norm_eps": told.take("rms_norm_eps", 1e-5),
        "rope_parameters": {"rope_type": "default", "rope_theta": told.take("rope_theta", -1)},
        "tie_word_embeddings": told.take("tie_word_embeddings", False),
    }  # fmt: skip


def _sdar(told: Told) -> dict[str, Any]:
    """SDAR (Cheng et al. 2025, arXiv:2510.06303), which began as Qwen3."""
    told.must("rope_scaling", None, None)
    told.must("use_sliding_window", False, False)
    told.ignore(
        "sliding_window", "max_window_layers", "attention_dropout", "initializer_range", "block_size", "debug",
        "ep_size", "fuse_cross_entropy", "micro_forward", "skip_checkpoint", "use_deepep",
    )  # fmt: skip
    heads = told.take("num_attention_heads", 32)
    return {
        "vocab_size": told.take("vocab_size", 151936), "hidden_size": told.take("hidden_size", 4096),
        "intermediate_size": told.take("intermediate_size", 22016),
        "num_hidden_layers": told.take("num_hidden_layers", 32), "num_attention_heads": heads,
        "num_key_value_heads": told.take("num_key_value_heads", 32) or heads, "head_dim": told.take("head_dim", 128),
        "hidden_act": told.take("hidden_act", "silu"), "attention_bias": told.take("attention_bias", False),
        "max_position_embeddings": told.take("max_position_embeddings", 32768),
        "rms_norm_eps": told.take("rms_norm_eps", 1e-6),
        "rope_parameters": {"rope_type": "default", "rope_theta": told.take("rope_theta", 10000.0)},
        "tie_word_embeddings": told.take("tie_word_embeddings", False),
    }  # fmt: skip


_LLADA_MOE = DenoiserRow("Qwen3MoeForCausalLM", _llada_moe, "blocks", 156895)

DENOISERS: Mapping[str, DenoiserRow] = {
    "LLaDAModelLM": DenoiserRow("LlamaForCausalLM", _llada, "blocks", 126336, names=_LLADA_NAMES),
    "DreamModel": DenoiserRow(
        "Qwen2ForCausalLM", _dream, "schedule", 151666, is_shifted=True, tokenizer="Qwen2Tokenizer"
    ),
    "SDARForCausalLM": DenoiserRow("Qwen3ForCausalLM", _sdar, "cached_blocks", 151669, tokenizer="Qwen2Tokenizer"),
    **dict.fromkeys(("LLaDAMoEModel", "LLaDAMoEModelLM"), _LLADA_MOE),
}
"""By the class that a configuration names."""
