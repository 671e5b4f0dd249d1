"""Language models that hear write what `generate` of transformers writes."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import save_file
from transformers.audio_utils import mel_filter_bank, spectrogram, window_function

from patcomp.errors import ConversionWarning, PatcompError
from patcomp_models.bundles import check_bundle, convert_bundle, transcribe
from patcomp_models.bundles.hearing.functions import TokenTable
from patcomp_models.bundles.hearing.rows import HEARING_MODELS
from patcomp_models.bundles.loading import merged_model
from patcomp_models.checkpoints.own_extractors import GraniteSpeechFeatureExtractor, mel_spectrogram
from patcomp_models.language import Bundle
from patcomp_models.language.hearing import (
    FRAME_MASK,
    HEARD,
    NOISE,
    NOISE_SCALE,
    READ,
    SAMPLES,
    WINDOW,
    features_of_sound,
    heard_prompt,
    sound_windows,
)
from patcomp_models.language.vision.pictures import loaded_processor
from tests.models.bundles.hearing_models import BESIDE, HEARING, PLACE, hearing
from tests.models.bundles.speech_models import drawn_model, sound

_PROMPT = f"ab{PLACE}cd"
_NEW = 8


def _asked(name: str, folder: Path, count: int) -> dict[str, Any]:
    """What the processor makes of a recording and a prompt; that of Voxtral needs another package for prompts."""
    if name == "VoxtralRealtime":
        extractor = transformers.VoxtralRealtimeFeatureExtractor.from_pretrained(folder)
        read = extractor([sound(600000)[-count // 1280 * 1280 :]], center=True, return_tensors="pt")[READ]
        return {"input_ids": torch.tensor([[0, 5, 6, 7]]), READ: read[:, :, : read.shape[2] // 8 * 8]}
    if name == "KyutaiSpeechToText":
        extractor = transformers.AutoFeatureExtractor.from_pretrained(folder)
        return {"input_ids": torch.tensor([[0]]), SAMPLES: extractor(sound(count // 50), return_tensors="pt")[SAMPLES]}
    processor = loaded_processor(folder)
    if name == "Voxtral":
        options = {key: value for key, value in processor.audio_kwargs.items() if key != "max_source_positions"}
        read = processor._retrieve_input_features([sound(count)], 3000, **options)
        return {"input_ids": torch.tensor([[3, 4, *[processor.audio_token_id] * 375 * len(read), 7]]), READ: read}
    made = processor(text=[_PROMPT], audio=[sound(count)], return_tensors="pt")
    return {key: value for key, value in made.items() if key not in ("num_audio_tokens", "audio_embed_sizes")}


@pytest.mark.parametrize(
    "name",
    ["Qwen3ASR", *(pytest.param(each, marks=pytest.mark.slow) for each in HEARING
                   if each not in ("Qwen3ASR", "FunAsrNano", "MossTranscribeDiarize"))],
)  # fmt: skip
def test_the_tokens_are_those_of_generate(name: str, tmp_path: Path) -> None:
    """For recordings of different lengths, of which the last has several windows where it fits into the context."""
    pytest.importorskip("coreai")
    folder = hearing(tmp_path / "model", name)
    out = convert_bundle(folder, out=tmp_path / "out", dtype="float32", max_context=1024)
    assert check_bundle(out) == ()
    model = getattr(transformers, f"{name}ForConditionalGeneration").from_pretrained(folder).eval()
    bundle, written = Bundle(out), set()
    new = 80 if name in BESIDE else _NEW  # the recording is over before
    for count in (20000, 50000, 600000):
        asked = _asked(name, folder, count)
        tokens = asked["input_ids"][0].tolist()
        if len(tokens) + new > 1024:
            continue
        torch.manual_seed(count)  # of the noise of VibeVoice
        wanted = model.generate(**asked, max_new_tokens=new, do_sample=False)[0, len(tokens) :].tolist()
        torch.manual_seed(count)
        assert bundle.generate(tokens, new, audio=asked) == wanted
        torch.manual_seed(count)
        if name not in ("Voxtral", *BESIDE):
            assert bundle.generate(_PROMPT, new, audio=sound(count)) == wanted
        written.add(tuple(wanted))
    assert len(written) > 1
    if name == "KyutaiSpeechToText":
        asked = _asked(name, folder, 20000)
        assert transcribe(out, sound(400)).tokens == model.generate(**asked)[0, 1:].tolist()
    if name == "GlmAsr":
        request = transformers.AutoProcessor.from_pretrained(folder).apply_transcription_request(audio=[sound()])
        wanted = model.generate(**request)[0, request["input_ids"].shape[1] :]
        assert transcribe(out, sound()).tokens == [token for token in wanted.tolist() if token != 1]


@pytest.mark.parametrize("name", ["FunAsrNano", "MossTranscribeDiarize"])
def test_an_encoder_alone(name: str) -> None:
    """With frames of padding behind those of the recording; the first extractor needs torchaudio."""
    kind = getattr(transformers, f"{name}ForConditionalGeneration")
    torch.manual_seed(0)
    model = kind(kind.config_class(**HEARING[name], audio_token_id=40)).eval()
    model.set_attn_implementation("sdpa")
    row = HEARING_MODELS[kind.__name__]
    frames, bins = row.frames(model.config), row.bins(model.config)
    read, mask = torch.randn(1, bins, frames), (torch.arange(frames) < 40).long()[None]
    with torch.no_grad():
        if name == "FunAsrNano":
            read = read.transpose(1, 2)
            wanted = model.model.get_audio_features(read[:, :40], mask[:, :40]).pooler_output
            made = row.encoder(model, row)(read * mask[..., None], mask.bool())
        else:
            wanted = model.model.get_audio_features(read, mask, None).pooler_output
            made = row.encoder(model, row)(read)
    assert torch.allclose(made[0, : len(wanted)], wanted, atol=1e-6)
    assert wanted.abs().max() > 1e-3
    assert len(wanted) == (40 if name == "FunAsrNano" else 5)


@pytest.mark.parametrize("name", ["GraniteSpeech", "GraniteSpeechPlus"])
def test_an_encoder_with_blocks_takes_any_length(name: str) -> None:
    """Of less than a block, of whole blocks, and of one frame more."""
    kind = getattr(transformers, f"{name}ForConditionalGeneration")
    torch.manual_seed(0)
    model = drawn_model(kind(kind.config_class(**HEARING[name])))
    row = HEARING_MODELS[kind.__name__]
    recordings = [torch.randn(1, count, 160) for count in (2, 15, 39, 40, 41, 80, 121)]
    with torch.no_grad():
        wanted = [model.model.get_audio_features(each).pooler_output for each in recordings]
        encoder = row.encoder(model, row)  # it exchanges modules of the model
        made = [encoder(each) for each in recordings]
    for own, theirs in zip(made, wanted, strict=True):
        assert own.shape == theirs.shape
        assert torch.allclose(own, theirs, atol=1e-5)
    assert not torch.allclose(made[0], made[1], atol=1e-2)


def test_the_noise_is_the_one_that_generate_draws() -> None:
    torch.manual_seed(0)
    config = transformers.VibeVoiceAsrConfig(**HEARING["VibeVoiceAsr"], audio_token_id=40)
    model = drawn_model(transformers.VibeVoiceAsrForConditionalGeneration(config))
    samples, audio = torch.randn(1, 1, 6400), {"read": SAMPLES, "axis": 2, "frames": None, "mask": "", "step": 3200}
    encoder = HEARING_MODELS[type(model).__name__].encoder(model, HEARING_MODELS[type(model).__name__])
    torch.manual_seed(5)
    audio |= {"further": [*encoder.further], "noise_width": 8, "audio_token_id": 40}
    _, ((window,),) = heard_prompt(Path(), audio, [40, 40], [{SAMPLES: samples}])
    made = [torch.from_numpy(window[name]) for name in (SAMPLES, NOISE_SCALE, NOISE)]
    with torch.no_grad():
        torch.manual_seed(5)
        wanted = model.get_audio_features(samples).pooler_output
        assert torch.allclose(encoder(*made), wanted, atol=1e-5)
        assert not torch.allclose(encoder(made[0], made[1], 0 * made[2]), wanted, atol=1e-2)


def test_windows_have_their_places_and_the_text_its_delay() -> None:
    read = np.zeros((2, 2, 4), np.float32)
    audio = {**_AUDIO, "mask": "", "further": [WINDOW], "audio_token_id": 9}
    tokens, (windows,) = heard_prompt(Path(), audio, [1, 9, 9, 2], [{READ: read}])
    assert [each[WINDOW].tolist() for each in windows] == [[0], [1]]
    _, recordings = heard_prompt(Path(), audio, [9, 1, 9], [{READ: read}])
    assert [each[WINDOW].tolist() for (each,) in recordings] == [[0], [0]]
    with pytest.raises(PatcompError, match="the text comes 4 tokens behind the sound, and the bundle is for 6"):
        heard_prompt(Path(), {**audio, "delay": 6}, tokens, [{READ: read, "num_delay_tokens": 4}])


def test_the_token_of_sound_may_be_outside_of_the_table() -> None:
    model = transformers.GraniteSpeechForConditionalGeneration(
        transformers.GraniteSpeechConfig(**{**HEARING["GraniteSpeech"], "audio_token_index": 900})
    )
    assert torch.equal(
        TokenTable(model)(torch.tensor([[3, 900]])), model.get_input_embeddings()(torch.tensor([[3, 0]]))
    )


@pytest.mark.parametrize("told", [{}, {"audio_window_size": 1}, {"audio_window_size": 1, "codec_use_cache": True}])
def test_the_codes_are_those_that_generate_reads(told: dict[str, Any], tmp_path: Path) -> None:
    folder = hearing(tmp_path, "KyutaiSpeechToText")
    (folder / "generation_config.json").write_text(json.dumps({"bos_token_id": 0, "pad_token_id": 2, **told}))
    kind = transformers.KyutaiSpeechToTextForConditionalGeneration
    model, heard, beside = (
        kind.from_pretrained(folder).eval(),
        kind.from_pretrained(folder).eval(),
        list[torch.Tensor](),
    )
    asked = _asked("KyutaiSpeechToText", folder, 20000)
    table = model.model.embed_tokens
    table.register_forward_pre_hook(lambda module, given: beside.append(given[0][:, :, 1:]))
    model.generate(**asked, max_new_tokens=30)
    row = HEARING_MODELS[kind.__name__]
    with torch.no_grad():
        made = row.encoder(heard, row)(asked[SAMPLES][..., : 30 * 16])
        codes = torch.cat(beside, 1)
        wanted = table.embed_tokens(codes + table.audio_tokens_offsets[1:]).sum(2)
    assert torch.allclose(made[:, :30], wanted[:, :30], atol=1e-5)
    assert len({*map(tuple, codes[0].tolist())}) > 5


def test_the_mel_spectrogram_is_the_one_of_torchaudio() -> None:
    """By its definition: windows in the middle of the transform, mirrored ends, triangles of HTK without a norm."""
    samples = sound(5000)
    triangles = mel_filter_bank(257, 80, 0.0, 8000.0, 16000)
    wanted = spectrogram(
        samples.astype(np.float64), window_function(400, "hann"), 400, 160, 512, power=2.0, mel_filters=triangles,
        mel_floor=0.0,
    )  # fmt: skip
    made = mel_spectrogram(torch.from_numpy(samples)[None], rate=16000, size=512, window=400, hop=160, bins=80)
    assert np.allclose(made[0].T, wanted, rtol=1e-4, atol=1e-6 * wanted.max())
    wanted = np.log10(np.maximum(wanted, 1e-10)).T
    wanted = np.maximum(wanted, wanted.max() - 8) / 4 + 1
    read = GraniteSpeechFeatureExtractor()(samples[:4900])
    assert read["input_features"].shape == (1, 15, 160)  # 31 frames
    assert read["audio_embed_sizes"] == [3]
    read = GraniteSpeechFeatureExtractor()([samples])
    assert np.allclose(read["input_features"][0], wanted.reshape(16, 160), atol=1e-4)


def test_an_adapter_beside_the_weights_is_merged(tmp_path: Path) -> None:
    """By the names of published adapters, which are older than the model's of transformers 5."""
    folder = hearing(tmp_path / "model", "GraniteSpeech")
    model = transformers.GraniteSpeechForConditionalGeneration.from_pretrained(folder).eval()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "has_lora_adapter": True}))
    with pytest.raises(PatcompError, match=r"says has_lora_adapter, and there is no adapter_config\.json"):
        convert_bundle(folder, out=tmp_path / "out", max_context=64)
    name = "language_model.model.layers.1.self_attn.q_proj"
    a, b = torch.randn(2, 32), torch.randn(32, 2)
    save_file({f"base_model.model.{name}.lora_{key}.weight": each for key, each in (("A", a), ("B", b))},
              folder / "adapter_model.safetensors")  # fmt: skip
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 2, "lora_alpha": 6}))
    with warnings.catch_warnings(action="error", category=ConversionWarning):
        merged = merged_model(folder, type(model).__name__, "float32")
    tokens = torch.arange(9)[None]
    with torch.no_grad():
        before = model(tokens).logits
        model.model.language_model.layers[1].self_attn.q_proj.weight += 3 * b @ a
        assert torch.allclose(merged(tokens).logits, model(tokens).logits, atol=1e-5)
        assert not torch.allclose(merged(tokens).logits, before, atol=1e-2)


