"""Markdown pages of tables that are too long for one page: a first page, and pages of at most 3,000 words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import ceil
from pathlib import Path
from typing import Annotated

import typer

from patcomp.commands.common import counted

MOST_WORDS = 3000
"""What a reader takes in at one sitting; a page is not longer."""
_HEAD = 150
"""The words that the head of a page has at most."""

Markdown = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="Write Markdown pages to a folder, such as docs/generated.")
]


@dataclass(frozen=True)
class PageEntry:
    """What stays together on a page, such as the row of a table."""

    name: str
    lines: Sequence[str]


@dataclass(frozen=True)
class Section:
    """Entries of one kind, on one page or several.

    Attributes:
        name: in the names of the files; empty for the only section.
        heading: of the pages.
        thing: what an entry is, in one word.
        opening: what each page has in front of the entries, such as the head of a table.
        entries: in their order.
    """

    name: str
    heading: str
    thing: str
    opening: Sequence[str]
    entries: Sequence[PageEntry]


def pages(name: str, title: str, opening: Sequence[str], sections: Sequence[Section]) -> dict[str, str]:
    """The texts of the pages, by the names of their files.

    Args:
        name: of the first page, without `.md`.
        title: its heading.
        opening: what it has below.
        sections: a short only one is on the first page; others have pages of their own, which the first page lists.
    """
    first = [f"# {title}", "", *opening]
    if len(sections) == 1:
        only = sections[0]
        whole = "\n".join([*first, *only.opening, *(line for entry in only.entries for line in entry.lines)])
        if len(whole.split()) <= MOST_WORDS:
            return {f"{name}.md": f"{whole}\n"}
    made: dict[str, str] = {}
    listed: list[str] = []
    for section in sections:
        parts = _parts(section)
        for number, part in enumerate(parts, 1):
            names = [name, section.name, str(number) if len(parts) > 1 else ""]
            file = f"{'-'.join(filter(None, names))}.md"
            span = f": {part[0].name} to {part[-1].name}" if len(parts) > 1 else ""
            head = [f"# {section.heading}{span}", "", f"A part of [{title[:1].lower()}{title[1:]}]({name}.md)."]
            body = [line for entry in part for line in entry.lines]
            opened = ["", *section.opening] if section.opening else []
            made[file] = "\n".join([*head, *opened, *body]) + "\n"
            listed.append(f"- [{section.heading}{span}]({file}), {counted(len(part), section.thing)}")
    return {f"{name}.md": "\n".join([*first, "", *listed]) + "\n", **made}


def _parts(section: Section) -> list[list[PageEntry]]:
    """The entries of each page; the pages have about the same number of words."""
    words = [len(" ".join(entry.lines).split()) for entry in section.entries]
    most = MOST_WORDS - _HEAD - len(" ".join(section.opening).split())
    share = sum(words) / ceil(sum(words) / most)
    parts: dict[int, list[PageEntry]] = {}
    for entry, own, until in zip(section.entries, words, accumulate(words), strict=True):
        parts.setdefault(int((until - own / 2) / share), []).append(entry)
    return list(parts.values())


def page_rows(table: Sequence[str], names: Sequence[str]) -> tuple[Sequence[str], list[PageEntry]]:
    """The head of a Markdown table, and its rows as entries of these names."""
    return table[:2], [PageEntry(name, [row]) for name, row in zip(names, table[2:], strict=True)]


def write_pages(folder: Path, texts: Mapping[str, str]) -> None:
    """Write pages to a folder, and say which."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text)
        print(folder / name)
