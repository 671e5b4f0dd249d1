"""The one place that uses PyTorch's private modules and attributes; everything else takes these names from here."""

from __future__ import annotations

import copy
import inspect
import logging
import os
import re
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch
from torch import _meta_registrations, _prims_common
from torch._decomp import _core_aten_decompositions_post_autograd as python_decompositions
from torch._decomp import global_decomposition_table
from torch._decomp.decompositions import _rnn_helper as unrolled_layers
from torch._decomp.decompositions import gather_params, one_layer_lstm
from torch._dispatch.python import enable_python_dispatcher
from torch._export.utils import _is_preservable_cia_op
from torch._logging._internal import DTRACE_ENV_VAR
from torch._logging.structured import INTERN_TABLE
from torch._ops import HigherOrderOperator, OperatorBase, OpOverload, OpOverloadPacket
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes
from torch._subclasses import fake_tensor, meta_utils
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.export import ExportedProgram
from torch.export.decomp_utils import PRESERVED_ATEN_CIA_OPS
from torch.export.graph_signature import ExportGraphSignature
from torch.fx import GraphModule
from torch.fx._lazy_graph_module import _LazyGraphModule as LazyGraphModule
from torch.fx.experimental import _config as symbolic_shapes_settings
from torch.fx.experimental import proxy_tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.library import _impls as implementations_from_python
from torch.utils import _device as torch_device
from torch.utils import _pytree as pytree
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass
from torch.utils._python_dispatch import _disable_current_modes as outside_of_traces
from torch.utils._pytree import tree_map, tree_map_only

if TYPE_CHECKING:
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.aot_autograd import make_boxed_func
    from torch.fx.experimental.symbolic_shapes import ShapeEnv, free_unbacked_symbols, statically_known_true, sym_eq
    from torch.utils._sympy.functions import FloorDiv, Mod, PythonMod
    from torch.utils._sympy.interp import sympy_interp
    from torch.utils._sympy.numbers import int_oo
    from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

__all__ = [
    "ELEMENTWISE_TYPE_PROMOTION_KIND",
    "AsksSizeError",
    "DataDependentOutputException",
    "DynamicOutputShapeException",
    "FakeTensor",
    "FakeTensorMode",
    "FloorDiv",
    "HigherOrderOperator",
    "LazyGraphModule",
    "Mod",
    "OpOverload",
    "OpOverloadPacket",
    "OperatorBase",
    "PythonMod",
    "Registrations",
    "TorchDispatchMode",
    "ValueRanges",
    "all_schemas",
    "aot_autograd",
    "asking",
    "base_name",
    "bound_sympy",
    "callers_defaults",
    "can_decompose",
    "default_settings",
    "draft_export",
    "draft_report",
    "elementwise_dtypes",
    "enable_python_dispatcher",
    "free_unbacked_symbols",
    "gather_params",
    "global_decomposition_table",
    "guards_code",
    "has_default_settings",
    "int_oo",
    "is_functional_composite",
    "is_static_input",
    "is_traceable_wrapper_subclass",
    "make_boxed_func",
    "make_fx",
    "memory_of",
    "no_questions",
    "one_layer_lstm",
    "open_layouts",
    "open_views",
    "operator_of",
    "outside_of_traces",
    "overload_name",
    "python_decompositions",
    "pytree",
    "qualified_name",
    "quiet",
    "registrations",
    "replace_constants",
    "replace_graph_module",
    "replace_graph_signature",
    "schema_of_overload",
    "statically_known_true",
    "sym_eq",
    "sympy_interp",
    "tree_map",
    "tree_map_only",
    "unrolled_layers",
    "version_of",
    "with_tensors",
    "without_tensors",
]


_OF_SIZES = {
    "torch.fx.experimental.symbolic_shapes": ("free_unbacked_symbols", "statically_known_true", "sym_eq"),
    "torch.utils._sympy.functions": ("FloorDiv", "Mod", "PythonMod"),
    "torch.utils._sympy.interp": ("sympy_interp",),
    "torch.utils._sympy.numbers": ("int_oo",),
    "torch.utils._sympy.value_ranges": ("ValueRanges", "bound_sympy"),
}
"""The names about symbolic sizes, whose modules import SymPy: the evaluator starts without it."""


