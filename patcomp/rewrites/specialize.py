"""Specialize: fix sizes of an entry point, and propagate them through every op, nested region and call.

`specialize` does it to a finished program, `fix_sizes` during a conversion, before the rules of a target.
The graph is rebuilt with a map from old to new values: an op's result types are inferred from its new operands, known
shapes become constants, and constants are folded. If an op does not accept operands with fewer `?` (the runtime needs
equal types for some), they are cast back to their old types. Called graphs are specialised for each signature of their
calls; equal ones are shared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from patcomp.defects import mend
from patcomp.errors import VerifyError
from patcomp.ir import coreai
from patcomp.ir.attributes import symbol_constant
from patcomp.ir.builder import Builder
from patcomp.ir.cleanup import called_graphs, keep_reached, remove_uncalled_graphs
from patcomp.ir.constants import INLINE_LIMIT, constant_integers
from patcomp.ir.coreai_op import CoreaiOp
from patcomp.ir.elements import numpy_dtype
from patcomp.ir.infer import InferenceError, RuntimeRefusalError, UndeterminedError, compatible, infer_types, merge
from patcomp.ir.locations import describe
from patcomp.ir.module import IRModule, callee, function_type, graph_name, names_of
from patcomp.ir.region import RegionOp
from patcomp.ir.types import HandleType, element_name, element_type, is_static, shape_of, tensor
from patcomp.ir.value import Value
from patcomp.ir.verify import verify
from patcomp.ir.xdsl import (
    Attribute,
    Block,
    Operation,
    Region,
    Rewriter,
    SSAValue,
    StringAttr,
    SymbolRefAttr,
    TensorType,
    set_name,
)
from patcomp.patterns import RuleSet
from patcomp.rewrites.folding import fold, foldable
from patcomp.rewrites.optimize import optimize
from patcomp.rewrites.options import Options, Sizes
from patcomp.rewrites.outline import GraphSymbols

_KEEP_SHAPE = {"coreai.cast", "coreaix.copy_with_constraints", "coreaix.copy_discarding_constraints"}

_Argument = Attribute | int
"""The new type of an argument, or the number that replaces the argument."""


def specialize(
    module: IRModule, entry: str, variants: Mapping[str, Sizes], rules: RuleSet, options: Options
) -> IRModule:
    """A module in which variants replace an entry point; the given module does not change.

    Args:
        module: a program after the last stage.
        entry: the entry point.
        variants: the fixed sizes of each variant, by its name.
        rules, options: those of the conversion, for the clean-up.

    Raises:
        KeyError: there is no such entry point.
        VerifyError: an op does not support these sizes.
    """
    module = module.clone()
    module.blobs = module.blobs.copy()  # folded constants are the new module's own
    _replace(module, entry, variants)
    keep_reached(module, [graph_name(graph) for graph in module.entry_graphs])
    mend(module, optimize(module, rules.stage("optimize"), options), "lowered")
    verify(module, runtime=True)
    return module


def fix_sizes(module: IRModule, sizes: Mapping[str, Sizes]) -> None:
    """Fix sizes of entry points in place, after the stage lower and before composites become graphs.

    Args:
        module: the lowered module.
        sizes: the fixed sizes of each entry point, by its name.

    Raises:
        VerifyError: an op does not support these sizes.
    """
    called = called_graphs(module)
    for entry, fixed in sizes.items():
        if fixed:
            _replace(module, entry, {entry: fixed})
    remove_uncalled_graphs(module, called)


def _replace(module: IRModule, entry: str, variants: Mapping[str, Sizes]) -> None:
    graph = module.graph(entry)
    specializer = _Specializer(module, graph)
    for name, sizes in variants.items():
        made = specializer.graph(graph, _fixed_arguments(graph, sizes), name)
        module.op.body.block.insert_op_before(made, graph)
    Rewriter.erase_op(graph)


def _fixed_arguments(graph: Operation, sizes: Sizes) -> dict[int, _Argument]:
    """What becomes of the arguments of a graph, by position."""
    fixed: dict[int, _Argument] = {}
    for argument, name in zip(graph.regions[0].block.args, names_of(graph, "arg_attrs"), strict=True):
        type_ = argument.type
        content = type_.tensor_type if isinstance(type_, HandleType) else type_
        known = name or str(argument.index)
        if not isinstance(content, TensorType):
            continue
        if (known, None) in sizes:
            fixed[argument.index] = sizes[known, None]
            continue
        shape = [sizes.get((known, axis), size) for axis, size in enumerate(shape_of(content))]
        new = tensor(shape, content.element_type, content.encoding)
        if new != content:
            fixed[argument.index] = HandleType(new) if isinstance(type_, HandleType) else new
    return fixed


class _Specializer:
    def __init__(self, module: IRModule, caller: Operation):
        self.module, self.caller = module, caller
        self.graphs = {graph_name(graph): graph for graph in module.graphs}
        self.callees: dict[tuple[str, tuple[Attribute, ...]], str] = {}
        self.symbols = GraphSymbols(module)

    def graph(self, graph: Operation, arguments: Mapping[int, _Argument], name: str) -> CoreaiOp:
        """An unplaced variant of a graph."""
        block = self.block(graph.regions[0].block, arguments, {})
        properties = {**graph.properties, "sym_name": StringAttr(name), "function_type": function_type(block)}
        made = type(graph).create(properties=properties, attributes=dict(graph.attributes), regions=[Region(block)])
        made.location = graph.location
        assert isinstance(made, CoreaiOp)
        return made

    def block(self, block: Block, arguments: Mapping[int, _Argument], outer: Mapping[SSAValue, SSAValue]) -> Block:
        """A variant of a block."""
        given = [arguments.get(argument.index, argument.type) for argument in block.args]
        types = [old.type if isinstance(new, int) else new for old, new in zip(block.args, given, strict=True)]
        new = Block(arg_types=types)
        values: dict[SSAValue, SSAValue] = dict(outer)
        values.update(zip(block.args, new.args, strict=True))
        with Builder(new, blobs=self.module.blobs) as builder:
            for old, made, what in zip(block.args, new.args, given, strict=True):
                set_name(made, old.name_hint)
                made.location = old.location
                if isinstance(what, int):
                    assert isinstance(old.type, TensorType)
                    element = old.type.element_type
                    values[old] = builder.constant(np.array(what, numpy_dtype(element_name(element))), element).ssa
            for op in block.ops:
                builder.location = op.location
                for result, value in zip(op.results, self.op(op, values, builder), strict=True):
                    values[result] = value
                    if value.name_hint is None:
                        set_name(value, result.name_hint)
        return new

    def op(self, op: Operation, values: Mapping[SSAValue, SSAValue], builder: Builder) -> Sequence[SSAValue]:
        """The results of an op, built again for the new values of its operands."""
        operands = [values[operand] for operand in op.operands]
        if op.name == "coreai.get_shape" and is_static(operands[0].type):
            return [builder.constant(np.array(shape_of(operands[0].type), np.uint32), element_type("ui32")).ssa]
        types = [result.type for result in op.results]
        regions: list[Region] = []
        properties = dict(op.properties)
        if op.name == "coreai.if":
            types, regions = self.branches(op, values)
        elif op.name == "coreai.while":
            operands, types, regions = self.loop(op, operands, values)
        elif op.name == "coreai.invoke":
            symbol, types = self.call(op, callee(op), operands)
            properties["callee"] = symbol_constant(symbol)
        elif isinstance(op, RegionOp) and op.graph is not None:
            symbol, types = self.call(op, op.graph.string_value(), operands)
            properties["graph"] = SymbolRefAttr(symbol)
        elif op.regions:
            (region,) = op.regions
            block = self.block(region.block, dict(enumerate(operand.type for operand in operands)), values)
            types, regions = _yielded_types(block), [Region(block)]
        else:
            operands, types = self.fitting(op, operands)
        made = type(op).create(
            operands=operands,
            result_types=types,
            properties=properties,
            attributes=dict(op.attributes),
            regions=regions,
        )
        builder.insert(made)
        return (foldable(made, limit=INLINE_LIMIT - 1) and fold(made, self.module)) or made.results

    def fitting(self, op: Operation, operands: list[SSAValue]) -> tuple[list[SSAValue], list[Attribute]]:
        """The operands of an op, cast where the op does not accept the new types, and its result types."""
        old = [result.type for result in op.results]
        if op.name == "coreai.write_handle":
            handle = operands[0].type
            assert isinstance(handle, HandleType)
            return [operands[0], _cast(operands[1], handle.tensor_type), *operands[2:]], old
        assert isinstance(op, CoreaiOp)
        if op.name == "coreai.concat":
            operands = _alike(operands)
        if op.name in _KEEP_SHAPE:
            assert isinstance(old[0], TensorType)
            return operands, [_merged(op, old[0], tensor(shape_of(operands[0].type), old[0].element_type))]
        try:
            inferred = infer_types(op.ROW, operands, op.properties)
        except UndeterminedError:
            return operands, old
        except RuntimeRefusalError:
            inferred = None
        except InferenceError as error:
            if all(not isinstance(operand.type, TensorType) or is_static(operand.type) for operand in operands):
                raise VerifyError(f"{describe(op)} cannot have these sizes: {error}") from error
            inferred = None
        if inferred is None or len(inferred) != len(old):
            pairs = zip(operands, op.operands, strict=True)
            return ([_cast(new, given.type) for new, given in pairs] if op.ROW.infer else operands), old
        return operands, [_merged(op, *pair) for pair in zip(old, inferred, strict=True)]

    def branches(self, op: Operation, values: Mapping[SSAValue, SSAValue]) -> tuple[list[Attribute], list[Region]]:
        """The result types and regions of an `if`: a result has the static sizes on which both branches agree."""
        blocks = [self.block(region.block, {}, values) if region.blocks else None for region in op.regions]
        given = [_yielded_types(block) for block in blocks if block is not None and block.last_op is not None]
        types = [_common(result.type, [branch[index] for branch in given]) for index, result in enumerate(op.results)]
        for block in blocks:
            if block is not None and block.last_op is not None:
                _yield_as(block, types)
        return types, [Region(block) if block is not None else Region() for block in blocks]

    def loop(
        self, op: Operation, operands: list[SSAValue], values: Mapping[SSAValue, SSAValue]
    ) -> tuple[list[SSAValue], list[Attribute], list[Region]]:
        """The operands, result types and regions of a `while`.

        A carried value has its initial sizes if the body yields the same sizes; otherwise the old sizes.
        """
        before, after = (region.block for region in op.regions)
        old = [argument.type for argument in before.args]
        carried = [operand.type for operand in operands]
        while True:
            condition = self.block(before, dict(enumerate(carried)), values)
            forwarded = _yielded_types(condition)[1:]
            body = self.block(after, dict(enumerate(forwarded)), values)
            yielded = _yielded_types(body)
            stable = [
                now if now in (then, general) else general
                for now, then, general in zip(carried, yielded, old, strict=True)
            ]
            if stable == carried:
                break
            carried = stable
            condition.erase(safe_erase=False)
            body.erase(safe_erase=False)
        _yield_as(body, carried)
        starts = [_cast(operand, type_) for operand, type_ in zip(operands, carried, strict=True)]
        return starts, forwarded, [Region(condition), Region(body)]

    def call(self, op: Operation, called: str, operands: Sequence[SSAValue]) -> tuple[str, list[Attribute]]:
        """The symbol of the graph that a call of a graph calls now, and its result types."""
        types = tuple(operand.type for operand in operands)
        graph = self.graphs[called]
        if types == tuple(operand.type for operand in op.operands):
            return graph_name(graph), [result.type for result in op.results]
        key = graph_name(graph), types
        if key not in self.callees:
            made = self.graph(graph, dict(enumerate(types)), "")
            stem = graph_name(graph).rpartition("_")[0]
            self.callees[key] = self.symbols.place(made, stem, self.caller, public="priv" not in graph.properties)
            self.graphs[self.callees[key]] = self.module.graph(self.callees[key])
        return self.callees[key], _yielded_types(self.graphs[self.callees[key]].regions[0].block)


def _yielded_types(block: Block) -> list[Attribute]:
    """The types of the values that a block's terminator yields."""
    assert block.last_op is not None
    return [operand.type for operand in block.last_op.operands]


