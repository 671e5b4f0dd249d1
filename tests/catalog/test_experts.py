"""`gather_mm`: found where matrices are chosen by index and multiplied, exact, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tests.networks.zoo  # noqa: F401  (it makes transformers importable beside a PyTorch without CUDA)
from patcomp import TorchConverter, get_decomp_table
from patcomp.composite_ops import GatherMM
from patcomp.emit.native import Native
from patcomp.program.program import AIProgram
from tests.catalog.recovering import Calling, convert
from tests.helpers.thorough import examples


def products(program: AIProgram) -> int:
    """How many calls of the composite a program makes, which has no others."""
    assert set(program.composites) <= {"gather_mm"}
    return program.composites.get("gather_mm", 0)


def declared(program: AIProgram) -> list[tuple[str, str]]:
    """The names and types of the composite's inputs."""
    (graph,) = [graph for graph in program.module.graphs if "priv" in graph.properties]
    return [(value.name_hint or "", str(value.type)) for value in graph.regions[0].block.args]


def _inputs(dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    tokens, weights = torch.randn(5, 4, generator=generator), torch.randn(3, 6, 4, generator=generator)
    return tokens.to(dtype), weights.to(dtype), torch.tensor([0, 2, 2, 1, 0])


def like_mixtral(x: torch.Tensor, w: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return torch.bmm(w[i], x.unsqueeze(-1)).squeeze(-1)


def like_gpt_oss(x: torch.Tensor, w: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return torch.bmm(x.unsqueeze(1), w.transpose(1, 2)[i]).squeeze(1)


def transposed_after_choosing(x: torch.Tensor, w: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return x.unsqueeze(1) @ w[i].transpose(-2, -1)


def by_index_select(x: torch.Tensor, w: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return w.index_select(0, i) @ x.unsqueeze(-1)


def of_a_table_of_indices(x: torch.Tensor, w: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return w[torch.stack([i, 2 - i], 1)] @ x[:, None, :, None]


def of_flat_indices(x: torch.Tensor, w: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    chosen = w[torch.stack([i, 2 - i], 1).flatten()].view(5, 2, 6, 4)
    return x[:, None, None, :] @ chosen.transpose(-2, -1)


def of_negative_indices(x: torch.Tensor, w: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return torch.bmm(w[i - 3], x.unsqueeze(-1))


FORMS = [
    like_mixtral, like_gpt_oss, transposed_after_choosing, by_index_select, of_a_table_of_indices, of_flat_indices,
    of_negative_indices,
]  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("form", FORMS)
def test_forms_of_models(form: Callable[..., torch.Tensor], dtype: torch.dtype, native: Native) -> None:
    assert products(convert(form, *_inputs(dtype), native=native)) == 1


def test_declaration_of_chosen_left() -> None:
    program = convert(like_mixtral, *_inputs())
    assert declared(program) == [
        ("lhs", "tensor<3x6x4xf32>"), ("rhs", "tensor<5x4x1xf32>"), ("lhs_indices", "tensor<5xsi32>"),
    ]  # fmt: skip
    assert '"gather_mm" = {input_names = ["lhs", "rhs", "lhs_indices"]' in program.text()
    assert "op_attrs = {num_batch_axes = 0 : si64, version = 1 : si64}" in program.text()


def test_weights_are_not_transposed() -> None:
    """x @ w[i]^T transposes the activations; the composite reads the weights as they are."""
    program = convert(transposed_after_choosing, *_inputs())
    assert declared(program)[0] == ("lhs", "tensor<3x6x4xf32>")


def test_indices_get_the_shape_of_the_product() -> None:
    assert declared(convert(of_flat_indices, *_inputs()))[2] == ("lhs_indices", "tensor<5x2xsi32>")


def test_both_operands() -> None:
    def both(v: torch.Tensor, w: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
        return v[i] @ w[j]

    program = convert(both, torch.randn(7, 2, 4), torch.randn(3, 4, 5), torch.tensor([6, 0]), torch.tensor([2, 2]))
    assert products(program) == 1
    assert [name for name, _ in declared(program)] == ["lhs", "rhs", "lhs_indices", "rhs_indices"]


@settings(max_examples=examples(5), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_module_of_any_shape(native: Native, data: st.DataObject) -> None:
    """The module class on drawn shapes: batch axes, indices of rank 1 to 3, either operand."""
    size = st.integers(1, 4)
    batch = data.draw(st.lists(size, max_size=2), label="batch")
    chosen = data.draw(st.lists(size, min_size=1, max_size=3), label="shape of the indices")
    count, rows, inner, columns = (data.draw(size, label=name) for name in ("count", "rows", "inner", "columns"))
    seed = torch.Generator().manual_seed(data.draw(st.integers(0, 99), label="seed"))
    indices = torch.randint(0, count, chosen, generator=seed)
    left = data.draw(st.booleans(), label="the left operand is indexed")
    stack = torch.randn(*batch, count, *((rows, inner) if left else (inner, columns)), generator=seed)
    other = torch.randn(*batch, *chosen, *((inner, columns) if left else (rows, inner)), generator=seed)
    module = GatherMM(len(batch))

    def model(x: torch.Tensor, y: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return module(x, y, i) if left else module(y, x, None, i)

    program = convert(model, stack, other, indices, native=native)
    assert products(program) == 1
    assert f"num_batch_axes = {len(batch)} : si64" in program.text()


# ---- what is no gather_mm ---------------------------------------------------------------------------


def chosen_along_rows(x: torch.Tensor, w: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return w.index_select(1, i) @ x.T[:4, :3]


def chosen_by_a_mask(x: torch.Tensor, w: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return torch.where((i[:3] > 0)[:, None, None], w, 0.0) @ x.T


def chosen_by_two_indices(x: torch.Tensor, w: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return w[i[:, None], i[None, :]] @ x[:4, :, None].repeat(2, 1, 1)[:5]


def used_elsewhere(x: torch.Tensor, w: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    chosen = w[i]
    return chosen @ x.unsqueeze(-1), chosen.sum()


def mixed_by_a_view(x: torch.Tensor, w: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return w[i].view(5, 4, 6) @ x.sum().expand(5, 6, 1)


def other_dimensions_permuted(x: torch.Tensor, w: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return w[i].permute(1, 0, 2) @ x.T


def of_vectors(x: torch.Tensor, w: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return x[i] @ x.T


NEAR_MISSES = [
    chosen_along_rows, chosen_by_a_mask, chosen_by_two_indices, used_elsewhere, mixed_by_a_view,
    other_dimensions_permuted, of_vectors,
]  # fmt: skip


@pytest.mark.parametrize("form", NEAR_MISSES)
def test_near_misses_stay(form: Callable[..., Any]) -> None:
    assert products(convert(form, *_inputs())) == 0


# ---- groups of rows ---------------------------------------------------------------------------------


def grouped(
    scores: torch.Tensor, x: torch.Tensor, w: torch.Tensor, *, bins: int = 3, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """The product of transformers, on rows that are in the order of their experts."""
    import transformers.integrations.moe  # noqa: F401  (it registers the operator)

    experts, _ = torch.sort(torch.topk(scores, 2, dim=-1).indices.reshape(-1))
    counts = torch.histc(experts.to(dtype), bins=bins, min=0, max=bins - 1)
    ends = torch.cumsum(counts, dim=0, dtype=torch.int32)
    return torch.ops.transformers.grouped_mm_fallback(x, w.transpose(-2, -1), ends)


def _grouped_inputs(experts: int = 3) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(5, experts), torch.randn(10, 4), torch.randn(3, 6, 4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_groups_of_rows(dtype: torch.dtype, native: Native) -> None:
    scores, x, w = _grouped_inputs()
    program = convert(grouped, scores, x.to(dtype), w.to(dtype), native=native if dtype == torch.float32 else None)
    assert products(program) == 1
    name = "f32" if dtype == torch.float32 else "bf16"
    assert declared(program)[0] == ("lhs", f"tensor<3x6x4x{name}>"), "the weights as they are stored"


def test_rows_of_experts_without_a_matrix_are_zero(native: Native) -> None:
    """Four experts may be chosen, and there are three matrices: the rows of the fourth come after the last group."""
    program = convert(grouped, *_grouped_inputs(experts=4), native=native)
    assert products(program) == 1


def by_ends(x: torch.Tensor, w: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    import transformers.integrations.moe  # noqa: F401  (it registers the operator)

    return torch.ops.transformers.grouped_mm_fallback(x, w.transpose(-2, -1), ends)


def by_ends_of_pytorch(x: torch.Tensor, w: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """PyTorch exports this one in bf16 alone."""
    return torch.nn.functional.grouped_mm(x.bfloat16(), w.bfloat16().transpose(-2, -1), offs=ends).float()


@pytest.mark.parametrize("function", [by_ends, by_ends_of_pytorch])
def test_groups_given_by_their_ends(function: Callable[..., Any]) -> None:
    """An empty group at the start and in the middle, and a number of rows that only the run knows."""
    model, generator = Calling(function), torch.Generator().manual_seed(0)
    weights = torch.randn(4, 8, 16, generator=generator)

    def inputs(*ends: int) -> tuple[torch.Tensor, ...]:
        return torch.randn(ends[-1], 16, generator=generator), weights, torch.tensor(ends, dtype=torch.int32)

    sizes = {0: torch.export.Dim("rows", min=2, max=32)}
    exported = torch.export.export(model, inputs(0, 3, 3, 5), dynamic_shapes=((sizes, None, None),))
    program = TorchConverter().add_exported_program(exported).to_coreai()
    assert products(program) == 1
    for ends in ((0, 3, 3, 5), (1, 1, 9, 11)):
        program.verify_against(model, inputs(*ends)).check()


def test_rows_after_the_last_group_are_zero(native: Native) -> None:
    _, x, w = _grouped_inputs()
    assert products(convert(by_ends, x, w, torch.tensor([2, 2, 7], dtype=torch.int32), native=native)) == 1


def test_order_is_undone_by_sorting(native: Native) -> None:
    def undone(x: torch.Tensor) -> torch.Tensor:
        permutation = torch.sort(x).indices
        inverse = torch.empty_like(permutation)
        inverse[permutation] = torch.arange(len(x))
        return inverse

    convert(undone, torch.randn(9), native=native)


# ---- real models ------------------------------------------------------------------------------------


def experts_model(name: str, implementation: str | None) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """A small Mixture-of-Experts model of transformers with four experts, two for each token."""
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(
        hidden_size=32, intermediate_size=48, moe_intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, vocab_size=64, num_local_experts=4, num_experts=4, num_experts_per_tok=2,
        use_cache=False, experts_implementation=implementation,
    )  # fmt: skip
    model = getattr(transformers, f"{name}Model")(config).eval()
    return _LastState(model), (torch.randint(0, 64, (1, 6)),)


class _LastState(torch.nn.Module):
    def __init__(self, model: torch.nn.Module):
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=tokens, use_cache=False).last_hidden_state


@pytest.mark.parametrize("implementation", ["batched_mm", "grouped_mm"])
@pytest.mark.parametrize("name", ["Mixtral", "Qwen3Moe"])
def test_both_products_of_each_layer_are_found(name: str, implementation: str, native: Native) -> None:
    model, inputs = experts_model(name, implementation)
    exported = torch.export.export(model, inputs).run_decompositions(get_decomp_table())
    program = TorchConverter().add_exported_program(exported).to_coreai()
    assert program.composites["gather_mm"] == 4
    with torch.no_grad():
        expected = model(*inputs)
    (name_of_input,), (name_of_output,) = program.input_names(), program.output_names()
    given = program.run({name_of_input: inputs[0]})[name_of_output]
    run = native.run(program.module, {name_of_input: inputs[0].to(torch.int32)})[name_of_output]
    torch.testing.assert_close(given, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(torch.from_numpy(run), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["Mixtral", "Qwen3Moe", "GptOss"])
def test_default_experts_of_open_length(name: str) -> None:
    model, inputs = experts_model(name, None)
    sizes = {1: torch.export.Dim("length", min=2, max=16)}
    exported = torch.export.export(model, inputs, dynamic_shapes=(sizes,))
    program = TorchConverter().add_exported_program(exported).to_coreai()
    assert program.composites["gather_mm"] == 4
    for length in (6, 9):
        program.verify_against(model, (torch.randint(0, 64, (1, length)),)).check()
