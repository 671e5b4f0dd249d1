"""Whether a vision-language bundle computes what the model of transformers does.

The model takes the pixels of an image and tokens around it in one call. The bundle takes all but one token in one call,
as Apple's engine does, and the last token in a second one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from patcomp import AIProgram
from patcomp.evaluate.given import as_array
from patcomp.ir.pages import release
from patcomp_models.errors import LanguageModelError
from patcomp_models.language.checking import (
    TOLERANCE,
    calls_of_program,
    calls_on,
    check_tokens,
    compare_with_module,
    largest_of,
    runtime,
    warn_of_ties,
)
from patcomp_models.language.contract import DRAFT, EMBEDDING, EMBEDDINGS, FEATURES, MAIN, PIXELS, TOKENS, TOWER
from patcomp_models.language.dynamic_form import decoder_arguments
from patcomp_models.language.generation import AssetCall, Session
from patcomp_models.language.hearing import HEARD, SOUND
from patcomp_models.language.memory import weight_memory
from patcomp_models.language.vision.decoder import EmbeddedHead, EmbeddingDecoder
from patcomp_models.language.vision.generating import AssetRun, embedded_call, features_of
from patcomp_models.language.vision.moments import video_function
from patcomp_models.language.vision.shapes import function_name
from patcomp_models.language.vision.sounds import SoundEncoder
from patcomp_models.language.vision.tower import Tower
from patcomp_models.language.vision.videos import VideoRow, moment_given, moment_inputs

_BEFORE, _BEHIND = 3, 4
"""The tokens of the comparison in front of the image, and behind it."""


class VisionComparison:
    """A model and its bundle, on an image between tokens.

    Args:
        decoder: of the model.
        tower: for images of one shape.
        dtype: of the weights.
        sound: the encoder of sound, if a window of sound is behind the image.
        video: of the model, if the image is a moment of a video.
    """

    def __init__(
        self, decoder: EmbeddingDecoder, tower: Tower, dtype: torch.dtype, sound: SoundEncoder | None = None,
        video: VideoRow | None = None,
    ):  # fmt: skip
        self.decoder, self.tower, self.dtype, self.sound, self.video = decoder, tower, dtype, sound, video
        self.model: Any = tower.model
        pixels = torch.randn(1, 3, *tower.shape, generator=torch.Generator().manual_seed(0))
        self.function, self.read = function_name(tower.shape, decoder.tower.size), {PIXELS: pixels}
        if video is not None:
            self.function, self.read = video_function(tower.shape), moment_inputs(tower)
        self.token = int(getattr(self.model.config, "image_token_id" if video is None else video.token))
        self.tokens = _prompt(self.tower, self.token)
        if sound is not None:
            self.tokens[-1:-1] = sound.tokens

    @cached_property
    def _wanted(self) -> tuple[Tensor, Tensor]:
        """The model's logits, (tokens, vocabulary), and the features of the image."""
        tokens = torch.tensor([self.tokens])
        with torch.no_grad():
            given = {
                name: each.to(self.model.dtype) if isinstance(each, Tensor) and each.is_floating_point() else each
                for name, each in self._given(tokens).items()
            }
            given |= {} if self.sound is None else self.sound.given()
            with self.tower.mended():
                logits = self.model(input_ids=tokens, use_cache=False, **given).logits[0].float()
            features = self.tower(*self.read.values())[0].float()
        release(weight_memory(self.model))
        return logits, features

    def _given(self, tokens: Tensor) -> dict[str, Any]:
        """The arguments with which the model itself takes the image beside tokens."""
        if self.video is not None:
            return moment_given(self.tower, self.video, tokens)
        return self.tower.given(self.read[PIXELS], tokens, len(self.tokens) - 1)

    def _seen(self, run: AssetRun) -> np.ndarray:
        """The features of the image."""
        if self.video is None:
            return features_of(run, self.read[PIXELS].numpy())
        return np.asarray(run({name: each.numpy() for name, each in self.read.items()})[FEATURES])

    def check_programs(self, programs: Mapping[str, AIProgram], head: EmbeddedHead | None = None) -> None:
        """Compare programs, by role, on the evaluator; a head that foresees tokens with the module of it.

        Raises:
            LanguageModelError: a logit differs by more than 2 % of the largest one (bfloat16 8 %, float32 0.01 %), or
                the model's own are not finite.
        """
        wanted, features = self._wanted
        largest = largest_of(wanted, self.dtype)
        made, seen = self._evaluated(programs)
        worst = float(((made - wanted).abs().amax(1) / largest).max())
        if not worst <= TOLERANCE[self.dtype]:
            off = float((torch.from_numpy(seen[0]).float() - features).abs().max() / features.abs().max())
            raise LanguageModelError(
                f"the converted programs do not compute what {type(self.model).__name__} does: logits differ by "
                f"{worst:.2g} of the largest one, and the features of the image by {off:.2g} of the largest feature; "
                "please report this"
            )
        warn_of_ties(made, wanted, "the evaluator")
        if head is not None:
            rows = torch.from_numpy(np.asarray(programs[EMBEDDING].run({TOKENS: np.array([self.tokens])})[EMBEDDINGS]))
            _, *others = decoder_arguments(head, len(self.tokens), len(self.tokens), len(self.tokens) + 1)
            others[1].normal_(generator=torch.Generator().manual_seed(0))
            compare_with_module(programs[MAIN], head, (rows, *others), self.dtype, DRAFT)

    def _evaluated(self, programs: Mapping[str, AIProgram]) -> tuple[Tensor, np.ndarray]:
        """The logits of programs on the evaluator, and the features of the image."""
        seen = self._seen(partial(programs[TOWER].run, entrypoint=self.function))
        heard = None if self.sound is None else partial(programs[SOUND].run, entrypoint=SOUND)
        made = self._made(programs[EMBEDDING].run, calls_of_program(programs[MAIN]), seen, heard)
        for program in programs.values():
            release(blob.data for blob in program.module.blobs)
        return made, seen

    def check_assets(
        self, folder: Path, files: Mapping[str, str], compressed: Mapping[str, AIProgram] | None = None
    ) -> None:
        """Compare assets on the Core AI runtime, in another process: the most probable token after each token.

        Args:
            folder: of the bundle.
            files: the assets in it, by role.
            compressed: the programs with compressed weights, which the assets then are compared with in place of the
                model.

        Raises:
            LanguageModelError: a token differs, and rounding of both logits does not explain it; or the runtime refuses
                an asset.
        """
        wanted = self._wanted[0] if compressed is None else self._evaluated(compressed)[0]
        with runtime() as native:

            def run(role: str, name: str) -> AssetRun:
                return lambda inputs: native.call(folder / files[role], inputs, {}, name)[0]

            main = calls_on(native, folder / files[MAIN])
            seen = self._seen(run(TOWER, self.function))
            heard = None if self.sound is None else run(SOUND, SOUND)
            made = self._made(run(EMBEDDING, MAIN), main, seen, heard)
        check_tokens(made, wanted, largest_of(wanted, self.dtype) * TOLERANCE[self.dtype])

    def _made(self, embed: AssetRun, main: AssetCall, seen: np.ndarray, hear: AssetRun | None) -> Tensor:
        """The logits of the tokens, (tokens, vocabulary)."""
        features = {self.token: seen}
        if self.sound is not None and hear is not None:
            features[self.sound.token] = np.asarray(hear(self.sound.example)[HEARD])
        empty = {state.name: as_array(state.zeros(0)) for state in self.decoder.states.states}
        call = embedded_call(embed, main, features)
        session = Session(call, {}, empty, 2 * len(self.tokens))
        logits = [session.run(MAIN, part) for part in (self.tokens[:-1], self.tokens[-1:])]
        return torch.from_numpy(np.concatenate(logits))


def _prompt(tower: Tower, image: int) -> list[int]:
    """Tokens, with those of an image between them."""
    vocabulary = tower.model.config.get_text_config().vocab_size
    words = [token % vocabulary for token in range(1, 7 * (_BEFORE + _BEHIND) + 2, 7) if token % vocabulary != image]
    before = [*words[: _BEFORE - 1], words[_BEFORE - 1] if tower.begin is None else tower.begin]
    return [*before, *[image] * tower.token_count, *words[_BEFORE : _BEFORE + _BEHIND]]
