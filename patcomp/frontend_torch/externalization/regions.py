"""Regions: calls of externalized modules, marked by the import, become `patcomp.region`s.

The ops of a call are the ops between its two markers. They are consecutive in one block and in traced order, so no
value can leave them and come back, and they can always form a region. Values from outside that they read, besides the
call's arguments, become further inputs. Inner values that other ops read become further outputs.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Sequence

from patcomp.errors import Problem, UnsupportedError
from patcomp.frontend_torch.externalization.marked_calls import between, read_from_outside
from patcomp.frontend_torch.externalization.quantized_calls import dequantization, settle
from patcomp.ir.attributes import CompositeDeclarationAttr
from patcomp.ir.builder import Builder
from patcomp.ir.constants import is_constant
from patcomp.ir.dialect import create_op
from patcomp.ir.locations import problem_at
from patcomp.ir.module import IRModule
from patcomp.ir.region import RegionBeginOp, RegionEndOp, create_region, strings
from patcomp.ir.value import made_by
from patcomp.ir.xdsl import (
    ArrayAttr,
    Attribute,
    Block,
    DictionaryAttr,
    Operation,
    SSAValue,
    StringAttr,
    Use,
    set_name,
)


def form_regions(module: IRModule) -> None:
    """Form the region of every marked call of an imported module, inner calls first, and remove all markers.

    Raises:
        UnsupportedError: a begin or end is missing, because a pass between export and import removed or moved it, or
            composites lost parameters.
    """
    problems: list[Problem] = []
    for graph in module.graphs:
        _form_in(graph.regions[0].block, problems)
    if problems:
        raise UnsupportedError("a quantizer changed the inputs of externalized composites:", problems)


def _form_in(block: Block, problems: list[Problem]) -> None:
    open_calls: list[RegionBeginOp] = []
    for op in list(block.ops):
        for region in op.regions:
            for inner in region.blocks:
                _form_in(inner, problems)
        if type(op) is RegionBeginOp:
            open_calls.append(op)
        elif type(op) is RegionEndOp:
            if not open_calls or open_calls[-1].symbol != op.symbol:
                raise _unpaired(op)
            _form(open_calls.pop(), op, problems)
    if open_calls:
        raise _unpaired(open_calls[-1])


def _unpaired(op: RegionBeginOp | RegionEndOp) -> UnsupportedError:
    missing = "end" if isinstance(op, RegionBeginOp) else "begin"
    problem = problem_at(
        op,
        f"a call of the externalized module {op.symbol.data!r} has no {missing} in the same graph",
        "a pass that ran on the exported program removed or moved a marker of the call",
    )
    return UnsupportedError("the calls of externalized modules cannot be found:", [problem])


def _form(begin: RegionBeginOp, end: RegionEndOp, problems: list[Problem]) -> None:
    block = begin.parent
    assert block is not None
    settle(begin, end)
    members = set(between(begin, end))
    _keep_constants_apart(begin, end, members)
    read = read_from_outside(begin, end)
    given = set(begin.inputs)
    copied = [value for value in read if _is_known(value) and value not in given]
    if (unused := _names(begin.unused_names)) and any(map(dequantization, copied)):
        lost = ", ".join(unused)
        problems.append(problem_at(
            begin,
            f"the externalized composite {begin.symbol.data!r} reads quantized weights in place of its inputs {lost}",
            "leave the composite's own parameters out of the quantization, or externalize it as a plain graph",
        ))  # fmt: skip
    inputs = _inputs(begin, [value for value in read if value in given or not _is_known(value)])
    outputs = _outputs(begin, end, members)

    body = Block(arg_types=[value.type for value, _ in inputs])
    replaced: dict[SSAValue, SSAValue] = {}
    for (value, name), argument in zip(inputs, body.args, strict=True):
        set_name(argument, name)
        replaced.setdefault(value, argument)
    builder = Builder(body, location=begin.location)
    for value in copied:
        replaced[value] = _copied(value, builder)
    outside = [_uses_outside(value, end, members) for value, _ in outputs]
    if not any(outside):
        # a call that only returns its arguments stays, because later ops read the results of the call
        outside = [_uses_after(value, end) for value, _ in outputs]
    for op in list(between(begin, end)):
        op.detach()
        body.add_op(op)
    builder.insert(create_op("coreai.yield", [value for value, _ in outputs], ()))
    for value, inner in replaced.items():
        value.replace_uses_with_if(inner, lambda use: body.find_ancestor_op_in_block(use.operation) is not None)

    argument_names, result_names = [name for _, name in inputs], [name for _, name in outputs]
    region = create_region(
        begin.symbol.data,
        [value for value, _ in inputs],
        body,
        [value.type for value, _ in outputs],
        argument_names,
        _declared(begin.declaration, argument_names, result_names),
        result_names=result_names,
        recover=begin.recover,
        public=begin.declaration is None,
    )
    region.location = begin.location
    block.insert_op_before(region, begin)
    for result, (value, _), uses in zip(region.results, outputs, outside, strict=True):
        if uses:
            set_name(result, value.name_hint)
        for use in uses:
            use.operation.operands[use.index] = result
    for marker in (end, begin):
        marker.detach()
        marker.erase()
    for value in read:
        if _is_known(value) and not any(value.uses):
            _erase(value)


def _uses_outside(value: SSAValue, end: Operation, members: Container[Operation]) -> list[Use]:
    """The uses of a value of the block other than by the call; empty if it is not made by the call."""
    if value.owner not in members:
        return []
    block = end.parent
    assert block is not None
    return [
        use for use in value.uses
        if use.operation is not end and block.find_ancestor_op_in_block(use.operation) not in members
    ]  # fmt: skip


def _uses_after(value: SSAValue, end: Operation) -> list[Use]:
    block = end.parent
    assert block is not None
    users = ((use, block.find_ancestor_op_in_block(use.operation)) for use in value.uses)
    return [use for use, user in users if user is not None and end.is_before_in_block(user)]


def _keep_constants_apart(begin: RegionBeginOp, end: RegionEndOp, members: Collection[Operation]) -> None:
    """Copy constants that other ops read out of the call, so that they do not become outputs of its region.

    (The import creates equal constants once, at the first use.)
    """
    block = begin.parent
    assert block is not None
    builder = Builder(block, before=begin, location=begin.location)
    for value in (value for op in between(begin, end) for value in op.results):
        if _is_known(value) and value not in end.outputs and (uses := _uses_outside(value, end, members)):
            value.replace_uses_with_if(_copied(value, builder), uses.__contains__)


def _inputs(begin: RegionBeginOp, read: Collection[SSAValue]) -> list[tuple[SSAValue, str]]:
    """The named inputs of the region: own parameters that it reads, the call's arguments, and other values it reads."""
    names = _names(begin.parameter_names)
    parameters = list(zip(begin.inputs, names, strict=False))
    arguments = list(zip(begin.inputs[len(names) :], _names(begin.argument_names), strict=True))
    taken = [(value, name) for value, name in parameters if value in read] + arguments
    given = {value for value, _ in taken}
    taken += [(value, value.name_hint or "captured") for value in read if value not in given]
    return list(zip((value for value, _ in taken), _distinct(name for _, name in taken), strict=True))


