"""Wrong uses of a program: one sentence that says what is wrong and what to do."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import patcomp
from patcomp import AIProgram, EvaluationError, TorchConverter, UnknownNameError

X = torch.randn(2, 4)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


class Mixes(nn.Module):
    def forward(self, x: torch.Tensor, pair: list[torch.Tensor], *, scale: float = 2.0) -> torch.Tensor:
        return x + pair[0] * scale - pair[1]


@pytest.fixture(scope="module")
def program() -> AIProgram:
    """A program with a private graph besides its entry point."""
    converter = TorchConverter().add_pytorch_module(
        Net(), export_fn=lambda net: torch.export.export(net, (X,)), externalize_modules=[nn.Linear]
    )
    return converter.to_coreai()


@pytest.fixture(scope="module")
def mixes() -> AIProgram:
    exported = torch.export.export(Mixes(), (X, [X + 1, X + 2]), {"scale": 3.0})
    return TorchConverter().add_exported_program(exported).to_coreai()


def test_inputs_by_keyword(program: AIProgram) -> None:
    assert torch.equal(program.run(x=X), program.run(X))
    assert torch.equal(program.run(x=X), program.run({"x": X})[program.output_names()[0]])


CALLS = "the model was exported with the arguments "


@pytest.mark.parametrize(
    ("arguments", "keywords", "message"),
    [
        (([X],), {}, "input 'x' must be a tensor, got a list that holds tensors; give the tensor itself"),
        (((X,),), {}, "input 'x' must be a tensor, got a tuple that holds tensors; give the tensor itself"),
        (("x",), {}, "input 'x' must be a tensor, an array or a number, got a str"),
        ((None,), {}, "input 'x' must be a tensor, an array or a number, got a NoneType"),
        (({"input": X},), {}, "graph @main needs input x and has no input input; its inputs are x"),
        (({},), {}, "graph @main needs input x"),
        ((), {"y": X}, f"{CALLS}(x), and was called with (y=tensor of shape (2, 4)); inputs can also be given by name"),
        ((), {}, f"{CALLS}(x), and was called with (); "),
        ((X, X), {}, f"{CALLS}(x), and was called with (tensor of shape (2, 4), tensor of shape (2, 4)); "),
    ],
)
def test_wrong_arguments(program: AIProgram, arguments: tuple[Any, ...], keywords: dict[str, Any], message: str):
    with pytest.raises(EvaluationError, match=re.escape(message)):
        program.run(*arguments, **keywords)


def test_the_expected_call_is_shown_with_its_structure(mixes: AIProgram) -> None:
    message = f"{CALLS}(x, [pair_0, pair_1], scale=3.0), and was called with (tensor of shape (2, 4));"
    with pytest.raises(EvaluationError, match=re.escape(message)):
        mixes.run(X)
    with pytest.raises(EvaluationError, match=re.escape(f"{CALLS}(x, [pair_0, pair_1], scale=3.0)")):
        mixes.run(X, (X, X), scale=3.0)


@pytest.mark.parametrize("backend", ["evaluator", "runtime"])
def test_names_are_checked_before_anything_runs(mixes: AIProgram, backend: str) -> None:
    with pytest.raises(EvaluationError, match="graph @main needs input pair_0, pair_1 and has no input y"):
        mixes.run({"x": X, "y": X}, backend=backend)


@pytest.mark.parametrize(
    "use",
    [
        lambda p: p.run(X, entrypoint="mian"),
        lambda p: p.verify_against(Net(), (X,), entrypoint="mian"),
        lambda p: p.signature("mian"),
        lambda p: p.input_names("mian"),
        lambda p: p.output_names("mian"),
        lambda p: p.new_state("mian"),
        lambda p: p.specialize({}, entrypoint="mian"),
        lambda p: p.set_static_shape_config("mian", {"a": {}}),
        lambda p: p.set_hardware_constraints("mian", {}),
    ],
)
def test_unknown_entry_points(program: AIProgram, use: Any) -> None:
    with pytest.raises(KeyError) as error:
        use(program)
    assert str(error.value) == "there is no entry point 'mian'; there are main"


def test_unknown_stages_ops_and_rules(program: AIProgram) -> None:
    with pytest.raises(
        UnknownNameError, match="there is no stage 'recove'; there are import, normalize, recover, lower"
    ):
        program.stages["recove"]
    assert "recove" not in program.stages
    with pytest.raises(UnknownNameError, match=r"^no op of the program is called, or comes from, 'lin'; give the name"):
        program.explain("lin")
    with pytest.raises(TypeError, match=r"^explain takes a value .*, got 3$"):
        program.explain(3)  # type: ignore[arg-type]
    with pytest.raises(UnknownNameError, match=r"^no rule is called 'rms_nrm'; there are rms_norm, "):
        program.why_not("rms_nrm")
    with pytest.raises(TypeError, match=r"^why_not takes the name of a rule .*, got 3$"):
        program.why_not(3)  # type: ignore[arg-type]


def test_dumps_into_a_file(tmp_path: Path) -> None:
    (file := tmp_path / "stages").write_text("mine")
    converter = TorchConverter().add_exported_program(torch.export.export(Net(), (X,)))
    with pytest.raises(NotADirectoryError, match=r"^cannot write .*: .*stages is a file, not a folder$"):
        converter.to_coreai(dump_ir=file)


def test_public_names_are_documented() -> None:
    for name in patcomp.__all__:
        thing = getattr(patcomp, name)
        if callable(thing):
            assert (inspect.getdoc(thing) or "").strip(), name
            assert not inspect.getdoc(thing).startswith(f"{name}("), name  # a dataclass's own text
    documented = inspect.getdoc(AIProgram)
    assert documented is not None
    for name, value in inspect.getmembers(TorchConverter) + inspect.getmembers(AIProgram):
        if not name.startswith("_"):
            assert value is None or inspect.getdoc(value), name
            if inspect.isfunction(value):
                parameters = list(inspect.signature(value).parameters.values())[1:]
                assert all(each.annotation is not each.empty for each in parameters), name
                assert inspect.signature(value).return_annotation is not inspect.Signature.empty, name
    for name in AIProgram.__dataclass_fields__:
        assert name.startswith("_") or re.search(rf"^    {name} \(.+\): \S", documented, re.MULTILINE), name
