"""The site of the documentation: `make docs` builds it without a warning, and pages show what their Markdown says."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.helpers.rendered import of_html, of_markdown

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.skipif(
    not all(map(find_spec, ("material", "mkdocstrings"))), reason='needs mkdocs: pip install "patcomp[docs]"'
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it: `mkdocs --quiet` would not count warnings."""
    folder = tmp_path_factory.mktemp("site")
    recipe = re.search(r"^docs:.*\n\t(.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    command, count = re.subn(r"\.venv/bin/mkdocs", f"{shlex.quote(sys.executable)} -m mkdocs", recipe[1])
    assert count == 1
    done = subprocess.run(f"{command} --site-dir {folder}", shell=True, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


MOVED = {"README.md": "", "CONTRIBUTING.md": "contributing", "benchmarks/README.md": "benchmarks", "LICENSE": "license"}
PAGES = {**{f"docs/{page.name}": page.stem for page in (ROOT / "docs").glob("*.md")}, **MOVED}
"""The folder of each page on the site, by its source. The API is made of docstrings, and the licence is no Markdown."""


def test_pages_show_what_their_markdown_says(site: Path) -> None:
    """Every word in its order, headings as headings, blocks as highlighted code, and numbers that go on."""
    for source in sorted(PAGES.keys() - {"docs/api.md", "LICENSE"}):
        wanted = of_markdown((ROOT / source).read_text())
        found = of_html((site / PAGES[source] / "index.html").read_text())
        for what, value in vars(wanted).items():
            assert getattr(found, what) == value, f"{what} of {source}"


def test_pages_show_marks_of_blocks_nowhere(site: Path) -> None:
    """Also in the docstrings of the API."""
    outside = {page: re.sub(r"<pre>.*?</pre>|<code>.*?</code>", "", page.read_text(), flags=re.DOTALL)
               for page in site.rglob("*.html")}  # fmt: skip
    assert len(outside) > len(PAGES)
    assert [page for page, text in outside.items() if "```" in text] == []


def test_the_api_has_the_headings_of_its_page(site: Path) -> None:
    wanted = of_markdown((ROOT / "docs/api.md").read_text()).headings
    found = iter(of_html((site / "api/index.html").read_text()).headings)
    assert all(heading in found for heading in wanted)


def test_every_page_and_name_is_found_by_the_search(site: Path) -> None:
    found = {entry["location"] for entry in json.loads((site / "search/search_index.json").read_text())["docs"]}
    pages = {f"{page.stem}/" for page in (ROOT / "docs").glob("*.md")}
    assert (
        pages
        | {"", "contributing/", "benchmarks/", "license/", "authoring-functions/#csoftmax", "pattern-ops/#atenabs"}
        <= found
    )
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
