"""A causal language model as functions of fixed sizes, the form of Apple's Swift package for the Neural Engine.

The embeddings are outside: `load_embeddings` gives the table, `gather_embeddings_<q>` the embeddings of q tokens. The
table goes into `extend_<S>_<q>`, which makes the logits of q tokens with a cache of S, and into `prompt_opt_<S>_<q>`,
which only fills the cache. The caller computes the mask, and writes blocks that begin at a multiple of q.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
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
from patcomp_models.language.conventions import CACHE
from patcomp_models.language.exchanging import exchanged_modules
from patcomp_models.language.open_lengths import open_lengths
from patcomp_models.language.rotary import check_one_set
from patcomp_models.language.static_contract import (
    CACHES,
    CAUSAL_MASK,
    EXTEND,
    FIXED_STATES,
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
    TABLE_ROWS,
)
from patcomp_models.language.static_embeddings import Embeddings, Gathered, GatherEmbeddings, LoadEmbeddings
from patcomp_models.language.static_layers import BlockOfTokens, forms_of_blocks
from patcomp_models.language.static_rotary import RotaryTables
from patcomp_models.language.static_states import StaticCaches, windows_of

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
        self.own_window = 0 if caches.ring else windows_of(model.config, 1)[0]

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
        tokens, places = named[INPUT].squeeze(2), named[STATIC_POSITIONS].to(torch.int32)
        count = tokens.shape[1]
        steps = [_step(named[IN_STEP], named[CACHES[0]], count)]
        mask = named[CAUSAL_MASK].permute(0, 2, 3, 1)
        window = _windowed(mask, places, self.own_window)
        if self.caches.ring:
            steps.append(_step(named[SLIDING_STEP], named[SLIDING_CACHES[0]], count))
            window = named[SLIDING_MASK].permute(0, 2, 3, 1)
        further: dict[str, Any] = {}
        if self.rows is not None:
            rows = self.rows.values(named[LAYER_ROWS].squeeze(2), tokens.dtype)
            further["per_layer_inputs"] = rows.unflatten(2, (self.model.config.num_hidden_layers, -1))
        block = BlockOfTokens.of(named[IN_STEP], named[CAUSAL_MASK])
        layers = self.caches.cache_layers(named, steps, block)
        masks = {"create_causal_mask": mask, "create_sliding_window_causal_mask": window}
        called = self.model if self.logits else self.model.base_model
        with (
            open_lengths(self.model, further=forms_of_blocks(masks)),
            headed(self.model, self.embeddings, named[TABLE]),
        ):
            made = called(
                inputs_embeds=tokens,
                position_ids=places,
                use_cache=True,
                **{CACHE: Cache(layers=layers)},
                **further,
            )
        self.caches.write_fixed(named, layers)
        logits: Tensor = made.logits[None].to(tokens.dtype) if self.logits else named[CACHES[0]][0, 0, 0, 0, 0]
        return logits


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


def _windowed(mask: Tensor, places: Tensor, window: int) -> Tensor:
    """What queries see of a window, whose keys are in a cache with a place for each token.

    Args:
        mask: what they see without it, 1 x 1 x q x S.
        places: their positions, 1 x q.
        window: how many tokens; 0 for all.
    """
    total = mask.shape[3]
    if not 0 < window < total:
        return mask
    known = torch.arange(total, dtype=torch.int32)
    return torch.where(known > places[0, :, None] - window, mask, FORBIDDEN)


@contextmanager
def headed(model: Any, embeddings: Embeddings, table: Tensor) -> Iterator[None]:
    """A head that shares the weight of the embeddings multiplies by their table while the model is called.

    Args:
        model: a causal language model of transformers.
        embeddings: its table.
        table: V x 1 x hidden, as a function is given it.
    """
    head, own = model.get_output_embeddings(), model.get_input_embeddings()
    if head.weight is not own.weight:
        yield
        return
    entries, bias, words = table.squeeze(1), getattr(head, "bias", None), len(own.weight)

    class Shared(nn.Module):
        weight, bias = None, None

        def forward(self, hidden: Tensor) -> Tensor:
            # the table may have further rows, which are no tokens
            made = nn.functional.linear(hidden, embeddings.values(entries, hidden.dtype)).narrow(-1, 0, words)
            return made if bias is None else made + bias

    with exchanged_modules(model, {head: Shared()}):
        yield


_GATHERED = ExternalizeSpec(
    target_class=Gathered, composite_op_name="fused_interleaved_embedding_gather_dequant_reshape"
)
_ROTARY = ExternalizeSpec(target_class=RotaryTables, composite_op_name="rope_cached_cos_sin_gather")


def extend_arguments(
    model: Any, embeddings: Embeddings, caches: StaticCaches, rows: Embeddings | None, queries: int, size: int
) -> tuple[Tensor, ...]:
    """Example arguments of `Extend`: the first block, with empty caches."""
    hidden, dtype = embeddings.table.shape[2], model.get_input_embeddings().weight.dtype
    positions = torch.arange(queries)
    ids = positions % len(embeddings.table)

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
    gather = GatherEmbeddings(embeddings, model.get_input_embeddings().weight.dtype)
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
    table, module = _surface([TABLE_ROWS, 1, 1], [1, 1, 1, 1]), program.module.clone()
    for name in program.calls:
        kept = {each.name: _length(each) for each in program.signature(name).states if each.name not in FIXED_STATES}
        sizes = {state: context if state in CACHES else size for state, size in kept.items()}
        states = {state: _surface([1, 1, 8, 1, 1], [1, 1, 1, 1, 8 * size, 1]) for state, size in sizes.items()}
        constrain(module.graph(name), {TABLE: table, **states})
    verify(module, runtime=True)
    return replace(program, module=module)


def _surface(interleave: Sequence[int], alignments: Sequence[int]) -> str:
    lists = ("x".join(map(str, numbers)) for numbers in (alignments, interleave))
    return "#coreaix.hw_constraints<IOSurface, alignments: [{}], interleave: [{}]>".format(*lists)
