"""What a host of streaming models cannot take of a bundle, and folders that become none."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from patcomp import TorchConverter
from patcomp_models.bundles import BundleError, convert_bundle
from tests.models.bundles import streaming_models
from tests.models.bundles.refusals import (
    Change,
    assert_departs,
    assert_refused,
    config,
    edited,
    exchanged,
    of_class,
    unchanged,
    without,
)

STATES = {
    "Convolutions": torch.zeros(9),
    "Keys": torch.zeros(2, 1, 2, 5, 8),
    "Values": torch.zeros(2, 1, 2, 5, 8),
    "Position": torch.zeros(1, dtype=torch.int32),
}


class Half(nn.Module):
    """Writes to all its states."""

    def __init__(self, output: Tensor):
        super().__init__()
        self.output = output

    def forward(self, given: Tensor, *states: Tensor) -> Tensor:
        for state in states:
            state.add_(1)
        return self.output + given.sum().to(self.output.dtype)


def codec_with(change: Mapping[str, Tensor | None], functions: tuple[str, ...] = ("encode", "decode")) -> Change:
    """Another asset: the decoder's states are other ones, None for no such state; or functions are missing."""

    def replace(bundle: Path) -> None:
        audio, codes, converter = torch.zeros(1, 1, 16), torch.zeros(1, 4, 1, dtype=torch.int32), TorchConverter()
        given = {
            "encode": ("encoder", "audio", "codes", audio, codes),
            "decode": ("decoder", "codes", "audio", codes, audio),
        }
        for name in functions:
            prefix, taken, made, example, output = given[name]
            states = {**STATES, **(change if name == "decode" else {})}
            named = {f"{prefix}{end}": state for end, state in states.items() if state is not None}
            exported = torch.export.export(Half(output), (example, *named.values()))
            converter.add_exported_program(exported, [taken], [made], [*named], entrypoint_name=name)
        shutil.rmtree(bundle / "main.aimodel")
        converter.to_coreai().save_asset(bundle / "main.aimodel")

    return replace


CODEC: dict[str, tuple[Change, str]] = {
    "no config": (edited(lambda m: m.pop("config")), "config is missing"),
    "no asset": (without("main.aimodel"), "assets.main is main.aimodel, which does not exist"),
    "another role": (edited(lambda m: m.update(assets={"codec": "main.aimodel"})), "assets.main is missing"),
    "no rate": (edited(lambda m: m["config"].pop("sample_rate")), "config.sample_rate is None, and must be a positive"),
    "no frames": (config(frames_per_chunk=0), "config.frames_per_chunk is 0, and must be a positive integer"),
    "no words": (config(codebook_size="32"), "config.codebook_size is '32'"),
    "no latents": (edited(lambda m: m["config"].pop("codebooks")), "config.latent_width is None"),
    "other frames": (config(frames_per_chunk=2), "audio of encode is 1 x 1 x 16 of float32, and must be 1 x 1 x 32"),
    "other samples": (config(samples_per_frame=8), "audio of decode is 1 x 1 x 16 of float32, and must be 1 x 1 x 8"),
    "two channels": (config(channels=2), "the input audio of encode is 1 x 1 x 16"),
    "other codebooks": (config(codebooks=8), "codes of decode is 1 x 4 x 1 of int32, and must be 1 x 8 x 1"),
    "no decoder": (codec_with({}, ("encode",)), "there is no entry point 'decode'"),
    "no position": (codec_with({"Position": None}), "the states of decode are decoderConvolutions, decoderKeys"),
    "a position that is no integer": (
        codec_with({"Position": torch.zeros(1)}), "decoderPosition of decode is 1 of float32"),
    "flat keys": (codec_with({"Keys": torch.zeros(4, 5, 8)}), "decoderKeys of decode is 4 x 5 x 8"),
    "other values": (codec_with({"Values": torch.zeros(2, 1, 2, 5, 4)}), "decoderValues of decode differ in shape"),
    "an LSTM without cells": (
        codec_with({"Keys": None, "Values": None, "Hidden": torch.zeros(2, 1, 8)}),
        "they must be decoderConvolutions, decoderHidden, decoderCell, decoderPosition"),
    "a flat LSTM": (
        codec_with({"Keys": None, "Values": None, "Hidden": torch.zeros(8), "Cell": torch.zeros(8)}),
        "decoderHidden of decode is 8 of float32, and must be of 3 fixed sizes"),
    "other cells": (
        codec_with({"Keys": None, "Values": None, "Hidden": torch.zeros(2, 1, 8), "Cell": torch.zeros(2, 1, 4)}),
        "decoderHidden and decoderCell of decode differ in shape"),
    "a damaged asset": (without("main.aimodel/main.mlirb"), "is not an asset"),
}  # fmt: skip


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", CODEC)
def test_departures_of_codecs(name: str, mimi_bundle: Path, tmp_path: Path) -> None:
    assert_departs(mimi_bundle, tmp_path, *CODEC[name])


