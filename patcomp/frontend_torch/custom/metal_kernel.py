"""Custom Metal kernels: PyTorch ops that run a reference function in eager mode and Metal source in a program.

Each definition of a kernel is an overload of the op `coreai_metal_kernels::<name>`, named by a hash of the definition.
So an exported program keeps the kernel it was exported with, even if the name is defined again later.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from patcomp.frontend_torch.custom.metal_reference import Reference
from patcomp.frontend_torch.custom.metal_source import (
    Buffer,
    MetalParameter,
    check_name,
    fill_templates,
    kernel_source,
    problem_of,
)
from patcomp.frontend_torch.fx.dtypes import type_of
from patcomp.frontend_torch.fx.nodes import recorded_results
from patcomp.ir import coreai
from patcomp.ir.attributes import HardwareConstraintsAttr
from patcomp.ir.types import element_name, runtime_type, tensor
from patcomp.ir.value import Value, ValueType
from patcomp.ir.xdsl import LocationAttr, StringAttr
from patcomp.narrowing.widths import Widths
from patcomp.patterns import Rejected
from patcomp.pytorch import OpOverload, statically_known_true

if TYPE_CHECKING:
    from patcomp.evaluate.metal.check import KernelCheck

NAMESPACE = "coreai_metal_kernels"
MOST_PARAMETERS = 31
MOST_THREADS_PER_GROUP = 1024

_LIBRARIES: list[torch.library.Library] = []
"""One for each definition, because PyTorch aborts at the end of the process if a library has several overloads of an
op."""
_OPS: dict[str, OpOverload] = {}
"""The ops defined so far by qualified name; global, because PyTorch's registry is global."""

_SCHEMA_TYPES = {torch.Tensor: "Tensor", int: "SymInt", float: "float", bool: "bool"}

Threads = Sequence[Any] | Callable[..., Sequence[Any]]


