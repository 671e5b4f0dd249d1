"""The gated delta rule, recovered from chunks of tokens as transformers computes them (`torch_chunk_gated_delta_rule`,
`chunk_kimi_delta_attention`), whose loop over chunks export has unrolled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from patcomp.authoring import Coreai
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Operation
from patcomp.patterns import OpView, example, op_rule
from patcomp.patterns.match import Match
from patterns_catalog.recover.chunked_delta_formulas import DELTA, Family, output, update
from patterns_catalog.recover.chunked_kimi_formulas import KIMI
from patterns_catalog.recover.chunks import NOT_FINITE
from patterns_catalog.recover.gated_delta_formulas import normalized, scaled
from patterns_catalog.recover.unrolled import (
    Element,
    element_at,
    joined_parts,
    padded,
    replace_cuts,
    without_padding,
)
from patterns_catalog.views import permuted, read_by

# ---- the loop over chunks ---------------------------------------------------------------------------


@dataclass(frozen=True)
class _Chunk:
    """The output of a chunk, and the state after it; None if nothing reads that state."""

    output: Match
    update: Match | None

    def part(self, name: str) -> Value | None:
        """A part of the output or of the update."""
        match = self.update if name in ("keys", "decay") else self.output
        return None if match is None else match[name]


def _chunk(state: Value) -> _Chunk | None:
    """The chunk that begins with a state."""
    products = read_by(state, "matmul", "mul.Tensor")
    sums = list(dict.fromkeys(total for product in products for total in read_by(product, "add.Tensor")))
    outputs, updates = (
        [match for value in sums if (match := pattern.match(value)) is not None and match["state"] == state]
        for pattern in (output, update)
    )
    if len(outputs) != 1 or len(updates) > 1:
        return None
    if updates and any(updates[0][name] != outputs[0][name] for name in ("values", "reading")):
        return None
    return _Chunk(outputs[0], updates[0] if updates else None)


def _chunks(outputs: Sequence[Value]) -> list[_Chunk] | None:
    """The chunks of these outputs; None if they do not follow each other, or something else reads a state between."""
    first = output.match(outputs[0])
    if first is None:
        return None
    state: Value = first["state"]
    chunks: list[_Chunk] = []
    for position, value in enumerate(outputs):
        chunk = _chunk(state)
        if chunk is None or Value(chunk.output.root.results[0]) != value:
            return None
        inside = {*chunk.output.ops, *(chunk.update.ops if chunk.update else ())}
        if position and any(user not in inside for user in state.users):
            return None
        chunks.append(chunk)
        if position + 1 < len(outputs):
            if chunk.update is None:
                return None
            state = Value(chunk.update.root.results[0])
    return chunks


# ---- what the chunks are made of --------------------------------------------------------------------


def _matches(family: Family, chunks: Sequence[_Chunk]) -> Iterator[Match | None]:
    """The matches of a family's patterns; None where one does not match."""
    for name, pattern in family.of_all.items():
        values = [value for chunk in chunks if (value := chunk.part(name)) is not None]
        elements = [element_at(value) for value in values]
        for index, element in enumerate(elements):
            source = elements[0].source
            if element != Element(source, 2, index) or source.shape[2] != len(chunks):
                yield None
        if elements:  # nothing may read the state after the only chunk
            yield pattern.match(elements[0].source)
    for name, pattern in family.of_each.items():
        for index, chunk in enumerate(chunks):
            if (value := chunk.part(name)) is not None:
                match = pattern.match(value)
                yield match if match is not None and match["index"] == index else None


_SHARED = ("query", "key", "value", "g", "beta", "inverse")


def _merged(matches: Iterable[Match | None]) -> dict[str, Value] | None:
    """The values that matches have by name; None if one is missing, or a name has two values."""
    found: dict[str, Value] = {}
    for match in matches:
        if match is None:
            return None
        for name in match.pattern.captures:
            if name in _SHARED and found.setdefault(name, match[name]) != match[name]:
                return None
    return found


def _sequences(family: Family, chunks: Sequence[_Chunk]) -> tuple[dict[str, Value], list[Operation]] | None:
    """Query, key, value, g and beta of chunks, and the ops that compute with them."""
    matches = list(_matches(family, chunks))
    found = _merged(matches)
    if found is None or (inverse := family.inverse.match(found["inverse"])) is None:
        return None
    if (found := _merged([*matches, inverse])) is None:
        return None
    return found, [op for match in (*matches, inverse) if match is not None for op in match.ops]


