"""Whether a converted program computes what the model of transformers does.

The model takes a prompt in one call without a cache. The program takes the same tokens in calls that continue each
other, whatever it finds most probable itself, so that states are carried over and each function is called.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from patcomp import AIProgram
from patcomp.emit.native import Native, NativeError, ProcessDied
from patcomp.errors import ConversionWarning
from patcomp.evaluate.given import as_array
from patcomp.ir.pages import release
from patcomp_models.errors import LanguageModelError
from patcomp_models.language.architectures import ARCHITECTURES, spans_of
from patcomp_models.language.choices import CloseChoices
from patcomp_models.language.contract import MAIN, VERIFY
from patcomp_models.language.conventions import first_position
from patcomp_models.language.decoder import Decoder
from patcomp_models.language.dynamic_form import BundleFunction, decoder_arguments
from patcomp_models.language.generation import AssetCall, Session, feeding
from patcomp_models.language.memory import weight_memory
from patcomp_models.language.rotary import first_length

TOLERANCE = {torch.float32: 1e-4, torch.float16: 0.02, torch.bfloat16: 0.08}
"""What the rounding of a type explains: the largest difference of a logit from the model's, as a part of the largest
logit."""

_TOKENS = 8
"""How many tokens are compared, if the user gives no prompt and no function needs more; behind the windows, chunks and
switches of an architecture that is not tested."""
_MOST_SPANNED = 1024
"""The most tokens for which these are passed: every token has a row of logits, and attention grows with the square."""


class Comparison:
    """A model and functions of it, on the tokens of a prompt.

    Args:
        functions: of one decoder; each is called at least once.
        prompt: token ids, which are repeated until they suffice; none for some of the vocabulary.
        dtype: of the weights.
        limit: the most tokens of the bundle.
        most: the most tokens to compare.
        least: the fewest tokens of the first call.
    """

    def __init__(
        self, functions: Sequence[BundleFunction], prompt: Sequence[int], dtype: torch.dtype, limit: int,
        most: int | None = None, least: int = 1,
    ):  # fmt: skip
        self.functions, self.dtype, self.limit = functions, dtype, limit
        self.decoder: Decoder = functions[0].decoder
        sizes = {function.name: function.new for function in functions}
        needed = min(limit, 1 + sum(size or 1 for size in sizes.values()), most or limit)
        if not prompt:
            needed = max(needed, min(limit, most or limit, spanned(self.decoder.model)))
        some = [(7 * each + 1) % self.decoder.model.config.vocab_size for each in range(_TOKENS)]
        # a model that counts positions itself does not count padding, so that its calls would not continue each other
        padding = first_position(self.decoder.model) - 1
        given = list(prompt) or [token for token in some if token != padding]
        self.tokens = (given * -(-needed // len(given)))[: min(max(needed, len(given)), most or limit)]
        self.calls = calls_of(sizes, len(self.tokens), least)

    @property
    def tolerance(self) -> float:
        """The largest difference of a logit that rounding explains, as a part of the largest logit."""
        return TOLERANCE[self.dtype]

    @property
    def wanted(self) -> Tensor:
        """The model's logits, (tokens, vocabulary)."""
        return self.expected[0]

    @cached_property
    def expected(self) -> tuple[Tensor, Tensor]:
        """The model's logits, and after which tokens its choice of experts hangs on rounding."""
        model: Any = self.decoder.model
        with torch.no_grad(), CloseChoices(len(self.tokens), self.dtype) as choices:
            logits: Tensor = model(input_ids=torch.tensor([self.tokens]), use_cache=False).logits[0].float()
        release(
            weight_memory(model)
        )  # so that weights of model and program, if mapped from files, are not both in memory
        return logits, choices.is_close

    def check_program(self, program: AIProgram) -> None:
        """Compare a program on the evaluator.

        Raises:
            LanguageModelError: a logit differs by more than 2 % of the largest one (bfloat16 8 %, float32 0.01 %), or
                the model's own are not finite.
        """
        wanted, largest = self.wanted, largest_of(self.wanted, self.dtype)
        made = self._evaluated(program)
        differences = (made - wanted).abs().amax(1) / largest
        worst = int(differences.argmax())
        is_off = not float(differences[worst]) <= self.tolerance
        first = self.functions[0]
        if is_off or len(first.outputs) > 1:  # the calls above show the logits only
            count = first.new or min(_TOKENS, len(self.tokens))
            arguments = decoder_arguments(self.decoder, count, count, 2 * count)
            compare_with_module(program, self.decoder, arguments, self.dtype, first.name)
        if is_off:
            raise LanguageModelError(
                "in several calls the converted program does not compute what the model does in one: the logits of "
                f"token {worst} of the comparison differ by {float(differences[worst]):.2g} of the largest; please "
                "report this"
            )
        warn_of_ties(made, wanted, "the evaluator")

    def check_asset(self, asset: Path, compressed: AIProgram | None = None) -> None:
        """Compare an asset on the Core AI runtime, in another process: the most probable token after each token.

        Args:
            asset: the `.aimodel` folder.
            compressed: the program with compressed weights on the evaluator, which the asset then is compared with in
                place of the model.

        Raises:
            LanguageModelError: one differs, and rounding of both logits does not explain it; or the runtime refuses the
                asset.
        """
        wanted = self.wanted if compressed is None else self._evaluated(compressed)
        largest = largest_of(wanted, self.dtype)
        with runtime() as native:
            made = self.made(calls_on(native, asset))
        check_tokens(made, wanted, largest * self.tolerance, self.expected[1])

    def _evaluated(self, program: AIProgram) -> Tensor:
        """The logits of a program on the evaluator."""
        logits = self.made(calls_of_program(program))
        release(blob.data for blob in program.module.blobs)
        return logits

    def made(self, call: AssetCall) -> Tensor:
        """A program's logits, (tokens, vocabulary), from calls that continue each other."""
        names = dict(zip(self.decoder.states.names, self.functions[0].state_names, strict=True))
        empty = {names[state.name]: as_array(state.zeros(0)) for state in self.decoder.states.states}
        session = Session(feeding(self.decoder.fed, call), {}, empty, self.limit)
        logits = [session.run(name, self.tokens[start:end]) for name, start, end in self.calls]
        return torch.from_numpy(np.concatenate(logits))


