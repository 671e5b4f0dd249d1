"""The type stubs of `patcomp.authoring`: signatures from the tables of the dialects and the declared composites.

`python -m patcomp_lab.commands.stubs` writes those that are not up to date. An installation (`hatch_build.py`) and
`make style` run it; git ignores the stubs.
"""

from __future__ import annotations

import inspect
import keyword
import re
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import patcomp.authoring
from patcomp.ir import aten, coreai
from patcomp.ir.composite import Composite
from patcomp.ir.coreai_table import COREAIX_ROWS, ROWS
from patcomp.ir.namespaces import ArgumentSpec, OpSpec, aten_namespace, composite_spec, coreai_namespace
from patcomp.ir.rows import PropertySlot, Row, Slot
from patcomp.patterns import composites

FOLDER = Path(patcomp.authoring.__file__).parent

Parameter = tuple[str, str, bool]
"""The name and the type of a parameter, and whether it has a default."""

_HEAD = """# Made by `python -m patcomp_lab.commands.stubs`; do not edit.
# mypy: disable-error-code="overload-cannot-match, overload-overlap"

from collections.abc import Callable, Sequence
from typing import Any, Literal, overload

import numpy as np

from patcomp.ir.attributes import CompositeDeclarationAttr
from patcomp.ir.coreai import Branch
from patcomp.ir.value import Value, ValueType
from patcomp.ir.xdsl import Attribute, LocationAttr, SSAValue
from patcomp.patterns.expressions import Expression
from patcomp.patterns.language import Attr, OpNode, PatternNode, _Any
from patcomp.patterns.targets import TargetCall, TargetResult

"""

_PACKAGE = """\
from patcomp.patterns.op_view import OpView as OpView
from patcomp.patterns.targets import TargetNamespace

Targets = TargetNamespace

aten: Aten
coreai: Coreai
"""

_SOURCE = """\
Operand = PatternNode | float | Sequence[Any] | _Any
Operands = Sequence[PatternNode | float | _Any | None] | Attr | _Any
Bool = bool | Attr | _Any
Int = int | PatternNode | Attr | _Any
Float = float | PatternNode | Attr | _Any
Str = str | Attr | _Any
Dtype = str | Attribute | Attr | _Any
List = Sequence[Any] | Attr | _Any
"""
_TARGET = """\
Operand = PatternNode | TargetCall | TargetResult | Expression | float | Sequence[Any]
Operands = Sequence[Operand | None]
Bool = bool | Expression
Int = int | PatternNode | Expression
Float = float | PatternNode | Expression
Str = str | Expression
Dtype = str | Attribute | Expression
List = Sequence[Any] | Expression
"""
_ATEN = """\
Type = ValueType | Attribute
Values = list[Value]
Operand = Value
Operands = Sequence[Value | None]
Bool = bool
Int = int | Value
Float = float | Value
Str = str
Dtype = str | Attribute
List = Sequence[Any]
"""
_COREAI = """\
Location = LocationAttr | None
Type = ValueType | Attribute
Values = list[Value]
Operand = Value | SSAValue | float | Sequence[Any] | np.ndarray
Operands = Sequence[Operand]
Index = Value | SSAValue | int | np.ndarray
Indices = Value | SSAValue | int | Sequence[int | Value] | np.ndarray
"""


def stubs() -> dict[str, str]:
    """The text of each stub, by file name."""
    from patterns_catalog import default_rules

    default_rules()  # declares the composites
    aten_specs, coreai_specs = _aten_specs(), {name: coreai_namespace.candidates(name) for name in coreai_rows()}
    # the class in each file, the names of types in its signatures, and its members
    classes = {
        "aten": ("Aten", _ATEN, _aten_builders()),
        "aten_source": ("AtenSource", _SOURCE, _source(_with_composites(aten_specs))),
        "aten_target": ("AtenTarget", _TARGET, _target(aten_specs)),
        "composites": ("Composites", _TARGET, _composites()),
        "coreai": ("Coreai", _COREAI, _coreai_functions()),
        "coreai_source": ("CoreaiSource", _SOURCE, _source(coreai_specs)),
        "coreai_target": ("CoreaiTarget", _TARGET, _target(coreai_specs, [("result_type", "Any", True)])),
    }
    imports = "".join(
        f"from patcomp.authoring.{file} import {name} as {name}\n" for file, (name, *_) in classes.items()
    )
    texts = {
        f"{file}.pyi": f"{_HEAD}{forms}\nclass {name}:\n{_indented(members)}\n"
        for file, (name, forms, members) in classes.items()
    }
    return {"__init__.pyi": imports + _PACKAGE, **texts}


def _indented(members: Iterable[str]) -> str:
    return "\n".join(textwrap.indent(member, "    ") for member in members)


