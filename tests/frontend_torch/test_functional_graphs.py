"""Graphs without writes in place compute what eager does, or are refused: run by FX, without a conversion."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.nn import functional as F  # noqa: N812  (as everyone calls it)

from patcomp.frontend_torch.functional.views import certain_views
from patcomp.frontend_torch.functional.writes import Functional, NotFollowedError
from patcomp.frontend_torch.fx.nodes import writes_in_place
from patcomp.pytorch import OpOverload, base_name
from tests.frontend_torch.models import Function

X = (torch.arange(24.0).reshape(2, 3, 4) - 7) / 4
Model = Callable[..., Any]


def exported(model: Model, *inputs: Tensor, **options: Any) -> ExportedProgram:
    return torch.export.export(Function(model), tuple(x.clone() for x in inputs), **options)


def made(program: ExportedProgram, shared: tuple[str, ...] = ()) -> Functional:
    kinds = {spec.arg.name: spec.kind for spec in program.graph_signature.input_specs}
    return Functional(program.graph, kinds, shared)


class Checked(torch.fx.Interpreter):
    """Runs a graph, and checks that each tensor has the recorded shape and element type."""

    def run_node(self, node: Node) -> Any:
        value = super().run_node(node)
        if isinstance(value, Tensor) and node.op == "call_function":
            recorded = node.meta["val"]
            assert (value.shape, value.dtype) == (recorded.shape, recorded.dtype), node
        return value


def assert_followed(model: Model, *inputs: Tensor) -> Functional:
    """The new graph writes nothing and computes the results of eager, and the new contents of its inputs."""
    program = exported(model, *inputs)
    found = made(program)
    assert not any(writes_in_place(node) for node in found.graph.nodes)
    expected_inputs = [x.clone() for x in inputs]
    results = model(*expected_inputs)
    results = [results] if isinstance(results, Tensor) else list(results)
    names = [spec.arg.name for spec in program.graph_signature.input_specs if spec.target is None]
    changed = [x for name, x in zip(names, expected_inputs, strict=True) if name in found.written]
    before = [x.clone() for x in inputs]
    held = [program.constants[spec.target] for spec in program.graph_signature.input_specs if spec.target]
    outputs = Checked(GraphModule(program.graph_module, found.graph)).run(*held, *before)
    torch.testing.assert_close(list(outputs), [*changed, *results])
    torch.testing.assert_close(before, list(inputs))
    for name, x, new in zip(names, inputs, expected_inputs, strict=True):
        assert name in found.written or torch.equal(x, new)
    return found


def assert_refused(model: Model, *inputs: Tensor, match: str = "may share its memory", **more: Any) -> None:
    with pytest.raises(NotFollowedError, match=match):
        made(exported(model, *inputs), **more)


# ---- views ---------------------------------------------------------------------------------------

UNDONE: dict[str, list[Callable[[Tensor], Any]]] = {
    "alias": [torch.ops.aten.alias.default],
    "chunk": [lambda t: t.chunk(2, -1)[1], lambda t: t.chunk(2)[0], lambda t: t.chunk(4, 2)[3]],
    "detach": [lambda t: t.detach()],
    "diagonal": [
        lambda t: t.diagonal(),
        lambda t: t.diagonal(1, 1, 2),
        lambda t: t.diagonal(-1, -1, 0),
    ],
    "mT": [lambda t: t.mT],
    "narrow": [lambda t: t.narrow(1, 1, 2), lambda t: t.narrow(-1, 0, 3), lambda t: t.narrow(2, 3, 1)],
    "numpy_T": [lambda t: t[0].T],
    "permute": [lambda t: t.permute(2, 0, 1), lambda t: t.permute(-1, -3, -2)],
    "select": [lambda t: t.select(1, 2), lambda t: t.select(-1, -2), lambda t: t[1]],
    "slice": [
        lambda t: t[:, 1:],
        lambda t: t[..., ::2],
        lambda t: t[..., -3:-1],
        lambda t: t[:1],
        lambda t: torch.ops.aten.slice.Tensor(t),
    ],
    "split": [lambda t: t.split(2, -1)[1], lambda t: t.split(1)[0]],
    "split_with_sizes": [lambda t: t.split([1, 2], 1)[1], lambda t: t.split([2, 1, 1], -1)[2]],
    "squeeze": [lambda t: t[:, :1].squeeze(1), lambda t: t[:1].squeeze(), lambda t: t[:1, :, :1].squeeze((0, 2))],
    "swapaxes": [lambda t: t.swapaxes(0, 2)],
    "swapdims": [lambda t: t.swapdims(1, 2)],
    "t": [lambda t: t[1].t()],
    "transpose": [lambda t: t.transpose(0, 1), lambda t: t.transpose(-1, 0)],
    "unbind": [lambda t: t.unbind()[1], lambda t: t.unbind(-1)[3]],
    "unflatten": [lambda t: t.unflatten(2, (2, 2))],
    "unsqueeze": [lambda t: t.unsqueeze(1), lambda t: t.unsqueeze(-1)],
    "view": [lambda t: t.view(6, 4), lambda t: t.view(-1)],
    "view_as": [lambda t: t.view_as(torch.ones(3, 8))],
}
"""Views, by operator, through which a write reaches the tensor."""
ONLY_READ: dict[str, list[Callable[[Tensor], Any]]] = {
    "expand": [lambda t: t[:, :1].expand(2, 3, 4)],
    "expand_as": [lambda t: t[:, :1].expand_as(X)],
    "movedim": [lambda t: t.movedim(0, 2)],
    "unfold": [lambda t: t.unfold(2, 2, 1)],
    "view_as_complex": [lambda t: torch.view_as_complex(t.view(2, 3, 2, 2))],
    "view_as_real": [lambda t: torch.view_as_real(torch.view_as_complex(t.view(2, 3, 2, 2)))],
    "_conj": [lambda t: torch.view_as_complex(t.view(2, 3, 2, 2)).conj()],
}


def test_every_view_has_a_case() -> None:
    assert {*UNDONE, *ONLY_READ} == {name.split(".")[1] for name in certain_views()}
    for name, views in (UNDONE | ONLY_READ).items():
        graph = exported(lambda x, views=views: [view(x * 2) for view in views], X).graph
        targets = [base_name(node.target) for node in graph.nodes if isinstance(node.target, OpOverload)]
        assert targets.count(name) >= len(views)


@pytest.mark.parametrize("name", UNDONE)
def test_a_write_to_a_view_changes_the_tensor(name: str) -> None:
    def model(x: Tensor) -> Any:
        results: list[Tensor] = []
        for number, view in enumerate(UNDONE[name]):
            y = x * (number + 2)
            other, part = y[0], view(y)
            part.mul_(-3)
            part.add_(part.sum())
            results += [y, part, other]
        return results

    assert_followed(model, X)


@pytest.mark.parametrize("name", UNDONE)
def test_a_write_to_a_view_of_an_input(name: str) -> None:
    def model(x: Tensor, other: Tensor) -> Any:
        part = UNDONE[name][0](x)
        part.transpose(0, -1).add_(1)
        return part * other.sum()

    assert list(assert_followed(model, X, X + 1).written) == ["args_0"]


def test_a_view_sees_a_later_write() -> None:
    def model(x: Tensor) -> Any:
        y = x * 2
        parts = [view(y) for views in (UNDONE | ONLY_READ).values() for view in views]
        y.add_(1)
        return [y, *(part * 1 for part in parts)]

    assert_followed(model, X)


@pytest.mark.parametrize("name", ["movedim", "unfold"])
def test_a_write_to_another_view_is_refused(name: str) -> None:
    def model(x: Tensor) -> Any:
        y = x * 2
        ONLY_READ[name][0](y).add_(1)
        return y

    assert_refused(model, X, match=f"how a write to a view by aten::{name}")


def test_a_view_of_other_elements_is_refused() -> None:
    def model(x: Tensor) -> Any:
        y = x * 2
        y.view(torch.int32).add_(1)
        return y

    assert_refused(model, X, match="how a write to a view by aten::view")


# ---- what is new, and what may not be ------------------------------------------------------------

NEW: dict[str, Callable[[Tensor], Any]] = {
    "absolute": torch.absolute,
    "adaptive_avg_pool1d": lambda t: F.adaptive_avg_pool1d(t, 4),
    "adaptive_avg_pool2d": lambda t: F.adaptive_avg_pool2d(t, (3, 4)),
    "adaptive_avg_pool3d": lambda t: F.adaptive_avg_pool3d(t[None], (2, 3, 4)),
    "argsort": lambda t: t.argsort(),
    "avg_pool1d": lambda t: F.avg_pool1d(t, 1),
    "batch_norm": lambda t: F.batch_norm(t, torch.zeros(3), torch.ones(3)),
    "bilinear": lambda t: F.bilinear(t, t, torch.ones(2, 4, 4)),
    "clip": lambda t: t.clip(-9, 9),
    "concat": lambda t: torch.concat([t]),
    "concatenate": lambda t: torch.concatenate([t]),
    "conv1d": lambda t: F.conv1d(t, torch.ones(3, 3, 1)),
    "conv2d": lambda t: F.conv2d(t, torch.ones(2, 2, 1, 1)),
    "conv3d": lambda t: F.conv3d(t[None], torch.ones(1, 1, 1, 1, 1)),
    "conv_transpose1d": lambda t: F.conv_transpose1d(t, torch.ones(3, 3, 1)),
    "conv_transpose2d": lambda t: F.conv_transpose2d(t, torch.ones(2, 2, 1, 1)),
    "conv_transpose3d": lambda t: F.conv_transpose3d(t[None], torch.ones(1, 1, 1, 1, 1)),
    "cosine_similarity": lambda t: F.cosine_similarity(t, t + 1),
    "cumulative_trapezoid": lambda t: torch.cumulative_trapezoid(t),
    "divide": lambda t: torch.divide(t, 1),
    "greater": lambda t: torch.greater(t, 0),
    "greater_equal": lambda t: torch.greater_equal(t, 0),
    "group_norm": lambda t: F.group_norm(t, 1),
    "hstack": lambda t: torch.hstack([t]),
    "isfinite": torch.isfinite,
    "layer_norm": lambda t: F.layer_norm(t, (4,)),
    "less": lambda t: torch.less(t, 0),
    "less_equal": lambda t: torch.less_equal(t, 0),
    "linear": lambda t: F.linear(t, torch.ones(4, 4)),
    "log_sigmoid": F.logsigmoid,
    "log_softmax": lambda t: t.log_softmax(-1),
    "matmul": lambda t: t @ torch.ones(4, 4),
    "max": lambda t: torch.max(t, t.max(-1, keepdim=True)[0]),
    "max_pool1d": lambda t: F.max_pool1d(t, 1),
    "max_pool2d": lambda t: F.max_pool2d(t, 1),
    "max_pool3d": lambda t: F.max_pool3d(t[None], 1),
    "min": lambda t: torch.min(t, t.min(-1, keepdim=True)[0]),
    "multiply": lambda t: torch.multiply(t, 1),
    "negative": torch.negative,
    "not_equal": lambda t: torch.not_equal(t, 0),
    "outer": lambda t: torch.outer(t[0, 0], t[0, 0]),
    "prelu": lambda t: F.prelu(t, torch.ones(1)),
    "relu6": F.relu6,
    "rms_norm": lambda t: F.rms_norm(t, (4,)),
    "scaled_dot_product_attention": lambda t: F.scaled_dot_product_attention(t, t, t),
    "selu": F.selu,
    "softmax": lambda t: t.softmax(-1),
    "resize": lambda t: torch.ops.aten.resize.default(t, [6, 4]),
    "square": torch.square,
    "std": lambda t: t.std(-1),
    "subtract": lambda t: torch.subtract(t, 0),
    "tile": lambda t: t.tile(1, 1, 1),
    "true_divide": lambda t: torch.true_divide(t, 1),
    "upsample_bicubic2d": lambda t: F.interpolate(t[None], (3, 4), mode="bicubic"),
    "upsample_bilinear2d": lambda t: F.interpolate(t[None], (3, 4), mode="bilinear"),
    "upsample_nearest1d": lambda t: F.interpolate(t, 4),
    "upsample_nearest2d": lambda t: F.interpolate(t[None], (3, 4)),
    "upsample_nearest3d": lambda t: F.interpolate(t[None, None], (2, 3, 4)),
    "var": lambda t: t.var(-1),
    "vstack": lambda t: torch.vstack([t]),
    "where": lambda t: torch.where(t > 0, t, 0),
    "add": lambda t: t + 0,
    "clone": lambda t: t.clone(),
    "sum": lambda t: t.sum(-1),
    "cat": lambda t: torch.cat([t]),
    "to": lambda t: t.to(torch.float64),
    "type_as": lambda t: t.type_as(torch.ones(1).double()),
}
NEW_OF_INTEGERS: dict[str, Callable[[Tensor], Any]] = {
    "__and__": lambda t: t & 1,
    "__or__": lambda t: t | 1,
    "__xor__": lambda t: t ^ 1,
    "one_hot": lambda t: F.one_hot(t, 30),
}


@pytest.mark.parametrize(("functions", "given"), [(NEW, X), (NEW_OF_INTEGERS, torch.arange(24))])
def test_a_new_tensor_keeps_what_it_was(functions: dict[str, Callable[[Tensor], Any]], given: Tensor) -> None:
    def model(x: Tensor) -> Any:
        y = x + x % 2
        made = [new(y) for new in functions.values()]
        y.add_(1)
        return [y, *(each * 1 for each in made)]

    nodes = assert_followed(model, given).graph.nodes
    assert functions.keys() <= {base_name(node.target) for node in nodes if isinstance(node.target, OpOverload)}


UNCERTAIN: dict[str, Callable[[Tensor], Any]] = {
    "reshape": lambda t: t.reshape(4, 6),
    "flatten": lambda t: t.flatten(),
    "contiguous": lambda t: t.transpose(0, 1).contiguous(),
    "to": lambda t: torch.ops.aten.to.dtype(t, torch.float32),
    "type_as": lambda t: t.type_as(t + 1),
    "_unsafe_view": lambda t: torch.ops.aten._unsafe_view.default(t, [6, 4]),
    "_reshape_copy": lambda t: torch.ops.aten._reshape_copy.default(t, [6, 4]),
    "copy": lambda t: torch.ops.aten.copy.default(t, t),
    "dequantize": lambda t: torch.ops.aten.dequantize.self(t),
    "lift": lambda t: torch.ops.aten.lift.default(t),
    "set": lambda t: torch.ops.aten.set.source_Tensor(t, t),
    "unsafe_split": lambda t: torch.ops.aten.unsafe_split.Tensor(t, 2, 2)[0],
    "unsafe_split_with_sizes": lambda t: torch.ops.aten.unsafe_split_with_sizes.default(t, [1, 3], 2)[1],
}
"""Operators that may return their argument, a view of it or a copy."""


@pytest.mark.parametrize("name", UNCERTAIN)
def test_what_may_share_memory_is_not_read_after_a_write(name: str) -> None:
    uncertain = UNCERTAIN[name]

    def read_later(x: Tensor) -> Any:
        y = x * 2
        view = y.view(-1)
        other = uncertain(y)
        view.add_(1)
        return other * 1

    def written(x: Tensor) -> Any:
        y = x * 2
        view = y.view(-1)
        uncertain(y).add_(1)
        return view * 1

    def read_before(x: Tensor) -> Any:
        y = x * 2
        total = uncertain(y).sum()
        y.add_(total)
        return y

    assert_refused(read_later, X)
    assert_refused(written, X)
    assert_followed(read_before, X)


def test_memory_that_may_be_shared_is_shared_by_all() -> None:
    """What may share memory with what may share memory may share it, too; so may two parts of one tensor."""

    def chain(x: Tensor) -> Any:
        y = x * 2
        last = y.reshape(4, 6).reshape(-1).flatten()
        y.add_(1)
        return last * 1

    def brothers(x: Tensor) -> Any:
        y = x * 2
        first, second = y.reshape(4, 6), y.reshape(-1)
        first.add_(1)
        return second * 1

    def parts(x: Tensor) -> Any:
        first, second = torch.ops.aten.unsafe_split.Tensor(x * 2, 2, 2)
        first.add_(1)
        return second * 1

    def view_of_it(x: Tensor) -> Any:
        y = x * 2
        part = y.reshape(4, 6)[0]
        y[1].add_(1)
        return part * 1

    def several(x: Tensor) -> Any:
        y = x * 2
        a, b, c = y.reshape(-1), y.reshape(4, 6), y.contiguous()
        b.add_(1)
        return a.sum() + c.sum()

    for model in (chain, brothers, parts, view_of_it, several):
        assert_refused(model, X)

    def apart(x: Tensor) -> Any:
        y, z = x * 2, x * 3
        other = z.reshape(-1)
        y.reshape(-1).add_(1)
        return other + 1, z

    assert_followed(apart, X)


# ---- writes --------------------------------------------------------------------------------------

WRITES: dict[str, Model] = {
    "another element type": lambda y: y.copy_(torch.ones(4, dtype=torch.int64)),
    "a broadcast copy": lambda y: y.copy_(y[:, :1].clone()),
    "a copy of the same shape": lambda y: y.copy_(y.flip(0)),
    "a number": lambda y: y.fill_(2.5),
    "a comparison": lambda y: y.gt_(0),
    "a logical op": lambda y: y.logical_not_(),
    "a product with a number that changes later": lambda y: y.mul_(y.sum()),
    "a broadcast operand": lambda y: y.add_(torch.arange(4.0), alpha=2),
    "a larger element type": lambda y: y.add_(torch.ones(4).double()),
    "positions": lambda y: y.index_put_((torch.tensor([0]),), torch.tensor(3.0), accumulate=True),
    "in-place functions": lambda y: F.relu(F.hardtanh(y, inplace=True), inplace=True),
    "two writes": lambda y: y.add_(1).mul_(2),
    "swapped operands": lambda y: torch.sub(1, y).sub_(y),
    "detached": lambda y: y.detach_(),
    "a dropout that is off": lambda y: F.dropout(y, training=False, inplace=True),
    "an integer division": lambda y: y.floor_divide_(2),
    "a remainder": lambda y: y.remainder_(2),
    "a power": lambda y: y.pow_(2),
    "zero": lambda y: y.zero_(),
    "clamping": lambda y: y.clamp_(min=0),
    "a dropout of features that is off": lambda y: torch.feature_dropout_(y, 0.5, False),
    "an alpha dropout that is off": lambda y: torch.alpha_dropout_(y, 0.5, False),
    "an alpha dropout of features that is off": lambda y: torch.feature_alpha_dropout_(y, 0.5, False),
    "an integer copy that is broadcast": lambda y: y.copy_(torch.arange(4)),
    "operands of one element type, then of two": lambda y: torch.stack(
        [y.half().add_(y.half()).float(), y.half().add_(y).float()]
    ),
    "a running sum": lambda y: y.cumsum_(1),
}


@pytest.mark.parametrize("name", WRITES)
def test_what_a_write_gives(name: str) -> None:
    def model(x: Tensor) -> Any:
        y = x * 2
        before = y + 0
        returned = WRITES[name](y)
        return before, y, returned * 1

    assert_followed(model, X)


@pytest.mark.parametrize("name", ["dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout"])
def test_a_dropout_in_training_is_refused(name: str) -> None:
    def model(x: Tensor) -> Any:
        y = x * 2
        getattr(torch, f"{name}_")(y, 0.5, True)
        return y

    assert_refused(model, X, match="not known which value the op writes")


def test_a_write_that_would_change_the_shape_or_is_not_known_is_refused() -> None:
    def two_writes(x: Tensor) -> Any:
        y = x * 2
        torch.ops.aten.rrelu_with_noise_(y, torch.zeros_like(y))
        return y

    assert_refused(two_writes, X, match="not known which value the op writes")


def test_several_results() -> None:
    def model(x: Tensor) -> Any:
        y = x * 2
        first, second = y.split(2, -1)
        first.add_(1)
        second.mul_(first)
        values, places = y.max(-1)
        y.sub_(values[..., None])
        return first, second, y, values, places

    def read_after_write(x: Tensor) -> Any:
        y = x * 2
        parts = y.split(2, -1)
        y.add_(1)
        return parts[0] * 1

    assert_followed(model, X)
    assert_followed(read_after_write, X)


def test_contents_of_inputs_that_are_written() -> None:
    def model(x: Tensor, y: Tensor, z: Tensor) -> Any:
        z[0].add_(1)
        return x * y, z[0] * 2

    program = exported(model, X, X, X)
    names = [spec.arg.name for spec in program.graph_signature.input_specs]
    assert list(made(program).written) == names[2:]
    assert_followed(model, X, X, X)
    with pytest.raises(NotFollowedError, match="shares memory with another"):
        made(program, (names[2],))
    assert list(made(program, (names[0],)).written) == names[2:]


def test_a_constant_that_is_written_is_refused() -> None:
    constant = torch.ones(4)

    def model(x: Tensor) -> Any:
        constant.add_(1)
        return x + constant

    program = exported(model, X)
    kinds = {spec.arg.name: spec.kind for spec in program.graph_signature.input_specs}
    with pytest.raises(NotFollowedError, match="may change the constant or parameter"):
        Functional(program.graph, kinds, ())


def test_unused_copies_are_left_out() -> None:
    def model(x: Tensor) -> Any:
        y = x * 2
        y[0].add_(1)
        y[1].add_(1)
        return y[1] * 1

    graph = assert_followed(model, X).graph
    assert all(node.users or node.op in ("placeholder", "output") or "_again" not in node.name for node in graph.nodes)
    assert [node.target for node in graph.nodes].count(operator.getitem) == 0
