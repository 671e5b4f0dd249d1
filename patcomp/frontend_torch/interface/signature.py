"""The inputs, states, constants and outputs of an exported program, and their names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    OutputKind,
    SymBoolArgument,
    SymFloatArgument,
    SymIntArgument,
    TensorArgument,
)
from torch.fx import Node

from patcomp.errors import Problem, UnsupportedError
from patcomp.frontend_torch.fx.dtypes import has_values
from patcomp.frontend_torch.fx.sizes import SYMBOLIC, known
from patcomp.pytorch import pytree, statically_known_true

SYMBOLIC_ARGUMENTS = (SymIntArgument, SymFloatArgument, SymBoolArgument)
"""Kinds of inputs and outputs that are Python numbers and may change from run to run."""


@dataclass(frozen=True)
class State:
    """A buffer or input that the program writes to."""

    placeholder: str
    """FX name of the node with the old content; the default name."""
    target: str
    """Path of the buffer, or name of the argument."""
    is_buffer: bool
    result: str
    """FX name of the node with the new content."""
    initial: torch.Tensor | None = None
    """The buffer's tensor, owned by the module; None for an input."""


@dataclass(frozen=True)
class Signature:
    """The interface of one entry point. Its graph takes `arguments` and returns `results`."""

    inputs: tuple[str, ...] = ()
    """FX names of the inputs that are not states."""
    outputs: tuple[str, ...] = ()
    """FX names of the returned nodes, then of the new values of mutated inputs that are not states."""
    constants: Mapping[str, tuple[str, torch.Tensor]] = field(default_factory=dict)
    """Path and tensor of each parameter, buffer and lifted constant, by FX name of its placeholder."""
    states: tuple[State, ...] = ()
    """Mutated buffers in the order of their placeholders, then mutated inputs in `forward`'s order."""
    updated_inputs: tuple[str, ...] = ()
    """The inputs whose new values are the last outputs."""
    user_inputs: tuple[str, ...] = ()
    """FX names of the leaves of the model's arguments."""
    user_results: tuple[str | None, ...] = ()
    """FX names of the leaves of the model's result; None for a Python value, which is fixed."""
    fixed_inputs: dict[str, Any] = field(default_factory=dict)
    """Python values that export specialised, by FX name."""
    fixed_outputs: dict[int, Any] = field(default_factory=dict)
    """Python values that the model returns, by position among `user_results`."""
    result_keys: tuple[str, ...] = ()
    """Where each of `user_results` stands in the model's result: `"logits"`, `"hidden_states_0"`. It is empty for a
    result without a key of a dictionary or a name of a field."""
    numbers: tuple[int, ...] = ()
    """Positions among `user_results` of dynamic sizes and of conditions on them."""
    draws: Mapping[str, str] = field(default_factory=dict)
    """The distributions of the inputs that are random numbers, by FX name; they follow the model's own inputs."""

    def examples(self, program: ExportedProgram) -> dict[str, Any]:
        """The example of each input, by the FX name of its placeholder; empty if the program has no examples."""
        if program.example_inputs is None:
            return {}
        examples = program.call_spec.in_spec.flatten_up_to(program.example_inputs)  # type: ignore[union-attr]
        if len(examples) != len(self.user_inputs):
            raise UnsupportedError(
                "the exported program is inconsistent:",
                [Problem(f"the program has {len(self.user_inputs)} inputs and {len(examples)} example inputs")],
            )
        return dict(zip(self.user_inputs, examples, strict=True))

    @property
    def arguments(self) -> tuple[str, ...]:
        """FX names of the graph's arguments: mutated buffers, then user inputs, mutated or not, then random numbers."""
        given = {*self.inputs, *(state.placeholder for state in self.states)}
        buffers = tuple(state.placeholder for state in self.states if state.is_buffer)
        return buffers + tuple(name for name in (*self.user_inputs, *self.draws) if name in given)

    @property
    def results(self) -> tuple[str, ...]:
        """FX names of the graph's results: the new content of each state, then the outputs."""
        return tuple(state.result for state in self.states) + self.outputs


