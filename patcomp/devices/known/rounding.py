"""Rounding, casts and choices."""

from patcomp.devices.constructs import (
    back_from_integer,
    by_one,
    mask_of_conditions,
    mask_of_wide_integers,
    neighbour_matters,
    of_floats,
)
from patcomp.devices.fact import UNITS, Fact
from patcomp.devices.sources import core_ml, issue, torch, zoo

_FIRST_BETA = "M4 Max, macOS 27.0 26A5353q"
_CONVERTER = "no program of patcomp has it: "

FACTS = (
    Fact(
        "halves away from zero", ("gpu",), "wrong",
        "`round` gives the neighbour of a half that is farther from zero, not the even one", (torch(10),),
        _FIRST_BETA, ("coreai.round",), (neighbour_matters,), rules=("halves to even numbers",),
    ),
    Fact(
        "floor as identity", ("gpu",), "wrong", "`floor`, `ceil` and `trunc` return their operand", (torch(10),),
        _FIRST_BETA, avoided="patcomp makes them of `round` and comparisons, which are right for either neighbour",
    ),
    Fact(
        "floor division by one", UNITS, "wrong", "a floor division by 1 becomes its operand", (torch(10),),
        _FIRST_BETA, ("coreai.floor_divide", "coreai.decomposable.broadcasting_floor_divide"), (of_floats, by_one),
        advice="divide 2x by 2 instead",
    ),
    Fact(
        "cast to an integer and back", UNITS, "wrong", "a cast of a float to an integer and back is left out",
        (torch(9),), _FIRST_BETA, ("coreai.cast",), (back_from_integer,),
        avoided="a copy stands between two such casts where the types allow the merger (`dropped_casts`)",
    ),
    Fact(
        "masks of 64-bit comparisons", UNITS, "wrong",
        "a mask made of comparisons of 64-bit integers overwrites another tensor that is still read", (torch(11),),
        _FIRST_BETA, ("coreai.cast",), (mask_of_wide_integers,),
        advice="leave int64='narrow', which compares in 32 bits, or make the mask of floats",
    ),
    Fact(
        "masks of two conditions", ("cpu",), "wrong",
        "an `and` of conditions that is cast to floats has wrong numbers; the GPU is right", (torch(74),),
        "M5 Max, macOS 27.0 26A5421a", ("coreai.cast",), (mask_of_conditions,),
        advice="multiply the two masks as floats, or choose with torch.where",
    ),
    Fact(
        "argmax", ("neural_engine",), "wrong",
        "`argmax` gives wrong positions, of 8-bit and of 32-bit results, with default options", (torch(116),),
        "iPhone 17 Pro, iOS 27.0", ("coreai.argmax",), rules=("argmax by comparison",),
        advice="or return the scores, and choose in the app",
    ),
    Fact(
        "truncated division", UNITS, "wrong", "a true division of integers is computed in integers",
        (torch(32), zoo("coreai-torch-042-lowering-changes")), "coreai-torch 0.4.1", healed="coreai-torch 0.4.2",
        avoided=f"{_CONVERTER}it casts the integers first",
    ),
    Fact(
        "axis of quantization", UNITS, "wrong", "quantization along a negative axis takes the axis before it",
        (torch(24), zoo("coreai-torch-042-lowering-changes")), "coreai-torch 0.4.1", healed="coreai-torch 0.4.2",
        avoided=f"{_CONVERTER}it counts axes from the front",
    ),
    Fact(
        "normalization without its least norm", UNITS, "wrong",
        "`F.normalize` loses its `eps`, so that vectors near zero become huge", (zoo("conversion-guide"),),
        "coreai-torch 0.4.x", avoided=f"{_CONVERTER}the norm is at least `eps`",
    ),
    Fact(
        "folded sines of large numbers", UNITS, "wrong",
        "sines and cosines of large constants are folded with low precision", (zoo("conversion-guide"),),
        "coreai-torch 0.4.x", avoided=f"{_CONVERTER}it folds constants itself, as PyTorch computes them",
    ),
    Fact(
        "squared distances", UNITS, "wrong",
        "`optimize()` drops the move of an axis, so that a squared distance adds the norm of the wrong row",
        (torch(49),), "macOS 27.0 26A5378j and 26A5388g", avoided=f"{_CONVERTER}it never calls `optimize()`",
    ),
    Fact(
        "float bounds of arange", UNITS, "aborts", "`arange` with float bounds ends the converter", (torch(8),),
        "coreai-torch 0.4.0", avoided=f"{_CONVERTER}constant ranges are folded",
    ),
    Fact(
        "squeeze of a longer axis", UNITS, "aborts", "`squeeze` of an axis that is longer than 1 ends the converter",
        (zoo("coreai-error-index"),), "coreai-torch 0.4.x", avoided=f"{_CONVERTER}such a squeeze does nothing",
    ),
    Fact(
        "convolution and LeakyReLU", ("neural_engine",), "wrong",
        "a convolution and LeakyReLU differ by 0.1 (norm) from the CPU, which is within 4e-5", (core_ml(1023),),
        "iPhone 12, Core ML",
    ),
    Fact(
        "decoders at random", ("neural_engine",), "wrong",
        "a decoder gives other values at each call, unless a debugger is attached", (issue("Anemll/Anemll", 7),),
        "iPhone 16 Pro, iOS 18.3.1, Core ML", advice="compare several calls on the device",
    ),
)  # fmt: skip
