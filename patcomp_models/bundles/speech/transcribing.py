"""The text of a recording, by the parts of a bundle on the Core AI runtime: for checks, not for speed.

The loops are those of `generate` of transformers with the most probable token in each step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from patcomp.emit.asset import load
from patcomp_models.bundle_folders.contract import PROCESSOR, general_problems
from patcomp_models.bundle_folders.interfaces import Interfaces
from patcomp_models.bundles.speech.folders import extractor_of, tokenizer_of
from patcomp_models.bundles.speech.frame_loops import by_chunks, by_frames, by_frames_and_durations
from patcomp_models.bundles.speech.recogniser import Recogniser, Transcription
from patcomp_models.bundles.speech.recordings import samples_of
from patcomp_models.bundles.speech.token_loops import by_caches, by_hearing, by_tokens
from patcomp_models.checkpoints.json_files import metadata_in
from patcomp_models.errors import BundleError


def transcribe(
    bundle: str | Path, recording: str | Path | np.ndarray, *, language: str | None = None, task: str | None = None
) -> Transcription:
    """The text of a recording.

    Args:
        bundle: the folder of a bundle of a model that recognises speech.
        recording: a WAVE file, or samples, (samples,) of floats from -1 to 1 at the rate of the model.
        language: of the text, such as `"de"`, in the place of the one that a bundle of Whisper was made for.
        task: the same, `"transcribe"` or `"translate"`.

    Raises:
        BundleError: the folder is no such bundle, lacks a file, or the recording does not fit it.
        MissingToolchainError: coreai-core is not installed.
    """
    folder = Path(bundle)
    metadata = metadata_in(folder)
    loop = _LOOPS.get(str(metadata.get("kind")))
    if loop is None:
        raise BundleError(
            f"{str(folder)!r} is a bundle of the kind {metadata.get('kind')!r}, and not of a model that recognises "
            f"speech: {', '.join(_LOOPS)}"
        )
    if wrong := general_problems(folder, metadata):
        raise BundleError(f"{str(folder)!r} cannot be used: {wrong[0].message}")
    options = {name: value for name, value in (("language", language), ("task", task)) if value is not None}
    if options and metadata.get("config", {}).get("architecture") != "whisper":
        raise BundleError(f"only bundles of Whisper take the option {next(iter(options))}; leave it out")
    with ExitStack() as opened:
        parts = {role: load(folder / file) for role, file in metadata["assets"].items()}
        told = {role: Interfaces.of(folder / file) for role, file in metadata["assets"].items()}
        for part in parts.values():
            opened.callback(part.close)
        processor = folder / PROCESSOR if (folder / PROCESSOR).is_dir() else folder
        extractor = extractor_of(processor)
        if isinstance(recording, str | Path):
            recording = samples_of(recording, extractor.sampling_rate)
        samples = np.asarray(recording, np.float32)
        if samples.ndim != 1 or not samples.size:
            raise BundleError(f"a recording is one row of samples, got an array of {list(samples.shape)}")
        return loop(Recogniser(folder, metadata, parts, told, extractor, tokenizer_of(processor), options), samples)


def _of_swift(model: Recogniser, samples: np.ndarray) -> Transcription:
    """The two forms of Apple's Swift package."""
    is_transducer = "decoder_step" in model.parts
    return (by_frames_and_durations if is_transducer else by_tokens)(model, samples)


_LOOPS: Mapping[str, Callable[[Recogniser, np.ndarray], Transcription]] = {
    "speech_recognizer": _of_swift, "speech_transducer": by_frames_and_durations, "speech_ctc": by_frames,
    "speech_seq2seq": by_caches, "speech_streaming": by_chunks, "hearing": by_hearing,
}  # fmt: skip
"""By the kind of the bundle."""
