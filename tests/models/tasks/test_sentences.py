"""Embeddings of sentences and rerankers: the pooling and the heads that a folder describes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import save_file
from torch.nn import functional

from patcomp.emit.native import Native
from patcomp.errors import PatcompError
from patcomp_models.tasks import convert_folder
from patcomp_models.tasks.sentences import SENTENCE_EMBEDDING, SENTENCE_SCORE, Pooling
from tests.helpers.command import Command
from tests.models.language.checkpoints import checkpoint
from tests.models.language.checkpoints import folder as decoder_folder
from tests.models.tasks.comparing import runs, same
from tests.models.tasks.folders import folder

TOKENS = {"input_ids": torch.tensor([[5, 80, 7, 33, 9, 0, 0]]), "attention_mask": torch.tensor([[1, 1, 1, 1, 1, 0, 0]])}
"""Five tokens and two of padding."""


def described(path: Path, *modules: str, pooling: dict[str, Any] | None = None) -> None:
    """Write the files of sentence-transformers."""
    listed = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    for number, name in enumerate(modules, 1):
        place = f"{number}_{name}"
        (path / place).mkdir(exist_ok=True)
        listed.append(
            {"idx": number, "name": str(number), "path": place, "type": f"sentence_transformers.models.{name}"}
        )
        if name == "Pooling":
            (path / place / "config.json").write_text(json.dumps(pooling))
    (path / "modules.json").write_text(json.dumps(listed))


def flags(*modes: str) -> dict[str, Any]:
    names = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
    return {"word_embedding_dimension": 32, **{f"pooling_mode_{name}": name in modes for name in names}}


def test_each_pooling() -> None:
    hidden = torch.randn(1, 7, 4, generator=torch.Generator().manual_seed(0))
    mask, held = TOKENS["attention_mask"], hidden[0, :5]
    weights = torch.arange(1, 6.0)[:, None]
    for mode, wanted in {
        "cls_token": held[0], "mean_tokens": held.mean(0), "max_tokens": held.amax(0), "lasttoken": held[4],
        "mean_sqrt_len_tokens": held.sum(0) / 5**0.5, "weightedmean_tokens": (held * weights).sum(0) / 15,
    }.items():  # fmt: skip
        torch.testing.assert_close(Pooling((mode,))(hidden, mask)[0], wanted)
    assert Pooling(("cls_token", "lasttoken"))(hidden, mask).shape == (1, 8)
    left = Pooling(("lasttoken",))(hidden, mask.flip(1))[0]
    torch.testing.assert_close(left, hidden[0, 6])


@pytest.mark.slow
def test_an_encoder_with_a_dense_layer(tmp_path: Path, native: Native) -> None:
    """Mean, a dense layer with tanh, and a normalisation; the folder's class has a head of another task."""
    model = folder(tmp_path, "BertForMaskedLM")
    described(tmp_path, "Pooling", "Dense", "Normalize", pooling=flags("mean_tokens"))
    dense = {
        "in_features": 32,
        "out_features": 8,
        "bias": True,
        "activation_function": "torch.nn.modules.activation.Tanh",
    }
    (tmp_path / "2_Dense/config.json").write_text(json.dumps(dense))
    weight, bias = torch.randn(8, 32), torch.randn(8)
    save_file({"linear.weight": weight, "linear.bias": bias}, tmp_path / "2_Dense/model.safetensors")
    with pytest.warns(UserWarning, match="are left out"):
        program = convert_folder(tmp_path, task="embedding")
    with torch.no_grad():
        hidden = model.bert(**TOKENS).last_hidden_state[:, :5].mean(1)
        wanted = functional.normalize(torch.tanh(hidden @ weight.T + bias))
    for outputs in runs(program, native, "main", TOKENS):
        same(outputs[SENTENCE_EMBEDDING], wanted)


@pytest.mark.slow
def test_a_decoder_and_its_last_token(tmp_path: Path, native: Native, patcomp: Command) -> None:
    """As Qwen3-Embedding: newer names of modules and of modes, and a class with a head."""
    model: Any = checkpoint("qwen3")
    model.save_pretrained(tmp_path / "model")
    described(
        tmp_path / "model", "Pooling", "Normalize", pooling={"embedding_dimension": 32, "pooling_mode": "lasttoken"}
    )
    program = convert_folder(tmp_path / "model", task="embedding")
    with torch.no_grad():
        wanted = functional.normalize(model.model(**TOKENS).last_hidden_state[:, 4])
    for outputs in runs(program, native, "main", TOKENS):
        same(outputs[SENTENCE_EMBEDDING], wanted)
    done = patcomp(
        "convert", str(tmp_path / "model"), "--task", "embedding", "--half", "-o", str(tmp_path / "a.aimodel")
    )
    assert done.code == 0, done.err


