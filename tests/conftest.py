"""Fixtures that many tests use, and what makes all tests faster."""

import gc
import os
import shutil
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import thorough  # noqa: F401  (its profile has to be known before tests are collected)
import torch
from native import Native
from torch._export import utils
from torch.export import decomp_utils, exported_program

os.environ["PATCOMP_STRICT"] = "1"  # a rule that fails is an error, not a warning

if "PYTEST_XDIST_WORKER" in os.environ:  # the workers have the cores already; threads would wait for each other
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"  # in child processes


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


def _make_decomposing_faster() -> None:
    """What PyTorch does again for every decomposition, half the time of a small conversion, is done once.

    It lists its composite ops, which are the same as long as no operator is registered. And it declares ten kernels
    of each, with annotations that are made anew each time by `collections.abc`, and remembered by `typing`.
    """
    listed: dict[Any, Any] = {}
    scan = utils._collect_all_valid_cia_ops

    def remembered() -> Any:
        registered = tuple(torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd"))
        if registered not in listed:
            listed.clear()
            listed[registered] = scan()
        return listed[registered]

    for module in (utils, decomp_utils, exported_program):
        vars(module)["_collect_all_valid_cia_ops"] = remembered
    vars(torch._ops)["Callable"] = typing.Callable


_make_decomposing_faster()
