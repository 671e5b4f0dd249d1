"""The documentation is true: its Python blocks run, its commands exist, its generated pages are current.

The ```` ```python ```` blocks of a page run in order in one process. One with a file name
(```` ```python my_rules.py ````) is saved under that name instead of run. The ```` ```sh run ```` blocks of a page run
too, with the files in the folder that the page shows above them. A block that starts with `# needs coreai-core` or
`# needs executorch` is left out without it.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from patcomp.cli import whole_command
from tests.helpers import warm
from tests.helpers.command import Command

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "patcomp/errors.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
NEEDED = {"# needs coreai-core": "coreai", "# needs executorch": "executorch"}
"""The modules that blocks need which start so."""
_BLOCK = re.compile(r"^```python(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FENCED = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!http)([^)#]+)")

each_page = pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in PAGES])


def write_script(page: Path, folder: Path) -> Path | None:
    """The script of a page's blocks, each at its own line numbers; None where the page has none."""
    text = page.read_text()
    script = ""
    for block in _BLOCK.finditer(text):
        name, code = block.groups()
        if name:
            (folder / name).write_text(code)
        elif all(find_spec(module) for needed, module in NEEDED.items() if code.startswith(needed)):
            line = text.count("\n", 0, block.start()) + 1
            script += "\n" * (line - script.count("\n")) + code
    if not script:
        return None
    path = folder / f"{page.stem.lower()}.py"
    path.write_text(script)
    return path


@each_page
def test_blocks_run(page: Path, tmp_path: Path) -> None:
    script = write_script(page, tmp_path)
    if script is None:
        pytest.skip("no Python on this page")
    done = warm.run(tmp_path, script.name)
    assert done.returncode == 0, f"{page.name}:\n{done.stdout}\n{done.stderr}"


_SHELL = re.compile(r"^ *```(?:python (\S+)|sh (run))\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


_SAME_COMMANDS = (
    "your-first-composite.md", "your-first-lowering.md", "your-first-optimization.md", "kinds-of-rules.md",
    "debugging-a-match.md",
)  # fmt: skip
"""Pages whose commands are those of other pages, such as first-hour.md, with other rules."""


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=page.name, marks=pytest.mark.slow if page.name in _SAME_COMMANDS else []) for page in PAGES],
)
def test_shell_commands_run(page: Path, tmp_path: Path) -> None:
    blocks = _SHELL.findall(page.read_text())
    if not any(run for _, run, _ in blocks):
        pytest.skip("no commands to run on this page")
    for name, _, code in blocks:
        if name:
            (tmp_path / name).write_text(code)
        lines = [] if name else code.splitlines()
        if lines and lines[0] == "# needs coreai-core":
            lines = lines[1:] if find_spec("coreai") else []
        for line in lines:
            command, *filters = line.split(" | ", 1)
            program, *arguments = shlex.split(command)
            assert program == "patcomp", line
            done = warm.run(tmp_path, "-m", "patcomp", *arguments)
            assert done.returncode == 0, f"{page.name}: {line}\n{done.stdout}\n{done.stderr}"
            for shell in filters:
                subprocess.run(["bash", "-c", shell], input=done.stdout, text=True, check=True, stdout=subprocess.PIPE)


@pytest.mark.parametrize("kind", ["composite", "lowering", "optimization"])
def test_a_first_rule_takes_at_most_five_commands(kind: str) -> None:
    """`test_shell_commands_run` runs them in an empty folder, as a new user would."""
    blocks = _SHELL.findall((ROOT / f"docs/your-first-{kind}.md").read_text())
    commands = [line for _, run, code in blocks if run for line in code.splitlines()]
    assert commands[0].startswith("patcomp rule new")
    assert commands[1].startswith("patcomp rule test")
    assert any(line.startswith("patcomp convert") for line in commands)
    assert len(commands) <= 5


@each_page
def test_links_lead_to_files(page: Path) -> None:
    prose = _FENCED.sub("", page.read_text())
    missing = [link for link in _LINK.findall(prose) if not (page.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("catalog", "catalog list"),
        ("composites", "catalog composites"),
        ("authoring-functions", "catalog functions"),
        ("pattern-ops", "catalog pattern-ops"),
        ("supported-ops", "ops"),
    ],
)
def test_generated_pages_are_current(name: str, command: str, patcomp: Command, tmp_path: Path) -> None:
    patcomp(*command.split(), "--markdown", str(tmp_path))
    made = {page.name: page.read_text() for page in tmp_path.iterdir()}
    kept = {page.name: page.read_text() for page in (ROOT / "docs/generated").glob(f"{name}*.md")}
    assert kept == made, f"rm docs/generated/{name}*.md; patcomp {command} --markdown docs/generated"


