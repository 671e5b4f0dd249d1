"""What hosts of their own cannot take of bundles that recognise speech, and of VITS."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from patcomp_models.bundle_folders.interfaces import Interfaces
from patcomp_models.bundles import convert_bundle
from tests.models.bundles.described import (
    Change,
    Described,
    changed,
    config,
    drop,
    file,
    interfaces,
    put,
    role,
    without_function,
)
from tests.models.bundles.speech_models import ctc, moonshine, parakeet
from tests.models.bundles.vits_models import vits


def _metadata(kind: str, assets: dict[str, str], **config: Any) -> dict[str, Any]:
    return {"metadata_version": "0.2", "kind": kind, "name": "small", "assets": assets, "config": config}


_PROCESSOR = {"processor/preprocessor_config.json": {}, "processor/tokenizer_config.json": {}}
_SAMPLES: Any = ((1, None), "float32")
_SPECTRUM: Any = {"input_features": ((1, None, 128), "float32"), "attention_mask": ((1, None), "bool")}
_LENGTH: Any = {"audio": _SAMPLES, "audio_length": ((1,), "int32")}
_ENCODER: Any = {"num_mel_bins": 128, "subsampling_factor": 8}

CTC = Described(
    _metadata("speech_ctc", {"main": "main.aimodel"}, architecture="wav2vec2", vocab_size=31, blank_token_id=0,
              sample_rate=16000),
    _PROCESSOR,
    {"main.aimodel": {
        "main": ({"input_values": _SAMPLES}, {"logits": ((1, None, 31), "float32")}, {}),
        "audio": ({"audio": _SAMPLES}, {"logits": ((1, None, 31), "float32")}, {}),
    }},
)  # fmt: skip
PARAKEET_CTC = Described(
    _metadata("speech_ctc", {"main": "main.aimodel"}, architecture="parakeet_ctc", vocab_size=55, blank_token_id=54,
              sample_rate=16000, encoder=_ENCODER),
    _PROCESSOR,
    {"main.aimodel": {
        "main": (_SPECTRUM, {"logits": ((1, None, 55), "float32")}, {}),
        "audio": (_LENGTH, {"logits": ((1, None, 55), "float32")}, {}),
    }},
)  # fmt: skip
_ONE, _STATE = ((1, 1, 24), "float32"), ((2, 1, 24), "float32")
TRANSDUCER = Described(
    _metadata("speech_transducer", {name: f"{name}.aimodel" for name in ("encoder", "decoder_step", "joint")},
              architecture="parakeet_rnnt", vocab_size=55, blank_token_id=54, decoder_hidden_size=24,
              num_decoder_layers=2, max_symbols_per_step=10, encoder=_ENCODER),
    {**_PROCESSOR, "processor/tokenizer.json": {}},
    {
        "encoder.aimodel": {
            "main": (_SPECTRUM, {"encoder_hidden_states": ((1, None, 24), "float32")}, {}),
            "audio": (_LENGTH, {"encoder_hidden_states": ((1, None, 24), "float32")}, {}),
        },
        "decoder_step.aimodel": {"main": (
            {"input_ids": ((1, 1), "int32"), "hidden_state": _STATE, "cell_state": _STATE},
            {"decoder_output": _ONE, "new_hidden_state": _STATE, "new_cell_state": _STATE}, {},
        )},
        "joint.aimodel": {"main": (
            {"decoder_hidden_states": _ONE, "encoder_hidden_states": _ONE}, {"logits": ((1, 1, 55), "float32")}, {},
        )},
    },
)  # fmt: skip
_CACHE, _CROSS = ((2, None, 4, None, 8), "float32"), ((2, 1, 4, None, 8), "float32")
SEQ2SEQ = Described(
    _metadata("speech_seq2seq", {"main": "main.aimodel"}, architecture="moonshine", sample_rate=16000,
              samples_of_frame=1),
    {**_PROCESSOR, "generation_config.json": {
        "forced_decoder_ids": [[0, 1]], "decoder_start_token_id": 1, "eos_token_id": 2, "max_new_tokens": 12}},
    {"main.aimodel": {
        "encode": ({"input_values": _SAMPLES}, {"crossKeys": _CROSS, "crossValues": _CROSS}, {}),
        "decode": (
            {"input_ids": ((None, None), "int32"), "position_ids": ((1, None), "int32"), "crossKeys": _CROSS,
             "crossValues": _CROSS},
            {"logits": ((None, None, 29), "float32")}, {"keyCache": _CACHE, "valueCache": _CACHE},
        ),
    }},
)  # fmt: skip
_IDS: Any = {"input_ids": ((1, None), "int32")}
VITS = Described(
    _metadata("text_to_speech", {"main": "main.aimodel"}, architecture="vits", sample_rate=16000, samples_per_frame=16,
              noise_channels=16, number_of_speakers=1),
    {"processor/tokenizer_config.json": {}},
    {"main.aimodel": {
        "durations": ({**_IDS, "duration_noise": ((1, 2, None), "float32")}, {"durations": _SAMPLES}, {}),
        "main": ({**_IDS, "durations": _SAMPLES, "noise": ((1, 16, None), "float32")}, {"waveform": _SAMPLES}, {}),
    }},
)  # fmt: skip
ALL = {"ctc": CTC, "parakeet_ctc": PARAKEET_CTC, "transducer": TRANSDUCER, "seq2seq": SEQ2SEQ, "vits": VITS}


@pytest.mark.parametrize("name", ALL)
def test_they_are_right(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ALL[name].problems(tmp_path / "bundle", monkeypatch) == []


MADE: dict[str, Callable[[Path], Path]] = {
    "ctc": lambda folder: ctc(folder, "Wav2Vec2ForCTC"),
    "parakeet_ctc": lambda folder: parakeet(folder, "ParakeetForCTC"),
    "transducer": lambda folder: parakeet(folder, "ParakeetForRNNT"),
    "seq2seq": moonshine,
    "vits": vits,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_they_are_what_conversions_make(name: str, tmp_path: Path) -> None:
    bundle, options = ALL[name], {} if name in ("seq2seq", "vits") else {"audio": True}
    made = convert_bundle(MADE[name](tmp_path / "model"), out=tmp_path / "out", name="small", verify=False, **options)
    metadata = json.loads((made / "metadata.json").read_text())
    assert {key: metadata[key] for key in bundle.metadata} == bundle.metadata
    for asset, functions in bundle.functions.items():
        assert Interfaces.of(made / asset) == interfaces(functions)
    assert all((made / each).is_file() for each in bundle.files)


_MAIN, _AUDIO = "main.aimodel:main", "main.aimodel:audio"
OF_CTC: dict[str, tuple[Described, Change, str]] = {
    "no config": (CTC, lambda it: it.metadata.pop("config"), "config is missing"),
    "another role": (CTC, lambda it: it.metadata.update(assets={"ctc": "main.aimodel"}), "assets.main is missing"),
    "no architecture": (CTC, config(architecture=None), "config.architecture is None, and must be a text"),
    "no vocabulary": (CTC, config(vocab_size=None), "config.vocab_size is None, and must be an integer"),
    "a blank in words": (CTC, config(blank_token_id="<pad>"), "config.blank_token_id is '<pad>', and must be an int"),
    "a blank that is no token": (CTC, config(blank_token_id=31), "config.blank_token_id must be less than config.voc"),
    "a negative blank": (CTC, config(blank_token_id=-1), "config.blank_token_id must be less than config.vocab_size,"),
    "no rate": (CTC, config(sample_rate=None), "config.sample_rate is None, and must be an integer"),
    "a negative rate": (CTC, config(sample_rate=-16000), "config.sample_rate is -16000, and must be positive"),
    "no extractor": (CTC, file("processor/preprocessor_config.json"), "there is no processor/preprocessor_config.json"),
    "no tokenizer": (CTC, file("processor/tokenizer_config.json"), "there is no processor/tokenizer_config.json"),
    "no main": (CTC, without_function(_MAIN), "there is no entry point 'main'"),
    "another input": (CTC, put(_MAIN, "input", "speed", (1,)), "the inputs of main are input_values, speed; they must"),
    "samples of a fixed number": (CTC, put(_MAIN, "input", "input_values", (1, 16)), "input_values of main is 1 x 16"),
    "samples that are integers": (CTC, put(_MAIN, "input", "input_values", (1, None), "int16"), "1 x ? of int16, and"),
    "other words": (CTC, config(vocab_size=32), "the output logits of main is 1 x ? x 31 of float32, and must be 1 x"),
    "no logits": (CTC, drop(_MAIN, "output", "logits"), "the outputs of main are none; they must be logits"),
    "audio with a length": (CTC, put(_AUDIO, "input", "audio_length", (1,), "int32"), "the inputs of audio are audio,"),
    "audio of other words": (CTC, put(_AUDIO, "output", "logits", (1, None, 3)), "the output logits of audio is 1 x ?"),
    "an encoder without bins": (PARAKEET_CTC, config(encoder={"subsampling_factor": 8}), "num_mel_bins is None, and m"),
    "a factor that is no power": (
        PARAKEET_CTC, config(encoder={"num_mel_bins": 128, "subsampling_factor": 6}), "is 6, and must be a power of t"),
    "other bins": (PARAKEET_CTC, config(encoder={"num_mel_bins": 80, "subsampling_factor": 8}), "and must be 1 x ? x"),
    "no mask": (PARAKEET_CTC, drop(_MAIN, "input", "attention_mask"), "the inputs of main are input_features; they mu"),
    "a spectrum without its encoder": (PARAKEET_CTC, config(encoder=None), "the inputs of audio are audio, audio_leng"),
    "frames that are not those of the factor": (
        changed(
            PARAKEET_CTC, put(_MAIN, "input", "input_features", (1, 161, 128)),
            put(_MAIN, "input", "attention_mask", (1, 161), "bool"), without_function(_AUDIO),
        ),
        put(_MAIN, "output", "logits", (1, 20, 55)), "logits of main is 1 x 20 x 55 of float32, and must be 1 x 21 x"),
}  # fmt: skip
_ENCODE, _STEP, _JOINT = "encoder.aimodel:main", "decoder_step.aimodel:main", "joint.aimodel:main"
OF_TRANSDUCER: dict[str, tuple[Described, Change, str]] = {
    "no config": (TRANSDUCER, lambda it: it.metadata.pop("config"), "config is missing"),
    "no encoder": (TRANSDUCER, role("encoder", None), "assets.encoder is missing"),
    "no step": (TRANSDUCER, role("decoder_step", None), "assets.decoder_step is missing"),
    "no joint": (TRANSDUCER, role("joint", None), "assets.joint is missing"),
    "no vocabulary": (TRANSDUCER, config(vocab_size=None), "config.vocab_size is None, and must be an integer"),
    "a width in words": (TRANSDUCER, config(decoder_hidden_size="24"), "config.decoder_hidden_size is '24', and must"),
    "no limit": (TRANSDUCER, config(max_symbols_per_step=None), "config.max_symbols_per_step is None"),
    "a blank that is no token": (TRANSDUCER, config(blank_token_id=55), "config.blank_token_id must be less than"),
    "no block of the encoder": (TRANSDUCER, config(encoder=None), "config.encoder.num_mel_bins is None, and must be a"),
    "a factor of 0": (TRANSDUCER, config(encoder={**_ENCODER, "subsampling_factor": 0}), "is 0, and must be a power o"),
    "no extractor": (TRANSDUCER, file("processor/preprocessor_config.json"), "there is no processor/preprocessor_conf"),
    "no tokenizer": (TRANSDUCER, file("processor/tokenizer.json"), "there is no processor/tokenizer.json"),
    "other bins": (TRANSDUCER, config(encoder={**_ENCODER, "num_mel_bins": 80}), "input_features of encoder is 1 x ?"),
    "no mask": (TRANSDUCER, drop(_ENCODE, "input", "attention_mask"), "the inputs of encoder are input_features; they"),
    "another width": (TRANSDUCER, config(decoder_hidden_size=25), "encoder_hidden_states of encoder is 1 x ? x 24 of"),
    "other layers": (TRANSDUCER, config(num_decoder_layers=3), "the input hidden_state of decoder_step is 2 x 1 x 24"),
    "two tokens": (TRANSDUCER, put(_STEP, "input", "input_ids", (1, 2), "int32"), "input_ids of decoder_step is 1 x 2"),
    "no new state": (TRANSDUCER, drop(_STEP, "output", "new_cell_state"), "the outputs of decoder_step are decoder_ou"),
    "durations": (TRANSDUCER, put(_JOINT, "output", "logits", (1, 1, 60)), "logits of joint is 1 x 1 x 60 of float32"),
    "another file": (TRANSDUCER, role("joint", "decoder_step.aimodel"), "the inputs of joint are input_ids, hidden_st"),
    "audio without its length": (
        TRANSDUCER, drop("encoder.aimodel:audio", "input", "audio_length"), "the inputs of audio are audio; they must"),
}  # fmt: skip
_READ, _WRITE = "main.aimodel:encode", "main.aimodel:decode"


def _told(**values: Any) -> Change:
    return lambda it: it.files["generation_config.json"].update(values)


OF_SEQ2SEQ: dict[str, tuple[Described, Change, str]] = {
    "no config": (SEQ2SEQ, lambda it: it.metadata.pop("config"), "config is missing"),
    "another role": (SEQ2SEQ, lambda it: it.metadata.update(assets={"m": "main.aimodel"}), "assets.main is missing"),
    "no decode": (SEQ2SEQ, without_function(_WRITE), "there is no entry point 'decode'"),
    "no rate": (SEQ2SEQ, config(sample_rate="16000"), "config.sample_rate is '16000', and must be an integer"),
    "no extractor": (SEQ2SEQ, file("processor/preprocessor_config.json"), "there is no processor/preprocessor_config"),
    "no tokenizer": (SEQ2SEQ, file("processor/tokenizer_config.json"), "there is no processor/tokenizer_config.json"),
    "no settings": (SEQ2SEQ, file("generation_config.json"), "there is no generation_config.json"),
    "another start": (SEQ2SEQ, _told(decoder_start_token_id=5), "must begin with decoder_start_token_id"),
    "no end": (SEQ2SEQ, _told(eos_token_id=[]), "eos_token_id of generation_config.json is []"),
    "no tokens": (SEQ2SEQ, _told(max_new_tokens=0), "max_new_tokens of generation_config.json is 0"),
    "forced tokens that are no pairs": (SEQ2SEQ, _told(forced_decoder_ids=[1]), "must be pairs of position and token"),
    "a spectrum": (SEQ2SEQ, put(_READ, "input", "input_features", (1, 80, None)), "the inputs of encode are input_"),
    "samples of a fixed number": (SEQ2SEQ, put(_READ, "input", "input_values", (1, 9)), "input_values of encode is"),
    "no values of the input": (SEQ2SEQ, drop(_READ, "output", "crossValues"), "the outputs of encode are crossKeys"),
    "fixed positions": (SEQ2SEQ, put(_WRITE, "input", "position_ids", (1, 8), "int32"), "position_ids of decode is"),
    "tokens of 64 bits": (SEQ2SEQ, put(_WRITE, "input", "input_ids", (1, None), "int64"), "input_ids of decode is 1 x"),
    "no values": (SEQ2SEQ, drop(_WRITE, "state", "valueCache"), "the states of decode are keyCache; they must be ke"),
    "another width": (
        SEQ2SEQ, put(_WRITE, "input", "crossKeys", (2, 1, 4, None, 4)), "encode makes crossKeys of 2 x 1 x 4 x ? x 8"),
}  # fmt: skip
_DURATIONS = "main.aimodel:durations"
OF_VITS: dict[str, tuple[Described, Change, str]] = {
    "no config": (VITS, lambda it: it.metadata.pop("config"), "config is missing"),
    "no architecture": (VITS, config(architecture=None), "config.architecture is None, and must be one of vits, speec"),
    "another role": (VITS, lambda it: it.metadata.update(assets={"voice": "main.aimodel"}), "assets.main is missing"),
    "no rate": (VITS, config(sample_rate=None), "config.sample_rate is None, and must be an integer"),
    "no samples": (VITS, config(samples_per_frame=0), "config.samples_per_frame is 0, and must be positive"),
    "channels in words": (VITS, config(noise_channels="16"), "config.noise_channels is '16', and must be an integer"),
    "no speaker": (VITS, config(number_of_speakers=0), "config.number_of_speakers is 0, and must be positive"),
    "no tokenizer": (VITS, file("processor/tokenizer_config.json"), "there is no processor/tokenizer_config.json"),
    "no durations": (VITS, without_function(_DURATIONS), "main.aimodel has no function 'durations'"),
    "no main": (VITS, without_function(_MAIN), "main.aimodel has no function 'main'"),
    "speakers": (VITS, config(number_of_speakers=3), "they must be input_ids, durations, noise, speaker_id"),
    "other channels": (VITS, config(noise_channels=8), "the input noise of main is 1 x 16 x ? of float32, and must be"),
    "noise of a fixed length": (VITS, put(_MAIN, "input", "noise", (1, 16, 99)), "the input noise of main is 1 x 16 x"),
    "noise of one channel": (VITS, put(_DURATIONS, "input", "duration_noise", (1, 1, None)), "duration_noise of durat"),
    "durations that are integers": (
        VITS, put(_DURATIONS, "output", "durations", (1, None), "int32"), "durations of durations is 1 x ? of int32"),
    "a text of a fixed length": (VITS, put(_MAIN, "input", "input_ids", (1, 24), "int32"), "input_ids of main is 1 x"),
    "a spectrogram": (VITS, put(_MAIN, "output", "waveform", (1, None, 80)), "waveform of main is 1 x ? x 80 of float"),
    "another input": (VITS, put(_DURATIONS, "input", "speed", (1,)), "the inputs of durations are input_ids, duration"),
}  # fmt: skip
DEPARTURES = {
    f"{kind}: {name}": row
    for kind, rows in (("CTC", OF_CTC), ("RNN-T", OF_TRANSDUCER), ("sequences", OF_SEQ2SEQ), ("VITS", OF_VITS))
    for name, row in rows.items()
}


@pytest.mark.parametrize("name", DEPARTURES)
def test_departures(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle, change, message = DEPARTURES[name]
    found = changed(bundle, change).problems(tmp_path / "bundle", monkeypatch)
    assert any(message in each for each in found), found
    assert not any("\n" in each for each in found)
