"""Broken `.pt2` files, given to `load_model` of the command, and converted if they load."""

from __future__ import annotations

import copy
import io
import json
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from patcomp.commands.models import load_exported
from tests.hostile.judge import Case
from tests.hostile.mutation import broken_bytes, broken_text, name
from tests.hostile.payloads import CODE, PAYLOADS, PROGRAM, ROUTES, Members, saved, write
from tests.hostile.programs import convert


def prepare() -> Members:
    return saved()


def draw(members: Members, random: Random) -> Case:
    change = random.choice(CHANGES)
    data = change(members, random)
    return Case(partial(run, data), data, change.__name__)


def run(data: bytes) -> None:
    Path("case.pt2").write_bytes(data)
    convert(load_exported("case.pt2"))


def _packed(members: Members, **options: Any) -> bytes:
    buffer = io.BytesIO()
    # names that zipfile itself cannot write are no cases
    options = {key: _writable(value) if key == "folder" else value for key, value in options.items()}
    write(buffer, {_writable(place) or "x": data for place, data in members.items()}, **options)
    return buffer.getvalue()


def _writable(place: str) -> str:
    return place.encode(errors="replace").decode().replace("\0", "_")  # zipfile cuts a name there


def of_bytes(members: Members, random: Random) -> bytes:
    """A broken file."""
    return broken_bytes(_packed(members), random)


def of_member(members: Members, random: Random) -> bytes:
    """A whole archive with a broken member."""
    place = random.choice(list(members))
    return _packed(members | {place: broken_bytes(members[place], random)})


def of_members(members: Members, random: Random) -> bytes:
    """Members that are missing, renamed, added, swapped or twice there."""
    names = list(members)
    first, second = random.choice(names), random.choice(names)
    match random.randrange(5):
        case 0:
            return _packed({key: data for key, data in members.items() if key != first})
        case 1:
            return _packed(members | {first: members[second], second: members[first]})
        case 2:
            return _packed(members | {random.choice((name(random), "../" + first, "/etc/x", first.upper())): b"x"})
        case 3:
            return _packed(members, folder=random.choice(("", "a/b/", "../", "/", name(random) + "/")))
        case _:
            buffer = io.BytesIO(_packed(members))
            with zipfile.ZipFile(buffer, "a") as archive:
                archive.writestr(f"program/{first}", broken_bytes(members[first], random))
            return buffer.getvalue()


def of_json(members: Members, random: Random) -> bytes:
    """Any value of the program's JSON replaced."""
    place = random.choice([PROGRAM, PROGRAM, PROGRAM, *(key for key in members if key.endswith(".json"))])
    tree = json.loads(members[place])
    for _ in range(random.choice((1, 1, 2, 5))):
        _replace_part(tree, random)
    return _packed(members | {place: json.dumps(tree).encode()})


def of_text(members: Members, random: Random) -> bytes:
    """The program's JSON as a broken text."""
    text = members[PROGRAM].decode()
    return _packed(members | {PROGRAM: broken_text(text, [text], random).encode(errors="surrogatepass")})


def deep(members: Members, random: Random) -> bytes:
    depth = random.choice((100, 900, 5000, 100_000))
    return _packed(members | {PROGRAM: b'{"a":' + b"[" * depth + b"]" * depth + b"}"})


def compressed(members: Members, random: Random) -> bytes:
    """A zip bomb: a small file that unpacks to 64 MB."""
    return _packed(members | {"data/weights/weight_0": bytes(2**26)}, method=zipfile.ZIP_DEFLATED)


def payload(members: Members, random: Random) -> bytes:
    return _packed(random.choice((*PAYLOADS, *ROUTES))(members))


CHANGES: tuple[Callable[[Members, Random], bytes], ...] = (
    of_bytes, of_bytes, of_member, of_members, of_json, of_json, of_json, of_json, of_text, deep, compressed, payload,
)  # fmt: skip


def _replace_part(tree: Any, random: Random) -> None:
    """Replace, delete or copy one part of nested lists and dictionaries in place."""
    parts: list[tuple[Any, Any]] = []
    waiting = [tree]
    while waiting:
        part = waiting.pop()
        pairs = list(part.items()) if isinstance(part, dict) else list(enumerate(part))
        parts += [(part, key) for key, _ in pairs]
        waiting += [inner for _, inner in pairs if isinstance(inner, dict | list)]
    if not parts:
        return
    holder, key = random.choice(parts)
    match random.randrange(6):
        case 0:
            del holder[key]
        case 1:
            other, place = random.choice(parts)
            holder[key] = copy.deepcopy(other[place])
        case 2:
            holder[key] = random.choice((None, [], {}, True, "", -1, 1.5, 2**63, 10**30, float("nan")))
        case 3:
            holder[key] = random.choice((-1, 0, 2**31, 2**40, 2**63 - 1, 2**63, -(2**63), 10**40))
        case 4:
            holder[key] = random.choice((name(random), CODE, f"s0 + {CODE}", "torch.os.mkdir", "9**9**9"))
        case _:
            if isinstance(holder, dict):
                holder[name(random)] = holder.pop(key)
