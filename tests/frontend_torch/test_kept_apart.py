"""What programs and threads share, and what they must not: conversions in threads, limits, weights, names."""

from __future__ import annotations

import gc
import pathlib
import sys
import threading
import warnings
import weakref

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim, ExportedProgram, export
from torch.nn import functional

from patcomp import AIProgram, ConversionWarning, TorchConverter
from patcomp.authoring import Aten
from patcomp.ir import BlobStore
from patcomp.ir.builder import Builder
from patcomp.ir.constants import constant_values
from patcomp.ir.types import tensor
from patcomp.ir.value import Value
from patcomp.patterns import Index, OpView, RuleSet, normalization
from patterns_catalog import default_rules


class Mixed(nn.Module):
    """Ops that are decomposed, and ops that rules find."""

    def __init__(self, width: int):
        super().__init__()
        torch.manual_seed(width)
        self.up, self.down, self.norm = nn.Linear(width, 16), nn.Linear(16, width), nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        h = self.norm(x)
        x = x + self.down(functional.gelu(self.up(h)))
        return x.cumsum(1) + x.sort(-1)[0], torch.logaddexp(x, h), functional.huber_loss(x, h)


@pytest.fixture
def short_turns():
    """Threads take turns as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def in_threads(count: int, work) -> list[BaseException]:
    """Runs `work(number)` in threads; what they raise."""
    errors: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


def test_conversions_in_threads_give_the_texts_of_one_thread(short_turns):
    exported = [export(Mixed(8 + k).eval(), (torch.ones(2, 5, 8 + k),)) for k in range(4)]

    def convert(program: ExportedProgram) -> str:
        return str(TorchConverter().add_exported_program(program).to_coreai())

    texts: list[tuple[int, str]] = []

    def work(number: int) -> None:
        for step in range(2):
            chosen = (number + step) % len(exported)
            texts.append((chosen, convert(exported[chosen])))

    assert in_threads(4, work) == []
    assert set(texts) == {(number, convert(program)) for number, program in enumerate(exported)}


def test_threads_convert_one_program(short_turns):
    """All of its nodes are traced in one `FakeTensorMode`."""
    exported = export(Mixed(12).eval(), (torch.ones(2, 5, 12),))
    texts: list[str] = []

    def work(number: int) -> None:
        texts.append(str(TorchConverter().add_exported_program(exported).to_coreai()))

    assert in_threads(4, work) == []
    assert len(set(texts)) == 1


def test_states_of_an_index_have_numbers_of_their_own(short_turns):
    index = Index(default_rules().stage("optimize"))

    def work(number: int) -> None:
        for test in range(4000):
            index._state(frozenset({10**6 * number + test}), "coreai.relu")

    assert in_threads(3, work) == []
    assert len({state.number for state in index._states.values()}) == 3 * 4000


def test_two_threads_get_the_same_state_of_an_index(short_turns):
    index, found = Index(default_rules().stage("optimize")), []
    assert in_threads(4, lambda _: found.extend(index._state(frozenset({t}), "coreai.relu") for t in range(2000))) == []
    assert len({id(state) for state in found}) == 2000


# ---- programs ---------------------------------------------------------------------------------------


def test_limits_hold_for_fixed_shapes_too():
    x = torch.arange(6).reshape(2, 3)
    exported = export(Doubled(), (x,), dynamic_shapes=({0: Dim("n", min=2, max=64)},))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConversionWarning)
        program = TorchConverter().add_exported_program(exported).to_coreai()
    limits = program.limits["main"]
    program.set_static_shape_config("main", {"two": {"x": (2, 3)}, "four": {"x": (4, 3)}})
    assert program.limits == {"main_two": limits, "main_four": limits}
    with pytest.warns(ConversionWarning, match="'x' has numbers beyond 1073741823"):
        program.run({"x": torch.full((4, 3), 2**30 + 5)}, entrypoint="main_four")


class Doubled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + x


def linear(width: int = 64) -> AIProgram:
    return TorchConverter().add_exported_program(export(nn.Linear(width, width), (torch.ones(1, width),))).to_coreai()


@pytest.mark.parametrize("scheme", ["w8", "w4_block32", "pal4"])
def test_a_weight_of_several_entry_points_is_compressed_once(scheme: str):
    model, converter = nn.Linear(128, 128, bias=False), TorchConverter()
    for count in (1, 2, 3):
        converter.add_exported_program(export(model, (torch.ones(count, 128),)), entrypoint_name=f"f{count}")
    program = converter.to_coreai()
    small = program.compress(scheme)
    single = linear(128).compress(scheme)
    assert len(list(small.module.blobs)) == len(list(single.module.blobs))
    outputs = [small.run(torch.ones(count, 128), entrypoint=f"f{count}")[0] for count in (1, 2, 3)]
    assert all(torch.allclose(output, outputs[0], atol=1e-5) for output in outputs)


@pytest.mark.parametrize("mode", TorchConverter.Mode)
def test_a_compressed_program_keeps_neither_the_other_one_nor_its_weights(mode: TorchConverter.Mode):
    """It answers as before, also without the values of the weights; only the model's own values need these."""
    model, x = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.Linear(64, 256)), torch.ones(1, 64)
    exported = export(model, (x,))
    converter = TorchConverter(mode=mode).add_exported_program(exported)
    program = converter.to_coreai()
    small, same = program.compress("w8"), program.compress("w8")
    assert small.verify_against(model, (x,), by="module", backends=["evaluator"], tolerance=0.1).passed
    stages, answer = dict(small.stages), small.why_not("rms_norm")
    gone = [model, exported, converter, program, model[0].weight, model[2].weight]
    references = list(map(weakref.ref, gone))
    del model, exported, converter, program, small, gone
    gc.collect()
    assert [reference() for reference in references] == [None] * len(references)
    assert list(stages)[-1] == "compress"
    assert dict(same.stages) == stages
    assert same.why_not("rms_norm") == answer
    with pytest.raises(LookupError, match="a compressed program does not keep; verify with the model"):
        same.verify_against(nn.Linear(64, 256), (x,), by="module", backends=["evaluator"])


