"""Per-layer embeddings (Gemma 3n, Gemma 4) outside of the asset: a table in a file, whose rows are an input.

The table is most of such a model's weights, and a call reads a row for each token. In a file that is mapped, the rows
of other tokens are never in memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from patcomp.evaluate.given import as_array
from patcomp_models.checkpoints.quantized.weight import Unpacking
from patcomp_models.checkpoints.untrusted import bytes_of, inside
from patcomp_models.errors import LanguageModelError
from patcomp_models.language.contract import PER_LAYER, TABLE_FILE
from patcomp_models.language.decoder import Decoder, NewTokens

_MODULE = "embed_tokens_per_layer"
_TRIED = 8
"""How many rows show that `Rows` computes what the model's own table does."""


class Rows(nn.Module):
    """A replacement for a table of embeddings: it returns given rows, or the table's rows if none are given.

    Args:
        table: of a model of transformers.

    Raises:
        LanguageModelError: the table is in few bits, or does more with its rows than to scale them.
    """

    given: Tensor | None = None

    def __init__(self, table: Any):
        super().__init__()
        self._table = (table,)  # in a tuple, so that its weight is no weight of the program
        if any(isinstance(part, Unpacking) for part in table.modules()):
            raise LanguageModelError(
                "embeddings='outside' (--embeddings outside) goes with a table of floats, and the table of per-layer "
                "embeddings is stored in few bits; leave it out"
            )
        few = torch.arange(min(_TRIED, len(table.weight)))
        with torch.no_grad():
            self.given = self.weight[few]
            is_right = torch.equal(self(few), table(few))
        self.given = None
        if not is_right:
            raise LanguageModelError(
                f"{type(table).__name__} does more with its rows than to scale them, so it cannot be outside of the "
                "asset; leave embeddings= (--embeddings) out"
            )

    @property
    def weight(self) -> Tensor:
        """(rows, width)"""
        found: Tensor = self._table[0].weight
        return found

    def forward(self, tokens: Tensor) -> Tensor:
        (table,) = self._table
        if self.given is None:
            made: Tensor = table(tokens)
            return made
        scale = float(getattr(table, "embed_scale", 1.0))
        return self.given * torch.tensor(scale).to(self.weight.dtype)


@contextmanager
def outside(model: Any) -> Iterator[Rows]:
    """Exchange the table of per-layer embeddings of a model for one whose rows can be given; the own one comes back.

    Raises:
        LanguageModelError: the model has no such table; or as `Rows`.
    """
    places = [module for module in model.modules() if _MODULE in dict(module.named_children())]
    if len(places) != 1:
        raise LanguageModelError(
            f"{type(model).__name__} has no table of per-layer embeddings; embeddings='outside' (--embeddings outside) "
            "goes with Gemma 3n and Gemma 4"
        )
    table = getattr(places[0], _MODULE)
    rows = Rows(table)
    setattr(places[0], _MODULE, rows)
    try:
        yield rows
    finally:
        setattr(places[0], _MODULE, table)


class PerLayerDecoder(Decoder):
    """A causal language model that takes per-layer embeddings.

        logits = decoder(input_ids, position_ids, per_layer_embeddings, *states)

    Args:
        model: while its table is `outside`.
        rows: in the place of the table.
        options: of `Decoder`.
    """

    further = (PER_LAYER,)

    def __init__(self, model: Any, rows: Rows, **options: Any):
        super().__init__(model, **options)
        self._rows = (rows,)

    def further_examples(self, new: int) -> tuple[Tensor, ...]:
        weight = self._rows[0].weight
        return (torch.zeros(1, new, weight.shape[1], dtype=weight.dtype),)

    def fed(self, tokens: np.ndarray) -> dict[str, Any]:
        weight = self._rows[0].weight.detach()
        return {PER_LAYER: as_array(weight[torch.from_numpy(_in_table(tokens, len(weight)))])}

    def _logits(self, call: NewTokens) -> Tensor:
        (rows,) = self._rows
        (rows.given,) = call.further
        try:
            return super()._logits(call)
        finally:
            rows.given = None


def _in_table(tokens: np.ndarray, rows: int) -> np.ndarray:
    """The rows of tokens; Gemma 3n reads the first row for tokens behind its table."""
    return np.where(tokens < rows, tokens, 0)


# ---- the file -----------------------------------------------------------------------------------------

_TYPES = {torch.int8: "I8", torch.float16: "F16", torch.bfloat16: "BF16", torch.float32: "F32"}
_NAMES = ("int8", "float16", "bfloat16", "float32")
_CHUNK = 1 << 26
"""How many bytes are written at once."""


def write_table(place: Path, weight: Tensor, name: str = PER_LAYER) -> None:
    """Write a table as a file of safetensors with one tensor of a name."""
    data = weight.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
    entry = {"dtype": _TYPES[weight.dtype], "shape": [*weight.shape], "data_offsets": [0, data.nbytes]}
    header = json.dumps({name: entry}).encode()
    header += b" " * (-len(header) % 8)
    with place.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for start in range(0, data.nbytes, _CHUNK):
            file.write(data[start : start + _CHUNK].data)


def described_table(weight: Tensor, file: str = TABLE_FILE, name: str = PER_LAYER) -> dict[str, Any]:
    """What `metadata.json` says of a table.

    Args:
        weight: the table.
        file: of the bundle, that has it.
        name: of the input that takes its rows.
    """
    kind = str(weight.dtype).removeprefix("torch.")
    return {"file": file, "input": name, "rows": len(weight), "width": weight.shape[1], "dtype": kind}


class PerLayerTable:
    """A table in a file, which is mapped.

    Args:
        folder: of the bundle.
        described: the block of `metadata.json`.

    Raises:
        LanguageModelError: the file is not there, or has another size.
    """

    def __init__(self, folder: Path, described: Mapping[str, Any]):
        import ml_dtypes

        file = inside(folder, described["file"], "the file of a table of metadata.json", LanguageModelError)
        shape, name = (described["rows"], described["width"]), described["dtype"]
        if not all(isinstance(each, int) and each > 0 for each in shape) or name not in _NAMES:
            raise LanguageModelError(
                f"metadata.json describes a table of {shape[0]!r} x {shape[1]!r} of {name!r}; it must have numbers "
                f"and one of {', '.join(_NAMES)}"
            )
        dtype = np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
        size = shape[0] * shape[1] * dtype.itemsize
        if not file.is_file():
            raise LanguageModelError(f"the bundle has no {file.name}, the table of its per-layer embeddings")
        start = 8 + int.from_bytes(bytes_of(file, 8), "little")
        if file.stat().st_size != start + size:
            raise LanguageModelError(
                f"{str(file)!r} has {file.stat().st_size} bytes, and a table of {shape[0]} x {shape[1]} of {name} has "
                f"{start + size}"
            )
        self._rows = np.memmap(file, dtype, "r", start, shape)

    def rows_of(self, tokens: np.ndarray) -> np.ndarray:
        """The rows of tokens."""
        return np.asarray(self._rows[_in_table(tokens, len(self._rows))])

    def fed(self, tokens: np.ndarray) -> dict[str, Any]:
        """The input of tokens, (1, q), by name."""
        return {PER_LAYER: self.rows_of(tokens)}
