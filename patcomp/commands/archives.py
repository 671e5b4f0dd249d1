"""The parts of a file of `torch.export.save` that can run code when PyTorch loads the file. `code_in` finds them
without loading.

`docs/untrusted-files.md` explains each route. The check knows what is data and reports everything else. PyTorch's own
reader opens the archive, so the check sees the members that PyTorch will load. The check leaves pickles to
`weights_only`, which makes PyTorch read them with its unpickler for tensors.
"""

from __future__ import annotations

import ast
import json
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from patcomp.errors import PatcompError

_Check = Callable[[str], bool]
DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, UnicodeDecodeError)
"""What the readers of zip archives raise for a damaged one; `NotImplementedError` is a `RuntimeError`."""

_DATA = re.compile(
    r"archive_format|archive_version|byteorder|version|\.data/\w+|\.format_version|\.storage_alignment"
    r"|models/[^/]+\.json|data/sample_inputs/[^/]+\.pt|data/(weights|constants)/([^/]+\.pt|[^/]+_config\.json)"
    r"|data/weights/weight_\d+|data/constants/tensor_\d+|extra(_files)?/.*"
    r"|serialized_exported_program\.json|serialized_(state_dict|constants)\.(json|pt)|serialized_example_inputs\.pt",
    re.DOTALL,
)
"""The members of an archive that hold data, or pickles that `weights_only` makes safe."""
_JSON = re.compile(r"models/[^/]+\.json|data/\w+/[^/]+_config\.json|serialized_exported_program\.json")
_NESTED = 6
"""How many times the description of inputs may be JSON in a string of JSON; PyTorch nests it three times."""


def code_in(path: Path) -> str:
    """The part of an archive that can run code, `its member 'x' is ...`; empty if there is none.

    Raises:
        PatcompError: the file is not an archive of exported programs, is damaged, or its members are compressed, so
            that reading them could take any amount of memory.
    """
    readable = False
    for sizes, read in _readers(path):
        readable = True
        if sum(sizes.values()) > path.stat().st_size:
            raise PatcompError("its members are larger than the file; torch.export.save does not compress them")
        folders = {name.partition("/")[0] for name in sizes}
        for name in sizes:
            inner = name.partition("/")[2] if len(folders) == 1 else name
            if not _DATA.fullmatch(inner):
                return f"its member {name!r} is none that only holds data"
            if _JSON.fullmatch(inner):
                try:
                    data = read(name)
                except DAMAGED as error:
                    raise PatcompError(f"its member {name!r} is damaged: {error}") from error
                if found := _code_in_json(name, data):
                    return f"its member {name!r} has {found}"
    if not readable:
        raise PatcompError("it is not a complete zip archive")
    return ""


@contextmanager
def weights_only() -> Iterator[None]:
    """Make `torch.load` refuse pickled objects other than tensors and plain data, whatever its caller asks for."""
    forced = {"TORCH_FORCE_WEIGHTS_ONLY_LOAD": "1", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "0"}
    before = {name: os.environ[name] for name in forced if name in os.environ}
    os.environ.update(forced)
    try:
        yield
    finally:
        for name in forced:
            del os.environ[name]
        os.environ.update(before)


def _readers(path: Path) -> Iterator[tuple[dict[str, int], Callable[[str], bytes]]]:
    """For each reader that PyTorch may use: the sizes of the archive's members, and a function to read one member."""
    from torch.export.pt2_archive import PT2ArchiveReader

    try:
        archive = PT2ArchiveReader(str(path))
        sizes = {name: archive.archive_file.get_record_size(name) for name in archive.get_file_names()}
    except (RuntimeError, AssertionError, LookupError, ValueError):
        pass  # PyTorch cannot load it with this reader either, and tries the next
    else:
        yield sizes, archive.read_bytes
    try:
        with zipfile.ZipFile(path) as older:
            if min((info.header_offset for info in older.infolist()), default=0):
                raise PatcompError("it is a damaged zip archive: only the end of it, or an archive inside it, is whole")
            yield {info.filename: info.file_size for info in older.infolist()}, older.read
    except DAMAGED as error:
        raise PatcompError(f"it is a damaged zip archive: {error}") from error


# ---- the program as JSON -------------------------------------------------------------------------


