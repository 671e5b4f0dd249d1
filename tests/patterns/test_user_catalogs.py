"""Catalogs of users, through the public API only: rules of every stage, replacing, leaving out, installed ones."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from patcomp import RuleError, StageError, TorchConverter, get_decomp_table
from patcomp.authoring import Aten, AtenSource, AtenTarget, Coreai, CoreaiSource, CoreaiTarget, OpView, Targets
from patcomp.commands.convert_options import target_of
from patcomp.ir.composite import composite
from patcomp.ir.namespaces import aten_namespace, coreai_namespace
from patcomp.ir.value import Value
from patcomp.patterns import (
    CompositeTable,
    Const,
    Rewrite,
    RuleSet,
    decomposition,
    lowering,
    normalization,
    op_rule,
    optimization,
    rule,
)
from patcomp.patterns.installed_catalogs import target_named

X = torch.randn(2, 5, generator=torch.Generator().manual_seed(0))


class Calling(nn.Module):
    """A model that is a function."""

    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def module(**rules: Any) -> ModuleType:
    """A Python module of rules."""
    made = ModuleType("my_rules")
    vars(made).update(rules)
    return made


def convert(function: Callable[..., Any], *catalog: Any, **options: Any) -> Any:
    """The program of a function of x, whose numbers are eager's."""
    model = Calling(function)
    exported = torch.export.export(model, (X,)).run_decompositions(get_decomp_table())
    program = TorchConverter(catalog=catalog, **options).add_exported_program(exported).to_coreai()
    torch.testing.assert_close(program.run(X), model(X), rtol=1e-5, atol=1e-5)
    return program


def fired(program: Any) -> dict[str, str]:
    """The stage of each rule that rewrote something."""
    return {name: report.name for report in program.reports for name in report.statistics.fired}


# ---- a rule of every stage ------------------------------------------------------------------------

TABLE = CompositeTable("mine")


@TABLE.define
@composite("my_softsign", inputs=("input",), attributes=("offset",))
def my_softsign(c: Coreai, x: Value, *, offset: float) -> Value:
    "x / (|x| + offset)"
    return c.broadcasting_divide(x, c.broadcasting_add(c.abs(x), offset))


@rule(name="my softsign", into=TABLE, example={"x": "2x5xf32", "offset": 1.0})
def recovered(a: AtenSource, c: Targets, x: Any, offset: Const) -> Rewrite:
    "x / (|x| + offset)"
    return Rewrite(x / (a.abs(x) + offset), to=c.my_softsign(x, offset=offset.value))


@rule(name="difference of a negative", stage="normalize", into=aten_namespace, example={"x": "3xf32", "y": "3xf32"})
def declarative_normalization(a: AtenSource, c: AtenTarget, x: Any, y: Any) -> Rewrite:
    return Rewrite(x - (-y), to=c.add(x, y, alpha=1))


@normalization("aten.expm1", name="my expm1")
def procedural_normalization(op: OpView, aten: Aten) -> Value:
    return aten.sub.Scalar(op.result, aten.exp(op.result, op["self"]), 1.0, alpha=1)


@op_rule("recover", "aten.tanh", name="my tanh")
def procedural_recovery(op: OpView, c: Coreai) -> Value:
    return c.tanh(op["self"])


@lowering("aten.sinh", name="my sinh")
def my_lowering(op: OpView, c: Coreai) -> Value:
    grown, shrunk = c.exp(op["self"]), c.exp(c.broadcasting_mul(op["self"], -1.0))
    return c.broadcasting_mul(c.broadcasting_sub(grown, shrunk), 0.5)


@rule(name="root of a square", stage="optimize", source=coreai_namespace, into=coreai_namespace, example={"x": "3xf32"})
def declarative_optimization(a: CoreaiSource, c: CoreaiTarget, x: Any) -> Rewrite:
    return Rewrite(a.sqrt(x * x), to=c.abs(x))


@optimization("coreai.round", name="no double round")
def procedural_optimization(op: OpView, c: Coreai) -> Value | None:
    below = op.x.ssa.owner
    return op.x if getattr(below, "name", "") == "coreai.round" else None


