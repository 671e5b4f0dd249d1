"""ExecuTorch's own tests of its Core AI backend, on patcomp's partitioner and backend.

    python -m benchmarks.executorch_tests

The tests come from the installed executorch. Where they name ExecuTorch's partitioner and coreai-core's program, they
get patcomp's, and parts that they give to the backend themselves are converted by patcomp. Tests of the inside of
ExecuTorch's converter are left out, each with its reason.
"""

from __future__ import annotations

import importlib
import sys
import unittest
from collections.abc import Iterator
from pathlib import Path

from coreai import authoring
from executorch.backends.apple import coreai as executorchs
from executorch.backends.apple.coreai.compiler.preprocess import CoreAIBackend
from executorch.backends.apple.coreai.partition import partitioner
from executorch.backends.apple.coreai.recipes import recipe_provider
from executorch.exir.dialects.edge._ops import EdgeOpOverload

import patcomp
from patcomp_executorch import CoreAIPartitioner
from patcomp_executorch.backend import Specs, preprocess
from patcomp_executorch.edge import op_of_pytorch

LEFT_OUT = {
    "OperatorSupportTest": "of a private class of ExecuTorch's partitioner",
    "test_do_not_delegate_tag_excludes_node_from_partition": "of a private class of ExecuTorch's partitioner",
    "test_symint_operand_not_supported": "of a private class of ExecuTorch's partitioner",
    "ReplaceCopyOps": "of a pass that patcomp does not need: its rules take the copying ops",
    "test_quantizer": "of a quantizer in a package that no index has (coreai_opt)",
    "test_fp16_recipe_casts_and_lowers": "of a cast in a package that no index has (coreai_opt)",
    "CoreAIAOTCompileTest": "needs Apple's compiler (xcrun coreai-build)",
}
"""The reasons of the tests that are not run, by a part of their names."""


def stand_in() -> None:
    """Let the tests see patcomp's partitioner, backend and program under ExecuTorch's names."""
    for module in (executorchs, partitioner, recipe_provider):
        module.CoreAIPartitioner = CoreAIPartitioner
    partitioner.is_coreai_supported_target = lambda target: bool(
        patcomp.supports(op_of_pytorch(target) if isinstance(target, EdgeOpOverload) else target)
    )
    authoring.AIProgram = patcomp.AIProgram
    CoreAIBackend.preprocess = staticmethod(lambda program, specs: preprocess(program, Specs(specs)))


def cases() -> Iterator[unittest.TestCase]:
    """The tests of the installed package."""
    folder = Path(executorchs.__file__).parent
    for file in sorted(folder.rglob("test_*.py")):
        name = ".".join(file.relative_to(folder).with_suffix("").parts)
        module = importlib.import_module(f"{executorchs.__name__}.{name}")
        for suite in unittest.defaultTestLoader.loadTestsFromModule(module):
            yield from suite


def main() -> None:
    stand_in()
    result, left_out = unittest.TestResult(), dict[str, str]()
    for case in cases():
        reasons = [reason for part, reason in LEFT_OUT.items() if part in case.id()]
        if reasons:
            left_out[case.id()] = reasons[0]
        elif len(sys.argv) == 1 or any(part in case.id() for part in sys.argv[1:]):
            case.run(result)
    failed = {getattr(case, "test_case", case).id(): text for case, text in (*result.failures, *result.errors)}
    print(f"{result.testsRun - len(failed)} pass, {len(failed)} fail, {len(left_out)} are left out")
    for name, text in failed.items():
        print(f"fails: {name.partition('coreai.')[2]}: {text.strip().splitlines()[-1]}")
    for name, reason in left_out.items():
        print(f"left out: {name.partition('coreai.')[2]}: {reason}")


if __name__ == "__main__":
    main()
