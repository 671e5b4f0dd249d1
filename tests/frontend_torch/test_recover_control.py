"""`to_coreai(recover=...)`: which composites a program may have, and the report of where they come from."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import torch
from torch import nn
from torch.nn import functional

from patcomp import TorchConverter, get_decomp_table
from patcomp.emit.native import Native
from patcomp.program.program import AIProgram
from tests.networks import zoo


class Preserved(nn.Module):
    """Ops that export keeps whole, and that are converted as composites only."""

    def __init__(self) -> None:
        super().__init__()
        self.layer_norm = nn.LayerNorm(8)
        self.group_norm = nn.GroupNorm(2, 4)
        self.batch_norm = nn.BatchNorm2d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layer_norm(self.batch_norm(self.group_norm(x)))
        x = functional.scaled_dot_product_attention(x, x, x)
        x = functional.hardswish(functional.pixel_shuffle(x, 2))
        return functional.log_softmax(x, dim=-1)


X = (torch.randn(1, 4, 6, 8),)
ALL = {
    "batch_norm": 1, "group_norm": 1, "hard_sigmoid": 1, "layer_norm": 1, "log_softmax": 1, "pixel_shuffle": 1,
    "scaled_dot_product_attention": 1,
}  # fmt: skip


def convert(model: nn.Module, inputs: tuple[torch.Tensor, ...], recover: str | Iterable[str] = "all") -> AIProgram:
    exported = torch.export.export(model.eval(), inputs).run_decompositions(get_decomp_table())
    return TorchConverter().add_exported_program(exported).to_coreai(recover=recover)


@pytest.mark.parametrize(
    ("recover", "expected"),
    [
        ("all", ALL),
        ("none", {}),
        ([], {}),
        (["layer_norm"], {"layer_norm": 1}),
        (("hard_sigmoid", "scaled_dot_product_attention"), {"hard_sigmoid": 1, "scaled_dot_product_attention": 1}),
        ({"rms_norm"}, {}),
        (iter(ALL), ALL),
    ],
)
def test_only_wanted_composites_are_recovered(
    recover: str | Iterable[str], expected: dict[str, int], native: Native
) -> None:
    model = Preserved()
    program = convert(model, X, recover)
    assert program.composites == expected
    assert [stage for stage, text in program.stages.items() if "patcomp.region" in text] == (
        ["recover", "lower", "target"] if expected else []
    )
    with torch.no_grad():
        reference = model(*X)
    (name,) = program.output_names()
    torch.testing.assert_close(program.run({"x": X[0]})[name], reference, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        torch.from_numpy(native.run(program.module, {"x": X[0]})[name]), reference, rtol=1e-4, atol=1e-5
    )


def test_names_stay_where_a_composite_is_computed_in_place() -> None:
    class Last(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return functional.hardsigmoid(x) * 2

    text = convert(Last(), X, "none").stages["recover"]
    assert "%hardsigmoid = coreai.decomposable.broadcasting_divide" in text


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match=r"no composite is called rmsnorm; there are .*layer_norm, .*rms_norm, "):
        convert(Preserved(), X, ["rmsnorm", "layer_norm"])
    with pytest.raises(ValueError, match="must be 'all', 'none' or a list of composites, got 'rms_norm'"):
        convert(Preserved(), X, "rms_norm")


def test_report_says_which_rule_made_a_composite_and_of_what() -> None:
    report = convert(Preserved(), X).report()
    assert report.counts == ALL
    by_name = {call.composite: call for call in report.calls}
    assert by_name["layer_norm"].rule == "layer_norm"
    assert by_name["layer_norm"].origins[0].module_path == "layer_norm"
    assert by_name["hard_sigmoid"].rule == "hard_sigmoid of hardswish"
    assert by_name["hard_sigmoid"].origins[0].node == "hardswish"
    assert by_name["hard_sigmoid"].place.startswith("%hardswish at ")
    lines = str(report).splitlines()
    assert len(lines) == 2 * len(ALL)
    assert lines[:2] == ["batch_norm: 1", f"  {by_name['batch_norm'].place} by rule 'batch_norm'"]
    assert str(convert(Preserved(), X, "none").report()) == "no composites"


def test_report_of_a_model_names_each_module() -> None:
    example = zoo.llama(layers=2)
    calls = convert(example.model, example.args).report().calls
    paths = [call.origins[0].module_path for call in calls if call.composite == "rms_norm"]
    norms = ("input_layernorm", "post_attention_layernorm")
    wanted = [f"layers.{layer}.{norm}" for layer in (0, 1) for norm in norms]
    assert len(paths) == 5
    assert all(path.endswith(name) for path, name in zip(paths, [*wanted, "norm"], strict=True))
    assert all(call.origins[0].source.startswith("transformers/") for call in calls)
