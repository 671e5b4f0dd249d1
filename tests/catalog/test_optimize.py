"""The clean-up rules on small graphs: what is left of the ops, and that the numbers stay exactly the same."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import pytest
import torch

from patcomp.evaluate.machine import evaluate
from patcomp.ir import coreai
from patcomp.ir.builder import Builder
from patcomp.ir.constants import constant_values
from patcomp.ir.module import IRModule, create_graph
from patcomp.ir.types import tensor
from patcomp.ir.value import Value
from patcomp.ir.verify import verify
from patcomp.ir.xdsl import Block
from patcomp.rewrites import Options
from patcomp.rewrites.optimize import optimize
from patterns_catalog import default_rules
from tests.catalog.cases import make_tensor
from tests.helpers.programs import program

RULES = default_rules().stage("optimize")

HEAD = """
coreai.graph @main(%x: tensor<{x}> {{coreai.name = "x"}}, %z: tensor<{z}> {{coreai.name = "z"}})
    -> (tensor<{y}> {{coreai.name = "y"}}) {{
"""

FIRES: dict[str, tuple[str, dict[str, str], str, list[str]]] = {
    "a cast to the same type": (
        "cast_to_same", {"x": "2x3xf32", "y": "2x3xf32"},
        """
        %y = coreai.cast %x : tensor<2x3xf32> to tensor<2x3xf32>
        """, [],
    ),
    "reshape of expand_dims": (
        "reshape_of_reshape", {"x": "2x3xf32", "y": "6xf32"},
        """
        %a = coreai.constant dense<[1]> : tensor<1xsi32>
        %e = coreai.expand_dims %x, %a : (tensor<2x3xf32>, tensor<1xsi32>) to tensor<2x1x3xf32>
        %s = coreai.constant dense<[6]> : tensor<1xsi32>
        %y = coreai.reshape %e, %s : (tensor<2x1x3xf32>, tensor<1xsi32>) -> tensor<6xf32>
        """, ["reshape"],
    ),
    "a reshape to the same shape": (
        "reshape_to_same", {"x": "2x3xf32", "y": "2x3xf32"},
        """
        %s = coreai.constant dense<[2, 3]> : tensor<2xsi32>
        %y = coreai.reshape %x, %s : (tensor<2x3xf32>, tensor<2xsi32>) -> tensor<2x3xf32>
        """, [],
    ),
    "shrink_dims of expand_dims": (
        "shrink_dims_of_expand_dims", {"x": "?x3xf32", "y": "?x3xf32"},
        """
        %a = coreai.constant dense<[1]> : tensor<1xsi32>
        %e = coreai.expand_dims %x, %a : (tensor<?x3xf32>, tensor<1xsi32>) to tensor<?x1x3xf32>
        %y = coreai.shrink_dims %e, %a : (tensor<?x1x3xf32>, tensor<1xsi32>) to tensor<?x3xf32>
        """, [],
    ),
    "expand_dims of shrink_dims": (
        "expand_dims_of_shrink_dims", {"x": "?x1x3xf32", "y": "?x1x3xf32"},
        """
        %a = coreai.constant dense<[1]> : tensor<1xsi32>
        %s = coreai.shrink_dims %x, %a : (tensor<?x1x3xf32>, tensor<1xsi32>) to tensor<?x3xf32>
        %y = coreai.expand_dims %s, %a : (tensor<?x3xf32>, tensor<1xsi32>) to tensor<?x1x3xf32>
        """, [],
    ),
    "a transpose that keeps the order": (
        "transpose_in_order", {"x": "2x3xf32", "y": "2x3xf32"},
        """
        %p = coreai.constant dense<[0, 1]> : tensor<2xui32>
        %y = coreai.transpose %x, %p : (tensor<2x3xf32>, tensor<2xui32>) -> tensor<2x3xf32>
        """, [],
    ),
    "two transposes": (
        "transpose_of_transpose", {"x": "2x3x4xf32", "y": "3x2x4xf32"},
        """
        %p = coreai.constant dense<[1, 2, 0]> : tensor<3xui32>
        %t = coreai.transpose %x, %p : (tensor<2x3x4xf32>, tensor<3xui32>) -> tensor<3x4x2xf32>
        %q = coreai.constant dense<[0, 2, 1]> : tensor<3xui32>
        %y = coreai.transpose %t, %q : (tensor<3x4x2xf32>, tensor<3xui32>) -> tensor<3x2x4xf32>
        """, ["transpose"],
    ),
    "a transpose undone": (
        "transpose_in_order", {"x": "2x3x4xf32", "y": "2x3x4xf32"},
        """
        %p = coreai.constant dense<[1, 2, 0]> : tensor<3xui32>
        %t = coreai.transpose %x, %p : (tensor<2x3x4xf32>, tensor<3xui32>) -> tensor<3x4x2xf32>
        %q = coreai.constant dense<[2, 0, 1]> : tensor<3xui32>
        %y = coreai.transpose %t, %q : (tensor<3x4x2xf32>, tensor<3xui32>) -> tensor<2x3x4xf32>
        """, [],
    ),
    "a size of a transpose": (
        "size_of_transposed", {"x": "2x3x4xf32", "y": "1xsi32"},
        """
        %p = coreai.constant dense<[1, 2, 0]> : tensor<3xui32>
        %t = coreai.transpose %x, %p : (tensor<2x3x4xf32>, tensor<3xui32>) -> tensor<3x4x2xf32>
        %g = coreai.get_shape %t : tensor<3x4x2xf32> -> tensor<3xui32>
        %c = coreai.cast %g : tensor<3xui32> to tensor<3xsi32>
        %a = coreai.constant dense<[1]> : tensor<1xsi32>
        %b = coreai.constant dense<[2]> : tensor<1xsi32>
        %y = coreai.slice %c, %a, %b, %a
            : (tensor<3xsi32>, tensor<1xsi32>, tensor<1xsi32>, tensor<1xsi32>) -> tensor<1xsi32>
        """, ["get_shape", "cast", "slice"],
    ),
    "dimensions of 1 around a transpose": (
        "units_of_transpose", {"x": "2x12xf32", "y": "1x3x1x2x4xf32"},
        """
        %s = coreai.constant dense<[2, 3, 4]> : tensor<3xsi32>
        %v = coreai.reshape %x, %s : (tensor<2x12xf32>, tensor<3xsi32>) -> tensor<2x3x4xf32>
        %p = coreai.constant dense<[1, 0, 2]> : tensor<3xui32>
        %t = coreai.transpose %v, %p : (tensor<2x3x4xf32>, tensor<3xui32>) -> tensor<3x2x4xf32>
        %u = coreai.constant dense<[1, 3, 1, 2, 4]> : tensor<5xsi32>
        %y = coreai.reshape %t, %u : (tensor<3x2x4xf32>, tensor<5xsi32>) -> tensor<1x3x1x2x4xf32>
        """, ["reshape", "transpose"],
    ),
    "a transpose of a dimension of 1": (
        "transpose_of_units", {"x": "2x1x3xf32", "y": "1x2x3xf32"},
        """
        %p = coreai.constant dense<[1, 0, 2]> : tensor<3xui32>
        %y = coreai.transpose %x, %p : (tensor<2x1x3xf32>, tensor<3xui32>) -> tensor<1x2x3xf32>
        """, ["reshape"],
    ),
    "a broadcast to the same shape": (
        "broadcast_to_same", {"x": "2x3xf32", "y": "2x3xf32"},
        """
        %s = coreai.constant dense<[2, 3]> : tensor<2xui32>
        %y = coreai.broadcast_to %x, %s : (tensor<2x3xf32>, tensor<2xui32>) -> tensor<2x3xf32>
        """, [],
    ),
    "a slice of everything": (
        "slice_of_everything", {"x": "2x3xf32", "y": "2x3xf32"},
        """
        %b = coreai.constant dense<[0, 0]> : tensor<2xsi32>
        %e = coreai.constant dense<[2, 9]> : tensor<2xsi32>
        %s = coreai.constant dense<[1, 1]> : tensor<2xsi32>
        %y = coreai.slice %x, %b, %e, %s
            : (tensor<2x3xf32>, tensor<2xsi32>, tensor<2xsi32>, tensor<2xsi32>) -> tensor<2x3xf32>
        """, [],
    ),
    "a broadcast before a difference": (
        "broadcasting_sub_of_broadcasts", {"x": "1x3xf32", "z": "2x3xf32", "y": "2x3xf32"},
        """
        %s = coreai.constant dense<[2, 3]> : tensor<2xui32>
        %w = coreai.broadcast_to %x, %s : (tensor<1x3xf32>, tensor<2xui32>) -> tensor<2x3xf32>
        %y = coreai.decomposable.broadcasting_sub %w, %z : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
        """, ["decomposable.broadcasting_sub"],
    ),
}  # fmt: skip
"""By name: the rule, types of %x, %z (as %x by default) and %y, the body, and the ops left beside constants."""

STAYS: dict[str, tuple[str, dict[str, str], str, list[str]]] = {
    "expand_dims of shrink_dims at another place": (
        "expand_dims_of_shrink_dims", {"x": "?x1x1xf32", "y": "?x1x1xf32"},
        """
        %a = coreai.constant dense<[1]> : tensor<1xsi32>
        %b = coreai.constant dense<[2]> : tensor<1xsi32>
        %s = coreai.shrink_dims %x, %a : (tensor<?x1x1xf32>, tensor<1xsi32>) to tensor<?x1xf32>
        %y = coreai.expand_dims %s, %b : (tensor<?x1xf32>, tensor<1xsi32>) to tensor<?x1x1xf32>
        """, ["shrink_dims", "expand_dims"],
    ),
    "two sizes of a transpose": (
        "size_of_transposed", {"x": "2x3x4xf32", "y": "2xsi32"},
        """
        %p = coreai.constant dense<[1, 2, 0]> : tensor<3xui32>
        %t = coreai.transpose %x, %p : (tensor<2x3x4xf32>, tensor<3xui32>) -> tensor<3x4x2xf32>
        %g = coreai.get_shape %t : tensor<3x4x2xf32> -> tensor<3xui32>
        %c = coreai.cast %g : tensor<3xui32> to tensor<3xsi32>
        %a = coreai.constant dense<[1]> : tensor<1xsi32>
        %b = coreai.constant dense<[3]> : tensor<1xsi32>
        %y = coreai.slice %c, %a, %b, %a
            : (tensor<3xsi32>, tensor<1xsi32>, tensor<1xsi32>, tensor<1xsi32>) -> tensor<2xsi32>
        """, ["transpose", "get_shape", "cast", "slice"],
    ),
    "a cast to another type": (
        "cast_to_same", {"x": "2x3xf32", "y": "2x3xf16"},
        """
        %y = coreai.cast %x : tensor<2x3xf32> to tensor<2x3xf16>
        """, ["cast"],
    ),
    "one reshape": (
        "reshape_to_same", {"x": "2x3xf32", "y": "3x2xf32"},
        """
        %s = coreai.constant dense<[3, 2]> : tensor<2xsi32>
        %y = coreai.reshape %x, %s : (tensor<2x3xf32>, tensor<2xsi32>) -> tensor<3x2xf32>
        """, ["reshape"],
    ),
    "a reshape of a transpose that also joins dimensions": (
        "units_of_transpose", {"x": "2x12xf32", "y": "1x3x8xf32"},
        """
        %s = coreai.constant dense<[2, 3, 4]> : tensor<3xsi32>
        %v = coreai.reshape %x, %s : (tensor<2x12xf32>, tensor<3xsi32>) -> tensor<2x3x4xf32>
        %p = coreai.constant dense<[1, 0, 2]> : tensor<3xui32>
        %t = coreai.transpose %v, %p : (tensor<2x3x4xf32>, tensor<3xui32>) -> tensor<3x2x4xf32>
        %u = coreai.constant dense<[1, 3, 8]> : tensor<3xsi32>
        %y = coreai.reshape %t, %u : (tensor<3x2x4xf32>, tensor<3xsi32>) -> tensor<1x3x8xf32>
        """, ["reshape", "transpose", "reshape"],
    ),
    "a transpose of a square, whose type stays": (
        "transpose_in_order", {"x": "3x3xf32", "y": "3x3xf32"},
        """
        %p = coreai.constant dense<[1, 0]> : tensor<2xui32>
        %y = coreai.transpose %x, %p : (tensor<3x3xf32>, tensor<2xui32>) -> tensor<3x3xf32>
        """, ["transpose"],
    ),
    "a transpose that moves more than a dimension of 1": (
        "transpose_of_units", {"x": "2x1x3xf32", "y": "3x1x2xf32"},
        """
        %p = coreai.constant dense<[2, 1, 0]> : tensor<3xui32>
        %y = coreai.transpose %x, %p : (tensor<2x1x3xf32>, tensor<3xui32>) -> tensor<3x1x2xf32>
        """, ["transpose"],
    ),
    "a slice by two of a single row": (
        "slice_of_everything", {"x": "1x3xf32", "y": "1x3xf32"},
        """
        %b = coreai.constant dense<[0, 0]> : tensor<2xsi32>
        %e = coreai.constant dense<[2, 9]> : tensor<2xsi32>
        %s = coreai.constant dense<[2, 1]> : tensor<2xsi32>
        %y = coreai.slice %x, %b, %e, %s
            : (tensor<1x3xf32>, tensor<2xsi32>, tensor<2xsi32>, tensor<2xsi32>) -> tensor<1x3xf32>
        """, ["slice"],
    ),
    "broadcasts that make the result larger than both": (
        "broadcasting_add_of_broadcasts", {"x": "1x3xf32", "z": "1x3xf32", "y": "2x3xf32"},
        """
        %s = coreai.constant dense<[2, 3]> : tensor<2xui32>
        %w = coreai.broadcast_to %x, %s : (tensor<1x3xf32>, tensor<2xui32>) -> tensor<2x3xf32>
        %y = coreai.decomposable.broadcasting_add %w, %z : (tensor<2x3xf32>, tensor<1x3xf32>) -> tensor<2x3xf32>
        """, ["broadcast_to", "decomposable.broadcasting_add"],
    ),
    "a broadcast to a size known at run time": (
        "broadcasting_mul_of_broadcasts", {"x": "?xf32", "z": "?xf32", "y": "?xf32"},
        """
        %g = coreai.get_shape %z : tensor<?xf32> -> tensor<1xui32>
        %w = coreai.broadcast_to %x, %g : (tensor<?xf32>, tensor<1xui32>) -> tensor<?xf32>
        %o = coreai.constant dense<[1]> : tensor<1xui32>
        %v = coreai.broadcast_to %w, %g : (tensor<?xf32>, tensor<1xui32>) -> tensor<?xf32>
        %y = coreai.decomposable.broadcasting_mul %w, %v : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
        """, ["get_shape", "broadcast_to", "broadcast_to", "decomposable.broadcasting_mul"],
    ),
}  # fmt: skip


def _module(types: dict[str, str], body: str) -> IRModule:
    head = HEAD.format(x=types["x"], z=types.get("z", types["x"]), y=types["y"])
    module = IRModule.parse(head + body + f"coreai.output %y : tensor<{types['y']}>\n}}")
    verify(module)
    return module


def _ops(module: IRModule) -> list[str]:
    names = [op.name.removeprefix("coreai.") for op in module.graph("main").regions[0].block.ops]
    return [name for name in names if name not in ("constant", "output")]


def _optimized(types: dict[str, str], body: str) -> tuple[IRModule, dict[str, int]]:
    """The optimized module, which computes what it did before, and what fired."""
    before, after = _module(types, body), _module(types, body)
    fired = optimize(after, RULES, Options()).fired
    verify(after, runtime=True)
    generator = torch.Generator().manual_seed(zlib.crc32(body.encode()))
    inputs = {name: make_tensor(types.get(name, types["x"]).replace("?", "5"), generator) for name in ("x", "z")}
    if types["x"].startswith("?"):
        inputs["x"] = inputs["x"][:1]
    assert torch.equal(evaluate(after, inputs)["y"], evaluate(before, inputs)["y"])
    return after, fired


@pytest.mark.parametrize(("rule", "types", "body", "left"), FIRES.values(), ids=FIRES)
def test_rule_fires(rule: str, types: dict[str, str], body: str, left: list[str]) -> None:
    module, fired = _optimized(types, body)
    assert fired.get(rule, 0) >= 1
    assert _ops(module) == left


@pytest.mark.parametrize(("rule", "types", "body", "left"), STAYS.values(), ids=STAYS)
def test_near_miss_stays(rule: str, types: dict[str, str], body: str, left: list[str]) -> None:
    module, fired = _optimized(types, body)
    assert rule not in fired
    assert _ops(module) == left


def test_constants_are_folded() -> None:
    body = """
        %a = coreai.constant dense<[1.0, 2.0, 4.0]> : tensor<3xf32>
        %b = coreai.constant dense<0.5> : tensor<f32>
        %c = coreai.decomposable.broadcasting_mul %a, %b : (tensor<3xf32>, tensor<f32>) -> tensor<3xf32>
        %y = coreai.decomposable.broadcasting_add %x, %c : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
    """
    module, _ = _optimized({"x": "2x3xf32", "y": "2x3xf32"}, body)
    assert _ops(module) == ["decomposable.broadcasting_add"]
    constants = [op for op in module.graph("main").walk() if op.name == "coreai.constant"]
    assert [constant_values(op.results[0]).tolist() for op in constants] == [[0.5, 1.0, 2.0]]


def test_equal_ops_are_computed_once() -> None:
    body = """
        %a = coreai.exp %x : tensor<2x3xf32> -> tensor<2x3xf32>
        %b = coreai.exp %x : tensor<2x3xf32> -> tensor<2x3xf32>
        %y = coreai.decomposable.broadcasting_add %a, %b : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
    """
    module, _ = _optimized({"x": "2x3xf32", "y": "2x3xf32"}, body)
    assert _ops(module) == ["exp", "decomposable.broadcasting_add"]


ZEROS_AND_OTHERS = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1e-45, 1.1])
ARITHMETIC: dict[str, tuple[str | None, Callable[[Value], Value]]] = {
    "x * 1": ("times_one", lambda x: coreai.broadcasting_mul(1.0, x)),
    "x / 1": ("divided_by_one", lambda x: coreai.broadcasting_divide(x, [1.0] * 7)),
    "x + -0.0": ("plus_zero", lambda x: coreai.broadcasting_add(x, -0.0)),
    "x - 0.0": ("minus_zero", lambda x: coreai.broadcasting_sub(x, 0.0)),
    "x + 0.0": (None, lambda x: coreai.broadcasting_add(x, 0.0)),
    "x - -0.0": (None, lambda x: coreai.broadcasting_sub(x, -0.0)),
    "0.0 - x": (None, lambda x: coreai.broadcasting_sub(0.0, x)),
    "1 / x": (None, lambda x: coreai.broadcasting_divide(1.0, x)),
    "x * 1, larger": (None, lambda x: coreai.broadcasting_mul(x, [[1.0] * 7] * 2)),
    "f32 of f16 of x": (None, lambda x: coreai.cast(coreai.cast(x, "f16"), "f32")),
    "f32 of f64 of x": ("cast_of_cast", lambda x: coreai.cast(coreai.cast(x, "f64"), "f32")),
}
"""The rule that takes each, None where numbers would change."""


@pytest.mark.parametrize(("rule", "body"), ARITHMETIC.values(), ids=ARITHMETIC)
def test_numbers_stay_to_the_sign_of_zero(rule: str | None, body: Callable[[Value], Value]) -> None:
    before, after = (program({"x": "7xf32"}, body) for _ in range(2))
    fired = optimize(after, RULES, Options()).fired
    assert (rule in fired) == (rule is not None)
    assert len(_ops(after)) == (0 if rule else len(_ops(before)))
    expected, given = (evaluate(module, {"x": ZEROS_AND_OTHERS})["y0"] for module in (before, after))
    torch.testing.assert_close(given, expected, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(given.signbit() & ~given.isnan(), expected.signbit() & ~expected.isnan())


@pytest.mark.parametrize(("index", "wanted"), [([-6, 5], [0, 5]), ([-7, 5], [-7, 5])])
def test_constant_indices_are_counted_from_the_front_unless_outside(index: list[int], wanted: list[int]) -> None:
    module = program({"x": "6xf32"}, lambda x: coreai.gather_nd(x, [[number] for number in index]))
    optimize(module, RULES, Options())
    (gather,) = [op for op in module.op.walk() if op.name == "coreai.gather_nd"]
    found = constant_values(gather.operands[1])
    assert found is not None
    assert found.ravel().tolist() == wanted


def test_a_reshape_of_no_elements_stays() -> None:
    """Of a tensor without elements, the number of elements does not tell the open size."""
    block = Block(arg_types=[tensor((None, 0), "f32"), tensor((2,), "si32")])
    module = IRModule()
    with Builder(block):
        x, shape = Value(block.args[0]), Value(block.args[1])
        coreai.output(coreai.reshape(x, shape, result_type=tensor((None, 0), "f32")))
    module.op.body.block.add_op(create_graph("main", block))
    optimize(module, default_rules().stage("optimize"), Options())
    inputs = {"0": torch.ones(3, 0), "1": torch.tensor([5, 0], dtype=torch.int32)}
    assert evaluate(module, inputs)["0"].shape == (5, 0)