_OF_COMPILE = {
    "torch._dynamo.backends.common": ("aot_autograd",),
    "torch._functorch.aot_autograd": ("make_boxed_func",),
}
"""The names about `torch.compile`, whose modules import much."""


def __getattr__(name: str) -> Any:
    for module, names in (_OF_SIZES | _OF_COMPILE).items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


OLDEST, NEWEST = (2, 8), (2, 14)
"""The PyTorch releases between which patcomp was tested; docs/compatibility.md says what was run."""


def untested(version: str) -> str:
    """A warning about a release of PyTorch that is older or newer than the tested ones; empty for all others."""
    major, minor = map(int, re.findall(r"\d+", version)[:2])
    if OLDEST <= (major, minor) <= NEWEST:
        return ""
    tested = " to ".join(f"{release[0]}.{release[1]}" for release in (OLDEST, NEWEST))
    return f"patcomp was tested with PyTorch {tested}, not with {version}; check results with program.verify_against"


if _warning := untested(torch.__version__):
    warnings.warn(_warning, stacklevel=2)


def schema_of_overload(op: Any) -> Any:
    """The schema of an operator's overload."""
    return op._schema


def overload_name(op: OpOverload) -> str:
    """The name of an overload without the operator's name: `Tensor` of `aten.add.Tensor`."""
    return op._overloadname


def base_name(op: OpOverload) -> str:
    """The name of an operator without namespace and overload, `add`."""
    return op._opname


def qualified_name(op: OpOverloadPacket) -> str:
    """The name of an operator with its namespace, `aten::add`."""
    return op._qualified_op_name


def can_decompose(op: OpOverload) -> bool:
    """Whether PyTorch's kernel of an operator is made of other operators."""
    return op._can_decompose()


def guards_code(program: ExportedProgram) -> list[str] | None:
    """The conditions on inputs that a program was saved with, as Python code; None if PyTorch saves none, as 2.8."""
    return getattr(program, "_guards_code", None)


def draft_export(
    model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any, folder: str
) -> ExportedProgram:
    """`torch.export.draft_export` with its log in a folder, and with the values of parameters.

    PyTorch copies the values of tensors by which it decides, but leaves memory as it is for a subclass such as
    `nn.Parameter`. At the end, restore the two settings of the process: the environment variable of the log, and the
    copy.
    """
    before, copy = os.environ.get(DTRACE_ENV_VAR), meta_utils._safe_copy

    def copied(dst: torch.Tensor, src: torch.Tensor | None) -> None:
        copy(dst, src.data if isinstance(src, torch.nn.Parameter) else src)

    os.environ[DTRACE_ENV_VAR], meta_utils._safe_copy = folder, copied
    try:
        return torch.export.draft_export(model, args, kwargs, dynamic_shapes=dynamic_shapes)
    finally:
        meta_utils._safe_copy = copy
        if before is None:
            del os.environ[DTRACE_ENV_VAR]
        else:
            os.environ[DTRACE_ENV_VAR] = before


def draft_report(program: ExportedProgram) -> tuple[list[Any], dict[int, str]]:
    """The assumptions of `torch.export.draft_export`, and the files that their lines are in, by the numbers of the
    files.

    The report itself names only those files that no earlier trace of the process was in.
    """
    report: Any = getattr(program, "_report", None)
    return (
        ([], {}) if report is None else (list(report.failures), {number: file for file, number in INTERN_TABLE.items()})
    )


class AsksSizeError(Exception):
    """A trace asked a question about sizes where none may be asked."""


