"""The names at run time of an entry point and of its inputs, outputs and states, and what is kept by these names."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.export import ExportedProgram

from patcomp.errors import EvaluationError, Problem, UnsupportedError
from patcomp.evaluate.element_types import TORCH_DTYPES
from patcomp.evaluate.inputs import prepare_input
from patcomp.frontend_torch.fx.dtypes import type_of
from patcomp.frontend_torch.interface.signature import Signature
from patcomp.interface.graphs import entry_signature
from patcomp.interface.signature import Fixed, ModelCall
from patcomp.ir.types import TensorType
from patcomp.ir.xdsl import Operation
from patcomp.narrowing.widths import Widths


@dataclass(frozen=True)
class Names:
    """The names of an entry point's inputs, outputs and states, each in the order of its signature."""

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    states: tuple[str, ...] = ()

    def of_arguments(self, signature: Signature) -> dict[str, str]:
        """The names of the graph's arguments, by FX name: of the inputs, then of the states."""
        placeholders = [*signature.inputs, *(state.placeholder for state in signature.states)]
        return dict(zip(placeholders, [*self.inputs, *self.states], strict=True))

    def of_draws(self, signature: Signature) -> dict[str, str]:
        """The distributions of the inputs that are random numbers, by name."""
        own = self.of_arguments(signature)
        return {own[placeholder]: distribution for placeholder, distribution in signature.draws.items()}


def names_for(
    signature: Signature,
    inputs: Sequence[str] | None,
    outputs: Sequence[str] | None,
    states: Sequence[str] | None,
) -> Names:
    """The names that the user gave, or the defaults, made distinct for outputs and random numbers.

    By default an input has its FX name, and so has an output, unless it stands in a dictionary or in a field of the
    model's result: then it has the name of the key or field.

    Inputs that are random numbers follow the others, and always have their default names.

    An input and an output may share a name; the name of a state must be unique, because a state is both.

    Raises:
        TypeError: the names are not a list of strings.
        ValueError: the number of names is wrong, or a name is empty, repeated, or cannot be written to a text file; the
            message lists every problem.
    """
    wrong: list[str] = []
    state_names = _checked("state", states, [state.placeholder for state in signature.states], wrong)
    own_inputs = [name for name in signature.inputs if name not in signature.draws]
    input_names = _checked("input", inputs, own_inputs, wrong)
    input_names += _distinct(tuple(signature.draws), {*input_names, *state_names})
    defaults = [*_own_outputs(signature), *(f"{name}_updated" for name in signature.updated_inputs)]
    output_names = _checked("output", outputs, _distinct(defaults, state_names), wrong)
    for what, names in (("input", input_names), ("output", output_names)):
        if shared := sorted({*state_names}.intersection(names)):
            wrong.append(f"{what}_names {list(names)} and state_names {list(state_names)} share {shared}")
    if wrong:
        raise ValueError("; ".join(wrong))
    return Names(input_names, output_names, state_names)


def _own_outputs(signature: Signature) -> Iterator[str]:
    """The default name of each output that the model returns."""
    for fx_name, key in zip(signature.user_results, signature.result_keys, strict=True):
        if fx_name is not None:
            yield fx_name if _unusable(key) else key


def check_entrypoint(name: object) -> None:
    """Check the name of an entry point.

    Raises:
        TypeError: it is not a string.
        ValueError: it is empty, starts with `$` or has a control character.
    """
    if not isinstance(name, str):
        raise TypeError(f"entrypoint_name must be a string, got {name!r}")
    if _unusable(name) or name.startswith("$"):  # names of the runtime's own functions start with $
        raise ValueError(f"entrypoint_name must not be empty, start with $ or have control characters, got {name!r}")


def _unusable(name: str) -> bool:
    """Whether a name is blank, or has control characters or lone surrogates, which a text file cannot hold."""
    return not name.strip() or re.search(r"[\x00-\x1f\x7f\ud800-\udfff]", name) is not None


