"""Broken `.aimodel` folders, given to `patcomp.load`; a loaded asset is described and run.

The toolchain is native code that may abort, so each case runs in a fork. An abort is a finding, except if `main.hash`
does not say what `main.mlirb` should be: patcomp cannot know then that the program is damaged.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import tempfile
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

import numpy as np

import patcomp
from patcomp import TorchConverter
from patcomp.emit.files.replacement import STATE_FILE
from patcomp.emit.inspection import inspect_asset
from tests.hostile.judge import DIED, HANG, REFUSED, Case, Outcome, judge
from tests.hostile.mutation import broken_bytes, broken_text, name
from tests.hostile.payloads import Payload
from tests.hostile.programs import exported_programs

Files = dict[str, bytes]
PROGRAM, METADATA, HASH = "main.mlirb", "metadata.json", "main.hash"
PATIENCE = 60


def prepare() -> Files:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "counter.aimodel"
        if not (child := os.fork()):  # the toolchain's threads must not be in the process that forks later
            TorchConverter().add_exported_program(exported_programs()["counter"]).to_coreai().save_asset(path)
            os._exit(0)
        os.waitpid(child, 0)
        return {file.name: file.read_bytes() for file in path.iterdir()}


def draw(files: Files, random: Random) -> Case:
    change = random.choice(CHANGES)
    changed = dict(files)
    change(changed, random)
    links = {random.choice(list(files)): random.choice(LINKS)} if random.random() < 0.1 else {}
    data = b"".join(b"%s %d\n%s\n" % (key.encode(), len(value), value) for key, value in changed.items())
    return Case(partial(_forked, changed, links, random.random() < 0.05), data, f"{change.__name__} {links or ''}")


def run(files: Files, links: dict[str, str], inspects: bool) -> None:
    shutil.rmtree("case.aimodel", ignore_errors=True)
    folder = Path("case.aimodel")
    folder.mkdir()
    for key, data in files.items():
        if key not in links:
            (folder / key).write_bytes(data)
    for key, target in links.items():
        (folder / key).symlink_to(target)
    if inspects:
        inspect_asset(folder)
    asset = patcomp.load(folder)
    str(asset.summary)
    asset.new_state()
    asset.run({"x": np.ones((3, 4), np.float32)}, asset.new_state())


def _forked(files: Files, links: dict[str, str], inspects: bool) -> Outcome:
    """How a case ends in a child process."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(PATIENCE)
        outcome = judge(Case(partial(run, files, links, inspects), b""))
        os.write(writing, json.dumps([outcome.kind, outcome.message[:4000], outcome.place]).encode()[:60_000])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    status = os.waitpid(child, 0)[1]
    if answer:
        return Outcome(*json.loads(answer))
    if os.WTERMSIG(status) == signal.SIGALRM:
        return Outcome(HANG, f"no end after {PATIENCE} s", "toolchain")
    if HASH not in files or HASH in links:
        return Outcome(REFUSED, "the toolchain aborts; main.hash is missing")
    return Outcome(DIED, f"the toolchain died of signal {os.WTERMSIG(status)}", "toolchain")


# ---- changes -------------------------------------------------------------------------------------

LINKS = ("/etc/passwd", "/dev/null", "/dev/zero", ".", "missing", "../case.aimodel/metadata.json", "/proc/self/mem")


def of_program(files: Files, random: Random) -> None:
    files[PROGRAM] = broken_bytes(files[PROGRAM], random)


def of_metadata(files: Files, random: Random) -> None:
    text = files[METADATA].decode()
    files[METADATA] = broken_text(text, [text], random).encode(errors="surrogatepass")


def other_metadata(files: Files, random: Random) -> None:
    tree = json.loads(files[METADATA])
    key = random.choice([*tree, "main", "mainFile", "path", "author", "license", "functions"])
    tree[key] = random.choice(
        (None, 1, [], {}, "", "../../etc/passwd", "/etc/passwd", name(random), "9" * 400, 10**400)
    )
    files[METADATA] = json.dumps(random.choice((tree, [tree], tree, None))).encode()


def deep_metadata(files: Files, random: Random) -> None:
    depth = random.choice((10, 1000, 100_000))
    files[METADATA] = b'{"assetVersion" : ' + b"[" * depth + b"]" * depth + b"}"


def of_hash(files: Files, random: Random) -> None:
    files[HASH] = broken_bytes(files[HASH], random)


def of_state(files: Files, random: Random) -> None:
    files[STATE_FILE] = broken_bytes(files[STATE_FILE], random)


def other_state(files: Files, random: Random) -> None:
    """An index of another form, names that do not exist, arrays of other shapes, objects that run code."""
    entry = {"entrypoint": "main", "state": "count", "dtype": "float32"}
    odd = (None, 3, "", "object", "V4", "U2", "float64", "bfloat16", name(random).replace("\ud800", ""))
    entry[random.choice(list(entry))] = random.choice(odd)  # type: ignore[assignment]
    index = random.choice(([entry], [entry], entry, [[]], [None], [entry] * 3, "[" * 100_000))
    arrays = random.choice(
        (np.zeros(4, np.float32), np.zeros((2**12, 2**12), np.uint8), np.array(Payload()), np.zeros(0))
    )
    buffer = io.BytesIO()
    text = index if isinstance(index, str) else json.dumps(index)
    np.savez_compressed(buffer, index=np.array(text), state_0=arrays)
    files[STATE_FILE] = buffer.getvalue()


def huge_state(files: Files, random: Random) -> None:
    """An array whose header claims 4 TB."""
    array = io.BytesIO()
    np.lib.format.write_array_header_1_0(array, {"descr": "<f4", "fortran_order": False, "shape": (2**40,)})
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        index = io.BytesIO()
        np.save(index, np.array(json.dumps([{"entrypoint": "main", "state": "count", "dtype": "float32"}])))
        archive.writestr("index.npy", index.getvalue())
        archive.writestr("state_0.npy", array.getvalue())
    files[STATE_FILE] = buffer.getvalue()


def missing(files: Files, random: Random) -> None:
    del files[random.choice(list(files))]


def added(files: Files, random: Random) -> None:
    files[random.choice(("main.py", "main-cpu.odix", "x", "main.mlirb.bak"))] = random.randbytes(100)


def swapped(files: Files, random: Random) -> None:
    first, second = random.choice(list(files)), random.choice(list(files))
    files[first], files[second] = files[second], files[first]


CHANGES: tuple[Callable[[Files, Random], None], ...] = (
    of_program, of_metadata, of_metadata, other_metadata, deep_metadata, of_hash, of_state, of_state, other_state,
    other_state, huge_state, missing, added, swapped,
)  # fmt: skip
