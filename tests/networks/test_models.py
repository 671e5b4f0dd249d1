"""Ten real networks, the whole way: convert, read back every stage, run, compare with eager PyTorch."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from patcomp import AIProgram, TorchConverter, get_decomp_table
from patcomp.emit.native import Native
from patcomp.evaluate.comparison import compare
from patcomp.evaluate.inputs import prepare_input
from patcomp.ir import parse_module, to_text
from tests.helpers.as_users_run import AS_USERS_RUN
from tests.helpers.workers import in_one_worker
from tests.networks.zoo import MODELS, Example, build

pytestmark = AS_USERS_RUN

COMPOSITES = {
    "resnet18": {"batch_norm": 20},
    "mobilenet_v3_small": {"batch_norm": 34, "hard_sigmoid": 28},
    "convnext_tiny": {"layer_norm": 10},
    "vit": {"layer_norm": 7, "scaled_dot_product_attention": 3},
    "bert": {"layer_norm": 7, "scaled_dot_product_attention": 3},
    "gpt2": {"layer_norm": 7, "scaled_dot_product_attention": 3},
    "llama": {"rms_norm": 9, "rope": 8, "scaled_dot_product_attention": 4},
    "t5_encoder": {"rms_norm": 7, "scaled_dot_product_attention": 3},
    "espcn": {"pixel_shuffle": 1},
    "unet": {"group_norm": 10},
}
"""What each network has by its definition; every one of them must be found."""


@cache
def exported(name: str) -> tuple[Example, torch.export.ExportedProgram]:
    example = build(name)
    return example, torch.export.export(example.model, example.args).run_decompositions(get_decomp_table())


@cache
def converted(name: str) -> AIProgram:
    return TorchConverter().add_exported_program(exported(name)[1]).to_coreai()


each_model = pytest.mark.parametrize("name", in_one_worker(MODELS))


@pytest.mark.sampled(2)
@each_model
def test_agrees_with_eager_on_evaluator_and_runtime(name: str, native: Native) -> None:
    example, _ = exported(name)
    program = converted(name)
    assert program.diagnostics == ()
    verification = program.verify_against(example.model, example.args, backends=["evaluator"])
    assert verification.passed, verification
    (output,) = program.output_names()
    with torch.no_grad():
        expected = example.model(*example.args)
    assert expected.abs().max() > 0.1, "an output near zero agrees with anything"
    graph = program.module.graph("main")
    types = [argument.type for argument in graph.regions[0].block.args]
    inputs = {
        given: prepare_input(value, type_, given)
        for given, value, type_ in zip(program.input_names(), example.args, types, strict=True)
    }
    outputs = native.run(program.module, inputs)
    error = compare(output, "runtime", expected, torch.from_numpy(outputs[output]))
    assert error.max_abs <= 1e-4, error


@each_model
def test_finds_every_composite(name: str) -> None:
    assert converted(name).composites == COMPOSITES[name]


@pytest.mark.sampled(3)
@each_model
def test_every_stage_reads_back(name: str) -> None:
    program = converted(name)
    assert " ".join(program.stages) == "import normalize recover lower target outline state optimize emit"
    for stage, text in program.stages.items():
        assert to_text(parse_module(text)) == text, stage
    assert program.stages["emit"] == str(program)


@each_model
def test_the_toolchain_parses_both_forms(name: str, native: Native) -> None:
    module = converted(name).module
    assert native.check(module, pretty=True) == ()
    assert native.check(module, pretty=False) == ()


@each_model
def test_converts_to_the_same_bytes_and_leaves_model_and_program_alone(name: str) -> None:
    example, program = exported(name)
    state = {key: (value.data_ptr(), value.clone()) for key, value in example.model.state_dict().items()}
    graph, attributes = str(program.graph), {path: set(vars(m)) for path, m in example.model.named_modules()}
    again = TorchConverter().add_exported_program(program).to_coreai()
    assert str(again) == str(converted(name))
    assert str(program.graph) == graph
    assert {path: set(vars(m)) for path, m in example.model.named_modules()} == attributes
    for key, value in example.model.state_dict().items():
        assert value.data_ptr() == state[key][0], key
        assert torch.equal(value, state[key][1]), key


@each_model
def test_every_op_leads_back_to_the_source(name: str) -> None:
    from patcomp.ir import origins

    module = converted(name).module
    computing = [op for op in module.op.walk() if op.name.startswith("coreai.") and op.operands]
    lost = [op for op in computing if not origins(op.location) and op.name != "coreai.output"]
    assert not lost
    text = module.text(locations=True)
    assert 'loc("' in text
    assert "/root/" not in text and "/home/" not in text and "/tmp/" not in text  # noqa: PT018
