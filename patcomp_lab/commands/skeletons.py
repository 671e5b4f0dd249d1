"""The skeletons of `patcomp rule new`: complete rules, with the places to change marked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from patcomp.errors import RuleError, did_you_mean

if TYPE_CHECKING:
    from patcomp.ir.aten import Argument, Schema

_COMPOSITE = '''"""The composite {name}: its body, and the rule that finds it in models."""

from patcomp.authoring import AtenSource, Coreai, Targets
from patcomp.ir.composite import composite
from patcomp.ir.value import Value
from patcomp.patterns import Attr, Capture, Const, Rewrite, composites, rule


@composites.define
@composite("{name}", inputs=("x", "scale"), attributes=("eps",))  # TODO: names of inputs and attributes
def {name}(c: Coreai, x: Value, scale: Value, *, eps: float) -> Value:
    "x / (|x| mean over the last axis + eps) * scale"  # TODO: the formula
    size = c.reduce_mean(c.abs(x), [x.rank - 1])  # TODO: the body, built from Core AI ops
    return c.broadcasting_mul(c.broadcasting_divide(x, c.broadcasting_add(size, eps)), scale)


@rule(name="{name}", example={{"x": "2x3x8xf32", "scale": "8xf32", "eps": 0.5, "axis": 2}})  # TODO: types and values
def recovered_{name}(a: AtenSource, c: Targets, x: Capture, scale: Capture, eps: Const, axis: Attr) -> Rewrite:
    "x / (x.abs().mean(-1, keepdim=True) + eps) * scale"
    size = a.op("mean.dim", a.abs(x), dim=[axis], keepdim=True, dtype=None)  # TODO: the ATen ops, as models write it
    return Rewrite(
        x / (size + eps) * scale,
        to=c.{name}(x, scale, eps=eps.value),
        where=[  # TODO: the conditions under which both are equal
            axis == x.rank - 1,
            scale.rank == 1,
            scale.shape[0] == x.shape[-1],
            eps.rank == 0,
            x.dtype == "f32",
            scale.dtype == "f32",
        ],
    )
'''

_REFERENCE = '''"""The composite {name}, declared by the PyTorch function that computes it."""

from torch import Tensor

import patcomp


def {name}(x: Tensor, scale: Tensor, eps: float = 0.5) -> Tensor:
    "x / (|x| mean over the last axis + eps) * scale"  # TODO: the formula
    return x / (x.abs().mean(-1, keepdim=True) + eps) * scale  # TODO: the computation, as models write it


rules = patcomp.composite(
    "{name}",
    reference={name},
    example={{"x": "2x3x8xf32", "scale": "8xf32"}},  # TODO: a type for each tensor
    attributes={{"eps": 0.5}},  # TODO: the parameters that are attributes of the composite
)
'''

_NORMALIZE = '''"""The rule {name}: ops of a model that a simpler one replaces."""

from patcomp.authoring import AtenSource, AtenTarget
from patcomp.ir.namespaces import aten_namespace
from patcomp.patterns import Capture, Rewrite, rule


@rule(stage="normalize", into=aten_namespace, example={{"x": "2x3xf32"}})  # TODO: a type for each capture
def {name}(a: AtenSource, c: AtenTarget, x: Capture) -> Rewrite:
    "-(-x) -> x"  # TODO: the algebra
    return Rewrite(-(-x), to=x)  # TODO: the pattern and its replacement; where=[...] if it has conditions
'''

_OPTIMIZE = '''"""The rule {name}: Core AI ops that fewer ops replace, with the same numbers to the last bit."""

from patcomp.authoring import CoreaiSource, CoreaiTarget
from patcomp.ir.namespaces import coreai_namespace
from patcomp.patterns import Capture, Rewrite, rule


@rule(
    stage="optimize",
    source=coreai_namespace,
    into=coreai_namespace,
    example={{"x": "2x3xf32"}},  # TODO: a type for each capture
)
def {name}(a: CoreaiSource, c: CoreaiTarget, x: Capture) -> Rewrite:
    "abs(abs(x)) -> abs(x)"  # TODO: the identity
    return Rewrite(a.abs(a.escaping(a.abs(x))), to=c.abs(x))  # TODO: the pattern and its replacement
'''

_OF_OP = '''"""{title}"""

from patcomp.authoring import {namespace}, OpView
{imports}

{body}@{decorator}{op}", name="{name}", examples=[
    {example},  # TODO: arguments that the op takes, and more examples: other ranks, options, types
])  # fmt: skip
def {function}(op: OpView, c: {namespace}) -> Value:
    "TODO: what it computes"
    # Arguments of {text}
    # Each is read as op["..."], or declared: op.ignore("...", because="...").
    # op.result has the shape and the element type of the result; c {builds}.
{reads}
    op.reject("TODO: {task}")
'''

_BODY_OF_OP = """@composites.define
@composite("{name}", inputs=("x",))  # TODO: names of inputs and attributes
def {name}(c: Coreai, x: Value) -> Value:
    "TODO: the formula"
    return c.relu(x)  # TODO: the body, built from Core AI ops


