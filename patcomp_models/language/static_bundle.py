"""The form of iOS: functions of fixed sizes for the Neural Engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from patcomp import AIProgram
from patcomp_models.errors import LanguageModelError
from patcomp_models.language.architectures import ARCHITECTURES
from patcomp_models.language.begun import Begun
from patcomp_models.language.checking import Comparison, compare_with_module
from patcomp_models.language.contract import AT_RUN_TIME
from patcomp_models.language.rotary import first_length
from patcomp_models.language.states import states_of
from patcomp_models.language.static_contract import EXTEND, QUERIES
from patcomp_models.language.static_form import (
    Embeddings,
    Extend,
    checked_context,
    constrained,
    context_sizes,
    default_context,
    extend_arguments,
    rotary_tables,
    static_program,
)


def static_functions(begun: Begun) -> tuple[AIProgram, list[Comparison]]:
    """The functions of fixed sizes of a model; the first is compared with the model on the evaluator.

    Raises:
        LanguageModelError: the model has no such form, or takes no such number of tokens.
    """
    model, options, step = begun.model, begun.request.options, begun.request.step
    _check_has_static_form(model)
    most = min(begun.context, first_length(model) or begun.context)
    context = checked_context(model, begun.context if options.max_context else default_context(most))
    begun.warn([AT_RUN_TIME])
    replace(begun, context=context).describe()
    embeddings = Embeddings.of(model.model.embed_tokens.weight, quantized=options.quantize_embeddings)
    with rotary_tables(model, context, torch.float16):
        with step("exporting and converting the functions"):
            program = static_program(model, embeddings, context)
        if begun.checks:
            with step("comparing the program with the model"):
                begun.work.once("comparison", lambda: _check_static(program, model, embeddings, context))
    return constrained(program, context), []


def _check_static(program: AIProgram, model: Any, embeddings: Embeddings, context: int) -> None:
    """Compare the smallest function on its first block with the model.

    Raises:
        LanguageModelError: as `check_program`.
    """
    size, queries = context_sizes(context)[0], QUERIES[0]
    module = Extend(model, embeddings, logits=True)
    arguments = extend_arguments(model, embeddings, states_of(model).states, queries, size)
    compare_with_module(program, module, arguments, torch.float16, f"{EXTEND}_{size}_{queries}")


def _check_has_static_form(model: Any) -> None:
    kind = model.config.model_type
    if kind not in ARCHITECTURES or not ARCHITECTURES[kind].has_static_form:
        names = ", ".join(kind for kind, each in ARCHITECTURES.items() if each.has_static_form)
        raise LanguageModelError(f"{kind!r} has no form for the Neural Engine; these architectures have one: {names}")
