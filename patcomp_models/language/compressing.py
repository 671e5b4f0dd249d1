"""Language models in few bits: on the way into a bundle, or from a bundle that exists."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from patcomp import AIProgram
from patcomp.compression import CompressionRequest, weights_of
from patcomp.emit.asset import Writer, load
from patcomp.emit.files.manifest import current_recipe
from patcomp.emit.files.metadata import AssetMetadata
from patcomp.errors import ConversionWarning
from patcomp.program.compressed import Plan
from patcomp.targets import GPU, NEURAL_ENGINE, Target
from patcomp_models.bundle_folders.unfinished import unfinished
from patcomp_models.checkpoints.json_files import metadata_in
from patcomp_models.checkpoints.untrusted import copy_files, object_in
from patcomp_models.errors import BundleError, LanguageModelError
from patcomp_models.language.bundle import Bundle
from patcomp_models.language.contract import TABLE_FILE
from patcomp_models.language.quality import QualityReport, measured, plan_of
from patcomp_models.language.static_run import function_sizes
from patcomp_models.language.text_loss import Text


def compressed(
    program: AIProgram, request: CompressionRequest, vocabulary: int, calibration: Text | None = None
) -> AIProgram:
    """The program of a language model with smaller weights; a warning names each large weight that stays as it is.

    Args:
        program: the program, which is not changed.
        request: how small the weights become; `4bit` leaves the head in 8 bits, where it means integers.
        vocabulary: the number of tokens, by which the head is known.
        calibration: a text by which weights are rounded.
    """
    return applied(plan_for(program, request, vocabulary, calibration))


def plan_for(
    program: AIProgram,
    request: CompressionRequest,
    vocabulary: int,
    calibration: Text | None = None,
    target: Target | None = None,
) -> Plan[AIProgram]:
    """How `compressed` compresses a program; the target is by default that of its conversion."""
    return plan_of(program, _with_head(program, request, vocabulary), calibration, target)


def applied(plan: Plan) -> AIProgram:
    """The program of a plan; a warning names each large weight that stays as it is."""
    made = plan.applied()
    _warn_of_others(made)
    return made


def compress_bundle(
    bundle: str | Path,
    compress: str | Path | Mapping[str, Any] | CompressionRequest,
    *,
    out: str | Path,
    calibrate: str | Path | Sequence[int] | None = None,
    writer: Writer | None = None,
) -> Bundle:
    """Write a bundle again with smaller weights; the first one is not changed.

    Args:
        bundle: the folder of the bundle.
        compress: how small the weights become, as in `convert_language_model`.
        out: the folder of the new bundle, which must not exist.
        calibrate: the path of a text, or token ids, by which weights are rounded, as in `convert_language_model`.
        writer: what writes the asset, as in `convert_language_model`.

    Raises:
        LanguageModelError: the folder is no bundle, there is something at `out`, or the bundle is compressed already;
            the text is too short, or the bundle does not take it.
        ValueError: `compress` is no scheme, config or budget, or no weight can be compressed.
    """
    place, opened = Path(out), _Opened.of(bundle)
    request = CompressionRequest.of(compress, opened.target)
    _check_free(place)
    calibration = None if calibrate is None else opened.text(calibrate)
    made = applied(plan_for(opened.program, request, opened.vocabulary, calibration, opened.target))
    return opened.written(made, request, place, writer)


def measure_compression(
    bundle: str | Path,
    compress: Sequence[str | Path | Mapping[str, Any] | CompressionRequest],
    text: str | Path | Sequence[int],
    *,
    out: str | Path | None = None,
    calibrate: str | Path | Sequence[int] | None = None,
    by_layer: bool = False,
    html: str | Path | None = None,
    writer: Writer | None = None,
    progress: Callable[[str], object] = lambda name: None,
) -> QualityReport:
    """What smaller weights do to the loss of a bundle on a text, on the evaluator.

    Args:
        bundle: the folder of the bundle.
        compress: several ways to compress, each as in `convert_language_model`.
        text: the path of a text, or token ids. At most 16 parts of 512 tokens are read, spread over the text.
        out: where the last of them is written as a bundle, if it is.
        calibrate: as in `compress_bundle`; another text than the one that is measured.
        by_layer: whether the report has the rise of the loss for each layer alone.
        html: where the HTML report of the last of them is written, with a plot of all by size and loss, if it is.
        writer: as in `compress_bundle`.
        progress: is told the name of each way before it is tried.

    Raises:
        LanguageModelError, ValueError: as `compress_bundle`.
    """
    opened = _Opened.of(bundle)
    requests = [CompressionRequest.of(each, opened.target) for each in compress]
    if out is not None:
        _check_free(Path(out))
    calibration = None if calibrate is None else opened.text(calibrate)
    program = opened.program

    def plan(request: CompressionRequest) -> Callable[[], Plan]:
        return lambda: plan_for(program, request, opened.vocabulary, calibration, opened.target)

    plans = {request.text: plan(request) for request in requests}
    report, made = measured(program, opened.text(text), plans, by_layer=by_layer, started=progress)
    _warn_of_others(made)
    if html is not None:
        made.html(html)
    if out is not None:
        opened.written(made, requests[-1], Path(out), writer)
    return report


@dataclass(frozen=True)
class _Opened:
    """A bundle that is not compressed yet, with its program."""

    bundle: Bundle
    program: AIProgram
    described: dict[str, Any]

    @classmethod
    def of(cls, folder: str | Path) -> _Opened:
        source = Path(folder)
        try:
            metadata_in(source)
        except BundleError as error:
            raise LanguageModelError(str(error)) from None
        bundle = Bundle(source)
        described = bundle.metadata
        if described.get("compression"):
            raise LanguageModelError(
                f"the bundle {str(source)!r} is compressed already ({described['compression']}); compress the one that "
                "it was made of, because rounding twice loses more"
            )
        asset = load(bundle.asset)
        return cls(bundle, AIProgram(asset.module, initial_state=asset.initial_state), described)

    @property
    def target(self) -> Target:
        """The device that the bundle is for: only the Neural Engine's form has functions of fixed sizes."""
        return NEURAL_ENGINE if function_sizes(self.program.entrypoints) else GPU

    @property
    def vocabulary(self) -> int:
        return int(self.described["language"]["vocab_size"])

    def text(self, given: str | Path | Sequence[int]) -> Text:
        """Parts of a text, from the path of a file or from token ids."""
        tokens = self.bundle.tokens_of(Path(given)) if isinstance(given, str | Path) else list(given)
        return Text.of(self.program, tokens, int(self.described["language"]["max_context_length"]))

    def written(self, program: AIProgram, request: CompressionRequest, place: Path, writer: Writer | None) -> Bundle:
        """The bundle of a compressed program."""
        source, described = self.bundle.path, dict(self.described)
        with unfinished(place, uuid4().hex) as work:
            for each in source.iterdir():
                if (each.is_dir() and each.suffix != ".aimodel") or each.suffix == Path(TABLE_FILE).suffix:
                    copy_files(each, work.folder / each.name)
            name = described["assets"]["main"]
            program.save_asset(work.folder / name, metadata=_metadata(source / name), writer=writer)
            described |= {"compression": request.text, **current_recipe()}
            (work.folder / "metadata.json").write_text(json.dumps(described, indent=2) + "\n")
        return Bundle(place)


def _check_free(place: Path) -> None:
    if place.exists():
        raise LanguageModelError(f"{str(place)!r} exists; choose another folder for the bundle, or move it away")


def _with_head(program: AIProgram, request: CompressionRequest, vocabulary: int) -> CompressionRequest:
    head = [
        weight.name for weight in weights_of(program.module) if "matmul" in weight.kinds and vocabulary in weight.shape
    ]
    return request.with_head(head)


def _warn_of_others(program: AIProgram) -> None:
    assert program.compression is not None
    for other in program.compression.others:
        warnings.warn(str(other), ConversionWarning, stacklevel=5)


def _metadata(asset: Path) -> AssetMetadata:
    """What an asset says about itself."""
    found = object_in(asset / "metadata.json")
    own = {
        key: value for key, value in found.get("creatorDefinedMetadata", {}).items() if not key.startswith("patcomp.")
    }
    return AssetMetadata(found.get("author", ""), found.get("license", ""), found.get("description", ""), own)
