"""What the rules of targets do to numbers: the signal that is left on their own examples, in dB.

    python -m benchmarks.rounding

For each rule that changes numbers, the least signal over its examples, on the evaluator, against eager PyTorch in
float32: of the rule alone in float32, of the rule with float16 values, and of float16 values without the rule.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from patcomp import TorchConverter
from patcomp.commands.tables import print_table
from patcomp.patterns import Rule, example
from patcomp.targets import Target
from patcomp_lab.proof.examples import convert_example
from patterns_catalog import default_rules

FORMS = {"float32": (True, False), "float16": (True, True), "float16 without the rule": (False, True)}
"""Each column: whether the rule is applied, and whether values are float16."""

DECLARED = {
    "softplus without overflow": example("64x64xf32", program=lambda torch, x: torch.nn.functional.softplus(x)),
}
"""Examples of rules whose own ones are patterns."""


def signal(made: Tensor, wanted: Tensor) -> float:
    """The signal in dB: the largest square of what is wanted over the mean square of the error."""
    error = (made.double() - wanted.double()).square().mean()
    return float(10 * torch.log10(wanted.double().abs().max() ** 2 / error.clamp_min(1e-30)))


def signals(rule: Rule) -> Iterator[Sequence[float]]:
    """The signal of each form, for each example with results of floats."""
    for each in [DECLARED[rule.name]] if rule.name in DECLARED else rule.examples:
        _, module, inputs = convert_example(rule, each)
        assert isinstance(module, nn.Module)
        exported = torch.export.export(module, inputs)
        result = module(*inputs)
        wanted = result if isinstance(result, tuple) else (result,)
        found = []
        for applied, half in FORMS.values():
            target = Target("one", (rule.name,) * applied, ("half precision",) * half)
            program = TorchConverter().add_exported_program(exported).to_coreai(target=target)
            outputs = program.run(dict(zip(program.input_names(), inputs, strict=True)))
            pairs = zip(map(outputs.get, program.output_names()), wanted, strict=True)
            found.append([signal(torch.as_tensor(made), right) for made, right in pairs if right.is_floating_point()])
        if all(found):
            yield [min(values) for values in found]


def main() -> None:
    """Measure and print."""
    warnings.simplefilter("ignore")
    rows = []
    for rule in default_rules().stage("target"):
        if rule.is_declarative and rule.name not in DECLARED:
            continue
        least = [min(values) for values in zip(*signals(rule), strict=True)]
        if least and least[0] < math.inf:
            rows.append([rule.name, *(f"{value:.0f}" if value < 200 else "exact" for value in least)])
    print_table(["rule", *FORMS], rows)


if __name__ == "__main__":
    main()
