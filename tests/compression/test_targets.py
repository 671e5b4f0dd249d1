"""What the words and schemes of compression mean for each target, and that its audit takes what it makes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from torch import nn

import patcomp
from patcomp import AIProgram, TorchConverter
from patcomp.compression import CompressionRequest
from patcomp.compression.scheme import Layout, Scheme
from patcomp.ir.module import IRModule
from patcomp.questions.audit import audit
from patcomp.targets import CPU, GPU, NEURAL_ENGINE, TARGETS, Target
from patterns_catalog import default_rules
from tests.helpers.command import Command
from tests.networks import zoo

X = torch.randn(1, 32, 128)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(128, 256), nn.GELU(), nn.Linear(256, 128)).eval()


def converted(model: nn.Module, *inputs: torch.Tensor, target: str | Target | None) -> AIProgram:
    return TorchConverter().add_exported_program(torch.export.export(model, inputs)).to_coreai(target=target)


@pytest.fixture(scope="module", params=["gpu", "neural_engine"])
def program(request: pytest.FixtureRequest) -> AIProgram:
    return converted(network(), X, target=request.param)


def schemes_of(program: AIProgram) -> set[str]:
    assert program.compression is not None
    return {weight.scheme for weight in program.compression.weights}


def target_of(program: AIProgram) -> Target:
    assert program.history is not None
    assert program.history.options.target is not None
    return program.history.options.target


# ---- what a word means -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "scheme", "tables"),
    [(None, "w4_block32", "w4_block32"), ("cpu", "w4_block32", "w4_block32"), (GPU, "w4_block32", "w4_block32"),
     ("neural_engine", "pal4_group32", None), (NEURAL_ENGINE.without("half precision"), "pal4_group32", None)],
)  # fmt: skip
def test_four_bits(target: str | Target | None, scheme: str, tables: str | None) -> None:
    request = CompressionRequest.of("4bit", target)
    assert request.text == "4bit"
    assert request.config.scheme == Scheme.parse(scheme)
    assert request.config.kinds == ({"gather": None} if tables is None else {})
    assert CompressionRequest.of(request, "gpu") is request
    head = request.with_head(["head"]).config.names
    assert head == ({"head": Scheme.parse("w8")} if tables else {})  # beside palettes the head is a palette, too
    for word in ("8bit", "w4_block32", "4bit_weight_palettized_group8", "4.5bits"):
        assert CompressionRequest.of(word, target) == CompressionRequest.of(word)


def test_words_of_python(program: AIProgram) -> None:
    wanted = "pal4_group32" if target_of(program) == NEURAL_ENGINE else "w4_block32"
    assert schemes_of(program.compress("4bit")) == {wanted}
    assert schemes_of(program.compress("8bit")) == {"w8"}
    small = program.compress("4.5bits").compression
    assert small is not None
    assert small.after <= 4.5 / 8 * small.elements


def test_a_program_without_a_target() -> None:
    assert schemes_of(converted(network(), X, target=None).compress("4bit")) == {"w4_block32"}


def test_a_target_of_ones_own() -> None:
    mine = Target("mine", four_bits="pal4_group8")
    assert schemes_of(converted(network(), X, target=mine).compress("4bit")) == {"pal4_group8"}


def test_one_budget() -> None:
    plain = converted(network(), X, target=None)
    with pytest.raises(ValueError, match=r"give a budget or bits_per_weight, not both \(30% and 4\.5\)"):
        plain.compress("4.5bits", budget="30%")
    with pytest.raises(ValueError, match=r"not both \(50% and 4\)"):
        plain.compress(budget="50%", bits_per_weight=4)


@pytest.mark.parametrize("target", ["neural_engine", "gpu"])
def test_words_of_the_command_line(target: str, patcomp: Command, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "import torch\nfrom torch import nn\n\n\ndef net():\n"
        "    return nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 64)), (torch.randn(1, 4, 128),)\n"
    )
    wanted = {"gpu": {"w4_block32"}, "neural_engine": {"pal4_group32"}}[target]
    done = patcomp("convert", "net.py:net", "--target", target, "--compress", "4bit", "-o", "a.aimodel")
    assert done.code == 0, done.err
    done = patcomp("audit", "a.aimodel", "--target", target)
    assert done.code == 0, done.out
    done = patcomp("compress", "net.py:net", "--target", target, "--config", "4bit", "-o", "b.aimodel", "--json")
    assert done.code == 0, done.err
    assert {weight["scheme"] for weight in json.loads(done.out)["weights"]} == wanted
    assert patcomp("audit", "b.aimodel", "--target", target).code == 0
    done = patcomp("compress", "net.py:net", "--target", "neural_engine", "--config", "w4_block32")
    assert (done.code, "the target neural_engine does not take weights that are stored so" in done.err) == (1, True)


# ---- what a target makes, its audit takes ----------------------------------------------------------

SCHEMES = (
    "4bit", "8bit", "4bit_weight_palettized_group8", "4bit_weight_palettized_group32", "4.5bits", "30%",
    "w8", "w8_block32", "w4", "w4_block32", "w4_block7", "w3", "w3_block32", "w2_block32",
    "pal8", "pal6", "pal4", "pal4_group8", "pal4_group16", "pal4_group32", "pal4_group7", "pal3", "pal1",
    "pal4_vector2", "sparse50", "sparse50_w8", "sparse50_pal4",
)  # fmt: skip

NETWORKS = (
    "bert", "mobilenet_v3_small", "vit", "resnet18", "unet", "convnext_tiny", "gpt2", "llama", "t5_encoder", "espcn",
)  # fmt: skip


def problems(program: AIProgram) -> set[str]:
    """What the audit for the program's own target finds, beside advice."""
    return {each.what for each in program.audit(target_of(program)).findings if not each.is_advice}


