"""Chronos-Bolt and Chronos-2 of their own package, where it is installed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from patcomp.emit.native import Native
from patcomp.errors import PatcompError
from patcomp_models.tasks import convert_folder
from tests.models.tasks.comparing import runs
from tests.models.tasks.folders import draw

_SHARED: dict[str, Any] = {
    "context_length": 32, "input_patch_size": 4, "input_patch_stride": 4, "quantiles": [0.1, 0.5, 0.9],
    "use_reg_token": True,
}  # fmt: skip


def model_of(name: str) -> Any:
    """A small model with drawn weights."""
    import transformers

    chronos = pytest.importorskip("chronos")
    torch.manual_seed(0)
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2}
    if name == "bolt":
        config = transformers.T5Config(**sizes, decoder_start_token_id=0, pad_token_id=0)
        config.chronos_config = {**_SHARED, "prediction_length": 8}
        return draw(chronos.chronos_bolt.ChronosBoltModelForForecasting(config).eval())
    own = {**_SHARED, "output_patch_size": 4, "use_arcsinh": True, "max_output_patches": 3}
    return draw(chronos.Chronos2Model(chronos.chronos2.config.Chronos2CoreConfig(**sizes, chronos_config=own)).eval())


@pytest.mark.parametrize("name", ["bolt", "chronos2"])
def test_chronos(name: str, tmp_path: Path, native: Native) -> None:
    """A shorter series, of which some values are missing."""
    model = model_of(name)
    model.save_pretrained(tmp_path / "model")
    program = convert_folder(tmp_path / "model")
    generator = torch.Generator().manual_seed(1)
    values, observed = torch.randn(1, 32, generator=generator).cumsum(1), torch.rand(1, 32, generator=generator) > 0.2
    observed[:, :9] = False
    options = {} if name == "bolt" else {"num_output_patches": 3}
    with torch.no_grad():
        wanted = model(torch.where(observed, values, torch.nan)[:, 8:], **options).quantile_preds
    for found in runs(program, native, "main", {"past_values": values, "past_observed_mask": observed}):
        torch.testing.assert_close(found["quantile_preds"], wanted, rtol=1e-5, atol=1e-5)
    assert wanted.std() > 0.1


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["Chronos2Model"], "model_type": "t5"}')
    monkeypatch.setitem(sys.modules, "chronos", None)
    with pytest.raises(PatcompError, match="Chronos2Model needs the package chronos, which cannot be used"):
        convert_folder(tmp_path)
