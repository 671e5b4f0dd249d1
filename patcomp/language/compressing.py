"""Language models in few bits: on the way into a bundle, or from a bundle that exists."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from patcomp import AIProgram
from patcomp.compression import CompressionRequest, weights_of
from patcomp.emit.asset import Writer, load
from patcomp.emit.metadata import AssetMetadata
from patcomp.errors import ConversionWarning
from patcomp.language.bundle import Bundle
from patcomp.language.errors import LanguageModelError
from patcomp.language.unfinished import unfinished


def compressed(program: AIProgram, request: CompressionRequest, vocabulary: int) -> AIProgram:
    """The program of a language model with smaller weights; a warning names each large weight that stays as it is.

    Args:
        program: the program, which is not changed.
        request: how small the weights become; `4bit` leaves the head in 8 bits.
        vocabulary: the number of tokens, by which the head is known.
    """
    head = [
        weight.name for weight in weights_of(program.module) if "matmul" in weight.kinds and vocabulary in weight.shape
    ]
    made: AIProgram = request.with_head(head).applied(program.compress)
    assert made.compression is not None
    for other in made.compression.others:
        warnings.warn(str(other), ConversionWarning, stacklevel=3)
    return made


def compress_bundle(
    bundle: str | Path,
    compress: str | Path | Mapping[str, Any] | CompressionRequest,
    *,
    out: str | Path,
    writer: Writer | None = None,
) -> Bundle:
    """Write a bundle again with smaller weights; the first one is not changed.

    Args:
        bundle: the folder of the bundle.
        compress: how small the weights become, as in `convert_language_model`.
        out: the folder of the new bundle, which must not exist.
        writer: what writes the asset, as in `convert_language_model`.

    Raises:
        LanguageModelError: the folder is no bundle, there is something at `out`, or the bundle is compressed already.
        ValueError: `compress` is no scheme, config or budget, or no weight can be compressed.
    """
    source, place, request = Path(bundle), Path(out), CompressionRequest.of(compress)
    if not (source / "metadata.json").is_file():
        raise LanguageModelError(f"{str(source)!r} is not a bundle: it has no metadata.json")
    if place.exists():
        raise LanguageModelError(f"{str(place)!r} exists; choose another folder for the bundle, or move it away")
    described = Bundle(source).metadata
    if described.get("compression"):
        raise LanguageModelError(
            f"the bundle {str(source)!r} is compressed already ({described['compression']}); compress the one that it "
            "was made of, because rounding twice loses more"
        )
    asset = load(Bundle(source).asset)
    program = AIProgram(asset.module, initial_state=asset.initial_state)
    made = compressed(program, request, described["language"]["vocab_size"])
    with unfinished(place, uuid4().hex) as work:
        for each in source.iterdir():
            if each.is_dir() and each.suffix != ".aimodel":
                shutil.copytree(each, work.folder / each.name)
        name = described["assets"]["main"]
        made.save_asset(work.folder / name, metadata=_metadata(source / name), writer=writer)
        described["compression"] = request.text
        (work.folder / "metadata.json").write_text(json.dumps(described, indent=2) + "\n")
    return Bundle(place)


def _metadata(asset: Path) -> AssetMetadata:
    """What an asset says about itself."""
    found = json.loads((asset / "metadata.json").read_text())
    own = {
        key: value for key, value in found.get("creatorDefinedMetadata", {}).items() if not key.startswith("patcomp.")
    }
    return AssetMetadata(found.get("author", ""), found.get("license", ""), found.get("description", ""), own)
