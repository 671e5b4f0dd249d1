"""Targets: the constraints of a device on a program, as data.

    program = converter.to_coreai(target="neural_engine")
    program = converter.to_coreai(target=patcomp.targets.NEURAL_ENGINE.without("half precision"))

A target has rules of the stage `target`, which say at their declaration to which targets they belong, a list of steps
that come after them, and what an audit looks for. `docs/targets.md` says what each rule and step does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol


@dataclass(frozen=True)
class Wants:
    """What an audit compares a program with. None and empty mean that the target takes everything."""

    max_rank: int | None = None
    """The largest number of dimensions of a tensor."""
    element_types: frozenset[str] = frozenset()
    """The element types of tensors that the target computes with."""
    static_shapes: bool = False
    """Whether every size must be known before the program runs; a conversion refuses dynamic dimensions of inputs."""
    min_width: int = 1
    """The least number of elements of the last dimension; the target pads smaller ones."""
    max_size: int | None = None
    """The largest dimension of a tensor."""
    size_of_all: int | None = None
    """The largest dimension that every chip takes; newer ones take up to `max_size`."""
    left_out: frozenset[str] = frozenset()
    """The names of ops and composites (`composite gather_mm`) that the target does not compute: they run elsewhere."""
    max_asset_bytes: int | None = None
    """The size of the largest asset."""
    row_bytes: int = 1
    """Rows of inputs and outputs, along the last dimension, are multiples of so many bytes."""
    stride_factors: frozenset[int] = frozenset()
    """The primes that strides of convolutions and windows may be products of; empty if any stride is allowed."""
    max_palettized_stride: int | None = None
    """The largest stride of a convolution whose weights are looked up in a table."""
    stored: str = ".*"
    """The names of the schemes in which the target takes weights, as a regular expression."""

    @property
    def only_half(self) -> bool:
        """Whether the target computes float16 and no wider float."""
        return "f16" in self.element_types and not self.element_types & {"f32", "bf16"}

    @property
    def leaves_out(self) -> bool:
        """Whether a part of a program may have to run elsewhere."""
        return bool(self.left_out or self.element_types)


class HasTargets(Protocol):
    """A rule, as far as a target reads it."""

    @property
    def name(self) -> str:
        """The rule's name."""

    @property
    def targets(self) -> tuple[str, ...]:
        """The names of the targets to which it belongs."""


@dataclass(frozen=True)
class Target:
    """A device, and how programs are rewritten for it."""

    name: str
    rules: tuple[str, ...] = ()
    """The names of further rules of the stage `target`, which do not say that they belong to this target."""
    steps: tuple[str, ...] = ()
    """The names of the steps that come after the rules, in this order; each goes through a whole program."""
    wants: Wants = field(default_factory=Wants)
    omitted: tuple[str, ...] = ()
    """The names of rules that belong to this target and are left out."""
    four_bits: str = "w4_block32"
    """The scheme that `4bit` means."""
    keeps_tables: bool = False
    """Whether `4bit` leaves tables of embeddings as they are."""

    def takes(self, rule: HasTargets) -> bool:
        """Whether a rule of the stage `target` is one of this target. Its rules are applied together until none
        applies."""
        return (rule.name in self.rules or self.name in rule.targets) and rule.name not in self.omitted

    def stores(self, scheme: str) -> bool:
        """Whether this target takes weights that are stored in a scheme, by its name."""
        return re.fullmatch(self.wants.stored, scheme) is not None

    def without(self, *names: str) -> Target:
        """This target without some of its rules or steps. A conversion refuses unknown names."""
        listed = {*self.rules, *self.steps}
        return replace(
            self,
            rules=tuple(name for name in self.rules if name not in names),
            steps=tuple(name for name in self.steps if name not in names),
            omitted=(*self.omitted, *(name for name in names if name not in listed)),
        )

    def with_rules(self, *names: str) -> Target:
        """This target with further rules, such as those of a catalog of your own."""
        return replace(
            self,
            rules=(*self.rules, *(name for name in names if name not in self.rules)),
            omitted=tuple(name for name in self.omitted if name not in names),
        )

    def __str__(self) -> str:
        return self.name


