"""The result of comparing a program with the PyTorch model: the error of each output, and where numbers depart."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any

from patcomp.errors import MismatchError
from patcomp.ir.locations import in_brackets, place_text
from patcomp.ir.tables import text_of

if TYPE_CHECKING:
    from rich.table import Table

    from patcomp.evaluate.devices import DeviceEffect
    from patcomp.evaluate.metal.check import KernelCheck


PARTIAL_SUMS = "evaluator that rounds partial sums"
"""The reference of an output of the runtime whose difference from PyTorch the runtime's rounding explains."""


@dataclass(frozen=True)
class OutputError:
    """How far one output is from PyTorch's."""

    name: str
    backend: str
    max_abs: float
    """Largest absolute difference; infinite where only one side is NaN or infinite."""
    max_rel: float
    """`max_abs` divided by the largest finite magnitude of PyTorch's output."""
    psnr: float
    """Peak signal-to-noise ratio in dB, infinite when equal."""
    tolerance: float = 0.0
    """The largest absolute difference that passes."""
    element_type: str = ""
    """The element type of the program's output, `f32`."""
    reference: str = "eager"
    """What the output is compared with: `eager`; `float32 twin` or `float64 twin`, the model in a wider type; or
    `PARTIAL_SUMS`."""
    nan: int = 0
    """How many elements of the program's output are NaN."""
    inf: int = 0
    """How many are infinite."""
    expected_nan: int = 0
    """How many elements of PyTorch's output are NaN."""
    expected_inf: int = 0
    """How many are infinite."""
    relative_to: float = 0.0
    """The magnitude of the output that the tolerance was made for; 0 if it was given, or if values must be equal."""
    median_rel: float = 0.0
    """The median absolute difference divided by the median magnitude, of the elements that are finite and not zero."""
    median_tolerance: float = math.inf
    """The largest `median_rel` that passes."""
    note: str = ""
    """Why the comparison says little; empty if it does not."""
    partial_sums: float = 0.0
    """How far the output is from PyTorch's because the runtime rounds partial sums; 0 unless that is why it passed."""

    overflows: int = 0
    """How many elements half precision made NaN or infinite: the model in float32 has finite ones."""
    half_loss: float = 0.0
    """How far eager PyTorch's own output in half precision is from the float32 model, relative to the largest
    magnitude, if that is more than rounding explains; otherwise 0."""

    @property
    def passed(self) -> bool:
        """Whether the largest and the median difference are within their tolerances, and nothing overflowed."""
        return not self.overflows and self.max_abs <= self.tolerance and self.median_rel <= self.median_tolerance

    @property
    def is_finite(self) -> bool:
        """Whether neither side has a NaN or an infinity."""
        return not (self.nan or self.inf or self.expected_nan or self.expected_inf)


@dataclass(frozen=True)
class ModuleError:
    """How far a value that leaves a module of the model is from PyTorch's."""

    module: str
    """The module's path, `layers.0.attention`."""
    node: str
    """The FX node of the value."""
    source: str
    """The line of the model, `model.py:12`; empty if it is unknown."""
    error: OutputError


@dataclass(frozen=True)
class Departure:
    """Where the program's numbers first depart from the model's."""

    stage: str
    """`export` (the exported program differs from the model), `import`, a stage of the conversion, or `runtime` (the
    Core AI runtime computes something else than the IR says)."""
    rule: str = ""
    """The rule or decomposition whose rewrite changed the numbers; empty if the stage itself did."""
    rule_source: str = ""
    """Where the rule is declared."""
    rule_doc: str = ""
    """What the rule does."""
    module: str = ""
    """The module that the rewritten op is in; empty for the model itself."""
    node: str = ""
    """The FX node that the op comes from."""
    source: str = ""
    """The line of the model."""
    detail: str = ""
    """What was observed."""
    near_tie: float | None = None
    """The distance of the two values between which the node chose differently, if rounding can explain it: then no rule
    need be wrong."""

    def __str__(self) -> str:
        rule = f"rule {self.rule!r}{f' ({self.rule_source})' if self.rule_source else ''}" if self.rule else ""
        places = [
            f"module {self.module}" if self.module else "",
            f"node %{self.node}" if self.node else "",
            f"at {self.source}" if self.source else "",
        ]
        place = ", ".join(filter(None, [f"stage {self.stage}", rule, *places]))
        if self.near_tie is not None:
            place = f"a near tie: {', '.join(filter(None, places))}"
        return f"the numbers first depart in {place}{f': {self.detail}' if self.detail else ''}"


