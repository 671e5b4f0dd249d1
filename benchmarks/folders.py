"""What small folders of every kind become: ops, composites, and how near the numbers are.

    python -m benchmarks.folders [--markdown] [--only NAME ...]

Each model has the layers of its class in small sizes, and random weights. Every function is compared with eager PyTorch
on the evaluator and on the Core AI runtime, in float32. With `--markdown`, the table is written to
`docs/generated/converted-folders.md`.
"""

from __future__ import annotations

import argparse
import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from patcomp.commands.tables import markdown_table
from patcomp.torchvision import declare_operators

DOCUMENT = Path(__file__).parents[1] / "docs" / "generated" / "converted-folders.md"
_RIGHT = ["ops", "evaluator", "runtime"]
_COLUMNS = ["kind", "folder", "part", *_RIGHT, "composites"]


@dataclass(frozen=True)
class Source:
    """A folder to convert."""

    name: str
    write: Callable[[Path], Any]
    """Writes the folder into an empty one, and gives its path, or a model that is saved there."""
    options: tuple[tuple[str, Any], ...] = ()
    """Of the kind of bundle, for a small example."""


def sources() -> tuple[list[Source], list[Source]]:
    """The folders of single models, and those of bundles."""
    from tests.models.bundles import (
        further_pipelines,
        pipelines,
        segmenters,
        speaking_models,
        speech_models,
        streaming_models,
        vits_models,
    )
    from tests.models.tasks import reading_models
    from tests.models.tasks.folders import MODELS, folder

    models = [
        *(Source(name, partial(folder, name=name)) for name in MODELS),
        Source("VisionEncoderDecoderModel", partial(reading_models.image_to_text, name="trocr")),
        # with random weights, one pixel of PP-OCR's detector is on the step of a sigmoid, which magnifies rounding
        *(Source(name, partial(reading_models.lines, name=name)) for name in reading_models.LINES if "Det" not in name),
    ]
    flux = (("image_size", 32),)
    bundles = [
        *(Source(name, getattr(pipelines, name))
          for name in ("stable_diffusion", "stable_diffusion_xl", "stable_diffusion_3")),
        *(Source(name, getattr(pipelines, name), flux) for name in ("flux", "flux2_klein")),
        *(Source(name, getattr(further_pipelines, name), tuple(options.items()))
          for name, options in further_pipelines.OPTIONS.items()),
        *(Source(name, getattr(segmenters, name)) for name in ("sam", "sam2", "sam3")),
        *(Source(name, getattr(speech_models, name)) for name in ("whisper", "parakeet", "moonshine")),
        *(Source(name, partial(speech_models.ctc, name=name)) for name in ("Wav2Vec2ForCTC", "HubertForCTC")),
        *(Source(name, getattr(streaming_models, name))
          for name in ("mimi", "encodec", "pocket", "vibe_voice", "nemotron", "sortformer")),
        *(Source(name, getattr(speaking_models, name)) for name in ("speech_t5", "bark")),
        Source("vits", vits_models.vits),
    ]  # fmt: skip
    return models, bundles


def rows_of_model(source: Source, place: Path) -> Iterator[tuple[str, ...]]:
    """The row of a single model."""
    from patcomp_models.tasks.folder_to_program import entries_of
    from patcomp_models.tasks.table import task_of

    source.write(place)
    task = task_of(source.name)
    yield _row(task.name if task else "", source.name, "", entries_of(place))


def rows_of_bundle(source: Source, place: Path) -> Iterator[tuple[str, ...]]:
    """The rows of a bundle, one for each part."""
    from patcomp_models.bundles.folder_to_bundle import bundle_kind

    written = source.write(place / "model")
    folder = written if isinstance(written, Path) else next(path.parent for path in place.rglob("model.safetensors"))
    kind = bundle_kind(folder)
    for component in kind.of(folder, "float32", dict(source.options)).components():
        yield _row(kind.name, source.name, component.role, component.entries())


def _row(kind: str, name: str, part: str, entries: Sequence[Any]) -> tuple[str, ...]:
    from patcomp import TorchConverter
    from patcomp_models.tasks.folder_to_program import exported_entry

    converter = TorchConverter()
    for entry in entries:
        converter.add_exported_program(
            exported_entry(entry), entry.given, entry.outputs, entry.states or None, entrypoint_name=entry.name
        )
    program = converter.to_coreai()
    errors = {"evaluator": 0.0, "runtime": 0.0}
    for entry in entries:
        inputs = tuple(value.clone() for value in entry.inputs.values())
        found = program.verify_against(entry.module, inputs, entrypoint=entry.name)
        found.check()
        for each in found.errors:
            errors[each.backend] = max(errors[each.backend], each.max_rel)
    composites = ", ".join(f"{count} {name}" for name, count in sorted(program.composites.items()))
    return (kind, name, part, str(program.summary().ops), *(f"{error:.0e}" for error in errors.values()), composites)


def markdown(rows: Sequence[tuple[str, ...]]) -> str:
    """The document."""
    lines = [
        "# Folders of every kind",
        "",
        "`python -m benchmarks.folders --markdown` writes this page: what `patcomp convert` makes of small models with",
        "random weights, whose layers are those of the class. `ops` counts the ops of all functions, and of the",
        "bodies of composites. The next two columns are the largest differences from eager PyTorch, relative to the",
        "largest value of the output, in float32.",
        "",
        *markdown_table(_COLUMNS, rows, right_aligned=_RIGHT),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", action="store_true", help=f"write the table to docs/generated/{DOCUMENT.name}")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these folders")
    options = parser.parse_args()
    declare_operators()
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    models, bundles = sources()
    rows: list[tuple[str, ...]] = []
    for each, convert in [*((m, rows_of_model) for m in models), *((b, rows_of_bundle) for b in bundles)]:
        if options.only and each.name not in options.only:
            continue
        with TemporaryDirectory() as place:
            for row in convert(each, Path(place)):
                rows.append(row)
                print(" | ".join(row), file=sys.stderr)
    if options.markdown:
        DOCUMENT.write_text(markdown(rows))
    else:
        print("\n".join(markdown_table(_COLUMNS, rows, right_aligned=_RIGHT)))


if __name__ == "__main__":
    main()
