"""Facts that a user may declare about a model, so that rules apply that are not exact for every input.

    program = converter.to_coreai(assume=["masked rows are not read"])

A rule reads an assumption as a condition, `MASKED_ROWS_ARE_NOT_READ | check(...)`. None holds by default.
"""

from __future__ import annotations

from patcomp.patterns import Assumption

MASKED_ROWS_ARE_NOT_READ = Assumption(
    "masked rows are not read",
    "A mask value of -1e4 or less hides a key from a query: every score is above the mask value, and no output that is "
    "read depends on the result of a query whose keys are all hidden.",
)
