"""Small models that recognise speech, with random weights, as folders with their processors."""

from __future__ import annotations

import json
import string
import wave
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

RATE = 16000


def sound(count: int = 20000) -> np.ndarray:
    """A tone that rises, with noise, (count,)."""
    time = np.arange(count) / RATE
    noise = np.random.default_rng(0).standard_normal(count)
    return (0.4 * np.sin(600 * np.pi * time * (1 + time)) + 0.05 * noise).astype(np.float32)


def write_wave(file: Path, samples: np.ndarray, rate: int = RATE) -> Path:
    """Samples as a file of 16 bits."""
    with wave.open(str(file), "wb") as opened:
        opened.setparams((1, 2, rate, 0, "NONE", ""))
        opened.writeframes((samples * 32767).astype("<i2").tobytes())
    return file


def drawn_model(model: Any) -> Any:
    """A model whose outputs vary."""
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.normal_(0, max(weight[0].numel(), 8) ** -0.5, generator=draw)
            else:
                weight.add_(torch.randn(weight.shape, generator=draw) * 0.1)
    return model.eval()


def save(folder: Path, *parts: Any) -> Path:
    for part in parts:
        part.save_pretrained(folder)
    return folder


def whisper(folder: Path, bins: int = 128, **told: Any) -> Path:
    """Whisper for two languages, which writes at most 24 tokens.

    Args:
        folder: of the model.
        bins: of spectra.
        told: further settings of its generation; with some, the model also writes times.
    """
    from tokenizers.pre_tokenizers import ByteLevel

    end, start, silent = "<|endoftext|>", "<|startoftranscript|>", "<|notimestamps|>"
    special = [start, "<|en|>", "<|de|>", "<|translate|>", "<|transcribe|>", silent]
    special += [f"<|{number / 50:.2f}|>" for number in range(1501)] if told else []
    vocabulary = {letter: number for number, letter in enumerate(sorted(ByteLevel.alphabet()))}
    tokenizer = transformers.WhisperTokenizer(
        vocab=vocabulary, merges=[], additional_special_tokens=special, unk_token=end, bos_token=end, eos_token=end
    )
    ids = {name: tokenizer.convert_tokens_to_ids(name) for name in (end, *special)}
    tokens = {"pad_token_id": ids[end], "bos_token_id": ids[end], "eos_token_id": ids[end],
              "decoder_start_token_id": ids[start]}  # fmt: skip
    torch.manual_seed(0)
    model = drawn_model(transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(
        vocab_size=len(tokenizer), d_model=16, encoder_layers=1, decoder_layers=2, encoder_attention_heads=1,
        decoder_attention_heads=2, encoder_ffn_dim=24, decoder_ffn_dim=24, num_mel_bins=bins, **tokens,
    )))  # fmt: skip
    with torch.no_grad():  # the next token depends on the places, so that it is not always the same
        model.model.decoder.embed_positions.weight.normal_(0, 1)
        model.model.decoder.embed_tokens.weight.normal_(0, 0.5)
    model.generation_config = transformers.GenerationConfig(
        **tokens, is_multilingual=True, lang_to_id={name: ids[name] for name in ("<|en|>", "<|de|>")},
        task_to_id={name: ids[f"<|{name}|>"] for name in ("translate", "transcribe")}, max_length=24,
        no_timestamps_token_id=ids[silent], suppress_tokens=[3, 5], begin_suppress_tokens=[220, ids[end]],
        return_timestamps=False, **told,
    )  # fmt: skip
    return save(folder, model, transformers.WhisperFeatureExtractor(feature_size=bins), tokenizer)


WORDS = ["<unk>", "<pad>", *(f"▁{letter}" for letter in string.ascii_lowercase), *string.ascii_lowercase, "<blank>"]
"""The tokens of transducers; the blank is the last one."""


def letters_tokenizer(pad: str) -> Any:
    """The tokenizer of `WORDS`."""
    from tokenizers import Tokenizer, decoders, models

    pieces = Tokenizer(models.BPE({word: number for number, word in enumerate(WORDS)}, [], unk_token="<unk>"))
    pieces.decoder = decoders.Metaspace()
    return transformers.ParakeetTokenizer(tokenizer_object=pieces, unk_token="<unk>", pad_token=pad)


