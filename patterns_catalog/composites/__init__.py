"""Composites: the ops that the Core AI compiler knows by name, and the patterns that find them in models."""

from patterns_catalog.composites import (
    activation,
    attention,
    attention_recovery,
    expert_loops,
    experts,
    gated_delta,
    gated_delta_recovery,
    norm_recovery,
    normalization,
    pooling,
    rope,
    shuffle,
    vector_norm,
)

FAMILIES = (
    activation,
    attention,
    attention_recovery,
    expert_loops,
    experts,
    gated_delta,
    gated_delta_recovery,
    norm_recovery,
    normalization,
    pooling,
    rope,
    shuffle,
    vector_norm,
)