def _checked(what: str, given: Sequence[str] | None, defaults: Sequence[str], wrong: list[str]) -> tuple[str, ...]:
    """The given names of the inputs, outputs or states, or the defaults; append problems to `wrong`."""
    if given is not None and not isinstance(given, list | tuple):
        raise TypeError(f"{what}_names must be a list of names, got {given!r}")
    if not given:
        # a lone surrogate, which no text file can hold, becomes its escape; distinct names stay distinct
        return tuple(name.encode(errors="backslashreplace").decode() for name in defaults)
    for name in given:
        if not isinstance(name, str):
            raise TypeError(f"{what}_names must hold strings, got {name!r}")
    if len(given) != len(defaults):
        own = f"{len(defaults)} {what}{'s' * (len(defaults) != 1)}" + (f", {', '.join(defaults)}," if defaults else "")
        wrong.append(f"the model has {own} and {what}_names has {len(given)}: {', '.join(given)}")
    repeated = sorted({name for name in given if list(given).count(name) > 1})
    bad = [name for name in given if _unusable(name)]
    if repeated or bad:
        parts = [f"repeats {repeated}" if repeated else "", f"has unusable names {bad}" if bad else ""]
        wrong.append(f"{what}_names {list(given)} " + " and ".join(part for part in parts if part))
    return tuple(given)


def _distinct(names: Sequence[str], taken: Collection[str]) -> tuple[str, ...]:
    """The names, made distinct: a repeated or taken name gets a number."""
    used = set(taken)
    result = []
    for name in names:
        candidate, number = name, 1
        while candidate in used or (candidate != name and candidate in names):
            candidate, number = f"{name}_{number}", number + 1
        used.add(candidate)
        result.append(candidate)
    return tuple(result)


def quoted_names(names: list[str], shown: int = 10) -> str:
    """Names in quotes, the first ones if there are many."""
    rest = len(names) - shown
    return ", ".join(map(repr, names[:shown])) + (f" and {rest} more" if rest > 0 else "")


# ---- by these names: the model's call, the contents of its buffers -------------------------------------


def model_call(program: ExportedProgram, signature: Signature, names: Names) -> ModelCall:
    """The call of an exported model, in terms of the names that its program has at run time."""
    tree, own = program.call_spec, names.of_arguments(signature)
    outputs = iter(names.outputs)
    results = tuple(
        Fixed(signature.fixed_outputs[index]) if leaf is None else next(outputs)
        for index, leaf in enumerate(signature.user_results)
    )
    return ModelCall(
        arguments=tuple(own.get(leaf) or Fixed(signature.fixed_inputs[leaf]) for leaf in signature.user_inputs),
        results=results,
        argument_tree=tree.in_spec,
        result_tree=tree.out_spec,
        numbers=frozenset(leaf for index in signature.numbers if isinstance(leaf := results[index], str)),
        buffers={n: state.target for state, n in zip(signature.states, names.states, strict=True) if state.is_buffer},
    )


def initial_state(signature: Signature, names: Names, widths: Widths) -> dict[str, torch.Tensor]:
    """Copies of the current contents of the buffers, by the names of their states, in the program's types.

    Raises:
        UnsupportedError: a 64-bit value does not fit 32 bits, or a buffer does not fit into memory; all such buffers
            are listed.
    """
    contents: dict[str, torch.Tensor] = {}
    problems: list[Problem] = []
    for state, name in zip(signature.states, names.states, strict=True):
        if state.initial is None:
            continue
        try:
            held = state.initial.detach().cpu().clone(memory_format=torch.contiguous_format)
        except RuntimeError:  # of PyTorch's allocator
            sizes = " x ".join(map(str, state.initial.shape))
            problems.append(
                Problem(
                    f"the buffer {state.target!r} of {sizes} elements does not fit into memory",
                    node=state.placeholder,
                    advice="an expanded buffer is written as a whole; register it in its own size",
                )
            )
            continue
        type_ = widths.of(type_of(held))
        assert isinstance(type_, TensorType)
        try:
            contents[name] = prepare_input(held, type_, state.target, "buffer")
        except EvaluationError as error:
            choice = "float64" if held.is_floating_point() else "int64"
            problems.append(Problem(str(error), node=state.placeholder, advice=f"convert with {choice}='keep'"))
    if problems:
        raise UnsupportedError("the buffers that the model writes to cannot be converted:", problems)
    return contents


def in_types_of(graph: Operation, contents: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The contents of buffers in the types of the states of a converted graph, which a target may have changed."""
    types = {state.name: state.element_type for state in entry_signature(graph).states}
    return {name: held.to(TORCH_DTYPES[types[name]]) for name, held in contents.items()}