def _function(name: str, parameters: Iterable[Parameter], result: str, keywords: Sequence[Parameter] = ()) -> str:
    """A method; its first parameter is `_`, because operands of ops are called `self`."""
    shown = ["_", *map(_shown, parameters)]
    if keywords and not any(parameter.startswith("*") for parameter in shown):
        shown.append("*")
    return f"def {name}({', '.join([*shown, *map(_shown, keywords)])}) -> {result}: ..."


def _shown(parameter: Parameter) -> str:
    name, type_, has_default = parameter
    return f"{name}: {type_} = ..." if has_default else f"{name}: {type_}"


def _overloaded(functions: Iterable[str]) -> str:
    distinct = list(dict.fromkeys(functions))
    return distinct[0] if len(distinct) == 1 else "\n".join(f"@overload\n{function}" for function in distinct)


# ---- ops that are described: the source and the target of a declarative rule ------------------------

_BY_NAME: list[Parameter] = [("name", "str", False), ("*arguments", "Any", False), ("**keywords", "Any", False)]


def _source(ops: Mapping[str, list[OpSpec]]) -> list[str]:
    """The ops as patterns. A pattern mentions every argument; attributes of composites are keywords."""
    members = [
        _function("op", _BY_NAME, "OpNode"),
        *(_function(name, [("node", "Any", False)], "Any") for name in ("escaping", "seen")),
    ]
    for name, specs in ops.items():
        forms = [([(a.name, _form(a), False) for a in spec.arguments], spec.composite) for spec in specs]
        inputs = [(given, len(given) if made is None else len(made.inputs)) for given, made in forms]
        members.append(_overloaded(_function(name, given[:n], "OpNode", given[n:]) for given, n in inputs))
    return members


def _with_composites(ops: Mapping[str, list[OpSpec]]) -> dict[str, list[OpSpec]]:
    """The ops and the composites that a pattern can name."""
    made = {item.name: [composite_spec(item)] for item in _declared()}
    return {name: [*ops.get(name, ()), *made.get(name, ())] for name in sorted({**ops, **made})}


def _target(ops: Mapping[str, list[OpSpec]], keywords: Sequence[Parameter] = ()) -> list[str]:
    """The ops as descriptions that are built when a rule matches."""
    members = [_function("op", _BY_NAME, "TargetCall")]
    for name, specs in ops.items():
        members.append(_overloaded(_function(name, _parameters(spec), "TargetCall", keywords) for spec in specs))
    return members


def _parameters(spec: OpSpec) -> list[Parameter]:
    """The parameters of an op. All parameters after one with a default have a default, as Python requires."""
    schema = aten.schema_of(spec.name)
    made: list[Parameter] = []
    for argument in spec.arguments:
        has_default = schema[argument.name].has_default if schema else argument.optional or "=" in argument.type
        made.append((argument.name, _form(argument), has_default or (bool(made) and made[-1][2])))
    return made


_SIMPLE = {
    "bool": "Bool", "int": "Int", "SymInt": "Int", "float": "Float", "Scalar": "Float", "str": "Str",
    "ScalarType": "Dtype",
}  # fmt: skip


def _form(argument: ArgumentSpec) -> str:
    """The name of an argument's type."""
    declared = argument.type.rstrip("?")
    of_kind = {"value": "Operand", "values": "Operands"}
    form = of_kind.get(argument.kind) or ("List" if declared.endswith("]") else _SIMPLE.get(declared, "Any"))
    return f"{form} | None" if argument.optional and form not in ("Any", "Operands") else form


# ---- aten -----------------------------------------------------------------------------------------

_PRIVATE = re.compile(
    "_(adaptive|cdist|conj|embedding_bag|fake_quantize|fft|fused_rms|grouped|index_put|int_mm|linalg|log_softmax|native_batch"
    "|neg_view|pdist|safe_softmax|scaled|softmax|to_copy|trilinear|unique|unsafe|upsample|weight_norm)"
)
"""The private operators that occur in exported programs."""
_FOREIGN = re.compile("cudnn|fbgemm|mkldnn|miopen|nested|quantized|sparse")
"""Operators of other devices and layouts."""


def _aten_schemas() -> dict[str, list[aten.Schema]]:
    """The operators that rules may be about, by name without the overload's."""
    found: dict[str, list[aten.Schema]] = defaultdict(list)
    for name in sorted(aten.known_names()):
        dialect, operator, *_ = name.split(".")
        schema = aten.schema_of(name)
        if schema is None or dialect != "aten" or not schema.result_types[0].startswith("Tensor"):
            continue
        if _FOREIGN.search(operator) or (operator.startswith("_") and not _PRIVATE.match(operator)):
            continue
        if not any(map(keyword.iskeyword, [*name.split("."), *(argument.name for argument in schema.arguments)])):
            found[operator].append(schema)
    return found


def _aten_specs() -> dict[str, list[OpSpec]]:
    """The ops by name, in the order in which the pattern language tries overloads."""
    known = {name: {schema.name for schema in schemas} for name, schemas in _aten_schemas().items()}
    return {name: [spec for spec in aten_namespace.candidates(name) if spec.name in known[name]] for name in known}