def parakeet(folder: Path, name: str = "ParakeetForTDT") -> Path:
    """Parakeet with one of its heads; the blank is the last token."""
    is_ctc, count = name == "ParakeetForCTC", len(WORDS)
    tokenizer = letters_tokenizer("<blank>" if is_ctc else "<pad>")
    encoder = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48,
               "subsampling_conv_channels": 8, "num_mel_bins": 128}  # fmt: skip
    own = {} if is_ctc else {"decoder_hidden_size": 24, "num_decoder_layers": 2, "blank_token_id": count - 1}
    kind = getattr(transformers, name)
    torch.manual_seed(0)
    model = drawn_model(kind(kind.config_class(
        vocab_size=count, encoder_config=encoder, pad_token_id=count - 1 if is_ctc else 1, **own
    )))  # fmt: skip
    if not is_ctc:
        model.generation_config.decoder_start_token_id = count - 1
    if name == "ParakeetForTDT":
        with torch.no_grad():  # `generate` takes the most probable of tokens and durations together as the token
            model.joint.head.bias[count:] -= 20
    return save(folder, model, transformers.ParakeetFeatureExtractor(feature_size=128), tokenizer)


CONVOLUTIONS = {"conv_dim": (16,) * 3, "conv_kernel": (10, 3, 2), "conv_stride": (5, 4, 4)}
CTC: dict[str, dict[str, Any]] = {
    "Wav2Vec2ForCTC": {},
    "HubertForCTC": {"feat_extract_norm": "layer", "do_stable_layer_norm": True},
    "WavLMForCTC": {},
    "Data2VecAudioForCTC": {"conv_pos_kernel_size": 3},
    "UniSpeechForCTC": {},
    "UniSpeechSatForCTC": {},
    "SEWForCTC": {"squeeze_factor": 2},
    "SEWDForCTC": {},
    "Wav2Vec2ConformerForCTC": {},
    "Wav2Vec2BertForCTC": {"feature_projection_input_dim": 160},
    "LasrForCTC": {"encoder_config": {
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48,
        "subsampling_conv_channels": 8, "conv_kernel_size": 8,
    }},
}  # fmt: skip


def ctc(folder: Path, name: str) -> Path:
    """A model with a head for CTC and letters as tokens."""
    words = ["<pad>", "<s>", "</s>", "<unk>", "|", *string.ascii_lowercase]
    folder.mkdir(parents=True)
    (folder / "vocab.json").write_text(json.dumps({word: number for number, word in enumerate(words)}))
    kind, positions = getattr(transformers, name), {"num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4}
    shared = {} if "Bert" in name or "Lasr" in name else {**CONVOLUTIONS, **positions}
    torch.manual_seed(0)
    model = drawn_model(kind(kind.config_class(
        vocab_size=len(words), hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48,
        pad_token_id=0, **shared, **CTC[name],
    )))  # fmt: skip
    extractor = (
        transformers.SeamlessM4TFeatureExtractor() if "Bert" in name
        else transformers.LasrFeatureExtractor() if "Lasr" in name
        else transformers.Wav2Vec2FeatureExtractor(do_normalize=True)
    )  # fmt: skip
    return save(folder, model, transformers.Wav2Vec2CTCTokenizer(str(folder / "vocab.json")), extractor)


def moonshine(folder: Path) -> Path:
    """Moonshine, which writes at most 12 tokens."""
    from tokenizers import Tokenizer, decoders, models

    words = ["<unk>", "<s>", "</s>", *string.ascii_lowercase]
    pieces = Tokenizer(models.BPE({word: number for number, word in enumerate(words)}, [], unk_token="<unk>"))
    pieces.decoder = decoders.Fuse()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=pieces, bos_token="<s>", eos_token="</s>")
    torch.manual_seed(0)
    model = drawn_model(transformers.MoonshineForConditionalGeneration(transformers.MoonshineConfig(
        vocab_size=len(words), hidden_size=32, intermediate_size=48, encoder_num_hidden_layers=1,
        decoder_num_hidden_layers=2, encoder_num_attention_heads=4, decoder_num_attention_heads=4,
        max_position_embeddings=64, tie_word_embeddings=False,  # tied, each token would be followed by itself
    )))  # fmt: skip
    with torch.no_grad():  # the next token depends on the one before, so that it is not always the same
        model.model.decoder.embed_tokens.weight.normal_(0, 2)
        model.proj_out.weight.normal_(0, 1)
    model.generation_config.max_length = 13
    return save(folder, model, transformers.Wav2Vec2FeatureExtractor(do_normalize=False), tokenizer)
