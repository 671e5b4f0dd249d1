"""The site of the documentation builds without a warning; `make docs` runs the same command."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.skipif(
    not all(map(find_spec, ("material", "mkdocstrings"))), reason='needs mkdocs: pip install "patcomp[docs]"'
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_page_and_name_is_found_by_the_search(site: Path) -> None:
    found = {entry["location"] for entry in json.loads((site / "search/search_index.json").read_text())["docs"]}
    pages = {f"{page.stem}/" for page in (ROOT / "docs").glob("*.md")}
    assert pages | {"", "contributing/", "authoring-functions/#csoftmax", "pattern-ops/#atenabs"} <= found
    assert "api/#patcomp.frontend_torch.converter.TorchConverter.to_coreai" in found


def test_the_api_has_every_public_name(site: Path) -> None:
    import patcomp

    identifiers = re.findall(r"^::: (\S+)$", (ROOT / "docs/api.md").read_text(), re.MULTILINE)
    named = {name.rpartition(".")[2] for name in identifiers}
    errors = {name for name in patcomp.__all__ if getattr(getattr(patcomp, name), "__module__", "") == "patcomp.errors"}
    assert "patcomp.errors" in identifiers
    assert set(patcomp.__all__) - errors - {"__version__"} <= named


def test_pages_load_nothing_from_other_hosts(site: Path) -> None:
    loaded = re.compile(r'<(?:script|link|img)[^>]*(?:src|href)="?(https?:)?//')
    assert [page for page in site.rglob("*.html") if loaded.search(page.read_text())] == []
