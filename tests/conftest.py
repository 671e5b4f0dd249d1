"""Fixtures that many tests use, and what makes all tests faster."""

import gc
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import tests.helpers.faster_export
import tests.helpers.library_ops  # (the catalog has rules for operators of libraries that are not here)
import tests.helpers.thorough  # (its profile has to be known before tests are collected)
import tests.helpers.torchvision_ops  # noqa: F401
from patcomp.emit.native import Native

pytest_plugins = [
    f"tests.helpers.{name}" for name in ("as_users_run", "browser", "changed", "command", "sampled", "workers")
]

# Modules with `pytestmark = AS_USERS_RUN` (tests/helpers/as_users_run.py) have none of these settings.
os.environ["PATCOMP_STRICT"] = "1"  # a rule that fails is an error, not a warning
os.environ["PATCOMP_VERIFY"] = "all"  # a stage that produces invalid IR fails itself

if "PYTEST_XDIST_WORKER" in os.environ:  # the workers have the cores already; threads would wait for each other
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"  # in child processes


@pytest.fixture(scope="session", autouse=True)
def own_caches(tmp_path_factory: pytest.TempPathFactory) -> None:
    """No test reads or writes the caches of the user."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("caches"))


@pytest.fixture(scope="session")
def native() -> Iterator[Native]:
    """The real runtime in a child process, one for each test worker; skips the test without `coreai-core`."""
    pytest.importorskip("coreai")
    runner = Native(_folder_in_memory())
    yield runner
    runner.close()


def _folder_in_memory() -> str | None:
    """Where saving a program does not wait for a disk, longer than it takes to run; None if there is no room."""
    folder = Path("/dev/shm")
    return str(folder) if folder.is_dir() and shutil.disk_usage(folder).free > 2**29 else None


def pytest_collection_finish() -> None:
    """The garbage collector need not walk PyTorch and thousands of collected tests again and again."""
    gc.collect()
    gc.freeze()