_AUDIO: dict[str, Any] = {"axis": 2, "frames": 4, "is_cut": True, "mask": "any"}


def test_a_recording_becomes_windows_with_silence_behind() -> None:
    read, mask = np.arange(12, dtype=np.float32).reshape(1, 2, 6), np.ones((1, 6), np.int64)
    first, second = sound_windows(read, mask, _AUDIO)
    assert np.array_equal(first[READ], read[:, :, :4])
    assert np.array_equal(second[READ], np.pad(read[:, :, 4:], ((0, 0), (0, 0), (0, 2))))
    assert second[FRAME_MASK].tolist() == [[True, True, False, False]]
    assert len(sound_windows(np.pad(read, ((0, 0), (0, 0), (0, 4))), np.pad(mask, ((0, 0), (0, 4))), _AUDIO)) == 2
    with pytest.raises(PatcompError, match="has 6 frames, and the bundle takes 4; cut the recording"):
        sound_windows(read, mask, {**_AUDIO, "is_cut": False})
    (whole,) = sound_windows(read, None, {**_AUDIO, "frames": None, "read": "input_values"})
    assert np.array_equal(whole["input_values"], read)
    with pytest.raises(PatcompError, match="the processor made 2 recordings, and the bundle takes one"):
        sound_windows(np.concatenate([read, read]), None, {**_AUDIO, "frames": None})


