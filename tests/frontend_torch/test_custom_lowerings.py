"""Lowerings that users register: the documented examples, everywhere in a program, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from patcomp import TorchConverter, UnsupportedError, get_decomp_table, get_operand, get_operands, supports
from patcomp.emit.native import Native
from patcomp.ir import IRModule, coreai
from patcomp.program.program import AIProgram

PAIR = (torch.randn(2, 3), torch.randn(2, 3))


@torch.library.custom_op("my_lib::scaled_add", mutates_args=())
def scaled_add(x: torch.Tensor, y: torch.Tensor, scale: float) -> torch.Tensor:
    return x + scale * y


@scaled_add.register_fake
def _(x: torch.Tensor, y: torch.Tensor, scale: float) -> torch.Tensor:
    return torch.empty_like(x)


def lower_scaled_add(values_map: Any, node: Any, loc: Any) -> Any:
    x, y = get_operands(values_map, node, [0, 1], loc)
    scale = node.args[2]  # plain Python float
    scale_val = coreai.constant(scale, dtype=x.type.element_type)
    scaled_y = coreai.broadcasting_mul(y, scale_val, loc=loc)
    return coreai.broadcasting_add(x, scaled_y, loc=loc)


class Adds(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.relu(scaled_add(x, y * 2, 0.5))


def exported(model: nn.Module, *inputs: Any, **more: Any) -> torch.export.ExportedProgram:
    return torch.export.export(model.eval(), inputs, **more).run_decompositions(get_decomp_table())


def converter_with(**lowerings: Callable[..., Any]) -> TorchConverter:
    """A converter with lowerings of ops of `my_lib`."""
    converter = TorchConverter()
    for name, function in lowerings.items():
        converter.register_torch_lowering(f"my_lib::{name}")(function)
    return converter


def check(program: AIProgram, model: nn.Module, *inputs: Tensor, native: Native) -> None:
    """Compares the evaluator and the runtime with PyTorch."""
    assert program.verify_against(model, inputs, backends=["evaluator"]).passed
    expected = model(*inputs)
    named = dict(zip(program.input_names(), inputs, strict=True))
    (output,) = native.run(program.module, named).values()
    torch.testing.assert_close(torch.from_numpy(output), expected)


# ---- the documented examples -------------------------------------------------------------------------


def test_documented_custom_op(native: Native) -> None:
    converter = TorchConverter()
    converter.register_torch_lowering("my_lib::scaled_add.default")(lower_scaled_add)
    coreai_program = converter.add_exported_program(exported(Adds(), *PAIR)).to_coreai()
    coreai_program.optimize()
    check(coreai_program, Adds(), *PAIR, native=native)


def test_documented_override_of_a_built_in_op(native: Native) -> None:
    converter = TorchConverter()

    @converter.register_torch_lowering("aten::_adaptive_avg_pool2d.default", allow_override=True)
    def lower_adaptive_avg_pool2d_static(values_map: Any, node: Any, loc: Any) -> Any:
        x = get_operand(values_map, node, 0, loc)
        output_h, output_w = node.args[1]
        input_h, input_w = x.type.shape[2], x.type.shape[3]
        stride_h, stride_w = input_h // output_h, input_w // output_w
        kernel_h = input_h - (output_h - 1) * stride_h
        kernel_w = input_w - (output_w - 1) * stride_w
        return coreai.broadcasting_divide(
            coreai.sumpool2d(
                x,
                kernel_size=np.array([kernel_h, kernel_w], dtype=np.uint32),
                strides=np.array([stride_h, stride_w], dtype=np.uint32),
                dilation=coreai.constant([1, 1], dtype=np.uint32),
            ),
            coreai.cast(float(kernel_h * kernel_w), x.type.element_type),
        )

    model, x = nn.AdaptiveAvgPool2d((2, 3)), torch.randn(1, 2, 8, 9)
    for program in (exported(model, x), torch.export.export(model, (x,))):
        converted = converter.add_exported_program(program).to_coreai()
        converter.clear()
        assert "coreai.sum_pool_2d" in str(converted)
        check(converted, model, x, native=native)


# ---- everywhere in a program -------------------------------------------------------------------------


def test_dumps_show_the_node_and_parse_again() -> None:
    program = converter_with(scaled_add=lower_scaled_add).add_exported_program(exported(Adds(), *PAIR)).to_coreai()
    assert (
        'patcomp.custom "my_lib.scaled_add"(%x, %mul) names ["x", "mul"] arguments "x, mul, 0.5"'
        in (program.stages["recover"])
    )
    for text in program.stages.values():
        assert IRModule.parse(text).text() == text
    again = converter_with(scaled_add=lower_scaled_add).add_exported_program(exported(Adds(), *PAIR)).to_coreai()
    assert again.text(locations=True) == program.text(locations=True)
    assert "my_lib.scaled_add" in program.explain("scaled_add")


def test_in_both_branches_of_a_cond(native: Native) -> None:
    class Branches(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return torch.cond(
                x.sum() > 0, lambda x, y: scaled_add(x, y, 2.0), lambda x, y: scaled_add(y, torch.sin(x), -1.0), (x, y)
            )

    program = converter_with(scaled_add=lower_scaled_add).add_exported_program(exported(Branches(), *PAIR)).to_coreai()
    assert "coreai.if" in str(program)
    check(program, Branches(), *PAIR, native=native)
    check(program, Branches(), -PAIR[0].abs(), PAIR[1], native=native)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3))

    def forward(self, x: Tensor) -> Tensor:
        return scaled_add(x, self.weight * x, 3.0)


def test_in_an_externalized_module(native: Native) -> None:
    model = nn.Sequential(Block(), nn.ReLU(), Block()).eval()
    converter = converter_with(scaled_add=lower_scaled_add)
    converter.add_pytorch_module(model, lambda m: exported(m, PAIR[0]), externalize_modules=[Block])
    program = converter.to_coreai()
    assert str(program).count("coreai.invoke") == 2
    check(program, model, PAIR[0], native=native)


def test_with_dynamic_shapes(native: Native) -> None:
    rows = torch.export.Dim("rows", min=2, max=9)
    shapes = {"x": {0: rows}, "y": {0: rows}}
    program = exported(Adds(), *PAIR, dynamic_shapes=shapes)
    converted = converter_with(scaled_add=lower_scaled_add).add_exported_program(program).to_coreai()
    check(converted, Adds(), torch.randn(5, 3), torch.randn(5, 3), native=native)


def test_a_result_of_one_size_is_no_result_of_any_size() -> None:
    rows = torch.export.Dim("rows", min=2, max=9)
    program = exported(Adds(), *PAIR, dynamic_shapes={"x": {0: rows}, "y": {0: rows}})
    converter = converter_with(scaled_add=lambda v, n, loc: coreai.constant(np.ones((2, 3), np.float32), loc=loc))
    with pytest.raises(UnsupportedError, match="a static size replaces a dynamic one"):
        converter.add_exported_program(program).to_coreai()


@torch.library.custom_op("my_lib::tiled", mutates_args=())
def tiled(x: torch.Tensor, count: int) -> torch.Tensor:
    return x.tile(count)


@tiled.register_fake
def _(x: torch.Tensor, count: int) -> torch.Tensor:
    return x.new_empty(x.shape[0] * count)


def test_sizes_and_numbers_are_operands(native: Native) -> None:
    class Tiles(nn.Module):
        def forward(self, x: Tensor, factor: int) -> Tensor:
            return tiled(tiled(x, x.shape[0] + 1), factor)

    def lower_tiled(values_map: Any, node: Any, loc: Any) -> Any:
        x, count = get_operands(values_map, node, [0, 1], loc)
        assert (count.dtype, count.rank, x.shape) == ("si32", 0, (None,))
        return coreai.tile(x, [count], loc=loc)

    shapes = {"x": {0: torch.export.Dim("rows", min=2, max=9)}, "factor": None}
    program = exported(Tiles(), torch.randn(4), 3, dynamic_shapes=shapes)
    converted = converter_with(tiled=lower_tiled).add_exported_program(program).to_coreai()
    x = torch.randn(6)
    outputs = native.run(converted.module, {"x": x})
    torch.testing.assert_close(torch.from_numpy(*outputs.values()), Tiles()(x, 3))


@torch.library.custom_op("my_lib::moments", mutates_args=())
def moments(parts: list[torch.Tensor], *, weight: float | None = None, shift: int = 1) -> list[torch.Tensor]:
    total = sum(parts) * (1.0 if weight is None else weight)
    return [total + shift, total - shift]


@moments.register_fake
def _(parts: list[torch.Tensor], *, weight: float | None = None, shift: int = 1) -> list[torch.Tensor]:
    return [torch.empty_like(parts[0]), torch.empty_like(parts[0])]


def lower_moments(values_map: Any, node: Any, loc: Any) -> Any:
    parts, weight, shift = get_operands(values_map, node, [0, 1, 2], loc)
    total = coreai.broadcasting_add(*parts, loc=loc)
    if weight is not None:
        total = coreai.broadcasting_mul(total, weight, loc=loc)
    shift = coreai.cast(shift, total.type.element_type)
    return [coreai.broadcasting_add(total, shift, loc=loc), coreai.broadcasting_sub(total, shift, loc=loc)]


class Moments(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        up, down = moments([x, y], weight=0.25)
        _, last = moments([up, down], shift=3)
        return last * up


def test_lists_keywords_defaults_and_several_results(native: Native) -> None:
    seen: list[set[str]] = []

    def lower(values_map: Any, node: Any, loc: Any) -> Any:
        seen.append(set(values_map))
        return lower_moments(values_map, node, loc)

    program = converter_with(moments=lower).add_exported_program(exported(Moments(), *PAIR)).to_coreai()
    check(program, Moments(), *PAIR, native=native)
    assert seen == [{"x", "y"}, {"getitem", "getitem_1", "moments#0", "moments#1"}]


def test_composites_are_left_alone_where_an_op_is_overridden() -> None:
    converter = TorchConverter()
    calls: list[str] = []

    @converter.register_torch_lowering("aten::relu", allow_override=True)
    def lower_relu(values_map: Any, node: Any, loc: Any) -> Any:
        calls.append(node.name)
        return coreai.broadcasting_maximum(get_operand(values_map, node, 0, loc), 0.0, loc=loc)

    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.LayerNorm(3)).eval()
    program = converter.add_exported_program(exported(model, PAIR[0])).to_coreai()
    assert calls == ["relu"]
    assert program.composites == {"layer_norm": 1}
    assert "coreai.relu" not in str(program)
    assert program.verify_against(model, PAIR[:1], backends=["evaluator"]).passed


def test_empty_results_are_constants() -> None:
    empty = (torch.randn(0, 3), torch.randn(0, 3))
    program = converter_with(scaled_add=lower_scaled_add).add_exported_program(exported(Adds(), *empty)).to_coreai()
    assert program.verify_against(Adds(), empty, backends=["evaluator"]).passed


# ---- registration ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["aten", "a::b::c", "::x", "x::", "", "a::b.c.d", "a:b", None, 3])
def test_malformed_names(name: Any) -> None:
    with pytest.raises(ValueError, match="qualified_name must be"):
        TorchConverter().register_torch_lowering(name)


def test_what_is_no_function() -> None:
    with pytest.raises(TypeError, match="must be a function"):
        TorchConverter().register_torch_lowering("my_lib::scaled_add")(3)  # type: ignore[arg-type]


def test_what_is_registered_already() -> None:
    converter = converter_with(scaled_add=lower_scaled_add)
    for taken in (
        "aten::add.Tensor",
        "aten::add",
        "aten::native_layer_norm",
        "my_lib::scaled_add",
        "my_lib::scaled_add.default",
    ):
        with pytest.raises(ValueError, match="already registered"):
            converter.register_torch_lowering(taken)
    with pytest.raises(ValueError, match="takes graphs, and a lowering cannot"):
        converter.register_torch_lowering("higher_order::cond", allow_override=True)
    for name in ("aten::sym_size.int", "aten::_assert_scalar"):
        with pytest.raises(ValueError, match="computes no tensor"):
            converter.register_torch_lowering(name, allow_override=True)
    for free in ("my_lib::notthere.default", "aten::poisson"):
        assert converter.register_torch_lowering(free)(lower_scaled_add) is lower_scaled_add
    converter.register_torch_lowering("my_lib::scaled_add.default", allow_override=True)(lower_moments)
    assert "custom_lowerings: ['my_lib::scaled_add', 'my_lib::notthere.default'" in repr(converter)
    assert "custom_lowerings" not in repr(TorchConverter())


def test_a_lowering_of_one_overload_comes_before_that_of_all() -> None:
    calls: list[str] = []
    converter = TorchConverter()

    def lowering(name: str) -> Callable[..., Any]:
        return lambda *given: (calls.append(name), lower_scaled_add(*given))[1]

    converter.register_torch_lowering("my_lib::scaled_add")(lowering("all"))
    converter.register_torch_lowering("my_lib::scaled_add.default", allow_override=True)(lowering("one"))
    converter.add_exported_program(exported(Adds(), *PAIR)).to_coreai()
    converter.register_torch_lowering("my_lib::scaled_add", allow_override=True)(lowering("new"))
    converter.to_coreai()
    assert calls == ["one", "new"]


def test_registered_after_staging_and_kept_over_clear() -> None:
    converter = TorchConverter().add_exported_program(exported(Adds(), *PAIR))
    assert [problem.op for problem in converter.open_problems()] == ["my_lib.scaled_add"]
    with pytest.raises(UnsupportedError, match=r"unsupported ops: my_lib\.scaled_add"):
        converter.to_coreai()
    converter.register_torch_lowering("my_lib::scaled_add")(lower_scaled_add)
    assert converter.to_coreai().verify_against(Adds(), PAIR, backends=["evaluator"]).passed
    converter.clear()
    again = converter.add_exported_program(exported(Adds(), *PAIR)).to_coreai()
    assert again.verify_against(Adds(), PAIR, backends=["evaluator"]).passed
    with pytest.raises(UnsupportedError):  # another converter has its own
        TorchConverter().add_exported_program(exported(Adds(), *PAIR)).to_coreai()
    assert not supports(exported(Adds(), *PAIR))


def test_an_op_that_was_taken_apart_when_it_was_staged() -> None:
    model = nn.Hardswish()
    converter = TorchConverter().add_exported_program(torch.export.export(model, PAIR[:1]))
    calls: list[str] = []

    @converter.register_torch_lowering("aten::hardswish", allow_override=True)
    def lower(values_map: Any, node: Any, loc: Any) -> Any:
        calls.append(node.name)
        x = get_operand(values_map, node, 0, loc)
        gate = coreai.broadcasting_minimum(coreai.broadcasting_maximum(coreai.broadcasting_add(x, 3.0), 0.0), 6.0)
        return coreai.broadcasting_divide(coreai.broadcasting_mul(x, gate), 6.0)

    assert converter.to_coreai().verify_against(model, PAIR[:1], backends=["evaluator"]).passed
    assert calls


# ---- what a lowering does wrong ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda v, n, loc: None, "returned None, which is no value, for tensor<2x3xf32>"),
        (lambda v, n, loc: 3, "returned 3, which is no value"),
        (lambda v, n, loc: [], "returned 0 values for 1 results"),
        (lambda v, n, loc: [v["x"], v["mul"]], "returned 2 values for 1 results"),
        (lambda v, n, loc: coreai.cast(v["x"], "f16"), "tensor<2x3xf16> for tensor<2x3xf32>, of another element type"),
        (lambda v, n, loc: coreai.reshape(v["x"], [6]), "tensor<6xf32> for tensor<2x3xf32>, of another rank"),
        (lambda v, n, loc: coreai.transpose(v["x"], [1, 0]), "tensor<3x2xf32> for tensor<2x3xf32>, of another shape"),
    ],
)
def test_results_are_checked(function: Callable[..., Any], message: str) -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Adds()

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return self.inner(x, y)  # type: ignore[no-any-return]

    converter = converter_with(scaled_add=function).add_exported_program(exported(Outer(), *PAIR))
    with pytest.raises(UnsupportedError) as raised:
        converter.to_coreai()
    (problem,) = raised.value.problems
    assert message in problem.message
    assert (problem.op, problem.node, problem.module_path) == ("my_lib.scaled_add", "scaled_add", "inner")
    assert problem.source.partition(":")[0].endswith("test_custom_lowerings.py")


@pytest.mark.parametrize("error", [ZeroDivisionError("no"), TypeError("wrong"), OverflowError("much"), KeyError("key")])
def test_exceptions_pass_through_with_a_note(error: Exception) -> None:
    def lower(values_map: Any, node: Any, loc: Any) -> Any:
        raise error

    converter = converter_with(scaled_add=lower).add_exported_program(exported(Adds(), *PAIR))
    with pytest.raises(type(error)) as raised:
        converter.to_coreai()
    assert raised.value is error
    assert "the registered lowering of my_lib.scaled_add ran for %scaled_add" in raised.value.__notes__[0]
    converter.register_torch_lowering("my_lib::scaled_add", allow_override=True)(lower_scaled_add)
    assert converter.to_coreai().verify_against(Adds(), PAIR, backends=["evaluator"]).passed


def test_values_of_other_nodes() -> None:
    converter = converter_with(scaled_add=lambda v, n, loc: v["y"]).add_exported_program(exported(Adds(), *PAIR))
    with pytest.raises(KeyError, match=r"'y' is no input of the node 'scaled_add'; its inputs are \['x', 'mul'\]"):
        converter.to_coreai()
    converter = converter_with(scaled_add=lambda v, n, loc: get_operand(v, n, 7, loc))
    with pytest.raises(IndexError, match="has 3 arguments, so there is no argument 7"):
        converter.add_exported_program(exported(Adds(), *PAIR)).to_coreai()


def test_sixty_four_bits_are_narrowed_in_results_too() -> None:
    class Integers(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return scaled_add(x, x, 1.0)

    x = torch.arange(4)
    converter = converter_with(scaled_add=lambda v, n, loc: coreai.broadcasting_add(v["x"], v["x"]))
    program = converter.add_exported_program(exported(Integers(), x)).to_coreai()
    assert "tensor<4xsi32>" in str(program)
    assert program.diagnostics == ()  # what the user lowers is taken to fit


def test_complex_numbers_are_refused() -> None:
    class Complex(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.view_as_real(torch.view_as_complex(x) * 2)

    converter = TorchConverter()
    converter.register_torch_lowering("aten::mul.Tensor", allow_override=True)(lower_scaled_add)
    converter.add_exported_program(torch.export.export(Complex(), (torch.randn(3, 2),)))
    with pytest.raises(UnsupportedError, match="a registered lowering cannot take or return complex numbers"):
        converter.to_coreai()


# ---- custom ops without a lowering -------------------------------------------------------------------


def test_the_skeleton_in_the_error_works_once_it_is_filled_in() -> None:
    class Both(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            up, down = moments([scaled_add(x, y, 0.5), y], shift=2)
            return scaled_add(up, down, 1.5)

    converter = TorchConverter().add_exported_program(exported(Both(), *PAIR))
    with pytest.raises(UnsupportedError) as raised:
        converter.to_coreai()
    assert [problem.op for problem in raised.value.problems] == [
        "my_lib.scaled_add", "my_lib.moments", "my_lib.scaled_add"
    ]  # fmt: skip
    first, second, third = (problem.advice for problem in raised.value.problems)
    assert third == "as above"
    assert "x = get_operand(values_map, node, 0, loc)  # tensor<2x3xf32>" in first
    assert "scale = node.args[2]  # 0.5" in first
    assert "parts = get_operand(values_map, node, 0, loc)  # [tensor<2x3xf32>, tensor<2x3xf32>]" in second
    filled = {
        "result = ...": "result = coreai.broadcasting_add(x, coreai.broadcasting_mul(y, scale))",
        "result_0 = ...": "result_0 = coreai.broadcasting_add(coreai.broadcasting_add(*parts), float(shift))",
        "result_1 = ...": "result_1 = coreai.broadcasting_sub(coreai.broadcasting_add(*parts), float(shift))",
    }
    for advice in (first, second):
        code = advice.partition("\n\n")[2]
        for blank, line in filled.items():
            code = code.replace(blank, line)
        exec(code, {"converter": converter})
    assert converter.to_coreai().verify_against(Both(), PAIR, backends=["evaluator"]).passed


@torch.library.custom_op("my_lib::awkward", mutates_args=())
def awkward(x: Tensor, node: int, get_operand: int, result: int, lambda_: float = 0.5) -> Tensor:
    return x * (node + get_operand + result) * lambda_


@awkward.register_fake
def _(x: Tensor, node: int, get_operand: int, result: int, lambda_: float = 0.5) -> Tensor:
    return torch.empty_like(x)


def test_the_skeleton_is_pasted_from_the_message_as_it_stands() -> None:
    class Awkward(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return awkward(x, 1, 2, 3)

    converter = TorchConverter().add_exported_program(exported(Awkward(), PAIR[0]))
    with pytest.raises(UnsupportedError) as raised:
        converter.to_coreai()
    code = str(raised.value)[str(raised.value).index("from patcomp import") :]
    factor = "float(node_ + get_operand_ + result_) * lambda_"
    exec(code.replace("result = ...", f"result = coreai.broadcasting_mul(x, {factor})"), {"converter": converter})
    assert converter.to_coreai().verify_against(Awkward(), PAIR[:1], backends=["evaluator"]).passed


library = torch.library.Library("my_lib", "FRAGMENT")
library.define("softsum(Tensor x, float beta=2.0) -> Tensor")
library.impl("softsum", lambda x, beta=2.0: (x * beta).exp().sum(-1) / beta, "CompositeImplicitAutograd")
library.define("squared(Tensor x) -> Tensor")
library.impl("squared", lambda x: x * x, "CompositeExplicitAutograd")


@torch._decomp.register_decomposition(torch.ops.my_lib.squared.default)
def squared(x: Tensor) -> Tensor:
    return x * x


class Decomposes(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.my_lib.softsum(torch.ops.my_lib.squared(x))  # type: ignore[no-any-return]


@pytest.mark.parametrize("decomposed", [False, True])
def test_custom_ops_with_a_decomposition_need_no_lowering(decomposed: bool) -> None:
    program = torch.export.export(Decomposes(), PAIR[:1])
    if decomposed:
        program = program.run_decompositions(get_decomp_table())
    converted = TorchConverter().add_exported_program(program).to_coreai()
    assert converted.verify_against(Decomposes(), PAIR[:1], backends=["evaluator"]).passed


def test_a_lowering_comes_before_a_decomposition() -> None:
    calls: list[str] = []

    def lower(values_map: Any, node: Any, loc: Any) -> Any:
        calls.append(node.name)
        total = coreai.reduce_sum(coreai.exp(coreai.broadcasting_mul(values_map["squared"], 2.0)), [1])
        return coreai.broadcasting_divide(coreai.shrink_dims(total, [1]), 2.0)

    converter = converter_with(softsum=lower)
    program = converter.add_exported_program(torch.export.export(Decomposes(), PAIR[:1])).to_coreai()
    assert calls == ["softsum"]
    assert program.verify_against(Decomposes(), PAIR[:1], backends=["evaluator"]).passed


@torch.library.custom_op("my_lib::bump", mutates_args=("x",))
def bump(x: torch.Tensor) -> None:
    x.add_(1)


@bump.register_fake
def _(x: torch.Tensor) -> None:
    return None


def test_custom_ops_that_write_to_their_arguments_are_refused() -> None:
    class Bumps(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x * 2
            bump(y)
            return y

    with pytest.raises(UnsupportedError, match=r"my_lib::bump writes to its arguments.*returns new tensors"):
        TorchConverter().add_exported_program(torch.export.export(Bumps(), PAIR[:1]))


def test_a_lowering_in_a_model_that_writes_in_place() -> None:
    class InPlace(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.ops.my_lib.softsum(torch.relu_(x * 2))  # type: ignore[no-any-return]

    calls: list[str] = []

    def lower(values_map: Any, node: Any, loc: Any) -> Any:
        calls.append(node.name)
        total = coreai.reduce_sum(coreai.exp(coreai.broadcasting_mul(get_operand(values_map, node, 0), 2.0)), [1])
        return coreai.broadcasting_divide(coreai.shrink_dims(total, [1]), 2.0)

    program = torch.export.export(InPlace(), PAIR[:1])
    converted = converter_with(softsum=lower).add_exported_program(program).to_coreai()
    assert calls == ["softsum"]
    assert converted.verify_against(InPlace(), PAIR[:1], backends=["evaluator"]).passed


def test_ops_of_the_native_compiler() -> None:
    """They take no values of ours, and theirs cannot stand in a program of ours."""
    pytest.importorskip("coreai.authoring")  # first: the dialects cannot be imported before it
    native = pytest.importorskip("coreai._compiler.dialects.coreai")
    ir = pytest.importorskip("coreai._compiler.ir")

    def builds(values_map: Any, node: Any, loc: Any) -> Any:
        x, y = get_operands(values_map, node, [0, 1], loc)
        return native.broadcasting_add(x, y, loc=loc)

    program = exported(Adds(), *PAIR)
    with pytest.raises(TypeError, match=r"my_lib.scaled_add \(node %scaled_add\) .* with patcomp\.ir\.coreai"):
        converter_with(scaled_add=builds).add_exported_program(program).to_coreai()

    def returns(values_map: Any, node: Any, loc: Any) -> Any:
        with ir.Context():
            return ir.F32Type.get()

    with pytest.raises(UnsupportedError, match=r"an object of coreai-core \(build it with patcomp\.ir\.coreai\)"):
        converter_with(scaled_add=returns).add_exported_program(program).to_coreai()

    def fails(values_map: Any, node: Any, loc: Any) -> Any:
        raise AttributeError("the user's own")

    with pytest.raises(AttributeError, match="the user's own"):
        converter_with(scaled_add=fails).add_exported_program(program).to_coreai()
