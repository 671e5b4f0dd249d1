"""The architectures on which recovery of composites is measured.

Unmodified classes of transformers, torchvision and PyTorch, in small configurations in which every kind of layer is
there, with seeded random weights. Those of transformers come with both of its attentions: `sdpa` calls PyTorch's fused
function, `eager` writes it out. `build(name, attention)` makes one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from patcomp import get_decomp_table
from tests.networks.blocks import EDSR, DiffusionBlock, StyleNet
from tests.networks.zoo import ESPCN, Example

LENGTH = 12
"""Tokens in a sequence."""
VOCABULARY = 99


class Model(nn.Module):
    """A model of transformers as export takes it: tensors in by position, one tensor out."""

    def __init__(self, model: nn.Module, inputs: tuple[str, ...], output: str):
        super().__init__()
        self.model, self.inputs, self.output = model, inputs, output

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        return getattr(self.model(**dict(zip(self.inputs, tensors, strict=True))), self.output)


def randomized(model: nn.Module) -> nn.Module:
    """Eval mode, with weights away from their trivial initial values and outputs of order one."""
    for name, parameter in model.named_parameters():
        if not parameter.numel():
            continue
        if re.search(r"norm\w*\.weight$|layernorm\w*\.weight$|\.ln_\w+\.weight$", name, re.IGNORECASE):
            parameter.data.uniform_(0.5, 1.5)
        elif parameter.dim() < 2:
            parameter.data.normal_(0, 0.2)
        elif "embed" in name or re.search(r"\.(wte|wpe|shared)\.", name):
            parameter.data.normal_(0, 0.5)
        else:
            fan_in = parameter[0].numel() if parameter.dim() != 3 or "conv" in name else parameter.shape[-1]
            parameter.data.normal_(0, max(fan_in, 8) ** -0.5)
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.running_mean.normal_(0, 0.2)
            module.running_var.uniform_(0.5, 1.5)
        elif isinstance(module, nn.modules.normalization.LayerNorm | nn.GroupNorm) and module.weight is not None:
            module.weight.data.uniform_(0.5, 1.5)
    return model.eval()


def _tokens(length: int = LENGTH) -> torch.Tensor:
    return torch.randint(3, VOCABULARY, (1, length))


def _padded() -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens, and a mask that hides the last three of them."""
    mask = torch.ones(1, LENGTH, dtype=torch.int64)
    mask[0, -3:] = 0
    return _tokens(), mask


def _transformers(name: str, config: str, **settings: Any) -> nn.Module:
    """A model of transformers by class name, with random weights."""
    import transformers

    return randomized(getattr(transformers, name)(getattr(transformers, config)(**settings)))


# ---- encoders of text ------------------------------------------------------------------------------


def _encoder(name: str, **settings: Any) -> Callable[[str], Example]:
    def build(attention: str) -> Example:
        common: dict[str, Any] = {
            "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
            "max_position_embeddings": 32,
        }  # fmt: skip
        model = _transformers(
            f"{name}Model",
            f"{name}Config",
            vocab_size=VOCABULARY,
            attn_implementation=attention,
            **(settings or common),
        )
        return Example(Model(model, ("input_ids", "attention_mask"), "last_hidden_state"), _padded())

    return build


_DEBERTA = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "max_position_embeddings": 32, "relative_attention": True, "position_buckets": 8, "norm_rel_ebd": "layer_norm",
    "share_att_key": True, "pos_att_type": ["p2c", "c2p"], "type_vocab_size": 0, "conv_kernel_size": 3,
}  # fmt: skip

# ---- decoders of text ------------------------------------------------------------------------------

_LLAMA = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 64, "max_position_embeddings": 64,
}  # fmt: skip
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}