def _without_factor(query: Value) -> tuple[Value, bool]:
    """A query without the factor 1 / sqrt(key size), and whether it had that factor."""
    match = scaled.match(query)
    return (query, False) if match is None else (match["x"], True)


# ---- the rule ---------------------------------------------------------------------------------------


def _two_chunks(torch: Any, query: Any, key: Any, value: Any, g: Any, beta: Any, state: Any) -> tuple[Any, ...]:
    """Chunks of two tokens, the last one padded with a zero."""
    query, key, value = (torch.nn.functional.pad(x, (0, 0, 0, 1)) for x in (query, key, value))
    g, beta = (torch.nn.functional.pad(x, (0, 1)) for x in (g, beta))
    written = [(x * beta.unsqueeze(-1)).unflatten(2, (-1, 2)) for x in (key, value)]
    query, key = (x.unflatten(2, (-1, 2)) for x in (query, key))
    passed = g.unflatten(2, (-1, 2)).cumsum(3)
    later = torch.ones(2, 2, dtype=torch.bool).triu(1)
    left = (passed.unsqueeze(4) - passed.unsqueeze(3)).masked_fill(later, float("-inf")).exp()
    inverse = -((written[0] @ key.mT) * left).tril(-1)
    row = inverse[..., 1, :1].clone()
    inverse[..., 1, :1] = row + (row.unsqueeze(-1) * inverse[..., :1, :1].clone()).sum(-2)
    inverse = inverse + torch.eye(2)
    values, reading = inverse @ written[1], inverse @ (written[0] * passed.exp().unsqueeze(-1))
    scores = (query @ key.mT) * left
    query = query * passed.exp().unsqueeze(-1)
    key = key * (passed[..., -1:] - passed).exp().unsqueeze(-1)
    decay = passed[..., -1].exp()[..., None, None]
    outputs = []
    for i in range(values.shape[2]):
        new = values[:, :, i] - reading[:, :, i] @ state
        outputs.append(query[:, :, i] @ state + scores[:, :, i] @ new)
        state = state * decay[:, :, i] + key[:, :, i].mT @ new
    return torch.stack(outputs, 2).flatten(2, 3)[:, :, :-1], state


@op_rule("recover", "aten.view", "aten.add.Tensor", name="gated_delta_update in chunks", size=100,
         unspecified=NOT_FINITE, examples=[
    example("1x2x3x4xf32", "1x2x3x4xf32", "1x2x3x5xf32", "1x2x3xf32[-1,0]", "1x2x3xf32[0,1]", "1x2x4x5xf32",
            program=_two_chunks),
])  # fmt: skip
def gated_delta_update_in_chunks(op: OpView, c: Coreai) -> Value | None:
    """chunks of tokens, each with the inverse of a triangular matrix (Qwen3-Next, Qwen3.5, Kimi Linear) -> the gated
    delta rule, without the tokens that pad the last chunk

    The op flattens the outputs of all chunks, or is the output of the only one. Everything is float32, as the composite
    computes.
    """
    op.ignore(*op.arguments, because="the patterns of chunks read them, and the type of the result has the sizes")
    whole = Value(op.operation.results[0])
    outputs = joined_parts(op["self"], 2) if op.op_name == "aten.view" else [whole]
    if outputs is None or (chunks := _chunks(outputs)) is None:
        return None
    for family in (DELTA, KIMI):
        if (found := _sequences(family, chunks)) is not None:
            break
    else:
        return None
    sequences, ops = found
    if op.result.shape != sequences["value"].shape:
        return None
    inside = [inner for chunk in chunks for match in (chunk.output, chunk.update) if match for inner in match.ops]
    op.cover(*inside, *ops)
    query, divided = _without_factor(sequences["query"])
    given = [query, *(sequences[name] for name in ("key", "value", "g", "beta"))]
    (query, key, value, g, beta), padding = without_padding(given, 2)
    if not divided:
        query, divided = _without_factor(query)
    normal = [normalized.match(x) for x in (query, key)]
    is_normalized = divided and all(normal)
    if is_normalized:
        query, key = (match["x"] for match in normal if match)
    elif not divided:
        query = c.broadcasting_mul(query, query.static_shape[-1] ** 0.5)
    state = chunks[0].output["state"]
    made, after = family.update(query, key, value, g, beta, state, use_qk_l2_norm=is_normalized)
    if chunks[-1].update is not None:
        op.replace(Value(chunks[-1].update.root.results[0]), after)
    result = permuted(made, [0, 2, 1, 3])
    replace_cuts(op, whole, result, 2)
    return padded(result, 2, padding)
