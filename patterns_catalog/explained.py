"""What `patcomp lint-catalog` finds about these rules, and why it is meant to be so."""

_TESTED_AS_IR = "it takes Core AI ops, and is tested on IR in tests/catalog/test_optimize.py"
_OF_TRANSFORMERS = "its op is one of transformers', which need not be installed"

EXPLAINED = {
    "no example: drop_identity_cast": _TESTED_AS_IR,
    "no example: merge_reshapes": _TESTED_AS_IR,
    "no example: merge_transposes": _TESTED_AS_IR,
    "no example: transpose_of_unit_dims": _TESTED_AS_IR,
    "no example: drop_identity": _TESTED_AS_IR,
    "no example: drop_broadcast_before_broadcast": _TESTED_AS_IR,
    "no example: size_of_transposed": _TESTED_AS_IR,
    "never fires: size_of_transposed": _TESTED_AS_IR,
    "never fires: drop_broadcast_before_broadcast": _TESTED_AS_IR,
    "never fires: gather_mm of groups": _OF_TRANSFORMERS,
    "never fires: gather_mm of groups by their ends": _OF_TRANSFORMERS,
}
"""The reason for each finding, by its kind and rule."""
