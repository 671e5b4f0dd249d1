"""The verifier: refuse IR that is malformed, and IR on which the Core AI runtime aborts or computes wrong numbers.

The toolchain's verifier checks types and ranks, but no declared shapes; it accepts IR that aborts the process later.
xDSL does not even check the order of definitions. This verifier refuses all that is known to fail. It reports all
problems at once, each with its graph, its op and its line of the user's model.

    verify(module)                    # raises VerifyError
    verify(module, runtime=False)     # only what is malformed, as the toolchain's verifier does

| file | checks |
|---|---|
| `structure` | blocks, order of definitions, terminators, graphs, calls, control flow |
| `signatures` | operand and result types of each op, and its result types against the inferred ones |
| `arguments` | operands and properties of `aten` ops against their PyTorch schema |
| `hazards` | well-formed IR that no toolchain can save or run |

With `runtime`, it asks `patcomp.defects` for what the installed version of the toolchain aborts on or computes wrongly.
"""

from patcomp.ir.verify.structure import verify

__all__ = ["verify"]
