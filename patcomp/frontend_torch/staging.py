"""Staging: the programs that a converter holds until they are converted."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from patcomp.errors import ConversionWarning, PatcompError
from patcomp.frontend_torch.importing.staged import Staged
from patcomp.frontend_torch.interface.names import check_entrypoint
from patcomp.frontend_torch.way_in import Choices, Request, ready_for_import


class EntrypointError(PatcompError, ValueError, RuntimeError):
    """No program is staged under the given entry point name."""


class Staging:
    """The programs that a converter has staged, in order.

    Args:
        choices: those of the converter, which may get further lowerings.
    """

    def __init__(self, choices: Choices):
        self.choices = choices
        self._requests: dict[str, Request] = {}
        self._prepared: dict[str, Staged] = {}

    def copy(self) -> Staging:
        """The same programs, staged for another converter."""
        made = Staging(replace(self.choices, lowerings=self.choices.lowerings.copy()))
        made._requests, made._prepared = dict(self._requests), dict(self._prepared)
        return made

    def __iter__(self) -> Iterator[Request]:
        return iter(list(self._requests.values()))

    def check(self, name: str) -> None:
        """Check the entry point of a program that is not staged yet.

        Raises:
            TypeError: it is not a string.
            ValueError: it is empty, starts with `$`, has a control character, or is that of another program.
        """
        check_entrypoint(name)
        if name in self._requests:
            raise ValueError(f"a program with entrypoint_name={name!r} is already staged; names must be unique")

    def prepared(self, request: Request) -> Staged:
        """A program, ready for import. It is staged from now on, and prepared again if lowerings were registered since.

        Warns:
            ConversionWarning: at the caller of the converter: what was not issued about the program before.
        """
        known = self._prepared.get(request.name)
        if known is not None and known.lowerings == tuple(self.choices.lowerings):
            return known
        found = ready_for_import(request, self.choices)
        for each in found.diagnostics:
            if known is None or each not in known.diagnostics:
                warnings.warn(str(each), ConversionWarning, stacklevel=3)
        self._requests[request.name], self._prepared[request.name] = request, found
        return found

    def selected(self, entrypoints: Sequence[str] | None) -> list[Request]:
        """The programs of some entry points, all by default.

        Raises:
            EntrypointError: a name is not staged.
            TypeError: the names are a string.
        """
        if entrypoints is None:
            return list(self)
        if isinstance(entrypoints, str):
            raise TypeError(f"entrypoints must be a list of names, got the string {entrypoints!r}")
        entrypoints = list(entrypoints)
        unknown = [name for name in entrypoints if name not in self._requests]
        if unknown:
            raise EntrypointError(f"no program is staged as {unknown}; staged are {list(self._requests) or 'none'}")
        return [request for name, request in self._requests.items() if name in entrypoints]

    def remove(self, requests: Iterable[Request]) -> None:
        """Forget programs."""
        for request in requests:
            del self._requests[request.name], self._prepared[request.name]
