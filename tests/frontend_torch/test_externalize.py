"""Externalized modules: what is matched, marked, declared and refused."""

from __future__ import annotations

import copy
import warnings
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import patcomp
from patcomp import ExternalizeSpec, TorchConverter, UnsupportedError, get_decomp_table, mark_for_externalization
from patcomp.composite_ops import RMSNorm, RMSNormImpl
from patcomp.emit.native import Native
from patcomp.frontend_torch.externalization.externalize import ModuleChoice
from patcomp.ir.module import graph_name, names_of
from tests.frontend_torch.externalizing import (
    Affine,
    Around,
    Scale,
    Twice,
    X,
    calls,
    check,
    convert,
    declared,
    exporter,
    graphs,
    state_of,
)

# ---- the two modes --------------------------------------------------------------------------------


class Normalized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = RMSNorm(4), nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(self.norm(x))


@pytest.mark.parametrize("strict", [False, True])
def test_composite(strict: bool, native: Native) -> None:
    spec = ExternalizeSpec(RMSNormImpl, "rms_norm", ["axes", "eps"])
    program = convert(model := Normalized(), [spec], strict=strict)
    (path,) = graphs(program)
    assert declared(program, path) == {
        "name": "rms_norm", "input_names": ["input", "scale"], "output_names": ["output"],
        "axes": -1, "eps": pytest.approx(model.norm.rmsnorm_impl.eps), "version": 1,
    }  # fmt: skip
    graph = graphs(program)[path]
    assert {"priv", "no_inline"} <= set(graph.properties)
    assert calls(program) == [path] and calls(program, graph_name(graph)) == []  # noqa: PT018
    assert path.startswith("norm.")
    check(program, model, native)


@pytest.mark.parametrize("target", [Affine, ExternalizeSpec(Affine), "inner", "in*", ExternalizeSpec("inner")])
def test_plain_graph(target: ModuleChoice, native: Native) -> None:
    program = convert(model := Around(Affine()), [target])
    graph = graphs(program)["inner"]
    assert "composite_decl" not in graph.properties
    assert "priv" not in graph.properties
    assert "no_inline" in graph.properties
    assert names_of(graph, "arg_attrs") == ["x"]  # own parameters are constants inside
    assert names_of(graph, "res_attrs") == ["output"]
    assert program.entrypoints == ("main",)
    assert calls(program) == ["inner"]
    check(program, model, native)


def test_parameters_of_a_composite_are_its_first_inputs(native: Native) -> None:
    program = convert(model := Around(Affine()), [ExternalizeSpec(Affine, "affine")])
    assert declared(program, "inner")["input_names"] == ["weight", "offset", "x"]
    assert names_of(graphs(program)["inner"], "arg_attrs") == ["weight", "offset", "x"]
    check(program, model, native)


def test_parameters_of_children_have_dotted_names(native: Native) -> None:
    model = Around(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 4)))
    program = convert(model, [ExternalizeSpec(nn.Sequential, "two_layers")])
    assert declared(program, "inner")["input_names"] == ["0.weight", "0.bias", "1.weight", "1.bias", "input"]
    check(program, model, native)


@pytest.mark.parametrize("target", [nn.Linear, ExternalizeSpec(nn.Linear, "linear", ["in_features"])])
def test_paths_that_are_numbers(target: ModuleChoice, native: Native) -> None:
    program = convert(model := nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 4)), [target])
    assert calls(program) == ["0", "2"]
    check(program, model, native)


# ---- calls ----------------------------------------------------------------------------------------


