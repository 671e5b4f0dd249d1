"""`patcomp prove`: prove that the stages of a conversion compute what the imported program computes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from patcomp.commands.assets import Entrypoint
from patcomp.commands.common import ANSWER_IS_NO, AsJson, Fix, fixed_sizes, print_json, tell
from patcomp.commands.convert_options import target_of
from patcomp.commands.models import ModelArgument, ModelOptions, converted_model, load_sources
from patcomp.commands.options import takes_options
from patcomp.commands.progress import working
from patcomp.commands.verification import chosen_sources
from patcomp.program.proof_of_run import ProofOfRun, StageProof


@takes_options
def prove(
    model: ModelArgument,
    target: Annotated[
        str | None,
        typer.Option(help="Prove the conversion for a device: cpu, gpu, neural_engine, or one of a catalog."),
    ] = None,
    fix: Fix = None,
    entrypoint: Entrypoint = None,
    json: AsJson = False,
    *,
    options: ModelOptions,
) -> None:
    """Prove that each stage of a model's conversion equals the program before it, for all inputs, up to rounding.

    The exit code is 3 if a stage is wrong or not proved.

    $ patcomp prove nets.py:net
    """
    with working(f"converting {model}"):
        sources = load_sources(model, "prove", options)
        program = converted_model(
            sources, options, target=target_of(target, None, options.catalog), fixed=fixed_sizes(fix)
        )
    stages: dict[str, Sequence[StageProof]] = {}
    sizes: dict[str, str] = {}
    with working(f"proving {model}"):
        for each in chosen_sources(sources, entrypoint):
            inputs = None if each.exported.example_inputs is None else each.inputs_for(program)
            made = program.prove(inputs, entrypoint=each.entry)
            stages |= made.stages
            sizes |= made.sizes
    proof = ProofOfRun(stages, sizes)
    if json:
        print_json(proof.to_dict())
    else:
        tell(proof)
    if not proof:
        sys.exit(ANSWER_IS_NO)
