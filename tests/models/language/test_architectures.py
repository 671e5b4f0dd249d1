"""Every tested architecture: the tokens of the model's own generation, on the evaluator and on the runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from patcomp_models.checkpoints.loading import export_implementations, in_dtype
from patcomp_models.language import ARCHITECTURES, check_bundle, convert_language_model
from patcomp_models.language.contract import LOGITS
from patcomp_models.language.decoder import Decoder
from patcomp_models.language.dynamic_form import BundleFunction, dynamic_program, exported_function
from patcomp_models.language.generation import Session, greedy
from tests.models.language.checkpoints import (
    CONTEXT,
    PROMPT,
    SECOND,
    SETTINGS,
    assert_best,
    checkpoint,
    generated,
)

STEPS = 16


def each_architecture(*in_ci: str) -> pytest.MarkDecorator:
    """A parameter for every architecture; most are slow tests."""
    return pytest.mark.parametrize(
        "kind", [kind if kind in in_ci else pytest.param(kind, marks=pytest.mark.slow) for kind in SETTINGS]
    )


def test_every_architecture_is_tested() -> None:
    assert SETTINGS.keys() == ARCHITECTURES.keys()


NO_CACHES = (
    "Apple's engines take growing caches of keys and of values as the first two states; this model has none\n"
    "      run the bundle with Bundle.generate, or in a host of your own"
)


@each_architecture("llama", "lfm2")
@pytest.mark.filterwarnings("ignore:.*Apple's engines:patcomp.errors.ConversionWarning")
def test_on_the_runtime(kind: str, tmp_path: Path) -> None:
    """A prompt, a second one after it, and one that makes the caches grow from 256 to 512 tokens."""
    model = checkpoint(kind)
    bundle = convert_language_model(model, out=tmp_path / "bundle", max_context=CONTEXT)
    problems = [str(problem) for problem in check_bundle(bundle.path)]
    if kind in ("mamba", "mamba2", "falcon_mamba", "rwkv", "rwkv7"):
        assert problems == [NO_CACHES]
        assert bundle.metadata["notes"] == [NO_CACHES.partition("\n")[0]]
    else:
        assert problems == []
    half: Any = in_dtype(model, "float16")
    for prompt in (PROMPT, SECOND, PROMPT * 21):
        new = STEPS if prompt is PROMPT else 4 if prompt is SECOND else 6
        made = bundle.generate(prompt, new)
        if made != generated(half, prompt, new):
            assert_best(half, prompt, made, model)  # two logits are equal but for the rounding of float16


@each_architecture("gpt_oss", "qwen3_5_text")
def test_logits(kind: str) -> None:
    """On the evaluator, in float32: prefill, and decode steps. The last call fills the caches, or the only one."""
    model: Any = checkpoint(kind)
    with export_implementations(model):
        function = BundleFunction("main", Decoder(model))
        program = dynamic_program([(function, exported_function(function, CONTEXT))])
        states = zip(function.state_names, function.decoder.states.zeros(0), strict=True)
        empty = {name: state.numpy() for name, state in states}
        seen: list[np.ndarray] = []

        def call(name: str, inputs: Any, states: Any) -> Any:
            made = program.run(inputs, state=states)
            seen.append(np.asarray(made[LOGITS]))
            return made

        tokens = greedy(Session(call, {"main": None}, empty, len(PROMPT) + 3), PROMPT, 4).tokens
        full = Session(call, {"main": None}, empty, len(PROMPT)).run("main", PROMPT)
        np.testing.assert_allclose(full, seen[0][0], rtol=0, atol=1e-5 * np.abs(full).max())
    assert tokens == generated(model, PROMPT, 4)
    with torch.no_grad():
        wanted = model(torch.tensor([PROMPT + tokens[:-1]])).logits.numpy()
    # the model's own float32 logits of Qwen3.5 are 1.3e-6 of the largest from those of float64, in one order of sums
    np.testing.assert_allclose(np.concatenate(seen[:-1], 1), wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())
