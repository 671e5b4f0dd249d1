"""Numbers with their units, as people read them."""

from __future__ import annotations


def size_text(size: float) -> str:
    """A number of bytes for people: `1.5 MB`."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            break
        size /= 1000
    return f"{size:.0f} bytes" if unit == "bytes" else f"{size:.1f} {unit}"
