"""Short ways to write a program of one graph as text."""

from __future__ import annotations

from patcomp.ir import IRModule


def graph_text(
    arguments: str, body: str, results: str, *, name: str = "main", keywords: str = "", named: bool = True
) -> str:
    """A graph that returns `%y` (`%y0`, `%y1`, ... when there are several results).

    Args:
        arguments: such as `"%x: tensor<2xf32>, %w: tensor<2xf32>"`; named after themselves.
        body: the ops.
        results: types, separated by `;`.
    """
    listed = [part.strip() for part in arguments.split(", %")] if arguments else []
    listed = [part if part.startswith("%") else f"%{part}" for part in listed]
    types = [part.strip() for part in results.split(";")] if results else []
    values = ["%y"] * len(types) if len(types) < 2 else [f"%y{index}" for index in range(len(types))]
    if named:
        listed = [f'{part} {{coreai.name = "{part[1 : part.index(":")]}"}}' for part in listed]
    outputs = list(types)
    if named:
        outputs = [f'{type_} {{coreai.name = "{v[1:]}"}}' for v, type_ in zip(values, types, strict=True)]
    arrow = f" -> ({', '.join(outputs)})" if outputs else ""
    terminator = f"coreai.output {', '.join(values)} : {', '.join(types)}" if types else "coreai.output"
    return f"coreai.graph {keywords} @{name}({', '.join(listed)}){arrow} {{\n{body}\n{terminator}\n}}\n"


def program(arguments: str, body: str, results: str, **options: object) -> IRModule:
    """The module of `graph_text`."""
    return IRModule.parse(graph_text(arguments, body, results, **options))  # type: ignore[arg-type]
