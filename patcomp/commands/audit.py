"""`patcomp audit`: list the constructs of a program that do not suit a device."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from patcomp.commands.common import (
    ANSWER_IS_NO,
    AsJson,
    Fix,
    SizesOption,
    UsageError,
    fixed_sizes,
    print_json,
    several_sizes,
    tell,
)
from patcomp.commands.convert_options import target_of
from patcomp.commands.models import Anything, ModelOptions, converted_model, load_sources
from patcomp.commands.options import takes_options
from patcomp.commands.programs import program_of
from patcomp.commands.subjects import CONVERTED, MODELS, subject_of

if TYPE_CHECKING:
    from patcomp.questions.findings import Audit
    from patcomp.targets import Target


@takes_options
def audit(
    program: Anything,
    target: Annotated[str, typer.Option(help="cpu, gpu, neural_engine, or one of a catalog.")],
    without: Annotated[
        list[str] | None, typer.Option(help="Leave a rule or step of the target out; may be given several times.")
    ] = None,
    fix: Fix = None,
    sizes: SizesOption = None,
    run: Annotated[
        bool,
        typer.Option("--run", help="Run a model with its example inputs, and name the ops that overflow float16."),
    ] = False,
    json: AsJson = False,
    *,
    options: ModelOptions,
) -> None:
    """List the constructs of a program that do not suit a device, with their places and the rules that rewrite them.

    The exit code is 3 if there is more than advice.

    $ patcomp audit nets.py:net --target neural_engine --fix length=128
    $ patcomp audit net.aimodel --target gpu
    """
    from patcomp.questions.audit import audit as audited
    from patterns_catalog import default_rules

    chosen, fixed = target_of(target, without, options.catalog), fixed_sizes(fix)
    assert chosen is not None
    if sizes:
        if run:
            raise UsageError("--run and --sizes exclude each other; fix one size with --fix to run it")
        _show_each(_of_each_size(program, options, chosen, fixed, several_sizes(sizes)), as_json=json)
        return
    if run:
        found = _run(program, options, chosen, fixed)
    else:
        module, _ = program_of(program, "audit", options, target=chosen, fixed=fixed)
        found = audited(module, chosen, default_rules())
    if json:
        print_json(found.to_dict())
    else:
        tell(found)
    if not found.clean:
        sys.exit(ANSWER_IS_NO)


def _show_each(found: Mapping[str, Audit], *, as_json: bool) -> None:
    """Print the audit of each entry point; the command ends with its answer."""
    if as_json:
        print_json({name: each.to_dict() for name, each in found.items()})
    else:
        for name, each in found.items():
            tell(f"{name}  {each}")
    if not all(each.clean for each in found.values()):
        sys.exit(ANSWER_IS_NO)


def _of_each_size(
    name: str, options: ModelOptions, target: Target, fixed: Mapping[str, int], sizes: Mapping[str, Sequence[int]]
) -> dict[str, Audit]:
    """The audits of a model that is converted for the target, with an entry point for each size."""
    if (found := subject_of(name, "audit", (*MODELS, *CONVERTED))) not in MODELS:
        raise UsageError(f"--sizes goes with a model, whose sizes are fixed when it is converted; {name} is {found}")
    sources = load_sources(name, "audit", options)
    return converted_model(sources, options, target=target, fixed=fixed, sizes=sizes).audit_each(target)


def _run(name: str, options: ModelOptions, target: Target, sizes: Mapping[str, int]) -> Audit:
    """The audit of a model that is converted for the target, and run; of its first function if it has several."""
    if (found := subject_of(name, "audit", (*MODELS, *CONVERTED))) not in MODELS:
        raise UsageError(f"--run takes a model, which has example inputs, and {name} is {found}")
    sources = load_sources(name, "audit", options)
    program = converted_model(sources, options, target=target, fixed=sizes)
    return program.audit(target, sources[0].inputs_for(program), entrypoint=sources[0].entry)
