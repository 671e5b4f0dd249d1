"""The addresses of public reports, by repository."""

from __future__ import annotations

_GITHUB = "https://github.com"
_ZOO = f"{_GITHUB}/john-rocky/coreai-model-zoo/blob/main"
_APPLE_MODELS = f"{_GITHUB}/apple/coreai-models/blob/86b363d/python/src/coreai_models"


def torch(number: int) -> str:
    """An issue or a pull request of apple/coreai-torch."""
    return f"{_GITHUB}/apple/coreai-torch/issues/{number}"


def models(number: int) -> str:
    """An issue of apple/coreai-models."""
    return f"{_GITHUB}/apple/coreai-models/issues/{number}"


def core_ml(number: int) -> str:
    """An issue or a pull request of apple/coremltools."""
    return f"{_GITHUB}/apple/coremltools/issues/{number}"


def issue(repository: str, number: int) -> str:
    """An issue or a pull request of another repository."""
    return f"{_GITHUB}/{repository}/issues/{number}"


def zoo(page: str) -> str:
    """A note of the community's model zoo."""
    return f"{_ZOO}/knowledge/{page}.md"


def apple_code(path: str) -> str:
    """A file of Apple's models, at the revision that was read."""
    return f"{_APPLE_MODELS}/{path}"


DOCTOR = f"{_ZOO}/cli/DOCTOR_RULES.md"
"""The table of traps of the zoo's `coreai doctor`."""

PLAYBOOK = (
    f"{_GITHUB}/kevinqz/coreai-fabric/blob/1c47d1a146d46c4f61b68abdea948d70df5f426b/docs/coreai-conversion-playbook.md"
)

UNSUPPORTED_LAYERS = (
    f"{_GITHUB}/hollance/neural-engine/blob/06a7632ebb14a0e4d62ac0f63c054d80577817bf/docs/unsupported-layers.md"
)
SIXTEEN_BITS = f"{_GITHUB}/hollance/neural-engine/blob/e8529c93b2cd282a3ed63e1f8189f0682b1e6536/docs/16-bit.md"
