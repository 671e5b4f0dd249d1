"""The contract of the Neural Engine's form with Apple's Swift package: names and sizes."""

EXTEND, PROMPT, GATHER, LOAD = "extend", "prompt_opt", "gather_embeddings", "load_embeddings"
"""The functions; their names end with the sizes: `extend_512_8` takes 8 tokens and a cache of 512."""

STATIC_TOKENS, TABLE, STATIC_EMBEDDINGS, STATIC_LOGITS = (
    "in_new_token_ids",
    "embedding_table",
    "gathered_embeddings",
    "out_logits",
)
TABLE_ROWS = 8
"""How many rows of the table are side by side in memory; it has a multiple of them, with rows of zeros at its end."""
INPUT, STATIC_POSITIONS, IN_STEP, CAUSAL_MASK = "transformer_input", "position_ids", "in_step", "causal_mask"
CACHES = ("key_cache", "value_cache")

SLIDING_CACHES = ("sliding_key_cache", "sliding_value_cache")
SLIDING_STEP, SLIDING_MASK = "sliding_in_step", "sliding_causal_mask"
"""The ring of layers with a sliding window, where a block is written in it, and its mask, from revision 34ab73d of
Apple's package on (StateHandler+Static.swift, 87f9cfc; InputHandler+SlidingWindow.swift, 8ea2538)."""
LAYER_ROWS, LAYER_TABLE, LAYER_ROLE = "ple_embeddings", "embed_tokens_per_layer", "per_layer_embeddings"
"""The int8 rows of per-layer embeddings that the host reads, the tensor of the file of safetensors, and the role of the
file in `auxiliary_assets` (PerLayerEmbeddings.swift, 13b60ae; LanguageModelBundle.swift, 79de95b)."""

FIXED_STATES = ("conv_state", "rec_state")
"""Windows of convolutions and recurrences, layers x 3 x their shape: a row for each size of blocks."""
OWN_HOSTS = "Apple's engines give functions of fixed sizes no states {states}; run the bundle with Bundle.generate"
"""A note about bundles with such states."""

QUERIES = (8, 16, 64)
"""The sizes of blocks of tokens."""

SMALLEST_CONTEXT = 256
"""The smallest cache that has functions of its own."""


def ring_size(window: int) -> int:
    """The places of a ring for a window: whole blocks, none of which overwrites what its first token sees."""
    return -(-(window + QUERIES[-1] - 1) // QUERIES[-1]) * QUERIES[-1]


FORBIDDEN = -40000.0
"""What the mask adds to the score of a key that a query must not see."""
