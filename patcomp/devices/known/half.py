"""Half precision: overflow, sums, and what an engine computes in."""

from patcomp.devices.constructs import (
    half,
    masked_by_infinity,
    of_flat_product,
    of_open_exponential,
    of_softmax,
    of_square,
)
from patcomp.devices.fact import Fact, Unit
from patcomp.devices.sources import SIXTEEN_BITS, apple_code, core_ml, issue, torch, zoo

_NE: tuple[Unit, ...] = ("neural_engine",)
_UNITS = zoo("compute-units-and-authoring")
_SILICON = zoo("ane-silicon-reference")
_BETA = "OS 27 betas"

FACTS = (
    Fact(
        "logarithm of an overflow", _NE, "wrong",
        "log(1 + exp(x)) of float16 falls to 0 from x = 10.4, and log(sum(exp(x))) of 32 numbers from 7.63",
        (torch(21), core_ml(2687), core_ml(2690)), "Apple M4; Core ML and Core AI",
        ("coreai.log",), (half, of_open_exponential), rules=("softplus without overflow",),
        advice="subtract the maximum, or write max(x, 0) + log(1 + exp(-|x|))",
    ),
    Fact(
        "softplus of Core ML's other frontend", _NE, "wrong", "a softplus of float16 falls to 0 beyond 10.4",
        (core_ml(2814),), "Core ML; not reproduced on M2 Pro",
        avoided="patcomp's softplus for this target has no such exponential",
    ),
    Fact(
        "cumulative logarithms", _NE, "wrong", "log(cumsum(exp(x))) of float16 overflows from x = 11.09",
        (torch(21), core_ml(2727)), "Core ML", avoided="patcomp subtracts running maxima",
    ),
    Fact(
        "logarithm of a softmax", _NE, "wrong",
        "the logarithm of a softmax of float16 is -inf for classes below 6e-5", (core_ml(2728),), "Core ML",
        ("coreai.log",), (half, of_softmax), advice="use F.log_softmax, which subtracts the logarithm of the sum",
    ),
    Fact(
        "mean of squares", _NE, "wrong", "the mean of squares of float16 overflows for large activations",
        (_UNITS, core_ml(2585), issue("huggingface/swift-transformers", 95)), _BETA,
        ("coreai.reduce_mean",), (half, of_square),
        rules=("rms_norm divided first", "layer_norm divided first"),
        quiet="only large activations overflow; an audit with inputs names the ops that do",
    ),
    Fact(
        "float32 inside norms", _NE, "wrong",
        "a cast to float32 inside a norm is left out, so that its squares overflow", (_UNITS,), _BETA,
        ("composite rms_norm",), (half,), rules=("rms_norm divided first",),
        quiet="only large activations overflow; an audit with inputs names the ops that do",
    ),
    Fact(
        "softmax of -inf", _NE, "wrong", "a softmax of float16 with -inf gives other numbers than its definition",
        (_UNITS, issue("cactus-compute/cactus", 734)), f"{_BETA}; M4 Pro",
        ("coreai.softmax",), (half, masked_by_infinity),
        advice="mask with -40000; target='neural_engine' does so in attention",
    ),
    Fact(
        "masks beyond float16", _NE, "wrong", "a mask of -1e9 becomes -inf in float16, and rows of it NaN",
        (issue("cactus-compute/cactus", 734),), "M4 Pro", finding="the number -",
        advice="mask with -10000 or -40000",
    ),
    Fact(
        "flat product before hardswish", _NE, "wrong",
        "a product of two dimensions with hardswish after it is 0.2 off in float16",
        (torch(51), core_ml(2625)), "Neural Engine, July 2026; Apple M4",
        ("composite hard_sigmoid",), (half, of_flat_product), rules=("linear as convolution",),
        advice="make the product one of four dimensions, (1, 1, m, n)",
    ),
    Fact(
        "sums of products", _NE, "wrong",
        "a product of float16 matrices rounds its partial sums to float16; a convolution sums in float32",
        (_UNITS, _SILICON), f"{_BETA}; M1: 3 % of error at 5,632 terms",
        about="products of float16 matrices", rules=("linear as convolution",),
        advice="`verify --as neural_engine` measures the loss",
    ),
    Fact(
        "batch norm in float16", _NE, "wrong", "a batch norm of float16, with its `eps`, is computed in float16",
        (torch(54), zoo("coreai-torch-042-lowering-changes")), "coreai-torch 0.4.1", healed="coreai-torch 0.4.2",
        avoided="patcomp folds or computes batch norms in float32",
    ),
    Fact(
        "float16 for everything", _NE, "wrong",
        "activations above 100 or below 1e-4 lose precision, because all of it is float16", (SIXTEEN_BITS,),
        "A12 and later, Core ML", finding="values beyond float16",
    ),
    Fact(
        "encoders of T5", ("gpu", "neural_engine"), "wrong", "the encoder of T5 overflows in float16",
        (zoo("conversion-guide"),), "coreai-torch 0.4.x",
        advice="convert it in bfloat16 or float32; --keep-float32 auto finds the ops that need it",
    ),
    Fact(
        "float32 on the GPU", ("gpu",), "wrong", "a program of float32 is computed in float16 on some chips",
        (zoo("conversion-guide"),), "h16c", advice="compare with cpu_only() for parity",
    ),
    Fact(
        "float16 of Core ML with fixed sizes", _NE, "wrong",
        "a model of float16 with fixed sizes gives scores that are 0.8 off",
        (issue("microsoft/onnxruntime", 32569),), "macOS 15, Core ML", healed="macOS 26",
    ),
    Fact(
        "frequencies in a large graph", ("gpu",), "wrong",
        "angles of rotary embeddings that are computed inside a transformer of 25 blocks are corrupted",
        (apple_code("diffusion/flux2.py"),),
        "macOS 27", about="cosines of computed angles", advice="take cosines and sines as inputs",
    ),
    Fact(
        "projections of a deep decoder", _NE, "wrong",
        "the value and output projections, and the down projection, fail in float16 in a deep decoder",
        (_SILICON,), "M1", advice="keep=[...] leaves them in float32",
    ),
)  # fmt: skip
