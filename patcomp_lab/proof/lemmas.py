"""The identities of numbers that proofs on symbols take as given.

Each holds for every number of a type, also NaN, infinities and zeros of either sign; only which NaN it is stays open.
`tests/proof_lemmas` proves each of them bit for bit with z3. A verdict names those that a proof used.
"""

from __future__ import annotations

LEMMAS = {
    "x * 1 = x": "a product with one",
    "x / 1 = x": "a quotient by one",
    "x + -0 = x": "a sum with the negative zero",
    "x - 0 = x": "a difference to the positive zero",
    "x * -1 = -x": "a product with minus one only changes the sign",
    "x + -y = x - y": "a sum with a negated number",
    "x + y = y + x": "the order of the operands of a sum",
    "x * y = y * x": "the order of the operands of a product",
    "a wider type has every number": "a cast to a wider type and back, or on, loses nothing",
}
"""What each lemma is about, by its name, which says it."""
