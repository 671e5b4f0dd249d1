"""SpeechT5 and Bark: the loops of a host with the functions of a bundle give what `generate` of transformers gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from patcomp_models.bundles import BundleError, check_bundle, convert_bundle
from patcomp_models.language.conventions import CACHE
from tests.models.bundles import speaking_models
from tests.models.bundles.bundle_parts import Array, Parts, parts_of
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

pytest.importorskip("coreai")


# ---- SpeechT5 ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def speech_t5_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return speaking_models.speech_t5(tmp_path_factory.mktemp("speaking") / "model")


@pytest.fixture(scope="module")
def speech_t5_bundle(speech_t5_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("bundles") / "out"
    return convert_bundle(speech_t5_folder, out=out, verify=False)


def test_speech_t5(speech_t5_folder: Path, speech_t5_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_bundle(speech_t5_bundle) == ()
    model = transformers.SpeechT5ForTextToSpeech.from_pretrained(speech_t5_folder).eval()
    vocoder = transformers.SpeechT5HifiGan.from_pretrained(speech_t5_folder / "vocoder").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(speech_t5_folder)
    with parts_of(speech_t5_bundle) as parts:
        for seed, text in enumerate(("hello you", "a longer text than before")):
            ids, drawn = tokenizer(text, return_tensors="pt").input_ids, list[torch.Tensor]()
            own = torch.bernoulli

            def kept(values: torch.Tensor, p: float, own: Any = own, drawn: Any = drawn) -> torch.Tensor:
                drawn.append(own(values, p=p))
                return drawn[-1]

            monkeypatch.setattr(torch, "bernoulli", kept)
            torch.manual_seed(seed)
            speaker = torch.randn(1, 6)
            with torch.no_grad():
                spectrogram = model.generate_speech(ids, speaker, maxlenratio=3.0)
                waveform = vocoder(spectrogram)
            monkeypatch.undo()
            masks = np.stack([mask[-1:].numpy() for mask in drawn]).reshape(-1, 2, 1, 16)
            made = spoken(parts, ids, speaker, masks)
            np.testing.assert_allclose(made[0], spectrogram[None], rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(made[1], waveform[None], rtol=1e-5, atol=1e-5)
            assert waveform.std() > 1e-3


def spoken(parts: Parts, ids: torch.Tensor, speaker: torch.Tensor, masks: Array) -> tuple[Array, Array]:
    """The spectrogram and the samples, with as many steps as transformers took and given dropout."""
    cross = parts.call("main", "encode", {"input_ids": ids})
    states, frame, spectra = parts.zeros("main", "step", len(masks) + 1), np.zeros((1, 1, 8)), list[Array]()
    for step, mask in enumerate(masks):
        inputs = {"frame": frame, "dropout": mask, "speaker_embedding": speaker, "position_ids": [range(step + 1)]}
        made = parts.call("main", "step", {**inputs, **cross}, states)
        spectra.append(made["spectrum"])
        frame = made["spectrum"][:, -1:]
        is_last = made["stop"].sum() >= 0.5 or step + 1 == int(ids.shape[1] * 3.0 / 2)
        assert is_last == (step + 1 == len(masks))
    spectrogram = parts.call("main", "postnet", {"spectrogram": np.concatenate(spectra, 1)})["postnet_spectrogram"]
    return spectrogram, parts.call("vocoder", "main", {"spectrogram": spectrogram})["waveform"]


# ---- Bark ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bark_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return speaking_models.bark(tmp_path_factory.mktemp("speaking") / "model")


@pytest.fixture(scope="module")
def bark_bundle(bark_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return convert_bundle(bark_folder, out=tmp_path_factory.mktemp("bundles") / "out", verify=False)


Call = tuple[dict[str, Any], torch.Tensor]


def recorded(part: Any, monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """What `generate` calls a part with, and its logits."""
    calls, own = list[Call](), part.forward

    def forward(*given: Any, **options: Any) -> Any:
        before = options.get(CACHE)
        options = {**options, "given": given, "seen": before.get_seq_length() if before is not None else 0}
        kept = {key: value.clone() if isinstance(value, torch.Tensor) else value for key, value in options.items()}
        kept["given"] = tuple(each.clone() if isinstance(each, torch.Tensor) else each for each in given)
        options = {key: value for key, value in options.items() if key not in ("given", "seen")}
        made = own(*given, **options)
        calls.append((kept, made.logits))
        return made

    monkeypatch.setattr(part, "forward", forward)
    return calls


def assert_tokens(parts: Parts, role: str, calls: list[Call], prompt: dict[str, torch.Tensor] | None) -> None:
    """All calls of a model of tokens have the same logits; one that has seen nothing begins anew."""
    for options, logits in calls:
        new = logits.shape[1]
        if options["seen"] == 0:
            states = parts.zeros(role, "main", 64)
        if options["seen"] == 0 and prompt is not None:
            made = parts.call(role, "prompt", prompt, states)
        else:
            ids = options["input_ids"][:, -new:]
            made = parts.call(role, "main", {"input_ids": ids, "position_ids": [range(options["seen"] + new)]}, states)
        np.testing.assert_allclose(made["logits"], logits[:, -1:], rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("has_voice", [False, True])
def test_bark(has_voice: bool, bark_folder: Path, bark_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call of each part in `generate`, with the tokens that it chose before, and the samples of the codes."""
    assert check_bundle(bark_bundle) == ()
    model = transformers.BarkModel.from_pretrained(bark_folder).eval()
    ids, mask = torch.tensor([[3, 9, 4, 17, 5, 1, 1, 1]]), torch.tensor([[1, 1, 1, 1, 1, 0, 0, 0]])
    draw = torch.Generator().manual_seed(5)
    voice = {
        "semantic_prompt": torch.randint(0, 20, (6,), generator=draw),
        "coarse_prompt": torch.randint(0, 16, (2, 6), generator=draw),
        "fine_prompt": torch.randint(0, 16, (4, 6), generator=draw),
    }  # fmt: skip
    calls = {
        role: recorded(part, monkeypatch) for role, part in
        {"semantic": model.semantic, "coarse": model.coarse_acoustics, "fine": model.fine_acoustics}.items()
    }  # fmt: skip
    decoded, own = list[torch.Tensor](), model.codec_decode
    monkeypatch.setattr(model, "codec_decode", lambda codes, lengths: (decoded.append(codes), own(codes, lengths))[1])
    with torch.no_grad():
        waveform = model.generate(ids, attention_mask=mask, history_prompt=voice if has_voice else None)
    history = torch.full((1, 8), 20)  # padding
    if has_voice:
        history[0, :6] = voice["semantic_prompt"]
    text = torch.where(mask == 1, ids + 24, 58)
    with parts_of(bark_bundle) as parts:
        assert_tokens(parts, "semantic", calls["semantic"], {"text_ids": text, "history_ids": history})
        assert_tokens(parts, "coarse", calls["coarse"], None)
        for options, logits in calls["fine"]:
            number, codes = options["given"]
            made = parts.call("fine", f"codebook_{number}", {"codes": codes})["logits"]
            np.testing.assert_allclose(made, logits, rtol=1e-5, atol=1e-5)
        audio = parts.call("codec", "main", {"codes": decoded[0]})["audio"]
    np.testing.assert_allclose(audio, waveform, rtol=1e-5, atol=1e-5)
    assert len(calls["semantic"]) > 3
    assert len(calls["coarse"]) > 3
    assert waveform.std() > 1e-3


