"""The primitive encodings of MLIR bytecode: numbers of variable length, texts, aligned sections."""

from __future__ import annotations

from typing import NoReturn

from patcomp.errors import PatcompError

PADDING = 0xCB
"""The byte before aligned data."""

MOST_ALIGNMENT = 1 << 16
"""The largest alignment in bytes that a file may ask for: that of a page."""


class AssetFormatError(PatcompError, ValueError):
    """A file is no program of an asset, or a damaged one; `offset` is the byte in the file where that shows."""

    def __init__(self, offset: int, message: str):
        self.offset = offset
        super().__init__(f"{message}, at byte {offset}")


class Cursor:
    """Reads a part of a buffer from front to back; what would be outside of the part is an error.

    Args:
        data: the whole file.
        position: the first byte of the part.
        end: the byte after the part; by default the end of the file.
    """

    __slots__ = ("data", "end", "position")

    def __init__(self, data: memoryview, position: int = 0, end: int | None = None):
        self.data = data
        self.position = position
        self.end = len(data) if end is None else end

    @property
    def left(self) -> int:
        """The bytes that are not read yet."""
        return self.end - self.position

    def fail(self, message: str) -> NoReturn:
        """Raise the error of a file that is wrong here."""
        raise AssetFormatError(self.position, message)

    def take(self, count: int) -> memoryview:
        """The next `count` bytes, without copying them."""
        if count > self.left:
            self.fail(f"the file is damaged or cut off: {count} more bytes are announced, and {self.left} follow")
        self.position += count
        return self.data[self.position - count : self.position]

    def byte(self) -> int:
        """The next byte."""
        if self.position >= self.end:
            self.fail("the file is damaged or cut off: a part ends too early")
        self.position += 1
        return self.data[self.position - 1]

    def number(self) -> int:
        """An unsigned number below 2^64: the trailing zeros of its first byte count the further bytes."""
        first = self.byte()
        if first & 1:
            return first >> 1
        if not first:
            return int.from_bytes(self.take(8), "little")
        count = (first & -first).bit_length()
        return int.from_bytes(bytes([first]) + self.take(count - 1), "little") >> count

    def signed(self) -> int:
        """A signed number, stored as 0, -1, 1, -2, ..."""
        zigzag = self.number()
        return (zigzag >> 1) ^ -(zigzag & 1)

    def count(self, what: str, size: int = 1) -> int:
        """How many items follow, of which each takes at least `size` bytes: no more than have room in this part."""
        start, found = self.position, self.number()
        if found * size > self.left:
            raise AssetFormatError(start, f"the file is damaged: it announces {found} {what} in {self.left} bytes")
        return found

    def index(self, length: int, what: str) -> int:
        """The position of an entry of a table of `length` entries."""
        start, found = self.position, self.number()
        if found >= length:
            raise AssetFormatError(start, f"the file is damaged: it names {what} {found} of {length}")
        return found

    def text(self, most: int) -> str:
        """A text that ends in a zero byte, of at most `most` bytes."""
        head = bytes(self.data[self.position : min(self.end, self.position + most)])
        length = head.find(0)
        if length < 0:
            self.fail(f"the file is damaged: a name has no end within {most} bytes")
        found = self.decoded(head[:length])
        self.position += length + 1
        return found

    def decoded(self, data: bytes) -> str:
        """A text in UTF-8."""
        try:
            return data.decode()
        except UnicodeDecodeError:
            self.fail("the file is damaged: a text is not in UTF-8")

    def align(self, alignment: int) -> None:
        """Skip the padding before the next address that is a multiple of `alignment`, counted from the file's start."""
        if not 0 < alignment <= MOST_ALIGNMENT or alignment & (alignment - 1):
            self.fail(f"the file is damaged: an alignment of {alignment} bytes is not possible")
        padding = self.take(-self.position % alignment)
        if any(byte != PADDING for byte in bytes(padding)):
            self.fail("the file is damaged: data that must be aligned is not")

    def section(self) -> tuple[int, Cursor]:
        """The kind of the next section and a cursor on its body."""
        head, length = self.byte(), self.number()
        if head & 0x80:
            self.align(self.number())
        start = self.position
        self.take(length)
        return head & 0x7F, Cursor(self.data, start, self.position)

    def finish(self, what: str) -> None:
        """Check that the part has been read to its end."""
        if self.left:
            self.fail(f"the file is damaged: {self.left} bytes follow {what}")


def encoded_number(value: int) -> bytes:
    """The encoding of an unsigned number below 2^64."""
    if value < 0x80:
        return bytes((value << 1 | 1,))
    count = (value.bit_length() + 6) // 7
    if count > 8:
        return b"\0" + value.to_bytes(8, "little")
    return (value << count | 1 << (count - 1)).to_bytes(count, "little")


def encoded_signed(value: int) -> bytes:
    """The encoding of a signed number of 64 bits."""
    return encoded_number((value << 1 ^ value >> 63) & (1 << 64) - 1)


def read_bits(cursor: Cursor, width: int) -> int:
    """A bit pattern of `width` bits, at most 64, as an unsigned number."""
    if width > 64:
        cursor.fail(f"integers of {width} bits are not supported")
    if width == 64:
        return cursor.signed() & (1 << 64) - 1
    found = cursor.byte() if width <= 8 else cursor.signed()
    if not 0 <= found < 1 << width:
        cursor.fail(f"the file is damaged: {found} has more than {width} bits")
    return found


def bits(value: int, width: int) -> bytes:
    """The encoding of a bit pattern of `width` bits, at most 64, given as an unsigned number."""
    if width <= 8:
        return bytes((value,))
    return encoded_signed(value - (1 << width) if width == 64 and value >> 63 else value)
