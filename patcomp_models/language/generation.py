"""Generate with the functions of a bundle: its states, greedy generation, and greedy speculative decoding."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from patcomp.evaluate.given import as_array
from patcomp_models.language.contract import CAPACITY, HIDDEN, LOGITS, POSITIONS, TOKENS, VERIFY

AssetCall = Callable[[str, Mapping[str, Any], dict[str, Any]], Mapping[str, Any]]
"""Runs a function, by its name, on inputs and states by name; the states are updated in place."""

Draft = Callable[[Sequence[int], int], Sequence[int]]
"""From all tokens so far and a number, at most that many tokens that probably follow."""

_PIECE = 512
"""The most tokens of a prompt in one call of such a function, if the caller does not say another number."""
_DRAFTED = 4
"""How many tokens are drafted for a call of a function with an open number of tokens."""


@dataclass(frozen=True)
class Generation:
    """What was generated."""

    tokens: list[int]
    calls: int
    """How many calls of the model it took, those of the prompt included; those of a draft are not counted."""


@dataclass(frozen=True)
class Snapshot:
    """The states of a session after some tokens; of those that grow, nothing is kept."""

    done: int
    fixed: dict[str, np.ndarray]


class Session:
    """A model that has read some tokens: its states between the calls.

    Args:
        call: runs a function.
        sizes: the functions by name, with the number of tokens that each takes; None for any number.
        empty: the states before the first token, by name; those that grow have no place yet.
        limit: the most tokens.
        piece: the most tokens of a prompt in one call of a function with an open number of tokens.
        first_length: the most tokens for which the model has its first rotary embedding, if it has another for longer
            texts. The states are of one of the two: they are made again, by one call for all tokens, where the other
            is needed.
    """

    def __init__(
        self, call: AssetCall, sizes: Mapping[str, int | None], empty: Mapping[str, np.ndarray], limit: int,
        piece: int = _PIECE, first_length: int | None = None,
    ):  # fmt: skip
        self.call, self.sizes, self.limit, self.piece = call, dict(sizes), limit, piece
        self.first_length = first_length
        self.done = self.calls = 0
        self._read: list[int] = []
        self._is_long = False
        self._empty = {name: state for name, state in empty.items() if state.size}
        self._growing = [name for name, state in empty.items() if not state.size]
        self._capacity = min(CAPACITY, limit)
        self.states: dict[str, Any] = {
            name: grown(state, self._capacity) if name in self._growing else state.copy()
            for name, state in empty.items()
        }

    @property
    def rewinds_by_counting(self) -> bool:
        """Whether an earlier token is reached without its states: all states have a place for each token."""
        return len(self._growing) == len(self.states)

    def read(self, tokens: Sequence[int], last: int = 1) -> np.ndarray:
        """Read tokens behind those before, in few calls; the logits of the last ones, (last, vocabulary)."""
        made: list[np.ndarray] = []
        waiting = list(tokens)
        while waiting:
            function, count = self._function(len(waiting))
            logits = self.run(function, waiting[:count])
            waiting = waiting[count:]
            made.append(logits[max(len(logits) + len(waiting) - last, 0) :] if len(waiting) < last else logits[:0])
        return np.concatenate(made)[-last:]

    def _function(self, waiting: int) -> tuple[str, int]:
        """The function for the next call, and how many tokens it takes: the one of this very size, any, the largest."""
        fitting = {name: size for name, size in self.sizes.items() if size is not None and size <= waiting}
        exact = [name for name, size in fitting.items() if size == waiting]
        if not exact and (free := [name for name, size in self.sizes.items() if size is None]):
            is_longer = self._needs_longer(self.done + waiting) and not self._is_long
            return free[0], waiting if is_longer else min(waiting, self.piece)
        chosen = exact[0] if exact else max(fitting, key=lambda name: fitting[name] or 0)
        return chosen, fitting[chosen] or 0

    def run(self, function: str, tokens: Sequence[int]) -> np.ndarray:
        """One call: the logits of its tokens."""
        count = len(tokens)
        self._read = [*self._read[: self.done], *tokens]
        if self.done and self._needs_longer(len(self._read)) != self._is_long:
            tokens, self.done = self._read, 0
            function = next((name for name, size in self.sizes.items() if size is None), function)
            self.states |= {name: state.copy() for name, state in self._empty.items()}
        self.done += len(tokens)
        self._is_long = self._needs_longer(self.done)
        self.calls += 1
        while self._capacity < self.done:
            self._capacity = min(2 * self._capacity, self.limit)
            self.states |= {name: grown(self.states[name], self._capacity) for name in self._growing}
        inputs = {TOKENS: np.array([tokens], np.int32), POSITIONS: np.arange(self.done, dtype=np.int32)[None]}
        return np.asarray(self.call(function, inputs, self.states)[LOGITS], np.float32)[0, -count:]

    def _needs_longer(self, tokens: int) -> bool:
        """Whether a text of so many tokens has the rotary embedding of longer texts."""
        return self.first_length is not None and tokens > self.first_length

    def snapshot(self) -> Snapshot:
        """The states as they are now."""
        fixed = {name: np.array(state) for name, state in self.states.items() if name not in self._growing}
        return Snapshot(self.done, fixed)

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to an earlier token. Places behind it keep what they have; no call reads them."""
        self.done = snapshot.done
        self.states |= {name: state.copy() for name, state in snapshot.fixed.items()}

    @property
    def room(self) -> int:
        """How many tokens may follow with the same rotary embedding: a token in front of the change has the first."""
        is_before = self.first_length is not None and self.done < self.first_length
        return ((self.first_length or 0) if is_before else self.limit) - self.done

    def drafted(self, wanted: int | None) -> int:
        """How many drafted tokens a call takes behind the last one.

        Args:
            wanted: what the user asks for, where any number is possible.
        """
        if VERIFY in self.sizes:
            return (self.sizes[VERIFY] or 1) - 1
        if None in self.sizes.values():
            return wanted or _DRAFTED
        return max(size or 1 for size in self.sizes.values()) - 1


