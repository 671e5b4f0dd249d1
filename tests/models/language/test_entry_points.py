"""Further functions of a bundle: chunks beside a decode of one token, verification of drafts, hidden states, drafts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from patcomp import load
from patcomp.ir.module import IRModule, callee
from patcomp_models.bundle_folders.revisions import NEW
from patcomp_models.language import Bundle, LanguageModelError, check_bundle, convert_language_model
from patcomp_models.language.checking import calls_of
from patcomp_models.language.contract import ONE_TOKEN, POSITIONS, TOKENS
from patcomp_models.language.decoder import Decoder
from patcomp_models.language.generation import AssetCall, Drafting, Session, speculative
from tests.helpers.command import Command
from tests.models.language.checkpoints import PROMPT, SECOND, checkpoint, folder, generated, with_stops

KINDS = ("lfm2", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("llama", "qwen3_5_text", "gemma4_text")))


def functions(bundle: Bundle, *left_out: str) -> tuple[Session, Any]:
    """A session of a bundle, and its asset."""
    asset = load(bundle.asset)
    return bundle._session(asset, [name for name in asset.function_names if name not in left_out]), asset


class Foresees:
    """A draft that knows the tokens, and is wrong at some of them."""

    def __init__(self, tokens: Sequence[int], *wrong: int):
        self.tokens = [(token + 1) % 96 if place in wrong else token for place, token in enumerate(tokens)]

    def __call__(self, tokens: Sequence[int], count: int) -> list[int]:
        return self.tokens[len(tokens) : len(tokens) + count]


@pytest.mark.parametrize("kind", KINDS)
def test_all_functions(kind: str, tmp_path: Path) -> None:
    """Chunks, single tokens and drafted ones give the tokens of the model; a wrong draft is taken back."""
    model: Any = checkpoint(kind)
    bundle = convert_language_model(
        model, out=tmp_path / "bundle", dtype="float32", prefill=5, verify=3, hidden=True, max_context=300
    )
    assert bundle.metadata["language"]["function_map"] == {name: [name] for name in ("main", "prefill", "verify")}
    problem, *others = check_bundle(bundle.path)
    assert problem.message == ONE_TOKEN == bundle.metadata["notes"][-1]
    assert all("must be float16" in other.message for other in others)
    later = [each.message for each in check_bundle(bundle.path, NEW)]
    assert ONE_TOKEN not in later
    assert later[0].startswith(bundle.metadata["notes"][-2].removesuffix("logits"))
    session, asset = functions(bundle)
    assert session.sizes == {"main": 1, "prefill": 5, "verify": 4}
    tokens = generated(model, PROMPT, 9)
    assert bundle.generate(PROMPT, 9) == tokens
    assert bundle.generate(SECOND, 2) == generated(model, SECOND, 2)

    # 12 tokens are two chunks and two single ones; then 1 + 3, 1 + 3 and 1 tokens
    right = bundle.generation(PROMPT, 9, draft=Foresees(PROMPT + tokens))
    assert (right.tokens, right.calls) == (tokens, 4 + 2)
    wrong = bundle.generation(PROMPT, 9, draft=Foresees(PROMPT + tokens, 14, 15, 19))
    assert wrong.tokens == tokens
    assert right.calls < wrong.calls < 4 + 8
    stopped, end = with_stops(bundle, tmp_path / "stops", tokens[4]), tokens.index(tokens[4]) + 1
    assert stopped.generate(PROMPT, 9) == tokens[:end]
    assert stopped.generate(PROMPT, 9, draft=Foresees(PROMPT + tokens)) == tokens[:end]
    assert stopped.generate(PROMPT, 9, ignore_eos=True) == tokens
    with torch.no_grad():
        result = model(torch.tensor([PROMPT]), output_hidden_states=True)
    states = dict(session.states)
    inputs = {"input_ids": np.array([PROMPT[:5]], np.int32), "position_ids": np.arange(5, dtype=np.int32)[None]}
    seen = asset.run(inputs, states, "prefill")
    head = model.get_output_embeddings()
    np.testing.assert_allclose(seen["hidden"], result.hidden_states[-1][:, :5], rtol=1e-4, atol=1e-5)
    assert seen["hidden"].shape[-1] == head.in_features
    asset.close()


def _has_loop(module: IRModule, name: str) -> bool:
    """Whether a graph, or a composite that it calls, has a loop."""
    ops = list(module.graph(name).walk())
    return any(op.name == "coreai.while" for op in ops) or any(
        _has_loop(module, callee(op)) for op in ops if op.name == "coreai.invoke"
    )


@pytest.mark.slow
def test_one_token_has_no_loop_and_weights_are_stored_once(tmp_path: Path) -> None:
    model = checkpoint("qwen3_5_text")
    plain = convert_language_model(model, out=tmp_path / "plain", max_context=128, check=False)
    bundle = convert_language_model(model, out=tmp_path / "bundle", max_context=128, check=False, prefill=96, verify=2)
    module = load(bundle.asset).module
    assert {name: _has_loop(module, name) for name in ("main", "prefill")} == {"main": False, "prefill": True}
    sizes = [sum(len(blob.data) for blob in load(each.asset).module.blobs) for each in (plain, bundle)]
    assert sizes[1] < 1.1 * sizes[0]


@pytest.mark.slow
@pytest.mark.parametrize("is_hybrid", [False, True])
def test_a_draft_of_another_bundle_and_of_the_asset(is_hybrid: bool, tmp_path: Path) -> None:
    """The smaller model is the model itself, so that all drafted tokens are right, or another one."""
    model = checkpoint("lfm2" if is_hybrid else "llama")
    other = checkpoint("qwen2")
    bundle = convert_language_model(model, out=tmp_path / "bundle", dtype="float32", draft=other, max_context=64)
    tokens = bundle.generate(PROMPT, 11)
    assert tokens == generated(model, PROMPT, 11)
    assert bundle.generate(PROMPT, 11, draft=True) == tokens
    made = bundle.generation(PROMPT, 11, draft=bundle)
    assert (made.tokens, made.calls) == (tokens, 1 + 2)
    assert bundle.generation(PROMPT, 11, draft=str(bundle.path), drafted=9).calls == 1 + 1
    assert "draftKeyCache" in load(bundle.asset).described("draft").state_names
    assert [problem for problem in check_bundle(bundle.path) if "float16" not in problem.message] == []


def fake(vocabulary: int, *, fixed: bool) -> tuple[Any, list[int]]:
    """Functions whose most probable token depends on all tokens in the states."""
    empty = {"keyCache": np.zeros((1, 1, 1, 0, 1), np.int64), **({"sum": np.zeros(1, np.int64)} if fixed else {})}
    lengths: list[int] = []

    def call(name: str, inputs: Any, states: Any) -> Any:
        tokens, total = inputs["input_ids"][0], inputs["position_ids"].shape[1]
        lengths.append(len(tokens))
        logits = np.zeros((1, len(tokens), vocabulary))
        for row, token in enumerate(tokens):
            place = total - len(tokens) + row
            states["keyCache"][0, 0, 0, place, 0] = token
            before = states["keyCache"][0, 0, 0, : place + 1, 0]
            if fixed:
                states["sum"] = states["sum"] + token * (place + 1)
            known = states["sum"][0] if fixed else int((before * np.arange(1, place + 2)).sum())
            logits[0, row, (known * 7 + 3) % vocabulary] = 1
        return {"logits": logits}

    return Session(call, {}, empty, 64), lengths


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("sizes", [{"main": None}, {"main": 1, "verify": 4}, {"main": 1, "prefill": 3}])
def test_any_draft_gives_the_same_tokens(sizes: dict[str, int | None], fixed: bool) -> None:
    """Drafts that are right, wrong, too long, empty and random, near the limit of the context, too."""
    from patcomp_models.language.generation import greedy

    for limit, new in ((64, 20), (26, 20)):
        session, lengths = fake(11, fixed=fixed)
        session.sizes, session.limit = sizes, limit
        wanted = greedy(session, [1, 2, 3, 4, 5, 6], new).tokens
        whole = [1, 2, 3, 4, 5, 6, *wanted]
        stops, end = [wanted[5], wanted[9]], min(wanted.index(wanted[5]), wanted.index(wanted[9])) + 1
        session, _ = fake(11, fixed=fixed)
        session.sizes, session.limit = sizes, limit
        assert greedy(session, whole[:6], new, stops).tokens == wanted[:end]
        for draft in (
            Foresees(whole), Foresees(whole, 8, 9, 13, 20), lambda tokens, count: [0] * 50, lambda tokens, count: [],
            lambda tokens, count: np.random.default_rng(len(tokens)).integers(0, 11, count).tolist(),
        ):  # fmt: skip
            session, lengths = fake(11, fixed=fixed)
            session.sizes, session.limit = sizes, limit
            made = speculative(session, draft, [1, 2, 3, 4, 5, 6], new)
            assert made.tokens == wanted
            assert made.calls == len(lengths) <= 6 + new
            assert all(length in sizes.values() for length in lengths) or None in sizes.values()
            assert session.done <= limit
            session, _ = fake(11, fixed=fixed)
            session.sizes, session.limit = sizes, limit
            assert speculative(session, draft, whole[:6], new, stops=stops).tokens == wanted[:end]


@pytest.mark.parametrize("fixed", [False, True])
def test_a_smaller_model_follows(fixed: bool) -> None:
    """It goes back behind the tokens that were not right, also where its states have no places."""
    made = []
    for calls in (([1, 2, 3], [1, 2, 3, 9, 9]), ([1, 2, 3, 9, 9],)):
        session, _ = fake(11, fixed=fixed)
        session.sizes = {"main": None}
        drafting = Drafting(session)
        made.append([drafting(tokens, 3) for tokens in calls][-1])
    assert made[0] == made[1]
    assert len(made[0]) == 3
    assert drafting([1, 2, 3, *[9] * 70], 3) == []  # more than it takes


def test_calls_of_a_comparison() -> None:
    assert calls_of({"main": None}, 8) == [("main", 0, 4), ("main", 4, 7), ("main", 7, 8)]
    assert calls_of({"main": None, "verify": 3}, 8) == [
        ("verify", 0, 3),
        ("main", 3, 5),
        ("main", 5, 7),
        ("main", 7, 8),
    ]
    assert calls_of({"main": 1, "prefill": 3, "verify": 2}, 6) == [("prefill", 0, 3), ("verify", 3, 5), ("main", 5, 6)]
    assert calls_of({"main": 1, "prefill": 3}, 8)[:3] == [("prefill", 0, 3), ("prefill", 3, 6), ("main", 6, 7)]
    assert calls_of({"draft": None}, 2) == [("draft", 0, 1), ("draft", 1, 2)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prefill": 1}, "prefill is 1, and must be 2 to 63 tokens"),
        ({"prefill": 64}, "prefill is 64, and must be 2 to 63 tokens"),
        ({"verify": 0}, "verify is 0, and must be 1 to 63 tokens"),
        (
            {"hidden": True, "target": "neural_engine"},
            "prefill=, verify=, hidden=, draft=, window_caches= and absorb_latents= go with",
        ),
        ({"draft": "gpt2"}, "the draft has 50 tokens and the model 96; a draft must have the same vocabulary"),
        ({"draft": "qwen2"}, "the draft takes 32 tokens and the bundle 64; pass max_context=32"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    if "draft" in options:
        kind = options["draft"]
        small = checkpoint(kind)
        small.config.vocab_size = 50 if kind == "gpt2" else 96  # type: ignore[union-attr]
        if kind == "qwen2":
            small.config.max_position_embeddings = 32  # type: ignore[union-attr]
        options = {"draft": small}
    with pytest.raises(LanguageModelError) as raised:
        convert_language_model(checkpoint("llama"), out=tmp_path / "bundle", **{"max_context": 64, **options})
    assert str(raised.value).startswith(message)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_bad_drafts_and_the_commands(patcomp: Command, tmp_path: Path) -> None:
    source = folder(tmp_path / "small")
    done = patcomp("convert-lm", str(source), "-o", str(tmp_path / "bundle"), "--max-context", "64", "--prefill", "4",
                   "--verify", "2", "--hidden", "--draft", str(source), "--check", "a town is a town")  # fmt: skip
    assert done.code == 0, done.err
    words = ("generate", str(tmp_path / "bundle"), "--prompt", "the capital", "--max-new-tokens", "5")
    plain, drafted = patcomp(*words), patcomp(*words, "--own-draft")
    assert (plain.code, drafted.code) == (0, 0), drafted.err
    assert plain.out == drafted.out
    assert "calls" in drafted.err
    bundle = Bundle(tmp_path / "bundle")
    plain_bundle = convert_language_model(source, out=tmp_path / "plain", max_context=64, check=False)
    for given, message in (
        (plain_bundle.path, ""), (tmp_path / "none", "the draft .* is not a bundle: it has no metadata.json"),
    ):  # fmt: skip
        if message:
            with pytest.raises(LanguageModelError, match=message):
                bundle.generate([5, 6], 2, draft=given)
    with pytest.raises(LanguageModelError, match="has no draft in its asset; convert it with draft=FOLDER"):
        plain_bundle.generate([5, 6], 2, draft=True)


@pytest.mark.slow
def test_windows_on_the_runtime(tmp_path: Path) -> None:
    """A prompt that is longer than the window, drafts that are wrong, and functions of fixed sizes."""
    model = checkpoint("gemma3_text")
    options: dict[str, Any] = {"dtype": "float32", "max_context": 64, "window_caches": True}
    bundle = convert_language_model(model, out=tmp_path / "bundle", draft=checkpoint("qwen2"), **options)
    tokens = generated(model, PROMPT * 2, 11)
    assert bundle.generate(PROMPT * 2, 11) == tokens
    assert bundle.generate(PROMPT * 2, 11, draft=True) == tokens
    pair = convert_language_model(model, out=tmp_path / "pair", prefill=7, verify=2, **options)
    assert pair.generate(PROMPT * 2, 11) == tokens
    assert [problem for problem in check_bundle(bundle.path) if "float16" not in problem.message] == []


def test_positions_of_new_tokens() -> None:
    """Where each layer has a window, the positions of the new tokens are enough."""
    model = checkpoint("mistral")
    decoder = Decoder(model, context=64)
    assert decoder.states.has_windows_only
    tokens = torch.tensor([PROMPT * 2])
    count = tokens.shape[1]
    made = []
    for is_compact in (False, True):
        states, logits = decoder.states.zeros(0), []
        for start, end in ((0, 3), (3, 4), (4, count)):
            positions = torch.arange(start if is_compact else 0, end)[None]
            with torch.no_grad():
                logits.append(decoder(tokens[:, start:end], positions, *states))
        made.append(torch.cat(logits, 1))
    assert torch.equal(*made)
    with torch.no_grad():
        torch.testing.assert_close(made[0], model(tokens).logits, atol=1e-5, rtol=0)


@pytest.mark.slow
def test_positions_of_new_tokens_on_the_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine `coreai-sequential` gives no others to states that are all windows."""
    model = checkpoint("mistral")
    bundle = convert_language_model(model, out=tmp_path / "bundle", max_context=64, window_caches=True)
    found = check_bundle(bundle.path, NEW)
    assert ["coreai-sequential" in (each.advice or "") for each in found] == [True]
    began, seen = Session.__init__, []

    def begin(session: Session, call: AssetCall, *others: Any, **named: Any) -> None:
        def compact(name: str, inputs: Mapping[str, Any], states: dict[str, Any]) -> Mapping[str, Any]:
            places = inputs[POSITIONS][:, -inputs[TOKENS].shape[1] :]
            seen.append(places.shape[1])
            return call(name, {**inputs, POSITIONS: places}, states)

        began(session, compact, *others, **named)

    tokens = bundle.generate(PROMPT * 2, 11)
    monkeypatch.setattr(Session, "__init__", begin)
    assert bundle.generate(PROMPT * 2, 11) == tokens
    assert seen == [len(PROMPT * 2)] + [1] * 10


def test_models_without_windows_have_no_window_caches(tmp_path: Path) -> None:
    with pytest.raises(LanguageModelError, match="has no layer with a sliding window of less than 64 tokens"):
        convert_language_model(checkpoint("llama"), out=tmp_path / "bundle", max_context=64, window_caches=True)
