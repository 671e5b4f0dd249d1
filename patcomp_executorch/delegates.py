"""The assets in a program that ExecuTorch has lowered, to run and check them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from executorch.exir.lowered_backend_module import get_lowered_backend_modules

from patcomp import Asset, load


def delegated_assets(program: Any, folder: str | Path, sidecar: str | Path | None = None) -> list[Asset]:
    """The assets of the Core AI delegates of a lowered program, in order.

        (asset,) = delegated_assets(lowered.exported_program(), "assets")
        asset.run({"x": x})

    Args:
        program: the exported program of the `EdgeProgramManager` that `to_edge_transform_and_lower` returns.
        folder: where assets that are in the `.pte` are written, each in a folder that is named by its hash.
        sidecar: the folder of `coreai_sidecar_dir`, for assets beside the `.pte`.

    Raises:
        FileNotFoundError: an asset beside the `.pte` is not there.
        ValueError: an asset is beside the `.pte` and no folder is given, or it is compiled for a device.
    """
    return [load(path) for path in _paths(program, Path(folder), None if sidecar is None else Path(sidecar))]


def _paths(program: Any, folder: Path, sidecar: Path | None) -> Iterator[Path]:
    for module in get_lowered_backend_modules(program.graph_module):
        if module.backend_id != "CoreAIBackend":
            continue
        manifest = json.loads(bytes(module.processed_bytes))
        if manifest["packaging"] == "sidecar":
            if sidecar is None:
                raise ValueError(f"the asset {manifest['path']} is beside the .pte; name the folder, sidecar=")
            yield sidecar / manifest["path"]
        elif manifest["packaging"] == "inline":
            store = module.named_data_store_output
            for name in manifest["files"]:
                file = folder / manifest["hash"] / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(store.buffers[store.pte_data[f"coreai/{manifest['hash']}/{name}"].buffer_index])
            yield folder / manifest["path"]
        else:
            raise ValueError(f"a delegate is compiled for a device ({manifest['packaging']}) and has no asset to load")
