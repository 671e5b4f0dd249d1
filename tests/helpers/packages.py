"""The packages of this repository, as the wheel has them."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILD = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
PACKAGES: tuple[str, ...] = tuple(BUILD["targets"]["wheel"]["packages"])
