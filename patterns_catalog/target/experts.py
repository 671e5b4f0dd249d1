"""Experts on all choices of a token at once, with gate and up apart: the form of models that are written for the GPU.

transformers repeats each token for each expert that it chose, and computes rows of one list:

    rows [tokens * chosen, features],  w[expert of each row] @ row   ->   sum of each token's rows

Here a token has an axis for its choices, so that nothing is repeated, and `gather_mm` gets the choices as they are:

    x [1, tokens, 1, 1, features],  gather_mm(x, w [1, experts, features, outputs], choices [tokens, chosen])
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from patcomp.authoring import Coreai
from patcomp.ir.builder import Builder
from patcomp.ir.constants import constant_integers, is_constant
from patcomp.ir.dialect import create_op
from patcomp.ir.infer import broadcast_shapes
from patcomp.ir.traits import Broadcasting, Reshape
from patcomp.ir.types import Shape, is_integer, tensor
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Operation
from patcomp.patterns import OpView, Rejected, example, op_rule
from patterns_catalog.composites.experts import gather_mm
from patterns_catalog.slices import Part, part_of
from patterns_catalog.target.stored_forms import expanded, is_stored, part_of_stored, transposed


def _experts(torch: Any, x: Any, scores: Any, *, chosen: int, bias: bool = False) -> Any:
    """A layer of four experts as transformers computes it: of Qwen and Mixtral, or with biases, of GPT-OSS."""
    features, width = x.shape[-1], 3
    weights, choices = scores.topk(chosen, -1)
    rows, expert = x.repeat_interleave(chosen, 0), choices.reshape(-1)
    first = torch.linspace(-1, 1, 4 * 2 * width * features).reshape(4, 2 * width, features)
    second = torch.linspace(1, -0.5, 4 * width * features).reshape(4, features, width)
    if bias:
        both = torch.bmm(rows.unsqueeze(1), first.mT.contiguous()[expert]).squeeze(1)
        both = both + torch.linspace(0, 1, 4 * 2 * width).reshape(4, -1)[expert]
        gate, up = both[..., ::2].clamp(max=7.0), both[..., 1::2].clamp(-7.0, 7.0)
    else:
        both = torch.bmm(first[expert], rows.unsqueeze(-1)).squeeze(-1)
        gate, up = both.chunk(2, -1)
    inner = torch.nn.functional.silu(gate) * (up + 1.0 if bias else up)
    if bias:
        out = torch.bmm(inner.unsqueeze(1), second.mT.contiguous()[expert]).squeeze(1)
        out = out + torch.linspace(0, 1, 4 * features).reshape(4, -1)[expert]
    else:
        out = torch.bmm(second[expert], inner.unsqueeze(-1)).squeeze(-1)
    return (out * weights.reshape(-1, 1)).view(-1, chosen, features).sum(1)


@op_rule("target", "coreai.reduce_sum", name="experts of each token together", targets=("gpu",), examples=[
    example("3x4xf32", "3x4xf32", program=lambda torch, x, scores: _experts(torch, x, scores, chosen=2)),
    example("3x4xf32", "3x4xf32", program=lambda torch, x, scores: _experts(torch, x, scores, chosen=3, bias=True)),
])  # fmt: skip
def experts_together(op: OpView, c: Coreai) -> Value:
    """sum over a token's choices of rows [tokens * choices, features] -> the same with an axis of choices

    Products of rows by chosen matrices become `gather_mm` with choices [tokens, choices]; one whose result is cut into
    gate and up becomes two.
    """
    x, view = op.input, op.input.made_by(Reshape)
    if view is None or constant_integers(op.axes.ssa) != (1,) or x.rank != 3 or x.shape[1] is None:
        op.reject("the sum is not over the choices of each token")
    rows = Value(view.operands[0])
    width = x.shape[2]
    op.expect(rows.rank == 2 and rows.shape[1] == width, "the sum is not over the choices of each token")
    if width is None:
        op.reject("the number of features is dynamic")
    layer = _Layer(c, x.shape[0], x.shape[1], rows.shape[0])
    total = c.reduce_sum(layer.apart(rows), [2])
    op.expect(layer.has_product, "the layer chooses no matrix by index")
    op.cover(view, *layer.covered)
    return c.reshape(total, [-1 if x.shape[0] is None else x.shape[0], 1, width])


@dataclass
class _Layer:
    """Values of one row for each choice of a token, computed again as [1, tokens, choices, 1, features].

    Each method raises `Rejected` where a value is not computed so.
    """

    c: Coreai
    tokens: int | None
    chosen: int
    rows: int | None
    has_product: bool = False
    covered: list[Operation] = field(default_factory=list)
    _known: dict[tuple[Value, Part | None], Value] = field(default_factory=dict)

    def apart(self, value: Value, part: Part | None = None) -> Value:
        """A part of the features, with axes for tokens and choices; the latter of size 1 where choices are equal."""
        if (value, part) not in self._known:
            maker = value.maker
            _expect(maker is not None and self._has_rows(value.shape), value)
            assert maker is not None
            self.covered.append(maker)
            self._known[value, part] = self._apart(value, maker, part)
        return self._known[value, part]

    def _apart(self, value: Value, maker: Operation, part: Part | None) -> Value:
        if maker.has_trait(Reshape):
            return self._view(Value(maker.operands[0]), value, part)
        if gather_mm.made(maker):
            return self._product(value, maker, part)
        if maker.name == "coreai.gather_nd":
            return self._chosen_rows(value, maker, part)
        if (cut := part_of(value)) is not None:
            _expect(part is None and cut[1].axis == value.rank - 1 > 0, value)
            return self.apart(*cut)
        _expect(maker.has_trait(Broadcasting), value)
        operands = [self._operand(Value(each), value, part) for each in maker.operands]
        shape = broadcast_shapes(*(each.shape for each in operands))
        shape = (*[1] * (5 - len(shape)), *shape)
        types = [tensor(shape, value.element_type)]
        made = create_op(maker.name, [each.ssa for each in operands], types, dict(maker.properties))
        return Value(Builder.current().insert(made).results[0])

    def _has_rows(self, shape: Shape) -> bool:
        """Whether the first dimension has a row for each choice, and one other at most is not 1."""
        return shape[:1] == (self.rows,) and None not in shape[1:] and len(_features(shape)) < 2

    def _reshaped(self, x: Value, choices: int, features: int) -> Value:
        return self.c.reshape(x, [1, -1 if self.tokens is None else self.tokens, choices, 1, features])

    def _view(self, before: Value, value: Value, part: Part | None) -> Value:
        if self._has_rows(before.shape) and _features(before.shape) == _features(value.shape):
            return self.apart(before, part)
        _expect(before.shape[:2] == (self.tokens, self.chosen) and before.rank <= 3, value)
        (features,), choices = before.shape[2:] or (1,), self.chosen
        repeated = before.made_by("coreai.broadcast_in_dims")
        if repeated is not None and Value(repeated.operands[0]).shape == (self.tokens, 1, features):
            self.covered.append(repeated)
            before, choices = Value(repeated.operands[0]), 1
        _expect(features is not None, value)
        made = self._reshaped(before, choices, features or 0)
        return made if part is None else part.of(self.c, made, 4)

    def _choices(self, value: Value) -> Value:
        """The experts that tokens chose, [tokens, choices], of their list."""
        before, shape = value, (self.tokens, self.chosen)
        while before.shape != shape and (view := before.made_by(Reshape)) is not None:
            self.covered.append(view)
            before = Value(view.operands[0])
        _expect(before.shape == shape and is_integer(before.element_type), value)
        return before

    def _product(self, value: Value, call: Operation, part: Part | None) -> Value:
        """Single rows times chosen matrices of a weight."""
        given = gather_mm.arguments(call)
        by_left = given["lhs_indices"] is not None
        weight, x = (given["lhs"], given["rhs"]) if by_left else (given["rhs"], given["lhs"])
        indices, other = (given[f"{side}_indices"] for side in (("lhs", "rhs") if by_left else ("rhs", "lhs")))
        _expect(indices is not None and other is None and weight.rank == 3 and is_stored(weight), value)
        _expect(x.rank == 3 and x.shape[2 if by_left else 1] == 1, value)
        rows = self.apart(x)
        if part is not None:
            weight = part_of_stored(self.c, weight, part, 1 if by_left else 2)
        if by_left:  # (experts, outputs, features)
            weight = transposed(self.c, weight, [0, 2, 1])
        self.has_product, stack = True, expanded(self.c, weight, [0])
        made = gather_mm(rows, stack, None, self._choices(indices), num_batch_axes=1)
        assert isinstance(made, Value)
        return made

    def _chosen_rows(self, value: Value, gather: Operation, part: Part | None) -> Value:
        """Rows of a weight, such as the bias of each expert."""
        weight, indices = map(Value, gather.operands)
        _expect(weight.rank == 2 and is_constant(weight.ssa), value)
        choices = self._choices(indices)
        weight = weight if part is None else part.of(self.c, weight, 1)
        taken = self.c.gather_nd(weight, self.c.expand_dims(choices, [2]))
        return self._reshaped(taken, self.chosen, weight.static_shape[1])

    def _operand(self, operand: Value, value: Value, part: Part | None) -> Value:
        """A number, a line of features or a row for each choice, as the operand of an elementwise op."""
        if operand.rank == 0 or operand.shape == (1,):
            return operand
        if self._has_rows(operand.shape):
            return self.apart(operand, part if _features(operand.shape) else None)
        _expect(operand.shape == value.shape[-1:], operand)
        return operand if part is None else part.of(self.c, operand, 0)


def _features(shape: Shape) -> list[int | None]:
    """The sizes after the first one that are not 1."""
    return [size for size in shape[1:] if size != 1]


def _expect(condition: bool, value: Value) -> None:
    """Refuse the layer unless a value of it is computed in a known way."""
    if not condition:
        maker = "an input" if value.maker is None else value.maker.name
        raise Rejected(f"{maker} of shape {value.shape} is not known to compute a row for each choice of a token")
