"""One ATen op with arguments, run three ways: eager PyTorch, the compiled program on the reference evaluator,
the compiled program on the real runtime.

A case is made from a rule's `example`: tensors are written as types, `"2x3xf32"`, with a range of values
where it matters, `"4xsi64[0,3]"` (ends included), and become the inputs `x0`, `x1`, ... of a graph that
holds only that op. A `torch.Tensor` may stand for itself.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from patcomp.emit.native import Native
from patcomp.errors import UnsupportedError
from patcomp.evaluate.eager import overload_of
from patcomp.evaluate.element_types import to_tensor
from patcomp.evaluate.inputs import prepare_input
from patcomp.evaluate.machine import evaluate
from patcomp.frontend_torch.fx.dtypes import dtype_of, type_of
from patcomp.ir import aten, coreai
from patcomp.ir.builder import Builder
from patcomp.ir.module import IRModule, create_graph
from patcomp.ir.types import TensorType, element_type
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Block
from patcomp.patterns import RuleSet
from patcomp.rewrites import Compilation, Options, run_pipeline
from patterns_catalog import default_rules
from tests.helpers.joined import run_each

_TENSOR = re.compile(r"((?:\d+x)*)([a-z]+\d+|complex<f32>)(?:\[([-\d.]+),([-\d.]+)\])?")


def make_tensor(text: str, generator: torch.Generator) -> torch.Tensor:
    """A random tensor of a type such as `"2x3xf32"` or `"4xsi64[0,3]"`.

    Floats are normally distributed where no range is given, integers between 0 or -9 and 9, bools fair.
    """
    match = _TENSOR.fullmatch(text)
    assert match, f"{text!r} is not the type of a tensor"
    shape = [int(size) for size in match[1].split("x") if size]
    dtype = dtype_of(element_type(match[2]))
    low, high = (float(match[3]), float(match[4])) if match[3] else (None, None)
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) < 0.5
    if dtype.is_complex:
        return torch.randn(shape, generator=generator, dtype=dtype)
    if dtype.is_floating_point:
        if low is None:
            return torch.randn(shape, generator=generator).to(dtype)
        return (torch.rand(shape, generator=generator) * (high - low) + low).to(dtype)
    least = int(low) if low is not None else 0 if dtype == torch.uint8 else -9
    most = int(high) if high is not None else 9
    return torch.randint(least, most + 1, shape, generator=generator).to(dtype)


@dataclass
class Case:
    """An op, its arguments as eager PyTorch takes them, and what eager gives."""

    op: str
    arguments: dict[str, Any]
    expected: list[torch.Tensor]

    @property
    def inputs(self) -> list[torch.Tensor]:
        """The tensors among the arguments, in the order of the schema."""
        return [leaf for value in self.arguments.values() for leaf in _tensors(value)]


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    for item in value if isinstance(value, list | tuple) else [value]:
        if isinstance(item, torch.Tensor):
            yield item


def make_case(
    op: str, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None, *, special: bool = False
) -> Case:
    """A case with random inputs, always the same ones for the same arguments, and eager's results.

    With `special`, every other element of float tensors is an infinity, a NaN or a zero of either sign.

    Raises:
        RuntimeError, TypeError, IndexError: eager PyTorch refuses the arguments.
    """
    generator = torch.Generator().manual_seed(zlib.crc32(repr((op, args)).encode()))
    schema = aten.schema_of(op) or aten.define(str(overload_of(op)._schema))
    types = {argument.name: argument.type for argument in schema.arguments}
    given = dict(zip(types, args, strict=False)) | dict(kwargs or {})
    arguments = {name: _argument(value, types[name], generator) for name, value in given.items()}
    if special:
        arguments = {name: _with_special_values(value, generator) for name, value in arguments.items()}
    result = overload_of(op)(**{name: eager_argument(value, types[name]) for name, value in arguments.items()})
    results = list(result) if isinstance(result, tuple | list) else [result]
    # a size is a number in PyTorch and a 0-d tensor in the IR
    return Case(op, arguments, [torch.tensor(result) if isinstance(result, int) else result for result in results])


def _argument(value: Any, type_: str, generator: torch.Generator) -> Any:
    if isinstance(value, list):
        return [_argument(item, type_, generator) for item in value]
    if isinstance(value, str) and type_.startswith("Tensor"):
        return make_tensor(value, generator)
    return value


_SPECIAL = torch.tensor([torch.nan, torch.inf, -torch.inf, 0.0, -0.0])


def _with_special_values(value: Any, generator: torch.Generator) -> Any:
    if isinstance(value, list):
        return [_with_special_values(item, generator) for item in value]
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    chosen = _SPECIAL[torch.randint(0, len(_SPECIAL), value.shape, generator=generator)].to(value.dtype)
    return torch.where(torch.rand(value.shape, generator=generator) < 0.5, chosen, value)


def eager_argument(value: Any, type_: str) -> Any:
    """An argument as eager PyTorch takes it: an element type is a dtype there."""
    return dtype_of(element_type(value)) if isinstance(value, str) and type_.startswith("ScalarType") else value


def build_case(case: Case) -> IRModule:
    """The module of a case: `@main` takes `x0`, ... and returns the results `y0`, ....

    Of an op with several results, such as pooling with indices, only the first one is returned; of an
    op that returns a list, all.
    """
    module = IRModule()
    block = Block(arg_types=[type_of(x) for x in case.inputs])
    schema = aten.schema_of(case.op)
    assert schema is not None
    listed = schema.result_types[0].endswith("[]")
    remaining = iter(block.args)
    with Builder(block, blobs=module.blobs):
        arguments = {name: _built(value, remaining) for name, value in case.arguments.items()}
        for argument in schema.arguments:
            if argument.type.startswith("ScalarType") and isinstance(arguments.get(argument.name), str):
                arguments[argument.name] = element_type(arguments[argument.name])
        results = aten.build(case.op, [type_of(result) for result in case.expected], **arguments)
        coreai.output(*(results if listed else results[:1]))
    for index, argument in enumerate(block.args):
        argument.name_hint = f"x{index}"
    outputs = [f"y{index}" for index in range(len(results) if listed else 1)]
    graph = create_graph("main", block, argument_names=[a.name_hint or "" for a in block.args], result_names=outputs)
    module.op.body.block.add_op(graph)
    return module


def _built(value: Any, remaining: Iterator[Any]) -> Any:
    if isinstance(value, torch.Tensor):
        return Value(next(remaining))
    return [_built(item, remaining) for item in value] if isinstance(value, list) else value


def compile_case(case: Case, rules: RuleSet | None = None) -> Compilation:
    """The compiled program of a case.

    Raises:
        UnsupportedError: the op, as it is used here, is refused.
        StageError: a rule is defective.
    """
    return run_pipeline(build_case(case), rules or default_rules(), Options())


def fired(compilation: Compilation) -> dict[str, int]:
    """How often each rule rewrote something, in all stages."""
    return {name: count for report in compilation.reports for name, count in report.statistics.fired.items()}


def _inputs(case: Case, compilation: Compilation) -> dict[str, torch.Tensor]:
    block = compilation.module.graph("main").regions[0].block
    prepared = {}
    for index, (value, argument) in enumerate(zip(case.inputs, block.args, strict=True)):
        assert isinstance(argument.type, TensorType)
        prepared[f"x{index}"] = prepare_input(value, argument.type, f"x{index}")
    return prepared


TOLERANCES = {torch.float16: 4e-3, torch.bfloat16: 3e-2}
"""Relative to the magnitude of the value, absolute for values below 1; float32 has 1e-5."""

_NARROW = {torch.int64: torch.int32, torch.float64: torch.float32, torch.complex128: torch.complex64}


def assert_agrees(case: Case, outputs: Mapping[str, Any], where: str) -> None:
    """Every output is eager's: integers and bools exactly, floats within the tolerance of the narrowest type."""
    for name, value in outputs.items():
        expected, given = case.expected[int(name[1:])], to_tensor(np.asarray(value) if np.isscalar(value) else value)
        wanted = expected.to(_NARROW.get(expected.dtype, expected.dtype))
        if not (wanted.is_floating_point() or wanted.is_complex()):
            tolerance = 0.0
        else:
            tolerance = max(TOLERANCES.get(tensor.dtype, 1e-5) for tensor in [*case.inputs, expected])
        try:
            torch.testing.assert_close(given, wanted, rtol=tolerance, atol=tolerance, equal_nan=True)
        except AssertionError as error:
            raise AssertionError(f"{where}, {name} of {case.op}: {error}\n{given}\neager: {expected}") from None


