"""`patcomp defects`: the defects of the toolchain, and which of them the installed version has."""

from __future__ import annotations

from typing import Annotated

import typer

from patcomp.commands.common import AsJson, print_json
from patcomp.commands.tables import print_table

_HEADINGS = ("defect", "what the toolchain does", "seen in", "patcomp", "state")


def defects(
    probe: Annotated[
        bool, typer.Option("--probe", help="Run the programs that show the defects, each in a child process.")
    ] = False,
    json: AsJson = False,
) -> None:
    """List the known defects of coreai-core, what patcomp does about each, and its state on the installed version.

    Raises:
        MissingToolchainError: `--probe` is given, and `coreai-core` is not installed.
    """
    from patcomp.defects import installed_version, known_defects

    version = installed_version()
    states = {defect.name: defect.state(version) for defect in known_defects()}
    if probe:
        from patcomp.emit.probing import probe as run_probes

        states = {finding.defect.name: finding.state for finding in run_probes(known_defects())}
    rows = [
        (defect.name, defect.says, ", ".join(defect.seen_in), defect.action, states[defect.name])
        for defect in known_defects()
    ]
    if json:
        keys = [heading.replace(" ", "_") for heading in _HEADINGS]
        print_json({"coreai-core": version, "defects": [dict(zip(keys, row, strict=True)) for row in rows]})
        return
    print_table(_HEADINGS, rows)
    print(f"coreai-core {version}" if version else "coreai-core is not installed: all defects are on")