@contextmanager
def asking(environment: ShapeEnv | None) -> Iterator[list[Any]]:
    """Answer a trace's questions about dynamic sizes as for the example's sizes, without new guards.

    Questions that PyTorch can leave open, such as whether a tensor is contiguous in memory, are not asked.

    Returns:
        The conditions under which the answers are right, as SymPy expressions; filled in the block.
    """
    asked: list[Any] = []
    if environment is None:
        yield asked
        return

    import sympy

    def ask(condition: Any, value: Any) -> None:
        negation = sympy.Not(condition) if value == sympy.false else sympy.Eq(condition, value)
        holds = condition if value == sympy.true else negation
        if holds not in asked:
            asked.append(holds)

    def evaluate(
        expression: Any, hint: Any = None, fx_node: Any = None, size_oblivious: bool = False,
        fallback_value: Any = None, *, forcing_spec: bool = False,
    ) -> Any:  # fmt: skip
        # the method itself remembers its answers, and a question that is answered from memory would not be seen
        return environment._evaluate_expr(
            expression, hint, fx_node, size_oblivious, fallback_value, forcing_spec=forcing_spec
        )

    oblivious = symbolic_shapes_settings.patch(backed_size_oblivious=True)  # type: ignore[attr-defined]
    with _frozen(environment, _check_frozen=ask, evaluate_expr=evaluate), environment.suppress_guards(), oblivious:
        yield asked


@contextmanager
def small_tensors_as_numbers() -> Iterator[None]:
    """Let an export know the values of tensors of up to 64 elements that a model makes from numbers, and of tensors
    computed from them.

    PyTorch itself knows them for tensors of one element. SAM 3 reads sizes from a tensor of heights and widths.
    """
    own = [(module, module.CONSTANT_NUMEL_LIMIT) for module in (fake_tensor, proxy_tensor)]
    try:
        for module, _ in own:
            module.CONSTANT_NUMEL_LIMIT = 64  # type: ignore[attr-defined]
        yield
    finally:
        for module, limit in own:
            module.CONSTANT_NUMEL_LIMIT = limit  # type: ignore[attr-defined]


@contextmanager
def open_layouts() -> Iterator[None]:
    """Let a trace leave open how a tensor of dynamic sizes lies in memory.

    PyTorch asks for each size whether it is 1, and a tensor of q - 1 tokens would forbid a q of 2. An operator that
    keeps the order of axes in memory asks which of two sizes is larger.
    """
    own = {name: getattr(_prims_common, name) for name in (*_CONTIGUOUS, _ORDER)}

    def asked(name: str, *arguments: Any, **options: Any) -> Any:
        if name in _CONTIGUOUS:
            arguments, options = arguments[: _CONTIGUOUS[name]], {"false_if_dde": True}
        with open_views():
            return own[name](*arguments, **options)

    try:
        for name in own:
            setattr(_prims_common, name, partial(asked, name))
        yield
    finally:
        for name, function in own.items():
            setattr(_prims_common, name, function)


_CONTIGUOUS = {"is_contiguous": 1, "check_contiguous_sizes_strides": 2}
"""How many arguments PyTorch's functions have before `false_if_dde`, which lets them say no where they do not know."""
_ORDER = "compute_elementwise_output_logical_to_physical_perm"


def open_views() -> AbstractContextManager[None]:
    """Let a trace take dynamic sizes for larger than 1, as export does, where it asks how a view lies in memory.

    PyTorch asks whether sizes that follow from others divide each other, in a linear layer behind a convolution.
    """
    return symbolic_shapes_settings.patch(backed_size_oblivious=True)  # type: ignore[attr-defined,no-any-return]


@contextmanager
def open_pools() -> Iterator[None]:
    """Let a trace not ask whether the last window of a pool with `ceil_mode` begins within the input, where all do.

    PyTorch cannot prove it, and forbids dynamic sizes. The last window begins at most at size + left + right + stride -
    2 - dilation * (kernel - 1), and the input ends at size + left.
    """
    own = _meta_registrations.pooling_output_shape_pad_lr

    def size(size: Any, kernel: int, left: int, right: int, stride: int, dilation: int, ceil_mode: bool) -> Any:
        if not ceil_mode or right + stride - 2 >= dilation * (kernel - 1):
            return own(size, kernel, left, right, stride, dilation, ceil_mode)
        return own(size, kernel, left, right + stride - 1, stride, dilation, False)

    _meta_registrations.pooling_output_shape_pad_lr = size
    try:
        yield
    finally:
        _meta_registrations.pooling_output_shape_pad_lr = own