def program_signature(
    program: ExportedProgram, mutated_inputs: str = "state", draws: Mapping[str, str] = MappingProxyType({})
) -> tuple[Signature, list[Problem]]:
    """Read the signature of an exported program.

    Args:
        mutated_inputs: what a mutated input becomes: `"state"`, or `"output"` for an ordinary input whose new value is
            an output after the model's own.
        draws: the distributions of the inputs that are random numbers, by FX name.

    Returns:
        The signature, and the inputs and outputs that cannot be converted: custom objects, sparse tensors, buffers
        into which PyTorch lost a copy, states without values.
    """
    given, new_values, problems = _inputs(program, mutated_inputs, draws)
    results: list[str | None] = []
    fixed: dict[int, Any] = {}
    numbers: list[int] = []
    for spec in program.graph_signature.output_specs:
        if spec.kind == OutputKind.TOKEN or spec.kind.name.endswith("_MUTATION"):
            continue
        if spec.kind != OutputKind.USER_OUTPUT:
            problems.append(Problem(f"an output that is a {spec.kind.name.lower()} cannot be converted"))
        elif isinstance(spec.arg, ConstantArgument):
            fixed[len(results)] = spec.arg.value
            results.append(None)
        else:
            results.append(spec.arg.name)
            if isinstance(spec.arg, SYMBOLIC_ARGUMENTS):
                numbers.append(len(results) - 1)
            elif not isinstance(spec.arg, TensorArgument):
                problems.append(Problem(f"output {spec.arg.name!r} is of a kind that cannot be converted"))
    found = replace(
        given,
        outputs=(*(name for name in results if name is not None), *new_values),
        user_results=tuple(results),
        result_keys=_result_keys(program, len(results)),
        fixed_outputs=fixed,
        numbers=tuple(numbers),
    )
    return found, problems


def _inputs(
    program: ExportedProgram, mutated_inputs: str, draws: Mapping[str, str]
) -> tuple[Signature, list[str], list[Problem]]:
    """The part of the signature about inputs, the nodes with the new values of `updated_inputs`, and problems."""
    problems: list[Problem] = []
    nodes = {node.name: node for node in program.graph.nodes}
    mutated = _mutations(program.graph_signature)
    states: list[State] = []
    updated: dict[str, str] = {}
    inputs: list[str] = []
    user_inputs: list[str] = []
    constants: dict[str, tuple[str, torch.Tensor]] = {}
    fixed: dict[str, Any] = {}
    for spec in program.graph_signature.input_specs:
        if spec.kind == InputKind.TOKEN:
            continue  # a token only orders ops with effects; such ops are checks, or reported as unsupported
        name = getattr(spec.arg, "name", "")
        if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
            assert spec.target is not None
            problems += _layout(nodes[name], f"the weight {spec.target!r}")
            source = program.constants if spec.target not in program.state_dict else program.state_dict
            if name in mutated:
                problems += _lost_copy(nodes[name], nodes[mutated[name]], spec.target)
                problems += _unknown_state(source[spec.target], spec.target)
                states.append(State(name, spec.target, True, mutated[name], source[spec.target]))
            else:
                constants[name] = (spec.target, source[spec.target])
            continue
        if name in draws:
            inputs.append(name)
            continue
        user_inputs.append(name)
        if isinstance(spec.arg, ConstantArgument):
            fixed[name] = spec.arg.value
        elif isinstance(spec.arg, TensorArgument):
            problems += _layout(nodes[name], f"input {name!r}")
            if name in mutated and mutated_inputs == "state":
                states.append(State(name, name, False, mutated[name]))
            else:
                inputs.append(name)
                if name in mutated:
                    updated[name] = mutated[name]
        elif isinstance(spec.arg, SYMBOLIC_ARGUMENTS):
            value = known(nodes[name].meta["val"])
            if isinstance(value, SYMBOLIC):
                inputs.append(name)
            else:
                fixed[name] = value  # export made the dynamic number a constant
        else:
            problems.append(
                Problem(f"input {name!r} is {spec.kind.name.lower()}, which cannot be converted", node=name)
            )
    found = Signature(
        inputs=tuple(inputs),
        constants=constants,
        states=tuple(states),
        updated_inputs=tuple(updated),
        user_inputs=tuple(user_inputs),
        fixed_inputs=fixed,
        draws=draws,
    )
    return found, list(updated.values()), problems


