"""The type stubs of `patcomp.authoring`: signatures from the tables of the dialects and the declared composites.

`python -m patcomp.commands.stubs` writes them, and needs no PyTorch; `--check` only compares.
"""

from __future__ import annotations

import inspect
import keyword
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import patcomp.authoring
from patcomp.ir import aten, coreai
from patcomp.ir.composite import Composite
from patcomp.ir.coreai_table import COREAIX_ROWS, ROWS, Row, Slot
from patcomp.ir.namespaces import ArgumentSpec, CoreaiView, OpSpec, aten_namespace
from patcomp.patterns import composites

FOLDER = Path(patcomp.authoring.__file__).parent
COMMAND = "python -m patcomp.commands.stubs"

Parameter = tuple[str, str, str | None]
"""Name, type and default of a parameter; None where it has no default."""

_HEADER = """# Made by `{command}`; do not edit.
# mypy: disable-error-code="overload-cannot-match, overload-overlap"
"""

_IMPORTS = """
from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np

from patcomp.ir.attributes import CompositeDeclarationAttr
from patcomp.ir.coreai import Branch
from patcomp.ir.value import TypeView, Value
from patcomp.ir.xdsl import Attribute, LocationAttr, SSAValue
"""

_IN_PATTERNS = """
from patcomp.patterns.expressions import Expression
from patcomp.patterns.language import Attr, OpNode, Pattern, _Any
from patcomp.patterns.targets import TargetCall, TargetResult
"""

_FORMS = {
    "source": """
Operand = Pattern | float | Sequence[Any] | _Any
Operands = Sequence[Pattern | float | _Any | None] | Attr | _Any
Bool = bool | Attr | _Any
Int = int | Pattern | Attr | _Any
Float = float | Pattern | Attr | _Any
Str = str | Attr | _Any
Dtype = str | Attribute | Attr | _Any
List = Sequence[Any] | Attr | _Any
""",
    "target": """
Operand = Pattern | TargetCall | TargetResult | Expression | float | Sequence[Any]
Operands = Sequence[Operand | None]
Bool = bool | Expression
Int = int | Pattern | Expression
Float = float | Pattern | Expression
Str = str | Expression
Dtype = str | Attribute | Expression
List = Sequence[Any] | Expression
""",
    "aten": """
Type = TypeView | Attribute
Values = list[Value]
Operand = Value
Operands = Sequence[Value | None]
Bool = bool
Int = int | Value
Float = float | Value
Str = str
Dtype = str | Attribute
List = Sequence[Any]
""",
    "coreai": """
Type = TypeView | Attribute
Values = list[Value]
Operand = Value | SSAValue | float | Sequence[Any] | np.ndarray
Operands = Sequence[Operand]
Index = Value | SSAValue | int | np.ndarray
Indices = Value | SSAValue | int | Sequence[int | Value] | np.ndarray
""",
}
"""What the names of types in the signatures stand for, by what a namespace makes."""


def stubs() -> dict[str, str]:
    """The text of each stub, by file name."""
    from patterns_catalog import default_rules

    default_rules()  # declares the composites
    return {
        "aten.pyi": _module("aten", "Aten", _aten_builders()),
        "aten_source.pyi": _module("source", "AtenSource", _described(_aten_specs(), source=True), _IN_PATTERNS),
        "aten_target.pyi": _module("target", "AtenTarget", _described(_aten_specs(), source=False), _IN_PATTERNS),
        "composites.pyi": _module("target", "Composites", _composites(), _IN_PATTERNS),
        "coreai.pyi": _module("coreai", "Coreai", _coreai_functions()),
        "coreai_source.pyi": _module("source", "CoreaiSource", _described(_coreai_specs(), source=True), _IN_PATTERNS),
        "coreai_target.pyi": _module("target", "CoreaiTarget", _described(_coreai_specs(), source=False), _IN_PATTERNS),
    }


def _module(forms: str, name: str, members: Iterable[str], imports: str = "") -> str:
    header = _HEADER.format(command=COMMAND)
    lines = "\n".join(f"    {line}" if line else "" for member in members for line in member.split("\n"))
    return f"{header}{_IMPORTS}{imports}{_FORMS[forms]}\nclass {name}:\n{lines}\n"


def _function(name: str, parameters: Iterable[Parameter], result: str, keywords: Iterable[Parameter] = ()) -> str:
    """A method; its first parameter is `_`, because operands of ops are called `self`."""
    shown = ["_", *map(_shown, parameters)]
    named = list(map(_shown, keywords))
    star = ["*"] if named and not any(parameter.startswith("*") for parameter in shown) else []
    return f"def {name}({', '.join([*shown, *star, *named])}) -> {result}: ..."