@dataclass(frozen=True)
class FirstOverflow:
    """The op in which a value of half precision first overflows: the same program in float32 has a finite number."""

    op: str
    """`coreai.broadcasting_mul`, or with the composite that it is in, `coreai.exp in softmax`."""
    value: float
    """The largest magnitude in float32."""
    module: str = ""
    """The module that the op is in; empty for the model itself."""
    node: str = ""
    """The FX node that the op comes from; empty if it is unknown."""
    source: str = ""
    """The line of the model."""

    def __str__(self) -> str:
        place = in_brackets(self.node, self.module, self.source)
        kept = self.module or self.node
        advice = f"; --keep-float32 {kept} (keep=[{kept!r}]) leaves it in float32, and auto finds the fewest such ops"
        return (
            f"half precision first overflows in {self.op}{place}, which computes {self.value:.4g} in float32"
            f"{advice if kept else ''}"
        )


@dataclass(frozen=True)
class HalfLoss:
    """Where a model in half precision loses most of its distance from the model in float32."""

    module: str
    """The module of the op; empty for the model itself."""
    node: str
    """The FX node."""
    source: str
    """The line of the model."""
    before: float
    """The largest error of what the op reads, relative to the largest magnitude."""
    after: float
    """The same of its result."""

    def __str__(self) -> str:
        place = place_text(self.node, self.module, self.source)
        return f"most of it arises in {place}, where the error grows from {self.before:.2g} to {self.after:.2g}"


@dataclass(frozen=True)
class Loss:
    """What weights in fewer bits cost an output, against the model."""

    name: str
    rms: float
    """The root mean square of the error, relative to the output's; of integers, the share of elements that differ."""
    max_rel: float
    """The largest error, relative to the largest magnitude."""
    psnr: float
    """Peak signal-to-noise ratio in dB."""

    @property
    def passed(self) -> bool:
        """Whether at least half of the output is left."""
        return self.rms <= MOST_LOST


MOST_LOST = 0.5
"""The largest part of an output that compression may lose, as root mean square: 6 dB of signal to noise."""


