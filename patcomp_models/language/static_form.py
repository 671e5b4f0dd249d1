"""A causal language model as functions of fixed sizes, the form of Apple's Swift package for the Neural Engine.

The embeddings are outside: `load_embeddings` gives the table, `gather_embeddings_<q>` the embeddings of q tokens. The
table goes into `extend_<S>_<q>`, which makes the logits of q tokens with a cache of S, and into `prompt_opt_<S>_<q>`,
which only fills the cache. The caller computes the mask, and writes blocks that begin at a multiple of q.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from transformers import Cache

from patcomp import AIProgram, ExternalizeSpec, TorchConverter
from patcomp.interface.constraints import constrain
from patcomp.ir.verify import verify
from patcomp_models.checkpoints.exporting import exported_module
from patcomp_models.errors import LanguageModelError
from patcomp_models.language.layers import StackedCacheLayer
from patcomp_models.language.rotary import check_one_set
from patcomp_models.language.states import CacheState, states_of
from patcomp_models.language.static_contract import (
    CACHES,
    EXTEND,
    EXTEND_INPUTS,
    FORBIDDEN,
    GATHER,
    LOAD,
    PROMPT,
    QUERIES,
    SMALLEST_CONTEXT,
    STATIC_EMBEDDINGS,
    STATIC_LOGITS,
    STATIC_TOKENS,
    TABLE,
)

_DEFAULT_CONTEXT = 4096


def default_context(own: int) -> int:
    """The most tokens unless the user says it: 4096, or as many whole blocks as the model takes."""
    return min(own, _DEFAULT_CONTEXT) // QUERIES[-1] * QUERIES[-1] or own


def context_sizes(context: int) -> list[int]:
    """The sizes of the cache that get functions: 256, 512, ... and the largest one."""
    sizes = []
    size = SMALLEST_CONTEXT
    while size < context:
        sizes.append(size)
        size *= 2
    return [*sizes, context]


def checked_context(model: Any, context: int) -> int:
    """The most tokens of the functions.

    Raises:
        LanguageModelError: blocks of the largest size do not fill it, the model sees fewer tokens at once, or has
            another rotary embedding for so many.
    """
    if context % QUERIES[-1]:
        raise LanguageModelError(
            f"max_context is {context}; for the Neural Engine it must be a multiple of {QUERIES[-1]}, the largest block"
        )
    check_one_set(model, context, "table of the Neural Engine's form")
    window = getattr(model.config, "sliding_window", None)
    slides = "sliding_attention" in (getattr(model.config, "layer_types", None) or ["sliding_attention"])
    if window and slides and window < context:
        raise LanguageModelError(
            f"the model attends to the last {window} tokens only, and the mask of the Neural Engine's form, which the "
            f"caller computes, has no such window; pass max_context={window} or less"
        )
    return context


@dataclass(frozen=True)
class Embeddings:
    """The table of embeddings outside of the functions."""

    table: Tensor
    """V x 1 x hidden, of int8 or of the model's type."""
    scale: float
    """The factor of the table's entries."""

    @classmethod
    def of(cls, weight: Tensor, *, quantized: bool) -> Embeddings:
        """The table of a V x hidden weight; int8 has one scale for all and no zero point."""
        if not quantized:
            return cls(weight.detach()[:, None], 1.0)
        values = weight.detach().float()
        scale = float(values.abs().max().half() / 127) or 1.0
        return cls((values / scale).round().clamp(-127, 127).to(torch.int8)[:, None], scale)

    def values(self, entries: Tensor, dtype: torch.dtype) -> Tensor:
        """The embeddings that entries of the table stand for."""
        return entries if entries.dtype == dtype else entries.to(dtype) * self.scale


class LoadEmbeddings(nn.Module):
    """Gives the table of embeddings."""

    def __init__(self, embeddings: Embeddings):
        super().__init__()
        self.table = nn.Buffer(embeddings.table)

    def forward(self) -> Tensor:
        return self.table.clone()


class _Gather(nn.Module):
    """The composite `fused_interleaved_embedding_gather_dequant_reshape`."""

    def __init__(self, embeddings: Embeddings, dtype: torch.dtype):
        super().__init__()
        self.embeddings, self.dtype = embeddings, dtype

    def forward(self, token_ids: Tensor, embedding_table: Tensor) -> Tensor:
        return self.embeddings.values(embedding_table[token_ids], self.dtype)


