"""The types of weights: float32 for some modules of a model of half precision."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

from patcomp import load
from patcomp.patterns import RuleSet, example, lowering
from patcomp_models.checkpoints.loading import in_dtype
from patcomp_models.checkpoints.precision import set_types
from patcomp_models.language import LanguageModelError, check_bundle, convert_language_model
from tests.models.language.checkpoints import PROMPT, assert_best, checkpoint, folder


def types(model: Any) -> dict[str, torch.dtype]:
    return {name: weight.dtype for name, weight in model.named_parameters(remove_duplicate=False)}


def test_types_of_modules() -> None:
    """The named modules and all inside of them; a shared weight is split, and stays shared elsewhere."""
    model: Any = checkpoint("llama")
    model.lm_head.weight = model.model.embed_tokens.weight
    rotary = model.model.rotary_emb.inv_freq
    set_types(model, torch.float16, ["lm_head", "*.1.self_attn", "*.1.self_attn.*"])
    found = types(model)
    wide = {name for name, dtype in found.items() if dtype == torch.float32}
    assert wide == {"lm_head.weight", *(f"model.layers.1.self_attn.{each}_proj.weight" for each in "qkvo")}
    assert set(found.values()) == {torch.float16, torch.float32}
    assert model.model.rotary_emb.inv_freq is rotary  # positions times rounded frequencies would be off
    with torch.no_grad():
        assert model(torch.tensor([PROMPT])).logits.dtype == torch.float16


def test_shared_weights_stay_shared() -> None:
    model: Any = checkpoint("llama")
    model.lm_head.weight = model.model.embed_tokens.weight
    given = copy.deepcopy(model)
    made: Any = in_dtype(model, "bfloat16")
    assert made.lm_head.weight is made.model.embed_tokens.weight
    assert made.lm_head.weight.dtype == torch.bfloat16
    assert types(model) == types(given)


@pytest.mark.parametrize(
    ("kind", "patterns"),
    [
        pytest.param("llama", ["lm_head", "*.self_attn"], marks=pytest.mark.slow),
        pytest.param("lfm2", ["*.conv", "*.self_attn"], marks=pytest.mark.slow),
        pytest.param("qwen3_5_text", ["*.linear_attn", "*.mlp.*"], marks=pytest.mark.slow),
    ],
)
def test_a_bundle_with_both_types(kind: str, patterns: list[str], tmp_path: Path) -> None:
    """Its interface is that of half precision, and it computes the products of the modules in float32."""
    model: Any = checkpoint(kind)
    before = types(model)
    bundle = convert_language_model(model, out=tmp_path / "bundle", max_context=64, float32=patterns)
    assert check_bundle(bundle.path) == ()
    assert types(model) == before
    assert {blob.type.element_type.name for blob in load(bundle.asset).module.blobs} >= {"f16", "f32"}
    mixed = copy.deepcopy(model)
    set_types(mixed, torch.float16, patterns)
    assert_best(mixed, PROMPT, bundle.generate(PROMPT, 6))


@pytest.mark.slow
def test_a_folder_is_read_in_float32(tmp_path: Path) -> None:
    """Its weights are not rounded to half precision first."""
    source = folder(tmp_path / "small")
    bundle = convert_language_model(source, out=tmp_path / "bundle", max_context=64, float32="lm_head")
    head = checkpoint("llama").get_submodule("lm_head").weight.detach()
    stored = [bytes(blob.data) for blob in load(bundle.asset).module.blobs]
    assert any(head.numpy().tobytes() == data or head.T.contiguous().numpy().tobytes() == data for data in stored)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"float32": "*.attn"},
            "float32= names '*.attn', and no module has such a name; there are model.layers.0, mod",
        ),
        ({"float32": "lm_head", "dtype": "float32"}, "float32= goes with dtype='float16' or 'bfloat16', and with ta"),
        ({"float32": ["lm_head"], "target": "neural_engine"}, "float32= goes with dtype='float16' or 'bfloat16', and"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(LanguageModelError) as raised:
        convert_language_model(checkpoint("llama"), out=tmp_path / "bundle", **options)
    assert str(raised.value).startswith(message)
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.slow
def test_a_catalog(tmp_path: Path) -> None:
    """The rules of the user come before patcomp's."""
    seen = []

    @lowering("aten.silu", examples=[example("2xf32")])
    def own_silu(op: Any, c: Any) -> Any:
        seen.append(op.result.element_type)
        return c.mul(op["self"], c.sigmoid(op["self"]))

    convert_language_model(
        checkpoint("llama"), out=tmp_path / "bundle", max_context=64, catalog=[RuleSet([own_silu])], dtype="float32"
    )
    assert seen
