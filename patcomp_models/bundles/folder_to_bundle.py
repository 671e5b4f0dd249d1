"""From the folder of a model, or of a pipeline of models, to a bundle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from patcomp.emit.asset import Writer
from patcomp.targets import Target
from patcomp_models.bundles.kind import Conversion, Kind, check_choices, kinds
from patcomp_models.bundles.loading import allowing
from patcomp_models.bundles.option_types import fits_type, shown_type
from patcomp_models.checkpoints.agreement import Allowed
from patcomp_models.checkpoints.gguf.folder import is_gguf
from patcomp_models.checkpoints.untrusted import check_folder, object_in, reading
from patcomp_models.errors import BundleError
from patcomp_models.options import Progress
from patcomp_models.tasks.table import task_of


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
    progress: Progress | None = None,
    writer: Writer | None = None,
    **options: Any,
) -> Path:
    """Convert all models of a folder to a bundle, one after the other.

    Args:
        folder: of a pipeline of diffusers (`model_index.json`), or of a checkpoint of transformers (`config.json`); or
            a GGUF file.
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
        options: of the kind, such as `image_size`. Those of the kinds `llm` and `vlm` are the arguments of
            `patcomp.language.convert_language_model` and `convert_vision_language_model`; the argument `verify` of the
            former is called `drafted` here, and `check` is a prompt. All kinds take `allow_missing` and
            `allow_unexpected`, names of weights or patterns, as `convert_language_model` does.

    If the process is killed, the same call goes on behind the components that are finished. Nothing is at `out` until
    the bundle is complete, and nothing is left after an error.

    Returns:
        The folder of the bundle.

    Raises:
        BundleError: the folder is of no kind, lacks a component, or an option does not fit it.
        UnsupportedError: a component has ops that cannot be converted; the message lists all of them.
        VerificationError: a component computes other numbers than PyTorch.
    """
    place = Path(out)
    check_choices(place, dtype, name)
    form = bundle_kind(Path(folder), kind)
    allowed = {each: options.pop(each) for each in _ALLOWING if each in options and each not in form.options()}
    for each, given in allowed.items():
        if not fits_type(given, str | Sequence[str]):
            raise BundleError(f"{each} is {given!r}, and must be {shown_type(str | Sequence[str])}")
    made = form.of(Path(folder), dtype or form.default_dtype, options)
    with allowing(Allowed.of(*(allowed.get(each, ()) for each in _ALLOWING))):
        made.convert(Conversion(place, target, compress, verify, name, progress, writer))
    return place


_ALLOWING = ("allow_missing", "allow_unexpected")
"""What every kind of bundle takes. Those of language models have these options themselves."""


def bundle_kind(folder: Path, name: str | None = None) -> type[Kind]:
    """The kind of bundle that a folder becomes.

    Args:
        folder: of the models, or a GGUF file.
        name: of the kind, if the user chooses it.

    Raises:
        BundleError: there is no such kind, or the folder is of none, or has what leads out of it.
    """
    is_file = is_gguf(folder)
    if not is_file and not folder.is_dir():
        what = f"{str(folder)!r} is a file" if folder.exists() else f"there is no folder {str(folder)!r}"
        raise BundleError(f"{what}; give the folder of a checkpoint or of a pipeline, or a GGUF file")
    check_folder(folder)
    if name is not None:
        found = next((each for each in kinds() if each.name == name), None)
        if found is None:
            raise BundleError(f"there is no kind {name!r}; the kinds are {', '.join(each.name for each in kinds())}")
        if is_file and not found.fits(folder, {}):
            raise BundleError(f"{str(folder)!r} is a GGUF file, and bundles of the kind {name!r} hold {found.holds}")
        return found
    config = {} if is_file else _config_of(folder)
    with reading(folder):
        found = next((each for each in kinds() if each.fits(folder, config)), None)
    if found is None:
        names = config.get("architectures")
        listed = ", ".join(map(str, names)) if isinstance(names, list) else ""
        what = str(config.get("_class_name") or listed or "no class that it names")
        held = "; ".join(f"{each.name} ({each.holds})" for each in kinds())
        becomes = (
            "one asset; name the output NAME.aimodel"
            if task_of(what)
            else f"no bundle; bundles are of the kinds {held}"
        )
        raise BundleError(f"{str(folder)!r} holds {what}, which becomes {becomes}")
    return found


def _config_of(folder: Path) -> Mapping[str, Any]:
    for name in ("model_index.json", "config.json"):
        if (folder / name).is_file():
            return object_in(folder / name)
    raise BundleError(
        f"{str(folder)!r} has no model_index.json and no config.json; give the folder of a pipeline as diffusers saves "
        "it, or of a checkpoint as transformers saves it"
    )
