"""`patcomp rule`: a skeleton for a new rule, and the tests that follow from a rule's declaration."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from keyword import iskeyword
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from patcomp.commands.common import (
    ANSWER_IS_NO,
    NOT_PROVED,
    Modules,
    UsageError,
    counted,
    hide_export_warnings,
    import_modules,
    load_catalog,
    say,
)
from patcomp.commands.progress import working
from patcomp.commands.tables import show
from patcomp.emit.files.replacement import check_writable

if TYPE_CHECKING:
    from types import ModuleType

    from patcomp.patterns import Rule, RuleSet
    from patcomp_lab.proof.counterexample import AssetRunner
    from patcomp_lab.proof.examination import CheckOutcome
    from patcomp_lab.proof.kept import KeptTests, ShownCheck


def new_rule(
    name: Annotated[str, typer.Argument(help="The name of the rule, and of the composite: my_norm.")],
    kind: Annotated[
        str, typer.Option(help="composite, reference, lowering, decomposition, normalize or optimize.")
    ] = "composite",
    op: Annotated[str | None, typer.Option(help="The one op that the rule takes, such as aten.cumsum.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The file; by default NAME.py.")] = None,
    modules: Modules = None,
) -> None:
    """Write the skeleton of a rule; change it at the places marked TODO, and test it with `patcomp rule test`.

    $ patcomp rule new my_norm --kind composite
    """
    from patcomp_lab.commands.skeletons import NEEDS_OP, RULE_KINDS, TAKES_OP, skeleton

    if not name.isidentifier() or iskeyword(name):
        raise UsageError(f"{name!r} cannot be the name of a Python function")
    if kind not in RULE_KINDS:
        raise UsageError(
            f"no kind of rule is called {kind}; there are {', '.join(RULE_KINDS)} (docs/kinds-of-rules.md)"
        )
    if op is None and kind in NEEDS_OP:
        raise UsageError(f"--kind {kind} needs --op: the op that the rule takes")
    if op is not None and kind not in TAKES_OP:
        raise UsageError(f"--kind {kind} has no --op; --op goes with {', '.join(TAKES_OP)}")
    import_modules(modules)
    path = output or Path(f"{name}.py")
    if path.exists():
        raise UsageError(f"the file {path} exists already; choose another with --output")
    check_writable(path)
    text = skeleton(kind, name, op)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    print(f"{path}: change what is marked TODO, then: patcomp rule test {path}")


def check_rules(
    file: Annotated[str, typer.Argument(help="A catalog: a file FILE.py, a module or a package.", show_default=False)],
    rule: Annotated[list[str] | None, typer.Option(help="Only the rule of this name.")] = None,
    runtime: Annotated[
        bool | None, typer.Option(help="Also run on the Core AI runtime; by default where coreai-core is installed.")
    ] = None,
    for_rewrite: Annotated[
        bool,
        typer.Option("--for-rewrite", help="The rules are for patcomp.rewrite: nothing is compiled to Core AI."),
    ] = False,
    anew: Annotated[
        bool, typer.Option("--anew", help="Test also the rules that passed before and did not change since.")
    ] = False,
    modules: Modules = None,
) -> None:
    """Run the tests that follow from each rule's declaration and examples; show counterexamples.

    What passed is kept until the catalog, a module that it imports, patcomp or a library changes.

    $ patcomp rule test my_rules.py
    $ patcomp rule test my_rules.py --no-runtime
    $ patcomp rule test my_rules.py --for-rewrite
    """
    from patcomp.patterns.user_catalogs import rules_of

    hide_export_warnings()
    import_modules(modules)
    module = load_catalog(file)
    rules = rules_of(module)
    if unknown := [name for name in rule or () if name not in rules]:
        known = ", ".join(item.name for item in rules) or "no rules"
        raise UsageError(f"{file} has no rule {', '.join(unknown)}; it has {known}")
    if not len(rules):
        raise UsageError(f"{file} has no rules")
    from patcomp_lab.proof.kept import KeptTests
    from patterns_catalog import default_rules

    catalog = default_rules().preceded_by(rules, override=True)
    chosen = [item for item in rules if not rule or item.name in rule]
    failed = unproved = 0
    with _runtime(runtime) as runner:
        kept = KeptTests.of(module, runner is not None, for_rewrite)
        for number, item in enumerate(chosen):
            wrong: list[CheckOutcome] = []
            before = None if anew else kept.get(item.name)
            checks = before or []
            if before is None:
                with working(f"testing rule {item.name}", counts=True) as advance:
                    advance(number, len(chosen))
                    outcomes = _outcomes(item, catalog, module, runner, for_rewrite)
                wrong, checks = [each for each in outcomes if each.failure is not None], list(map(_shown, outcomes))
                if not wrong:
                    _keep(kept, item.name, checks)
            _show(item.name, checks, wrong, before=before is not None)
            failed += bool(wrong)
            unproved += not wrong and any(check.is_unproved for check in checks)
    text = f"{counted(len(rule or list(rules)), 'rule')}, {failed or 'none'} of them wrong"
    print(f"{text}, {unproved} not proved" if unproved else text)
    if failed:
        sys.exit(ANSWER_IS_NO)
    if unproved:
        sys.exit(NOT_PROVED)


def _outcomes(
    item: Rule, catalog: RuleSet, module: ModuleType, runner: AssetRunner | None, for_rewrite: bool
) -> list[CheckOutcome]:
    """The tests of a rule, and what its examples become in a conversion."""
    from patcomp_lab.proof.converted import converted_checks
    from patcomp_lab.proof.examination import examine

    checks = examine(item, catalog, runner, compiles=not for_rewrite)
    if not for_rewrite and all(check.failure is None for check in checks):  # a conversion would show the same
        checks += converted_checks(item, [module], runner)
    return checks


def _keep(kept: KeptTests, rule: str, shown: list[ShownCheck]) -> None:
    try:
        kept.put(rule, shown)
    except OSError as error:
        say(f"note: the tests of {rule} are not kept for the next time: {error}")


def _is_unproved(check: CheckOutcome) -> bool:
    return check.verdict is not None and not check.verdict.strength.is_proof


def _shown(check: CheckOutcome) -> ShownCheck:
    from patcomp_lab.proof.kept import ShownCheck

    proof = "" if check.verdict is None else str(check.verdict)
    return ShownCheck(check.name, check.runs, _result(check), proof, _is_unproved(check))


def _show(name: str, checks: list[ShownCheck], failures: list[CheckOutcome], *, before: bool) -> None:
    from patcomp_lab.proof.counterexample import WrongRuleError

    title = f"rule {name}" + (", as tested before (--anew)" if before else "")
    table = Table("tests", title=title, title_justify="left")
    table.add_column("programs", justify="right")
    table.add_column("result")
    for check in checks:
        table.add_row(check.name, str(check.programs), check.result)
    show(table)
    for check in checks:
        if check.proof:
            Console(soft_wrap=True).print(f"proof: {check.proof}\n", markup=False, highlight=False)
    shown: set[str] = set()
    for wrong in failures:
        failure = wrong.failure
        if (heading := getattr(failure, "headline", str(failure))) in shown:
            continue
        shown.add(heading)
        kind = "counterexample" if isinstance(failure, WrongRuleError) else "failure"
        Console(soft_wrap=True).print(f"{kind}, {wrong.name}: {failure}\n", markup=False, highlight=False)


def _result(check: CheckOutcome) -> str:
    if check.failure is not None:
        return "WRONG"
    if _is_unproved(check):
        return "NOT PROVED"
    if not check.unspecified:
        return "ok" if check.runs else "PyTorch or the rule refuses them"
    return f"{'first result ok, the others' if check.runs else ''} not compared: {check.unspecified}".strip()


@contextlib.contextmanager
def _runtime(wanted: bool | None) -> Iterator[AssetRunner | None]:
    """The runtime in a child process; None if the tests do not use it.

    Raises:
        UsageError: `--runtime` is given, but `coreai-core` is not installed.
    """
    from patcomp.emit.native import Native
    from patcomp.emit.toolchain.library import has_toolchain

    if wanted and not has_toolchain():
        raise UsageError('--runtime needs coreai-core: pip install "patcomp[coreai]"')
    if wanted is False or not has_toolchain():
        yield None
        return
    with contextlib.closing(Native()) as native:
        yield native.run
