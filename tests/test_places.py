"""How many files an addition touches: each is made to a copy of the packages, and a model then uses all of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.helpers.packages import PACKAGES

ROOT = Path(__file__).parents[1]

LOWERING = {
    "patterns_catalog/lower/elementwise.py": """
from tests.helpers.packages import PACKAGES
from patcomp.authoring import Coreai
from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, lowering


@lowering("places.shift", examples=[example("2x3xf32")])
def shift(op: OpView, c: Coreai) -> Value:
    "Core AI's shift"
    return c.shift(op["x"], direction="up")
"""
}
COMPOSITE = {
    "patterns_catalog/recover/vector_norm.py": """
from typing import Any

from patcomp.authoring import AtenSource, Composites, Coreai
from patcomp.ir.composite import composite
from patcomp.ir.value import Value
from patcomp.patterns import Const, Rewrite, composites, rule


@composites.define
@composite("shifted_ratio", inputs=("input",), attributes=("offset",))
def shifted_ratio(c: Coreai, x: Value, *, offset: float) -> Value:
    "x / (|x| + offset)"
    return c.broadcasting_divide(x, c.broadcasting_add(c.abs(x), offset))


@rule(name="shifted_ratio", example={"x": "2x5xf32", "offset": 1.0})
def recovered_ratio(a: AtenSource, c: Composites, x: Any, offset: Const) -> Rewrite:
    "x / (|x| + offset)"
    return Rewrite(x / (a.abs(x) + offset), to=c.shifted_ratio(x, offset=offset.value))
"""
}
OP = {
    "patcomp/ir/coreai_table.py": """    # an op with an effect and an enumeration
    op("shift[T: F](x: T) -> output: T", "the value plus or minus 1",
       infer="like_first", exact="always", pure=False, properties="direction as to: up|down"),
""",
    "patcomp/evaluate/ops/elementwise.py": """
import torch

from patcomp.evaluate.registry import EvaluatedOp, implements


@implements("coreai.shift")
def shift(op: EvaluatedOp, x: torch.Tensor) -> torch.Tensor:
    return x + (1 if op.attribute("direction") == "up" else -1)
""",
}
OPTIMIZATION = {
    "patterns_catalog/optimize/algebra.py": """
from patcomp.ir.namespaces import coreai_namespace
from patcomp.patterns import Rewrite, rule


@rule(name="root of a square", stage="optimize", source=coreai_namespace, into=coreai_namespace,
      example={"x": "3xf32"})
def root_of_square(s, c, x):
    "sqrt(x * x) -> abs(x)"
    return Rewrite(s.sqrt(x * x), to=c.abs(x))
"""
}
TARGETING = {
    "patterns_catalog/target/vector_norm.py": """
from patcomp.patterns import op_rule


@op_rule("target", "coreai.sqrt", name="root as a power", targets=("cpu",), examples=[
    example("2x3xf32", program=lambda torch, x: x.sqrt()),
])
def root_as_power(op, c):
    "sqrt(x) -> x ** 0.5"
    return c.broadcasting_pow(op.x, 0.5)
"""
}

MODEL = """
import torch
import patcomp

library = torch.library.Library("places", "DEF")
library.define("shift(Tensor x) -> Tensor")
library.impl("shift", lambda x: x + 1, "CompositeExplicitAutograd")
library.impl("shift", torch.empty_like, "Meta")

class Model(torch.nn.Module):
    def forward(self, x):
        y = torch.ops.places.shift(x)
        z = y / (y.abs() + 0.5)
        return torch.sqrt(z * z)

x = torch.randn(2, 3)
program = patcomp.TorchConverter().add_exported_program(torch.export.export(Model(), (x,))).to_coreai()
text = program.text()
print(text)
assert dict(program.composites) == {"shifted_ratio": 1}, program.composites
assert text.count("coreai.shift %x to = <up>") == 1 and "coreai.sqrt" not in text
assert patcomp.ir.IRModule.parse(text).text() == text
torch.testing.assert_close(program.run(x), Model()(x))
converter = patcomp.TorchConverter().add_exported_program(torch.export.export(Model(), (x,)))
rewritten, other = (converter.to_coreai(target=name) for name in ("cpu", "gpu"))
assert "broadcasting_pow" in rewritten.text() and "broadcasting_pow" not in other.text(), rewritten
torch.testing.assert_close(rewritten.run(x), Model()(x))
"""

ACTIVATION = {
    "patcomp/ir/coreai_table.py": """    op("softsign[T: F](x: T) -> output: T", "x / (1 + |x|)",
       infer="like_first", trait="Activation", stored="20260204"),
