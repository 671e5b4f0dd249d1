"""Reference runs for Core AI Debugger: the values of the exported model, and the ops of an asset that compute them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from patcomp.emit.files.intermediates import check_intermediates_path, write_intermediates
from patcomp.errors import AssetError
from patcomp.ir.debug_facts import DebugFacts
from patcomp.program.history import known_history
from patcomp.program.running import drawn_inputs, prepared

if TYPE_CHECKING:
    from patcomp.program.data import ProgramData


def save_intermediates(
    program: ProgramData, path: Path, inputs: Any, entrypoint: str, asset: str | Path | None
) -> Path:
    """`AIProgram.save_intermediates`."""
    from patcomp.evaluate.inputs import call_arguments, named_arguments

    check_intermediates_path(path)
    positional, keywords = call_arguments(inputs)
    draws = {name: keywords.pop(name) for name in program.draws.get(entrypoint, ()) if name in keywords}
    values = {**named_arguments(program.signature(entrypoint), positional, keywords), **draws}
    values |= drawn_inputs(program, values, entrypoint, 0)
    prepared(program, values, entrypoint, {})  # checks them; the model takes its own types
    history = known_history(program.history)
    facts = history.debug_facts()
    found = _mappings(program, facts, entrypoint, asset)
    names = found["sources"]["torch"]
    computed = {names[str(each["source_op_id"])]["identifiers"][0] for each in found["outputs"]}
    write_intermediates(path, history.reference_run(entrypoint, values, computed), found)
    return path


def _mappings(program: ProgramData, facts: DebugFacts, entrypoint: str, asset: str | Path | None) -> dict[str, Any]:
    """Which results of the nodes of an entry point are which results of the ops of an asset.

    Raises:
        AssetError: the asset has no debug information, or that of another model.
    """
    from patcomp.emit.files.replacement import check_asset
    from patcomp.emit.stored.debug_info import node_numbers
    from patcomp.emit.stored.debug_mappings import mappings
    from patcomp.emit.stored.folder import read_folder
    from patcomp.emit.stored.storing import stored_program

    if asset is None:
        stored = stored_program(program.module, facts)
    else:
        check_asset(Path(asset))
        stored = read_folder(Path(asset))
    nodes, outputs = mappings(stored)
    known = {number: key for key, number in node_numbers(facts).items()}
    if asset is not None:
        if not nodes:
            raise AssetError(f"{asset} has no debug information; save it with debug_info=True (--debug-info)")
        other = next((name for number, name in nodes.items() if known.get(number, ("", ""))[1] != name), None)
        if other is not None:
            raise AssetError(
                f"{asset} was made of another model, or has other entry points: its node {other} is not this program's"
            )
    own = {number: name for number, name in nodes.items() if known[number][0] == entrypoint}
    return {
        "sources": {
            "torch": {
                str(number): {"dialect": "torch", "id": number, "identifiers": [name]} for number, name in own.items()
            }
        },
        "outputs": [
            {
                "source_level": "torch",
                "source_op_id": each.node,
                "source_output": each.node_output,
                "target_level": "coreai",
                "target_op_id": each.op,
                "target_output": each.op_output,
            }
            for each in outputs
            if each.node in own
        ],
    }