@dataclass(frozen=True)
class Verification:
    """The comparison of a program with eager PyTorch, output by output and backend by backend.

        program.verify_against(model, inputs).check()

    It is true when it passed, and prints as a table.
    """

    errors: tuple[OutputError, ...]
    """The error of each output and state on each backend."""
    tolerance: float | None = None
    """The tolerance for every output; None if each has the tolerance of its type."""
    modules: tuple[ModuleError, ...] = ()
    """The error of the values that leave each module, in the order of the program; empty unless asked for."""
    departure: Departure | None = None
    """Where the numbers first depart; None if the verification passed, or if this was not asked for."""
    reference: str = "eager PyTorch"
    """What the outputs are compared with."""
    overflow: FirstOverflow | None = None
    """The op that made an output NaN or infinite by half precision; None if there is none, or if it is unknown."""
    loss: tuple[Loss, ...] = ()
    """What the compression of weights costs each output; then the errors are those beside a program with the weights
    that are stored. Empty if the errors are those beside the model."""
    effects: tuple[DeviceEffect, ...] = ()
    """What a simulated device computes otherwise, in the order of the program; empty unless one was asked for."""
    not_simulated: tuple[str, ...] = ()
    """What a device is reported to compute wrongly in this program, with sources, where its simulation does not."""
    half_loss: HalfLoss | None = None
    """The op that moves an output in half precision far from the float32 model; None if there is none, or if it is
    unknown."""
    kernels: tuple[KernelCheck, ...] = ()
    """What running the body of each Metal kernel on the CPU says. The outputs are computed by the reference functions,
    so a body that was not run does not fail the verification, and nothing is known about it."""

    @property
    def max_abs(self) -> float:
        """The largest absolute difference of any output on any backend."""
        return max((error.max_abs for error in self.errors), default=0.0)

    @property
    def passed(self) -> bool:
        """Whether there are outputs, and every one is within its tolerance on every backend; of a compressed program,
        also whether every output keeps at least half of what the model computes; and whether no body of a Metal kernel
        is wrong."""
        kept = all(each.passed for each in self.loss) and not self._wrong_kernels
        return bool(self.errors) and kept and all(error.passed for error in self.errors)

    @property
    def _wrong_kernels(self) -> list[KernelCheck]:
        return [each for each in self.kernels if each.status == "wrong"]

    def __bool__(self) -> bool:
        return self.passed

    @property
    def notes(self) -> tuple[str, ...]:
        """The outputs whose comparison says little although it passed, and why: all their elements are equal, or
        rounding decides about them."""
        noted = (error for error in self.errors if error.note and error.passed)
        texts = (f"output {error.name!r}: {error.note}, so the comparison says little" for error in noted)
        return tuple(f"note: {text}; verify with other inputs" for text in dict.fromkeys(texts))

    @property
    def of_partial_sums(self) -> tuple[str, ...]:
        """Notes on outputs of the runtime that passed only because rounding of partial sums explains their difference
        from the reference, with the size of the difference."""
        return tuple(
            f"output {error.name!r} on the {error.backend} differs from {self.reference} by {error.partial_sums:.3g}, "
            "because the runtime on this machine rounds every partial sum of float16; the evaluator with the same "
            f"rounding agrees within {error.max_abs:.2g}"
            for error in self.errors
            if error.partial_sums and error.passed
        )

    @property
    def of_device(self) -> list[str]:
        """Notes on what a simulated device computes otherwise, one a fact."""
        from patcomp.evaluate.devices import told_effects

        return [*told_effects(self.effects), *(f"not simulated: {text}" for text in self.not_simulated)]

    @property
    def of_half_precision(self) -> tuple[str, ...]:
        """Notes on outputs that half precision makes NaN or infinite, or moves far from the float32 model in PyTorch as
        well."""
        found: dict[str, None] = {}
        for error in self.errors:
            if error.overflows:
                found[_overflowing(error)] = None
            elif error.half_loss:
                text = (
                    f"{error.half_loss:.0%} of its elements differ from the model in float32"
                    if error.element_type[0] in "sui"
                    else f"half precision moves it by {error.half_loss:.2g} of its largest magnitude from the model in "
                    "float32, in PyTorch too"
                )
                found[f"note: output {error.name!r}: {text}"] = None
        named = [str(each) for each in (self.overflow, self.half_loss) if each is not None]
        return (*found, *named) if found else ()

    @property
    def first_wrong_module(self) -> ModuleError | None:
        """The first value that leaves a module and is not within its tolerance; None if there is none."""
        return next((each for each in self.modules if not each.error.passed), None)

    @property
    def first_not_finite(self) -> ModuleError | None:
        """The first value that leaves a module and has a NaN or an infinity, in the program or in PyTorch."""
        return next((each for each in self.modules if not each.error.is_finite), None)

    def check(self) -> Verification:
        """Return the verification if it passed.

        Raises:
            MismatchError: it did not pass; the message names the worst output, its error and the tolerance.
        """
        if self.passed:
            return self
        if not self.errors:
            raise MismatchError("nothing was compared: the program has neither outputs nor states")
        if wrong := self._wrong_kernels:
            raise MismatchError(str(wrong[0]))
        if all(error.passed for error in self.errors):
            lost = max(self.loss, key=lambda each: each.rms)
            raise MismatchError(
                f"the compression of weights loses {lost.rms:.0%} of output {lost.name!r} (root mean square), and "
                f"{MOST_LOST:.0%} may be lost"
            )
        failed = [error for error in self.errors if not error.passed]
        worst = max(failed, key=lambda error: error.max_abs)
        reference = "eager PyTorch" if worst.reference == "eager" else f"the {worst.reference} of the model"
        if overflowing := next((error for error in failed if error.overflows), None):
            raise MismatchError(_overflowing(overflowing) + (f"; {self.overflow}" if self.overflow else ""))
        difference = (
            f"by {worst.median_rel:.3g} of its median magnitude in the median, which is more than "
            f"{worst.median_tolerance:.3g}; only beside its largest element the errors are small"
            if worst.max_abs <= worst.tolerance
            else f"by {worst.max_abs:.3g}, which is more than the tolerance of {worst.tolerance:.3g}"
            if math.isfinite(worst.max_abs)
            else f"infinitely, since only one of both is NaN or infinite (the tolerance is {worst.tolerance:.3g})"
        )
        raise MismatchError(
            f"output {worst.name!r} on the {worst.backend} differs from {reference} {difference}; "
            f"{len(failed)} of {len(self.errors)} comparisons failed"
            + (f"; {self.departure}" if self.departure else "")
        )

    def to_dict(self) -> dict[str, Any]:
        """The verification as plain data for JSON; numbers that JSON lacks are texts, `"inf"`."""
        plain = _plain(self)
        assert isinstance(plain, dict)
        return {"passed": self.passed, **plain}

    def __str__(self) -> str:
        return "\n".join([text_of(*self._tables()), *self._lines()])

    def __rich__(self) -> Any:
        from rich.console import Group

        return Group(*self._tables(), *self._lines())

    def _tables(self) -> list[Table]:
        further = [(self.modules, self._modules), (self.loss, self._losses)]
        return [self._outputs(), *(table() for rows, table in further if rows)]

    def _lines(self) -> list[str]:
        """The notes after the tables."""
        return [
            *self.notes,
            *self.of_half_precision,
            *(f"note: {text}" for text in self.of_partial_sums),
            *(f"note: {text}" for text in self.of_device),
            *([str(self.departure)] if self.departure else []),
            *map(str, self.kernels),
        ]

    def _outputs(self) -> Table:
        result = "passed" if self.errors and all(error.passed for error in self.errors) else "FAILED"
        at = "the tolerances of their types" if self.tolerance is None else f"tolerance {self.tolerance:g}"
        if self.not_simulated:
            count = len(self.not_simulated)
            at += f"; {count} known defect{'s' if count > 1 else ''} of the device not simulated"
        table = _table(f"against {self.reference}: {result} at {at}", ("output", "backend"), self.errors)
        for error in self.errors:
            table.add_row(error.name, error.backend, *_cells(error, self.errors))
        return table

    def _losses(self) -> Table:
        from rich.table import Table

        title = "loss of compression, against eager PyTorch"
        table = Table("output", title=title, title_justify="left")
        for column in ("result", "RMS error", "max rel", "PSNR (dB)"):
            table.add_column(column, justify="left" if column == "result" else "right")
        for each in self.loss:
            result = "kept" if each.passed else "LOST"
            table.add_row(each.name, result, f"{each.rms:.1%}", f"{each.max_rel:.1e}", f"{each.psnr:.0f}")
        return table

    def _modules(self) -> Table:
        """The values that leave modules. If there are many, those that are wrong, or else the least exact ones."""
        shown = self.modules
        if len(shown) > _SHOWN:
            wrong = [each for each in shown if not each.error.passed]
            exact = sorted(shown, key=lambda each: each.error.psnr)
            chosen = {id(each) for each in (wrong or exact)[:_SHOWN]}
            shown = tuple(each for each in shown if id(each) in chosen)
        failed = sum(not each.error.passed for each in self.modules)
        title = f"values that leave the modules, on the evaluator: {failed} of {len(self.modules)} failed"
        title += f", {len(shown)} shown" if len(shown) < len(self.modules) else ""
        errors = [each.error for each in shown]
        table = _table(title, ("module", "value"), errors)
        for each in shown:
            table.add_row(each.module, f"%{each.node}", *_cells(each.error, errors))
        return table


