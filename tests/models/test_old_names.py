"""Old names of modules that have moved."""

from __future__ import annotations

from importlib import import_module

import pytest


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("patcomp.bundles.diffusion.generation", "patcomp_models.bundles.diffusion.generation"),
        ("patcomp.language.decoder", "patcomp_models.language.decoder"),
        ("patcomp.language.loading", "patcomp_models.checkpoints.loading"),
        ("patcomp.tasks.table", "patcomp_models.tasks.table"),
    ],
)
def test_an_old_name_is_the_same_module(old: str, new: str) -> None:
    module = import_module(old)
    assert module is import_module(new)
    assert module.__spec__ is not None
    assert (module.__name__, module.__spec__.name) == (new, new)


def test_a_name_that_never_was() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'patcomp\.bundles\.nothing'"):
        import_module("patcomp.bundles.nothing")
