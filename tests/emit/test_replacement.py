"""Replacing assets: what is refused, and that a kill or a full disk at any step leaves the old or the new one whole."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from patcomp.emit.files.replacement import check_space, check_target, recover_asset, replacing
from tests.emit.assets import FILES, save


def content(target: Path) -> set[str]:
    """What the files of an asset hold; one string if they belong together."""
    assert sorted(path.name for path in target.iterdir()) == sorted(FILES)
    return {path.read_text() for path in target.iterdir()}


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "net.aimodel"


def save_half(target: Path) -> None:
    """Fails while it writes."""
    with replacing(target) as draft:
        draft.mkdir()
        raise KeyboardInterrupt


def test_assets_and_empty_folders_are_replaced(target: Path) -> None:
    save(target, "one")
    save(target, "two")
    assert content(target) == {"two"}
    assert [path.name for path in target.parent.iterdir()] == ["net.aimodel"]
    empty = target.with_name("empty.aimodel")
    empty.mkdir()
    save(empty, "three")
    assert content(empty) == {"three"}


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (None, "it is a file"),
        (
            ("notes.txt",),
            r"a folder with notes.txt, without metadata.json and main.mlirb",
        ),
        (
            ("metadata.json", "a", "b", "c"),
            r"a folder with a, b, c and 1 more, without main",
        ),
        (("metadata.json", "main.mlirb", "notes.txt"), r"an asset that also holds notes.txt\."),
    ],
)
def test_everything_else_is_refused_unless_forced(target: Path, names: tuple[str, ...] | None, message: str) -> None:
    if names is None:
        target.write_text("mine")
    else:
        target.mkdir()
        for name in names:
            (target / name).write_text("mine")
    with pytest.raises(FileExistsError, match=rf"net.aimodel is not replaced: .*{message}") as refused:
        save(target, "new")
    assert "--force" in str(refused.value)
    files = [target] if names is None else list(target.iterdir())
    assert {file.read_text() for file in files} == {"mine"}
    assert list(target.parent.iterdir()) == [target]
    save(target, "new", force=True)
    assert content(target) == {"new"}
    assert list(target.parent.iterdir()) == [target]


def test_what_the_toolchain_adds_to_an_asset_is_part_of_it(target: Path) -> None:
    save(target, "old")
    for name in ("main.hash", "main-universal.odix"):
        (target / name).write_text("x")
    save(target, "new")
    assert content(target) == {"new"}


def test_a_link_stays_one(target: Path) -> None:
    there = target.parent / "there" / "asset.aimodel"
    there.parent.mkdir()
    save(there, "old")
    target.symlink_to(there)
    save(target, "new")
    assert target.is_symlink()
    assert content(there) == {"new"}


def test_paths_that_cannot_be_written(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target.with_name("file").write_text("x")
    with pytest.raises(NotADirectoryError, match="file is a file, not a folder"):
        check_target(target.with_name("file") / "deep" / "net.aimodel")
    with pytest.raises(ValueError, match=r"must end in \.aimodel"):
        check_target(target.with_suffix(".onnx"))
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # for the superuser every folder can be written
    with pytest.raises(PermissionError, match="no permission to write to the folder"):
        check_target(target)


def test_a_disk_without_room(tmp_path: Path) -> None:
    check_space(tmp_path, 1)
    with pytest.raises(OSError, match=r"the asset needs about .* MB are free") as full:
        check_space(tmp_path, 2**62)
    assert full.value.errno == errno.ENOSPC


def test_an_error_while_writing_keeps_the_old_asset(target: Path) -> None:
    save(target, "old")
    with pytest.raises(KeyboardInterrupt):
        save_half(target)
    assert content(target) == {"old"}
    assert list(target.parent.iterdir()) == [target]


INTERRUPTED = """
import os, signal, sys
from pathlib import Path

sys.path.insert(0, sys.argv[1])
from tests.emit.assets import save

folder, how = Path(sys.argv[2]), sys.argv[3]
STEPS = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.unlink", "fcntl.flock")