def _decoder(name: str, **settings: Any) -> Callable[[str], Example]:
    """A language model that makes logits of a sequence, without a cache."""

    def build(attention: str) -> Example:
        class_ = f"{name}LMHeadModel" if name == "GPT2" else f"{name}ForCausalLM"
        config = "Gemma3TextConfig" if name == "Gemma3" else f"{name}Config"
        model = _transformers(
            class_, config, vocab_size=VOCABULARY, use_cache=False, pad_token_id=0, attn_implementation=attention,
            **settings,
        )  # fmt: skip
        return Example(Model(model, ("input_ids",), "logits"), (_tokens(),))

    return build


# ---- encoder-decoders, speech ----------------------------------------------------------------------


def _t5(part: str) -> Callable[[str], Example]:
    def build(attention: str) -> Example:
        settings = {
            "vocab_size": VOCABULARY, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4,
            "feed_forward_proj": "gated-gelu", "use_cache": False, "attn_implementation": attention,
        }  # fmt: skip
        if part == "encoder":
            model = _transformers("T5EncoderModel", "T5Config", **settings)
            return Example(Model(model, ("input_ids",), "last_hidden_state"), (_tokens(),))
        model = _transformers("T5Model", "T5Config", **settings)
        return Example(Model(model, ("input_ids", "decoder_input_ids"), "last_hidden_state"), (_tokens(), _tokens(7)))

    return build


def _bart(attention: str) -> Example:
    model = _transformers(
        "BartModel", "BartConfig", vocab_size=VOCABULARY, d_model=32, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64,
        max_position_embeddings=32, use_cache=False, attn_implementation=attention,
    )  # fmt: skip
    return Example(Model(model, ("input_ids", "decoder_input_ids"), "last_hidden_state"), (_tokens(), _tokens(7)))


def _whisper(part: str) -> Callable[[str], Example]:
    def build(attention: str) -> Example:
        model: Any = _transformers(
            "WhisperModel", "WhisperConfig", vocab_size=VOCABULARY, d_model=32, encoder_layers=2, decoder_layers=2,
            encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64,
            num_mel_bins=16, max_source_positions=20, max_target_positions=24, use_cache=False, pad_token_id=0,
            bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, attn_implementation=attention,
        )  # fmt: skip
        if part == "encoder":
            features = torch.randn(1, 16, 40)
            return Example(Model(model.encoder, ("input_features",), "last_hidden_state"), (features,))
        inputs = (_tokens(7), torch.randn(1, 20, 32))
        return Example(Model(model.decoder, ("input_ids", "encoder_hidden_states"), "last_hidden_state"), inputs)

    return build


def _wav2vec2(attention: str) -> Example:
    model = _transformers(
        "Wav2Vec2Model", "Wav2Vec2Config", hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, conv_dim=(16, 16, 16), conv_stride=(5, 2, 2), conv_kernel=(10, 3, 3),
        num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, attn_implementation=attention,
    )  # fmt: skip
    return Example(Model(model, ("input_values",), "last_hidden_state"), (torch.randn(1, 400),))


# ---- images ----------------------------------------------------------------------------------------

_TOWER = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}


def _image_encoder(name: str, output: str = "last_hidden_state", **settings: Any) -> Callable[[str], Example]:
    def build(attention: str) -> Example:
        class_ = f"{name}ForSemanticSegmentation" if name == "Segformer" else f"{name}Model"
        model = _transformers(class_, f"{name}Config", attn_implementation=attention or None, **settings)
        return Example(Model(model, ("pixel_values",), output), (torch.randn(1, 3, 32, 32),))

    return build


def _text_and_image(name: str) -> Callable[[str], Example]:
    def build(attention: str) -> Example:
        text = {**_TOWER, "vocab_size": VOCABULARY, "max_position_embeddings": LENGTH, "eos_token_id": 2}
        image = {**_TOWER, "image_size": 32, "patch_size": 8}
        projection = {"projection_dim": 16} if name == "CLIP" else {}
        model = _transformers(
            f"{name}Model", f"{name}Config", text_config=text, vision_config=image, attn_implementation=attention,
            **projection,
        )  # fmt: skip
        inputs = (torch.randint(3, VOCABULARY, (2, LENGTH)), torch.randn(2, 3, 32, 32))
        return Example(Model(model, ("input_ids", "pixel_values"), "logits_per_image"), inputs)

    return build