def comparisons_of(
    functions: Sequence[BundleFunction],
    prompt: Sequence[int],
    dtype: torch.dtype,
    limit: int,
    kind: type[Comparison] = Comparison,
) -> list[Comparison]:
    """The comparison of functions with their model; two if the tokens pass the change of its rotary embedding, one on
    each side.

    Args:
        functions, prompt, dtype, limit: as for `Comparison`.
        kind: what compares.
    """
    length = first_length(functions[0].decoder.model)
    whole = kind(functions, prompt, dtype, limit)
    if length is None or len(whole.tokens) <= length:
        return [whole]
    # the model reads a text in one call, with one rotary embedding for all of its tokens
    anywhere = [function for function in functions if function.new is None]
    return [
        kind(functions, prompt, dtype, limit, most=length),
        kind(anywhere, whole.tokens, dtype, limit, least=length + 1),
    ]


def spanned(model: Any) -> int:
    """How many tokens pass the windows, chunks and switches of an architecture that is not tested, but for the long
    ones."""
    return max((each for each in _spans(model) if each <= _MOST_SPANNED), default=0) + _TOKENS


def _spans(model: Any) -> list[int]:
    """The windows, chunks and switches of an architecture that is not tested, in tokens."""
    config = model.config.get_text_config()
    if config.model_type in ARCHITECTURES:
        return []
    return [*spans_of(config.to_dict()), first_length(model) or 0]


def notes_on_spans(model: Any, prompt: Sequence[int], limit: int) -> list[str]:
    """Notes on windows, chunks and switches beyond the tokens of the comparison with the model: they are not checked.

    Args:
        model: of transformers.
        prompt: that of the user; none for some tokens of the vocabulary.
        limit: the most tokens of the bundle.
    """
    passed = len(prompt) if prompt else spanned(model)
    long = sorted({each for each in _spans(model) if passed <= each < limit})
    if not long:
        return []
    return [
        f"the comparison with the model stops at {passed} tokens, and {type(model).__name__}, an architecture that is "
        f"not tested, computes something else behind {', '.join(map(str, long))} tokens (a window, chunk or switch), "
        "which was not compared; check= (--check) takes a longer text"
    ]


def check_programs(comparisons: Iterable[Comparison], program: AIProgram) -> None:
    """Compare the functions of several models in a program.

    Raises:
        LanguageModelError: as `Comparison.check_program`.
    """
    for each in comparisons:
        each.check_program(program)


