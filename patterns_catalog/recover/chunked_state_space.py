"""Selective state spaces of Mamba-2, recovered from chunks of tokens as transformers computes them
(`mamba2_chunk_scan`)."""

from __future__ import annotations

from typing import Any

from patcomp.authoring import AtenSource, Coreai
from patcomp.ir.value import Value
from patcomp.patterns import ANY, Attr, Capture, OpView, any_of, example, op_rule
from patterns_catalog.recover.chunk_patterns import INFINITY, Parts, is_last, part, triangle
from patterns_catalog.recover.chunks import NOT_FINITE
from patterns_catalog.recover.state_space import state_space_update
from patterns_catalog.recover.unrolled import (
    Element,
    element_at,
    padded,
    replace_cuts,
    selected,
    without_padding,
)
from patterns_catalog.views import permuted, read_by, viewed

_HEADS_FIRST = [0, 1, 3, 2, 4]


class _Chunks(Parts):
    """Parts of the pattern. In the shapes, b are batches, t tokens, c chunks, d one more, n the tokens of a chunk, h
    heads, p the size of a head, and s that of the state."""

    def of(self, x: Any, size: str = "") -> Any:
        """A sequence as chunks."""
        return self.has(self.a.view(self.has(x, f"bth{size}"), size=ANY), f"bcnh{size}")

    def steps(self, g: Any) -> Any:
        """The sequence g as chunks, with the tokens last."""
        return self.has(self.a.permute(self.of(g), dims=[0, 3, 1, 2]), "bhcn")

    def passed(self, steps: Any) -> Any:
        """The sums of g over the tokens of each chunk."""
        return self.has(any_of(*(self.a.cumsum(steps, dim=dim, dtype=None) for dim in (-1, 3))), "bhcn")

    def segments(self, x: Any, same: Any, later: Any, letters: str) -> Any:
        """exp of the sum of x behind one position up to another one, and 0 for earlier ones."""
        a, length = self.a, letters[-1]
        columns = a.expand(self.unsqueezed(x, f"{letters}1"), size=ANY, implicit=ANY)
        behind = a.where(self.has(same, 2 * length), 0.0, self.has(columns, letters + length))
        sums = any_of(*(a.cumsum(behind, dim=dim, dtype=None) for dim in (-2, len(letters) - 1)))
        masked = a.where(self.has(later, 2 * length), -INFINITY, sums)
        return self.has(a.exp(masked), letters + length)

    def by_token(self, x: Any) -> Any:
        """A number for each head and token, for products with chunks."""
        return self.unsqueezed(self.a.permute(x, dims=[0, 2, 3, 1]), "bcnh1")


@part
def _outputs(
    a: AtenSource, values: Capture, g: Capture, b: Capture, asked: Capture, states: Capture, same: Capture,
    later: Capture, end: Attr,
) -> Any:  # fmt: skip
    "asked @ the state before the chunk * exp(sums of g) + (asked @ b^T * decays) @ values"
    x = _Chunks(a)
    steps = x.steps(g)
    chunks = x.of(asked, "s")
    rows, again = (a.permute(chunks, dims=_HEADS_FIRST) for _ in range(2))
    products = a.permute(a.matmul(rows, a.permute(x.of(b, "s"), dims=[0, 1, 3, 4, 2])), dims=[0, 1, 3, 4, 2])
    left = a.permute(x.segments(steps, same, later, "bhcn"), dims=[0, 2, 3, 4, 1])
    scores = a.permute(x.has(products * left, "bcnnh"), dims=[0, 1, 4, 2, 3])
    within = a.permute(a.matmul(scores, a.permute(x.of(values, "p"), dims=_HEADS_FIRST)), dims=_HEADS_FIRST)
    before = x.has(a.op("slice.Tensor", x.has(states, "bdhps"), dim=1, start=0, end=end, step=1), "bchps")
    held = a.permute(a.matmul(again, a.permute(before, dims=[0, 1, 2, 4, 3])), dims=_HEADS_FIRST)
    kept = x.by_token(a.exp(x.passed(steps)))
    return x.has(within + held * kept, "bcnhp"), [
        *x.where(), triangle("same", True, 0), triangle("later", True, 1), is_last(end, states, 1),
    ]  # fmt: skip