def check_schemes(program: AIProgram, schemes: tuple[str, ...]) -> set[str]:
    """That the audit takes each compressed program, or that compression refuses it with the reason; those that it
    takes."""
    target, taken = target_of(program), set()
    for scheme in schemes:
        try:
            small = program.compress(scheme)
        except ValueError as error:
            reasons = f"the target {target} does not take weights that are stored so|the budget of .* cannot be met"
            if not re.search(reasons, str(error)):
                raise
            continue
        assert problems(small) == problems(program), scheme
        taken.add(scheme)
    return taken


def test_the_audit_takes_what_the_target_makes(program: AIProgram) -> None:
    quick = tuple(scheme for scheme in SCHEMES if scheme not in ("pal8", "pal6", "30%"))  # the sweep has these
    refused = {*quick} - check_schemes(program, quick)
    if target_of(program) == NEURAL_ENGINE:
        assert refused == {
            "w8_block32", "w4", "w4_block32", "w4_block7", "w3", "w3_block32", "w2_block32", "pal4_vector2",
            "sparse50", "sparse50_w8", "sparse50_pal4",
        }  # fmt: skip
    else:
        assert refused == set()


@pytest.mark.sampled(30)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name: str, target: str) -> None:
    torch.manual_seed(0)
    example = zoo.build(name)
    made = converted(example.model, *example.args, target=target)
    assert problems(made) <= {"coreai.gather_nd"}  # the lookup of tokens runs elsewhere
    assert {"4bit", "8bit", "pal4"} <= check_schemes(made, SCHEMES)


def test_a_saved_program_is_taken(tmp_path: Path) -> None:
    small = converted(network(), X, target="neural_engine").compress("4bit")
    small.save_asset(tmp_path / "small.aimodel", writer="python")
    loaded = patcomp.load(tmp_path / "small.aimodel")
    assert audit(loaded.module, NEURAL_ENGINE, default_rules()).clean


# ---- what does not fit -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scheme", "shape", "layout", "fits"),
    [
        ("w4_block32", (8, 64), Layout((0,), 1), "w4_block32"), ("w4_block7", (8, 64), Layout((0,), 1), "w4"),
        ("w4_block7", (7, 64), Layout((1,), 0), "w4_block7"), ("w8", (8, 64), Layout((0,), 1), "w8"),
        ("pal4_group16", (8, 64), Layout((0,), 1), "pal4"), ("pal4_group16", (8, 64), Layout((1,), 0), "pal4_group16"),
        ("pal4_vector2", (9, 64), Layout((0,), 1), "pal4"), ("pal4_vector2", (8, 64), Layout((0,), 1), "pal4_vector2"),
        ("pal6", (9, 7), Layout((0,), 1), "pal6"), ("sparse50_w8", (9, 7), Layout((0,), 1), "sparse50_w8"),
        ("w3_block32", (3, 8, 64), Layout((0, 1), 2), "w3_block32"), ("w3_block3", (3, 8, 64), Layout((0, 1), 2), "w3"),
    ],
)  # fmt: skip
def test_the_scheme_that_a_shape_allows(scheme: str, shape: tuple[int, ...], layout: Layout, fits: str) -> None:
    assert Scheme.parse(scheme).fitting(shape, layout) == Scheme.parse(fits)


