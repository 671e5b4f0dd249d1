"""Small diffusion language models with random weights, as folders, and their published code in short: the models, and
the loops that write with them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional

MASK, END = 60, 59
_WORDS = 64

LLADA: dict[str, Any] = {
    "architectures": ["LLaDAModelLM"], "model_type": "llada", "auto_map": {"AutoModel": "modeling_llada.LLaDAModelLM"},
    "activation_type": "silu", "alibi": False, "alibi_bias_max": 8.0, "attention_dropout": 0.0,
    "attention_layer_norm": False, "attention_layer_norm_with_affine": True, "bias_for_layer_norm": False,
    "block_group_size": 1, "block_type": "llama", "d_model": 32, "embedding_dropout": 0.0, "embedding_size": _WORDS,
    "eos_token_id": END, "flash_attention": False, "include_bias": False, "include_qkv_bias": False,
    "init_cutoff_factor": None, "init_device": "meta", "init_fn": "mitchell", "init_std": 0.02,
    "input_emb_norm": False, "layer_norm_type": "rms", "layer_norm_with_affine": True, "mask_token_id": MASK,
    "max_sequence_length": 128, "mlp_hidden_size": 48, "mlp_ratio": 4, "multi_query_attention": None, "n_heads": 4,
    "n_kv_heads": 2, "n_layers": 2, "pad_token_id": END, "precision": "amp_bf16", "residual_dropout": 0.0,
    "rms_norm_eps": 1e-5, "rope": True, "rope_full_precision": True, "rope_theta": 500000.0, "scale_logits": False,
    "transformers_version": "4.46.3", "use_cache": False, "vocab_size": 62, "weight_tying": False,
}  # fmt: skip
"""`config.json` of LLaDA 8B, with small numbers."""

DREAM: dict[str, Any] = {
    "architectures": ["DreamModel"], "model_type": "Dream", "auto_map": {"AutoModel": "modeling_dream.DreamModel"},
    "attention_dropout": 0.0, "bos_token_id": END, "eos_token_id": END, "hidden_act": "silu", "hidden_size": 32,
    "initializer_range": 0.02, "intermediate_size": 48, "mask_token_id": MASK, "max_position_embeddings": 128,
    "max_window_layers": 28, "num_attention_heads": 4, "num_hidden_layers": 2, "num_key_value_heads": 2,
    "pad_token_id": END, "rms_norm_eps": 1e-6, "rope_scaling": None, "rope_theta": 1000000.0, "sliding_window": None,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16", "transformers_version": "4.46.2", "use_cache": True,
    "use_sliding_window": False, "vocab_size": _WORDS,
}  # fmt: skip
"""`config.json` of Dream 7B, with small numbers."""


LLADA_MOE: dict[str, Any] = {
    "architectures": ["LLaDAMoEModelLM"], "model_type": "llada", "auto_map": {"AutoModel": "any.Any"},
    "attention_bias": False, "attention_dropout": 0.0, "clip_qkv": None, "dense_intermediate_size": 64,
    "eos_token_id": END, "expert_intermediate_size": 24, "hidden_act": "silu", "hidden_size": 32,
    "initializer_range": 0.02, "mask_token_id": MASK, "max_position_embeddings": 128, "moe_layer_freq": [1, 1],
    "moe_router_enable_expert_bias": False, "moe_router_score_function": "softmax", "norm_topk_prob": None,
    "num_attention_heads": 4, "num_experts": 4, "num_experts_per_tok": 2, "num_hidden_layers": 2,
    "num_key_value_heads": 2, "output_router_logits": False, "pad_token_id": END, "partial_rotary_factor": 1,
    "qk_layernorm": True, "rms_norm_eps": 1e-5, "rope_scaling": None, "rope_theta": 50000, "routed_scaling_factor": 1,
    "router_aux_loss_coef": 0.01, "router_num_group": None, "router_topk_group": None,
    "shared_expert_intermediate_size": None, "tie_word_embeddings": False, "vocab_size": _WORDS,
}  # fmt: skip
"""`config.json` of LLaDA-MoE 7B A1B, with small numbers."""

SDAR: dict[str, Any] = {
    "architectures": ["SDARForCausalLM"], "model_type": "sdar", "auto_map": {"AutoModel": "any.Any"},
    "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": END, "eos_token_id": END, "head_dim": 8,
    "hidden_act": "silu", "hidden_size": 32, "initializer_range": 0.02, "intermediate_size": 48,
    "mask_token_id": MASK, "max_position_embeddings": 128, "max_window_layers": 2, "num_attention_heads": 4,
    "num_hidden_layers": 2, "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "rope_scaling": None,
    "rope_theta": 1000000, "sliding_window": None, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    "use_cache": True, "use_sliding_window": False, "vocab_size": _WORDS,
}  # fmt: skip
"""`config.json` of SDAR, with small numbers."""


class Published:
    """A denoiser by the names of its published weights, drawn at random: `modeling_llada.py` of GSAI-ML/LLaDA-8B-Base,
    `modeling_dream.py` of Dream-org/Dream-v0-Instruct-7B, with `scaled_dot_product_attention(is_causal=False)`,
    `modeling_lladamoe.py` of inclusionAI/LLaDA-MoE-7B-A1B-Base, and `modeling_sdar.py` of JetLM/SDAR-1.7B-Chat.

    Args:
        config: of the model.
    """

    def __init__(self, config: dict[str, Any]):
        self.is_llada, self.is_moe = "d_model" in config, "num_experts" in config
        self.has_head_norms = self.is_moe or "head_dim" in config
        self.config = config
        draw = torch.Generator().manual_seed(3)
        width, inner = (32, 48)
        narrow = 16  # of keys and values: 2 of 4 heads
        sizes = {"q": (width, width), "k": (narrow, width), "v": (narrow, width), "o": (width, width),
                 "gate": (inner, width), "up": (inner, width), "down": (width, inner),
                 "first": (width,), "second": (width,)}  # fmt: skip
        shapes: dict[str, tuple[int, ...]] = {self._name("words"): (_WORDS, width), self._name("last"): (width,),
                                              self._name("head"): (_WORDS, width)}  # fmt: skip
        for layer in range(2):
            shapes |= {self._name(part, layer): size for part, size in sizes.items()}
            front = f"model.layers.{layer}"
            if self.has_head_norms:
                shapes |= {f"{front}.self_attn.{part}_norm.weight": (8,) for part in "qk"}
            if self.is_moe:
                for part in ("gate", "up", "down"):
                    del shapes[self._name(part, layer)]
                shapes[f"{front}.mlp.gate.weight"] = (4, width)
                for expert in range(4):
                    each = f"{front}.mlp.experts.{expert}"
                    shapes |= {f"{each}.{part}_proj.weight": (24, width) for part in ("gate", "up")}
                    shapes[f"{each}.down_proj.weight"] = (width, 24)
            elif not self.is_llada and not self.has_head_norms:
                shapes |= {self._name(part, layer).replace("weight", "bias"): sizes[part][:1] for part in "qkv"}
        self.weights = {
            name: torch.randn(shape, generator=draw) * (1.5 * shape[-1] ** -0.5 if len(shape) > 1 else 0.3)
            + (1.0 if "norm" in name or "ln_f" in name else 0.0)
            for name, shape in shapes.items()
        }  # fmt: skip

        if config["architectures"] == ["SDARForCausalLM"]:
            self.weights["lm_head.weight"][MASK] = 0  # the published loop cannot go on from a mask that is written

    def _name(self, part: str, layer: int | None = None) -> str:
        """The name of a weight."""
        if self.is_llada:
            whole = {"words": "wte", "last": "ln_f", "head": "ff_out"}
            inside = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "attn_out", "gate": "ff_proj", "up": "up_proj",
                      "down": "ff_out", "first": "attn_norm", "second": "ff_norm"}  # fmt: skip
            path = whole[part] if layer is None else f"blocks.{layer}.{inside[part]}"
            return f"model.transformer.{path}.weight"
        if layer is None:
            return {"words": "model.embed_tokens", "last": "model.norm", "head": "lm_head"}[part] + ".weight"
        inside = {**{each: f"self_attn.{each}_proj" for each in "qkvo"},
                  **{each: f"mlp.{each}_proj" for each in ("gate", "up", "down")},
                  "first": "input_layernorm", "second": "post_attention_layernorm"}  # fmt: skip
        return f"model.layers.{layer}.{inside[part]}.weight"

    def _linear(self, x: Tensor, part: str, layer: int) -> Tensor:
        name = self._name(part, layer)
        return functional.linear(x, self.weights[name], self.weights.get(name.replace("weight", "bias")))

    def _norm(self, x: Tensor, part: str, layer: int | None = None) -> Tensor:
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.config["rms_norm_eps"])
        return self.weights[self._name(part, layer)] * x

    def _head_norm(self, heads: Tensor, part: str, layer: int) -> Tensor:
        normal = heads * torch.rsqrt(heads.pow(2).mean(-1, keepdim=True) + self.config["rms_norm_eps"])
        return self.weights[f"model.layers.{layer}.self_attn.{part}_norm.weight"] * normal

    def _gated(self, read: Tensor, layer: int) -> Tensor:
        gated = functional.silu(self._linear(read, "gate", layer)) * self._linear(read, "up", layer)
        return self._linear(gated, "down", layer)

    def _experts(self, read: Tensor, layer: int) -> Tensor:
        """The two most probable experts of each token, weighted by their probabilities as they are."""
        front, made = f"model.layers.{layer}.mlp", torch.zeros_like(read)
        shares, chosen = (read @ self.weights[f"{front}.gate.weight"].T).softmax(-1).topk(2)
        for place in range(read.shape[1]):
            for share, expert in zip(shares[0, place], chosen[0, place].tolist(), strict=True):
                gate, up, down = (self.weights[f"{front}.experts.{expert}.{part}_proj.weight"]
                                  for part in ("gate", "up", "down"))  # fmt: skip
                one = read[0, place]
                made[0, place] += share * (down @ (functional.silu(gate @ one) * (up @ one)))
        return made

    def __call__(self, tokens: Tensor, seen: Tensor | None = None) -> Tensor:
        """The logits, (1, n, vocabulary), of tokens, (1, n), each of which sees all, or those of `seen`, (n, n)."""
        x = self.weights[self._name("words")][tokens]
        angles = torch.outer(torch.arange(tokens.shape[1]).float(),
                             1 / self.config["rope_theta"] ** (torch.arange(0, 8, 2).float() / 8))  # fmt: skip
        cos, sin = (torch.cat([angles, angles], -1).cos(), torch.cat([angles, angles], -1).sin())

        def turned(heads: Tensor) -> Tensor:
            first, second = heads.chunk(2, -1)
            return heads * cos + torch.cat([-second, first], -1) * sin

        for layer in range(2):
            read = self._norm(x, "first", layer)
            query, key, value = (
                self._linear(read, part, layer).unflatten(-1, (-1, 8)).transpose(1, 2) for part in "qkv"
            )
            if self.has_head_norms:
                query, key = self._head_norm(query, "q", layer), self._head_norm(key, "k", layer)
            query, key = turned(query), turned(key)
            key, value = (each.repeat_interleave(2, 1) for each in (key, value))
            scores = query @ key.mT / math.sqrt(8)
            mixed = (scores if seen is None else scores.masked_fill(~seen, -math.inf)).softmax(-1) @ value
            x = x + self._linear(mixed.transpose(1, 2).flatten(2), "o", layer)
            read = self._norm(x, "second", layer)
            x = x + (self._experts(read, layer) if self.is_moe else self._gated(read, layer))
        head = self._name("words" if self.config.get("weight_tying") else "head")
        return functional.linear(self._norm(x, "last"), self.weights[head])


def folder_of(place: Path, config: dict[str, Any], **changed: Any) -> Published:
    """Write a folder, and give the published model.

    Args:
        place: the folder.
        config: of the model.
        changed: fields of it.
    """
    model = Published({**config, **changed})
    place.mkdir()
    (place / "config.json").write_text(json.dumps(model.config))
    weights = {name: each for name, each in model.weights.items()
               if not (model.config.get("weight_tying") and name == model._name("head"))}  # fmt: skip
    save_file(weights, place / "model.safetensors", {"format": "pt"})
    write_tokenizer(place, model.is_llada or model.is_moe)
    return model


def write_tokenizer(place: Path, is_whole: bool) -> None:
    """A tokenizer of letters: in a file of its own, or as `vocab.json` and `merges.txt` of a class in the folder."""
    letters = [*"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456", "<|end|>", "<|mask|>"]
    words = {letter: number for number, letter in enumerate(letters)}
    plain = dict.fromkeys(("lstrip", "rstrip", "normalized", "single_word"), False)
    added = {str(number): {"content": letters[number], "special": True, **plain} for number in (END, MASK)}
    told: dict[str, Any] = {"eos_token": "<|end|>", "mask_token": "<|mask|>", "added_tokens_decoder": added}
    if not is_whole:
        (place / "vocab.json").write_text(json.dumps(words))
        (place / "merges.txt").write_text("#version: 0.2\n")
        told |= {"tokenizer_class": "DreamTokenizer", "unk_token": "<|end|>", "pad_token": "<|end|>",
                 "auto_map": {"AutoTokenizer": ["tokenization_dream.DreamTokenizer", None]}}  # fmt: skip
        (place / "tokenizer_config.json").write_text(json.dumps(told))
        return
    from tokenizers import AddedToken, Tokenizer, models

    made = Tokenizer(models.BPE(words, []))
    made.add_special_tokens([AddedToken("<|end|>", special=True), AddedToken("<|mask|>", special=True)])
    made.save(str(place / "tokenizer.json"))
    (place / "tokenizer_config.json").write_text(json.dumps({**told, "tokenizer_class": "PreTrainedTokenizerFast"}))


# ---- the published loops, which draw from PyTorch's own random numbers ------------------------------------


@torch.no_grad()
def llada_generate(
    model: Any, prompt: Tensor, steps: int, gen_length: int, block_length: int, temperature: float, cfg_scale: float,
    remasking: str,
) -> Tensor:  # fmt: skip
    """`generate.py` of github.com/ML-GSAI/LLaDA."""
    x = torch.cat([prompt, torch.full((1, gen_length), MASK)], 1)
    given = x != MASK
    for number in range(gen_length // block_length):
        begin = prompt.shape[1] + number * block_length
        per_block = steps // (gen_length // block_length)
        left = int((x[:, begin : begin + block_length] == MASK).sum())
        counts = [left // per_block + (1 if i < left % per_block else 0) for i in range(per_block)]
        for count in counts:
            hidden = x == MASK
            logits = model(x)
            if cfg_scale > 0:
                bare = x.clone()
                bare[given] = MASK
                bare_logits = model(bare)
                logits = bare_logits + (cfg_scale + 1) * (logits - bare_logits)
            noisy = logits
            if temperature > 0:
                noisy = logits.to(torch.float64)
                noisy = noisy.exp() / (-torch.log(torch.rand_like(noisy))) ** temperature
            x0 = noisy.argmax(-1)
            if remasking == "low_confidence":
                p = functional.softmax(logits.to(torch.float64), -1)
                p = torch.gather(p, -1, x0.unsqueeze(-1)).squeeze(-1)
            else:
                p = torch.rand(1, x.shape[1])
            p[:, begin + block_length :] = -math.inf
            p[~hidden] = -math.inf
            best = torch.topk(p[0], count)[1]
            for place in best.tolist():
                x[0, place] = x0[0, place] if hidden[0, place] else x[0, place]
    return x


@torch.no_grad()
def dream_generate(model: Any, prompt: Tensor, max_new_tokens: int, **told: Any) -> Tensor:
    """`generation_utils.py` of Dream-org/Dream-v0-Instruct-7B."""
    steps, alg = told["steps"], told["alg"]
    x = functional.pad(prompt, (0, max_new_tokens), value=MASK)
    times = torch.linspace(1, told["eps"], steps + 1)
    for i in range(steps):
        hidden = x == MASK
        logits = model(x)
        logits = torch.cat([logits[:, :1], logits[:, :-1]], 1)[hidden]
        if alg == "origin":
            share = 1 - times[i + 1] / times[i] if i < steps - 1 else 1
            x0 = torch.full_like(x[hidden], MASK)
            chosen = torch.rand(*x0.shape) < share
            x0[chosen] = _sampled(logits[chosen], alg, told)[1]
            x[hidden] = x0
            continue
        confidence, x0 = _sampled(logits, alg, told)
        waiting = hidden.sum() / 1
        count = int(waiting * (1 - times[i + 1] / times[i])) if i < steps - 1 else int(waiting)
        everywhere = torch.full(x.shape, -math.inf)
        everywhere[hidden] = confidence
        if count:
            if told["alg_temp"]:
                places = torch.multinomial(functional.softmax(everywhere / told["alg_temp"], -1), count)
            else:
                places = torch.topk(everywhere, count)[1]
            found = torch.full_like(x, MASK)
            found[hidden] = x0
            x[0, places[0]] = found[0, places[0]]
    return x


@torch.no_grad()
def sdar_generate(model: Published, prompt: Tensor, gen_length: int, stops: list[int], **told: Any) -> Tensor:
    """`generate.py` of github.com/JetAstra/SDAR, without a cache: each call reads the whole text in blocks."""
    size, steps, given = told["block_length"], told["denoising_steps"], prompt.shape[1]
    whole = -(-(given + gen_length) // size) * size
    x = functional.pad(prompt, (0, whole - given), value=MASK)
    block_of = torch.arange(whole) // size
    seen = block_of[None] <= block_of[:, None]
    counts = [size // steps + (1 if i < size % steps else 0) for i in range(steps)]
    for begin in range(given // size * size, whole, size):
        end = begin + size
        for count in counts:
            hidden = x[0, begin:end] == MASK
            if not hidden.any():
                break
            logits = model(x[:, :end], seen[:end, :end])[0, begin:end] / told["temperature"]
            if told["top_k"]:
                logits[logits < torch.topk(logits, told["top_k"])[0][:, -1:]] = -math.inf
            if told["top_p"] < 1:
                values, order = torch.sort(logits, descending=True)
                sums = functional.softmax(values, -1).cumsum(-1)
                for row in range(size):
                    logits[row, order[row, 1 + int((sums[row] <= told["top_p"]).sum()) :]] = -math.inf
            p = functional.softmax(logits, -1)
            x0 = torch.multinomial(p, 1)[:, 0]
            sure = torch.where(hidden, p[torch.arange(size), x0], -math.inf)
            if told["remasking_strategy"] == "sequential":
                first = int(hidden.nonzero()[0])
                places = list(range(first, min(first + count, size)))
            else:
                places = torch.topk(sure, count)[1].tolist()
                high = (sure > told["confidence_threshold"]).nonzero()[:, 0].tolist()
                if told["remasking_strategy"] == "low_confidence_dynamic" and len(high) >= count:
                    places = high
            for place in places:
                x[0, begin + place] = x0[place]
        if any(stop in x[0, given:].tolist() for stop in stops):
            return x[:, :end]
    return x


def _sampled(logits: Tensor, alg: str, told: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Tokens and how certain they are."""
    lowest = torch.finfo(logits.dtype).min
    if told["temperature"] > 0:
        logits = logits / told["temperature"]
    if told["top_p"] is not None and told["top_p"] < 1:
        values, order = torch.sort(logits, descending=True)
        sums = functional.softmax(values, -1).cumsum(-1)
        for row in range(len(logits)):
            stays = 1 + int((sums[row] <= told["top_p"]).sum())  # the first above the sum stays
            logits[row, order[row, stays:]] = lowest
    if told["top_k"] is not None:
        least = torch.topk(logits, min(told["top_k"], logits.shape[-1]))[0][..., -1, None]
        logits = torch.where(logits < least, lowest, logits)
    p = functional.softmax(logits, -1)
    confidence, x0 = p.max(-1)
    if told["temperature"] > 0 and len(p):
        x0 = torch.distributions.Categorical(probs=p).sample()
        confidence = p[torch.arange(len(p)), x0]
    if alg == "topk_margin":
        two = torch.topk(p, 2)[0]
        confidence = two[:, 0] - two[:, 1]
    if alg == "entropy":
        confidence = (p * torch.log(p + 1e-10)).sum(-1)
    return confidence, x0


