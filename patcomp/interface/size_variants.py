"""Entry points of several sizes: `{"length": (128, 256)}` makes `main_128` and `main_256` of `main`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

from patcomp.interface.dims import NO_DIMS, Dims, given_by_entry

FixedSizes = dict[str, int]
"""The size of each dimension that is fixed, by name."""


def size_variants(
    dims: Mapping[str, Dims], fixed: Mapping[str, int], sizes: Mapping[str, Sequence[int]]
) -> dict[str, dict[str, FixedSizes]]:
    """What each entry point becomes, by its name: the fixed sizes of each of its variants, by their names.

    A variant is named after the entry point and its sizes, in the order of `sizes`: `main_128`, or `main_4_128`. An
    entry point with several of the dimensions has a variant for each choice of their sizes. One without any stays.

    Args:
        dims: the dynamic dimensions of each entry point.
        fixed: the size of dimensions that all variants have, by name.
        sizes: the sizes of dimensions, by name.

    Raises:
        TypeError: `fixed` is not a mapping, or `sizes` not one to lists of whole numbers.
        ValueError: a dimension has no size or twice the same one, or is in both mappings, no entry point has it, a size
            is out of its range or breaks a condition of the model, or a variant has the name of another entry point.
    """
    _check_form(sizes)
    own = given_by_entry(dims, fixed)
    if both := [name for name in sizes if name in fixed]:
        raise ValueError(f"{both[0]} is in fixed and in sizes (--fix and --sizes); leave it out of one of them")
    for name in sizes:
        if not any(name in each.ranges for each in dims.values()):
            listed = dict.fromkeys(text for each in dims.values() for text in each.listed())
            raise ValueError(f"no dimension is called {name!r}; there are {', '.join(listed) or NO_DIMS}")
    made: dict[str, dict[str, FixedSizes]] = {}
    for entry, each in dims.items():
        several = [name for name in sizes if name in each.ranges]
        made[entry] = {}
        for chosen in product(*(sizes[name] for name in several)):
            choice = own[entry] | dict(zip(several, chosen, strict=True))
            each.check(choice)
            made[entry]["_".join([entry, *map(str, chosen)])] = choice
    names = [name for variants in made.values() for name in variants]
    if taken := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"several entry points would be called {', '.join(taken)}; stage them under other names")
    return made


def _check_form(sizes: Mapping[str, Sequence[int]]) -> None:
    if not isinstance(sizes, Mapping):
        raise TypeError(f"sizes are given by the names of dimensions, {{'length': (128, 256)}}, got {sizes!r}")
    for name, given in sizes.items():
        if isinstance(given, str) or not isinstance(given, Sequence) or not all(type(size) is int for size in given):
            raise TypeError(f"{name} takes a list of sizes, {{{name!r}: (128, 256)}}, got {given!r}")
        if not given:
            raise ValueError(f"{name} has no size; give one or more")
        if twice := sorted({size for size in given if list(given).count(size) > 1}):
            raise ValueError(f"{name} has the size {', '.join(map(str, twice))} twice; each size is an entry point")
