"""Language models in few bits: on the way into a bundle, or from a bundle that exists."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import uuid4

from patcomp import AIProgram
from patcomp.compression import CompressionRequest, weights_of
from patcomp.emit.asset import Writer, load
from patcomp.emit.files.manifest import current_recipe
from patcomp.emit.files.metadata import AssetMetadata
from patcomp.program.compressed import Plan, with_alternatives
from patcomp.program.sweep import floats_of
from patcomp.targets import GPU, NEURAL_ENGINE, Target
from patcomp_models.bundle_folders.unfinished import unfinished
from patcomp_models.checkpoints.json_files import metadata_in
from patcomp_models.checkpoints.untrusted import copy_files, inside, object_in
from patcomp_models.errors import BundleError, LanguageModelError
from patcomp_models.language.bundle import Bundle
from patcomp_models.language.contract import MAIN, TABLE_FILE
from patcomp_models.language.held_out import HeldOut
from patcomp_models.language.quality import MeasuredQuality, QualityReport, all_applied
from patcomp_models.language.static_run import function_sizes


def plans_for(
    programs: Mapping[str, AIProgram],
    request: CompressionRequest,
    vocabulary: int,
    calibration: HeldOut | None = None,
    target: Target | None = None,
    budgets: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, Plan[AIProgram]]:
    """How the programs of a bundle are compressed, by role.

    Args:
        programs: of the bundle, which are not changed.
        request: how small the weights become; `4bit` leaves the head in 8 bits, where it means integers.
        vocabulary: the number of tokens, by which the head is known.
        calibration: texts and pictures by which weights are rounded, and a budget chooses schemes.
        target: the device that the programs are for; by default that of their conversion.
        budgets: the bytes of each program, if they are the budget.

    Raises:
        LanguageModelError: a budget of bytes is for several programs.
    """
    if isinstance(request.budget, int) and len(programs) > 1:
        raise LanguageModelError(
            f"a budget of {request.budget:,} bytes does not say how many each of {len(programs)} assets may take; give "
            "a share (60%) or bits (4.5bits)"
        )
    examples = {} if calibration is None else calibration.examples(programs)
    plans = {}
    for role, program in programs.items():
        own = _with_head(program, request, vocabulary)
        given = examples.get(role)
        inputs, entrypoint = (None, MAIN) if given is None else (given.values, given.entrypoint)
        size, bits = (budgets[role], None) if role in budgets else (own.budget, own.bits)
        plans[role] = Plan.of(program, own.config, size, bits, inputs, entrypoint, target=target)
    return plans


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
    made = all_applied(opened.plans(request, opened.held_out(calibrate)))
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
    calibration, held_out = opened.held_out(calibrate), opened.held_out(text)
    assert held_out is not None
    measured = MeasuredQuality(opened.programs, held_out, by_layer=by_layer)
    for request in requests:
        progress(request.text)
        measured.add(request.text, opened.plans(request, calibration))
    report = measured.report()
    if html is not None:
        with_alternatives(measured.made[MAIN], report.alternatives).html(html)
    if out is not None:
        opened.written(measured.made, requests[-1], Path(out), writer)
    return report


def sweep_compression(
    bundle: str | Path,
    text: str | Path | Sequence[int],
    *,
    calibrate: str | Path | Sequence[int] | None = None,
    budget: str | CompressionRequest | None = None,
    progress: Callable[[str], object] = lambda name: None,
) -> QualityReport:
    """One table of a bundle as it is, in 8 and 4 bits, and within a budget: perplexity, and the same next tokens.

    Args:
        bundle: the folder of the bundle.
        text, calibrate, progress: as in `measure_compression`.
        budget: `"4.5bits"` or `"30%"`; by default the bytes of `4bit`, with schemes that are chosen for each weight.

    Raises:
        LanguageModelError, ValueError: as `compress_bundle`.
    """
    opened = _Opened.of(bundle)
    calibration, held_out = opened.held_out(calibrate), opened.held_out(text)
    assert held_out is not None
    measured = MeasuredQuality(opened.programs, held_out)
    for given in ("8bit", "4bit", budget):
        sizes = {}
        if given is None:
            reports = {role: program.compression for role, program in measured.made.items()}
            sizes = {role: report.after for role, report in reports.items() if report is not None}
        request = CompressionRequest.of(given or "8bit", opened.target)
        name = request.text if given is not None else "budget"
        progress(name)
        measured.add(name, opened.plans(request, calibration, sizes))
    return measured.report(floats_of(opened.programs[MAIN], "before"))


@dataclass(frozen=True)
class _Opened:
    """A bundle that is not compressed yet, with its programs by role."""

    bundle: Bundle
    programs: Mapping[str, AIProgram]
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
        assets = {
            role: load(inside(source, file, f"assets.{role} of metadata.json", LanguageModelError))
            for role, file in described["assets"].items()
        }
        programs = {role: AIProgram(each.module, initial_state=each.initial_state) for role, each in assets.items()}
        return cls(bundle, programs, described)

    @property
    def target(self) -> Target:
        """The device that the bundle is for: only the Neural Engine's form has functions of fixed sizes."""
        return NEURAL_ENGINE if function_sizes(self.programs[MAIN].entrypoints) else GPU

    def plans(
        self,
        request: CompressionRequest,
        calibration: HeldOut | None,
        budgets: Mapping[str, int] = MappingProxyType({}),
    ) -> dict[str, Plan[AIProgram]]:
        """How the programs are compressed."""
        vocabulary = int(self.described["language"]["vocab_size"])
        return plans_for(self.programs, request, vocabulary, calibration, self.target, budgets)

    def held_out(self, given: str | Path | Sequence[int] | None) -> HeldOut | None:
        """Parts of texts and pictures, as `HeldOut.of` takes them."""
        return None if given is None else HeldOut.of(given, self.programs, self.bundle.path)

    def written(
        self, programs: Mapping[str, AIProgram], request: CompressionRequest, place: Path, writer: Writer | None
    ) -> Bundle:
        """The bundle of compressed programs."""
        source, described = self.bundle.path, dict(self.described)
        with unfinished(place, uuid4().hex) as work:
            for each in source.iterdir():
                if (each.is_dir() and each.suffix != ".aimodel") or each.suffix == Path(TABLE_FILE).suffix:
                    copy_files(each, work.folder / each.name)
            for role, program in programs.items():
                name = described["assets"][role]
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


def _metadata(asset: Path) -> AssetMetadata:
    """What an asset says about itself."""
    found = object_in(asset / "metadata.json")
    own = {
        key: value for key, value in found.get("creatorDefinedMetadata", {}).items() if not key.startswith("patcomp.")
    }
    return AssetMetadata(found.get("author", ""), found.get("license", ""), found.get("description", ""), own)
