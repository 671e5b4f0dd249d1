"""Who may import whom: arrows point from the front door to the IR, never back."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

from patcomp.ir import aten, xdsl
from tests.helpers.packages import PACKAGES

ROOT = Path(__file__).parents[1]


def rooms() -> dict[str, set[str]]:
    """The packages in the table of docs/architecture-house.md, and what each may import besides itself."""
    found: dict[str, set[str]] = {}
    page = (ROOT / "docs" / "architecture-house.md").read_text()
    for names, imported in re.findall(
        r"^\| (`(?:patcomp|patterns_catalog|special_functions_catalog)[\w.`, ]*`) \|.*\|([^|]*)\|$", page, re.MULTILINE
    ):
        listed = re.findall(r"`([\w.]+)`", imported)
        above = {room for room in found if room.removeprefix("patcomp.") in listed}
        row = set(found) if "all of the above" in imported else above
        found |= dict.fromkeys(re.findall(r"`([\w.]+)`", names), row)
    return found


ROOMS = rooms()
FRONT_DOOR = (
    "patcomp",
    "patcomp.bundles",
    "patcomp.cli",
    "patcomp.commands",
    "patcomp.composite_ops",
    "patcomp.language",
    "patcomp.tasks",
    "patcomp_executorch",
    "patcomp_lab.commands",
    "patcomp_lab.proof",
    "patcomp_models",
    "patcomp_models.bundle_folders",
    "patcomp_models.bundles",
    "patcomp_models.checkpoints",
    "patcomp_models.commands",
    "patcomp_models.language",
    "patcomp_models.tasks",
)

USES_TORCH = (
    "patcomp/exported_programs/",
    "patcomp/frontend_torch/",
    "patcomp/onnx/engine.py",
    "patcomp/evaluate/",
    "patcomp/pytorch.py",
    "patcomp/torchvision.py",
    "patcomp/partitions/",
    "patcomp/program/bodies.py",
    "patcomp/program/calibration.py",
    "patcomp/program/examples.py",
    "patcomp/program/sweep.py",
    "patcomp/commands/",
    "patcomp_executorch/",
    "patcomp/conversion/",
    "patcomp_lab/",
    "patcomp_models/",
    "patterns_catalog/decompose/",
    "special_functions_catalog/",
    "patcomp/onnx/importing/",
)
USES_XDSL = ("patcomp/ir/xdsl.py",)
USES_FRONTEND = (
    "patcomp/exported_programs/",
    "patcomp/frontend_torch/",
    "patcomp/__init__.py",
    "patcomp/__main__.py",
    "patcomp/commands/",
    "patcomp/composite_ops.py",
    "patcomp_executorch/",
    "patcomp/onnx/importing/",
    "patcomp/conversion/",
    "patcomp/partitions/",
    "patcomp_lab/commands/",
    "patcomp_models/",
    "patcomp/onnx/importing/",
)


@cache
def sources() -> list[Path]:
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def import_statements(path: Path) -> list[ast.Import | ast.ImportFrom]:
    """The imports of a file, at any depth."""
    return [node for node in ast.walk(tree_of(path)) if isinstance(node, ast.Import | ast.ImportFrom)]


@cache
def imports(path: Path) -> set[str]:
    """Every module that a file imports, and every name that it imports from one."""
    found: set[str] = set()
    for node in import_statements(path):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        else:
            assert node.level == 0, f"{path} has a relative import"
            found.add(node.module or "")
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def modules_of(path: Path) -> Iterator[str]:
    """The modules that a file imports or imports from."""
    for node in import_statements(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif node.module:
            yield node.module


def is_module(path: Path) -> bool:
    return path.is_dir() or path.with_name(f"{path.name}.py").is_file()


@cache
def is_installed(package: str) -> bool:
    """Whether a name is that of a module of Python's or of an installed package."""
    if package in sys.builtin_module_names:
        return True
    elsewhere = [path for path in sys.path if path and not (ROOT / "tests" / "any").is_relative_to(path)]
    return PathFinder.find_spec(package, [path for path in elsewhere if path != str(ROOT / "tests")]) is not None


@cache
def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@cache
def room_of(module: str) -> str | None:
    """The package of the table that a module belongs to, None for modules of others."""
    if module == "patcomp.__main__":
        return "patcomp.cli"
    inside = [room for room in ROOMS if module == room or module.startswith(f"{room}.")]
    return max(inside, key=len, default=None)