@contextmanager
def needless_casts() -> Iterator[None]:
    """`module.to(dtype)` in a forward does nothing where the module's tensors have the type already.

    PyTorch would exchange each weight by itself, which it cannot do with those of a trace.
    """
    own = torch.nn.Module._apply

    def applied(module: torch.nn.Module, function: Any, *arguments: Any, **options: Any) -> torch.nn.Module:
        held = [*module.parameters(), *module.buffers()]
        made = [function(each) for each in held]
        if all((one.dtype, one.device) == (other.dtype, other.device) for one, other in zip(held, made, strict=True)):
            return module
        return own(module, function, *arguments, **options)

    torch.nn.Module._apply = applied  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        torch.nn.Module._apply = own  # type: ignore[method-assign]


@contextmanager
def no_questions(environment: ShapeEnv) -> Iterator[None]:
    """Make a trace's question about dynamic sizes an error.

    Raises:
        AsksSizeError: it does.
    """

    def refuse(condition: Any, value: Any) -> None:
        raise AsksSizeError(f"the sizes would have to fulfil {condition} == {value}")

    # what export asked already is answered from the memory of `evaluate_expr`
    with _frozen(environment, _check_frozen=refuse), quiet():
        yield


@contextmanager
def _frozen(environment: ShapeEnv, **methods: Callable[..., Any]) -> Iterator[None]:
    """An environment that takes no guards, with other methods."""
    own: dict[str, Any] = vars(environment)  # type: ignore[assignment]
    before: dict[str, Any] = {name: own[name] for name in (*methods, "frozen") if name in own}
    own.update(methods, frozen=True)
    try:
        yield
    finally:
        for name in methods:
            del own[name]
        own.update(before)


_is_quiet: ContextVar[bool] = ContextVar("_is_quiet", default=False)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep PyTorch's log lines about failing traces from the user, in this thread."""
    token = _is_quiet.set(True)
    try:
        yield
    finally:
        _is_quiet.reset(token)


def _is_shown(record: logging.LogRecord) -> bool:
    return not _is_quiet.get()


for _name in (
    "torch._dynamo",
    "torch._export.non_strict_utils",
    "torch._guards",
    "torch._subclasses.fake_tensor",
    "torch.export",
    "torch.export._draft_export",
    "torch.export._trace",
    "torch.fx.experimental.symbolic_shapes",
):
    logging.getLogger(_name).addFilter(_is_shown)


def replace_graph_module(program: ExportedProgram, module: GraphModule) -> None:
    """Give a program another graph, with the same signature."""
    program._graph_module = module


def replace_graph_signature(program: ExportedProgram, signature: ExportGraphSignature) -> None:
    """Give a program another signature, for another graph."""
    program._graph_signature = signature


def replace_constants(program: ExportedProgram, constants: dict[str, Any]) -> None:
    """Give a program other constants, for another graph."""
    program._constants = constants


def memory_of(tensor: torch.Tensor) -> int:
    """The identity of a tensor's memory, which views share; fake tensors have one, too."""
    return tensor.untyped_storage()._cdata


def without_tensors(program: ExportedProgram) -> ExportedProgram:
    """A copy of a program, with the same graph, that holds none of its weights and constants."""
    return with_tensors(program, {}, {})


def with_tensors(program: ExportedProgram, state_dict: dict[str, Any], constants: dict[str, Any]) -> ExportedProgram:
    """A copy of a program, with the same graph, that holds other weights and constants."""
    made = copy.copy(program)
    made._state_dict, made._constants = state_dict, constants
    return made


def is_static_input(value: Any) -> bool:
    """Whether an input of a graph of `torch.compile` is a parameter or buffer of the model whose writes are counted."""
    is_static = isinstance(value, torch.nn.Parameter) or hasattr(value, "_dynamo_static_input_type")
    return isinstance(value, torch.Tensor) and is_static and not value.is_inference()


def version_of(tensor: torch.Tensor) -> int:
    """How often a tensor was written to in place."""
    return tensor._version


def all_schemas() -> list[Any]:
    """The schemas of all operators that are registered."""
    return torch._C._jit_get_all_schemas()


