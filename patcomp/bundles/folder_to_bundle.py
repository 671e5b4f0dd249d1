"""From the folder of a model, or of a pipeline of models, to a bundle."""

from __future__ import annotations

import gc
import json
import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from patcomp import AIProgram, TorchConverter
from patcomp.bundle_folders.errors import BundleError
from patcomp.bundle_folders.json_files import compilation, object_in
from patcomp.bundle_folders.unfinished import request_of, unfinished
from patcomp.bundles.kind import VERSION, Component, Kind, kinds
from patcomp.compression import CompressionRequest
from patcomp.emit.asset import Writer
from patcomp.errors import ConversionWarning, PatcompError, reason_of
from patcomp.ir.anonymous import make_anonymous
from patcomp.language.folders import LANGUAGE_MODELS
from patcomp.targets import Target
from patcomp.tasks.entries import Entry
from patcomp.tasks.folder_to_program import exported
from patcomp.tasks.table import task_of

Step = Callable[[str], AbstractContextManager[Any]]
"""Shows what is being done: called with a sentence, it gives what surrounds the work."""
_DTYPES = ("float16", "bfloat16", "float32")


def convert_bundle(
    folder: str | Path,
    *,
    out: str | Path,
    kind: str | None = None,
    dtype: Literal["float16", "bfloat16", "float32"] | None = None,
    target: Literal["cpu", "gpu", "neural_engine"] | Target | None = None,
    compress: str | Path | Mapping[str, Any] | None = None,
    verify: bool = True,
    name: str | None = None,
    progress: Step | None = None,
    writer: Writer | None = None,
    **options: Any,
) -> Path:
    """Convert all models of a folder to a bundle, one after the other.

    Args:
        folder: of a pipeline of diffusers (`model_index.json`), or of a checkpoint of transformers (`config.json`).
        out: the folder of the bundle, which must not exist.
        kind: of the bundle; by default what the folder holds.
        dtype: the type of the weights; by default that of the kind: float16, or float32 for models of speech. A kind
            may keep a component in float32.
        target: a device, as in `TorchConverter.to_coreai`; by default the one on which Swift runs the kind.
        compress: how small the weights become, as of `convert_language_model`; a budget is of each component.
        verify: whether each function is compared with PyTorch, on the evaluator, and on the Core AI runtime where it is
            installed.
        name: of the bundle; by default that of the folder.
        progress: is called with the name of each step.
        writer: what writes the assets, `"python"` or `"coreai"`; by default as for `AIProgram.save_asset`.
        options: of the kind, such as `image_size`.

    If the process is killed, the same call goes on behind the components that are finished. Nothing is at `out` until
    the bundle is complete, and nothing is left after an error.

    Returns:
        The folder of the bundle.

    Raises:
        BundleError: the folder is of no kind, lacks a component, or an option does not fit it.
        UnsupportedError: a component has ops that cannot be converted; the message lists all of them.
        VerificationError: a component computes other numbers than PyTorch.
    """
    source, place = Path(folder), Path(out)
    if dtype is not None and dtype not in _DTYPES:
        raise BundleError(f"dtype is one of {', '.join(_DTYPES)}, got {dtype!r}")
    if place.exists():
        raise BundleError(f"{str(place)!r} exists; choose another folder for the bundle, or move it away")
    form = kind_of(source, kind)
    weights = dtype or form.default_dtype
    chosen = form.of(source, weights, options)
    request = None if compress is None else CompressionRequest.of(compress)
    step: Step = progress or (lambda what: nullcontext())
    components = chosen.components()
    is_plain = target is None or isinstance(target, str)
    facts = {"kind": chosen.name, "dtype": weights, "target": target, "compress": repr(request), "verify": verify,
             "name": name, "writer": writer, "options": options}  # fmt: skip
    with unfinished(place, request_of(source, facts) if is_plain else uuid4().hex) as work:
        for each in components:
            work.once(
                each.role, partial(_write, each, work.folder, target or chosen.target, request, verify, step, writer)
            )
        with step("writing the other files"):
            chosen.write_files(work.folder)
            described = _description(chosen, components, name or source.resolve().name, request)
            (work.folder / "metadata.json").write_text(json.dumps(described, indent=2) + "\n")
    return place


