"""Calls of externalized modules: arguments, results, effects and sizes; numbers on the evaluator and the runtime."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import nn

from patcomp import ExternalizeSpec, TorchConverter
from patcomp.emit.native import Native
from patcomp.frontend_torch.externalization.externalize import ModuleChoice
from tests.frontend_torch.externalizing import (
    Affine,
    Around,
    Scale,
    X,
    calls,
    check,
    convert,
    declared,
    exporter,
    graphs,
)
from tests.helpers.thorough import drawn


class Shapes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Scale()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + self.inner(x[:1])


@pytest.mark.parametrize("target", [Scale, ExternalizeSpec(Scale, "scale")])
def test_other_shapes_have_other_graphs(target: ModuleChoice, native: Native) -> None:
    program = convert(model := Shapes(), [target])
    assert calls(program) == ["inner", "inner"]
    assert len(list(program.module.graphs)) == 3
    check(program, model, native)


class Options(nn.Module):
    """A forward with parameters of every kind."""

    def forward(self, x, shift=None, /, factor=2.0, *more, scale: float = 3.0, mask=None, mode="plain", **rest):
        result = x * factor * scale
        result = result if shift is None else result + shift
        result = result if mask is None else result * mask
        for extra in more:
            result = result + extra
        for extra in rest.values():
            result = result - extra
        return result.relu() if mode == "relu" else result


A, B, C = torch.randn(2, 4), torch.randn(2, 4), torch.randn(2, 4)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    ("args", "kwargs", "inputs", "attributes"),
    [
        ((), {}, ["x"], {}),
        ((None,), {}, ["x"], {}),
        ((A,), {"scale": 5.0}, ["x", "shift"], {"scale": 5.0}),
        ((None, 7.0), {}, ["x"], {"factor": 7.0}),
        ((None, A), {"mode": "relu", "mask": B}, ["x", "factor", "mask"], {"factor": None, "mode": "relu"}),
        ((A, 0.5, B, C), {"b": A, "a": B}, ["x", "shift", "more_0", "more_1", "b", "a"], {"factor": 0.5}),
        ((A,), {"mask": None}, ["x", "shift"], {}),
        ((None, 7.0), {"mode": A.shape}, ["x"], {"factor": 7.0, "mode": [2, 4]}),
    ],
)
def test_arguments(
    args: Any, kwargs: Any, inputs: list[str], attributes: dict[str, Any], strict: bool, native: Native
) -> None:
    model = Around(Options(), *args, **kwargs)
    program = convert(model, [ExternalizeSpec(Options, "options")], strict=strict)
    found = declared(program, "inner")
    assert found.pop("input_names") == inputs
    expected = {"factor": 2.0, "scale": 3.0, "mode": "plain"} | attributes
    assert found == {
        "name": "options", "output_names": ["output"], "version": 1,
        **{key: value for key, value in expected.items() if value is not None},
    }  # fmt: skip
    check(program, model, native)
    check(convert(model, [Options], strict=strict), model, native)


class Nested(nn.Module):
    def forward(self, x: torch.Tensor, others: Any, axes: Any = (0, 1)) -> Any:
        (a, (b,)), c = others["pair"], others["c"]
        return {"sum": x + a, "pair": [b * c, (x.mean(axes),)], "none": None, "count": 3}


class Structured(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Nested()

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        result = self.inner(x, {"pair": [x + 1, (x + 2,)], "c": x + 3}, axes=[0])
        assert result["count"] == 3
        return result["sum"], result["pair"][0], result["pair"][1][0]


@pytest.mark.parametrize("strict", [False, True])
def test_nested_arguments_and_results(strict: bool, native: Native) -> None:
    model = Structured()
    program = convert(model, [ExternalizeSpec(Nested, "nested")], strict=strict)
    found = declared(program, "inner")
    assert found["input_names"] == ["x", "others_pair_0", "others_pair_1_0", "others_c"]
    assert found["output_names"] == ["output_0", "output_1", "output_2"]
    assert found["axes"] == [0]
    check(program, model, native)


# ---- effects and odd results ----------------------------------------------------------------------


class Odd(nn.Module):
    """Modules whose region is not just from its arguments to its results."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.left: torch.Tensor | None = None
        self.register_buffer("count", torch.ones(4))

    def forward(self, x: torch.Tensor) -> Any:
        match self.kind:
            case "argument returned":
                return x
            case "argument and result":
                return x, x * 2
            case "result twice":
                y = x + 1
                return y, y
            case "nothing returned":
                return None
            case "buffer returned":
                return self.count
            case "constant returned":
                return torch.tensor([1.0, 2.0, 3.0, 4.0])
            case "value left behind":
                self.left = x * 3
                return x + 1
            case "constant that others use":
                return x * 2 + 2
            case "argument written":
                x.add_(1)
                return x * 2
            case "argument written and returned":
                return x.add_(1)
            case "part of the argument written":
                x[0].mul_(2)
                return x.sum()
            case "buffer written":
                self.count.add_(1)
                return x * self.count
            case "only a buffer written":
                self.count.add_(1)
                return None
            case "complex numbers":
                z = torch.view_as_complex(x.reshape(2, 2, 2)) * torch.tensor([1 + 2j, 3 + 4j])
                return torch.view_as_real(z)
            case "complex result":
                return torch.view_as_complex(x.reshape(2, 2, 2)).conj()
            case "integers and bools":
                return x.argmax(-1), x > 0
            case "empty result":
                return x[:0]
            case "named tuple":
                return torch.topk(x, 2)
            case "size that depends on the data":
                return torch.nonzero(x > 0)
        raise AssertionError(self.kind)


