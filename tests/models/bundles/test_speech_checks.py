"""What Apple's Swift package would refuse of bundles that recognise speech, and folders that become none."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from patcomp_models.bundles import BundleError, transcribe
from tests.models.bundles.refusals import (
    Change,
    assert_departs,
    assert_refused,
    config,
    edited,
    exchanged,
    unchanged,
    without,
)


def _told(change: Callable[[dict[str, Any]], object]) -> Change:
    return edited(change, "generation_config.json")


WHISPER: dict[str, tuple[Change, str]] = {
    "no config": (edited(lambda m: m.pop("config")), "config is missing, and its architecture says"),
    "another architecture": (
        edited(lambda m: m["config"].update(architecture="parakeet_tdt")), "assets.decoder_step is missing"),
    "another name of a file": (
        edited(lambda m: m["assets"].update(encoder="decoder.aimodel")), "Swift loads encoder.aimodel, whatever"),
    "no decoder": (edited(lambda m: m["assets"].pop("decoder")), "assets.decoder is None; Swift loads decoder"),
    "no asset": (without("encoder.aimodel"), "assets.encoder is encoder.aimodel, which does not exist"),
    "a damaged asset": (without("encoder.aimodel/main.mlirb"), "is not an asset"),
    "no tokenizer": (without("tokenizer.json"), "there is no tokenizer.json in the bundle's root"),
    "no description of the tokenizer": (without("tokenizer_config.json"), "there is no tokenizer_config.json"),
    "no forced tokens": (without("generation_config.json"), "Swift starts without the tokens of language and task"),
    "forced tokens that are no pairs": (_told(lambda g: g.update(forced_decoder_ids=[1, 2])), "must be pairs of"),
    "forced tokens from the second on": (
        _told(lambda g: g["forced_decoder_ids"].pop(0)), "must be pairs of position and token, from the position 0 on"),
    "another start": (
        _told(lambda g: g.update(forced_decoder_ids=[[0, 1]])), "must begin with decoder_start_token_id"),
    "several ends": (_told(lambda g: g.update(eos_token_id=[1, 2])), "eos_token_id of generation_config.json is [1"),
    "too many tokens": (_told(lambda g: g.update(max_new_tokens=448)), "max_new_tokens of generation_config.json is"),
    "no JSON": (lambda b: (b / "generation_config.json").write_text("{"), "generation_config.json' is not JSON"),
    "exchanged assets": (
        exchanged("encoder.aimodel", "decoder.aimodel"),
        "the inputs of encoder are input_ids, position_ids, encoder_hidden_states; they must be input_features"),
    "two encoders": (
        lambda b: (shutil.rmtree(b / "decoder.aimodel"),
                   shutil.copytree(b / "encoder.aimodel", b / "decoder.aimodel")),
        "the states of decoder are none; they must be keyCache, valueCache"),
}  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", WHISPER)
def test_departures_of_whisper(name: str, whisper_bundle: Path, tmp_path: Path) -> None:
    assert_departs(whisper_bundle, tmp_path, *WHISPER[name])


PARAKEET: dict[str, tuple[Change, str]] = {
    "no encoder": (edited(lambda m: m["assets"].pop("encoder")), "assets.encoder is missing"),
    "no step": (edited(lambda m: m["assets"].pop("decoder_step")), "assets.decoder_step is missing"),
    "no joint": (edited(lambda m: m["assets"].pop("joint")), "assets.joint is missing"),
    "no tokenizer": (without("processor/tokenizer.json"), "there is no processor/tokenizer.json"),
    "no vocabulary": (edited(lambda m: m["config"].pop("vocab_size")), "config.vocab_size is None, and must be"),
    "no width": (config(decoder_hidden_size="24"), "config.decoder_hidden_size is '24', and must be an integer"),
    "no layers": (config(num_decoder_layers=None), "config.num_decoder_layers is None"),
    "no limit": (edited(lambda m: m["config"].pop("max_symbols_per_step")), "config.max_symbols_per_step is None"),
    "no durations": (config(durations=[]), "config.durations is [], and must be a list of integers"),
    "no block of the encoder": (edited(lambda m: m["config"].pop("encoder")), "config.encoder.num_mel_bins is None"),
    "a blank that is no token": (config(blank_token_id=55), "blank_token_id must be less than config.vocab_size"),
    "a factor that is no power": (
        config(encoder={"num_mel_bins": 128, "subsampling_factor": 6}), "is 6, and must be a power of two"),
    "another factor": (
        config(encoder={"num_mel_bins": 128, "subsampling_factor": 4}), "encoder_hidden_states of encoder is 1 x 21"),
    "other bins": (
        config(encoder={"num_mel_bins": 80, "subsampling_factor": 8}), "input_features of encoder is 1 x 161 x 128"),
    "other layers": (config(num_decoder_layers=3), "hidden_state of decoder_step is 2 x 1 x 24"),
    "fewer durations": (config(durations=[0, 1, 2]), "1 x 1 x 60 of float32, and must be 1 x 1 x 58"),
    "exchanged assets": (
        edited(lambda m: m["assets"].update(joint="decoder_step.aimodel")), "the inputs of joint are input_ids"),
    "a damaged asset": (without("joint.aimodel/main.mlirb"), "is not an asset"),
    "windows of another size": (
        edited(lambda m: m.update(streaming={
            "left_context_encoder_frames": 8, "chunk_encoder_frames": 4, "right_context_encoder_frames": 4,
            "window_mel_frames": 129, "hop_length": 160, "subsampling_factor": 8, "sample_rate": 16000})),
        "encoder takes 161 frames, and streaming says 129"),
}  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", PARAKEET)
def test_departures_of_parakeet(name: str, parakeet_bundle: Path, tmp_path: Path) -> None:
    assert_departs(parakeet_bundle, tmp_path, *PARAKEET[name])


_PLAIN = edited(lambda c: c.update(architectures=["WhisperModel"]), "config.json")
BAD_WHISPERS: dict[str, tuple[Change, dict[str, Any], str]] = {
    "no extractor": (without("preprocessor_config.json"), {}, "has no preprocessor_config.json, which says how"),
    "a broken extractor": (
        lambda f: (f / "preprocessor_config.json").write_text("{"), {}, "transformers cannot load the extractor of"),
    "no tokenizer": (without("tokenizer.json"), {}, "has no tokenizer.json; save the processor"),
    "an unknown language": (unchanged, {"language": "xx"}, "language is 'xx', and the model knows de, en"),
    "an unknown task": (unchanged, {"task": "sing"}, "task is 'sing', and the model in"),
    "an option of another model": (unchanged, {"frames": 100}, "has no option 'frames'; it has audio, language, task"),
    "audio that is no truth": (unchanged, {"audio": "yes"}, "audio is 'yes', and must be true or false"),
    "no class of speech": (_PLAIN, {"kind": "speech_recognizer"}, "holds WhisperModel, and not WhisperForConditional"),
    "no weights": (without("model.safetensors"), {}, "lacks model.safetensors, the file of its weights"),
    "other bins": (
        edited(lambda c: c.update(feature_size=80), "preprocessor_config.json"), {},
        "makes 80 bins, and the model reads 128"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_WHISPERS)
def test_bad_whispers(name: str, whisper_folder: Path, tmp_path: Path) -> None:
    assert_refused(whisper_folder, *BAD_WHISPERS[name], tmp_path)


BAD_PARAKEETS: dict[str, tuple[Change, dict[str, Any], str]] = {
    "a language": (unchanged, {"language": "en"}, "ParakeetForTDT has no option 'language'; it has audio, frames"),
    "no frames": (unchanged, {"frames": 0}, "frames is 0, and must be a number of at least 16"),
    "two windows": (unchanged, {"streaming": [8, 4]}, "streaming is [8, 4], and must be three numbers of frames"),
    "a short left side": (unchanged, {"streaming": [3, 4, 4]}, "the left side must be as long as the chunk"),
    "a short right side": (unchanged, {"streaming": [8, 4, 3]}, "and the right side as the longest duration, 4"),
    "windows and frames": (unchanged, {"streaming": [8, 4, 4], "frames": 99}, "decides frames; leave the other out"),
    "no tokenizer": (without("tokenizer.json"), {}, "has no tokenizer.json"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_PARAKEETS)
def test_bad_parakeets(name: str, parakeet_folder: Path, tmp_path: Path) -> None:
    assert_refused(parakeet_folder, *BAD_PARAKEETS[name], tmp_path)


BAD_RECORDINGS: dict[str, tuple[dict[str, Any], dict[str, str], int, str]] = {
    "another language": ({}, {"language": "fr"}, 1, "language is 'fr', and the model knows de, en"),
    "another task": ({}, {"task": "sing"}, 1, "task is 'sing', and the model knows transcribe, translate"),
    "one language": ({"lang_to_id": None}, {"language": "de"}, 1, "language is 'de', and the model knows none"),
    "no times": ({}, {}, 481000, "the recording is 30.1 s long, and the bundle takes 30.0 s; the model writes"),
    "no token of silence": ({"no_timestamps_token_id": None}, {}, 481000, "the model writes no times"),
    "earlier windows": (
        {"no_timestamps_token_id": 9, "condition_on_prev_tokens": True}, {}, 481000,
        "the generation configuration has condition_on_prev_tokens, with which it cannot be read in windows"),
    "silence": (
        {"no_timestamps_token_id": 9, "no_speech_threshold": 0.6}, {}, 481000, "has no_speech_threshold, with which"),
}  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", BAD_RECORDINGS)
def test_bad_recordings_of_whisper(name: str, whisper_bundle: Path, tmp_path: Path) -> None:
    told, options, count, message = BAD_RECORDINGS[name]
    shutil.copytree(whisper_bundle, tmp_path / "bundle")
    edited(lambda c: c.update(told), "generation_config.json")(tmp_path / "bundle")
    with pytest.raises(BundleError) as caught:
        transcribe(tmp_path / "bundle", np.zeros(count, np.float32), **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_options_of_whisper_alone(parakeet_bundle: Path) -> None:
    with pytest.raises(BundleError, match="only bundles of Whisper take the option language; leave it out"):
        transcribe(parakeet_bundle, np.zeros(1, np.float32), language="de")
