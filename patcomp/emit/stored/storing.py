"""A finished program of the IR as the program of an asset."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from functools import cache

from patcomp.emit.bytecode import Block, Op, Region, StoredBytes, StoredEntry, StoredProgram, StoredValue
from patcomp.emit.stored.attributes import stored_callee, stored_declaration, stored_flag, stored_names
from patcomp.emit.stored.constants import stored_elements
from patcomp.emit.stored.debug_info import DebugInfo
from patcomp.emit.stored.decompositions import decomposition_region, has_decomposition
from patcomp.emit.stored.errors import UnsupportedInAssetError
from patcomp.emit.stored.forms import FORMS, StoredForm
from patcomp.emit.stored.locations import UNKNOWN_PLACE, stored_location
from patcomp.emit.stored.types import stored_type
from patcomp.emit.stored.versions import least_version
from patcomp.errors import Problem, UnsupportedError
from patcomp.ir.attributes import TargetSpecAttr, word_of
from patcomp.ir.cleanup import is_removable
from patcomp.ir.debug_facts import DebugFacts
from patcomp.ir.dialect import CoreaiOp
from patcomp.ir.locations import problem_at
from patcomp.ir.module import IRModule
from patcomp.ir.weights import resource_attributes
from patcomp.ir.xdsl import (
    Attribute,
    DenseIntOrFPElementsAttr,
    DenseResourceAttr,
    Operation,
    SSAValue,
    StringAttr,
    ops_inside,
)
from patcomp.ir.xdsl import Region as IRRegion

PRODUCER = "MLIR22.0.0git"
"""What coreai-core writes as the producer of the bytecode; `metadata.json` names patcomp."""

_ADVICE = 'save it with coreai-core, writer="coreai" (--writer coreai on the command line)'

_TARGET = re.compile(r'triple = "([^"\\]*)", soc = "([^"\\]*)", delegateOptions = \{\}')


def stored_program(module: IRModule, facts: DebugFacts | None = None) -> StoredProgram:
    """The program of an asset that holds a module. No weight is read, except to find equal ones.

    Args:
        module: a finished program in the `coreai` dialect that `verify` accepts, with its weights.
        facts: of the model's nodes, for debug information; by default the asset has files and lines only.

    Raises:
        UnsupportedError: an asset cannot hold the program, or patcomp does not know how; it lists every reason.
    """
    keys = [attribute.resource_handle.data for attribute in resource_attributes(module)]
    locate = _by_location() if facts is None else DebugInfo(module, facts).location
    storing = _Storing(module.blobs.same_content(keys), _unread(module), locate)
    block = Block([], [], [storing.op(op, {}) for op in module.op.body.block.ops])
    if storing.problems:
        raise UnsupportedError("the program cannot be saved without coreai-core", storing.problems)
    weights = {key: StoredBytes(memoryview(module.blobs[key].data).cast("B")) for key in storing.weights}
    place = UNKNOWN_PLACE if facts is None else locate(module.op)
    properties: dict[str, StoredEntry] = {"version": ("integer", (32, 1, least_version(block.ops)))}
    return StoredProgram(Op("serialization.asset", [], [], properties, [[block]], place), weights, PRODUCER)


def _unread(module: IRModule) -> set[Operation]:
    """The ops without effects whose results no op reads; coreai-core does not store them either."""
    found: set[Operation] = set()
    for op in reversed(ops_inside(module.op)):
        is_read = any(use.operation not in found for result in op.results for use in result.uses)
        if is_removable(op) and not op.regions and not is_read:
            found.add(op)
    return found


def _by_location() -> Callable[[Operation], StoredEntry]:
    """The stored form of the location of an op; ops of one place share it."""
    known = cache(stored_location)
    return lambda op: known(op.location)


class _Storing:
    """Stores the ops of one module.

    Args:
        same: the key of the weight that is stored in place of each weight.
        unread: the ops to leave out.
        locate: the stored location of an op.
    """

    def __init__(
        self, same: Mapping[str, str], unread: Collection[Operation], locate: Callable[[Operation], StoredEntry]
    ):
        self._same, self._unread, self._locate = same, unread, locate
        self.weights: dict[str, None] = {}
        """The keys of the weights that are stored."""
        self.problems: list[Problem] = []
        self._type = cache(stored_type)

    def op(self, op: Operation, values: dict[SSAValue, StoredValue]) -> Op:
        """The stored form of an op; its results are added to the values."""
        location = self._locate(op)
        form = FORMS.get(op.name)
        made = Op(form.name if form else op.name, [values[operand] for operand in op.operands], [], {}, [], location)
        try:
            made.results = [StoredValue(self._type(result.type)) for result in op.results]
            if form is None or not isinstance(op, CoreaiOp):
                raise UnsupportedInAssetError("patcomp does not know how an asset stores this op")
            made.properties = self._properties(op, form)
            made.regions = [self._region(region, values, op) for region in op.regions]
            if has_decomposition(made.name):
                operands, results = ([value.type for value in side] for side in (made.operands, made.results))
                made.regions = [decomposition_region(made.name, operands, results, location)]
        except UnsupportedInAssetError as error:
            self.problems.append(problem_at(op, str(error), _ADVICE))
            made.results = [StoredValue(("unknown",)) for _ in op.results]
        values.update(zip(op.results, made.results, strict=True))
        return made

    def _region(self, region: IRRegion, values: dict[SSAValue, StoredValue], op: CoreaiOp) -> Region:
        made: Region = []
        inner = {} if op.ROW.isolated else dict(values)
        for block in region.blocks:
            arguments = [StoredValue(self._type(argument.type)) for argument in block.args]
            inner.update(zip(block.args, arguments, strict=True))
            location = self._locate(op)
            ops = [self.op(each, inner) for each in block.ops if each not in self._unread]
            made.append(Block(arguments, [location] * len(arguments), ops))
        return made

    def _properties(self, op: CoreaiOp, form: StoredForm) -> dict[str, StoredEntry]:
        if op.name == "coreai.constant":
            return {"value": self._value(op.properties["value"])}
        if store := _PROPERTIES.get(op.name):
            made = store(op.properties)
        else:
            expected = {"operandSegmentSizes", *(declared.name for declared in op.ROW.properties if declared.words)}
            if unknown := sorted(op.properties.keys() - expected):
                raise UnsupportedInAssetError(f"patcomp does not know how an asset stores {', '.join(unknown)}")
            made = {}
        if form.property:
            made[form.property] = (form.kind, _word(op))
        return made

    def _value(self, attribute: Attribute) -> StoredEntry:
        if isinstance(attribute, DenseResourceAttr):
            key = self._same[attribute.resource_handle.data]
            self.weights[key] = None
            return ("dense_resource", key)
        if isinstance(attribute, DenseIntOrFPElementsAttr):
            return stored_elements(attribute)
        raise UnsupportedInAssetError(f"an asset cannot hold the constant {attribute.name}")


def _word(op: CoreaiOp) -> int:
    """The position of the word of an op's enumeration."""
    declared = next(declared for declared in op.ROW.properties if declared.words)
    attribute = op.properties.get(declared.name)
    word = declared.default if attribute is None else word_of(declared, attribute)
    assert word is not None
    return declared.words.index(word)


