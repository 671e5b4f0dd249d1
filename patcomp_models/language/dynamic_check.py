"""The part of `check_bundle` for functions of open sizes: names, shapes and types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from patcomp.errors import Problem
from patcomp_models.bundle_folders.contract import problem, shown_tensor
from patcomp_models.bundle_folders.revisions import GROWING
from patcomp_models.language.contract import (
    BATCH,
    ENGINES,
    FIRST_TOKENS,
    HEADLESS,
    HIDDEN,
    INDEX_CACHE,
    LANGUAGE,
    LOGITS,
    MAIN,
    ONE_TOKEN,
    OUTSIDE,
    PER_LAYER,
    POSITIONS,
    PREFILL,
    SEVERAL_TEXTS,
    STATE_KINDS,
    TOKENS,
    VERIFY,
    Engine,
    drafts_in,
    engine_refusal,
)

if TYPE_CHECKING:
    from patcomp_models.bundle_folders.interfaces import Function, Interfaces

_OWN_HOST = "run the bundle with Bundle.generate, or in a host of your own"


def dynamic_problems(asset: Interfaces, language: Mapping[str, Any], revision: str) -> list[Problem]:
    """The problems of an asset's functions.

    Args:
        asset: the asset.
        language: the `language` of `metadata.json`.
        revision: of Apple's package.

    Raises:
        UnknownNameError: there is no `main`; it is a `KeyError`.
    """
    names, engine = asset.names, ENGINES[revision]
    drafts = drafts_in(names)
    main = _as_given(asset.function(MAIN), engine)
    if FIRST_TOKENS in main.inputs:
        return [problem(SEVERAL_TEXTS.format(count=language.get(BATCH)), "run the bundle with Bundle.generate_batch")]
    problems = _roles(language.get("function_map"), names)
    has_chunks = PREFILL in names
    if has_chunks and engine.headless:
        lacking = _headless_problems(asset.function(PREFILL), asset.function(MAIN))
        problems += lacking
        has_chunks = bool(lacking)
    elif has_chunks:
        problems.append(problem(ONE_TOKEN, _OWN_HOST))
    for name in (MAIN, *([PREFILL] if has_chunks else []), *([VERIFY] if VERIFY in names else []), *drafts):
        described = _as_given(asset.function(name), engine)
        is_head = name in drafts and HIDDEN in described.inputs
        outputs = [[LOGITS, HIDDEN]] if is_head else [[LOGITS], [LOGITS, HIDDEN]]
        further = [each for each in (HIDDEN, PER_LAYER) if each in described.inputs]
        if name == MAIN and PER_LAYER in further:
            problems.append(problem(OUTSIDE, _OWN_HOST))
        expected = [HIDDEN] if is_head else [PER_LAYER] if further and name not in drafts else []
        found = interface_problems(name, described, [TOKENS, POSITIONS, *expected], *outputs)
        if is_head and HIDDEN not in main.outputs:
            found.append(problem(f"{name} takes the hidden state of the model, and main does not return it"))
        if not found:
            is_open = name in drafts or (name == MAIN and not has_chunks)
            found = _types(name, described, language.get("vocab_size"), is_open=is_open, is_one=name == MAIN)
        if name == MAIN:
            kinds = language.get(STATE_KINDS) if engine.state_kinds else None
            found += [] if found else dynamic_state_problems(main, kinds=kinds, advice=engine.fixed)
        elif name not in drafts and _all_states(described) != _all_states(main):
            found.append(problem(f"the states of {name} are not those of main"))
        problems += found
    return problems


def _as_given(described: Function, engine: Engine) -> Function:
    """A function with its inputs as the engines give them: if they find all by name, under our names, in our order."""
    found = {own: next((each for each in names if each in described.inputs), None)
             for own, names in engine.inputs.items()}  # fmt: skip
    if not found or set(found.values()) != set(described.inputs):
        return described
    return replace(described, inputs={own: described.inputs[name] for own, name in found.items() if name})


def _headless_problems(prefill: Function, main: Function) -> list[Problem]:
    """Why the engines do not load a `prefill` that only fills the states."""
    wrong = [
        f"takes {', '.join(prefill.inputs) or 'nothing'}" if list(prefill.inputs) != list(main.inputs) else "",
        f"keeps {', '.join(prefill.states) or 'nothing'}" if set(prefill.states) != set(main.states) else "",
        f"returns {', '.join(prefill.outputs)}" if prefill.outputs else "",
    ]
    return [problem(HEADLESS.format(found=each), _OWN_HOST) for each in wrong if each]


def _roles(given: Any, names: Sequence[str]) -> list[Problem]:
    """The problems of `function_map`, which may be left out."""
    if given is None:
        return []
    if not isinstance(given, dict) or not all(isinstance(each, list) for each in given.values()):
        return [problem("language.function_map is no object of lists of names")]
    lacking = [str(name) for listed in given.values() for name in listed if name not in names]
    problems = [problem(f"language.function_map names {', '.join(lacking)}, and the asset has no such function")]
    first = (given.get(MAIN) or [None])[0]
    wrong = [problem(f"language.function_map.main begins with {first!r}, and must begin with 'main'")]
    return [*(problems if lacking else []), *(wrong if first != MAIN else [])]


def interface_problems(function: str, described: Any, inputs: list[str], *outputs: list[str]) -> list[Problem]:
    """What is wrong with the names of a function, in the order in which the package takes them.

    Args:
        function: its name, for messages.
        described: its description.
        inputs: the right ones.
        outputs: the right ones; other right ones behind the first.
    """
    found = []
    for what, names, wanted in (
        ("inputs", list(described.inputs), (inputs,)),
        ("outputs", list(described.outputs), outputs),
    ):
        if names not in wanted:
            given = ", ".join(names) or "none"
            found.append(problem(f"the {what} of {function} are {given}; they must be {', '.join(wanted[0])}"))
    return found


def _types(function: str, described: Any, vocabulary: Any, *, is_open: bool, is_one: bool) -> list[Problem]:
    """The problems of the inputs and of the logits."""
    problems = []
    of_which = "" if function == MAIN else f" of {function}"
    tokens, positions = (described.inputs[name] for name in (TOKENS, POSITIONS))
    logits = described.outputs[LOGITS]
    count = "?" if is_open else "1" if is_one else "a number of tokens"
    for name, given, wanted, fits in (
        (TOKENS, tokens, count, _is_open(tokens) if is_open else not _is_open(tokens)),
        (POSITIONS, positions, "?", _is_open(positions)),
    ):
        if given.dtype != "int32" or [*given.shape][:1] != [1] or len(given.shape) != 2 or not fits:
            problems.append(problem(f"{name}{of_which} is {shown_tensor(given)}, and must be 1 x {wanted} of int32"))
    if is_one and not is_open and not _is_open(tokens) and tokens.shape[-1] != 1:
        problems.append(problem(f"{TOKENS} is {shown_tensor(tokens)}, and must be 1 x 1 of int32"))
    return [*problems, *logits_problems(logits, of_which, vocabulary)]


def logits_problems(logits: Any, of_which: str, vocabulary: Any) -> list[Problem]:
    """What is wrong with logits."""
    problems = []
    if logits.dtype != "float16":
        advice = "convert with dtype='float16'"
        problems.append(problem(f"{LOGITS}{of_which} are {logits.dtype}, and must be float16", advice))
    if len(logits.shape) != 3 or logits.shape[-1] != vocabulary:
        problems.append(
            problem(f"{LOGITS}{of_which} are {shown_tensor(logits)}; their last size must be language.vocab_size")
        )
    return problems


def _is_open(given: Any) -> bool:
    """Whether the last size is open."""
    return bool(given.shape) and (given.shape[-1] is None or given.shape[-1] < 0)


def _all_states(described: Any) -> dict[str, str]:
    return {name: shown_tensor(described.states[name]) for name in described.states}


def _kind_problems(kinds: Any, grows: Mapping[str, bool]) -> list[Problem]:
    """Where `language.states` contradicts the sizes.

    Args:
        kinds: a word for each state, by name; something else if the metadata are wrong.
        grows: whether each state has an open size.
    """
    if not isinstance(kinds, Mapping):
        return []
    return [
        problem(f"language.{STATE_KINDS} says {kinds[name]} of {name}, whose size is {'open' if is_open else 'fixed'}")
        for name, is_open in grows.items()
        if name in kinds and is_open != (kinds[name] == GROWING)
    ]


def dynamic_state_problems(described: Any, kind: str = LANGUAGE, kinds: Any = None, advice: str = "") -> list[Problem]:
    """The problems of the states of `main`: two growing caches, and perhaps two more states.

    Args:
        described: the function.
        kind: of the bundle.
        kinds: what `metadata.json` says of each state; None if it says nothing.
        advice: of an engine that takes states of fixed sizes only.
    """
    states = {name: described.states[name] for name in described.states}
    is_open = {name: [size is None for size in state.shape] for name, state in states.items()}
    grows = {name: any(sizes) for name, sizes in is_open.items()}
    problems = _kind_problems(kinds, grows)
    if refusal := engine_refusal(list(grows.values()), kind):
        is_fixed = not any(grows.values()) and len(grows) > 1
        problems.append(problem(refusal, advice if advice and is_fixed else _OWN_HOST))
    for name, state in states.items():
        if grows[name]:
            if is_open[name] != [False, False, False, True, False] or state.shape[1] != 1:
                problems.append(problem(f"{name} is {shown_tensor(state)}, and must be layers x 1 x heads x ? x width"))
        elif any(part in name.lower() for part in ("cache", "kv")):
            # the engines take it for a window of keys, in which they go back by counting
            problems.append(problem(f"{name} is {shown_tensor(state)}; its size must be open, or its name another"))
    growing = [state for name, state in states.items() if grows[name] and name != INDEX_CACHE]
    for keys, values in zip(growing[::2], growing[1::2], strict=False):
        if (tuple(keys.shape), keys.dtype) != (tuple(values.shape), values.dtype):
            problems.append(problem("the caches of keys and values differ in type or shape"))
    if len(growing) % 2:
        problems.append(problem("a cache of keys has no cache of values"))
    return problems
