"""Attentions as models write them, and how their conversions are compared."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import patcomp
from patcomp import TorchConverter
from patcomp.program.program import AIProgram


def export(module: nn.Module, tensors: tuple[torch.Tensor, ...], *, default_table: bool = False) -> Any:
    """The program of a module, decomposed with patcomp's table or PyTorch's."""
    table = None if default_table else patcomp.get_decomp_table()
    return torch.export.export(module, tensors).run_decompositions(table)


def convert(exported: Any, *without: str) -> AIProgram:
    """The converted program, without some rules."""
    converter = TorchConverter()
    if without:
        converter.rules = converter.rules.without(*without)
    return converter.add_exported_program(exported).to_coreai()


def attentions(program: AIProgram) -> int:
    """How many calls of the composite a program makes."""
    return program.composites.get("scaled_dot_product_attention", 0)


def attention_graph(program: AIProgram) -> Any:
    """The graph of the only attention of a program."""
    (graph,) = [g for g in program.module.graphs if g.properties["sym_name"].data.startswith("scaled_dot_product")]
    return graph


def input_types(program: AIProgram) -> list[str]:
    """The types of query, key, value and mask of the only attention of a program."""
    return [str(value.type) for value in attention_graph(program).regions[0].block.args]


def assert_equal(program: AIProgram, module: nn.Module, tensors: tuple[torch.Tensor, ...], tolerance: float) -> None:
    """The results of a program on the evaluator are eager's."""
    with torch.no_grad():
        expected = torch.utils._pytree.tree_leaves(module(*tensors))
    given = program.run(dict(zip(program.input_names(), tensors, strict=True)))
    for name, reference in zip(program.output_names(), expected, strict=True):
        torch.testing.assert_close(given[name], reference, rtol=tolerance, atol=tolerance, equal_nan=True)
