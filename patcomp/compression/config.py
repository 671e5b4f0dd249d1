"""Which scheme each weight gets: for all weights, by what reads them, or by name; the most specific entry wins."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from patcomp.compression.scheme import Scheme
from patcomp.compression.weights import WEIGHT_KINDS, Weight
from patcomp.errors import near_names

_SHOWN = 3
"""How many weights a sentence names."""
_KEYS = ("scheme", "kinds", "names", "threshold")


@dataclass(frozen=True)
class CompressionConfig:
    """Which scheme each weight gets.

        CompressionConfig.of({"scheme": "w4_block32", "kinds": {"gather": "w8"}, "names": {"*.lm_head.*": None}})

    Attributes:
        scheme: the scheme of all other weights; None leaves them alone.
        kinds: schemes by what reads a weight: `matmul`, `conv`, `gather`, `gather_mm`.
        names: schemes by the weight's name in the model, with `*` for any characters; of several that match, the last.
        threshold: weights of fewer elements are left alone.
    """

    scheme: Scheme | None = None
    kinds: Mapping[str, Scheme | None] = field(default_factory=dict)
    names: Mapping[str, Scheme | None] = field(default_factory=dict)
    threshold: int = 2048

    @classmethod
    def of(cls, given: str | Mapping[str, Any] | Path | CompressionConfig) -> CompressionConfig:
        """A config from the name of a scheme, a mapping, or a TOML or YAML file with such a mapping.

        Raises:
            ValueError: a scheme, a key or a kind is unknown (the message lists those that exist), or the file does not
                have the format of its suffix.
            ImportError: the file is YAML, and pyyaml is not installed.
            OSError: the file cannot be read.
        """
        if isinstance(given, CompressionConfig):
            return given
        if isinstance(given, Path) or (isinstance(given, str) and given.endswith((".toml", ".yaml", ".yml"))):
            given = _read(Path(given))
        if isinstance(given, str):
            return cls(Scheme.parse(given))
        if not isinstance(given, Mapping):
            raise TypeError(f"a config is the name of a scheme, a mapping, or a TOML or YAML file, not {given!r}")
        _check("key", given, _KEYS)
        for key in ("kinds", "names"):
            if not isinstance(given.get(key, {}), Mapping):
                raise ValueError(f"{key} is a mapping from {key} to schemes, not {given[key]!r}")
        _check("kind", given.get("kinds", {}), WEIGHT_KINDS)
        threshold = given.get("threshold", cls.threshold)
        if type(threshold) is not int or threshold < 0:
            raise ValueError(f"threshold is a number of elements, not {threshold!r}")
        return cls(
            _scheme(given.get("scheme")),
            {kind: _scheme(name) for kind, name in given.get("kinds", {}).items()},
            {str(pattern): _scheme(name) for pattern, name in given.get("names", {}).items()},
            threshold,
        )

    def scheme_of(self, weight: Weight) -> Scheme | None:
        """The scheme of a weight, as far as its shape allows; None if it is left alone."""
        wanted = self._wanted(weight)
        return None if wanted is None else wanted.fitting(weight.shape, weight.layout)

    def misfits(self, weights: Iterable[Weight]) -> Iterator[str]:
        """A sentence for each scheme whose blocks, groups or vectors do not divide some weights."""
        found: dict[tuple[str, str], list[str]] = {}
        for weight in weights:
            wanted, scheme = self._wanted(weight), self.scheme_of(weight)
            if wanted is not None and scheme is not None and scheme != wanted:
                found.setdefault((wanted.name, scheme.name), []).append(weight.name)
        for (wanted_name, name), names in found.items():
            which = ", ".join(names[:_SHOWN]) + f" and {len(names) - _SHOWN} more" * (len(names) > _SHOWN)
            yield f"{wanted_name} does not divide the channels of {which}: stored as {name}"

    def _wanted(self, weight: Weight) -> Scheme | None:
        matching = [pattern for pattern in self.names if fnmatchcase(weight.name, pattern)]
        if matching:
            return self.names[matching[-1]]
        if weight.count < self.threshold:
            return None
        return next((self.kinds[kind] for kind in weight.kinds if kind in self.kinds), self.scheme)

    def pins(self, weight: Weight) -> bool:
        """Whether the scheme of a weight was chosen for it, by name or kind."""
        named = any(fnmatchcase(weight.name, pattern) for pattern in self.names)
        return named or any(kind in self.kinds for kind in weight.kinds)

    def check(self, weights: Iterable[Weight]) -> None:
        """Check that every pattern matches a weight.

        Raises:
            ValueError: one matches none.
        """
        names = [weight.name for weight in weights]
        for pattern in self.names:
            if not any(fnmatchcase(name, pattern) for name in names):
                raise ValueError(f"no weight is called {pattern!r}; there are {near_names(pattern, names)}")


def _read(path: Path) -> Any:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}, the config of a compression")
    if path.suffix not in (".yaml", ".yml"):
        try:
            return tomllib.loads(path.read_text())
        except ValueError as error:
            raise ValueError(f"{path} is no TOML: {error}") from error
    try:
        import yaml
    except ModuleNotFoundError:
        raise ImportError(f"{path} is YAML; install patcomp[yaml], or write the config as TOML") from None
    try:
        return yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is no YAML: {error}") from error


def _scheme(name: Any) -> Scheme | None:
    if name in (None, "none"):  # TOML has no None
        return None
    if not isinstance(name, str):
        raise ValueError(f"a scheme is a name such as 'w8', not {name!r}")
    return Scheme.parse(name)


def _check(what: str, given: Iterable[str], known: Iterable[str]) -> None:
    for name in given:
        if name not in known:
            raise ValueError(f"a compression config has no {what} {name!r}; there are {', '.join(known)}")
