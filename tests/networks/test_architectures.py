"""Unmodified architectures: each converts, agrees with eager PyTorch, and gives the composites that its modules have.

A sample runs always; `-m slow` runs all of them, on the runtime too.
"""

from __future__ import annotations

import pytest

from patcomp.emit.native import Native
from patcomp.ir.verify import verify
from tests.networks.architectures import VARIANTS
from tests.networks.conversion import TOLERANCE, converted
from tests.networks.expected import MISSES, expected, listed_miss, recovered, relative_error

SAMPLE = (
    ("deberta_v2", "eager"),
    ("gpt_neox", "sdpa"),
    ("gemma3", "eager"),
    ("mixtral", "sdpa"),
    ("t5", "sdpa"),
    ("clip", "sdpa"),
    ("swin", "eager"),
    ("diffusion_block", "eager"),
)


def _variant(variant: tuple[str, str], *marks: pytest.MarkDecorator) -> object:
    identifier = "-".join(filter(None, variant))
    # the tests of one model run in one worker, which converts it once
    return pytest.param(*variant, id=identifier, marks=[*marks, pytest.mark.xdist_group(variant[0])])


OF_DEVICES = {
    "clip": "`argmax` gives wrong positions",  # it reads the end of the text where `argmax` finds it
    "deepseek_v3": "queries and values have other head sizes",
}
"""The architectures with a construct that a device computes wrongly, and what the conversion says."""

each_variant = pytest.mark.parametrize(
    ("name", "attention"),
    [_variant(variant, *(() if variant in SAMPLE else (pytest.mark.slow,))) for variant in VARIANTS],
)


def test_the_sample_exists() -> None:
    assert set(SAMPLE) <= set(VARIANTS)


@pytest.mark.sampled(3)
@each_variant
def test_agrees_with_eager(name: str, attention: str) -> None:
    example, program = converted(name, attention)
    verify(program.module, runtime=True)
    assert relative_error(program, example, program.run) <= TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize(("name", "attention"), [_variant(variant) for variant in VARIANTS])
def test_agrees_with_eager_on_the_runtime(name: str, attention: str, native: Native) -> None:
    example, program = converted(name, attention)
    assert relative_error(program, example, lambda inputs: native.run(program.module, inputs)) <= TOLERANCE


@each_variant
def test_converts_without_warnings(name: str, attention: str) -> None:
    said = [each.message for each in converted(name, attention)[1].diagnostics]
    assert [each for each in said if name not in OF_DEVICES or OF_DEVICES[name] not in each] == []


def misses(name: str, attention: str) -> dict[str, str]:
    """What is not recovered: composites, and the keys of `MISSES` that list them."""
    example, program = converted(name, attention)
    found = recovered(program)
    wanted = expected(example.model, example.args)
    surplus = {composite: found[composite] for composite in wanted if found.get(composite, 0) > wanted[composite]}
    assert not surplus, f"more than the model has: {surplus} of {wanted}"
    return {
        composite: listed_miss(name, attention, composite)
        for composite, count in wanted.items()
        if found.get(composite, 0) < count
    }


@each_variant
def test_recovers_what_the_modules_have(name: str, attention: str) -> None:
    missing = misses(name, attention)
    unlisted = [composite for composite, key in missing.items() if not key]
    assert unlisted == [], f"found {recovered(converted(name, attention)[1])}"


@pytest.mark.slow
@pytest.mark.parametrize("key", MISSES)
def test_every_listed_miss_is_one(key: str) -> None:
    name, attention, composite = key.split()
    variants = [(n, a) for n, a in VARIANTS if name in ("*", n) and attention in ("*", a)]
    missing = {found for variant in variants for found in misses(*variant)}
    assert composite in ("*", *missing), "it is recovered now; take it from the list"
