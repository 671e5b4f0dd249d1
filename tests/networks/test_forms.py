"""The same model gives the same composites in every form: decomposed with either table or not, with either attention.

A sample runs always; `-m slow` runs all of them.
"""

from __future__ import annotations

import pytest

from patcomp import TorchConverter
from tests.networks.architectures import ARCHITECTURES, FORMS, VARIANTS, build, export
from tests.networks.conversion import TOLERANCE, converted
from tests.networks.expected import recovered, relative_error

SAMPLE = ("gpt2", "llama", "espcn", "style_net", "diffusion_block", "transformer_encoder")


def _parameters(*variants: tuple[str, ...]) -> list[object]:
    """Test parameters for tuples that begin with an architecture; the tests of one model run in one worker."""
    parameters = []
    for variant in variants:
        marks = [pytest.mark.xdist_group(variant[0])]
        if variant[0] not in SAMPLE:
            marks.append(pytest.mark.slow)
        parameters.append(pytest.param(*variant, id="-".join(filter(None, variant)), marks=marks))
    return parameters


def test_the_sample_exists() -> None:
    assert set(SAMPLE) <= set(ARCHITECTURES)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("name", "attention", "form"), _parameters(*((*variant, form) for variant in VARIANTS for form in FORMS[1:]))
)
def test_decomposed_or_not(name: str, attention: str, form: str) -> None:
    example = build(name, attention)
    program = TorchConverter().add_exported_program(export(example, form)).to_coreai()
    assert recovered(program) == recovered(converted(name, attention)[1])
    assert relative_error(program, example, program.run) <= TOLERANCE


@pytest.mark.parametrize("name", _parameters(*((name,) for name, made in ARCHITECTURES.items() if made.attentions[1:])))
def test_either_attention(name: str) -> None:
    first, *others = (recovered(converted(name, attention)[1]) for attention in ARCHITECTURES[name].attentions)
    assert others == [first] * len(others)
