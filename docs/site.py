"""The parts of the site that are not files of this folder: README.md is its first page, CONTRIBUTING.md another.

mkdocs.yml names this file as a hook.
"""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
MOVED = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md"}
"""The pages that are files of the repository's root."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the pages that the navigation does not name yet, so that a new page is never lost."""
    named = set(re.findall(r"[\w-]+\.md", str(config.nav)))
    rest = sorted(page.name for page in Path(config.docs_dir).glob("*.md") if page.name not in named)
    if rest:
        config.nav = [*config.nav, {"More": rest}]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for source, page in MOVED.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links to and from files of the root lead to their pages."""
    for source, moved in MOVED.items():
        markdown = re.sub(rf"\]\((\.\./)?{source}", f"]({moved}", markdown)
    return markdown.replace("](docs/", "](") if page.file.src_uri in MOVED.values() else markdown
