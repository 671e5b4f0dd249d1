"""Integers seen as other integers, by arithmetic: Core AI has no bit cast."""

from __future__ import annotations

from patcomp.authoring import Coreai
from patcomp.ir.types import BIT_WIDTHS, element_name, is_integer
from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, lowering
from patterns_catalog.lower.casts import convert, wrap
from patterns_catalog.sizes import sizes_of, view_sizes


@lowering("aten.view.dtype", examples=[
    example("2x3xui8[0,255]", "si8"), example("2x4xsi8[-128,127]", "si16"), example("3xsi32[-70000,70000]", "ui8"),
    example("8xui8[0,255]", "si32"), example("4xi1", "ui8"), example("2x3xf32", "f32"),
])  # fmt: skip
def view_dtype(op: OpView, c: Coreai) -> Value:
    "the low parts of each integer first, as little-endian memory has them"
    op.ignore("dtype", because="the result type has it")
    x, wanted = op["self"], op.result.element_type
    before, after = x.dtype, element_name(wanted)
    widths = [8 if name == "i1" else BIT_WIDTHS[name] for name in (before, after)]
    sizes = [shape[-1] if shape else 1 for shape in (x.shape, op.result.shape)]
    # a type of 64 bits may have been narrowed before
    whole = sizes[0] is None or sizes[1] is None or sizes[0] * widths[0] == sizes[1] * widths[1]
    if before == after and whole:
        return x
    integers = all(name == "i1" or is_integer(of) for name, of in ((before, x.element_type), (after, wanted)))
    op.expect(
        whole and integers and (widths[0] == widths[1] or (max(widths) < 64 and "i1" not in (before, after))),
        "a view of computed numbers as another element type is supported between integers of up to 32 bits only, "
        "because Core AI has no bit cast; view a weight or buffer, or compute the numbers by arithmetic",
    )
    if "i1" in (before, after):
        return convert(c, x, wanted)
    if widths[0] == widths[1]:
        return wrap(c, x, after)
    numbers, count = c.cast(x, "si32"), max(widths) // min(widths)
    if widths[0] > widths[1]:
        steps = [c.broadcasting_floor_divide(numbers, 1 << (widths[1] * step)) for step in range(count)]
        joined = c.concat(x.rank, [c.expand_dims(wrap(c, part, after), [x.rank]) for part in steps])
        return c.reshape(joined, view_sizes(op.result.shape, [*sizes_of(c, x)[:-1], -1]))
    parts = c.reshape(numbers, [*view_sizes(op.result.shape, [*sizes_of(c, x)[:-1], -1]), count])
    low = c.broadcasting_bitwise_and(parts, (1 << widths[0]) - 1)
    factors = c.constant([1 << (widths[0] * step) for step in range(count)], "si32")
    return wrap(c, c.shrink_dims(c.reduce_sum(c.broadcasting_mul(low, factors), [x.rank]), [x.rank]), after)