@decomposition("aten.logaddexp", name="my logaddexp")
def my_decomposition(self, other):
    return (self.exp() + other.exp()).log()


EVERY_STAGE = {
    "my softsign": (recovered, "recover", lambda x: x / (x.abs() + 1)),
    "difference of a negative": (declarative_normalization, "normalize", lambda x: x - (-x.exp())),
    "my expm1": (procedural_normalization, "normalize", torch.expm1),
    "my tanh": (procedural_recovery, "recover", torch.tanh),
    "my sinh": (my_lowering, "lower", torch.sinh),
    "root of a square": (declarative_optimization, "optimize", lambda x: (x * x).sqrt()),
    "no double round": (procedural_optimization, "optimize", lambda x: x.round().round()),
}


@pytest.mark.parametrize("name", EVERY_STAGE)
def test_a_rule_of_every_stage(name: str) -> None:
    mine, stage, function = EVERY_STAGE[name]
    program = convert(function, module(mine=mine))
    assert fired(program)[name] == stage
    assert name not in fired(convert(function))


def test_a_decomposition_goes_before_patcomps() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.logaddexp(x, 2 * x)

    exported = torch.export.export(Calling(function), (X,))
    texts = [
        TorchConverter(catalog=catalog).add_exported_program(exported).to_coreai().stages["import"]
        for catalog in ([], [module(mine=my_decomposition)])
    ]
    assert ["aten.exp" in text and "aten.log1p" not in text for text in texts] == [False, True]


def test_questions_name_the_users_rule_and_its_line() -> None:
    program = convert(lambda x: x / (x.abs() + 1), module(mine=recovered))
    assert program.composites == {"my_softsign": 1}
    assert f"made by rule my softsign ({recovered.source})" in program.explain("%div")
    assert recovered.source.startswith("patterns/test_user_catalogs.py:")
    other = convert(lambda x: x / (x.abs() - 1), module(mine=recovered))
    answer, *places = other.why_not("my softsign").splitlines()
    assert answer == (
        "my softsign: matched 1 of 3 ops up from %div = aten.div.Tensor, then at aten.sub.Tensor (%sub): "
        "it is aten.sub.Tensor, not aten.add.Tensor"
    )
    for name, place in zip(("div", "sub"), places, strict=True):
        start = f"  %{name} = aten.{name}.Tensor is from %{name} at tests/patterns/test_user_catalogs.py:"
        assert place.removeprefix(start).isdigit()


def test_composites_of_a_catalog_can_be_chosen() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x / (x.abs() + 1)

    exported = torch.export.export(Calling(function), (X,))
    converter = TorchConverter(catalog=[module(mine=recovered)]).add_exported_program(exported)
    assert converter.to_coreai(recover=["my_softsign"]).composites == {"my_softsign": 1}
    assert converter.to_coreai(recover=["rms_norm"]).composites == {}


# ---- what a catalog is ----------------------------------------------------------------------------


def test_a_package_counts_with_all_of_its_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = tmp_path / "my_catalog" / "inner"
    inner.mkdir(parents=True)
    (tmp_path / "my_catalog" / "__init__.py").write_text("")
    (inner / "__init__.py").write_text("")
    for folder, op in ((inner, "sinh"), (inner.parent, "cosh")):
        (folder / f"{op}.py").write_text(
            "from patcomp.patterns import lowering\n\n"
            f'@lowering("aten.{op}", name="my {op}")\n'
            "def f(op, c):\n"
            f"    return c.{op}(op['self'])\n"
        )
    monkeypatch.syspath_prepend(tmp_path)
    import my_catalog  # type: ignore[import-not-found]

    rules = TorchConverter(catalog=[my_catalog]).rules
    assert [entry.name for entry in list(rules)[:2]] == ["my cosh", "my sinh"]


def test_a_rule_set_is_a_catalog() -> None:
    assert "my sinh" in fired(convert(torch.sinh, RuleSet([my_lowering])))


