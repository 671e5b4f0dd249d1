"""The form for the Neural Engine: the tokens of the model's own generation, the contract, and what is refused."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks import causal_types
from patcomp import AIProgram
from patcomp.compression import compressed_weights
from patcomp.emit.asset import load
from patcomp_models.checkpoints.loading import export_implementations, in_dtype
from patcomp_models.language import (
    Bundle,
    LanguageModelError,
    check_bundle,
    convert_language_model,
    static_form,
    static_states,
)
from patcomp_models.language.architectures import ARCHITECTURES, NOT_STATIC
from patcomp_models.language.held_out import HeldOut
from patcomp_models.language.static_bundle import rows_of
from patcomp_models.language.static_contract import FORBIDDEN, OWN_HOSTS, ring_size
from patcomp_models.language.static_embeddings import Embeddings
from patcomp_models.language.static_form import (
    _windowed,
    checked_context,
    constrained,
    context_sizes,
    default_context,
    static_program,
)
from patcomp_models.language.static_layers import BlockOfTokens
from patcomp_models.language.static_rotary import rotary_tables
from patcomp_models.language.static_run import _in_ring, function_sizes, generate_static
from patcomp_models.language.static_states import StaticCaches
from patcomp_models.language.text_loss import LENGTH, Reading
from patcomp_models.language.writing import description
from tests.models.language import checkpoints
from tests.models.language.checkpoints import PROMPT, SECOND, assert_best, checkpoint, drawn, generated, with_stops

STATIC = [kind for kind, each in ARCHITECTURES.items() if each.has_static_form]


def model_of(kind: str, *, tied: bool = False) -> Any:
    model: Any = checkpoint(kind)
    if tied:
        model.config.tie_word_embeddings = True
        model.get_output_embeddings().weight = model.get_input_embeddings().weight
    return model


def in_half(model: Any, *, quantized: bool = True) -> Any:
    """The model in float16, with the embeddings that the table stands for."""
    half: Any = in_dtype(model, "float16")
    weight = half.get_input_embeddings().weight
    embeddings = Embeddings.of(weight, quantized=quantized)
    with torch.no_grad():
        weight.copy_(embeddings.values(embeddings.table, torch.float16)[:, 0])
    if (rows := getattr(half.base_model, "embed_tokens_per_layer", None)) is not None:
        table = Embeddings.of(rows.weight, quantized=True)
        with torch.no_grad():
            rows.weight.copy_(table.values(table.table, torch.float16)[:, 0])
    return half


@pytest.mark.parametrize(
    ("kind", "context", "tied"),
    [
        ("llama", 128, False),
        pytest.param("qwen3_5_text", 64, True, marks=pytest.mark.slow),
        *(pytest.param(kind, 576, tied, marks=pytest.mark.slow) for kind in STATIC for tied in (False, True)),
    ],
)
def test_on_the_runtime(kind: str, context: int, tied: bool, tmp_path: Path) -> None:
    """A prompt of 12 tokens, a second one, and one of several blocks, for which functions of two caches are used."""
    model = model_of(kind, tied=tied)
    bundle = convert_language_model(model, "neural_engine", out=tmp_path / "bundle", max_context=context)
    own_hosts = {OWN_HOSTS.split("{")[0]}
    for problem in check_bundle(bundle.path, revision="34ab73d"):
        assert any(problem.message.startswith(each) for each in own_hosts), problem
    half = in_half(model)
    exact = copy.deepcopy(half).float()
    for prompt, new in ((PROMPT, 16), (SECOND, 4), (PROMPT * (context // 20), 6)):
        made = bundle.generate(prompt, new)
        if made != generated(half, prompt, new):
            assert_best(half, prompt, made, exact)
    asset = load(bundle.asset)
    programs = {"main": AIProgram(asset.module, initial_state=asset.initial_state)}
    most = min(context, LENGTH)
    tokens = (PROMPT * most)[:most]
    held_out = HeldOut.of(tokens, programs, bundle.path)
    with torch.no_grad():
        own = Reading.of(half(input_ids=torch.tensor([tokens])).logits[0].float().numpy(), tokens)
    found = held_out.read_by(programs)
    assert (len(found.best), found.loss) == (most - 1, pytest.approx(own.loss, rel=0.02))
    examples = held_out.examples(programs)["main"]
    size = next(size for size, _ in function_sizes(asset.function_names) if size >= most)
    assert (examples.entrypoint, len(examples.values)) == (f"extend_{size}_64", most // 64)
    assert abs(examples.values[-1]["key_cache"]).sum() > 0 or most < 128
    stopped = with_stops(bundle, tmp_path / "stops", made[2])
    assert stopped.generate(prompt, 6) == made[: made.index(made[2]) + 1]


@pytest.mark.parametrize(
    "kind", [kind if kind == "qwen3" else pytest.param(kind, marks=pytest.mark.slow) for kind in STATIC]
)
def test_on_the_evaluator(kind: str) -> None:
    model = model_of(kind, tied=True)
    half = in_half(model, quantized=False)
    embeddings, caches = Embeddings.of_module(half.get_input_embeddings(), quantized=False), StaticCaches.of(half, 64)
    rows = rows_of(half)
    with export_implementations(half), rotary_tables(half, 64, torch.float16):
        program = static_program(half, embeddings, 64, queries=(8, 16), rows=rows)
    audit = program.audit("neural_engine")
    assert not [finding for finding in audit.findings if "float32" in str(finding) or "rank" in str(finding)]

    def call(name: str, inputs: Any, states: Any) -> Any:
        return program.run(inputs, entrypoint=name, state=states or None)

    sizes = function_sizes(program.calls)
    assert sizes == [(64, 8), (64, 16)]
    empty = {name: each.numpy() for name, each in zip(caches.names, caches.zeros(64, torch.float16), strict=True)}
    fed = None if rows is None else lambda tokens: rows.table[torch.from_numpy(tokens), 0].numpy()
    for prompt in (PROMPT, PROMPT * 3):  # the second one begins with `prompt_opt`
        made = generate_static(call, sizes, empty, prompt, 4, window=caches.window, rows=fed)
        if made != generated(half, prompt, 4):
            assert_best(half, prompt, made)


def test_the_weights_are_stored_once() -> None:
    model = in_half(model_of("llama"))
    embeddings = Embeddings.of_module(model.model.embed_tokens, quantized=True)
    with export_implementations(model), rotary_tables(model, 64, torch.float16):
        program = static_program(model, embeddings, 64, queries=(8, 16))
    used = set(re.findall(r"dense_resource<(.*?)>", program.module.text()))
    stored = sum(blob.data.nbytes for blob in program.module.blobs if blob.key in used)
    own = sum(weight.numel() * 2 for weight in model.parameters()) - embeddings.table.numel()
    assert own * 0.9 < stored < own * 1.1
    rotary = type(model.model.rotary_emb).__name__
    assert rotary == "LlamaRotaryEmbedding", "the model's own rotary embedding comes back"


def test_context_sizes() -> None:
    assert context_sizes(128) == [128]
    assert context_sizes(4096) == [256, 512, 1024, 2048, 4096]
    assert context_sizes(576) == [256, 512, 576]
    assert [default_context(own) for own in (40960, 2000, 64)] == [4096, 1984, 64]


def test_the_table_of_embeddings() -> None:
    weight = torch.randn(96, 32, generator=torch.Generator().manual_seed(0)).half()
    embeddings = Embeddings.of(weight, quantized=True)
    assert embeddings.table.dtype == torch.int8
    assert int(embeddings.table.abs().max()) == 127
    off = (embeddings.values(embeddings.table, torch.float16)[:, 0] - weight).abs().max()
    assert float(off) <= embeddings.scale * 0.52
    assert Embeddings.of(torch.zeros(4, 2), quantized=True).table.abs().max() == 0


def test_bad_input(tmp_path: Path) -> None:
    model = model_of("llama")
    for options, message in (
        ({"max_context": 100}, "max_context is 100; for the Neural Engine it must be a multiple of 64"),
        ({"dtype": "float32"}, "is of float16, got dtype='float32'"),
        ({"max_context": 2048}, "max_context is 2048; the model takes 24 to 1024 tokens"),
    ):
        with pytest.raises(LanguageModelError, match=message):
            convert_language_model(model, "neural_engine", out=tmp_path / "bundle", **options)  # type: ignore[arg-type]
    for kind, message in NOT_STATIC.items():
        model = checkpoint(kind) if kind in ARCHITECTURES else causal_types.model_of(kind)
        with pytest.raises(LanguageModelError, match=f"'{kind}' has no form for the Neural Engine: {message}"):
            convert_language_model(model, "neural_engine", out=tmp_path / "bundle", max_context=64)
    assert list(tmp_path.iterdir()) == []


def test_caches_of_windows() -> None:
    """Layers with a window share a ring; layers that read what another one wrote have no rows."""
    four: Any = checkpoint("gemma4_text")
    caches = StaticCaches.of(four, 128)
    assert caches.layers == ((1, 0), (0, 0), None, None)
    assert [(pair.rows, pair.heads * pair.width, pair.ring) for pair in caches.pairs] == [(1, 32, None), (1, 16, 128)]
    assert [tuple(each.shape) for each in caches.zeros(64, torch.float16)] == [(1, 1, 32, 1, 64)] * 2 + [
        (1, 1, 16, 1, 128)] * 2  # fmt: skip
    assert (caches.window, caches.ring) == (8, 128)
    assert StaticCaches.of(four, 8).ring == 128, "its layers have heads of two sizes"
    assert StaticCaches.of(checkpoint("gemma3n_text"), 8).ring is None, "the window is as long as the cache"
    assert [ring_size(window) for window in (1, 8, 65, 512)] == [64, 128, 128, 576]


def test_a_ring() -> None:
    """A query sees the last tokens of its window, in their places, and nothing of its own block behind it."""
    given = _in_ring(64, 4, 120, 123, 8, np.dtype(np.float16))
    assert given["sliding_in_step"].tolist() == [120 % 64]
    mask = given["sliding_causal_mask"]
    seen = [sorted(np.flatnonzero(mask[0, :, 0, query] == 0).tolist()) for query in range(8)]
    assert seen == [[53, 54, 55, 56], [54, 55, 56, 57], [55, 56, 57, 58], [], [], [], [], []]
    assert mask.shape == (1, 64, 1, 8)


def test_a_table_that_does_more() -> None:
    class Shifted(torch.nn.Embedding):
        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = super().forward(tokens)
            return found + 1

    with pytest.raises(LanguageModelError, match="Shifted does more with its rows than to scale them"):
        Embeddings.of_module(Shifted(4, 2), quantized=True)


def test_a_window_in_all_layers() -> None:
    """Queries see the last tokens of the window among those that the caller's mask shows."""
    mask = torch.zeros(1, 1, 2, 6, dtype=torch.float16)
    mask[..., 5] = FORBIDDEN
    made = _windowed(mask, torch.tensor([[3, 4]], dtype=torch.int32), 2)[0, 0]
    assert [torch.nonzero(row == 0).flatten().tolist() for row in made] == [[2, 3, 4], [3, 4]]
    assert made.dtype == torch.float16
    assert _windowed(mask, torch.tensor([[3, 4]]), 6) is mask
    model: Any = checkpoint("mistral")
    assert checked_context(model, 128) == 128
    assert StaticCaches.of(model, 128).ring is None


