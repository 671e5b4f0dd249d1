"""All seeds by name: 122 wrong rules for whatever proves or refutes rules.

The first 60, of `optimize` to `lowering`, were written without knowledge of the engine that they test. The others are
kinds of mistakes that the engine once did not see. Do not change a seed because the engine does not refute the rule.
"""

from __future__ import annotations

from tests.proof_seeds import (
    equal_sizes,
    half,
    lowering,
    near_identities,
    normalize,
    optimize,
    optimize_open,
    options,
    recover,
    target,
    ties,
    two_open_sizes,
)
from tests.proof_seeds.seeds import Seed

SEEDS: dict[str, Seed] = {
    value.name: value
    for module in (
        optimize, optimize_open, normalize, recover, target, lowering,
        half, ties, equal_sizes, two_open_sizes, options, near_identities,
    )
    for value in vars(module).values()
    if isinstance(value, Seed)
}  # fmt: skip
