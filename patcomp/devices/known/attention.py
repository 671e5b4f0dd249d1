"""Attention, recurrences and the states of decoders."""

from patcomp.devices.constructs import (
    at_computed_place,
    dynamic,
    heads_differ,
    many_batches,
    many_queries,
    many_scores,
    open_state,
    two_with_open_attention,
    wide_heads,
    wide_state,
    written_again,
)
from patcomp.devices.fact import UNITS, Fact, Unit
from patcomp.devices.sources import DOCTOR, PLAYBOOK, core_ml, issue, models, torch, zoo

_GPU: tuple[Unit, ...] = ("gpu",)
_ATTENTION = ("composite scaled_dot_product_attention",)
_ERRORS = zoo("coreai-error-index")
_WRITES = zoo("coreai-beta-mpsgraph-kvwrite-bug")

FACTS = (
    Fact(
        "two head sizes", _GPU, "aborts",
        "attention is refused if queries and values have other head sizes (192 and 128)", (_ERRORS,),
        "macOS 27 beta, August 2026", _ATTENTION, (heads_differ,),
        advice="pad the values with zeros to the size of the queries, and cut the result",
    ),
    Fact(
        "attention of 2^32 scores", _GPU, "wrong", "attention with more than 2^32 scores is corrupted",
        (issue("pytorch/pytorch", 179592),), "MPSGraph, April 2026", _ATTENTION, (many_scores,),
        advice="compute the queries in parts",
    ),
    Fact(
        "attention of ten batches", _GPU, "wrong", "fused attention is wrong for a batch of 10 or more",
        (core_ml(2650),), "macOS 26.2, Core ML", _ATTENTION, (many_batches,),
        quiet="the report is of Core ML, and closed",
    ),
    Fact(
        "attention without a mask", _GPU, "aborts", "loading a program with unmasked attention ends the process",
        (PLAYBOOK,), "macOS 27 betas", about="attention without a mask",
        advice="most programs with it load; if one does not: dissolve the composite with recover=[...]",
    ),
    Fact(
        "causal attention of long prompts", _GPU, "aborts",
        "causal attention of 384 queries is refused when the program is loaded", (_ERRORS,),
        "macOS 27 betas, June to August 2026", _ATTENTION, (many_queries,),
        quiet="one model is known to have it", advice="read the prompt in windows of 16 tokens",
    ),
    Fact(
        "heads of 512", _GPU, "aborts", "16 heads of 512 overflow the scratch memory of a decoder", (models(27),),
        "M2 and M4 Max, macOS 27.0 26A5353q", _ATTENTION, (wide_heads,), healed="a later beta of macOS 27",
    ),
    Fact(
        "prompts of Gemma 4 on iPhones", _GPU, "aborts",
        "more than one token in a call overflows the scratch memory of Gemma 4 E2B", (models(201),),
        "iPhone 17 Pro, iOS 27.0 24A5418b", advice="read the prompt token by token",
    ),
    Fact(
        "two gated delta layers", _GPU, "aborts",
        "two gated delta layers beside attention of a dynamic length end the process at the first call", (torch(2),),
        "M1 Max, macOS 27.0 26A5353q", ("composite gated_delta_update",), (two_with_open_attention,),
        advice="fix the length, or convert the layers as separate programs",
    ),
    Fact(
        "experts on the engine", ("neural_engine",), "aborts", "a program with experts ends the process when it loads",
        (zoo("compute-units-and-authoring"),), "M4 Max, macOS 27 beta", ("composite gather_mm",),
        quiet="it is loaded for the GPU; the Neural Engine does not compute it",
    ),
    Fact(
        "experts that are not chosen", _GPU, "slow", "the products of experts read all experts, not the chosen ones",
        (zoo("compute-units-and-authoring"),), "M4 Max", ("composite gather_mm",),
        advice="a Metal kernel that reads the chosen experts alone was 3.6 times as fast",
    ),
    Fact(
        "loops", _GPU, "aborts", "a loop is refused ('scf.while' region type mismatch)",
        (models(212), _ERRORS, DOCTOR), "macOS 27 betas", ("coreai.while",),
        advice="unroll it, or call a program of one step from the app",
    ),
    Fact(
        "loops on the engine", ("neural_engine",), "falls back", "a loop runs on the CPU", (core_ml(2208),),
        "Core ML, iOS 17", ("coreai.while",),
    ),
    Fact(
        "writes at a computed place", UNITS, "aborts",
        "a write into a state at a place that is computed ends the process at the first call",
        (models(5), _WRITES), "Mac and iPhone 17 Pro, macOS and iOS 27 beta 1", ("coreai.slice_update",),
        (at_computed_place,), healed="macOS 27 beta 4, by Apple's word",
    ),
    Fact(
        "long caches on iPhones", _GPU, "wrong",
        "a cache of dynamic size is wrong on iPhones from the first token, if it is bound at 2,048 tokens or more",
        (models(124),), "iPhone 17 Pro, iOS 27 24A5380h", ("coreai.read_handle",), (open_state,),
        quiet="a program does not say its bound; bundles do, and are noted",
        advice="bind 1,024 tokens at most on iPhones, or give the cache a fixed size",
    ),
    Fact(
        "several writes into a state", _GPU, "wrong",
        "of several writes into one state of fixed size only one is kept", (DOCTOR,), "macOS 27 betas",
        ("coreai.write_handle",), (written_again,), advice="write the whole state once",
    ),
    Fact(
        "states of float32", ("neural_engine",), "aborts",
        "a program of float32 with states ends the process, if it is loaded with default options",
        (zoo("pocket-tts-port"),), "coreai-torch 0.4.2, FB24322596", ("coreai.read_handle",), (wide_state,),
        quiet="one port is known to have it", advice="load it for the GPU or the CPU by name",
    ),
    Fact(
        "caches with NaN", UNITS, "wrong", "a cache that begins with NaN spreads it, because 0 * NaN is NaN",
        (zoo("pocket-tts-port"),), "every device", advice="begin with zeros",
    ),
    Fact(
        "prefill of 16 tokens", _GPU, "wrong", "a prefill of more than 16 tokens gives other numbers at each call",
        (models(84),), "macOS 27 betas", healed="Apple could not reproduce it",
    ),
    Fact(
        "caches of two widths", _GPU, "aborts", "two caches with other last dimensions get buffers that are too small",
        (_ERRORS,), "macOS 27 betas", advice="join them as one state",
    ),
    Fact(
        "four states", _GPU, "aborts", "Apple's sequential engine takes a program with exactly two states",
        (DOCTOR, _ERRORS), "coreai-models 0.1.0", advice="join states, or use another engine",
    ),
    Fact(
        "one token at a time", _GPU, "aborts",
        "Apple's pipelined engine calls a program with 256 tokens to warm it, also one that takes a single token",
        (models(212), DOCTOR), "macOS 27 betas", advice="turn the warm-up off, and set COREAI_CHUNK_THRESHOLD=1",
    ),
    Fact(
        "vocabularies that are no multiple of 64", _GPU, "aborts",
        "the pipelined engine sizes its logits by multiples of 64", (_ERRORS,), "macOS 27 betas",
        advice="pad the rows of the head",
    ),
    Fact(
        "entry points by turns", _GPU, "aborts", "two entry points of one program, called by turns, end the process",
        (_ERRORS,), "iPhone 17 Pro, iOS 27 beta, July 2026", advice="use an asset for each",
    ),
    Fact(
        "products of transposed attention", _GPU, "aborts",
        "`v @ attention.transpose` in a deep network ends the process at load",
        (issue("ultralytics/ultralytics", 25860),), "macOS 26.6.1, Core ML",
        advice="write it with F.scaled_dot_product_attention",
    ),
    Fact(
        "decoders on the engine", ("neural_engine",), "aborts",
        "LFM2.5 1.2B compiles, and its execution plan for the engine fails", (issue("pytorch/executorch", 19635),),
        "iPhone 17 Pro, iOS 26.4.2, Core ML",
    ),
    Fact(
        "lengths that grow", _GPU, "slow",
        "a decoder whose lengths grow is specialized again at each length, 27 ms to 1.9 s a step", (_WRITES,),
        "macOS 27 beta 1", ("composite scaled_dot_product_attention",), (dynamic,),
        advice="load it with expectFrequentReshapes, or fix the lengths",
    ),
)  # fmt: skip
