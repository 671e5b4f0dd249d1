"""`patcomp explain`, `why-not`, `demo`: ask about a conversion, and see one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from patcomp.commands.common import ANSWER_IS_NO, hide_export_warnings, tell
from patcomp.commands.models import Anything, ModelArgument, ModelOptions, convert_model
from patcomp.commands.options import takes_options
from patcomp.commands.subjects import CONVERTED, MODELS, subject_of


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the asset and the stage dumps.")] = Path(
        "out/demo"
    ),
) -> None:
    """Convert a small Llama of transformers, and show the stages, composites and numbers.

    $ patcomp demo -o out
    """
    hide_export_warnings()
    from patcomp.commands.demo import run_demo

    if not run_demo(Console(), output):
        sys.exit(ANSWER_IS_NO)


@takes_options
def explain(
    model: Anything,
    what: Annotated[str, typer.Argument(help="A value (%mul_3), an FX node (mul_3) or a source line (model.py:12).")],
    *,
    options: ModelOptions,
) -> None:
    """Show which rules made an op of the converted program, and the model's nodes and lines that it comes from.

    Of an asset or a text, only the lines are known.

    $ patcomp explain nets.py:net %mul_3
    $ patcomp explain net.pt2 model.py:12
    """
    if subject_of(model, "explain", (*MODELS, *CONVERTED)) in MODELS:
        tell(convert_model(model, "explain", options).explain(what))
        return
    from patcomp.commands.programs import program_of
    from patcomp.patterns import RuleSet
    from patcomp.questions.programs import explain as explained

    tell(explained(program_of(model, "explain", options)[0], RuleSet(()), what))


@takes_options
def why_not(
    rule: Annotated[str, typer.Argument(help="A rule's name, as `patcomp catalog list` shows it.")],
    model: ModelArgument,
    *,
    options: ModelOptions,
) -> None:
    """Show where a rule came closest to matching, and what prevented the match.

    An asset does not have the stages in which rules match, so only models are taken.

    $ patcomp why-not rms_norm nets.py:net
    """
    tell(convert_model(model, "why-not", options).why_not(rule))