def test_states_in_front_of_blocks() -> None:
    """A block of 16 with 13 tokens keeps the states in front of tokens 8, 0 and 0; one of 8 that ends it goes on from
    8, and keeps the state behind it for blocks of 8 and 16."""
    rows = torch.full((3, 2), -1.0)
    states = torch.arange(3.0)[:, None].expand(-1, 2)  # 0: in front of the block, 1: of token 8, 2: behind it

    def mask(queries: int, seen: int) -> torch.Tensor:
        given = torch.full((1, 32, 1, queries), FORBIDDEN)
        given[:, :1, :, :seen] = 0
        return given

    first = BlockOfTokens.of(torch.tensor([0], dtype=torch.int32), mask(16, 13))
    assert first.first(rows).tolist() == [0, 0]
    assert first.after(rows, states)[:, 0].tolist() == [1, 0, 0]
    second = BlockOfTokens.of(torch.tensor([8], dtype=torch.int32), mask(8, 8))
    assert second.first(torch.tensor([[5.0], [6.0], [7.0]])).tolist() == [5]
    assert second.after(rows, states[:2])[:, 0].tolist() == [1, 1, -1]


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_rotary_embeddings_that_change(kind: str) -> None:
    """The tables are eager's for up to 64 tokens, and longrope has others for more."""
    model = model_of("llama")
    factors: dict[str, Any] = {
        "original_max_position_embeddings": 64, "short_factor": [1, 1.1, 1.2, 1.3], "long_factor": [2.0, 3.0, 4.0, 5.0],
    } if kind == "longrope" else {"factor": 2.0}  # fmt: skip
    model.config.rope_parameters = {"rope_type": kind, "rope_theta": 10000.0, **factors}
    model.config.max_position_embeddings = 192
    own = type(model.model.rotary_emb)(model.config)
    model.model.rotary_emb = own
    own(torch.zeros(1), torch.arange(256)[None])  # the model has read a longer text
    assert checked_context(model, 64) == 64
    positions = torch.tensor([[3, 0, 63]])
    wanted = own(torch.zeros(1), torch.arange(64)[None])
    with rotary_tables(model, 64, torch.float32):
        made = model.model.rotary_emb(torch.zeros(1), positions)
    assert all(torch.equal(one, other[:, positions[0]]) for one, other in zip(made, wanted, strict=True))
    if kind == "dynamic":
        assert checked_context(model, 192) == 192
        return
    with pytest.raises(LanguageModelError, match=r"no table of the Neural Engine's form; pass max_context=64 \(--max"):
        checked_context(model, 128)


