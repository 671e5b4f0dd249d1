"""Folders of models that also speak: the part that sees, hears and writes (the thinker) becomes a bundle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

THINKERS: Mapping[str, tuple[str, str]] = {
    "qwen2_5_omni": ("qwen2_5_omni_thinker", "Qwen2_5OmniThinkerForConditionalGeneration"),
    "qwen3_omni_moe": ("qwen3_omni_moe_thinker", "Qwen3OmniMoeThinkerForConditionalGeneration"),
}
"""By the `model_type` of the whole model: that of the thinker, and its class in transformers."""
NOTE = "the bundle has the thinker of the model, which writes text; the talker, which speaks, is left out"


def is_whole(config: Mapping[str, Any]) -> bool:
    """Whether a configuration is of a thinker and what speaks."""
    return str(config.get("model_type")) in THINKERS
