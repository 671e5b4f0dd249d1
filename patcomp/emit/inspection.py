"""What an asset holds: its functions, composites, ops, weights and metadata."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from patcomp.emit.bytecode import AssetFormatError
from patcomp.emit.files.metadata import draws_in, read_metadata
from patcomp.emit.files.replacement import check_asset
from patcomp.emit.stored.errors import UnsupportedInAssetError
from patcomp.emit.stored.folder import read_folder
from patcomp.emit.stored.outline import AssetTensor, AssetWeight, Outline
from patcomp.errors import AssetError
from patcomp.interface.signature import EntrySignature, TensorSpec


@dataclass(frozen=True)
class Inspection:
    """What an asset holds."""

    path: Path
    bytes: int
    """The size of all files of the asset."""
    metadata: Mapping[str, Any]
    """What `metadata.json` says: the producer, the date, the author and what the creator added."""
    functions: Mapping[str, EntrySignature]
    """Inputs, outputs and states by entry point."""
    composites: Mapping[str, int]
    """How often the asset calls each composite."""
    ops: Mapping[str, int]
    """How many ops of each name there are, the most frequent first; those in composites count once."""
    weights: tuple[AssetWeight, ...]
    """The weights that are stored as buffers, the largest first."""

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data for JSON."""
        return {
            "path": str(self.path),
            "bytes": self.bytes,
            "metadata": dict(sorted(self.metadata.items())),
            "functions": {name: signature.to_dict() for name, signature in self.functions.items()},
            "composites": dict(self.composites),
            "ops": dict(self.ops),
            "weights": [asdict(weight) for weight in self.weights],
        }


def inspect_asset(path: Path) -> Inspection:
    """Look into an asset. Its program is not verified, and weights are not read.

    Raises:
        FileNotFoundError: there is nothing at the path.
        AssetError: what is at the path is not an asset, is damaged, or has something that patcomp does not know.
    """
    check_asset(path)
    data = read_metadata(path)
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    try:
        outline = Outline(read_folder(path))
        functions = {
            name: _signature(arguments, results, draws_in(data, name))
            for name, arguments, results in outline.entry_points()
        }
        composites = dict(sorted(Counter(outline.composites()).items()))
        ops = dict(sorted(Counter(outline.op_names()).items(), key=lambda item: (-item[1], item[0])))
        weights = tuple(sorted(outline.weights(), key=lambda weight: (-weight.bytes, weight.name)))
    except (AssetFormatError, UnsupportedInAssetError) as error:
        raise AssetError(f"the asset {str(path)!r} cannot be read", tuple(str(error).splitlines())) from error
    return Inspection(path, size, data, functions, composites, ops, weights)


def _signature(arguments: list[AssetTensor], results: list[AssetTensor], draws: Mapping[str, str]) -> EntrySignature:
    return EntrySignature(
        inputs=tuple([_spec(each, draws.get(each.name, "")) for each in arguments if not each.is_state]),
        outputs=tuple([_spec(each) for each in results]),
        states=tuple([_spec(each) for each in arguments if each.is_state]),
    )


def _spec(tensor: AssetTensor, distribution: str = "") -> TensorSpec:
    return TensorSpec(tensor.name, tensor.shape, tensor.element_type, distribution)
