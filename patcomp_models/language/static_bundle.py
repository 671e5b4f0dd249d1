"""The form of iOS: functions of fixed sizes for the Neural Engine."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from patcomp import AIProgram
from patcomp.errors import reason_of
from patcomp_models.errors import LanguageModelError
from patcomp_models.language.architectures import check_static_form
from patcomp_models.language.begun import Begun
from patcomp_models.language.checking import Comparison
from patcomp_models.language.contract import AT_RUN_TIME, AUXILIARY, OVERRIDES, PER_LAYER, SLIDING_WINDOW
from patcomp_models.language.per_layer import described_table, write_table
from patcomp_models.language.rotary import first_length
from patcomp_models.language.static_comparing import check_generation
from patcomp_models.language.static_contract import LAYER_ROLE, LAYER_ROWS, LAYER_TABLE, OWN_HOSTS, QUERIES, TABLE_ROWS
from patcomp_models.language.static_embeddings import Embeddings
from patcomp_models.language.static_form import (
    Extend,
    checked_context,
    constrained,
    context_sizes,
    default_context,
    extend_arguments,
    static_program,
)
from patcomp_models.language.static_rotary import rotary_tables
from patcomp_models.language.static_states import StaticCaches


def static_functions(begun: Begun) -> tuple[AIProgram, list[Comparison]]:
    """The functions of fixed sizes of a model; the first is compared with the model on the evaluator.

    Raises:
        LanguageModelError: the model has no such form, or takes no such number of tokens.
    """
    model, options, step = begun.model, begun.request.options, begun.request.step
    check_static_form(model.config.model_type)
    most = min(begun.context, first_length(model) or begun.context)
    context = checked_context(model, begun.context if options.max_context else default_context(most))
    begun.warn([AT_RUN_TIME])
    embeddings = Embeddings.of_module(model.get_input_embeddings(), quantized=options.quantize_embeddings)
    embeddings = embeddings.in_rows_of(TABLE_ROWS)
    caches, rows = StaticCaches.of(model, context), rows_of(model)
    begun.warn([OWN_HOSTS.format(states=" and ".join(caches.fixed))] if caches.fixed else [])
    first = extend_arguments(model, embeddings, caches, rows, QUERIES[0], context_sizes(context)[0])
    _check_runs(Extend(model, embeddings, caches, rows, logits=True), first, str(model.config.model_type))
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
    with rotary_tables(model, context, torch.float16), step("exporting and converting the functions"):
        program = static_program(model, embeddings, context, rows=rows)
    if begun.checks:
        with step("comparing the program with the model"):
            check = partial(check_generation, program, model, embeddings, rows, context, begun.request.prompt)
            begun.work.once("comparison", check)
    return constrained(program, context), []


def rows_of(model: Any) -> Embeddings | None:
    """The table of per-layer embeddings of a model that has one: rows of int8, scaled as the model looks them up."""
    module = getattr(model.base_model, "embed_tokens_per_layer", None)
    if module is None:
        return None
    found = Embeddings.of_module(module, quantized=True)
    return replace(found, scale=found.scale * found.factor, factor=1.0)


def _whole(rows: Embeddings, vocabulary: int) -> Tensor:
    """The table with a row for each token: the host gives zeros for others, and the model reads the first row."""
    table = rows.table[:, 0]
    lacking = table[:1].expand(max(0, vocabulary - len(table)), -1)
    return torch.cat([table, lacking])


def _check_runs(module: Extend, arguments: tuple[Tensor, ...], kind: str) -> None:
    """Check that a model computes a block, before it is exported.

    Raises:
        LanguageModelError: it does not.
    """
    with torch.no_grad():
        try:
            module(*(each.clone() for each in arguments))
        except LanguageModelError:
            raise
        except Exception as error:  # the code of a model can raise anything
            raise LanguageModelError(
                f"{kind!r} has no form for the Neural Engine: it does not compute a block of tokens with masks and "
                f"states of fixed sizes: {reason_of(error)}"
            ) from error
