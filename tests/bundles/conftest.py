"""Folders and bundles that several tests read."""

from __future__ import annotations

from pathlib import Path

import pytest

from patcomp.commands.torchvision import declare_operators

declare_operators()  # before diffusers and transformers import torchvision


@pytest.fixture(scope="session")
def stable_diffusion_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.bundles.pipelines import stable_diffusion

    return stable_diffusion(tmp_path_factory.mktemp("pipelines"))


@pytest.fixture(scope="session")
def stable_diffusion_bundle(stable_diffusion_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from patcomp.bundles import convert_bundle

    out = tmp_path_factory.mktemp("bundles") / "sd"
    return convert_bundle(stable_diffusion_folder, out=out, dtype="float32")
