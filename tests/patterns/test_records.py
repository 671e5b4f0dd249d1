"""What rules, rule sets, targets and runs say of themselves."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from patcomp.entry_points import _changed
from patcomp.errors import Problem, RuleError
from patcomp.ir import aten, tensor
from patcomp.ir.composite import composite
from patcomp.ir.locations import Origin, origin_location
from patcomp.ir.namespaces import aten_namespace
from patcomp.patterns import ANY, Context, Rejected, Rewrite, RuleSet, any_of, rule, run
from patcomp.patterns.expressions import Tag
from patcomp.patterns.index import Index
from patcomp.patterns.installed_catalogs import versions_of
from patcomp.patterns.pattern import largest, pattern_nodes
from patcomp.patterns.stage import Stage
from patcomp.patterns.statistics import Overlap, Record, Statistics
from patcomp.patterns.targets import CompositeTable, OpCall, build, target_parts
from patcomp.patterns.user_catalogs import module_of
from tests.patterns.graphs import CALLS, MATRIX, TABLE, Graph, declare, match

# ---- statistics ----------------------------------------------------------------------------------


def of_one_run(name: str, seconds: float) -> Statistics:
    found = Statistics()
    found.record(name, True, seconds)
    found.record(name, False, seconds)
    found.record("other", False, 0.5)
    found.records.append(Record(name, origin_location(Origin(name, "", "", 0))))
    found.overlaps.append(Overlap(name, "other", "here"))
    found.exhausted["other"] += 2
    found.failures[name] = Problem(f"{name} in a run of {seconds} s")
    found.sweeps = 3
    return found


def test_statistics_of_several_runs() -> None:
    total = of_one_run("rule", 1.0)
    assert [(entry.tries, entry.rewrites, entry.seconds) for entry in total.rules.values()] == [
        (2, 1, 2.0),
        (1, 0, 0.5),
    ]
    total.add(of_one_run("rule", 2.0))
    total.add(of_one_run("third", 4.0))
    assert list(total.rules) == ["rule", "other", "third"]
    counts = [(entry.tries, entry.rewrites, entry.seconds) for entry in total.rules.values()]
    assert counts == [(4, 2, 6.0), (3, 0, 1.5), (2, 1, 8.0)]
    assert total.rewrites == 3
    assert total.fired == {"rule": 2, "third": 1}
    assert [record.rule for record in total.records] == ["rule", "rule", "third"]
    assert len(total.overlaps) == 3
    assert total.exhausted == {"other": 6}
    assert {name: problem.message for name, problem in total.failures.items()} == {
        "rule": "rule in a run of 1.0 s",
        "third": "third in a run of 4.0 s",
    }
    assert total.sweeps == 9


def test_statistics_of_a_run() -> None:
    opened = declare(lambda a, c, x: Rewrite(a.exp(x), to=c.made(x)), name="opened")
    g = Graph()
    g.use(g.exp(g.inputs[0]), g.exp(g.inputs[1]), g.neg(g.inputs[0]))
    found = run(g.block, RuleSet([opened]), Context(namespace=TABLE))
    assert (found.rules["opened"].tries, found.rewrites, found.sweeps) == (2, 2, 2)
    assert found.rules["opened"].seconds > 0


# ---- rules and patterns --------------------------------------------------------------------------


def _never(op: Any, c: Any) -> None:
    return None


def test_which_patterns_are_local() -> None:
    sources = {
        "an op": lambda a, x: a.exp(x),
        "a number": lambda a, x: x * 2.0,
        "two ops": lambda a, x: a.exp(a.neg(x)),
        "one of several results": lambda a, x: a.op("max.dim", x, dim=1, keepdim=ANY)[0],
        "alternatives": lambda a, x: any_of(a.exp(x), a.neg(x)),
        "an alternative of two ops": lambda a, x: any_of(a.exp(x), a.neg(a.exp(x))),
        "an alternative with several results": lambda a, x: any_of(a.exp(x), a.op("max.dim", x, dim=1, keepdim=ANY)[1]),
        "an inner result": lambda a, x: a.exp(a.op("max.dim", x, dim=1, keepdim=ANY)[1]),
    }
    found = {name: declare(_of(make), name="r").graph.is_local for name, make in sources.items()}
    assert {name for name, local in found.items() if local} == {"an op", "a number", "alternatives"}
    tagged = declare(
        lambda a, c, x: Rewrite(any_of(a.exp(x), a.neg(x), tag="t"), to=c.made(x), where=[Tag("t") == 0]), name="r"
    )
    assert not tagged.graph.is_local


def _of(make: Any) -> Any:
    return lambda a, c, x: Rewrite(make(a, x), to=c.made(x))


def test_sizes_count_the_largest_alternative_and_shared_ops_once() -> None:
    @declare
    def shared(a, c, x):
        e = a.exp(x)
        return Rewrite(any_of(a.neg(e), a.relu(e * any_of(a.sin(e), a.cos(a.cos(e))))), to=c.made(x))

    assert shared.size == 5
    assert len(largest(shared.graph.root)) == 5
    assert shared.ops == ("aten.neg", "aten.relu")
    nodes = list(pattern_nodes(shared.graph.root))
    assert len({id(node) for node in nodes}) == len(nodes) == 10


def test_tags_of_one_name_are_refused() -> None:
    def twice(a: Any, c: Any, x: Any) -> Rewrite:
        inner = any_of(a.exp(x), x, tag="t")
        return Rewrite(a.relu(any_of(a.neg(inner), inner, tag="t")), to=c.made(x))

    with pytest.raises(RuleError, match="two any_of have the same tag="):
        declare(twice)


# ---- stages, targets, catalogs -------------------------------------------------------------------


def test_names_of_stages() -> None:
    assert [Stage.of_rewrites(name) for name in ("recover", "lower")] == [Stage.RECOVER, Stage.LOWER]
    with pytest.raises(RuleError, match=r"did you mean 'recover'\? the stages with rules are"):
        Stage.of_rewrites("recovery")
    with pytest.raises(RuleError, match="no stage 'zzz' runs rules; the stages with rules are normalize, recover"):
        Stage.of_rewrites("zzz")
    with pytest.raises(RuleError, match="decompositions only"):
        Stage.of_rewrites("decompose")


def test_the_parts_of_a_target() -> None:
    @declare
    def parts(a, c, x, y):
        inner = c.op("made", y, kept={"a": [x.rank]})
        return Rewrite(a.exp(x * y), to=[c.made(inner[0], inner[1])])

    calls = list(parts.target_calls())
    assert [(type(each), each.name) for each in calls][:2] == [(OpCall, "test.made")] * 2
    assert {str(each) for each in target_parts(parts.to)} >= {"x.rank", "y"}


def test_a_composite_is_defined_again_by_its_own_file_only() -> None:
    table = CompositeTable("mine")

    @composite("first", inputs=("x",))
    def first(c: Any, x: Any) -> Any:
        return x

    table.define(first)
    table.define(first)
    other = _from_file("elsewhere.py", "first")
    with pytest.raises(RuleError, match="mine already has 'first'"):
        table.define(other)
    table.define(_from_file("one.py", "third"))
    with pytest.raises(RuleError, match=r"mine already has 'third', defined in one\.py"):
        table.define(_from_file("two.py", "third"))
    assert list(table.names()) == ["first", "third"]
    notebook = CompositeTable("notebook")
    for cell in ("cell 1", "cell 2"):
        notebook.define(_from_file(cell, "first", module="__main__"))
    defined = notebook.spec("first")
    assert defined is not None
    assert defined.body.__code__.co_filename == "cell 2"
    with pytest.raises(RuleError, match="notebook already has 'first', defined in __main__"):
        notebook.define(other)


def _from_file(file: str, name: str, module: str = "a_module") -> Any:
    scope: dict[str, Any] = {"__name__": module}
    exec(compile(f"def {name}(c, x):\n    return x", file, "exec"), scope)
    return composite(name, inputs=("x",))(scope[name])


def test_versions_of_catalogs(monkeypatch: pytest.MonkeyPatch) -> None:
    with_version, without = ModuleType("mine.inner"), ModuleType("pytest.inner")
    with_version.__version__ = "1.5"  # type: ignore[attr-defined]
    found = versions_of([with_version, without, ModuleType("nowhere"), RuleSet([])], installed=False)
    assert found == {"mine": "1.5", "pytest": pytest.__version__, "nowhere": ""}
    assert module_of(_never) == __name__
    monkeypatch.chdir(sys.prefix)
    assert _changed("") == _changed(".") == _changed(sys.prefix) != 0
    assert _changed("/there is no such folder") == 0


# ---- replacements --------------------------------------------------------------------------------


def _scaled(x: Any, y: Any, factor: int, parts: list[Any]) -> Any:
    """What `build` calls in the tests: the part of x that is chosen by a number that is no tensor."""
    if factor == 3:
        raise Rejected("three is too many")
    BUILT.append((factor, parts))
    return aten.exp(y.type, x)


BUILT: list[Any] = []


def test_a_target_is_built_by_a_function() -> None:
    @rule(into=aten_namespace, name="built")
    def built(a, c, x):
        result = a.relu(x)
        return Rewrite(result, to=c.neg(build(_scaled, x, result, x.shape[0], parts=[x.rank, {"x": x}])))

    g, other = Graph([MATRIX]), Graph([tensor((3, 8), "f32")])
    g.use(g.relu(g.inputs[0]))
    other.use(other.relu(other.inputs[0], types=[tensor((3, 8), "f32")]))
    run(g.block, RuleSet([built]))
    assert g.names[:2] == ["aten.exp", "aten.neg"]
    assert [(2, [2, {"x": g.inputs[0]}])] == BUILT
    assert run(other.block, RuleSet([built])).fired == {}
    assert [call.function for call in built.target_calls()] == [None, _scaled]


def test_an_op_that_is_only_seen_stays_and_gives_no_location() -> None:
    seen = declare(lambda a, c, x: Rewrite(a.exp(a.seen(a.relu(x))), to=c.made(x)), name="seen")
    g = Graph()
    y = g.relu(g.inputs[0])
    g.use(g.exp(y), y)
    found = match(seen, g.block.last_op.operands[0].owner)
    assert found is not None
    assert [op.name for op in found.covered] == ["aten.exp"]
    assert [op.name for op in found.ops] == ["aten.exp", "aten.relu"]
    run(g.block, RuleSet([seen]))
    assert g.names == ["aten.relu", "builtin.unrealized_conversion_cast", "builtin.unrealized_conversion_cast"]


def test_what_build_takes() -> None:
    with pytest.raises(RuleError, match="build takes a Python function and its arguments, got 3"):
        build(3)
    with pytest.raises(RuleError, match="build takes a Python function"):
        build(composite("some", inputs=("x",))(_never))


def test_the_parts_of_a_target_are_evaluated() -> None:
    kept = declare(
        lambda a, c, x: Rewrite(a.exp(x), to=[c.made(x, shown={"rank": x.rank, "sizes": (x.shape[0], 1)})]), name="kept"
    )
    assert kept.unspecified == {}
    other = tensor((3, 5), "f32")
    g = Graph([other])
    value = g.exp(g.inputs[0], types=[other])
    g.use(value)
    run(g.block, RuleSet([kept]), Context(namespace=TABLE))
    assert CALLS[-1] == {"shown": {"rank": 2, "sizes": (3, 1)}}
    assert g.block.first_op.results[0].type == other


def test_alternatives_know_their_namespace() -> None:
    negative = declare(lambda a, c, x: Rewrite(-any_of(2.0, a.exp(x)), to=c.made()), name="negative")
    g = Graph()
    value = g.neg(g.exp(g.inputs[0]))
    assert match(negative, value) is not None
    assert match(negative, g.neg(g.inputs[0])) is None


def test_a_state_depends_on_which_optional_operand_is_there() -> None:
    weighted = declare(
        lambda a, c, x, w: Rewrite(a.native_layer_norm(a.exp(x), ANY, w, None, eps=ANY)[0], to=c.made(x, w)), name="w"
    )
    biased = declare(
        lambda a, c, x, b: Rewrite(a.native_layer_norm(a.exp(x), ANY, None, b, eps=ANY)[0], to=c.made(x, b)), name="b"
    )
    index = Index(RuleSet([weighted, biased]))
    for has_weight in (True, False, True):
        g = Graph()
        e, w = g.exp(g.inputs[0]), g.inputs[1]
        given = (w, None) if has_weight else (None, w)
        norm = g.native_layer_norm(e, [8], *given, 1e-5, types=[MATRIX] * 3)
        sweep = index.sweep()
        found = [sweep.visit(op) for op in (e.ssa.owner, norm[0].ssa.owner)][-1]
        assert found == (weighted if has_weight else biased,)
