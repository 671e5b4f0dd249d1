"""What is shipped: the wheel's content, pinned versions, and that every way to run the checks runs the same."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterable
from pathlib import Path
from zipfile import ZipFile

from tests.helpers.packages import PACKAGES

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def _clone(folder: Path) -> None:
    """Copies what git has of the packages, and what a build reads besides, to a folder."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__", "*.pyi"))
    for name in (".gitignore", "pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)


def _stubs(names: Iterable[str]) -> set[str]:
    return {name for name in names if name.endswith(".pyi")}


def test_wheel(tmp_path: Path) -> None:
    source = tmp_path / "source"
    _clone(source)
    command = ["-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path), str(source)]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    files = set(ZipFile(wheel).namelist())
    wanted = {
        str(path.relative_to(source))
        for package in PACKAGES
        for path in (source / package).rglob("*")
        if path.is_file()
    }
    assert {"patcomp/py.typed", "patcomp/ir/aten_schemas.txt", "patterns_catalog/normalize/views.py"} <= wanted
    assert "special_functions_catalog/ops.txt" in wanted
    classes = ("aten", "aten_source", "aten_target", "composites", "coreai", "coreai_source", "coreai_target")
    assert _stubs(files) == {f"patcomp/authoring/{name}.pyi" for name in ("__init__", *classes)}
    shipped = {name for name in files if ".dist-info/" not in name}
    assert shipped == wanted
    assert any(name.endswith("licenses/LICENSE") for name in files)


def test_a_script_beside_a_clone_that_is_called_patcomp(tmp_path: Path) -> None:
    """An editable install of the clone is found before the folder is taken for a namespace package."""
    clone, site = tmp_path / "patcomp", tmp_path / "site"
    _clone(clone)
    build = f"from hatchling.build import build_editable; build_editable({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", build], cwd=clone, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    ZipFile(wheel).extractall(site)
    script = tmp_path / "script.py"
    script.write_text("from importlib.util import find_spec\nprint(find_spec('patcomp').origin)\n")
    begin = f"import runpy, site, sys; site.addsitedir({str(site)!r}); sys.path.insert(0, {str(tmp_path)!r}); "
    command = [sys.executable, "-S", "-c", f"{begin}runpy.run_path({str(script)!r})"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.strip() == str(clone / "patcomp" / "__init__.py"), done.stderr
    assert len(_stubs(path.name for path in (clone / "patcomp" / "authoring").iterdir())) == 8  # for editors and mypy


def test_an_sdist_has_all_that_a_wheel_is_built_from(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    _clone(clone)
    build = f"from hatchling.build import build_sdist; build_sdist({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", build], cwd=clone, check=True, capture_output=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as content:
        names = {name.partition("/")[2] for name in content.getnames()}
    assert {"hatch_build.py", "pyproject.toml"} <= names
    assert len(_stubs(names)) == 8


def test_a_build_needs_the_versions_that_patcomp_needs() -> None:
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert needed[0].startswith("hatchling")
    assert set(needed[1:]) <= set(PROJECT["dependencies"])
    assert "torch" not in _requirements(needed)


def _requirements(lines: list[str]) -> dict[str, str]:
    """Name and version condition of each requirement, names as package indexes compare them."""
    found = {}
    for line in lines:
        match = re.match(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?(.*)", line.partition("#")[0].strip())
        if match:
            found[re.sub(r"[-_.]+", "-", match[1]).lower()] = match[2]
    return found


def test_constraints_pin_every_dependency() -> None:
    pinned = _requirements((ROOT / "constraints.txt").read_text().splitlines())
    groups = PROJECT["optional-dependencies"].values()
    wanted = _requirements([*PROJECT["dependencies"], *(line for group in groups for line in group)])
    wanted.pop("patcomp")
    assert set(wanted) <= set(pinned)
    assert all(re.fullmatch(r"==[\w.]+", condition) for condition in pinned.values()), "a pin is not exact"
    for name, condition in wanted.items():
        if condition.startswith("==") and "*" not in condition:
            assert pinned[name] == condition, name


def test_declared_dependencies_are_those_that_are_imported() -> None:
    sources = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    imported = set()
    for node in (node for path in sources for node in ast.walk(ast.parse(path.read_text()))):
        if isinstance(node, ast.Import):
            imported.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").partition(".")[0])
    foreign = {name.replace("_", "-") for name in imported - sys.stdlib_module_names}
    # of the extras `benchmarks`, `coreai`, `executorch`, `models`, `onnx`, `parquet` and `yaml`; timm is looked for
    # where a folder holds one of its models
    optional = {
        "PIL",
        "coreai",
        "diffusers",
        "executorch",
        "google",
        "huggingface-hub",
        "matplotlib",
        "pyarrow",
        "onnx",
        "onnxruntime",
        "safetensors",
        "timm",
        "tokenizers",
        "torchvision",
        "transformers",
        "yaml",
    }
    assert foreign - {name.replace("_", "-") for name in PACKAGES} - optional == set(
        _requirements(PROJECT["dependencies"])
    )


def test_version() -> None:
    import patcomp

    assert patcomp.__version__ == PROJECT["version"]


def test_ci_runs_what_make_test_runs() -> None:
    recipe = re.search(r"^test:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    commands = [line.strip() for line in recipe[1].splitlines() if not line.startswith("\t@echo")]
    assert commands[0] == "$(MAKE) --jobs 2 style browser"
    style = [
        ".venv/bin/ruff check .",
        ".venv/bin/ruff format --check .",
        ".venv/bin/python -m patcomp_lab.commands.stubs",
        ".venv/bin/mypy",
    ]
    assert "\n".join([*style, ".ci/browser", *commands[1:]]) in (ROOT / ".ci/run").read_text()
