"""Convolutions, pooling, sizes and layouts."""

from patcomp.devices.constructs import (
    computed_weight,
    dilated,
    half,
    kernel_over,
    long_transposed,
    of_nearest,
    offset_along_width,
    stride_over,
)
from patcomp.devices.fact import UNITS, Fact, Unit
from patcomp.devices.sources import UNSUPPORTED_LAYERS, core_ml, issue, models, torch, zoo

_NE: tuple[Unit, ...] = ("neural_engine",)
_SILICON = zoo("ane-silicon-reference")
_UNITS = zoo("compute-units-and-authoring")
_MOBILE_NET = issue("hollance/neural-engine", 2)
_POOLS = ("coreai.max_pool_2d", "coreai.sum_pool_2d")
_CONVOLUTION = ("coreai.conv2d",)

FACTS = (
    Fact(
        "long transposed convolutions", ("cpu",), "wrong",
        "a transposed convolution with a kernel of 8 or more, or a stride of 16 or more, is wrong by its own size",
        (zoo("pocket-tts-port"), issue("john-rocky/coreai-model-zoo", 18)), "macOS 27 betas, coreai-torch 0.4.2",
        ("coreai.conv_transpose2d",), (long_transposed,), advice="load the program for the GPU, which is right",
    ),
    Fact(
        "output padding", UNITS, "wrong", "a transposed convolution with output padding is too long", (torch(57),),
        "coreai-torch 0.4.1", healed="coreai-torch 0.4.2",
        avoided="no program of patcomp has it: the op has an operand for the output padding",
    ),
    Fact(
        "transposed convolutions of stride 16", _NE, "falls back",
        "a transposed convolution of stride 16 is refused by the engine", (core_ml(2450),), "iOS 17, Core ML",
        ("coreai.conv_transpose2d",), (stride_over(15),),
    ),
    Fact(
        "transposed convolutions with a size", ("gpu", "neural_engine"), "wrong",
        "a transposed convolution with a given output size differs between the CPU and other units", (core_ml(2281),),
        "Core ML", avoided="no program of patcomp has it: Core AI's op has no such operand",
    ),
    Fact(
        "wide windows", _NE, "falls back", "windows wider than 13 are refused up to A15; 15 from A16 on",
        (_MOBILE_NET, _SILICON), "A12 to A15, Core ML", ("coreai.max_pool_2d", "coreai.sum_pool_2d"),
        (kernel_over(13, 1),), advice="pool in two steps",
    ),
    Fact(
        "wide kernels", _NE, "falls back", "kernels wider than 13 are refused up to A15 in float16; 15 from A16 on",
        (_SILICON,), "up to A15", _CONVOLUTION, (kernel_over(13),), rules=("convolution of patches",),
        advice="write it as two smaller kernels",
    ),
    Fact(
        "kernels over 7", _NE, "slow", "convolutions wider than 7 divide the engine's work",
        (issue("ultralytics/yolov5", 2526),), "Core ML, 2021", _CONVOLUTION, (kernel_over(7),),
    ),
    Fact(
        "strides of pools", _NE, "falls back", "pools with a stride over 2 are refused", (_MOBILE_NET,),
        "A12 and A13, Core ML", _POOLS, (stride_over(2),),
    ),
    Fact(
        "factors of strides", _NE, "slow", "strides and dilations are products of 2 and 3", (_UNITS, core_ml(2173)),
        "iPad; iOS 27 betas", finding="strides of other factors",
    ),
    Fact(
        "dilated convolutions", _NE, "falls back", "dilated convolutions run elsewhere", (UNSUPPORTED_LAYERS,),
        "A12 and A13, Core ML", _CONVOLUTION, (dilated,),
    ),
    Fact(
        "factors of resizes", _NE, "falls back", "only a factor of 2 is resized by the engine", (_MOBILE_NET,),
        "A12 and A13, Core ML", ("coreai.interpolate",), (of_nearest,),
    ),
    Fact(
        "channels times a vector", _NE, "slow", "a product of channels with a computed vector is slow",
        (_MOBILE_NET, core_ml(657)), "A12 and A13, Core ML",
    ),
    Fact(
        "computed kernels", _NE, "aborts",
        "a convolution with a computed weight and a batch of 2 or more ends the compiler", (_SILICON,), "M1, M2, M5",
        _CONVOLUTION, (computed_weight,), advice="use a batch of 1",
    ),
    Fact(
        "slices along the width", _NE, "wrong",
        "a slice along the last axis from another start than 0 makes numbers beyond 4,094 infinite", (_SILICON,),
        "A13 and A14, M1 and M2", ("coreai.slice",), (half, offset_along_width),
        quiet="only numbers beyond 4,094 are wrong, on old chips; `verify --as neural_engine` finds them",
    ),
    Fact(
        "long axes", _NE, "falls back", "an axis has at most 16,384 elements up to A15, and 65,536 from A16 on",
        (_SILICON,), "A13 to A15; channels on M2: 65,536", finding="a dimension over",
        advice="divide the vocabulary or the image",
    ),
    Fact(
        "ranks", _NE, "falls back", "tensors have at most five dimensions", (_UNITS,), "iOS 27 betas",
        finding="rank over 5",
    ),
    Fact(
        "rows", _NE, "slow", "rows along the last axis are multiples of 64 bytes", (_UNITS,), "iOS 27 betas",
        finding="an input or output with rows of",
    ),
    Fact(
        "narrow last axes", _NE, "slow", "a last axis of fewer than 32 halves is padded to 64 bytes", (_UNITS,),
        "iOS 27 betas", finding="a last dimension under",
    ),
    Fact(
        "large images", _NE, "aborts", "a model of 5,568 x 5,568 pixels is not compiled for the engine",
        (core_ml(2247),), "iOS, Core ML", advice="work on tiles",
    ),
    Fact(
        "two transformer blocks", _NE, "falls back",
        "two blocks of a transformer at 64 x 64 are not compiled, for some values of their norms", (models(138),),
        "M5 Max, macOS 27.0 26A5388g",
    ),
    Fact(
        "convolutions with padding", UNITS, "wrong", "a corner of a convolution is wrong for some paddings",
        (core_ml(2515),), "Core ML, May 2025",
        avoided="no program of patcomp has it: a pad op pads before the convolution",
    ),
    Fact(
        "softmax of odd sizes", _NE, "aborts", "a softmax whose size is no power of two is refused",
        (issue("hollance/neural-engine", 44),), "M3 Max, private interface",
    ),
    Fact(
        "enumerated shapes with norms", _NE, "falls back", "a layer norm with enumerated shapes runs elsewhere",
        (core_ml(1909),), "Core ML", avoided="no program of patcomp has enumerated shapes; an entry point has one size",
    ),
)  # fmt: skip
