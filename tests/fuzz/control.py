"""Control flow as random programs call it: PyTorch's operators when exported, plain Python otherwise.

Outside export, `torch.cond` compiles its branches, which takes seconds. The scripts of failing programs contain
the source of this file below its docstring.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._higher_order_ops import scan as torch_scan
from torch._higher_order_ops import while_loop as torch_while_loop


def cond(
    predicate: torch.Tensor, true: Callable[..., Any], false: Callable[..., Any], operands: tuple[Any, ...]
) -> Any:
    if torch.compiler.is_exporting():
        return torch.cond(predicate, true, false, operands)
    return (true if bool(predicate) else false)(*operands)


def while_loop(condition: Callable[..., Any], body: Callable[..., Any], carried: tuple[Any, ...]) -> Any:
    if torch.compiler.is_exporting():
        return torch_while_loop(condition, body, carried)
    while bool(condition(*carried)):
        carried = body(*carried)
    return carried


def scan(step: Callable[..., Any], carried: Any, rows: Any, reverse: bool = False) -> Any:
    if torch.compiler.is_exporting():
        return torch_scan(step, carried, rows, reverse=reverse)
    results = []
    for row in reversed(rows) if reverse else rows:
        carried, result = step(carried, row)
        results.append(result)
    return carried, torch.stack(results[::-1] if reverse else results)