def _code_in_json(name: str, data: bytes) -> str:
    """The part of a member of JSON that can run code; empty if there is none.

    Raises:
        PatcompError: the member is not JSON.
    """
    try:
        waiting: list[Any] = [json.loads(data.decode())]
    except RecursionError:
        raise PatcompError(f"its member {name!r} has lists that are nested too deeply") from None
    except ValueError as error:
        raise PatcompError(f"its member {name!r} is not valid JSON: {error}") from error
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            for key, inner in value.items():
                waiting.append(inner)
                if key in _CHECKS:
                    what, is_data = _CHECKS[key]
                    for text in inner if isinstance(inner, list) else [inner]:
                        if isinstance(text, str) and not is_data(text):
                            return f"the {what} {text[:80]!r}"
            if "range_constraints" in value and (wrong := _endless(value["range_constraints"])):
                return f"the symbol {wrong[:80]!r}"
    return ""


def _endless(symbols: Any) -> str:
    """A symbol whose number is so large that PyTorch would count up to it for hours; empty if there is none."""
    if not isinstance(symbols, dict):
        return ""  # PyTorch refuses it
    return next((name for name in symbols if not re.fullmatch(r"[a-z_]+\d{1,5}", name)), "")


def _is_name(text: str) -> bool:
    """Whether a text is a name in Python code; PyTorch writes names into code that it executes."""
    return not text or text.isidentifier()


def _is_path(text: str) -> bool:
    return re.fullmatch(r"[\w.]*", text) is not None


def _is_operator(text: str) -> bool:
    return _OPERATOR.fullmatch(text) is not None


_OPERATOR = re.compile(
    r"torch\.ops\.\w+\.\w+(\.\w+)?|torch\._?sym_\w+|math\.\w+"
    r"|_operator\.(add|sub|mul|truediv|floordiv|mod|pow|neg|pos|eq|ne|lt|le|gt|ge|and_|or_|not_|getitem)"
)


def _is_payload(text: str) -> bool:
    return re.fullmatch(r"(weight|tensor)_\d+", text) is not None


def _is_tree(text: str) -> bool:
    """Whether a description of nested inputs imports no module, and its keyword arguments are names."""
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError):
        return False
    roots = [part for part in tree if isinstance(part, dict)] if isinstance(tree, list) else [tree]
    for root in roots:
        children = root.get("children_spec") if isinstance(root, dict) else None
        for child in children[1:2] if isinstance(children, list) else ():
            if isinstance(child, dict) and child.get("type") == "builtins.dict":
                keywords = json.loads(child["context"]) if isinstance(child.get("context"), str) else None
                if not isinstance(keywords, list) or not all(isinstance(k, str) and _is_name(k) for k in keywords):
                    return False
    return _imports_nothing(tree, _NESTED)


def _imports_nothing(value: Any, depth: int) -> bool:
    if not depth:
        return False
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            if part.keys() & {"__enum__", "default_factory_module"}:
                return False
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part
        elif isinstance(part, str):
            try:
                inner = json.loads(part)
            except (ValueError, RecursionError):
                continue
            if isinstance(inner, dict | list | str) and not _imports_nothing(inner, depth - 1):
                return False
    return True


# ---- Python code in strings ----------------------------------------------------------------------


def _parsed(text: str) -> ast.expr | None:
    """The tree of a short expression in one line; None if the text is another."""
    if len(text) > 10_000 or not text.isprintable():
        return None
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


_CONSTRUCTORS = {"Symbol", "Integer", "Float"}
_SIZES = _CONSTRUCTORS | {
    *("Rational", "Add", "Mul", "Mod", "Max", "Min", "Abs", "floor", "ceiling", "And", "Or", "Not", "Piecewise"),
    *("ExprCondPair", "Eq", "Ne", "Lt", "Le", "Gt", "Ge", "Equality", "Unequality", "StrictLessThan", "LessThan"),
    *("StrictGreaterThan", "GreaterThan", "FloorDiv", "ModularIndexing", "Where", "PythonMod", "CleanDiv"),
    *("CeilToInt", "FloorToInt", "CeilDiv", "FloatTrueDiv", "IntTrueDiv", "TruncToFloat", "TruncToInt"),
    *("RoundToInt", "RoundDecimal", "ToFloat", "Identity", "IsNonOverlappingAndDenseIndicator"),
}
_POWERS = {"Pow", "FloatPow", "PowByNatural"}
_ARITHMETIC = (
    *(ast.UnaryOp, ast.USub, ast.UAdd, ast.Not, ast.BoolOp, ast.And, ast.Or, ast.BinOp, ast.Add, ast.Sub, ast.Mult),
    *(ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE),
    *(ast.Is, ast.IsNot, ast.Load, ast.keyword),
)


