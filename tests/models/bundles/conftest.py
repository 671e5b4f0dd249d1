"""Folders and bundles that several tests read."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from patcomp.errors import ConversionWarning
from patcomp.torchvision import declare_operators

declare_operators()  # before diffusers and transformers import torchvision


@pytest.fixture(scope="session")
def stable_diffusion_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.models.bundles.pipelines import stable_diffusion

    return stable_diffusion(tmp_path_factory.mktemp("pipelines"))


Pipelines = Callable[[str], tuple[Path, Path]]


@pytest.fixture(scope="session")
def further_folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a pipeline by the name of its function in `further_pipelines.py`."""
    from tests.models.bundles import further_pipelines as module

    made: dict[str, Path] = {}

    def get(name: str) -> Path:
        if name not in made:
            made[name] = getattr(module, name)(tmp_path_factory.mktemp(name))
        return made[name]

    return get


@pytest.fixture(scope="session")
def pipelines(
    stable_diffusion_folder: Path,
    stable_diffusion_bundle: Path,
    further_folders: Callable[[str], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Pipelines:
    """The folder and the bundle, in float32, of a pipeline by the name of its function in `pipelines.py` or
    `further_pipelines.py`."""
    from patcomp_models.bundles import convert_bundle
    from tests.models.bundles import further_pipelines as further
    from tests.models.bundles import pipelines as module

    made = {"stable_diffusion": (stable_diffusion_folder, stable_diffusion_bundle)}

    def get(name: str) -> tuple[Path, Path]:
        if name not in made:
            place = tmp_path_factory.mktemp(name)
            of_others = hasattr(further, name)
            folder: Path = further_folders(name) if of_others else getattr(module, name)(place)
            options = (
                further.OPTIONS.get(name, {}) if of_others else {"image_size": 32} if name.startswith("flux") else {}
            )
            made[name] = folder, convert_bundle(folder, out=place / "bundle", dtype="float32", **options)
        return made[name]

    return get


@pytest.fixture(scope="session")
def stable_diffusion_bundle(stable_diffusion_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from patcomp_models.bundles import convert_bundle

    out = tmp_path_factory.mktemp("bundles") / "sd"
    return convert_bundle(stable_diffusion_folder, out=out, dtype="float32")


@pytest.fixture(scope="session")
def whisper_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.models.bundles.speech_models import whisper

    return whisper(tmp_path_factory.mktemp("speech") / "whisper")


@pytest.fixture(scope="session")
def whisper_bundle(whisper_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from patcomp_models.bundles import convert_bundle

    with warnings.catch_warnings():
        warnings.simplefilter("error", ConversionWarning)  # the caller keeps the sizes
        return convert_bundle(whisper_folder, out=tmp_path_factory.mktemp("bundles") / "whisper", dtype="float32")


@pytest.fixture(scope="session")
def parakeet_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.models.bundles.speech_models import parakeet

    return parakeet(tmp_path_factory.mktemp("speech") / "parakeet")


@pytest.fixture(scope="session")
def parakeet_bundle(parakeet_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from patcomp_models.bundles import convert_bundle

    out = tmp_path_factory.mktemp("bundles") / "parakeet"
    return convert_bundle(parakeet_folder, out=out, dtype="float32", frames=161, audio=True)


@pytest.fixture(scope="session")
def mimi_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.models.bundles.streaming_models import mimi

    return mimi(tmp_path_factory.mktemp("streaming") / "mimi")


@pytest.fixture(scope="session")
def mimi_bundle(mimi_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from patcomp_models.bundles import convert_bundle

    return convert_bundle(mimi_folder, out=tmp_path_factory.mktemp("bundles") / "mimi", verify=False)


@pytest.fixture(scope="session")
def nemotron_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.models.bundles.streaming_models import nemotron

    return nemotron(tmp_path_factory.mktemp("streaming") / "nemotron")


@pytest.fixture(scope="session")
def nemotron_bundle(nemotron_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from patcomp_models.bundles import convert_bundle

    return convert_bundle(nemotron_folder, out=tmp_path_factory.mktemp("bundles") / "nemotron", verify=False)