class AroundOdd(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.inner = Odd(kind)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        h = x + 1
        result = torch.utils._pytree.tree_leaves(self.inner(h))
        left, self.inner.left = self.inner.left, None
        outputs = [leaf.imag.resolve_neg() if leaf.is_complex() else leaf for leaf in result if leaf is not None]
        # what the module was given, its buffer and the constant 2 are read after the call
        return *outputs, *([] if left is None else [left]), h * 2 + 2, self.inner.count + 1


KINDS = {
    "argument returned": (["x"], 1), "argument and result": (["x"], 2), "result twice": (["x"], 2),
    "buffer returned": (["count", "x"], 1), "constant returned": (["x"], 1), "value left behind": (["x"], 2),
    "constant that others use": (["x"], 1), "argument written": (["x"], 2), "argument written and returned": (["x"], 1),
    "part of the argument written": (["x"], 2), "buffer written": (["count", "x"], 2),
    "only a buffer written": (["count", "x"], 1), "complex numbers": (["x"], 1), "complex result": (["x"], 1),
    "integers and bools": (["x"], 2), "empty result": (["x"], 1), "named tuple": (["x"], 2),
    "size that depends on the data": (["x"], 1), "nothing returned": None,
}  # fmt: skip
"""Input names of the composite, and how many results it has."""


STRICT = ("buffer written", "complex result", "part of the argument written", "value left behind")


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("kind", "strict"), [*((kind, False) for kind in KINDS), *((kind, True) for kind in STRICT)])
def test_odd_calls(kind: str, strict: bool, native: Native) -> None:
    model = AroundOdd(kind)
    program = convert(model, [ExternalizeSpec(Odd, "odd", ["kind"])], strict=strict)
    expected = KINDS[kind]
    if expected is None:
        assert calls(program) == []  # a call without results computes nothing
    else:
        found = declared(program, "inner")
        assert (found["input_names"], len(found["output_names"])) == expected
        assert len(set(found["output_names"])) == len(found["output_names"])
    check(program, model, native)
    check(convert(model, [Odd], strict=strict), model, native)


# ---- sizes and branches ---------------------------------------------------------------------------


