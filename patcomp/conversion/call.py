"""`patcomp.convert`: one call from a model to a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

from torch import nn
from torch.export import ExportedProgram

from patcomp.compression import CompressionRequest
from patcomp.conversion.comparing import comparisons
from patcomp.conversion.habits import unknown_argument, wrong_input
from patcomp.conversion.source import ModelSource, add_sources
from patcomp.emit.files.replacement import check_target
from patcomp.frontend_torch import TorchConverter
from patcomp.frontend_torch.exporting import export
from patcomp.patterns.installed_catalogs import target_named
from patcomp.program.program import AIProgram
from patcomp.targets import Target

if TYPE_CHECKING:
    from patcomp.compression.request import Given

Device: TypeAlias = "Literal['cpu', 'gpu', 'neural_engine'] | str | Target | None"

READER_OF_FILES = "patcomp.commands.from_python"
"""The module that reads files and folders, as the command does. It stands above this one, which knows it by name."""


@overload
def convert(
    model: nn.Module | ExportedProgram,
    inputs: Any = None,
    *,
    dynamic_shapes: Any = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    verify: bool | None = None,
    target: Device = None,
    compress: Given | None = None,
    save: str | Path | None = None,
) -> AIProgram: ...


@overload
def convert(
    model: str | Path,
    *,
    verify: bool | None = None,
    target: Device = None,
    compress: Given | None = None,
    save: str | Path | None = None,
) -> AIProgram | Path: ...


def convert(
    model: nn.Module | ExportedProgram | str | Path,
    inputs: Any = None,
    *,
    verify: bool | None = None,
    target: Device = None,
    compress: Given | None = None,
    save: str | Path | None = None,
    **of_modules: Any,
) -> AIProgram | Path:
    """Convert a model; check it, make it small and save it, as you say.

        program = patcomp.convert(model, (x,), verify=True, save="net.aimodel")
        program = patcomp.convert("net.pt2")
        bundle = patcomp.convert("Qwen3-0.6B", save="bundles/qwen3")  # a folder of assets for Apple's Swift package

    It does what `patcomp.export`, `TorchConverter`, `AIProgram.compress`, `verify_against` and `save_asset` do one
    after the other, and `patcomp convert` on a command line; those have further options.

    Args:
        model: a module, which is exported in the mode that it has; an exported program; or the name of a file, a folder
            or a model, as `patcomp convert` takes it: `"net.pt2"`, `"nets.py:net"`, the folder of a checkpoint.
        inputs: example inputs of a module: a tuple, a mapping of keyword arguments, or the only tensor.
        verify: whether the program, or the asset before it takes its place, is compared with PyTorch on the example
            inputs. By default a program is not compared, and the components of a bundle are.
        target: the device that the program is rewritten for, by name or as a `patcomp.targets.Target`.
        compress: how small the weights become: `"4bit"`, `"8bit"`, a scheme, a budget (`"4.5bits"`, `"30%"`) or a
            config.
        save: where to write: an asset, `"net.aimodel"`, or the folder of a bundle.
        of_modules: of a module, `dynamic_shapes` as `torch.export.export` takes them, by default all sizes are fixed;
            of a module or an exported program, `input_names` and `output_names`, a name for each input and output.

    Returns:
        The program. A folder of a language model, a pipeline of diffusers and a GGUF file become a bundle, whose folder
        `save` must name; then the value is this folder. So does every folder if `save` does not end in `.aimodel`.

    Raises:
        ExportError: the module cannot be exported.
        MismatchError: the numbers differ from PyTorch's; nothing is saved.
        TypeError: there is no such argument, or one is of another type; the message says what takes the place of an
            argument of another converter.
        ValueError: there is no such target or scheme, or `save` is needed, or does not fit.
        PatcompError, OSError: as of the functions above.
    """
    _check_arguments(model, inputs, of_modules)
    if not isinstance(verify, bool | None):
        raise TypeError(f"verify takes True or False, got {verify!r}; verify_against of the program takes a tolerance")
    if not isinstance(save, str | Path | None):
        raise TypeError(f"save takes a path, got {save!r}")
    exported: Callable[[], Sequence[ModelSource]]
    if isinstance(model, str | Path):
        files = import_module(READER_OF_FILES)
        if files.is_for_bundle(str(model), save):
            bundle: Path = files.bundle_of(str(model), save, verify=verify, target=target, compress=compress)
            return bundle
        exported = partial(files.sources_of_name, str(model))
    else:
        exported = partial(_sources, model, inputs, **of_modules)
    chosen = target_named(target)
    smaller = None if compress is None else CompressionRequest.of(compress, chosen)
    if save is not None:
        check_target(Path(save))
    sources = exported()
    if verify:
        _ = [source.inputs for source in sources]  # before the conversion: a file may hold none
    converted = add_sources(TorchConverter(), sources).to_coreai(target=chosen)
    program: AIProgram = converted if smaller is None else smaller.applied(converted.compress)

    def check(asset: Any) -> None:
        for result in comparisons(sources, converted, program, asset):
            result.check()

    if save is not None:
        program.save_asset(save, check=check if verify else None)
    elif verify:
        check(None)
    return program


_OF_MODULES = ("dynamic_shapes", "input_names", "output_names")


def _check_arguments(model: Any, inputs: Any, given: Mapping[str, Any]) -> None:
    """Check the types of a model and its inputs.

    Raises:
        TypeError: an argument is unknown, does not go with the model, or has another type.
    """
    for name in given:
        if name not in _OF_MODULES:
            raise TypeError(unknown_argument(name))
        if isinstance(given[name], str):
            raise TypeError(f"{name} takes a list or a mapping, got the text {given[name]!r}")
    if isinstance(model, nn.Module):
        if inputs is None:
            raise TypeError(
                "convert needs example inputs of a module, patcomp.convert(model, (x,)); they say its shapes and types"
            )
        if (wrong := wrong_input(inputs)) is not None:
            raise TypeError(wrong)
    elif isinstance(model, ExportedProgram):
        if inputs is not None or "dynamic_shapes" in given:
            raise TypeError("an exported program has its example inputs and sizes; leave inputs and dynamic_shapes out")
    elif isinstance(model, str | Path):
        if inputs is not None or given:
            raise TypeError(
                f"inputs, {', '.join(_OF_MODULES)} go with a module; a file or folder says them itself, and the "
                "options of `patcomp convert` change them"
            )
    else:
        raise TypeError(_no_model(model, inputs))


def _no_model(model: Any, inputs: Any) -> str:
    """What is wrong with an argument that is no model."""
    takes = "convert takes a torch.nn.Module with example inputs, an ExportedProgram, or the name of a file or folder"
    if isinstance(model, type) and issubclass(model, nn.Module):
        return f"{takes}; {model.__name__} is a class, and its instance is a model: {model.__name__}(...)"
    if isinstance(model, Mapping):
        return f"{takes}; a mapping has weights without a model: load_state_dict gives them to a module"
    if isinstance(inputs, nn.Module | ExportedProgram):
        return f"{takes}; the model comes first: convert(model, inputs)"
    if callable(model):
        return f"{takes}, got {type(model).__name__}; put a function into the forward of a module"
    return f"{takes}, got {type(model).__name__}"


def _sources(
    model: nn.Module | ExportedProgram,
    inputs: Any,
    *,
    dynamic_shapes: Any = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
) -> list[ModelSource]:
    """The caller's model, exported if it is a module."""
    named = partial(ModelSource, input_names=tuple(input_names or ()), output_names=tuple(output_names or ()))
    if isinstance(model, ExportedProgram):
        return [named("the exported program", model)]
    keywords = inputs if isinstance(inputs, Mapping) else {}
    positional = () if keywords is inputs else (inputs,) if hasattr(inputs, "shape") else tuple(inputs)
    exported = export(model, positional, keywords, dynamic_shapes=dynamic_shapes)
    return [named(type(model).__name__, exported, model)]
