"""The block `diffusers` of `metadata.json`, which Swift ignores: what diffusers needs to run a bundle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from patcomp_models.bundles.diffusion.variant import PipelineVariant


def record_of(variant: PipelineVariant) -> dict[str, Any]:
    """The classes and configurations of a pipeline, of its scheduler, tokenizers and models."""
    index = variant.index
    return {
        "pipeline": index["_class_name"],
        "settings": {
            name: value for name, value in index.items() if not name.startswith("_") and not isinstance(value, list)
        },
        "scheduler": {"class": index["scheduler"][1], "config": variant.config("scheduler")},
        "tokenizers": {name: index[name][1] for name in variant.tokenizers()},
        "models": {
            part: dict(zip(("library", "class"), variant.class_of(part), strict=True))
            | {"config": variant.config(part)}
            for part in (*variant.parts, *variant.further_parts(index), "vae")
        },
    }
