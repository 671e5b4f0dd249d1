"""The types of the namespaces that rules get. An editor completes them, and mypy checks them.

    @lowering("aten.cumsum", examples=[example("2x3xf32", 1)])
    def cumsum(op: OpView, c: Coreai) -> Value: ...

    @rule(name="rms_norm", example={"x": "2x3x8xf32", "w": "8xf32", "eps": 1e-6})
    def recovered_rms_norm(a: AtenSource, c: Composites, x: Capture, w: Capture, eps: Const) -> Rewrite: ...

| type | what its attributes are | where |
|---|---|---|
| `AtenSource`, `CoreaiSource` | ops of a pattern, every argument mentioned | first parameter of `@rule` |
| `Composites` | the catalog's composites, described for a later match | second parameter of `@rule` |
| `AtenTarget`, `CoreaiTarget` | ops of a dialect, described for a later match | the same, with `into=` the dialect |
| `Targets` | the composites of a table, described for a later match | the same, with `into=` a `CompositeTable` |
| `Coreai` | functions that add an op of `coreai` | lowerings, optimizations, bodies of composites |
| `Aten` | functions that add an op of `aten` | normalizations |

The signatures are in the `.pyi` files beside this one, which an installation, or
`python -m patcomp_lab.commands.stubs`, makes from the dialects and the catalog.
"""

from types import ModuleType

from patcomp.ir import aten, coreai
from patcomp.patterns.language import SourceNamespace
from patcomp.patterns.op_view import OpView
from patcomp.patterns.targets import TargetNamespace

# an assignment each, which mypy takes for the name of a type in a clone that is not installed
AtenSource = SourceNamespace
CoreaiSource = SourceNamespace
AtenTarget = TargetNamespace
CoreaiTarget = TargetNamespace
Composites = TargetNamespace
Targets = TargetNamespace
Aten = ModuleType
Coreai = ModuleType

__all__ = [
    "Aten",
    "AtenSource",
    "AtenTarget",
    "Composites",
    "Coreai",
    "CoreaiSource",
    "CoreaiTarget",
    "OpView",
    "Targets",
    "aten",
    "coreai",
]