def outsiders(prefixes: tuple[str, ...], module: str) -> list[str]:
    """The files outside `prefixes` that import a module or what is in it."""
    return [
        name
        for path in sources()
        if not (name := str(path.relative_to(ROOT))).startswith(prefixes)
        and any(item == module or item.startswith(f"{module}.") for item in imports(path))
    ]


def modules_without_torch() -> list[str]:
    """The modules that work on text, behind the command and the frontend."""
    return [
        module_name(path)
        for path in sources()
        if not str(path.relative_to(ROOT)).startswith(USES_TORCH) and room_of(module_name(path)) not in FRONT_DOOR
    ]


@pytest.mark.parametrize("room", ROOMS)
def test_rooms(room: str) -> None:
    files = [path for path in sources() if room_of(module_name(path)) == room]
    assert files, f"docs/architecture-house.md has {room}, which is not there"
    assert room != "patcomp" or [path.name for path in files] == ["__init__.py"], "every other file is in a package"
    for path in files:
        foreign = {found for module in modules_of(path) if (found := room_of(module))} - {room}
        assert foreign <= ROOMS[room], f"{path.relative_to(ROOT)} imports {foreign - ROOMS[room]}"


def test_the_compiler_imports_nothing_that_stands_on_top_of_it() -> None:
    """Also by name: the prover and the public names of the models are the only places that know of them."""
    above = re.compile(r"patcomp_(?:models|lab)\b")
    allowed = {f"patcomp/{name}.py" for name in ("bundles", "language", "program/history", "tasks")}
    found = {str(path.relative_to(ROOT)) for path in sources() if _names_one(path, above)}
    assert {name for name in found if name.startswith(("patcomp/", "patterns_catalog/"))} == allowed


def _names_one(path: Path, modules: re.Pattern[str]) -> bool:
    """Whether a file imports one of some modules, or has the name of one as a text, but for docstrings and messages."""
    texts = (node.value for node in ast.walk(tree_of(path)) if isinstance(node, ast.Constant))
    return any(modules.match(each) for each in [*modules_of(path), *(text for text in texts if isinstance(text, str))])


def test_what_a_newcomer_holds_is_small() -> None:
    """The rooms that docs/architecture.md names for import, rewriting and text."""
    whole = (
        "ir",
        "interface",
        "patterns",
        "rewrites",
        *(f"frontend_torch/{room}" for room in ("fx", "importing", "interface")),
    )
    files = [path for room in whole for path in (ROOT / "patcomp" / room).rglob("*.py")]
    files += (ROOT / "patcomp" / "frontend_torch").glob("*.py")
    assert sum(len(path.read_text().splitlines()) for path in files) < 25_000


def test_functions_of_the_compiler_are_short() -> None:
    """At most 80 lines with their docstrings, and 12 arguments; the rows of ONNX have those of the ops."""
    for path in sorted((ROOT / "patcomp").rglob("*.py")):
        if (name := str(path.relative_to(ROOT))).startswith(("patcomp/commands/", "patcomp/onnx/importing/ops/")):
            continue
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef):
                count = sum(isinstance(each, ast.arg) for each in ast.walk(node.args))
                lines = (node.end_lineno or 0) - node.lineno + 1
                assert lines <= 80, f"{name}: {node.name} has {lines} lines"
                assert count <= 12, f"{name}: {node.name} has {count} arguments"


def test_no_import_runs_up() -> None:
    order = list(ROOMS)
    for room, imported in ROOMS.items():
        assert imported <= set(order[: order.index(room)]), (
            f"{room} may import what is below it in docs/architecture-house.md"
        )


def test_only_one_file_imports_xdsl() -> None:
    assert outsiders(USES_XDSL, "xdsl") == []


def test_only_the_frontend_and_the_evaluator_import_torch() -> None:
    assert outsiders(USES_TORCH, "torch") == []


PRIVATE_OF_PYTORCH = ("torch._", "torch.fx.experimental", "torch.utils._")


def test_only_one_file_imports_private_modules_of_pytorch() -> None:
    for path in sources():
        name = str(path.relative_to(ROOT))
        if name == "patcomp/pytorch.py":
            continue
        found = {module for module in imports(path) if module.startswith(PRIVATE_OF_PYTORCH)}
        assert not found, f"{name} uses {sorted(found)}; take it from patcomp.pytorch"