def check_on_evaluator(case: Case, compilation: Compilation) -> None:
    """The program's results on the reference evaluator are eager's."""
    assert_agrees(case, evaluate(compilation.module, _inputs(case, compilation)), "evaluator")


def check_on_runtime(case: Case, compilation: Compilation, native: Native) -> None:
    """The program's results on the real runtime are eager's."""
    assert_agrees(case, native.run(compilation.module, _inputs(case, compilation)), "runtime")


def check_each_on_runtime(programs: Mapping[str, tuple[Case, Compilation]], native: Native) -> None:
    """The results of several programs on the real runtime are eager's; their names are identifiers."""
    inputs = {name: (compilation.module, _inputs(case, compilation)) for name, (case, compilation) in programs.items()}
    for name, outputs in run_each(native, inputs).items():
        assert_agrees(programs[name][0], outputs, f"runtime, {name}")


def assert_all_agree(case: Case, native: Native) -> None:
    """The compiled case gives eager's results on the evaluator and on the runtime."""
    compilation = compile_case(case)
    check_on_evaluator(case, compilation)
    check_on_runtime(case, compilation, native)


def assert_refused(case: Case) -> None:
    """Compiling the case reports its op as unsupported."""
    with pytest.raises(UnsupportedError) as caught:
        compile_case(case)
    assert [problem.op for problem in caught.value.problems if problem.message]


def param(name: str, op: str, *args: Any, **kwargs: Any) -> Any:
    """A pytest parameter set `op, args, kwargs` under a name; the dialect is left out of the op's."""
    return pytest.param(f"aten.{op}", args, kwargs, id=name)


def values(numbers: Any, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A tensor of given numbers."""
    return torch.tensor(numbers, dtype=dtype)
