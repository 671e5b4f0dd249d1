"""Fixtures that many tests use, and what makes all tests faster."""

import gc
import typing
from collections.abc import Iterator
from typing import Any

import pytest
import thorough  # noqa: F401  (its profile has to be known before tests are collected)
import torch
from native import Native
from torch._export import utils
from torch.export import decomp_utils, exported_program


@pytest.fixture(scope="session")
def native() -> Iterator[Native]:
    """The real runtime in a child process, one for each test worker; skips the test without `coreai-core`."""
    pytest.importorskip("coreai")
    runner = Native()
    yield runner
    runner.close()


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
