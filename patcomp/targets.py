"""Targets: what a device wants of a program, as data.

    program = converter.to_coreai(target="neural_engine")
    program = converter.to_coreai(target=patcomp.targets.NEURAL_ENGINE.without("half precision"))

A target is a list of rules of the stage `target`, a list of steps that come after them, and what an audit looks for.
`docs/targets.md` says what each rule and step does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Wants:
    """What an audit compares a program with. None and empty mean that the target takes everything."""

    max_rank: int | None = None
    """The largest number of dimensions of a tensor."""
    element_types: frozenset[str] = frozenset()
    """The element types of tensors that the target computes with."""
    static_shapes: bool = False
    """Whether every size must be known before the program runs; a conversion refuses open dimensions of inputs."""
    min_width: int = 1
    """The least number of elements of the last dimension; the target pads smaller ones."""
    max_size: int | None = None
    """The largest dimension of a tensor."""
    left_out: frozenset[str] = frozenset()
    """The names of ops and composites (`composite gather_mm`) that the target does not compute: they run elsewhere."""
    max_asset_bytes: int | None = None
    """The size of the largest asset."""
    row_bytes: int = 1
    """Rows of inputs and outputs, along the last dimension, are multiples of so many bytes."""
    stride_factors: frozenset[int] = frozenset()
    """The primes of which strides of convolutions and windows are products; empty for any."""
    max_palettized_stride: int | None = None
    """The largest stride of a convolution whose weights are looked up in a table."""

    @property
    def only_half(self) -> bool:
        """Whether the target computes float16 and no wider float."""
        return "f16" in self.element_types and not self.element_types & {"f32", "bf16"}

    @property
    def leaves_out(self) -> bool:
        """Whether a part of a program may have to run elsewhere."""
        return bool(self.left_out or self.element_types)


@dataclass(frozen=True)
class Target:
    """A device, and how programs are rewritten for it."""

    name: str
    rules: tuple[str, ...] = ()
    """The names of rules of the stage `target`. They are applied together until none applies."""
    steps: tuple[str, ...] = ()
    """The names of the steps that come after the rules, in this order; each goes through a whole program."""
    wants: Wants = field(default_factory=Wants)

    def without(self, *names: str) -> Target:
        """This target without some of its rules or steps.

        Raises:
            ValueError: a name is not in the target; the message lists all.
        """
        known = (*self.rules, *self.steps)
        for name in names:
            if name not in known:
                raise ValueError(
                    f"the target {self.name} has no rule or step {name!r}; it has {', '.join(map(repr, known))}"
                )
        return replace(
            self,
            rules=tuple(name for name in self.rules if name not in names),
            steps=tuple(name for name in self.steps if name not in names),
        )

    def with_rules(self, *names: str) -> Target:
        """This target with further rules, such as those of a catalog of your own."""
        return replace(self, rules=(*self.rules, *(name for name in names if name not in self.rules)))

    def __str__(self) -> str:
        return self.name


NEURAL_ENGINE = Target(
    "neural_engine",
    rules=(
        "rms_norm divided first",
        "layer_norm divided first",
        "instance_norm divided first",
        "group_norm divided first",
        "batch_norm into convolution",
        "batch_norm as scale and shift",
        "vector norm divided first",
        "rope as plain ops",
        "pixel_shuffle of five dimensions",
        "attention with heads apart",
        "convolution of patches",
        "gather of runs as slices",
        "pad as concat",
        "linear as convolution",
        "gelu by sigmoid",
        "tanh by sigmoid",
        "softplus without overflow",
        "argmax by comparison",
    ),
    steps=("carry transposes", "store prepared weights", "half precision"),
    wants=Wants(
        max_rank=5,
        element_types=frozenset({"f16", "si8", "ui8", "si16", "ui16", "i1"}),
        static_shapes=True,
        min_width=32,
        max_size=65536,
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
        | {"composite gather_mm", "composite gated_delta_update"},
        max_asset_bytes=2 * 2**30,
        row_bytes=64,
        stride_factors=frozenset({2, 3}),
        max_palettized_stride=2,
    ),
)
"""Apple's Neural Engine: float16, static sizes, at most five dimensions, products as 1x1 convolutions."""

GPU = Target(
    "gpu",
    rules=(
        "causal attention",
        "query, key and value in one product",
        "transpose before rms_norm",
        "biases of slices together",
        "views of slices together",
        "transposes of slices together",
        "rms_norm of query and key together",
        "rope of query and key together",
        "rope by positions",
        "softmax of the chosen",
        "order of a softmax",
        "experts of each token together",
        "halves to even numbers",
        "argmax by comparison",
    ),
    steps=("store prepared weights",),
)
"""The GPU: composites whole, masks and positions as their attributes, products of one input together."""

CPU = Target("cpu", rules=("batch_norm into convolution",), steps=("store prepared weights",))
"""The CPU: it takes every program; weights are stored in the order in which products read them, with the factors of
batch norms in those of convolutions."""

TARGETS = {target.name: target for target in (CPU, GPU, NEURAL_ENGINE)}
"""The targets by name."""


def chosen_target(target: str | Target | None) -> Target | None:
    """The target that `target=` names.

    Raises:
        TypeError: the argument is neither a name nor a target.
        ValueError: no target has the name; the message lists all.
    """
    if target is None or isinstance(target, Target):
        return target
    if not isinstance(target, str):
        raise TypeError(f"target must be a name or a Target, got {target!r}")
    if target not in TARGETS:
        raise ValueError(f"there is no target {target!r}; there are {', '.join(map(repr, TARGETS))}")
    return TARGETS[target]


def check_names(target: Target, rules: Iterable[str], steps: Iterable[str]) -> None:
    """Check that the rules and steps of a target exist.

    Args:
        target: the target.
        rules: the names of the rules of the stage `target`.
        steps: the names of the steps.

    Raises:
        ValueError: a name does not exist; the message lists those that do.
    """
    for kind, given, known in (("rule", target.rules, list(rules)), ("step", target.steps, list(steps))):
        for name in given:
            if name not in known:
                raise ValueError(
                    f"the target {target.name} names the {kind} {name!r}, which does not exist; "
                    f"there are {', '.join(map(repr, known))}"
                )
