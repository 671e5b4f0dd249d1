"""What an op does with elements, as traits of its class: `op.has_trait(Elementwise)`, for any op of any dialect.

A row of `coreai_table` implies the traits of its op, or names one; those of PyTorch's operators follow from their rows
in `aten_facts.txt` and from PyTorch's tag. Rules and rewrites ask for a trait where they hold for every op that has it,
so that they know new ops, too.
"""

from __future__ import annotations

from patcomp.ir.xdsl import OpTrait


class Elementwise(OpTrait):
    """Each element of the result depends on one element of each operand."""


class Broadcasting(Elementwise):
    """Operands of different shapes broadcast as in numpy; or there is one operand only."""


class Activation(Broadcasting):
    """The nonlinearity of a layer, of one operand: where a reshape of rows comes before it, it may come behind it."""


class SameShape(OpTrait):
    """The first result has the shape of the first operand."""


class Reduction(OpTrait):
    """The result reduces the first operand along some axes (the second operand) to size 1."""


class Movement(OpTrait):
    """The results have only elements of the operands, numbers among the arguments, and zeros."""


class Selection(Movement):
    """The results have only elements of the first operand, some of them perhaps left out or repeated."""


class Whole(Selection):
    """The result has every element of the first operand, and no other."""


class View(Selection):
    """The results have only elements of the first operand, and may share its memory."""


class Reshape(View):
    """The result has the elements of the first operand in their order, in another shape."""


class Unfolded(OpTrait):
    """What the op computes from constants is not stored in its place: the operands are a smaller form of it, or the
    runtime has no constants of its type."""


class Repetition(OpTrait):
    """The result repeats the first operand."""


class RepeatingView(View, Repetition):
    """A view that repeats its operand along dimensions of size 1."""
