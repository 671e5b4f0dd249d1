"""Whether the converted programs of a vision-language bundle compute what the model of transformers does."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from patcomp import AIProgram
from patcomp.language.checking import TOLERANCE, largest_of, release_all, warn_of_ties
from patcomp.language.contract import EMBEDDING, LOGITS, MAIN, POSITIONS, TOKENS, TOWER
from patcomp.language.errors import LanguageModelError
from patcomp.language.vision.decoder import EmbeddingDecoder
from patcomp.language.vision.generating import embedded_call, features_of

_BEFORE, _BEHIND = 3, 4
"""The tokens of the comparison in front of the image, and behind it."""


def check_programs(programs: Mapping[str, AIProgram], decoder: EmbeddingDecoder, dtype: torch.dtype) -> None:
    """Compare the programs' logits of an image between tokens with the model's own, which takes pixels and tokens.

    The programs take all but one token in one call, as Apple's engine does, and the last token in a second one.

    Args:
        programs: of the bundle, by role; they are run on the evaluator.
        decoder: of the model.
        dtype: of the weights.

    Raises:
        LanguageModelError: a logit differs by more than 2 % of the largest one (bfloat16 8 %, float32 0.01 %), or the
            model's own are not finite.
    """
    tower = decoder.tower
    model = tower.model
    pixels = torch.randn(1, 3, tower.size, tower.size, generator=torch.Generator().manual_seed(0))
    tokens = torch.tensor([_prompt(tower.token_count, model.config)])
    with torch.no_grad():
        given = {
            name: each.to(model.dtype) if each.is_floating_point() else each
            for name, each in tower.given(pixels, tokens, tokens.shape[1] - 1).items()
        }
        wanted = model(input_ids=tokens, use_cache=False, **given).logits[0].float()
        features = tower(pixels).float().numpy()
    largest = largest_of(wanted, dtype)
    seen = features_of(programs[TOWER].run, pixels.numpy())
    states = dict(zip(decoder.states.names, decoder.states.zeros(2 * tokens.shape[1]), strict=True))
    call = embedded_call(
        programs[EMBEDDING].run, lambda inputs, held: programs[MAIN].run(inputs, state=held), seen,
        model.config.image_token_id,
    )  # fmt: skip
    logits = []
    for start, end in ((0, tokens.shape[1] - 1), (tokens.shape[1] - 1, tokens.shape[1])):
        inputs = {TOKENS: tokens[:, start:end].numpy(), POSITIONS: np.arange(end)[None]}
        logits.append(torch.from_numpy(np.asarray(call(inputs, states)[LOGITS], np.float32))[0])
    release_all(model, programs.values())
    made = torch.cat(logits)
    worst = float(((made - wanted).abs().amax(1) / largest).max())
    if not worst <= TOLERANCE[dtype]:
        off = float(np.abs(seen.astype(np.float32) - features).max() / np.abs(features).max())
        raise LanguageModelError(
            f"the converted programs do not compute what {type(model).__name__} does: logits differ by {worst:.2g} of "
            f"the largest one, and the features of the image by {off:.2g} of the largest feature; please report this"
        )
    warn_of_ties(made, wanted)


def _prompt(count: int, config: object) -> list[int]:
    """Tokens, with those of an image between them."""
    vocabulary, image = config.get_text_config().vocab_size, config.image_token_id  # type: ignore[attr-defined]
    words = [token for token in range(1, 7 * (_BEFORE + _BEHIND) + 2, 7) if token % vocabulary != image]
    words = [token % vocabulary for token in words][: _BEFORE + _BEHIND]
    return [*words[:_BEFORE], *[image] * count, *words[_BEFORE:]]
