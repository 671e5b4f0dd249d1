"""What is special about an architecture. Most need nothing: the model of transformers is exported as it is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Architecture:
    """How a model of some `model_type` is exported."""

    attention: str = "sdpa"
    """The implementation of attention in transformers."""
    experts: str | None = None
    """The implementation of experts in transformers; the others cannot be exported, or call an op of its own."""
    has_static_form: bool = False
    """Whether it has a form for the Neural Engine."""
    note: str = ""


_EXPERTS = Architecture(experts="batched_mm")
_STATIC = Architecture(has_static_form=True)

ARCHITECTURES: dict[str, Architecture] = {
    "llama": _STATIC,
    "qwen2": _STATIC,
    "qwen3": _STATIC,
    "qwen3_moe": _EXPERTS,
    "mistral": _STATIC,
    "mixtral": _EXPERTS,
    "phi3": Architecture(),
    "gemma2": Architecture("eager", note="its softcaps are in the written-out attention only"),
    "gemma3_text": Architecture(),
    "gpt_oss": Architecture("eager", "batched_mm", note="its sinks are in the written-out attention only"),
    "olmo2": Architecture(),
    "granite": Architecture(),
    "smollm3": Architecture(),
    "cohere": Architecture(),
    "stablelm": Architecture(),
    "gpt_neox": Architecture(),
    "gpt2": Architecture(),
    "opt": Architecture(),
}
"""The architectures that are tested, by `model_type`. Any other one is tried, with a warning."""
