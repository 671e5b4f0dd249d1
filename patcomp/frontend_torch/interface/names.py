"""The names at run time of an entry point and of its inputs, outputs and states."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from patcomp.frontend_torch.interface.signature import Signature


@dataclass(frozen=True)
class Names:
    """The names of an entry point's inputs, outputs and states, each in the order of its signature."""

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    states: tuple[str, ...] = ()

    def of_arguments(self, signature: Signature) -> dict[str, str]:
        """The names of the graph's arguments, by FX name: of the inputs, then of the states."""
        placeholders = [*signature.inputs, *(state.placeholder for state in signature.states)]
        return dict(zip(placeholders, [*self.inputs, *self.states], strict=True))

    def of_draws(self, signature: Signature) -> dict[str, str]:
        """The distributions of the inputs that are random numbers, by name."""
        own = self.of_arguments(signature)
        return {own[placeholder]: distribution for placeholder, distribution in signature.draws.items()}


def names_for(
    signature: Signature,
    inputs: Sequence[str] | None,
    outputs: Sequence[str] | None,
    states: Sequence[str] | None,
) -> Names:
    """The names that the user gave, or the defaults, made distinct for outputs and random numbers.

    By default an input has its FX name, and so has an output, unless it stands in a dictionary or in a field of the
    model's result: then it has the name of the key or field.

    Inputs that are random numbers follow the others, and always have their default names.

    An input and an output may share a name; the name of a state must be unique, because a state is both.

    Raises:
        TypeError: the names are not a list of strings.
        ValueError: the number of names is wrong, or a name is empty, repeated, or cannot be written to a text file; the
            message lists every problem.
    """
    wrong: list[str] = []
    state_names = _checked("state", states, [state.placeholder for state in signature.states], wrong)
    own_inputs = [name for name in signature.inputs if name not in signature.draws]
    input_names = _checked("input", inputs, own_inputs, wrong)
    input_names += _distinct(tuple(signature.draws), {*input_names, *state_names})
    defaults = [*_own_outputs(signature), *(f"{name}_updated" for name in signature.updated_inputs)]
    output_names = _checked("output", outputs, _distinct(defaults, state_names), wrong)
    for what, names in (("input", input_names), ("output", output_names)):
        if shared := sorted({*state_names}.intersection(names)):
            wrong.append(f"{what}_names {list(names)} and state_names {list(state_names)} share {shared}")
    if wrong:
        raise ValueError("; ".join(wrong))
    return Names(input_names, output_names, state_names)


def _own_outputs(signature: Signature) -> Iterator[str]:
    """The default name of each output that the model returns."""
    for fx_name, key in zip(signature.user_results, signature.result_keys, strict=True):
        if fx_name is not None:
            yield fx_name if _unusable(key) else key


def check_entrypoint(name: object) -> None:
    """Check the name of an entry point.

    Raises:
        TypeError: it is not a string.
        ValueError: it is empty, starts with `$` or has a control character.
    """
    if not isinstance(name, str):
        raise TypeError(f"entrypoint_name must be a string, got {name!r}")
    if _unusable(name) or name.startswith("$"):  # names of the runtime's own functions start with $
        raise ValueError(f"entrypoint_name must not be empty, start with $ or have control characters, got {name!r}")


def _unusable(name: str) -> bool:
    """Whether a name is blank, or has control characters or lone surrogates, which a text file cannot hold."""
    return not name.strip() or re.search(r"[\x00-\x1f\x7f\ud800-\udfff]", name) is not None


def _checked(what: str, given: Sequence[str] | None, defaults: Sequence[str], wrong: list[str]) -> tuple[str, ...]:
    """The given names of the inputs, outputs or states, or the defaults; append problems to `wrong`."""
    if given is not None and not isinstance(given, list | tuple):
        raise TypeError(f"{what}_names must be a list of names, got {given!r}")
    if not given:
        # a lone surrogate, which no text file can hold, becomes its escape; distinct names stay distinct
        return tuple(name.encode(errors="backslashreplace").decode() for name in defaults)
    for name in given:
        if not isinstance(name, str):
            raise TypeError(f"{what}_names must hold strings, got {name!r}")
    if len(given) != len(defaults):
        own = f"{len(defaults)} {what}{'s' * (len(defaults) != 1)}" + (f", {', '.join(defaults)}," if defaults else "")
        wrong.append(f"the model has {own} and {what}_names has {len(given)}: {', '.join(given)}")
    repeated = sorted({name for name in given if list(given).count(name) > 1})
    bad = [name for name in given if _unusable(name)]
    if repeated or bad:
        parts = [f"repeats {repeated}" if repeated else "", f"has unusable names {bad}" if bad else ""]
        wrong.append(f"{what}_names {list(given)} " + " and ".join(part for part in parts if part))
    return tuple(given)


def _distinct(names: Sequence[str], taken: Collection[str]) -> tuple[str, ...]:
    """The names, made distinct: a repeated or taken name gets a number."""
    used = set(taken)
    result = []
    for name in names:
        candidate, number = name, 1
        while candidate in used or (candidate != name and candidate in names):
            candidate, number = f"{name}_{number}", number + 1
        used.add(candidate)
        result.append(candidate)
    return tuple(result)


def listed(names: list[str], shown: int = 10) -> str:
    """Names in quotes, the first ones if there are many."""
    rest = len(names) - shown
    return ", ".join(map(repr, names[:shown])) + (f" and {rest} more" if rest > 0 else "")