@pytest.mark.parametrize(("wanted", "fits"), [(3, False), (4, True), (5, True), (8, True), (9, False)])
def test_the_features_are_those_of_the_audio_tokens(wanted: int, fits: bool) -> None:
    windows = [{READ: np.full((1, 4, 3), number, np.float32)} for number in (1, 2)]
    if not fits:
        with pytest.raises(PatcompError, match=f"has {wanted} audio tokens, and the 2 windows of the recording have 4"):
            features_of_sound(lambda given: {HEARD: given[READ]}, [windows], [wanted])
        return
    made = features_of_sound(lambda given: {HEARD: given[READ]}, [windows], [1, wanted - 1])  # at two places
    assert made[0, :, 0].tolist() == [1] * 4 + [2] * (wanted - 4)
    both = features_of_sound(lambda given: {HEARD: given[READ]}, [windows, windows[1:]], [wanted, 2])
    assert both[0, :, 0].tolist() == [*made[0, :, 0].tolist(), 2, 2]
    with pytest.raises(PatcompError, match="at 1 places, and there are 2 recordings"):
        features_of_sound(lambda given: {HEARD: given[READ]}, [windows, windows], [wanted])


def test_what_a_bundle_lacks_is_said(tmp_path: Path) -> None:
    (tmp_path / "main.aimodel").mkdir()
    file = tmp_path / "metadata.json"
    told = {"metadata_version": "0.2", "kind": "hearing", "name": "any", "assets": {"main": "main.aimodel"}}
    file.write_text(json.dumps(told))
    assert "language or audio is missing" in str(check_bundle(tmp_path)[0])
    audio = {"audio_token_id": 3, "frames": 0, "axis": 2, "sample_rate": 16000, "mask": "", "is_cut": True}
    file.write_text(json.dumps({**told, "language": {"vocab_size": 9, "max_context_length": 9}, "audio": audio}))
    messages = "\n".join(map(str, check_bundle(tmp_path)))
    assert "audio.frames is 0, and must be a positive integer" in messages
    assert "there is no processor/tokenizer_config.json" in messages
    with pytest.raises(PatcompError, match="needs a recording, audio="):
        Bundle(tmp_path).generate([1, 2])


def test_a_folder_without_a_processor_or_with_too_long_a_context_is_refused(tmp_path: Path) -> None:
    folder = hearing(tmp_path / "model", "GlmAsr")
    with pytest.raises(PatcompError, match="max_context is 4096; the model takes 1 to 2048 tokens"):
        convert_bundle(folder, out=tmp_path / "out")
    (folder / "processor_config.json").unlink()
    with pytest.raises(PatcompError, match="has no processor"):
        convert_bundle(folder, out=tmp_path / "out", max_context=1024)
