"""The contract of a language model bundle with Apple's Swift package: names, sizes, and what its engines take."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from patcomp_models.bundle_folders.revisions import NEW, OLD

LANGUAGE, VISION = "llm", "vlm"
"""The kinds of bundles."""
EMBEDDING, TOWER = "embedding", "vision"
"""The roles of the further assets of a bundle with vision."""
TOKENS, POSITIONS, LOGITS, HIDDEN = "input_ids", "position_ids", "logits", "hidden"
PIXELS, FEATURES, EMBEDDINGS, EMBEDDED = "pixel_values", "image_features", "embeddings", "inputs_embeds"
PER_LAYER, FIRST_TOKENS = "per_layer_embeddings", "first_tokens"
"""The inputs and outputs, and a key of `metadata.json`."""
TABLE_FILE = "per_layer_embeddings.safetensors"
OVERRIDES, SLIDING_WINDOW, AUXILIARY = "overrides", "sliding_window", "auxiliary_assets"
"""Of `metadata.json`: what the block `language` says of a model's windows, and files beside the assets by role."""
"""The table of embeddings that are an input."""
MAIN, PREFILL, VERIFY, DRAFT = "main", "prefill", "verify", "draft"
"""The functions. Apple's engines call `main` only. Of several heads that foresee tokens, `draft2` is the second's."""
KEY_CACHE, VALUE_CACHE, CONVOLUTION, RECURRENCE = "keyCache", "valueCache", "convState", "recState"
WINDOW_KEYS, WINDOW_VALUES = "slidingKeys", "slidingValues"
INDEX_CACHE = "indexCache"
"""The names of states. A second state of a kind has the number 2 behind its name.

Those of windows have no "cache" and no "kv" in them: Apple's engines would go back in them by counting, and a window
does not have the tokens before it any more.
"""
_MOST_STATES = {LANGUAGE: 4, VISION: 2}

ONE_TOKEN = "main takes one token in each call, so Apple's engines run it with COREAI_CHUNK_THRESHOLD=1 only"
"""A note about bundles with `prefill`."""

HEADLESS = (
    "Apple's engines of revision 34ab73d run a prompt by prefill, which must take what main takes, keep the states of "
    "main, and return nothing; this prefill {found}"
)
"""A problem of bundles with `prefill` (`loadPrefillGraph` of coreai-models)."""

OUTSIDE = "each call takes per-layer embeddings as an input, which Apple's engines do not give"
"""A note about bundles with embeddings outside of the asset."""

ON_IPHONES = (
    "behind 1024 tokens Apple's engines give a growing cache 2048 places or more, with which an iPhone wrote wrong "
    "tokens (iOS 27 beta 24A5380h; https://github.com/apple/coreai-models/issues/124, open); for iPhones pass "
    "max_context=1024, or target='neural_engine', or try the bundle on the device"
)
"""A note about bundles of growing caches for more than `MOST_ON_IPHONES` tokens."""
MOST_ON_IPHONES = 1024

AT_RUN_TIME = (
    "each call writes to the caches at an index that only a run knows, on which the first betas of iOS 27 and macOS 27 "
    "aborted (https://github.com/apple/coreai-models/issues/5, closed) and the compiler of the Neural Engine did, too "
    "(https://github.com/apple/coreai-torch/issues/6, open); try the bundle on the device"
)
"""A note about bundles for the Neural Engine."""

STOPS = "stop_token_ids"
"""A key of `language` in `metadata.json`: the tokens that end what the model writes."""
BATCH = "batch"
"""A key of `language` in `metadata.json`: how many texts each call takes, if it is not one."""
SEVERAL_TEXTS = "each call takes {count} texts, and Apple's engines give one"
"""A note about such bundles."""
ADAPTERS = "adapters"
"""A key of `language` in `metadata.json`: the function of each adapter, by the adapter's name."""
STATE_KINDS = "states"
"""A key of `language` in `metadata.json`: what each state is. Engines that know no such key guess it from sizes and
names."""

FIRST_LENGTH = "first_rotary_length"
"""A key of `language` in `metadata.json`: behind so many tokens the rotary embedding is another (`rotary`)."""

CAPACITY = 256
"""How many tokens the first cache holds; it is doubled as needed."""


def draft_names(count: int) -> list[str]:
    """The functions of so many drafts."""
    return [DRAFT, *(f"{DRAFT}{number}" for number in range(2, count + 1))][:count]


def drafts_in(functions: Sequence[str]) -> list[str]:
    """The functions of drafts in an asset, in order."""
    found = [name for name in functions if re.fullmatch(rf"{DRAFT}\d*", name)]
    return sorted(found, key=lambda name: int(name.removeprefix(DRAFT) or 1))


@dataclass(frozen=True)
class Engine:
    """How the engines of a revision find what they give a function.

    Attributes:
        inputs: the names of each input, by its own name here; without other names, they count on the order.
        headless: whether `prefill` only fills the states.
        state_kinds: whether they read what `metadata.json` says of each state.
        fixed: how an app chooses the engine that takes states of fixed sizes only; empty if there is none.
    """

    inputs: Mapping[str, Sequence[str]]
    headless: bool
    state_kinds: bool
    fixed: str = ""


ENGINES: Mapping[str, Engine] = {
    OLD: Engine({}, headless=False, state_kinds=False),
    NEW: Engine(  # InputLayout.swift and StateHandlerFactory.swift, 34ab73d; CoreAISequentialEngine.swift, 12eb94b
        {TOKENS: (TOKENS, "in_new_token_ids"), POSITIONS: (POSITIONS, "pos_ids")},
        headless=True,
        state_kinds=True,
        fixed='run the bundle with EngineOptions(variant: "coreai-sequential"), or with Bundle.generate',
    ),
}
"""The engines for functions of open sizes, by the revision of Apple's package."""


def engine_refusal(grows: Sequence[bool], kind: str = LANGUAGE) -> str:
    """Why Apple's engines do not take a model with such states; empty if they do.

    Args:
        grows: for each state, in order, whether it has an open size.
        kind: of the bundle.
    """
    most = _MOST_STATES[kind]
    if len(grows) > most:
        beside = " beside an image" if kind == VISION else ""
        return f"Apple's engines take {most} states at most{beside}, and this model keeps {len(grows)}"
    if grows[:2] != [True, True]:
        return "Apple's engines take growing caches of keys and of values as the first two states; this model has none"
    return ""
