"""Diffusion language models write what their published code writes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers.models.diffusion_gemma.generation_diffusion_gemma import EntropyBoundSamplerConfig

from patcomp.emit.asset import load
from patcomp.errors import PatcompError
from patcomp_models.bundles import check_bundle, convert_bundle, generate_text
from patcomp_models.bundles.kinds.text_diffusion import TextDiffusion
from patcomp_models.bundles.text_diffusion.cached_blocks import CachedBlockLoop
from patcomp_models.bundles.text_diffusion.rows import DENOISERS
from patcomp_models.checkpoints.folders import WITHOUT_THEIR_CODE
from patcomp_models.language import convert_language_model
from tests.helpers.command import Command
from tests.models.bundles.text_diffusion_models import (
    DREAM,
    GEMMA_GENERATION,
    LLADA,
    LLADA_MOE,
    MASK,
    SDAR,
    Published,
    diffusion_gemma,
    dream_generate,
    folder_of,
    llada_generate,
    sdar_generate,
)


@pytest.fixture(scope="module", params=["llada", "dream", "llada_moe"])
def converted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Published]:
    """A bundle and the published model."""
    pytest.importorskip("coreai")
    place = tmp_path_factory.mktemp("text_diffusion")
    model = folder_of(place / "model", {"llada": LLADA, "dream": DREAM, "llada_moe": LLADA_MOE}[request.param])
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
    has_blocks = model.is_llada or model.is_moe
    for number, settings in enumerate(_BLOCKS[1::4] if model.is_moe else _BLOCKS if has_blocks else _SCHEDULES):
        for prompt in ([3, 4, 5, 6, 7], [20, MASK, 31]):
            torch.manual_seed(number)
            given = torch.tensor([prompt])
            if has_blocks:
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
    assert len(seen) > (3 if model.is_moe else 9)
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
        ([3] * 60, {}, "the bundle takes 64 in all"),
        ([64], {}, "tokens that are not from 0 to 63"),
        ([3], {"temperature": "warm"}, "temperature of the bundle is 'warm', and must be a number"),
        ([3], {"remask": "random"}, "has the setting 'remask'; the loop"),
        ([3], {"steps": 3, "block_length": 4} if model.is_llada or model.is_moe else {"eps": 0.0}, "steps is"),
        ([3], {"block_length": 5} if model.is_llada or model.is_moe else {"alg": "best"}, "of 5|must be 'origin' or"),
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


_CACHED: list[dict[str, Any]] = [
    {"top_k": 1},
    {"confidence_threshold": 0.2, "temperature": 0.7},
    {"block_length": 6, "denoising_steps": 4, "remasking_strategy": "low_confidence_static", "top_p": 0.8},
    {"block_length": 3, "denoising_steps": 2, "remasking_strategy": "sequential", "top_k": 9},
]


def test_the_tokens_are_those_of_sdar(tmp_path: Path) -> None:
    """For prompts that end within a block or with one; the states are those of `read` blocks."""
    pytest.importorskip("coreai")
    model = folder_of(tmp_path / "model", SDAR)
    bundle = convert_bundle(tmp_path / "model", out=tmp_path / "out", dtype="float32", max_context=64)
    assert check_bundle(bundle) == ()
    assert json.loads((bundle / "metadata.json").read_text())["config"]["loop"] == "cached_blocks"
    defaults = {"block_length": 4, "denoising_steps": 4, "temperature": 1.0, "top_k": 0, "top_p": 1.0,
                "remasking_strategy": "low_confidence_dynamic", "confidence_threshold": 0.85}  # fmt: skip
    written = set()
    for prompt in ([3, 8, 1, 7, 20, 31, 2, 6, 9, 40], [9, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5]):
        for seed, settings in enumerate(_CACHED):
            torch.manual_seed(seed)
            wanted = sdar_generate(model, torch.tensor([prompt]), 10, [59], **{**defaults, **settings})
            made = generate_text(bundle, prompt, 10, seed=seed, **settings)
            assert made.tokens == wanted[0, len(prompt) :].tolist(), settings
            written.add(tuple(made.tokens))
    assert len(written) == 8
    assert len({token for tokens in written for token in tokens}) > 20
    with pytest.raises(PatcompError, match="the temperature is above 0"):
        generate_text(bundle, [3], 4, temperature=0.0)


class WritesMasks:
    """A model whose most probable token is its mask."""

    mask, stops = 2, ()

    def block_logits(self, block: torch.Tensor, start: int) -> torch.Tensor:
        return torch.tensor([0.0, 0.0, 99.0]).expand(*block.shape, 3)


def test_a_mask_that_is_written_ends_the_loop_of_sdar() -> None:
    with pytest.raises(PatcompError, match="writes its mask token, which the published code cannot go on from"):
        CachedBlockLoop().written(WritesMasks(), torch.tensor([[0, 1]]), 4, torch.Generator())


_CANVASES: list[dict[str, Any]] = [
    {},
    {"entropy_bound": 3.0, "max_denoising_steps": 5, "t_min": 0.1, "t_max": 1.5},
    {"stability_threshold": 0, "confidence_threshold": 10.0},
    {"stability_threshold": 2, "confidence_threshold": 0.5, "t_min": 0.01, "t_max": 0.02},
]


def test_the_tokens_are_those_of_diffusion_gemma(tmp_path: Path) -> None:
    """For texts within and behind the window, which end early or not, in steps that stop early or not."""
    pytest.importorskip("coreai")
    diffusion_gemma(tmp_path / "model")
    (tmp_path / "model" / "generation_config.json").write_text(json.dumps(GEMMA_GENERATION))
    bundle = convert_bundle(tmp_path / "model", out=tmp_path / "out", dtype="float32", max_context=64)
    assert check_bundle(bundle) == ()
    model = transformers.DiffusionGemmaForBlockDiffusion.from_pretrained(tmp_path / "model").eval()
    written, calls = set(), set()
    for prompt in ([3, 8, 1, 7, 20, 31, 2, 6, 9, 40, 41], [9]):
        for seed, settings in enumerate([*_CANVASES, {}]):
            own = dict(settings)
            if "entropy_bound" in own:
                own["sampler_config"] = EntropyBoundSamplerConfig(own.pop("entropy_bound"))
            torch.manual_seed(seed)
            wanted = model.generate(torch.tensor([prompt]), max_new_tokens=16, **own).sequences[0, len(prompt) :]
            made = generate_text(bundle, prompt, 16, seed=seed, **settings)
            assert made.tokens == wanted.tolist(), settings
            written.add(tuple(made.tokens))
            calls.add(made.calls)
    assert len(written) > 7
    assert {len(tokens) for tokens in written} == {6, 12, 18}
    assert any(count % 8 and count % 5 for count in calls)
    with pytest.raises(PatcompError, match="30 new ones are 65 in whole blocks; the bundle takes 64 in all"):
        generate_text(bundle, [3] * 35, 30)
    with pytest.raises(PatcompError, match="they must be at least 1, 0 and 0, and t_max above t_min"):
        generate_text(bundle, [3], 6, t_max=0.1)


def test_what_diffusion_gemma_needs(tmp_path: Path) -> None:
    diffusion_gemma(tmp_path / "model", use_bidirectional_attention="all")
    with pytest.raises(PatcompError, match="is 'all', with which the encoder reads a text without a causal mask"):
        convert_bundle(tmp_path / "model", out=tmp_path / "out")
    with pytest.raises(PatcompError, match="writes by diffusion, and `patcomp convert FOLDER -o NAME`"):
        convert_language_model(tmp_path / "model", out=tmp_path / "out")
    other = diffusion_gemma(tmp_path / "other")
    file = tmp_path / "other" / "generation_config.json"
    for told, message in (
        ({"sampler_config": {"_cls_name": "TopSampler", "entropy_bound": 0.1}}, "_cls_name of .* is 'TopSampler'"),
        ({"cache_implementation": "quantized"}, "cache_implementation of .* is 'quantized'"),
        ({"top_k": 5}, "has top_k, which the published code of the loop has not"),
        ({"t_min": "cold"}, "t_min of .* is 'cold', and must be a number"),
    ):
        file.write_text(json.dumps(told))
        with pytest.raises(PatcompError, match=message):
            convert_bundle(tmp_path / "other", out=tmp_path / "out")
    other.generation_config.save_pretrained(tmp_path / "other")
    told = TextDiffusion(tmp_path / "other", "float32").metadata()["config"]
    defaults = other.generation_config._get_default_generation_params()
    bound = defaults.pop("sampler_config").entropy_bound
    del defaults["max_new_tokens"]
    assert told["settings"] == {**defaults, "entropy_bound": bound}


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
    (LLADA_MOE, {"norm_topk_prob": True}, "norm_topk_prob of .* is True"),
    (LLADA_MOE, {"moe_layer_freq": [0, 1]}, "moe_layer_freq of .* is .0, 1.; models with .1, 1. are converted"),
    (LLADA_MOE, {"shared_expert_intermediate_size": 8}, "shared_expert_intermediate_size"),
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


def test_a_language_model_names_the_command(tmp_path: Path) -> None:
    folder_of(tmp_path / "model", DREAM)
    with pytest.raises(PatcompError, match="it becomes a bundle without this code: patcomp convert FOLDER -o NAME"):
        convert_language_model(tmp_path / "model", out=tmp_path / "out")
    assert {*WITHOUT_THEIR_CODE} == {*DENOISERS}


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
    options = (
        "--prompt",
        "abc",
        "--max-new-tokens",
        "8",
        "--set",
        "seed=3",
        "--set",
        "steps=2",
        "--set",
        "temperature=1",
    )
    made = patcomp("generate", "out", *options)
    wanted = generate_text(tmp_path / "out", "abc", 8, seed=3, steps=2, temperature=1)
    assert (made.code, made.out) == (0, f"{wanted.text}\n")
    assert "8 tokens in 2 calls of the model" in made.err
    made = patcomp("generate", "out", "--prompt", "a", "--ignore-eos")
    assert "takes --prompt, --max-new-tokens and --set only" in made.err


def test_what_a_bundle_lacks_is_said(tmp_path: Path) -> None:
    (tmp_path / "main.aimodel").mkdir()
    config: dict[str, Any] = {
        "architecture": "DreamModel", "vocab_size": 9, "max_context_length": 9, "mask_token_id": 3,
        "stop_token_ids": [1], "is_shifted": False, "loop": "blocks", "settings": {},
    }  # fmt: skip
    for changed, message in (
        ({"vocab_size": "many"}, "config.vocab_size is 'many', and must be an integer"),
        ({"stop_token_ids": 1}, "config.stop_token_ids is 1, and must be token ids"),
        ({"is_shifted": 1}, "config.is_shifted must be true or false"),
        ({"loop": "canvas"}, "config.loop is 'canvas', and must be blocks or schedule"),
        ({"mask_token_id": 9}, "config.mask_token_id is 9, and must be a token of the model"),
        ({"architecture": "Other"}, "config.architecture is 'Other', and must be one of LLaDAModelLM"),
        ({"settings": {"steps": "few"}}, "steps of config is 'few'"),
        ({}, "there is no processor/tokenizer_config.json"),
    ):
        told = {"metadata_version": "0.2", "kind": "text_diffusion", "name": "any", "assets": {"main": "main.aimodel"}}
        (tmp_path / "metadata.json").write_text(json.dumps({**told, "config": {**config, **changed}}))
        assert message in "\n".join(map(str, check_bundle(tmp_path)))
    with pytest.raises(PatcompError, match="cannot be used"):
        generate_text(tmp_path, [1])
