"""Assets and how an app loads and runs them. No construct of a program shows these facts."""

from patcomp.devices.fact import UNITS, Fact, Unit
from patcomp.devices.sources import DOCTOR, core_ml, issue, models, torch, zoo

_NE: tuple[Unit, ...] = ("neural_engine",)
_GPU: tuple[Unit, ...] = ("gpu",)
_ERRORS = zoo("coreai-error-index")
_SILICON = zoo("ane-silicon-reference")
_UNITS = zoo("compute-units-and-authoring")
_BETAS = "macOS and iOS 27 betas"

FACTS = (
    Fact(
        "locations of coreai-torch 0.4.0", UNITS, "aborts", "assets of coreai-torch 0.4.0 are not loaded",
        (torch(37), torch(44)), "macOS 27.0 26A5368g to 26A5416b",
        avoided="patcomp's assets have a `producer` and no nested locations",
    ),
    Fact(
        "half assets without memory", _NE, "aborts", "some assets of float16 end the process when they are loaded",
        (torch(67),), "M4 Max, macOS 27.0 26A5416b", advice="load them for the GPU or the CPU by name",
    ),
    Fact(
        "preferred CPU", UNITS, "wrong",
        "a preference for the CPU divides a program, and its numbers may be far off; cpu_only() is exact",
        (zoo("pocket-tts-port"), _UNITS), _BETAS, advice="compare with cpu_only()",
    ),
    Fact(
        "default options", UNITS, "slow", "default options may run a program on the CPU and say nothing",
        (zoo("coreai-zero-sized-dim-abort"),), "M4 Max, macOS 27.0 26A5416b", advice="name the unit in tests",
    ),
    Fact(
        "a preference is no choice", _NE, "falls back", "a program that the engine does not take runs on the GPU",
        (zoo("ane-region-count-and-fp32-ops"), models(205)), "M4, macOS 27",
        advice="count the files *ANE_region_*.mlir.bc of the compiled asset",
    ),
    Fact(
        "compiled assets and options", _GPU, "aborts",
        "an asset that was compiled ahead is compiled again if the GPU is preferred", (_ERRORS, DOCTOR), _BETAS,
        advice="load it with default options or cpuOnly",
    ),
    Fact(
        "frequent reshapes of fixed sizes", _GPU, "aborts",
        "expectFrequentReshapes with a program of fixed sizes ends the process", (_ERRORS,),
        "iPhone 17 Pro, iOS 27 betas 3 and 4", advice="ask for it only if sizes are dynamic",
    ),
    Fact(
        "no options", _GPU, "aborts", "AIModel.load(path, None) is refused with an unresolved symbol", (_ERRORS,),
        "macOS 27 beta, coreai-core 1.0.0b2", advice="pass SpecializationOptions.default()",
    ),
    Fact(
        "a model that is let go", UNITS, "wrong", "a function whose model was let go returns garbage",
        (zoo("conversion-guide"),), "coreai-core, Python", advice="keep the AIModel",
        avoided="patcomp keeps it while it runs a program",
    ),
    Fact(
        "types of inputs", UNITS, "aborts", "an input of another type than the program's is refused (CoreAIError 3)",
        (_ERRORS,), _BETAS, avoided="patcomp casts inputs to the program's types",
    ),
    Fact(
        "symbolic links", UNITS, "aborts", "Swift does not follow a symbolic link to an asset", (_ERRORS, DOCTOR),
        _BETAS, advice="resolve the link",
    ),
    Fact(
        "architectures", UNITS, "aborts", "an asset that was compiled for another chip is not loaded", (_ERRORS,),
        "iPhone 17 Pro takes h18p, M4 Max h16c", advice="compile for the device's identifier",
    ),
    Fact(
        "half copied assets", UNITS, "aborts", "an asset that was loaded while it was copied is refused for ever",
        (DOCTOR,), "iOS 27 betas", advice="compare sizes before the first load",
    ),
    Fact(
        "128 programs", _NE, "aborts", "a process loads at most 128 programs", (_SILICON,), "M1, M2, M5",
        advice="fewer entry points in a process",
    ),
    Fact(
        "waking up", _NE, "slow", "a call after 5 s of rest costs 260 ms more", (_SILICON,), "M1, M2, M5",
        milliseconds=(260.0, 260.0), advice="call it before the user waits",
    ),
    Fact(
        "the least call", _NE, "slow", "a call of a program costs 0.23 ms at least", (_SILICON,), "M1",
        milliseconds=(0.23, 0.23),
    ),
    Fact(
        "working sets", _NE, "slow",
        "a layer whose tensors exceed the memory on the chip waits for the memory: 2 MB on M1, 4.72 MB on M5",
        (_SILICON,), "M1, M5", finding="a working set over",
    ),
    Fact(
        "bandwidth", _NE, "slow", "weights cross the memory at 51 GB/s on M1, 145 GB/s on M5", (_SILICON,), "M1, M5",
        about="weights that a call reads",
    ),
    Fact(
        "one token at a time on the engine", _NE, "slow",
        "a decoder issues 40 to 50 calls a token; weights in fewer bits do not help it", (_SILICON,), "M1",
        advice="decode on the GPU",
    ),
    Fact(
        "failed compilations", _NE, "slow", "after a failed compilation the service rests for 15 s", (_SILICON,),
        "M1, M2, M5",
    ),
    Fact(
        "leaks of the Python runtime", UNITS, "aborts", "each call from Python keeps a surface; 2,250 calls end it",
        (zoo("pocket-tts-port"),), "coreai-core 1.0.0b2", advice="run long tests in several processes",
    ),
    Fact(
        "dynamic decoders in Python", _GPU, "aborts", "a decoder whose lengths grow faults from Python",
        (_ERRORS,), "macOS 27 betas", advice="fix the sizes, or compile ahead of time",
    ),
    Fact(
        "dynamic decoders on the CPU", ("cpu",), "aborts", "some decoders with dynamic sizes are refused for the CPU",
        (_ERRORS,), "macOS 27 betas, June to August 2026", advice="load them for the GPU",
    ),
    Fact(
        "optimizer", UNITS, "aborts", "`optimize()` ends the process for some networks, and takes hours for others",
        (torch(33), zoo("conversion-guide"), _ERRORS), "coreai-torch 0.4.1", avoided="patcomp never calls it",
    ),
    Fact(
        "graphs with empty shapes on iPhones", _GPU, "aborts",
        "a speech model fails an assertion on shapes on an iPhone's GPU, and not on a Mac",
        (issue("pytorch/executorch", 11541),), "iPhone, Core ML, June 2025",
    ),
    Fact(
        "flexible shapes that change", _NE, "slow", "each change of an enumerated shape leaves the engine idle",
        (core_ml(2370),), "Core ML, 2024", advice="an entry point for each size",
    ),
    Fact(
        "float16 of dynamic sizes", _GPU, "aborts", "a reshape of dynamic sizes in float16 is refused (EfficientSAM)",
        ("https://github.com/apple/coreai-models/blob/86b363d/models/efficient-sam/export.py",), "macOS 27",
        advice="convert it in float32",
    ),
    Fact(
        "slices of joined projections", _GPU, "wrong",
        "slices of one product for queries, keys and values are wrong with partial rotation (rdar 184090277)",
        ("https://github.com/apple/coreai-models/blob/86b363d/python/src/coreai_models/models/macos/phi3.py",),
        "macOS 27", avoided="patcomp does not join them where the rotation is partial",
    ),
)  # fmt: skip