def _graph(properties: Mapping[str, Attribute]) -> dict[str, StoredEntry]:
    if str(properties["param_decls"].text.data) != "[]":  # type: ignore[attr-defined]
        raise UnsupportedInAssetError("an asset written by patcomp cannot hold a graph with type parameters")
    made: dict[str, StoredEntry] = {
        "argAttrs": stored_names(properties.get("arg_attrs")),
        "externalize": stored_flag("externalize" in properties),
        "functionType": ("type", stored_type(properties["function_type"])),
        "isPrivate": stored_flag("priv" in properties),
        "name": _string(properties["sym_name"]),
        "noInline": stored_flag("no_inline" in properties),
        "paramDecls": ("array", ()),
        "resAttrs": stored_names(properties.get("res_attrs")),
    }
    if "composite_decl" in properties:
        made["compositeDecl"] = stored_declaration(properties["composite_decl"])  # type: ignore[arg-type]
    return made


def _invoke(properties: Mapping[str, Attribute]) -> dict[str, StoredEntry]:
    return {
        "arg_attrs": stored_names(properties.get("arg_attrs")),
        "callee": stored_callee(properties["callee"]),  # type: ignore[arg-type]
        "res_attrs": stored_names(properties.get("res_attrs")),
    }


def _group(properties: Mapping[str, Attribute]) -> dict[str, StoredEntry]:
    return {
        "arg_attrs": stored_names(properties.get("arg_attrs")),
        "delegate_id": _string(properties["delegate_id"]),
        "res_attrs": stored_names(properties.get("res_attrs")),
    }


def _target_spec(properties: Mapping[str, Attribute]) -> dict[str, StoredEntry]:
    spec = properties["spec"]
    found = _TARGET.fullmatch(spec.text.data) if isinstance(spec, TargetSpecAttr) else None
    if found is None:
        raise UnsupportedInAssetError(f"patcomp does not know how an asset stores {spec}")
    return {"spec": ("execution.target_spec_v1", ("string", found[1]), ("string", found[2]), ("array", ()))}


def _kernel(properties: Mapping[str, Attribute]) -> dict[str, StoredEntry]:
    return {name: _string(properties[name]) for name in ("kernel_name", "kernel_source")}


def _string(attribute: Attribute) -> StoredEntry:
    assert isinstance(attribute, StringAttr)
    return ("string", attribute.data)


_PROPERTIES: dict[str, Callable[[Mapping[str, Attribute]], dict[str, StoredEntry]]] = {
    "coreai.graph": _graph,
    "coreai.invoke": _invoke,
    "coreai.isolated_group": _group,
    "coreai.metal4_kernel": _kernel,
    "coreai.target_spec": _target_spec,
}
"""The stored properties of ops that have more than an enumeration."""
