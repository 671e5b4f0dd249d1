"""Palettes: the few numbers that stand for all elements of a weight with the least squared error (k-means).

In one dimension a cluster is an interval of the sorted elements. Dynamic programming finds the best intervals of bins,
and Lloyd's algorithm (1982) moves their ends, where a step is a search and a difference of running sums, whatever the
number of elements is. Entries of several elements are found by Lloyd's algorithm over a sample, which begins with
k-means++ (Arthur and Vassilvitskii 2007).
"""

from __future__ import annotations

import numpy as np

_STEPS = 200
_SAMPLE = 1 << 20
"""The number of elements from which the palette is computed; of larger weights, every n-th of the sorted elements."""
_VECTORS = 1 << 16
"""The same for vectors."""
_VECTOR_STEPS = 50


def palette(elements: np.ndarray, bits: int, round_to: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """The palette of 2^bits numbers, ascending, and the index of the nearest for each element.

    Args:
        elements: float32, one-dimensional.
        bits: bits of an index.
        round_to: the dtype of the palette.
    """
    ordered, count = np.sort(elements), 1 << bits
    is_new = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    if np.count_nonzero(is_new) <= count:
        found = np.pad(ordered[is_new], (0, count - int(np.count_nonzero(is_new))), mode="edge")
    else:
        sample = ordered[:: -(-ordered.size // _SAMPLE)].astype(np.float64)
        sums, squares = (np.concatenate([[0.0], np.cumsum(sample**power)]) for power in (1, 2))
        starts = (np.quantile(sample, (np.arange(count) + 0.5) / count), _best_of_bins(sample, sums, squares, count))
        found = min((_refined(sample, sums, squares, start) for start in starts), key=lambda each: each[0])[1]
    table = np.sort(found.astype(np.float32)).astype(round_to)
    middles = (table[:-1].astype(np.float32) + table[1:].astype(np.float32)) / 2
    indices = np.empty(elements.size, np.uint8)
    for start in range(0, elements.size, _SAMPLE):  # positions take eight bytes each
        indices[start : start + _SAMPLE] = np.searchsorted(middles, elements[start : start + _SAMPLE])
    return table, indices


def _best_of_bins(sample: np.ndarray, sums: np.ndarray, squares: np.ndarray, count: int) -> np.ndarray:
    """The best palette for clusters of whole bins, by dynamic programming (Wang and Song 2011).

    Bins are as dense as the cube root of the elements' density, which is how dense the best palette is (Panter and Dite
    1951).
    """
    # the density between two elements is one over their distance
    reached = np.concatenate([[0.0], np.cumsum(np.diff(sample) ** (2 / 3))])
    bins = max(min(12 * count, 1024), 128)
    numbers = np.interp(np.arange(1, bins) / bins * reached[-1], reached, sample)
    ends = np.unique(np.concatenate([[0], np.searchsorted(sample, numbers), [sample.size]]))
    if ends.size <= count:
        return np.interp((np.arange(count) + 0.5) / count * reached[-1], reached, sample)
    counts, errors = np.subtract.outer(ends, ends).T, np.subtract.outer(squares[ends], squares[ends]).T
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = np.where(counts > 0, errors - np.subtract.outer(sums[ends], sums[ends]).T ** 2 / counts, np.inf)
    best, before = errors[0], []  # of one cluster from the first end to each; then of two, ...
    for _ in range(count - 1):
        totals = best[:, None] + errors
        before.append(totals.argmin(axis=0))
        best = totals[before[-1], np.arange(ends.size)]
    cuts = [ends.size - 1]
    for previous in reversed(before):
        cuts.append(previous[cuts[-1]])
    chosen = ends[[0, *reversed(cuts)]]
    return np.diff(sums[chosen]) / np.diff(chosen)


def _refined(sample: np.ndarray, sums: np.ndarray, squares: np.ndarray, table: np.ndarray) -> tuple[float, np.ndarray]:
    """The squared error and the palette after Lloyd's algorithm; a cluster that becomes empty keeps its number."""
    for _ in range(_STEPS):
        ends = _ends(sample, table)
        counts = np.diff(ends)
        means = np.where(counts > 0, np.diff(sums[ends]) / np.maximum(counts, 1), table)
        if np.array_equal(means, table):
            break
        table = np.sort(means)
    ends = _ends(sample, table)
    counts = np.diff(ends)
    errors = np.diff(squares[ends]) - 2 * table * np.diff(sums[ends]) + counts * table**2
    return float(errors.sum()), table


def _ends(sample: np.ndarray, table: np.ndarray) -> np.ndarray:
    middles = np.searchsorted(sample, (table[:-1] + table[1:]) / 2)
    return np.concatenate([[0], middles, [sample.size]])


def vector_palette(vectors: np.ndarray, bits: int, round_to: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """The palette of 2^bits vectors, and the index of the nearest for each vector.

    Args:
        vectors: float32, of shape (count, length).
        bits: bits of an index.
        round_to: the dtype of the palette.
    """
    random = np.random.default_rng(0)  # the same weight gives the same palette
    sample = vectors
    if len(vectors) > _VECTORS:
        sample = vectors[np.sort(random.choice(len(vectors), _VECTORS, replace=False))]
    table = sample[random.integers(len(sample), size=1 << bits)].copy()
    distance = np.full(len(sample), np.inf)
    for entry in range(1, 1 << bits):
        distance = np.minimum(distance, ((sample - table[entry - 1]) ** 2).sum(axis=1, dtype=np.float64))
        reached = np.cumsum(distance)
        if reached[-1] == 0:
            break  # fewer different vectors than entries
        table[entry] = sample[np.searchsorted(reached, random.random() * reached[-1], side="right")]
    for _ in range(_VECTOR_STEPS):
        indices = _nearest(sample, table)
        counts = np.bincount(indices, minlength=len(table))[:, None]
        sums = [np.bincount(indices, column, minlength=len(table)) for column in sample.T]
        means = np.where(counts > 0, np.stack(sums, axis=1) / np.maximum(counts, 1), table).astype(np.float32)
        if np.array_equal(means, table):
            break
        table = means
    table = table.astype(round_to)
    return table, _nearest(vectors, table.astype(np.float32)).astype(np.uint8)


def _nearest(vectors: np.ndarray, table: np.ndarray) -> np.ndarray:
    """The entry that is nearest to each vector, some of them at a time."""
    lengths = (table**2).sum(axis=1) / 2
    parts = range(0, len(vectors), _VECTORS)
    return np.concatenate([np.argmax(vectors[at : at + _VECTORS] @ table.T - lengths, axis=1) for at in parts])
