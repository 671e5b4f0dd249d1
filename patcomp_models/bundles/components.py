"""Kinds of bundles whose models are components: each is converted, verified, compressed and written for itself."""

from __future__ import annotations

import gc
import json
import os
import warnings
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import astuple, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

from patcomp import AIProgram, TorchConverter
from patcomp.compression import CompressionRequest
from patcomp.emit.asset import Asset, Writer
from patcomp.errors import ConversionWarning, PatcompError, reason_of
from patcomp.ir.anonymous import anonymous
from patcomp_models.bundle_folders.contract import METADATA_VERSION, compilation
from patcomp_models.bundle_folders.unfinished import request_of, unfinished
from patcomp_models.bundles.kind import Component, Conversion, Kind
from patcomp_models.bundles.loading import allowed_now
from patcomp_models.checkpoints.exporting import sizes_kept_by_the_caller
from patcomp_models.checkpoints.untrusted import reading
from patcomp_models.errors import BundleError
from patcomp_models.options import Progress
from patcomp_models.tasks.entries import Entry
from patcomp_models.tasks.folder_to_program import exported_entry


class KindOfComponents(Kind):
    """A kind of bundle that is converted one component after the other."""

    is_known_again: ClassVar[bool] = True
    """Whether a later run can tell that its models are the same, and go on where one stopped."""

    def device(self) -> str:
        """The device on which Swift runs the bundle."""
        return "gpu"

    @abstractmethod
    def components(self) -> Sequence[Component]:
        """The parts.

        Raises:
            BundleError: the folder lacks one, or has one that the kind does not take.
        """

    @abstractmethod
    def metadata(self) -> Mapping[str, Any]:
        """What `metadata.json` says beside the name and the assets."""

    @abstractmethod
    def write_files(self, bundle: Path) -> None:
        """Write the files beside the assets, such as tokenizers."""

    def convert(self, chosen: Conversion) -> None:
        target = chosen.target or self.device()
        request = None if chosen.compress is None else CompressionRequest.of(chosen.compress, target)
        step: Progress = chosen.progress or (lambda what: nullcontext())
        with reading(self.folder):
            components = self.components()
        facts = {"kind": self.name, "target": chosen.target, "compress": repr(request), "verify": chosen.verify,
                 "name": chosen.name, "writer": chosen.writer, "allowed": astuple(allowed_now()),
                 "fields": [getattr(self, each.name) for each in fields(self)]}  # fmt: skip
        # a later run does not know an object again
        is_plain = self.is_known_again and (chosen.target is None or isinstance(chosen.target, str))
        with unfinished(chosen.out, request_of(self.folder, facts) if is_plain else uuid4().hex) as work:
            for each in components:
                work.once(
                    each.role,
                    partial(_write, each, work.folder, target, request, chosen.verify, step, chosen.writer),
                )
                gc.collect()  # the models of a component are large, and have cycles
            with step("writing the other files"):
                name = chosen.name or Path(os.path.realpath(self.folder)).name
                with reading(self.folder):
                    self.write_files(work.folder)
                    described = _description(self, components, name, request)
                (work.folder / "metadata.json").write_text(json.dumps(described, indent=2) + "\n")


def _write(
    component: Component,
    folder: Path,
    target: Any,
    request: CompressionRequest | None,
    verify: bool,
    step: Progress,
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
            with sizes_kept_by_the_caller() if entry.keeps_sizes else nullcontext():
                converter.add_exported_program(
                    exported_entry(entry), entry.given, entry.outputs, entry.states or None, entrypoint_name=entry.name
                )
        program = converter.to_coreai(target=target)
    is_compressed = request is not None and component.compressed
    if is_compressed and verify:
        with step(f"verifying {role}"):
            for entry in entries:
                _verify(program, entry, None, backends=["evaluator"])
    if request is not None and component.compressed:
        with step(f"compressing {role}"):
            program = request.applied(program.compress)

    def check(asset: Asset) -> None:
        for entry in entries:
            if is_compressed:
                program.verify_compressed(entry.module, _inputs(entry), entrypoint=entry.name, asset=asset).check()
            else:
                _verify(program, entry, asset)

    written = replace(program, module=anonymous(program.module))  # a bundle does not tell where its model was
    with step(f"writing {component.file}" if not verify else f"writing and verifying {component.file}") as shown:
        progress = shown if callable(shown) else None
        written.save_asset(folder / component.file, writer=writer, progress=progress, check=check if verify else None)


def _inputs(entry: Entry) -> tuple[Any, ...]:
    return tuple(value.clone() for value in entry.inputs.values())


def _verify(program: AIProgram, entry: Entry, asset: Asset | None, **options: Any) -> None:
    options |= {"entrypoint": entry.name, "asset": asset}
    verification = program.verify_against(entry.module, _inputs(entry), **options).check()
    for each in verification.of_partial_sums:
        warnings.warn(each, ConversionWarning, stacklevel=2)


def _description(
    kind: KindOfComponents, components: Any, name: str, request: CompressionRequest | None
) -> dict[str, Any]:
    """The content of `metadata.json`."""
    return {
        "metadata_version": METADATA_VERSION,
        "kind": kind.name,
        "name": name,
        "assets": {component.role: component.file for component in components},
        **kind.metadata(),
        "compression": None if request is None else request.text,
        **compilation(),
    }
