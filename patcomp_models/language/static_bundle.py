"""The form of iOS: functions of fixed sizes for the Neural Engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from patcomp import AIProgram
from patcomp_models.errors import LanguageModelError
from patcomp_models.language.architectures import ARCHITECTURES
from patcomp_models.language.begun import Begun
from patcomp_models.language.checking import Comparison, compare_with_module
from patcomp_models.language.contract import AT_RUN_TIME, AUXILIARY, OVERRIDES, PER_LAYER, SLIDING_WINDOW
from patcomp_models.language.per_layer import described_table, write_table
from patcomp_models.language.rotary import first_length
from patcomp_models.language.static_contract import EXTEND, LAYER_ROLE, LAYER_ROWS, LAYER_TABLE, QUERIES
from patcomp_models.language.static_embeddings import Embeddings
from patcomp_models.language.static_form import (
    Extend,
    checked_context,
    constrained,
    context_sizes,
    default_context,
    extend_arguments,
    rotary_tables,
    static_program,
)
from patcomp_models.language.static_states import StaticCaches


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
    embeddings = Embeddings.of_module(model.model.embed_tokens, quantized=options.quantize_embeddings)
    caches, rows = StaticCaches.of(model, context), rows_of(model)
    table = None if rows is None else _whole(rows, model.config.vocab_size)
    file = f"{begun.name}_ple.safetensors"
    replace(begun, context=context).describe(
        language={OVERRIDES: {SLIDING_WINDOW: caches.window}} if caches.window else {},
        further={} if table is None else {
            AUXILIARY: {LAYER_ROLE: file}, PER_LAYER: described_table(table, file, LAYER_ROWS)},
    )  # fmt: skip
    if table is not None:
        with step("writing the table of per-layer embeddings"):
            begun.work.once("table", lambda: write_table(begun.work.folder / file, table, LAYER_TABLE))
    with rotary_tables(model, context, torch.float16):
        with step("exporting and converting the functions"):
            program = static_program(model, embeddings, context, rows=rows)
        if begun.checks:
            with step("comparing the program with the model"):
                begun.work.once("comparison", lambda: _check_static(program, model, embeddings, rows, context))
    return constrained(program, context), []


def rows_of(model: Any) -> Embeddings | None:
    """The table of per-layer embeddings of a model that has one: rows of int8, scaled as the model looks them up."""
    module = getattr(model.model, "embed_tokens_per_layer", None)
    if module is None:
        return None
    found = Embeddings.of_module(module, quantized=True)
    return replace(found, scale=found.scale * found.factor, factor=1.0)


def _whole(rows: Embeddings, vocabulary: int) -> Tensor:
    """The table with a row for each token: the host gives zeros for others, and the model reads the first row."""
    table = rows.table[:, 0]
    lacking = table[:1].expand(max(0, vocabulary - len(table)), -1)
    return torch.cat([table, lacking])


def _check_static(
    program: AIProgram, model: Any, embeddings: Embeddings, rows: Embeddings | None, context: int
) -> None:
    """Compare the smallest function on its first block with the model.

    Raises:
        LanguageModelError: as `check_program`.
    """
    size, queries = context_sizes(context)[0], QUERIES[0]
    caches = StaticCaches.of(model, context)
    module = Extend(model, embeddings, caches, rows, logits=True)
    arguments = extend_arguments(model, embeddings, caches, rows, queries, size)
    compare_with_module(program, module, arguments, torch.float16, f"{EXTEND}_{size}_{queries}")


def _check_has_static_form(model: Any) -> None:
    kind = model.config.model_type
    if kind not in ARCHITECTURES or not ARCHITECTURES[kind].has_static_form:
        names = ", ".join(kind for kind, each in ARCHITECTURES.items() if each.has_static_form)
        raise LanguageModelError(f"{kind!r} has no form for the Neural Engine; these architectures have one: {names}")
