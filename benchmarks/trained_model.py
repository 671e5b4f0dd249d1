"""A small language model that is trained here, because the loss of random weights says nothing about rounding.

It has the architecture of Llama, reads bytes, and learns the docstrings of Python packages that are installed.
"""

from __future__ import annotations

import ast
import math
import random
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.models import declare_torchvision_operators

LENGTH, BATCH = 192, 16
_SHORTEST = 80
"""The characters of a docstring that is worth learning."""
_PACKAGES = ("torch/nn", "torch/optim", "numpy", "sympy", "networkx", "transformers/models/llama")


def texts() -> tuple[bytes, bytes]:
    """The docstrings to train with, and those of every twentieth file to measure with."""
    parts: tuple[list[str], list[str]] = [], []
    seen: set[str] = set()
    for number, file in enumerate(_files()):
        for node in ast.walk(ast.parse(file.read_text(errors="ignore"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
                text = ast.get_docstring(node) or ""
                if len(text) > _SHORTEST and text not in seen:
                    seen.add(text)
                    parts[number % 20 == 7].append(text)
    train, held_out = ("\n\n".join(part).encode("ascii", "ignore") for part in parts)
    return train, held_out


def _files() -> Iterator[Path]:
    """The files of the standard library and of some packages, in a fixed order."""
    yield from sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    for package in _PACKAGES:
        for file in sorted(Path(sysconfig.get_path("purelib"), package).rglob("*.py")):
            if "tests" not in file.parts:
                yield file


def trained(steps: int = 450, seed: int = 0) -> Any:
    """A Llama of 853,120 parameters after some steps of AdamW; 450 take about two minutes on one core."""
    declare_torchvision_operators()  # which transformers imports
    from transformers import LlamaConfig, LlamaForCausalLM

    draw = random.Random(seed)
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=256, hidden_size=128, intermediate_size=384, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, head_dim=32, max_position_embeddings=512, tie_word_embeddings=False,
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    model = LlamaForCausalLM(config).train()
    data = torch.frombuffer(bytearray(texts()[0]), dtype=torch.uint8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1)
    for step in range(steps):
        rate = 3e-3 * min(1, (step + 1) / 60) * (0.05 + 0.475 * (1 + math.cos(math.pi * step / steps)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        starts = [draw.randrange(len(data) - LENGTH - 1) for _ in range(BATCH)]
        batch = torch.stack([data[start : start + LENGTH + 1] for start in starts]).long()
        logits = model(batch[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, 256), batch[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model.eval()


def folder(place: Path, steps: int = 450) -> Path:
    """A folder of the trained model, with a tokenizer of bytes, and the texts `train.txt` and `held_out.txt`."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer = Tokenizer(models.BPE({character: byte for byte, character in enumerate(_by_byte(alphabet))}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    trained(steps).save_pretrained(place)
    tokenizer.save(str(place / "tokenizer.json"))
    for name, text in zip(("train.txt", "held_out.txt"), texts(), strict=True):
        (place / name).write_bytes(text)
    return place


def _by_byte(alphabet: list[str]) -> list[str]:
    """The characters that stand for bytes in GPT-2's alphabet, by the byte."""
    own = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = iter(range(256, 512))
    characters = [chr(byte) if byte in own else chr(next(others)) for byte in range(256)]
    assert sorted(characters) == sorted(alphabet)
    return characters


if __name__ == "__main__":
    import sys

    print(folder(Path(sys.argv[1])))
