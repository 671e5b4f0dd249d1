"""Core ATen, overload by overload: the numbers are eager's, on the evaluator and the runtime, or it is refused."""

from __future__ import annotations

import pytest

from patcomp.emit.native import Native
from tests.catalog.cases import make_case
from tests.catalog.exported import check, convert
from tests.operators.core import EXAMPLES, REFUSED, core_overloads


def test_every_core_overload_has_an_example_or_a_reason() -> None:
    core = core_overloads()
    assert len(core) > 180
    assert [name for name in core if (name in EXAMPLES) == (name in REFUSED)] == []
    assert sorted({*EXAMPLES, *REFUSED} - {*core}) == []


@pytest.mark.sampled(3)
@pytest.mark.parametrize("op", sorted(EXAMPLES))
def test_core_overload(op: str, native: Native) -> None:
    case = make_case(op, EXAMPLES[op].args, EXAMPLES[op].kwargs)
    check(case, convert(case), native)