# ---- networks of PyTorch ---------------------------------------------------------------------------


def _transformer_encoder(attention: str) -> Example:
    layer = nn.TransformerEncoderLayer(32, 4, 64, activation="gelu", batch_first=True, norm_first=True)
    model = randomized(nn.TransformerEncoder(layer, 2, nn.LayerNorm(32), enable_nested_tensor=False))
    return Example(model, (torch.randn(2, LENGTH, 32),))


def _diffusion_block(attention: str) -> Example:
    inputs = (torch.randn(1, 4, 8, 8), torch.tensor([17.0]), torch.randn(1, 5, 24))
    return Example(randomized(DiffusionBlock(attention)), inputs)


@dataclass(frozen=True)
class Architecture:
    """How to build one, and the attention implementations that it has."""

    make: Callable[[str], Example]
    attentions: tuple[str, ...] = ("sdpa", "eager")


ARCHITECTURES: dict[str, Architecture] = {
    "bert": Architecture(_encoder("Bert")),
    "roberta": Architecture(_encoder("Roberta")),
    "distilbert": Architecture(
        _encoder("DistilBert", dim=32, n_layers=2, n_heads=4, hidden_dim=64, max_position_embeddings=32)
    ),
    "deberta_v2": Architecture(_encoder("DebertaV2", **_DEBERTA), ("eager",)),
    "gpt2": Architecture(_decoder("GPT2", n_embd=32, n_layer=2, n_head=4, n_positions=32)),
    "gpt_neox": Architecture(
        _decoder(
            "GPTNeoX", hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
            rotary_pct=0.25, max_position_embeddings=64,
        )
    ),
    "opt": Architecture(
        _decoder(
            "OPT", hidden_size=32, num_hidden_layers=2, num_attention_heads=4, ffn_dim=64, word_embed_proj_dim=32,
            max_position_embeddings=64,
        )
    ),
    "bloom": Architecture(_decoder("Bloom", hidden_size=32, n_layer=2, n_head=4), ("eager",)),
    "llama": Architecture(_decoder("Llama", **_LLAMA)),
    "mistral": Architecture(_decoder("Mistral", **_LLAMA, sliding_window=5)),
    "qwen2": Architecture(_decoder("Qwen2", **_LLAMA)),
    "qwen3": Architecture(_decoder("Qwen3", **_LLAMA, head_dim=8)),
    "gemma2": Architecture(
        _decoder("Gemma2", **_LLAMA, head_dim=8, sliding_window=5, query_pre_attn_scalar=8), ("eager",)
    ),
    "gemma3": Architecture(
        _decoder(
            "Gemma3", **_LLAMA, head_dim=8, sliding_window=5, query_pre_attn_scalar=8,
            layer_types=["sliding_attention", "full_attention"],
        )
    ),
    "phi3": Architecture(_decoder("Phi3", **_LLAMA)),
    "olmo2": Architecture(_decoder("Olmo2", **_LLAMA)),
    "cohere2": Architecture(_decoder("Cohere2", **_LLAMA, sliding_window=5)),
    "ernie4_5": Architecture(_decoder("Ernie4_5", **_LLAMA)),
    "glm4": Architecture(_decoder("Glm4", **_LLAMA, head_dim=8)),
    "gptj": Architecture(_decoder("GPTJ", n_embd=32, n_layer=2, n_head=4, rotary_dim=4, n_positions=64), ("eager",)),
    "nanochat": Architecture(_decoder("NanoChat", **_LLAMA)),
    "deepseek_v3": Architecture(
        _decoder(
            "DeepseekV3", **_LLAMA | {"num_key_value_heads": 4}, q_lora_rank=16, kv_lora_rank=16, qk_rope_head_dim=8,
            qk_nope_head_dim=8, v_head_dim=8, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=24,
            n_group=2, topk_group=1, first_k_dense_replace=1, experts_implementation="batched_mm",
        )
    ),
    "mixtral": Architecture(
        _decoder("Mixtral", **_LLAMA, num_local_experts=4, num_experts_per_tok=2, experts_implementation="batched_mm")
    ),
    "qwen3_moe": Architecture(
        _decoder("Qwen3Moe", **_LLAMA, **_EXPERTS, head_dim=8, experts_implementation="batched_mm")
    ),
    "gpt_oss": Architecture(
        _decoder(
            "GptOss", **_LLAMA, head_dim=8, sliding_window=5, num_local_experts=4, num_experts_per_tok=2
        ),
        ("eager",),
    ),
    "qwen3_next": Architecture(
        _decoder(
            "Qwen3Next", **_LLAMA, **_EXPERTS, head_dim=8, shared_expert_intermediate_size=24, linear_key_head_dim=8,
            linear_value_head_dim=8, linear_num_key_heads=2, linear_num_value_heads=4,
            layer_types=["linear_attention", "full_attention"], experts_implementation="batched_mm",
        )
    ),
    "t5_encoder": Architecture(_t5("encoder")),
    "t5": Architecture(_t5("both")),
    "bart": Architecture(_bart),
    "whisper_encoder": Architecture(_whisper("encoder")),
    "whisper_decoder": Architecture(_whisper("decoder")),
    "wav2vec2": Architecture(_wav2vec2),
    "clip": Architecture(_text_and_image("CLIP")),
    "siglip": Architecture(_text_and_image("Siglip")),
    "vit": Architecture(_image_encoder("ViT", **_TOWER, image_size=32, patch_size=8)),
    "dinov2": Architecture(
        _image_encoder(
            "Dinov2", hidden_size=32, num_hidden_layers=2, num_attention_heads=4, image_size=28, patch_size=8,
        )
    ),
    "swin": Architecture(
        _image_encoder(
            "Swin", image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4,
        )
    ),
    "segformer": Architecture(
        _image_encoder(
            "Segformer", "logits", depths=[1, 1, 1, 1], hidden_sizes=[8, 16, 24, 32], decoder_hidden_size=24,
            num_labels=5,
        )
    ),
    "convnext": Architecture(
        _image_encoder("ConvNext", "pooler_output", hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 2, 1]), ("",)
    ),
    "edsr": Architecture(lambda attention: Example(randomized(EDSR()), (torch.rand(1, 3, 12, 12),)), ("",)),
    "espcn": Architecture(lambda attention: Example(randomized(ESPCN()), (torch.rand(1, 1, 16, 16),)), ("",)),
    "style_net": Architecture(lambda attention: Example(randomized(StyleNet()), (torch.rand(1, 3, 16, 16),)), ("",)),
    "diffusion_block": Architecture(_diffusion_block),
    "transformer_encoder": Architecture(_transformer_encoder, ("",)),
}  # fmt: skip

VARIANTS = tuple((name, attention) for name, made in ARCHITECTURES.items() for attention in made.attentions)
"""Every architecture with every attention that it has."""


def build(name: str, attention: str) -> Example:
    """An architecture with seeded weights and inputs."""
    torch.manual_seed(0)
    return ARCHITECTURES[name].make(attention)


FORMS = ("patcomp's table", "PyTorch's table", "not decomposed")
"""What a program may be decomposed with before it is converted."""


def export(example: Example, form: str = FORMS[0]) -> torch.export.ExportedProgram:
    """The exported program in one of `FORMS`."""
    exported = torch.export.export(example.model, example.args)
    if form == "not decomposed":
        return exported
    return exported.run_decompositions(get_decomp_table() if form == "patcomp's table" else None)