def up_to_stop(tokens: Sequence[int], new_tokens: int, stops: Container[int]) -> list[int]:
    """The tokens of a text: at most `new_tokens`, up to and including the first stop token."""
    end = next((place for place, token in enumerate(tokens, 1) if token in stops), new_tokens)
    return [*tokens[: min(end, new_tokens)]]


def greedy(session: Session, prompt: Sequence[int], new_tokens: int, stops: Container[int] = ()) -> Generation:
    """The most probable next tokens, one call for each, up to one of `stops`."""
    made: list[int] = []
    waiting: Sequence[int] = prompt
    while len(made) < new_tokens and not (made and made[-1] in stops):
        made.append(int(session.read(waiting)[-1].argmax()))
        waiting = made[-1:]
    return Generation(made, session.calls)


def speculative(
    session: Session,
    draft: Draft,
    prompt: Sequence[int],
    new_tokens: int,
    drafted: int | None = None,
    stops: Container[int] = (),
) -> Generation:
    """The most probable next tokens, several from one call where a draft foresees them.

    A call takes the last token and drafted ones behind it; each logit says whether the next drafted token is right.
    After a wrong one the model goes back: its caches by counting; a model with other states also by a snapshot of
    those, and the tokens that were right are a part of the next call.

    Args:
        session: of the model, at the start.
        draft: foresees tokens.
        prompt: token ids.
        new_tokens: how many to generate.
        drafted: how many tokens to draft for a call, if the functions of the model leave it open.
        stops: the tokens that end a text.
    """
    count = session.drafted(drafted)
    made = [int(session.read(prompt)[-1].argmax())]
    unread = made[:]  # the tokens that are known and not yet in the states
    while len(made) < new_tokens and not any(token in stops for token in made):
        room = min(count + 1 - len(unread), session.room - len(unread))
        guessed = [int(token) for token in draft([*prompt, *made], room)][:room] if room > 0 else []
        before = session.snapshot()
        best = session.read([*unread, *guessed], 1 + len(guessed)).argmax(1)
        right = next((each for each, token in enumerate(guessed) if token != best[each]), len(guessed))
        made += [*guessed[:right], int(best[right])]
        if right == len(guessed):
            unread = made[-1:]
        elif session.rewinds_by_counting:
            session.restore(Snapshot(before.done + len(unread) + right, {}))
            unread = made[-1:]
        else:
            session.restore(before)
            unread = [*unread, *guessed[:right], made[-1]]
    return Generation(up_to_stop(made, new_tokens, stops), session.calls)


