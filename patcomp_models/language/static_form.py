"""A causal language model as functions of fixed sizes, the form of Apple's Swift package for the Neural Engine.

The embeddings are outside: `load_embeddings` gives the table, `gather_embeddings_<q>` the embeddings of q tokens. The
table goes into `extend_<S>_<q>`, which makes the logits of q tokens with a cache of S, and into `prompt_opt_<S>_<q>`,
which only fills the cache. The caller computes the mask, and writes blocks that begin at a multiple of q.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from transformers import Cache
from transformers.cache_utils import DynamicLayer

from patcomp import AIProgram, ExternalizeSpec, TorchConverter
from patcomp.interface.constraints import constrain
from patcomp.ir.verify import verify
from patcomp_models.checkpoints.exporting import exported_module
from patcomp_models.errors import LanguageModelError
from patcomp_models.language.layers import StackedCacheLayer
from patcomp_models.language.rotary import check_one_set
from patcomp_models.language.static_contract import (
    CACHES,
    CAUSAL_MASK,
    EXTEND,
    FORBIDDEN,
    GATHER,
    IN_STEP,
    INPUT,
    LAYER_ROWS,
    LOAD,
    PROMPT,
    QUERIES,
    SLIDING_CACHES,
    SLIDING_MASK,
    SLIDING_STEP,
    SMALLEST_CONTEXT,
    STATIC_EMBEDDINGS,
    STATIC_LOGITS,
    STATIC_POSITIONS,
    STATIC_TOKENS,
    TABLE,
)
from patcomp_models.language.static_embeddings import Embeddings, Gathered, GatherEmbeddings, LoadEmbeddings
from patcomp_models.language.static_states import StaticCaches

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
        LanguageModelError: blocks of the largest size do not fill it, no layer of the model sees so many tokens at
            once, or it has another rotary embedding for so many.
    """
    if context % QUERIES[-1]:
        raise LanguageModelError(
            f"max_context is {context}; for the Neural Engine it must be a multiple of {QUERIES[-1]}, the largest block"
        )
    check_one_set(model, context, "table of the Neural Engine's form")
    StaticCaches.of(model, context)
    return context


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
        caches: of the model.
        rows: the table of its per-layer embeddings, if it has one.
        logits: whether to compute them. Otherwise the result is one number of the cache.
    """

    def __init__(
        self, model: Any, embeddings: Embeddings, caches: StaticCaches, rows: Embeddings | None, *, logits: bool
    ):  # fmt: skip
        super().__init__()
        self.model: Any = model
        self.embeddings, self.caches, self.rows, self.logits = embeddings, caches, rows, logits
        self.inputs = inputs_of(caches, rows)

    def forward(self, *given: Tensor) -> Tensor:
        """The logits, 1 x 1 x q x V.

        Args:
            given: by the names of `inputs`, and the caches, to which the call writes:
                transformer_input, 1 x q x 1 x hidden, the embeddings of the tokens;
                position_ids, 1 x q of uint16, their positions;
                in_step, 1 of int32, where the block is written: the first of the positions, a multiple of q;
                causal_mask, 1 x S x 1 x q, what is added to the scores: 0 or -40000;
                sliding_in_step, sliding_causal_mask, the same for the ring;
                ple_embeddings, 1 x q x 1 x layers*width, the rows of the tokens;
                embedding_table, V x 1 x hidden;
                key_cache, value_cache, layers x 1 x heads*width x 1 x S, and those of the ring.
        """
        named = dict(zip([*self.inputs, *self.caches.names], given, strict=True))
        tokens, model = named[INPUT].squeeze(2), self.model
        count = tokens.shape[1]
        steps = [_step(named[IN_STEP], named[CACHES[0]], count)]
        mask: Any = named[CAUSAL_MASK].permute(0, 2, 3, 1)
        if self.caches.ring:
            steps.append(_step(named[SLIDING_STEP], named[SLIDING_CACHES[0]], count))
            mask = {"full_attention": mask, "sliding_attention": named[SLIDING_MASK].permute(0, 2, 3, 1)}
        further = {}
        if self.rows is not None:
            rows = self.rows.values(named[LAYER_ROWS].squeeze(2), tokens.dtype)
            further["per_layer_inputs"] = rows.unflatten(2, (model.config.num_hidden_layers, -1))
        layers = [_layer(self.caches.of_layer(layer, named), steps) for layer in range(len(self.caches.layers))]
        hidden = model.model(
            inputs_embeds=tokens,
            position_ids=named[STATIC_POSITIONS].to(torch.int32),
            attention_mask=mask,
            past_key_values=Cache(layers=layers),
            use_cache=True,
            **further,
        ).last_hidden_state
        if not self.logits:
            return named[CACHES[0]][0, 0, 0, 0, 0]
        if model.lm_head.weight is model.model.embed_tokens.weight:
            table = self.embeddings.values(named[TABLE].squeeze(1), hidden.dtype)
            made: Tensor = nn.functional.linear(hidden, table)
        else:
            made = model.lm_head(hidden)
        cap = getattr(model.config, "final_logit_softcapping", None)
        return (made if cap is None else torch.tanh(made / cap) * cap)[None]


def inputs_of(caches: StaticCaches, rows: Embeddings | None) -> list[str]:
    """The inputs of `extend`, in order."""
    ring = [SLIDING_STEP, SLIDING_MASK] if caches.ring else []
    return [INPUT, STATIC_POSITIONS, IN_STEP, CAUSAL_MASK, *ring, *([LAYER_ROWS] if rows else []), TABLE]


def _step(given: Tensor, cache: Tensor, count: int) -> Any:
    """Where a block is written in a cache."""
    start: Any = given.item()
    torch._check(start >= 0)
    torch._check(start + count <= cache.shape[4])
    return start


def _layer(found: tuple[Tensor, Tensor, int, bool] | None, steps: Sequence[Any]) -> Any:
    """One layer of the cache of transformers; one that writes nothing has no tensors."""
    if found is None:
        return DynamicLayer()
    keys, values, row, is_ring = found
    return _Rows(keys, values, row, steps[is_ring], keys.shape[4])


class _RotaryTables(nn.Module):
    """The composite `rope_cached_cos_sin_gather`: the model's own rotary embedding of each position, computed once.
    Angles do not fit half precision."""

    def __init__(self, rotary: nn.Module, context: int, dtype: torch.dtype, options: Mapping[str, str]):
        super().__init__()
        with torch.no_grad():
            cosines, sines = rotary(torch.zeros(1), torch.arange(context)[None], **options)
        self.cosines, self.sines = nn.Buffer(cosines[0].to(dtype)), nn.Buffer(sines[0].to(dtype))

    def forward(self, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        return self.cosines[position_ids], self.sines[position_ids]


_ONE = "all_layers"


class _Rotary(nn.Module):
    """The module that the model calls for its rotary embedding, which may have a kind for each type of layers."""

    def __init__(self, rotary: Any, context: int, dtype: torch.dtype):
        super().__init__()
        kinds = getattr(rotary, "layer_types", None)
        options = {_ONE: {}} if kinds is None else {kind: {"layer_type": kind} for kind in sorted(kinds)}
        self.tables = nn.ModuleDict({
            kind: _RotaryTables(rotary, context, dtype, given) for kind, given in options.items()
        })  # fmt: skip

    def forward(self, hidden: Tensor, position_ids: Tensor, layer_type: str = _ONE) -> tuple[Tensor, Tensor]:
        made: tuple[Tensor, Tensor] = self.tables[layer_type](position_ids)
        return made


_GATHERED = ExternalizeSpec(
    target_class=Gathered, composite_op_name="fused_interleaved_embedding_gather_dequant_reshape"
)
_ROTARY = ExternalizeSpec(target_class=_RotaryTables, composite_op_name="rope_cached_cos_sin_gather")


@contextmanager
def rotary_tables(model: Any, context: int, dtype: torch.dtype) -> Iterator[None]:
    """The model with tables in place of its rotary embedding, which comes back."""
    before = model.model.rotary_emb
    model.model.rotary_emb = _Rotary(before, context, dtype)
    try:
        yield
    finally:
        model.model.rotary_emb = before


def extend_arguments(
    model: Any, embeddings: Embeddings, caches: StaticCaches, rows: Embeddings | None, queries: int, size: int
) -> tuple[Tensor, ...]:
    """Example arguments of `Extend`: the first block, with empty caches."""
    hidden, dtype = model.config.hidden_size, model.model.embed_tokens.weight.dtype
    positions = torch.arange(queries)
    ids = positions % model.config.vocab_size

    def mask(places: int, window: int) -> Tensor:
        known = torch.arange(places)[:, None]
        seen = (known <= positions) & (known > positions - window)
        return torch.where(seen, 0.0, FORBIDDEN)[None, :, None].to(dtype)

    step = torch.zeros(1, dtype=torch.int32)
    named: dict[str, Any] = {
        INPUT: embeddings.scaled(embeddings.table[ids], dtype)[None].reshape(1, queries, 1, hidden),
        STATIC_POSITIONS: positions[None].to(torch.uint16), IN_STEP: step, CAUSAL_MASK: mask(size, size),
        SLIDING_STEP: step.clone(), SLIDING_MASK: mask(caches.ring or size, caches.window or size),
        LAYER_ROWS: None if rows is None else rows.table[ids].reshape(1, queries, 1, -1), TABLE: embeddings.table,
    }  # fmt: skip
    return (*(named[name] for name in inputs_of(caches, rows)), *caches.zeros(size, dtype))


def static_program(
    model: Any, embeddings: Embeddings, context: int, queries: Sequence[int] = QUERIES, rows: Embeddings | None = None
) -> AIProgram:
    """All functions of a model as one program, which has each weight once.

    Args:
        model: a causal language model, whose rotary embedding is a table.
        embeddings: the table of its embeddings.
        context: the most tokens.
        queries: the sizes of blocks.
        rows: the table of its per-layer embeddings, if it has one.
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
    caches = StaticCaches.of(model, context)
    for size in context_sizes(context):
        for count in queries:
            arguments = extend_arguments(model, replace(embeddings, table=table), caches, rows, count, size)
            for name, logits in ((EXTEND, True), (PROMPT, False)):
                add(
                    Extend(model, embeddings, caches, rows, logits=logits), arguments, f"{name}_{size}_{count}",
                    _ROTARY, input_names=inputs_of(caches, rows), output_names=[STATIC_LOGITS],
                    state_names=caches.names,
                )  # fmt: skip
    return converter.to_coreai(target="neural_engine")


def _length(state: Any) -> int:
    """How many places a cache has."""
    found: int = state.shape[4]
    return found


def constrained(program: AIProgram, context: int) -> AIProgram:
    """The program with the memory layouts of the caller's tensors on a device. `load_embeddings` returns the table, and
    all other functions take it; functions with a smaller cache see a part of the caches."""
    table, module = _surface([8, 1, 1], [1, 1, 1, 1]), program.module.clone()
    for name in program.calls:
        kept = {each.name: _length(each) for each in program.signature(name).states}
        sizes = {state: context if state in CACHES else size for state, size in kept.items()}
        states = {state: _surface([1, 1, 8, 1, 1], [1, 1, 1, 1, 8 * size, 1]) for state, size in sizes.items()}
        constrain(module.graph(name), {TABLE: table, **states})
    verify(module, runtime=True)
    return replace(program, module=module)


def _surface(interleave: Sequence[int], alignments: Sequence[int]) -> str:
    lists = ("x".join(map(str, numbers)) for numbers in (alignments, interleave))
    return "#coreaix.hw_constraints<IOSurface, alignments: [{}], interleave: [{}]>".format(*lists)
