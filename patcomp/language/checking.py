"""Whether a converted program computes what the model of transformers does."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from patcomp import AIProgram
from patcomp.errors import ConversionWarning
from patcomp.ir.pages import release
from patcomp.language.contract import LOGITS, POSITIONS, TOKENS
from patcomp.language.decoder import Decoder
from patcomp.language.errors import LanguageModelError

TOLERANCE = {torch.float32: 1e-4, torch.float16: 0.02, torch.bfloat16: 0.08}
"""The largest difference of a logit from the model's, as a part of the largest logit."""

_TOKENS = 8


def check_program(program: AIProgram, decoder: Decoder, prompt: Sequence[int], dtype: torch.dtype) -> None:
    """Compare a program's logits of a prompt with the model's, which takes the prompt in one call without a cache.

    The program takes it in three calls: half of it, all but one token, and one token, so that states are carried over.
    A token whose most probable successor differs within the tolerance is a warning with the margin of the logits.

    Args:
        program: its `main` is compared, on the evaluator.
        decoder: of the model.
        prompt: token ids; none for eight of the vocabulary.
        dtype: of the weights.

    Raises:
        LanguageModelError: a logit differs by more than 2 % of the largest one (bfloat16 8 %, float32 0.01 %), or the
            model's own are not finite.
    """
    model: Any = decoder.model
    tokens = list(prompt) or [(7 * each + 1) % model.config.vocab_size for each in range(_TOKENS)]
    with torch.no_grad():
        wanted = model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0].float()
    release_all(model, ())  # so that the weights of model and program, if mapped from files, are not both in memory
    largest = largest_of(wanted, dtype)
    made = torch.from_numpy(_in_pieces(program, decoder, tokens))
    release_all(model, [program])
    differences = (made - wanted).abs().amax(1) / largest
    worst = int(differences.argmax())
    if not float(differences[worst]) <= TOLERANCE[dtype]:
        first = torch.tensor([tokens[:_TOKENS]])
        arguments = first, torch.arange(first.shape[1])[None], *decoder.states.zeros(2 * first.shape[1])
        compare(program, decoder, arguments, dtype, "main")
        raise LanguageModelError(
            "in several calls the converted program does not compute what the model does in one: the logits of token "
            f"{worst} of the comparison differ by {float(differences[worst]):.2g} of the largest; please report this"
        )
    warn_of_ties(made, wanted)


def largest_of(logits: Tensor, dtype: torch.dtype) -> float:
    """The largest of a model's own logits.

    Raises:
        LanguageModelError: they are not finite.
    """
    largest = float(logits.abs().max())
    if not math.isfinite(largest):
        raise LanguageModelError(
            f"the model's own logits are not finite in {str(dtype).removeprefix('torch.')}; pass dtype='bfloat16'"
        )
    return largest


def _in_pieces(program: AIProgram, decoder: Decoder, tokens: list[int]) -> np.ndarray:
    """A program's logits, (tokens, vocabulary), from calls that continue each other."""
    states = dict(zip(decoder.states.names, decoder.states.zeros(2 * len(tokens)), strict=True))
    ends = sorted({len(tokens) // 2, len(tokens) - 1, len(tokens)} - {0})
    logits = []
    for start, end in zip([0, *ends], ends, strict=False):
        inputs = {TOKENS: torch.tensor([tokens[start:end]]), POSITIONS: torch.arange(end)[None]}
        logits.append(np.asarray(program.run(inputs, state=states)[LOGITS], np.float32)[0])
    return np.concatenate(logits)


def warn_of_ties(made: Tensor, wanted: Tensor) -> None:
    """Say where the most probable token differs, which is no error where the rounding explains it."""
    chosen = made.argmax(1)
    margins = wanted.amax(1) - wanted.gather(1, chosen[:, None])[:, 0]
    others = int((margins > 0).sum())
    if others:
        warnings.warn(
            f"after {others} of {len(chosen)} tokens the bundle's most probable token is another than the model's; the "
            f"model's own logits of the two are {float(margins.max()):.2g} apart, which is within the rounding",
            ConversionWarning,
            stacklevel=2,
        )


def compare(
    program: AIProgram, module: nn.Module, arguments: tuple[Tensor, ...], dtype: torch.dtype, entrypoint: str
) -> None:
    """Compare what an entry point computes in one call with the module that it was exported from.

    Raises:
        LanguageModelError: as `check_program`.
    """
    given = tuple(each.clone() for each in arguments)
    with torch.no_grad():
        logits = module(*given)
    release_all(module, ())
    largest = largest_of(logits, dtype)
    # a tolerance is given, because otherwise the model would be computed in float32 too, in twice its memory
    verification = program.verify_against(
        _again(logits, given), arguments, backends=["evaluator"], entrypoint=entrypoint,
        tolerance=largest * TOLERANCE[dtype],
    )  # fmt: skip
    release_all(module, [program])
    if not verification.passed:
        raise LanguageModelError(
            f"the converted program does not compute what the model does; please report this:\n{verification}"
        )


def _again(result: Tensor, left: Sequence[Tensor]) -> Callable[..., Tensor]:
    """A function that repeats a call from its record: it returns the result and writes the arguments as the call
    did."""

    def function(*arguments: Tensor) -> Tensor:
        for argument, value in zip(arguments, left, strict=True):
            argument.copy_(value)
        return result

    return function


def release_all(model: nn.Module, programs: Iterable[AIProgram]) -> None:
    """Give back the pages of the weights of model and programs that are mapped from files."""
    release(_bytes_of(model))
    for program in programs:
        release(blob.data for blob in program.module.blobs)


def _bytes_of(model: nn.Module) -> Iterator[memoryview]:
    """The memory of a model's weights."""
    for weight in model.parameters():
        if weight.is_contiguous():
            yield memoryview(weight.detach().reshape(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]