""",
    "patcomp/evaluate/ops/elementwise.py": """

@implements("coreai.softsign")
def softsign(op: EvaluatedOp, x: torch.Tensor) -> torch.Tensor:
    return x / (1 + x.abs())
""",
}

REWRITES = """
from patcomp.emit.stored.loading import loaded_module
from patcomp.emit.stored.storing import stored_program
from patcomp.ir import coreai as c
from patcomp.rewrites import Options
from patcomp.rewrites.folding import fold_constants
from patcomp.rewrites.optimize import optimize
from patcomp.rewrites.target.transposes import carry_transposes
from patterns_catalog import default_rules
from tests.helpers.programs import program

def left(module):
    return [op.name for op in module.graph("main").regions[0].block.ops if op.name != "coreai.constant"][:-1]

rules = default_rules().stage("optimize")
product = "coreai.decomposable.broadcasting_batch_matmul"

turned = program({"x": "2x3x4xf32"}, lambda x: c.transpose(c.softsign(c.transpose(x, [0, 2, 1])), [0, 2, 1]))
assert carry_transposes(turned) and left(turned) == ["coreai.softsign"], left(turned)

layer = program({"x": "2x3x4xf32", "w": "4x5xf32"}, lambda x, w: c.reshape(
    c.softsign(c.broadcasting_batch_matmul(c.reshape(x, [6, 4]), w)), [2, 3, 5]))
optimize(layer, rules, Options())
assert left(layer) == [product, "coreai.softsign"], left(layer)

saved = program({"x": "2x3xf32"}, lambda x: c.softsign(x))
assert loaded_module(stored_program(saved)).text() == saved.text()

known = program({}, lambda: c.softsign(c.constant([1.0, -3.0])))
assert fold_constants(known.graph("main"), known) == 1 and left(known) == [], left(known)
"""

VIEW = {
    "patcomp/ir/coreai_table.py": """    op("drop_dims[T: ALL](input: T, axes: IDX[1]) -> output: T",
       "drop size-1 dims", infer="shrink_dims", trait="Reshape"),
""",
    "patcomp/evaluate/ops/shapes.py": """

@implements("coreai.drop_dims")
def drop_dims(op: EvaluatedOp, x: Tensor, axes: Tensor) -> Tensor:
    return x.squeeze(tuple(axes.tolist()))
""",
}

VIEWED = """
from patcomp.patterns.statistics import Statistics
from patcomp.defects.known.carried_values_in_place import own_carried_values

turned = program({"x": "2x3x1x4xf32"}, lambda x: c.transpose(
    c.drop_dims(c.transpose(x, [0, 3, 2, 1]), [2]), [0, 2, 1]))
assert carry_transposes(turned) and left(turned) == ["coreai.reshape"], left(turned)

known = program({}, lambda: c.drop_dims(c.constant([[1.0, -3.0]]), [0]))
assert fold_constants(known.graph("main"), known) == 1 and left(known) == [], left(known)

# a loop must not write into what a view shows: it gets a copy
def body(x):
    return c.while_([c.drop_dims(c.reduce_max(x, [0]), [0])], lambda a: c.broadcasting_greater(1.0, c.reshape(
        c.reduce_max(a, [0]), [])), lambda a: [c.broadcasting_add(a, 1.0)])

looped, copies = program({"x": "3x2xf32"}, body), Statistics()
own_carried_values(looped, copies)
assert sum(copies.fired.values()) == 1, copies.fired
"""

FACTS = {"patcomp/ir/aten_facts.txt": "places::turned: whole pointwise same_shape\n"}

ANALYSED = """
from patcomp.ir import aten
from patcomp.ir import coreai as c
from patcomp.ir.extents import extents
from patcomp.ir.traits import Elementwise, Whole
from patcomp.narrowing.analysis import NarrowingFacts, Ranges
from patcomp.narrowing.widths import Widths
from tests.helpers.programs import program

