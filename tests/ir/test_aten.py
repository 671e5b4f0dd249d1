"""The `aten` dialect: schemas as the installed PyTorch has them, arguments encoded and decoded without loss."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patcomp.ir import IRModule, Value, aten, create_graph, tensor
from patcomp.ir.types import element_type
from patcomp.ir.verify import verify
from patcomp.ir.xdsl import Block, OpResult


def bundled() -> list[str]:
    from importlib.resources import files

    return files("patcomp.ir").joinpath("aten_schemas.txt").read_text().splitlines()


# ---- schemas --------------------------------------------------------------------------------------


def test_the_bundled_table_is_that_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    if torch.__version__.split(".")[:2] != ["2", "13"]:
        pytest.skip(f"the table is that of PyTorch 2.13, installed is {torch.__version__}")
    from patcomp.frontend_torch.schemas import functional_schemas

    assert bundled() == functional_schemas()


@pytest.mark.parametrize("first", range(10))
def test_schemas_agree_with_pytorch(first: int) -> None:
    """Names, types and defaults of all arguments, a tenth of the table at a time."""
    torch = pytest.importorskip("torch")
    for text in bundled()[first::10]:
        ours, theirs = aten.parse_schema(text), torch._C.parse_schema(text.partition("  # ")[0])
        assert ours.name == aten.op_name(f"{theirs.name}.{theirs.overload_name or 'default'}")
        arguments = [a for a in theirs.arguments if a.name not in aten.MEMORY_ARGUMENTS]
        assert [a.name for a in ours.arguments] == [a.name for a in arguments]
        assert len(ours.result_types) == max(1, len(theirs.returns)) or not theirs.returns
        for mine, argument in zip(ours.arguments, arguments, strict=True):
            assert mine.has_default == argument.has_default_value(), text
            if mine.has_default and not isinstance(mine.default, str) and "bool" not in mine.type:
                default = list(mine.default) if isinstance(mine.default, tuple) else mine.default
                assert default == argument.default_value, (text, mine)


def test_unknown_and_custom_operators() -> None:
    with pytest.raises(KeyError, match=r"no operator 'aten\.nothing'"):
        aten.op_class("aten.nothing")
    with pytest.raises(ValueError, match="not an operator schema"):
        aten.define("not a schema")
    schema = aten.define("my_lib::scale.factor(Tensor x, float factor=2.5, *, int[2] pads=0) -> (Tensor, Tensor)")
    assert schema.name == "my_lib.scale.factor"
    assert schema["factor"].default == 2.5
    assert schema["pads"].default == (0, 0)
    assert schema.result_types == ("Tensor", "Tensor")
    assert aten.op_class("my_lib.scale.factor").SCHEMA is schema


# ---- arguments -------------------------------------------------------------------------------------


def values(count: int = 6) -> list[Value]:
    block = Block(arg_types=[tensor((2, 3), "f32")] * count)
    return [Value(argument) for argument in block.args]


FLOATS = st.one_of(st.floats(allow_nan=False), st.sampled_from([1e-05, 1e22, math.inf, -math.inf, 0.0, 5e-324]))
PLAIN = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), FLOATS, st.text(max_size=8),
    st.sampled_from(["f32", "si64", "i1", "complex<f32>"]).map(element_type),
)  # fmt: skip


@given(st.data())
def test_arguments_come_back(data: st.DataObject) -> None:
    given_values = values()
    argument = st.one_of(PLAIN, st.sampled_from(given_values))
    arguments = {
        "tensors": data.draw(st.lists(st.one_of(argument, st.lists(argument, max_size=3)), max_size=5)),
        "dim": data.draw(argument),
    }
    op = aten.create("aten.cat", arguments, [tensor((2, 3), "f32")])
    assert op.arguments_by_name() == arguments


def test_nan_comes_back() -> None:
    op = aten.create("aten.cat", {"tensors": [], "dim": math.nan}, [tensor((2, 3), "f32")])
    assert math.isnan(op.arguments_by_name()["dim"])


def test_defaults_and_errors() -> None:
    x = values(1)[0]
    op = aten.create("aten.add.Tensor", {"self": x, "other": x}, [tensor((2, 3), "f32")])
    assert op.arguments_by_name() == {"self": x, "other": x, "alpha": 1}
    assert type(op.arguments_by_name()["alpha"]) is int
    with pytest.raises(KeyError, match="has no argument beta"):
        aten.create("aten.add.Tensor", {"self": x, "other": x, "beta": 1}, [])
    with pytest.raises(TypeError, match="needs other="):
        aten.create("aten.add.Tensor", {"self": x}, [])
    with pytest.raises(TypeError, match="cannot be an operator argument"):
        aten.create("aten.add.Tensor", {"self": x, "other": x, "alpha": object()}, [])


# ---- text --------------------------------------------------------------------------------------------


def module_with(build: Any) -> IRModule:
    block = Block(arg_types=[tensor((2, 3), "f32")] * 3)
    op = build([Value(argument) for argument in block.args])
    block.add_op(op)
    from patcomp.ir import create_op

    block.add_op(create_op("coreai.output", [], []))
    module = IRModule()
    module.op.body.block.add_op(create_graph("main", block))
    return module


def survives(module: IRModule) -> str:
    verify(module)
    for generic in (False, True):
        text = module.text(generic=generic)
        again = IRModule.parse(text)
        assert again.text(generic=generic) == text
        first, second = (m.graph("main").regions[0].block.first_op for m in (module, again))
        assert first.properties == second.properties
        assert [index_of(v) for v in first.operands] == [index_of(v) for v in second.operands]
    return module.text()


def index_of(value: Any) -> int:
    assert not isinstance(value, OpResult)
    return value.index


@given(st.data())
def test_text_round_trip(data: st.DataObject) -> None:
    def build(arguments: list[Value]) -> Any:
        argument = st.one_of(PLAIN, st.sampled_from(arguments))
        items = st.lists(st.one_of(argument, st.lists(argument, max_size=3)), max_size=4)
        # an argument with a plain type may not be none, see `verify`
        dim = st.one_of(PLAIN.filter(lambda value: value is not None), st.sampled_from(arguments))
        return aten.create("aten.cat", {"tensors": data.draw(items), "dim": data.draw(dim)}, [tensor((2, 3), "f32")])

    survives(module_with(build))


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("aten.add.Tensor", {"self": 0, "other": 1}, "aten.add.Tensor %0, %1 : ("),
        ("aten.add.Tensor", {"self": 0, "other": 1, "alpha": 2}, "aten.add.Tensor %0, %1, alpha = 2 : ("),
        ("aten.mean.dim", {"self": 0, "dim": [-1], "keepdim": True}, "aten.mean.dim %0, dim = [-1], keepdim = true :"),
        ("aten.mean", {"self": 0, "dtype": "f16"}, "aten.mean %0, dtype = f16 :"),
        ("aten.relu", {"self": 0}, "aten.relu %0 : ("),
        ("aten.native_layer_norm", {"input": 0, "normalized_shape": [3], "weight": None, "bias": 1, "eps": 1e-05},
         "aten.native_layer_norm %0, normalized_shape = [3], weight = none, bias = %1, eps = 1.0e-05 :"),
        ("aten.clamp", {"self": 0, "min": -math.inf}, "aten.clamp %0, min = "),
        ("aten.clamp.Tensor", {"self": 0, "max": 2}, "aten.clamp.Tensor %0, max = %2 : ("),
        ("aten.index.Tensor", {"self": 0, "indices": [None, 1]}, "indices = [none, %1] :"),
    ],
)  # fmt: skip
def test_how_ops_read(name: str, arguments: dict[str, Any], text: str) -> None:
    tensors = {argument.name: argument.type for argument in aten.op_class(name).SCHEMA.arguments}

    def build(block_arguments: list[Value]) -> Any:
        def value(argument: str, given: Any) -> Any:
            if isinstance(given, list) and "Tensor" in tensors[argument]:
                return [value(argument, item) for item in given]
            if isinstance(given, int) and not isinstance(given, bool) and "Tensor" in tensors[argument]:
                return block_arguments[given]
            return element_type(given) if given == "f16" else given

        results = len(aten.op_class(name).SCHEMA.result_types)
        return aten.create(name, {k: value(k, v) for k, v in arguments.items()}, [tensor((2, 3), "f32")] * results)

    assert text in survives(module_with(build))
