"""A causal language model as functions of open sizes, the form of Apple's Swift package for macOS."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import Dim, ExportedProgram

from patcomp import AIProgram, TorchConverter
from patcomp_models.checkpoints.exporting import exported_module, sizes_kept_by_the_caller
from patcomp_models.language.contract import DRAFT, HIDDEN, LOGITS, MAIN, POSITIONS, draft_names
from patcomp_models.language.decoder import Decoder
from patcomp_models.language.entry_points import EntryPoints

NEW_TOKENS, TOTAL = 16, 24
"""The new tokens, and all tokens, of the example that is exported; both sizes are open."""


@dataclass(frozen=True)
class BundleFunction:
    """A function of a bundle."""

    name: str
    decoder: Decoder
    new: int | None = None
    """The number of new tokens; None for any."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of its outputs."""
        return (LOGITS, HIDDEN) if self.decoder.hidden else (LOGITS,)

    @property
    def state_names(self) -> list[str]:
        """The names of its states; those of a draft are its own."""
        names = self.decoder.states.names
        return [draft_state(self.name, name) for name in names] if self.name.startswith(DRAFT) else names


def draft_state(draft: str, name: str) -> str:
    """The name of a draft's state: `draftKeyCache`."""
    return draft + name[0].upper() + name[1:]


def adapted_main(adapter: str) -> str:
    """The function of a model with an adapter, by the adapter's name."""
    return f"{MAIN}_{adapter}"


def decoder_functions(decoder: Decoder, points: EntryPoints, *drafts: Decoder) -> list[BundleFunction]:
    """The functions of a model, and those of drafts, which take any number of tokens."""
    made = [BundleFunction(name, decoder, size) for name, size in points.sizes.items()]
    return made + [BundleFunction(name, draft) for name, draft in zip(draft_names(len(drafts)), drafts, strict=True)]


def dynamic_program(
    programs: Iterable[tuple[BundleFunction, ExportedProgram]], catalog: Sequence[Any] = ()
) -> AIProgram:
    """Functions as one program, which has each weight once.

    Args:
        programs: the functions and what `exported_function` makes of them.
        catalog: the user's catalogs, as `TorchConverter` takes them.

    Raises:
        UnsupportedError: ops of a model cannot be converted.
    """
    converter = TorchConverter(catalog=catalog)
    with sizes_kept_by_the_caller():  # no more new tokens than tokens, and no more tokens than the caches hold
        for function, program in programs:
            converter.add_exported_program(
                program,
                input_names=[function.decoder.takes, POSITIONS, *function.decoder.further],
                output_names=function.outputs,
                state_names=function.state_names,
                entrypoint_name=function.name,
            )
        return converter.to_coreai(target="gpu")


def unread_weights(programs: Iterable[ExportedProgram]) -> str:
    """The parts of a model whose weights no function reads, and how many they are: `model.visual (12 weights)`.

    Args:
        programs: the functions of one model.
    """
    unread: set[str] | None = None
    for program in programs:
        names = program.graph_signature.inputs_to_parameters
        nodes = {names[node.name]: node for node in program.graph.find_nodes(op="placeholder") if node.name in names}
        places = {name: program.state_dict[name].data_ptr() for name in nodes}  # a shared weight has several names
        read = {places[name] for name, node in nodes.items() if node.users}
        idle = {name for name in nodes if places[name] not in read}
        unread = idle if unread is None else unread & idle
    counts = Counter(".".join(name.split(".")[1:3]) for name in unread or ())
    return ", ".join(f"{name} ({count} weights)" for name, count in sorted(counts.items()))


def decoder_arguments(decoder: Decoder, new: int, total: int, capacity: int) -> tuple[torch.Tensor, ...]:
    """Example arguments of a decoder, with empty states."""
    further = decoder.further_examples(new)
    return decoder.example(new), torch.arange(total)[None], *further, *decoder.states.zeros(capacity)


def exported_function(function: BundleFunction, context: int) -> ExportedProgram:
    """A function with dynamic numbers of all tokens, and of new tokens unless it takes a fixed number of them, and with
    dynamic capacities of growing states."""
    decoder, new = function.decoder, function.new
    total = TOTAL if new is None else min(new + TOTAL - NEW_TOKENS, context)
    capacity = max(min(2048, context), total + 8)
    dims = Dim("new", min=1, max=context), Dim("total", min=new or 1, max=context)
    least = new + 1 if new and new > 1 else 1  # a write that fills the whole cache is another program for torch.export
    open_states = tuple(
        {3: Dim(f"capacity_of_{state.name}", min=least, max=2 * context)} if state.grows else {}
        for state in decoder.states.states
    )
    each_new: dict[int, Any] = {1: dims[0]} if new is None else {}
    shapes = (each_new, {1: dims[1]}, (*[each_new] * len(decoder.further), *open_states))
    arguments = decoder_arguments(decoder, new or NEW_TOKENS, total, capacity)
    sums = decoder.states.has_windows and new is None
    return exported_module(decoder, arguments, type(decoder.model).__name__, shapes, has_sums_of_sizes=sums)
