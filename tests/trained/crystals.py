"""The graph of a crystal, as a model of atoms takes it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Neighbours:
    """The pairs of near atoms of a crystal, whose cell repeats, and the pairs of near bonds of an atom.

    Attributes:
        bonds: atom and neighbour, (pairs, 2).
        images: in which cell the neighbour is, (pairs, 3).
        pair_of: the number of a bond without its direction, (pairs).
        bond_of: one of the two bonds with such a number, (pairs / 2).
        angles: the atom, and for each of two bonds its number without and with its direction, (angles, 5).
    """

    bonds: Tensor
    images: Tensor
    pair_of: Tensor
    bond_of: Tensor
    angles: Tensor


ROCK_SALT = ((0, 0, 0), (0, 1, 1), (1, 0, 1), (1, 1, 0), (1, 1, 1), (1, 0, 0), (0, 1, 0), (0, 0, 1))
"""The halves of a cubic cell at which the atoms are: four of one element, four of the other."""


def neighbours(side: float, far: float, near: float) -> Neighbours:
    """The neighbours in rock salt.

    Args:
        side: of the cubic cell, Å.
        far: the longest bond, Å.
        near: the longest bond that angles have, Å.
    """
    places = torch.tensor(ROCK_SALT) / 2
    cells = torch.cartesian_prod(*[torch.arange(-2, 3)] * 3)
    found, numbers, first = [], {}, []
    for center, place in enumerate(places.tolist()):
        apart = (places[None] + cells[:, None] - torch.tensor(place)) * side
        for cell, other in (apart.norm(dim=-1) < far).nonzero().tolist():
            image, length = tuple(cells[cell].tolist()), float(apart[cell, other].norm())
            if length == 0:
                continue
            back = (other, center, tuple(-each for each in image))
            number = numbers.get(back, len(first))
            if number == len(first):
                first.append(len(found))
            numbers[center, other, image] = number
            found.append((center, other, *image, number, length))
    angles = [
        (one[0], one[5], at, other[5], beside)
        for at, one in enumerate(found) for beside, other in enumerate(found)
        if at != beside and one[0] == other[0] and max(one[6], other[6]) < near
    ]  # fmt: skip
    table = torch.tensor([each[:6] for each in found])
    return Neighbours(table[:, :2], table[:, 2:5].float(), table[:, 5], torch.tensor(first), torch.tensor(angles))