def test_one_catalog_is_no_list_of_them() -> None:
    for single in (ModuleType("single"), RuleSet(), None, "single"):
        with pytest.raises(TypeError, match="catalog takes a list of modules"):
            TorchConverter(catalog=single)  # type: ignore[arg-type]


def test_what_a_rule_gives_and_raises_names_it() -> None:
    def gives_a_number(op: OpView, c: Coreai) -> Any:
        return c.relu(op["self"]) and 3

    def raises(op: OpView, c: Coreai) -> Any:
        return c.reluu(op["self"])

    exported = torch.export.export(torch.nn.ReLU(), (torch.randn(2, 3),))
    for function, error, words in (
        (gives_a_number, StageError, "returned 3 for aten.relu"),
        (raises, StageError, "failed: AttributeError: .*reluu"),
    ):
        rules = RuleSet([lowering("aten.relu", name="mine")(function)])
        converter = TorchConverter(catalog=[rules]).add_exported_program(exported)
        with pytest.raises(error, match=words) as caught:
            converter.to_coreai()
        assert "rule mine (patterns/test_user_catalogs.py:" in str(caught.value)
    assert "(op aten.relu, node %relu, " in str(caught.value)


def test_anything_else_is_not() -> None:
    with pytest.raises(TypeError, match=r"a catalog is a module, a package or a RuleSet, not 'my_rules.py'"):
        TorchConverter(catalog=["my_rules.py"])


# ---- order, names ---------------------------------------------------------------------------------


def _named(name: str, op: str, factor: float = 1.0, **options: Any) -> Any:
    @lowering(op, name=name, **options)
    def f(op, c):
        return c.broadcasting_mul(c.sinh(op["self"]), c.constant(factor))

    return f


def test_catalogs_are_tried_in_order_but_for_priorities() -> None:
    first, second = _named("first", "aten.sinh"), _named("second", "aten.sinh")
    assert "first" in fired(convert(torch.sinh, module(a=first), module(a=second)))
    urgent = _named("urgent", "aten.sinh", priority=1)
    assert "urgent" in fired(convert(torch.sinh, module(a=first), module(a=urgent)))


def test_a_rule_of_the_same_name_replaces_patcomps() -> None:
    name = next(r.name for r in TorchConverter().rules.procedural() if r.ops == ("aten.sinh",) or "aten.sinh" in r.ops)
    ops = TorchConverter().rules[name].ops  # type: ignore[union-attr]

    @lowering(*ops, name=name)
    def mine(op, c):
        return c.sinh(op["self"])

    rules = TorchConverter(catalog=[module(mine=mine)]).rules
    assert rules[name] is mine
    assert [r.name for r in rules].count(name) == 1


def test_a_name_that_patcomp_has_for_something_else_is_refused() -> None:
    with pytest.raises(RuleError, match=r"rule softmax \(.*\) has the name of one of patcomp's .* does not take aten"):
        TorchConverter(catalog=[module(mine=_named("softmax", "aten.sinh"))])
    stage = normalization("aten.sinh", name="softmax")(lambda op, a: None)
    with pytest.raises(RuleError, match="belongs to the stage lower, and this one to normalize; give it another name"):
        TorchConverter(catalog=[module(mine=stage)])


def test_two_catalogs_cannot_have_one_name() -> None:
    with pytest.raises(RuleError, match="two rules are called same"):
        TorchConverter(catalog=[module(a=_named("same", "aten.sinh")), module(a=_named("same", "aten.cosh"))])


def test_rules_can_be_left_out() -> None:
    def norm(x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)

    assert convert(norm).composites == {"rms_norm": 1}
    assert convert(norm, without=["rms_norm"]).composites == {}
    assert convert(lambda x: x / (x.abs() + 1), module(mine=recovered), without=["my softsign"]).composites == {}


def test_an_unknown_rule_cannot_be_left_out() -> None:
    with pytest.raises(ValueError, match="no rule is called 'rms_norms'; there are rms_norm, "):
        TorchConverter(without=["rms_norms"])
    with pytest.raises(TypeError, match="without takes a list of names"):
        TorchConverter(without="rms_norm")