@part
def _states(
    a: AtenSource, values: Capture, g: Capture, b: Capture, before: Capture, same: Capture, later: Capture, start: Attr,
    index: Attr,
) -> Any:  # fmt: skip
    "the states before each chunk, and behind the last one"
    x = _Chunks(a)
    steps = x.steps(g)
    passed = x.passed(steps)
    last = x.has(a.op("slice.Tensor", passed, dim=3, start=start, end=ANY, step=1), "bhc1")
    kept = x.has(x.of(b, "s") * x.by_token(a.exp(last - passed)), "bcnhs")
    columns = a.permute(x.of(values, "p"), dims=[0, 1, 3, 4, 2])
    written = x.has(a.matmul(columns, a.permute(kept, dims=_HEADS_FIRST)), "bchps")
    all_written = x.has(a.cat([x.has(before, "b1hps"), written], dim=1), "bdhps")
    total = x.has(a.op("select.int", passed, dim=3, index=index), "bhc")
    totals = x.has(a.constant_pad_nd(total, pad=[1, 0], value=0), "bhd")
    decays = x.segments(totals, same, later, "bhd")
    twice = a.permute(a.permute(decays, dims=[0, 3, 2, 1]), dims=[0, 3, 2, 1])
    rows = x.has(a.view(any_of(twice, decays), size=ANY), "xdd")
    columns = x.has(a.view(a.permute(all_written, dims=[0, 2, 1, 3, 4]), size=ANY), "xdy")
    summed = x.has(a.view(a.bmm(rows, columns), size=ANY), "bhdps")
    return a.permute(summed, dims=[0, 2, 1, 3, 4]), [
        *x.where(), triangle("same", True, 0), triangle("later", True, 1),
        is_last(start, passed, 3), is_last(index, passed, 3),
    ]  # fmt: skip


def _two_chunks(torch: Any, values: Any, g: Any, b: Any, c: Any, state: Any) -> tuple[Any, ...]:
    """Chunks of two tokens, the last one padded with zeros."""

    def segments(x: Any) -> Any:
        ones = torch.ones(x.shape[-1], x.shape[-1], dtype=torch.bool)
        x = x[..., None].expand(*x.shape, x.shape[-1]).masked_fill(~ones.tril(-1), 0).cumsum(-2)
        return x.masked_fill(~ones.tril(0), float("-inf")).exp()

    pad = torch.nn.functional.pad
    values, b, c = (pad(x, (0, 0, 0, 0, 0, 1)).unflatten(1, (-1, 2)) for x in (values, b, c))
    g = pad(g, (0, 0, 0, 1)).unflatten(1, (-1, 2)).permute(0, 3, 1, 2)
    passed = g.cumsum(-1)
    scores = torch.einsum("bclhn,bcshn->bclsh", c, b) * segments(g).permute(0, 2, 3, 4, 1)
    within = torch.einsum("bclsh,bcshp->bclhp", scores, values)
    kept = b * (passed[..., -1:] - passed).exp().permute(0, 2, 3, 1)[..., None]
    written = torch.cat([state[:, None], torch.einsum("bclhn,bclhp->bchpn", kept, values)], 1)
    decays = segments(pad(passed[..., -1], (1, 0))).transpose(1, 3)
    states = torch.einsum("bzch,bzhpn->bchpn", decays, written)
    held = torch.einsum("bclhn,bchpn->bclhp", c, states[:, :-1]) * passed.exp().permute(0, 2, 3, 1)[..., None]
    return (within + held).flatten(1, 2)[:, :-1], states[:, -1]


@op_rule("recover", "aten.add.Tensor", name="state_space_update in chunks", size=60, pattern=_outputs,
         unspecified=NOT_FINITE, examples=[
    example("1x3x4x5xf32", "1x3x4xf32[-1,0]", "1x3x4x6xf32", "1x3x4x6xf32", "1x4x5x6xf32", program=_two_chunks),
])  # fmt: skip
def state_space_update_in_chunks(op: OpView, c: Coreai) -> Value | None:
    """chunks of tokens, and a product with the decays between them (Mamba-2, Bamba, Granite 4, Nemotron-H, Zamba2,
    Falcon-H1) -> the state space, without the tokens that pad the last chunk"""
    op.ignore(*op.arguments, because="the pattern reads them")
    whole = Value(op.operation.results[0])
    outputs = _outputs.match(whole)
    states = None if outputs is None else _states.match(outputs["states"])
    if outputs is None or states is None or any(outputs[name] != states[name] for name in ("values", "g", "b")):
        return None
    op.cover(*outputs.ops, *states.ops)
    sequences, padding = without_padding([outputs[name] for name in ("values", "g", "b", "asked")], 1)
    by_heads = [permuted(x, [0, 2, 1, 3][: x.rank]) for x in sequences]
    made, after = state_space_update(*by_heads, selected(states["before"], 1, 0))
    all_states: Value = outputs["states"]
    last = Element(all_states, 1, all_states.static_shape[1] - 1)
    for state in read_by(all_states, "select.int"):
        if element_at(state) == last:
            op.replace(state, after)
    longer = padded(made, 1, padding)
    for flat in read_by(whole, "view"):
        if flat.type == longer.type:
            op.replace(flat, longer)
            replace_cuts(op, flat, made, 1)
    return viewed(longer, whole.static_shape)