def test_every_authoring_function_that_rules_call_has_an_example() -> None:
    pages = (ROOT / "docs/generated").glob("authoring-functions*.md")
    assert sum(page.read_text().count("* no example") for page in pages) == 1  # c.target_spec


def test_recovering_rules_are_found_for_every_composite() -> None:
    from patcomp.ir.composite import Composite
    from patcomp.patterns import composites
    from patcomp_lab.commands.composites_page import recovered_by
    from patterns_catalog import default_rules

    defined = {item for item in composites if isinstance(item, Composite)}
    ours = {item.name for item in defined if item.body.__module__.startswith("patterns_catalog.")}
    assert {item.name for item in recovered_by(default_rules())} == ours


def test_commands_in_the_pages_exist() -> None:
    commands = set(get_command(whole_command()).commands)  # type: ignore[attr-defined]
    for page in PAGES:
        used = set(re.findall(r"`patcomp ([a-z][a-z-]*)", page.read_text()))
        assert used <= commands, page.name


def test_the_page_of_proofs_refutes_a_wrong_identity_and_proves_the_mended_one(tmp_path: Path) -> None:
    """The commands, the file and the output are those of the page; the mended line is the one that it names."""
    page = (ROOT / "docs/proofs.md").read_text()
    first = page.index("patcomp rule test")
    (file, _, code), *_ = [block for block in _SHELL.findall(page) if block[0]]
    commands = re.findall(r"^patcomp rule test .*$", page, re.MULTILINE)
    shown = re.findall(r"^```text\n(.*?)^```$", page[first:], re.MULTILINE | re.DOTALL)
    mended, wrong = re.findall(r"`(y = [^`]*)`", page)
    assert len(commands) == len(shown) == 2
    for text, command, lines, returned in zip(
        (code, code.replace(wrong, mended)), commands, shown, (3, 0), strict=True
    ):
        (tmp_path / file).write_text(text)
        done = warm.run(tmp_path, "-m", *shlex.split(command))
        assert done.returncode == returned, done.stdout
        assert all(line in done.stdout for line in lines.splitlines()), done.stdout


def test_the_first_hour_takes_fifteen_commands_and_the_rule_of_the_first_composite() -> None:
    hour, first = ((ROOT / f"docs/{page}.md").read_text() for page in ("first-hour", "your-first-composite"))
    blocks = re.findall(r"^```sh(?: run)?\n(.*?)^```$", hour, re.MULTILINE | re.DOTALL)
    assert sum(len(block.splitlines()) for block in blocks) == 15
    rules = [
        re.findall(r"^```python peak_norm.py\n(.*?)^```$", page, re.MULTILINE | re.DOTALL) for page in (hour, first)
    ]
    assert rules[0] == rules[1]


def test_the_readme_links_every_page() -> None:
    linked = set(re.findall(r"\]\(([\w/.-]+\.md)\)", (ROOT / "README.md").read_text()))
    parts = {f"docs/generated/{part}" for page in PAGES if page.parent.name == "generated"
             for part in re.findall(r"^- \[.*\]\((.*)\), ", page.read_text(), re.MULTILINE)}  # fmt: skip
    pages = {page.relative_to(ROOT).as_posix() for page in PAGES} - {"README.md"} - parts
    assert linked == pages | {"benchmarks/README.md"}


def test_the_guide_and_the_page_of_the_command_line_name_every_command() -> None:
    found: Any = get_command(whole_command())
    groups = {name for name, command in found.commands.items() if hasattr(command, "commands")}
    names = {f"{group} {name}" for group in groups for name in found.commands[group].commands}
    names |= set(found.commands) - groups
    for page in ("guide", "command-line"):
        text = (ROOT / f"docs/{page}.md").read_text()
        assert names - set(re.findall(rf"patcomp ((?:(?:{'|'.join(groups)}) )?[a-z-]+)", text)) == set()
