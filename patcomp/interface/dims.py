"""The dynamic dimensions of an entry point: their names, their ranges, and how they depend on each other."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from patcomp.errors import EvaluationError, Problem, UnsupportedError
from patcomp.interface.guards import Guard

Place = tuple[str, int | None]
"""The name of an input or state, and an axis; the axis is None for the value of a scalar input."""

SizeRange = tuple[int, int | None]
"""The smallest and the largest value, both included; None for no limit."""


NO_DIMS = "none, because the model was exported with fixed sizes (dynamic_shapes=, --dynamic)"
"""How the list of dimensions ends that has none."""


@dataclass(frozen=True)
class SizePolynomial:
    """The size of a dimension as a polynomial of named dimensions: `2*seq + 1`."""

    terms: tuple[tuple[int, tuple[str, ...]], ...]
    """Factor and names of each product; no names for the constant."""

    def __str__(self) -> str:
        parts = []
        for factor, names in self.terms:
            shown = "*".join(([str(abs(factor))] if abs(factor) != 1 or not names else []) + list(names))
            parts.append(f" - {shown}" if factor < 0 else f" + {shown}")
        text = "".join(parts) or " + 0"
        return text[3:] if text.startswith(" + ") else f"-{text[3:]}"

    @property
    def names(self) -> tuple[str, ...]:
        """The named dimensions in it, each once."""
        return tuple(dict.fromkeys(name for _, names in self.terms for name in names))

    @property
    def number(self) -> int | None:
        """The size, if it depends on no name."""
        return None if self.names else sum(factor for factor, _ in self.terms)

    def given(self, sizes: Mapping[str, int]) -> SizePolynomial:
        """The same with some names replaced by numbers."""
        terms: dict[tuple[str, ...], int] = {}
        for factor, names in self.terms:
            left = tuple(name for name in names if name not in sizes)
            product = factor * math.prod(sizes[name] for name in names if name in sizes)
            terms[left] = terms.get(left, 0) + product
        return SizePolynomial(tuple((factor, names) for names, factor in terms.items() if factor))

    def solved(self, size: int) -> tuple[str, int, int] | None:
        """Solve `extent = size` for its one name: the name, the quotient and the remainder.

        None if there are several names, or the extent is not linear.
        """
        rest = sum(factor for factor, names in self.terms if not names)
        products = [(factor, names) for factor, names in self.terms if names]
        if len(products) != 1 or len(products[0][1]) != 1:
            return None
        ((factor, (name,)),) = products
        return name, *divmod(size - rest, factor)


@dataclass(frozen=True)
class Dims:
    """The facts about the dynamic dimensions of an entry point."""

    ranges: Mapping[str, SizeRange] = field(default_factory=dict)
    """The range of each named dimension."""
    extents: Mapping[Place, SizePolynomial] = field(default_factory=dict)
    """The size of each dynamic dimension of the inputs and states, and the value of each scalar input."""
    guards: tuple[Guard, ...] = ()
    """Conditions on the named dimensions that the ranges do not imply: at other sizes the program would be wrong."""

    def given(self, sizes: Mapping[str, int]) -> Dims:
        """The same with some dimensions fixed."""
        return Dims(
            {name: limits for name, limits in self.ranges.items() if name not in sizes},
            {place: extent.given(sizes) for place, extent in self.extents.items()},
            tuple(guard for each in self.guards if (guard := each.given(sizes)).names),
        )

    def smallest(self) -> dict[tuple[str, int], int]:
        """The size of each dynamic dimension by input and axis, where every named dimension has its smallest."""
        least = {name: low for name, (low, _) in self.ranges.items()}
        found = {place: extent.given(least).number for place, extent in self.extents.items()}
        return {(name, axis): size for (name, axis), size in found.items() if axis is not None and size is not None}

    def sizes_of(self, values: Mapping[str, Any]) -> dict[str, int]:
        """Solve the sizes of inputs and states by name for the named dimensions.

        Raises:
            EvaluationError: as `sizes`.
        """
        return self.sizes(
            {
                (name, axis): int(values[name]) if axis is None else values[name].shape[axis]
                for name, axis in self.extents
                if name in values
            }
        )

    def sizes(self, found: Mapping[Place, int]) -> dict[str, int]:
        """Solve the sizes of inputs for the named dimensions.

        Raises:
            EvaluationError: a dimension is out of its range or not an integer, two sizes contradict each other, or a
                guard does not hold.
        """
        sizes: dict[str, int] = {}
        waiting = {place: extent for place, extent in self.extents.items() if place in found}
        while waiting:
            for place, extent in waiting.items():
                if (solved := extent.given(sizes).solved(found[place])) is not None:
                    break
            else:
                break
            del waiting[place]
            name, size, remainder = solved
            if remainder:
                raise EvaluationError(f"{_what(place, found)}, which is not {extent} for any whole {name}")
            low, high = self.ranges[name]
            if size < low or (high is not None and size > high):
                shown = f"must be {_limits(low, high)}"
                because = f"{name} {shown}" if str(extent) == name else f"{extent} is {found[place]}: {name} {shown}"
                raise EvaluationError(f"{_what(place, found)}, but {because}{_advice(low, size)}")
            sizes[name] = size
        for place, extent in self.extents.items():
            wanted = extent.given(sizes).number
            if place in found and wanted is not None and wanted != found[place]:
                values = ", ".join(f"{name} is {sizes[name]}" for name in extent.names)
                text = f"it must be {wanted}" + (f" = {extent}, since {values}" if values else "")
                text = f"{extent} is {wanted} by the inputs before" if str(extent) in sizes else text
                raise EvaluationError(f"{_what(place, found)}, but {text}")
        for guard in self.guards:
            if sizes.keys() >= set(guard.names) and not guard.value(sizes):
                raise EvaluationError(self._broken(guard, sizes, found))
        return sizes

    def _broken(self, guard: Guard, sizes: Mapping[str, int], found: Mapping[Place, int]) -> str:
        """The message about sizes for which a guard does not hold."""
        places = {name: next(p for p in found if name in self.extents[p].names) for name in guard.names}
        inputs = " and ".join(_what(place, found) for place in dict.fromkeys(places.values()))
        named = [name for name, place in places.items() if str(self.extents[place]) != name]
        values = ", ".join(f"{name} is {sizes[name]}" for name in named)
        return (
            f"{inputs}, but the model was exported for sizes where {guard}"
            + (f" ({values})" if values else "")
            + "; export it once more with these sizes"
        )

    def fixed(self, sizes: Mapping[str, int]) -> dict[Place, int]:
        """The places whose size becomes a number when some dimensions are fixed."""
        numbers = {place: extent.given(sizes).number for place, extent in self.extents.items()}
        return {place: number for place, number in numbers.items() if number is not None}

    def listed(self) -> list[str]:
        """Each named dimension with its range: `length (2 to 128)`."""
        return [f"{name} ({_limits(*limits)})" for name, limits in self.ranges.items()]

    def check(self, sizes: Mapping[str, int]) -> None:
        """Check the dimensions to fix.

        Raises:
            ValueError: a dimension does not exist or is out of its range (the message lists the dimensions), or a
                guard does not hold.
        """
        listed = ", ".join(self.listed()) or NO_DIMS
        for name, size in sizes.items():
            if name not in self.ranges:
                raise ValueError(f"no dimension is called {name!r}; there are {listed}")
            low, high = self.ranges[name]
            if isinstance(size, bool) or not isinstance(size, int) or size < low or (high is not None and size > high):
                raise ValueError(f"{name} cannot be {size!r}; there are {listed}")
        for guard in self.guards:
            if sizes.keys() >= set(guard.names) and not guard.value(sizes):
                values = " and ".join(f"{name} is {sizes[name]}" for name in guard.names)
                raise ValueError(f"the model was exported for sizes where {guard}, which does not hold where {values}")


def given_by_entry(dims: Mapping[str, Dims], sizes: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """The sizes to fix, for each entry point: the sizes of its own dimensions.

    Raises:
        TypeError: `sizes` is not a mapping.
        ValueError: no entry point has such a dimension, or `Dims.check` refuses a size.
    """
    if not isinstance(sizes, Mapping):
        raise TypeError(f"sizes are given by the names of dimensions, {{'length': 128}}, got {sizes!r}")
    found = {entry: {name: size for name, size in sizes.items() if name in each.ranges} for entry, each in dims.items()}
    for name in sizes:
        if not any(name in own for own in found.values()):
            listed = dict.fromkeys(text for each in dims.values() for text in each.listed())
            raise ValueError(f"no dimension is called {name!r}; there are {', '.join(listed) or NO_DIMS}")
    for entry, own in found.items():
        dims[entry].check(own)
    return found


def check_static(target: str, dims: Mapping[str, Dims]) -> None:
    """Check that no dimension is open, for a target that takes fixed sizes only.

    Raises:
        UnsupportedError: some are; the message lists all of them, and says how to fix them.
    """
    places: dict[str, list[str]] = {}
    examples: list[tuple[str, int]] = []
    for entry, each in dims.items():
        for text, (name, (low, high)) in zip(each.listed(), each.ranges.items(), strict=True):
            inputs = dict.fromkeys(
                place for (place, axis), extent in each.extents.items() if axis is not None and name in extent.names
            )
            if not inputs:
                continue  # it is a number that the model computes with
            of_entry = f" of {entry}" if len(dims) > 1 else ""
            places.setdefault(text, []).append(f"{', '.join(inputs)}{of_entry}")
            examples.append((name, max(low, min(128, high or 128))))
    if places:
        problems = [Problem(f"the dimension {text}: {'; '.join(found)}") for text, found in places.items()]
        (name, size), *_ = examples
        raise UnsupportedError(
            f"the target {target} takes fixed sizes only, and these dimensions are dynamic; fix each of them, such as "
            f"fixed={{{name!r}: {size}}} (--fix {name}={size}):",
            problems,
        )


def _what(place: Place, found: Mapping[Place, int]) -> str:
    name, axis = place
    return (
        f"input {name!r} is {found[place]}"
        if axis is None
        else f"input {name!r} has size {found[place]} in dimension {axis}"
    )


def _limits(low: int, high: int | None) -> str:
    return f"{low} or more" if high is None else f"{low} to {high}"


def _advice(low: int, size: int) -> str:
    """Advice about size 1, which export excludes from `Dim.AUTO` and `Dim.DYNAMIC`."""
    if (low, size) != (2, 1):
        return ""
    return "; Dim.AUTO and Dim.DYNAMIC start at 2, so export with Dim('name', min=1), or once more with size 1 fixed"