def test_what_does_not_divide_is_said() -> None:
    model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(5)], nn.Linear(64, 49))
    program = converted(model, torch.randn(1, 64), target=None)
    small = program.compress({"scheme": "pal4_group7", "names": {"4.weight": "w4_block32"}}).compression
    assert small is not None
    assert [weight.scheme for weight in small.weights] == ["pal4"] * 4 + ["w4_block32", "pal4_group7"]
    (note,) = small.notes
    assert note == (
        "pal4_group7 does not divide the channels of 0.weight, 1.weight, 2.weight and 1 more: stored as pal4"
    )
    assert note in str(small)
    twice = program.compress(
        {"scheme": "w4_block7", "names": {"0.*": "pal4_vector5"}}, inputs=(torch.randn(8, 64)[:1],)
    )
    assert twice.compression is not None
    assert [each.rpartition(":")[2] for each in twice.compression.notes] == [" stored as pal4", " stored as w4"]


def test_a_budget_takes_what_the_target_takes(program: AIProgram) -> None:
    for bits in (5, 1.5):
        target = target_of(program)
        assert all(target.stores(scheme) for scheme in schemes_of(program.compress(bits_per_weight=bits)))
    pinned = {"scheme": "w8", "kinds": {"matmul": "w4_block32", "conv": "w4_block32"}}
    if target == NEURAL_ENGINE:
        with pytest.raises(ValueError, match=r"does not take weights that are stored so: .*: w4_block32"):
            program.compress(pinned, budget="60%")
    else:
        assert schemes_of(program.compress(pinned, budget="60%")) == {"w4_block32"}


# ---- what the audit says of stored forms -----------------------------------------------------------


@pytest.mark.parametrize(
    ("scheme", "name"),
    [("w4_block32", "w4_block32"), ("w3", "w3"), ("pal4_vector2", "pal4_vector2"), ("sparse50_pal4", "sparse50_pal4"),
     ("w8", None), ("pal4_group8", None), ("pal1", None)],
)  # fmt: skip
def test_the_audit_names_the_form(scheme: str, name: str | None) -> None:
    """Of a program that was compressed for no target, each weight is one finding, and not one for each of its parts."""
    plain = converted(network(), X, target="neural_engine")
    loose = AIProgram(plain.module)  # which knows no target
    found = audit(loose.compress(scheme).module, NEURAL_ENGINE, default_rules())
    named = [(each.what, each.count) for each in found.findings if not each.is_advice]
    assert named == ([] if name is None else [(f"weights stored as {name}", 2)])
    if name == "w3":  # integers of 3 bits are palettes with a scale
        assert any("coremltools/issues/2688" in source for source in found.findings[0].sources)


COMPUTED = """module {
  coreai.graph @main(%x: tensor<1x64x64xf16>, %y: tensor<64x64xsi4>) -> (tensor<1x64x64xf16>) {
    %scale = coreai.constant dense<0.5> : tensor<1x1xf16>
    %zero = coreai.constant dense<0> : tensor<1x1xsi4>
    %offset = coreai.constant dense<0.0> : tensor<1x1xf16>
    %w = coreai.blockwise_shift_scale %y, %scale, %zero, %offset
      : (tensor<64x64xsi4>, tensor<1x1xf16>, tensor<1x1xsi4>, tensor<1x1xf16>) -> tensor<64x64xf16>
    %z = coreai.decomposable.broadcasting_batch_matmul %x, %w
      : (tensor<1x64x64xf16>, tensor<64x64xf16>) -> tensor<1x64x64xf16>
    coreai.output %z : tensor<1x64x64xf16>
  }
}
"""


def test_integers_of_a_run_are_no_stored_weights() -> None:
    found = audit(IRModule.parse(COMPUTED), NEURAL_ENGINE, default_rules())
    assert [(each.what, each.count) for each in found.findings if not each.is_advice] == [("si4 values", 2)]


def test_targets_say_what_they_store() -> None:
    for target in (CPU, GPU):
        assert target.stores("w4_block32")
        assert target.stores("sparse50")
    taken = ("w8", "u8", "pal1", "pal8", "pal4_group32")
    assert all(map(NEURAL_ENGINE.stores, taken))
    others = ("w4", "w8_block32", "w3", "pal4_vector2", "pal4, scaled", "pal4_group8, table w8", "pal4_group8x2",
              "f8E4M3FN", "sparse50_pal4")  # fmt: skip
    assert not any(map(NEURAL_ENGINE.stores, others))
