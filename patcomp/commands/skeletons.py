"""The skeletons of `patcomp rule new`: complete rules, with the places to change marked."""

from __future__ import annotations

KINDS = ("composite", "lowering", "rewrite")

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

_LOWERING = '''"""How {op} is computed on Core AI."""

from patcomp.authoring import Coreai, OpView
from patcomp.ir.value import Value
from patcomp.patterns import example, lowering


@lowering("{op}", name="{name}", examples=[{example}])  # TODO: more examples: other ranks, options, types
def {name}(op: OpView, c: Coreai) -> Value:
    "TODO: what it computes"
    # Arguments of {text}
    # Each is read as op["..."], or declared: op.ignore("...", because="...").
    # op.result has the shape and the element type of the result; c the authoring functions of Core AI.
{reads}
    op.reject("TODO: build the result out of c, and return it")
'''

_REWRITE = '''"""The rule {name}: ops of a model that a simpler one replaces."""

from patcomp.authoring import AtenSource, AtenTarget
from patcomp.ir.namespaces import aten_namespace
from patcomp.patterns import Capture, Rewrite, rule


@rule(stage="normalize", target=aten_namespace, example={{"x": "2x3xf32"}})  # TODO: a type for each capture
def {name}(a: AtenSource, c: AtenTarget, x: Capture) -> Rewrite:
    "-(-x) -> x"  # TODO: the algebra
    return Rewrite(-(-x), to=x)  # TODO: the pattern and its replacement; where=[...] if it has conditions
'''


def skeleton(kind: str, name: str, op: str | None = None) -> str:
    """The text of a file with a new rule.

    Args:
        kind: one of `KINDS`.
        name: the rule's name.
        op: the op of a lowering.

    Raises:
        RuleError: there is no such op.
    """
    if kind != "lowering":
        return (_COMPOSITE if kind == "composite" else _REWRITE).format(name=name)
    from patcomp.proof.op_equivalence import operator_schema

    assert op is not None
    schema = operator_schema(op)
    required = [argument for argument in schema.arguments if not argument.has_default]
    values = {"Tensor": '"2x3xf32"', "Tensor[]": '["2x3xf32"]', "bool": "True", "float": "0.5", "Scalar": "0.5"}
    samples = [values.get(item.type, "[1]" if "[" in item.type else "1") for item in required]
    reads = "\n".join(f'    {item.name.strip("_")}_ = op["{item.name}"]' for item in schema.arguments)
    return _LOWERING.format(
        op=schema.name, name=name, text=schema.text, example=f"example({', '.join(samples)})", reads=reads
    )
