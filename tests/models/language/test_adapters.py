"""Adapters of peft (LoRA): merged, as functions of their own, and refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from patcomp.errors import ConversionWarning
from patcomp_models.checkpoints.adapters import read_adapter
from patcomp_models.language import LanguageModelError, convert_language_model
from patcomp_models.language.adapted import merge_adapters, with_adapter
from tests.models.language.checkpoints import PROMPT, checkpoint, generated

FRONT = "base_model.model."
QUERY = "model.layers.1.self_attn.q_proj"


def adapter(path: Path, weights: dict[str, Tensor], **options: Any) -> Path:
    """The folder of an adapter, with the options that peft writes."""
    path.mkdir()
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 6, "bias": "none", "init_lora_weights": True, **options}
    (path / "adapter_config.json").write_text(json.dumps(config))
    save_file({FRONT + name: each.contiguous() for name, each in weights.items()}, path / "adapter_model.safetensors")
    return path


def pair(name: str, rows: int, columns: int, rank: int = 2, seed: int = 0) -> dict[str, Tensor]:
    """The two matrices of a linear layer."""
    drawn = torch.Generator().manual_seed(seed)
    return {
        f"{name}.lora_A.weight": torch.randn(rank, columns, generator=drawn),
        f"{name}.lora_B.weight": torch.randn(rows, rank, generator=drawn),
    }


def product(weights: dict[str, Tensor], name: str) -> Tensor:
    return weights[f"{name}.lora_B.weight"] @ weights[f"{name}.lora_A.weight"]


def test_merged_and_beside_give_the_tokens_of_a_model_with_the_sum(tmp_path: Path) -> None:
    """The folder of an adapter stands for its base, and each named adapter is a function of an asset of one set of
    weights; the tokens are those of transformers."""
    model: Any = checkpoint("llama")
    model.save_pretrained(tmp_path / "base")
    one, two = pair(QUERY, 32, 32, seed=1), pair(QUERY, 32, 32, rank=3, seed=2)
    first = adapter(tmp_path / "one", one, base_model_name_or_path=str(tmp_path / "base"))
    second = adapter(tmp_path / "two", two, rank_pattern={"layers.1.self_attn.q_proj": 3}, alpha_pattern={"q_proj": 9},
                     use_rslora=True)  # fmt: skip
    plain, weight = generated(model, PROMPT, 8), model.get_submodule(QUERY).weight
    before = weight.detach().clone()
    wanted = []
    for delta in (3 * product(one, QUERY), 9 / 3**0.5 * product(two, QUERY)):
        weight.data = before + delta
        wanted.append(generated(model, PROMPT, 8))
    assert len({*map(tuple, (plain, *wanted))}) == 3

    options: dict[str, Any] = {"dtype": "float32", "tokenizer": False, "max_context": 64}
    merged = convert_language_model(first, out=tmp_path / "merged", **options)
    assert merged.generate(PROMPT, 8) == wanted[0]
    assert merged.metadata["name"] == "one"
    both = convert_language_model(
        tmp_path / "base", out=tmp_path / "both", adapters={"a": first, "b": second}, **options
    )
    assert [both.generate(PROMPT, 8, adapter=name) for name in (None, "a", "b")] == [plain, *wanted]
    assert both.metadata["language"]["adapters"] == {"a": "main_a", "b": "main_b"}
    sizes = [sum(file.stat().st_size for file in each.asset.rglob("*") if file.is_file()) for each in (merged, both)]
    assert sizes[1] < 1.5 * sizes[0]
    with pytest.raises(LanguageModelError, match="does not run the adapter 'c'; it has a, b, which go without draft="):
        both.generate(PROMPT, 8, adapter="c")


def test_a_sum_of_adapters(tmp_path: Path) -> None:
    model: Any = checkpoint("llama")
    before, weights = model.get_submodule(QUERY).weight.detach().clone(), pair(QUERY, 32, 32)
    given = read_adapter(adapter(tmp_path / "a", weights))
    merge_adapters(model, [(given, 0.5), (given, 2.0)])
    torch.testing.assert_close(model.get_submodule(QUERY).weight, before + 7.5 * product(weights, QUERY))


def test_magnitudes_biases_and_weights(tmp_path: Path) -> None:
    """DoRA, a bias of the product, a bias that was trained, a module to save, and a table of embeddings, merged and
    beside the weights."""
    model: Any = checkpoint("qwen2")
    table, query = "model.embed_tokens", model.get_submodule(QUERY)
    drawn = torch.Generator().manual_seed(3)
    weights = {
        **pair(QUERY, 32, 32), f"{QUERY}.lora_magnitude_vector": torch.rand(32, generator=drawn) + 0.5,
        f"{QUERY}.lora_B.bias": torch.randn(32, generator=drawn),
        f"{QUERY}.base_layer.bias": torch.randn(32, generator=drawn),
        f"{table}.lora_embedding_A": torch.randn(2, 96, generator=drawn),
        f"{table}.lora_embedding_B": torch.randn(32, 2, generator=drawn),
        f"{table}.lora_magnitude_vector": torch.rand(32, generator=drawn) + 0.5,
        "model.norm.weight": torch.rand(32, generator=drawn),
    }  # fmt: skip
    given = read_adapter(adapter(tmp_path / "a", weights, use_dora=True, lora_bias=True, bias="lora_only"))
    total = query.weight + 3 * product(weights, QUERY)
    rows = (
        model.get_submodule(table).weight
        + 3 * (weights[f"{table}.lora_embedding_B"] @ weights[f"{table}.lora_embedding_A"]).T
    )
    wanted = {
        f"{QUERY}.weight": total * (weights[f"{QUERY}.lora_magnitude_vector"] / total.norm(dim=1))[:, None],
        f"{QUERY}.bias": weights[f"{QUERY}.base_layer.bias"] + 3 * weights[f"{QUERY}.lora_B.bias"],
        f"{table}.weight": rows * weights[f"{table}.lora_magnitude_vector"] / rows.norm(dim=0),
        "model.norm.weight": weights["model.norm.weight"],
    }
    beside: Any = with_adapter(model, given)
    untouched = {name: each.clone() for name, each in model.state_dict().items()}
    merge_adapters(model, [(given, 1.0)])
    for name, each in model.state_dict().items():
        torch.testing.assert_close(each, wanted.get(name, untouched[name]))
    tokens = torch.tensor([PROMPT])
    with torch.no_grad():
        torch.testing.assert_close(beside(tokens).logits, model(tokens).logits, rtol=1e-4, atol=1e-4)
    with pytest.raises(LanguageModelError, match="cannot be added in part or beside another"):
        merge_adapters(model, [(given, 0.5)])


def test_a_transposed_weight(tmp_path: Path) -> None:
    """Conv1D of GPT-2 has its weight as (in, out)."""
    model: Any = checkpoint("gpt2")
    name = "transformer.h.0.attn.c_attn"
    weights = pair(name, 96, 32)
    given = read_adapter(adapter(tmp_path / "a", weights, fan_in_fan_out=True))
    before, beside = model.get_submodule(name).weight.detach().clone(), with_adapter(model, given)
    merge_adapters(model, [(given, 1.0)])
    torch.testing.assert_close(model.get_submodule(name).weight, before + 3 * product(weights, name).T)
    tokens = torch.tensor([PROMPT])
    with torch.no_grad():
        torch.testing.assert_close(beside(tokens).logits, model(tokens).logits, rtol=1e-4, atol=1e-4)


def test_of_a_tied_weight_only_the_module_of_the_adapter_changes(tmp_path: Path) -> None:
    model: Any = checkpoint("gpt2")
    given = read_adapter(adapter(tmp_path / "a", pair("lm_head", 96, 32)))
    before = model.transformer.wte.weight.detach().clone()
    with pytest.warns(ConversionWarning, match="changes lm_head, whose weight is the weight of another module"):
        merge_adapters(model, [(given, 1.0)])
    assert torch.equal(model.transformer.wte.weight, before)
    assert not torch.equal(model.lm_head.weight, before)


REFUSED: dict[str, tuple[Callable[[Path], Path], str]] = {
    "another type": (lambda path: adapter(path, pair(QUERY, 32, 32), peft_type="IA3"), "of the type 'IA3', and only"),
    "an option": (
        lambda path: adapter(path, pair(QUERY, 32, 32), layer_replication=[[0, 2]]),
        "has the option layer_replication, which is not known here",
    ),
    "another base": (
        lambda path: adapter(path, pair(QUERY, 32, 32), init_lora_weights="pissa"),
        "began with init_lora_weights='pissa', which changes the weights of its base",
    ),
    "a pattern": (
        lambda path: adapter(path, pair(QUERY, 32, 32), rank_pattern={"(a+)+": 2}), "with several repetitions"
    ),
    "a rank": (lambda path: adapter(path, pair(QUERY, 32, 32), r=4), "for model.layers.1.self_attn.q_proj, whose rank"),
    "no second matrix": (
        lambda path: adapter(path, {f"{QUERY}.lora_A.weight": torch.ones(2, 32)}), "has lora_A of model.layers.1.self_"
    ),
    "magnitudes": (lambda path: adapter(path, pair(QUERY, 32, 32), use_dora=True), "says use_dora=True, and .* has no"),
    "tokens": (
        lambda path: adapter(path, {"model.embed_tokens.token_adapter.trainable_tokens_delta": torch.ones(1, 32)}),
        "has the weight .*token_adapter.*, whose meaning is not known",
    ),
    "no module": (
        lambda path: adapter(path, pair("model.layers.7.self_attn.q_proj", 32, 32)),
        "changes model.layers.7.self_attn.q_proj, and LlamaForCausalLM has no such module",
    ),
    "a shape": (lambda path: adapter(path, pair(QUERY, 32, 24)), r"product of \[32, 24\] for .*, whose weight"),
    "a kind of module": (
        lambda path: adapter(path, pair("model.norm", 32, 32)), "changes model.norm, a LlamaRMSNorm; products are"
    ),
    "a bias": (
        lambda path: adapter(path, {**pair(QUERY, 32, 32), f"{QUERY}.lora_B.bias": torch.ones(32)}, lora_bias=True),
        "has a bias for .*, which has none",
    ),
    "more tokens": (
        lambda path: adapter(path, {"model.embed_tokens.weight": torch.ones(98, 32)}),
        r"the weight model.embed_tokens.weight of \[98, 32\], and the model has it as \[96, 32\]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, tmp_path: Path) -> None:
    make, said = REFUSED[name]
    with pytest.raises(LanguageModelError, match=said):
        merge_adapters(checkpoint("llama"), [(read_adapter(make(tmp_path / "a")), 1.0)])


def test_wrong_options(tmp_path: Path) -> None:
    given = adapter(tmp_path / "a", pair(QUERY, 32, 32), base_model_name_or_path="nowhere/at/all")
    for folder, options, said in (
        (given, {}, "is for nowhere/at/all, which is no folder here; give the folder of its base model"),
        (checkpoint("llama"), {"adapters": f"a={given}", "prefill": 8}, "adapters= (--adapters) goes with target="),
        (checkpoint("llama"), {"adapters": [str(given)]}, "adapters= takes NAME=FOLDER"),
        (checkpoint("llama"), {"adapter": f"0.5={tmp_path}"}, "has no adapter_config.json"),
    ):  # fmt: skip
        with pytest.raises(LanguageModelError, match=re.escape(said)):
            convert_language_model(folder, out=tmp_path / "out", **options)
