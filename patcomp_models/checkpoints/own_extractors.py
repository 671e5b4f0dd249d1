"""Extractors of features that transformers computes with torchaudio, with PyTorch alone.

Each has the name and the settings of the class of transformers, so that what it saves is read by transformers.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoTokenizer, FeatureExtractionMixin, SequenceFeatureExtractor
from transformers.audio_utils import mel_filter_bank
from transformers.models.granite_speech import feature_extraction_granite_speech as granite_speech

from patcomp_models.errors import LanguageModelError


def mel_spectrogram(samples: Tensor, *, rate: int, size: int, window: int, hop: int, bins: int) -> Tensor:
    """What `torchaudio.transforms.MelSpectrogram` computes by default: the power of a short-time Fourier transform, by
    triangles of the mel scale of HTK, without a norm.

    Args:
        samples: (recordings, samples) of float32.
        rate: samples of a second.
        size: of the transform.
        window: samples of the periodic Hann window.
        hop: samples from one window to the next.
        bins: triangles, from 0 to half of the rate.

    Returns:
        (recordings, frames, bins).
    """
    transform = torch.stft(
        samples, size, hop, window, torch.hann_window(window), center=True, pad_mode="reflect", return_complex=True
    )
    triangles = mel_filter_bank(size // 2 + 1, bins, 0.0, float(rate // 2), rate)
    return transform.abs().square().transpose(1, 2) @ torch.from_numpy(triangles).float()


class GraniteSpeechFeatureExtractor(granite_speech.GraniteSpeechFeatureExtractor):  # type: ignore[misc]
    """Pairs of frames of the mel spectrogram, as logarithms, (1, frames / 2, 2 * bins)."""

    def __init__(
        self, sampling_rate: int = 16000, n_fft: int = 512, win_length: int = 400, hop_length: int = 160,
        n_mels: int = 80, projector_window_size: int = 15, projector_downsample_rate: int = 5,
        padding_value: float = 0.0, feature_size: int | None = None, **others: Any,
    ):  # fmt: skip
        bins = n_mels if feature_size is None else feature_size
        told = others.pop("melspec_kwargs", None)
        SequenceFeatureExtractor.__init__(
            self, feature_size=bins, sampling_rate=sampling_rate, padding_value=padding_value, **others
        )
        self.sampling_rate = sampling_rate
        self.melspec_kwargs = {
            "sample_rate": sampling_rate, "n_fft": n_fft, "win_length": win_length, "hop_length": hop_length,
            "n_mels": n_mels,
        }  # fmt: skip
        if told not in (None, self.melspec_kwargs):
            raise ValueError(f"melspec_kwargs is {told}, and transformers reads n_fft and others beside it")
        self.projector_window_size, self.projector_downsample_rate = projector_window_size, projector_downsample_rate

    def __call__(self, audios: Any, device: str | None = "cpu") -> Any:
        """The features, the number of audio tokens of each recording, and which tokens it has."""
        is_one = not isinstance(audios, list | tuple) and audios.ndim == 1
        rows = [torch.as_tensor(each).float() for each in ([audios] if is_one else audios)]
        if any(each.ndim != 1 for each in rows):
            raise ValueError("a recording is one row of samples")
        samples = nn.utils.rnn.pad_sequence(rows, batch_first=True)
        sizes = [self.tokens_of(len(each)) for each in rows]
        mask = torch.arange(max(sizes))[None] < torch.tensor(sizes)[:, None]
        made = {"input_features": self._features(samples), "audio_embed_sizes": sizes, "input_features_mask": mask}
        return granite_speech.BatchFeature(data=made)

    def tokens_of(self, samples: int) -> int:
        """How many audio tokens a recording has, from the number of its samples."""
        frames = (samples // self.melspec_kwargs["hop_length"] + 1) // 2
        windows = -(-frames // self.projector_window_size)
        return int(windows * (self.projector_window_size // self.projector_downsample_rate))

    def _features(self, samples: Tensor) -> Tensor:
        told = self.melspec_kwargs
        power = mel_spectrogram(
            samples, rate=told["sample_rate"], size=told["n_fft"], window=told["win_length"],
            hop=told["hop_length"], bins=told["n_mels"],
        )  # fmt: skip
        made = power.clip(min=1e-10).log10()
        made = torch.maximum(made, made.amax((1, 2), keepdim=True) - 8.0) / 4 + 1
        return made[:, : made.shape[1] // 2 * 2].reshape(len(made), -1, 2 * made.shape[2])


_EXTRACTORS: Mapping[str, type] = {"GraniteSpeechFeatureExtractor": GraniteSpeechFeatureExtractor}
"""By the class of transformers."""


def own_extractor(folder: Path) -> Any | None:
    """The extractor of a checked folder, if it is one of this module.

    Raises:
        LanguageModelError: a setting has no meaning.
    """
    if not any((folder / name).is_file() for name in ("preprocessor_config.json", "processor_config.json")):
        return None
    try:
        settings, _ = FeatureExtractionMixin.get_feature_extractor_dict(folder, local_files_only=True)
    except OSError:  # the processor has no extractor
        return None
    kind = str(settings.pop("feature_extractor_type", None))
    if kind not in _EXTRACTORS:
        return None
    try:
        return _EXTRACTORS[kind](**settings)
    except (TypeError, ValueError) as error:
        raise LanguageModelError(f"the settings of {kind} in {str(folder)!r} cannot be used: {error}") from error


def own_processor(folder: Path) -> Any | None:
    """The processor of a checked folder, if its extractor is one of this module.

    Raises: as `own_extractor`.
    """
    from transformers import GraniteSpeechProcessor

    if (extractor := own_extractor(folder)) is None:
        return None
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    settings, _ = GraniteSpeechProcessor.get_processor_dict(folder, local_files_only=True)
    return GraniteSpeechProcessor.from_args_and_dict([extractor, tokenizer], settings)
