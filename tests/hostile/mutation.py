"""Ways to break texts and bytes, each drawn from a `random.Random`."""

from __future__ import annotations

import re
from random import Random

NAMES = ('"', "\\", "\n", "\0", "\r\n", "é", "名前", "\u202e", "\U0001f600", "a b", "%", "@", "#", "{", "}", "'",
         "../../x", "a" * 5000, "__class__", "", "0", "-1", "None", "\ud800")  # fmt: skip
NUMBERS = ("0", "-1", "1", "2", "255", "4096", "65536", "1000000", "2147483647", "2147483648", "-2147483649",
           "4294967296", "1099511627776", "9223372036854775807",
           "9223372036854775808", "18446744073709551616", "1" * 40,
           "1" * 5000, "1e400", "-0.0", "0x7F800001", "0xFFFFFFFFFFFFFFFF", "1.5")  # fmt: skip
TOKEN = re.compile(r'"[^"\n]*"|[%@#^!]?[\w.$]+|->|\s+|.', re.DOTALL)
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|(?<=[x<])\d+(?=x)")


def number(random: Random) -> str:
    return random.choice(NUMBERS)


def name(random: Random) -> str:
    """A name that a quoting, a path or a terminal may stumble over."""
    return "".join(random.choice((*NAMES, "a", "_b")) for _ in range(random.randint(1, 3)))


def broken_text(text: str, others: list[str], random: Random) -> str:
    """A text with one to four mutations."""
    for _ in range(random.choice((1, 1, 1, 2, 2, 4))):
        text = random.choice(_OF_TEXT)(text, others, random)
    return text


def broken_bytes(data: bytes, random: Random) -> bytes:
    """Bytes that are cut, changed, repeated or replaced somewhere."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 8))):
        start = random.randrange(len(changed) + 1)
        length = min(random.choice((1, 1, 4, 64, 4096)), len(changed) - start)
        match random.randrange(6):
            case 0:
                del changed[start:]
            case 1:
                del changed[start : start + length]
            case 2:
                changed[start:start] = changed[start : start + length] * random.choice((1, 2, 50))
            case 3:
                changed[start : start + length] = random.randbytes(length)
            case 4 if length:
                changed[start] ^= 1 << random.randrange(8)
            case _:
                changed[start : start + length] = random.choice((b"\0", b"\xff")) * length
    return bytes(changed)


def _span(text: str, random: Random) -> tuple[int, int]:
    start = random.randrange(len(text) + 1)
    return start, min(len(text), start + random.choice((1, 1, 3, 10, 100)))


def _cut(text: str, others: list[str], random: Random) -> str:
    return text[: random.randrange(len(text) + 1)]


def _delete(text: str, others: list[str], random: Random) -> str:
    start, end = _span(text, random)
    return text[:start] + text[end:]


def _repeat(text: str, others: list[str], random: Random) -> str:
    start, end = _span(text, random)
    return text[:end] + text[start:end] * random.choice((1, 1, 3, 300)) + text[end:]


def _insert(text: str, others: list[str], random: Random) -> str:
    start = random.randrange(len(text) + 1)
    return text[:start] + name(random) + text[start:]


def _splice(text: str, others: list[str], random: Random) -> str:
    other = random.choice(others)
    start, end = _span(other, random)
    place = random.randrange(len(text) + 1)
    return text[:place] + other[start:end] + text[place:]


def _token(text: str, others: list[str], random: Random) -> str:
    """Replace, delete or swap tokens; replacements come from another text."""
    tokens = TOKEN.findall(text)
    if len(tokens) < 2:
        return text
    place, second = random.randrange(len(tokens)), random.randrange(len(tokens))
    match random.randrange(3):
        case 0:
            tokens[place] = random.choice(TOKEN.findall(random.choice(others)) or [""])
        case 1:
            tokens[place] = ""
        case _:
            tokens[place], tokens[second] = tokens[second], tokens[place]
    return "".join(tokens)


def _number(text: str, others: list[str], random: Random) -> str:
    found = list(NUMBER.finditer(text))
    if not found:
        return text
    where = random.choice(found)
    return text[: where.start()] + number(random) + text[where.end() :]


def _line(text: str, others: list[str], random: Random) -> str:
    """Delete, repeat, swap or insert lines."""
    lines = text.split("\n")
    place, second = random.randrange(len(lines)), random.randrange(len(lines))
    match random.randrange(4):
        case 0:
            del lines[place]
        case 1:
            lines[place:place] = [lines[place]] * random.choice((1, 2, 100))
        case 2:
            lines[place], lines[second] = lines[second], lines[place]
        case _:
            lines.insert(place, random.choice(random.choice(others).split("\n")))
    return "\n".join(lines)


def _everywhere(text: str, others: list[str], random: Random) -> str:
    """Replace a number, an element type or a name wherever it is: types may still fit, so more than the parser runs."""
    found = sorted(set(re.findall(r"(?<=[x<])\d+(?=x)|(?<=x)[a-z]+\d+(?=>)|%\w+|(?<![\w.])\d+(?![\w.x])", text)))
    if not found:
        return text
    old = random.choice(found)
    if old.isdigit():
        new = random.choice((number(random), "0", "1", "2", "3", "7", "1000000", "4611686018427387904"))
    elif old[0] == "%":
        new = random.choice([other for other in found if other[0] == "%"])
    else:
        new = random.choice(("f16", "bf16", "f32", "f64", "si8", "ui8", "si32", "si64", "ui4", "i1", "i8", "f8E4M3FN"))
    return re.sub(rf"(?<![\w.%]){re.escape(old)}(?![\w.])|(?<=[x<]){re.escape(old)}(?=[x>])", new, text)


def _operator(text: str, others: list[str], random: Random) -> str:
    """Put another op in place of one."""
    names = re.findall(r"(?:coreai|aten)\.[\w.]+", text)
    if not names:
        return text
    other = re.findall(r"(?:coreai|aten)\.[\w.]+", random.choice([text, *others])) or names
    return text.replace(random.choice(names), random.choice(other), random.choice((1, -1)))


_OF_TEXT = (_cut, _delete, _repeat, _insert, _splice, _token, _token, _number, _number, _line, _everywhere, _everywhere,
            _everywhere, _everywhere, _operator, _operator)  # fmt: skip