NEURAL_ENGINE = Target(
    "neural_engine",
    steps=("carry transposes", "store prepared weights once", "half precision"),
    wants=Wants(
        max_rank=5,
        element_types=frozenset({"f16", "si8", "ui8", "si16", "ui16", "i1"}),
        static_shapes=True,
        min_width=32,
        max_size=65536,
        size_of_all=16384,
        left_out=frozenset(
            f"coreai.{name}"
            for name in (
                "argmax",
                "argsort",
                "conv3d",
                "conv_transpose3d",
                "create_complex",
                "gather_along_axis",
                "gather_nd",
                "if",
                "imaginary_part",
                "interpolate",
                "interpolate_coordinates",
                "max_pool_3d",
                "metal4_kernel",
                "non_zero",
                "pad",
                "range",
                "real_part",
                "reverse",
                "scan",
                "scatter_along_axis",
                "scatter_nd",
                "sort",
                "sum_pool_3d",
                "while",
            )
        )
        | {
            f"composite {name}"
            for name in (
                "gather_mm",
                "gated_delta_update",
                "kimi_delta_update",
                "selective_scan_update",
                "state_space_update",
            )
        },
        max_asset_bytes=2 * 2**30,
        row_bytes=64,
        stride_factors=frozenset({2, 3}),
        max_palettized_stride=2,
        stored=r"[wu]8|pal\d(_group\d+)?",
    ),
    four_bits="pal4_group32",
    keeps_tables=True,
)
"""Apple's Neural Engine: float16, static sizes, at most five dimensions, products as 1x1 convolutions."""

GPU = Target(
    "gpu",
    steps=("store prepared weights once",),
)
"""The GPU: composites whole, masks and positions as their attributes, products of one input together."""

CPU = Target("cpu", steps=("store prepared weights",))
"""The CPU: it takes every program; weights are stored in the order in which products read them, with the factors of
batch norms in those of convolutions."""

TARGETS = {target.name: target for target in (CPU, GPU, NEURAL_ENGINE)}
"""The targets by name."""


def chosen_target(target: str | Target | None, known: Mapping[str, Target] = TARGETS) -> Target | None:
    """The target that `target=` names.

    Args:
        target: a name or a target.
        known: the targets by name.

    Raises:
        TypeError: the argument is neither a name nor a target.
        ValueError: no target has the name; the message lists all.
    """
    if target is None or isinstance(target, Target):
        return target
    if not isinstance(target, str):
        raise TypeError(f"target must be a name or a Target, got {target!r}")
    if target not in known:
        raise ValueError(f"there is no target {target!r}; there are {', '.join(map(repr, known))}")
    return known[target]


def check_names(target: Target, rules: Iterable[HasTargets], steps: Iterable[str]) -> None:
    """Check that all rules and steps named by a target exist, and that the target has each rule or step that it leaves
    out.

    Args:
        target: the target.
        rules: the rules of the stage `target`.
        steps: the names of the steps.

    Raises:
        ValueError: a name does not exist; the message lists those that do.
    """
    rules = list(rules)
    for kind, given, known in (
        ("rule", target.rules, [rule.name for rule in rules]),
        ("step", target.steps, list(steps)),
    ):
        for name in given:
            if name not in known:
                raise ValueError(
                    f"the target {target.name} names the {kind} {name!r}, which does not exist; "
                    f"there are {', '.join(map(repr, known))}"
                )
    own = [rule.name for rule in rules if target.name in rule.targets]
    for name in target.omitted:
        if name not in own:
            listed = ", ".join(map(repr, (*own, *target.rules, *target.steps)))
            raise ValueError(f"the target {target.name} has no rule or step {name!r} to leave out; it has {listed}")