class Reshaping(nn.Module):
    """Needs the sizes of what it is given, also after others have asked for them."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = torch.arange(x.shape[0]).to(x.dtype)[:, None]
        return (x.reshape(-1) * 2).reshape(x.shape[0], 4) * self.weight + rows


class AroundReshaping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Reshaping()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.cat([x, x]).reshape(-1).reshape(2 * x.shape[0], 4)
        y = self.inner(self.inner(x))
        return y.reshape(-1) + torch.arange(y.shape[0] * 4).to(y.dtype)


@pytest.mark.parametrize("target", [Reshaping, ExternalizeSpec(Reshaping, "reshaping")])
def test_dynamic_sizes(target: ModuleChoice, native: Native) -> None:
    model = AroundReshaping().eval()
    program = (
        TorchConverter()
        .add_pytorch_module(model, exporter(X, dynamic_shapes=({0: torch.export.Dim("rows")},)), [target])
        .to_coreai()
    )
    for graph in graphs(program).values():
        assert len(graph.regions[0].block.args) == (1 if target is Reshaping else 2)
        assert len(graph.properties["function_type"].outputs) == 1  # type: ignore[attr-defined]
    assert calls(program) == ["inner", "inner"]
    for rows in (2, 3, 5):
        check(program, model, native, torch.randn(rows, 4))


class Branches(nn.Module):
    """Modules called in a branch."""

    def __init__(self) -> None:
        super().__init__()
        self.affine, self.scale = Affine(), Scale()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: self.scale(self.affine(x)), lambda x: x - 1, (x,))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    "targets",
    [
        [Affine, ExternalizeSpec(Scale, "scale")],
        [ExternalizeSpec(Affine, "affine")],
        [Branches],
        [ExternalizeSpec(Branches, "branches"), Affine, Scale],
    ],
)
def test_branches(targets: list[ModuleChoice], strict: bool, native: Native) -> None:
    model = nn.Sequential(Branches(), nn.ReLU())
    program = convert(model, targets, strict=strict)
    assert len(graphs(program)) == len(targets)
    for x in (X.abs(), -X.abs()):
        check(program, model, native, x)


# ---- any model, any of its modules ----------------------------------------------------------------


class Node(nn.Module):
    """A module made of smaller ones, in one of several ways."""

    def __init__(self, kind: str, children: list[nn.Module]) -> None:
        super().__init__()
        self.kind = kind
        self.parts = nn.ModuleList(children)
        self.weight = nn.Parameter(torch.randn(4))
        self.register_buffer("seen", torch.randn(4))

    def forward(self, x: torch.Tensor, *, factor: float = 0.5) -> torch.Tensor:
        kept = x
        for part in self.parts:
            x = part(x, factor=factor + 0.25)
        if self.kind == "weights":
            return torch.tanh(x * self.weight + kept)
        if self.kind == "writes":
            x = x + 0.0
            x[:, :2].mul_(factor)
            return x + kept
        if self.kind == "state":
            self.seen.add_(x.mean(0))
            return torch.sin(x + self.seen)
        if self.kind == "norm":
            return torch.nn.functional.layer_norm(x, (4,), self.weight) * factor
        return torch.sigmoid(x) * factor + 2 * kept


@st.composite
def models(draw: st.DrawFn) -> tuple[nn.Module, list[ModuleChoice]]:
    """A model, and which of its modules are to be externalized as what."""
    nodes: list[Node] = []

    def node(depth: int) -> Node:
        reused = draw(st.sampled_from([None, None, *nodes]))
        if reused is not None and depth:
            return reused
        children = [node(depth + 1) for _ in range(draw(st.integers(0, 2 if depth < 3 else 0)))]
        made = Node(draw(st.sampled_from(["weights", "writes", "state", "norm", "plain"])), list(children))
        nodes.append(made)
        return made

    model = node(0)
    targets: list[ModuleChoice] = []
    for path, _ in model.named_modules():
        if path.endswith("parts") or not path:
            continue
        match draw(st.sampled_from(["left", "plain", "composite", "closed"])):
            case "plain":
                targets.append(path)
            case "composite":
                targets.append(ExternalizeSpec(path, draw(st.sampled_from(["layer_norm", "part"])), ["kind"]))
            case "closed":
                targets.append(ExternalizeSpec(path, "closed", recover=False))
    return model, targets


@drawn(6)
@given(models(), st.booleans())
def test_externalized_models_compute_the_same(drawn: tuple[nn.Module, list[ModuleChoice]], strict: bool) -> None:
    model, targets = drawn
    x = torch.randn(2, 4)
    try:
        exporter(x, strict=strict)(model)
    except Exception:  # one state under two names, which not every PyTorch can take apart
        assume(False)
    outlined = convert(model, targets, x, strict=strict)
    inlined = convert(model, [], x)
    marked = {target if isinstance(target, str) else target.target_class for target in targets}
    assert len(calls(outlined)) >= len(marked & {path for path, _ in model.named_children()})
    states = [program.new_state() for program in (outlined, inlined)]
    for _ in range(2):  # the second run sees the state that the first has left
        found, expected = (
            program.run(x, state=state) for program, state in zip((outlined, inlined), states, strict=True)
        )
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(found, model(x), rtol=1e-4, atol=1e-5)
    for name, value in states[1].items():
        torch.testing.assert_close(states[0][name], value)
