"""Sorts, gathers and what else an engine leaves to other units."""

from patcomp.devices.constructs import at_sorted_positions, dynamic, empty, half
from patcomp.devices.fact import UNITS, Fact, Unit
from patcomp.devices.sources import DOCTOR, UNSUPPORTED_LAYERS, apple_code, core_ml, issue, torch, zoo

_NE: tuple[Unit, ...] = ("neural_engine",)
_SORTS = ("coreai.sort", "coreai.argsort")
_SILICON = zoo("ane-silicon-reference")
_ERRORS = zoo("coreai-error-index")
_DETR = issue("roboflow/rf-detr", 1495)

FACTS = (
    Fact(
        "gathers of the best", _NE, "wrong",
        "a top-k with a gather of its positions gave zero for every score in float16; float32 and the GPU are right",
        (torch(115),), "iPhone 17 Pro, iOS 27.0", ("coreai.gather_along_axis", "coreai.gather_nd"),
        (half, at_sorted_positions),
        advice="return the scores and the boxes, and choose in the app; or load the program for the GPU",
    ),
    Fact(
        "sorts and top-k", _NE, "falls back",
        "a sort, and with it a top-k, leaves the engine at a fixed cost, whatever its size",
        (torch(66), zoo("coreai-ane-partition-cost"), _DETR), "iPhone 17 Pro, iOS 27.0 24A5418b; M3 Pro, macOS 27.0",
        _SORTS, advice="return the scores, and choose in the app", milliseconds=(0.60, 1.75),
    ),
    Fact(
        "gathers along an axis", _NE, "falls back", "a gather along an axis runs on the CPU", (core_ml(1103), _DETR),
        "M3 Pro, macOS 27.0; Core ML", ("coreai.gather_along_axis",),
    ),
    Fact(
        "gathers by vectors", _NE, "falls back", "a gather inside a graph makes three dimensions, which are rejected",
        (zoo("compute-units-and-authoring"), UNSUPPORTED_LAYERS), "iPhone 17 Pro, iOS 27 betas", ("coreai.gather_nd",),
        rules=("gather of runs as slices",), advice="take the gathered rows as an input",
    ),
    Fact(
        "largest positions on old chips", _NE, "falls back", "positions of extrema are computed from A15 on",
        (_SILICON,), "A13 and A14, M1", ("coreai.argmax",), rules=("argmax by comparison",),
    ),
    Fact(
        "sines on old chips", _NE, "falls back", "sines and cosines are computed from A15 on", (_SILICON,),
        "A13 and A14, M1", ("coreai.sin", "coreai.cos"), advice="take tables as constants or inputs",
    ),
    Fact(
        "samplers on old chips", _NE, "falls back", "resizes and samples are computed from A14 on", (_SILICON,),
        "A13, M1", ("coreai.interpolate", "coreai.interpolate_coordinates"),
    ),
    Fact(
        "kernels in Metal", _NE, "falls back", "a Metal kernel runs on the GPU only", (DOCTOR,), "every device",
        ("coreai.metal4_kernel",),
    ),
    Fact(
        "kernels in Metal on the CPU", ("cpu",), "aborts", "a program with a Metal kernel is refused for the CPU",
        (_ERRORS,), "macOS 27 betas", ("coreai.metal4_kernel",),
        quiet="whoever writes a Metal kernel wants the GPU", advice="load it for the GPU",
    ),
    Fact(
        "kernels with dynamic rows", ("gpu",), "aborts",
        "a Metal kernel with operands of dynamic size is refused when the program is loaded", (_ERRORS,),
        "macOS 27 beta, coreai-torch 0.4.1", ("coreai.metal4_kernel",), (dynamic,), advice="fix the sizes",
    ),
    Fact(
        "float32", _NE, "falls back", "what computes in float32 leaves the engine; a program of float32 runs elsewhere",
        (zoo("ane-region-count-and-fp32-ops"), issue("john-rocky/coreai-model-zoo", 36)),
        "M4, macOS 27.0 26A428", finding="f32 values", advice="target='neural_engine' converts to float16",
    ),
    Fact(
        "dynamic sizes", _NE, "falls back", "a program with dynamic sizes does not run on the engine",
        (_SILICON, core_ml(1764), core_ml(2370), issue("ekhodzitsky/gigastt", 42)), "M1 Pro and others, Core ML",
        finding="dynamic sizes", advice="fix them, an entry point for each size",
    ),
    Fact(
        "crossings", _NE, "slow",
        "each part of a program that runs elsewhere divides the engine's work, at a fixed cost for each crossing",
        (zoo("ane-region-count-and-fp32-ops"), zoo("compute-units-and-authoring")),
        "M4, 13 regions and 1: 13.19 and 4.60 ms; iPhone 17 Pro, gaps of 1.125 ms in the median",
        finding="regions with other ops between them", milliseconds=(0.72, 1.125),
    ),
    Fact(
        "nearest resizes", ("gpu",), "falls back", "a resize to the nearest elements runs on the CPU",
        (apple_code("diffusion/components.py"),), "macOS 27", ("coreai.interpolate",),
        advice="repeat the elements with repeat_interleave",
    ),
    Fact(
        "resizes", _NE, "falls back", "a resize has scales and offsets of float32",
        (apple_code("models/ios/sam3/mask_decoder.py"),), "iOS 27", ("coreai.interpolate",),
        advice="repeat the elements with repeat_interleave",
    ),
    Fact(
        "padding", _NE, "falls back", "a pad is not computed by the engine",
        (apple_code("models/ios/sam3/detr.py"),), "iOS 27", finding="coreai.pad", rules=("pad as concat",),
    ),
    Fact(
        "group norm", _NE, "falls back", "a group norm is not computed by some engines",
        (apple_code("models/ios/sam3/mask_decoder.py"),), "h16c", ("composite group_norm",),
        rules=("group_norm divided first",),
    ),
    Fact(
        "complex numbers", UNITS, "aborts", "complex numbers are refused by the converter",
        (zoo("conversion-guide"),), "coreai-torch 0.4.x",
        avoided="patcomp computes with real and imaginary parts where it can",
    ),
    Fact(
        "parts of size 0", ("gpu", "neural_engine"), "aborts",
        "a split with a part of size 0 ends the process, also if nothing reads the part",
        (torch(68), zoo("coreai-zero-sized-dim-abort")), "M4 Max, macOS 27.0 26A5416b",
        avoided="patcomp removes parts that nothing reads, and slices instead of splitting into such parts",
    ),
    Fact(
        "empty outputs", ("gpu", "neural_engine"), "aborts", "an output with a dimension of size 0 ends the process",
        (torch(68), zoo("coreai-zero-sized-dim-abort")), "M4 Max, macOS 27.0 26A5416b",
        ("coreai.output",), (empty,),
        advice="leave the output out",
    ),
    Fact(
        "recurrent layers", _NE, "falls back", "LSTM and GRU layers run elsewhere", (UNSUPPORTED_LAYERS,), "Core ML",
        avoided="patcomp writes them as products and activations",
    ),
    Fact(
        "layers of any rank", _NE, "falls back", "layers that broadcast tensors of any rank run elsewhere",
        (UNSUPPORTED_LAYERS,), "A12 and A13, Core ML 3",
    ),
)  # fmt: skip
