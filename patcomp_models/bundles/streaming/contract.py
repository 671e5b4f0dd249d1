"""What a host needs of the states of a function that reads chunks."""

from __future__ import annotations

from patcomp.errors import Problem
from patcomp_models.bundle_folders.contract import FLOATS, problem, shown_tensor
from patcomp_models.bundle_folders.interfaces import Function

CONTEXTS, KEYS, VALUES, POSITION = "Convolutions", "Keys", "Values", "Position"
LSTM_HIDDEN, LSTM_CELL = "Hidden", "Cell"
"""The ends of the names of states: the contexts of convolutions, (size,); keys and values of attention,
(layers, 1, heads, frames, width); how many frames were before, (1,); and the two of an LSTM, (layers, 1, size)."""


def state_problems(where: str, prefix: str, found: Function) -> list[Problem]:
    """What is wrong with the states of a function.

    Args:
        where: the name of the function.
        prefix: of the names.
        found: its description.
    """
    contexts, keys, values, position, hidden, cell = (
        f"{prefix}{end}" for end in (CONTEXTS, KEYS, VALUES, POSITION, LSTM_HIDDEN, LSTM_CELL)
    )
    attention, recurrence = (contexts, keys, values, position), (contexts, hidden, cell, position)
    if set(found.states) not in ({contexts}, set(attention), set(recurrence)):
        listed, wanted = ", ".join(found.states) or "none", recurrence if hidden in found.states else attention
        return [problem(f"the states of {where} are {listed}; they must be {', '.join(wanted)}")]
    ranks = {contexts: 1, keys: 5, values: 5, position: 1, hidden: 3, cell: 3}
    wrong = [
        problem(f"the state {name} of {where} is {shown_tensor(state)}, and must be of {ranks[name]} fixed sizes")
        for name, state in found.states.items()
        if len(state.shape) != ranks[name] or None in state.shape
        or state.dtype not in (("int32",) if name == position else FLOATS)
    ]  # fmt: skip
    for first, second in ((keys, values), (hidden, cell)):
        if not wrong and first in found.states and found.states[first] != found.states[second]:
            wrong.append(problem(f"the states {first} and {second} of {where} differ in shape or type"))
    return wrong
