"""The architectures of language models that are tested. The model of transformers is exported as it is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from patcomp_models.errors import LanguageModelError


@dataclass(frozen=True)
class _Architecture:
    """What is known of the models of some `model_type`."""

    has_static_form: bool = False
    """Whether it has a form for the Neural Engine."""


_STATIC = _Architecture(has_static_form=True)

_DYNAMIC = (
    "qwen3_moe", "mixtral", "phi3", "phimoe", "gemma2", "gemma3_text", "gpt_oss", "olmo2", "granite", "smollm3",
    "cohere", "stablelm", "gpt_neox", "gpt2", "opt", "lfm2", "lfm2_moe", "qwen3_5_text", "qwen3_5_moe_text",
    "qwen3_next", "kimi_linear", "mamba", "falcon_mamba", "mamba2", "jamba", "bamba", "falcon_h1",
    "granitemoehybrid", "nemotron_h", "zamba2", "deepseek_v3", "youtu",
    "minicpm3", "glm4_moe_lite", "exaone4", "ernie4_5", "ernie4_5_moe", "hunyuan_v1_dense", "hunyuan_v1_moe",
    "bitnet", "seed_oss", "apertus", "nanochat", "arcee", "olmo3", "ministral3", "cohere2", "glm4_moe",
    "dots1", "afmoe", "granite_swa", "vaultgemma", "phi4_multimodal", "rwkv", "rwkv7", "minimax", "minimax_m2",
    "zaya", "deepseek_v32", "glm_moe_dsa",
)  # fmt: skip

_IN_BLOCKS = (
    "phi3", "gemma2", "gemma3_text", "olmo2", "granite", "smollm3", "cohere", "stablelm", "gpt_neox", "gpt2", "opt",
    "lfm2", "qwen3_5_text", "bamba", "granitemoehybrid", "nemotron_h", "deepseek_v3", "youtu", "minicpm3", "exaone4",
    "ernie4_5", "hunyuan_v1_dense", "bitnet", "seed_oss", "apertus", "nanochat", "arcee", "olmo3", "ministral3",
    "cohere2", "granite_swa", "vaultgemma", "phi4_multimodal", "qwen3_moe", "gpt_oss",
)  # fmt: skip
"""Those of them that have a form for the Neural Engine."""

ARCHITECTURES: dict[str, _Architecture] = {
    **dict.fromkeys(("llama", "qwen2", "qwen3", "mistral", "gemma4_text", "gemma3n_text"), _STATIC),
    **{kind: _STATIC if kind in _IN_BLOCKS else _Architecture() for kind in _DYNAMIC},
}
"""The architectures that are tested, by `model_type`. Any other one is tried, with a warning."""

_BESIDE = "layers keep keys and values beside a recurrence, and a layer of this form has one of the two"
_TOKEN_BY_TOKEN = "its recurrence goes from token to token, and this form needs the states in front of 8 tokens each"
_NO_CACHE = "no layer keeps keys and values, and this form has a cache of them"
NOT_STATIC = {
    **dict.fromkeys(("mamba", "falcon_mamba", "mamba2", "rwkv", "rwkv7", "xlstm"), _NO_CACHE),
    **dict.fromkeys(("falcon_h1", "zaya", "zamba2"), _BESIDE),
    **dict.fromkeys(("jamba", "zamba", "recurrent_gemma"), _TOKEN_BY_TOKEN),
    "openai-gpt": "its attention takes no cache",
    "minimax": "its lightning attention keeps its state in a cache of its own",
    **dict.fromkeys(
        ("deepseek_v32", "glm_moe_dsa", "deepseek_v4", "qwen4_exp_text"),
        "an index chooses the tokens that a layer attends to",
    ),
}
"""The architectures without a form for the Neural Engine, by `model_type`, and why. Any other one is tried."""

NOT_CONVERTED = {
    "git": "its code asks whether tokens came before, and a bundle has one program for the first and all later tokens",
    "prophetnet": "its decoder continues a text by one token a call only, and a bundle takes any number of tokens",
    "diffusion_gemma": "it writes by diffusion, and `patcomp convert FOLDER -o NAME` makes a bundle of another kind",
    "blt": "it reads bytes in patches whose number depends on the bytes",
    **dict.fromkeys(
        ("musicgen", "musicgen_melody", "musicgen_decoder", "musicgen_melody_decoder"),
        "each step foresees a token for each of several codebooks, and a bundle foresees one token",
    ),
    "xlm": "it fills in a mask token behind the text, and each call reads the whole text again",
    "xlnet": "it foresees a token by a second stream of queries, and each call reads the whole text again",
    "reformer": "its attention sorts a text's tokens by random hashes, and each call reads the whole text again",
    "cpmant": "each call reads the whole text again, behind a prompt of its own",
    **dict.fromkeys(
        ("gemma4_assistant", "gemma4_unified_assistant"),
        "it foresees tokens of another model, from whose layers it takes keys and values",
    ),
}
"""The architectures that become no bundle, by `model_type`, and why."""


def check_converted(kind: object) -> None:
    """Check that an architecture may become a bundle.

    Raises:
        LanguageModelError: it is known not to.
    """
    if isinstance(kind, str) and kind in NOT_CONVERTED:
        raise LanguageModelError(
            f"language models of the architecture {kind!r} are not converted: {NOT_CONVERTED[kind]}; a bundle holds "
            "keys and values, windows of convolutions and recurrences"
        )


def check_static_form(kind: str) -> None:
    """Check that an architecture may become functions of fixed sizes.

    Raises:
        LanguageModelError: it is known not to.
    """
    if kind in NOT_STATIC:
        raise LanguageModelError(f"{kind!r} has no form for the Neural Engine: {NOT_STATIC[kind]}")


_SPAN = re.compile(r"(?:^|_)(?:window|chunk|block)(?:_size|_len|_length)?$|^index_topk$|^floor_scale$")
"""Finds settings of a configuration behind whose number of tokens a model computes something else."""


def spans_of(settings: Mapping[str, Any]) -> list[int]:
    """The windows, chunks and switches of a configuration's content, in tokens."""
    return [size for name, size in settings.items() if type(size) is int and size > 0 and _SPAN.search(name)]
