"""The parts of the site that are not files of this folder, such as README.md, its first page; and the pages' Markdown.

mkdocs.yml names this file as a hook.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
MOVED = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "patcomp/errors.md": "errors.md",
    "benchmarks/README.md": "benchmarks.md",
    "LICENSE": "license.md",
}
"""The pages that are files outside of this folder."""
_NAMED = re.compile(r"^( *```\w+) (\S+)$", re.MULTILINE)
"""The first line of a block that names its file, or says `run`, for tests/test_docs.py; Markdown has no such lines."""

_PART = re.compile(r"^- \[(.*)\]\(([\w-]+\.md)\), ", re.MULTILINE)
"""A line with which a generated page lists one of its parts (patcomp_lab/commands/pages.py)."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the parts of pages, and the pages that the navigation does not name yet, so that a new page is never lost."""
    folder = Path(config.docs_dir)
    config.nav = _with_parts(config.nav, folder)
    named = set(re.findall(r"[\w/-]+\.md", str(config.nav)))
    pages = (page.relative_to(folder).as_posix() for page in folder.rglob("*.md"))
    rest = sorted(page for page in pages if page not in named)
    if rest:
        config.nav = [*config.nav, {"More": rest}]
    return config


def _with_parts(nav: Any, folder: Path) -> Any:
    """The navigation, in which a generated page of several parts is a section with them."""
    if isinstance(nav, dict):
        return {title: _with_parts(item, folder) for title, item in nav.items()}
    if isinstance(nav, list):
        return [_with_parts(item, folder) for item in nav]
    page = folder / nav
    parts = _PART.findall(page.read_text()) if page.parent.name == "generated" else []
    title = re.match("# (.*)", page.read_text()) if parts else None
    return {title[1]: [nav, *({name.replace("`", ""): f"generated/{part}"} for name, part in parts)]} if title else nav


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for source, page in MOVED.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    files.append(
        File.generated(config, "llms.txt", content=llms(config.nav, lambda page: page.replace(".md", ".html")))
    )
    return files


def llms(nav: Any, link: Callable[[str], str]) -> str:
    """The list of all pages for language models, by https://llmstxt.org: the titles, with the first sentence of each.

    Args:
        nav: the navigation of mkdocs.yml.
        link: the address of a page, by its name in the navigation.
    """
    lines = ["# patcomp", "", "> A PyTorch to Core AI compiler, written as a catalog of graph-rewrite rules."]

    def add(item: Any, level: int) -> None:
        if isinstance(item, str):
            title, first = _beginning((ROOT / in_the_repository(item)).read_text(encoding="utf-8"))
            lines.append(f"- [{title}]({link(item)})" + (f": {first}" if first else ""))
            return
        for each in item if isinstance(item, list) else ():
            add(each, level)
        for title, inner in item.items() if isinstance(item, dict) else ():
            if not isinstance(inner, str):
                lines.extend(["", f"{'#' * level} {title}", ""])
            add(inner, level + 1)

    add([item for item in nav if "Home" not in item], 2)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)) + "\n"


def in_the_repository(page: str) -> str:
    """The file of a page of the navigation."""
    return next((source for source, moved in MOVED.items() if moved == page), f"docs/{page}")


def _beginning(markdown: str) -> tuple[str, str]:
    """The title of a page, and its first sentence without links."""
    title, _, rest = markdown.partition("\n")
    paragraph = next((part for part in rest.split("\n\n") if re.match(r"(?!```)[A-Z`\[]", part.strip())), "")
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", " ".join(paragraph.split()))
    return title.removeprefix("# ").strip(), re.split(r"(?<=[.:]) ", plain, maxsplit=1)[0].rstrip(":")


def main() -> None:
    """Write llms.txt of the repository: `python docs/site.py`."""
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    (ROOT / "llms.txt").write_text(llms(nav, in_the_repository))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links to and from files outside lead to their pages, and write what Python-Markdown reads differently."""
    up = "../" * page.file.src_uri.count("/")
    for source, moved in MOVED.items():
        markdown = re.sub(rf"\]\((\.\./)*{source}", f"]({up}{moved}", markdown)
    if page.file.src_uri in MOVED.values():
        markdown = re.sub(r"\]\((\.\./)*docs/", "](", markdown)
    if page.file.src_uri == "index.md":
        page.meta["hide"] = ["navigation", "toc"]
    titled = _NAMED.sub(lambda found: found[1] if found[2] == "run" else f'{found[1]} title="{found[2]}"', markdown)
    return _nested(titled)


def _nested(markdown: str) -> str:
    """Indent what belongs to numbered items by four columns; three are enough elsewhere, but not in Python-Markdown."""
    lines, in_item = [], False
    for line in markdown.splitlines():
        if line and not line[0].isspace():
            in_item = re.match(r"\d+\. ", line) is not None
        lines.append(f" {line}" if in_item and line.startswith("   ") else line)
    return "\n".join(lines)


if __name__ == "__main__":
    main()
