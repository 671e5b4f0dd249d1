"""Checks of blocks, the order of definitions, terminators, graphs, calls, control flow and regions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from patcomp.errors import VerifyError
from patcomp.ir.aten import AtenOp
from patcomp.ir.attributes import CompositeDeclarationAttr, SymbolConstantAttr
from patcomp.ir.coreai_op import CoreaiOp
from patcomp.ir.coreai_table import ROWS
from patcomp.ir.module import IRModule, graph_name
from patcomp.ir.region import RegionOp
from patcomp.ir.types import HandleType, TokenType
from patcomp.ir.verify.arguments import argument_problems
from patcomp.ir.verify.hazards import OfTheModel, hazards
from patcomp.ir.verify.run import VerifierRun
from patcomp.ir.verify.signatures import SignatureChecker
from patcomp.ir.xdsl import (
    ArrayAttr,
    Attribute,
    Block,
    DictionaryAttr,
    FunctionType,
    Operation,
    Region,
    SSAValue,
    StringAttr,
    VerifyException,
)

_TERMINATORS = {
    **{row.op_name: tuple(f"coreai.{terminator}" for _, terminator in row.regions) for row in ROWS if row.regions},
    "patcomp.region": ("coreai.yield",),
}
"""The terminator of each region of the ops that have regions."""

_MEND_INDICES = "PyTorch raises an error where it runs this op; give it indices inside of the dimension"

_ENDS = {row.op_name for row in ROWS if row.terminator}

_ISOLATED = {*(row.op_name for row in ROWS if row.isolated), "patcomp.region"}
"""Ops whose regions use no value from outside."""

_TOP_LEVEL = {row.op_name for row in ROWS if row.top_level}


def verify(module: IRModule, *, runtime: bool = True, finished: bool = True) -> None:
    """Check a module of any stage; `aten` and `coreai` ops may be mixed.

    Args:
        module: the module, with the weights that its text names.
        runtime: also refuse well-formed IR that aborts or gives wrong numbers when it is saved, loaded or run.
        finished: whether no stage follows, so that what the last one mends for the runtime must be in order.

    Raises:
        VerifyError: there are problems; its `problems` lists all of them.
    """
    verification = VerifierRun(module, runtime, finished)
    _StructureChecker(verification).module()
    if verification.problems:
        count = len(verification.problems)
        raise VerifyError(f"the IR has {count} problem{'s' if count > 1 else ''}", verification.problems)


class _StructureChecker:
    def __init__(self, verification: VerifierRun):
        self.verification = verification
        self.signatures = SignatureChecker(verification)
        self.calls: dict[str, dict[str, Operation]] = {}
        """Which graph calls which, with the first invoke."""
        self.hazards = hazards(finished=verification.finished) if verification.runtime else {}

    def module(self) -> None:
        verification = self.verification
        graphs = []
        for op in verification.module.op.body.block.ops:
            if op.name not in _TOP_LEVEL:
                verification.add(op, "cannot stand outside a graph")
            elif op.name == "coreai.graph":
                if not isinstance(op.properties.get("sym_name"), StringAttr):
                    verification.add(op, "its `sym_name` must be a string")
                    continue
                if graph_name(op) in verification.graphs:
                    verification.add(op, f"there are two graphs named @{graph_name(op)}")
                verification.graphs[graph_name(op)] = op
                graphs.append(op)
            elif isinstance(op, CoreaiOp):
                self.signatures.check(op)
        for graph in graphs:
            self.graph(graph)
        verification.graph = ""
        self._recursion()

    def graph(self, graph: Operation) -> None:
        verification = self.verification
        assert isinstance(graph, CoreaiOp)
        verification.graph = graph_name(graph)
        self.calls.setdefault(verification.graph, {})
        if not self.signatures.check(graph):
            return
        problems = list(_graph_problems(graph))
        for problem in problems:
            verification.add(graph, problem)
        self.regions(graph, set())
        if not problems:
            self.runtime(graph)

    def regions(self, op: Operation, visible: set[SSAValue]) -> None:
        """Check the regions of an op. Ops inside may use the values in `visible`."""
        expected = _TERMINATORS.get(op.name, ())
        for region, terminator in zip(op.regions, expected, strict=False):
            blocks = list(region.blocks)
            if len(blocks) > 1:
                self.verification.add(op, f"a region has one block, but this one has {len(blocks)}")
            for block in blocks:
                if block.last_op is None or block.last_op.name != terminator:
                    last = block.last_op.name if block.last_op else "nothing"
                    self.verification.add(op, f"its block must end in {terminator}, but ends in {last}")
                self.block(block, set() if op.name in _ISOLATED else visible)
        if op.name != "coreai.graph":
            for problem in _edge_problems(op):
                self.verification.add(op, problem)

    def block(self, block: Block, visible: set[SSAValue]) -> None:
        """Check the ops of a block. `visible` has the same values afterwards."""
        defined: list[SSAValue] = list(block.args)
        visible.update(defined)
        last = block.last_op
        for op in block.ops:
            if not visible.issuperset(op.operands):
                for operand in op.operands:
                    if operand not in visible:
                        self.verification.add(op, _invisible(operand, op))
            self.op(op)
            if op is not last and op.name in _ENDS:
                self.verification.add(op, "ends a block, but ops follow it")
            if op.regions:
                self.regions(op, visible)
            defined += op.results
            visible.update(op.results)
        visible.difference_update(defined)

    def op(self, op: Operation) -> None:
        """Check one op without its regions."""
        verification = self.verification
        if isinstance(op, CoreaiOp):
            if op.name in _TOP_LEVEL:
                verification.add(op, "cannot stand inside a graph")
            elif self.signatures.check(op):
                if op.name == "coreai.invoke":
                    self._invoke(op)
                self.runtime(op)
        elif isinstance(op, AtenOp):
            for problem in argument_problems(op):
                verification.add(op, problem)
        else:
            try:
                op.verify(verify_nested_ops=False)
            except VerifyException as error:
                # xDSL appends the whole module to the message; its first line is the reason
                verification.add(op, str(error).strip().splitlines()[0])
            if isinstance(op, RegionOp):
                self._region(op)
            if verification.runtime and op.name.startswith("builtin."):
                verification.add(op, "an asset has no form for this op, so it cannot be saved")

    def runtime(self, op: CoreaiOp) -> None:
        """Report what would happen to an op with correct types when it is saved, loaded or run."""
        for hazard in self.hazards.get(op.name, ()):
            for problem in hazard(op, self.verification.module):
                self.verification.add(op, problem, _MEND_INDICES if isinstance(problem, OfTheModel) else "")

    def _invoke(self, op: CoreaiOp) -> None:
        callee = op.properties["callee"]
        if not isinstance(callee, SymbolConstantAttr):
            self.verification.add(op, f"its callee must be a symbol, but is {callee}")
            return
        self._call(op, callee.symbol.string_value())

    def _region(self, region: RegionOp) -> None:
        """Check that a region has a body, its own or that of a graph."""
        if (region.graph is None) != bool(region.regions):
            what = "lacks its body" if region.graph is None else f"has a body besides that of {region.graph}"
            self.verification.add(region, what)
        elif region.graph is not None:
            self._call(region, region.graph.string_value())

    def _call(self, op: Operation, name: str) -> None:
        graph = self.verification.graphs.get(name)
        if graph is None:
            self.verification.add(op, f"there is no graph @{name}")
            return
        self.calls[self.verification.graph].setdefault(name, op)
        signature = graph.properties.get("function_type")
        given = tuple(value.type for value in op.operands), tuple(value.type for value in op.results)
        if not isinstance(signature, FunctionType) or (signature.inputs.data, signature.outputs.data) != given:
            self.verification.add(op, f"@{name} has the signature {signature}, which must be met exactly")

    def _recursion(self) -> None:
        """Report graphs that call themselves, directly or through others."""
        try:
            TopologicalSorter(self.calls).prepare()
        except CycleError:
            for cycle in _cycles(self.calls):
                listed = " -> ".join(f"@{name}" for name in (*cycle, cycle[0]))
                self.verification.add(self.calls[cycle[-1]][cycle[0]], f"graphs call one another in a circle: {listed}")


def _cycles(calls: Mapping[str, Iterable[str]]) -> Iterator[list[str]]:
    """A circle of calls in each set of graphs that all call one another."""
    import networkx as nx  # not needed for correct modules, and slow to import

    directed = nx.DiGraph({caller: list(called) for caller, called in calls.items()})
    for together in nx.strongly_connected_components(directed):
        first = next(name for name in directed if name in together)
        if len(together) > 1 or directed.has_edge(first, first):
            yield [caller for caller, _ in nx.find_cycle(directed.subgraph(together), first)]


def _invisible(value: SSAValue, user: Operation) -> str:
    """Why a value cannot be used by an op."""
    position = list(user.operands).index(value)
    owner = value.owner
    block = owner if isinstance(owner, Block) else owner.parent_block()
    if block is not None and block is user.parent_block():
        return f"operand {position} is used before it is defined"
    what = "a block argument" if isinstance(owner, Block) else f"a result of {owner.name}"
    return f"operand {position}, {what}, is not visible here: it belongs to another region, or to an op that was erased"


def _types(values: Sequence[SSAValue]) -> list[Attribute]:
    return [value.type for value in values]


# ---- graphs ---------------------------------------------------------------------------------------


def _graph_problems(graph: CoreaiOp) -> Iterator[str]:
    properties = graph.properties
    signature = properties["function_type"]
    if not isinstance(signature, FunctionType):
        yield f"function_type must be a function type, but is {signature}"
        return
    private, externalize = "priv" in properties, "externalize" in properties
    if private and externalize:
        yield "cannot be both private and externalize"
    inputs, outputs = list(signature.inputs), list(signature.outputs)
    blocks = graph.regions[0].blocks
    if not blocks and not private:
        yield "only a private graph may lack a body"
    if blocks:
        block = graph.regions[0].blocks[0]
        if _types(block.args) != inputs:
            yield f"its block takes ({_listed(_types(block.args))}), but its signature ({_listed(inputs)})"
        if block.last_op is not None and block.last_op.name == "coreai.output":
            given = _types(block.last_op.operands)
            if given != outputs:
                yield f"its output has the types ({_listed(given)}), but its signature ({_listed(outputs)})"
    for name, count in (("arg_attrs", len(inputs)), ("res_attrs", len(outputs))):
        yield from _dictionary_problems(properties.get(name), name, count)
    handles = sum(isinstance(type_, HandleType) for type_ in inputs)
    tokens = sum(isinstance(type_, TokenType) for type_ in outputs)
    if handles != tokens:
        yield f"must return one token for each handle it takes, but takes {handles} handles and returns {tokens} tokens"
    declaration = properties.get("composite_decl")
    if declaration is not None:
        yield from _declaration_problems(declaration, len(inputs), len(outputs))


def _dictionary_problems(array: Attribute | None, name: str, count: int) -> Iterator[str]:
    if array is None:
        return
    if not isinstance(array, ArrayAttr) or not all(isinstance(entry, DictionaryAttr) for entry in array.data):
        yield f"`{name}` must be a list of dictionaries, but is {array}"
        return
    if len(array.data) != count:
        yield f"`{name}` has {len(array.data)} entries for {count} values"
    for entry in array.data:
        for key in entry.data:
            if "." not in key:
                yield f"`{name}` has the key `{key}`, which lacks a dialect's prefix"


def _declaration_problems(declaration: Attribute, inputs: int, outputs: int) -> Iterator[str]:
    """What is wrong with a declaration. Further input names are not: those of coreai-torch list the parameters of an
    externalized module before its arguments."""
    if not isinstance(declaration, CompositeDeclarationAttr):
        yield f"composite_decl must be a #{CompositeDeclarationAttr.name}, but is {declaration}"
        return
    for key, count, what in (("input_names", inputs, "arguments"), ("output_names", outputs, "results")):
        names = declaration.fields.data.get(key)
        if names is None:
            continue
        if not isinstance(names, ArrayAttr) or not all(isinstance(name, StringAttr) for name in names.data):
            yield f"{key} of the composite {declaration.composite_name.data} must be a list of strings"
        elif len(names.data) < count or (key == "output_names" and len(names.data) > count):
            listed = [name.data for name in names.data]
            yield f"{key} of the composite {declaration.composite_name.data} are {listed}, but there are {count} {what}"


# ---- ops with regions -----------------------------------------------------------------------------


def _edge_problems(op: Operation) -> Iterator[str]:
    """Types that differ between an op and the arguments or terminators of its regions."""
    operands, results = _types(op.operands), _types(op.results)
    if op.name == "coreai.if":
        for region, which in zip(op.regions, ("then", "else"), strict=False):
            if region.blocks:
                yield from _edge(_yielded(region), results, f"the {which} branch yields", "the results are")
            elif results or which == "then":
                yield f"lacks its {which} branch"
    elif op.name == "coreai.while":
        before, after = op.regions
        if not before.blocks or not after.blocks:
            yield "lacks a region"
            return
        yield from _edge(operands, _types(before.block.args), "the initial values are", "the first region takes")
        forwarded = (_yielded(before) or [])[1:]
        yield from _edge(forwarded, _types(after.block.args), "the condition forwards", "the second region takes")
        yield from _edge(forwarded, results, "the condition forwards", "the results are")
        yield from _edge(
            _yielded(after), _types(before.block.args), "the second region yields", "the first region takes"
        )
    elif op.name in ("patcomp.region", "coreai.isolated_group"):
        if not op.regions[0].blocks:
            yield "lacks its body"
            return
        yield from _edge(operands, _types(op.regions[0].block.args), "the operands are", "the body takes")
        yield from _edge(_yielded(op.regions[0]), results, "the body yields", "the results are")
        if isinstance(op, RegionOp):
            if len(op.argument_names.data) != len(operands):
                yield f"has {len(op.argument_names.data)} argument names for {len(operands)} operands"
            if op.declaration is not None:
                yield from _declaration_problems(op.declaration, len(operands), len(results))


def _yielded(region: Region) -> list[Attribute] | None:
    last = region.blocks[0].last_op
    return _types(last.operands) if last is not None and last.name in _ENDS else None


def _edge(source: list[Attribute] | None, target: list[Attribute], source_text: str, target_text: str) -> Iterator[str]:
    if source is not None and source != target:
        yield f"{source_text} ({_listed(source)}), but {target_text} ({_listed(target)})"


def _listed(types: Sequence[Attribute]) -> str:
    return ", ".join(map(str, types))
