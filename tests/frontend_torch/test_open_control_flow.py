"""Control flow over tensors of open sizes: how often a loop runs, and how large its results are, follows from them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._higher_order_ops import while_loop
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.scan import scan
from torch.export import Dim

from patcomp import TorchConverter, UnsupportedError
from patcomp.emit.native import Native
from tests.frontend_torch.branches import Captures, assert_agrees, zero
from tests.helpers.as_users_run import AS_USERS_RUN

pytestmark = AS_USERS_RUN

N, K = Dim("n", min=4, max=9), Dim("k", min=4, max=9)
ROWS: Any = ({0: N},)
BOTH: Any = ({0: N, 1: K},)

Case = tuple[Callable[..., Any], Callable[[int, int], tuple[torch.Tensor, ...]], Any]


def recurrence(m: Captures, rows: torch.Tensor) -> Any:
    return scan(lambda c, x: (torch.tanh(m.linear(c) + x), c + x), torch.zeros(3), rows)


def back_along_columns(m: Captures, columns: torch.Tensor) -> Any:
    """The number of steps and the size of what is carried are open."""
    return scan(lambda c, x: (c * 0.5 + x, c * 2), torch.zeros_like(columns[:, 0]), columns, dim=1, reverse=True)


def longer_rows(m: Captures, rows: torch.Tensor) -> Any:
    """Results whose rows have an open size that no input has."""
    return scan(lambda c, x: (c + x, torch.cat([c, x])), torch.zeros_like(rows[0]), rows)


def several(m: Captures, rows: torch.Tensor, others: torch.Tensor) -> Any:
    def combine(c: torch.Tensor, x: list[torch.Tensor]) -> Any:
        return c * 0.5 + x[0].sum(), (x[1] * c, x[0] > 0, (x[0] * 2).int())

    return scan(combine, torch.zeros(()), [rows, others])


def of_a_computed_size(m: Captures, rows: torch.Tensor) -> Any:
    return scan(lambda c, x: (c + x, c * 2), torch.zeros(3), torch.cat([rows, rows]))


def scan_in_scan(m: Captures, x: torch.Tensor) -> Any:
    def combine(c: torch.Tensor, rows: torch.Tensor) -> Any:
        return scan(lambda d, y: (d + y, d * y), c, rows)

    return scan(combine, torch.zeros(2), x)


def scan_in_conditional(m: Captures, rows: torch.Tensor) -> Any:
    def scanned(rows: torch.Tensor) -> torch.Tensor:
        return scan(lambda c, x: (c + x, c * 0.5 + x), torch.zeros(3), rows)[1]

    return torch.cond(rows.sum() > 0, scanned, lambda rows: rows * 2, (rows,))


def mapped(m: Captures, x: torch.Tensor) -> Any:
    return map_rows(lambda rows: (rows + 1, map_rows(lambda row: row.sum(), rows)), x)


def prefixes(m: Captures, rows: torch.Tensor) -> Any:
    return torch.ops.higher_order.associative_scan(lambda a, b: [a * b], [rows], ())


def while_of_a_size(m: Captures, rows: torch.Tensor) -> Any:
    return while_loop(lambda i, x: i < rows.shape[0], lambda i, x: (i + 1, x * 2 + i), (zero(), rows * 1))


def scan_in_while(m: Captures, rows: torch.Tensor) -> Any:
    def body(i: torch.Tensor, rows: torch.Tensor) -> Any:
        return i + 1, scan(lambda c, x: (c + x, c * 0.5 + x), torch.zeros(3), rows)[1]

    return while_loop(lambda i, rows: i < 3, body, (zero(), rows * 1))


CASES: dict[str, Case] = {
    "scan": (recurrence, lambda n, k: (torch.randn(n, 3),), ROWS),
    "scan back along 1": (back_along_columns, lambda n, k: (torch.randn(n, k),), BOTH),
    "scan that makes longer rows": (longer_rows, lambda n, k: (torch.randn(n, k),), BOTH),
    "scan of several": (several, lambda n, k: (torch.randn(n, 3), torch.randn(n, 5)), (*ROWS, *ROWS)),
    "scan of a computed size": (of_a_computed_size, lambda n, k: (torch.randn(n, 3),), ROWS),
    "scan in scan": (scan_in_scan, lambda n, k: (torch.randn(n, k, 2),), BOTH),
    "scan in cond": (scan_in_conditional, lambda n, k: (torch.randn(n, 3),), ROWS),
    "map in map": (mapped, lambda n, k: (torch.randn(n, k, 2),), BOTH),
    "associative_scan": (prefixes, lambda n, k: (torch.randn(n, k),), BOTH),
    "while": (while_of_a_size, lambda n, k: (torch.randn(n, 3),), ROWS),
    "scan in while": (scan_in_while, lambda n, k: (torch.randn(n, 3),), ROWS),
}


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_eager_at_every_size(name: str, native: Native) -> None:
    function, inputs, dynamic = CASES[name]
    model = Captures(function).eval()
    torch.manual_seed(0)
    exported = torch.export.export(model, inputs(5, 6), dynamic_shapes={"args": dynamic})
    program = TorchConverter().add_exported_program(exported).to_coreai()
    assert "coreai.while" in str(program)
    for n, k in ((4, 4), (5, 9), (9, 5)):
        assert_agrees(model, program, inputs(n, k), native)


def branches_of_other_sizes(m: Captures, x: torch.Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda x: x[:2] * 2, lambda x: x + 1, (x,))


def loop_with_a_bool(m: Captures, x: torch.Tensor) -> Any:
    return while_loop(lambda again, x: again, lambda again, x: (False, x * 2), (True, x * 1))


def scan_of_complex_rows(m: Captures, x: torch.Tensor) -> Any:
    z = torch.complex(x, x)
    return torch.view_as_real(scan(lambda c, x: (c * 1j + x, c * 1), z[0] * 1, z)[1])


REFUSED: dict[str, tuple[Callable[..., Any], str, str]] = {
    "branches of other sizes": (branches_of_other_sizes, "cond", "give the results of both branches the same sizes"),
    "bool": (loop_with_a_bool, "while_loop", r"carries a Python bool .*; carry a tensor, torch\.tensor\(True\)"),
    "complex rows": (scan_of_complex_rows, "scan", r"loop over their parts, torch\.view_as_real\(x\)"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_tell_place_and_way_out(name: str) -> None:
    function, op, message = REFUSED[name]
    exported = torch.export.export(Captures(function).eval(), (torch.randn(5, 3),))
    with pytest.raises(UnsupportedError, match=message) as raised:
        TorchConverter().add_exported_program(exported).to_coreai()
    problem = raised.value.problems[0]
    assert (problem.op, problem.node) == (op, op)
    assert re.search(r"branches\.py:\d+$", problem.source)  # where `Captures` calls the function