def _aten_builders() -> list[str]:
    """`build`, and a function for each op; named overloads are attributes of the function."""
    named: list[Parameter] = [("name", "str", False)]
    rest: Parameter = ("**arguments", "Any", False)
    one = _function("build", [*named, ("result_type", "Type", False), rest], "Value")
    several = _function("build", [*named, ("result_types", "Sequence[Type]", False), rest], "Values")
    members = [_overloaded([one, several])]
    for operator, schemas in _aten_schemas().items():
        overloads = {schema.name.removeprefix(f"aten.{operator}").removeprefix("."): schema for schema in schemas}
        if list(overloads) == [""]:
            members.append(_aten_builder(operator, overloads[""]))
        else:
            inner = (_aten_builder(name or "__call__", schema) for name, schema in overloads.items())
            members.append(f"class {operator}_:\n{_indented(inner)}\n{operator}: {operator}_")
    return members


def _aten_builder(name: str, schema: aten.Schema) -> str:
    spec = aten_namespace.spec(schema.name)
    assert spec is not None
    if spec.results == 1:
        return _function(name, [("_type", "Type", False), *_parameters(spec)], "Value")
    return _function(name, [("_types", "Sequence[Type]", False), *_parameters(spec)], "Values")


# ---- coreai ---------------------------------------------------------------------------------------


def coreai_rows() -> dict[str, Row]:
    """The rows by each name of their authoring function."""
    rows = {row.builder: row for row in (*ROWS, *COREAIX_ROWS)}
    by_last_name = {row.name.rpartition(".")[2]: row for row in reversed(ROWS)}
    names = sorted(name for name in coreai.FUNCTIONS if not keyword.iskeyword(name))
    return {name: rows.get(name) or by_last_name[name] for name in names}


def _coreai_functions() -> list[str]:
    return [_coreai_function(name, row) for name, row in coreai_rows().items()]


def _coreai_function(name: str, row: Row) -> str:
    function = coreai.FUNCTIONS[name]
    if function.__code__.co_name == name:  # written out, not made from the row
        return f"def {name}{str(inspect.signature(function)).replace('(', '(_, ', 1)}: ...".replace("'", "")
    properties = [(p.name, _property_form(p), p.optional or p.default is not None) for p in row.properties]
    several = len(row.results) != 1 or row.results[0].variadic
    keywords: list[Parameter] = [
        ("loc", "Location", True),
        ("result_type", f"{'Sequence[Type]' if several else 'Type'} | None", True),
    ]
    operands = [(slot.name, _slot_form(slot), False) for slot in row.operands]
    return _function(name, [*operands, *properties], "Values" if several else "Value", keywords)


def _slot_form(slot: Slot) -> str:
    if slot.variadic:
        return "Operands"
    if slot.types[0] in ("IDX", "UIDX") and slot.ranks in ((0,), (1,)):
        return "Index" if slot.ranks == (0,) else "Indices"
    return "Operand"


def _property_form(declared: PropertySlot) -> str:
    words = ", ".join(f'"{word}"' for word in declared.words)
    return f"Literal[{words}] | Attribute" if words else "str | Attribute"


# ---- composites -----------------------------------------------------------------------------------


def _declared() -> list[Composite]:
    """The composites of the catalog in the order of their names."""
    made = (item for item in composites if isinstance(item, Composite))
    of_catalog = (item for item in made if item.body.__module__.startswith("patterns_catalog."))
    return sorted(of_catalog, key=lambda item: item.name)


def _composites() -> list[str]:
    return [_function("op", _BY_NAME, "TargetCall"), *map(_composite, _declared())]


def _composite(made: Composite) -> str:
    """A function with the parameters of a composite's body, without the namespace. Attributes may be computed on a
    match."""
    parameters: list[Parameter] = []
    keywords: list[Parameter] = []
    for parameter in list(inspect.signature(made.body).parameters.values())[1:]:
        declared, has_default = str(parameter.annotation), parameter.default is not parameter.empty
        if parameter.kind is parameter.KEYWORD_ONLY:
            keywords.append((parameter.name, _attribute(declared), has_default))
        elif parameter.kind is parameter.VAR_POSITIONAL:
            parameters.append((f"*{parameter.name}", "Operand", False))
        else:
            parameters.append((parameter.name, "Operand | None" if "None" in declared else "Operand", has_default))
    return _function(made.name, parameters, "TargetCall", keywords)


def _attribute(declared: str) -> str:
    if {part.strip() for part in declared.split("|")} <= {"bool", "int", "float", "str", "None"}:
        return f"{declared} | Expression"
    return "List" if declared.startswith(("list[", "Sequence[", "tuple[")) else "Any"


def main() -> None:
    """Write the stubs that are not up to date."""
    for name, text in stubs().items():
        path = FOLDER / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


if __name__ == "__main__":
    main()
