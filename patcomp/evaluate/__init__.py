"""The reference evaluator: runs `coreai` IR on torch tensors, one function an op. Importing it imports torch.

    outputs = evaluate(module, {"x": torch.randn(2, 3)})

To teach it an op, write a function in the file of the op's family:

    @implements("coreai.add")
    def add(op: EvaluatedOp, x: Tensor, y: Tensor) -> Tensor: ...
"""

from patcomp.evaluate import (  # noqa: F401  (these files register the ops)
    control_flow,
    elementwise,
    indexing,
    linear_algebra,
    pooling_and_resizing,
    quantized,
    reductions,
    shapes,
    state,
)
from patcomp.evaluate.comparison import compare
from patcomp.evaluate.draws import drawn, noise_of
from patcomp.evaluate.expectation import Expectation
from patcomp.evaluate.folding import copy_elements, evaluate_op
from patcomp.evaluate.inputs import call_arguments, named_arguments, prepare_input
from patcomp.evaluate.kept import needs_float32
from patcomp.evaluate.loss import verify_compressed
from patcomp.evaluate.machine import TOKEN, Handle, Machine, evaluate, evaluate_graph
from patcomp.evaluate.overflow import Overflow, OverflowMachine, first_overflow
from patcomp.evaluate.partial_sums import PartialSumMachine
from patcomp.evaluate.registry import IMPLEMENTATIONS, EvaluatedOp, implements
from patcomp.evaluate.verification import (
    Departure,
    FirstOverflow,
    HalfLoss,
    Loss,
    ModuleError,
    OutputError,
    Verification,
)

__all__ = [
    "IMPLEMENTATIONS",
    "TOKEN",
    "Departure",
    "EvaluatedOp",
    "Expectation",
    "FirstOverflow",
    "HalfLoss",
    "Handle",
    "Loss",
    "Machine",
    "ModuleError",
    "OutputError",
    "Overflow",
    "OverflowMachine",
    "PartialSumMachine",
    "Verification",
    "call_arguments",
    "compare",
    "copy_elements",
    "drawn",
    "evaluate",
    "evaluate_graph",
    "evaluate_op",
    "first_overflow",
    "implements",
    "named_arguments",
    "needs_float32",
    "noise_of",
    "prepare_input",
    "verify_compressed",
]