def _shown(parameter: Parameter) -> str:
    name, type_, default = parameter
    return f"{name}: {type_}" + (f" = {default}" if default is not None else "")


def _overloaded(functions: list[str]) -> str:
    """Functions of one name."""
    distinct = list(dict.fromkeys(functions))
    return distinct[0] if len(distinct) == 1 else "\n".join(f"@overload\n{function}" for function in distinct)


# ---- ops that are described: the source and the target of a declarative rule ------------------------


def _described(ops: Mapping[str, list[OpSpec]], *, source: bool) -> list[str]:
    """A function for each op: of the source every argument is mentioned, of the target those without a default."""
    first: Parameter = ("name", "str", None)
    node = "OpNode" if source else "TargetCall"
    members = [_function("op", [first, ("*arguments", "Any", None), ("**keywords", "Any", None)], node)]
    if source:
        members.append(_function("escaping", [("node", "Any", None)], "Any"))
    for name, specs in ops.items():
        members.append(
            _overloaded(
                [_function(name, [_described_argument(a, spec, source) for a in spec.arguments], node) for spec in specs]
            )
        )
    return members


def _described_argument(argument: ArgumentSpec, spec: OpSpec, source: bool) -> Parameter:
    return argument.name, _form(argument), None if source or not _has_default(argument, spec) else "..."


def _has_default(argument: ArgumentSpec, spec: OpSpec) -> bool:
    schema = aten.schema_of(spec.name)
    return schema[argument.name].has_default if schema else argument.optional or "=" in argument.type


def _form(argument: ArgumentSpec) -> str:
    """The name of an argument's type."""
    if argument.kind == "values":
        return "Operands"
    core = argument.type.rstrip("?")
    simple = {"bool": "Bool", "int": "Int", "SymInt": "Int", "float": "Float", "Scalar": "Float", "str": "Str"}
    if argument.kind == "value":
        form = "Operand"
    elif core.endswith("]"):
        form = "List"
    elif core == "ScalarType":
        form = "Dtype"
    else:
        form = simple.get(core, "Any")
    return f"{form} | None" if argument.optional and form != "Any" else form


# ---- aten -----------------------------------------------------------------------------------------

_PRIVATE = re.compile(
    "_(adaptive|cdist|conj|embedding_bag|fake_quantize|fft|fused_rms|grouped|index_put|int_mm|linalg|log_softmax|native_batch"
    "|neg_view|pdist|safe_softmax|scaled|softmax|to_copy|trilinear|unique|unsafe|upsample|weight_norm)"
)
"""The private operators that are in exported programs."""
_FOREIGN = re.compile("cudnn|fbgemm|mkldnn|miopen|nested|quantized|sparse")
"""Operators of other devices and layouts."""


def _aten_schemas() -> dict[str, list[aten.Schema]]:
    """The operators that rules may be about, by name without the overload's."""
    found: dict[str, list[aten.Schema]] = defaultdict(list)
    for name in sorted(aten.known_names()):
        dialect, operator, *_ = name.split(".")
        schema = aten.schema_of(name)
        if schema is None or dialect != "aten" or _FOREIGN.search(operator):
            continue
        if (operator.startswith("_") and not _PRIVATE.match(operator)) or not schema.result_types[0].startswith("Tensor"):
            continue
        words = [*name.split("."), *(argument.name for argument in schema.arguments)]
        if not any(map(keyword.iskeyword, words)):
            found[operator].append(schema)
    return found


def _aten_specs() -> dict[str, list[OpSpec]]:
    """The ops by name, in the order in which the pattern language tries overloads."""
    return {
        name: [spec for spec in aten_namespace.candidates(name) if spec.name in {schema.name for schema in schemas}]
        for name, schemas in _aten_schemas().items()
    }


def _aten_builders() -> list[str]:
    """`build`, and a function for each op; one with several overloads has them as attributes."""
    members = [
        _overloaded(
            [
                _function("build", [("name", "str", None), ("result_type", "Type", None), ("**arguments", "Any", None)], "Value"),
                _function("build", [("name", "str", None), ("result_types", "Sequence[Type]", None), ("**arguments", "Any", None)], "Values"),
            ]
        )
    ]
    for operator, schemas in _aten_schemas().items():
        functions = {schema.name.partition(f".{operator}")[2].lstrip(".") or "__call__": _aten_builder(schema) for schema in schemas}
        if list(functions) == ["__call__"]:
            members.append(functions["__call__"](operator))
        else:
            inner = "\n".join(f"    {function(name)}" for name, function in functions.items())
            members.append(f"class {operator}_:\n{inner}\n{operator}: {operator}_")
    return members