# ---- departures and refusals ---------------------------------------------------------------------------


SPEECH_T5: dict[str, tuple[Change, str]] = {
    "no config": (edited(lambda m: m.pop("config")), "config is missing"),
    "no architecture": (config(architecture=None), "config.architecture is None, and must be one of vits, speecht5"),
    "another architecture": (config(architecture="bark"), "assets.semantic is missing"),
    "no bins": (edited(lambda m: m["config"].pop("num_mel_bins")), "config.num_mel_bins is None, and must be"),
    "no rate": (config(sample_rate="16000"), "config.sample_rate is '16000', and must be an integer"),
    "no units": (config(prenet_units=None), "config.prenet_units is None"),
    "no layers": (edited(lambda m: m["config"].pop("prenet_layers")), "config.prenet_layers is None"),
    "no factor": (config(reduction_factor=2.0), "config.reduction_factor is 2.0"),
    "no samples": (config(samples_per_frame=None), "config.samples_per_frame is None"),
    "no main": (edited(lambda m: m["assets"].pop("main")), "assets.main is missing"),
    "no vocoder": (edited(lambda m: m["assets"].pop("vocoder")), "assets.vocoder is missing"),
    "no file": (without("vocoder.aimodel"), "assets.vocoder is vocoder.aimodel, which does not exist"),
    "no tokenizer": (without("processor/tokenizer_config.json"), "there is no processor/tokenizer_config.json"),
    "a damaged asset": (without("main.aimodel/main.mlirb"), "is not an asset"),
    "exchanged assets": (exchanged("main.aimodel", "vocoder.aimodel"), "main.aimodel has no function 'encode'"),
    "other bins": (config(num_mel_bins=80), "the input frame of step is 1 x 1 x 8 of float32, and must be 1 x 1 x 80"),
    "other layers": (config(prenet_layers=3), "the input dropout of step is 2 x 1 x 16 of float32, and must be 3 x 1"),
    "another speaker": (config(speaker_embedding_dim=9), "the input speaker_embedding of step is 1 x 6 of float32"),
    "another factor": (config(reduction_factor=1), "the output spectrum of step is 1 x 2 x 8 of float32, and must be"),
    "one asset twice": (
        edited(lambda m: m["assets"].update(vocoder="main.aimodel")), "main.aimodel has no function 'main'"),
}  # fmt: skip


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", SPEECH_T5)
def test_departures_of_speech_t5(name: str, speech_t5_bundle: Path, tmp_path: Path) -> None:
    assert_departs(speech_t5_bundle, tmp_path, *SPEECH_T5[name])


