"""All seeds by name: 60 wrong rules for whatever proves or refutes rules.

The seeds were written without knowledge of the engine that they test. Do not change a seed because the engine does not
refute the rule.
"""

from __future__ import annotations

from tests.proof_seeds import lowering, normalize, optimize, optimize_open, recover, target
from tests.proof_seeds.seeds import Seed

SEEDS: dict[str, Seed] = {
    value.name: value
    for module in (optimize, optimize_open, normalize, recover, target, lowering)
    for value in vars(module).values()
    if isinstance(value, Seed)
}
