"""Rotary embeddings that change with the number of tokens: eager's numbers on both sides of the change."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from patcomp.errors import ConversionWarning
from patcomp_models.checkpoints.loading import export_implementations
from patcomp_models.language import LanguageModelError, convert_language_model
from patcomp_models.language.asked import context_of
from patcomp_models.language.checking import comparisons_of
from patcomp_models.language.contract import FIRST_LENGTH, LOGITS
from patcomp_models.language.decoder import Decoder
from patcomp_models.language.dynamic_form import BundleFunction, dynamic_program, exported_function
from patcomp_models.language.generation import Session, greedy, speculative
from patcomp_models.language.rotary import first_length
from tests.models.language.checkpoints import CONTEXT, PROMPT, SETTINGS, checkpoint

FIRST = 20
"""Behind so many tokens the factors are the long ones."""
TOKENS = (PROMPT * 4)[:40]


@pytest.fixture(params=["phi3", pytest.param("minicpm3", marks=pytest.mark.slow), "gemma3_text", "phimoe"])
def changing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> nn.Module:
    """Phi-3 turns a part of a head, MiniCPM3 a key of all heads; Gemma 3 has an embedding for each type of layer, and
    Phi-3.5-MoE a scale for each length."""
    return of(request.param, monkeypatch)


def of(kind: str, monkeypatch: pytest.MonkeyPatch, **parameters: Any) -> nn.Module:
    """A model with a rotary embedding of other parameters, by default longrope's."""
    width = {"phi3": 2, "minicpm3": 4, "llama": 4, "gemma3_text": 4, "phimoe": 4}[kind]
    found: dict[str, Any] = {
        "rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": FIRST,
        "short_factor": [1 + 0.1 * each for each in range(width)],
        "long_factor": [2.0 + 2 * each for each in range(width)],
    } if not parameters else {"rope_theta": 1e4, **parameters}  # fmt: skip
    found |= {"partial_rotary_factor": 0.5} if kind == "phi3" else {}
    found |= {"short_mscale": 1.1, "long_mscale": 1.4} if kind == "phimoe" else {}
    settings = {name: value for name, value in SETTINGS[kind].items() if name != "rope_scaling"}
    plain = {"rope_type": "default", "rope_theta": 1e4}
    typed = {"sliding_attention": plain, "full_attention": found} if kind == "gemma3_text" else found
    monkeypatch.setitem(SETTINGS, kind, {**settings, "rope_parameters": typed})
    model = checkpoint(kind)
    if kind == "phi3":
        model.config.original_max_position_embeddings = FIRST  # `generate` of transformers asks for it
        model.config.rope_parameters["original_max_position_embeddings"] = FIRST  # the class has put its own here
    return model


class OnEvaluator:
    """A program of `main` as a session calls it; the sizes of its calls are kept."""

    def __init__(self, model: nn.Module):
        with export_implementations(model):
            self.function = BundleFunction("main", Decoder(model))
            self.program = dynamic_program([(self.function, exported_function(self.function, CONTEXT))])
        self.calls: list[int] = []

    def __call__(self, name: str, inputs: Mapping[str, Any], states: dict[str, Any]) -> Mapping[str, Any]:
        self.calls.append(np.shape(inputs["input_ids"])[1])
        made: Mapping[str, Any] = self.program.run(inputs, state=states)
        return made

    def session(self) -> Session:
        states = zip(self.function.state_names, self.function.decoder.states.zeros(0), strict=True)
        return Session(self, {"main": None}, {name: state.numpy() for name, state in states}, 64, first_length=FIRST)


def logits_of(model: Any, tokens: list[int]) -> np.ndarray:
    """Eager's, of one call without a cache: (tokens, vocabulary)."""
    with torch.no_grad():
        made: np.ndarray = model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0].numpy()
    return made


def test_both_sides(changing: nn.Module) -> None:
    """One call of few and of many tokens, and calls that continue each other over the change."""
    run = OnEvaluator(changing)
    assert [state for state in run.function.state_names if "inv_freq" in state] == []
    for count in (3, FIRST - 1, FIRST, FIRST + 1, len(TOKENS)):
        wanted = logits_of(changing, TOKENS[:count])
        made = run.session().run("main", TOKENS[:count])
        np.testing.assert_allclose(made, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())
    run.calls.clear()
    session, done = run.session(), 0
    for size in (FIRST - 4, 3, 2, 1, 5):
        made = session.run("main", TOKENS[done : done + size])
        done += size
        wanted = logits_of(changing, TOKENS[:done])[-size:]
        np.testing.assert_allclose(made, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())
    assert run.calls == [FIRST - 4, 3, FIRST + 1, 1, 5], "the third call has all tokens"
    session.restore(type(session.snapshot())(FIRST - 6, {}))
    made, wanted = session.run("main", TOKENS[:2])[-1], logits_of(changing, [*TOKENS[: FIRST - 6], *TOKENS[:2]])[-1]
    np.testing.assert_allclose(made, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())
    assert run.calls[-1] == FIRST - 4, "keys of the long factors are made again"


