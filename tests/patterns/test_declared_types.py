"""A declarative target must have the very type of what it replaces."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from patcomp import TorchConverter
from patcomp.authoring import CoreaiSource, CoreaiTarget
from patcomp.errors import StageError
from patcomp.ir.namespaces import coreai_namespace
from patcomp.patterns import Capture, Rewrite, RuleSet, rule


@rule(stage="optimize", source=coreai_namespace, into=coreai_namespace, example={"x": "3xf32"})
def three(a: CoreaiSource, c: CoreaiTarget, x: Capture) -> Rewrite:
    "relu(x) -> reshape(relu(x), [3])"
    return Rewrite(a.relu(x), to=c.reshape(c.tanh(x), [3]))


class Relu(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.relu()


def test_a_target_of_a_more_exact_type_is_refused() -> None:
    """A value of a known size could take the place of one of an open size, and must not."""
    shapes = ({0: torch.export.Dim("n", min=2, max=9)},)
    exported: Any = torch.export.export(Relu(), (torch.ones(3),), dynamic_shapes=shapes)
    converter = TorchConverter(catalog=[RuleSet([three])]).add_exported_program(exported)
    with pytest.raises(StageError, match=r"the rule gives tensor<3xf32> for result 0 of coreai.relu, which is"):
        converter.to_coreai()
