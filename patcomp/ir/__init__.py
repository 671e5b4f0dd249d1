"""The IR on xDSL: the `coreai` and `aten` dialects, authoring functions, weights, text; `ir.verify` verifies it.

The names are imported when they are first used: the table of the dialect is also read by what works without xDSL.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from patcomp.ir import aten, coreai
    from patcomp.ir.attributes import composite_declaration
    from patcomp.ir.blobs import BlobStore
    from patcomp.ir.builder import Builder
    from patcomp.ir.coreai_op import CoreaiOp
    from patcomp.ir.dialect import OPS, create_op
    from patcomp.ir.infer import InferenceError
    from patcomp.ir.locations import Origin, origins
    from patcomp.ir.module import IRModule, create_graph
    from patcomp.ir.text import parse_module, to_text
    from patcomp.ir.types import tensor
    from patcomp.ir.value import Value
    from patcomp.ir.walking import CompositeDeclaration, Port, ProgramBody, ProgramGraph, ProgramOp, walk

__all__ = [
    "OPS",
    "BlobStore",
    "Builder",
    "CompositeDeclaration",
    "CoreaiOp",
    "IRModule",
    "InferenceError",
    "Origin",
    "Port",
    "ProgramBody",
    "ProgramGraph",
    "ProgramOp",
    "Value",
    "aten",
    "composite_declaration",
    "coreai",
    "create_graph",
    "create_op",
    "origins",
    "parse_module",
    "tensor",
    "to_text",
    "walk",
]

_LAZY = {
    "patcomp.ir.attributes": ("composite_declaration",),
    "patcomp.ir.blobs": ("BlobStore",),
    "patcomp.ir.builder": ("Builder",),
    "patcomp.ir.coreai_op": ("CoreaiOp",),
    "patcomp.ir.dialect": ("OPS", "create_op"),
    "patcomp.ir.infer": ("InferenceError",),
    "patcomp.ir.locations": ("Origin", "origins"),
    "patcomp.ir.module": ("IRModule", "create_graph"),
    "patcomp.ir.text": ("parse_module", "to_text"),
    "patcomp.ir.types": ("tensor",),
    "patcomp.ir.value": ("Value",),
    "patcomp.ir.walking": ("CompositeDeclaration", "Port", "ProgramBody", "ProgramGraph", "ProgramOp", "walk"),
}


def __getattr__(name: str) -> Any:
    if name in ("aten", "coreai"):
        return import_module(f"patcomp.ir.{name}")
    for module, names in _LAZY.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
