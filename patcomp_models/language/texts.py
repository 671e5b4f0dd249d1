"""Texts and pictures that a user gives as a file or a folder."""

from __future__ import annotations

from pathlib import Path

from patcomp_models.errors import LanguageModelError

TEXTS = (".md", ".txt")
PICTURES = (".jpeg", ".jpg", ".png", ".webp")
"""The ends of the names of files that a folder is searched for."""


def text_at(place: Path) -> str:
    """The text of a file, or those of a folder one behind the other.

    Raises:
        LanguageModelError: there is none, or the folder has pictures, too.
    """
    texts, pictured = files_at(place)
    if pictured:
        raise LanguageModelError(
            f"{str(place)!r} has pictures, such as {pictured[0][0].name}, and only texts are read here; give a folder "
            "without pictures, or a bundle that takes them"
        )
    return "\n\n".join(texts)


def files_at(place: Path) -> tuple[list[str], list[tuple[Path, str]]]:
    """The texts of a file or a folder, and the pictures of the folder, each with the text of the same name.

    Raises:
        LanguageModelError: there is no file or folder, it has no text, or a picture has none.
    """
    if not place.is_dir():
        if not place.is_file():
            raise LanguageModelError(f"there is no text at {str(place)!r}")
        return [_read(place)], []
    files = sorted(each for each in place.iterdir() if each.is_file() and not each.name.startswith("."))
    texts = {each.stem: each for each in files if each.suffix.lower() in TEXTS}
    pictures = [each for each in files if each.suffix.lower() in PICTURES]
    if lacking := [each for each in pictures if each.stem not in texts]:
        raise LanguageModelError(
            f"the picture {str(lacking[0])!r} has no text of the same name, {lacking[0].stem}.txt; write what is said "
            "about the picture into one, with a place for the picture"
        )
    if not texts:
        raise LanguageModelError(f"the folder {str(place)!r} has no text; put files of {', '.join(TEXTS)} into it")
    beside = {each.stem for each in pictures}
    plain = [_read(file) for stem, file in texts.items() if stem not in beside]
    return plain, [(each, _read(texts[each.stem])) for each in pictures]


def _read(file: Path) -> str:
    return file.read_text(errors="replace")
