"""What small models of every type of images and text become: tokens of a loop on Apple's runtime, beside `generate`.

    python -m benchmarks.image_text_types [--only TYPE ...] [--markdown]

The types are those of `AutoModelForImageTextToText`. A model has the layers of its type in small sizes, random weights
in float32, and a square image of one tile between 12 tokens. With `--markdown`, the table is written to
`docs/generated/image-text-types.md`; with `--only`, its rows of other types stay as they are.
"""

from __future__ import annotations

import argparse
import logging
import sys
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from patcomp.commands.tables import markdown_table

DOCUMENT = Path(__file__).parents[1] / "docs" / "generated" / "image-text-types.md"
_NEW = 8
_COLUMNS = ["type", "outcome", "pictures", "why, or tokens"]
_SQUARE, _TILES, _SHAPES, _PACKED = "square", "tiles", "of any shape", "tiles, packed"


def tried(kind: str) -> tuple[str, ...]:
    """The row of a type."""
    from patcomp.errors import PatcompError, reason_of
    from patcomp_models.language.vision.refused import PAIR, WITHOUT_TOWER
    from patcomp_models.language.vision.towers import TOWERS

    if kind not in TOWERS:
        outcome = "encode and decode" if WITHOUT_TOWER[kind] == PAIR else "refused by name"
        return kind, outcome, "", WITHOUT_TOWER[kind]
    tower = TOWERS[kind]
    pictures = _SHAPES if tower.takes_shapes else _PACKED if tower.packs else _TILES if tower.has_tiles else _SQUARE
    pictures += ", one shape in a prompt" * tower.takes_one_shape
    with TemporaryDirectory() as place:
        try:
            made, wanted = both_tokens(kind, Path(place) / "bundle")
        except pytest.skip.Exception as skipped:
            return kind, "not built", pictures, str(skipped)
        except PatcompError as error:
            return kind, "refused", pictures, str(error).splitlines()[0]
        except Exception as error:  # the code of a model raises anything, and other types are tried, too
            return kind, "error", pictures, reason_of(error)
    return kind, "exact" if made == wanted else "differs", pictures, " ".join(map(str, made))


def both_tokens(kind: str, place: Path) -> tuple[list[int], list[int]]:
    """The tokens of the loop, and those of transformers."""
    from benchmarks.runtime_loop import language, tokens_of
    from patcomp_models.language import convert_vision_language_model
    from patcomp_models.language.vision.towers import tower_of
    from tests.models.language import vision_checkpoints as small

    model: Any = small.checkpoint(kind)
    tower = tower_of(model, small.SIZE)
    tokens = small.prompt(tower.token_count)
    wanted = small.generated(model, tower, tokens, small.pixels(), _NEW)[0]
    convert_vision_language_model(model, out=place, dtype="float32", image_processor=small.PROCESSOR)
    made = tokens_of(language(place, tokens, _NEW, [small.pixels().numpy()]))
    return made[: len(wanted)], wanted


def markdown(rows: Sequence[tuple[str, ...]]) -> str:
    """The document."""
    counts = ", ".join(f"{count} {name}" for name, count in Counter(row[1] for row in rows).most_common())
    lines = [
        "# Types of images and text",
        "",
        "`python -m benchmarks.image_text_types --markdown` writes this page: the types of",
        "`AutoModelForImageTextToText` in transformers, as small models with random weights in float32. `exact` means",
        "that the tokens of a loop on the runtime alone (`benchmarks/runtime_loop.py`) are those of `generate`.",
        "`pictures` says what `Bundle.generate` makes of a picture by the processor of the folder: the square, tiles,",
        "or an image of its shape.",
        "",
        f"{len(rows)} types: {counts}.",
        "",
        *markdown_table(_COLUMNS, rows),
    ]
    return "\n".join(lines) + "\n"


def stored_rows() -> list[tuple[str, ...]]:
    """The rows of the document."""
    lines = DOCUMENT.read_text().splitlines()
    cells = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines if line.startswith("| ")]
    return cells[1:]  # behind the head


def main() -> None:
    """Try the types and print the table."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="TYPE", help="only these types")
    parser.add_argument("--markdown", action="store_true", help=f"write the table to docs/generated/{DOCUMENT.name}")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    rows = []
    for kind in sorted(MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES):
        if not options.only or kind in options.only:
            rows.append(tried(kind))
            print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    if options.markdown:
        DOCUMENT.write_text(markdown(sorted({row[0]: row for row in (*stored_rows(), *rows)}.values())))
    else:
        print("\n".join(markdown_table(_COLUMNS, rows)))


if __name__ == "__main__":
    main()