def attempt(limit: int, target: Path) -> int:
    done = 0

    def step(event, arguments):
        nonlocal done
        if event in STEPS and str(folder) in str(arguments[0]):
            done += 1
            if done == limit and how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if done == limit and event in ("open", "os.mkdir", "os.rename"):
                raise OSError(28, "No space left on device")

    sys.addaudithook(step)
    try:
        save(target, "new")
    except OSError as error:
        return 28 if "No space" in str(error) else 1
    return 0 if done < limit else 2


# 0: it finished in fewer steps, 2: it finished although a step failed
for limit in range(1, 100):
    target = folder / f"{limit}.aimodel"
    if sys.argv[4] == "replace":
        save(target, "old")
    child = os.fork()
    if child == 0:
        os._exit(attempt(limit, target))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(limit, code, flush=True)
    if code == 0:
        break
"""


@pytest.mark.parametrize("how", ["kill", "full disk"])
@pytest.mark.parametrize("what", ["replace", "first"])
def test_interrupted_at_every_step(tmp_path: Path, how: str, what: str) -> None:
    """Each step is a call that changes the file system; a child process is killed at it, or the disk is full."""
    script = tmp_path / "script.py"
    script.write_text(INTERRUPTED)
    folder = tmp_path / "assets"
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, str(script), str(Path(__file__).parents[2]), str(folder), how, what],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ends = {int(limit): int(code) for limit, code in (line.split() for line in done.stdout.splitlines())}
    assert len(ends) > 10
    assert ends.popitem()[1] == 0
    assert set(ends.values()) <= ({-signal.SIGKILL} if how == "kill" else {28, 2})
    seen = set()
    for limit, code in ends.items():
        target = folder / f"{limit}.aimodel"
        working = folder / f".{limit}.aimodel.saving"
        if code == 28:  # the error is handled at once
            assert target.exists() == (what == "replace")
            assert not working.exists() or not list(working.iterdir())
        elif code == 2:  # the new asset is there, although the old one could not be removed
            assert content(target) == {"new"}
        recover_asset(target)
        if target.exists():
            (now,) = content(target)
            seen.add(now)
        else:
            assert what == "first"
        save(target, "newer")
        assert content(target) == {"newer"}
        assert not working.exists()
    assert seen == ({"old", "new"} if what == "replace" else {"new"})


def test_an_asset_that_the_user_removed_stays_removed(target: Path) -> None:
    """A save was done, and its clean-up was interrupted: only the old asset is left in the working folder."""
    save(target, "new")
    working = target.with_name(f".{target.name}.saving")
    save(working / "old.aimodel", "old")
    for path in target.iterdir():
        path.unlink()
    target.rmdir()
    recover_asset(target)
    assert not target.exists()
    assert not working.exists()


def test_a_save_that_was_interrupted_before_its_last_step_is_undone(target: Path) -> None:
    """The old asset is in the working folder, and so is the new one, which did not take its place."""
    working = target.with_name(f".{target.name}.saving")
    save(working / "old.aimodel", "old")
    save(working / "new.aimodel", "new")
    recover_asset(target)
    assert content(target) == {"old"}
    assert not working.exists()


def test_leftovers_do_not_come_in_the_place_of_what_the_user_put_there(target: Path) -> None:
    working = target.with_name(f".{target.name}.saving")
    save(working / "old.aimodel", "old")
    save(working / "new.aimodel", "new")
    save(target.with_name("mine.aimodel"), "mine")
    target.with_name("mine.aimodel").rename(target)
    recover_asset(target)
    assert content(target) == {"mine"}
    save(target, "three")
    assert content(target) == {"three"}
    assert not working.exists()


def test_a_first_save_that_was_interrupted_leaves_nothing(target: Path) -> None:
    """The new asset is in the working folder, and there was no old one."""
    working = target.with_name(f".{target.name}.saving")
    save(working / "new.aimodel", "new")
    recover_asset(target)
    assert not target.exists()
    assert not working.exists()
