"""The contract of the Neural Engine's form with Apple's Swift package: names and sizes."""

EXTEND, PROMPT, GATHER, LOAD = "extend", "prompt_opt", "gather_embeddings", "load_embeddings"
"""The functions; their names end with the sizes: `extend_512_8` takes 8 tokens and a cache of 512."""

STATIC_TOKENS, TABLE, STATIC_EMBEDDINGS, STATIC_LOGITS = (
    "in_new_token_ids",
    "embedding_table",
    "gathered_embeddings",
    "out_logits",
)
INPUT, STATIC_POSITIONS, IN_STEP, CAUSAL_MASK = "transformer_input", "position_ids", "in_step", "causal_mask"
EXTEND_INPUTS = (INPUT, STATIC_POSITIONS, IN_STEP, CAUSAL_MASK, TABLE)
CACHES = ("key_cache", "value_cache")

QUERIES = (8, 16, 64)
"""The sizes of blocks of tokens."""

SMALLEST_CONTEXT = 256
"""The smallest cache that has functions of its own."""

FORBIDDEN = -40000.0
"""What the mask adds to the score of a key that a query must not see."""