def test_generation_over_the_change(changing: Any) -> None:
    """A long prompt is one call; a drafted token is not read with a rotary embedding of a longer text."""
    run = OnEvaluator(changing)
    prompt, tokens = TOKENS[: FIRST - 5], TOKENS[: FIRST - 5]
    for _ in range(12):
        tokens = [*tokens, int(logits_of(changing, tokens)[-1].argmax())]
    wanted = tokens[len(prompt) :]
    assert greedy(run.session(), prompt, 12).tokens == wanted
    right = lambda known, count: [*prompt, *wanted][len(known) : len(known) + count]  # noqa: E731
    wrong = lambda known, count: [(each + 1) % 96 for each in right(known, count)]  # noqa: E731
    for draft in (right, wrong):
        assert speculative(run.session(), draft, prompt, 12).tokens == wanted
    run.calls.clear()
    session = run.session()
    session.piece = 8
    session.read(TOKENS)
    assert run.calls == [len(TOKENS)], "a long prompt is not read in pieces"


def test_what_is_compared(changing: nn.Module) -> None:
    """A prompt that passes the change is compared on each side."""
    with export_implementations(changing):
        functions = [BundleFunction("main", Decoder(changing)), BundleFunction("verify", Decoder(changing), 3)]
        plans = [
            (len(each.tokens), each.calls[0]) for each in comparisons_of(functions, TOKENS[:30], torch.float32, CONTEXT)
        ]
        assert plans == [(FIRST, ("verify", 0, 3)), (30, ("main", 0, FIRST + 1))]
        assert len(comparisons_of(functions, TOKENS[:FIRST], torch.float32, CONTEXT)) == 1


def test_a_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tokens of `generate`, which reads the text again, too; a bundle of few tokens needs one set of factors."""
    model: Any = of("phi3", monkeypatch)
    said = rf"\(longrope\) takes other factors behind {FIRST} tokens, .* so pass max_context={FIRST} \(--max-context"
    with pytest.warns(ConversionWarning, match=said):
        bundle = convert_language_model(
            model, out=tmp_path / "bundle", dtype="float32", check=TOKENS[:30], max_context=CONTEXT
        )
    assert bundle.metadata["language"][FIRST_LENGTH] == FIRST
    assert ["longrope" in note for note in bundle.metadata["notes"]] == [True]
    prompt = TOKENS[: FIRST - 2]
    ids = torch.tensor([prompt])
    made = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=6, do_sample=False, pad_token_id=0)
    assert bundle.generate(prompt, 6) == made[0, len(prompt) :].tolist()
    for options, what in (({"prefill": 8}, "prefill="), ({"draft": model}, "draft")):
        with pytest.raises(LanguageModelError, match=rf"which goes with no {what}; pass max_context={FIRST} "):
            convert_language_model(
                model,
                out=tmp_path / "other",
                dtype="float32",
                max_context=CONTEXT,
                **options,  # type: ignore[arg-type]
            )


def test_a_bundle_takes_the_tokens_with_which_all_engines_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    model = of("phi3", monkeypatch)
    with pytest.warns(ConversionWarning, match=rf"takes the {FIRST} tokens .*; max_context={CONTEXT} \(--max-context"):
        assert context_of(model, None) == FIRST
    assert context_of(model, CONTEXT) == CONTEXT


def test_one_set_of_frequencies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dynamic NTK changes behind the most tokens of a bundle only, whatever the model has read before."""
    model: Any = of("llama", monkeypatch, rope_type="dynamic", factor=2.0)
    model.config.max_position_embeddings = 32
    assert first_length(model) is None
    wanted = logits_of(model, TOKENS[:32])
    model.model.rotary_emb.inv_freq.mul_(0.5)  # as a longer text leaves it
    with export_implementations(model):
        function = BundleFunction("main", Decoder(model))
        program = dynamic_program([(function, exported_function(function, 32))])
    assert function.state_names == ["keyCache", "valueCache"]
    empty = {
        name: state.numpy() for name, state in zip(function.state_names, function.decoder.states.zeros(32), strict=True)
    }
    made = program.run(
        {"input_ids": np.array([TOKENS[:32]], np.int32), "position_ids": np.arange(32, dtype=np.int32)[None]},
        state=empty,
    )[LOGITS]  # fmt: skip
    np.testing.assert_allclose(np.asarray(made)[0], wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())
