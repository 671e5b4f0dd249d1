"""patcomp in the place of `coreai_torch`, for programs that import it by this name.

    import patcomp
    patcomp.install_as_coreai_torch()
    from coreai_torch import TorchConverter     # patcomp's

A finder on `sys.meta_path` answers for `coreai_torch`, its modules and the metadata of the package, so that `import`,
`importlib.util.find_spec` and `importlib.metadata.version` agree.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from importlib.metadata import Distribution, DistributionFinder
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any

from patcomp.errors import PatcompError

PACKAGE = "coreai_torch"
STANDS_FOR = "0.4.3"
"""The version of coreai-torch whose interface patcomp has; programs that ask for the version get it."""

_EXTERNALIZATION = ("ExternalizeSpec", "_patch_model_for_externalization", "_subexport_and_restore")
MODULES: Mapping[str, tuple[str, Sequence[str]]] = {
    PACKAGE: (
        "patcomp",
        [
            "MetalParameter", "TorchConverter", "TorchMetalKernel", "generate_composite_decl", "get_decomp_table",
            *_EXTERNALIZATION,
        ],
    ),
    f"{PACKAGE}.composite_ops": (
        "patcomp.composite_ops", ["SDPA", "GatedDeltaUpdate", "GatherMM", "RMSNorm", "RMSNormImpl", "RoPE"],
    ),
    f"{PACKAGE}.converter": ("patcomp", ["TorchConverter"]),
    f"{PACKAGE}.externalize": ("patcomp", _EXTERNALIZATION),
    f"{PACKAGE}._utils": ("patcomp", ["generate_composite_decl", "get_operand", "get_operands"]),
}  # fmt: skip
"""The module of patcomp, and the names in it, that each module of coreai-torch stands for. `_utils` is private there,
and the documentation of custom lowerings imports it."""


def install_as_coreai_torch() -> None:
    """Let patcomp stand in for coreai-torch in this process: imports of `coreai_torch` get patcomp's classes and
    functions, and the metadata of the package say 0.4.3. A second call does nothing.

    Child processes import what they find. A name that patcomp lacks raises an `AttributeError` or `ModuleNotFoundError`
    that says so.

    Raises:
        PatcompError: coreai-torch itself is imported already.
    """
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    if (found := sys.modules.get(PACKAGE)) is not None:
        raise PatcompError(
            f"{PACKAGE} is imported already, from {getattr(found, '__file__', None)}, and what has imported it would "
            "not see patcomp; call patcomp.install_as_coreai_torch() before, or run the program with `patcomp exec`"
        )
    sys.meta_path.insert(0, _Finder())


def _lacks(name: str) -> str:
    """What to say about a name that patcomp lacks, such as `coreai_torch.debugging`."""
    parent = name.rpartition(".")[0]
    names = [] if parent not in MODULES else MODULES[parent][1]
    modules = [module for module in MODULES if module.startswith(f"{parent}.")]
    known = ", ".join(each for each in [*sorted(names), *modules] if each.rpartition(".")[2][0] != "_")
    has = f"; {parent} has {known}" if known else ""
    return f"patcomp stands in for {PACKAGE} in this process and has no {name}{has}"


class _Finder(DistributionFinder):
    """Answers for the modules and the metadata of coreai-torch."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname in MODULES:
            return ModuleSpec(fullname, _Loader(), origin=__file__, is_package=True)
        if fullname.startswith(f"{PACKAGE}."):
            # without `name=`, so that Python shows this error also where `from package import name` fails
            raise ModuleNotFoundError(_lacks(fullname))
        return None

    def find_distributions(
        self,
        context: DistributionFinder.Context = DistributionFinder.Context(),  # noqa: B008
    ) -> Iterator[Distribution]:
        if context.name is None or context.name.lower().replace("_", "-") == "coreai-torch":
            yield _Metadata()


class _Loader(Loader):
    """Fills the modules of coreai-torch with patcomp's names, each when it is first used."""

    def exec_module(self, module: ModuleType) -> None:
        source, names = MODULES[module.__name__]

        def getattr_(name: str) -> Any:
            if name not in names:
                raise AttributeError(_lacks(f"{module.__name__}.{name}"), name=name, obj=module)
            return getattr(import_module(source), name)

        module.__doc__ = f"patcomp in the place of {module.__name__}."
        vars(module).update({"__getattr__": getattr_, "__all__": [*names], "__file__": __file__})
        if module.__name__ == PACKAGE:
            vars(module)["__version__"] = STANDS_FOR
            module.__all__.append("__version__")


class _Metadata(Distribution):
    """The metadata of the package that programs read: its name and version."""

    def read_text(self, filename: str) -> str | None:
        if filename == "METADATA":
            return f"Metadata-Version: 2.1\nName: coreai-torch\nVersion: {STANDS_FOR}\nSummary: patcomp in its place\n"
        return None

    def locate_file(self, path: str | PathLike[str]) -> Path:
        return Path(__file__).parent / path
