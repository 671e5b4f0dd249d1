"""Verify a program with compressed weights: does it compute with these weights, and how much accuracy do they lose?

No tolerance tells the loss of compression from a wrong program. So the program on each backend is compared with the
program on the evaluator, with the very weights that are stored, at the usual tolerances. Apart from this, the outputs
are compared with the model's, and an output of which too little is left does not pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from patcomp.evaluate.comparison import compare
from patcomp.evaluate.expectation import Expectation, Run
from patcomp.evaluate.machine import Machine
from patcomp.evaluate.verification import Loss, Verification
from patcomp.ir.module import IRModule


def verify_compressed(
    module: IRModule,
    expectation: Expectation,
    given: tuple[Mapping[str, Any], Mapping[str, Any]],
    entrypoint: str,
    backends: Mapping[str, Run],
    evaluate: Callable[[type[Machine]], Run] | None = None,
) -> Verification:
    """Compare a program with the weights that it stores, and these weights with the model.

    Args:
        module: the program, as it was compressed.
        expectation: what the model computes.
        given: the inputs and states of the program, by name and of its types.
        entrypoint: the name of the graph.
        backends: what runs the program that was saved, by name.
        evaluate: as for `Expectation.verification`.

    Raises:
        EvaluationError: an input or state has another type, or the program does not run.
    """
    stored = Expectation.of_program(module, *given, entrypoint)
    result = stored.verification(backends, None, evaluate)
    loss = tuple(_loss(name, value, stored.references[name]) for name, value in expectation.references.items())
    return replace(result, reference="its own weights on the evaluator", loss=loss)


def _loss(name: str, expected: Tensor, given: Tensor) -> Loss:
    """The loss of one output through compressed weights."""
    error = compare(name, "evaluator", expected, given, math.inf)
    if not expected.is_floating_point() and not expected.is_complex():
        share = float((expected != given).double().mean()) if expected.numel() else 0.0
        return Loss(name, share, error.max_rel, error.psnr)
    wide = torch.complex128 if expected.is_complex() else torch.float64
    difference, size = (each.abs().square().sum() for each in (given.to(wide) - expected.to(wide), expected.to(wide)))
    rms = math.sqrt(float(difference / size)) if size else float(difference > 0)
    return Loss(name, rms if math.isfinite(rms) else math.inf, error.max_rel, error.psnr)
