"""Pages of the documentation as Markdown has them, and as a browser shows them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser


@dataclass
class Shown:
    """What a page shows."""

    words: list[str] = field(default_factory=list)
    """All words, those of code too."""
    headings: list[list[str]] = field(default_factory=list)
    """The words of each heading."""
    code: list[str] = field(default_factory=list)
    """The text of each block of code."""
    languages: list[str] = field(default_factory=list)
    """The language in which each block of code is highlighted; `text` for none."""
    titles: list[str] = field(default_factory=list)
    """The names of files above blocks of code."""
    numbered_lists: int = 0


def words_of(text: str) -> list[str]:
    return re.findall(r"\w+", text)


_PLAIN = ("", "mlir")
"""The languages that Pygments does not know."""
_FENCE = re.compile(r"( *)```(\w*)(?: (\S+))?")


def of_markdown(text: str) -> Shown:
    """What a page of ours should show: headings with `#`, blocks of code between ```` ``` ````, no HTML but `<sup>`."""
    shown = Shown()
    code: list[str] | None = None
    indent = 0
    for line in text.splitlines():
        if (fence := _FENCE.fullmatch(line)) is not None:
            if code is not None:
                shown.code.append("\n".join(code).strip("\n"))
                code = None
            else:
                indent, code = len(fence[1]), []
                shown.languages.append("text" if fence[2] in _PLAIN else fence[2])
                shown.titles += [fence[3]] if fence[3] not in (None, "run") else []
        elif code is not None:
            code.append(line[indent:])
            shown.words += words_of(line)
        else:
            number = re.match(r"\d+\. ", line)
            shown.numbered_lists += number is not None and number[0] == "1. "
            prose = line[number.end() :] if number is not None else line
            prose = re.sub(r"!\[[^]]*\]|</?sup>|(?<=\])\([^)]*\)|(?<=\])\[[^]]*\]$", "", prose)
            shown.words += words_of(prose)
            if line.startswith("#"):
                shown.headings.append(words_of(prose))
    return shown


def of_html(text: str) -> Shown:
    """What the HTML of a page shows, without what is around the page."""
    page = _Page()
    page.feed(text)
    page.shown.words = words_of("".join(page.texts))
    page.shown.code = [code.strip("\n") for code in page.shown.code]
    return page.shown


class _Page(HTMLParser):
    EMPTY = ("br", "hr", "img", "input", "link", "meta", "path", "wbr")

    def __init__(self) -> None:
        super().__init__()
        self.shown = Shown()
        self.texts: list[str] = []
        self.open: list[tuple[str, str]] = []
        self.heading: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag in self.EMPTY:
            return
        of_tag = dict(attributes).get("class") or ""
        self.open.append((tag, of_tag))
        if not self._is_inside("article"):
            return
        if tag == "pre":
            self.shown.code.append("")
            around = " ".join(classes for _, classes in self.open)
            language = re.findall(r"language-(\S+)", around)
            self.shown.languages.append(language[-1] if language else "")
        self.shown.numbered_lists += tag == "ol"

    def handle_endtag(self, tag: str) -> None:
        if re.fullmatch(r"h[1-6]", tag) and self._is_inside("article"):
            self.shown.headings.append(words_of("".join(self.heading)))
            self.heading = []
        if tag not in self.EMPTY:
            while self.open and self.open.pop()[0] != tag:
                pass

    def handle_data(self, data: str) -> None:
        classes = {name for _, listed in self.open for name in listed.split()}
        if not self._is_inside("article") or self._is_inside("style", "script", "nav"):
            return
        if "filename" in classes:
            self.shown.titles.append(data)
        if classes & {"headerlink", "filename"}:
            return
        self.texts.append(data)
        if self._is_inside("pre"):
            self.shown.code[-1] += data
        if self._is_inside("h1", "h2", "h3", "h4", "h5", "h6"):
            self.heading.append(data)

    def _is_inside(self, *tags: str) -> bool:
        return any(tag in tags for tag, _ in self.open)
