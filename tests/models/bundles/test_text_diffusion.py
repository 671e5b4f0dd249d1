"""Diffusion language models write what their published code writes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from patcomp.emit.asset import load
from patcomp.errors import PatcompError
from patcomp_models.bundles import check_bundle, convert_bundle, generate_text
from patcomp_models.bundles.kinds.text_diffusion import TextDiffusion
from tests.helpers.command import Command
from tests.models.bundles.text_diffusion_models import (
    DREAM,
    LLADA,
    MASK,
    Published,
    dream_generate,
    folder_of,
    llada_generate,
)

_PROMPTS = ([3, 4, 5, 6, 7], [20, 8, 31])


@pytest.fixture(scope="module", params=["llada", "dream"])
def converted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Published]:
    """A bundle and the published model."""
    pytest.importorskip("coreai")
    place = tmp_path_factory.mktemp("text_diffusion")
    model = folder_of(place / "model", LLADA if request.param == "llada" else DREAM)
    return convert_bundle(place / "model", out=place / "out", dtype="float32", max_context=64), model


def test_the_logits_are_those_of_the_published_model(converted: tuple[Path, Published]) -> None:
    bundle, model = converted
    assert check_bundle(bundle) == ()
    asset = load(bundle / "main.aimodel")
    for count in (2, 9, 64):
        tokens = torch.randint(0, 64, (1, count), generator=torch.Generator().manual_seed(count))
        made = asset.run({"input_ids": tokens.numpy().astype(np.int32)})["logits"]
        assert np.abs(made - model(tokens).numpy()).max() < 5e-5
    asset.close()


_BLOCKS: list[dict[str, Any]] = [
    {},
    {"steps": 4, "block_length": 8},
    {"steps": 6, "block_length": 8, "cfg_scale": 0.7},
    {"steps": 8, "block_length": 4, "remasking": "random"},
    {"steps": 8, "temperature": 0.8},
    {"steps": 4, "block_length": 8, "temperature": 1.3, "remasking": "random"},
]
_SCHEDULES: list[dict[str, Any]] = [
    {"steps": 20},
    {"steps": 9, "alg": "maskgit_plus"},
    {"steps": 9, "alg": "topk_margin", "eps": 0.1},
    {"steps": 9, "alg": "entropy"},
    {"steps": 7, "alg": "origin", "temperature": 0.7, "top_k": 5},
    {"steps": 7, "alg": "maskgit_plus", "temperature": 1.2, "top_p": 0.8, "alg_temp": 0.5},
    {"steps": 7, "alg": "entropy", "temperature": 1.0, "top_p": 0.9, "top_k": 7},
    {"steps": 7, "alg": "topk_margin", "temperature": 0.4, "alg_temp": 0.1},
]


def test_the_tokens_are_those_of_the_published_loop(converted: tuple[Path, Published]) -> None:
    bundle, model = converted
    seen = set()
    for number, settings in enumerate(_BLOCKS if model.is_llada else _SCHEDULES):
        for prompt in (*_PROMPTS, [3, MASK, 5]):
            torch.manual_seed(number)
            given = torch.tensor([prompt])
            if model.is_llada:
                told = {"steps": 16, "gen_length": 16, "block_length": 16, "temperature": 0.0, "cfg_scale": 0.0,
                        "remasking": "low_confidence"}  # fmt: skip
                wanted = llada_generate(model, given, **{**told, **settings})  # type: ignore[arg-type]
            else:
                told = {"eps": 1e-3, "alg": "origin", "alg_temp": None, "temperature": 0.0, "top_p": None,
                        "top_k": None}  # fmt: skip
                wanted = dream_generate(model, given, 16, **{**told, **settings})
            made = generate_text(bundle, prompt, 16, seed=number, **settings)
            assert made.tokens == wanted[0, len(prompt) :].tolist(), settings
            seen.add(tuple(made.tokens))
    assert len(seen) > 15
    assert len({token for tokens in seen for token in tokens}) > 20


def test_texts_and_what_a_loop_cannot_take(converted: tuple[Path, Published]) -> None:
    bundle, model = converted
    told = {"steps": 4}
    made, same = (generate_text(bundle, prompt, 8, seed=2, temperature=1.0, **told) for prompt in ("abc", [0, 1, 2]))
    assert made == same
    assert (made.calls, len(made.tokens)) == (4, 8)
    assert len(made.text) > 4
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        ([], {}, "a prompt of 0 tokens"),
        ([3] * 60, {}, "the bundle takes 2 to 64 in all"),
        ([64], {}, "tokens that are not from 0 to 63"),
        ([3], {"temperature": "warm"}, "temperature of the bundle is 'warm', and must be a number"),
        ([3], {"remask": "random"}, "has the setting 'remask'; the loop"),
        ([3], {"steps": 3, "block_length": 4} if model.is_llada else {"eps": 0.0}, "steps is"),
        ([3], {"block_length": 5} if model.is_llada else {"alg": "best"}, "of 5|must be 'origin' or"),
    ]
    for prompt, settings, message in wrong:
        with pytest.raises(PatcompError, match=message):
            generate_text(bundle, prompt, 8, **settings)


def test_a_token_that_ends_the_text_cuts_it(converted: tuple[Path, Published], tmp_path: Path) -> None:
    bundle, _ = converted
    first = generate_text(bundle, [3, 4], 8, steps=4)
    shutil.copytree(bundle, tmp_path / "out")
    file = tmp_path / "out" / "metadata.json"
    told = json.loads(file.read_text())
    place = next(place for place in range(1, 8) if first.tokens[place] not in first.tokens[:place])
    told["config"]["stop_token_ids"] = [first.tokens[place]]
    file.write_text(json.dumps(told))
    cut = generate_text(tmp_path / "out", [3, 4], 8, steps=4)
    assert cut.tokens == first.tokens
    assert first.text.startswith(cut.text)
    assert 0 < len(cut.text) < len(first.text)


_REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (LLADA, {"block_type": "sequential"}, "block_type of .* is 'sequential'; models with 'llama' are converted"),
    (LLADA, {"rope": False}, "rope of .* is False"),
    (LLADA, {"include_bias": True}, "include_bias of .* is True; models with False"),
    (LLADA, {"multi_query_attention": True}, "multi_query_attention"),
    (LLADA, {"yarn": True}, "has yarn, which the published LLaDAModelLM has not"),
    (LLADA, {"mask_token_id": 64}, "mask_token_id of .* is 64, and must be a token of the model"),
    (LLADA, {"d_model": "wide"}, "has a field of another kind"),
    (
        LLADA,
        {"quantization_config": {"quant_method": "awq", "bits": 4}},
        "are in few bits .AWQ., which",
    ),
    (DREAM, {"rope_scaling": {"type": "yarn", "factor": 4.0}}, "rope_scaling of .* models with None are converted"),
    (DREAM, {"use_sliding_window": True}, "use_sliding_window"),
    (DREAM, {"intermediate_size": 47}, "does not fit Qwen2ForCausalLM"),
    (DREAM, {"architectures": ["DreamOnModel"]}, "holds DreamOnModel"),
]


@pytest.mark.parametrize(("config", "changed", "message"), _REFUSED)
def test_what_the_published_code_computes_otherwise_is_refused(
    config: dict[str, Any], changed: dict[str, Any], message: str, tmp_path: Path
) -> None:
    folder_of(tmp_path / "model", config, **changed)
    with pytest.raises(PatcompError, match=message):
        convert_bundle(tmp_path / "model", out=tmp_path / "out", kind="text_diffusion", dtype="float32")


def test_settings_of_a_folder_are_the_defaults(tmp_path: Path) -> None:
    """Its `generation_config.json` says how to write; what the loop does not know is refused."""
    folder_of(tmp_path / "model", DREAM)
    file = tmp_path / "model" / "generation_config.json"
    file.write_text(json.dumps({"alg": "entropy", "steps": 5, "top_p": 0.9, "eos_token_id": [59, 3]}))
    kind = TextDiffusion(tmp_path / "model", "float32")
    told = kind.metadata()["config"]
    assert told["settings"] == {"steps": 5, "eps": 1e-3, "alg": "entropy", "alg_temp": None, "temperature": 0.0,
                                "top_p": 0.9, "top_k": None}  # fmt: skip
    assert told["stop_token_ids"] == [59, 3]
    file.write_text(json.dumps({"number_transfer_tokens": 2}))
    with pytest.raises(PatcompError, match="has number_transfer_tokens, which the published code of the loop has not"):
        kind.metadata()


def test_tied_weights_and_half_precision_and_the_command(patcomp: Command, tmp_path: Path) -> None:
    pytest.importorskip("coreai")
    model = folder_of(tmp_path / "model", LLADA, weight_tying=True)
    assert patcomp("convert", "model", "-o", "out").code == 0
    asset = load(tmp_path / "out" / "main.aimodel")
    tokens = torch.arange(20)[None]
    logits = asset.run({"input_ids": tokens.numpy().astype(np.int32)})["logits"]
    asset.close()
    assert logits.dtype == np.float16
    assert np.abs(logits - model(tokens).numpy()).max() < 0.1
    options = ("--prompt", "abc", "--max-new-tokens", "8", "--seed", "3", "--set", "steps=2", "--set", "temperature=1")
    made = patcomp("generate", "out", *options)
    wanted = generate_text(tmp_path / "out", "abc", 8, seed=3, steps=2, temperature=1)
    assert (made.code, made.out) == (0, f"{wanted.text}\n")
    assert "8 tokens in 2 calls of the model" in made.err
    made = patcomp("generate", "out", "--prompt", "a", "--ignore-eos")
    assert "takes --prompt, --max-new-tokens, --seed and --set only" in made.err


def test_what_a_bundle_lacks_is_said(tmp_path: Path) -> None:
    (tmp_path / "main.aimodel").mkdir()
    config: dict[str, Any] = {"vocab_size": 9, "max_context_length": 9, "mask_token_id": 3, "stop_token_ids": [1],
                              "is_shifted": False, "loop": "blocks", "settings": {}}  # fmt: skip
    for changed, message in (
        ({"vocab_size": "many"}, "config.vocab_size is 'many', and must be an integer"),
        ({"stop_token_ids": 1}, "config.stop_token_ids is 1, and must be token ids"),
        ({"is_shifted": 1}, "config.is_shifted must be true or false"),
        ({"loop": "best"}, "the loop of config is 'best', and must be one of blocks, schedule"),
        ({"settings": {"steps": "few"}}, "steps of config is 'few'"),
        ({}, "there is no processor/tokenizer_config.json"),
    ):
        told = {"metadata_version": "0.2", "kind": "text_diffusion", "name": "any", "assets": {"main": "main.aimodel"}}
        (tmp_path / "metadata.json").write_text(json.dumps({**told, "config": {**config, **changed}}))
        assert message in "\n".join(map(str, check_bundle(tmp_path)))
    with pytest.raises(PatcompError, match="cannot be used"):
        generate_text(tmp_path, [1])