def kind_of(folder: Path, name: str | None = None) -> type[Kind]:
    """The kind of bundle that a folder becomes.

    Args:
        folder: of the models.
        name: of the kind, if the user chooses it.

    Raises:
        BundleError: there is no such kind, or the folder is of none.
    """
    if not folder.is_dir():
        raise BundleError(f"there is no folder {str(folder)!r}; give the folder of a checkpoint or of a pipeline")
    if name is not None:
        found = next((each for each in kinds() if each.name == name), None)
        if found is None:
            others = "; `patcomp convert-lm` and `convert-vlm` make those of the kinds llm and vlm"
            raise BundleError(
                f"there is no kind {name!r}; the kinds are {', '.join(each.name for each in kinds())}{others}"
            )
        return found
    config = _config_of(folder)
    found = next((each for each in kinds() if each.fits(folder, config)), None)
    if found is None:
        what = config.get("_class_name") or ", ".join(config.get("architectures") or ()) or "no class that it names"
        raise BundleError(f"{str(folder)!r} holds {what}, {_not_here(what, config)}")
    return found


def _not_here(architecture: str, config: Mapping[str, Any]) -> str:
    """What is said of a folder of no kind."""
    if architecture.endswith(LANGUAGE_MODELS):
        return "a language model, of which `patcomp convert-lm` makes a bundle"
    if "vision_config" in config and architecture.endswith("ForConditionalGeneration"):
        return "a model of images and text, of which `patcomp convert-vlm` makes a bundle"
    if task_of(architecture) is not None:
        return "which becomes one asset; name the output NAME.aimodel"
    held = "; ".join(f"{each.name} ({each.holds})" for each in kinds())
    return f"which becomes no bundle; bundles are of the kinds {held}"


def _config_of(folder: Path) -> Mapping[str, Any]:
    for name in ("model_index.json", "config.json"):
        if (folder / name).is_file():
            return object_in(folder / name)
    raise BundleError(
        f"{str(folder)!r} has no model_index.json and no config.json; give the folder of a pipeline as diffusers saves "
        "it, or of a checkpoint as transformers saves it"
    )


def _write(
    component: Component,
    folder: Path,
    target: Any,
    request: CompressionRequest | None,
    verify: bool,
    step: Step,
    writer: Writer | None,
) -> None:
    """Convert, verify, compress and write a component."""
    role = component.role
    with step(f"loading {role}"):
        try:
            entries = component.entries()
        except PatcompError:
            raise
        except Exception as error:  # the code of models and their files can raise anything
            raise BundleError(f"{role} cannot be loaded: {reason_of(error)}") from error
    with step(f"converting {role}"):
        converter = TorchConverter()
        for entry in entries:
            with warnings.catch_warnings():
                if entry.keeps_sizes:
                    warnings.filterwarnings("ignore", "the model was exported for sizes", ConversionWarning)
                converter.add_exported_program(
                    exported(entry), entry.given, entry.outputs, entry.states or None, entrypoint_name=entry.name
                )
        program = converter.to_coreai(target=target)
    if verify:
        with step(f"verifying {role}"):
            for entry in entries:
                _verify(program, entry)
    if request is not None and component.compressed:
        with step(f"compressing {role}"):
            program = request.applied(program.compress)
    make_anonymous(program.module)  # a bundle does not tell where its model was
    with step(f"writing {component.file}") as shown:
        program.save_asset(folder / component.file, writer=writer, progress=shown if callable(shown) else None)
    del program, entries, converter
    gc.collect()


def _verify(program: AIProgram, entry: Entry) -> None:
    inputs = {name: value.clone() for name, value in entry.inputs.items()}
    program.verify_against(entry.module, tuple(inputs.values()), entrypoint=entry.name).check()


def _description(kind: Kind, components: Any, name: str, request: CompressionRequest | None) -> dict[str, Any]:
    """The content of `metadata.json`."""
    return {
        "metadata_version": VERSION,
        "kind": kind.name,
        "name": name,
        "assets": {component.role: component.file for component in components},
        **kind.metadata(),
        "compression": None if request is None else request.text,
        "compilation": compilation(),
    }
