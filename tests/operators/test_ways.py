"""An open batch in three ways, as exported, saved and decomposed: all convert or none, with eager's numbers.

`-m slow` runs all operators.
"""

from __future__ import annotations

import pytest
import torch

from tests.operators.core import EXAMPLES
from tests.operators.dynamic import core_sample
from tests.operators.samples import name_of, operators, samples
from tests.operators.ways import BATCHES, disagreement, is_batched, outcomes

EVERY = 104
"""Of the operators every so many are run."""
INFOS = {name_of(op): op for op in operators(torch.float32)}


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow] if i % EVERY else []) for i, n in enumerate((*sorted(EXAMPLES), *INFOS))],
)
def test_an_open_batch(name: str) -> None:
    given = [core_sample(name)] if name in EXAMPLES else list(samples(INFOS[name], torch.float32, 4))
    for sample in list(filter(is_batched, given))[:1]:
        for batch in BATCHES:
            assert disagreement(outcomes(sample, batch)) == "", f"{sample.text}, {batch}"
