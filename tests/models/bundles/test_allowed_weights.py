"""Weights of components that differ from those of their models: refused, unless the user allows them by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from patcomp.errors import ConversionWarning
from patcomp_models.bundles import convert_bundle, folder_to_bundle
from patcomp_models.bundles.loading import allowed_now, allowing, model_of
from patcomp_models.checkpoints.agreement import STRICT, Allowed
from patcomp_models.errors import BundleError

NORM = "final_layer_norm.weight"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text encoder with a weight too many, and without another one."""
    import transformers

    folder = tmp_path_factory.mktemp("encoder")
    config = transformers.CLIPTextConfig(
        hidden_size=16, intermediate_size=24, num_attention_heads=2, num_hidden_layers=1, vocab_size=50
    )
    transformers.CLIPTextModel(config).save_pretrained(folder)
    weights = load_file(folder / "model.safetensors")
    (lacking,) = (name for name in weights if name.endswith(NORM))
    del weights[lacking]
    save_file({**weights, "head.more": torch.ones(2)}, folder / "model.safetensors", {"format": "pt"})
    return folder


def test_weights_are_allowed_by_name(saved: Path) -> None:
    def load() -> Any:
        return model_of(saved, "transformers", "CLIPTextModel", "float32")

    with pytest.raises(BundleError, match=rf"missing .*{NORM}; unexpected head.more; .*--allow-missing"):
        load()
    with allowing(Allowed((), ("head.*",))), pytest.raises(BundleError, match=r"missing .*allow_missing=") as raised:
        load()
    assert "head.more" not in str(raised.value)
    found = pytest.warns(ConversionWarning, match="are left out: head.more")
    with allowing(Allowed((f"*{NORM}",), ("head.*",))), found:
        model = load()
    assert sum(each.numel() for each in model.parameters()) > 0
    assert allowed_now() == STRICT


def test_all_kinds_take_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Allowed] = []

    class Small:
        default_dtype = "float32"

        @classmethod
        def options(cls) -> dict[str, Any]:
            return {}

        @classmethod
        def of(cls, folder: Path, dtype: str, options: dict[str, Any]) -> Small:
            assert options == {}
            return cls()

        def convert(self, chosen: Any) -> None:
            seen.append(allowed_now())

    monkeypatch.setattr(folder_to_bundle, "bundle_kind", lambda folder, kind: Small)
    convert_bundle(tmp_path, out=tmp_path / "out", allow_missing="a", allow_unexpected=["b.*"])
    assert seen == [Allowed(("a",), ("b.*",))]
    with pytest.raises(BundleError, match="allow_missing is 3, and must be a text or a list, each of it a text"):
        convert_bundle(tmp_path, out=tmp_path / "out", allow_missing=3)


def test_pickled_weights_are_not_read(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((saved / "config.json").read_bytes())
    torch.save(load_file(saved / "model.safetensors"), tmp_path / "pytorch_model.bin")
    with pytest.raises(BundleError, match=r"\(pytorch_model.bin\), and only safetensors are read; save the checkpoint"):
        model_of(tmp_path, "transformers", "CLIPTextModel", "float32")
