"""Decoders for the GPU: attention without a mask operand, with static and with dynamic lengths."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from patcomp import AIProgram, TorchConverter
from patcomp.emit.native import Native
from patcomp.torchvision import declare_operators
from tests.helpers.as_users_run import AS_USERS_RUN

pytestmark = AS_USERS_RUN

declare_operators()

PAGE = Path(__file__).parents[2] / "docs/targets.md"

WINDOW = 4
WINDOWS = {
    "Llama": [0, 0],
    "Mistral": [WINDOW, WINDOW],
    "Qwen3": [0, 0],
    "Gemma3": [WINDOW, 0],
    "Mixtral": [0, 0],
    "GptOss": [WINDOW, 0],
}
"""The window of each layer; 0 for a layer that attends to all keys before."""

GOALS = {
    "products": {"Mixtral": 3, "GptOss": 3},  # of experts, only their choice is one outside composites
    "rms_norm": {"Qwen3": 3, "Gemma3": 5},
    "rope": {},
    "attention": {},
    "transposes": {},
    "reshapes": {"Mixtral": None, "GptOss": None},
}
"""The ops of each layer in models that Apple wrote for the GPU, where they are not those of `LLAMA`; None is not
compared, because experts have views of their own."""

LLAMA = {"products": 5, "rms_norm": 2, "rope": 1, "attention": 1, "transposes": 2, "reshapes": 2}
ONCE = {"products": 1, "rms_norm": 1, "reshapes": 1}
"""The ops outside layers: the head, the last norm, and the view of tokens as indices."""

NAMES = {"products": "broadcasting_batch_matmul", "attention": "scaled_dot_product_attention",
         "transposes": "transpose", "reshapes": "reshape"}  # fmt: skip
"""The ops of the IR that `counts` has under another name."""

LAYERS = ["sliding_attention", "full_attention"]
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
OPTIONS: dict[str, dict[str, Any]] = {
    "Mistral": {"sliding_window": WINDOW},
    "Gemma3": {"sliding_window": WINDOW, "layer_types": LAYERS},
    "Mixtral": {**EXPERTS, "experts_implementation": "batched_mm"},
    "GptOss": {**EXPERTS, "sliding_window": WINDOW, "layer_types": LAYERS, "attn_implementation": "eager"},
}

QUICK = {("Mistral", False), ("Qwen3", True)}
CASES = [
    pytest.param(name, dynamic, id=f"{name}-{'dynamic' if dynamic else 'static'}",
                 marks=() if (name, dynamic) in QUICK else pytest.mark.slow)
    for name in WINDOWS
    for dynamic in (False, True)
]  # fmt: skip
each_decoder = pytest.mark.parametrize(("name", "dynamic"), CASES)


class Logits(nn.Module):
    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.model(input_ids=input_ids).logits
        return logits


@cache
def decoder(name: str) -> Logits:
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, "Gemma3TextConfig" if name == "Gemma3" else f"{name}Config")
    made = config(
        vocab_size=96, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, max_position_embeddings=64, use_cache=False, pad_token_id=0,
        **OPTIONS.get(name, {}),
    )  # fmt: skip
    return Logits(getattr(transformers, f"{name}ForCausalLM")(made)).eval()


def tokens(length: int) -> torch.Tensor:
    return torch.arange(length)[None] * 7 % 95 + 1


@cache
def exported(name: str, dynamic: bool) -> torch.export.ExportedProgram:
    sizes = {"input_ids": {1: torch.export.Dim("length", min=2, max=64)}} if dynamic else None
    return torch.export.export(decoder(name), (tokens(8),), dynamic_shapes=sizes)


@cache
def converted(name: str, dynamic: bool, target: str | None = "gpu") -> AIProgram:
    return TorchConverter().add_exported_program(exported(name, dynamic)).to_coreai(target=target)


def counts(program: AIProgram) -> Counter[str]:
    """The ops outside composites by name, without constants; a call of a composite has its name."""
    main = str(program).split("coreai.graph @main")[1]
    found = re.findall(r"= coreai\.(?:decomposable\.)?(\w+)(?: @(\w+?)_[0-9a-f]{8}\()?", main)
    return Counter(called or name for name, called in found if name != "constant")


def attentions(program: AIProgram) -> list[tuple[int, bool, int]]:
    """The number of operands, `is_causal` and `window_size` of each call of attention."""
    text = str(program)
    found = []
    for body, operands in re.findall(r"coreai\.invoke @(scaled_dot_product_attention\w*)\(([^)]*)\)", text):
        declared = next(line for line in text.splitlines() if f"coreai.graph private noinline @{body}(" in line)
        causal, window = re.search(r"is_causal = (\w+)", declared), re.search(r"window_size = (\d+)", declared)
        assert causal
        assert window
        found.append((len(operands.split(",")), causal[1] == "true", int(window[1])))
    return found


@each_decoder
def test_no_attention_reads_a_mask(name: str, dynamic: bool) -> None:
    operands = 4 if name == "GptOss" else 3  # with sinks
    assert attentions(converted(name, dynamic)) == [(operands, True, window) for window in WINDOWS[name]]


@each_decoder
def test_op_counts(name: str, dynamic: bool) -> None:
    found = counts(converted(name, dynamic))
    for what, others in GOALS.items():
        goal = others.get(name, LLAMA[what])
        if goal is not None:
            assert found[NAMES.get(what, what)] <= len(WINDOWS[name]) * goal + ONCE.get(what, 0), what


@each_decoder
def test_rotations_are_by_positions(name: str, dynamic: bool) -> None:
    """Of an open length; tables of constant positions are constants."""
    program = converted(name, dynamic)
    declared = re.findall(r'"rope" = \{input_names = \[([^]]*)\]', str(program))
    inputs = '"input", "position_ids"' if dynamic else '"input", "cos", "sin"'
    assert all(each == inputs + (', "freqs"' if name == "GptOss" and dynamic else "") for each in declared)
    assert not {"cos", "sin"} & counts(program).keys()


@pytest.mark.slow
@each_decoder
def test_the_page_has_the_counts(name: str, dynamic: bool) -> None:
    before, after = counts(converted(name, dynamic, target=None)), counts(converted(name, dynamic))
    cells = [f"{name}, {'open' if dynamic else 'fixed'} length", f"{before.total()} to {after.total()}"]
    cells += [f"{before[NAMES.get(what, what)]} to {after[NAMES.get(what, what)]}" for what in LLAMA]
    row = f"| {' | '.join(cells)} |"
    assert f"\n{row}\n" in PAGE.read_text(), f"{PAGE} needs the row {row}"


@each_decoder
def test_numbers(name: str, dynamic: bool, native: Native) -> None:
    program = converted(name, dynamic)
    for length in (3, 8, 13) if dynamic else (8,):
        ids = tokens(length)
        with torch.no_grad():
            wanted = decoder(name)(ids)
        given = {"input_ids": ids.int()}
        for outputs in (program.run(given), native.run(program.module, given)):
            (made,) = outputs.values()
            torch.testing.assert_close(torch.as_tensor(made), wanted, atol=1e-4, rtol=1e-4)
