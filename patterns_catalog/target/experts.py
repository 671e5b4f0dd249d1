"""Experts on all choices of a token at once, with gate and up apart: the form of models that are written for the GPU.

transformers repeats each token for each expert that it chose, and computes rows of one list:

    rows [tokens * chosen, features],  w[expert of each row] @ row   ->   sum of each token's rows

Here a token has an axis for its choices, so that nothing is repeated, and `gather_mm` gets the choices as they are:

    x [1, tokens, 1, 1, features],  gather_mm(x, w [1, experts, features, outputs], choices [tokens, chosen])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from patcomp.authoring import Coreai
from patcomp.ir.builder import Builder
from patcomp.ir.constants import constant_integers, is_constant
from patcomp.ir.dialect import create_op
from patcomp.ir.traits import Broadcasting, Reshape
from patcomp.ir.types import Shape, is_integer, tensor
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Operation
from patcomp.patterns import OpView, Rejected, example, op_rule
from patterns_catalog.composites.experts import gather_mm
from patterns_catalog.sizes import END


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
    x = op.input
    op.expect(constant_integers(op.axes.ssa) == (1,), "it sums another axis")
    rows = _viewed(x)
    if x.rank != 3 or rows is None or rows.rank != 2 or rows.shape[-1] != x.shape[-1] or x.shape[1] is None:
        op.reject("it sums no rows of tokens and their choices")
    layer = _Layer(c, x.shape[0], x.shape[1], rows.shape[0])
    total = c.reduce_sum(layer.apart(rows), [2])
    op.expect(bool(layer.products), "no matrix is chosen by index")
    op.cover(x.ssa.owner, *layer.covered)  # type: ignore[arg-type]
    return c.reshape(total, [-1 if x.shape[0] is None else x.shape[0], 1, rows.shape[1] or 0])


def _viewed(value: Value) -> Value | None:
    """What a value is another view of."""
    view = value.made_by(Reshape)
    return None if view is None else Value(view.operands[0])


@dataclass(frozen=True)
class _Part:
    """Every `step`-th feature from `start` to `end`."""

    start: int
    end: int
    step: int

    def of(self, c: Coreai, x: Value, axis: int) -> Value:
        """That part of an axis."""
        starts, ends, steps = [0] * x.rank, [END] * x.rank, [1] * x.rank
        starts[axis], ends[axis], steps[axis] = self.start, self.end, self.step
        return c.slice_(x, starts, ends, steps)


@dataclass
class _Layer:
    """Values of one row for each choice of a token, computed again as [1, tokens, choices, 1, features]."""

    c: Coreai
    tokens: int | None
    chosen: int
    rows: int | None
    products: list[Operation] = field(default_factory=list)
    covered: list[Operation] = field(default_factory=list)
    _known: dict[tuple[Value, _Part | None], Value] = field(default_factory=dict)

    def apart(self, value: Value, part: _Part | None = None) -> Value:
        """The value with axes of its own for tokens and choices; where all choices are equal, of size 1.

        Raises:
            Rejected: it is computed by an op that is not known.
        """
        key = value, part
        if key not in self._known:
            self._known[key] = self._apart(value, part)
        return self._known[key]

    def _apart(self, value: Value, part: _Part | None) -> Value:
        maker = value.maker
        if maker is None or not self._has_rows(value.shape):
            raise Rejected(f"a value of shape {value.shape} has no row for each choice")
        self.covered.append(maker)
        if maker.has_trait(Reshape):
            return self._view(Value(maker.operands[0]), value, part)
        if gather_mm.made(maker):
            return self._product(maker, part)
        if maker.name == "coreai.gather_nd":
            return self._chosen_rows(maker, part)
        if maker.name in ("coreai.split", "coreai.slice"):
            if part is not None:
                raise Rejected("a part is cut once more")
            return self.apart(Value(maker.operands[0]), _part(maker, value))
        if maker.has_trait(Broadcasting):
            return self._elementwise(maker, value, part)
        raise Rejected(f"{maker.name} computes no rows that are known")

    def _has_rows(self, shape: Shape) -> bool:
        """Whether the first dimension has a row for each choice, and one other at most is not 1."""
        return len(shape) > 0 and shape[0] == self.rows and None not in shape[1:] and len(_features(shape)) < 2

    def _sizes(self, choices: int, features: int) -> list[int]:
        return [1, -1 if self.tokens is None else self.tokens, choices, 1, features]

    def _view(self, before: Value, value: Value, part: _Part | None) -> Value:
        if self._has_rows(before.shape) and _features(before.shape) == _features(value.shape):
            return self.apart(before, part)
        if before.shape[:2] != (self.tokens, self.chosen) or before.rank > 3 or None in before.shape[2:]:
            raise Rejected("its rows are not those of tokens and their choices")
        (features,) = before.shape[2:] or (1,)
        choices = self.chosen
        if (repeated := before.made_by("coreai.broadcast_in_dims")) is not None:
            once = Value(repeated.operands[0])
            if once.shape == (self.tokens, 1, features):
                self.covered.append(repeated)
                before, choices = once, 1
        made = self.c.reshape(before, self._sizes(choices, features or 0))
        return made if part is None else part.of(self.c, made, 4)

    def _choices(self, value: Value) -> Value:
        """The experts that tokens chose, [tokens, choices], of their list."""
        before, shape = value, (self.tokens, self.chosen)
        while before.shape != shape and (view := before.made_by(Reshape)) is not None:
            self.covered.append(view)
            before = Value(view.operands[0])
        if before.shape != shape or not is_integer(before.element_type):
            raise Rejected("experts are chosen by other indices than those of tokens")
        return before

    def _product(self, call: Operation, part: _Part | None) -> Value:
        """Rows times chosen matrices."""
        given = gather_mm.arguments(call)
        by_left = given["lhs_indices"] is not None
        weight, x = (given["lhs"], given["rhs"]) if by_left else (given["rhs"], given["lhs"])
        indices = given["lhs_indices"] if by_left else given["rhs_indices"]
        both = given["lhs_indices"] is not None and given["rhs_indices"] is not None
        is_row = x.rank == 3 and x.shape[2 if by_left else 1] == 1
        if both or indices is None or weight.rank != 3 or not is_constant(weight.ssa) or not is_row:
            raise Rejected("it multiplies other things than single rows by a chosen weight")
        rows = self.apart(x)
        if part is not None:
            weight = part.of(self.c, weight, 1 if by_left else 2)
        if by_left:  # (experts, outputs, features)
            weight = self.c.transpose(weight, [0, 2, 1])
        stack = self.c.reshape(weight, [1, *weight.static_shape])
        self.products.append(call)
        made = gather_mm(rows, stack, None, self._choices(indices), num_batch_axes=1)
        assert isinstance(made, Value)
        return made

    def _chosen_rows(self, gather: Operation, part: _Part | None) -> Value:
        """Rows of a weight, such as the bias of each expert."""
        weight = Value(gather.operands[0])
        if weight.rank != 2 or not is_constant(weight.ssa):
            raise Rejected("rows are chosen of something that is no weight")
        choices = self._choices(Value(gather.operands[1]))
        weight = weight if part is None else part.of(self.c, weight, 1)
        taken = self.c.gather_nd(weight, self.c.expand_dims(choices, [2]))
        return self.c.reshape(taken, self._sizes(self.chosen, weight.static_shape[1]))

    def _elementwise(self, maker: Operation, value: Value, part: _Part | None) -> Value:
        operands = [self._operand(Value(each), value, part) for each in maker.operands]
        shape = _broadcast([each.shape for each in operands])
        made = create_op(
            maker.name, [each.ssa for each in operands], [tensor(shape, value.element_type)], dict(maker.properties)
        )
        return Value(Builder.current().insert(made).results[0])

    def _operand(self, operand: Value, value: Value, part: _Part | None) -> Value:
        if operand.rank == 0 or operand.shape == (1,):
            return operand
        if not self._has_rows(operand.shape):
            if operand.rank != 1 or operand.shape != value.shape[-1:]:
                raise Rejected("an operand is neither a number nor has a row for each choice")
            return operand if part is None else part.of(self.c, operand, 0)
        return self.apart(operand, part if _features(operand.shape) else None)


def _features(shape: Shape) -> list[int | None]:
    """The sizes after the first one that are not 1."""
    return [size for size in shape[1:] if size != 1]


def _broadcast(shapes: Sequence[Shape]) -> Shape:
    """The shape of an elementwise op on values of five dimensions, lines of features, and numbers."""
    wide = [(*([1] * (5 - len(shape))), *shape) for shape in shapes]
    return tuple(next((size for size in sizes if size != 1), 1) for sizes in zip(*wide, strict=True))


def _part(maker: Operation, value: Value) -> _Part:
    """The features that a split or a slice takes.

    Raises:
        Rejected: it does not cut the features of rows.
    """
    whole = Value(maker.operands[0])
    last = whole.rank - 1
    if whole.shape[:-1] != value.shape[:-1] or last < 1:
        raise Rejected("other axes than features are cut")
    if maker.name == "coreai.slice":
        numbers = [constant_integers(each) for each in maker.operands[1:]]
        if any(each is None for each in numbers):
            raise Rejected("features are cut at places that are not known")
        start, end, step = (each[last] for each in numbers if each is not None)
        return _Part(start, end, step)
    if constant_integers(maker.operands[2]) not in ((last,), (-1,)):
        raise Rejected("other axes than features are cut")
    sizes = [Value(each).shape[last] or 0 for each in maker.results]  # those of features are known
    index = maker.results.index(value.ssa)
    return _Part(sum(sizes[:index]), sum(sizes[: index + 1]), 1)