def _overflowing(error: OutputError) -> str:
    return (
        f"output {error.name!r} on the {error.backend} has {error.overflows} elements that are NaN or infinite, where "
        "the model in float32 is finite"
    )


_SHOWN = 20
"""How many modules are printed; `Verification.modules` has all."""


def _table(title: str, named: tuple[str, ...], errors: Any) -> Table:
    from rich.table import Table

    table = Table(*named, "result", title=title, title_justify="left")
    not_finite = () if all(error.is_finite for error in errors) else ("NaN, inf", "in PyTorch")
    columns = ("max abs error", "tolerance", "relative to", "max rel", "median rel", "PSNR (dB)")
    for column in (*columns, *not_finite):
        table.add_column(column, justify="right")
    return table


def _cells(error: OutputError, errors: Any) -> list[str]:
    cells = [
        "passed" if error.passed else "FAILED",
        f"{error.max_abs:.1e}", f"{error.tolerance:.1e}", f"{error.relative_to:.1e}" if error.relative_to else "",
        f"{error.max_rel:.1e}", f"{error.median_rel:.1e}", f"{error.psnr:.0f}",
    ]  # fmt: skip
    if not all(each.is_finite for each in errors):
        cells += [f"{error.nan}, {error.inf}", f"{error.expected_nan}, {error.expected_inf}"]
    return cells


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        own = {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
        return own | ({"passed": value.passed} if isinstance(value, OutputError | Loss) else {})
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
