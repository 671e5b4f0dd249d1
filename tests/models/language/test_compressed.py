"""Bundles in few bits: sizes, tokens, what is left alone, and a bundle that is compressed later."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from patcomp import load
from patcomp.compression import CompressionConfig, CompressionRequest, compressed_weights
from patcomp.questions.audit import audit
from patcomp.targets import NEURAL_ENGINE
from patcomp_models.language import Bundle, LanguageModelError, check_bundle, compress_bundle, convert_language_model
from patcomp_models.language.compressing import plans_for
from patcomp_models.language.quality import all_applied
from patterns_catalog import default_rules
from tests.helpers.command import Command

transformers = pytest.importorskip("transformers")

SIZES = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32,
    "intermediate_size": 128, "vocab_size": 1024, "max_position_embeddings": 512,
}  # fmt: skip
PROMPT = [3, 141, 59, 26]


def llama(tied: bool) -> Any:
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES, tie_word_embeddings=tied)).eval()


def mixture() -> Any:
    torch.manual_seed(0)
    config = transformers.Qwen3MoeConfig(
        **SIZES, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64, decoder_sparse_step=1,
        mlp_only_layers=[],
    )  # fmt: skip
    return transformers.Qwen3MoeForCausalLM(config).eval()


def stored(bundle: Bundle) -> int:
    return (bundle.asset / "main.mlirb").stat().st_size


def bits(model: Any) -> dict[str, int]:
    """The elements of matrices, of the head, and of all else."""
    head = model.get_output_embeddings().weight
    matrices = {id(p): p.numel() for p in model.parameters() if p.dim() > 1 and p is not head}
    rest = {id(p): p.numel() for p in model.parameters() if p.dim() < 2}
    return {"matrices": sum(matrices.values()), "head": head.numel(), "rest": sum(rest.values())}


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: llama(False), id="own head", marks=pytest.mark.slow),
        pytest.param(lambda: llama(True), id="tied head"),
        pytest.param(mixture, id="experts", marks=pytest.mark.slow),
    ],
)
def test_four_bits_with_the_head_in_eight(make: Callable[[], Any], tmp_path: Path) -> None:
    model = make()
    elements = bits(model)
    bundle = convert_language_model(model, out=tmp_path / "bundle", compress="4bit")
    wanted = elements["matrices"] * (4 + 0.5) + elements["head"] * 8 + elements["rest"] * 16
    scales = 16 * elements["head"] // SIZES["hidden_size"]  # one for each token
    # a tied table, whose channels are tokens, has a scale for each
    assert stored(bundle) <= 1.02 * (wanted + scales) / 8 + 2**16
    assert bundle.metadata["compression"] == "4bit"
    assert check_bundle(bundle.path) == ()
    assert "embed_tokens" not in (bundle.asset / "main.mlirb").read_bytes().decode("latin-1")
    assert len(bundle.generate(PROMPT, max_new_tokens=3)) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "dtype", "word", "share"),
    [
        ("neural_engine", "float16", "4bit_weight_palettized_group8", 0.8),  # its table of embeddings has 8 bits
        ("neural_engine", "float16", "8bit", 0.85), ("gpu", "bfloat16", "4bit", 0.4), ("gpu", "bfloat16", "8bit", 0.55),
    ],
)  # fmt: skip
def test_other_targets_and_types(target: Any, dtype: Any, word: str, share: float, tmp_path: Path) -> None:
    model = llama(True)
    plain = convert_language_model(model, target, out=tmp_path / "plain", dtype=dtype)
    small = convert_language_model(model, target, out=tmp_path / "small", dtype=dtype, compress=word)
    assert check_bundle(small.path) == ()
    assert stored(small) < share * stored(plain)
    assert small.generate(PROMPT, 8) == plain.generate(PROMPT, 8)


def schemes_of(bundle: Bundle) -> set[str]:
    return {weight.scheme for weight in compressed_weights(load(bundle.asset).module) if "gather" not in weight.kinds}


@pytest.mark.slow
def test_four_bits_are_palettes_for_the_neural_engine(tmp_path: Path) -> None:
    """On the way into a bundle, and of one that exists, which tells its target by its functions."""
    model = llama(True)
    at_once = convert_language_model(
        model, "neural_engine", out=tmp_path / "small", compress="4bit", calibrate=PROMPT * 30, check=False
    )
    assert schemes_of(at_once) == {"pal4_group32", "pal4"}  # the keys and values of this model have 16 channels
    assert not [each for each in audit(load(at_once.asset).module, NEURAL_ENGINE, default_rules()).findings
                if each.what.startswith("weights stored")]  # fmt: skip
    plain = convert_language_model(model, "neural_engine", out=tmp_path / "plain", check=False)
    assert schemes_of(compress_bundle(plain.path, "4bit", out=tmp_path / "later")) == {"pal4_group32", "pal4"}
    with pytest.raises(ValueError, match="the target neural_engine does not take weights that are stored so"):
        compress_bundle(plain.path, "w4_block32", out=tmp_path / "refused")
    assert not (tmp_path / "refused").exists()


def test_a_bundle_is_compressed_as_its_model_is(tmp_path: Path, patcomp: Command) -> None:
    model = llama(True)
    plain = convert_language_model(model, out=tmp_path / "plain", name="model")
    at_once = convert_language_model(model, out=tmp_path / "at once", name="model", compress="8bit")
    done = patcomp("compress", str(plain.path), "-o", str(tmp_path / "later"), "--config", "8bit")
    assert done.code == 0, done.err
    later = Bundle(tmp_path / "later")
    assert later.metadata["compression"] == "8bit"
    assert stored(later) < 0.55 * stored(plain)
    assert abs(stored(later) - stored(at_once)) < 2**12
    assert later.generate(PROMPT, 4) == at_once.generate(PROMPT, 4)
    with pytest.raises(LanguageModelError, match=r"is compressed already \(8bit\); compress the one that it was made"):
        compress_bundle(later.path, "4bit", out=tmp_path / "twice")
    with pytest.raises(LanguageModelError, match="exists; choose another folder"):
        compress_bundle(plain.path, "4bit", out=later.path)
    with pytest.raises(LanguageModelError, match=r"is not a bundle: there is no metadata\.json"):
        compress_bundle(tmp_path, "4bit", out=tmp_path / "other")


@pytest.mark.parametrize(
    ("text", "scheme", "bits", "budget"),
    [
        ("4bit", "w4_block32", None, None), ("8bit", "w8", None, None), ("pal6", "pal6", None, None),
        ("4.5bits", "w8", 4.5, None), ("3bits", "w8", 3.0, None), ("30%", "w8", None, "30%"),
        ("4bit_weight_palettized_group8", "pal4_group8", None, None),
    ],
)  # fmt: skip
def test_words(text: str, scheme: str, bits: float | None, budget: str | None) -> None:
    request = CompressionRequest.of(text)
    assert request.config.scheme is not None
    assert (request.text, request.config.scheme.name, request.bits, request.budget) == (text, scheme, bits, budget)
    assert CompressionRequest.of(request) is request


@pytest.mark.parametrize("text", ["5bit", "4 bits", "%", "w5"])
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"4bit, 8bit, .* budgets such as 4\.5bits or 30%"):
        CompressionRequest.of(text)


def test_weights_that_stay_are_named() -> None:
    from patcomp import TorchConverter

    class Positions(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.places = torch.nn.Parameter(torch.randn(64, 64))
            self.linear = torch.nn.Linear(64, 64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x + self.places)

    exported = torch.export.export(Positions().eval(), (torch.randn(64, 64),))
    program = TorchConverter().add_exported_program(exported).to_coreai()
    said = "places (64x64, 16,384 bytes) stays as it is: coreai.decomposable.broadcasting_add reads it"
    assert said in str(program.compress("w8").compression)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        all_applied(plans_for({"main": program}, CompressionRequest("w8", CompressionConfig.of("w8")), 1024))
    assert [str(each.message) for each in found] == [said]
    assert json.loads(json.dumps(program.compress("w8").compression.as_dict()))["others"][0]["name"] == "places"