class Attributes(nn.Module):
    def __init__(self, **attributes: Any) -> None:
        super().__init__()
        vars(self).update(attributes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


def test_attributes_of_all_kinds() -> None:
    values = {
        "number": 3, "ratio": 0.5, "flag": True, "mode": "tanh", "pads": [1, 2], "sizes": (3, (4, 5)), "nothing": None,
        "options": {"b": 1, "a": [True]}, "numpy_int": np.int32(7), "numpy_float": np.float64(0.25),
        "numpy_bool": np.bool_(False), "size": torch.Size([2, 3]), "version": 2, "other": object(),
    }  # fmt: skip
    listed = [name for name in values if name != "other"]
    program = convert(Around(Attributes(**values)), [ExternalizeSpec(Attributes, "op", listed)])
    found = declared(program, "inner")
    assert {name: found[name] for name in found if name not in ("name", "input_names", "output_names")} == {
        "number": 3, "ratio": 0.5, "flag": True, "mode": "tanh", "pads": [1, 2], "sizes": [3, [4, 5]],
        "options": {"a": [True], "b": 1}, "numpy_int": 7, "numpy_float": 0.25, "numpy_bool": False, "size": [2, 3],
        "version": 2,
    }  # fmt: skip
    assert type(found["flag"]) is type(found["numpy_bool"]) is bool


@pytest.mark.parametrize(
    "value",
    [torch.zeros(2), np.zeros(2), torch.float32, object(), {1: 2}, {"": 2}, [None], 2**70, 1e300, 1j, b"bytes"],
)
def test_attributes_of_other_kinds_are_refused(value: Any) -> None:
    model = Around(Attributes(strange=value))
    before = state_of(model)
    with pytest.raises((TypeError, OverflowError), match=r"Attributes\.strange of submodule 'inner'"):
        TorchConverter().add_pytorch_module(model, exporter(X), [ExternalizeSpec(Attributes, "op", ["strange"])])
    assert state_of(model) == before


def test_members_of_enumerations_are_recorded_by_their_values(native: Native) -> None:
    class Mode(Enum):
        tanh = "tanh"
        sizes = (1, 2)

    listed = {"mode": Mode.tanh, "sizes": Mode.sizes, "modes": [Mode.tanh]}
    program = convert(Around(Attributes(**listed)), [ExternalizeSpec(Attributes, "op", list(listed))])
    found = declared(program, "inner")
    assert [found[name] for name in listed] == ["tanh", [1, 2], ["tanh"]]
    program = convert(model := Normalized(), [ExternalizeSpec(RMSNormImpl, "rms_norm", ["axes", "eps", "version"])])
    (path,) = calls(program)
    assert declared(program, path)["version"] == 1
    check(program, model, native)


@pytest.mark.parametrize("version", [True, 1.0, "1"])
def test_a_version_is_an_int(version: Any) -> None:
    with pytest.raises(TypeError, match="version of submodule 'inner' must be an int"):
        convert(Around(Attributes(version=version)), [ExternalizeSpec(Attributes, "op", ["version"])])


def test_a_missing_attribute_is_named() -> None:
    with pytest.raises(AttributeError, match=r"Attributes\.absent of submodule 'inner' does not exist"):
        convert(Around(Attributes()), [ExternalizeSpec(Attributes, "op", ["absent"])])


def test_instances_with_other_attributes(native: Native) -> None:
    spec = ExternalizeSpec(Scale, "scale", ["factor"])
    program = convert(model := Twice(Scale(2.0), Scale(3.0)), [spec])
    assert calls(program) == ["a", "b"]
    assert [declared(program, path)["factor"] for path in "ab"] == [2.0, 3.0]
    check(program, model, native)


def test_equal_composites_share_a_graph(native: Native) -> None:
    program = convert(model := Twice(Scale(), Scale()), [ExternalizeSpec(Scale, "scale", ["factor"])])
    assert calls(program) == ["a", "a"]  # the first one's name
    check(program, model, native)
    program = convert(model := Twice(RMSNorm(4), RMSNorm(4)), [ExternalizeSpec(RMSNorm, "norm")])
    assert calls(program) == ["a", "a"]  # weights are operands
    check(program, model, native)


def test_equal_plain_graphs_of_other_paths_stay_apart(native: Native) -> None:
    program = convert(model := Twice(Scale(), Scale()), [Scale])
    assert calls(program) == ["a", "b"]
    check(program, model, native)


@pytest.mark.parametrize("target", [Affine, ExternalizeSpec(Affine, "affine")])
def test_an_instance_called_twice_or_shared(target: ModuleChoice, native: Native) -> None:
    shared = Affine()
    program = convert(model := Twice(shared, shared), [target])
    assert calls(program) == ["a", "a"]
    assert list(graphs(program)) == ["a"]
    check(program, model, native)


class Again(nn.Module):
    """One instance, called twice with the same input."""

    def __init__(self) -> None:
        super().__init__()
        self.part = Affine()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.part(x) + torch.sin(self.part(x))


@pytest.mark.parametrize("target", [Affine, ExternalizeSpec(Affine, "affine")])
def test_equal_calls_are_made_once(target: ModuleChoice, native: Native) -> None:
    program = convert(model := Again(), [target])
    assert calls(program) == ["part"]
    check(program, model, native)


def test_a_pattern_finds_a_shared_instance_by_any_of_its_paths() -> None:
    shared = Affine()
    assert calls(convert(Twice(shared, shared), ["b"])) == ["a", "a"]


# ---- nesting, and composites inside ---------------------------------------------------------------


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = RMSNorm(4), nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.nn.functional.layer_norm(self.up(self.norm(x)), (8,)))


