"""What checks of bundles have in common: the functions of assets, read as Apple's Swift package reads them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patcomp.errors import Problem


def problem(message: str, advice: str = "convert the model again") -> Problem:
    """Something that Swift would refuse or misread."""
    return Problem(message, advice=advice)


def described(path: Path, function: str = "main") -> tuple[Any, list[Problem]]:
    """A function of an asset, or why it cannot be read."""
    from patcomp.emit.asset import AssetError, load

    try:
        asset = load(path)
    except (FileNotFoundError, AssetError) as error:
        return None, [problem(str(error))]
    try:
        return asset.described(function), []
    except KeyError as error:
        return None, [problem(f"{path.name}: {error.args[0]}")]
    finally:
        asset.close()


Sizes = tuple[int | str | None, ...]
"""A shape: None is an open size, `"*"` any size."""
FLOATS = ("float16", "float32")


@dataclass(frozen=True)
class Interface:
    """The inputs and outputs of a function, in order: the shape of each, and the types that it may have."""

    inputs: Mapping[str, tuple[Sizes, Sequence[str]]]
    outputs: Mapping[str, tuple[Sizes, Sequence[str]]]
    names_count: bool = True
    """Whether Swift takes values by name; otherwise by order."""

    def problems(self, where: str, found: Any) -> list[Problem]:
        """What is wrong with a function.

        Args:
            where: it is, for messages.
            found: its description.
        """
        return [
            *self._wrong(where, "input", self.inputs, list(found.input_names), found.input_descriptor),
            *self._wrong(where, "output", self.outputs, list(found.output_names), found.output_descriptor),
        ]

    def _wrong(
        self,
        where: str,
        what: str,
        wanted: Mapping[str, tuple[Sizes, Sequence[str]]],
        names: Sequence[str],
        descriptor: Any,
    ) -> Iterable[Problem]:
        right = set(names) == set(wanted) if self.names_count else len(names) == len(wanted)
        if not right:
            given = ", ".join(names) or "none"
            yield problem(f"the {what}s of {where} are {given}; they must be {', '.join(wanted)}")
            return
        for place, (name, (sizes, types)) in enumerate(wanted.items()):
            own = name if self.names_count else names[place]
            given = descriptor(own)
            shape = tuple(None if size is None or size < 0 else size for size in given.shape)
            fits = len(shape) == len(sizes) and all(
                size in ("*", own_size) for size, own_size in zip(sizes, shape, strict=True)
            )
            if not fits or given.dtype.lower() not in types:
                wanted_sizes = " x ".join("?" if size is None else str(size) for size in sizes)
                yield problem(
                    f"the {what} {own} of {where} is {shown(given)}, and must be {wanted_sizes} of {' or '.join(types)}"
                )


def shown(given: Any) -> str:
    """The shape and type of an input or output."""
    sizes = " x ".join("?" if size is None or size < 0 else str(size) for size in given.shape)
    return f"{sizes} of {given.dtype}"