"""

_DECOMPOSITION = '''"""How {op} is computed by other PyTorch ops."""

{imports}from torch import Tensor

from patcomp.patterns import decomposition, example


@decomposition("{op}", name="{name}", examples=[
    {example},  # TODO: arguments that the op takes, and more examples: other ranks, options, types
])  # fmt: skip
def {name}({signature}) -> {result}:
    "TODO: what it computes"
    # PyTorch traces the function for each call. It may branch on shapes, types and options, but not on the numbers
    # in a tensor.
    raise NotImplementedError("TODO: compute the result with PyTorch ops, and return it")
'''

_VALUE = "from patcomp.ir.value import Value\n"

RULE_KINDS = {
    "composite": "a composite with its body, and the pattern that finds it; with --op, the op that it replaces",
    "reference": "a composite declared by a PyTorch function",
    "lowering": "how an op (--op) is computed on Core AI",
    "decomposition": "how an op (--op) is computed by other PyTorch ops",
    "normalize": "PyTorch ops that a simpler one replaces; with --op, a function of one op",
    "optimize": "Core AI ops that fewer ops replace",
}
"""The kinds of rules, and what each is."""

_PATTERNS = {"composite": _COMPOSITE, "reference": _REFERENCE, "normalize": _NORMALIZE, "optimize": _OPTIMIZE}
"""The skeletons that need no op."""

NEEDS_OP = ("lowering", "decomposition")
TAKES_OP = (*NEEDS_OP, "composite", "normalize")
"""The kinds that may be about one op."""


def skeleton(kind: str, name: str, op: str | None = None) -> str:
    """The text of a file with a new rule.

    Args:
        kind: one of `RULE_KINDS`.
        name: the rule's name.
        op: the op that the rule takes, for the kinds `TAKES_OP`.

    Raises:
        RuleError: there is no such op.
    """
    if op is None:
        return _PATTERNS[kind].format(name=name)
    from patcomp.ir import aten
    from patcomp_lab.proof.op_calls import operator_schema

    try:
        schema = operator_schema(op)
    except RuleError as error:
        raise RuleError(f"{error}{did_you_mean(op.replace('::', '.'), aten.known_names())}") from None
    required = [argument for argument in schema.arguments if not argument.has_default]
    facts = {"op": schema.name, "name": name, "text": schema.text}
    facts["example"] = f"example({', '.join(map(_sample, required))})"
    if kind == "decomposition":
        signature = _signature(schema)
        results = ", ".join(["Tensor"] * len(schema.result_types))
        return _DECOMPOSITION.format(
            **facts,
            signature=signature,
            result=results if len(schema.result_types) == 1 else f"tuple[{results}]",
            imports="import torch\n" if "torch." in signature else "",
        )
    facts["reads"] = "\n".join(f'    {item.name.strip("_")}_ = op["{item.name}"]' for item in schema.arguments)
    return _OF_OP.format(**facts, **_FORMS[kind](name, schema.name))


def _lowering(name: str, op: str) -> dict[str, str]:
    return {
        "title": f"How {op} is computed on Core AI.",
        "namespace": "Coreai",
        "imports": f"{_VALUE}from patcomp.patterns import example, lowering\n",
        "body": "",
        "decorator": 'lowering("',
        "function": name,
        "builds": "the authoring functions of Core AI",
        "task": "build the result out of c, and return it",
    }


def _normalization(name: str, op: str) -> dict[str, str]:
    return {
        "title": f"Another spelling of {op}.",
        "namespace": "Aten",
        "imports": f"{_VALUE}from patcomp.patterns import example, normalization\n",
        "body": "",
        "decorator": 'normalization("',
        "function": name,
        "builds": "the ops of PyTorch: c.neg(op.result, x)",
        "task": "build the replacement out of c, and return it",
    }


def _whole(name: str, op: str) -> dict[str, str]:
    imports = f"from patcomp.ir.composite import composite\n{_VALUE}"
    return {
        "title": f"The composite {name}, which replaces {op}.",
        "namespace": "Coreai",
        "imports": f"{imports}from patcomp.patterns import composites, example, op_rule\n",
        "body": _BODY_OF_OP.format(name=name),
        "decorator": 'op_rule("recover", "',
        "function": f"recovered_{name}",
        "builds": "the authoring functions of Core AI",
        "task": f"return {name}(...), the call of the composite",
    }


_FORMS = {"composite": _whole, "lowering": _lowering, "normalize": _normalization}


def _sample(argument: Argument) -> str:
    """A value of an argument for an example."""
    values = {"Tensor": '"2x3xf32"', "Tensor[]": '["2x3xf32"]', "bool": "True", "float": "0.5", "Scalar": "0.5"}
    values |= {"str": '""'}
    return values.get(argument.type, "None" if argument.type.endswith("?") else "[1]" if "[" in argument.type else "1")


_ANNOTATIONS = {
    "Tensor": "Tensor", "bool": "bool", "int": "int", "SymInt": "int", "float": "float", "Scalar": "float",
    "str": "str", "ScalarType": "torch.dtype", "Layout": "torch.layout", "Device": "torch.device",
    "MemoryFormat": "torch.memory_format",
}  # fmt: skip


def _signature(schema: Schema) -> str:
    """The parameters of a Python function with an operator's signature."""
    before, _, after = schema.text.partition(" *,")
    positional = before.count(",") if after else len(schema.arguments)
    shown = [_parameter(argument) for argument in schema.arguments]
    return ", ".join([*shown[:positional], *(["*"] if after else []), *shown[positional:]])


def _parameter(argument: Argument) -> str:
    plain, optional = argument.type.rstrip("?"), argument.type.endswith("?")
    element = _ANNOTATIONS.get(plain.partition("[")[0].rstrip("?"), "object")
    annotation = f"list[{element}]" if "[" in plain else element
    default = f" = {argument.default!r}" if argument.has_default else ""
    return f"{argument.name}: {annotation}{' | None' * optional}{default}"