@dataclass(frozen=True)
class _Setting:
    """A setting of the process that decompositions, or the numbers of operators, depend on."""

    get: Callable[[], Any]
    set: Callable[[Any], object]
    default: Any


def _precisions() -> Iterator[_Setting]:
    """In which type oneDNN multiplies float32 numbers."""
    if not hasattr(torch._C, "_get_fp32_precision_getter"):  # PyTorch 2.8
        yield _Setting(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "highest")
        return

    def get(op: str) -> str:
        found: str = torch._C._get_fp32_precision_getter("mkldnn", op)
        return "ieee" if found == "none" else found

    for op in ("matmul", "conv", "rnn"):
        yield _Setting(partial(get, op), partial(torch._C._set_fp32_precision_setter, "mkldnn", op), "ieee")


_DEFAULT_DTYPE = _Setting(torch.get_default_dtype, torch.set_default_dtype, torch.float32)
_SETTINGS = (
    _DEFAULT_DTYPE,
    _Setting(torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode, 0),
    *_precisions(),
    _Setting(torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled, True),
    _Setting(torch._C._get_flash_sdp_enabled, torch._C._set_sdp_use_flash, True),
    _Setting(torch._C._get_mem_efficient_sdp_enabled, torch._C._set_sdp_use_mem_efficient, True),
    _Setting(torch._C._get_math_sdp_enabled, torch._C._set_sdp_use_math, True),
    _Setting(torch._C._get_cudnn_sdp_enabled, torch._C._set_sdp_use_cudnn, True),
)


def has_default_settings() -> bool:
    """Whether this thread has PyTorch's default settings, as far as decompositions and numbers depend on them."""
    return _has_no_modes() and all(each.get() == each.default for each in _SETTINGS)


def _has_no_modes() -> bool:
    return (
        not torch.is_inference_mode_enabled()
        and not torch._C._is_any_autocast_enabled()
        and not torch._C._len_torch_function_stack()  # of modes, such as that of torch.set_default_device
        and not torch._C._len_torch_dispatch_stack()
    )


@contextmanager
def default_settings() -> Iterator[None]:
    """PyTorch's default settings, whatever the caller has chosen: what patcomp computes does not depend on them.

    These are autocast, inference mode, the modes of `torch.overrides` and `torch.utils._python_dispatch` (such as
    `FakeTensorMode`), the default device and `_SETTINGS`. Those of the process are the default for all threads as long
    as any thread is in a block.
    """
    with _without_modes(), _DEFAULTS:
        yield


@contextmanager
def callers_defaults() -> Iterator[None]:
    """The default dtype and device that the caller has chosen, inside of `default_settings` too, to run a model.

    A model makes tensors of the default dtype and device. Autocast and modes around the call are not part of the model.
    """
    device = _device.get() or _default_device()
    with _without_modes(), _DEFAULTS.suspended(), nullcontext() if device is None else torch.device(device):
        yield


_device: ContextVar[torch.device | None] = ContextVar("_device", default=None)
"""The default device of the caller, inside of `default_settings`."""


def _default_device() -> torch.device | None:
    """The default device; None if the user has chosen none."""
    stack = range(torch._C._len_torch_function_stack())
    modes = (torch._C._get_function_stack_at(index) for index in stack)
    return next((mode.device for mode in modes if isinstance(mode, DeviceContext)), None)


@contextmanager
def _without_modes() -> Iterator[None]:
    if _has_no_modes():
        yield
        return
    token = _device.set(_device.get() or _default_device())
    modes = [torch._C._pop_torch_function_stack() for _ in range(torch._C._len_torch_function_stack())]
    current, torch_device.CURRENT_DEVICE = torch_device.CURRENT_DEVICE, None
    grad = torch.is_grad_enabled()
    try:
        with (
            outside_of_traces(), torch._C._DisableAutocast(), torch.inference_mode(False),
            torch.set_grad_enabled(grad),  # the line before enables it
        ):  # fmt: skip
            yield
    finally:
        torch_device.CURRENT_DEVICE = current
        for mode in reversed(modes):
            torch._C._push_on_torch_function_stack(mode)
        _device.reset(token)