PUBLIC_WITH_UNDERSCORE = {"_replace", "_check", "_getframe", "_exit"}
"""Of named tuples, `torch`, `sys` and `os`: their documentation has them."""
PRIVATE_OF_TRANSFORMERS = {"_init_weights", "_attn_implementation", "_model_mapping", "_from_config"}
PRIVATE_OF_DEPTH = {"_process_mono_sky_estimation"}
PRIVATE_OF_TRACKERS = {"_attn_implementation", "_single_frame_forward", "_use_multimask", "_use_mask_as_output"}
PRIVATE_OF_DIFFUSERS = {"_keep_in_fp32_modules"}
PRIVATE_OF_EXECUTORCH = {
    "_op",
    "_aot_compile_options",
    "_maybe_warn_sidecar_env_ignored",
    "_min_os_version",
    "_preprocess_aot_compiled",
    "_preprocess_portable",
}
PRIVATE_OF_THE_TOOLCHAIN = {"_mlir_context", "_from_mlir_module", "_module", "_mlir_module"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def defined_names(tree: ast.AST) -> Iterator[str]:
    """The names of functions, classes, fields and attributes that a file defines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            yield node.attr


def test_private_attributes_of_others_are_behind_walls() -> None:
    """xDSL's are used in `ir/xdsl.py` only, PyTorch's in `pytorch.py`, the toolchain's in
    `emit/asset.py` and `emit/toolchain/writing.py`, those of ExecuTorch in two files of its room, those of transformers
    in `checkpoints/loading.py` and `bundles/segmenter/tracker.py`, those of diffusers in `bundles/loading.py`, the
    one of Depth Anything 3 in `tasks/depth.py`."""
    operators = {name.split(".")[1] for name in aten.known_names()}
    walls = {
        "patcomp/pytorch.py": None,
        "patcomp/ir/xdsl.py": None,
        "patcomp/emit/asset.py": PRIVATE_OF_THE_TOOLCHAIN,
        "patcomp/emit/toolchain/writing.py": PRIVATE_OF_THE_TOOLCHAIN,
        "patcomp_executorch/backend.py": PRIVATE_OF_EXECUTORCH,
        "patcomp_executorch/edge.py": PRIVATE_OF_EXECUTORCH,
        "patcomp_models/checkpoints/loading.py": PRIVATE_OF_TRANSFORMERS,
        "patcomp_models/bundles/loading.py": PRIVATE_OF_DIFFUSERS,
        "patcomp_models/bundles/segmenter/tracker.py": PRIVATE_OF_TRACKERS,
        "patcomp_models/tasks/depth.py": PRIVATE_OF_DEPTH,
    }
    for path in sources():
        allowed = walls.get(name := str(path.relative_to(ROOT)), set())
        if allowed is None:
            continue
        tree = tree_of(path)
        allowed = {*allowed, *defined_names(tree), *operators, *PUBLIC_WITH_UNDERSCORE}
        found = [
            f"{ast.unparse(node)} (line {node.lineno})"
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute)
            and is_private(node.attr)
            and node.attr not in allowed
            and not ast.unparse(node.value).startswith("torch.ops.")
        ]
        assert not found, f"{name} uses {found}; add a function to the file that wraps the library"


def test_only_one_file_overrides_private_methods_of_xdsl() -> None:
    for module in modules_without_torch():
        importlib.import_module(module)
    foreign = [getattr(xdsl, name) for name in xdsl.__all__]
    classes = [item for item in foreign if isinstance(item, type) and item.__module__.startswith("xdsl.")]
    for base in classes:
        for derived in subclasses(base):
            if derived.__module__.startswith("xdsl.") or derived.__module__ == xdsl.__name__:
                continue
            overridden = {name for name in vars(derived) if is_private(name) and hasattr(base, name)} - {"_abc_impl"}
            assert not overridden, f"{derived.__module__}.{derived.__name__} overrides {sorted(overridden)} of xDSL"


def subclasses(base: type) -> Iterator[type]:
    for derived in type.__subclasses__(base):
        yield derived
        yield from subclasses(derived)


def test_only_the_front_door_imports_the_frontend() -> None:
    assert outsiders(USES_FRONTEND, "patcomp.frontend_torch") == []


def test_tools_on_text_run_without_torch() -> None:
    modules = modules_without_torch()
    assert "patcomp.ir.verify" in modules
    script = (
        "import importlib, sys\n"
        "sys.modules['torch'] = None\n"  # importing it raises ImportError from here on
        f"for name in {modules!r}: importlib.import_module(name)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_the_modules_of_patterns_import_each_other_in_one_direction() -> None:
    """Imports inside functions and for type checkers count: what is read together should not depend on itself."""
    folder = ROOT / "patcomp" / "patterns"
    modules = {f"patcomp.patterns.{path.stem}": path for path in folder.glob("*.py") if path.stem != "__init__"}
    for name, path in modules.items():
        assert "patcomp.patterns" not in imports(path) - {name}, f"{path.name} imports the package that imports it"
    graph = {name: imports(path) & set(modules) for name, path in modules.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as circle:
        pytest.fail(f"a circle of imports: {' -> '.join(circle.args[1])}")


def test_our_imports_exist_and_have_one_root() -> None:
    """Also those inside functions, and in tests and benchmarks, which mypy does not read."""
    ours = {*PACKAGES, "tests", "benchmarks"}
    files = [path for folder in sorted(ours) for path in sorted((ROOT / folder).rglob("*.py"))]
    below = {part for path in files for part in (*path.relative_to(ROOT).parts[1:-1], path.stem)}
    for path in files:
        for module in modules_of(path):
            said = f"{path.relative_to(ROOT)} imports {module}"
            top, *inner = module.split(".")
            assert top not in ours or is_module(ROOT.joinpath(top, *inner)), f"{said}, which is not there"
            assert top not in below or is_installed(top), f"{said}, not from the root of the repository"
            assert top != "tests" or not inner[-1].startswith("test_"), f"{said}: what tests share is in other modules"


# ---- caches -----------------------------------------------------------------------------------------

_CACHED = {"cache", "lru_cache"}


def _caches(path: Path) -> Iterator[str]:
    """The functions of a file whose results are kept for the process, and its empty dictionaries: `file: name`."""
    tree = tree_of(path)
    for node in ast.walk(tree):
        decorators = node.decorator_list if isinstance(node, ast.FunctionDef) else []
        for made in decorators:
            called = made.func if isinstance(made, ast.Call) else made
            if isinstance(called, ast.Name) and called.id in _CACHED:
                yield f"{path.relative_to(ROOT)}: {node.name}"  # type: ignore[attr-defined]
    for statement in tree.body:
        if isinstance(statement, ast.AnnAssign):
            target, value = statement.target, statement.value
        elif isinstance(statement, ast.Assign):
            target, value = statement.targets[0], statement.value
        else:
            continue
        called = value.func if isinstance(value, ast.Call) else value
        called = called.func if isinstance(called, ast.Call) else called
        is_cache = isinstance(called, ast.Name) and called.id in {*_CACHED, "WeakKeyDictionary"}
        if is_cache or (isinstance(value, ast.Dict) and not value.keys):
            assert isinstance(target, ast.Name)
            yield f"{path.relative_to(ROOT)}: {target.id}"


def test_each_cache_has_an_owner_a_bound_and_a_reason() -> None:
    page = (ROOT / "docs" / "architecture-records.md").read_text()
    section = page.partition("## Caches\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([\w./]+)` \| (`[^|]+`) \|[^|]+\|[^|]+\|$", section, re.MULTILINE)
    listed = {f"{file}: {name}" for file, names in rows for name in re.findall(r"`(\w+)`", names)}
    files = [file for folder in PACKAGES for file in (ROOT / folder).rglob("*.py")]
    assert sorted(listed) == sorted({found for file in files for found in _caches(file)})


def test_stages_of_the_catalog_import_nothing_from_each_other() -> None:
    folders = {path.parent for path in (ROOT / "patterns_catalog").glob("*/*.py")}
    stages = {folder.name for folder in folders} - {"composites"}
    assert {"normalize", "recover", "lower", "target", "optimize"} <= stages
    found = [
        (path.relative_to(ROOT).as_posix(), node.module)
        for folder in folders
        for path in folder.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("patterns_catalog.")
        if (node.module or "").split(".")[1] in stages - {folder.name}
    ]
    assert found == []
