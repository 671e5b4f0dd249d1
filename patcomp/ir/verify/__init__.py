"""The verifier: refuses IR that is malformed, and IR that the Core AI runtime aborts on or garbles.

The native verifier checks types and ranks, but believes declared shapes and lets much pass that kills
the process later; xDSL checks neither the order of definitions nor any of that. So everything known to
go wrong is refused here, all problems at once, each with its graph, op and line of the user's model.

    verify(module)                    # raises VerifyError
    verify(module, runtime=False)     # only what is malformed, as the native verifier would see it

| file | checks |
|---|---|
| `structure` | blocks, order of definitions, terminators, graphs, calls, control flow |
| `signatures` | operand and result types of each op, and its result types against the inferred ones |
| `arguments` | operands and properties of `aten` ops against their PyTorch schema |
| `hazards` | what is well-formed, but aborts or miscomputes when saved, loaded or run |
"""

from patcomp.ir.verify.structure import verify

__all__ = ["verify"]
