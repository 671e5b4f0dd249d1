"""The metadata of an asset: the user's fields, the versions and the command that made the asset, and its date."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from patcomp.emit.files.manifest import DATE, creator_entries, current_recipe, start_of_command, tool_versions
from patcomp.errors import AssetError
from patcomp.interface.dims import Dims

USUAL_SIZE = 2
"""The size of dynamic dimensions of inputs that `patcomp run` and `patcomp verify` make."""

_FIELDS = ("author", "license", "model_description")
_STORED = {"author": "author", "license": "license", "model_description": "description"}
"""The names of the fields in `metadata.json`."""


@dataclass
class AssetMetadata:
    """What the user says about an asset, as coreai-core's `AIModelAssetMetadata` has it."""

    author: str = ""
    license: str = ""
    model_description: str = ""
    creator_defined_metadata: dict[str, Any] = field(default_factory=dict)

    def set_custom(self, name: str, value: Any) -> None:
        """Set an entry of the creator.

        Raises:
            TypeError: the value is no text, number or truth value, nor a list or mapping of those.
        """
        _check_custom(value)
        self.creator_defined_metadata[name] = value

    def entries(self, producer: str, date: str | None) -> dict[str, Any]:
        """What `metadata.json` says.

        Args:
            producer: the name and version of what writes the asset.
            date: the date of the asset as `creation_date` gives it; None for now.
        """
        made: dict[str, Any] = {"assetVersion": "2.0", "producer": producer}
        made["creationDate"] = date or datetime.now(UTC).strftime(DATE)
        made |= {_STORED[name]: getattr(self, name) for name in _FIELDS if getattr(self, name)}
        if self.creator_defined_metadata:
            made["creatorDefinedMetadata"] = self.creator_defined_metadata
        return made


def _check_custom(value: Any) -> None:
    if isinstance(value, Mapping):
        for each in value.values():
            _check_custom(each)
    elif isinstance(value, list | tuple):
        for each in value:
            _check_custom(each)
    elif not isinstance(value, str | int | float):
        raise TypeError(
            f"a metadata value must be a text, a number, a truth value, or a list or mapping of those; got {value!r}"
        )


def saved_entries(draws: Mapping[str, Mapping[str, str]], dims: Mapping[str, Dims]) -> dict[str, str]:
    """The entries about inputs that are random numbers, and about dynamic dimensions for which 2 is too small:
    `random.main.noise` is `standard normal`, and `smallest.main.samples:1` is `2000`.

    Args:
        draws: the distributions by entry point and name.
        dims: the dynamic dimensions by entry point.
    """
    sizes = {entry: each.smallest() for entry, each in dims.items()}
    return {f"random.{entry}.{name}": text for entry, inputs in draws.items() for name, text in inputs.items()} | {
        f"smallest.{entry}.{name}:{axis}": str(size)
        for entry, found in sizes.items()
        if any(size > USUAL_SIZE for size in found.values())  # then all, because sizes depend on each other
        for (name, axis), size in found.items()
    }


def draws_in(metadata: Mapping[str, Any], entrypoint: str) -> dict[str, str]:
    """The distributions of an entry point's inputs that are random numbers, by name.

    Args:
        metadata: what an asset's `metadata.json` says.
    """
    return creator_entries(metadata, f"patcomp.random.{entrypoint}.")


def smallest_in(metadata: Mapping[str, Any], entrypoint: str) -> dict[tuple[str, int], int]:
    """The smallest sizes of an entry point's dynamic dimensions, by input and axis; none if 2 is enough for all.

    Args:
        metadata: what an asset's `metadata.json` says.
    """
    found = {}
    for place, size in creator_entries(metadata, f"patcomp.smallest.{entrypoint}.").items():
        name, _, axis = place.rpartition(":")
        if axis.isdigit() and size.isdigit():
            found[name, int(axis)] = int(size)
    return found


def saved_metadata(native_class: Any, given: Any, facts: Mapping[str, Any]) -> Any:
    """The metadata that is saved with an asset.

    Args:
        native_class: coreai-core's `AIModelAssetMetadata`, or `AssetMetadata`.
        given: an object of it, which is not changed; a mapping of its fields; or None.
        facts: how the program was made, and what `saved_entries` makes. They, the versions of patcomp and its tools,
            and the command that runs become entries of `creator_defined_metadata`, `patcomp.torch` for `torch`, unless
            the user has set these.

    Raises:
        ValueError: there is no such field.
    """
    result = native_class()
    for name, fact in {**tool_versions(), **facts, **current_recipe()}.items():
        # data as text: coreai-core gives the number 1 back as a truth value
        result.set_custom(f"patcomp.{name}", fact if isinstance(fact, str) else json.dumps(fact, sort_keys=True))
    if isinstance(given, Mapping):
        for name, value in given.items():
            if name == "creator_defined_metadata":
                _add_custom(result, value)
            elif name not in _FIELDS:
                raise ValueError(
                    f"an asset has no metadata field {name!r}; there are {', '.join(_FIELDS)}, creator_defined_metadata"
                )
            else:
                setattr(result, name, value)
    elif given is not None:
        for name in _FIELDS:
            setattr(result, name, getattr(given, name))
        _add_custom(result, given.creator_defined_metadata)
    return result


def _add_custom(metadata: Any, entries: Mapping[str, str]) -> None:
    for name, value in entries.items():
        metadata.set_custom(name, value)


def creation_date() -> str | None:
    """The date of `SOURCE_DATE_EPOCH`, or else at which the command that runs began, as an asset has it; None if there
    is neither.

    Raises:
        ValueError: it is not a number of seconds.
    """
    seconds = os.environ.get("SOURCE_DATE_EPOCH")
    if not seconds:
        return start_of_command()
    try:
        return datetime.fromtimestamp(int(seconds), UTC).strftime(DATE)
    except (ValueError, OverflowError, OSError) as error:
        raise ValueError(f"SOURCE_DATE_EPOCH must be a number of seconds since 1970, got {seconds!r}") from error


def creation_day() -> str:
    """The day of `SOURCE_DATE_EPOCH`, or else today's in UTC, as a report has it: `2026-11-29`.

    Raises:
        ValueError: `SOURCE_DATE_EPOCH` is not a number of seconds.
    """
    date = creation_date()
    return (datetime.strptime(date, DATE) if date else datetime.now(UTC)).date().isoformat()


def epoch_of(metadata: Mapping[str, Any]) -> int | None:
    """The seconds since 1970 at the date of an asset; None if its `metadata.json` has no date of the usual form."""
    try:
        return int(datetime.strptime(str(metadata.get("creationDate")), DATE).replace(tzinfo=UTC).timestamp())
    except ValueError:
        return None


def set_creation_date(folder: Path, date: str) -> None:
    """Set the date of an asset, because coreai-core always writes the current one."""
    path = folder / "metadata.json"
    entries = json.loads(path.read_text())
    path.write_text(json.dumps(entries | {"creationDate": date}, indent=2, sort_keys=True) + "\n")


def read_metadata(path: Path) -> dict[str, Any]:
    """The facts in the `metadata.json` of an asset.

    Raises:
        AssetError: the file is damaged.
    """
    try:
        return dict(json.loads((path / "metadata.json").read_text()))
    except (ValueError, TypeError, RecursionError) as error:
        raise AssetError(f"{path} is not an asset: its metadata.json is damaged", (str(error),)) from error
