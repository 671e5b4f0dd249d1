"""Makes a failing program smaller: fewer outputs and statements, values of statements as inputs, no open sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

from tests.fuzz.program import Given, Program


def shrunk(program: Program, fails: Callable[[Program], bool], tries: int = 80) -> Program:
    """The smallest program that was found to fail in the same way, after so many tries."""
    smaller = True
    while smaller and tries > 0:
        smaller = False
        for candidate in _smaller(program):
            tries -= 1
            if _size(candidate) < _size(program) and fails(candidate):
                program, smaller = candidate, True
                break
            if tries <= 0:
                break
    return program


def _size(program: Program) -> tuple[int, ...]:
    open_sizes = sum(isinstance(size, str) for given in program.givens for size in given.shape)
    decomposed = program.form != "not decomposed"
    return len(program.statements), len(program.outputs), len(program.symbols), open_sizes, decomposed


def _smaller(program: Program) -> Iterator[Program]:
    if len(program.outputs) > 1:
        for output in dict.fromkeys(program.outputs):
            yield replace(program, outputs=(output,)).pruned()
    for index in reversed(range(len(program.statements))):
        yield from _without(program, index)
    if len(program.outputs) > 1:
        for index in range(len(program.outputs)):
            yield replace(program, outputs=program.outputs[:index] + program.outputs[index + 1 :]).pruned()
    for name in program.symbols:
        yield _fixed(program, name)
    if program.form != "not decomposed":
        yield replace(program, form="not decomposed")


def _without(program: Program, index: int) -> Iterator[Program]:
    """The program without a statement; what it computes becomes an output or an input instead."""
    statement = program.statements[index]
    rest = program.statements[:index] + program.statements[index + 1 :]
    if statement.result is None:
        yield replace(program, statements=rest).pruned()
        return
    before = replace(program, statements=program.statements[: index + 1], outputs=(statement.result,))
    if index + 1 < len(program.statements):
        yield before.pruned()
    given = _as_input(before, statement.result)
    if given is not None:
        yield replace(program, givens=(*program.givens, given), statements=rest).pruned()


def _as_input(before: Program, name: str) -> Given | None:
    """An input with the value that the last statement of a program has, or, where its size is open, its type."""
    try:
        with torch.no_grad():
            tensors = [
                before.model()(*before.arguments(sizes))[0]
                for sizes in (
                    {name: symbol.example + step for name, symbol in before.symbols.items()} for step in (0, 1)
                )
            ]
    except (RuntimeError, IndexError, ValueError):
        return None
    tensor, other = tensors
    by_size = {symbol.example: name for name, symbol in before.symbols.items()}
    shape: list[int | str] = list(tensor.shape)
    for axis, (size, next_size) in enumerate(zip(tensor.shape, other.shape, strict=True)):
        if size != next_size:
            if next_size != size + 1 or size not in by_size:
                return None
            shape[axis] = by_size[size]
    literal = tensor.tolist() if tensor.shape == other.shape and tensor.numel() <= 100 else None
    return Given(name, "input", tuple(shape), tensor.dtype, literal=literal)


def _fixed(program: Program, name: str) -> Program:
    """The program with the size of the example in place of a symbol."""
    size = program.symbols[name].example
    givens = tuple(
        replace(given, shape=tuple(size if dim == name else dim for dim in given.shape)) for given in program.givens
    )
    return replace(program, givens=givens, symbols={n: s for n, s in program.symbols.items() if n != name})