@normalization("aten.abs")
def by_its_weight(op: OpView, a: Aten) -> Value:
    "abs(x) -> maximum(x, -x), if the rule can read the weight of the graph"
    (weight,) = next(each for each in op["self"].ssa.owner.parent.ops if each.name == "coreai.constant").results
    op.expect(constant_values(weight, Builder.current().blobs) is not None, "the weight has no values")
    return a.maximum(op.result, op["self"], a.neg(op.result, op["self"]))


class Absolute(nn.Linear):
    def __init__(self) -> None:
        super().__init__(64, 64, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).abs()


def test_a_stage_that_reads_a_weight_that_is_gone_is_not_repeated():
    model, x = Absolute(), torch.ones(1, 64)
    converter = TorchConverter(catalog=[RuleSet([by_its_weight])]).add_exported_program(export(model, (x,)))
    program = converter.to_coreai()
    small, same = program.compress("w8"), program.compress("w8")
    assert "aten.maximum" in small.stages["normalize"]
    del model, converter, program
    gc.collect()
    with pytest.raises(LookupError, match="the stage normalize cannot be repeated, because its rules read weights"):
        dict(same.stages)


def test_a_specialized_program_leaves_nothing_in_the_other_one():
    class Masked(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            rows = torch.arange(x.shape[0])
            return (rows[:, None] >= rows[None, :]).to(torch.float32) @ x

    exported = export(Masked(), (torch.ones(8, 4),), dynamic_shapes=({0: Dim("n", min=2, max=4096)},))
    program = TorchConverter().add_exported_program(exported).to_coreai()
    before = [blob.key for blob in program.module.blobs]
    fixed = program.specialize({"n": 100})
    assert len(list(fixed.module.blobs)) > len(before)
    assert [blob.key for blob in program.module.blobs] == before


def test_a_weight_is_not_found_by_the_address_of_a_removed_one():
    memory, store, type_ = np.zeros((64, 64), np.float32), BlobStore(), tensor((64, 64), "f32")
    store.remove(store.add("fc.weight", memory, type_))
    memory[:] = 1  # it belongs to somebody else now
    key = store.add("mask", memory, type_)
    assert key == "mask"
    assert store[key].array()[0, 0] == 1
    packed = store.add_packed("packed", np.zeros((64, 64), np.float32), type_)
    store.remove(packed)
    assert store.add_packed("again", np.zeros((64, 64), np.float32), type_) in store


# ---- Mode.RELEASE -----------------------------------------------------------------------------------


class Hidden(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.confidential_layer = nn.Linear(128, 128)
        self.register_buffer("secret_sum", torch.zeros(2, 128), persistent=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.confidential_layer(x)) * torch.arange(128.0)


def test_release_names_neither_modules_nor_nodes_nor_files(tmp_path: pathlib.Path):
    mode = TorchConverter.Mode.RELEASE
    exported = export(Hidden(), (torch.ones(2, 128),))
    program = TorchConverter(mode=mode).add_exported_program(exported, output_names=["y"]).to_coreai(
        dump_ir=tmp_path / "dumps"
    )  # fmt: skip
    small = program.compress("w8")
    shown = {
        "text": program.text(locations=True),
        "compressed": small.text(locations=True),
        "compression": str(small.compression),
        "stages": "".join(program.stages.values()),
        "report": str(program.report()),
        "summary": str(program.summary()),
        "page": program.html(tmp_path / "page.html").read_text(),
        "dumps": "".join(file.read_text() for file in (tmp_path / "dumps").glob("*.mlir")),
    }
    told = {
        what: word
        for what, text in shown.items()
        for word in ("confidential", "%linear", "%tanh", "%p_", "test_kept_apart")
        if word in text
    }
    assert told == {}
    assert torch.equal(program.run(torch.ones(2, 128)), linear_of(exported))


def linear_of(exported: ExportedProgram) -> torch.Tensor:
    """The same program with all names, run."""
    made: torch.Tensor = TorchConverter().add_exported_program(exported).to_coreai().run(torch.ones(2, 128))
    return made


def test_assets_of_release_name_neither_modules_nor_files(tmp_path: pathlib.Path):
    pytest.importorskip("coreai")
    converter = TorchConverter(mode=TorchConverter.Mode.RELEASE)
    program = converter.add_exported_program(export(Hidden(), (torch.ones(2, 128),))).to_coreai()
    asset = program.save_asset(tmp_path / "m.aimodel")
    for file in pathlib.Path(asset.path).rglob("*"):
        if file.is_file():
            data = file.read_bytes()
            assert not any(word in data for word in (b"confidential", b"%linear", b"test_kept_apart")), file.name