BARK: dict[str, tuple[Change, str]] = {
    "no settings": (without("generation_config.json"), "there is no generation_config.json, which says how tokens"),
    "no semantic model": (edited(lambda m: m["assets"].pop("semantic")), "assets.semantic is missing"),
    "no coarse model": (edited(lambda m: m["assets"].pop("coarse")), "assets.coarse is missing"),
    "no fine model": (edited(lambda m: m["assets"].pop("fine")), "assets.fine is missing"),
    "no codec": (edited(lambda m: m["assets"].pop("codec")), "assets.codec is missing"),
    "no tokenizer": (without("processor/tokenizer_config.json"), "there is no processor/tokenizer_config.json"),
    "no rate": (config(sample_rate=None), "config.sample_rate is None"),
    "no codebooks": (edited(lambda m: m["config"].pop("codebooks")), "config.codebooks is None"),
    "another text": (config(longest_text=9), "text_ids of prompt of semantic is 1 x 8 of int32, and must be 1 x 9"),
    "other words": (config(semantic_vocabulary=25), "logits of main of semantic is 1 x 1 x 24"),
    "other coarse words": (config(coarse_vocabulary=61), "logits of main of coarse is 1 x 1 x 60"),
    "other frames": (config(fine_frames=16), "codes of codebook_2 of fine is 1 x 32 x 4 of int32, and must be 1 x 16"),
    "more codebooks": (config(codebooks=5), "fine.aimodel has no function 'codebook_4'"),
    "fewer codebooks given": (config(codebooks_given=1), "fine.aimodel has no function 'codebook_1'"),
    "exchanged assets": (exchanged("semantic.aimodel", "coarse.aimodel"), "semantic.aimodel has no function 'prompt'"),
    "a codec without states": (
        exchanged("coarse.aimodel", "codec.aimodel"), "the states of main of coarse are none; they must be keyCache"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", BARK)
def test_departures_of_bark(name: str, bark_bundle: Path, tmp_path: Path) -> None:
    assert_departs(bark_bundle, tmp_path, *BARK[name])


BAD: dict[str, tuple[str, Change, dict[str, Any], str]] = {
    "no vocoder": ("speech_t5", without("vocoder"), {}, "makes spectrograms, and needs a vocoder; give the folder of"),
    "no folder of a vocoder": ("speech_t5", unchanged, {"vocoder": "nowhere"}, "is 'nowhere', which is not the folder"),
    "no tokenizer": ("speech_t5", without("tokenizer.json"), {"vocoder": "x"}, "has no tokenizer.json"),
    "SeamlessM4T v2": (
        "speech_t5", of_class("SeamlessM4Tv2ForTextToSpeech"), {}, "becomes no bundle, because its second model"
    ),
    "no class": ("speech_t5", of_class("BertModel"), {"kind": "text_to_speech"}, "holds BertModel, and not VitsModel"),
    "a vocoder of Bark": ("bark", unchanged, {"vocoder": "x"}, "BarkModel has no option 'vocoder'; it is for SpeechT5"),
    "no settings": ("bark", without("generation_config.json"), {}, "has no semantic_config, which says how tokens"),
    "Bark without tokenizer": ("bark", without("tokenizer.json"), {}, "has no tokenizer.json"),
    "Bark without weights": ("bark", without("model.safetensors"), {}, "lacks model.safetensors, the file of its weig"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_folders(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    model, *case = BAD[name]
    assert_refused(request.getfixturevalue(f"{model}_folder"), *case, tmp_path)


def test_a_vocoder_of_other_bins(speech_t5_folder: Path, tmp_path: Path) -> None:
    vocoder = tmp_path / "vocoder"
    vocoder.mkdir()
    told = {**json.loads((speech_t5_folder / "vocoder" / "config.json").read_text()), "model_in_dim": 80}
    (vocoder / "config.json").write_text(json.dumps(told))
    with pytest.raises(BundleError, match="the vocoder takes 80 bins, and the model makes 8; give the vocoder of this"):
        convert_bundle(speech_t5_folder, out=tmp_path / "out", vocoder=str(vocoder))