def _yield_as(block: Block, types: Sequence[Attribute]) -> None:
    """Cast the values that a block's terminator yields to given types."""
    terminator = block.last_op
    assert terminator is not None
    with Builder(block, before=terminator, location=terminator.location):
        for index, type_ in enumerate(types):
            terminator.operands[index] = _cast(terminator.operands[index], type_)


def _cast(value: SSAValue, type_: Attribute) -> SSAValue:
    """Cast a value to a type with other dynamic dimensions."""
    if value.type == type_ or not isinstance(type_, TensorType):
        return value
    made: SSAValue = coreai.cast(Value(value), type_.element_type, result_type=type_).ssa
    set_name(made, value.name_hint)
    return made


def _alike(operands: list[SSAValue]) -> list[SSAValue]:
    """The operands of a concat with their common sizes outside its axis, which are equal by definition."""
    axis, *parts = operands
    position = constant_integers(axis)
    shapes = [shape_of(part.type) for part in parts]
    if position is None or len(set(shapes)) == 1:
        return operands
    cut = position[0] % len(shapes[0])
    sizes = [next((size for size in sizes if size is not None), None) for sizes in zip(*shapes, strict=True)]
    types = [
        tensor((*sizes[:cut], shape[cut], *sizes[cut + 1 :]), Value(part).element_type)
        for part, shape in zip(parts, shapes, strict=True)
    ]
    return [axis, *map(_cast, parts, types)]


def _merged(op: Operation, old: Attribute, new: Attribute) -> Attribute:
    """A result type with the static sizes of both types."""
    if old == new or not isinstance(old, TensorType) or not isinstance(new, TensorType):
        return new
    if not compatible(shape_of(old), shape_of(new)):
        raise VerifyError(f"{describe(op)} is {old} and cannot become {new}: these sizes do not fit")
    return tensor(merge(shape_of(new), shape_of(old)), old.element_type, old.encoding)


def _common(old: Attribute, given: Sequence[Attribute]) -> Attribute:
    """The common type of values: the old type, with the static sizes on which all of them agree."""
    if not isinstance(old, TensorType) or not given:
        return old
    dims = zip(*(shape_of(type_) for type_ in given), strict=True)
    return tensor([sizes[0] if len(set(sizes)) == 1 else None for sizes in dims], old.element_type, old.encoding)