aten.define("places::turned(Tensor x) -> Tensor")
assert all(aten.op_class("places.turned").has_trait(trait) for trait in (Elementwise, Whole))
made = {}

def body(x):
    made["turned"], made["x"] = aten.build("places.turned", x.type, x=x), x
    made["seven"] = aten.build("places.turned", c.constant(7).type, x=c.constant(7))
    return made["turned"], made["seven"]

facts = NarrowingFacts(program({"x": "?xsi64"}, body), Widths())
assert extents(made["turned"]) == extents(made["x"])
assert Ranges(facts, {}).changes == {}  # an op without facts may overflow
"""

SCHEME = {
    "patcomp/compression/schemes/halves.py": """
import re
from dataclasses import dataclass

import numpy as np

from patcomp.compression.scheme import Scheme, Stored
from patcomp.ir import coreai


@dataclass(frozen=True)
class Half(Stored):
    values: np.ndarray

    @property
    def size(self):
        return self.values.nbytes

    @property
    def shape(self):
        return self.values.shape

    def parts(self):
        yield slice(None), self.values.astype(np.float32)

    def reshaped(self, shape):
        return Half(self.values.reshape(shape))

    def unpacked(self, element, key):
        return coreai.cast(coreai.constant(self.values, "f16", name=key), element)


@dataclass(frozen=True)
class Halves(Scheme):
    spelling, examples, unpacking = re.compile("half"), "half (float16)", ()

    @classmethod
    def of(cls, name, match):
        return cls(name)

    def store(self, weight, layout, round_to):
        return Half(weight.astype(np.float16))

    @classmethod
    def name_of(cls, op):
        return "half"
"""
}

COMPRESSED = """
import torch
import patcomp

model, x = torch.nn.Linear(64, 64), torch.randn(2, 64)
program = patcomp.TorchConverter().add_exported_program(torch.export.export(model, (x,))).to_coreai()
small = program.compress({"names": {"weight": "half"}})
(weight,) = [each for each in small.compression.weights if each.scheme]
assert (weight.scheme, weight.after) == ("half", 64 * 64 * 2), weight
small.verify_against(model, (x,), backends=["evaluator"], tolerance=1e-2).check()
"""

ARCHITECTURE = {"patcomp_models/language/architectures.py": '\nARCHITECTURES["olmo"] = Architecture()\n'}

LANGUAGE_MODEL = """
import warnings
from patcomp.torchvision import declare_operators
declare_operators()
from transformers import OlmoConfig, OlmoForCausalLM
import patcomp
from patcomp.errors import ConversionWarning
from patcomp_models.language import convert_language_model

warnings.simplefilter("error", ConversionWarning)  # such as that the architecture is not tested
sizes = dict(hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, vocab_size=64)
model = OlmoForCausalLM(OlmoConfig(**sizes, max_position_embeddings=64, pad_token_id=0)).eval()
bundle = convert_language_model(model, out="bundle", max_context=64)
assert len(bundle.generate([1, 2, 3], 4)) == 4
"""

DEFECT = {
    "patcomp/defects/known/large_exponents.py": """
from patcomp.defects.defect import Defect
from patcomp.ir import coreai


def _detect(op, module):
    yield "an exponential is too much"


def _mend(module, statistics):
    for op in list(module.op.walk()):
        if op.name == "coreai.exp":
            statistics.record("no exponential", True, 0.0)


DEFECT = Defect(
    name="large_exponents", says="The toolchain dies of exponentials.", probes="none",
    detect={"coreai.exp": _detect}, mend=_mend, after=("folded_constants",),
)
"""
}

DEFECTIVE = """
from patcomp.defects import mends
from patcomp.errors import VerifyError
from patcomp.ir import coreai as c
from patcomp.ir.verify import verify
from patcomp.rewrites import Options
from patcomp.rewrites.optimize import optimize
from patterns_catalog import default_rules
from tests.helpers.programs import program

module = program({"x": "2xf32"}, lambda x: c.exp(x))
verify(module, finished=False)
try:
    verify(module)
except VerifyError as error:
    assert "too much" in str(error)
else:
    raise AssertionError("the verifier does not ask the new defect")
assert mends("optimize")[-1].name == "large_exponents"
assert optimize(module, default_rules().stage("optimize"), Options()).fired == {"no exponential": 1}
"""

KIND_OF_BUNDLE = {
    "patcomp_models/bundles/kinds/doubler.py": """
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch

