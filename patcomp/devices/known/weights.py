"""Stored weights: which forms a unit takes, and which cross the memory as they are stored."""

from patcomp.devices.constructs import (
    float8,
    many_channels,
    of_looked_up,
    scaled_by_block,
    scaled_by_channel,
    stored_bits,
)
from patcomp.devices.fact import Fact, Unit
from patcomp.devices.sources import DOCTOR, PLAYBOOK, apple_code, core_ml, models, torch, zoo

_NE: tuple[Unit, ...] = ("neural_engine",)
_SCALED = ("coreai.blockwise_shift_scale",)
_SILICON = zoo("ane-silicon-reference")
_REFERENCE = zoo("compression-reference")

FACTS = (
    Fact(
        "heads of 8 bits", ("gpu",), "wrong",
        "a head of 8 bits with a scale for each row gives 0 from row 65,024 on, so that a chat never ends",
        (zoo("compression"),), "coreai-torch 0.4.1, coreai-opt 0.2.1", _SCALED,
        (stored_bits(8), many_channels), advice="store it in blocks: w8_block32",
    ),
    Fact(
        "rows of 8 bits", ("gpu",), "wrong",
        "products with weights of 8 bits and a scale for each row gave NaN at several sizes",
        (_REFERENCE, DOCTOR), "macOS 27 betas, June 2026", _SCALED, (stored_bits(8), scaled_by_channel),
        quiet="seen on betas of June 2026 alone", advice="store them in blocks: w8_block32",
    ),
    Fact(
        "blocks of 4 bits", _NE, "falls back",
        "weights of 4 bits with a scale for each block are not compiled for the engine, and no error says so",
        (models(205), models(55)), "M4 Max, macOS 27.0 26A5416b", _SCALED, (stored_bits(4), scaled_by_block),
        advice="store palettes: pal4_group32",
    ),
    Fact(
        "blocks of 4 bits end the compiler", _NE, "aborts", "the same weights ended the compiler", (models(55),),
        "M4 Max, macOS 27.0 26A5353q", healed="macOS 27.0 26A5416b",
    ),
    Fact(
        "scaled palettes", _NE, "aborts", "palettes with a scale for each channel are refused when loaded",
        (core_ml(2688), apple_code("segmentation/pipeline.py")), "macOS 26, Core ML; iOS 27", _SCALED, (of_looked_up,),
        advice="multiply the scales into the tables",
    ),
    Fact(
        "two scales of a channel", _NE, "wrong", "a convolution whose palettes have two scales a channel is wrong",
        (torch(93),), "a report on the Neural Engine", _SCALED, (of_looked_up, scaled_by_block),
        advice="one scale for each channel",
    ),
    Fact(
        "palettes of 4 bits", _NE, "falls back", "an encoder with palettes of 4 bits had no region on the engine",
        (zoo("ane-region-count-and-fp32-ops"),), "M4, macOS 27",
        advice="Apple's own models have them; count the regions of the compiled asset",
    ),
    Fact(
        "8 bits on the engine", _NE, "slow", "weights of 8 bits are expanded in memory: no faster, and up to 4.8 times "
        "as slow", (zoo("ane-region-count-and-fp32-ops"), _SILICON), "M4; M1 and A13", _SCALED, (stored_bits(8),),
        advice="palettes cross the memory as they are stored, on every chip",
    ),
    Fact(
        "blocks on the engine", _NE, "slow", "weights in blocks are expanded in memory before A15", (_SILICON,),
        "M1, M2; A13, A14", _SCALED, (scaled_by_block,), advice="palettes cross the memory as they are stored",
    ),
    Fact(
        "palettes stream", _NE, "slow", "palettes of 4 bits were 1.6 to 2.4 times as fast as float16", (_SILICON,),
        "M1 and M5", avoided="this is why target='neural_engine' means palettes by 4bit",
    ),
    Fact(
        "sparse weights stream", _NE, "slow", "sparse weights were 1.55 to 1.64 times as fast as float16", (_SILICON,),
        "M1", avoided="a sparse scheme stores them so",
    ),
    Fact(
        "floats of 8 bits", _NE, "falls back", "floats of 8 bits are computed by A18 (H18) alone", (_SILICON,),
        "up to A17 and M5", _SCALED, (float8,),
    ),
    Fact(
        "int8 is no faster on the GPU", ("gpu",), "slow", "weights of 8 bits are expanded to float16:"
        " smaller, not faster", (zoo("conversion-guide"),), "M4 Max",
    ),
    Fact(
        "clipped heads", ("gpu",), "wrong", "a large head stored with clipping loses its outlier rows", (DOCTOR,),
        "every device", avoided="patcomp's schemes do not clip",
    ),
    Fact(
        "sizes that no block divides", ("gpu", "neural_engine"), "slow",
        "layers whose size no block divides are left uncompressed, and nothing says so", (_REFERENCE,),
        "coreai-opt 0.2",
        avoided="patcomp lists the weights that a scheme does not fit",
    ),
    Fact(
        "tied heads", ("gpu", "neural_engine"), "slow", "tied heads are left uncompressed", (DOCTOR,), "coreai-opt 0.2",
        avoided="patcomp compresses the table once, for both uses",
    ),
    Fact(
        "large assets", _NE, "aborts", "an asset of 2 GB or more ends an app without the entitlement for more memory",
        (DOCTOR, zoo("coreai-error-index")), "iPhone 17 Pro, iOS 27 betas", finding="weights of ",
        advice="compress, split, or ask for com.apple.developer.kernel.increased-memory-limit",
    ),
    Fact(
        "large programs of experts", _NE, "aborts",
        "a program of dense experts beyond 1.5 GB is not loaded (0x10004); a plain transformer of 5.4 GB is",
        (PLAYBOOK,), "macOS 27 betas", advice="split it into assets, and load one at a time",
    ),
    Fact(
        "deep decoders", _NE, "aborts", "35 layers run out of memory when a phone compiles them",
        (zoo("coreai-beta-mpsgraph-kvwrite-bug"),), "iPhone 17 Pro", advice="eight layers in a program",
    ),
    Fact(
        "models of 4 billion", _NE, "aborts", "a model of 4 billion parameters ends at its first call",
        (zoo("coreai-error-index"),), "iPhone 17 Pro, iOS 27 beta, June 2026", advice="compile it for the GPU",
    ),
    Fact(
        "many constants", ("gpu",), "aborts", "a program with 2 GB of constants is not specialized on a phone",
        (zoo("coreai-error-index"),), "iPhone 17 Pro, iOS 27 beta 1", advice="compile it ahead of time",
    ),
)  # fmt: skip
