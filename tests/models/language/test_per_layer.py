"""Per-layer embeddings outside of the asset: a file that is mapped, and rows of it as an input."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from patcomp import load
from patcomp.errors import ConversionWarning
from patcomp_models.checkpoints.loading import export_implementations
from patcomp_models.language import LanguageModelError, check_bundle, compress_bundle, convert_language_model
from patcomp_models.language.contract import OUTSIDE, PER_LAYER, TABLE_FILE
from patcomp_models.language.decoder import Decoder
from patcomp_models.language.per_layer import (
    PerLayerDecoder,
    PerLayerTable,
    Rows,
    described_table,
    outside,
    write_table,
)
from tests.models.language.checkpoints import PROMPT, checkpoint, generated

KINDS = ("gemma3n_text", "gemma4_text")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_bundles(kind: str, tmp_path: Path) -> None:
    """The tokens are the model's, the asset has no table, and the model is as it was."""
    model: Any = checkpoint(kind)
    table = model.model.embed_tokens_per_layer
    options: dict[str, Any] = {"dtype": "float32", "max_context": 64}
    with pytest.warns(ConversionWarning, match=OUTSIDE):
        bundle = convert_language_model(
            model, out=tmp_path / "bundle", embeddings="outside", prefill=5, verify=3, hidden=True, **options
        )
    assert model.model.embed_tokens_per_layer is table
    tokens = generated(model, PROMPT, 9)
    assert bundle.generate(PROMPT, 9) == tokens
    assert bundle.generate(PROMPT, 9, draft=lambda known, count: [*tokens, 5, 5, 5, 5][len(known) - 12 :]) == tokens
    assert torch.equal(load_file(bundle.path / TABLE_FILE)[PER_LAYER], table.weight)
    assert OUTSIDE in bundle.metadata["notes"]
    problems = [each.message for each in check_bundle(bundle.path)]
    assert OUTSIDE in problems
    assert all("COREAI_CHUNK" in each or "float16" in each or "states" in each for each in problems if each != OUTSIDE)
    plain = convert_language_model(model, out=tmp_path / "plain", check=False, **options)
    sizes = [sum(len(blob.data) for blob in load(each.asset).module.blobs) for each in (plain, bundle)]
    assert sizes[0] - sizes[1] >= 0.9 * table.weight.nbytes
    small = compress_bundle(bundle.path, {"scheme": "w8", "threshold": 256}, out=tmp_path / "small")
    assert len(small.generate(PROMPT, 3)) == 3
    by_text = compress_bundle(bundle.path, {"scheme": "w8", "threshold": 256}, out=tmp_path / "b", calibrate=PROMPT * 3)
    assert len(by_text.generate(PROMPT, 3)) == 3
    (bundle.path / TABLE_FILE).write_bytes(b"")
    assert any("has 0 bytes" in each.message for each in check_bundle(bundle.path))


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_the_tables(kind: str) -> None:
    """Given as a caller reads them, also behind the table, and in calls that continue each other."""
    model: Any = checkpoint(kind)
    tokens = torch.tensor([PROMPT])
    count = len(PROMPT)
    with torch.no_grad(), export_implementations(model):
        plain = Decoder(model)
        wanted = plain(tokens, torch.arange(count)[None], *plain.states.zeros(count))
        with outside(model) as rows:
            decoder, made = PerLayerDecoder(model, rows), []
            states = decoder.states.zeros(count)
            for start, end in ((0, 7), (7, count)):
                given = torch.from_numpy(decoder.fed(tokens[:, start:end].numpy())[PER_LAYER])
                made.append(decoder(tokens[:, start:end], torch.arange(end)[None], given, *states))
                wrong = decoder(tokens[:, start:end], torch.arange(end)[None], 0 * given, *decoder.states.zeros(count))
                assert not torch.allclose(wrong, made[-1], atol=1e-3)
    torch.testing.assert_close(torch.cat(made, 1), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_the_file(dtype: torch.dtype, tmp_path: Path) -> None:
    weight = torch.randn(7, 6, generator=torch.Generator().manual_seed(0)).to(dtype)
    write_table(tmp_path / TABLE_FILE, weight)
    described = described_table(weight)
    assert torch.equal(load_file(tmp_path / TABLE_FILE)[PER_LAYER], weight)
    found = PerLayerTable(tmp_path, described).fed(np.array([[3, 0, 9]]))[PER_LAYER]
    assert found.dtype == (ml_dtypes.bfloat16 if dtype == torch.bfloat16 else str(dtype).removeprefix("torch."))
    np.testing.assert_array_equal(found.astype(np.float32), weight[torch.tensor([[3, 0, 0]])].float().numpy())
    with pytest.raises(LanguageModelError, match="a table of 8 x 6 of"):
        PerLayerTable(tmp_path, {**described, "rows": 8})
    shutil.rmtree(tmp_path)
    with pytest.raises(LanguageModelError, match=f"has no {re.escape(TABLE_FILE)}"):
        PerLayerTable(tmp_path, described)


def test_what_cannot_be_outside(tmp_path: Path) -> None:
    with pytest.raises(LanguageModelError, match="LlamaForCausalLM has no table of per-layer embeddings"):
        convert_language_model(checkpoint("llama"), out=tmp_path / "bundle", max_context=64, embeddings="outside")
    for options in ({"embeddings": "out"}, {"embeddings": "outside", "target": "neural_engine"}):
        with pytest.raises(LanguageModelError, match="embeddings= is 'inside' or 'outside'"):
            convert_language_model(checkpoint("llama"), out=tmp_path / "bundle", **options)

    class Shifted(nn.Embedding):
        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return super().forward(tokens) + 1

    with pytest.raises(LanguageModelError, match="Shifted does more with its rows than to scale them"):
        Rows(Shifted(4, 3))
    assert list(tmp_path.iterdir()) == []
