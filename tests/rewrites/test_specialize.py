"""Programs with some dimensions fixed: `specialize` and `set_static_shape_config`."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

from patcomp import AIProgram, TorchConverter
from patcomp.emit.native import Native
from tests.frontend_torch.models import Views, assert_same, run_on
from tests.frontend_torch.open_models import MODELS, Branches, M, N


def converted(model: nn.Module, args: tuple[Any, ...], shapes: Any) -> AIProgram:
    exported = torch.export.export(model, args, dynamic_shapes=shapes)
    return TorchConverter().add_exported_program(exported).to_coreai()


def single(name: str) -> AIProgram:
    return converted(MODELS[name](), (torch.randn(3, 5, 4),), {"x": {0: N, 1: M}})


def shapes_of(program: AIProgram, entrypoint: str = "main") -> list[tuple[Any, ...]]:
    signature = program.signature(entrypoint)
    return [spec.shape for spec in (*signature.inputs, *signature.states)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("fixed", [("n", "m"), ("n",), ("m",)])
def test_numbers_and_types(name: str, fixed: Sequence[str], native: Native) -> None:
    dynamic, sizes = single(name), {"n": 2, "m": 7}
    before = str(dynamic)
    program = dynamic.specialize({key: sizes[key] for key in fixed})
    assert str(dynamic) == before
    assert shapes_of(program) == [(*(sizes[key] if key in fixed else key for key in ("n", "m")), 4)]
    assert list(program.signature().dims) == [key for key in ("n", "m") if key not in fixed]
    if len(fixed) == 2:
        assert ("get_shape" in str(program)) == (name == "selects")  # of what is selected
        assert ("?" in str(program)) == (name == "selects")
    x = torch.randn(2, 7, 4)
    assert_same(program.run(x), MODELS[name]()(x.clone()))
    if name != "updates":
        assert_same(run_on(native, program, (x,)), MODELS[name]()(x.clone()))
    else:
        state = {"x": x.numpy().copy()}
        outputs = native.run(program.module, {}, state)
        torch.testing.assert_close(torch.as_tensor(outputs[program.output_names()[0]]), MODELS[name]()(x.clone()))
        assert torch.equal(torch.as_tensor(state["x"]), x * 2)


def test_one_at_a_time_is_all_at_once() -> None:
    program = single("branches")
    step_by_step = program.specialize({"m": 7}).specialize({"n": 2})
    assert str(step_by_step) == str(program.specialize({"n": 2, "m": 7}))
    assert str(copy.deepcopy(program).specialize({"n": 2, "m": 7})) == str(step_by_step)


def test_derived_dimensions_follow(native: Native) -> None:
    shapes = {"x": {0: N, 1: M}, "y": {0: N, 1: M + 1}}
    program = converted(Views(), (torch.randn(3, 5, 8), torch.randn(3, 6, 8)), shapes)
    fixed = program.specialize({"n": 2, "m": 6})
    assert shapes_of(fixed) == [(2, 6, 8), (2, 7, 8)]
    assert "?" not in str(fixed)
    args = torch.randn(2, 6, 8), torch.randn(2, 7, 8)
    model = Views()
    assert_same(run_on(native, fixed, args)[2], model(*args)[2])
    assert fixed.run(*args)[3].equal(program.run(*args)[3])


def test_a_number_that_is_fixed(native: Native) -> None:
    class Repeats(nn.Module):
        def forward(self, x: torch.Tensor, n: int) -> Any:
            return x.repeat(n), n + x.shape[0]

    program = converted(Repeats(), (torch.randn(3), 3), {"x": {0: N}, "n": Dim.DYNAMIC(min=2, max=9)})
    assert program.signature().dims == {"n": (1, 16), "s0": (2, 9)}
    fixed = program.specialize({"s0": 4, "n": 5})
    assert fixed.signature().outputs[0].shape == (20,)
    x = torch.randn(5)
    assert_same(fixed.run(x, 4), Repeats()(x, 4))
    assert_same(run_on(native, fixed, (x, 4)), Repeats()(x, 4))
    with pytest.raises(RuntimeError, match=r"input 'n' is 3, but it must be 4"):
        fixed.run(x, 3)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"batch": 4}, r"no dimension is called 'batch'; there are n \(1 to 16\), m \(2 to 64\)"),
        ({"n": 17}, r"n cannot be 17; there are n \(1 to 16\)"),
        ({"n": 0}, r"n cannot be 0"),
        ({"m": 2.0}, r"m cannot be 2.0"),
    ],
)
def test_sizes_that_are_refused(sizes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        single("loops").specialize(sizes)


def test_entry_points_that_are_not_there() -> None:
    with pytest.raises(KeyError, match="there is no entry point 'other'; there are main"):
        single("loops").specialize({"n": 2}, entrypoint="other")
    with pytest.raises(LookupError, match="not made by a converter"):
        AIProgram(single("loops").module).specialize({})


def test_explain_knows_the_new_program() -> None:
    program = single("branches").specialize({"n": 2, "m": 7})
    assert "made by rule layer_norm" in program.explain("%native_layer_norm_0")


def test_static_shapes_for_an_entry_point(native: Native) -> None:
    program = single("branches")
    untouched = copy.deepcopy(program)
    assert program.set_static_shape_config("main", {"short": {"x": (1, 3, 4)}, "long": {"x": (2, 8, 4)}}) is None
    assert program.entrypoints == ("main_short", "main_long")
    assert shapes_of(program, "main_long") == [(2, 8, 4)]
    assert "?" not in str(program)
    for entrypoint, shape in (("main_short", (1, 3, 4)), ("main_long", (2, 8, 4))):
        x = torch.randn(shape)
        assert_same(program.run(x, entrypoint=entrypoint), Branches()(x))
        outputs = native.run(program.module, {"x": x}, entry=entrypoint)
        wanted = Branches()(x)[0].numpy()
        assert abs(outputs[program.output_names(entrypoint)[0]] - wanted).max() < 1e-4
    with pytest.raises(KeyError, match="there is no entry point 'main'"):
        program.set_static_shape_config("main", {"short": {"x": (1, 3, 4)}})
    assert untouched.entrypoints == ("main",)


def test_inputs_that_are_not_named_keep_their_types(native: Native) -> None:
    class Joins(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.cat([x, y]) + torch.cat([x * 2, y])

    shapes = {"x": {0: N, 1: M}, "y": {0: N, 1: M}}
    program = converted(Joins(), (torch.randn(3, 4), torch.randn(3, 4)), shapes)
    program.set_static_shape_config("main", {"a": {"x": (2, 5)}})
    types = program.module.graph("main_a").properties["function_type"].inputs.data  # type: ignore[attr-defined]
    assert list(map(str, types)) == ["tensor<2x5xf32>", "tensor<?x?xf32>"]
    x, y = torch.randn(2, 5), torch.randn(2, 5)
    torch.testing.assert_close(program.run(x, y, entrypoint="main_a"), Joins()(x, y))
    outputs = native.run(program.module, {"x": x, "y": y}, entry="main_a")
    torch.testing.assert_close(torch.as_tensor(outputs["add"]), Joins()(x, y))
    with pytest.raises(RuntimeError, match="input 'y' has size 3 in dimension 0, but it must be 2"):
        program.run(x, torch.randn(3, 5), entrypoint="main_a")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "one configuration"),
        ({"a": {"z": (2, 3, 4)}}, "no input 'z'; there are x"),
        ({"a": {"x": (2, 3)}}, r"'x' of type tensor<\?x\?x4xf32> cannot have the shape \(2, 3\)"),
        ({"a": {"x": (2, 3, 5)}}, r"cannot have the shape \(2, 3, 5\)"),
        ({"a": {"x": (0, 3, 4)}}, r"cannot have the shape \(0, 3, 4\)"),
        ({"a": {"x": (2, 65, 4)}}, r"size 65 in dimension 1, but m must be 2 to 64"),
    ],
)
def test_shapes_that_are_refused(config: Any, message: str) -> None:
    program = single("loops")
    before = str(program)
    with pytest.raises(ValueError, match=message):
        program.set_static_shape_config("main", config)
    assert str(program) == before