class TorchMetalKernel:
    """A Metal kernel that a PyTorch model can call.

        kernel = TorchMetalKernel(
            "scaled", ["x", "scale"], ["output"], "output[id] = x[id] * scale;", reference,
            metal_params=[MetalParameter("id", "uint", "thread_position_in_grid")],
        )
        y = kernel(x, 2.0, threads_per_grid=(n, 1, 1), threads_per_thread_group=(64, 1, 1), result_shapes=[x.shape])

    Args:
        name: name of the kernel; the Metal function has this name with a hash.
        input_names: a name for each parameter of `torch_defn`, in order.
        result_names: a name for each result.
        src: the body of the Metal function.
        torch_defn: a PyTorch function that computes the same; eager PyTorch and the evaluator run it. All parameters
            (`torch.Tensor`, `int`, `float`, `bool`) and the result (`Tensor`, `list[Tensor]`, `tuple[Tensor, Tensor]`)
            must be annotated.
        metal_params: parameters that Metal fills, such as the thread's position.
        helper_src: Metal functions that the body calls.
        template_dtypes: a placeholder by input name, which stands for that input's Metal type in `src` and
            `helper_src`.

    Raises:
        ValueError: Metal does not accept a name; a name is repeated or does not fit `torch_defn`; the body is missing;
            there are too many parameters; a placeholder belongs to no input, or to two.
        TypeError: `torch_defn` is not a function, an annotation is missing or unsupported, or another argument has the
            wrong type.
    """

    def __init__(
        self,
        name: str,
        input_names: Sequence[str],
        result_names: Sequence[str],
        src: str,
        torch_defn: Callable[..., Any],
        metal_params: Sequence[MetalParameter] | None = None,
        helper_src: str | None = None,
        template_dtypes: Mapping[str, str] | None = None,
    ):
        check_name(name, "the name of a kernel")
        for what, given, kinds in (
            ("input_names", input_names, list | tuple),
            ("result_names", result_names, list | tuple),
            ("metal_params", metal_params, list | tuple | None),
            ("helper_src", helper_src, str | None),
            ("template_dtypes", template_dtypes, Mapping | None),
        ):
            if not isinstance(given, kinds):
                raise TypeError(f"{what} of kernel {name!r} cannot be {given!r}, of type {type(given).__name__}")
        self.name = name
        self.input_names, self.result_names = tuple(input_names), tuple(result_names)
        self.src, self.helper_src = src, helper_src or ""
        self.metal_params = tuple(metal_params or ())
        self.template_dtypes = dict(template_dtypes or {})
        self._check()
        self.reference = Reference(torch_defn, self.input_names, self.result_names, f"kernel {name!r}")
        self._digest = _digest(
            (self.name, self.input_names, self.result_names, self.src, self.helper_src, self.metal_params),
            sorted(self.template_dtypes.items()),
            self.reference.identity,
        )
        self.op = self._defined()
        self.functions: dict[str, Callable[..., list[torch.Tensor]]] = {}
        """For each lowered variant, by the name of its Metal function, a function of tensors that computes the same."""

    def __repr__(self) -> str:
        return f"TorchMetalKernel({self.name}: {', '.join(self.input_names)} -> {', '.join(self.result_names)})"

    def _check(self) -> None:
        for name in (*self.input_names, *self.result_names):
            check_name(name, f"each of input_names and result_names of kernel {self.name!r}")
        if not self.result_names:
            raise ValueError(f"kernel {self.name!r} needs at least one result")
        for parameter in self.metal_params:
            if not isinstance(parameter, MetalParameter):
                raise TypeError(f"metal_params of kernel {self.name!r} must be MetalParameters, got {parameter!r}")
        names = [*self.input_names, *self.result_names, *(parameter.name for parameter in self.metal_params)]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"kernel {self.name!r} has two parameters called {', '.join(repeated)}")
        if len(names) > MOST_PARAMETERS:
            raise ValueError(f"kernel {self.name!r} has {len(names)} parameters, Metal allows {MOST_PARAMETERS}")
        if not isinstance(self.src, str) or not self.src.strip():
            raise ValueError(f"kernel {self.name!r} needs src=, the body of its Metal function")
        if "[[kernel]]" in self.src or "kernel void" in self.src:
            raise ValueError(f"src of kernel {self.name!r} must be the body alone: its signature is generated")
        placeholders = list(self.template_dtypes.values())
        for name, placeholder in self.template_dtypes.items():
            if name not in self.input_names:
                raise ValueError(f"template_dtypes of kernel {self.name!r} has {name!r}, which is no input")
            if not isinstance(placeholder, str) or not placeholder.strip():
                raise ValueError(f"the placeholder of {name!r} must be text, got {placeholder!r}")
            if placeholder in names or placeholders.count(placeholder) > 1:
                raise ValueError(
                    f"the placeholder {placeholder!r} of kernel {self.name!r} is a parameter or another placeholder"
                )

    # ---- the PyTorch op -----------------------------------------------------------------------------

    @property
    def qualified_name(self) -> str:
        """The op's name in PyTorch."""
        return f"{NAMESPACE}::{self.name}.v{self._digest}"

    def _defined(self) -> OpOverload:
        if self.qualified_name not in _OPS:
            kinds = zip(self.reference.kinds, self.input_names, strict=True)
            inputs = [f"{_SCHEMA_TYPES[kind]} {name}" for kind, name in kinds]
            sizes = ["threads_per_grid", "threads_per_thread_group", *(f"result_shape_{r}" for r in self.result_names)]
            arguments = ", ".join([*inputs, *(f"SymInt[] {name}" for name in sizes)])
            count = len(self.result_names)
            results = f"({', '.join(['Tensor'] * count)})" if count > 1 else "Tensor"
            overload = self.qualified_name.partition("::")[2]
            library = torch.library.Library(NAMESPACE, "FRAGMENT")
            _LIBRARIES.append(library)
            library.define(f"{overload}({arguments}) -> {results}")
            library.impl(overload, self._run, "CompositeExplicitAutograd")
            torch.library.register_fake(self.qualified_name, self._run, lib=library)
            _OPS[self.qualified_name] = getattr(getattr(torch.ops.coreai_metal_kernels, self.name), f"v{self._digest}")
        return _OPS[self.qualified_name]

    def _run(self, *values: Any) -> Any:
        """The op in eager PyTorch and on fake tensors.

        Numbers are checked here and not in `__call__`, because a strict export traces `__call__` with dynamic numbers
        as `int` and would make the checks conditions of the program.
        """
        count = len(self.input_names)
        grid, group, *shapes = values[count:]
        self._check_threads("threads_per_grid", grid)
        self._check_threads("threads_per_thread_group", group)
        known = [number for number in group if isinstance(number, int)]
        if math.prod(known) > MOST_THREADS_PER_GROUP:
            raise ValueError(
                f"kernel {self.name!r}: threads_per_thread_group={tuple(group)} are too many threads, "
                f"Metal allows {MOST_THREADS_PER_GROUP}"
            )
        results = self.reference(values[:count])
        for name, result, shape in zip(self.result_names, results, shapes, strict=True):
            sizes = zip(result.shape, shape, strict=False)
            # sizes that may or may not be equal are compared when the program is evaluated
            if result.dim() != len(shape) or any(statically_known_true(a != b) for a, b in sizes):
                raise ValueError(
                    f"kernel {self.name!r}: result_shapes says {list(shape)} for {name!r}, "
                    f"but torch_defn returns {list(result.shape)}"
                )
        return tuple(results) if len(results) > 1 else results[0]

    def __call__(
        self,
        *args: Any,
        threads_per_grid: Threads,
        threads_per_thread_group: Threads,
        result_shapes: Sequence[Sequence[Any]],
    ) -> Any:
        """Run `torch_defn`; in a program, the Metal function.

        Args:
            args: the inputs.
            threads_per_grid, threads_per_thread_group: three numbers each, or a function that computes them from the
                shapes of the tensors among the inputs. Sizes of dynamic dimensions are allowed.
            result_shapes: the shape of each result.

        Raises:
            TypeError: an input of another type than its annotation.
            ValueError: not three positive numbers; more threads in a group than Metal allows; result shapes that are
                not those of `torch_defn`'s results; a float that is not finite in 32 bits.
            OverflowError: an integer that does not fit 32 bits.
        """
        values = self.reference.values(args)
        tensors = [tuple(value.shape) for value in values if isinstance(value, torch.Tensor)]
        grid = self._threads("threads_per_grid", threads_per_grid, tensors)
        group = self._threads("threads_per_thread_group", threads_per_thread_group, tensors)
        listed = isinstance(result_shapes, list | tuple)
        if not listed or not all(isinstance(shape, list | tuple) for shape in result_shapes):
            raise ValueError(
                f"kernel {self.name!r}: result_shapes takes a shape for each result, [[4, 8]], got {result_shapes}"
            )
        shapes = [list(shape) for shape in result_shapes]
        if len(shapes) != len(self.result_names):
            raise ValueError(
                f"kernel {self.name!r} has {len(self.result_names)} results, but result_shapes has {len(shapes)}"
            )
        return self.reference.packed(self.op(*values, grid, group, *shapes))

    def verify(
        self,
        *args: Any,
        threads_per_grid: Threads,
        threads_per_thread_group: Threads,
        result_shapes: Sequence[Sequence[Any]],
        tolerance: float | None = None,
        seconds: int = 20,
    ) -> KernelCheck:
        """Run the Metal body on the CPU, by a C++ compiler, and compare its results with `torch_defn`'s.

            kernel.verify(x, 2.0, threads_per_grid=(n, 1, 1), ...).check()

        Args:
            args: as for a call.
            threads_per_grid: as for a call.
            threads_per_thread_group: as for a call.
            result_shapes: as for a call.
            tolerance: the largest absolute difference that passes; by default that of the type, as for
                `AIProgram.verify_against`.
            seconds: of CPU time that the kernel may take.

        Returns:
            A `KernelCheck`, which is true if the body was run and is right; `check()` raises if not.

        Raises:
            ValueError, TypeError, OverflowError: as for a call.
        """
        from patcomp.evaluate.element_types import TORCH_DTYPES
        from patcomp.evaluate.metal.check import check_body

        threads = {"threads_per_grid": threads_per_grid, "threads_per_thread_group": threads_per_thread_group}
        made = self(*args, **threads, result_shapes=result_shapes)
        values, results = self.reference.values(args), [made] if isinstance(made, torch.Tensor) else list(made)
        inputs, given = self._buffers(values, results)
        operands, expected = (
            [torch.as_tensor(each).to(TORCH_DTYPES[buffer.element]) for buffer, each in zip(buffers, of, strict=True)]
            for buffers, of in ((inputs, values), (given, results))
        )
        shapes = [tuple(value.shape) for value in values if isinstance(value, torch.Tensor)]
        grid, group = (self._threads(what, numbers, shapes) for what, numbers in threads.items())
        name, source = self._source(inputs, given, [value.dtype for value in values if isinstance(value, torch.Tensor)])
        return check_body(source, name, operands, expected, grid, group, tolerance, seconds)

    def _threads(self, what: str, given: Threads, shapes: Sequence[tuple[Any, ...]]) -> list[Any]:
        numbers = given(*shapes) if callable(given) else given
        is_triple = isinstance(numbers, list | tuple) and len(numbers) == 3
        if not is_triple or any(isinstance(number, float | str) or number is None for number in numbers):
            raise ValueError(f"kernel {self.name!r}: {what} must be three positive integers, got {numbers}")
        return list(numbers)

    def _check_threads(self, what: str, numbers: Sequence[Any]) -> None:
        if any(isinstance(number, int) and not 0 < number < 2**32 for number in numbers):
            raise ValueError(f"kernel {self.name!r}: {what} must be three positive integers, got {list(numbers)}")

    # ---- the Metal source ---------------------------------------------------------------------------

    def source(self, *args: Any) -> str:
        """The Metal source that a call with these inputs gets."""
        values = self.reference.values(args)
        inputs, results = self._buffers(values, self.reference(values))
        dtypes = [value.dtype for value in values if isinstance(value, torch.Tensor)]
        return self._source(inputs, results, dtypes)[1]

    def _buffers(self, values: Sequence[Any], results: Sequence[torch.Tensor]) -> tuple[list[Buffer], list[Buffer]]:
        """The inputs and results of the Metal function, for values and results of the reference function.

        Raises:
            TypeError: Metal does not have a type.
        """
        inputs = [
            Buffer.of_tensor(name, ValueType(runtime_type(type_of(value))))
            if isinstance(value, torch.Tensor)
            else Buffer.of_number(name, kind, value)
            for name, kind, value in zip(self.input_names, self.reference.kinds, values, strict=True)
        ]
        made = zip(self.result_names, results, strict=True)
        outputs = [Buffer.of_tensor(name, ValueType(runtime_type(type_of(result)))) for name, result in made]
        if problem := problem_of(inputs, outputs):
            raise TypeError(f"kernel {self.name!r}: {problem}")
        return inputs, outputs

    def _source(
        self, inputs: Sequence[Buffer], results: Sequence[Buffer], dtypes: Iterable[torch.dtype]
    ) -> tuple[str, str]:
        """The name and the source of the Metal function for inputs and results of certain types."""
        types = {buffer.name: buffer.metal_type for buffer in inputs}
        templates = {placeholder: types[name] for name, placeholder in self.template_dtypes.items()}
        body, helpers = (fill_templates(text, templates) for text in (self.src, self.helper_src))
        # the reference's result depends on PyTorch's types too: int64 and int32 are both `int` in Metal
        name = f"{self.name}_{_digest(self._digest, inputs, results, list(map(str, dtypes)))}"
        return name, kernel_source(name, inputs, results, self.metal_params, body, helpers)

    # ---- the lowering -------------------------------------------------------------------------------

    def lower(self, widths: Widths, values_map: Mapping[str, Value], node: Node, loc: LocationAttr) -> list[Value]:
        """The lowering of a call, as `register_torch_lowering` takes it, for a choice of 64-bit types."""
        count = len(self.input_names)
        inputs: list[Buffer] = []
        operands: list[Value] = []
        given: Any = map_arg(node.args, lambda source: values_map[source.name])  # type: ignore[arg-type, return-value]
        for name, kind, value in zip(self.input_names, self.reference.kinds, given[:count], strict=True):
            if kind is torch.Tensor:
                inputs.append(Buffer.of_tensor(name, value.type))
            elif isinstance(value, Value):
                inputs.append(Buffer.of_number(name, kind))
            else:
                inputs.append(Buffer.of_number(name, kind, value))
            operands.append(coreai.cast(value, inputs[-1].element, loc=loc))
        fakes = [source.meta["val"] for source in node.args[:count] if isinstance(source, Node)]
        dtypes = [fake.dtype for fake in fakes if isinstance(fake, torch.Tensor)]
        types = [ValueType(widths.of(type_of(fake))) for fake in recorded_results(node)]
        results = list(map(Buffer.of_tensor, self.result_names, types))
        shapes = [*(value.shape for value in operands), *(type_.shape for type_ in types)]
        if problem := problem_of(inputs, results, shapes):
            raise Rejected(f"Metal kernel {self.name!r}: {problem}")
        function, source = self._source(inputs, results, dtypes)
        self.functions[function] = partial(self._evaluated, inputs, dtypes)
        grid, group, *result_shapes = given[count:]
        buffers = coreai.metal4_kernel(
            [coreai.copy_with_constraints(value, result_type=_buffer(value.shape, value.dtype)) for value in operands],
            grid,
            group,
            result_shapes,
            kernel_source=source,
            kernel_name=function,
            result_type=[_buffer(type_.shape, result.element) for result, type_ in zip(results, types, strict=True)],
        )
        plain = [
            coreai.copy_discarding_constraints(value, result_type=tensor(type_.shape, result.element))
            for value, result, type_ in zip(buffers, results, types, strict=True)
        ]
        return [
            coreai.broadcasting_not_equal(value, 0) if element_name(type_.element_type) == "i1" else value
            for value, type_ in zip(plain, types, strict=True)
        ]

    def _evaluated(
        self, inputs: Sequence[Buffer], dtypes: Sequence[torch.dtype], *operands: torch.Tensor
    ) -> list[torch.Tensor]:
        """The results of the reference function for operands of the Metal function, in the types that it stores."""
        of_tensors = iter(dtypes)
        values: list[Any] = []
        for buffer, kind, operand in zip(inputs, self.reference.kinds, operands, strict=True):
            if kind is torch.Tensor:
                values.append(operand.to(next(of_tensors)))
            else:
                values.append(kind(operand.item()) if buffer.value is None else buffer.value)
        results = self.reference(values)
        return [result.to(torch.uint8) if result.dtype == torch.bool else result for result in results]


def _digest(*parts: Any) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:8]


def _buffer(shape: Sequence[int | None], element: str) -> Any:
    """The type of a tensor that lies densely in a Metal buffer."""
    alignments, interleave = ("x".join("1" * count) for count in (len(shape) + 1, len(shape)))
    text = f"MTLBuffer, alignments: [{alignments}], interleave: [{interleave}]"
    return tensor(shape, element, HardwareConstraintsAttr(StringAttr(text)))


def check_kernels(kernels: object, registered: Iterable[TorchMetalKernel]) -> None:
    """Check kernels that are to be registered.

    Raises:
        TypeError: an item is not a `TorchMetalKernel`.
        ValueError: a kernel is registered already, or given twice.
    """
    if not isinstance(kernels, list | tuple):
        raise TypeError(f"expected a list of TorchMetalKernels, got {kernels!r}")
    known = {kernel.qualified_name for kernel in registered}
    for kernel in kernels:
        if not isinstance(kernel, TorchMetalKernel):
            raise TypeError(f"expected TorchMetalKernels, got {kernel!r}")
        if kernel.qualified_name in known:
            raise ValueError(f"the kernel {kernel.name!r} is registered already")
        known.add(kernel.qualified_name)
