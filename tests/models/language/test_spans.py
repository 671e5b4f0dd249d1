"""How many tokens a bundle takes, and how many are compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from patcomp.errors import ConversionWarning
from patcomp_models.checkpoints.loading import export_implementations
from patcomp_models.language import LanguageModelError, architectures, checking, convert_language_model
from patcomp_models.language.architectures import spans_of
from patcomp_models.language.asked import context_of, own_context
from patcomp_models.language.checking import Comparison, notes_on_spans
from patcomp_models.language.decoder import Decoder
from patcomp_models.language.dynamic_form import BundleFunction, dynamic_program, exported_function
from tests.models.language.checkpoints import PROMPT, checkpoint


class Model(torch.nn.Module):
    """What has a configuration."""

    def __init__(self, **settings: Any):
        super().__init__()
        self.config = transformers.PreTrainedConfig(**settings)


@pytest.mark.parametrize(
    "name", ["max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length", "max_seq_length", "n_ctx"]
)
def test_the_most_tokens(name: str) -> None:
    assert own_context(Model(**{name: 512})) == context_of(Model(**{name: 512}), None) == 512
    with pytest.raises(LanguageModelError, match="max_context is 513; the model takes 24 to 512 tokens"):
        context_of(Model(**{name: 512}), 513)
    for nothing in (None, 0, "512", 512.0, [512]):
        assert own_context(Model(**{name: nothing})) is None


def test_any_number_of_tokens() -> None:
    with pytest.warns(ConversionWarning, match="of Model does not say how many tokens it takes; the bundle takes 4096"):
        assert context_of(Model(), None) == 4096
    assert context_of(Model(), 100_000) == 100_000


def test_windows_chunks_and_switches(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {
        "sliding_window": 512, "attention_chunk_size": 8192, "window_size": 256, "attention_window_size": 2048,
        "mamba_chunk_size": 128, "block_size": 64, "index_topk": 32, "floor_scale": 16,
    }  # fmt: skip
    others = {"max_window_layers": 28, "use_sliding_window": True, "hidden_size": 7, "windows": "x", "chunk": None}
    assert spans_of({**settings, **others}) == [*settings.values()]
    model: Any = checkpoint("mistral")  # of a window of 8
    functions = [BundleFunction("main", Decoder(model))]
    counts = lambda prompt, limit: len(Comparison(functions, prompt, torch.float32, limit).tokens)  # noqa: E731
    assert counts([], 64) == 8
    monkeypatch.delitem(architectures.ARCHITECTURES, "mistral")
    assert counts([], 64) == 16
    assert counts([], 12) == 12
    assert counts(PROMPT[:5], 64) == 5, "the user's own prompt"
    assert notes_on_spans(model, [], 64) == []
    (note,) = notes_on_spans(model, PROMPT[:5], 64)
    assert "stops at 5 tokens" in note
    monkeypatch.setattr(model.config, "sliding_window", 8192)
    assert counts([], 16384) == 8, "a long window is not passed"
    (note,) = notes_on_spans(model, [], 16384)
    assert "stops at 8 tokens" in note
    assert "behind 8192 tokens" in note
    assert notes_on_spans(model, [], 8192) == [], "no text of the bundle passes it"
    assert notes_on_spans(model, [0] * 8193, 16384) == []


def test_a_long_window_is_noted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`metadata.json` says what the comparison did not pass."""
    monkeypatch.delitem(architectures.ARCHITECTURES, "mistral")
    monkeypatch.setattr(checking, "_MOST_SPANNED", 7)
    with pytest.warns(ConversionWarning, match="not tested, computes something else behind 8 tokens"):
        made = convert_language_model(checkpoint("mistral"), out=tmp_path / "bundle", max_context=256)
    assert "the comparison with the model stops at 8 tokens" in made.metadata["notes"][-1]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("GPTNeoForCausalLM", {"num_layers": 2, "num_heads": 4, "window_size": 8, "max_position_embeddings": 32,
                               "attention_types": [[["global", "local"], 1]]}),
        ("RobertaForCausalLM", {"num_hidden_layers": 1, "num_attention_heads": 4, "is_decoder": True,
                                "pad_token_id": 1, "max_position_embeddings": 34}),
    ],
)  # fmt: skip
def test_at_the_own_length(name: str, settings: dict[str, Any]) -> None:
    """Layers of all keys and of a window; positions that begin behind that of the padding. The last call has as many
    tokens as the model takes."""
    torch.manual_seed(0)
    kind: Any = getattr(transformers, name)
    model: Any = kind(kind.config_class(hidden_size=32, vocab_size=96, intermediate_size=48, **settings)).eval()
    assert own_context(model) == 32
    tokens = (PROMPT * 3)[:32]
    with export_implementations(model), torch.no_grad():
        function = BundleFunction("main", Decoder(model))
        program = dynamic_program([(function, exported_function(function, context_of(model, None)))])
        wanted = model(torch.tensor([tokens])).logits[0].numpy()
    compared = Comparison([function], [], torch.float32, 32).tokens
    assert (1 in compared) == (name == "GPTNeoForCausalLM"), "padding is not counted"
    states = {name: state.numpy() for name, state in zip(
        function.state_names, function.decoder.states.zeros(32), strict=True)}  # fmt: skip
    done = 0
    for size in (20, 11, 1):
        inputs = {"input_ids": np.array([tokens[done : done + size]], np.int32),
                  "position_ids": np.arange(done + size, dtype=np.int32)[None]}  # fmt: skip
        made = np.asarray(program.run(inputs, state=states)["logits"])[0]
        np.testing.assert_allclose(made, wanted[done : done + size], rtol=0, atol=1e-5 * np.abs(wanted).max())
        done += size
