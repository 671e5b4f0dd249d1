"""GGUF files: the numbers of their blocks, the models that they hold, their tokenizers, and damaged files."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from patcomp_models.checkpoints.agreement import STRICT
from patcomp_models.checkpoints.gguf.blocks import KEPT
from patcomp_models.checkpoints.gguf.header import BLOCKS, StoredTensor, read_header
from patcomp_models.checkpoints.gguf.models import config_of
from patcomp_models.checkpoints.quantized.formats.gguf import GGUF
from patcomp_models.checkpoints.quantized.weight import PackedWeight, Unpacking
from patcomp_models.language import LanguageModelError, convert_language_model
from patcomp_models.language.sources import LanguageSource, language_model_of, source_of

DATA = Path(__file__).parents[2] / "data" / "gguf"
FILES = sorted(file.stem for file in DATA.glob("*.gguf"))
TOKENS = [3, 41, 59, 26, 7]


def _tensor(kind: str) -> StoredTensor:
    number = next(number for number, (name, *_) in BLOCKS.items() if name == kind)
    return StoredTensor(kind, number, (2, 256), load_file(DATA / "blocks.st")[kind].numpy())


@pytest.mark.parametrize("kind", sorted(KEPT))
def test_numbers_of_blocks(kind: str) -> None:
    made = GGUF(1, 1)._part("w", _tensor(kind))
    assert isinstance(made, PackedWeight)
    assert torch.equal(Unpacking(made, torch.float32, "w")(), load_file(DATA / "blocks.st")[f"{kind}.floats"])


def test_what_is_not_kept_is_refused_or_expanded() -> None:
    tensor = _tensor("IQ2_XXS")
    with pytest.raises(
        LanguageModelError, match=r"blk\.0\.ffn_up\.weight is of GGUF's type IQ2_XXS, whose numbers are"
    ):
        GGUF(1, 1)._part("blk.0.ffn_up.weight", tensor)
    made = GGUF(1, 1).expanding()._part("w", tensor)
    assert isinstance(made, torch.Tensor)
    torch.testing.assert_close(made, load_file(DATA / "blocks.st")["IQ2_XXS.floats"], rtol=1e-6, atol=0)


def _source(file: Path) -> LanguageSource:
    return source_of(file, lambda what: nullcontext(), trust_remote_code=False)


@pytest.mark.parametrize("file", FILES)
def test_models(file: str) -> None:
    model, notes = language_model_of(_source(DATA / f"{file}.gguf"), "float32", STRICT, trust_remote_code=False)
    logits, expected = model(torch.tensor([TOKENS])).logits, load_file(DATA / "logits.st")[file]
    torch.testing.assert_close(logits, expected, rtol=0, atol=2e-6 * float(expected.abs().max()))
    assert not notes
    assert not [name for name, weight in model.named_parameters() if weight.dim() > 1 and "mlp.gate" not in name]


def test_a_tokenizer_is_made_of_the_keys() -> None:
    from transformers import AutoTokenizer

    source = _source(DATA / "llama-Q4_0.gguf")
    assert source.folder is not None
    tokenizer = AutoTokenizer.from_pretrained(source.folder)
    tokens = read_header(DATA / "llama-Q4_0.gguf").keys["tokenizer.ggml.tokens"]
    assert tokenizer.convert_ids_to_tokens(tokenizer("AB A")["input_ids"]) == [tokens[2], "AB", tokens[4], "A"]
    assert (tokenizer.bos_token, tokenizer.eos_token) == (tokens[2], tokens[3])


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_bundles(file: str, tmp_path: Path) -> None:
    given = DATA / f"{file}.gguf"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bundle = convert_language_model(given, out=tmp_path / "bundle", tokenizer=False, dtype="float32")
    assert bundle.metadata["compression"] == "GGUF"
    assert bundle.metadata["name"] == file
    assert (bundle.asset / "main.mlirb").stat().st_size <= 1.02 * given.stat().st_size + 2**16
    model, _ = language_model_of(_source(given), "float32", STRICT, trust_remote_code=False)
    tokens = model.generate(torch.tensor([TOKENS]), max_new_tokens=4, do_sample=False, pad_token_id=0)
    assert bundle.generate(TOKENS, 4) == tokens[0, len(TOKENS) :].tolist()


def _replaced(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    assert len(old) == len(new)
    return lambda content: content.replace(old, new, 1)


def _of_type(name: bytes, number: int) -> Callable[[bytes], bytes]:
    def change(content: bytes) -> bytes:
        at = content.index(struct.pack("<Q", len(name)) + name) + 8 + len(name)
        rank = struct.unpack_from("<I", content, at)[0]
        at += 4 + 8 * rank
        return content[:at] + struct.pack("<I", number) + content[at + 4 :]

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda content: content[:10], "is not a GGUF file: it is cut off"),
        (_replaced(b"GGUF", b"GGML"), "is not a GGUF file: it does not begin with GGUF"),
        (lambda content: content[:4] + b"\x01" + content[5:], "is GGUF of version 1; 2 and 3 are read"),
        (lambda content: content[:700], "is cut off: its keys or the list of its tensors end early"),
        (lambda content: content[:-40], r"is cut off: it lacks bytes of (blk\.0|output)"),
        (_of_type(b"blk.0.attn_k.weight", 99), r"blk\.0\.attn_k\.weight is of the type 99, which is not known"),
        (_of_type(b"blk.0.attn_k.weight", 12), r"attn_k\.weight has 64 inputs, which are no blocks of Q4_K"),
        (_of_type(b"blk.0.attn_k.weight", 24), r"is damaged: blk\.0\.attn_v\.weight is in the place of another"),
        (_replaced(b"blk.0.attn_k.weight", b"blk.0.attn_x.weight"), r"unexpected blk\.0\.attn_x\.weight"),
        (_replaced(b"blk.0.ffn_norm.weight", b"blk.9.ffn_norm.weight"), r"unexpected model\.layers\.9\.post_attention"),
        (_replaced(b"token_embd.weight", b"token_embx.weight"), r"lacks token_embd\.weight, the table of embeddings"),
        (_replaced(b"llama.block_count", b"llama.block_counx"), r"the file lacks the key llama\.block_count"),
        (_replaced(b"general.architecture\x08\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00llama",
                   b"general.architecture\x08\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00bloom"),
         "holds a model of the architecture 'bloom' of GGUF; llama, mistral"),
    ],
)  # fmt: skip
def test_bad_files(change: Callable[[bytes], bytes], said: str, tmp_path: Path) -> None:
    content = (DATA / "llama-Q4_0.gguf").read_bytes()
    changed = change(content)
    assert changed != content
    (tmp_path / "bad.gguf").write_bytes(changed)
    with pytest.raises(LanguageModelError, match=said) as raised:
        convert_language_model(tmp_path / "bad.gguf", out=tmp_path / "bundle", tokenizer=False, dtype="float32")
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "bundle").exists()


def test_rotary_embeddings() -> None:
    def rotary(**keys: Any) -> dict[str, Any]:
        header = read_header(DATA / "llama-Q4_0.gguf")
        given = {**header.keys, **{f"llama.{key.replace('__', '.')}": value for key, value in keys.items()}}
        found: dict[str, Any] = config_of(type(header)(given, header.tensors))["rope_parameters"]
        return found

    assert rotary()["rope_type"] == "default"
    assert rotary(rope__scaling__type="linear", rope__scaling__factor=8.0)["factor"] == 8.0
    yarn = rotary(rope__scaling__type="yarn", rope__scaling__factor=4.0, rope__scaling__original_context_length=64)
    assert (yarn["rope_type"], yarn["original_max_position_embeddings"]) == ("yarn", 64)
    assert rotary(rope__dimension_count=8)["partial_rotary_factor"] == 0.25
    with pytest.raises(LanguageModelError, match="scales rotary embeddings by 'su'; linear, yarn and factors are read"):
        rotary(rope__scaling__type="su")
