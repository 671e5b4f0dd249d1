"""Checkpoints by their id on the hub, with a stand-in for the download: there is no hub in tests."""

from __future__ import annotations

import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest

from patcomp.commands.convert import _default_output
from patcomp.commands.subjects import is_on_the_hub
from patcomp_models.checkpoints.hub import checkpoint_of, is_hub_id
from patcomp_models.language import LanguageModelError, convert_language_model
from tests.models.language.checkpoints import folder


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A hub with one checkpoint; the calls of the download."""
    stored, calls = folder(tmp_path / "cache/snapshots/0123abc"), []

    def download(identifier: str, **options: Any) -> str:
        calls.append({"id": identifier, **options})
        if identifier != "someone/tiny-llama":
            raise huggingface_hub.errors.LocalEntryNotFoundError("the hub cannot be reached\n\nand so on")
        return str(stored)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    monkeypatch.chdir(tmp_path)
    return calls


def test_a_bundle_of_an_id(hub: list[dict[str, Any]], tmp_path: Path) -> None:
    bundle = convert_language_model("someone/tiny-llama", out=tmp_path / "bundle", max_context=64, check=False)
    assert bundle.asset.name == "tiny-llama.aimodel"
    metadata = bundle.metadata
    assert (metadata["name"], metadata["language"]["tokenizer"]) == ("tiny-llama", "someone/tiny-llama")
    assert metadata["source"]["hf_model_id"] == "someone/tiny-llama"
    (call,) = hub
    for name in ("tokenizer_of_mine.py", "pytorch_model.bin", "tokenizer.pkl", "weights.pt"):
        assert not any(fnmatch(name, pattern) for pattern in call["allow_patterns"]), name
    assert not [pattern for pattern in call["allow_patterns"] if pattern.endswith((".py", ".bin", ".pt", ".pth"))]


def test_code_is_downloaded_if_it_is_trusted(hub: list[dict[str, Any]]) -> None:
    checkpoint_of("someone/tiny-llama", trust_remote_code=True)
    assert "*.py" in hub[0]["allow_patterns"]


def test_offline(hub: list[dict[str, Any]], tmp_path: Path) -> None:
    with pytest.raises(LanguageModelError, match=r"no folder 'someone/else'.*: the hub cannot be reached; give the"):
        convert_language_model("someone/else", out=tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()


def test_what_an_id_is(hub: list[dict[str, Any]], tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    for name, expected in (
        ("someone/tiny", True), ("Qwen/Qwen2.5-0.5B", True), ("models/tiny", False), ("tiny", False), ("/a/b", False),
        ("../a", False), ("a/b/c", False), (Path("someone/tiny"), False),
    ):  # fmt: skip
        assert is_hub_id(name) is expected, name
    assert not is_on_the_hub("missing/net.pt2")
    assert not is_on_the_hub("missing/file.py:net")
    assert _default_output("Qwen/Qwen2.5-0.5B") == Path("Qwen2.5-0.5B.aimodel")
    assert _default_output("a.b/nets.py:mlp") == Path("a.b/nets-mlp.aimodel")
    assert _default_output("net.pt2") == Path("net.aimodel")
    assert checkpoint_of("models").folder == Path("models")
    assert hub == []
    shutil.rmtree(tmp_path / "models")


WITHOUT = """
import sys
sys.modules["transformers"] = None
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "transformers" else found(name, *rest)
sys.argv = ["patcomp", *{arguments!r}]
from patcomp.__main__ import main
main()
"""


@pytest.mark.parametrize("arguments", [
    ["convert", "someone/tiny"], ["convert-lm", "someone/tiny", "-o", "bundle"],
])  # fmt: skip
def test_without_transformers(arguments: list[str], tmp_path: Path) -> None:
    code = WITHOUT.format(arguments=arguments)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 1
    assert 'needs transformers: pip install "patcomp[models]"' in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
