"""The site of the documentation: `make docs` builds it without a warning, and pages show what their Markdown says."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from html import unescape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import yaml

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


MOVED = {
    "README.md": "index",
    "CONTRIBUTING.md": "contributing",
    "patcomp/errors.md": "errors",
    "benchmarks/README.md": "benchmarks",
    "LICENSE": "license",
}
SOURCES = [page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")]
PAGES = {**{f"docs/{page}": page.removesuffix(".md") for page in SOURCES}, **MOVED}
"""Each page of the site, by its source. The API is made of docstrings, and the licence is no Markdown."""
TEXTS = sorted(PAGES.keys() - {"LICENSE"})
API = [source for source in TEXTS if source.startswith("docs/api")]


def test_pages_show_what_their_markdown_says(site: Path) -> None:
    """Every word in its order, headings as headings, blocks as highlighted code, and numbers that go on."""
    for source in sorted(PAGES.keys() - {*API, "LICENSE"}):
        wanted = of_markdown((ROOT / source).read_text())
        found = of_html((site / f"{PAGES[source]}.html").read_text())
        for what, value in vars(wanted).items():
            assert getattr(found, what) == value, f"{what} of {source}"


def test_pages_show_marks_of_blocks_nowhere(site: Path) -> None:
    """Also in the docstrings of the API."""
    outside = {page: re.sub(r"<pre>.*?</pre>|<code>.*?</code>", "", page.read_text(), flags=re.DOTALL)
               for page in site.rglob("*.html")}  # fmt: skip
    assert len(outside) > len(PAGES)
    assert [page for page, text in outside.items() if "```" in text] == []


def test_the_api_has_a_heading_for_each_name(site: Path) -> None:
    for source in sorted({*API} - {"docs/api.md", "docs/api-errors.md"}):
        named = re.compile(r"^::: (\S+)$(?!\n    options:\n      show_root_heading: false)", re.MULTILINE)
        names = named.findall((ROOT / source).read_text())
        found = of_html((site / f"{PAGES[source]}.html").read_text()).headings
        assert names
        for parts in (name.split(".") for name in names):
            assert any(heading[: len(parts)] == parts for heading in found), parts  # "dataclass" may follow


def test_every_page_and_name_is_found_by_the_search(site: Path) -> None:
    found = {entry["location"] for entry in json.loads((site / "search/search_index.json").read_text())["docs"]}
    names = {"generated/authoring-functions-3.html#csoftmax", "generated/pattern-ops-aten.html#atenabs"}
    assert {f"{page}.html" for page in PAGES.values()} | names <= found
    assert "api-convert.html#patcomp.TorchConverter.to_coreai" in found


@pytest.mark.parametrize("source", TEXTS)
def test_a_page_is_read_in_one_sitting(source: str) -> None:
    assert len((ROOT / source).read_text().split()) <= 3000, f"{source} is too long: make two pages of it"


def test_the_api_has_every_public_name(site: Path) -> None:
    import patcomp

    text = "\n".join((ROOT / source).read_text() for source in API)
    identifiers = re.findall(r"^::: (\S+)$", text, re.MULTILINE)
    named = {name.rpartition(".")[2] for name in identifiers}
    errors = {name for name in patcomp.__all__ if getattr(getattr(patcomp, name), "__module__", "") == "patcomp.errors"}
    assert "patcomp.errors" in identifiers
    assert set(patcomp.__all__) - errors - {"__version__"} <= named


def test_pages_load_nothing_from_other_hosts(site: Path) -> None:
    loaded = re.compile(r'<(?:script|link|img)[^>]*(?:src|href)="?(https?:)?//')
    assert [page for page in site.rglob("*.html") if loaded.search(page.read_text())] == []


def test_every_link_leads_to_a_page_and_a_place_on_it(site: Path) -> None:
    texts = {page.resolve(): page.read_text() for page in site.rglob("*.html")}
    places = {page: set(re.findall(r'\bid="?([^"\s>]+)', text)) for page, text in texts.items()}
    for page, text in texts.items():
        if page.name == "404.html":  # its links begin at the root of a server
            continue
        for link in re.findall(r'<a\b[^>]*?\bhref="?([^"\s>]+)', text):
            address, _, place = unquote(unescape(link)).partition("#")
            if re.match(r"\w+:", address):
                continue
            target = (page.parent / address).resolve() if address else page
            target = target / "index.html" if target.is_dir() else target
            assert target.is_file(), f"{page.name} links to {link}"
            assert not place or target.suffix != ".html" or place in places[target], f"{page.name} links to {link}"


# ---- in a browser --------------------------------------------------------------------------------------

PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
DESK = {"viewport": {"width": 1400, "height": 900}, "color_scheme": "dark"}
_WIDER = """[...document.querySelectorAll('.md-content > article > *')]
    .filter(part => part.scrollWidth > innerWidth && getComputedStyle(part).overflowX == 'visible')
    .map(part => part.outerHTML)"""


@pytest.fixture(scope="module")
def served(site: Path) -> Iterator[str]:
    """The address of the site: a search reads other files, which pages that are opened as files may not."""
    handler = partial(Silent, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class Silent(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        """Standard error is for failures."""


@pytest.mark.sampled(8)
@pytest.mark.parametrize("source", TEXTS)
@pytest.mark.parametrize("settings", [PHONE, DESK], ids=["phone", "desk"])
def test_a_page_is_drawn_without_a_complaint_and_fits_its_window(
    settings: dict[str, Any], source: str, served: str, browser: Any
) -> None:
    page = browser.new_page(**settings)
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("response", lambda got: problems.append(got.url) if got.status >= 400 else None)
    page.goto(f"{served}/{PAGES[source]}.html", wait_until="domcontentloaded")
    assert page.locator("article h1").count() == 1
    assert page.evaluate(_WIDER) == []
    assert not problems
    page.close()


def test_the_search_answers(served: str, browser: Any) -> None:
    page = browser.new_page()
    page.goto(f"{served}/index.html?q=fixed+sizes")  # as typed, but the page need not be ready for it
    page.wait_for_selector(".md-search-result__item a")
    assert page.locator(".md-search-result__item a").count() >= 3
    page.close()


def test_the_search_of_a_page_that_is_opened_as_a_file_answers(site: Path, browser: Any) -> None:
    page = browser.new_page()
    page.goto((site / "guide.html").as_uri())
    page.locator(".md-search__input").press_sequentially("fixed sizes")
    page.wait_for_selector(".md-search-result__item a")
    assert page.locator(".md-search-result__item a").count() >= 3
    page.close()


def test_the_front_page_says_in_one_screen_what_it_is(site: Path, browser: Any) -> None:
    """The example and the picture beside each other, and the three ways in."""
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.goto((site / "index.html").as_uri())
    code, picture = (page.locator(f"article > {part}").first.bounding_box() for part in (".highlight", "p > img"))
    assert code["x"] + code["width"] < picture["x"]
    for way in ("Use it", "Write patterns", "Read the IR"):
        box = page.locator("article th", has_text=way).bounding_box()
        assert box["y"] + box["height"] < 900
        assert page.locator(".md-tabs__link", has_text=way).is_visible()
    page.close()


def test_the_list_for_language_models_has_all_pages(site: Path) -> None:
    kept = (ROOT / "llms.txt").read_text()
    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    spec = spec_from_file_location("site_hook", ROOT / "docs/site.py")
    assert spec is not None
    assert spec.loader is not None
    hook = module_from_spec(spec)
    spec.loader.exec_module(hook)
    assert kept == hook.llms(navigation, hook.in_the_repository), "python docs/site.py"
    assert all((ROOT / link).is_file() for link in re.findall(r"\]\(([^)]*)\)", kept))
    links = re.findall(r"\]\(([^)]*)\)", (site / "llms.txt").read_text())
    assert len(links) > 50
    assert all((site / link).is_file() for link in links)
