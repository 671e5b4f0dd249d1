"""Called graphs: ops built into a region, which the outline stage turns into a graph.

@coreai.graph(composite_decl=generate_composite_decl("rms_norm", ["x", "scale"], ["output"], {"eps": 1e-6}))
def rms_norm(x, scale):
    ...
    return coreai.broadcasting_mul(normal, scale)

(y,) = rms_norm(x, scale)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from patcomp.ir.attributes import CompositeDeclarationAttr, composite_declaration
from patcomp.ir.builder import Builder
from patcomp.ir.coreai_op import CoreaiOp
from patcomp.ir.dialect import create_op
from patcomp.ir.module import create_graph
from patcomp.ir.region import RegionOp, create_region
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Attribute, Block, set_name


def call_region(
    symbol: str,
    operands: Mapping[str, Value],
    body: Callable[[dict[str, Value]], Any],
    declaration: CompositeDeclarationAttr | None,
    result_types: Sequence[Attribute] | None = None,
    options: Attribute | None = None,
) -> list[Value]:
    """Add a `patcomp.region` with the ops that `body` builds, and return the region's results.

    Args:
        symbol: stem of the graph's symbol.
        operands: what the region takes, by name.
        body: called with the region's arguments by name; returns a value or several.
        declaration: the composite that the region is; None for a plain graph.
        result_types: types of the results where they are not those of the body's values.
        options: what shapes the body of a composite and is not declared.

    Raises:
        TypeError: the body returned something other than values, or used values other than its arguments.
    """
    builder = Builder.current()
    block = Block(arg_types=[value.ssa.type for value in operands.values()])
    for argument, name in zip(block.args, operands, strict=True):
        set_name(argument, name)
    arguments = {name: Value(argument) for name, argument in zip(operands, block.args, strict=True)}
    with Builder(block, blobs=builder.blobs, location=builder.location) as inner:
        made = body(arguments)
        results: list[Any] = list(made) if isinstance(made, list | tuple) else [made]
        for result in results:
            if not isinstance(result, Value):
                raise TypeError(f"graph {symbol!r} returned {result!r}, which is no value")
        inner.insert(create_op("coreai.yield", [result.ssa for result in results], ()))
    for value in (operand for op in inner.created for operand in op.operands):
        if (value.owner if isinstance(value.owner, Block) else value.owner.parent) is not block:
            raise TypeError(f"graph {symbol!r} uses {Value(value)!r} from outside; make it an argument")
    types = result_types or [result.ssa.type for result in results]
    given = [value.ssa for value in operands.values()]
    region = create_region(symbol, given, block, types, list(operands), declaration)
    if options is not None:
        region.properties["options"] = options
    return [Value(result) for result in builder.insert(region).results]


def region_graph(region: RegionOp, *, private: bool = True, no_inline: bool = True) -> CoreaiOp:
    """The body of a region as an unplaced graph without a name; the region loses it."""
    block = region.body.detach_block(0)
    terminator = block.last_op
    assert terminator is not None
    output = create_op("coreai.output", list(terminator.operands), ())
    output.location = terminator.location
    block.insert_op_after(output, terminator)
    block.erase_op(terminator)
    names = region.result_names.data if not private and region.result_names else ()
    graph = create_graph(
        "",
        block,
        argument_names=[name.data for name in region.argument_names.data],
        result_names=[name.data for name in names],
        private=private,
        no_inline=no_inline,
        declaration=region.declaration,
    )
    graph.location = region.location
    return graph


def graph(
    function: Callable[..., Any] | None = None,
    *,
    private: bool = True,
    no_inline: bool = True,
    provided_name: str | None = None,
    composite_decl: CompositeDeclarationAttr | None = None,
) -> Callable[..., Any]:
    """Decorator: turn a function of values into a graph; each call of the function becomes a `coreai.invoke`.

    The values of a call give the types of the arguments; annotations are not needed. A call returns the list of
    results. Calls that build equal graphs share one.

    Args:
        function: a function of values that returns one or several values.
        private, no_inline: accepted for compatibility; the graph is always private and never inlined.
        provided_name: stem of the graph's symbol, by default the function's name.
        composite_decl: the declaration that makes the graph a composite (`generate_composite_decl`).
    """
    if function is None:
        return lambda decorated: graph(decorated, provided_name=provided_name, composite_decl=composite_decl)
    name = provided_name or function.__name__
    signature = inspect.signature(function)

    def call(*operands: Value, **named: Value) -> list[Value]:
        bound = signature.bind(*operands, **named)
        given = _by_name(bound.arguments, signature)
        for key, value in given.items():
            if not isinstance(value, Value):
                raise TypeError(f"graph {name!r} takes values, got {value!r} for {key!r}; build with numbers inside it")

        def body(arguments: dict[str, Value]) -> Any:
            inside = iter(arguments.values())
            positional = [next(inside) for _ in bound.args]
            return function(*positional, **dict(zip(bound.kwargs, inside, strict=True)))

        return call_region(name, given, body, composite_decl)

    call.__name__, call.__doc__ = name, function.__doc__
    return call


def _by_name(arguments: Mapping[str, Any], signature: inspect.Signature) -> dict[str, Any]:
    """The arguments of a call one by one; `*values` are `values_0`, `values_1`."""
    given: dict[str, Any] = {}
    for key, value in arguments.items():
        kind = signature.parameters[key].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            given |= {f"{key}_{index}": item for index, item in enumerate(value)}
        elif kind is inspect.Parameter.VAR_KEYWORD:
            given |= value
        else:
            given[key] = value
    return given


def generate_composite_decl(*arguments: Any, **named: Any) -> CompositeDeclarationAttr:
    """The declaration that makes a graph a composite.

        generate_composite_decl("rms_norm", ["input", "scale"], ["output"], {"eps": 1e-6, "axes": [-1]})

    It takes, by position or by name:

    - `context`, ignored; accepted as the first argument for scripts that pass one.
    - `composite_name`, the composite's name (`op_name=` means the same).
    - `input_names` and `output_names`, a name for each operand and each result, in order.
    - `op_attributes`: bool, int, float, str, and lists, tuples and dicts of these, by name; it is not changed.
    - `version` of the composite's definition, by default the `"version"` in `op_attributes`, else 1.

    Raises:
        TypeError: an argument is missing or of another type.
        ValueError: `version=` and the version in `op_attributes` differ.
    """
    if "context" in named:
        del named["context"]
    elif arguments and not isinstance(arguments[0], str):
        arguments = arguments[1:]
    if "op_name" in named:
        named["composite_name"] = named.pop("op_name")
    return _declared(*arguments, **named)


def _declared(
    composite_name: str,
    input_names: Sequence[str],
    output_names: Sequence[str],
    op_attributes: Mapping[str, Any],
    version: int | None = None,
) -> CompositeDeclarationAttr:
    if not isinstance(composite_name, str):
        raise TypeError(f"composite_name must be a string, got {composite_name!r}")
    for names in (input_names, output_names):
        if isinstance(names, str) or not isinstance(names, Sequence):
            raise TypeError(f"composite {composite_name!r}: names must be a list of strings, got {names!r}")
    if not isinstance(op_attributes, Mapping) or not all(isinstance(key, str) for key in op_attributes):
        raise TypeError(f"composite {composite_name!r}: op_attributes must be a dict by name, got {op_attributes!r}")
    if absent := [name for name, value in op_attributes.items() if value is None]:
        raise TypeError(f"composite {composite_name!r}: op_attributes {absent} are None; leave them out")
    attributes = dict(op_attributes)
    own = attributes.pop("version", version)
    if version is not None and own != version:
        raise ValueError(f"composite {composite_name!r}: version={version}, but op_attributes has version {own}")
    if own is not None and type(own) is not int:
        raise TypeError(f"composite {composite_name!r}: the version must be an integer, got {own!r}")
    return composite_declaration(
        composite_name,
        input_names=input_names,
        output_names=output_names,
        attributes=attributes,
        version=1 if own is None else own,
    )
