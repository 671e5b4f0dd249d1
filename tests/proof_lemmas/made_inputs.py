"""The numbers with which programs are run."""

from __future__ import annotations

from typing import Any

import torch

from patcomp_lab.proof import rounding
from patcomp_lab.proof.deciding_numbers import _whole, every_number
from patcomp_lab.proof.fills import _close, _integers, fills_of, literals_of, special_values
from patcomp_lab.proof.narrow_floats import NARROW_DRAWS, _nudged, drawn_numbers
from patcomp_lab.proof.pairs import RunInput, made_of
from patcomp_lab.proof.programs import Programs
from patcomp_lab.proof.ties import _POOLS, decides, numbers_of, specifies_places
from patterns_catalog import default_rules
from tests.proof_lemmas.fingerprints import Lines, attempt, shown, table
from tests.proof_lemmas.made_programs import RULES

FILLED = (
    "times_one", "plus_zero", "cast_of_cast", "rms_norm", "normalize eq", "decompose kthvalue", "decompose threshold",
    "sort", "bitwise_xor", "amax", "decompose select_copy.int", "decompose signbit", "embedding", "gather", "to_copy",
    "reshape_of_reshape", "decompose nanmedian", "hard_sigmoid", "argmax", "topk", "gelu of tanh",
)  # fmt: skip


@table
def inputs() -> Lines:
    """All numbers of the first programs of some rules."""
    found = {}
    for name in FILLED:
        listed = Programs(RULES[name], default_rules(), 1)
        pair = listed.pair_of(listed.examples()[0])
        assert pair is not None
        lines = [f"{fill.aspect}: {shown(fill(seed))}" for fill in fills_of(pair) for seed in (0, 7)]
        lines += [str([*special_values(pair)]), str(literals_of(pair)), str([*numbers_of(pair.rule)])]
        found[name] = [*lines, f"{decides(pair)} {specifies_places(pair)}"]
    return found


TYPES = (
    "2x3xf32", "7xf16", "5xbf16", "4xf64", "3x2xf32[0,1]", "6xf32[-0.5,2.25]", "f32", "5xsi32", "5xsi8", "9xui8",
    "4xi1", "6xsi32[0,4]", "3xcomplex<f32>", "4xsi16", "4xf32[0.01,0.02]", "300xsi64", "9xsi32[-3,5]",
)  # fmt: skip
SPECIAL = (0.0, -0.0, float("inf"), 3.5)


@table
def numbers_of_types() -> Lines:
    found: dict[str, list[str]] = {}
    for text in TYPES:
        lines = found[text] = []
        for seed in range(4):
            lines += [attempt(_whole, RunInput(text), seed, d) for d in (False, True)]
            lines += [attempt(_integers, RunInput(text), seed, m) for m in (300, 2**31, 2**40)]
            lines += [attempt(made_of, RunInput(text), v, seed) for v in ((), SPECIAL)]
        value = made_of(RunInput(text))
        lines += [shown(_nudged(value, sign)) for sign in (1, -1)]
        lines += [shown(_close(place, value.dtype)) for place in (0, 3)]
        lines += [attempt(drawn_numbers, d, p, value.dtype) for d in range(NARROW_DRAWS) for p in range(3)]
        lines.append(str(RunInput(text).is_free_integer))
    for element in ("f32", "f16", "bf16", "f64", "si8", "ui8", "i1", "si16", "si32", "complex<f32>"):
        found[element] = [_counted(every_number([f"2x{element}"] * operands)) for operands in (1, 2, 3)]
    found["together"] = [_counted(every_number(each)) for each in (["2xf32", "2xf16"], ["no type"], [])]
    found["places"] = [str(_POOLS)]
    return found


def _counted(columns: Any) -> str:
    if columns is None:
        return "None"
    return f"{[(c.dtype, c.shape) for c in columns]} {[shown(column[::997]) for column in columns]}"


@table
def draws_of_rounding() -> Lines:
    like, lines = torch.zeros(3, 4), []
    for draw in rounding._DRAWS:
        lines.append(shown(draw(like, torch.Generator().manual_seed(3)).mul(64).round()))
    lines += [
        shown(rounding._within(RunInput(text), torch.tensor([-3.0, 0.5, 9.0]))) for text in ("3xf32", "3xf32[0,1]")
    ]
    return {"draws": lines}
