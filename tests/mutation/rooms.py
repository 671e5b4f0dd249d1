"""Which files are tried with which tests: the tests of their subject."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Room:
    """Files, and the tests whose subject they are."""

    files: tuple[str, ...]
    tests: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    """The names of tests of these files that take too long to be repeated."""

    def paths(self) -> list[str]:
        """The files, relative to the repository."""
        return _found(self.files)

    def test_files(self) -> list[str]:
        """The files with the tests, relative to the repository."""
        return _found(self.tests)


def _found(patterns: tuple[str, ...]) -> list[str]:
    return sorted(path.relative_to(ROOT).as_posix() for pattern in patterns for path in ROOT.glob(pattern))


_TORCH = "tests/frontend_torch"

ROOMS = {
    "extents": Room(
        ("patcomp/ir/extents.py",),
        ("tests/ir/test_extents*.py", "tests/catalog/test_attention_views.py"),
    ),
    "narrowing": Room(
        ("patcomp/narrowing/*.py",),
        (
            f"{_TORCH}/test_widths.py", f"{_TORCH}/test_casts.py",
            "tests/narrowing/test_*.py",
        ),
    ),
    "questions": Room(
        ("patcomp/questions/*.py",),
        (
            "tests/test_audit*.py", "tests/compression/test_targets.py",
            "tests/patterns/test_explain.py", "tests/patterns/test_rule_mistakes.py",
            f"{_TORCH}/test_questions.py",
        ),
    ),
    "compression": Room(
        (
            *(f"patcomp/compression/{name}.py" for name in ("budget", "config", "measures", "report", "request")),
            *(f"patcomp/emit/{name}.py" for name in ("calibration", "examples")),
            *(f"patcomp/evaluate/{name}.py" for name in ("resumed", "two_roundings")),
        ),
        ("tests/compression/test_*.py",),
        left_out=("test_the_program_computes_with_the_stored_weights",),
    ),
    "patterns": Room(("patcomp/patterns/*.py",), ("tests/patterns/test_[!s]*.py", "tests/patterns/test_selftest.py")),
    "writes": Room(
        ("patcomp/frontend_torch/functional/views.py", "patcomp/frontend_torch/functional/writes.py"),
        (
            f"{_TORCH}/test_writes.py", f"{_TORCH}/test_direct.py", f"{_TORCH}/test_direct_property.py",
            f"{_TORCH}/test_functional_graphs.py",
        ),
    ),
    "sizes": Room(
        ("patcomp/frontend_torch/interface/guards.py", "patcomp/frontend_torch/sizes/*.py"),
        (
            f"{_TORCH}/test_dims.py", f"{_TORCH}/test_dynamic_shapes.py", f"{_TORCH}/test_sizes.py",
            f"{_TORCH}/test_small_sizes.py", f"{_TORCH}/test_size_properties.py", f"{_TORCH}/test_empty_selections.py",
            f"{_TORCH}/test_call_sizes.py", f"{_TORCH}/test_guard_algebra.py",
            f"{_TORCH}/test_dynamic_slices.py", f"{_TORCH}/test_value_checks.py",
        ),
    ),
    "value_checks": Room(
        ("patcomp/frontend_torch/interface/value_checks.py", "patcomp/emit/checks.py"),
        (f"{_TORCH}/test_value_checks.py",),
    ),
    "loops": Room(
        (
            "patcomp/defects/copies.py", "patcomp/rewrites/single_steps.py",
            *(
                f"patcomp/defects/known/{name}.py"
                for name in (
                    "captured_states", "carried_values_in_place", "choices_of_outside_values", "conditions_in_place",
                    "merged_branches", "moved_copies", "nested_results", "repeated_in_loops",
                )
            ),
        ),
        (
            "tests/evaluate/test_loops.py", "tests/rewrites/test_owned_values.py", "tests/ir/test_in_place.py",
            "tests/rewrites/test_loop_rewrites.py",
            f"{_TORCH}/test_control_flow.py", f"{_TORCH}/test_open_control_flow.py",
            f"{_TORCH}/test_recover_control.py", "tests/rewrites/test_loops_of_one_step.py",
            "tests/rewrites/test_loop_invariants.py", "tests/rewrites/test_merged_branches.py",
        ),
    ),
    "verification": Room(
        (
            "patcomp/frontend_torch/verification/*.py",
            *(f"patcomp/evaluate/{name}.py" for name in ("comparison", "expectation", "kept")),
            *(f"patcomp/evaluate/{name}.py" for name in ("loss", "overflow", "twin")),
        ),
        (
            "tests/evaluate/test_verification.py", "tests/evaluate/test_comparison.py",
            "tests/evaluate/test_twin_of_program.py",
            "tests/evaluate/test_partial_sums.py", "tests/evaluate/test_overflow.py",
            f"{_TORCH}/test_departure*.py", f"{_TORCH}/test_near_ties.py",
            f"{_TORCH}/test_half_precision.py", f"{_TORCH}/test_verification_values.py",
            f"{_TORCH}/test_choices_and_losses.py", f"{_TORCH}/test_inner_values.py",
        ),
    ),
    "proof": Room(
        ("patcomp/proof/*.py", "patcomp/proof/run/*.py"),
        (
            "tests/proof_seeds/test_*.py", "tests/proof_lemmas/test_[!l]*.py",
            "tests/proof_lemmas/test_listed_programs.py",
            "tests/proof_of_run/test_prove.py", "tests/proof_of_run/test_[fw]*.py",
            "tests/catalog/test_proofs*.py", "tests/catalog/test_examination.py", "tests/catalog/test_verdicts.py",
            "tests/test_lint_catalog.py",
            "tests/patterns/test_seeded_mistakes.py", "tests/patterns/test_selftest.py",
        ),
        # what the seeds are, which their proofs show, too, and the rules of the catalog, of which samples are proved
        left_out=(
            "test_fires_on_its_example", "test_the_witness_shows_the_mistake", "test_every_declarative_rule_is_proved",
        ),
    ),
    "size_questions": Room(
        ("patcomp/frontend_torch/decomposition/size_questions.py",),
        (f"{_TORCH}/test_size_questions.py",),
        left_out=("test_every_batch_converts_in_three_ways",),
    ),
}  # fmt: skip
