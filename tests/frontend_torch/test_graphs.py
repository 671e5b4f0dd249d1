"""`coreai.graph` and `generate_composite_decl`: composites that a lowering writes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from patcomp import StageError, TorchConverter, generate_composite_decl, get_operands
from patcomp.emit.native import Native
from patcomp.ir import coreai


@torch.library.custom_op("my_lib::unit_norm", mutates_args=())
def unit_norm(x: torch.Tensor, scale: torch.Tensor, eps: float) -> torch.Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * scale


@unit_norm.register_fake
def _(x: torch.Tensor, scale: torch.Tensor, eps: float) -> torch.Tensor:
    return torch.empty_like(x)


class Norms(nn.Module):
    def forward(self, x: Tensor, scale: Tensor) -> Tensor:
        once = unit_norm(x, scale, 1e-5)
        return unit_norm(torch.sin(once), scale, 1e-5) + unit_norm(once, scale, 0.1)


def lower_unit_norm(values_map: Any, node: Any, loc: Any) -> Any:
    x, scale = get_operands(values_map, node, [0, 1], loc)
    eps = node.args[2]
    declaration = generate_composite_decl(
        None, "rms_norm", ["input", "scale"], ["output"], {"eps": eps, "axes": [-1]}, version=1
    )

    @coreai.graph(private=True, no_inline=True, composite_decl=declaration)
    def rms_norm(x: Any, scale: Any) -> Any:
        square = coreai.reduce_mean(coreai.broadcasting_mul(x, x), np.array([-1], np.int32))
        normal = coreai.broadcasting_mul(x, coreai.rsqrt(coreai.broadcasting_add(square, eps)))
        return coreai.broadcasting_mul(normal, scale)

    return rms_norm(x, scale=scale)


def converted(lower: Any) -> Any:
    inputs = (torch.randn(2, 8), torch.randn(8))
    converter = TorchConverter().add_exported_program(torch.export.export(Norms(), inputs))
    converter.register_torch_lowering("my_lib::unit_norm.default")(lower)
    return converter.to_coreai(), inputs


def test_calls_become_composites_and_equal_ones_share_a_graph(native: Native) -> None:
    program, inputs = converted(lower_unit_norm)
    assert program.composites == {"rms_norm": 3}
    text = str(program)
    assert text.count("coreai.graph private noinline @rms_norm_") == 2
    assert "op_attrs = {axes = [-1 : si64], eps = 1.000000e-05 : f32, version = 1 : si64}" in text
    assert program.verify_against(Norms(), inputs, backends=["evaluator"]).passed
    (output,) = native.run(program.module, dict(zip(program.input_names(), inputs, strict=True))).values()
    torch.testing.assert_close(torch.from_numpy(output), Norms()(*inputs))


def test_quotes_in_names_reach_the_real_parser(native: Native) -> None:
    def lower(values_map: Any, node: Any, loc: Any) -> Any:
        declaration = generate_composite_decl('a "norm"', ["x", "scale"], ["y"], {"mode": 'say "x"'})
        return coreai.graph(coreai.broadcasting_mul, provided_name="norm", composite_decl=declaration)(
            *get_operands(values_map, node, [0, 1], loc)
        )

    program, _ = converted(lower)
    assert native.check(program.module, pretty=True) == ()


def test_plain_graphs_several_results_and_variable_arguments() -> None:
    def lower(values_map: Any, node: Any, loc: Any) -> Any:
        x, scale = get_operands(values_map, node, [0, 1], loc)

        @coreai.graph
        def squares(*values: Any) -> Any:
            return [coreai.broadcasting_mul(value, value) for value in values]

        @coreai.graph(provided_name="normalize")
        def norm(square: Any, x: Any) -> Any:
            total = coreai.broadcasting_add(coreai.reduce_mean(square, [-1]), node.args[2])
            return coreai.broadcasting_mul(x, coreai.rsqrt(total))

        square, _ = squares(x, x)
        return coreai.broadcasting_mul(norm(square, x)[0], scale)

    program, inputs = converted(lower)
    text = str(program)
    assert text.count("noinline @squares_") == 1
    assert text.count("noinline @normalize_") == 2
    assert "composite_decl" not in text
    assert program.verify_against(Norms(), inputs, backends=["evaluator"]).passed


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda outer: lambda x: coreai.broadcasting_mul(x, outer), r"uses Value\(%scale .*from outside"),
        (lambda outer: lambda x: outer, r"uses Value\(%scale .*from outside"),
        (lambda outer: lambda x: 3, "returned 3, which is no value"),
    ],
)
def test_bodies_that_are_wrong(body: Any, message: str) -> None:
    def lower(values_map: Any, node: Any, loc: Any) -> Any:
        x, scale = get_operands(values_map, node, [0, 1], loc)
        return coreai.graph(body(scale))(x)

    with pytest.raises(TypeError, match=message):
        converted(lower)


def test_calls_that_are_wrong() -> None:
    with pytest.raises(TypeError, match=r"takes values, got 1\.0 for 'x'"):
        coreai.graph(lambda x: x)(1.0)
    with pytest.raises(TypeError, match="too many positional arguments"):
        coreai.graph(lambda x: x)(1.0, 2.0)


def test_a_declaration_of_another_number_of_inputs() -> None:
    def lower(values_map: Any, node: Any, loc: Any) -> Any:
        declaration = generate_composite_decl("unit", ["x"], ["y"], {})
        x, scale = get_operands(values_map, node, [0, 1], loc)
        return coreai.graph(coreai.broadcasting_mul, composite_decl=declaration)(x, scale)

    with pytest.raises(StageError, match=r"input_names of the composite unit are \['x'\], but there are 2 arguments"):
        converted(lower)


# ---- declarations ------------------------------------------------------------------------------------


def test_declarations_with_and_without_a_context() -> None:
    attributes = {"eps": 1e-5, "axes": (-1, 0), "mode": 'a "b"', "flag": True, "nested": {"n": 2}}
    before = dict(attributes)
    plain = generate_composite_decl('my "norm"', ("x",), ["y"], attributes)
    assert attributes == before
    assert str(plain) == (
        r'#coreai.composite_declaration<"my \22norm\22" = {input_names = ["x"], op_attrs = {'
        r'axes = [-1 : si64, 0 : si64], eps = 1.000000e-05 : f32, flag = true, mode = "a \22b\22", '
        r"nested = {n = 2 : si64}, version = 1 : si64}, "
        r'output_names = ["y"]}>'
    )
    assert generate_composite_decl(object(), 'my "norm"', ["x"], ["y"], attributes) == plain
    assert generate_composite_decl(context=None, op_name='my "norm"', input_names=["x"], output_names=["y"],
                                   op_attributes=attributes) == plain  # fmt: skip
    assert "version = 3 : si64" in str(generate_composite_decl("n", ["x"], ["y"], {}, 3))
    assert "version = 2 : si64" in str(generate_composite_decl("n", ["x"], ["y"], {"version": 2}))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("n", "x", ["y"], {}), TypeError, "names must be a list of strings, got 'x'"),
        (("n", ["x"], [1], {}), TypeError, "names must be strings, got 1"),
        (("n", ["x"], ["y"], {"scale": None}), TypeError, r"\['scale'\] are None; leave them out"),
        (("n", ["x"], ["y"], {"scale": [None]}), TypeError, "must be bool, int, float, str"),
        (("n", ["x"], ["y"], {"dtype": torch.float16}), TypeError, "must be bool, int, float, str"),
        (("n", ["x"], ["y"], {"version": 2}, 3), ValueError, "version=3, but op_attributes has version 2"),
        ((None, 3, ["x"], ["y"], {}), TypeError, "composite_name must be a string, got 3"),
        (("n", ["x"], ["y"]), TypeError, "op_attributes"),
    ],
)
def test_declarations_that_are_wrong(arguments: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        generate_composite_decl(*arguments)


@pytest.mark.parametrize(
    ("attributes", "more", "words"),
    [
        (None, {}, "op_attributes must be a dict by name, got None"),
        ([1], {}, "op_attributes must be a dict by name"),
        ({3: 1}, {}, "op_attributes must be a dict by name"),
        ({}, {"version": "1"}, "the version must be an integer, got '1'"),
        ({"version": 1.5}, {}, "the version must be an integer"),
    ],
)
def test_a_declaration_of_other_types(attributes: object, more: dict, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        generate_composite_decl("mine", ["x"], ["y"], attributes, **more)
