"""What `patcomp compress` does with bundles."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from patcomp.commands.common import UsageError, print_json, require_transformers, say
from patcomp.commands.progress import working
from patcomp.commands.sweep import show_sweep
from patcomp.commands.tables import show

if TYPE_CHECKING:
    from patcomp.compression import CompressionRequest
    from patcomp.emit.asset import Writer as WriterName


def compress_or_measure(
    bundle: Path,
    output: Path | None,
    requests: Sequence[str | CompressionRequest],
    *,
    check: str | None,
    calibrate: str | None,
    html: Path | None,
    writer: WriterName | None,
    as_json: bool,
    sweeps: bool,
) -> None:
    """`patcomp compress BUNDLE`.

    Raises:
        UsageError: an option is missing or does not fit a bundle, or its models are no language models.
        BundleError: the bundle cannot be read.
    """
    if output is None and check is None:
        option = "" if sweeps else "the folder of the new bundle with --output, or "
        raise UsageError(f"name {option}a text to measure on with --check")
    if html is not None and check is None:
        raise UsageError("--html of a bundle goes with --check TEXT")
    if len(requests) > 1 and (output is not None or check is None):
        raise UsageError("--compare goes with --check TEXT and without --output")
    from patcomp_models.checkpoints.json_files import metadata_in

    if (kind := metadata_in(bundle).get("kind")) not in ("llm", "vlm"):
        raise UsageError(
            f"{bundle} is a bundle of the kind {kind}, and those of language models are compressed; convert its model "
            "again with --compress"
        )
    require_transformers("a language model")
    from patcomp_models.language import compress_bundle as compressed
    from patcomp_models.language import measure_compression, sweep_compression

    if sweeps:
        assert check is not None
        (request,) = requests
        budget = None if isinstance(request, str) else request
        with working(f"compressing {bundle}", True):
            swept = sweep_compression(bundle, check, calibrate=calibrate, budget=budget)
        show_sweep(bundle.name, swept, html, as_json=as_json)
        return
    if check is None:
        assert output is not None
        with working(f"compressing {bundle}", True):
            compressed(bundle, requests[0], out=output, calibrate=calibrate, writer=writer)
    else:
        with working(f"compressing {bundle}", True):
            report = measure_compression(
                bundle,
                requests,
                check,
                out=output,
                calibrate=calibrate,
                by_layer=len(requests) == 1,
                html=html,
                writer=writer,
            )
        if as_json:
            print_json(report.as_dict())
        else:
            for table in report.tables():
                show(table)
    if output is not None:
        say(f"bundle:      {output}")