def chunks(**values: Any) -> Change:
    return edited(lambda m: m["chunks"].update(values))


RECOGNISER: dict[str, tuple[Change, str]] = {
    "no config": (edited(lambda m: m.pop("config")), "config or chunks is missing"),
    "no chunks": (edited(lambda m: m.pop("chunks")), "config or chunks is missing"),
    "no encoder": (edited(lambda m: m["assets"].pop("encoder")), "assets.encoder is missing"),
    "no step": (edited(lambda m: m["assets"].pop("decoder_step")), "assets.decoder_step is missing"),
    "no joint": (edited(lambda m: m["assets"].pop("joint")), "assets.joint is missing"),
    "no tokenizer": (without("processor/tokenizer.json"), "there is no processor/tokenizer.json"),
    "no extractor": (without("processor/preprocessor_config.json"), "there is no processor/preprocessor_config"),
    "no vocabulary": (config(vocab_size=None), "config.vocab_size is None, and must be an integer"),
    "no blank": (config(blank_token_id="x"), "config.blank_token_id is 'x'"),
    "no block of the encoder": (edited(lambda m: m["config"].pop("encoder")), "config.encoder.num_mel_bins is None"),
    "no first chunk": (edited(lambda m: m["chunks"].pop("first_mel_frames")), "chunks.first_mel_frames is None"),
    "another lookahead": (chunks(lookahead=2), "and must be {'lookahead': 2, 'encoder_frames': 3"),
    "another first chunk": (chunks(first_mel_frames=6), "the input input_features of first of encoder is 1 x 5 x 80"),
    "other chunks": (chunks(mel_frames=5), "the input input_features of main of encoder is 1 x 8 x 80"),
    "other words": (config(vocab_size=9), "logits of joint is 1 x 1 x 55 of float32, and must be 1 x 1 x 9"),
    "other layers": (config(num_decoder_layers=3), "hidden_state of decoder_step is 2 x 1 x 24"),
    "prompts": (config(prompts=4, default_prompt=1), "they must be input_features, prompt_id"),
    "exchanged assets": (exchanged("encoder.aimodel", "joint.aimodel"), "there is no entry point 'first'"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", RECOGNISER)
def test_departures_of_recognisers(name: str, nemotron_bundle: Path, tmp_path: Path) -> None:
    assert_departs(nemotron_bundle, tmp_path, *RECOGNISER[name])


def model(**values: Any) -> Change:
    return edited(lambda c: c.update(values), "config.json")


BAD_CODECS: dict[str, tuple[Change, dict[str, Any], str]] = {
    "X-Codec": (of_class("XcodecModel"), {}, "holds XcodecModel, which becomes no bundle, because transformers"),
    "DAC": (of_class("DacModel"), {}, "because its convolutions see later samples, so that chunks cannot be coded one "
                                      "by one; convert it to an asset: give -o a name with .aimodel"),
    "no codec": (of_class("BertModel"), {"kind": "streaming_codec"}, "holds BertModel, and not MimiModel, Pocket"),
    "no frames": (unchanged, {"frames": 0}, "frames is 0, and must be how many frames a chunk has"),
    "too many codebooks": (unchanged, {"codebooks": 5}, "codebooks is 5, and must be from 1 to 4"),
    "half a frame": (unchanged, {"frames": 0.5}, "frames is 0.5, and must be"),
    "an unknown option": (unchanged, {"audio": True}, "have no option 'audio'; they have frames, codebooks"),
    "no weights": (without("model.safetensors"), {}, "lacks model.safetensors, the file of its weights"),
    "later samples": (model(use_causal_conv=False), {}, "sees later samples, so that chunks cannot be coded"),
    "reflected samples": (model(pad_mode="reflect"), {}, "pads by 'reflect', for which transformers has no stream"),
    "trimmed on the left": (model(trim_right_ratio=0.5), {}, "sees later samples"),
    "no encoder": (model(encoder_config=None), {}, "has no encoder, and a codec has both"),
    "a broken configuration": (model(codebook_size=33), {}, "transformers cannot read the configuration of"),
    "no configuration": (without("config.json"), {}, "has no model_index.json and no config.json"),
    "other weights": (model(num_filters=16), {}, "does not fit MimiModel: "),
}  # fmt: skip


BAD_ENCODECS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "later samples": ({"use_causal_conv": False}, {}, "because its convolutions see later samples"),
    "loudness": ({"normalize": True}, {}, "because it divides recordings by their loudness"),
    "overlaps": ({"chunk_length_s": 1.0, "overlap": 0.01}, {}, "because it cuts recordings into chunks that overlap"),
    "norms of recordings": ({"norm_type": "time_group_norm"}, {}, "because it normalises whole recordings"),
    "few frames": ({}, {"frames": 4}, "frames is 4, and must be how many frames a chunk has, such as 5"),
    "too many codebooks": ({}, {"codebooks": 5}, "codebooks is 5, and must be from 1 to 4"),
    "a long reflection": ({"residual_kernel_size": 50}, {}, "reflects 49 elements in front of a recording, and a chunk "
                                                            "has 40 there; choose more frames"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_ENCODECS)
def test_bad_encodecs(name: str, tmp_path: Path) -> None:
    settings, options, message = BAD_ENCODECS[name]
    folder = streaming_models.encodec(tmp_path / "source", **settings)
    assert_refused(folder, unchanged, options, message, tmp_path / "place")


@pytest.mark.parametrize("name", BAD_CODECS)
def test_bad_codecs(name: str, mimi_folder: Path, tmp_path: Path) -> None:
    assert_refused(mimi_folder, *BAD_CODECS[name], tmp_path)


BAD_RECOGNISERS: dict[str, tuple[Change, dict[str, Any], str]] = {
    "no lookahead": (unchanged, {"lookahead": -1}, "lookahead is -1, and must be a number of frames less than 5"),
    "a long lookahead": (unchanged, {"lookahead": 5}, "lookahead is 5, and must be"),
    "no tokenizer": (without("tokenizer.json"), {}, "has no tokenizer.json"),
    "another class": (of_class("ParakeetForTDT"), {"kind": "speech_streaming"}, "holds ParakeetForTDT, and not Nemo"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_RECOGNISERS)
def test_bad_recognisers(name: str, nemotron_folder: Path, tmp_path: Path) -> None:
    assert_refused(nemotron_folder, *BAD_RECOGNISERS[name], tmp_path)


def test_codebooks_of_a_codec_of_latents(tmp_path: Path) -> None:
    folder = streaming_models.pocket(tmp_path / "model")
    with pytest.raises(BundleError, match="has latents and no codebooks; leave codebooks out"):
        convert_bundle(folder, out=tmp_path / "out", codebooks=2)
    assert json.loads((folder / "config.json").read_text())["model_type"] == "pocket_tts_audio_tokenizer"
