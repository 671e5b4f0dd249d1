"""Whether the functions of fixed sizes compute what the model of transformers does.

They generate a few tokens as a caller does, on the evaluator. The model takes the same tokens in one call, with its own
masks, rotary embedding and recurrences, and the rounded embeddings that the functions are given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from patcomp import AIProgram
from patcomp.evaluate.given import as_array
from patcomp.ir.pages import release
from patcomp_models.errors import LanguageModelError
from patcomp_models.language.checking import largest_of, spanned, warn_of_ties
from patcomp_models.language.memory import weight_memory
from patcomp_models.language.static_contract import EXTEND, IN_STEP, STATIC_LOGITS
from patcomp_models.language.static_embeddings import Embeddings
from patcomp_models.language.static_form import headed
from patcomp_models.language.static_run import function_sizes, generate_static
from patcomp_models.language.static_states import StaticCaches

_TOLERANCE = 0.04
"""The largest difference of a logit that rounding explains, as a part of the largest: twice that of the dynamic form,
because these functions have no float32 value, where models compute norms and softmax in it."""
_TOKENS, _NEW = 13, 2
"""A block of 16 tokens that is not full, and two of 8 that begin inside of it."""


def check_generation(
    program: AIProgram, model: Any, embeddings: Embeddings, rows: Embeddings | None, context: int, prompt: Sequence[int]
) -> None:
    """Compare a program with its model, after each token.

    Args:
        program: of `static_program`.
        model: with its own rotary embedding.
        embeddings, rows: the tables that the functions take.
        context: the most tokens.
        prompt: that of the user, in token ids; none for some of the vocabulary.

    Raises:
        LanguageModelError: a logit differs by more than 4 % of the largest one, or the model's own are not finite.
    """
    words, most = len(embeddings.table), context - _NEW
    given = list(prompt) or [(7 * each + 1) % words for each in range(max(_TOKENS, spanned(model)))]
    caches = StaticCaches.of(model, context)
    zeros = caches.zeros(context, model.dtype)
    seen: dict[int, np.ndarray] = {}

    def call(name: str, inputs: Mapping[str, Any], states: dict[str, Any]) -> Mapping[str, Any]:
        made: Mapping[str, Any] = program.run(inputs, entrypoint=name, state=states or None)
        if name.startswith(EXTEND):
            start = int(inputs[IN_STEP][0])
            seen.update(enumerate(np.asarray(made[STATIC_LOGITS], np.float32)[0, 0], start))
        return made

    fed = None if rows is None else lambda tokens: as_array(rows.table[torch.from_numpy(tokens), 0])
    empty = {name: as_array(each) for name, each in zip(caches.names, zeros, strict=True)}
    tokens = given[:most]
    tokens += generate_static(
        call, function_sizes(program.calls), empty, tokens, _NEW, window=caches.window, rows=fed
    )[:-1]  # fmt: skip
    release(blob.data for blob in program.module.blobs)
    with torch.no_grad(), with_tables(model, embeddings, rows):
        wanted = model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0].float()
    release(weight_memory(model))
    places = sorted(place for place in seen if place < len(tokens))
    made, wanted = torch.from_numpy(np.stack([seen[place] for place in places])), wanted[places]
    differences = (made - wanted).abs().amax(1) / largest_of(wanted, torch.float16)
    worst = int(differences.argmax())
    if not float(differences[worst]) <= _TOLERANCE:
        raise LanguageModelError(
            "the converted functions do not compute what the model does: the logits of token "
            f"{places[worst]} of the comparison differ by {float(differences[worst]):.2g} of the largest; please "
            "report this"
        )
    warn_of_ties(made, wanted, "the evaluator")


@contextmanager
def with_tables(model: Any, embeddings: Embeddings, rows: Embeddings | None) -> Iterator[None]:
    """A model that looks up what the functions are given, and multiplies by it where its head shares the weight."""

    def of(table: Embeddings, dtype: torch.dtype) -> Callable[..., Tensor]:
        def looked_up(part: nn.Module, arguments: tuple[Tensor, ...], own: Tensor) -> Tensor:
            return table.scaled(table.table[arguments[0].clamp(max=len(table.table) - 1), 0], dtype)

        return looked_up

    tables = {model.get_input_embeddings(): embeddings}
    if rows is not None:
        tables[model.base_model.embed_tokens_per_layer] = rows
    with ExitStack() as hooks:
        for part, table in tables.items():
            hooks.callback(part.register_forward_hook(of(table, model.dtype)).remove)
        hooks.enter_context(headed(model, embeddings, embeddings.table))
        yield
