"""Several entry points in one program: encoder and decoder, prefill and decode, with shared weights and state."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from patcomp import AIProgram, TorchConverter
from patcomp.emit.native import Native
from patcomp.evaluate.calling import arguments_by_name, result_of
from patcomp.evaluate.inputs import prepare_input
from patcomp.ir.module import graph_name, names_of
from patcomp.ir.types import TensorType
from patcomp.torchvision import declare_operators
from tests.frontend_torch.models import export


def run_natively(program: AIProgram, native: Native, entry: str, *args: Any, state: Any = None, **kwargs: Any) -> Any:
    """The result of an entry point on the real runtime, called as the model is."""
    call = program.signature(entry).call
    graph = program.module.graph(entry)
    types = dict(zip(names_of(graph, "arg_attrs"), graph.regions[0].block.args, strict=True))
    inputs = {
        name: prepare_input(value, argument.type, name)
        for name, value in arguments_by_name(call, args, kwargs).items()
        if isinstance((argument := types[name]).type, TensorType)
    }
    outputs = native.run(program.module, inputs, state, entry=entry)
    return result_of(call, {name: torch.from_numpy(value) for name, value in outputs.items()})


class Translator(nn.Module):
    """An encoder and a decoder that share their embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(32, 16)
        layer = {"d_model": 16, "nhead": 2, "dim_feedforward": 32, "batch_first": True, "dropout": 0.0}
        self.encoder = nn.TransformerEncoderLayer(**layer)
        self.decoder = nn.TransformerDecoderLayer(**layer)

    def encode(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.encoder(self.embedding(tokens))

    def decode(self, tokens: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        return self.decoder(self.embedding(tokens), memory) @ self.embedding.weight.T


class Part(nn.Module):
    """One method of a model, for export."""

    def __init__(self, model: nn.Module, method: str):
        super().__init__()
        self.model, self.method = model, method

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        return getattr(self.model, self.method)(*args)


def test_an_encoder_and_a_decoder(native: Native) -> None:
    torch.manual_seed(0)
    model = Translator().eval()
    source, target, memory = torch.arange(7)[None], torch.arange(5)[None] + 20, torch.randn(1, 7, 16)
    converter = TorchConverter()
    converter.add_exported_program(export(Part(model, "encode"), source), entrypoint_name="encode")
    converter.add_exported_program(export(Part(model, "decode"), target, memory), entrypoint_name="decode")
    program = converter.to_coreai()
    assert program.entrypoints == ("encode", "decode")
    embeddings = [blob for blob in program.module.blobs if blob.content_hash and "embedding" in blob.key]
    assert len(embeddings) == 1
    graphs = [graph_name(graph) for graph in program.module.graphs]
    assert len([name for name in graphs if name.startswith("layer_norm")]) == 2  # one for each length
    with torch.no_grad():
        expected_memory = model.encode(source)
        expected = model.decode(target, expected_memory)
    for run in (
        lambda entry, *args: program.run(*args, entrypoint=entry),
        lambda entry, *args: run_natively(program, native, entry, *args),
    ):
        memory = run("encode", source)
        torch.testing.assert_close(memory, expected_memory, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(run("decode", target, memory), expected, rtol=1e-4, atol=1e-5)


def test_equal_composites_of_two_entry_points_are_one_graph() -> None:
    norm = nn.LayerNorm(8)
    converter = TorchConverter()
    for name in ("one", "two"):
        converter.add_exported_program(export(norm, torch.randn(2, 8)), entrypoint_name=name)
    program = converter.to_coreai()
    assert [graph_name(graph).partition("_")[0] for graph in program.module.graphs] == ["layer", "one", "two"]


def test_equal_weights_of_two_models_are_one_blob_in_the_asset(tmp_path: Any) -> None:
    torch.manual_seed(0)
    weight, size = torch.randn(64, 64), {}
    for copies in (1, 2):
        converter = TorchConverter()
        for index in range(copies):
            linear = nn.Linear(64, 64, bias=False)
            linear.weight = nn.Parameter(weight.clone())
            converter.add_exported_program(export(linear, torch.randn(1, 64)), entrypoint_name=f"entry{index}")
        path = converter.to_coreai().save_asset(tmp_path / f"copies{copies}.aimodel").path
        size[copies] = sum(file.stat().st_size for file in path.iterdir())
    assert size[2] - size[1] < weight.nbytes / 2


def test_states_of_entry_points_are_apart() -> None:
    class Counts(nn.Module):
        def __init__(self, start: float) -> None:
            super().__init__()
            self.register_buffer("count", torch.tensor([start]))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.count.add_(1) * x

    converter = TorchConverter()
    for name, start in (("up", 1.0), ("down", -5.0)):
        converter.add_exported_program(export(Counts(start), torch.ones(1)), entrypoint_name=name)
    program = converter.to_coreai()
    assert {name: list(state) for name, state in program.initial_state.items()} == {
        "up": ["b_count"],
        "down": ["b_count"],
    }
    assert program.run(torch.ones(1), entrypoint="up").item() == 2.0
    assert program.run(torch.ones(1), entrypoint="down").item() == -4.0
    assert list(converter.to_coreai(entrypoints=["down"]).initial_state) == ["down"]
    with pytest.raises(KeyError, match="there is no entry point 'main'; there are up, down"):
        program.run(torch.ones(1))


def test_llama_with_a_static_cache_prefills_and_decodes(native: Native) -> None:
    """transformers' own export wrapper: the cache is state of both entry points, which one sequence shares."""
    pytest.importorskip("transformers")
    declare_operators()
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM
    from transformers.integrations.executorch import TorchExportableModuleWithStaticCache

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64,
    )  # fmt: skip
    llama = LlamaForCausalLM(config).eval()
    cache = {"batch_size": 1, "max_cache_len": 24}
    llama.generation_config = GenerationConfig(use_cache=True, cache_implementation="static", cache_config=cache)
    converter = TorchConverter()
    for name, length in (("prefill", 5), ("decode", 1)):
        example = {"input_ids": torch.zeros(1, length, dtype=torch.int64), "cache_position": torch.arange(length)}
        module = TorchExportableModuleWithStaticCache(llama)
        exported = torch.export.export(module, (), example, strict=True)
        converter.add_exported_program(exported, output_names=["logits"], entrypoint_name=name)
    program = converter.to_coreai()
    assert {state.name for state in program.signature("decode").states} == {
        f"b_{kind}_{layer}" for layer in (0, 1) for kind in ("cumulative_length", "key_cache", "value_cache")
    }
    assert program.composites == {"rms_norm": 10, "rope": 8, "scaled_dot_product_attention": 4}
    model = TorchExportableModuleWithStaticCache(llama)
    mine = program.new_state("prefill")
    theirs = {name: value.numpy() for name, value in program.new_state("prefill").items()}
    tokens, positions = torch.tensor([[3, 14, 15, 9, 26]]), torch.arange(5)
    for step in range(9):
        entry = "decode" if step else "prefill"
        call = {"input_ids": tokens, "cache_position": positions}
        with torch.no_grad():
            expected = model(**call)
        given = program.run(entrypoint=entry, state=mine, **call)
        torch.testing.assert_close(given, expected, rtol=1e-4, atol=1e-4)
        given = run_natively(program, native, entry, state=theirs, **call)
        torch.testing.assert_close(given, expected, rtol=1e-4, atol=1e-4)
        tokens, positions = expected[:, -1:].argmax(-1), torch.tensor([5 + step])
