"""The subcommand `patcomp save-onnx`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from patcomp.commands.assets import Entrypoint
from patcomp.commands.common import Fix, UsageError, fixed_sizes, say
from patcomp.commands.help import CONVERT
from patcomp.commands.models import ModelArgument, ModelOptions, converted_model, load_sources
from patcomp.commands.options import takes_options
from patcomp.commands.packages import Commands
from patcomp.commands.progress import working
from patcomp.emit.files.replacement import check_writable
from patcomp.errors import PatcompError


@takes_options
def save_onnx(
    model: ModelArgument,
    output: Annotated[Path, typer.Option("--output", "-o", help="The file, FILE.onnx.", show_default=False)],
    entrypoint: Entrypoint = None,
    fix: Fix = None,
    *,
    options: ModelOptions,
) -> None:
    """Convert a model and write it as an ONNX file, whose functions are the composites.

    Weights of more than 2 GiB are in a second file, FILE.onnx.data.

    $ patcomp save-onnx nets.py:net -o net.onnx
    """
    if output.suffix != ".onnx":
        raise UsageError(f"--output must end in .onnx, got {output}")
    check_writable(output)
    try:
        from patcomp import onnx
        from patcomp.onnx.emission import model as _  # noqa: F401  # before the long conversion
    except ImportError as error:
        raise PatcompError(f"ONNX files need the package onnx: {error}; pip install 'patcomp[onnx]'") from error
    with working(f"converting {model}"):
        program = converted_model(load_sources(model, "save-onnx", options), options, fixed=fixed_sizes(fix))
    with working(f"writing {output}"):
        onnx.save_onnx(program, output, entrypoint=entrypoint or program.entrypoints[0])
    say(f"wrote {output}")


class OnnxCommands(Commands):
    """`patcomp save-onnx`."""

    def add_to(self, app: typer.Typer) -> None:
        app.command("save-onnx", rich_help_panel=CONVERT)(save_onnx)


COMMANDS = OnnxCommands()