from patcomp.errors import Problem
from patcomp_models.bundle_folders.contract import problem
from patcomp_models.bundles.components import KindOfComponents
from patcomp_models.bundles.kind import Component
from patcomp_models.tasks.entries import Entry


class _Doubled(torch.nn.Module):
    def forward(self, x):
        return x * 2


@dataclass(frozen=True)
class Doubler(KindOfComponents):
    length: int = 4

    name: ClassVar[str] = "doubler"
    holds: ClassVar[str] = "a doubler"

    @classmethod
    def fits(cls, folder: Path, config: Mapping[str, Any]) -> bool:
        return config.get("model_type") == "doubler"

    def components(self) -> Sequence[Component]:
        entry = Entry("main", _Doubled(), {"x": torch.ones(self.length)}, ("y",))
        return [Component("main", "Doubler.aimodel", lambda: [entry])]

    def metadata(self) -> Mapping[str, Any]:
        return {"doubler": {"length": self.length}}

    def write_files(self, bundle: Path) -> None:
        (bundle / "note.txt").write_text("2")

    @classmethod
    def problems(cls, bundle: Path, metadata: Mapping[str, Any], revision: str) -> list[Problem]:
        return [] if (bundle / "note.txt").is_file() else [problem("note.txt is missing")]
"""
}

BUNDLE = """
import json
from pathlib import Path

import torch
from patcomp.bundles import check_bundle, convert_bundle

Path("folder").mkdir()
Path("folder/config.json").write_text(json.dumps({"model_type": "doubler"}))
convert_bundle("folder", out="bundle", length=3, verify=True)
assert json.loads(Path("bundle/metadata.json").read_text())["doubler"] == {"length": 3}
assert not check_bundle("bundle"), check_bundle("bundle")
Path("bundle/note.txt").unlink()
(missing,) = check_bundle("bundle")
assert "note.txt is missing" in missing.message, missing
"""


def _run(folder: Path, additions: Mapping[str, str], script: str) -> None:
    """Run a script with a copy of the packages in which texts are added to files."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    for path, text in additions.items():
        source = (folder / path).read_text() if (folder / path).exists() else ""
        before, end_of_table, after = source.partition(")\nCOREAIX_ROWS")  # elsewhere, the end of the file
        (folder / path).write_text(before + text + end_of_table + after)
    environment = os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "PATCOMP_STRICT": "1"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=folder, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr


def test_places_to_touch(tmp_path: Path) -> None:
    assert [len(places) for places in (LOWERING, COMPOSITE, OP, OPTIMIZATION, TARGETING)] == [1, 1, 2, 1, 1]
    _run(tmp_path, LOWERING | COMPOSITE | OP | OPTIMIZATION | TARGETING, MODEL)


@pytest.mark.slow
def test_an_architecture_of_language_models_is_one_row(tmp_path: Path) -> None:
    _run(tmp_path, ARCHITECTURE, LANGUAGE_MODEL)


def test_the_facts_of_a_pytorch_op_are_one_row(tmp_path: Path) -> None:
    """Traits, sizes and narrowing know the op."""
    assert len(FACTS) == 1
    _run(tmp_path, FACTS, ANALYSED)


def test_a_compression_scheme_is_one_file(tmp_path: Path) -> None:
    _run(tmp_path, SCHEME, COMPRESSED)


def test_rewrites_know_new_ops_by_their_traits(tmp_path: Path) -> None:
    """Transposes are carried over an elementwise op and a view, and both are folded.

    The reshapes around a product pass the elementwise op; a loop gets a copy of what the view shows.
    """
    assert len(ACTIVATION) == len(VIEW) == 2
    table = "patcomp/ir/coreai_table.py"
    _run(tmp_path, ACTIVATION | VIEW | {table: ACTIVATION[table] + VIEW[table]}, REWRITES + VIEWED)


def test_a_defect_of_the_toolchain_is_one_file(tmp_path: Path) -> None:
    assert len(DEFECT) == 1
    _run(tmp_path, DEFECT, DEFECTIVE)


def test_a_kind_of_bundle_is_one_file(tmp_path: Path) -> None:
    assert len(KIND_OF_BUNDLE) == 1
    _run(tmp_path, KIND_OF_BUNDLE, BUNDLE)