def answering(path: Path) -> Any:
    """A decoder with the words yes and no."""
    decoder_folder(path, "qwen3")
    words = json.loads((path / "tokenizer.json").read_text())
    words["model"]["vocab"] |= {"yes": 70, "no": 71}
    (path / "tokenizer.json").write_text(json.dumps(words))
    return transformers.AutoModelForCausalLM.from_pretrained(path).eval()


def test_a_decoder_that_answers(tmp_path: Path, native: Native) -> None:
    """As Qwen3-Reranker: the probability of yes among yes and no, after the last token."""
    model = answering(tmp_path)
    program = convert_folder(tmp_path, task="rerank")
    with torch.no_grad():
        logits = model(**TOKENS).logits[:, 4, [71, 70]]
    for outputs in runs(program, native, "main", TOKENS):
        same(outputs[SENTENCE_SCORE], logits.softmax(1)[:, 1])
    described(tmp_path, "LogitScore")
    (tmp_path / "1_LogitScore/config.json").write_text('{"true_token_id": 5, "false_token_id": 80}')
    program = convert_folder(tmp_path, task="rerank")
    with torch.no_grad():
        logits = model(**TOKENS).logits[:, 4, [80, 5]]
    same(torch.as_tensor(program.run(TOKENS)[SENTENCE_SCORE]), logits.softmax(1)[:, 1])


@pytest.mark.slow
@pytest.mark.parametrize("activation", [None, "torch.nn.modules.linear.Identity"])
def test_a_classifier_with_one_label(activation: str | None, tmp_path: Path, native: Native) -> None:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=48, vocab_size=96, num_labels=1,
        **({"sentence_transformers": {"activation_fn": activation}} if activation else {}),
    )  # fmt: skip
    model = transformers.BertForSequenceClassification(config).eval()
    model.save_pretrained(tmp_path)
    tokens = {**TOKENS, "token_type_ids": torch.arange(TOKENS["input_ids"].shape[1])[None] // 2 % 2}
    with torch.no_grad():
        wanted = model(**tokens).logits[:, 0]
    for outputs in runs(convert_folder(tmp_path, task="rerank"), native, "main", tokens):
        same(outputs[SENTENCE_SCORE], wanted if activation else wanted.sigmoid())


@pytest.mark.parametrize(
    ("task", "modules", "pooling", "message"),
    [
        ("embedding", None, None, "has no modules.json, so its pooling is not known; give the folder as sentence-tra"),
        ("embedding", ("Normalize",), None, "has the module 'Normalize' there, which is not known"),
        ("embedding", (), None, "has no pooling, so it describes no embedding of a whole text"),
        ("embedding", ("Pooling", "CNN"), flags("mean_tokens"), "has the module 'CNN' there, which is not known"),
        ("embedding", ("Pooling",), flags(), "has no mode of pooling; there are cls_token, mean_tokens"),
        (
            "embedding",
            ("Pooling",),
            {"pooling_mode_first_tokens": True},
            "has the mode 'first_tokens', which is not",
        ),
        ("embedding", ("Pooling",), {"pooling_mode": "x"}, "has the mode 'x', which is not known; there are"),
        (
            "embedding",
            ("Pooling",),
            {**flags("lasttoken"), "include_prompt": False},
            "leaves the prompt out of the",
        ),
        ("rerank", None, None, "holds a classifier with 2 labels, and a reranker has one; `patcomp convert` without"),
        ("summary", None, None, "the task 'summary' is not known; the tasks to choose are embedding, rerank"),
    ],
)
def test_what_a_folder_lacks(
    task: Any, modules: tuple[str, ...] | None, pooling: dict[str, Any] | None, message: str, tmp_path: Path
) -> None:
    folder(tmp_path, "BertForSequenceClassification" if task == "rerank" else "BertModel")
    if modules is not None:
        described(tmp_path, *modules, pooling=pooling)
    with pytest.raises(PatcompError, match=message) as raised:
        convert_folder(tmp_path, task=task)
    assert len(str(raised.value).splitlines()) == 1


def test_no_answers(tmp_path: Path) -> None:
    decoder_folder(tmp_path, "llama")
    with pytest.raises(PatcompError, match=r"has no tokens 'yes' and 'no' in a tokenizer.json, so it is no reranker"):
        convert_folder(tmp_path, task="rerank")


def test_a_head_that_is_changed(tmp_path: Path) -> None:
    """Softcaps on the logits are between the head and the score."""
    decoder_folder(tmp_path, "gemma2")
    words = json.loads((tmp_path / "tokenizer.json").read_text())
    words["model"]["vocab"] |= {"yes": 70, "no": 71}
    (tmp_path / "tokenizer.json").write_text(json.dumps(words))
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"final_logit_softcapping": 0.01}))
    with pytest.raises(PatcompError, match="Gemma2ForCausalLM changes the products of its head"):
        convert_folder(tmp_path, task="rerank")