class GatherEmbeddings(nn.Module):
    """Gives the embeddings of q tokens, 1 x q x 1 x hidden."""

    def __init__(self, embeddings: Embeddings, dtype: torch.dtype):
        super().__init__()
        self.gather = _Gather(embeddings, dtype)

    def forward(self, in_new_token_ids: Tensor, embedding_table: Tensor) -> Tensor:
        made: Tensor = self.gather(in_new_token_ids, embedding_table)
        return made


class _Rows(StackedCacheLayer):
    """One layer of a cache of the shape layers x 1 x heads*width x 1 x S. All of it is read: a mask hides the rest."""

    def _written(self, cache: Tensor, new: Tensor, width: int) -> Tensor:
        _, heads, queries, width = new.shape
        columns = new.transpose(2, 3).reshape(1, 1, heads * width, 1, queries)
        cache.narrow(0, self.layer, 1).narrow(4, self.offset, queries).copy_(columns)
        return cache.narrow(0, self.layer, 1).reshape(1, heads, width, self.total).transpose(2, 3)


class Extend(nn.Module):
    """A block of q tokens behind those in the cache.

    Args:
        model: a causal language model of transformers.
        embeddings: its table; a head that shares the weight multiplies by the table.
        logits: whether to compute them. Otherwise the result is one number of the cache.
    """

    def __init__(self, model: nn.Module, embeddings: Embeddings, *, logits: bool):
        super().__init__()
        self.model, self.embeddings, self.logits = model, embeddings, logits

    def forward(
        self,
        transformer_input: Tensor,
        position_ids: Tensor,
        in_step: Tensor,
        causal_mask: Tensor,
        embedding_table: Tensor,
        key_cache: Tensor,
        value_cache: Tensor,
    ) -> Tensor:
        """The logits, 1 x 1 x q x V.

        Args:
            transformer_input: 1 x q x 1 x hidden, the embeddings of the tokens.
            position_ids: 1 x q of uint16, their positions.
            in_step: 1 of int32, where the block is written: the first of the positions, a multiple of q.
            causal_mask: 1 x S x 1 x q, what is added to the scores: 0 or -40000.
            embedding_table: V x 1 x hidden.
            key_cache, value_cache: layers x 1 x heads*width x 1 x S; the call writes to them.
        """
        start: Any = in_step.item()
        layers, size = key_cache.shape[0], key_cache.shape[4]
        torch._check(start >= 0)
        torch._check(start + transformer_input.shape[1] <= size)
        model: Any = self.model
        hidden = model.model(
            inputs_embeds=transformer_input.squeeze(2),
            position_ids=position_ids.to(torch.int32),
            attention_mask=causal_mask.permute(0, 2, 3, 1),
            past_key_values=Cache(
                layers=[_Rows(key_cache, value_cache, layer, start, size) for layer in range(layers)]
            ),
            use_cache=True,
        ).last_hidden_state
        if not self.logits:
            return key_cache[0, 0, 0, 0, 0]
        if model.lm_head.weight is model.model.embed_tokens.weight:
            table = self.embeddings.values(embedding_table.squeeze(1), hidden.dtype)
            return nn.functional.linear(hidden, table)[None]
        made: Tensor = model.lm_head(hidden)
        return made[None]


