"""The library coreai-core, imported when it is first needed, because much of patcomp works without it."""

from __future__ import annotations

from types import SimpleNamespace

from patcomp.errors import MissingToolchainError


def toolchain() -> SimpleNamespace:
    """The names of `coreai-core` that patcomp uses.

    Raises:
        MissingToolchainError: `coreai-core` is not installed.
    """
    try:
        # import this first: without it, the compiler's dialect modules cannot be imported
        import coreai.authoring  # noqa: F401
        from coreai._compiler import ir
        from coreai._compiler.context import Context
        from coreai.authoring.asset import AIModelAsset, AIProgram
        from coreai.runtime import AIModelAssetMetadata, NDArray
    except ImportError as error:
        raise MissingToolchainError(
            f"running an asset, or saving it with the writer coreai, needs coreai-core ({error}): "
            'pip install "patcomp[coreai]"'
        ) from error
    return SimpleNamespace(
        ir=ir,
        Context=Context,
        AIModelAsset=AIModelAsset,
        AIProgram=AIProgram,
        AIModelAssetMetadata=AIModelAssetMetadata,
        NDArray=NDArray,
    )


def has_toolchain() -> bool:
    """Whether `coreai-core` is installed and can be imported, so that assets can be saved and run."""
    try:
        toolchain()
    except MissingToolchainError:
        return False
    return True