def diffusion_gemma(place: Path, **told: Any) -> Any:
    """DiffusionGemma with a layer of each kind, a window of 8 tokens and canvases of 6.

    Args:
        place: the folder.
        told: further fields of the text's configuration.
    """
    import transformers

    text = {
        "vocab_size": _WORDS, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "global_head_dim": 16,
        "num_global_key_value_heads": 1, "max_position_embeddings": 256, "sliding_window": 8, "num_experts": 2,
        "layer_types": ["sliding_attention", "full_attention"], "top_k_experts": 1, "moe_intermediate_size": 16,
        "initializer_range": 0.3, "use_bidirectional_attention": "vision", **told,
    }  # fmt: skip
    vision = {
        "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2,
        "num_key_value_heads": 2, "head_dim": 8, "patch_size": 4, "position_embedding_size": 16,
        "pooling_kernel_size": 2,
    }  # fmt: skip
    torch.manual_seed(0)
    config = transformers.DiffusionGemmaConfig(text_config=text, vision_config=vision, canvas_length=6)
    model = transformers.DiffusionGemmaForBlockDiffusion(config).eval()
    for number, layer in enumerate((*model.model.decoder.layers, *model.model.encoder.language_model.layers)):
        layer.layer_scalar.fill_(0.6 + 0.1 * number)
    model.save_pretrained(place)
    write_tokenizer(place, is_whole=True)
    return model


GEMMA_GENERATION: dict[str, Any] = {
    "eos_token_id": [1, END], "pad_token_id": 0, "max_denoising_steps": 8, "confidence_threshold": 0.3,
    "sampler_config": {"_cls_name": "EntropyBoundSamplerConfig", "entropy_bound": 0.7},
}  # fmt: skip
"""`generation_config.json` of DiffusionGemma, with other numbers than the defaults."""
