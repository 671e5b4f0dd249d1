"""Catalogs whose decompositions are loaded late: the special functions of patcomp, and packages of others."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import special_functions_catalog
from patcomp import RuleError, TorchConverter, UnsupportedError, entry_points
from patcomp.patterns import installed_catalogs as installed
from patcomp.patterns.deferred import INDEX, check_index, read_index
from patcomp.patterns.user_catalogs import rules_of
from patterns_catalog import all_rules
from tests.helpers import warm

INDEXED = read_index((Path(special_functions_catalog.__file__).parent / INDEX).read_text())

SCRIPT = """
import sys, torch
from patcomp import TorchConverter

class Of(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function
    def forward(self, x):
        return self.function(x)

def loaded(function, x):
    exported = torch.export.export(Of(function), (x,))
    program = TorchConverter().add_exported_program(exported).to_coreai()
    torch.testing.assert_close(program.run(x), function(x), rtol=1e-4, atol=1e-4)
    return "special_functions_catalog.fourier" in sys.modules

weight = torch.rand(3, 4)
assert not loaded(lambda x: torch.nn.functional.linear(x, weight).addbmm(x[None], x.mT[None]), torch.rand(3, 4))
assert "patterns_catalog.decompose.matrix_products" in sys.modules
# the trace that asks for it has fake tensors
assert loaded(lambda x: torch.special.ndtr(x) + torch.lgamma(x + 1), torch.rand(3, 4))
from special_functions_catalog.factorizations import lu_unpack
assert lu_unpack.examples[0].args[1].tolist() == [[3, 2, 4, 4], [2, 2, 3, 4]]
"""


def test_only_a_program_with_one_of_its_ops_loads_the_catalog(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = warm.run(tmp_path, "script.py")
    assert done.returncode == 0, done.stderr


def test_the_index_is_that_of_the_rules() -> None:
    rules = rules_of(special_functions_catalog)
    assert check_index(rules, INDEXED) is rules
    assert all(all_rules().decompositions(of_complex=flag)[op] in set(rules) for op, flag in INDEXED)
    others = {op for op, rule in all_rules().decompositions().items() if rule not in set(rules)}
    assert not others & {op for op, of_complex in INDEXED if not of_complex}


@pytest.mark.parametrize(
    ("index", "reason"),
    [
        (INDEXED - {("aten.lgamma", False)}, "^ops.txt lacks aten.lgamma"),
        (INDEXED | {("aten.lgamma", True)}, "^ops.txt lists what no decomposition takes: aten.lgamma complex"),
    ],
)
def test_a_wrong_index_is_refused(index: set[tuple[str, bool]], reason: str) -> None:
    with pytest.raises(RuleError, match=reason):
        check_index(rules_of(special_functions_catalog), index)


def test_the_lines_of_an_index() -> None:
    assert read_index("# ops\n\naten.a.b  # why\naten.c complex\n") == {("aten.a.b", False), ("aten.c", True)}
    with pytest.raises(RuleError, match=r"the line .aten\.c real."):
        read_index("aten.c real")


# ---- packages of others ---------------------------------------------------------------------------

THEIRS = """
from patcomp.patterns import decomposition, lowering

@decomposition("{op}", name="{name}")
def theirs(self):
    "twice the sum of the numbers"
    return 2 * self.sum()
"""


class Of(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.nansum(x) if x.dim() == 2 else torch.lgamma(x)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    installed._indexed.cache_clear()
    yield tmp_path
    installed._indexed.cache_clear()
    for name in set(sys.modules) - before:
        if name.startswith("late_"):
            del sys.modules[name]


def install(folder: Path, package: str, code: str, index: str) -> None:
    """A package as an installer leaves it, with the list of its ops."""
    (folder / package).mkdir()
    (folder / package / "__init__.py").write_text(code)
    (folder / package / INDEX).write_text(index)
    metadata = folder / f"{package}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[patcomp.catalogs]\nrules = {package}\n")


def converted(x: torch.Tensor, **options: bool) -> torch.Tensor:
    program = TorchConverter(**options).add_exported_program(torch.export.export(Of(), (x,))).to_coreai()
    assert program.versions["catalogs"].endswith("late_catalog 1.0") is options.get("installed_catalogs", True)
    return program.run(x)


def test_a_package_of_another_author_is_loaded_at_the_first_of_its_ops(site: Path) -> None:
    install(site, "late_catalog", THEIRS.format(op="aten.lgamma", name="their lgamma"), "aten.lgamma\n")
    x = torch.tensor([1.0, 2.5])
    converted(torch.rand(2, 2))
    assert "late_catalog" not in sys.modules
    torch.testing.assert_close(converted(x), torch.tensor(7.0))  # before patcomp's
    assert "late_catalog" in sys.modules
    torch.testing.assert_close(converted(x, installed_catalogs=False), torch.lgamma(x))
    assert "their lgamma" in TorchConverter().rules
    assert TorchConverter().rules.stage("recover") is all_rules().stage("recover")


@pytest.mark.parametrize(
    ("name", "index", "reason"),
    [
        (
            "their lgamma",
            "aten.lgamma\naten.digamma",
            "package late_catalog cannot be loaded: RuleError: ops.txt lists",
        ),
        ("decompose lgamma", "aten.lgamma", "has the name of one of patcomp's .* does not take aten.special_gammaln"),
    ],
)
def test_what_is_wrong_with_a_package_is_said_when_it_is_loaded(site: Path, name: str, index: str, reason: str) -> None:
    install(site, "late_catalog", THEIRS.format(op="aten.lgamma", name=name), index)
    with pytest.raises(UnsupportedError, match=reason):
        converted(torch.tensor([1.0, 2.5]))


def test_a_package_with_an_index_has_only_decompositions(site: Path) -> None:
    code = THEIRS.format(op="aten.lgamma", name="theirs") + (
        '\n@lowering("aten.sinh", name="their sinh")\ndef sinh(op, c):\n    return c.sinh(op["self"])\n'
    )
    install(site, "late_catalog", code, "aten.lgamma")
    with pytest.raises(UnsupportedError, match=r"the rule their sinh .* is no decomposition"):
        converted(torch.tensor([1.0, 2.5]))


# ---- patcomp's own metadata -----------------------------------------------------------------------


def test_patcomps_own_catalogs_are_in_its_metadata_or_their_absence_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a source tree, that is `pyproject.toml`; installed, the metadata; of a mere copy of the files, nothing."""
    (own,) = [point for point in entry_points.entry_points_of(installed.GROUP) if point.package == installed.OWN]
    assert own.value == "special_functions_catalog"
    root = Path(entry_points.__file__).parents[1]
    monkeypatch.setattr(entry_points, "__file__", str(tmp_path / "patcomp" / "entry_points.py"))
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    entry_points._entry_points_of.cache_clear()
    try:
        with pytest.raises(RuleError, match=r"without the metadata of their installation .* install patcomp with pip"):
            installed.own_catalogs()
        (tmp_path / "pyproject.toml").write_text('[project]\nname = "another"\n')
        metadata = tmp_path / "patcomp-3.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: patcomp\nVersion: 3.0\n")
        (metadata / "entry_points.txt").write_text("[patcomp.catalogs]\nspecial = special_functions_catalog\n")
        entry_points._entry_points_of.cache_clear()
        (found,) = entry_points.entry_points_of(installed.GROUP)
        assert (found.name, found.version) == ("special", "3.0")
        assert installed.versions_of([], installed=True) == {}
        shutil.copy(root / "pyproject.toml", tmp_path)
        entry_points._entry_points_of.cache_clear()
        assert entry_points.entry_points_of(installed.GROUP) == (own,)
    finally:
        entry_points._entry_points_of.cache_clear()
