"""The states of a model: found by a call, stacked by form, carried by the functions of open length."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.models.qwen3_5 import modeling_qwen3_5

from benchmarks.causal_types import model_of
from patcomp import TorchConverter
from patcomp.emit.native import Native, NativeError, ProcessDied
from patcomp.errors import ConversionWarning
from patcomp_models.checkpoints.loading import export_implementations
from patcomp_models.language import LanguageModelError, checking, convert_language_model
from patcomp_models.language.contract import LOGITS, POSITIONS, TOKENS, engine_refusal
from patcomp_models.language.decoder import Decoder
from patcomp_models.language.dynamic_form import BundleFunction, dynamic_program, exported_function
from patcomp_models.language.open_lengths import _FORMS, AskedCache, open_lengths
from patcomp_models.language.states import States
from tests.models.language.checkpoints import PROMPT, SECOND, SETTINGS, checkpoint

FORMS: dict[str, dict[str, tuple[int, ...]]] = {
    "lfm2": {"keyCache": (1, 1, 2, 64, 8), "valueCache": (1, 1, 2, 64, 8), "convState": (1, 1, 32, 3)},
    "falcon_h1": {
        "keyCache": (2, 1, 2, 64, 8), "valueCache": (2, 1, 2, 64, 8), "convState": (2, 1, 80, 4),
        "recState": (2, 1, 4, 16, 8),
    },
    "gemma4_text": {
        "keyCache": (1, 1, 2, 64, 8), "valueCache": (1, 1, 2, 64, 8), "keyCache2": (1, 1, 2, 64, 16),
        "valueCache2": (1, 1, 2, 64, 16),
    },
    "youtu": {"keyCache": (2, 1, 1, 64, 16), "valueCache": (2, 1, 1, 64, 16)},
    "mamba": {"convState": (2, 1, 48, 4), "recState": (2, 1, 48, 8)},
    "rwkv": {"convState": (4, 1, 32), "recState": (6, 1, 32)},
    "minimax": {"keyCache": (1, 1, 2, 64, 8), "valueCache": (1, 1, 2, 64, 8), "recState": (1, 1, 4, 8, 8)},
    "zaya": {
        "keyCache": (2, 1, 2, 64, 8), "valueCache": (2, 1, 2, 64, 8), "convState": (2, 1, 48, 2), "recState": (2, 1, 8),
    },
    "glm_moe_dsa": {
        "keyCache": (3, 1, 1, 64, 16), "valueCache": (3, 1, 1, 64, 16), "indexCache": (2, 1, 1, 64, 16),
    },
}  # fmt: skip


OTHERS = (
    "dbrx", "longcat_flash", "qwen4_exp_text", "zamba", "openai-gpt", "recurrent_gemma", "xlstm", "mllama",
    "deepseek_v4",
)  # fmt: skip
"""Types whose code is exchanged in a way that no other type has."""


@pytest.mark.parametrize("kind", [*FORMS, "qwen3_5_text", "kimi_linear", *OTHERS])
def test_calls_that_continue_each_other(kind: str) -> None:
    """Several tokens, one, and several again, behind states, give what the model gives in one call."""
    model: Any = model_of(kind) if kind in OTHERS else checkpoint(kind)
    decoder = Decoder(model)
    states: States = decoder.states
    tensors = states.zeros(64)
    if kind in FORMS:
        assert {name: tuple(each.shape) for name, each in zip(states.names, tensors, strict=True)} == FORMS[kind]
    tokens, made, end = torch.tensor([PROMPT + SECOND]), [], 0
    with torch.no_grad():
        for length in (5, 6, 1, 2, 3):
            end += length
            made.append(decoder(tokens[:, end - length : end], torch.arange(end)[None], *tensors))
        wanted = model(tokens, use_cache=False).logits
    torch.testing.assert_close(torch.cat(made, 1), wanted, rtol=1e-4, atol=1e-5 * float(wanted.abs().max()))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rwkv", "zaya", "deepseek_v32"])
def test_programs_take_any_number_of_tokens(kind: str) -> None:
    """Of one and of two tokens, models make no case of their own that a program would have to be exported for."""
    model: Any = checkpoint(kind)
    tokens, made, end = torch.tensor([PROMPT]), [], 0
    with export_implementations(model), torch.no_grad():
        function = BundleFunction("main", Decoder(model))
        program = dynamic_program([(function, exported_function(function, 64))])
        held = dict(zip(function.state_names, function.decoder.states.zeros(64), strict=True))
        for length in (2, 1, 2, 3, 4):
            end += length
            inputs = {TOKENS: tokens[:, end - length : end], POSITIONS: torch.arange(end)[None]}
            made.append(program.run(inputs, state=held)[LOGITS])
        wanted = model(tokens, use_cache=False).logits
    torch.testing.assert_close(torch.cat(made, 1), wanted, rtol=1e-4, atol=1e-5)


WINDOWS = (
    "gemma3_text", "gemma2", "gemma3n_text", "gemma4_text", "gpt_oss", "exaone4", "olmo3", "ministral3", "mistral",
    "cohere2", "granite_swa", "afmoe", "dots1", "vaultgemma",
)  # fmt: skip


@pytest.mark.parametrize("kind", [WINDOWS[0], *(pytest.param(each, marks=pytest.mark.slow) for each in WINDOWS[1:])])
def test_windows_have_no_places_for_other_tokens(kind: str) -> None:
    """Calls that fill the ring, are longer than it, and go around it, on evaluator and eagerly."""
    model: Any = checkpoint(kind)
    tokens = torch.tensor([PROMPT + SECOND + PROMPT])
    with export_implementations(model), torch.no_grad():
        decoder = Decoder(model, context=64)
        function = BundleFunction("main", decoder)
        program = dynamic_program([(function, exported_function(function, 64))])
        wanted = model(tokens, use_cache=False).logits
        eager = decoder.states.zeros(64)
        held = dict(zip(decoder.states.names, map(torch.clone, eager), strict=True))
        assert held["slidingKeys"].shape[3] == model.config.sliding_window
        made, evaluated, end = [], [], 0
        for length in (5, 11, 1, 1, 1, 10):
            end += length
            new, positions = tokens[:, end - length : end], torch.arange(end)[None]
            made.append(decoder(new, positions, *eager))
            evaluated.append(program.run({TOKENS: new, POSITIONS: positions}, state=held)[LOGITS])
    for each in (made, evaluated):
        torch.testing.assert_close(torch.cat(each, 1), wanted, rtol=1e-4, atol=1e-5 * float(wanted.abs().max()))


def test_functions_come_back() -> None:
    """Also after an error; transformers' own functions are those of the process."""
    before = modeling_qwen3_5.torch_chunk_gated_delta_rule
    decoder = Decoder(checkpoint("qwen3_5_text"))
    with pytest.raises(IndexError):
        decoder(torch.tensor([[10**6]]), torch.arange(1)[None], *decoder.states.zeros(8))
    assert modeling_qwen3_5.torch_chunk_gated_delta_rule is before
    assert sys.modules[type(decoder.model).__module__] is modeling_qwen3_5


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("kind", "composite"), [
    ("qwen3_5_text", "gated_delta_update"), ("kimi_linear", "kimi_delta_update"),
    ("granitemoehybrid", "state_space_update"), ("mamba", "selective_scan_update"),
])  # fmt: skip
def test_a_program_of_torch_export_has_the_composite(kind: str, composite: str) -> None:
    """Of a fixed number of tokens, where the model's own code is unrolled."""
    model: Any = checkpoint(kind)

    class Logits(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.model(tokens, use_cache=False).logits

    tokens = torch.tensor([PROMPT[:9]])
    with open_lengths(model):
        exported = torch.export.export(Logits(), (tokens,))
    program = TorchConverter().add_exported_program(exported).to_coreai()
    assert program.composites[composite] > 0
    wanted = model(tokens, use_cache=False).logits
    torch.testing.assert_close(program.run(tokens), wanted, rtol=1e-5, atol=1e-5 * float(wanted.abs().max()))


def test_other_threads_have_transformers_functions() -> None:
    """One thread is inside of two exchanges, which end in another order, while a second one calls the model."""
    own = modeling_qwen3_5.torch_chunk_gated_delta_rule
    model: Any = checkpoint("qwen3_5_text")
    tokens = torch.tensor([PROMPT])
    with torch.no_grad():
        wanted = model(tokens).logits
    seen: list[Any] = []
    inside, done = threading.Event(), threading.Event()

    def exchanged() -> None:
        with open_lengths(model, AskedCache(layers=[])):
            inside.set()
            done.wait()
            seen.append(_FORMS.get()["torch_chunk_gated_delta_rule"])

    thread = threading.Thread(target=exchanged)
    thread.start()
    inside.wait()
    assert modeling_qwen3_5.torch_chunk_gated_delta_rule is not own
    assert _FORMS.get({}) == {}
    with torch.no_grad():
        assert torch.equal(model(tokens).logits, wanted)  # the form of one token after the other is rounded otherwise
        with open_lengths(model, AskedCache(layers=[])):
            assert not torch.equal(model(tokens).logits, wanted)
            done.set()
            thread.join()
            assert not torch.equal(model(tokens).logits, wanted)
    assert len(seen) == 1
    assert modeling_qwen3_5.torch_chunk_gated_delta_rule is own


DECODE: dict[str, tuple[int, dict[str, Any]]] = {
    "qwen3_5_text": (262, {"num_hidden_layers": 4, "layer_types": ["linear_attention"] * 3 + ["full_attention"]}),
    "lfm2": (134, {"num_hidden_layers": 4, "layer_types": ["conv", "full_attention"] * 2}),
    "gemma4_text": (194, {}),
    "deepseek_v3": (186, {}),
}
"""The most ops of `main` for one token without constants, and what differs from the sizes of the other tests."""


@pytest.mark.parametrize(
    "kind", [kind if kind == "qwen3_5_text" else pytest.param(kind, marks=pytest.mark.slow) for kind in DECODE]
)
def test_one_token_needs_no_loop(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The decode step: the gated delta rule is a composite, and each fixed state is written once."""
    most, settings = DECODE[kind]
    monkeypatch.setitem(SETTINGS, kind, {**SETTINGS[kind], **settings})
    model = checkpoint(kind)
    with export_implementations(model):
        function = BundleFunction("main", Decoder(model), 1)
        program = dynamic_program([(function, exported_function(function, 64))])
    assert "coreai.while" not in str(program)
    names = [op.name for op in program.module.graph("main").regions[0].block.ops]
    assert len(names) - names.count("coreai.constant") <= most
    if kind == "qwen3_5_text":
        assert program.composites["gated_delta_update"] == program.composites["causal_conv1d_update"] == 3
        assert names.count("coreai.write_handle") == 4


@pytest.mark.parametrize(
    "kind",
    ["qwen3_5_text", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("mamba2", "mamba", "kimi_linear"))],
)
def test_main_of_any_length_has_no_loop_of_its_own(kind: str) -> None:
    """Recurrences are composites, whose bodies compute chunks."""
    model = checkpoint(kind)
    with export_implementations(model):
        function = BundleFunction("main", Decoder(model))
        program = dynamic_program([(function, exported_function(function, 64))])
    names = [op.name for op in program.module.graph("main").regions[0].block.ops]
    assert "coreai.while" not in names
    recurrences = {"gated_delta_update", "kimi_delta_update", "selective_scan_update", "state_space_update"}
    assert program.composites.keys() & recurrences


def test_what_apples_engines_take() -> None:
    assert engine_refusal([True, True]) == engine_refusal([True, True, False, False]) == ""
    assert engine_refusal([True] * 5) == "Apple's engines take 4 states at most, and this model keeps 5"
    for grows in ([False, False], [True, False, False], [True]):
        assert engine_refusal(grows).endswith("as the first two states; this model has none")


# ---- the comparison -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("check", "message"),
    [
        ("a text", "check= is a text, and the bundle has no tokenizer; give token ids"),
        ([], "check= is a prompt of 0 tokens; it must be of 1 to 64"),
        ([1] * 65, "check= is a prompt of 65 tokens; it must be of 1 to 64"),
    ],
)
def test_prompts_that_cannot_be_compared(check: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(LanguageModelError) as raised:
        convert_language_model(checkpoint("llama"), out=tmp_path / "bundle", check=check, max_context=64)
    assert str(raised.value) == message


class Wrong:
    """A program whose logits are the model's, and another token's from its third call on."""

    def __init__(self, decoder: Decoder, change: float):
        self.decoder, self.change, self.module = decoder, change, type("Module", (), {"blobs": ()})

    def run(self, inputs: Any, state: Any, entrypoint: str) -> Any:
        with torch.no_grad():
            tokens, positions = (torch.from_numpy(inputs[name]) for name in (TOKENS, POSITIONS))
            logits = self.decoder(tokens, positions, *(torch.from_numpy(each) for each in state.values()))
        if inputs[TOKENS].shape[1] == 1:
            best, second = logits[0, -1].topk(2).indices
            logits[0, -1, second] = logits[0, -1, best] + self.change * logits.abs().max()
        return {LOGITS: logits.numpy()}


def test_states_that_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that is right in its first call and wrong in a later one."""
    monkeypatch.setattr(checking, "compare_with_module", lambda *arguments: None)
    function = BundleFunction("main", Decoder(checkpoint("llama")))
    program: Any = Wrong(function.decoder, 1.0)
    with pytest.raises(
        LanguageModelError, match=r"in several calls .* the logits of token 11 of the comparison differ"
    ):
        checking.Comparison([function], PROMPT, torch.float32, 64).check_program(program)


class Answers:
    """A runtime that answers with the model's logits, in which another token is better by some part of the largest."""

    change = 0.0
    error: Exception | None = None

    def __init__(self) -> None:
        self.decoder = Decoder(checkpoint("llama"))

    def call(self, asset: Path, inputs: Any, states: Any, name: str) -> Any:
        if self.error is not None:
            raise self.error
        return Wrong(self.decoder, self.change).run(inputs, states, name), states

    def close(self) -> None:
        """There is no process."""


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            1.0,
            None,
            r"on the Core AI runtime the bundle's most probable token is another than the model's, .* which r",
        ),
        (
            0.0,
            ProcessDied(11, "log"),
            r"does not run the bundle: the runtime died of SIGSEGV; pass check=False \(--",
        ),
        (0.0, NativeError("RuntimeError", "no"), "does not run the bundle: RuntimeError: no; pass check=False"),
    ],
)
def test_the_asset_is_compared_on_the_runtime(
    change: float, error: Exception | None, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Answers, "change", change)
    monkeypatch.setattr(Answers, "error", error)
    monkeypatch.setattr(checking, "Native", Answers)
    comparison = checking.Comparison([BundleFunction("main", Decoder(checkpoint("llama")))], PROMPT, torch.float32, 64)
    with pytest.raises(LanguageModelError, match=message):
        comparison.check_asset(Path("asset"))


@pytest.mark.slow
def test_the_runtime_of_another_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(checking, "Native", Native)
    bundle = convert_language_model(checkpoint("lfm2"), out=tmp_path / "bundle", max_context=64, dtype="bfloat16")
    assert bundle.asset.is_dir()


def test_a_tie_is_a_warning() -> None:
    decoder = Decoder(checkpoint("llama"))
    logits = decoder.model(torch.tensor([PROMPT])).logits[0].detach()
    made = logits.clone()
    first, second = logits[-1].topk(2).indices
    made[-1, second] = made[-1, first] + 1e-6
    with pytest.warns(
        ConversionWarning, match=r"on the evaluator, after 1 of 12 tokens the bundle's most probable token is another"
    ):
        checking.warn_of_ties(made, logits, "the evaluator")
