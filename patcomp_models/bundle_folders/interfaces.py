"""The functions of an asset, read without native code: a check needs no toolchain, and compiles nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from patcomp.emit.files.replacement import check_asset
from patcomp.errors import UnknownNameError, near_names
from patcomp.interface.signature import EntrySignature, TensorSpec

_TYPES = {"si": "int", "ui": "uint", "f": "float", "bf": "bfloat", "i": "int"}


@dataclass(frozen=True)
class Tensor:
    """An input, output or state.

    Attributes:
        shape: an open size is None.
        dtype: as numpy calls it, `int32`, `float16`, `bool`.
    """

    shape: tuple[int | None, ...]
    dtype: str

    @classmethod
    def of(cls, spec: TensorSpec) -> Self:
        """What a specification says."""
        kind = re.fullmatch(r"([a-z]+)(\d+)", spec.element_type)
        name = "bool" if spec.element_type == "i1" else (
            f"{_TYPES[kind[1]]}{kind[2]}" if kind and kind[1] in _TYPES else spec.element_type)  # fmt: skip
        return cls(tuple(size if isinstance(size, int) else None for size in spec.shape), name)


@dataclass(frozen=True)
class Function:
    """A function of an asset, with its inputs, outputs and states in order."""

    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]
    states: Mapping[str, Tensor]

    @classmethod
    def of(cls, signature: EntrySignature) -> Self:
        """What a signature says."""
        return cls(*(
            {spec.name: Tensor.of(spec) for spec in specs}
            for specs in (signature.inputs, signature.outputs, signature.states)
        ))  # fmt: skip


@dataclass(frozen=True)
class Interfaces:
    """The functions of an asset, by name."""

    functions: Mapping[str, Function]

    @classmethod
    def of(cls, path: Path) -> Self:
        """Those of an asset.

        Raises:
            FileNotFoundError: there is nothing at the path.
            AssetError: it is no asset, or it is damaged.
        """
        from patcomp.emit.asset import check_program
        from patcomp.emit.files.metadata import read_metadata
        from patcomp.emit.reading import read_asset, signatures

        check_asset(path)
        check_program(path)
        found = signatures(read_asset(path)[0], read_metadata(path))
        return cls({name: Function.of(signature) for name, signature in found.items()})

    @property
    def names(self) -> Sequence[str]:
        return list(self.functions)

    def function(self, name: str = "main") -> Function:
        """A function.

        Raises:
            UnknownNameError: there is none of this name; it is a `KeyError`.
        """
        if name not in self.functions:
            raise UnknownNameError(f"there is no entry point {name!r}; there are {near_names(name, self.functions)}")
        return self.functions[name]