class Blocks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


RMS = ExternalizeSpec(RMSNormImpl, "rms_norm", ["axes", "eps"])


@pytest.mark.parametrize("outer", [Block, ExternalizeSpec(Block, "block")])
@pytest.mark.parametrize("middle", [RMSNorm, ExternalizeSpec(RMSNorm, "norm"), nn.Linear])
def test_nested_modules(outer: ModuleChoice, middle: ModuleChoice, native: Native) -> None:
    program = convert(model := Blocks(), [outer, middle, RMS])
    names = [graph_name(graph) for graph in program.module.graphs]
    for index, graph in enumerate(program.module.graphs):
        for op in graph.walk():
            if op.name == "coreai.invoke":
                callee = op.properties["callee"].symbol.root_reference.data  # type: ignore[attr-defined]
                assert names.index(callee) < index, "a graph stands before those that call it"
    assert names[-1] == "main"
    assert set(calls(program)) <= {"blocks.0", "blocks.1"}
    assert program.composites["rms_norm"] >= 1
    check(program, model, native)


def test_nothing_is_recovered_inside_its_own_composite(native: Native) -> None:
    program = convert(model := Normal(), [RMS])
    assert program.composites == {"rms_norm": 1}
    check(program, model, native)


class Normal(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = RMSNorm(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


@pytest.mark.parametrize(
    ("recover_inside", "recover", "expected"),
    [
        (True, "all", {"block": 2, "layer_norm": 1, "rms_norm": 1}),  # in the one graph of both blocks
        (True, ["layer_norm"], {"block": 2, "layer_norm": 1}),
        (True, "none", {"block": 2}),
        (False, "all", {"block": 2}),
    ],
)
def test_composites_inside_by_choice(
    recover_inside: bool, recover: Any, expected: dict[str, int], native: Native
) -> None:
    model = Blocks().eval()
    spec = ExternalizeSpec(Block, "block", recover=recover_inside)
    converter = TorchConverter().add_pytorch_module(model, exporter(X), [spec])
    program = converter.to_coreai(recover=recover)
    assert dict(sorted(program.composites.items())) == expected
    check(program, model, native)


# ---- matching -------------------------------------------------------------------------------------


class Special(Scale):
    pass


def test_the_first_match_wins_and_subclasses_match() -> None:
    first, second = ExternalizeSpec(Special, "special"), ExternalizeSpec(Scale, "scale")
    program = convert(Twice(Special(), Scale()), [first, second])
    assert [declared(program, path)["name"] for path in "ab"] == ["special", "scale"]
    with pytest.warns(UserWarning, match=r"did not match any submodule in the model: Special$"):
        program = convert(Twice(Special(), Scale(3.0)), [second, first])
    assert [declared(program, path)["name"] for path in "ab"] == ["scale", "scale"]


def test_the_root_is_not_matched() -> None:
    with pytest.warns(UserWarning, match=r"in the model: Affine, layers\.\*$"):
        program = convert(Affine(), [Affine, "layers.*"])
    assert list(graphs(program)) == []


def test_patterns_of_paths() -> None:
    program = convert(Blocks(), ["blocks.*.up", ExternalizeSpec("*.1.norm", "norm", recover=False)])
    assert sorted(graphs(program)) == ["blocks.0.up", "blocks.1.norm", "blocks.1.up", "layer_norm", "rms_norm"]


class Uncalled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.part = Scale(), Twice(Scale(3.0), Scale())
        self.part.forward = lambda x: x + 1  # type: ignore[method-assign]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.part(self.a(x))


def test_modules_that_are_not_called_are_named() -> None:
    with pytest.warns(UserWarning, match="No call sites found") as caught:
        program = TorchConverter().add_pytorch_module(Uncalled(), exporter(X), [Scale]).to_coreai()
    assert [str(warning.message) for warning in caught if "call sites" in str(warning.message)] == [
        f"No call sites found for externalized submodule {path!r} in exported_program. It will not be externalized."
        for path in ("part.a", "part.b")
    ]
    assert list(graphs(program)) == ["a"]


class Mapped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Affine()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.vmap(self.inner)(x)


def test_calls_under_vmap_are_no_regions(native: Native) -> None:
    with pytest.warns(UserWarning, match="No call sites found for externalized submodule 'inner'"):
        program = convert(model := Mapped(), [ExternalizeSpec(Affine, "affine")])
    assert calls(program) == []
    check(program, model, native)


def test_nothing_to_warn_of() -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="(externalize_modules|No call sites)")
        convert(Twice(Scale(), Scale()), [Scale])


@pytest.mark.parametrize(
    ("error", "arguments"),
    [
        (TypeError, {"target_class": 3}),
        (TypeError, {"target_class": int}),
        (TypeError, {"target_class": nn.Linear(1, 1)}),
        (ValueError, {"target_class": ""}),
        (ValueError, {"target_class": nn.Linear, "composite_attrs": ["bias"]}),
        (ValueError, {"target_class": nn.Linear, "composite_op_name": " "}),
        (TypeError, {"target_class": nn.Linear, "composite_op_name": 3}),
        (TypeError, {"target_class": nn.Linear, "composite_op_name": "linear", "composite_attrs": "bias"}),
        (TypeError, {"target_class": nn.Linear, "composite_op_name": "linear", "composite_attrs": [1]}),
        (TypeError, {"target_class": nn.Linear, "composite_op_name": "linear", "composite_attrs": 7}),
    ],
)
def test_specs_are_checked(error: type[Exception], arguments: dict[str, Any]) -> None:
    with pytest.raises(error, match=r"target_class|composite_"):
        ExternalizeSpec(**arguments)


@pytest.mark.parametrize("targets", [[3], [nn.Linear(1, 1)], nn.Linear, "a.*", {nn.Linear}, ExternalizeSpec(nn.Linear)])
def test_targets_are_checked(targets: Any) -> None:
    with pytest.raises(TypeError, match=r"target_class|must be a list"):
        TorchConverter().add_pytorch_module(Affine(), exporter(X), targets)


# ---- marking --------------------------------------------------------------------------------------


def test_export_runs_once_and_the_model_is_restored_when_it_fails() -> None:
    model = Twice(Scale(), Scale())
    model.a.forward = own = lambda x: x * 7  # type: ignore[method-assign]
    before = state_of(model)
    seen = []

    def failing(module: nn.Module) -> torch.export.ExportedProgram:
        seen.append(module)
        assert state_of(model) != before
        raise KeyError("no luck")

    with pytest.raises(RuntimeError, match="failed to export"):
        TorchConverter().add_pytorch_module(model, failing, [Scale])
    assert seen == [model]
    assert state_of(model) == before
    assert model.a.forward is own


def test_a_forward_of_the_instance_is_what_is_called(native: Native) -> None:
    model = Twice(Scale(), Scale())
    model.a.forward = lambda x: x * 7  # type: ignore[method-assign]
    program = convert(model, [Scale])
    assert calls(program) == ["a", "b"]
    check(program, model, native)


def test_marking_twice_is_refused() -> None:
    model = Twice(Scale(), Scale())
    before = state_of(model)
    with mark_for_externalization(model, [Scale]):
        inside = state_of(model)
        with (
            pytest.raises(RuntimeError, match="'a' is already marked"),
            mark_for_externalization(model, [Twice, "*"]),
        ):
            pass
        assert state_of(model) == inside
    assert state_of(model) == before


class Trained(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.affine, self.linear = Affine(), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(torch.tanh(self.affine(x)))


def test_a_marked_model_runs_and_trains_as_before() -> None:
    model = Trained()
    x = X.clone().requires_grad_()

    def results() -> list[torch.Tensor]:
        model.zero_grad()
        x.grad = None
        y = model(x)
        y.square().sum().backward()
        return [y, x.grad, *(p.grad for p in model.parameters() if p.grad is not None)]  # type: ignore[list-item]

    expected = [value.clone() for value in results()]
    with mark_for_externalization(model, [Affine, ExternalizeSpec(nn.Linear, "linear")]):
        found = results()
        copied = copy.deepcopy(model)
    assert len(found) == len(expected) == 5
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    with torch.no_grad():
        copied.affine.weight.zero_()
        assert torch.equal(copied.affine(X), copied.affine.offset.expand(2, 4))  # it calls itself, not the original


def test_two_steps(tmp_path: Path, native: Native) -> None:
    model = Trained().eval()
    before = state_of(model)
    with mark_for_externalization(model, [ExternalizeSpec(Affine, "affine"), "linear"]):
        exported = torch.export.export(model, (X,))
    assert state_of(model) == before
    torch.export.save(exported, tmp_path / "model.pt2")
    programs = [
        exported,
        exported.run_decompositions(),
        exported.run_decompositions(get_decomp_table()),
        torch.export.load(tmp_path / "model.pt2"),
        torch.export.export(exported.module(), (X,)),  # as a quantizer does
    ]
    for program in programs:
        assert patcomp.supports(program)
        converted = TorchConverter().add_exported_program(program).to_coreai()
        assert calls(converted) == ["affine", "linear"]
        assert declared(converted, "affine")["input_names"] == ["weight", "offset", "x"]
        check(converted, model, native)


def test_two_steps_as_other_tools_call_them(native: Native) -> None:
    model = Trained().eval()
    before = state_of(model)
    unmarked = exporter(X)(model)
    patcomp._patch_model_for_externalization(model, [ExternalizeSpec(Affine, "affine"), nn.Linear])
    exported = exporter(X)(model)
    found = patcomp._subexport_and_restore(model, exported, progress_bar=None)
    assert [(module.path, module.composite) for module in found] == [("affine", "affine"), ("linear", None)]
    assert state_of(model) == before
    converter = TorchConverter().add_exported_program(exported, _externalized_exported_programs=found)
    program = converter.to_coreai()
    assert calls(program) == ["affine", "linear"]
    check(program, model, native)
    assert patcomp._subexport_and_restore(model, exported) == []
    patcomp._patch_model_for_externalization(model, [Affine])
    with pytest.warns(UserWarning, match="No call sites found for externalized submodule 'affine'"):
        assert patcomp._subexport_and_restore(model, unmarked) == []
    assert state_of(model) == before


def test_a_lost_marker_is_reported() -> None:
    with mark_for_externalization(model := Trained(), [Affine]):
        exported = exporter(X)(model)
    (end,) = [node for node in exported.graph.nodes if node.name == "region_end"]
    exported.graph.erase_node(end)
    with pytest.raises(UnsupportedError, match="a call of the externalized module 'affine' has no end"):
        TorchConverter().add_exported_program(exported).to_coreai()


def test_texts_do_not_change_from_run_to_run() -> None:
    torch.manual_seed(0)
    model = Blocks()
    targets = [ExternalizeSpec(Block, "block"), RMS, "*.up"]
    first, second = (convert(model, targets) for _ in range(2))
    assert first.text(locations=True) == second.text(locations=True)
    assert dict(first.stages) == dict(second.stages)
    assert "patcomp.region @blocks.0(" in first.stages["import"]
    assert "region_begin" not in first.stages["import"]


def test_representation() -> None:
    converter = TorchConverter().add_pytorch_module(
        Trained(), exporter(X), [nn.Linear, "affine"], entrypoint_name="two"
    )
    assert "two: nn.Module [] -> [], externalize=['Linear', 'affine']" in repr(converter)


def test_several_entry_points(native: Native) -> None:
    model = Trained().eval()
    converter = TorchConverter()
    for name, rows in (("one", 1), ("two", 2)):
        converter.add_pytorch_module(
            model, exporter(X[:rows]), [ExternalizeSpec(Affine, "affine"), nn.Linear], entrypoint_name=name
        )
    converter.add_pytorch_module(model, exporter(X), [ExternalizeSpec(Affine, "affine")], entrypoint_name="again")
    program = converter.to_coreai()
    assert program.entrypoints == ("one", "two", "again")
    assert {graph_name(graph).rpartition("_")[0] for graph in program.module.graphs} >= {"affine", "linear"}
    assert len(list(program.module.graphs)) == 3 + 4  # the composite of two rows is shared
    for name, rows in (("one", 1), ("two", 2), ("again", 2)):
        inputs = {program.input_names(name)[0]: X[:rows]}
        found = native.run(program.module, inputs, entry=name)[program.output_names(name)[0]]
        np.testing.assert_allclose(found, model(X[:rows]).detach().numpy(), atol=1e-5)
