"""Broken graphs of `ExportedProgram`, given to the converter."""

from __future__ import annotations

import copy
import operator
import warnings
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from patcomp import TorchConverter
from tests.hostile.judge import Case
from tests.hostile.mutation import name

Programs = dict[str, ExportedProgram]


class Block(nn.Module):
    """A norm, an attention and a feed-forward part, with weights that are not in the text."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.query = nn.Linear(16, 48)
        self.out = nn.Linear(16, 16, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.query(self.norm(x)).view(2, -1, 3, 4, 4).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        return x + nn.functional.gelu(self.out(y.transpose(1, 2).flatten(2)))


class Convolution(nn.Module):
    """Convolution, pooling, indexing and an integer result."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        y = nn.functional.max_pool2d(torch.relu(self.norm(self.conv(x))), 2)
        return y.flatten(1)[:, index], y.argmax(1)


class Counter(nn.Module):
    """A state, a branch and a loop."""

    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        self.count.add_(x.sum(0))
        y = torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x * 2, (x,))
        return y + self.count


def exported_programs() -> Programs:
    """Small programs of different kinds, which are valid."""
    batch = Dim("batch", min=2, max=16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            "block": torch.export.export(Block().eval(), (torch.randn(2, 5, 16),), dynamic_shapes={"x": {1: batch}}),
            "convolution": torch.export.export(
                Convolution().eval(), (torch.randn(1, 3, 8, 8), torch.tensor([0, 3], dtype=torch.int64))
            ),
            "counter": torch.export.export(Counter().eval(), (torch.randn(3, 4),)),
        }


def prepare() -> Programs:
    return exported_programs()


def draw(programs: Programs, random: Random) -> Case:
    if random.random() < 0.04:
        make = random.choice(MADE)
        return Case(partial(_make_and_convert, make, random.getrandbits(32)), b"", make.__name__)
    kind = random.choice(list(programs))
    program = copy.deepcopy(programs[kind])
    made = [random.choice(BROKEN) for _ in range(random.choice((1, 1, 1, 2, 3)))]
    applied = []
    for change in made:
        try:
            change(program, random)
        except Exception:  # PyTorch does not let this program be broken so
            continue
        applied.append(change.__name__)
    data = str(program.graph).encode(errors="surrogatepass")
    return Case(partial(convert, program), data, f"{kind}: {', '.join(applied)}")


def convert(program: ExportedProgram) -> None:
    str(TorchConverter().add_exported_program(program).to_coreai())


def _make_and_convert(make: Callable[[Random], ExportedProgram], seed: int) -> None:
    convert(make(Random(seed)))


# ---- changes of a graph --------------------------------------------------------------------------


def _node(program: ExportedProgram, random: Random, op: str | None = "call_function") -> Any:
    return random.choice([node for node in program.graph.nodes if op is None or node.op == op])


def _replace_argument(node: Any, random: Random, value: Any) -> None:
    place = random.randrange(len(node.args))
    node.args = (*node.args[:place], value, *node.args[place + 1 :])


def odd_argument(program: ExportedProgram, random: Random) -> None:
    odd = (None, -1, 0, 2**31, 2**63 - 1, -(2**63), 2**70, float("nan"), float("inf"), "text", [], [1, 2, 3], {},
           True, 1.5, torch.float8_e4m3fn, torch.complex64, [2**40, 2**40], [-1, -1], torch.device("meta"))  # fmt: skip
    _replace_argument(_node(program, random), random, random.choice(odd))


def odd_keyword(program: ExportedProgram, random: Random) -> None:
    node = _node(program, random)
    key = random.choice((*node.kwargs, "dim", "dtype", "alpha", "out", "no_such", name(random)))
    node.kwargs = {**node.kwargs, key: random.choice((None, 1, 2**63, "text", torch.float64, [0]))}


def cycle(program: ExportedProgram, random: Random) -> None:
    """An op reads a value that is computed after it, or its own."""
    _replace_argument(_node(program, random), random, _node(program, random))


def deep_argument(program: ExportedProgram, random: Random) -> None:
    value: Any = _node(program, random, None)
    for _ in range(random.choice((5, 60))):
        value = [value]
    _replace_argument(_node(program, random), random, value)


def other_operator(program: ExportedProgram, random: Random) -> None:
    _node(program, random).target = random.choice((
        torch.ops.aten.exp.default, torch.ops.aten.add.Tensor, torch.ops.aten.cat.default, operator.getitem, len,
        torch.ops.aten.convolution.default, torch.ops.aten.item.default, torch.ops.aten.nonzero.default, operator.add,
        torch.ops.aten.sym_size.int, torch.ops.higher_order.cond, torch.ops.aten.native_layer_norm.default, "text",
    ))  # fmt: skip


def renamed(program: ExportedProgram, random: Random) -> None:
    node = _node(program, random, random.choice((None, "placeholder")))
    old, new = node.name, name(random)
    node.name = new
    if random.random() < 0.7:
        for spec in (*program.graph_signature.input_specs, *program.graph_signature.output_specs):
            if getattr(spec.arg, "name", None) == old:
                spec.arg.name = new
    if node.op == "placeholder":
        node.target = new


