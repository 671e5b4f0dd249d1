"""Programs that coreai-core parses, verifies and writes: text in MLIR's generic form, and buffers, never copied."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from patcomp.emit.files.metadata import set_creation_date
from patcomp.emit.files.replacement import check_space
from patcomp.emit.toolchain.hand_over import HandOver, hand_over_text
from patcomp.emit.toolchain.library import toolchain
from patcomp.errors import AssetError
from patcomp.ir.module import IRModule
from patcomp.ir.pages import releasing

BLOB_ALIGNMENT = 16
"""Alignment in bytes of weights in the asset; the loader aborts on a larger one, as it reads up to that address."""


@contextmanager
def handed_over(
    program: HandOver, metadata: Callable[[Any], Any], name: str, date: str | None
) -> Iterator[Callable[[Path], None]]:
    """Pass a program to the toolchain; yield a function that writes it as a new folder."""
    tools = toolchain()
    with tools.Context()._mlir_context:
        module = parsed(tools, program.text)
        size = 2 * len(program.text) + _attach_weights(tools, program, module)
        made = metadata(tools.AIModelAssetMetadata)

        def write(folder: Path) -> None:
            check_space(folder.parent, size)
            try:
                with releasing(program.weights.values()):
                    tools.AIProgram._from_mlir_module(module).save_asset(folder, made)
            except RuntimeError as error:
                cause = error.__cause__ or error
                raise AssetError(
                    f"the toolchain cannot save the program as {name}", tuple(str(cause).splitlines())
                ) from error
            if date is not None:
                set_creation_date(folder, date)

        yield write


def parsed(tools: SimpleNamespace, text: str) -> Any:
    """A module of MLIR of a text in either form.

    Raises:
        AssetError: the toolchain rejects it.
    """
    try:
        return tools.ir.Module.parse(text)
    except tools.ir.MLIRError as error:
        raise AssetError("the toolchain rejects the program", tuple(_messages(error, text))) from error


def _messages(error: Any, text: str) -> Iterator[str]:
    """The diagnostics of a parse, each with its line of text."""
    lines = text.splitlines()
    for diagnostic in error.error_diagnostics:
        place = str(diagnostic.location)
        number = place.rpartition('":')[2].partition(":")[0]
        source = lines[int(number) - 1].strip() if number.isdigit() and 0 < int(number) <= len(lines) else place
        yield f"{diagnostic.message} [{source[:300]}]"


def _attach_weights(tools: SimpleNamespace, program: HandOver, module: Any) -> int:
    """Attach a buffer to each resource constant of the parsed program; weights of equal content share one.

    Returns:
        The total size of the buffers in bytes.
    """
    size = 0
    attached: dict[tuple[str, str], Any] = {}
    keys = iter(program.constants)
    resource = tools.ir.DenseResourceElementsAttr
    for op in _inner_operations(module.operation):
        if op.name != "coreai.constant" or not resource.isinstance(op.attributes["value"]):
            continue
        key = next(keys)
        type_ = op.results[0].type
        attribute = attached.get((key, str(type_)))
        if attribute is None:
            data = np.frombuffer(program.weights[key], dtype=np.uint8)
            attribute = attached[key, str(type_)] = resource.get_from_buffer(data, key, type_, BLOB_ALIGNMENT)
            size += len(data)
        op.attributes["value"] = attribute
    return size


def _inner_operations(op: Any) -> Iterator[Any]:
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield inner.operation
                yield from _inner_operations(inner.operation)


def parse_with_toolchain(module: IRModule, *, pretty: bool = False) -> tuple[str, ...]:
    """The diagnostics of the real parser and verifier for a module's text; empty when it is accepted.

    Args:
        module: the program; its weights are not needed.
        pretty: parse the pretty form instead of the generic one.

    Raises:
        MissingToolchainError: `coreai-core` is not installed.
    """
    return parser_diagnostics(module.text() if pretty else hand_over_text(module))


def parser_diagnostics(text: str) -> tuple[str, ...]:
    """The diagnostics of the real parser and verifier for a text in either form; empty when it is accepted.

    Raises:
        MissingToolchainError: `coreai-core` is not installed.
    """
    tools = toolchain()
    with tools.Context()._mlir_context:
        try:
            parsed(tools, text)
        except AssetError as error:
            return error.diagnostics or (str(error),)
    return ()
