"""SeamlessM4T from text to speech: three loops of a host make the sound of `generate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from patcomp_models.bundles import check_bundle, convert_bundle
from tests.models.bundles import speaking_models
from tests.models.bundles.bundle_parts import Array, Parts, parts_of

pytest.importorskip("coreai")


def written(parts: Parts, role: str, read: dict[str, Any], prompt: list[int], end: int, most: int) -> Any:
    """The most probable tokens behind a prompt, with an end token if there is one, and what `decode` gave beside."""
    cross, states = parts.call(role, "encode", read), parts.zeros(role, "decode", 64)
    tokens, new, seen = [*prompt], [*prompt], list[Any]()
    while True:
        inputs = {"input_ids": [new], "position_ids": [range(len(tokens))], **cross}
        made = parts.call(role, "decode", inputs, states)
        seen.append(made)
        if (tokens[-1] == end and len(tokens) > len(prompt)) or len(tokens) == len(prompt) + most:
            return tokens, seen
        new = [int(made["logits"][0, -1].argmax())]
        tokens += new


@pytest.mark.slow
def test_seamless(tmp_path: Path) -> None:
    folder = speaking_models.seamless(tmp_path / "model")
    bundle = convert_bundle(folder, out=tmp_path / "out", verify=False)
    assert check_bundle(bundle) == ()
    model = transformers.SeamlessM4TForTextToSpeech.from_pretrained(folder).eval()
    made = list[Array]()
    with parts_of(bundle) as parts:
        told = parts.metadata["config"]
        for ids, language in (([5, 9, 17, 4, 3], "eng"), ([8, 22, 3], "fra")):
            expected = model.generate(
                input_ids=torch.tensor([ids]), tgt_lang=language, spkr_id=2, return_intermediate_token_ids=True,
                text_max_new_tokens=10, speech_max_new_tokens=12,
            )  # fmt: skip
            codes = model.generation_config
            prompt = [codes.decoder_start_token_id, codes.text_decoder_lang_to_code_id[language]]
            tokens, seen = written(parts, "text", {"input_ids": [ids]}, prompt, 3, 10)
            assert tokens == expected.sequences[0].tolist()
            hidden = np.concatenate([each["hidden"] for each in seen], 1)
            prompt = [told["unit_start"], codes.t2u_lang_code_to_id[language]]
            units, _ = written(parts, "units", {"hidden": hidden}, prompt, told["unit_end"], 12)
            assert units == expected.unit_sequences[0].tolist()
            heard = np.array([unit - told["unit_offset"] if unit != told["unit_end"] else told["unit_pad"]
                              for unit in units[2:]])  # fmt: skip
            durations = parts.call("vocoder", "durations", {"input_ids": heard[None]})["durations"][0]
            whose = {"speaker_id": [2], "language_id": [codes.vocoder_lang_code_to_id[language]]}
            repeated = np.repeat(heard, durations)[None]
            waveform = parts.call("vocoder", "main", {"input_ids": repeated, **whose})["waveform"]
            np.testing.assert_allclose(waveform, expected.waveform, rtol=1e-4, atol=1e-5)
            made.append(np.array(waveform))
            assert len(set(units)) > 4
    assert made[0].shape != made[1].shape
