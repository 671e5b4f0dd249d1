"""Dia, MusicGen and Higgs Audio: the loop of a host with the functions of a bundle writes the frames of `generate`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from patcomp_models.bundles import check_bundle, convert_bundle
from tests.models.bundles import delayed_models
from tests.models.bundles.bundle_parts import Parts, parts_of
from tests.models.bundles.refusals import Change, assert_departs, assert_refused, config, edited, without

pytest.importorskip("coreai")

Scores = torch.Tensor
"""(codebooks, codes)."""
Step = Callable[[np.ndarray], Scores]
"""The logits behind new frames, (new, codebooks)."""


def greedy(scores: Scores) -> Scores:
    return scores.argmax(-1)


def drawn(scores: Scores) -> Scores:
    """As `generate` draws."""
    return torch.multinomial(scores.softmax(-1), 1).squeeze(1)


def only(code: int, scores: Scores) -> torch.Tensor:
    """Scores of which one code is chosen, (codes,)."""
    return torch.nn.functional.one_hot(torch.tensor(code), scores.shape[1]).log()


def written(
    step: Step, told: dict[str, Any], most: int, choose: Callable[[Scores], Scores], rule: Any = None,
    prompt: Sequence[Sequence[int]] = (), count: int | None = None,
) -> np.ndarray:  # fmt: skip
    """The loop of `docs/speaking.md`: frames with their delays, (frames, codebooks).

    Args:
        step: the model.
        told: `config` of the metadata.
        most: how many frames are written at most.
        choose: codes from scores.
        rule: changes scores, or ends the loop; of frames so far and scores.
        prompt: frames of a recording that is continued, without delays.
        count: how many codes of each codebook are chosen, if the model knows the end before.
    """
    delays, start = np.array(told["delays"]), told["start_code"]
    known = np.full((most, len(delays)), -1)
    for book, delay in enumerate(delays):
        known[: delay + 1, book] = start
        for place, frame in enumerate(prompt):
            known[delay + 1 + place, book] = frame[book]
        if count is not None:
            known[delay + 1 + count :, book] = start
    frames = known[: 1 + len(prompt)]
    new = frames
    while len(frames) < most:
        scores = step(new)
        scores = scores if rule is None else rule(frames, scores)
        if scores is None:
            break
        place = known[len(frames)]
        new = np.where(place < 0, choose(scores).numpy(), place)[None]
        frames = np.concatenate([frames, new])
    return frames


def undelayed(frames: np.ndarray, delays: Sequence[int], count: int) -> np.ndarray:
    """The codes of the first `count` frames, (codebooks, count)."""
    return np.stack([frames[1 + delay : 1 + delay + count, book] for book, delay in enumerate(delays)])


class Branch:
    """A run of `decode` or `main` with states of its own."""

    def __init__(self, parts: Parts, function: str, capacity: int, **given: Any):
        self.parts, self.function, self.given = parts, function, given
        self.states, self.seen = parts.zeros("main", function, capacity), 0

    def __call__(self, new: Any, name: str = "codes", function: str | None = None) -> Scores:
        self.seen += np.shape(new)[0 if name == "input_ids" else -2]
        inputs = {name: np.asarray(new)[None] if np.ndim(new) < 3 else new, "position_ids": [range(self.seen)]}
        made = self.parts.call("main", function or self.function, {**inputs, **self.given}, self.states)
        return torch.from_numpy(np.array(made["logits"]))


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Path]]:
    """The folder and the bundle of a small model."""

    @cache
    def made(name: str) -> tuple[Path, Path]:
        place = tmp_path_factory.mktemp(name)
        folder = getattr(delayed_models, name)(place / "model")
        bundle = convert_bundle(folder, out=place / "out", dtype="float32", verify=False)
        assert check_bundle(bundle) == ()
        return folder, bundle

    return made


Opened = Callable[[str], tuple[Path, Path]]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "sampled"), [("musicgen", False), ("musicgen_stereo", True)])
def test_musicgen(name: str, sampled: bool, opened: Opened) -> None:
    folder, bundle = opened(name)
    model = transformers.MusicgenForConditionalGeneration.from_pretrained(folder).eval()
    ids, most = torch.tensor([[5, 9, 17, 3, 2]]), 20
    torch.manual_seed(3)
    expected = model.generate(input_ids=ids, max_new_tokens=most - 1, do_sample=sampled, top_k=0)
    torch.manual_seed(3)
    with parts_of(bundle) as parts:
        cross = parts.call("main", "encode", {"input_ids": ids})
        guided = Branch(parts, "decode", most, **cross)
        free = Branch(parts, "decode", most, **{name: np.zeros_like(each) for name, each in cross.items()})
        assert_music(parts, guided, free, most, sampled, expected)


def assert_music(parts: Parts, guided: Branch, free: Branch, most: int, sampled: bool, expected: Any) -> None:
    """The samples are those of `generate` with guidance (Ho and Salimans 2022, arXiv:2207.12598) of 3."""
    delays = parts.metadata["config"]["delays"]

    def step(new: np.ndarray) -> Scores:
        given, without = guided(new), free(new)
        return without + 3.0 * (given - without)

    count = most - 1 - max(delays)
    frames = written(step, parts.metadata["config"], most, drawn if sampled else greedy, count=count)
    found = undelayed(frames, delays, count)
    assert len(np.unique(found)) > 6
    np.testing.assert_allclose(
        parts.call("codec", "main", {"codes": found[None]})["audio"], expected, rtol=1e-5, atol=1e-5
    )
    assert expected.std() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("has_melody", [False, True])
def test_musicgen_melody(has_melody: bool, opened: Opened) -> None:
    folder, bundle = opened("musicgen_melody")
    model = transformers.MusicgenMelodyForConditionalGeneration.from_pretrained(folder).eval()
    ids, most = torch.tensor([[5, 9, 17, 3, 2]]), 16
    silence = torch.eye(12)[None, :1]
    melody = torch.eye(12)[None, [3, 5, 5, 7]] if has_melody else silence
    given = {"input_features": melody} if has_melody else {}
    expected = model.generate(input_ids=ids, **given, max_new_tokens=most - 1, do_sample=False)
    with parts_of(bundle) as parts:
        count = parts.metadata["config"]["melody_frames"]
        text = parts.call("main", "text", {"input_ids": ids})["embeddings"]

        def branch(melody: torch.Tensor, text: np.ndarray) -> Any:
            """The melody is repeated, and the first call also reads what is in front of the frames."""
            run = Branch(parts, "main", count + text.shape[1] + most)
            repeated = melody[:, torch.arange(count) % melody.shape[1]]
            waiting = [parts.call("main", "melody", {"input_features": repeated})["embeddings"], text]

            def step(new: np.ndarray) -> Scores:
                waiting.append(parts.call("main", "codes", {"codes": new[None]})["embeddings"])
                made = run(np.concatenate(waiting, 1), "inputs_embeds")
                waiting.clear()
                return made

            return step

        assert_music(parts, branch(melody, text), branch(silence, np.zeros_like(text)), most, False, expected)


DEPARTURES: dict[str, tuple[Change, str]] = {
    "no delays": (config(delays=None), "config.delays is None, and must be an integer for each of 4 codebooks"),
    "fewer delays": (config(delays=[0, 1]), "config.delays is [0, 1], and must be an integer for each of 4"),
    "no codebooks": (config(codebooks=None), "config.codebooks is None, and must be an integer"),
    "other codes": (config(codes=9), "the output logits of decode is 4 x 24 of float32, and must be 4 x 9"),
    "a codec": (config(channels=1), "assets.codec is missing"),
    "no asset": (edited(lambda m: m["assets"].pop("main")), "assets.main is missing"),
    "no tokenizer": (without("processor/tokenizer_config.json"), "there is no processor/tokenizer_config.json"),
    "another model": (config(architecture="higgs_audio_v2"), "config.end_token is None, and must be an integer"),
    "a damaged asset": (without("main.aimodel/main.mlirb"), "is not an asset"),
}  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", DEPARTURES)
def test_departures(name: str, opened: Opened, tmp_path: Path) -> None:
    assert_departs(opened("dia")[1], tmp_path, *DEPARTURES[name])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("generation_config.json"), "says None as decoder_start_token_id and None as pad_token_id, and these"),
        (
            edited(lambda told: told["audio_encoder"].update(chunk_length_s=1.0), "config.json"),
            "EnCodec without chunks",
        ),
        (without("tokenizer.json"), "has no tokenizer.json"),
    ],
)
def test_refused_folders(change: Change, message: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = delayed_models.musicgen(tmp_path_factory.mktemp("source") / "model")
    assert_refused(folder, change, {}, message, tmp_path_factory.mktemp("changed"))


class DiaRule:
    """How Dia combines its two branches and ends.

    Args:
        told: `config` of the metadata.
        most: the first codebook ends behind so many frames.
        scale: of the guidance.
        count: how many codes are left to choose from.
    """

    def __init__(self, told: dict[str, Any], most: int, scale: float, count: int):
        self.told, self.most, self.scale, self.count = told, most, scale, count
        self.end = told["end_code"]
        self.remaining: torch.Tensor | None = None

    def guided(self, given: Scores, without: Scores) -> Scores:
        kept = (given + (given - without) * self.scale).topk(self.count).indices
        return torch.full_like(given, -torch.inf).scatter(1, kept, given.gather(1, kept))

    def __call__(self, frames: np.ndarray, scores: Scores) -> Scores | None:
        ended = torch.from_numpy((frames == self.end).any(0))
        if ended.all():
            return None
        scores[1:, self.end :] = scores[0, self.end + 1 :] = -torch.inf
        is_end = scores[0].argmax() == self.end
        scores[0, : self.end if is_end else 0] = -torch.inf
        scores[0, self.end] = scores[0, self.end] if is_end else -torch.inf
        if self.remaining is None and (is_end or len(frames) == self.most):
            self.remaining = torch.tensor(self.told["delays"])
        if self.remaining is not None:
            scores[self.remaining == 0] = only(self.end, scores)
            self.remaining = self.remaining - 1
        scores[ended] = only(self.told["pad_code"], scores)
        return scores


@pytest.mark.parametrize("case", ["a text", "a voice", "drawn"])
def test_dia(case: str, opened: Opened) -> None:
    folder, bundle = opened("dia")
    model = transformers.DiaForConditionalGeneration.from_pretrained(folder).eval()
    most, delays = 20, model.config.delay_pattern
    ids = torch.tensor([[1, 72, 101, 108, 111]])
    voice = torch.tensor([[3, 9, 2, 7], [5, 1, 8, 8], [6, 2, 2, 0]])[: 3 if case == "a voice" else 0]
    made = transformers.DiaProcessor.apply_audio_delay
    known = torch.full((1, 1 + len(voice) + max(delays), 4), 21)
    known[0, 0], known[0, 1 : 1 + len(voice)] = 22, voice
    places = transformers.DiaProcessor.build_indices(1, known.shape[1], 4, delays)
    known = made(known, pad_token_id=21, bos_token_id=22, precomputed_idx=places)
    torch.manual_seed(0)
    expected = model.generate(
        input_ids=ids, decoder_input_ids=known, decoder_attention_mask=torch.ones(known.shape[:2]),
        guidance_scale=3.0, top_k=8, do_sample=case == "drawn", max_length=most,
    )[0]  # fmt: skip
    torch.manual_seed(0)
    with parts_of(bundle) as parts:
        told = parts.metadata["config"]
        rule = DiaRule(told, most - 1, 3.0, 8)
        guided, free = (
            Branch(parts, "decode", 32, **parts.call("main", "encode", {"input_ids": each}))
            for each in (ids, torch.zeros_like(ids))
        )
        frames = written(
            lambda new: rule.guided(guided(new), free(new)), told, 32, drawn if case == "drawn" else greedy, rule,
            voice.tolist(),
        )  # fmt: skip
    np.testing.assert_array_equal(frames, expected)
    assert len(np.unique(frames)) > 6


def higgs_rule(told: dict[str, Any], frames: np.ndarray, scores: Scores) -> Scores | None:
    """Where a codebook has ended, the others end one after the other."""
    ends = frames == told["end_code"]
    if ends[-1].all():
        return None
    behind = len(frames) - int(ends.any(1).argmax()) if ends.any() else 0
    scores[:behind] = only(told["end_code"], scores)
    return scores


@pytest.mark.parametrize("case", ["a text", "a voice", "drawn"])
def test_higgs(case: str, opened: Opened) -> None:
    folder, bundle = opened("higgs")
    model = transformers.HiggsAudioV2ForConditionalGeneration.from_pretrained(folder).eval()
    voice = torch.tensor([[20, 20, 20, 20], [3, 20, 20, 20], [5, 1, 20, 20], [6, 2, 2, 20], [21, 4, 9, 1]])
    runs: list[tuple[str, Any]] = [("text", [5, 9, 17, 3, 2])]
    if case == "a voice":
        runs += [("main", voice), ("text", [4, 8])]
    prompt = [token for name, run in runs for token in (run if name == "text" else [36] * len(run))]
    heard = {"audio_input_ids": voice[None], "audio_input_ids_mask": torch.ones(1, 5, dtype=torch.bool)}
    torch.manual_seed(1)
    expected = model.generate(
        input_ids=torch.tensor([[*prompt, 37]]), **(heard if case == "a voice" else {}), max_new_tokens=24,
        do_sample=case == "drawn", top_k=0,
    )[0, 5 if case == "a voice" else 0 :]  # fmt: skip
    torch.manual_seed(1)
    choose = drawn if case == "drawn" else greedy
    with parts_of(bundle) as parts:
        told = parts.metadata["config"]
        run = Branch(parts, "main", 64)
        for name, new in [*runs, ("text", [told["start_token"]])]:
            scores = run(torch.as_tensor(new).numpy(), "input_ids" if name == "text" else "codes", name)
        choose(scores)  # generate draws the first frame, too, which is known
        frames = written(run, told, 24, choose, lambda frames, scores: higgs_rule(told, frames, scores))
    np.testing.assert_array_equal(frames, expected)
    assert len(np.unique(frames)) > 6
