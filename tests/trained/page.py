"""The page of the models with trained weights, from what `pytest -m nightly tests/trained` measured.

python -m tests.trained.page docs/generated
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.trained.rows import ROWS

RESULTS = Path(__file__).parents[2] / "trained"
"""Where the measured rows are."""

_HEAD = """# Models with trained weights

`pytest -m nightly tests/trained` downloads these packages, which ship trained weights, and converts their models.
The inputs are real or like real ones: a picture with a face, sung tones, clicks, Thai sentences, an antibody, a helix.
A label is what an app decides by the outputs. Each number counts the labels, on the Core AI runtime, that are those of
PyTorch in float32. `4bit` is rounded to the nearest, of float16 where there is a number for it; networks that compute
in float32 inside have none. Sizes are those of all weights in MB. `python -m tests.trained.page docs/generated` writes
this page.

"""


def table_of(measured: Mapping[str, Any]) -> str:
    """The table, of what `measure` found by the name of the row."""
    lines = [
        "| model | package | labels | count | MB | float32 | float16 | 4bit | MB |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, found in measured.items():
        row = ROWS[name]
        half = str(found["float16"]["equal"]) if "float16" in found else "-"
        cells = [name, row.packages[0], row.labels, str(found["labels"]), f"{found['float32']['bytes'] / 1e6:.1f}",
                 str(found["float32"]["equal"]), half, str(found["4bit"]["equal"]),
                 f"{found['4bit']['bytes'] / 1e6:.1f}"]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    measured = {name: json.loads((RESULTS / f"{name}.json").read_text()) for name in ROWS}
    (Path(sys.argv[1]) / "trained-weights.md").write_text(_HEAD + table_of(measured) + "\n")


if __name__ == "__main__":
    main()
