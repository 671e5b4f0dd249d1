"""Names of other converters, and what takes their place here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from patcomp.errors import did_you_mean

_ASSET = "patcomp writes .aimodel assets: save='net.aimodel'"
_SHAPES = "example inputs say shapes and types: patcomp.convert(model, (x,)); dynamic_shapes= leaves sizes open"
_DEVICE = "target='cpu', 'gpu' or 'neural_engine' rewrites a program for a device"
_NAMES = "input_names= and output_names= name inputs and outputs"
_INPUTS = "example inputs are the second argument: patcomp.convert(model, (x,))"
_WEIGHTS = "compress='8bit' or '4bit' makes weights small; model.half() comes before for float16"

_SMALL = "program.compress('4bit') makes weights small"

ARGUMENTS: Mapping[str, str] = MappingProxyType({
    "convert_to": _ASSET, "package_dir": _ASSET, "output": _ASSET, "out": _ASSET, "path": _ASSET, "f": _ASSET,
    "source": "a model is always PyTorch's; leave it out",
    "minimum_deployment_target": "an asset is in the first version of the format that has its ops; leave it out",
    "compute_units": _DEVICE, "device": _DEVICE, "backend": _DEVICE,
    "compute_precision": _WEIGHTS, "precision": _WEIGHTS, "quantize": _WEIGHTS, "dtype": _WEIGHTS,
    "outputs": _NAMES, "states": "buffers that forward writes to are states; TorchConverter takes state_names=",
    "args": _INPUTS, "example_inputs": _INPUTS, "sample_inputs": _INPUTS, "example_kwargs": _INPUTS,
    "kwargs": _INPUTS, "input_shapes": _SHAPES, "dynamic_axes": _SHAPES, "dynamic": _SHAPES,
    "pass_pipeline": "to_coreai of TorchConverter takes recover= and assume=; a catalog has further rules",
    "skip_model_load": "nothing is loaded after a conversion; leave it out", "check": "verify=True",
    "force": "program.save_asset('net.aimodel', force=True) replaces what is no asset",
})  # fmt: skip
"""Arguments that callers of other converters give, and what to write."""

NAMES: Mapping[str, str] = MappingProxyType({
    "TensorType": _SHAPES, "ImageType": f"{_SHAPES}; --preprocess image of patcomp convert takes pictures of bytes",
    "StateType": "buffers that forward writes to are states", "RangeDim": _SHAPES, "Shape": _SHAPES,
    "EnumeratedShapes": "to_coreai of TorchConverter takes sizes={'length': (128, 256)}", "ClassifierConfig": "a class "
    "and its label are up to the app; an asset gives numbers", "ComputeUnit": _DEVICE, "target": _DEVICE,
    "models": "patcomp.load('net.aimodel') opens an asset", "MLModel": "patcomp.load('net.aimodel') opens an asset",
    "compile": "patcomp.convert(model, (x,)) compiles a model", "trace": "patcomp.export(model, (x,)) exports a model",
    "quantize": _SMALL, "optimize": f"a program is optimized when it is made; {_SMALL}",
    "save": "program.save_asset('net.aimodel')", "run": "program.run(x), and patcomp.load(path).run(x)",
    "verify": "program.verify_against(model, inputs)", "help": "help(patcomp.convert), or `patcomp --help`",
})  # fmt: skip
"""Names that are looked for in the module patcomp, and what to write."""

_KNOWN = ("model", "inputs", "dynamic_shapes", "input_names", "output_names", "verify", "target", "compress", "save")


def unknown_argument(name: str) -> str:
    """The message about an argument that `patcomp.convert` does not have."""
    if name in ARGUMENTS:
        return f"convert has no argument {name!r}; {ARGUMENTS[name]}"
    return f"convert has no argument {name!r}{did_you_mean(name, _KNOWN) or '; it has ' + ', '.join(_KNOWN)}"


def wrong_input(inputs: Any) -> str | None:
    """What is wrong with example inputs, as a sentence; None if they are tensors and other values of Python."""
    if isinstance(inputs, str) or not (hasattr(inputs, "shape") or isinstance(inputs, Mapping | Sequence)):
        return f"inputs are a tuple, a mapping or the only tensor, got {type(inputs).__name__}"
    values = inputs.values() if isinstance(inputs, Mapping) else inputs if isinstance(inputs, Sequence) else (inputs,)
    for value in values:
        if type(value).__module__.partition(".")[0] == "coremltools":
            return f"{type(value).__name__} of coremltools is no example input; {_SHAPES}"
    return None
