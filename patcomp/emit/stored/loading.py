"""The program of an asset as a program of the IR, with weights that stay in the mapped file."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from patcomp.emit.bytecode import Op, Region, StoredEntry, StoredProgram, StoredValue
from patcomp.emit.stored.attributes import ir_callee, ir_declaration, ir_flag, ir_names
from patcomp.emit.stored.constants import ir_elements
from patcomp.emit.stored.errors import UnsupportedInAssetError
from patcomp.emit.stored.forms import FORMS, OPS_BY_FORM
from patcomp.emit.stored.locations import ir_location
from patcomp.emit.stored.types import ir_type
from patcomp.ir.attributes import NO_PARAMETERS, TargetSpecAttr, word_attribute
from patcomp.ir.blobs import BlobStore
from patcomp.ir.dialect import OPS, CoreaiOp
from patcomp.ir.module import IRModule
from patcomp.ir.types import is_static
from patcomp.ir.verify import verify
from patcomp.ir.xdsl import (
    Attribute,
    Block,
    DenseResourceAttr,
    LocationAttr,
    Operation,
    SSAValue,
    StringAttr,
    TensorType,
    UnitAttr,
)
from patcomp.ir.xdsl import Region as IRRegion

_Properties = dict[str, Attribute]


def loaded_module(program: StoredProgram) -> IRModule:
    """The program of the IR that an asset holds. Decompositions of composite ops are left out.

    Args:
        program: what `read_program` found; the file must be there as long as the weights are used.

    Raises:
        UnsupportedInAssetError: the asset has an op, attribute or type that the IR lacks.
        VerifyError: the program is not valid.
    """
    loading = _Loading(program)
    for block in program.asset.regions[0]:
        for op in block.ops:
            loading.module.op.body.block.add_op(loading.op(op, {}))
    verify(loading.module, runtime=False, finished=False)
    return loading.module


class _Loading:
    """Loads the ops of one program."""

    def __init__(self, program: StoredProgram):
        self.module = IRModule(blobs=BlobStore())
        self._weights = program.weights
        self._types: dict[int, Attribute] = {}
        self._locations: dict[int, LocationAttr] = {}
        self._keys: dict[tuple[str, TensorType], str] = {}
        """The key of each weight in the store, by its name in the asset and its type."""

    def op(self, op: Op, values: Mapping[StoredValue, SSAValue]) -> Operation:
        """The op of a stored one that reads the given values."""
        name = OPS_BY_FORM.get(op.name)
        if name is None:
            raise UnsupportedInAssetError(f"the asset has the op {op.name[:80]}, which patcomp does not know")
        op_class = OPS[name]
        types = [self._type(result.type) for result in op.results]
        operands = [values[operand] for operand in op.operands]
        properties = self._properties(op, op_class, types)
        regions = [self._region(region, op_class, values) for region in op.regions] if op_class.ROW.regions else []
        made = op_class.create(operands=operands, result_types=types, properties=properties, regions=regions)
        made.location = self._location(op.location)
        return made

    def _region(self, region: Region, op_class: type[CoreaiOp], values: Mapping[StoredValue, SSAValue]) -> IRRegion:
        made = IRRegion()
        inner = {} if op_class.ROW.isolated else dict(values)
        for block in region:
            loaded = Block(arg_types=[self._type(argument.type) for argument in block.arguments])
            inner.update(zip(block.arguments, loaded.args, strict=True))
            for op in block.ops:
                loaded.add_op(each := self.op(op, inner))
                inner.update(zip(op.results, each.results, strict=True))
            made.add_block(loaded)
        return made

    def _type(self, entry: StoredEntry) -> Attribute:
        found = self._types.get(id(entry))
        if found is None:
            found = self._types[id(entry)] = ir_type(entry)
        return found

    def _location(self, entry: StoredEntry) -> LocationAttr:
        found = self._locations.get(id(entry))
        if found is None:
            found = self._locations[id(entry)] = ir_location(entry)
        return found

    def _properties(self, op: Op, op_class: type[CoreaiOp], types: list[Attribute]) -> _Properties:
        name = op_class.name
        if name == "coreai.constant":
            return {"value": self._value(op, types)}
        made = load(op.properties) if (load := _PROPERTIES.get(name)) else {}
        form = FORMS[name]
        if form.property:
            declared = next(declared for declared in op_class.ROW.properties if declared.words)
            kind, *fields = op.properties[form.property]
            if kind != form.kind or fields[0] >= len(declared.words):
                raise UnsupportedInAssetError(f"the asset has a {form.property} that patcomp does not know")
            made[declared.name] = word_attribute(declared, declared.words[fields[0]])
        slots = op_class.ROW.operands
        if sum(slot.variadic for slot in slots) > 1:  # of the Metal kernel, whose last operands are a shape each result
            count = len(op.operands) - 2 - len(op.results)
            if count < 0:
                raise UnsupportedInAssetError(f"the asset has the op {name} with too few operands")
            made["operandSegmentSizes"] = op_class.segment_sizes([count, 1, 1, len(op.results)])
        return made

    def _value(self, op: Op, types: list[Attribute]) -> Attribute:
        if len(types) != 1 or not isinstance(types[0], TensorType) or not is_static(types[0]):
            raise UnsupportedInAssetError("the asset has a constant that is no tensor of known sizes")
        value = ir_elements(op.properties["value"], op.results[0].type, types[0])
        if not isinstance(value, DenseResourceAttr):
            return value
        name = value.resource_handle.data
        key = self._keys.get((name, types[0]))
        if key is None:
            try:
                key = self.module.blobs.add(name, self._weights[name].data, types[0], self._weights[name])
            except ValueError as error:
                raise UnsupportedInAssetError(f"the asset is damaged: {error}") from error
            self._keys[name, types[0]] = key
        return DenseResourceAttr.from_params(key, types[0])


def _graph(properties: Mapping[str, StoredEntry]) -> _Properties:
    if properties["paramDecls"] != ("array", ()):
        raise UnsupportedInAssetError("the asset has a graph with type parameters, which patcomp does not know")
    match properties["functionType"]:
        case ("type", ("function_v1", _, _) as function):
            function_type = ir_type(function)
        case _:
            raise UnsupportedInAssetError("the asset has a graph without a function type")
    made: _Properties = {
        "sym_name": _string(properties["name"]),
        "function_type": function_type,
        "param_decls": NO_PARAMETERS,
        **_names(properties, "argAttrs", "resAttrs"),
    }
    for name, stored in (("priv", "isPrivate"), ("externalize", "externalize"), ("no_inline", "noInline")):
        if ir_flag(properties[stored]):
            made[name] = UnitAttr()
    if "compositeDecl" in properties:
        made["composite_decl"] = ir_declaration(properties["compositeDecl"])
    return made


def _names(properties: Mapping[str, StoredEntry], arguments: str, results: str) -> _Properties:
    found = {"arg_attrs": ir_names(properties[arguments]), "res_attrs": ir_names(properties[results])}
    return {name: attribute for name, attribute in found.items() if attribute is not None}


def _invoke(properties: Mapping[str, StoredEntry]) -> _Properties:
    return {"callee": ir_callee(properties["callee"]), **_names(properties, "arg_attrs", "res_attrs")}


def _group(properties: Mapping[str, StoredEntry]) -> _Properties:
    return {"delegate_id": _string(properties["delegate_id"]), **_names(properties, "arg_attrs", "res_attrs")}


def _kernel(properties: Mapping[str, StoredEntry]) -> _Properties:
    return {name: _string(properties[name]) for name in ("kernel_name", "kernel_source")}


def _target_spec(properties: Mapping[str, StoredEntry]) -> _Properties:
    match properties["spec"]:
        case ("execution.target_spec_v1", ("string", str() as triple), ("string", str() as soc), ("array", ())):
            if not {'"', "\\"} & {*triple, *soc}:
                text = f'triple = "{triple}", soc = "{soc}", delegateOptions = {{}}'
                return {"spec": TargetSpecAttr(StringAttr(text))}
    raise UnsupportedInAssetError("the asset has a target in a form that patcomp does not know")


def _string(entry: StoredEntry) -> StringAttr:
    if entry[0] != "string":
        raise UnsupportedInAssetError(f"the asset has a name of kind {entry[0]}, which patcomp does not know")
    return StringAttr(entry[1])


_PROPERTIES: dict[str, Callable[[Mapping[str, StoredEntry]], _Properties]] = {
    "coreai.graph": _graph,
    "coreai.invoke": _invoke,
    "coreai.isolated_group": _group,
    "coreai.metal4_kernel": _kernel,
    "coreai.target_spec": _target_spec,
}
"""The properties of ops that have more than an enumeration."""