def _result_keys(program: ExportedProgram, count: int) -> tuple[str, ...]:
    structure = program.call_spec.out_spec
    keys = tuple(_keys_of_leaves(structure)) if structure is not None else ()
    return keys if len(keys) == count else ("",) * count  # outputs of a graph that was changed by hand have no keys


def _keys_of_leaves(structure: pytree.TreeSpec, path: tuple[str, ...] = ()) -> Iterator[str]:
    """The keys and fields on the way to each leaf, with positions behind the first one: `hidden_states_0`."""
    if structure.is_leaf():
        yield "_".join(path)
        return
    for part, key in zip(structure.children(), _keys(structure), strict=True):
        yield from _keys_of_leaves(part, (*path, str(key)) if path or isinstance(key, str) else ())


def _keys(structure: pytree.TreeSpec) -> Sequence[object]:
    """The keys of a dictionary, the fields of a named tuple or dataclass, or positions."""
    context = getattr(structure.context, "_fields", structure.context)  # the class of a named tuple
    nested = [part for part in context if isinstance(part, list)] if isinstance(context, list) else []
    keys = nested[0] if nested else context  # a dataclass and a defaultdict have a list among other things
    if isinstance(keys, list | tuple) and len(keys) == structure.num_children:
        return keys
    return range(structure.num_children)


def _mutations(signature: ExportGraphSignature) -> dict[str, str]:
    """FX name of each placeholder that is written to, and of the node with its new value."""
    placeholders = {spec.target: getattr(spec.arg, "name", "") for spec in signature.input_specs if spec.target}
    return {
        placeholders.get(spec.target, spec.target): spec.arg.name  # an input has its own name as the target
        for spec in signature.output_specs
        if spec.kind.name.endswith("_MUTATION") and spec.target is not None
    }


def _unknown_state(value: torch.Tensor, target: str) -> list[Problem]:
    """A problem if the first run of a program could not begin with a buffer's values, because it has none."""
    if has_values(value):
        return []
    return [
        Problem(
            f"the buffer {target!r}, which the program writes to, has no values: it is fake or on the meta device",
            advice="give the buffer its values before the model is exported; other weights may lack theirs",
        )
    ]


def _lost_copy(before: Node, after: Node, target: str) -> list[Problem]:
    """A problem if PyTorch replaced a copy into a buffer by its source although the types differ.

    The users of the source and of the buffer can then no longer be distinguished.
    """
    old, new = before.meta["val"], after.meta["val"]
    differs = len(old.shape) != len(new.shape) or any(
        statically_known_true(a != b) for a, b in zip(old.shape, new.shape, strict=True)
    )
    returned = sum(argument is after for argument in after.graph.output_node().args[0])  # type: ignore[union-attr, misc]
    if not differs and (old.dtype == new.dtype or (len(after.users) == 1 and returned == 1)):
        return []
    was, given = (f"{str(v.dtype).removeprefix('torch.')} of shape {tuple(v.shape)}" for v in (old, new))
    return [
        Problem(
            f"PyTorch's decomposition lost a conversion: the buffer {target!r}, {was}, is written with {given}",
            node=after.name,
            advice="decompose the program with patcomp.get_decomp_table(), or not at all",
        )
    ]


def _layout(node: Node, what: str) -> list[Problem]:
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor) and value.layout is not torch.strided:
        layout = str(value.layout).removeprefix("torch.")
        advice = "give its dense form, to_dense(), before the export"
        return [Problem(f"{what} is {layout}; only dense tensors can be converted", node=node.name, advice=advice)]
    return []