def no_value(program: ExportedProgram, random: Random) -> None:
    node = _node(program, random, None)
    value = random.choice((None, 3, "text", [], torch.ones(2), torch.empty(2**20, 2**20, device="meta")))
    if random.random() < 0.5:
        node.meta.pop("val", None)
    else:
        node.meta["val"] = value


def odd_metadata(program: ExportedProgram, random: Random) -> None:
    node = _node(program, random, None)
    key = random.choice(("nn_module_stack", "stack_trace", "source_fn_stack", "torch_fn", "custom"))
    node.meta[key] = random.choice(
        (None, 3, name(random), {}, {"a": None}, {"a": (name(random), "b")}, [name(random)] * 2)
    )


def deleted(program: ExportedProgram, random: Random) -> None:
    node = _node(program, random)
    node.replace_all_uses_with(_node(program, random, None))
    program.graph.erase_node(node)


def lost_weight(program: ExportedProgram, random: Random) -> None:
    key = random.choice(list(program.state_dict))
    if random.random() < 0.5:
        del program.state_dict[key]
    else:
        program.state_dict[key] = random.choice((
            torch.ones(1).expand(2**40), torch.ones(3), torch.ones(2, dtype=torch.int64), None, 3, "text",
            torch.empty(2**30, device="meta"), torch.ones(2).to_sparse(), torch.ones(0),
        ))  # fmt: skip


def odd_signature(program: ExportedProgram, random: Random) -> None:
    signature = program.graph_signature
    specs: list[Any] = random.choice((signature.input_specs, signature.output_specs))
    match random.randrange(4):
        case 0:
            del specs[random.randrange(len(specs))]
        case 1:
            specs.append(random.choice(specs))
        case 2:
            random.choice(specs).target = random.choice((None, "", name(random), "norm.weight"))
        case _:
            spec = random.choice(specs)
            spec.kind = random.choice(list(type(spec.kind)))


def odd_ranges(program: ExportedProgram, random: Random) -> None:
    from patcomp.pytorch import ValueRanges

    limits = random.choice(((0, 0), (0, 2**62), (5, 5), (1, 1)))
    for symbol in program.range_constraints:
        program.range_constraints[symbol] = ValueRanges(*limits)


BROKEN = (odd_argument, odd_argument, odd_keyword, cycle, deep_argument, other_operator, renamed, no_value,
          odd_metadata, deleted, lost_weight, odd_signature, odd_ranges)  # fmt: skip


# ---- programs that PyTorch exports ---------------------------------------------------------------


class Named(nn.Module):
    """Submodules, weights, inputs and outputs with any names."""

    def __init__(self, random: Random) -> None:
        super().__init__()
        # PyTorch refuses names of attributes that every module has
        drawn = (name(random).replace(".", "_") or "_" for _ in range(3))
        self.names = [f"{each}_" if hasattr(self, each) else each for each in drawn]
        self.add_module(self.names[0], nn.Linear(4, 4))
        self.register_buffer(self.names[1] + "_", torch.ones(4))

    def forward(self, x: dict[str, Tensor]) -> dict[str, Tensor]:
        y = getattr(self, self.names[0])(next(iter(x.values()))) + getattr(self, self.names[1] + "_")
        return {self.names[2]: y, "other": y + 1}


def named(random: Random) -> ExportedProgram:
    return torch.export.export(Named(random), ({name(random): torch.ones(2, 4), name(random) + "2": torch.ones(1)},))


def long(random: Random) -> ExportedProgram:
    """A chain of ops, made without an export, which would take minutes; `README.md` has the time of 10^5 ops."""
    program = exported_programs()["counter"]
    graph, count = program.graph, random.choice((100, 1000, 1000, 5000))
    last = next(iter(node for node in reversed(graph.nodes) if node.op == "call_function"))
    output = next(iter(reversed(graph.nodes)))
    value = last
    with graph.inserting_before(output):
        for _ in range(count):
            value = graph.call_function(torch.ops.aten.sin.default, (value,))
            value.meta.update(last.meta)
    for spec in program.graph_signature.output_specs:
        if spec.arg.name == last.name:
            spec.arg.name = value.name
    output.args = tuple(tuple(value if node is last else node for node in arg) for arg in output.args)
    return program


class Huge(nn.Module):
    """Constants, views and paddings that are far larger than their data."""

    def __init__(self, random: Random) -> None:
        super().__init__()
        self.choice = random.randrange(6)
        self.register_buffer("one", torch.ones(1).expand(2**40) if random.random() < 0.3 else torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        match self.choice:
            case 0:
                return x + torch.full((2**20, 2**20), 1.5)[0, :2]
            case 1:
                return x.expand(2**30, 2**20, 2)[0, 0] + 1
            case 2:
                return torch.nn.functional.pad(x, (0, 2**38))[:2]
            case 3:
                return torch.arange(2**38)[:2] + x
            case 4:
                return (self.one[:1] + x).repeat(2**20)[:2]
            case _:
                return torch.eye(2**18)[0, :2] + x


def huge(random: Random) -> ExportedProgram:
    return torch.export.export(Huge(random), (torch.ones(2),))


MADE = (named, named, long, huge)
