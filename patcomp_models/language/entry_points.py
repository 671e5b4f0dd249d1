"""The functions of a bundle beside one `main` for any number of tokens."""

from __future__ import annotations

from dataclasses import dataclass

from patcomp_models.errors import LanguageModelError
from patcomp_models.language.contract import DRAFT, MAIN, PREFILL, VERIFY, draft_names


@dataclass(frozen=True)
class EntryPoints:
    """Which functions a bundle has; all share the weights and the states."""

    prefill: int | None = None
    """The tokens of a call of `prefill`, beside a `main` of one token; without it, `main` takes any number."""
    verify: int | None = None
    """How many drafted tokens `verify` takes behind one token."""
    hidden: bool = False
    """Whether the functions also return the hidden state before the head."""

    def check(self, context: int | None) -> None:
        """Check the numbers.

        Args:
            context: the most tokens of the bundle, if it is known.

        Raises:
            LanguageModelError: a number is too small, or larger than the context.
        """
        for name, given, least in ((PREFILL, self.prefill, 2), (VERIFY, self.verify, 1)):
            if given is not None and (given < least or (context is not None and given >= context)):
                most = f"{least} to {context - 1}" if context is not None else f"at least {least}"
                raise LanguageModelError(f"{name} is {given}, and must be {most} tokens")

    @property
    def sizes(self) -> dict[str, int | None]:
        """The functions of the model, with the number of tokens that each takes; None for any number."""
        made: dict[str, int | None] = {MAIN: 1 if self.prefill else None}
        if self.prefill:
            made[PREFILL] = self.prefill
        if self.verify:
            made[VERIFY] = self.verify + 1
        return made


def function_map(points: EntryPoints, drafts: int) -> dict[str, list[str]]:
    """The functions by role, for `metadata.json`: each is called as its role, but for the further ones of drafts."""
    return {**{name: [name] for name in points.sizes}, **({DRAFT: draft_names(drafts)} if drafts else {})}
