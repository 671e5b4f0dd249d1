"""RWKV-7 (Peng et al. 2025, arXiv:2503.14456), for which transformers has no type: a model of the weights that
flash-linear-attention saves (`model_type: rwkv7`). Code of a checkpoint is not run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoConfig, AutoModelForCausalLM, GenerationMixin, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

from patcomp_models.checkpoints.told import Told
from patcomp_models.errors import LanguageModelError
from patcomp_models.language.contract import CONVOLUTION, RECURRENCE
from patcomp_models.language.conventions import CACHE
from patcomp_models.language.layers import FixedLayer
from patcomp_models.language.recurrences import generalised_delta_step

_LARGEST_DECAY = -0.6065306597126334
"""The most that the logarithm of a decay is below zero: exp(-1/2)."""
_RANKS = ("decay_low_rank_dim", "a_low_rank_dim", "v_low_rank_dim", "gate_low_rank_dim")


class RWKV7Config(PreTrainedConfig):
    """The fields of a checkpoint that change numbers."""

    model_type = "rwkv7"

    vocab_size: int = 65536
    hidden_size: int = 768
    intermediate_size: int = 3072
    num_hidden_layers: int = 12
    head_dim: int = 64
    decay_low_rank_dim: int = 64
    a_low_rank_dim: int = 64
    v_low_rank_dim: int = 32
    gate_low_rank_dim: int = 128
    max_position_embeddings: int = 2048
    norm_first: bool = True
    norm_bias: bool = True
    norm_eps: float = 1e-5
    fuse_norm: bool = False
    initializer_range: float = 0.02
    tie_word_embeddings: bool = False
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    pad_token_id: int | None = None

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """A configuration from the content of a `config.json`.

        Raises:
            BundleError: a field is missing, is not known, or has a value with which the model computes something else.
        """
        return super().from_dict(_settings(config_dict), **kwargs)


def _settings(content: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a checkpoint, each of which is taken, or changes no numbers outside of a training, or is checked.
    Fields whose default differs between versions of flash-linear-attention must be there."""
    if (named := content.get("architectures")) not in (None, ["RWKV7ForCausalLM"]):
        raise LanguageModelError(f"architectures of 'config.json' is {named!r}, and only RWKV7ForCausalLM is known")
    told = Told(Path("config.json"), content)
    needed = ("vocab_size", "hidden_size", "num_hidden_layers", "fuse_norm", *_RANKS)
    for name in needed:
        told.need(name)
    sizes = {name: told.take(name, None) for name in needed}
    width, layers = sizes["hidden_size"], sizes["num_hidden_layers"]
    ratio, inner = told.take("hidden_ratio", 4), told.take("intermediate_size", None)
    heads, size = told.take("num_heads", None), told.take("head_dim", 64)
    for name, each in {**sizes, "head_dim": 1 if size is None else size, "num_heads": heads or 1}.items():
        if name != "fuse_norm" and (type(each) is not int or each < 1):
            raise LanguageModelError(f"{name} of 'config.json' is {each!r}, and must be a number of at least 1")
    if size is None and heads is None:
        raise LanguageModelError("'config.json' has neither head_dim nor num_heads")
    size = width // heads if size is None else size
    if width % size:
        raise LanguageModelError(f"hidden_size of 'config.json' is {width}, and heads have {size} each")
    told.must("value_dim", None, None, width, [width] * layers)
    told.must("attn", None, None)
    told.must("hidden_act", "sqrelu", "sqrelu")
    told.must("attn_mode", "chunk", "chunk", "fused_recurrent")
    told.ignore("fuse_cross_entropy", "fuse_linear_cross_entropy", "use_l2warp")
    settings = {
        **sizes,
        "intermediate_size": -(-int(width * (4 if ratio is None else ratio)) // 32) * 32 if inner is None else inner,
        "head_dim": size,  # a number of heads beside it is not read
        "max_position_embeddings": told.take("max_position_embeddings", 2048),
        **{name: told.take(name, True) for name in ("norm_first", "norm_bias")},
        "norm_eps": told.take("norm_eps", 1e-5), "initializer_range": told.take("initializer_range", 0.02),
        "tie_word_embeddings": told.take("tie_word_embeddings", False),
    }  # fmt: skip
    told.ignore("name_or_path")
    told.check("RWKV7ForCausalLM")
    names = ("architectures", "dtype", "torch_dtype", "bos_token_id", "eos_token_id", "pad_token_id")
    return settings | {name: content[name] for name in names if name in content}


class _LowRank(nn.Module):
    """A product of two matrices, with a function between them."""

    def __init__(self, width: int, rank: int, between: nn.Module, *, bias: bool = True):
        super().__init__()
        self.lora = nn.Sequential(nn.Linear(width, rank, bias=False), between, nn.Linear(rank, width, bias=bias))

    def forward(self, x: Tensor) -> Tensor:
        return self.lora(x)  # type: ignore[no-any-return]


def _shifted(x: Tensor, layer: FixedLayer | None, number: int) -> Tensor:
    """What was in front of each token, minus the token, (1, q, width); the layer keeps the last token."""
    before = torch.zeros_like(x[:, 0]) if layer is None else layer.held(CONVOLUTION, number).to(x.dtype)
    both = torch.cat([before[:, None], x], 1)
    if layer is not None:
        layer.hold(CONVOLUTION, number, x[:, -1])
    return both.narrow(1, 0, x.shape[1]) - x


def rwkv7_recurrence(state: Tensor, *sequences: Tensor) -> tuple[Tensor, Tensor]:
    """The last state, and the outputs of a number of tokens that is known.

    Args:
        state: (1, heads, values, keys).
        sequences: what `generalised_delta_step` takes, (q, 1, heads, size) each.

    Returns:
        The state, and (q, 1, heads, values).
    """
    outputs = []
    for each in zip(*sequences, strict=True):
        state, output = generalised_delta_step(state, *each)
        outputs.append(output)
    return state, torch.stack(outputs)


class _Attention(nn.Module):
    r_proj: nn.Linear
    k_proj: nn.Linear
    v_proj: nn.Linear
    o_proj: nn.Linear

    def __init__(self, config: RWKV7Config, number: int):
        super().__init__()
        width, self.size = config.hidden_size, config.head_dim
        self.heads, self.is_fused = width // self.size, config.fuse_norm
        for name in "rwkvag":
            setattr(self, f"x_{name}", nn.Parameter(torch.zeros(1, 1, width)))
        self.k_k, self.k_a = nn.Parameter(torch.zeros(width)), nn.Parameter(torch.zeros(width))
        self.r_k = nn.Parameter(torch.zeros(self.heads, self.size))
        for name in "rkvo":
            setattr(self, f"{name}_proj", nn.Linear(width, width, bias=False))
        self.w_lora = _LowRank(width, config.decay_low_rank_dim, nn.Tanh())
        self.v_lora = _LowRank(width, config.v_low_rank_dim, nn.Identity()) if number else None
        self.a_lora = _LowRank(width, config.a_low_rank_dim, nn.Identity())
        self.g_lora = _LowRank(width, config.gate_low_rank_dim, nn.Sigmoid(), bias=False)
        self.g_norm = nn.GroupNorm(self.heads, width, eps=self.size * config.norm_eps)

    def forward(self, x: Tensor, first: Tensor | None, layer: FixedLayer | None) -> tuple[Tensor, Tensor]:
        """The output, and the values of the first layer, which the others mix with theirs."""
        delta = _shifted(x, layer, 0)
        r, w, k, v, a, g = (x + delta * getattr(self, f"x_{name}") for name in "rwkvag")
        r, k, decay = self.r_proj(r), self.k_proj(k), _LARGEST_DECAY * self.w_lora(w).sigmoid()
        value = self.v_proj(v)
        if self.v_lora is not None:
            assert first is not None
            value = value + (first - value) * self.v_lora(v).sigmoid()
        a, g = self.a_lora(a).sigmoid(), self.g_lora(g)
        removed = self._by_heads(k * self.k_k).float()
        # the fused norm adds its epsilon to the square, and PyTorch's is the least length
        length = (removed.square().sum(-1, keepdim=True) + 1e-6).sqrt() if self.is_fused else None
        removed = functional.normalize(removed, dim=-1) if length is None else removed / length
        k = k + k * (a - 1) * self.k_a
        r, k, heads = self._by_heads(r), self._by_heads(k), self._by_heads(value)
        sequences = [r, self._by_heads(decay).float().exp(), k, heads, removed, removed * self._by_heads(a).float()]
        state = x.new_zeros(1, self.heads, self.size, self.size) if layer is None else layer.held(RECURRENCE, 0)
        state, outputs = rwkv7_recurrence(state.float(), *(each.float().transpose(0, 1) for each in sequences))
        if layer is not None:
            layer.hold(RECURRENCE, 0, state)
        mixed = self.g_norm(outputs.to(x.dtype).reshape(-1, x.shape[2])).reshape(x.shape)
        own = (r * k * self.r_k).sum(-1, keepdim=True) * heads
        return self.o_proj((mixed + own.reshape(x.shape)) * g), value if first is None else first

    def _by_heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, self.size))