class Drafting:
    """A smaller model that foresees the tokens of a larger one, as a `Draft`.

    Args:
        session: of the smaller model, at the start.
        skipped: how many of the first tokens it does not read.
    """

    def __init__(self, session: Session, skipped: int = 0):
        self._session, self._start, self._skipped = session, session.snapshot(), skipped

    def __call__(self, tokens: Sequence[int], count: int, guessed: Sequence[int] = ()) -> list[int]:
        """The tokens that the smaller model finds most probable.

        Args:
            tokens: all so far; they continue those of the call before.
            count: how many to foresee.
            guessed: tokens behind them that may be wrong.
        """
        session, every = self._session, [*tokens, *guessed][self._skipped :]
        known = len(tokens) - self._skipped
        if len(every) > session.limit:
            return []
        session.restore(self._start)
        logits = session.read(every[session.done : known]) if session.done < known else None
        self._start = session.snapshot()
        logits = session.read(every[session.done :]) if logits is None or session.done < len(every) else logits
        made = [int(logits[-1].argmax())]
        while len(made) < count and session.done < session.limit:
            made.append(int(session.read(made[-1:])[-1].argmax()))
        return made


class Heads:
    """Heads of a model that foresee one token each, behind those that the heads before them foresee, as a `Draft`.

    Args:
        heads: each skips one token more than the one before.
    """

    def __init__(self, heads: Sequence[Drafting]):
        self._heads = [*heads]

    def __call__(self, tokens: Sequence[int], count: int) -> list[int]:
        """The tokens that the heads find most probable, one of each; `tokens` continues those of the call before."""
        made: list[int] = []
        for head in self._heads[:count]:
            made += head(tokens, 1, made)
        return made


def feeding(fed: Callable[[np.ndarray], Mapping[str, Any]], call: AssetCall) -> AssetCall:
    """A call with further inputs.

    Args:
        fed: the further inputs of tokens, (1, q), by name.
        call: takes them.
    """

    def given(name: str, inputs: Mapping[str, Any], states: dict[str, Any]) -> Mapping[str, Any]:
        return call(name, {**inputs, **fed(np.asarray(inputs[TOKENS]))}, states)

    return given


def draft_without(left_out: Container[int], draft: Draft) -> Draft:
    """A draft that does not read the tokens of images and sounds, of which a model of text knows nothing.

    Args:
        left_out: these tokens.
        draft: foresees tokens.
    """
    return lambda tokens, count: draft([each for each in tokens if each not in left_out], count)


class HiddenStates:
    """The hidden states of tokens, from a model to its head that foresees tokens (MTP).

    The head reads each token with the hidden state of the token in front. Behind tokens that it foresees itself, its
    own hidden state stands in for the model's, until the model has read them.

    Args:
        depth: how many heads are in front of this one, which takes the hidden states of the last of them. It reads as
            many tokens again that may have been wrong.
    """

    def __init__(self, depth: int = 0) -> None:
        self._rows: dict[int, np.ndarray] = {}
        self._depth = depth

    def of_model(self, call: AssetCall) -> AssetCall:
        """A call of the model, of which the hidden states are kept."""

        def kept(name: str, inputs: Mapping[str, Any], states: dict[str, Any]) -> Mapping[str, Any]:
            made = call(name, inputs, states)
            rows = as_array(made[HIDDEN])[0]
            first = np.shape(inputs[POSITIONS])[1] - len(rows)
            self._rows |= {first + each: row.copy() for each, row in enumerate(rows)}
            return made

        return kept

    def to_head(self, call: AssetCall) -> AssetCall:
        """A call of the head, which takes the hidden states of the tokens in front."""

        def given(name: str, inputs: Mapping[str, Any], states: dict[str, Any]) -> Mapping[str, Any]:
            end = np.shape(inputs[POSITIONS])[1]
            first = end - np.shape(inputs[TOKENS])[1]
            rows = [self._rows[each] for each in range(first, end)]
            self._rows = {each: row for each, row in self._rows.items() if each >= first - self._depth}
            made = call(name, {**inputs, HIDDEN: np.stack(rows)[None]}, states)
            if not self._depth:  # behind other heads, the last of them foresees no token of its own
                self._rows[end] = as_array(made[HIDDEN])[0, -1].copy()
            return made

        return given


def grown(cache: Any, capacity: int) -> np.ndarray:
    """A cache of a larger capacity with the same content."""
    held = np.asarray(cache)
    made = np.zeros((*held.shape[:3], capacity, held.shape[4]), held.dtype)
    made[:, :, :, : held.shape[3]] = held
    return made
