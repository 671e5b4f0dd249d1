"""Texts by diffusion: the loops of hosts around the asset of a bundle."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from patcomp_models.bundle_folders.contract import PROCESSOR
from patcomp_models.bundle_folders.interfaces import Interfaces
from patcomp_models.bundles.check import check_bundle
from patcomp_models.bundles.speech.folders import tokenizer_of
from patcomp_models.bundles.text_diffusion.loops import loop_of, most_tokens
from patcomp_models.bundles.text_diffusion.runs import RunBlocks, RunCanvases, RunDenoiser
from patcomp_models.checkpoints.json_files import metadata_in
from patcomp_models.checkpoints.tokenizers import tokenizing
from patcomp_models.errors import BundleError
from patcomp_models.language.bundle_assets import opened_asset
from patcomp_models.language.contract import MAIN, STOPS


@dataclass(frozen=True)
class DiffusedText:
    """What was written."""

    tokens: list[int]
    """The new tokens: those behind a token that ends the text, too. The last block is whole."""
    text: str
    """Of the tokens before the first that ends the text."""
    calls: int
    """How often the denoiser was called."""


def generate_text(
    bundle: str | Path, prompt: Sequence[int] | str, max_new_tokens: int = 128, *, seed: int = 0, **settings: Any
) -> DiffusedText:
    """Write a text by diffusion, on this machine's Core AI runtime; for checks, not for speed.

    Args:
        bundle: the folder of a bundle of the kind text_diffusion.
        prompt: token ids; or a text, which the bundle's tokenizer splits. Its mask tokens are filled in, too.
        max_new_tokens: how many tokens to write behind the prompt; a model with a cache writes whole blocks.
        seed: of the random numbers, which are those that the model's own code draws after `torch.manual_seed(seed)`.
        settings: of the loop, in the place of `config.settings` of `metadata.json`: `steps=64`.

    Raises:
        BundleError: the folder is no such bundle; the prompt is empty, too long, or has other tokens; or there is no
            such setting or value.
        MissingToolchainError: coreai-core is not installed.
    """
    if type(seed) is not int:
        raise BundleError(f"seed is {seed!r}, and must be a whole number")
    folder = Path(bundle)
    metadata = metadata_in(folder)
    if (kind := metadata.get("kind")) != "text_diffusion":
        raise BundleError(f"{str(folder)!r} is a bundle of the kind {kind!r}, and not of text_diffusion")
    if wrong := check_bundle(folder):
        raise BundleError(f"{str(folder)!r} cannot be used: {wrong[0].message}")
    config, tokenizer = metadata["config"], tokenizer_of(folder / PROCESSOR)
    loop: Any = loop_of(config["loop"], {**config["settings"], **settings}, "the bundle")
    if isinstance(prompt, str):
        with tokenizing(f"the tokenizer of {str(folder)!r} cannot split the text"):
            prompt = tokenizer(prompt)["input_ids"]
    tokens, most = torch.tensor([[*prompt]]).long(), config["max_context_length"]
    total = most_tokens(loop, config, len(prompt), max_new_tokens)
    if not len(prompt) or max_new_tokens < 1 or total > most:
        raise BundleError(
            f"a prompt of {len(prompt)} tokens and {max_new_tokens} new ones are {total} in whole blocks; the bundle "
            f"takes {most} in all, and at least one of each"
        )
    if tokens.min() < 0 or tokens.max() >= config["vocab_size"]:
        raise BundleError(f"the prompt has tokens that are not from 0 to {config['vocab_size'] - 1}")
    with ExitStack() as opened:
        path = folder / metadata["assets"][MAIN]
        asset = opened_asset(path, opened)
        model: Any = RunDenoiser(asset, config) if config["loop"] in ("blocks", "schedule") else (
            RunBlocks if config["loop"] == "cached_blocks" else RunCanvases
        )(asset, Interfaces.of(path), config, total)  # fmt: skip
        draw = torch.Generator().manual_seed(seed)
        new = loop.written(model, tokens, max_new_tokens, draw)[0, len(prompt) :].tolist()
    end = next((place for place, token in enumerate(new) if token in config[STOPS]), len(new))
    with tokenizing(f"the tokenizer of {str(folder)!r} cannot make a text of tokens"):
        return DiffusedText(new, str(tokenizer.decode(new[:end], skip_special_tokens=True)), model.calls)