def static_bundle(path: Path) -> Bundle:
    """A small bundle with blocks of 8 tokens only."""
    model = in_half(model_of("llama"))
    with export_implementations(model), rotary_tables(model, 64, torch.float16):
        program = static_program(
            model, Embeddings.of_module(model.model.embed_tokens, quantized=True), 64, queries=(8,)
        )
    path.mkdir()
    constrained(program, 64).save_asset(path / "small.aimodel")
    described = description(model, 64, "small", None)
    (path / "metadata.json").write_text(json.dumps(described))
    return Bundle(path)


@pytest.mark.parametrize(
    ("name", "other", "message"),
    [
        ("STATIC_LOGITS", "logits", "the outputs of extend_64_8 are logits; they must be out_logits"),
        pytest.param("TABLE", "table", "the outputs of load_embeddings are table", marks=pytest.mark.slow),
        pytest.param("STATIC_TOKENS", "ids", "the inputs of gather_embeddings_8 are ids", marks=pytest.mark.slow),
        pytest.param(
            "STATIC_EMBEDDINGS", "made", "the outputs of gather_embeddings_8 are made", marks=pytest.mark.slow
        ),
        pytest.param("GATHER", "gather", "there is no function gather_embeddings_8", marks=pytest.mark.slow),
        pytest.param("PROMPT", "prompt", "prompt_opt has other sizes than extend", marks=pytest.mark.slow),
        pytest.param("EXTEND", "extending", "no function is called extend_<S>_<q>", marks=pytest.mark.slow),
        pytest.param("LOAD", "load", "there is no entry point 'main'", marks=pytest.mark.slow),
        pytest.param(
            "CACHES", ("keys", "values"), "the states of extend_64_8 are keys, values", marks=pytest.mark.slow
        ),
    ],
)
def test_departures_of_names(
    name: str, other: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (static_form, static_states):
        if hasattr(module, name):
            monkeypatch.setattr(module, name, other)
    found = check_bundle(static_bundle(tmp_path / "bundle").path)
    assert any(message in problem.message for problem in found), found


def test_departures_of_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = static_bundle(tmp_path / "bundle")
    right = json.loads((bundle.path / "metadata.json").read_text())
    right["language"]["embedded_tokenizer"] = False
    for change, message in (
        ({}, None),
        ({"max_context_length": 128}, "the largest extend has a cache of 64, and must have max_context_length, 128"),
        ({"vocab_size": 97}, "embedding_table is 96 x 1 x 32 of int8; it must be vocab_size x 1 x hidden"),
    ):
        metadata = {**right, "language": {**right["language"], **change}}
        (bundle.path / "metadata.json").write_text(json.dumps(metadata))
        found = [problem.message for problem in check_bundle(bundle.path)]
        assert found == [] if message is None else any(message in each for each in found), found
    monkeypatch.setattr("patcomp.emit.unconstrained.is_constrained", lambda asset: False)
    (bundle.path / "metadata.json").write_text(json.dumps(right))
    assert [problem.message for problem in check_bundle(bundle.path)] == [
        "embedding_table and the caches have no hardware constraints"
    ]


@pytest.mark.parametrize("kind", ["gpt2", pytest.param("llama", marks=pytest.mark.slow)])
def test_a_vocabulary_that_is_no_multiple_of_8(kind: str, tmp_path: Path) -> None:
    """The table has further rows of zeros; the logits are of tokens alone, with a tied head (GPT-2) and its own."""
    model: Any = checkpoint(kind)
    model.resize_token_embeddings(97, mean_resizing=False)
    assert (model.get_output_embeddings().weight is model.get_input_embeddings().weight) == (kind == "gpt2")
    bundle = convert_language_model(model, "neural_engine", out=tmp_path / "bundle", max_context=64)
    asset = load(bundle.asset)
    assert asset.described("load_embeddings").output_descriptor("embedding_table").shape == [104, 1, 32]
    assert asset.described("extend_64_8").output_descriptor("out_logits").shape == [1, 1, 8, 97]
    assert bundle.metadata["language"]["vocab_size"] == 97
    assert check_bundle(bundle.path, revision="34ab73d") == ()
    half = in_half(model)
    made = bundle.generate(PROMPT, 8)
    if made != generated(half, PROMPT, 8):
        assert_best(half, PROMPT, made, copy.deepcopy(half).float())


@pytest.mark.slow
@pytest.mark.parametrize("group", [8, 32])
@pytest.mark.parametrize("kind", ["llama", "phi3", "olmo2", "qwen3_5_text", "gemma3n_text", "gemma4_text"])
def test_palettes_that_lose_nothing(kind: str, group: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights of 16 values are those of their palettes, so the tokens are the model's own."""
    for name, size in (("hidden_size", 64), ("intermediate_size", 128)):
        monkeypatch.setitem(checkpoints._SIZES, name, size)
    monkeypatch.setitem(checkpoints.SETTINGS["gemma3n_text"], "intermediate_size", [128] * 4)
    for seed in range(12):
        torch.manual_seed(seed)
        model = drawn(model_of(kind, tied=kind not in ("phi3", "olmo2")))
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if weight.ndim > 1 and "embed" not in name:
                    step = float(weight.std()) / 3
                    weight.copy_((weight / step).round().clamp(-8, 7) * step)
        half = in_half(model)
        wanted = generated(half, PROMPT, 12)
        if len({*wanted}) > 3:
            break
    bundle = convert_language_model(
        model, "neural_engine", out=tmp_path / "bundle", max_context=64, check=False,
        compress=f"4bit_weight_palettized_group{group}",
    )  # fmt: skip
    schemes = {weight.scheme for weight in compressed_weights(load(bundle.asset).module)}
    assert f"pal4_group{group}" in schemes
    assert schemes <= {f"pal4_group{group}", "pal4"}, "one palette where the channels are no multiple of the group"
    if (made := bundle.generate(PROMPT, 12)) != wanted:
        assert_best(half, PROMPT, made, copy.deepcopy(half).float())
