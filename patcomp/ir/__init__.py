"""The IR on xDSL: the `coreai` and `aten` dialects, authoring functions, weights, text; `ir.verify` verifies it."""

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

__all__ = [
    "OPS",
    "BlobStore",
    "Builder",
    "CoreaiOp",
    "IRModule",
    "InferenceError",
    "Origin",
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
]