def test_overlaps_are_reported() -> None:
    @rule(name="other softsign", into=TABLE, example={"x": "2x5xf32"})
    def other(a, c, x):
        return Rewrite(x / (a.abs(x) + 1.0), to=c.my_softsign(x, offset=1.0))

    program = convert(lambda x: x / (x.abs() + 1), module(mine=recovered, other=other))
    assert program.composites == {"my_softsign": 1}
    report = str(program.report())
    assert "overlapping rules: 1\n  my softsign and other softsign both match at %div at tests/patterns/" in report


# ---- installed catalogs ---------------------------------------------------------------------------


def install(folder: Path, name: str, code: str) -> None:
    """A package as an installer leaves it: a module, and metadata that names it as a catalog."""
    (folder / f"{name}.py").write_text(code)
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[patcomp.catalogs]\nrules = {name}\n")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages."""
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in ("plugin_a", "plugin_b"):
        sys.modules.pop(name, None)


PLUGIN = """
from patcomp.patterns import lowering

@lowering("aten.sinh", name="sinh of {name}")
def f(op, c):
    return c.sinh(op["self"])
"""


def test_installed_catalogs_are_found_in_order(site: Path) -> None:
    for name in ("plugin_b", "plugin_a"):
        install(site, name, PLUGIN.format(name=name))
    rules = [entry.name for entry in TorchConverter(catalog=[module(mine=my_lowering)]).rules]
    assert rules[:3] == ["my sinh", "sinh of plugin_a", "sinh of plugin_b"]
    assert "sinh of plugin_a" in fired(convert(torch.sinh))
    assert "sinh of plugin_a" not in fired(convert(torch.sinh, installed_catalogs=False))
    assert "sinh of plugin_b" in fired(convert(torch.sinh, without=["sinh of plugin_a"]))


def test_an_installed_catalog_may_declare_a_composite_by_a_function(site: Path) -> None:
    code = """
import patcomp

def softsign(x):
    return x / (x.abs() + 1)

rules = patcomp.composite("their_softsign", reference=softsign, example={"x": "2x3xf32"})
"""
    install(site, "plugin_a", code)
    assert convert(lambda x: x / (x.abs() + 1)).composites == {"their_softsign": 1}


def test_targets_of_installed_catalogs_are_known(site: Path) -> None:
    code = 'from patcomp.targets import Target\nshop = Target("shop", steps=("store prepared weights",))\n'
    install(site, "plugin_a", code)
    assert target_of("shop", None) == target_named("shop")
    exported = torch.export.export(torch.nn.Linear(4, 4), (torch.rand(2, 4),))
    assert TorchConverter().add_exported_program(exported).to_coreai(target="shop").module
    with pytest.raises(ValueError, match=r"there is no target 'shops'; there are .*'gpu'.*'shop'|'shop'.*'gpu'"):
        target_named("shops")
    with pytest.raises(ValueError, match=r"there is no target 'shop'; there are"):
        TorchConverter(installed_catalogs=False).add_exported_program(exported).to_coreai(target="shop")


def test_a_broken_installed_catalog_is_named(site: Path) -> None:
    install(site, "plugin_a", "import module_that_is_not_there\n")
    with pytest.raises(
        RuleError, match=r"catalog 'rules' \(plugin_a\) of the installed package plugin_a cannot be load"
    ):
        TorchConverter()
    TorchConverter(installed_catalogs=False)


# ---- determinism ----------------------------------------------------------------------------------


def test_conversions_with_a_catalog_are_the_same_and_share_their_indexes() -> None:
    catalog = module(**{str(index): entry for index, (entry, *_) in enumerate(EVERY_STAGE.values())})

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.sinh(x / (x.abs() + 1))

    assert str(convert(function, catalog)) == str(convert(function, catalog))
    first, second = TorchConverter(catalog=[catalog]), TorchConverter(catalog=[catalog])
    assert first.rules.stage("recover").index is second.rules.stage("recover").index
