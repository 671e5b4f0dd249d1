"""A fuzzer: random programs, converted, run on the evaluator and the runtime, and judged by PyTorch.

    python -m tests.fuzz --programs 5000 --seed 0 --jobs 2

`generator.py` draws a program with the templates of `tensor_ops.py`, `moving_ops.py`,
`near_composites.py` and `effects.py`;
`judge.py` says how it ends; `shrink.py` makes a failing program smaller; `script.py` writes it down.
"""