def _aten_builder(schema: aten.Schema) -> Callable[[str], str]:
    spec = aten_namespace.spec(schema.name)
    assert spec is not None
    one = spec.results == 1
    result: Parameter = ("_type", "Type", None) if one else ("_types", "Sequence[Type]", None)
    parameters = [_described_argument(argument, spec, False) for argument in spec.arguments]
    return lambda name: _function(name, [result, *_ordered(parameters)], "Value" if one else "Values")


def _ordered(parameters: list[Parameter]) -> list[Parameter]:
    """Parameters of which every one after the first with a default has one."""
    seen = False
    made = []
    for name, type_, default in parameters:
        seen |= default is not None
        made.append((name, type_, "..." if seen else None))
    return made


# ---- coreai ---------------------------------------------------------------------------------------


def _coreai_rows() -> dict[str, Row]:
    """The rows by each name of their authoring function."""
    rows = [row for row in (*ROWS, *COREAIX_ROWS) if row.name not in coreai.NOT_AUTHORED and row.builder in vars(coreai)]
    found = {row.builder: row for row in rows}
    for row in rows:
        last = row.name.rpartition(".")[2]
        if vars(coreai).get(last) is vars(coreai)[row.builder]:
            found.setdefault(last, row)
    return {name: found[name] for name in sorted(found) if not keyword.iskeyword(name)}


def _coreai_specs() -> dict[str, list[OpSpec]]:
    view = CoreaiView()
    return {name: view.candidates(name) for name in _coreai_rows()}


def _coreai_functions() -> list[str]:
    members = []
    for name, row in _coreai_rows().items():
        function = getattr(coreai, name)
        if function.__module__ == coreai.__name__ and function.__code__.co_name == name:
            members.append(f"def {name}{str(inspect.signature(function)).replace('(', '(_, ', 1).replace(chr(39), '')}: ...")
        else:
            members.append(_coreai_function(name, row))
    return members


def _coreai_function(name: str, row: Row) -> str:
    attributes: list[Parameter] = [
        (declared.rstrip("?"), "str | Attribute", "..." if declared.endswith("?") or "=" in kind else None)
        for declared, kind in row.attributes
    ]
    several = len(row.results) != 1 or row.results[0].variadic
    keywords: list[Parameter] = [
        ("loc", "LocationAttr | None", "None"),
        ("result_type", f"{'Sequence[Type]' if several else 'Type'} | None", "None"),
    ]
    result = "Values" if several else "Value"
    return _function(name, [*((slot.name, _slot_form(slot), None) for slot in row.operands), *attributes], result, keywords)


def _slot_form(slot: Slot) -> str:
    if slot.variadic:
        return "Operands"
    if slot.types[0] in ("IDX", "UIDX") and slot.ranks == (0,):
        return "Index"
    if slot.types[0] in ("IDX", "UIDX") and slot.ranks == (1,):
        return "Indices"
    return "Operand"


# ---- composites -----------------------------------------------------------------------------------


def _composites() -> list[str]:
    arguments: list[Parameter] = [("name", "str", None), ("*arguments", "Any", None), ("**keywords", "Any", None)]
    members = [_function("op", arguments, "TargetCall")]
    for made in sorted((c for c in composites if isinstance(c, Composite)), key=lambda made: made.name):
        members.append(_composite(made))
    return members


def _composite(made: Composite) -> str:
    parameters: list[Parameter] = []
    keywords: list[Parameter] = []
    for parameter in list(inspect.signature(made.body).parameters.values())[1:]:
        default = None if parameter.default is parameter.empty else "..."
        if parameter.kind is parameter.KEYWORD_ONLY:
            keywords.append((parameter.name, _deferred(str(parameter.annotation)), default))
        elif parameter.kind is parameter.VAR_POSITIONAL:
            parameters.append((f"*{parameter.name}", "Operand", None))
        else:
            optional = " | None" if "None" in str(parameter.annotation) else ""
            parameters.append((parameter.name, f"Operand{optional}", default))
    return _function(made.name, parameters, "TargetCall", keywords)


def _deferred(annotation: str) -> str:
    """The type of an attribute in a target, where it may be an expression that is computed on a match."""
    parts = {part.strip() for part in annotation.split("|")}
    if parts <= {"bool", "int", "float", "str", "None"}:
        return f"{annotation} | Expression"
    return "List" if annotation.startswith(("list[", "Sequence[", "tuple[")) else "Any"


def main() -> None:
    """Writes the stubs; with `--check`, ends with an error where one differs."""
    texts = stubs()
    stale = [name for name, text in texts.items() if not (FOLDER / name).exists() or (FOLDER / name).read_text() != text]
    if "--check" in sys.argv[1:]:
        sys.exit(f"{', '.join(stale)} of patcomp/authoring do not say what the tables say; run {COMMAND}" if stale else 0)
    for name in stale:
        (FOLDER / name).write_text(texts[name])


if __name__ == "__main__":
    main()