class _RotaryTables(nn.Module):
    """The composite `rope_cached_cos_sin_gather`: the model's own rotary embedding of each position, computed once.
    Angles do not fit half precision."""

    def __init__(self, rotary: nn.Module, context: int, dtype: torch.dtype):
        super().__init__()
        with torch.no_grad():
            cosines, sines = rotary(torch.zeros(1), torch.arange(context)[None])
        self.cosines, self.sines = nn.Buffer(cosines[0].to(dtype)), nn.Buffer(sines[0].to(dtype))

    def forward(self, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        return self.cosines[position_ids], self.sines[position_ids]


class _Rotary(nn.Module):
    """The module that the model calls for its rotary embedding."""

    def __init__(self, tables: _RotaryTables):
        super().__init__()
        self.tables = tables

    def forward(self, hidden: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        made: tuple[Tensor, Tensor] = self.tables(position_ids)
        return made


_GATHERED = ExternalizeSpec(
    target_class=_Gather, composite_op_name="fused_interleaved_embedding_gather_dequant_reshape"
)
_ROTARY = ExternalizeSpec(target_class=_RotaryTables, composite_op_name="rope_cached_cos_sin_gather")


@contextmanager
def rotary_tables(model: Any, context: int, dtype: torch.dtype) -> Iterator[None]:
    """The model with tables in place of its rotary embedding, which comes back."""
    before = model.model.rotary_emb
    model.model.rotary_emb = _Rotary(_RotaryTables(before, context, dtype))
    try:
        yield
    finally:
        model.model.rotary_emb = before


def extend_arguments(
    model: Any, embeddings: Embeddings, states: Sequence[CacheState], queries: int, size: int
) -> tuple[Tensor, ...]:
    """Example arguments of `Extend`: the first block, with empty caches for the states of the model."""
    hidden, dtype = model.config.hidden_size, model.model.embed_tokens.weight.dtype
    caches = [torch.zeros(state.rows, 1, math.prod(state.shape), 1, size, dtype=dtype) for state in states]
    positions = torch.arange(queries)
    mask = torch.where(torch.arange(size)[:, None] <= positions, 0.0, FORBIDDEN)[None, :, None].to(dtype)
    tokens = embeddings.table[positions % model.config.vocab_size]
    inputs = embeddings.values(tokens, dtype)[None].reshape(1, queries, 1, hidden)
    return (
        inputs, positions[None].to(torch.uint16), torch.zeros(1, dtype=torch.int32), mask, embeddings.table, *caches,
    )  # fmt: skip


def static_program(model: Any, embeddings: Embeddings, context: int, queries: Sequence[int] = QUERIES) -> AIProgram:
    """All functions of a model as one program, which has each weight once.

    Args:
        model: a causal language model, whose rotary embedding is a table.
        embeddings: the table of its embeddings.
        context: the most tokens.
        queries: the sizes of blocks.
    """
    converter = TorchConverter()
    table = torch.empty_like(embeddings.table)  # a copy, because export cannot tell a view of a weight from the weight

    def add(
        module: nn.Module, arguments: tuple[Tensor, ...], name: str, *composites: ExternalizeSpec, **names: list[str]
    ) -> None:
        def exported(of: nn.Module) -> ExportedProgram:
            return exported_module(of, arguments, type(model).__name__)

        converter.add_pytorch_module(
            module,
            exported,
            externalize_modules=composites,
            entrypoint_name=name,
            **names,  # type: ignore[arg-type]
        )

    add(LoadEmbeddings(embeddings), (), LOAD, output_names=[TABLE])
    gather = GatherEmbeddings(embeddings, model.model.embed_tokens.weight.dtype)
    for count in queries:
        tokens = torch.zeros(1, count, dtype=torch.int32)
        add(
            gather, (tokens, table), f"{GATHER}_{count}", _GATHERED,
            input_names=[STATIC_TOKENS, TABLE], output_names=[STATIC_EMBEDDINGS],
        )  # fmt: skip
    states = states_of(model).states
    for size in context_sizes(context):
        for count in queries:
            arguments = extend_arguments(model, replace(embeddings, table=table), states, count, size)
            for name, logits in ((EXTEND, True), (PROMPT, False)):
                add(
                    Extend(model, embeddings, logits=logits), arguments, f"{name}_{size}_{count}", _ROTARY,
                    input_names=list(EXTEND_INPUTS), output_names=[STATIC_LOGITS], state_names=list(CACHES),
                )  # fmt: skip
    return converter.to_coreai(target="neural_engine")


def constrained(program: AIProgram, context: int) -> AIProgram:
    """The program with the memory layouts of the caller's tensors on a device. `load_embeddings` returns the table, and
    all other functions take it; functions with a smaller cache see a part of the caches."""
    table, caches = _surface([8, 1, 1], [1, 1, 1, 1]), _surface([1, 1, 8, 1, 1], [1, 1, 1, 1, 8 * context, 1])
    module = program.module.clone()
    for name in program.calls:
        states = dict.fromkeys(CACHES, caches) if name.startswith((EXTEND, PROMPT)) else {}
        constrain(module.graph(name), {TABLE: table, **states})
    verify(module, runtime=True)
    return replace(program, module=module)


def _surface(interleave: Sequence[int], alignments: Sequence[int]) -> str:
    lists = ("x".join(map(str, numbers)) for numbers in (alignments, interleave))
    return "#coreaix.hw_constraints<IOSurface, alignments: [{}], interleave: [{}]>".format(*lists)
