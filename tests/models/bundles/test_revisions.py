"""What two revisions of Apple's Swift package refuse of the same bundle."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from patcomp_models.bundle_folders.revisions import FIELDS, NEW, OLD, REVISIONS, field_problems
from patcomp_models.bundles import BundleError, check_bundle
from patcomp_models.language import check_bundle as check_language_bundle
from tests.models.bundles.described import Change, Described, Values, changed, drop, file, put

_CACHE: Any = ((2, 1, 4, None, 8), "float16")
_TOKENS: Any = ((1, None), "int32")
_LOGITS: Any = {"logits": ((1, None, 31), "float16")}
_INPUTS, _STATES = {"input_ids": _TOKENS, "position_ids": _TOKENS}, {"keyCache": _CACHE, "valueCache": _CACHE}
LLM = Described(
    {"metadata_version": "0.2", "kind": "llm", "name": "small", "assets": {"main": "main.aimodel"},
     "language": {"tokenizer": "small", "vocab_size": 31, "max_context_length": 512, "embedded_tokenizer": False}},
    {},
    {"main.aimodel": {"main": (_INPUTS, _LOGITS, _STATES)}},
)  # fmt: skip
_ROPE = {"sliding_head_dim": 8, "global_head_dim": 8, "sliding_rope_theta": 1e4, "global_rope_theta": 1e6}


def _function(name: str, inputs: Values, outputs: Values, states: Values) -> Change:
    return lambda it: it.functions["main.aimodel"].update({name: (inputs, outputs, states)})


def _language(**values: Any) -> Change:
    return lambda it: it.metadata["language"].update(values)


def _main(**inputs: Any) -> Change:
    return _function("main", inputs, _LOGITS, _STATES)


def _kind(kind: str, **blocks: Any) -> Change:
    return lambda it: it.metadata.update(kind=kind, **blocks)


_ONE: Any = ((1, 1), "int32")
_CHUNK: Any = ((1, 8), "int32")
_ONE_LOGIT: Any = {"logits": ((1, 1, 31), "float16")}
_CHUNKS = (
    _function("main", {"input_ids": _ONE, "position_ids": _TOKENS}, _ONE_LOGIT, _STATES),
    _function("prefill", {"input_ids": _CHUNK, "position_ids": _TOKENS}, {"logits": ((1, 8, 31), "float16")}, _STATES),
)
HEADLESS = "run a prompt by prefill"
CASES: dict[str, tuple[tuple[Change, ...], Mapping[str, str]]] = {
    "a bundle": ((), {}),
    "the other order": (
        (_main(position_ids=_TOKENS, input_ids=_TOKENS),), {OLD: "the inputs of main are position_ids, input_ids"}),
    "other names": (
        (_main(in_new_token_ids=_TOKENS, pos_ids=_TOKENS),), {OLD: "the inputs of main are in_new_token_ids, pos_ids"}),
    "two names of the tokens": (
        (_main(input_ids=_TOKENS, in_new_token_ids=_TOKENS, position_ids=_TOKENS),),
        dict.fromkeys(REVISIONS, "the inputs of main are input_ids, in_new_token_ids, position_ids")),
    "unknown names": (
        (_main(tokens=_TOKENS, position_ids=_TOKENS),), dict.fromkeys(REVISIONS, "the inputs of main are tokens, p")),
    "positions by another type": (
        (_main(pos_ids=((1, None), "int64"), input_ids=_TOKENS),),
        {OLD: "the inputs of main are pos_ids", NEW: "position_ids is 1 x ? of int64"}),
    "chunks with logits": (_CHUNKS, {OLD: "COREAI_CHUNK_THRESHOLD=1", NEW: "this prefill returns logits"}),
    "a prefill without results": (
        (_function("prefill", _INPUTS, {}, _STATES),), {OLD: "the outputs of prefill are none"}),
    "a prefill of other inputs": (
        (_function("prefill", {"input_ids": _TOKENS}, {}, _STATES),), dict.fromkeys(REVISIONS, "input_ids")),
    "a prefill of other states": (
        (_function("prefill", _INPUTS, {}, {"keyCache": _CACHE}),), {OLD: "prefill", NEW: "prefill keeps keyCache"}),
    "states by words": ((_language(states={"keyCache": "kv_cache"}),), {}),
    "states as a list": ((_language(states=["keyCache"]),), {NEW: "language.states is ['keyCache'], and must be an o"}),
    "an unknown word": (
        (_language(states={"keyCache": "cache"}),),
        {NEW: "language.states.keyCache is 'cache', and must be one of kv_cache, sliding_cache, fixed"}),
    "a wrong word": ((_language(states={"keyCache": "fixed"}),), {NEW: "says fixed of keyCache, whose size is open"}),
    "a threshold in words": (
        (_language(prefill_chunk_threshold="1"),), {NEW: "language.prefill_chunk_threshold is '1', and must be an in"}),
    "a cap of nothing": (
        (_language(overrides={"final_logit_softcapping": 0}),),
        {NEW: "language.overrides.final_logit_softcapping is 0, and must be a positive number"}),
    "overrides": (
        (_language(overrides={"sliding_window": 64, "rope": {**_ROPE, "partial_rotary_factor": 0.5}}),), {}),
    "half of the rope": (
        (_language(overrides={"rope": _ROPE}),), {NEW: "language.overrides.rope.partial_rotary_factor is missing"}),
    "no vocabulary": ((_language(vocab_size=None),), dict.fromkeys(REVISIONS, "language.vocab_size is missing")),
    "a tokenizer that may be there": (
        (_language(embedded_tokenizer="no"),), dict.fromkeys(REVISIONS, "language.embedded_tokenizer is 'no'")),
    "no block": (
        (lambda it: it.metadata.pop("language"),), dict.fromkeys(REVISIONS, "language is missing")),
    "a kind of the later revision": (
        (_kind("video-diffusion"),),
        {OLD: "kind is 'video-diffusion', and must be one of", NEW: "'video-diffusion' are not checked"}),
    "a kind of none": ((_kind("film"),), dict.fromkeys(REVISIONS, "kind is 'film', and must be one of")),
}  # fmt: skip


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("name", CASES)
def test_what_each_revision_refuses(name: str, revision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes, messages = CASES[name]
    found = changed(LLM, *changes).problems(tmp_path / "bundle", monkeypatch, revision)
    told = [str(each.message) for each in check_language_bundle(tmp_path / "bundle", revision)]
    assert bool(found) == (revision in messages), found
    assert messages.get(revision, "") in "\n".join(found)
    if "kind" not in name:
        assert set(found) <= set(told)


_LATENTS: Any = ((1, 32, 2, 2), "float16")
_TEXT: Any = ((1, 600), "int32")
_IMAGE: Any = ((1, 3, 64, 64), "float32")
SPRINT = Described(
    {"metadata_version": "0.2", "kind": "diffusion", "name": "small",
     "assets": {role: f"{role}.aimodel" for role in ("text_encoder", "transformer", "vae_decoder", "vae_encoder")},
     "diffusion": {"type": "sana-sprint", "image_size": 64, "text_input_length": 600, "text_sequence_length": 300}},
    {"tokenizer/tokenizer.json": {}, "tokenizer/tokenizer_config.json": {}},
    {
        "text_encoder.aimodel": {"main": (
            {"input_ids": _TEXT, "attention_mask": _TEXT}, {"hidden_states": ((1, 300, 16), "float32")}, {})},
        "transformer.aimodel": {"main": (
            {"hidden_states": _LATENTS, "encoder_hidden_states": ((1, 300, 16), "float16"),
             "encoder_attention_mask": ((1, 300), "float16"), "timestep": ((1,), "float16"),
             "guidance": ((1,), "float16")},
            {"velocity": _LATENTS}, {})},
        "vae_decoder.aimodel": {"main": ({"z": ((1, 32, 2, 2), "float32")}, {"image": _IMAGE}, {})},
        "vae_encoder.aimodel": {"main": ({"image": _IMAGE}, {"latent_params": ((1, 32, 2, 2), "float32")}, {})},
    },
)  # fmt: skip
SPRINTS: dict[str, tuple[Change, str]] = {
    "an image-like mask": (
        put("transformer.aimodel:main", "input", "encoder_attention_mask", (1, 300), "int32"),
        "encoder_attention_mask of transformer is 1 x 300 of int32"),
    "whole texts": (
        put("text_encoder.aimodel:main", "output", "hidden_states", (1, 600, 16)), "hidden_states of text_encoder"),
    "pairs of latents": (
        put("transformer.aimodel:main", "input", "hidden_states", (2, 32, 2, 2), "float16"), "hidden_states of transf"),
    "other latents": (
        put("vae_decoder.aimodel:main", "input", "z", (1, 4, 2, 2)), "the input z of vae_decoder is 1 x 4 x 2 x 2"),
    "no guidance": (drop("transformer.aimodel:main", "input", "guidance"), "the inputs of transformer are hidden_st"),
    "no length": (
        lambda it: it.metadata["diffusion"].pop("text_input_length"), "diffusion.text_input_length is None"),
    "no tokenizer": (file("tokenizer/tokenizer.json"), "there is no tokenizer/tokenizer.json"),
    "a time in words": (
        lambda it: it.metadata["diffusion"].update(max_timesteps="pi/2"), "diffusion.max_timesteps is 'pi/2', and m"),
}  # fmt: skip


def test_sana_sprint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert SPRINT.problems(tmp_path / "later", monkeypatch, NEW) == []
    said = "diffusion.type is 'sana-sprint', and must be one of stable-diffusion, stable-diffusion-3, flux2"
    assert SPRINT.problems(tmp_path / "earlier", monkeypatch, OLD) == [said]


@pytest.mark.parametrize("name", SPRINTS)
def test_departures_of_sana_sprint(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change, message = SPRINTS[name]
    assert message in "\n".join(changed(SPRINT, change).problems(tmp_path / "bundle", monkeypatch, NEW))


_WORDS: Any = {"encoder_hidden_states": ((1, 512, 48), "float16")}
_ONE_NUMBER: Any = ((1,), "float16")


def _denoiser(count: int, **inputs: Any) -> tuple[Values, Values, Values]:
    """A function of FLUX.2 in the later form, for a number of patches."""
    places = {"img_ids": ((1, count, 4), "float32"), "txt_ids": ((1, 512, 4), "float32")}
    rows: Any = ((1, count, 128), "float16")
    numbers = {"timestep": _ONE_NUMBER, "guidance": _ONE_NUMBER}
    return {"hidden_states": rows, **_WORDS, **numbers, **(inputs or places)}, {"output": rows}, {}


_IDS: Any = ((1, 512), "int32")
FLUX = Described(
    {"metadata_version": "0.2", "kind": "diffusion", "name": "small",
     "assets": {"text_encoder": "TextEncoder.aimodel", "transformer": "Transformer.aimodel",
                "vae_decoder": "VAEDecoder.aimodel", "vae_encoder": "VAEEncoder.aimodel"},
     "diffusion": {"type": "flux2", "image_size": 64, "rope_axes_dims": [2, 2, 2, 2], "encoder_scale_factor": 1.0}},
    {**{key: {} for key in ("tokenizer/tokenizer.json", "vae_bn_mean.npy", "vae_bn_var.npy")},
     **{key: {"model_max_length": 10 ** 30} for key in ("tokenizer/tokenizer_config.json", "tokenizer/config.json")}},
    {
        "TextEncoder.aimodel": {"main": (
            {"input_ids": _IDS, "attention_mask": _IDS}, {"hidden_states": ((1, 512, 48), "float16")}, {})},
        "Transformer.aimodel": {name: _denoiser(count) for name, count in (
            ("main", 16), ("half", 4), ("img2img_full", 32), ("img2img_half", 20), ("img2img_quarter", 17),
            ("img2img_512_full", 8), ("img2img_512_half", 5))},
        "VAEDecoder.aimodel": {"main": (
            {"z": ((1, 32, 8, 8), "float16")}, {"image": ((1, 3, 64, 64), "float16")}, {})},
        "VAEEncoder.aimodel": {"main": (
            {"image": ((1, 3, 64, 64), "float16")}, {"latent_params": ((1, 32, 8, 8), "float16")}, {})},
    },
)  # fmt: skip


def _denoises(name: str, count: int, **inputs: Any) -> Change:
    return lambda it: it.functions["Transformer.aimodel"].update({name: _denoiser(count, **inputs)})


_TABLE: Any = ((528, 8), "float32")
FLUXES: dict[str, tuple[Change, Mapping[str, str]]] = {
    "places": (lambda it: None, {OLD: "the input img_ids of transformer is 1 x 16 x 4 of float32, and must be"}),
    "rotary tables": (
        _denoises("main", 16, rotary_emb_cos=_TABLE, rotary_emb_sin=_TABLE),
        {NEW: "the input rotary_emb_cos of transformer is 528 x 8"}),
    "no references": (
        lambda it: it.functions.update({"Transformer.aimodel": {"main": _denoiser(16)}}),
        {OLD: "img_ids of transformer"}),
    "a coarser grid": (
        _denoises("img2img_half", 17), {OLD: "img_ids", NEW: "hidden_states of img2img_half of transformer is 1 x 17"}),
    "a whole half": (_denoises("half", 16), {OLD: "img_ids", NEW: "hidden_states of half of transformer is 1 x 16"}),
    "no factor": (
        lambda it: it.metadata["diffusion"].pop("encoder_scale_factor"),
        {OLD: "img_ids", NEW: "diffusion.encoder_scale_factor is missing, and Swift takes 0.18215"}),
}  # fmt: skip


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("name", FLUXES)
def test_flux2(name: str, revision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change, messages = FLUXES[name]
    found = changed(FLUX, change).problems(tmp_path / "bundle", monkeypatch, revision)
    assert bool(found) == (revision in messages), found
    assert messages.get(revision, "") in "\n".join(found)


def test_pipelines_of_the_earlier_revision() -> None:
    """Stable Diffusion has no pipeline in the later one; other hosts' kinds have no contract with Apple's package."""
    said = "diffusion.type is 'stable-diffusion-3', and must be one of flux2, sana-sprint"
    metadata = {"kind": "diffusion", "diffusion": {"type": "stable-diffusion-3"}}
    assert [each.message for each in field_problems(metadata, NEW)] == [said]
    assert field_problems(metadata, OLD) == []
    assert field_problems({**metadata, "kind": "diffusion_for_other_hosts"}, NEW) == []


def test_rows() -> None:
    """Each row is read by a known revision, one row of a revision a field, and says where it was read."""
    read = [(field.path, revision) for field in FIELDS for revision in field.revisions]
    assert len(set(read)) == len(read)
    assert all(field.revisions and set(field.revisions) <= set(REVISIONS) for field in FIELDS)
    assert all(field.source.split(", ")[0].endswith(".swift") for field in FIELDS)


@pytest.mark.parametrize("check", [check_bundle, check_language_bundle])
def test_a_revision_without_a_contract(check: Any, tmp_path: Path) -> None:
    with pytest.raises(
        BundleError, match="revision 'main' of Apple's Swift package is not known; there are those of 8"
    ):
        check(tmp_path, "main")