def _is_size(text: str) -> bool:
    """Whether an expression only computes with sizes. PyTorch gives it to SymPy, which executes any Python code."""
    tree = _parsed(text)
    if tree is None:
        return False
    strings: set[ast.AST] = set()
    called: set[ast.AST] = set()
    for node in ast.walk(tree):  # a call comes before what is inside it
        match node:
            case ast.Call(func=ast.Name(id=name), args=args) if name in _SIZES | _POWERS:
                called.add(node.func)
                if name in _CONSTRUCTORS and args and isinstance(args[0], ast.Constant):
                    strings.add(args[0])
                if name in _POWERS and not (len(args) == 2 and _is_small_power(*args)):
                    return False
            case ast.BinOp(left=base, op=ast.Pow(), right=exponent):
                if not _is_small_power(base, exponent):
                    return False
            case ast.Constant(value=str(value)):
                if node not in strings or not re.fullmatch(r"\w+|-?[\d.]+(e-?\d{1,3})?", value):
                    return False
            case ast.Constant(value=bool() | int() | float() | None):
                pass
            case ast.Name(id=name):
                if node not in called and not re.fullmatch(r"[a-z_]+\d+|(int_)?oo|true|false", name):
                    return False
            case _ if not isinstance(node, _ARITHMETIC):
                return False
    return True


def _is_small_power(base: ast.expr, exponent: ast.expr) -> bool:
    """Whether a power has a symbol below a small number, and no other power, so that it is computed at once."""
    match exponent:
        case ast.Call(func=ast.Name(id="Integer"), args=[inner]) | ast.UnaryOp(operand=inner):
            exponent = inner
    if not (isinstance(exponent, ast.Constant) and isinstance(exponent.value, int) and exponent.value <= 64):
        return False
    inside = list(ast.walk(base))
    names = {node.id for node in inside if isinstance(node, ast.Name)}
    is_power = any(isinstance(node, ast.Pow) for node in inside) or names & _POWERS
    return not is_power and bool(names - (_SIZES - {"Symbol"}))


_GUARD_CALLS = {
    *("min", "max", "abs", "math.floor", "math.ceil", "math.trunc", "torch.sym_float", "torch._sym_sqrt"),
    *("math.isnan", "float", "int", "bool", "len", "cast_symbool_to_symint_guardless"),
}


def _is_guard(text: str) -> bool:
    """Whether a condition on inputs only reads and compares them; a program runs its conditions as Python code."""
    tree = _parsed(text)
    waiting: list[ast.AST] = [] if tree is None else [tree]
    while waiting:
        node = waiting.pop()
        match node:
            case ast.Call(func=ast.Attribute(value=owner, attr="size" | "stride" | "dim"), args=[], keywords=[]):
                waiting.append(owner)
            case ast.Call(func=called, args=args, keywords=[]) if ast.unparse(called) in _GUARD_CALLS:
                waiting += args
            case ast.Attribute(value=ast.Name(id="math"), attr="inf" | "nan") | ast.Name(id="L"):
                pass
            case ast.BinOp(left=base, op=ast.Pow(), right=ast.Constant(value=int(exponent))):
                if exponent > 64 or any(isinstance(inner, ast.Pow) for inner in ast.walk(base)):
                    return False
                waiting.append(base)
            case ast.BinOp(op=ast.Pow()):
                return False
            case ast.Attribute(value=owner, attr=name) if not name.startswith("_"):
                waiting.append(owner)
            case ast.Subscript(value=owner, slice=key):
                waiting += [owner, key]
            case ast.Constant(value=str(value)):
                if not re.fullmatch(r"[\w. -]*", value):
                    return False
            case ast.Constant(value=bool() | int() | float() | None):
                pass
            case _ if isinstance(node, _ARITHMETIC):
                waiting += ast.iter_child_nodes(node)
            case _:
                return False
    return tree is not None


_CHECKS: dict[str, tuple[str, _Check]] = {
    **dict.fromkeys(("name", "as_name", "forward_arg_names", "field_names"), ("name", _is_name)),
    **dict.fromkeys(
        ("parameter_name", "buffer_name", "tensor_constant_name", "custom_obj_name", "user_input_name", "fqn"),
        ("name", _is_path),
    ),
    **dict.fromkeys(("target", "as_operator"), ("operator", _is_operator)),
    **dict.fromkeys(("in_spec", "out_spec"), ("description of inputs", _is_tree)),
    "path_name": ("object", _is_payload),
    "expr_str": ("expression of sizes", _is_size),
    "guards_code": ("condition", _is_guard),
}
"""The kind of each text of a program, by the key in its JSON, and whether the text is data. Other texts are never
executed."""
