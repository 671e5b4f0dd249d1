"""Several texts in one call, padded on the left."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, BloomConfig, Llama4TextConfig, LlamaConfig

from patcomp.errors import ConversionWarning
from patcomp_models.language import LanguageModelError, check_bundle, convert_language_model
from patcomp_models.language.batches import BatchComparison, BatchDecoder, padded
from patcomp_models.language.dynamic_form import BundleFunction
from tests.models.language.checkpoints import PROMPT, SECOND, checkpoint, generated, with_stops

PROMPTS = [PROMPT, SECOND, [7], PROMPT[:9] + SECOND, [5, 4]]
NOTE = "each call takes 3 texts, and Apple's engines give one"


def test_the_tokens_are_those_of_each_prompt_alone(tmp_path: Path) -> None:
    """Five prompts in calls of three, as transformers gives them with left padding, and with a token that ends one."""
    model: Any = checkpoint("llama")
    with pytest.warns(ConversionWarning, match=NOTE):
        bundle = convert_language_model(model, out=tmp_path / "bundle", dtype="float32", batch=3, max_context=64)
    wanted = [generated(model, prompt, 7) for prompt in PROMPTS]
    rows, first = padded(PROMPTS)
    mask = torch.tensor([[int(place >= start) for place in range(rows.shape[1])] for start in first])
    together = model.generate(
        torch.tensor(rows), attention_mask=mask, max_new_tokens=7, do_sample=False, pad_token_id=0
    )[:, rows.shape[1] :].tolist()  # fmt: skip
    assert [row[: len(each)] for row, each in zip(together, wanted, strict=True)] == wanted
    assert bundle.generate_batch(PROMPTS, 7) == wanted
    stop = wanted[0][2]
    ends = [row[: row.index(stop) + 1] if stop in row else row for row in wanted]
    assert with_stops(bundle, tmp_path / "stops", stop).generate_batch(PROMPTS, 7) == ends
    assert [each.message for each in check_bundle(bundle.path)] == [NOTE]
    for run, said in (
        (lambda: bundle.generate(PROMPT), "takes 3 texts in a call; `Bundle.generate_batch` gives them"),
        (lambda: bundle.generate_batch([PROMPT, []]), "prompts of up to 12 tokens and 16 new ones; the bundle takes 1"),
        (lambda: bundle.generate_batch([PROMPT * 5], 5), "prompts of up to 60 tokens and 5 new ones"),
    ):
        with pytest.raises(LanguageModelError, match=re.escape(said)):
            run()


@pytest.mark.parametrize("kind", ["gemma3_text", "gpt2", "deepseek_v3"])
def test_windows_tables_of_positions_and_latents(kind: str) -> None:
    """The decoder itself, in calls that continue each other, beside the model on each text."""
    model: Any = checkpoint(kind)
    decoder = BatchDecoder(model, 4)
    compared = BatchComparison([BundleFunction("main", decoder)], PROMPT + SECOND, torch.float32, 64)

    def call(name: str, inputs: Any, states: dict[str, Any]) -> dict[str, Any]:
        tensors = [torch.tensor(each) for each in inputs.values()]
        kept = [torch.tensor(state) for state in states.values()]
        with torch.no_grad():
            logits = decoder(*tensors, *kept)
        states |= {key: each.numpy() for key, each in zip(states, kept, strict=True)}
        return {"logits": logits.numpy()}

    torch.testing.assert_close(compared.made(call), compared.wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("lfm2", "keeps windows of convolutions, recurrences, rings or indices"),
        ("mamba2", "keeps windows of convolutions, recurrences, rings or indices"),
        ("bloom", "takes no position_ids"),
        ("llama4_text", "makes masks by create_chunked_causal_mask"),
        ("longrope", "has another rotary embedding for long texts"),
    ],
)
def test_refused(kind: str, said: str) -> None:
    small = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 96}
    factors = {"rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [2.0] * 4, "rope_theta": 1e4,
               "original_max_position_embeddings": 16}  # fmt: skip
    configs: dict[str, Any] = {
        "bloom": BloomConfig(hidden_size=32, n_layer=1, n_head=4, vocab_size=96),
        "llama4_text": Llama4TextConfig(
            **small, intermediate_size=32, intermediate_size_mlp=32, num_key_value_heads=2, head_dim=8,
            num_local_experts=2,
        ),
        "longrope": LlamaConfig(**small, intermediate_size=32, rope_parameters=factors, max_position_embeddings=64),
    }  # fmt: skip
    model = AutoModelForCausalLM.from_config(configs[kind]).eval() if kind in configs else checkpoint(kind)
    with pytest.raises(LanguageModelError, match=said):
        BatchDecoder(model, 2)


def test_options(tmp_path: Path) -> None:
    options: dict[str, Any]
    for options in ({"batch": 0}, {"batch": 2, "prefill": 8}, {"batch": 2, "window_caches": True}):
        with pytest.raises(LanguageModelError, match="more than 1 goes with target='gpu'"):
            convert_language_model(checkpoint("llama"), out=tmp_path / "bundle", **options)