def calls_of(sizes: Mapping[str, int | None], tokens: int, least: int = 1) -> list[tuple[str, int, int]]:
    """Calls that read all tokens and use each function: its name, and the first token and the one behind the last.

    Args:
        sizes: the functions by name, with the number of tokens that each takes; None for any number.
        tokens: how many there are.
        least: the fewest tokens of a first call of a function that takes any number.
    """
    made: list[tuple[str, int, int]] = []
    done = 0
    fixed = {name: size for name, size in sizes.items() if size is not None and name not in (MAIN, VERIFY)}
    verify = sizes.get(VERIFY) or 0
    for name, size in fixed.items():
        while done + size + verify < tokens:
            made.append((name, done, done + size))
            done += size
    if verify and done + verify <= tokens:
        made.append((VERIFY, done, done + verify))
        done += verify
    free = next((name for name, size in sizes.items() if size is None), None)
    ends = (
        range(done + 1, tokens + 1)
        if free is None
        else sorted({max(each, min(least, tokens)) for each in ((done + tokens) // 2, tokens - 1, tokens)})
    )
    for end in ends:
        if end > done:
            made.append((free or MAIN, done, end))
            done = end
    return made


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


def margins_of(made: Tensor, wanted: Tensor) -> Tensor:
    """How far the model's own logits of its most probable token and of the program's are apart."""
    return wanted.amax(1) - wanted.gather(1, made.argmax(1)[:, None])[:, 0]


@contextmanager
def runtime() -> Iterator[Native]:
    """The Core AI runtime in a child process, for the comparison of a bundle with its model.

    Raises:
        LanguageModelError: it refuses what is run inside.
    """
    with closing(Native()) as native:
        try:
            yield native
        except (NativeError, ProcessDied) as error:
            raise LanguageModelError(
                f"the Core AI runtime of this machine does not run the bundle: {str(error).splitlines()[0]}; pass "
                "check=False (--no-check) for a bundle that runs elsewhere"
            ) from error


def calls_of_program(program: AIProgram) -> AssetCall:
    """How the functions of a program are called on the evaluator."""

    def call(name: str, inputs: Mapping[str, Any], states: dict[str, Any]) -> Mapping[str, Any]:
        made: Mapping[str, Any] = program.run(inputs, state=states, entrypoint=name)
        return made

    return call


def calls_on(native: Native, asset: Path) -> AssetCall:
    """How the functions of an asset are called on the runtime."""

    def call(name: str, inputs: Mapping[str, Any], states: dict[str, Any]) -> Mapping[str, Any]:
        outputs, after = native.call(asset, inputs, states, name)
        states.update(after)
        return outputs

    return call


def check_tokens(made: Tensor, wanted: Tensor, rounding: float, is_close: Tensor | None = None) -> None:
    """Check that the most probable tokens on the runtime are the model's; where rounding explains another, warn.

    Args:
        made, wanted: the logits.
        rounding: the largest difference of a logit that rounding explains.
        is_close: after which tokens the choice of experts hangs on rounding. They are not compared, unless they are
            more than half of the tokens.

    Raises:
        LanguageModelError: one differs, and rounding of both logits does not explain it.
    """
    if is_close is not None and 0 < int(is_close.sum()) <= len(made) // 2:
        if others := int((margins_of(made, wanted)[is_close] > 0).sum()):
            warnings.warn(
                f"on the Core AI runtime, after {others} of {len(made)} tokens the bundle's most probable token is "
                "another than the model's; there two experts have the same score up to the rounding, and the bundle "
                "takes the other one",
                ConversionWarning,
                stacklevel=2,
            )
        made, wanted = made[~is_close], wanted[~is_close]
    margin = float(margins_of(made, wanted).max())
    if not margin <= 2 * rounding:
        raise LanguageModelError(
            "on the Core AI runtime the bundle's most probable token is another than the model's, and the model's "
            f"own logits of the two are {margin:.2g} apart, which rounding does not explain; please report this"
        )
    warn_of_ties(made, wanted, "the Core AI runtime")


def warn_of_ties(made: Tensor, wanted: Tensor, where: str) -> None:
    """Say where the most probable token differs, which is no error where the rounding explains it."""
    margins = margins_of(made, wanted)
    others = int((margins > 0).sum())
    if others:
        warnings.warn(
            f"on {where}, after {others} of {len(made)} tokens the bundle's most probable token is another than the "
            f"model's; the model's own logits of the two are {float(margins.max()):.2g} apart, which is within the "
            "rounding",
            ConversionWarning,
            stacklevel=2,
        )


def compare_with_module(
    program: AIProgram, module: nn.Module, arguments: tuple[Tensor, ...], dtype: torch.dtype, entrypoint: str
) -> None:
    """Compare what an entry point computes in one call with the module that it was exported from.

    Raises:
        LanguageModelError: as `check_program`.
    """
    given = tuple(each.clone() for each in arguments)
    with torch.no_grad():
        result = module(*given)
    release(weight_memory(module))
    largest = max(largest_of(each, dtype) for each in (result if isinstance(result, tuple) else (result,)))
    # a tolerance is given, because otherwise the model would be computed in float32 too, in twice its memory
    verification = program.verify_against(
        _again(result, given), arguments, backends=["evaluator"], entrypoint=entrypoint,
        tolerance=largest * TOLERANCE[dtype],
    )  # fmt: skip
    release(blob.data for blob in program.module.blobs)
    if not verification.passed:
        raise LanguageModelError(
            f"the converted program does not compute what the model does; please report this:\n{verification}"
        )


def _again(result: Any, left: Sequence[Tensor]) -> Callable[..., Any]:
    """A function that repeats a call from its record: it returns the result and writes the arguments as the call
    did."""

    def function(*arguments: Tensor) -> Any:
        for argument, value in zip(arguments, left, strict=True):
            argument.copy_(value)
        return result

    return function
