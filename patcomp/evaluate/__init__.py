"""The reference evaluator: runs `coreai` IR on torch tensors, one function an op.

    outputs = evaluate(module, {"x": torch.randn(2, 3)})        # patcomp.evaluate.machine

To teach it an op, write a function in the file of the op's family, in the folder `ops`:

    @implements("coreai.add")
    def add(op: EvaluatedOp, x: Tensor, y: Tensor) -> Tensor: ...
"""
