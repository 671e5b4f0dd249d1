"""The source of a Metal kernel as C++ for the CPU: what `cpu/metal.h` declares goes before it, a `main` behind it.

The lines of the body and of the helpers stay lines, so that messages of the compiler and of a run name them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

FILLED = frozenset({
    "thread_position_in_grid", "thread_position_in_threadgroup", "thread_index_in_threadgroup",
    "threadgroup_position_in_grid", "threads_per_grid", "threadgroups_per_grid", "threads_per_threadgroup",
    "dispatch_threads_per_threadgroup", "thread_index_in_simdgroup", "simdgroup_index_in_threadgroup",
    "threads_per_simdgroup", "thread_execution_width", "simdgroups_per_threadgroup",
    "dispatch_simdgroups_per_threadgroup",
})  # fmt: skip
"""The attributes that `cpu/metal.h` fills."""

_POSITION_TYPE = re.compile(r"u(int|short)[23]?")

_NOT_ON_CPU = re.compile(
    r"\b(simdgroup_(?!barrier)\w+|matmul2d\w*|convolution2d\w*|execution_(?:simdgroups?|thread|threadgroup)|"
    r"cooperative_tensor\w*|tensor_inline|tensor_offset|atomic_\w+|quad_\w+|"
    r"simd_(?!(?:sum|product|max|min|and|or|xor|all|any|is_first|prefix_inclusive_sum|prefix_exclusive_sum|shuffle|"
    r"shuffle_xor|shuffle_up|shuffle_down|broadcast|broadcast_first)\b)\w+|"
    r"(?:texture|depth)(?:1d|2d|3d|cube)\w*|texture_buffer|sampler|imageblock\w*|raytracing|intersector\w*|"
    r"visible_function_table|packed_(?:bfloat|float|half|u?int|u?short|u?char|u?long)[234]|(?:float|half)[234]x[234]|"
    r"mulhi|madhi|addsat|subsat|extract_bits|insert_bits|reverse_bits|median3|nextafter|frexp|modf|reflect|refract|"
    r"faceforward|os_log\w*|function_constant)\b|\.(slice|extents|get_stride)\b"
)
"""Names of Metal that `cpu/metal.h` does not have. A kernel with one is not run."""

_NOT_IN_METAL = re.compile(
    r"\b(?:double|new|delete|throw|try|catch|virtual|thread_local)\b|\bstd::|\b(?:printf|malloc|free)(?=\s*\()"
)
"""Words of C++ that the compiler for the CPU takes, and Metal does not."""

_COOPERATES = re.compile(r"\b(threadgroup_barrier|simdgroup_barrier|simd_\w+)\b")
_COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
_FLOAT = re.compile(r"(?<![\w.])((?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)([fFhH]?)(?![\w.])")
_SHARED = re.compile(r"\bthreadgroup\s+(?:const\s+)?([A-Za-z_][\w:]*)\s+([A-Za-z_]\w*(?:\s*\[[^\];]*\])*"
                     r"(?:\s*,\s*[A-Za-z_]\w*(?:\s*\[[^\];]*\])*)*)\s*;")  # fmt: skip

_OTHER_SHARED = re.compile(r"\bthreadgroup\s+(?:const\s+)?[A-Za-z_][\w:<>, ]*\s\w+\s*[\[={(]")
_SHARED_POINTER = re.compile(r"\bthreadgroup\s+(?:const\s+)?([A-Za-z_]\w*)\s*\*(?:\s*const\b)?")


class NotOnCpuError(Exception):
    """The kernel needs what cannot be run on the CPU; the message says what."""


class WrongBodyError(Exception):
    """The body of the kernel is wrong; the message says where, and what to do."""


@dataclass(frozen=True)
class CpuSource:
    """A Metal kernel as C++."""

    code: str
    buffers: tuple[str, ...]
    """The names of inputs and results, in order."""
    body: tuple[str, ...]
    """The lines of the body, as Metal gets them."""
    helpers: tuple[str, ...]

    def line(self, file: str, number: int) -> str:
        """A line for messages: `line 2 of src, `output[id] = x[id];``; empty if it is neither of src nor of helpers."""
        lines = {"src": self.body, "helper_src": self.helpers}.get(file, ())
        return f"line {number} of {file}, `{lines[number - 1].strip()}`" if 0 < number <= len(lines) else ""


def cpu_source(source: str, name: str) -> CpuSource:
    """The source of a kernel function, as `TorchMetalKernel.source` gives it, as C++.

    Args:
        source: the Metal source.
        name: the name of its function.

    Raises:
        NotOnCpuError: the kernel needs what the CPU does not have here.
        WrongBodyError: the kernel has a word or a parameter that Metal does not take.
    """
    head, start, rest = source.partition(f"[[kernel]] void {name}(\n")
    signature, opened, inside = rest.partition(")\n{\n")
    assert start, f"the source of {name} is none of TorchMetalKernel"
    assert opened, f"the source of {name} is none of TorchMetalKernel"
    parameters = [_parameter(line) for line in signature.split("\n")]
    buffers = [name for _, name, attribute in parameters if attribute.startswith("buffer(")]
    filled = [(type_, name, attribute) for type_, name, attribute in parameters if not attribute.startswith("buffer(")]
    _, _, helpers = head.partition(f"namespace {name}_helpers {{\n")
    helpers = helpers.rpartition("\n}\n")[0]
    before, _, inside = inside.partition("    {\n")
    inside = inside[: inside.rindex("\n    }\n}\n")]
    lines, numbers = inside.split("\n"), 0
    constants = {name for type_, name, _ in parameters if type_.startswith("constant ")}
    while numbers < len(lines) and (local := re.match(r"    (?:bool|float|int) (\w+) = [^;]+;$", lines[numbers])):
        if local.group(1) not in constants:
            break
        numbers += 1
    body = lines[numbers:]
    text = _COMMENT.sub(" ", f"{helpers}\n" + "\n".join(body))
    _check(text, filled)
    attributes = ", ".join(f'"{attribute}"' for _, _, attribute in filled)
    code = [
        '#include "metal.h"',
        "using namespace metal;",
        "using namespace mpp::tensor_ops;",
        f'namespace {name}_helpers {{\n#line 1 "helper_src"\n{_on_cpu(helpers)}\n}}',
        f"void {name}(\n{signature})\n{{\n{before}    {{",
        *lines[:numbers],
        f'#line 1 "src"\n{_on_cpu(chr(10).join(body))}',
        '#line 1 "generated"\n    }\n}',
        f"static const char* const filled_by_metal[] = {{{attributes or 'nullptr'}}};",
        f"int main(int, char** files) {{ return metal_cpu::launch<{name}>("
        f"{str(bool(_COOPERATES.search(text))).lower()}, filled_by_metal, files); }}",
    ]
    return CpuSource("\n".join(code) + "\n", tuple(buffers), tuple(body), tuple(helpers.split("\n") if helpers else ()))


def _parameter(line: str) -> tuple[str, str, str]:
    """Type, name and attribute of a parameter: `uint id [[thread_position_in_grid]],`."""
    found = re.fullmatch(r"\s*(.+?) (\w+) \[\[(.+)\]\],?", line)
    assert found is not None, line
    return found.group(1), found.group(2), found.group(3)


def _check(text: str, filled: list[tuple[str, str, str]]) -> None:
    for type_, name, attribute in filled:
        if attribute not in FILLED:
            raise NotOnCpuError(f"the parameter {name!r} of the attribute [[{attribute}]]")
        if not _POSITION_TYPE.fullmatch(type_):
            raise WrongBodyError(
                f"the parameter {name!r} is of type {type_!r}, and Metal fills [[{attribute}]] with ushort, uint or "
                "their vectors; change the dtype of the MetalParameter"
            )
    if needed := dict.fromkeys(found.group(0).lstrip(".") for found in _NOT_ON_CPU.finditer(text)):
        raise NotOnCpuError(", ".join(f"`{name}`" for name in needed))
    if (word := _NOT_IN_METAL.search(text)) is not None:
        raise WrongBodyError(f"the source uses `{word.group()}`, which Metal does not have")


def _on_cpu(text: str) -> str:
    """Metal as the C++ of the CPU, line by line: literals of floats, arrays of threadgroup memory."""
    text = re.sub(r"\bconst\s+constant\b|\bconstant\s+const\b", "constant", text)
    text = _FLOAT.sub(lambda found: f"half({found[1]}f)" if found[2] in ("h", "H") else f"{found[1]}f", text)
    text = _SHARED.sub(_shared, text)
    if (other := _OTHER_SHARED.search(_COMMENT.sub(" ", text))) is not None:
        raise NotOnCpuError(f"a declaration of threadgroup memory like `{other.group()}`")
    return _SHARED_POINTER.sub(r"metal_cpu::shared_pointer<\1>", text)


def _shared(found: re.Match[str]) -> str:
    """A declaration of threadgroup memory, whose indices are then checked."""
    type_, declared = found.group(1), []
    for one in re.findall(r"([A-Za-z_]\w*)((?:\s*\[[^\]]*\])*)", found.group(2)):
        sizes = re.findall(r"\[([^\]]*)\]", one[1])
        of = f"{type_}{''.join(f', ({size})' for size in sizes)}"
        declared.append(
            f'static metal_cpu::shared_array<{of}> {one[0]}("{one[0]}");'
            if sizes
            else f"static {type_}& {one[0]} = metal_cpu::shared_number<{type_}>();"
        )
    return " ".join(declared) + "\n" * found.group(0).count("\n")
