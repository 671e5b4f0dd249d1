"""Codecs and recognisers that read chunks: each chunk as transformers computes it, and all together as the whole."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from patcomp import AIProgram, TorchConverter
from patcomp.emit.asset import load
from patcomp_models.bundle_folders.interfaces import Interfaces
from patcomp_models.bundles import check_bundle, convert_bundle, transcribe
from patcomp_models.bundles.folder_to_bundle import bundle_kind
from patcomp_models.language.conventions import CACHE
from patcomp_models.tasks.entries import Entry
from patcomp_models.tasks.folder_to_program import exported_entry
from tests.models.bundles import streaming_models
from tests.models.bundles.speech_models import sound

pytest.importorskip("coreai")

Calls = list[dict[str, np.ndarray]]


def streamed(bundle: Path, calls: dict[str, Calls]) -> dict[str, np.ndarray]:
    """The results of functions for chunks, joined along the axis of frames or samples; states begin with zeros.

    Args:
        bundle: of the kind `streaming_codec`.
        calls: the inputs of each call, by function.
    """
    made, told = {}, Interfaces.of(bundle / "main.aimodel")
    with closing(load(bundle / "main.aimodel")) as asset:
        for name, chunks in calls.items():
            states = {key: np.zeros(state.shape, state.dtype) for key, state in told.function(name).states.items()}
            (output,) = told.function(name).outputs
            results = [asset.run(chunk, states, name)[output] for chunk in chunks]
            made[name] = np.concatenate(results, 1 if output == "latents" else -1)
    return made


def chunks_of(name: str, values: torch.Tensor, size: int, axis: int) -> Calls:
    """The inputs of calls, from a whole recording."""
    return [{name: chunk.numpy().copy()} for chunk in values.split(size, axis)]


def recordings(count: int) -> list[torch.Tensor]:
    """Two recordings of a number of samples, (1, 1, samples)."""
    draw = torch.Generator().manual_seed(3)
    return [torch.randn(1, 1, count, generator=draw) for _ in range(2)]


def test_mimi(mimi_folder: Path, mimi_bundle: Path) -> None:
    assert_streams(mimi_folder, mimi_bundle, 1)


@pytest.mark.slow
def test_longer_chunks(mimi_folder: Path, tmp_path: Path) -> None:
    assert_streams(mimi_folder, convert_bundle(mimi_folder, out=tmp_path / "codec", frames=3), 3)


def assert_streams(folder: Path, bundle: Path, frames: int) -> None:
    """Mimi reads more frames than attention sees; the second recording begins anew."""
    assert check_bundle(bundle) == ()
    model = transformers.MimiModel.from_pretrained(folder).eval()
    for recording in recordings(16 * 12):
        whole, codes, cache, past = model.encode(recording).audio_codes, [], None, None
        for chunk in recording.split(16 * frames, -1):
            with torch.no_grad():
                found = model.encode(chunk, use_streaming=True, padding_cache=cache, **{f"encoder_{CACHE}": past})
            codes.append(found.audio_codes)
            cache, past = found.padding_cache, found[f"encoder_{CACHE}"]
        assert torch.equal(torch.cat(codes, -1), whole)  # so that chunk by chunk is the whole for transformers, too
        with torch.no_grad():
            audio = model.decode(whole).audio_values
        made = streamed(bundle, {
            "encode": chunks_of("audio", recording, 16 * frames, -1),
            "decode": chunks_of("codes", whole.int(), frames, -1),
        })  # fmt: skip
        np.testing.assert_array_equal(made["encode"], whole)
        np.testing.assert_allclose(made["decode"], audio, rtol=1e-5, atol=1e-5)
    assert len(np.unique(whole)) > 16
    assert audio.std() > 0.1


@pytest.mark.slow
def test_encodec(tmp_path: Path) -> None:
    """The chunks reflect what is in front of a recording, and go on with the states of the LSTM."""
    assert_codes(streaming_models.encodec(tmp_path / "model"), tmp_path, frames=None, codebooks=3)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["constant", "replicate"])
def test_encodec_with_other_paddings(mode: str, tmp_path: Path) -> None:
    folder = streaming_models.encodec(tmp_path / "model", pad_mode=mode, audio_channels=2, num_lstm_layers=1)
    assert_codes(folder, tmp_path, frames=2, codebooks=None)


def assert_codes(folder: Path, place: Path, *, frames: int | None, codebooks: int | None) -> None:
    bundle = convert_bundle(folder, out=place / "codec", frames=frames, codebooks=codebooks)
    assert check_bundle(bundle) == ()
    told = json.loads((bundle / "metadata.json").read_text())["config"]
    frames, size, channels = told["frames_per_chunk"], told["samples_per_frame"], told["channels"]
    model, draw = transformers.EncodecModel.from_pretrained(folder).eval(), torch.Generator().manual_seed(3)
    for _ in range(2):  # the second recording begins anew
        recording = torch.randn(1, channels, size * 20, generator=draw)
        with torch.no_grad():
            codes = model.encode(recording, bandwidth=1.0).audio_codes[0][:, : told["codebooks"]]
            audio = model.decode(codes[None], [None]).audio_values
        made = streamed(bundle, {
            "encode": chunks_of("audio", recording, frames * size, -1),
            "decode": chunks_of("codes", codes.int(), frames, -1),
        })  # fmt: skip
        np.testing.assert_array_equal(made["encode"], codes)
        np.testing.assert_allclose(made["decode"], audio, rtol=1e-5, atol=1e-5)
        assert len(np.unique(codes)) > 16
        assert audio.std() > 0.01


@pytest.mark.slow
def test_on_the_evaluator() -> None:
    """The states are those of a program, too: contexts, keys, values and positions, and no others."""
    from patcomp_models.bundles.streaming.codecs import Decode, MimiEncode

    config = transformers.MimiConfig(**streaming_models.MIMI)
    model = streaming_models.drawn_codec(transformers.MimiModel(config))
    (recording, _), codes = recordings(16 * 8), torch.arange(4, dtype=torch.int32).view(1, 4, 1)
    entries = [
        MimiEncode(model, 3).entry("encode", {"audio": recording[..., :16]}, "codes"),
        Decode(model).entry("decode", {"codes": codes[:, :3]}, "audio"),
    ]
    program = program_of(entries)
    for prefix, name in (("encoder", "encode"), ("decoder", "decode")):
        ends = ("Convolutions", "Keys", "Values", "Position")
        assert [state.name for state in program.signature(name).states] == [f"{prefix}{end}" for end in ends]
    with torch.no_grad():
        whole = model.encode(recording, num_quantizers=3).audio_codes
        audio = model.decode(whole).audio_values
    assert torch.equal(run(program, entries[0], recording.split(16, -1)), whole)
    torch.testing.assert_close(run(program, entries[1], whole.int().split(1, -1)), audio, rtol=1e-5, atol=1e-5)


def program_of(entries: list[Entry]) -> AIProgram:
    converter = TorchConverter()
    for entry in entries:
        converter.add_exported_program(
            exported_entry(entry), entry.given, entry.outputs, entry.states, entrypoint_name=entry.name
        )
    return converter.to_coreai()


def run(program: AIProgram, entry: Entry, chunks: Any) -> torch.Tensor:
    states = {name: entry.inputs[name].clone() for name in entry.states}
    made = [program.run({entry.given[0]: chunk}, state=states, entrypoint=entry.name) for chunk in chunks]
    return torch.cat([torch.as_tensor(each[entry.outputs[0]]) for each in made], -1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pocket", "vibe_voice"])
def test_codecs_of_latents(name: str, tmp_path: Path) -> None:
    folder = getattr(streaming_models, name)(tmp_path / "model")
    bundle = convert_bundle(folder, out=tmp_path / "codec", frames=2)
    assert check_bundle(bundle) == ()
    model = transformers.AutoModel.from_pretrained(folder).eval()
    size = json.loads((bundle / "metadata.json").read_text())["config"]["samples_per_frame"]
    own = {"sample": False} if name == "vibe_voice" else {}
    for recording in recordings(size * 12):
        with torch.no_grad():
            latents = model.encode(recording, **own).latents
            decoded = model.decode(latents)
        made = streamed(bundle, {
            "encode": chunks_of("audio", recording, 2 * size, -1), "decode": chunks_of("latents", latents, 2, 1),
        })  # fmt: skip
        audio = decoded.audio if name == "vibe_voice" else decoded.audio_values
        np.testing.assert_allclose(made["encode"], latents, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(made["decode"], audio, rtol=1e-5, atol=1e-5)
        assert latents.std() > 0.01
        assert audio.std() > 0.01


@pytest.mark.slow
@pytest.mark.parametrize("name", ["moshi", "kyutai"])
def test_mimi_in_another_model(name: str, tmp_path: Path) -> None:
    """The weights are those of the part."""
    folder = getattr(streaming_models, name)(tmp_path / "model")
    bundle = convert_bundle(folder, out=tmp_path / "codec", kind="streaming_codec", codebooks=2)
    assert check_bundle(bundle) == ()
    classes = {"moshi": "MoshiForConditionalGeneration", "kyutai": "KyutaiSpeechToTextForConditionalGeneration"}
    whole = getattr(transformers, classes[name]).from_pretrained(folder).eval()
    model = whole.audio_encoder if name == "moshi" else whole.codec_model
    recording = recordings(16 * 8)[0]
    with torch.no_grad():
        codes = model.encode(recording, num_quantizers=2).audio_codes
        audio = model.decode(codes).audio_values
    made = streamed(bundle, {
        "encode": chunks_of("audio", recording, 16, -1), "decode": chunks_of("codes", codes.int(), 1, -1),
    })  # fmt: skip
    np.testing.assert_array_equal(made["encode"], codes)
    np.testing.assert_allclose(made["decode"], audio, rtol=1e-5, atol=1e-5)


RECOGNISERS = [
    pytest.param("NemotronAsrStreaming", {"lookahead": 3}, id="longer chunks"),
    pytest.param("Nemotron3_5Asr", {"lookahead": 0}, id="prompts"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), RECOGNISERS)
def test_further_recognisers(name: str, options: dict[str, int], tmp_path: Path) -> None:
    folder = streaming_models.nemotron(tmp_path / "model", name)
    assert_recognises(folder, convert_bundle(folder, out=tmp_path / "recogniser", **options), name)


@pytest.mark.slow
def test_an_encoder_of_nemotron(nemotron_folder: Path) -> None:
    """The first chunk and the others have the same states; here on the evaluator."""
    from patcomp_models.bundles.streaming.recognisers import SpectrumEncode

    model = transformers.NemotronAsrStreamingForRNNT.from_pretrained(nemotron_folder).eval()
    spectrum = torch.randn(1, 5 + 3 * 8, 80, generator=torch.Generator().manual_seed(0))
    parts = [spectrum[:, :5], *spectrum[:, 5:].split(8, 1)]
    entries = [
        SpectrumEncode(model, 1, is_first=is_first).entry(name, {"input_features": part}, "encoder_hidden_states")
        for name, part, is_first in (("first", parts[0], True), ("main", parts[1], False))
    ]
    program = program_of(entries)
    states = {name: entries[0].inputs[name].clone() for name in entries[0].states}
    kept: dict[str, Any] = {}
    for number, part in enumerate(parts):
        with torch.no_grad():
            wanted = model.get_audio_features(part, use_cache=True, num_lookahead_tokens=1, **kept)
        kept = {CACHE: wanted[CACHE], "padding_cache": wanted.padding_cache}
        name = "main" if number else "first"
        made = program.run({"input_features": part}, state=states, entrypoint=name)["encoder_hidden_states"]
        torch.testing.assert_close(torch.as_tensor(made), wanted.pooler_output, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_nemotron(nemotron_folder: Path, nemotron_bundle: Path) -> None:
    assert_recognises(nemotron_folder, nemotron_bundle, "NemotronAsrStreaming")


def assert_recognises(folder: Path, bundle: Path, name: str) -> None:
    """The frames of each chunk, and the tokens, are those of transformers' own streaming."""
    assert check_bundle(bundle) == ()
    assert bundle_kind(folder).name == "speech_streaming"
    model = getattr(transformers, f"{name}ForRNNT").from_pretrained(folder).eval()
    chunks = json.loads((bundle / "metadata.json").read_text())["chunks"]
    extractor = transformers.AutoFeatureExtractor.from_pretrained(folder)
    told = Interfaces.of(bundle / "encoder.aimodel").function("first").states
    different = set[int]()
    first, size, lookahead = chunks["first_mel_frames"], chunks["mel_frames"], chunks["lookahead"]
    for samples in (sound(7000), sound(4000)[::-1].copy()):
        spectrum = extractor(samples, sampling_rate=16000, return_tensors="pt").input_features
        spectrum = torch.nn.functional.pad(spectrum, (0, 0, 0, -(spectrum.shape[1] - first) % size))
        parts = [spectrum[:, :first], *spectrum[:, first:].split(size, 1)]
        states = {key: np.zeros(state.shape, state.dtype) for key, state in told.items()}
        kept: dict[str, Any] = {}
        with closing(load(bundle / "encoder.aimodel")) as asset, torch.no_grad():
            for number, part in enumerate(parts):
                found = model.get_audio_features(part, use_cache=True, num_lookahead_tokens=lookahead, **kept)
                kept = {CACHE: found[CACHE], "padding_cache": found.padding_cache}
                given = {"input_features": part.numpy().copy()}
                if name == "Nemotron3_5Asr":
                    given["prompt_id"] = np.array([model.config.default_prompt_id], np.int32)
                made = asset.run(given, states, "main" if number else "first")["encoder_hidden_states"]
                np.testing.assert_allclose(made, found.pooler_output, rtol=1e-5, atol=1e-5)
        wanted = model.generate((part for part in parts), num_lookahead_tokens=lookahead).sequences[0].tolist()
        blank = model.config.blank_token_id
        tokens = [token for token in wanted if token not in (blank, model.config.pad_token_id)]
        assert transcribe(bundle, samples).tokens == tokens
        different |= set(tokens)
    assert len(different) > 1