def _outputs(begin: RegionBeginOp, end: RegionEndOp, members: Collection[Operation]) -> list[tuple[SSAValue, str]]:
    """The named outputs of the region: the results of the call, and inner values that other ops read."""
    results = list(end.outputs)
    names = ["output"] if len(results) == 1 else [f"output_{index}" for index in range(len(results))]
    further = [
        value for op in between(begin, end) for value in op.results
        if value not in results and _uses_outside(value, end, members)
    ]  # fmt: skip
    names += [value.name_hint or "captured" for value in further]
    return list(zip([*results, *further], _distinct(names), strict=True))


def _names(attribute: ArrayAttr) -> list[str]:
    return [name.data for name in attribute.data if isinstance(name, StringAttr)]


def _distinct(names: Iterable[str]) -> list[str]:
    taken: dict[str, None] = {}
    for name in names:
        candidate, number = name, 1
        while candidate in taken:
            candidate, number = f"{name}_{number}", number + 1
        taken[candidate] = None
    return list(taken)


def _declared(
    declaration: Attribute | None, inputs: Sequence[str], outputs: Sequence[str]
) -> CompositeDeclarationAttr | None:
    """A declaration with the names of the region's inputs and outputs."""
    if not isinstance(declaration, CompositeDeclarationAttr):
        return None
    names = {"input_names": strings(inputs), "output_names": strings(outputs)}
    return CompositeDeclarationAttr(declaration.composite_name, DictionaryAttr({**declaration.fields.data, **names}))


def _is_known(value: SSAValue) -> bool:
    """Whether a value is a constant, a complex number of two constants, or a dequantized constant."""
    maker = made_by(value, "aten.complex") or dequantization(value)
    return is_constant(value) or (maker is not None and all(map(_is_known, maker.operands)))


def _copied(value: SSAValue, builder: Builder) -> SSAValue:
    op = value.owner
    assert isinstance(op, Operation)
    parts = [_copied(part, builder) for part in op.operands]
    made = type(op).create(operands=parts, result_types=[value.type], properties=dict(op.properties))
    builder.location = op.location
    copy = builder.insert(made).results[0]
    set_name(copy, value.name_hint)
    return copy


def _erase(value: SSAValue) -> None:
    """Erase an unused constant, and the constants that it is made of."""
    op = value.owner
    assert isinstance(op, Operation)
    parts = list(op.operands)
    op.detach()
    op.erase()
    for part in parts:
        if not any(part.uses):
            _erase(part)
