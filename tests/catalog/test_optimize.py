"""The clean-up rules on small graphs: what is left of the ops, and that the numbers stay exactly the same."""

from __future__ import annotations

import zlib

import pytest
import torch

from patcomp.ir.constants import constant_values
from patcomp.ir.evaluate import evaluate
from patcomp.ir.module import IRModule
from patcomp.ir.verify import verify
from patcomp.rewrites.optimize import optimize
from patterns_catalog import default_rules
from tests.catalog.cases import make_tensor

RULES = default_rules().stage("optimize")

HEAD = """
coreai.graph @main(%x: tensor<{x}> {{coreai.name = "x"}}, %z: tensor<{z}> {{coreai.name = "z"}})
    -> (tensor<{y}> {{coreai.name = "y"}}) {{
"""

FIRES: dict[str, tuple[str, dict[str, str], str, list[str]]] = {
    "a cast to the same type": (
        "drop_identity_cast", {"x": "2x3xf32", "y": "2x3xf32"},
        """
        %y = coreai.cast %x : tensor<2x3xf32> to tensor<2x3xf32>
        """, [],
    ),
    "reshape of expand_dims": (
        "merge_reshapes", {"x": "2x3xf32", "y": "6xf32"},
        """
        %a = coreai.constant dense<[1]> : tensor<1xsi32>
        %e = coreai.expand_dims %x, %a : (tensor<2x3xf32>, tensor<1xsi32>) to tensor<2x1x3xf32>
        %s = coreai.constant dense<[6]> : tensor<1xsi32>
        %y = coreai.reshape %e, %s : (tensor<2x1x3xf32>, tensor<1xsi32>) -> tensor<6xf32>
        """, ["reshape"],
    ),
    "shrink_dims of expand_dims": (
        "merge_reshapes", {"x": "2x3xf32", "y": "2x3xf32"},
        """
        %a = coreai.constant dense<[1]> : tensor<1xsi32>
        %e = coreai.expand_dims %x, %a : (tensor<2x3xf32>, tensor<1xsi32>) to tensor<2x1x3xf32>
        %y = coreai.shrink_dims %e, %a : (tensor<2x1x3xf32>, tensor<1xsi32>) to tensor<2x3xf32>
        """, [],
    ),
    "a transpose that keeps the order": (
        "merge_transposes", {"x": "2x3xf32", "y": "2x3xf32"},
        """
        %p = coreai.constant dense<[0, 1]> : tensor<2xui32>
        %y = coreai.transpose %x, %p : (tensor<2x3xf32>, tensor<2xui32>) -> tensor<2x3xf32>
        """, [],
    ),
    "two transposes": (
        "merge_transposes", {"x": "2x3x4xf32", "y": "3x2x4xf32"},
        """
        %p = coreai.constant dense<[1, 2, 0]> : tensor<3xui32>
        %t = coreai.transpose %x, %p : (tensor<2x3x4xf32>, tensor<3xui32>) -> tensor<3x4x2xf32>
        %q = coreai.constant dense<[0, 2, 1]> : tensor<3xui32>
        %y = coreai.transpose %t, %q : (tensor<3x4x2xf32>, tensor<3xui32>) -> tensor<3x2x4xf32>
        """, ["transpose"],
    ),
    "a transpose undone": (
        "merge_transposes", {"x": "2x3x4xf32", "y": "2x3x4xf32"},
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
    "a transpose of a dimension of 1": (
        "transpose_of_unit_dims", {"x": "2x1x3xf32", "y": "1x2x3xf32"},
        """
        %p = coreai.constant dense<[1, 0, 2]> : tensor<3xui32>
        %y = coreai.transpose %x, %p : (tensor<2x1x3xf32>, tensor<3xui32>) -> tensor<1x2x3xf32>
        """, ["reshape"],
    ),
    "a broadcast to the same shape": (
        "drop_identity", {"x": "2x3xf32", "y": "2x3xf32"},
        """
        %s = coreai.constant dense<[2, 3]> : tensor<2xui32>
        %y = coreai.broadcast_to %x, %s : (tensor<2x3xf32>, tensor<2xui32>) -> tensor<2x3xf32>
        """, [],
    ),
    "a slice of everything": (
        "drop_identity", {"x": "2x3xf32", "y": "2x3xf32"},
        """
        %b = coreai.constant dense<[0, 0]> : tensor<2xsi32>
        %e = coreai.constant dense<[2, 9]> : tensor<2xsi32>
        %s = coreai.constant dense<[1, 1]> : tensor<2xsi32>
        %y = coreai.slice %x, %b, %e, %s
            : (tensor<2x3xf32>, tensor<2xsi32>, tensor<2xsi32>, tensor<2xsi32>) -> tensor<2x3xf32>
        """, [],
    ),
    "a broadcast before a sum": (
        "drop_broadcast_before_broadcast", {"x": "1x3xf32", "z": "2x3xf32", "y": "2x3xf32"},
        """
        %s = coreai.constant dense<[2, 3]> : tensor<2xui32>
        %w = coreai.broadcast_to %x, %s : (tensor<1x3xf32>, tensor<2xui32>) -> tensor<2x3xf32>
        %y = coreai.decomposable.broadcasting_sub %w, %z : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
        """, ["decomposable.broadcasting_sub"],
    ),
}  # fmt: skip
"""By name: the rule, types of %x, %z (as %x by default) and %y, the body, and the ops left beside constants."""

STAYS: dict[str, tuple[str, dict[str, str], str, list[str]]] = {
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
        "drop_identity_cast", {"x": "2x3xf32", "y": "2x3xf16"},
        """
        %y = coreai.cast %x : tensor<2x3xf32> to tensor<2x3xf16>
        """, ["cast"],
    ),
    "one reshape": (
        "merge_reshapes", {"x": "2x3xf32", "y": "3x2xf32"},
        """
        %s = coreai.constant dense<[3, 2]> : tensor<2xsi32>
        %y = coreai.reshape %x, %s : (tensor<2x3xf32>, tensor<2xsi32>) -> tensor<3x2xf32>
        """, ["reshape"],
    ),
    "a transpose of a square, whose type stays": (
        "merge_transposes", {"x": "3x3xf32", "y": "3x3xf32"},
        """
        %p = coreai.constant dense<[1, 0]> : tensor<2xui32>
        %y = coreai.transpose %x, %p : (tensor<3x3xf32>, tensor<2xui32>) -> tensor<3x3xf32>
        """, ["transpose"],
    ),
    "a transpose that moves more than a dimension of 1": (
        "transpose_of_unit_dims", {"x": "2x1x3xf32", "y": "3x1x2xf32"},
        """
        %p = coreai.constant dense<[2, 1, 0]> : tensor<3xui32>
        %y = coreai.transpose %x, %p : (tensor<2x1x3xf32>, tensor<3xui32>) -> tensor<3x1x2xf32>
        """, ["transpose"],
    ),
    "a slice by two of a single row": (
        "drop_identity", {"x": "1x3xf32", "y": "1x3xf32"},
        """
        %b = coreai.constant dense<[0, 0]> : tensor<2xsi32>
        %e = coreai.constant dense<[2, 9]> : tensor<2xsi32>
        %s = coreai.constant dense<[2, 1]> : tensor<2xsi32>
        %y = coreai.slice %x, %b, %e, %s
            : (tensor<1x3xf32>, tensor<2xsi32>, tensor<2xsi32>, tensor<2xsi32>) -> tensor<1x3xf32>
        """, ["slice"],
    ),
    "broadcasts that make the result larger than both": (
        "drop_broadcast_before_broadcast", {"x": "1x3xf32", "z": "1x3xf32", "y": "2x3xf32"},
        """
        %s = coreai.constant dense<[2, 3]> : tensor<2xui32>
        %w = coreai.broadcast_to %x, %s : (tensor<1x3xf32>, tensor<2xui32>) -> tensor<2x3xf32>
        %y = coreai.decomposable.broadcasting_add %w, %z : (tensor<2x3xf32>, tensor<1x3xf32>) -> tensor<2x3xf32>
        """, ["broadcast_to", "decomposable.broadcasting_add"],
    ),
    "a broadcast to a size known at run time": (
        "drop_broadcast_before_broadcast", {"x": "?xf32", "z": "?xf32", "y": "?xf32"},
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
    fired = optimize(after, RULES).fired
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


def test_every_rule_has_a_case_and_a_near_miss() -> None:
    names = {rule.name for rule in RULES if rule.source.startswith("optimize/shapes.py")}
    assert {rule for rule, *_ in FIRES.values()} == names
    assert {rule for rule, *_ in STAYS.values()} == names


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
