"""RWKV-7 against the paper's equations, token by token in float64."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import AutoConfig, AutoModelForCausalLM

from patcomp import load
from patcomp_models.checkpoints.loading import load_model
from patcomp_models.language import LanguageModelError, convert_language_model
from tests.models.language.checkpoints import CONTEXT, PROMPT, SECOND, folder

Array = NDArray[np.float64]
SIZE = 8
SETTINGS: dict[str, Any] = {
    "vocab_size": 96, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "head_dim": SIZE,
    "decay_low_rank_dim": 8, "a_low_rank_dim": 8, "v_low_rank_dim": 8, "gate_low_rank_dim": 8, "fuse_norm": False,
    "norm_first": True, "norm_bias": True, "norm_eps": 1e-5, "hidden_act": "sqrelu", "attn_mode": "chunk", "attn": None,
    "value_dim": [32, 32, 32], "num_heads": 32, "tie_word_embeddings": False,
}  # fmt: skip
"""The fields of a published folder; its number of heads is not read, as there."""


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


class Reference:
    """The published equations (arXiv:2503.14456, section 4 and appendix), one token a call."""

    def __init__(self, model: torch.nn.Module, *, is_fused: bool):
        self.weights = {name: each.detach().double().numpy() for name, each in model.state_dict().items()}
        self.is_fused = is_fused
        self.states = [(np.zeros(32), np.zeros(32), np.zeros((4, SIZE, SIZE))) for _ in range(3)]

    def norm(self, name: str, x: Array) -> Array:
        scaled = (x - x.mean()) / np.sqrt(x.var() + 1e-5)
        return np.asarray(scaled * self.weights[f"{name}.weight"] + self.weights.get(f"{name}.bias", 0))

    def low_rank(self, name: str, x: Array, between: Callable[[Array], Array]) -> Array:
        made = self.weights[f"{name}.lora.2.weight"] @ between(self.weights[f"{name}.lora.0.weight"] @ x)
        return np.asarray(made + self.weights.get(f"{name}.lora.2.bias", 0))

    def attention(self, at: str, x: Array, before: Array, state: Array, first: Array | None) -> tuple[Array, ...]:
        w = self.weights
        mixed = {name: x + w[f"{at}.x_{name}"].ravel() * (before - x) for name in "rwkvag"}
        r, k, v = (w[f"{at}.{name}_proj.weight"] @ mixed[name] for name in "rkv")
        decay = np.exp(-np.exp(-0.5) * sigmoid(self.low_rank(f"{at}.w_lora", mixed["w"], np.tanh)))
        if first is not None:
            v = v + (first - v) * sigmoid(self.low_rank(f"{at}.v_lora", mixed["v"], np.asarray))
        a = sigmoid(self.low_rank(f"{at}.a_lora", mixed["a"], np.asarray))
        g = self.low_rank(f"{at}.g_lora", mixed["g"], sigmoid)
        removed, k = k * w[f"{at}.k_k"], k * (1 + (a - 1) * w[f"{at}.k_a"])
        outputs, states = [], []
        for head in range(4):
            part = slice(head * SIZE, (head + 1) * SIZE)
            squares = (removed[part] ** 2).sum()
            kappa = removed[part] / (np.sqrt(squares + 1e-6) if self.is_fused else np.sqrt(squares))
            transition = np.diag(decay[part]) - np.outer(kappa, a[part] * kappa)
            states.append(state[head] @ transition + np.outer(v[part], k[part]))
            y = states[-1] @ r[part]
            y = (y - y.mean()) / np.sqrt(y.var() + SIZE * 1e-5)
            y = y * w[f"{at}.g_norm.weight"][part] + w[f"{at}.g_norm.bias"][part]
            outputs.append(y + (r[part] * k[part] * w[f"{at}.r_k"][head]).sum() * v[part])
        made = w[f"{at}.o_proj.weight"] @ (np.concatenate(outputs) * g)
        return made, np.stack(states), v if first is None else first

    def __call__(self, token: int) -> Array:
        w = self.weights
        x, first = w["model.embeddings.weight"][token], None
        x = self.norm("model.layers.0.pre_norm", x) if "model.layers.0.pre_norm.weight" in w else x
        for number, (before, before_forward, state) in enumerate(self.states):
            at = f"model.layers.{number}"
            seen = self.norm(f"{at}.attn_norm", x)
            made, state, first = self.attention(f"{at}.attn", seen, before, state, first)
            x = x + made
            forward = self.norm(f"{at}.ffn_norm", x)
            key = w[f"{at}.ffn.key.weight"] @ (forward + w[f"{at}.ffn.x_k"] * (before_forward - forward))
            x = x + w[f"{at}.ffn.value.weight"] @ np.maximum(key, 0) ** 2
            self.states[number] = seen, forward, state
        return np.asarray(w["lm_head.weight"] @ self.norm("model.norm", x))


def published(path: Path, **changed: Any) -> Path:
    """A folder as flash-linear-attention saves it, with code of its own that must not run."""
    folder(path)
    torch.manual_seed(0)
    model: Any = AutoModelForCausalLM.from_config(AutoConfig.for_model("rwkv7", **(SETTINGS | changed)))
    for name, weight in model.named_parameters():
        torch.nn.init.normal_(weight, 1.0 if "norm.weight" in name else 0.0, 0.4)
    model.save_pretrained(path)
    content = {
        **SETTINGS, "model_type": "rwkv7", "architectures": ["RWKV7ForCausalLM"], "bos_token_id": 1, "eos_token_id": 2,
        "auto_map": {"AutoConfig": "own.RWKV7Config", "AutoModelForCausalLM": "own.RWKV7ForCausalLM"}, **changed,
    }  # fmt: skip
    (path / "config.json").write_text(json.dumps(content))
    (path / "own.py").write_text("raise AssertionError('code of the folder runs')\n")
    return path


@pytest.mark.parametrize(
    "changed", [{}, {"fuse_norm": True, "norm_first": False, "norm_bias": False, "tie_word_embeddings": True}]
)
@pytest.mark.filterwarnings("ignore:.*Apple's engines:patcomp.errors.ConversionWarning")
def test_tokens_and_logits(changed: dict[str, Any], tmp_path: Path) -> None:
    """On the runtime: prompts, and the tokens after them; a bundle's second text begins anew."""
    source = published(tmp_path / "source", **changed)
    bundle = convert_language_model(source, out=tmp_path / "bundle", max_context=CONTEXT, dtype="float32")
    model = load_model(source, "float32", trust_remote_code=False)
    for prompt in (PROMPT, SECOND):
        reference = Reference(model, is_fused="fuse_norm" in changed)
        rows, tokens = [reference(token) for token in prompt], list[int]()
        while len(tokens) < 12 and (not tokens or tokens[-1] != 2):
            tokens.append(int(rows[-1].argmax()))
            rows.append(reference(tokens[-1]))
        assert len(set(tokens)) > 4
        assert bundle.generate(prompt, 12) == tokens
        with closing(load(bundle.asset)) as asset:
            session = bundle._session(asset, ["main"])
            made = np.concatenate([session.run("main", each) for each in (prompt, tokens[:1], tokens[1:])])
        np.testing.assert_allclose(made, rows, rtol=0, atol=1e-5 * np.abs(rows).max())


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"attn": {"layers": [1]}}, "attn of 'config.json' is"),
        ({"value_dim": [64, 64, 64]}, "value_dim of 'config.json' is"),
        ({"hidden_act": "relu"}, "hidden_act of 'config.json' is 'relu'"),
        ({"fuse_norm": "left out"}, "lacks fuse_norm"),
        ({"v_low_rank_dim": None}, "lacks v_low_rank_dim"),
        ({"head_size": 8}, "has head_size, which the published RWKV7ForCausalLM has not"),
        ({"hidden_size": 36, "value_dim": None}, "hidden_size of 'config.json' is 36"),
        ({"num_hidden_layers": "3"}, "num_hidden_layers of 'config.json' is '3'"),
        ({"architectures": ["Rwkv7ForCausalLM"], "auto_map": "left out"}, "only RWKV7ForCausalLM is known"),
    ],
)
def test_refused(source: Path, changed: dict[str, Any], message: str, tmp_path: Path) -> None:
    content = json.loads((source / "config.json").read_text()) | changed
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in source.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    kept = {name: each for name, each in content.items() if each != "left out"}
    (copy / "config.json").write_text(json.dumps(kept))
    with pytest.raises(LanguageModelError, match=message):
        convert_language_model(copy, out=tmp_path / "bundle")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return published(tmp_path_factory.mktemp("rwkv7") / "source")