class _Defaults:
    """A context with the defaults of the process. The first block that is entered stores the user's settings, and the
    last one that is left restores them."""

    def __init__(self) -> None:
        self._turn, self._blocks = threading.Lock(), 0
        self._changed: list[tuple[_Setting, Any]] = []

    def __enter__(self) -> None:
        with self._turn:
            self._blocks += 1
            if self._blocks == 1:
                found = [(each, each.get()) for each in _SETTINGS]
                self._changed = [(each, value) for each, value in found if value != each.default]
                for each, _ in self._changed:
                    each.set(each.default)

    def __exit__(self, *error: object) -> None:
        with self._turn:
            self._blocks -= 1
            if not self._blocks:
                for each, value in self._changed:
                    each.set(value)

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """The user's default dtype inside of a block."""
        inside = torch.get_default_dtype()
        chosen = [value for each, value in self._changed if self._blocks and each is _DEFAULT_DTYPE]
        torch.set_default_dtype(*chosen or [inside])
        try:
            yield
        finally:
            torch.set_default_dtype(inside)


_DEFAULTS = _Defaults()


@dataclass(frozen=True, eq=False)
class Registrations:
    """All registrations of this process that determine how PyTorch decomposes operators."""

    decompositions: dict[OperatorBase, Callable[..., Any]]
    """Python functions, as `torch._decomp.register_decomposition` adds them."""
    composites: tuple[str, ...]
    """The operators with a kernel that is made of other operators."""
    custom_composites: tuple[OpOverload, ...]
    """The operators of libraries other than ATen. A library that is registered again has new operators of the same
    names."""
    implementations: frozenset[str]
    """The kernels that `torch.library` registered from Python, also shape functions; without those of patcomp."""


_last: Registrations | None = None


def registrations() -> Registrations:
    """The registrations of now. They are the same object until something is registered."""
    global _last
    composites = tuple(torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd"))
    found = Registrations(
        dict(global_decomposition_table["post_autograd"]),
        composites,
        tuple(operator_of(name) for name in composites if not name.startswith("aten::")),
        frozenset(name for name in implementations_from_python if not name.startswith("patcomp/")),
    )
    if _last is None or vars(found) != vars(_last):
        _last = found
    return _last


def is_functional_composite(op: OpOverload) -> bool:
    """Whether PyTorch's default table decomposes an operator because its kernel is made of other operators."""
    return op not in PRESERVED_ATEN_CIA_OPS and _is_preservable_cia_op(op)


def operator_of(name: str) -> OpOverload:
    """The operator that PyTorch calls `aten::add.Tensor`, or `aten::relu` if it has one overload.

    Raises:
        AttributeError: there is no such operator.
    """
    namespace, _, op = name.partition("::")
    op, _, overload = op.partition(".")
    found = getattr(getattr(getattr(torch.ops, namespace), op), overload or "default")
    assert isinstance(found, OpOverload)
    return found


def decomposition_of(op: OpOverload) -> Callable[..., Any]:
    """PyTorch's decomposition of an operator into other operators. The function may return `NotImplemented`."""
    from torch._decomp import decomposition_table

    found: Callable[..., Any] = decomposition_table.get(op, op.decompose)
    return found


def definitions_of(op: OpOverload) -> set[CodeType]:
    """The code of the Python functions that say what an operator computes: PyTorch's decompositions of it."""
    from torch._decomp import decomposition_table

    functions = [
        inspect.unwrap(each) for each in (decomposition_table.get(op), *op.py_kernels.values()) if callable(each)
    ]
    return {each.__code__ for each in functions if inspect.isfunction(each)}


def tensor_without_data(kind: type[torch.Tensor], like: torch.Tensor, dtype: torch.dtype) -> Any:
    """A tensor of a subclass that computes by `__torch_dispatch__`, with the shape and strides of another one."""
    return torch.Tensor._make_wrapper_subclass(
        kind, like.shape, strides=like.stride(), storage_offset=like.storage_offset(), dtype=dtype
    )