class _FeedForward(nn.Module):
    def __init__(self, config: RWKV7Config):
        super().__init__()
        self.x_k = nn.Parameter(torch.zeros(config.hidden_size))
        self.key = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.value = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor, layer: FixedLayer | None) -> Tensor:
        return self.value(self.key(x + _shifted(x, layer, 1) * self.x_k).relu().square())  # type: ignore[no-any-return]


class _Block(nn.Module):
    def __init__(self, config: RWKV7Config, number: int):
        super().__init__()
        self.pre_norm = _norm(config) if config.norm_first and not number else nn.Identity()
        self.attn_norm, self.attn = _norm(config), _Attention(config, number)
        self.ffn_norm, self.ffn = _norm(config), _FeedForward(config)


def _norm(config: RWKV7Config) -> nn.LayerNorm:
    return nn.LayerNorm(config.hidden_size, config.norm_eps, bias=config.norm_bias)


class _Model(nn.Module):
    def __init__(self, config: RWKV7Config):
        super().__init__()
        self.embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(_Block(config, number) for number in range(config.num_hidden_layers))
        self.norm = _norm(config)


class RWKV7ForCausalLM(PreTrainedModel, GenerationMixin):
    """RWKV-7 with a head. `generate` reads the whole text for each token."""

    config_class = RWKV7Config
    base_model_prefix = "model"
    _input_embed_layer = "embeddings"
    _tied_weights_keys = {"lm_head.weight": "model.embeddings.weight"}  # noqa: RUF012
    _is_stateful = True

    def __init__(self, config: RWKV7Config):
        super().__init__(config)
        self.model = _Model(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def begun(self) -> list[Any]:
        """The layers of a cache before the first token: the last tokens of both parts of a block, and a matrix."""
        width, size = self.config.hidden_size, self.config.head_dim
        shapes = {(CONVOLUTION, 0): (1, width), (CONVOLUTION, 1): (1, width)}
        return [
            FixedLayer(
                {at: torch.zeros(shape, dtype=self.dtype) for at, shape in shapes.items()}
                | {(RECURRENCE, 0): torch.zeros(1, width // size, size, size)},
                2,
            )
            for _ in self.model.layers
        ]

    def prepare_inputs_for_generation(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        return {"input_ids": input_ids, "attention_mask": attention_mask}

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, **options: Any) -> CausalLMOutput:
        """The logits of tokens.

        Args:
            input_ids: (1, q).
            attention_mask: (1, q), of ones.
            options: among them the cache, by its name in transformers; its layers are those of `begun`.

        Raises:
            LanguageModelError: there are several texts, or a text has padding.
        """
        if input_ids.shape[0] != 1 or (attention_mask is not None and not bool(attention_mask.all())):
            raise LanguageModelError("RWKV-7 reads one text without padding; call it for each text")
        cache = options.get(CACHE)
        x, first = self.model.embeddings(input_ids), None
        block: Any
        for number, block in enumerate(self.model.layers):
            layer = None if cache is None else cache.layers[number]
            x = block.pre_norm(x)
            mixed, first = block.attn(block.attn_norm(x), first, layer)
            x = x + mixed
            x = x + block.ffn(block.ffn_norm(x), layer)
        return CausalLMOutput(logits=self.lm_head(self.model.norm(x)))


AutoConfig.register(RWKV7Config.model_type, RWKV7Config, exist_ok=True)
AutoModelForCausalLM.register(RWKV7Config, RWKV7ForCausalLM, exist_ok=True)
